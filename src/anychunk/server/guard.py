"""Who may ask: the Host header, the token, other pages (CORS), and what a page of ours may do."""

import hmac
import logging
import time
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anychunk.server.responses import failure

log = logging.getLogger("anychunk.serve")

COOKIE = "anychunk_token"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
METHODS = ("GET", "HEAD", "OPTIONS")
CSP = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "worker-src 'self' blob:; base-uri 'none'; frame-ancestors 'self'; form-action 'none'"
)
ALWAYS = [
    (b"access-control-allow-origin", b"*"),
    (
        b"access-control-expose-headers",
        b"Content-Range, Content-Length, ETag, Accept-Ranges, Retry-After",
    ),
    (b"cross-origin-resource-policy", b"cross-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, HEAD, OPTIONS"),
    (b"access-control-allow-headers", b"Authorization, Range, If-None-Match, If-Range"),
    (b"access-control-allow-private-network", b"true"),
    (b"access-control-max-age", b"86400"),
    (b"content-length", b"0"),
]


class Guard:
    """Stands before the app."""

    def __init__(
        self, app: ASGIApp, *, token: str | None = None, hosts: Iterable[str] | None = None
    ) -> None:
        self._app = app
        self._token = token
        self._hosts = None if hosts is None else {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        start, status = time.perf_counter(), 0
        headers = dict(scope["headers"])
        refusal = self._refusal(scope, headers)
        is_preflight = refusal is None and scope["method"] == "OPTIONS"
        verdict = None if refusal or is_preflight else self._verdict(scope, headers)
        if refusal is None and not is_preflight and verdict is None:
            refusal = (401, "a token is asked for: Authorization: Bearer TOKEN, or ?token=TOKEN")
        cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
        added = [(b"set-cookie", cookie.encode())] if verdict == "cookie" else []

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = with_headers(message, added)
            await send(message)

        if refusal is not None:
            await failure(*refusal)(scope, receive, sent)
        elif is_preflight:
            await sent({"type": "http.response.start", "status": 204, "headers": PREFLIGHT})
            await sent({"type": "http.response.body", "body": b""})
        else:
            await self._app(scope, receive, sent)
        if log.isEnabledFor(logging.INFO):
            took = (time.perf_counter() - start) * 1000
            path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")[:300]
            log.info("%s %s %d %.1f ms", scope["method"], path, status, took)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Refuse a method that is not served, or a host that is not ours.

        A page anywhere can point a name of its own at 127.0.0.1 (DNS rebinding), and would then
        pass for this server's own page.
        """
        if scope["method"] not in METHODS:
            return 405, f"{scope['method'][:20]}: only GET, HEAD and OPTIONS are served"
        if self._hosts is None:
            return None
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name in self._hosts:
            return None
        return 421, f"host {host[:100]!r} is not served here; allow it with --allow-host"

    def _verdict(self, scope: Scope, headers: dict[bytes, bytes]) -> str | None:
        """Say whether the token is right: `yes`, `cookie` where one is to keep it, or None."""
        if self._token is None:
            return "yes"
        given = headers.get(b"authorization", b"")
        if given[:7].lower() == b"bearer " and self._is_token(given[7:].strip()):
            return "yes"
        if self._is_token(cookie_value(headers.get(b"cookie", b""))):
            return "yes"
        try:
            query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=32)
        except ValueError:  # more fields than any of our urls has
            return None
        if self._is_token(query.get("token", [""])[0].encode("latin-1", "replace")):
            return "cookie"
        return None

    def _is_token(self, given: bytes) -> bool:
        return hmac.compare_digest(given, (self._token or "").encode())


def with_headers(message: Message, added: list[tuple[bytes, bytes]]) -> Message:
    """Add what every answer carries, and what a page of ours may do."""
    headers = [*message["headers"], *ALWAYS, *added]
    if any(n == b"content-type" and v.startswith(b"text/html") for n, v in message["headers"]):
        headers.append((b"content-security-policy", CSP.encode()))
    return {**message, "headers": headers}


def cookie_value(header: bytes) -> bytes:
    try:
        morsel = SimpleCookie(header.decode("latin-1")).get(COOKIE)
    except CookieError:
        return b""
    return b"" if morsel is None else morsel.value.encode("latin-1", "replace")
