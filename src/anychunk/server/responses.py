"""Answers: ranges, tags, and the status of each kind of failure.

A 404 says that a chunk is absent, and a Zarr client shows fill values for it. So nothing that
merely went wrong is ever answered by one.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    SourceChangedError,
    SourceError,
    TruncatedError,
)
from anychunk.server.chunks import Body

PIECE = 64 << 10
"""Bodies are handed to the connection in such pieces, as fast as it takes them."""

JSON = "application/json"
BYTES = "application/octet-stream"


class BusyError(AnychunkError):
    """More is under way than this server takes on."""


def status_of(error: BaseException) -> int:
    """Give the status of a failure: refused 415, changed 409, upstream 502, ours 500."""
    match error:
        case BusyError():
            return 503
        case SourceChangedError():
            return 409
        case SourceError() | TruncatedError() | ChunkDecodeError():
            return 502
        case AnychunkError():
            return 415
        case OSError():
            return 502
    return 500


class Pieces(Response):
    """A response whose body is sent piece by piece: a slow client holds no more than one."""

    def __init__(self, body: bytes | memoryview, status: int, headers: Mapping[str, str]) -> None:
        self.status_code = status
        self.background = None
        self.body = b""
        self._body = memoryview(body)
        self.raw_headers = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        body = self._body if scope["method"] != "HEAD" else self._body[:0]
        for start in range(0, max(len(body), 1), PIECE):
            await send(
                {
                    "type": "http.response.body",
                    "body": body[start : start + PIECE].tobytes(),
                    "more_body": start + PIECE < len(body),
                }
            )


def answer(
    request: Request, body: Body, *, media: str = BYTES, cache: str = "no-cache"
) -> Response:
    """Answer with a body, or the part of it that is asked for, or that it has not changed."""
    headers = {
        "content-type": media,
        "etag": body.etag,
        "cache-control": cache,
        "accept-ranges": "bytes",
    }
    if matches(request.headers.get("if-none-match"), body.etag):
        return Pieces(b"", 304, headers)
    wanted = request.headers.get("range")
    if_range = request.headers.get("if-range")
    if wanted is not None and (if_range is None or if_range == body.etag):
        part = byte_range(wanted, len(body))
        if part == "beyond":
            headers |= {"content-range": f"bytes */{len(body)}", "content-length": "0"}
            return Pieces(b"", 416, headers)
        if isinstance(part, tuple):
            start, stop = part
            headers["content-range"] = f"bytes {start}-{stop - 1}/{len(body)}"
            headers["content-length"] = str(stop - start)
            return Pieces(memoryview(body.data)[start:stop], 206, headers)
    headers["content-length"] = str(len(body))
    return Pieces(body.data, 200, headers)


def matches(header: str | None, etag: str) -> bool:
    """Whether an If-None-Match names this tag (RFC 9110 section 13.1.2: weakly compared)."""
    if header is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return "*" in tags or etag in tags


def byte_range(header: str, size: int) -> tuple[int, int] | str | None:
    """Read a Range header: (start, stop), or `beyond`, or None where it is to be ignored.

    RFC 9110 section 14.2: what is no single range of bytes may be ignored.
    """
    match = re.fullmatch(r"bytes=(\d{0,20})-(\d{0,20})", header.strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(int(last or size), size - 1) + 1
        if last and int(last) < start:
            return None
    return (start, stop) if start < stop else "beyond"


def as_json(value: Any) -> bytes:
    """Write JSON that browsers read: numbers that are none become strings, as in Zarr."""
    try:
        return json.dumps(value, allow_nan=False).encode()
    except ValueError:
        return json.dumps(finite(value), allow_nan=False).encode()


def finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Mapping():
            return {key: finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
    return value


def failure(status: int, line: str) -> Response:
    """Answer that something is wrong, on one line."""
    body = as_json({"error": line})
    headers = {"content-type": JSON, "content-length": str(len(body)), "cache-control": "no-store"}
    if status == 503:
        headers["retry-after"] = "1"
    return Pieces(body, status, headers)
