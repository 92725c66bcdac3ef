"""HTTP connections with timeouts: clients that send or read too slowly are disconnected.

`http_protocol` checks what is used of uvicorn here, before this module is imported.
"""

import asyncio
from collections import OrderedDict
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from anychunk.server.http_protocol import MOST_CONNECTIONS, MOST_HEAD
from anychunk.server.responses import as_json

HEAD_S = 15.0
"""Time within which a client must send a complete request head."""
STALL_S = 20.0
"""Time within which a client must make room in a full send buffer (64 KiB)."""


class Connection(HttpToolsProtocol):
    """One HTTP/1.1 connection."""

    idle: ClassVar["OrderedDict[Connection, None]"] = OrderedDict()
    """Connections that wait for a request, those idle longest first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head = 0
        self._stall: asyncio.TimerHandle | None = None
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_waiting()
        while len(self.connections) > MOST_CONNECTIONS and self.idle:
            oldest, _ = self.idle.popitem(last=False)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        self._end_stall()
        super().connection_lost(exc)

    def _begin_waiting(self) -> None:
        self._end_waiting()
        self.idle[self] = None
        self._waiting = self.loop.call_later(HEAD_S, self._disconnect)

    def _end_waiting(self) -> None:
        self.idle.pop(self, None)
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _disconnect(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0

    def _count(self, length: int) -> None:
        self._head += length
        if self._head > MOST_HEAD:
            # httptools turns an exception of a callback into a parser error: send_400_response
            raise ValueError("request head too long")

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request or an oversized head, and close the connection."""
        is_long = self._head > MOST_HEAD
        status = b"431 Request Header Fields Too Large" if is_long else b"400 Bad Request"
        line = (
            f"request head: more than {MOST_HEAD} bytes" if is_long else "not a valid HTTP request"
        )
        body = as_json({"error": line})
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n"
        self.transport.write(b"HTTP/1.1 " + status + b"\r\n" + head % len(body) + b"\r\n" + body)
        self.transport.close()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._end_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and not self.pipeline:
            self._begin_waiting()

    # asyncio calls these two when the send buffer is full, and when it has drained

    def pause_writing(self) -> None:
        super().pause_writing()
        self._end_stall()
        self._stall = self.loop.call_later(STALL_S, self._disconnect)

    def resume_writing(self) -> None:
        self._end_stall()
        super().resume_writing()

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
