"""Responses: byte ranges, ETags, and the status of each kind of failure.

A Zarr client shows fill values for a chunk that is answered by 404. So 404 means that a chunk is
absent, and a failure has another status.
"""

import asyncio
import json
import logging
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
    InternalError,
    MissingFileError,
    SourceChangedError,
    SourceError,
    TruncatedError,
)
from anychunk_serve.response_bodies import Body, BytesBody

log = logging.getLogger("anychunk.serve")

PIECE = 256 << 10
"""Bytes of a body that are handed to the connection at once."""

SMALL = 64 << 10
"""Responses up to this length never wait for memory."""
WAIT_S = 20.0
"""Time that a larger response waits for memory."""

JSON = "application/json"
BYTES = "application/octet-stream"

DEFECT = "internal error of anychunk; please report it with the traceback from the server's log"


class BusyError(AnychunkError):
    """The server has too much work in progress."""


STATUSES: tuple[tuple[type[BaseException], int], ...] = (
    (InternalError, 500),
    (BusyError, 503),
    (SourceChangedError, 409),
    # the source failed, or what it delivered is damaged
    (SourceError, 502),
    (MissingFileError, 502),
    (TruncatedError, 502),
    (ChunkDecodeError, 502),
    # the file, or this part of it, is not supported
    (AnychunkError, 415),
    (OSError, 502),
)
"""Statuses by class of error; the first match applies."""


def status_of(error: BaseException) -> int:
    """Return the HTTP status of a failure; 500 for everything unexpected."""
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


def error_line(error: BaseException) -> str:
    """Return one line about a failure; a defect is only logged, because it may reveal internals."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if status_of(error) == 500:
        log.error("%s", DEFECT, exc_info=error)
        return DEFECT
    return " ".join(str(error).split()) or type(error).__name__


class SendBudget:
    """Bounds the bytes of responses that are in memory at once."""

    def __init__(self, most: int) -> None:
        self._most, self.taken = most, 0
        self._freed = asyncio.Condition()
        self._shared: dict[int, int] = {}
        """How many responses send the same body, by its `id`."""

    async def acquire(self, body: Body, nbytes: int) -> None:
        """Wait until `nbytes` of a body fit; raise `BusyError` after `WAIT_S`.

        A body that is sent to several clients at once is in memory once, and is counted once.
        """
        if not self._fits(body, nbytes):
            try:
                async with self._freed, asyncio.timeout(WAIT_S):
                    await self._freed.wait_for(lambda: self._fits(body, nbytes))
            except TimeoutError as e:
                raise BusyError(
                    f"{self.taken} bytes of other responses are in memory; try again later"
                ) from e
        senders = self._shared.get(id(body), 0)
        self._shared[id(body)] = senders + 1
        if not senders:
            self.taken += nbytes

    def _fits(self, body: Body, nbytes: int) -> bool:
        # one response always fits, however large, or it would never be sent
        is_free = nbytes <= SMALL or not self.taken or id(body) in self._shared
        return is_free or self.taken + nbytes <= self._most

    async def release(self, body: Body, nbytes: int) -> None:
        self._shared[id(body)] -= 1
        if not self._shared[id(body)]:
            del self._shared[id(body)]
            self.taken -= nbytes
            async with self._freed:
                self._freed.notify_all()


class PiecewiseResponse(Response):
    """A response whose body is sent in pieces, as fast as the client reads them."""

    def __init__(
        self,
        body: Body,
        status: int,
        headers: Mapping[str, str],
        *,
        part: tuple[int, int] | None = None,
        budget: SendBudget | None = None,
    ) -> None:
        """Create a response.

        Parameters:
            body: What is sent.
            status: The HTTP status.
            headers: All headers.
            part: (start, stop) of the bytes that are sent; by default all.
            budget: Bounds the memory of all responses together; without one, nothing is counted.
        """
        # not super().__init__: it requires the body as bytes, and computes headers itself
        self.status_code = status
        self.background = None
        self.body = b""
        self._body, self._budget = body, budget
        self._start, self._stop = part or (0, len(body))
        self.raw_headers = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            self._stop = self._start
        if self._budget is None:
            await self._send(send)
            return
        is_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            await self._send_within_budget(self._budget, send_and_note)
        except Exception as e:
            if is_started:
                # the status is sent already; the client notices a body shorter than announced
                raise
            await exception_response(e, scope)(scope, receive, send)

    async def _send_within_budget(self, budget: SendBudget, send: Send) -> None:
        # all of a body in memory, whatever part of it is sent
        nbytes = len(self._body) if self._body.is_in_memory else PIECE
        await budget.acquire(self._body, nbytes)
        try:
            await self._send(send)
        finally:
            await budget.release(self._body, nbytes)

    async def _send(self, send: Send) -> None:
        start, stop = self._start, self._stop
        # the first piece is read before the status is sent, so that a failure can still change it
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
        if self._body.is_in_memory or start == stop:
            return self._body.read(start, stop)
        return await asyncio.to_thread(self._body.read, start, stop)


EMPTY = BytesBody(b"", "")


def respond(
    request: Request, body: Body, *, media: str = BYTES, cache: str = "no-cache"
) -> Response:
    """Return the response for a body: all of it, the range asked for, or 304 if it is unchanged."""
    budget: SendBudget = request.app.state.server.budget
    headers = {
        "content-type": media,
        "etag": body.etag,
        "cache-control": cache,
        "accept-ranges": "bytes",
    }
    if matches(request.headers.get("if-none-match"), body.etag):
        return PiecewiseResponse(EMPTY, 304, headers)
    # RFC 9110 section 14.2: Range is defined for GET only
    asked = request.headers.get("range") if request.method == "GET" else None
    if_range = request.headers.get("if-range")
    if asked is not None and (if_range is None or if_range == body.etag):
        part = byte_range(asked, len(body))
        if part == "unsatisfiable":
            headers |= {"content-range": f"bytes */{len(body)}", "content-length": "0"}
            return PiecewiseResponse(EMPTY, 416, headers)
        if isinstance(part, tuple):
            start, stop = part
            headers["content-range"] = f"bytes {start}-{stop - 1}/{len(body)}"
            headers["content-length"] = str(stop - start)
            return PiecewiseResponse(body, 206, headers, part=part, budget=budget)
    headers["content-length"] = str(len(body))
    return PiecewiseResponse(body, 200, headers, budget=budget)


def matches(header: str | None, etag: str) -> bool:
    """Whether If-None-Match names this ETag (RFC 9110 section 13.1.2: weak comparison)."""
    if header is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return "*" in tags or etag in tags


def byte_range(header: str, size: int) -> tuple[int, int] | str | None:
    """Return (start, stop) of a Range header, `unsatisfiable`, or None if it is to be ignored.

    RFC 9110 section 14.2 allows ignoring everything but a single range of bytes.
    """
    match = re.fullmatch(r"bytes=(\d{0,20})-(\d{0,20})", header.strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        # a suffix: the last bytes
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(int(last or size), size - 1) + 1
        if last and int(last) < start:
            return None
    return (start, stop) if start < stop else "unsatisfiable"


def as_json(value: Any) -> bytes:
    """Return strict JSON, with NaN and the infinities as strings, as in Zarr metadata."""
    try:
        return json.dumps(value, allow_nan=False).encode()
    except ValueError:
        return json.dumps(finite(value), allow_nan=False).encode()


def finite(value: Any) -> Any:
    """Replace NaN and the infinities, at any depth."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Mapping():
            return {key: finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
    return value


def error_response(status: int, line: str) -> Response:
    """Return a failure with one line about it, as JSON."""
    body = as_json({"error": line})
    headers = {"content-type": JSON, "content-length": str(len(body)), "cache-control": "no-store"}
    if status == 503:
        headers["retry-after"] = "1"
    return PiecewiseResponse(BytesBody.of(body), status, headers)


def exception_response(error: BaseException, scope: Scope) -> Response:
    """Return the response for an exception, without the folder of the file that was asked for."""
    line = error_line(error)
    entry = scope.get("state", {}).get("entry")
    return error_response(status_of(error), line if entry is None else entry.without_folder(line))
