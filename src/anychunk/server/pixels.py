"""Boxes of an array of a file, from decoded chunks that are kept within a bound."""

import itertools
import tempfile
import threading
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from anychunk import api, codecs, limits, strides
from anychunk.codecs.chain import Decoder
from anychunk.computed import array_spec
from anychunk.errors import AnychunkError, ChunkDecodeError, LimitError, SourceError
from anychunk.index import INLINE, ArrayIndex, ByteRanges, GroupIndex, Node, Objects, Shape
from anychunk.memory import borrowed
from anychunk.reader import ChunkReader, located
from anychunk.server.cache import Bounded
from anychunk.server.sources import ReadFile, ReadSources, stamp
from anychunk.source import Bytes1D, is_remote, local_path
from anychunk.store import IndexStore

if TYPE_CHECKING:
    from anychunk.server.bodies import Held

type Array = npt.NDArray[Any]
type Stamp = tuple[Any, ...]

_tokens = itertools.count()

MOST_NOW = limits.MIB
"""Chunks up to this length are read at once where the system has them in memory."""
LARGE = 32 * limits.MIB
"""Decoded chunks from this size on are kept in a file, and are decoded one at a time."""
DISK = 4 * limits.GIB
"""The most that they take there."""


class Kept:
    """What all files that are served share: chunks that were decoded, and answers."""

    def __init__(self, *, memory: int) -> None:
        self.most = memory
        """The largest chunk that is decoded."""
        self.small: Bounded[tuple[Stamp, Array]] = Bounded(memory // 4)
        self.large: Bounded[tuple[Stamp, Array]] = Bounded(DISK)
        self.encoded: Bounded[tuple[Stamp, Held]] = Bounded(memory // 8)
        self.one_at_a_time = threading.Lock()


def spilled(array: Array) -> Array:
    """Put an array into a file without a name; give it mapped from there."""
    try:
        with tempfile.TemporaryFile() as file:
            np.ascontiguousarray(array).tofile(file)
            file.flush()
            return np.memmap(file, array.dtype, "r", shape=array.shape)
    except OSError as e:
        raise SourceError(f"a decoded chunk of {array.nbytes} bytes: {e.strerror or e}") from e


def served_store(index: Node) -> IndexStore:
    """Open an index for a server: its local files are read, not mapped."""
    store = IndexStore(index)
    pins = index.pins if isinstance(index, GroupIndex) else {}
    store.sources = ReadSources(pins)
    return store


@dataclass(frozen=True)
class Place:
    """Which part of a chunk is wanted, and where it goes."""

    source: tuple[slice, ...]
    target: tuple[slice, ...]
    is_whole: bool
    """Whether all of the chunk that lies inside its array is wanted."""


def touched(start: Shape, stop: Shape, chunk_shape: Shape) -> Iterator[Shape]:
    """Give the chunks that a box lies in, by their grid coordinates."""
    sides = zip(start, stop, chunk_shape, strict=True)
    return itertools.product(*(range(a // n, -(-b // n)) for a, b, n in sides))


def placed(coords: Shape, start: Shape, stop: Shape, array: ArrayIndex) -> Place:
    """Say what the box from `start` to `stop` takes from one chunk."""
    source, target, is_whole = [], [], True
    sides = zip(coords, start, stop, array.chunk_shape, array.shape, strict=True)
    for c, first, last, side, length in sides:
        origin, end = c * side, min((c + 1) * side, length)
        low, high = max(first, origin), min(last, end)
        source.append(slice(low - origin, high - origin))
        target.append(slice(low - first, high - first))
        is_whole &= low == origin and high == end
    return Place(tuple(source), tuple(target), is_whole)


def owned(array: Array) -> Array:
    out = np.empty(array.shape, array.dtype)
    strides.assign(out, array)
    return out


class Pixels:
    """One array of a file."""

    def __init__(self, store: IndexStore, path: str, index: ArrayIndex, kept: Kept) -> None:
        self.store, self.path, self.index = store, path, index
        self.reader: ChunkReader | None = store.chunk_reader(path)
        self._kept = kept
        self._token = next(_tokens)  # a cache outlives the arrays that it has chunks of
        self.spec = array_spec(index)
        self.dtype = self.spec.dtype.to_native_dtype()
        self._decode = Decoder([codecs.from_json(c) for c in index.codecs], self.spec)
        self._is_large = self._decode.nbytes >= LARGE
        self.fill = self.spec.fill_value

    def check(self, start: Shape, stop: Shape) -> None:
        """Look whether the files that this box is in are still those that were indexed."""
        chunks = self.index.chunks
        if not isinstance(chunks, ByteRanges):
            return
        sources = cast("ReadSources", self.store.sources)
        ids = (0,) if chunks.url_ids is None else np.unique(chunks.url_ids[self._grid(start, stop)])
        for number in ids:
            if chunks.urls[number] != INLINE:
                sources.check(chunks.urls[number])

    def is_absent(self, start: Shape, stop: Shape) -> bool:
        """Whether the file declares every chunk of a box absent."""
        chunks = self.index.chunks
        return isinstance(chunks, ByteRanges) and not chunks.lengths[self._grid(start, stop)].any()

    def _grid(self, start: Shape, stop: Shape) -> tuple[slice, ...]:
        sides = zip(start, stop, self.index.chunk_shape, strict=True)
        return tuple(slice(a // n, -(-b // n)) for a, b, n in sides)

    @property
    def is_mutable(self) -> bool:
        """Whether chunks are local files of their own, which nothing pins."""
        chunks = self.index.chunks
        return isinstance(chunks, Objects) and not is_remote(chunks.base)

    def stamps(self, start: Shape, stop: Shape) -> Stamp:
        """Give what changes when chunks of this box do, where each is a file."""
        if not self.is_mutable:
            return ()
        return tuple(self._stamp(coords) for coords in self._coords(start, stop))

    def _coords(self, start: Shape, stop: Shape) -> Iterator[Shape]:
        return touched(start, stop, self.index.chunk_shape)

    def _stamp(self, coords: Shape) -> Stamp:
        chunks = self.index.chunks
        if not isinstance(chunks, Objects) or is_remote(chunks.base):
            return ()
        return stamp(f"{local_path(chunks.base)}/{chunks.name(coords)}") or ("absent",)

    def read(self, start: Shape, stop: Shape) -> Array | None:
        """Read the box from `start` to `stop`, into memory of its own; None: it is all absent."""
        self.check(start, stop)
        if self._is_batch(start, stop):
            return self._read_by_zarr(start, stop)
        shape = tuple(b - a for a, b in zip(start, stop, strict=True))
        out: Array | None = None
        absent: list[tuple[slice, ...]] = []
        with borrowed("scratch", 0 if self._is_large else self._decode.nbytes) as scratch:
            for coords in self._coords(start, stop):
                place = placed(coords, start, stop, self.index)
                chunk = self._chunk(coords, scratch, is_kept=not place.is_whole)
                if chunk is None:
                    absent.append(place.target)
                    continue
                if out is None:
                    out = np.empty(shape, self.dtype)
                strides.assign(out[place.target], chunk[place.source])
        if out is not None:
            for target in absent:
                out[target] = self.fill
        return out

    def _is_batch(self, start: Shape, stop: Shape) -> bool:
        """Whether chunks are several, small and remote: fetched together they take one request."""
        if self.reader is None or self.reader.is_local or self._decode.nbytes > LARGE:
            return False
        return len(list(itertools.islice(self._coords(start, stop), 2))) > 1

    def _read_by_zarr(self, start: Shape, stop: Shape) -> Array:
        box = tuple(slice(a, b) for a, b in zip(start, stop, strict=True))
        return np.asarray(self._remote[box])

    @cached_property
    def _remote(self) -> Any:
        return api.open_path(self.store.index, self.path)

    def _chunk(self, coords: Shape, scratch: Bytes1D, *, is_kept: bool) -> Array | None:
        """Give one chunk, good until the next is asked for; None where it is absent."""
        kept = self._kept.large if self._is_large else self._kept.small
        key, now = (self._token, coords), self._stamp(coords)
        found = kept.get(key)
        if found is not None and found[0] == now:
            return found[1]
        if self._is_large:
            return self._large_chunk(coords, key, now)
        made = self._decode_chunk(coords, scratch)
        if made is None or not is_kept:
            return made
        # codecs decode into memory that they use again
        made = owned(made)
        kept.put(key, (now, made), made.nbytes)
        return made

    def _large_chunk(self, coords: Shape, key: Hashable, now: Stamp) -> Array | None:
        kept = self._kept.large
        with self._kept.one_at_a_time:
            found = kept.get(key)
            if found is not None and found[0] == now:
                return found[1]
            made = self._decode_chunk(coords, None)
            if made is None:
                return None
            made = spilled(made)
            kept.put(key, (now, made), made.nbytes)
            return made

    def _decode_chunk(self, coords: Shape, scratch: Bytes1D | None) -> Array | None:
        if self._decode.nbytes > self._kept.most:
            raise LimitError(
                f"{self.store.where(self.path)}: a chunk of {self._decode.nbytes} bytes is more "
                f"than the {self._kept.most} that this server decodes; give it more --memory"
            )
        stored = self.stored(coords)
        if stored is None:
            return None
        where = self._where(coords)
        try:
            return self._decode(stored, scratch)
        except AnychunkError as e:
            raise located(e, where) from e
        except MemoryError:
            raise
        except Exception as e:
            raise ChunkDecodeError(f"{where}: {e or type(e).__name__}") from e

    def _where(self, coords: Shape) -> str:
        if self.reader is None:
            return f"{self.store.where(self.path)} chunk {coords}"
        return self.reader.describe(self.reader.number(coords))

    def _check_size(self, number: int, reader: ChunkReader) -> None:
        """Refuse a chunk that is stored in far more bytes than it can have."""
        chunks = reader.chunks
        if isinstance(chunks, ByteRanges):
            length = sum(length for _, _, length in reader.ranges(number))
            if length > max(LARGE, 2 * self._decode.nbytes):
                raise LimitError(
                    f"{length} stored bytes for a chunk of {self._decode.nbytes} decoded ones"
                )

    def passed_now(self, coords: Shape) -> Bytes1D | None:
        """Give the stored bytes of a chunk if nothing has to be waited for; else None."""
        chunks, reader = self.index.chunks, self.reader
        if reader is None or not isinstance(chunks, ByteRanges) or chunks.parts is not None:
            return None
        number = reader.number(coords)
        ((url, offset, length),) = reader.ranges(number)
        source = self.store.sources.open(url) if url else None
        if length <= 0 or length > MOST_NOW or not isinstance(source, ReadFile):
            return None
        stored = source.read_now(offset, length)
        return None if stored is None else self._checked(stored, coords)

    def passed(self, coords: Shape) -> Bytes1D | None:
        """Give the stored bytes of a chunk to be sent as they are, checked where that is easy."""
        stored = self.stored(coords)
        return None if stored is None else self._checked(stored, coords)

    def _checked(self, stored: Bytes1D, coords: Shape) -> Bytes1D:
        if self._decode.is_view and len(stored) != self._decode.nbytes:
            raise ChunkDecodeError(
                f"{self._where(coords)}: {len(stored)} bytes are stored, "
                f"expected {self._decode.nbytes}"
            )
        return stored

    def stored(self, coords: Shape) -> Bytes1D | None:
        """Give the stored bytes of a chunk."""
        if self.reader is not None:
            number = self.reader.number(coords)
            try:
                self._check_size(number, self.reader)
                return self.reader.read(number)
            except AnychunkError as e:
                raise located(e, self._where(coords)) from e
        key = "/".join([*([self.path] if self.path else []), "c", *map(str, coords)])
        data = self.store.get_sync(key)
        return None if data is None else np.frombuffer(data.to_bytes(), np.uint8)
