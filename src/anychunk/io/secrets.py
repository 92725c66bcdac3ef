"""Secrets in urls: signatures, tokens and passwords are used for requests, and shown nowhere.

A signed url has two parts: what names the object, and what grants access to it. Only the first is
the name of a source, so indexes, saved references, logs and errors never contain the second. The
second stays in this process: `remember` keeps it, and `with_secrets` adds it to requests. Opening
the same object with another signature replaces it.

Which parameters of a query grant access: those of the signatures of Amazon S3 and CloudFront,
Google Cloud Storage and Azure Storage, and parameters whose name says so (`token`, `api_key` …).
Others, such as `versionId`, name the object and stay part of the url.
"""

import threading
from collections.abc import Iterable, Mapping
from urllib.parse import unquote_plus, urlencode, urlsplit, urlunsplit

WEB = ("http", "https")
SIGNATURES = ("x-amz-", "x-goog-", "x-oss-", "x-cos-")
"""Prefixes of parameters of signatures and their temporary credentials."""
CREDENTIALS = frozenset(
    {
        "token", "access_token", "id_token", "auth_token", "auth", "authorization", "jwt", "sas",
        "api_key", "apikey", "api-key", "x-api-key", "subscription-key", "secret", "password",
        "passwd", "credential", "credentials", "awsaccesskeyid", "googleaccessid", "signature",
        "sig", "hmac", "key-pair-id",
    }
)  # fmt: skip
AZURE = frozenset(
    {
        "sv", "ss", "srt", "sp", "se", "st", "spr", "sr", "si", "sip", "sdd", "skoid", "sktid",
        "skt", "ske", "sks", "skv", "saoid", "suoid", "scid",
    }
)  # fmt: skip
"""What a shared access signature of Azure states beside `sig`."""
CLOUDFRONT = frozenset({"expires", "policy", "hash-algorithm"})
"""What signatures of CloudFront and version 2 of S3 and Google state beside `Signature`."""


def without_secrets(url: str) -> str:
    """Return a url without passwords, signatures and tokens: the name of its object."""
    if "?" not in url and "@" not in url:
        return url  # nearly all urls
    parts = urlsplit(url)
    if parts.scheme.lower() not in WEB:
        return url
    host = parts.netloc.rpartition("@")[2]
    pieces = parts.query.split("&") if parts.query else []
    names = [unquote_plus(piece.partition("=")[0]).lower() for piece in pieces]
    hidden = set(CREDENTIALS)
    if "sig" in names:
        hidden |= AZURE
    if "signature" in names:
        hidden |= CLOUDFRONT
    kept = [
        piece
        for piece, name in zip(pieces, names, strict=True)
        if name not in hidden and not name.startswith(SIGNATURES)
    ]
    if len(kept) == len(pieces) and host == parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=host, query="&".join(kept)))


_known: dict[str, str] = {}
"""Urls with their secrets, by the urls without them."""
_lock = threading.Lock()


def remember(url: str) -> str:
    """Keep the secrets of a url for later requests of this process; return the url without them."""
    name = without_secrets(url)
    if name != url:
        with _lock:
            _known[name] = url
    return name


def with_secrets(url: str) -> str:
    """Return a url with the secrets that it, or a folder above it, was last opened with."""
    if not _known or url in _known:
        return _known.get(url, url)
    above = url.partition("?")[0]
    while above.count("/") > 3:
        above = above.rpartition("/")[0]
        if above in _known or f"{above}/" in _known:
            opened, own = urlsplit(_known.get(above) or _known[f"{above}/"]), urlsplit(url)
            queries = [query for query in (own.query, opened.query) if query]
            return urlunsplit(own._replace(netloc=opened.netloc, query="&".join(queries)))
    return url


def secrets_of(urls: Iterable[str]) -> list[str]:
    """Return the urls with secrets among `urls`, for another process that reads the same index."""
    return [_known[url] for url in urls if url in _known] if _known else []


def with_query(url: str, query: str | Mapping[str, str] | None) -> str:
    """Return a url with further parameters, such as a shared access signature of a container."""
    if not query:
        return url
    text = query.lstrip("?") if isinstance(query, str) else urlencode(query)
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=f"{parts.query}&{text}" if parts.query else text))
