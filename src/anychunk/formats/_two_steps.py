"""Files with one ordinary image, indexed in two steps: its array at once, the rest on demand.

Reading pixels needs the array of full resolution only. Attributes, coordinates, coarser levels and
side files take longer to make than a small chunk to decode. A format that recognises an ordinary
file by a look at its headers returns the array; the general parser makes the rest when another
field of the index is asked for, from the bytes that were read then.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, cast

import numpy as np

from anychunk.errors import untrusted
from anychunk.io.file import FileSource
from anychunk.io.source import Bytes1D, Source, Storage, check_range, report_change
from anychunk.metadata.ome import VARIABLE
from anychunk.model.index import ArrayIndex, GroupIndex, deferred, find, with_arrays
from anychunk.model.pin import Pin

# Parts of a local file that were read before, as a source.


class KeptSource:
    """A local file of which some parts are in memory; only others are read, if it is unchanged.

    For structure that is parsed in two steps: the second finds what the first one found, whatever
    happened to the file in between.
    """

    is_local = True
    storage: Storage | None = None

    def __init__(
        self, url: str, pin: Pin, parts: Mapping[int, bytes], *, roots: Sequence[str] = ()
    ) -> None:
        """`parts` are bytes by their offset in the file, of the version that `pin` describes."""
        self.url, self.roots = url, roots
        self.token = object()
        self._pin = pin
        self._parts = parts
        self._file: FileSource | None = None

    def pin(self) -> Pin:
        return self._pin

    refresh = pin

    def size(self) -> int:
        return self._pin.size

    def read(self, offset: int, length: int) -> Bytes1D:
        check_range(self, offset, length)
        for start, part in self._parts.items():
            if start <= offset and offset + length <= start + len(part):
                return np.frombuffer(part, np.uint8, length, offset - start)
        if self._file is None:
            file = FileSource(self.url, roots=self.roots)
            change = self._pin.differs(file.pin())
            if change:
                report_change(self.url, change, "error")
            self._file = file
        return self._file.read(offset, length)


PATH = f"0/0/{VARIABLE}"
"""Path of the array that is known at once."""


_is_whole: ContextVar[bool] = ContextVar("anychunk_whole_index", default=False)


@contextmanager
def in_one_step() -> Iterator[None]:
    """Have files indexed by the general parser at once: all of each index will be asked for."""
    token = _is_whole.set(True)
    try:
        yield
    finally:
        _is_whole.reset(token)


def quick_source(source: Source) -> FileSource | None:
    """Return a source that may be indexed in two steps; None for all others."""
    return source if isinstance(source, FileSource) and not _is_whole.get() else None


class Plain(NamedTuple):
    """What is known about the array of an ordinary file, and the bytes that say so."""

    fields: dict[str, Any]
    """Fields of the `ArrayIndex`; the others depend on metadata."""
    pieces: dict[int, bytes]
    """The parts of the file that describe the image, by offset."""


def in_two_steps(
    source: FileSource, plain: Plain, parse: Callable[[Source], GroupIndex]
) -> GroupIndex:
    """Return the index of an ordinary file.

    Parameters:
        source: the file.
        plain: its array; no chunk of it may be absent.
        parse: the general parser, called once, when more is asked for. Its source is not one of
            files on a disk: whether to look for side files must be given. It must not fail.
    """
    kept = KeptSource(source.url, source.pin(), plain.pieces, roots=source.roots)
    whole = _Later(kept, parse)
    root = deferred(GroupIndex, whole, pins={}, roots=())
    image = deferred(ArrayIndex, whole.image, pins={}, roots=(), **plain.fields)
    return with_arrays(root, {PATH: image})


class _Later:
    """Indexes a file once, when more than its array is asked for."""

    def __init__(self, source: Source, parse: Callable[[Source], GroupIndex]) -> None:
        self._source, self._parse = source, parse
        self._found: GroupIndex | None = None

    def __call__(self) -> GroupIndex:
        if self._found is None:
            with untrusted(self._source.url):
                self._found = self._parse(self._source)
        return self._found

    def image(self) -> ArrayIndex:
        return cast("ArrayIndex", find(self(), PATH))
