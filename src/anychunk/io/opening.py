"""Open an object by its url, local or remote; or read it whole, or ask for its size or version.

`roots` are the folders in which a local object must lie, with all links resolved. Without any, the
caller named the object and it may lie anywhere.
"""

import os
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from anychunk import limits
from anychunk.errors import SourceError, UnsupportedError
from anychunk.io.errors import file_errors, remote_errors
from anychunk.io.file import FileSource, ObjectBuffer, ReadSource, file_pin, stat_pin
from anychunk.io.inside import Walk, list_inside, real_path, scan_inside, stat_inside
from anychunk.io.object_stores import object_store
from anychunk.io.objects import ObjectSource, get_object, listed_pin
from anychunk.io.source import (
    Bytes1D,
    Source,
    Storage,
    as_url,
    below,
    folder_of,
    is_remote,
    local_path,
    unsigned,
)
from anychunk.io.system import is_link
from anychunk.model.pin import Pin
from anychunk.options import checked

if TYPE_CHECKING:
    from obstore.store import ObjectStore


@checked()
def open_source(url: str, *, storage: Storage | None = None, roots: Sequence[str] = ()) -> Source:
    """Open one object for reading."""
    if is_remote(url):
        return ObjectSource(url, storage=storage)
    if _unmapped:
        return ReadSource(local_path(url), roots=roots)
    return FileSource(local_path(url), roots=roots)


def open_beside(source: Source, url: str) -> Source:
    """Open a file below the folder of another; a link that leads out of it is refused.

    One step: whether `resolve` allowed the url says nothing about a file that was replaced since.
    """
    roots = source.roots or (folder_of(source.url),)
    return open_source(url, storage=source.storage, roots=roots)


_unmapped: list[object] = []
"""One element per block of `without_maps` that is running."""


@contextmanager
def without_maps() -> Iterator[None]:
    """Open local files without mapping them, on all threads, until the block ends.

    For a server: it parses files that others may be writing, and if one that is mapped is
    truncated, the operating system kills the process.
    """
    mark = object()
    _unmapped.append(mark)
    try:
        yield
    finally:
        _unmapped.remove(mark)


def read_object(
    url: str, *, storage: Storage | None = None, roots: Sequence[str] = ()
) -> Bytes1D | None:
    """Read a whole object, such as a chunk that is a separate file; None if it does not exist."""
    if is_remote(url):
        found = get_object(url, storage)
        return None if found is None else found[0]
    most = limits.get().chunk_bytes
    if not roots:
        return ObjectBuffer(most).read(local_path(url))
    with Walk(roots) as walk:
        return ObjectBuffer(most, walk=walk).read(local_path(url))


def object_size(
    url: str, *, storage: Storage | None = None, roots: Sequence[str] = ()
) -> int | None:
    """Return the length of an object, or None if it does not exist."""
    try:
        if is_remote(url):
            return ObjectSource(url, storage=storage).size()
        with file_errors(url):
            return stat_inside(local_path(url), roots).st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def pin_of(url: str, *, storage: Storage | None = None) -> Pin | None:
    """Return the current version of an object, or None if it does not exist."""
    if not is_remote(url):
        return stat_pin(local_path(url))
    try:
        return ObjectSource(url, storage=storage).refresh()
    except FileNotFoundError:
        return None


# Directories, and prefixes of object stores.


class Folder:
    """A directory, or a prefix of an object store, whose objects are read by name."""

    def __init__(
        self, url: str, *, storage: Storage | None = None, roots: Sequence[str] = ()
    ) -> None:
        """`roots`: where links of a local folder may lead, by default only into the folder itself.

        The folder is below the first of them.
        """
        url, self.storage = unsigned(as_url(url), storage)
        self.url = url.rstrip("/") or url
        self.is_local = not is_remote(url)
        self.path = local_path(self.url) if self.is_local else self.url
        self.roots = tuple(roots) or (self.path,)

    @property
    def root(self) -> str:
        """The folder that the caller named; links below it must not lead outside it."""
        return self.roots[0]

    def child(self, name: str) -> "Folder":
        """Return the folder of this name below this one."""
        made = Folder.__new__(Folder)  # skips what __init__ would find out again
        made.url = made.path = f"{self.path}/{name}" if self.is_local else below(self.path, name)
        made.storage, made.is_local, made.roots = self.storage, self.is_local, self.roots
        return made

    def source(self, name: str) -> Source:
        """Open an object below this folder, or raise FileNotFoundError."""
        return open_source(below(self.path, name), storage=self.storage, roots=self.roots)

    def read(self, name: str) -> bytes | None:
        """Return a small object as bytes, or None if it does not exist."""
        if self.is_local:
            path = f"{self.path}/{name}"
            with Walk(self.roots) as walk:
                data = ObjectBuffer(limits.get().header_bytes, walk=walk).read(path)
            return None if data is None else data.tobytes()
        url = below(self.path, name)
        found = get_object(url, self.storage, most=limits.get().header_bytes)
        return None if found is None else found[0].tobytes()

    def names(self) -> tuple[list[str], list[str]]:
        """List (folders, objects) directly below, sorted."""
        return self._local_names() if self.is_local else self._remote_names()

    def _local_names(self) -> tuple[list[str], list[str]]:
        with file_errors(self.path):
            found = scan_inside(self.path, self.roots)
        return sorted(n for d, n in found if d), sorted(n for d, n in found if not d)

    def _remote_names(self) -> tuple[list[str], list[str]]:
        folders, objects = self.remote_objects()
        return folders, sorted(objects)

    def remote_objects(self) -> tuple[list[str], dict[str, Pin]]:
        """List the folders directly below a remote one, and its objects with their versions."""
        import obstore

        store, path = _listed_store(self.url, self.storage)
        with remote_errors(self.url):
            found = obstore.list_with_delimiter(store, path)
        folders = [posixpath.basename(str(p).rstrip("/")) for p in found["common_prefixes"]]
        objects = {posixpath.basename(str(o["path"])): listed_pin(o) for o in found["objects"]}
        return sorted(folders), objects


def list_objects(
    url: str, *, storage: Storage | None = None, roots: Sequence[str] = ()
) -> Iterator[tuple[str, Pin]]:
    """Yield (relative path, version) of every object below a folder.

    Links in a local folder may lead into `roots`, by default the folder itself.
    """
    root = url.rstrip("/")
    if not is_remote(root):
        yield from _list_files(local_path(root), roots or (local_path(root),))
        return
    import obstore

    store, path = _listed_store(root, storage)
    start = f"{path}/" if path else ""
    with remote_errors(root):
        for batch in obstore.list(store, path or None):
            for entry in batch:
                yield str(entry["path"]).removeprefix(start), listed_pin(entry)


def _list_files(root: str, roots: Sequence[str]) -> Iterator[tuple[str, Pin]]:
    for name in list_inside(root, roots):
        path = f"{root}/{name}"
        if is_link(path):
            real_path(path, roots)
        try:
            yield name, file_pin(os.stat(path))  # noqa: PTH116
        except OSError as e:
            raise SourceError(f"{path}: {e.strerror or e}") from e


def _listed_store(url: str, storage: Storage | None) -> "tuple[ObjectStore, str]":
    if urlsplit(url).scheme in ("http", "https"):
        raise UnsupportedError(f"{url}: web servers do not list folders; name the file")
    return object_store(url, storage)
