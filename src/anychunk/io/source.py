"""The protocol of every source: exactly the requested bytes, or an error."""

import ntpath
import os
import posixpath
import re
import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self
from urllib.parse import quote, unquote, unquote_plus, urlencode, urlsplit, urlunsplit

import numpy as np

from anychunk.errors import SourceChangedError, TruncatedError
from anychunk.io import system
from anychunk.model.pin import TOUCHED, Pin

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Secrets in urls: signatures, tokens and passwords are used for requests, and shown nowhere.
#
# A signed url has two parts: what names the object, and what grants access to it. Only the first
# is the name of a source, so saved indexes, logs and errors never contain the second. The second
# belongs to who gave it: `unsigned` moves it from the url to the options of the storage, the pins
# of an index keep it, and `with_secrets` adds it to requests. Whoever opens the same object by
# its name alone sends none.
#
# Which parameters of a query grant access: those of the signatures of Amazon S3 and CloudFront,
# Google Cloud Storage and Azure Storage, and parameters whose name says so (`token`, `api_key` …).
# Others, such as `versionId`, name the object and stay part of the url.


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
AZURE_SIGNATURE = frozenset(
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
        hidden |= AZURE_SIGNATURE
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


# Urls: which are local, their paths, and names below them.
#
# Inside the package a local path has forward slashes on every system: Windows accepts them, and
# names are then joined and split in one way. What callers pass goes through `as_url` or
# `local_path`.


PLAIN = "/ !$&'()+,;=@:~"
"""Characters that need no escape in a url's path; `%`, `#` and `?` in a name do."""
ALIASES = {"gcs": "gs", "s3a": "s3", "s3n": "s3"}
"""Other names of schemes, as fsspec and Hadoop have them."""
AZURE = ("abfs", "abfss")
DRIVE = re.compile(r"[A-Za-z]:(?:/|$)")
"""The start of an absolute path on Windows."""


def is_remote(url: str) -> bool:
    """Return whether `url` has a scheme other than file; a single letter is a Windows drive."""
    if ":" not in url:
        return False  # nearly all paths
    scheme = urlsplit(url).scheme
    return len(scheme) > 1 and scheme != "file"


def slashes(path: str) -> str:
    """Return a path of the system with forward slashes."""
    return path.replace("\\", "/") if system.IS_WINDOWS else path


def as_url(url: str | os.PathLike[str]) -> str:
    """Return the path or url that a caller passed, local paths with forward slashes.

    `~` is the caller's home, and schemes have one name each: `gcs` is `gs`, and `abfs://container`
    is `az://container`.
    """
    text = str(url)
    if is_remote(text):
        return _with_one_scheme(text)
    if text.startswith("~") and not os.path.lexists(text):
        text = os.path.expanduser(text)  # noqa: PTH111 - leaves an unknown user as it is
    return slashes(text)


def _with_one_scheme(url: str) -> str:
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme in AZURE and "@" not in rest.partition("/")[0]:
        scheme = "az"  # without an account, which obstore takes from its options
    return f"{ALIASES.get(scheme, scheme)}://{rest}" if rest else url


def is_pattern(url: str) -> bool:
    """Return whether `url` contains wildcards and is not itself the name of a local file.

    Of a web url `?` starts the query, and web servers do not list their files. Only `*` in
    its path is taken for a wildcard, so that the error says so.
    """
    if not is_remote(url):
        return any(c in url for c in "*?[") and not os.path.lexists(local_path(url))
    if url.lower().startswith(("http:", "https:")):
        return "*" in urlsplit(url).path
    return any(c in url for c in "*?[")


def local_path(url: str) -> str:
    """Return the path of a local url."""
    if not url.startswith("file:"):
        return slashes(url)
    parts = urlsplit(url)
    path = unquote(parts.path)
    if not system.IS_WINDOWS:
        return path
    path = slashes(path)
    if parts.netloc not in ("", "localhost"):
        return f"//{parts.netloc}{path}"  # a file of another computer
    return drive_first(path)


def drive_first(path: str) -> str:
    """Return `/C:/a`, the path of a `file` url on Windows, as `C:/a` (RFC 8089 appendix D.2)."""
    return path[1:] if system.IS_WINDOWS and DRIVE.match(path[1:]) else path


def file_url(path: str, *, is_quoted: bool = True) -> str:
    """Return an absolute local path as a `file://` url; leave remote urls as they are."""
    if is_remote(path):
        return path
    has_drive = system.IS_WINDOWS and DRIVE.match(path)
    text = quote(path, safe="/:" if has_drive else "/") if is_quoted else path
    return f"file://{'/' if has_drive else ''}{text}"


def is_absolute(path: str) -> bool:
    """Return whether a local path does not begin at the current folder.

    On Windows `C:name` counts as absolute too, because it may be on another drive.
    """
    return path.startswith("/") or (system.IS_WINDOWS and bool(ntpath.splitdrive(path)[0]))


def folder_of(url: str) -> str:
    """Return the folder that the references of a file are relative to."""
    return posixpath.dirname(url if is_remote(url) else local_path(url)) or "."


def below(folder: str, name: str) -> str:
    """Return the url of the object `name` in a folder; a path if the folder is a path."""
    is_url = is_remote(folder) or folder.startswith("file:")
    return f"{folder}/{quote(name, safe=PLAIN) if is_url else name}"


def absolute(url: str) -> str:
    """Return a local url as an absolute path, a remote one without secrets."""
    if is_remote(url):
        return without_secrets(url)
    return slashes(os.path.abspath(local_path(url)))  # noqa: PTH100 - keeps links


type Bytes1D = NDArray[np.uint8]

type OnChange = Literal["error", "warn"]
"""What to do when a source has changed since it was indexed."""

type Storage = Any
"""How remote objects are read: a mapping of options, an obstore store, or an fsspec filesystem.

Options are those of `obstore.store.from_url`, or their names in s3fs, gcsfs and adlfs, and five
more: `resolve`, a function that returns the store of a url and the path in it; `redirects`,
"follow" (the default) or "same-origin", which refuses redirects to another host or port; `query`,
parameters that are added to web urls; `sign`, a function that returns a url with its signature;
`filesystem`, an fsspec filesystem."""


class Source(Protocol):
    """One object, read by range."""

    @property
    def url(self) -> str: ...
    @property
    def storage(self) -> Storage | None:
        """The options that it was opened with, for other objects that it refers to."""
        ...

    @property
    def roots(self) -> Sequence[str]:
        """The folders that it had to lie in, and local files that it refers to; empty: anywhere."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether reading returns a slice of memory, without a request."""
        ...

    @property
    def token(self) -> Hashable:
        """Identifies the opened version in keys of caches that outlive the source.

        A url and a pin do not: another object may have the same name, size and time.
        """
        ...

    def pin(self) -> Pin:
        """Return the version that was opened."""
        ...

    def size(self) -> int:
        """Return the length in bytes."""
        ...

    def read(self, offset: int, length: int) -> Bytes1D:
        """Return exactly these bytes, without a copy if possible, or raise `TruncatedError`."""
        ...

    def refresh(self) -> Pin:
        """Return the current version."""
        ...


def check_range(source: Source, offset: int, length: int) -> None:
    """Raise `TruncatedError` unless the source has these bytes."""
    size = source.size()
    if offset < 0 or length < 0 or offset + length > size:
        raise TruncatedError(
            f"{source.url} @{offset}: expected {length} bytes, the object ends after {size}"
        )


def report_change(url: str, change: str, on_change: OnChange) -> None:
    """Raise `SourceChangedError`, or warn if the caller accepts changed sources."""
    if on_change == "error":
        advice = "open it again" if change == TOUCHED else "index it again"
        raise SourceChangedError(f"{url}: {change}; {advice}")
    warnings.warn(f"{url}: {change}; what is read may be wrong", stacklevel=3)
