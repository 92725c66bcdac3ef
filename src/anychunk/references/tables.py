"""What a saved index holds of each array: byte ranges, and chunks copied in where it must.

A form that cannot express how chunks are stored says so by name before anything is written. With
`copy="needed"` the bytes of just those chunks are read and kept in the saved index itself.
"""

import math
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.decode.chunks import ChunkReader
from anychunk.errors import LimitError, TruncatedError, UnsupportedError
from anychunk.io import Storage, list_objects, pin_of
from anychunk.model.index import (
    INLINE,
    WHOLE,
    ArrayIndex,
    ByteRanges,
    Computed,
    Node,
    Objects,
    Parts,
    Uint64,
    walk,
)
from anychunk.model.pin import Pin
from anychunk.read.zarr_core import sync
from anychunk.read.zarr_store import IndexStore

type Copy = Literal["never", "needed"]
type Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a kind of saved index can hold."""

    name: str
    has_parts: bool = False
    """Whether a chunk may be several ranges."""
    has_whole: bool = False
    """Whether a chunk may be an object of unknown length."""
    has_inline: bool = True
    """Whether chunks may be copied in at all."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One array's chunks, flattened in C order over the grid."""

    grid: tuple[int, ...]
    offsets: Uint64
    lengths: Uint64
    """0: absent, or copied. `WHOLE`: the whole object."""
    urls: Sequence[str]
    url_ids: npt.NDArray[np.int64] | None = None
    parts: Parts | None = None
    copied: dict[int, bytes] = field(default_factory=dict)
    pins: dict[str, Pin] = field(default_factory=dict)
    """Of objects that are one chunk each, which the index itself does not pin."""

    @property
    def present(self) -> npt.NDArray[np.int64]:
        """Numbers of the chunks that are ranges."""
        return np.flatnonzero(self.lengths)

    def several(self) -> npt.NDArray[np.int64]:
        """Numbers of the chunks that are ranges with further parts."""
        if self.parts is None:
            return np.empty(0, np.int64)
        return np.flatnonzero(
            (np.diff(self.parts.starts.astype(np.int64)) > 0) & (self.lengths > 0)
        )

    def url_id(self, number: int) -> int:
        return 0 if self.url_ids is None else int(self.url_ids[number])


type Tables = Mapping[str, tuple[ArrayIndex, Table]]
"""Every array with its table, by path."""


def tables(node: Node, form: Form, *, copy: Copy, storage: Storage | None) -> Tables:
    """Give every array with its table, by path; refuse what `form` cannot hold."""
    if copy not in ("never", "needed"):
        raise ValueError(f"copy is {copy!r}, expected 'never' or 'needed'")
    store = IndexStore(node, storage=storage)
    arrays = [(path, found) for path, found in walk(node) if isinstance(found, ArrayIndex)]
    if copy == "never" or not form.has_inline:
        for path, array in arrays:
            _refuse(path, array, form)
    return {path: (array, _table(path, array, form, store)) for path, array in arrays}


def _refuse(path: str, array: ArrayIndex, form: Form) -> None:
    """Name what `form` cannot hold."""
    where = f"array {path or '/'}"
    what_to_do = '; save with copy="needed" to copy those chunks in' if form.has_inline else ""
    chunks = array.chunks
    if isinstance(chunks, Computed):
        raise UnsupportedError(
            f"{where}: its chunks are computed ({chunks.method}), which {form.name} cannot "
            f"express{what_to_do}"
        )
    needed = _unspeakable(chunks, form)
    if needed.any():
        raise UnsupportedError(
            f"{where}: {int(needed.sum())} of {needed.size} chunks have inline bytes in front or "
            f"several parts, which {form.name} cannot express{what_to_do}"
        )


def _unspeakable(chunks: ByteRanges | Objects, form: Form) -> Flags:
    """Tell the chunks that `form` cannot hold as they are; absent ones always can."""
    needed = np.zeros(math.prod(chunks.grid), bool)
    if any(chunks.fronts):
        filled = np.array([bool(front) for front in chunks.fronts])
        needed |= filled[0] if chunks.front_ids is None else filled[chunks.front_ids.reshape(-1)]
    if isinstance(chunks, Objects):
        return needed
    if chunks.parts is not None and not form.has_parts:
        needed |= np.diff(chunks.parts.starts.astype(np.int64)) > 0
    return needed & (chunks.lengths.reshape(-1) > 0)


def _table(path: str, array: ArrayIndex, form: Form, store: IndexStore) -> Table:
    chunks = array.chunks
    if isinstance(chunks, Computed):
        nothing = np.zeros(math.prod(array.grid), np.uint64)
        copied = _copy_computed(path, array, store)
        return Table(grid=array.grid, offsets=nothing, lengths=nothing, urls=(), copied=copied)
    reader = ChunkReader(array, store.sources, where=store.where(path))
    if isinstance(chunks, Objects):
        return _objects(chunks, form, reader)
    return _ranges(chunks, form, reader)


def _ranges(chunks: ByteRanges, form: Form, reader: ChunkReader) -> Table:
    needed = _unspeakable(chunks, form)
    ids = None if chunks.url_ids is None else chunks.url_ids.reshape(-1).astype(np.int64)
    lengths = chunks.lengths.reshape(-1)
    if INLINE in chunks.urls:
        is_inline = np.array([url == INLINE for url in chunks.urls])
        needed |= (is_inline[0] if ids is None else is_inline[ids]) & (lengths > 0)
    copied = _copy(reader, np.flatnonzero(needed))
    if copied:
        lengths = np.where(needed, np.uint64(0), lengths)
    pins = _found_pins(reader, [url for url in chunks.urls if url != INLINE])
    if not form.has_whole and (lengths == WHOLE).any():
        lengths = _known_lengths(reader, lengths)
    return Table(
        grid=chunks.grid,
        offsets=chunks.offsets.reshape(-1),
        lengths=lengths,
        urls=chunks.urls,
        url_ids=ids,
        parts=chunks.parts if form.has_parts else None,
        copied=copied,
        pins=pins,
    )


def _found_pins(reader: ChunkReader, urls: Sequence[str]) -> dict[str, Pin]:
    """Look at sources that the index does not pin: chunks of one object each, never opened yet."""
    waiting = [url for url in urls if url not in reader.sources.pins]
    if not waiting:
        return {}
    look = partial(pin_of, storage=reader.sources.storage)
    with ThreadPoolExecutor(limits.get().concurrency) as pool:
        found = zip(waiting, pool.map(look, waiting), strict=True)
        return {url: pin for url, pin in found if pin is not None}


def _known_lengths(reader: ChunkReader, lengths: Uint64) -> Uint64:
    """Ask for the sizes of chunks that are whole objects."""
    known = lengths.copy()
    for number in np.flatnonzero(lengths == WHOLE):
        known[number] = reader.size(int(number)) or 0
    return known


def _objects(chunks: Objects, form: Form, reader: ChunkReader) -> Table:
    """Find which chunks are there: an index says so, it does not try."""
    there = dict(list_objects(chunks.base, storage=reader.sources.storage, roots=chunks.places))
    count = math.prod(chunks.grid)
    lengths = np.zeros(count, np.uint64)
    urls: list[str] = []
    pins: dict[str, Pin] = {}
    ids = np.zeros(count, np.int64)
    for number in range(count):
        name = posixpath.normpath(chunks.name(reader.coords(number)))
        pin = there.get(name)
        if pin is None or not pin.size:
            if not chunks.is_sparse:
                reader.read(number)  # says what is missing
                raise TruncatedError(f"{reader.describe(number)}: the object is empty")
            continue
        lengths[number] = WHOLE if form.has_whole else pin.size
        ids[number] = len(urls)
        urls.append(f"{chunks.base}/{name}")
        pins[urls[-1]] = pin
    needed = _unspeakable(chunks, form) & (lengths > 0)
    copied = _copy(reader, np.flatnonzero(needed))
    lengths[needed] = 0
    return Table(
        grid=chunks.grid,
        offsets=np.zeros(count, np.uint64),
        lengths=lengths,
        urls=urls,
        url_ids=ids,
        copied=copied,
        pins=pins,
    )


def _copy(reader: ChunkReader, numbers: npt.NDArray[np.int64]) -> dict[int, bytes]:
    """Read chunks; remote ones together."""
    found: dict[int, bytes] = {}

    def deliver(positions: Sequence[int], chunks: list[Any]) -> None:
        for position, data in zip(positions, chunks, strict=True):
            if data is not None:
                found[int(numbers[position])] = data.tobytes()
        _check_copied(found, reader.where)

    if reader.is_local:
        for i, number in enumerate(numbers):
            deliver([i], [reader.read(int(number))])
    elif len(numbers):
        sync(reader.fetch_many(numbers, deliver))
    return found


def _copy_computed(path: str, array: ArrayIndex, store: IndexStore) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for number in range(math.prod(array.grid)):
        coords = np.unravel_index(number, array.grid) if array.grid else ()
        key = "/".join([*([path] if path else []), "c", *(str(int(c)) for c in coords)])
        data = store.get_sync(key)
        if data is not None:
            found[number] = data.to_bytes()
        _check_copied(found, store.where(path))
    return found


def _check_copied(found: dict[int, bytes], where: str) -> None:
    # a sum over all of them at each step would be quadratic: chunks of one array are about alike
    total = len(found) * len(next(iter(found.values()), b""))
    if total > limits.get().index_bytes:
        raise LimitError(
            f"{where}: copying its chunks takes more than {limits.get().index_bytes} bytes; "
            "raise anychunk.limits index_bytes to allow it, or convert the file"
        )


def with_found_pins[N: Node](node: N, found: Tables) -> N:
    """Give the index with the pins of all sources that its tables name."""
    pins = dict(node.pins)
    for _, table in found.values():
        pins |= table.pins
    return replace(node, pins=pins) if len(pins) > len(node.pins) else node


def used_urls(found: Tables) -> Iterator[str]:
    """Yield every url that the tables name."""
    for _, table in found.values():
        for url in table.urls:
            if url != INLINE:
                yield url
