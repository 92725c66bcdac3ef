"""Urls: which are local, their paths, and names below them.

Inside the package a local path has forward slashes on every system: Windows accepts them, and names
are then joined and split in one way. What callers pass goes through `as_url` or `local_path`.
"""

import ntpath
import os
import posixpath
import re
from urllib.parse import quote, unquote, urlsplit

from anychunk.io import system
from anychunk.io.secrets import without_secrets

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
