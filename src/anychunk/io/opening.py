"""Open an object by its url, local or remote; or read it whole, or ask for its size or version.

`roots` are the folders in which a local object must lie, with all links resolved. Without any, the
caller named the object and it may lie anywhere.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from anychunk import limits
from anychunk.io.errors import file_errors
from anychunk.io.file import FileSource, ObjectBuffer, ReadSource, stat_pin
from anychunk.io.inside import Walk, stat_inside
from anychunk.io.objects import ObjectSource, get_object
from anychunk.io.source import Bytes1D, Source, Storage
from anychunk.io.url import folder_of, is_remote, local_path
from anychunk.model.pin import Pin


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
