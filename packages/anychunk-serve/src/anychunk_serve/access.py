"""Access control: methods, Host header, origins, token, CORS, and headers of every response.

CORS is Starlette's `CORSMiddleware`. Its `TrustedHostMiddleware` is not used: it answers in plain
text without advice, and misreads IPv6 addresses in most releases that are supported.
"""

import hmac
import logging
import re
import time
from collections.abc import Iterable, Sequence
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anychunk.errors import OptionError
from anychunk_serve.responses import error_response

log = logging.getLogger("anychunk.serve")

COOKIE = "anychunk_token"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
METHODS = ("GET", "HEAD", "OPTIONS")
ANY = "*"
"""Allows every origin."""
DEFAULT_PORTS = {"http": 80, "https": 443}
CSP = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "worker-src 'self' blob:; base-uri 'none'; frame-ancestors 'self'; form-action 'none'"
)
ALWAYS = [
    # allowed origins use CORS, which does not ask for this header
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


def checked_origin(text: str) -> str:
    """Return an origin as browsers send it, such as `https://viewer.example`.

    Raises:
        OptionError: It is not an origin.
    """
    if text in (ANY, "null"):
        return text
    try:
        parts = urlsplit(text.strip().lower())
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    is_origin = parts.path in ("", "/") and not parts.query and not parts.fragment
    is_plain = host is not None and re.fullmatch(r"[a-z0-9._:-]+", host) is not None
    if parts.scheme not in DEFAULT_PORTS or not is_origin or not is_plain or "@" in parts.netloc:
        raise OptionError(
            f"--origin {text}: expected scheme and host of a web page without a path, "
            f"such as https://viewer.example or http://localhost:8080, or {ANY} for any"
        )
    shown = f"[{host}]" if ":" in str(host) else str(host)
    is_default = port is None or port == DEFAULT_PORTS[parts.scheme]
    return f"{parts.scheme}://{shown}" if is_default else f"{parts.scheme}://{shown}:{port}"


class AccessControl:
    """ASGI middleware that refuses requests before they reach the app, and logs all of them."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None = None,
        hosts: Iterable[str] | None = None,
        origins: Sequence[str] = (),
    ) -> None:
        """Wrap `app`.

        Parameters:
            app: Gets the requests that are not refused.
            token: What clients must send; None: nothing.
            hosts: Accepted Host headers, without ports; None: any.
            origins: Web pages of other origins that may read what is served.
        """
        # preflights carry no token, so CORS comes before it
        self._app = CORSMiddleware(
            TokenCheck(app, token),
            allow_origins=list(origins),
            allow_methods=METHODS,
            allow_headers=("Authorization", "Range", "If-None-Match", "If-Range"),
            expose_headers=(
                "Content-Range",
                "Content-Length",
                "ETag",
                "Accept-Ranges",
                "Retry-After",
            ),
            allow_private_network=True,
            max_age=86400,
        )
        self._hosts = None if hosts is None else {host.lower() for host in hosts}
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        start, status = time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = with_headers(message)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await error_response(*refusal)(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)
        if log.isEnabledFor(logging.INFO):
            took = (time.perf_counter() - start) * 1000
            # without the query, which may hold the token
            path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")[:300]
            log.info("%s %s %d %.1f ms", scope["method"], path, status, took)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return (status, line) for a method, host or origin that is not allowed."""
        if scope["method"] not in METHODS:
            return 405, f"method {scope['method'][:20]}: expected one of {', '.join(METHODS)}"
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        return self._host_refusal(host) or self._origin_refusal(headers, host)

    def _host_refusal(self, host: str) -> tuple[int, str] | None:
        """Refuse hosts that are not this server, which prevents DNS rebinding.

        A foreign page can resolve its own host name to 127.0.0.1, and a browser would then treat
        this server as part of that page's origin.
        """
        if self._hosts is None:
            return None
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name in self._hosts:
            return None
        return 421, f"host {host[:100]!r} is not allowed; allow it with --allow-host"

    def _origin_refusal(self, headers: dict[bytes, bytes], host: str) -> tuple[int, str] | None:
        """Refuse requests of web pages of other origins, unless they are allowed.

        Without CORS headers a browser hides the answer from such a page, but still sends the
        request, and shows images and runs scripts from it.
        """
        if ANY in self._origins:
            return None
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        if origin:
            # the page's own; a proxy may speak https, so the scheme is not compared
            if origin.partition("://")[2] == host or origin in self._origins:
                return None
            return 403, f"origin {origin[:100]!r} is not allowed; allow it with --origin"
        # browsers send no Origin with images, scripts and frames; following a link is allowed
        site, mode = headers.get(b"sec-fetch-site"), headers.get(b"sec-fetch-mode")
        if site in (b"cross-site", b"same-site") and mode != b"navigate":
            return 403, "a web page of another origin may not embed what is served"
        return None


class TokenCheck:
    """ASGI middleware that refuses requests without the token, if one is required."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        verdict = self._verdict(scope, dict(scope["headers"]))
        if verdict is None:
            line = "token required: send Authorization: Bearer TOKEN, or ?token=TOKEN"
            await error_response(401, line)(scope, receive, send)
            return
        if verdict == "yes":
            await self._app(scope, receive, send)
            return
        cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], (b"set-cookie", cookie.encode())]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_with_cookie)

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


def with_headers(message: Message) -> Message:
    """Add the headers of every response, and the content security policy of HTML pages."""
    headers = [*message["headers"], *ALWAYS]
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
