"""Names of other files that a file holds: they may not lead out of its folder."""

import os
import posixpath
from collections.abc import Iterable

from anychunk.errors import FormatError
from anychunk.io.url import is_remote, local_path


def resolve(base: str, reference: str, *, allow: Iterable[str] = ()) -> str:
    """Give the url of `reference` as named by a file in the folder `base`; it may not leave it.

    `allow` lists folders, as paths or urls, that it may lead to as well. Local paths are compared
    with all links resolved.
    """
    name = reference.replace("\\", "/")
    is_absolute = is_remote(name) or name.startswith(("file:", "/"))
    url = _normal(name) if is_absolute else _normal(f"{base.rstrip('/') or '/'}/{name}")
    is_outside = "\0" in name or is_absolute or ".." in name.split("/")
    leaves = is_outside or not _is_inside(base, url)
    if "\0" in name or (leaves and not any(_is_allowed(folder, url) for folder in allow)):
        raise FormatError(
            f"{base}: the reference {reference!r} leaves the folder of the file that names it; "
            "allow it explicitly to follow it"
        )
    return url


def _normal(url: str) -> str:
    """Take `.` and `..` out of a path or of a url's path."""
    if not is_remote(url):
        return posixpath.normpath(local_path(url))
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}://{host}{posixpath.normpath(f'/{path}')}"


def _is_allowed(folder: str, url: str) -> bool:
    if not is_remote(url):
        return not is_remote(folder) and _is_inside(folder, url)
    root = _normal(folder).rstrip("/")
    return url == root or url.startswith(f"{root}/")


def _is_inside(base: str, url: str) -> bool:
    """Whether a local path stays below `base` when links are followed."""
    if is_remote(base):
        return True
    root = os.path.realpath(local_path(base))
    return os.path.commonpath([root, os.path.realpath(local_path(url))]) == root
