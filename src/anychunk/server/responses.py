"""Answers: ranges, tags, and the status of each kind of failure.

A 404 says that a chunk is absent, and a Zarr client shows fill values for it. So nothing that
merely went wrong is ever answered by one.
"""

import asyncio
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    SourceChangedError,
    SourceError,
    TruncatedError,
)
from anychunk.server.bodies import Body, Held

PIECE = 256 << 10
"""Bodies are handed to the connection in such pieces, as fast as it takes them."""

SMALL = 64 << 10
"""Answers up to this length always find room."""
WAIT_S = 20.0
"""How long a larger one waits for it."""

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


class Room:
    """How much of large answers is in memory at once."""

    def __init__(self, most: int) -> None:
        self._most, self.taken = most, 0
        self._free = asyncio.Condition()

    async def take(self, nbytes: int) -> None:
        """Wait until there is room."""
        if not self._has(nbytes):
            try:
                async with self._free, asyncio.timeout(WAIT_S):
                    await self._free.wait_for(lambda: self._has(nbytes))
            except TimeoutError as e:
                raise BusyError("many large answers are under way; ask again later") from e
        self.taken += nbytes

    def _has(self, nbytes: int) -> bool:
        return nbytes <= SMALL or not self.taken or self.taken + nbytes <= self._most

    async def give(self, nbytes: int) -> None:
        self.taken -= nbytes
        async with self._free:
            self._free.notify_all()


class Pieces(Response):
    """A response whose body is sent piece by piece, as fast as the client takes it."""

    def __init__(
        self,
        body: Body,
        status: int,
        headers: Mapping[str, str],
        *,
        part: tuple[int, int] | None = None,
        room: Room | None = None,
    ) -> None:
        self.status_code = status
        self.background = None
        self.body = b""
        self._body, self._room = body, room
        self._start, self._stop = part or (0, len(body))
        self.raw_headers = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            self._stop = self._start
        if self._room is None:
            await self._send(send)
            return
        held = self._stop - self._start if self._body.is_at_hand else PIECE
        is_started = False

        async def noted(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            await self._room.take(held)
            try:
                await self._send(noted)
            finally:
                await self._room.give(held)
        except (AnychunkError, OSError) as e:
            if is_started:
                # too late to say so: what arrives is shorter than announced
                raise
            await failed(e, scope)(scope, receive, send)

    async def _send(self, send: Send) -> None:
        start, stop = self._start, self._stop
        piece = await self._read(start, min(start + PIECE, stop))
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        while True:
            start += PIECE
            await send({"type": "http.response.body", "body": piece, "more_body": start < stop})
            if start >= stop:
                return
            piece = await self._read(start, min(start + PIECE, stop))

    async def _read(self, start: int, stop: int) -> bytes | memoryview:
        if self._body.is_at_hand or start == stop:
            return self._body.read(start, stop)
        return await asyncio.to_thread(self._body.read, start, stop)


NOTHING = Held(b"", "")


def answer(
    request: Request, body: Body, *, media: str = BYTES, cache: str = "no-cache"
) -> Response:
    """Answer with a body, or the part of it that is asked for, or that it has not changed."""
    room: Room = request.app.state.server.room
    headers = {
        "content-type": media,
        "etag": body.etag,
        "cache-control": cache,
        "accept-ranges": "bytes",
    }
    if matches(request.headers.get("if-none-match"), body.etag):
        return Pieces(NOTHING, 304, headers)
    # RFC 9110 section 14.2: a range means something to GET alone
    wanted = request.headers.get("range") if request.method == "GET" else None
    if_range = request.headers.get("if-range")
    if wanted is not None and (if_range is None or if_range == body.etag):
        part = byte_range(wanted, len(body))
        if part == "beyond":
            headers |= {"content-range": f"bytes */{len(body)}", "content-length": "0"}
            return Pieces(NOTHING, 416, headers)
        if isinstance(part, tuple):
            start, stop = part
            headers["content-range"] = f"bytes {start}-{stop - 1}/{len(body)}"
            headers["content-length"] = str(stop - start)
            return Pieces(body, 206, headers, part=part, room=room)
    headers["content-length"] = str(len(body))
    return Pieces(body, 200, headers, room=room)


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
    return Pieces(Held.of(body), status, headers)


def failed(error: BaseException, scope: Scope) -> Response:
    """Answer that this went wrong, without saying where the file is."""
    status = status_of(error)
    line = str(error) if status != 500 else f"{type(error).__name__}: {error}"
    entry = scope.get("state", {}).get("entry")
    return failure(status, entry.say(line) if entry is not None else " ".join(line.split()))
