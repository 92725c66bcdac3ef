"""The chunks of an index as flat tables of references, for saving.

An index format that cannot express how chunks are stored refuses them before anything is written.
With `copy="needed"` the bytes of exactly those chunks are read and kept in the saved index itself.
"""

import math
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.decode.chunks import ChunkReader
from anychunk.decode.present import is_reversible, named_chunks
from anychunk.errors import TruncatedError, UnsupportedError
from anychunk.io.opening import list_objects, pin_of
from anychunk.io.source import Storage
from anychunk.io.threads import in_order
from anychunk.model.grid import Numbers, Shape, chunk_coords, chunk_key
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
from anychunk.options import Copy
from anychunk.zarr.core import sync
from anychunk.zarr.store import IndexStore

type Flags = npt.NDArray[np.bool_]

CHOICE = "anychunk.choice"
"""The codec of arrays whose files are compressed in different ways."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What an index format can express."""

    name: str
    has_parts: bool = False
    """Whether a chunk may be several byte ranges."""
    has_whole: bool = False
    """Whether a chunk may be a whole object of unknown length."""
    has_inline: bool = True
    """Whether the bytes of chunks may be copied into the index."""


@dataclass(frozen=True, kw_only=True)
class ChunkReferences:
    """The references of one array's chunks, flattened in C order over the grid."""

    grid: Shape
    offsets: Uint64
    lengths: Uint64
    """0: absent, or copied. `WHOLE`: the whole object."""
    urls: Sequence[str]
    url_ids: Numbers | None = None
    """Which url each chunk is in; None: all in the first."""
    parts: Parts | None = None
    copied: dict[int, bytes] = field(default_factory=dict)
    """Bytes of chunks that have no reference, by chunk number."""
    pins: dict[str, Pin] = field(default_factory=dict)
    """Pins of objects that are one chunk each, which the index itself does not pin."""

    @cached_property
    def present(self) -> Numbers:
        """The numbers of the chunks that are byte ranges."""
        return np.flatnonzero(self.lengths)

    def with_parts(self) -> Numbers:
        """Return the numbers of the chunks that are more than one byte range."""
        if self.parts is None:
            return np.empty(0, np.int64)
        return np.flatnonzero(
            (np.diff(self.parts.starts.astype(np.int64)) > 0) & (self.lengths > 0)
        )

    def ranges(self, number: int) -> list[tuple[int, int]]:
        """Return the offset and length of each byte range of a chunk, in order."""
        found = [(int(self.offsets[number]), int(self.lengths[number]))]
        if self.parts is not None:
            part = slice(int(self.parts.starts[number]), int(self.parts.starts[number + 1]))
            further = self.parts.offsets[part].tolist(), self.parts.lengths[part].tolist()
            found += zip(*further, strict=True)
        return found

    def url_ids_of(self, numbers: Numbers) -> Numbers:
        """Return which url each of these chunks is in."""
        return np.zeros(len(numbers), np.int64) if self.url_ids is None else self.url_ids[numbers]


type References = Mapping[str, tuple[ArrayIndex, ChunkReferences]]
"""Every array with its references, by path."""


def chunk_references(
    node: Node, capabilities: Capabilities, *, copy: Copy, storage: Storage | None
) -> References:
    """Return every array of an index with its references, by path.

    Parameters:
        node: The index.
        capabilities: What the target format can express.
        copy: "needed" reads the chunks that it cannot express; "never" refuses them.
        storage: Options for reading them.

    Raises:
        UnsupportedError: If chunks cannot be expressed; raised before any is read.
        LimitError: If the copied chunks exceed the limit `index_bytes`.
    """
    if copy not in ("never", "needed"):
        raise ValueError(f"copy is {copy!r}, expected 'never' or 'needed'")
    store = IndexStore(node, storage=storage)
    arrays = [(path, found) for path, found in walk(node) if isinstance(found, ArrayIndex)]
    if copy == "never" or not capabilities.has_inline:
        for path, array in arrays:
            _refuse_inexpressible(path, array, capabilities)
    return {path: (array, _references(path, array, capabilities, store)) for path, array in arrays}


def _refuse_inexpressible(path: str, array: ArrayIndex, capabilities: Capabilities) -> None:
    where, name = f"array {path or '/'}", capabilities.name
    advice = '; save with copy="needed" to copy those chunks in' if capabilities.has_inline else ""
    chunks = array.chunks
    if isinstance(chunks, Computed):
        raise UnsupportedError(
            f"{where}: its chunks are computed ({chunks.method}), which {name} cannot "
            f"express{advice}"
        )
    needed = _inexpressible(chunks, capabilities)
    if needed.any():
        what = "chunks have inline bytes in front or several parts"
        if any(isinstance(c, Mapping) and c.get("name") == CHOICE for c in array.codecs):
            what = "chunks are compressed in different ways"
        raise UnsupportedError(
            f"{where}: {int(needed.sum())} of {needed.size} {what}, which {name} cannot "
            f"express{advice}"
        )


def _inexpressible(chunks: ByteRanges | Objects, capabilities: Capabilities) -> Flags:
    """Return, for each chunk, whether a reference cannot express it; absent chunks need none."""
    needed = np.zeros(math.prod(chunks.grid), bool)
    if any(chunks.fronts):
        filled = np.array([bool(front) for front in chunks.fronts])
        needed |= filled[0] if chunks.front_ids is None else filled[chunks.front_ids.reshape(-1)]
    if isinstance(chunks, Objects):
        return needed
    if chunks.parts is not None and not capabilities.has_parts:
        needed |= np.diff(chunks.parts.starts.astype(np.int64)) > 0
    return needed & (chunks.lengths.reshape(-1) > 0)


def _references(
    path: str, array: ArrayIndex, capabilities: Capabilities, store: IndexStore
) -> ChunkReferences:
    chunks = array.chunks
    if isinstance(chunks, Computed):
        zeros = np.zeros(math.prod(array.grid), np.uint64)
        copied = _copy_computed(path, array, store)
        return ChunkReferences(
            grid=array.grid, offsets=zeros, lengths=zeros, urls=(), copied=copied
        )
    reader = ChunkReader(array, store.sources, where=store.where(path))
    if isinstance(chunks, Objects):
        return _of_objects(chunks, capabilities, reader)
    return _of_ranges(chunks, capabilities, reader)


def _of_ranges(
    chunks: ByteRanges, capabilities: Capabilities, reader: ChunkReader
) -> ChunkReferences:
    needed = _inexpressible(chunks, capabilities)
    ids = None if chunks.url_ids is None else chunks.url_ids.reshape(-1).astype(np.int64)
    lengths = chunks.lengths.reshape(-1)
    if INLINE in chunks.urls:
        is_inline = np.array([url == INLINE for url in chunks.urls])
        needed |= (is_inline[0] if ids is None else is_inline[ids]) & (lengths > 0)
    copied = _copy(reader, np.flatnonzero(needed))
    if copied:
        lengths = np.where(needed, np.uint64(0), lengths)
    pins = _missing_pins(reader, [url for url in chunks.urls if url != INLINE])
    if not capabilities.has_whole and (lengths == WHOLE).any():
        lengths = _known_lengths(reader, lengths)
    return ChunkReferences(
        grid=chunks.grid,
        offsets=chunks.offsets.reshape(-1),
        lengths=lengths,
        urls=chunks.urls,
        url_ids=ids,
        parts=chunks.parts if capabilities.has_parts else None,
        copied=copied,
        pins=pins,
    )


def _missing_pins(reader: ChunkReader, urls: Sequence[str]) -> dict[str, Pin]:
    """Return pins of the sources that the index does not pin because they were never opened."""
    unpinned = [url for url in urls if url not in reader.sources.pins]
    if not unpinned:
        return {}
    ask = partial(pin_of, storage=reader.sources.storage)
    threads = limits.get().concurrency
    with ThreadPoolExecutor(threads, thread_name_prefix="anychunk-pins") as pool:
        pins = in_order(ask, unpinned, executor=pool, ahead=2 * threads)
        found = zip(unpinned, pins, strict=True)
        return {url: pin for url, pin in found if pin is not None}


def _known_lengths(reader: ChunkReader, lengths: Uint64) -> Uint64:
    """Replace `WHOLE` by the sizes of the objects."""
    known = lengths.copy()
    for number in np.flatnonzero(lengths == WHOLE):
        known[number] = reader.size(int(number)) or 0
    return known


def _of_objects(
    chunks: Objects, capabilities: Capabilities, reader: ChunkReader
) -> ChunkReferences:
    """List the objects: a saved index must record which chunks exist."""
    limits.check_table(math.prod(chunks.grid), where=f"{reader.where}: a list of its objects")
    there = dict(list_objects(chunks.base, storage=reader.sources.storage, roots=chunks.places))
    count = math.prod(chunks.grid)
    lengths = np.zeros(count, np.uint64)
    urls: list[str] = []
    pins: dict[str, Pin] = {}
    ids = np.zeros(count, np.int64)
    for number, name in _names(chunks, there):
        pin = there.get(name)
        if pin is None or not pin.size:
            if not chunks.is_sparse:
                reader.read(number)  # raises the error that names the missing object
                raise TruncatedError(f"{reader.describe(number)}: the object is empty")
            continue
        lengths[number] = WHOLE if capabilities.has_whole else pin.size
        ids[number] = len(urls)
        urls.append(f"{chunks.base}/{name}")
        pins[urls[-1]] = pin
    # as when the saved index is loaded
    limits.check_table(count, where=reader.where, references=len(urls))
    needed = _inexpressible(chunks, capabilities) & (lengths > 0)
    copied = _copy(reader, np.flatnonzero(needed))
    lengths[needed] = 0
    return ChunkReferences(
        grid=chunks.grid,
        offsets=np.zeros(count, np.uint64),
        lengths=lengths,
        urls=urls,
        url_ids=ids,
        copied=copied,
        pins=pins,
    )


def _names(chunks: Objects, there: Mapping[str, Pin]) -> Iterator[tuple[int, str]]:
    """Yield (number, name) of chunks in order: of those that are there, if others may be absent.

    A few bytes announce any number of absent chunks.
    """
    numbers: Iterable[int] = range(math.prod(chunks.grid))
    if chunks.is_sparse and is_reversible(chunks):
        numbers = sorted({number for number, _ in named_chunks(chunks, there)})
    for number in numbers:
        yield number, posixpath.normpath(chunks.name(chunk_coords(number, chunks.grid)))


def _copy(reader: ChunkReader, numbers: Numbers) -> dict[int, bytes]:
    """Read the stored bytes of chunks by number, many remote ones per request."""
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
        data = store.get_sync(chunk_key(path, chunk_coords(number, array.grid)))
        if data is not None:
            found[number] = data.to_bytes()
        _check_copied(found, store.where(path))
    return found


def _check_copied(found: dict[int, bytes], where: str) -> None:
    # an estimate: chunks of one array are of similar size, and summing all of them after each
    # chunk would be quadratic
    total = len(found) * len(next(iter(found.values()), b""))
    limits.check_index(total, where=f"{where}: its copied chunks")


def with_found_pins[N: Node](node: N, found: References) -> N:
    """Return the index with the pins of all sources that its references name."""
    pins = dict(node.pins)
    for _, references in found.values():
        pins |= references.pins
    return replace(node, pins=pins) if len(pins) > len(node.pins) else node


def used_urls(found: References) -> Iterator[str]:
    """Yield every url that references name."""
    for _, references in found.values():
        for url in references.urls:
            if url != INLINE:
                yield url
