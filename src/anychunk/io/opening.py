"""One object by its url, local or remote: opened, read whole, or only looked at."""

from anychunk import limits
from anychunk.io.file import FileSource, ObjectBuffer, stat_pin
from anychunk.io.objects import ObjectSource, get_object
from anychunk.io.source import Bytes1D, Source, Storage
from anychunk.io.url import is_remote, local_path
from anychunk.model.pin import Pin


def open_source(url: str, *, storage: Storage | None = None) -> Source:
    """Open one object for reading."""
    if is_remote(url):
        return ObjectSource(url, storage=storage)
    return FileSource(local_path(url))


def read_object(url: str, *, storage: Storage | None = None) -> Bytes1D | None:
    """Read a whole object, or give None where there is none: chunks that are one object each."""
    if is_remote(url):
        found = get_object(url, storage)
        return None if found is None else found[0]
    return ObjectBuffer(limits.get().chunk_bytes).read(local_path(url))


def pin_of(url: str, *, storage: Storage | None = None) -> Pin | None:
    """Look which version of an object is there now; None where there is none."""
    if not is_remote(url):
        return stat_pin(local_path(url))
    try:
        return ObjectSource(url, storage=storage).refresh()
    except FileNotFoundError:
        return None
