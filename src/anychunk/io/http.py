"""An HTTP client that follows redirects only to the same host and port.

obstore's client follows every redirect, which cannot be disabled, and does not report the final url
of a response. A server that fetches urls for its clients must not be redirected to hosts that only
it can reach (SSRF). Where redirects are restricted (`storage={"redirects": "same-origin"}`), http
and https urls are therefore read by this small client: GET and HEAD with ranges, persistent
connections, retries.
"""

from __future__ import annotations

import base64
import time
import weakref
from collections.abc import Buffer, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from anychunk import limits
from anychunk.errors import (
    AnychunkError,
    MissingFileError,
    SourceError,
    TruncatedError,
    UnsupportedError,
)
from anychunk.io.forking import Lock, in_child
from anychunk.io.source import PLAIN, SIGNED, signed_of, with_query, with_secrets, without_secrets

if TYPE_CHECKING:
    import http.client  # slow to import, and not needed for local files and object stores

    from anychunk.io.source import Storage

SAME_ORIGIN = "same-origin"
PORTS = {"http": 80, "https": 443}
REDIRECTS = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 10
MOST_IDLE = 16
"""Idle connections kept open per host."""
TIMEOUT_S = 30.0
"""Timeout of one request and its response, the same as obstore's default."""
PIECE = 1 << 20

type Range = tuple[int, int]
"""Half open: the first byte, and the byte after the last."""


class NoRangeError(SourceError):
    """The range is not satisfiable, or the server does not support ranges."""


def is_restricted(url: str, storage: Storage | None) -> bool:
    """Return whether redirects are restricted for `url`, so that this client must read it."""
    options = storage if isinstance(storage, Mapping) else {}
    wanted = options.get("redirects", "follow")
    if wanted not in ("follow", SAME_ORIGIN):
        raise ValueError(f"storage: redirects={wanted!r}, expected 'follow' or {SAME_ORIGIN!r}")
    return wanted == SAME_ORIGIN and urlsplit(url).scheme in PORTS


@dataclass(frozen=True)
class Answer:
    """A response body, with the object's metadata under obstore's names."""

    meta: Mapping[str, Any]
    data: Buffer


class Site:
    """One web server: scheme, host and port. Thread-safe."""

    def __init__(self, root: str) -> None:
        parts = urlsplit(root)
        self.root = root
        self.origin = origin_of(root)
        self._scheme, self._host, self._port = self.origin
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "anychunk"}
        if parts.username is not None:
            self._headers["Authorization"] = basic(parts.username, parts.password)
        self._lock = Lock()
        self._idle: list[http.client.HTTPConnection] = []
        weakref.finalize(self, close_all, self._idle)
        in_child(self._disconnect)

    def _disconnect(self) -> None:
        # on a connection that two processes share, each would read answers to the other
        close_all(self._idle)

    def get(self, path: str, wanted: Range | None = None, *, most: int | None = None) -> Answer:
        """Read an object or a range of it, or raise FileNotFoundError.

        `path` is quoted, and may have a query.
        `most`: a larger whole object is refused before its body is read.
        """
        return self._retried(path, _Ask("GET", wanted, most))

    def head(self, path: str) -> Mapping[str, Any]:
        """Return the metadata of an object."""
        return self._retried(path, _Ask("HEAD")).meta

    def _retried(self, path: str, ask: _Ask) -> Answer:
        bounds = limits.get()
        url = f"{self.root}/{path}"
        until = time.monotonic() + bounds.retry_s
        for attempt in range(bounds.retries + 1):
            pause = 0.1 * 2**attempt
            try:
                return self._followed(url, ask)
            except _TryAgainError as e:
                if attempt == bounds.retries or time.monotonic() + pause > until:
                    raise SourceError(f"{shown(url)}: {e}") from e
            time.sleep(pause)
        raise SourceError(f"{shown(url)}: no attempt was made")

    def _followed(self, url: str, ask: _Ask) -> Answer:
        for _ in range(MOST_REDIRECTS + 1):
            answer = self._request(url, ask)
            if isinstance(answer, Answer):
                return answer
            if origin_of(answer) != self.origin:
                scheme, host, port = origin_of(answer)
                raise SourceError(
                    f"{shown(url)}: redirects to another server, {scheme}://{host}:{port}; "
                    "pass that url instead, or allow redirects"
                )
            url = answer
        raise SourceError(f"{shown(url)}: more than {MOST_REDIRECTS} redirects")

    def _request(self, url: str, ask: _Ask) -> Answer | str:
        """Send one request; return the response, or the url of a redirect."""
        import http.client

        until = time.monotonic() + TIMEOUT_S
        parts = urlsplit(url)
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection, response = self._sent(ask.method, target, {**self._headers, **ask.headers})
        is_kept = False
        try:
            found: Answer | str
            if response.status in REDIRECTS and response.headers.get("Location"):
                response.read(PIECE)
                found = moved_to(url, response.headers["Location"])
            else:
                check_status(response, url)
                found = ask.answer(response, url, until)
            is_kept = response.isclosed() and not response.will_close
        except (AnychunkError, FileNotFoundError):
            raise
        except (OSError, http.client.HTTPException) as e:
            raise _TryAgainError(f"the connection was lost ({e or type(e).__name__})") from e
        else:
            return found
        finally:
            if is_kept:
                self._keep(connection)
            else:
                connection.close()

    def _sent(
        self, method: str, target: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        import http.client

        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            is_new = connection is None
            try:
                if connection is None:
                    connection, prefix, more = self._connection()
                    connection.anychunk_proxy = prefix, more  # type: ignore[attr-defined]
                prefix, more = connection.anychunk_proxy  # type: ignore[attr-defined]
                connection.request(method, f"{prefix}{target}", headers={**headers, **more})
                return connection, connection.getresponse()
            except (OSError, http.client.HTTPException) as e:
                if connection is not None:
                    connection.close()
                if is_new:
                    raise _TryAgainError(
                        f"the server could not be reached ({e or type(e).__name__}); "
                        "check the url and the network"
                    ) from e
                # the server may have closed an idle connection: try the next one

    def _connection(self) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
        """Return a connection, and the prefix and headers that a proxy requires."""
        import http.client
        import ssl
        import urllib.request

        host, port = self._host, self._port
        proxy = None if urllib.request.proxy_bypass(host) else urllib.request.getproxies()
        place = urlsplit((proxy or {}).get(self._scheme, ""))
        more: dict[str, str] = {}
        if place.hostname and place.username is not None:
            more["Proxy-Authorization"] = basic(place.username, place.password)
        near = (place.hostname, place.port or PORTS["http"]) if place.hostname else (host, port)
        if self._scheme == "http":
            plain = http.client.HTTPConnection(*near, timeout=TIMEOUT_S)
            return plain, self.root if place.hostname else "", more
        secure = http.client.HTTPSConnection(
            *near, timeout=TIMEOUT_S, context=ssl.create_default_context()
        )
        if place.hostname:
            secure.set_tunnel(host, port, headers=more)
        return secure, "", {}

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()


def close_all(connections: list[http.client.HTTPConnection]) -> None:
    """Close idle connections, when their site is no longer used or the process ends."""
    while connections:
        connections.pop().close()


@dataclass(frozen=True)
class _Ask:
    """A request for an object, or for a range of it."""

    method: str
    wanted: Range | None = None
    most: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        if self.wanted is None:
            return {}
        return {"Range": f"bytes={self.wanted[0]}-{self.wanted[1] - 1}"}

    def answer(self, response: http.client.HTTPResponse, url: str, until: float) -> Answer:
        """Read the body of a successful response."""
        meta = meta_of(response, self.wanted, url)
        size = meta["size"]
        if self.method == "HEAD":
            response.read()
            return Answer(meta, b"")
        if self.wanted is None:
            limits.check_object(size, self.most, where=shown(url))
        length = size if self.wanted is None else min(self.wanted[1], size) - self.wanted[0]
        return Answer(meta, read_body(response, length, url, until))


class _TryAgainError(Exception):
    """A request failed in a way that a retry may fix."""


_sites: dict[str, Site] = {}
_sites_lock = Lock()


def site_of(url: str, storage: Storage | None) -> tuple[Site, str]:
    """Return the web server of a url, and the path on it, quoted and with its query."""
    options = storage if isinstance(storage, Mapping) else {}
    unknown = set(options) - {"redirects", "query", SIGNED}
    if unknown:
        raise UnsupportedError(
            f"{shown(url)}: storage options {' '.join(sorted(map(str, unknown)))} have no effect "
            "where redirects are restricted; leave them out"
        )
    parts = urlsplit(with_query(with_secrets(url, signed_of(options)), options.get("query")))
    root = f"{parts.scheme}://{parts.netloc}"
    path = quote(unquote(parts.path).lstrip("/"), safe=PLAIN.replace(" ", ""))
    with _sites_lock:
        if root not in _sites and len(_sites) >= 64:
            _sites.pop(next(iter(_sites)))
        site = _sites.setdefault(root, Site(root))
    return site, f"{path}?{parts.query}" if parts.query else path


def shown(url: str) -> str:
    """Return a url as messages show it: without a query, which may be secret, and password."""
    return without_secrets(url.partition("?")[0])


def origin_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port; the port defaults to that of the scheme."""
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
        return scheme, host, parts.port or PORTS.get(scheme, 0)
    except ValueError as e:
        raise SourceError(f"{shown(url)[:200]!r}: not a valid url ({e})") from e


def moved_to(url: str, location: str) -> str:
    """Return the url that a redirect leads to."""
    try:
        return quote(urljoin(url, location), safe="%/:=&?~#+!$,;'@()*[]-._")
    except ValueError as e:
        raise SourceError(
            f"{shown(url)}: redirects to {shown(location)[:200]!r}, not a valid url ({e})"
        ) from e


def basic(name: str, password: str | None) -> str:
    """Return the header for a name and a password, quoted as they are in a url."""
    text = f"{unquote(name)}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(text.encode()).decode('ascii')}"


def check_status(response: http.client.HTTPResponse, url: str) -> None:
    """Raise the exception for a status that is not a success."""
    status = response.status
    if status in (200, 206):
        return
    said = f"{status} {response.reason}"
    if status in (404, 410):
        raise MissingFileError(f"{shown(url)}: no such object; check the url")
    if status == 416:
        raise NoRangeError(f"{shown(url)}: {said}")
    if status in (408, 429) or status >= 500:
        raise _TryAgainError(said)
    raise SourceError(f"{shown(url)}: {said}")


def meta_of(
    response: http.client.HTTPResponse, wanted: Range | None, url: str
) -> Mapping[str, Any]:
    """Read size, etag and date from the headers; check that the range is the requested one."""
    headers = response.headers
    length = headers.get("Content-Length", "")
    if wanted is not None:
        if response.status != 206:
            raise NoRangeError(f"{shown(url)}: the server ignored the requested range")
        unit, _, rest = headers.get("Content-Range", "").partition(" ")
        span, _, total = rest.partition("/")
        first = span.partition("-")[0]
        if unit != "bytes" or not total.isdecimal() or first != str(wanted[0]):
            raise SourceError(
                f"{shown(url)}: the server sent the range {unit} {rest[:60]!r}, "
                f"expected one that starts at byte {wanted[0]}"
            )
        size = int(total)
    elif length.isdecimal():
        size = int(length)
    else:
        raise SourceError(f"{shown(url)}: the response has no Content-Length")
    from email.utils import parsedate_to_datetime

    try:
        changed = parsedate_to_datetime(headers.get("Last-Modified", ""))
    except ValueError:
        changed = datetime.fromtimestamp(0, UTC)
    return {"size": size, "e_tag": headers.get("ETag"), "last_modified": changed}


def read_body(response: http.client.HTTPResponse, length: int, url: str, until: float) -> bytes:
    """Read exactly `length` bytes, in bounded time."""
    pieces, got = [], 0
    while piece := response.read(min(PIECE, length + 1 - got)):
        pieces.append(piece)
        got += len(piece)
        if got > length:
            break
        if time.monotonic() > until:
            raise _TryAgainError(f"{got} of {length} bytes arrived in {TIMEOUT_S:.0f} s")
    if got != length:
        raise TruncatedError(f"{shown(url)}: the server sent {got} bytes, expected {length}")
    return b"".join(pieces)
