"""Access control: methods, Host header, token, CORS, and headers of every response."""

import hmac
import logging
import time
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anychunk.server.responses import error_response

log = logging.getLogger("anychunk.serve")

COOKIE = "anychunk_token"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
METHODS = ("GET", "HEAD", "OPTIONS")
CSP = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "worker-src 'self' blob:; base-uri 'none'; frame-ancestors 'self'; form-action 'none'"
)
# any page may read what is served: hosted viewers show local files that way
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


class AccessControl:
    """ASGI middleware that refuses requests before they reach the app, and logs all of them."""

    def __init__(
        self, app: ASGIApp, *, token: str | None = None, hosts: Iterable[str] | None = None
    ) -> None:
        """Wrap `app`.

        Parameters:
            app: Gets the requests that are not refused.
            token: What clients must send; None: nothing.
            hosts: Accepted Host headers, without ports; None: any.
        """
        self._app = app
        self._token = token
        self._hosts = None if hosts is None else {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        start, status = time.perf_counter(), 0
        headers = dict(scope["headers"])
        refusal = self._refusal(scope, headers)
        # browsers send no credentials with a preflight
        is_preflight = refusal is None and scope["method"] == "OPTIONS"
        verdict = None if refusal or is_preflight else self._verdict(scope, headers)
        if refusal is None and not is_preflight and verdict is None:
            refusal = (401, "token required: send Authorization: Bearer TOKEN, or ?token=TOKEN")
        cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
        added = [(b"set-cookie", cookie.encode())] if verdict == "cookie" else []

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = with_headers(message, added)
            await send(message)

        if refusal is not None:
            await error_response(*refusal)(scope, receive, send_with_headers)
        elif is_preflight:
            await send_with_headers(
                {"type": "http.response.start", "status": 204, "headers": PREFLIGHT}
            )
            await send_with_headers({"type": "http.response.body", "body": b""})
        else:
            await self._app(scope, receive, send_with_headers)
        if log.isEnabledFor(logging.INFO):
            took = (time.perf_counter() - start) * 1000
            # without the query, which may hold the token
            path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")[:300]
            log.info("%s %s %d %.1f ms", scope["method"], path, status, took)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Return (status, line) for a method that is not supported or a host that is not allowed.

        Checking the Host header prevents DNS rebinding: a foreign page can resolve its own host
        name to 127.0.0.1, and a browser would then treat this server as part of that page's origin.
        """
        if scope["method"] not in METHODS:
            return 405, f"method {scope['method'][:20]}: expected one of {', '.join(METHODS)}"
        if self._hosts is None:
            return None
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name in self._hosts:
            return None
        return 421, f"host {host[:100]!r} is not allowed; allow it with --allow-host"

    def _verdict(self, scope: Scope, headers: dict[bytes, bytes]) -> str | None:
        """Check the token: `yes`, `cookie` if the client is to be sent one, or None if refused."""
        if self._token is None:
            return "yes"
        given = headers.get(b"authorization", b"")
        if given[:7].lower() == b"bearer " and self._is_token(given[7:].strip()):
            return "yes"
        if self._is_token(cookie_value(headers.get(b"cookie", b""))):
            return "yes"
        try:
            query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=32)
        except ValueError:  # too many fields
            return None
        if self._is_token(query.get("token", [""])[0].encode("latin-1", "replace")):
            return "cookie"
        return None

    def _is_token(self, given: bytes) -> bool:
        return hmac.compare_digest(given, (self._token or "").encode())


def with_headers(message: Message, added: list[tuple[bytes, bytes]]) -> Message:
    """Add the headers of every response, and the content security policy of HTML pages."""
    headers = [*message["headers"], *ALWAYS, *added]
    if any(n == b"content-type" and v.startswith(b"text/html") for n, v in message["headers"]):
        headers.append((b"content-security-policy", CSP.encode()))
    return {**message, "headers": headers}


def cookie_value(header: bytes) -> bytes:
    """Return the token of a Cookie header, or nothing."""
    try:
        morsel = SimpleCookie(header.decode("latin-1")).get(COOKIE)
    except CookieError:
        return b""
    return b"" if morsel is None else morsel.value.encode("latin-1", "replace")
