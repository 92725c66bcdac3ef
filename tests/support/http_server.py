"""A web server on loopback that counts requests and can be made to misbehave."""

import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from tests.support.patience import PATIENCE_S


class Server(ThreadingHTTPServer):
    """A server that ends its connections: clients keep them open for the next request."""

    request_queue_size = 128
    daemon_threads = False  # they are joined, and their sockets closed, when the server is

    def __init__(self, *given):
        self._connections = []
        super().__init__(*given)

    def process_request(self, request, client_address):
        self._connections.append(request)
        super().process_request(request, client_address)

    def server_close(self):
        for connection in self._connections:
            with suppress(OSError):  # it is closed
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def handle_error(self, request, client_address):
        """Print nothing: tests end connections in the middle of an answer."""


@contextmanager
def running(handler):
    """Yield the url of a server on loopback; all of its threads have ended after the block."""
    server = Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)


@dataclass
class Served:
    url: str
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """(method path, Range header) of every request."""
    fail: list[int] = field(default_factory=list)
    """Statuses to answer the next requests with instead."""
    short: bool = False
    """Whether to close the connection in the middle of a body."""
    latency_s: float = 0.0
    moved: dict[str, str] = field(default_factory=dict)
    """Where paths redirect to."""
    has_etags: bool = True


@contextmanager
def serve(folder: Path, *, strip_query: bool = False):
    """Serve a folder with Range and ETag until the block ends; with any query if `strip_query`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a body would wait 40 ms for the ACK of its headers

        def log_message(self, *args):
            pass

        def do_HEAD(self):
            self.answer(body=False)

        def do_GET(self):
            self.answer(body=True)

        def answer(self, *, body):
            served.requests.append((f"{self.command} {self.path}", self.headers.get("Range")))
            time.sleep(served.latency_s)
            if served.fail:
                return self.plain(served.fail.pop(0))
            if self.path in served.moved:
                return self.plain(302, Location=served.moved[self.path])
            path = self.path.partition("?")[0] if strip_query else self.path
            file = folder / unquote(path).lstrip("/")
            if not file.is_file():
                return self.plain(404)
            size = file.stat().st_size
            start, stop, status = 0, size, 200
            if wanted := self.headers.get("Range"):
                first, last = wanted.removeprefix("bytes=").split("-")
                start, stop, status = int(first), min(int(last) + 1, size), 206
                if start >= size:
                    return self.plain(416)
            self.send_response(status)
            if served.has_etags:
                self.send_header("ETag", f'"{file.stat().st_mtime_ns:x}"')
            self.send_header("Last-Modified", self.date_time_string(int(file.stat().st_mtime)))
            self.send_header("Content-Length", str(stop - start))
            self.send_header("Accept-Ranges", "bytes")
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
            self.end_headers()
            if body:
                with file.open("rb") as opened:
                    opened.seek(start)
                    data = opened.read(stop - start)
                self.wfile.write(data[: len(data) // 2] if served.short else data)
                self.close_connection = served.short
            return None

        def plain(self, status, **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with running(Handler) as url:
        served = Served(url)
        yield served
