"""Secrets in urls: signatures, tokens and passwords are used for requests, and shown nowhere.

A signed url has two parts: what names the object, and what grants access to it. Only the first is
the name of a source, so saved indexes, logs and errors never contain the second. The second belongs
to who gave it: `unsigned` moves it from the url to the options of the storage, the pins of an index
keep it, and `with_secrets` adds it to requests. Whoever opens the same object by its name alone
sends none.

Which parameters of a query grant access: those of the signatures of Amazon S3 and CloudFront,
Google Cloud Storage and Azure Storage, and parameters whose name says so (`token`, `api_key` …).
Others, such as `versionId`, name the object and stay part of the url.
"""

from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import unquote_plus, urlencode, urlsplit, urlunsplit

WEB = ("http", "https")
SIGNATURES = ("xamz", "xgoog", "xoss", "xcos")
"""Prefixes of parameters of signatures and their temporary credentials."""
ENDINGS = (
    "token", "secret", "password", "passwd", "passphrase", "pwd", "apikey", "accesskey",
    "secretkey", "privatekey", "subscriptionkey", "accountkey", "accesskeyid", "accessid",
    "keypairid", "credential", "credentials", "authorization", "signature",
)  # fmt: skip
"""How the names of parameters end that grant access, such as `private_token` or `clientSecret`."""
CREDENTIALS = frozenset({"auth", "jwt", "sas", "sig", "hmac"})
"""Names that are too short to compare their end."""
AZURE = frozenset(
    {
        "sv", "ss", "srt", "sp", "se", "st", "spr", "sr", "si", "sip", "sdd", "skoid", "sktid",
        "skt", "ske", "sks", "skv", "saoid", "suoid", "scid",
    }
)  # fmt: skip
"""What a shared access signature of Azure states beside `sig`."""
CLOUDFRONT = frozenset({"expires", "policy", "hashalgorithm"})
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
    names = [_plain(unquote_plus(piece.partition("=")[0])) for piece in pieces]
    hidden = set(CREDENTIALS)
    if "sig" in names:
        hidden |= AZURE
    if "signature" in names:
        hidden |= CLOUDFRONT
    kept = [
        piece
        for piece, name in zip(pieces, names, strict=True)
        if name not in hidden and not name.startswith(SIGNATURES) and not name.endswith(ENDINGS)
    ]
    if len(kept) == len(pieces) and host == parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=host, query="&".join(kept)))


def _plain(name: str) -> str:
    """Return the name of a parameter as it is compared: writers differ in case and separators."""
    return name.lower().replace("-", "").replace("_", "")


SIGNED = "_signed"
"""The storage option that holds `Signed` urls."""


class Signed(dict[str, str]):
    """Urls with their secrets, by their names. Shown nowhere, and not pickled with an index."""

    def __repr__(self) -> str:
        return f"Signed({len(self)} urls)"

    def __reduce__(self) -> Any:
        return Signed, ()

    def __deepcopy__(self, _: Any) -> Self:
        return type(self)(self)


def signed_of(storage: Any) -> Signed:
    """Return the signed urls that options of a storage hold."""
    found = storage.get(SIGNED) if isinstance(storage, Mapping) else None
    return Signed() if found is None else found


def unsigned(url: str, storage: Any) -> tuple[str, Any]:
    """Return a url without its secrets, and the options of the storage with them."""
    name = without_secrets(url)
    if name == url or not (storage is None or isinstance(storage, Mapping)):
        return name, storage
    return name, {**(storage or {}), SIGNED: Signed({**signed_of(storage), name: url})}


def with_signed(storage: Any, signed: Mapping[str, str] | None) -> Any:
    """Return options of a storage with further signed urls; those that it has are kept."""
    known = signed_of(storage)
    if not signed or known.keys() >= signed.keys():
        return storage
    if not (storage is None or isinstance(storage, Mapping)):
        return storage
    return {**(storage or {}), SIGNED: Signed({**signed, **known})}


def with_secrets(url: str, signed: Mapping[str, str]) -> str:
    """Return a url with the secrets that it, or a folder above it, was opened with."""
    if not signed or url in signed:
        return signed.get(url, url)
    above = url.partition("?")[0]
    while above.count("/") > 3:
        above = above.rpartition("/")[0]
        if above in signed or f"{above}/" in signed:
            opened, own = urlsplit(signed.get(above) or signed[f"{above}/"]), urlsplit(url)
            queries = [query for query in (own.query, opened.query) if query]
            return urlunsplit(own._replace(netloc=opened.netloc, query="&".join(queries)))
    return url


def with_query(url: str, query: str | Mapping[str, str] | None) -> str:
    """Return a url with further parameters, such as a shared access signature of a container."""
    if not query:
        return url
    text = query.lstrip("?") if isinstance(query, str) else urlencode(query)
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=f"{parts.query}&{text}" if parts.query else text))
