"""Urls in saved indexes: how they are written, resolved, and checked against what is allowed.

An index can be moved together with its data: it records the folder that it was saved in, and a
reference below that folder is resolved against the folder where the index is now. A saved index is
untrusted input, so a reference may point only into the index's own folder, unless the caller allows
more.
"""

import os
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anychunk.errors import FormatError
from anychunk.io import inside
from anychunk.io.inside import check_names, climbs, resolved
from anychunk.io.source import absolute, is_absolute, is_remote, local_path
from anychunk.io.system import is_link

EVERYWHERE = "*"
"""As an allowed prefix: references may point anywhere."""
BASE = "{{base}}"
"""The template for the folder of a kerchunk JSON index."""


def folder_of(url: str) -> str:
    """Return the folder that contains `url`."""
    return posixpath.dirname(absolute(url).rstrip("/")) or "/"


def is_below(url: str, folder: str) -> bool:
    """Return whether `url` lies below `folder`, comparing names only."""
    start = folder if folder.endswith("/") else f"{folder}/"
    return url.startswith(start)


def without_file_scheme(url: str) -> str:
    """Return `file:///a%20b` as `/a b`; leave other urls as they are."""
    return url if is_remote(url) else local_path(url)


def _is_name(path: str) -> bool:
    """Return whether the system can open a file of this name: not with lone surrogates."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class UrlResolver:
    """Resolves references of one saved index to urls that may be read."""

    url: str
    """Where the index is."""
    base: str | None = None
    """The folder that the index was saved in, if it moves with its data."""
    templates: Mapping[str, str] | None = None
    """The values of `{{name}}`; None: braces are part of a name."""
    allow: Iterable[str] = ()
    """Prefixes of urls that may be read, besides the index's own folder."""
    _resolved: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Cache of resolved references: many chunks refer to few urls."""
    _real_folders: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Cache of folders with symbolic links resolved: many files share few folders."""

    @property
    def has_moved(self) -> bool:
        """Whether the index is in another folder than the one it was saved in."""
        return self.base is not None and self.base.rstrip("/") != folder_of(self.url).rstrip("/")

    def moved(self, urls: Iterable[str]) -> Iterable[str]:
        """Return absolute urls as they are now, if the index has moved with its data.

        They are not checked: they may be compared, but not opened.
        """
        if self.base is None or not self.has_moved:
            return urls
        old, new = f"{self.base.rstrip('/')}/", f"{folder_of(self.url).rstrip('/')}/"
        return (new + url[len(old) :] if url.startswith(old) else url for url in urls)

    @property
    def roots(self) -> tuple[str, ...]:
        """The local folders that references may point to; empty if they may point anywhere."""
        allowed = self._allowed(folder_of(self.url))
        if EVERYWHERE in allowed:
            return ()
        return tuple(prefix for prefix in allowed if not is_remote(prefix))

    def _allowed(self, folder: str) -> list[str]:
        return [folder, *(without_file_scheme(prefix) for prefix in self.allow)]

    def resolve(self, reference: str) -> str:
        """Return the url of a reference.

        Raises:
            FormatError: If it points outside what is allowed, or uses an unknown template.
        """
        found = self._resolved.get(reference)
        if found is None:
            found = self._resolved[reference] = self._resolve(reference)
        return found

    def _resolve(self, reference: str) -> str:
        folder = folder_of(self.url)
        url = without_file_scheme(self._expand(reference))
        if self.base is not None and is_below(url, self.base):
            url = f"{folder.rstrip('/')}/{url[len(self.base.rstrip('/')) + 1 :]}"
        elif not is_remote(url) and not is_absolute(url):
            url = f"{folder.rstrip('/')}/{url}"
        self._check(url, folder)
        return url

    def _expand(self, reference: str) -> str:
        if self.templates is None or "{{" not in reference:
            return reference
        for name, value in self.templates.items():
            reference = reference.replace("{{" + name + "}}", value)
        if "{{" in reference:
            known = " ".join(self.templates) or "none"
            raise FormatError(
                f"{self.url}: the reference {reference!r} uses an unknown template; known: {known}"
            )
        return reference

    def _check(self, url: str, folder: str) -> None:
        # `..` is refused even where it would stay inside: object stores do not resolve it
        if not _is_name(url) or climbs(url) or not self._is_allowed(url, folder):
            raise FormatError(
                f"{self.url}: the reference {url!r} points outside {folder}; "
                "pass allow=[…] or --allow to permit it"
            )
        if not is_remote(url):
            check_names(url)

    def _is_allowed(self, url: str, folder: str) -> bool:
        allowed = self._allowed(folder)
        if EVERYWHERE in allowed:
            return True
        if is_remote(url):
            return any(url == prefix or is_below(url, prefix) for prefix in allowed)
        real = self._real_path(url)
        folders = [self._real_folder(prefix) for prefix in allowed if not is_remote(prefix)]
        return any(inside.is_below(real, place) for place in folders)

    def _real_path(self, path: str) -> str:
        """Resolve symbolic links, with one system call for a file in a folder seen before."""
        if is_link(path):
            return resolved(path)
        parent, _, name = path.rpartition("/")
        return f"{self._real_folder(parent or '/').rstrip('/')}/{name}"

    def _real_folder(self, path: str) -> str:
        if path not in self._real_folders:
            self._real_folders[path] = resolved(path)
        return self._real_folders[path]
