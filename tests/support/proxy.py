"""A proxy on loopback in front of another server: adds latency and faults, and counts requests.

`python -m tests.support.proxy HOST PORT [LOG]` runs it alone and prints its url: Icechunk waits for answers
without letting other threads of its process run. Method and sizes of each request go to LOG.

It answers 206 to a range where the server behind it says 200 with a Content-Range, as
`rclone serve s3` does: object_store takes no other answer.
"""

import http.client
import json
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.support.http_server import running
from tests.support.patience import PATIENCE_S

HOP = {"connection", "keep-alive", "transfer-encoding", "date", "server"}


@dataclass
class Proxied:
    url: str
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    fail: list[int] = field(default_factory=list)
    """Statuses to answer the next requests with instead."""
    drop: int = 0
    """How many of the next requests to end without an answer."""
    short: int = 0
    """How many of the next answers to end in the middle of their body."""
    latency_s: float = 0.0
    log: Path | None = None


@contextmanager
def proxy(host: str, port: int):
    """Stand in front of a server; ends with the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a body would wait 40 ms for the ACK of its headers

        def log_message(self, *args):
            pass

        def handle_one(self):
            found.requests.append((f"{self.command} {self.path}", self.headers.get("Range")))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            time.sleep(found.latency_s)
            if found.drop:
                found.drop -= 1
                self.close_connection = True
                return
            if found.fail:
                self.send_response(found.fail.pop(0))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
            try:
                # the Host header stays as it was: it is part of the signature
                connection.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in self.headers.items():
                    if name.lower() not in ("connection", "keep-alive"):
                        connection.putheader(name, value)
                connection.endheaders(body or None)
                answer = connection.getresponse()
                data = answer.read()
            finally:
                connection.close()
            if found.log is not None:
                entry = {"method": self.command, "up": len(body), "down": len(data)}
                with found.log.open("a") as log:  # one write per line: threads share the file
                    log.write(f"{json.dumps(entry)}\n")
            status = answer.status
            if status == 200 and answer.getheader("Content-Range"):
                status = 206
            self.send_response(status)
            has_length = False
            for name, value in answer.getheaders():
                if name.lower() not in HOP:
                    has_length |= name.lower() == "content-length"
                    self.send_header(name, value)
            if not has_length:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                is_short = bool(found.short and data)
                found.short -= is_short
                self.wfile.write(data[: len(data) // 2] if is_short else data)
                self.close_connection |= is_short

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

    with running(Handler) as url:
        found = Proxied(url)
        yield found


if __name__ == "__main__":
    with proxy(sys.argv[1], int(sys.argv[2])) as _found:
        _found.log = Path(sys.argv[3]) if len(sys.argv) > 3 else None
        print(_found.url, flush=True)  # noqa: T201
        sys.stdin.read()
