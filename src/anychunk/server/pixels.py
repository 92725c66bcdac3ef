"""Boxes of an array of a file, from decoded chunks that are kept within a bound."""

import itertools
import math
import tempfile
import threading
from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from anychunk import api, codecs, limits
from anychunk.codecs.chain import Decoder
from anychunk.decode.boxes import array_spec, located
from anychunk.decode.chunks import ChunkReader
from anychunk.errors import ChunkDecodeError, LimitError, SourceError
from anychunk.io import Bytes1D, Storage, copying, is_remote, local_path
from anychunk.io.buffers import borrowed
from anychunk.io.cache import Cache
from anychunk.model.grid import (
    Piece,
    Shape,
    Slices,
    chunk_box,
    chunk_key,
    cut_box,
    touched_chunks,
    touched_grid,
)
from anychunk.model.index import (
    INLINE,
    WHOLE,
    ArrayIndex,
    ByteRanges,
    GroupIndex,
    Node,
    Objects,
    Uint64,
)
from anychunk.read.zarr_store import IndexStore
from anychunk.server.plain import plain
from anychunk.server.sources import ReadFile, ReadSources, stamp

if TYPE_CHECKING:
    from anychunk.server.bodies import Held

type Array = npt.NDArray[Any]
type Stamp = tuple[Any, ...]

_tokens = itertools.count()

MOST_NOW = limits.MIB
"""Chunks up to this length are read at once where the system has them in memory."""
GAP = 16 * limits.KIB
"""Bytes between two chunks that are read as well rather than apart."""
SMALL = 256 * limits.KIB
"""Chunks up to this size are decoded a block at a time where pieces of many are wanted."""
LARGE = 32 * limits.MIB
"""Decoded chunks from this size on are kept in a file, and are decoded one at a time."""
DISK = 4 * limits.GIB
"""The most that they take there."""


class Kept:
    """What all files that are served share: chunks that were decoded, and answers."""

    def __init__(self, *, memory: int) -> None:
        self.most = memory
        """The largest chunk that is decoded."""
        self.small: Cache[tuple[Stamp, Array]] = Cache(memory // 4, largest=memory // 8)
        self.large: Cache[tuple[Stamp, Array]] = Cache(DISK, largest=DISK // 2)
        self.encoded: Cache[tuple[Stamp, Held]] = Cache(memory // 8, largest=memory // 16)
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


def served_store(index: Node, storage: Storage | None = None) -> IndexStore:
    """Open an index for a server: its local files are read, not mapped."""
    store = IndexStore(index, storage=storage)
    pins = index.pins if isinstance(index, GroupIndex) else {}
    store.sources = ReadSources(pins, storage=storage)
    return store


def assembled(
    pieces: Iterable[tuple[tuple[slice, ...], Array | None]],
    start: Shape,
    stop: Shape,
    dtype: np.dtype[Any],
    fill: Any,
) -> Array | None:
    """Put pieces together, fill where there is none; None where there is none at all."""
    out: Array | None = None
    absent: list[tuple[slice, ...]] = []
    for target, piece in pieces:
        if piece is None:
            absent.append(target)
            continue
        if out is None:
            out = np.empty([b - a for a, b in zip(start, stop, strict=True)], dtype)
        copying.assign(out[target], piece)
    if out is not None:
        for target in absent:
            out[target] = fill
    return out


def spans_of(offsets: Uint64, lengths: Uint64) -> dict[int, tuple[int, int]] | None:
    """Join byte ranges that lie close; give the span that each offset is in.

    None where all together are more than is read at once, or some are no ranges.
    """
    if not len(lengths) or (lengths == WHOLE).any() or int(lengths.sum()) > LARGE:
        return None
    found: dict[int, tuple[int, int]] = {}
    waiting: list[int] = []
    first = last = -1
    for at in np.argsort(offsets, kind="stable").tolist():
        offset, length = int(offsets[at]), int(lengths[at])
        if not length:
            continue
        if first < 0 or offset > last + GAP:
            found |= dict.fromkeys(waiting, (first, last))
            first, last, waiting = offset, offset, []
        last = max(last, offset + length)
        waiting.append(offset)
    return found | dict.fromkeys(waiting, (first, last))


def block_shape(array: ArrayIndex, piece: Shape | None, itemsize: int) -> Shape | None:
    """Choose blocks of small chunks that stand out of the pieces that are read, as strips do."""
    if piece is None or math.prod(array.chunk_shape) * itemsize > SMALL:
        return None
    block = tuple(map(max, array.chunk_shape, piece))
    sides = zip(block, array.chunk_shape, strict=True)
    inside = tuple(map(min, block, array.shape))
    if inside == piece or any(b % n for b, n in sides):
        return None
    return block if math.prod(block) * itemsize <= LARGE else None


def owned(array: Array) -> Array:
    out = np.empty(array.shape, array.dtype)
    copying.assign(out, array)
    return out


class Pixels:
    """One array of a file."""

    def __init__(
        self,
        store: IndexStore,
        path: str,
        index: ArrayIndex,
        kept: Kept,
        *,
        piece: Shape | None = None,
    ) -> None:
        """`piece` is the shape of the boxes that are mostly read."""
        self.store, self.path, self.index = store, path, index
        self.reader: ChunkReader | None = store.chunk_reader(path)
        self._kept = kept
        self._token = next(_tokens)  # a cache outlives the arrays that it has chunks of
        self.spec = array_spec(index)
        self.dtype = self.spec.dtype.to_native_dtype()
        self._decode = Decoder([codecs.from_json(c) for c in index.codecs], self.spec)
        self._is_large = self._decode.nbytes >= LARGE
        self.fill = self.spec.fill_value
        self._plain = plain(index, self.dtype)
        self._block = block_shape(index, piece, self.dtype.itemsize)
        self._sweep = self._sweep_block(piece)
        self._locks = tuple(threading.Lock() for _ in range(16))

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

    def _grid(self, start: Shape, stop: Shape) -> Slices:
        return touched_grid(start, stop, self.index.chunk_shape)

    def _cut(self, start: Shape, stop: Shape, sides: Shape) -> Iterator[tuple[Shape, Piece]]:
        return cut_box(start, stop, chunk_shape=sides, shape=self.index.shape)

    def _sweep_block(self, piece: Shape | None) -> Shape | None:
        """Choose blocks of whole rows, of chunks that are plain bytes."""
        if self._plain is None or piece is None:
            return None
        last = self._plain.order[-1]
        block = (*piece[:last], self.index.chunk_shape[last], *piece[last + 1 :])
        return block if math.prod(block) * self.dtype.itemsize <= LARGE else None

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
        return touched_chunks(start, stop, self.index.chunk_shape)

    def _stamp(self, coords: Shape) -> Stamp:
        chunks = self.index.chunks
        if not isinstance(chunks, Objects) or is_remote(chunks.base):
            return ()
        return stamp(f"{local_path(chunks.base)}/{chunks.name(coords)}") or ("absent",)

    def read(self, start: Shape, stop: Shape, *, is_sweep: bool = False) -> Array | None:
        """Read the box from `start` to `stop`, into memory of its own; None: it is all absent.

        `is_sweep`: what lies beside it will be wanted next.
        """
        self.check(start, stop)
        if self._is_batch(start, stop):
            return self._read_by_zarr(start, stop)
        if is_sweep and self._sweep is not None:
            return self._read_blocks(self._sweep, start, stop)
        if self._block is None:
            return self._read_chunks(start, stop)
        return self._read_blocks(self._block, start, stop)

    def _read_chunks(self, start: Shape, stop: Shape) -> Array | None:
        nbytes = 0 if self._is_large or self._plain is not None else self._decode.nbytes
        with borrowed("scratch", nbytes) as scratch:

            def pieces() -> Iterator[tuple[tuple[slice, ...], Array | None]]:
                for coords, place in self._cut(start, stop, self.index.chunk_shape):
                    piece = self._plain_piece(coords, place.source)
                    if piece is None:
                        chunk = self._chunk(coords, scratch, is_kept=not place.is_whole)
                        piece = None if chunk is None else chunk[place.source]
                    yield place.target, piece

            return assembled(pieces(), start, stop, self.dtype, self.fill)

    def _read_blocks(self, block: Shape, start: Shape, stop: Shape) -> Array | None:
        """Read by way of blocks of many small chunks, each decoded once and kept."""

        def pieces() -> Iterator[tuple[tuple[slice, ...], Array | None]]:
            for coords, place in self._cut(start, stop, block):
                found = self._kept_block(coords, block)
                yield place.target, None if found is None else found[place.source]

        return assembled(pieces(), start, stop, self.dtype, self.fill)

    def _kept_block(self, coords: Shape, block: Shape) -> Array | None:
        box = chunk_box(coords, block, self.index.shape)
        start, stop = tuple(s.start for s in box), tuple(s.stop for s in box)
        key = (self._token, "block", coords)
        # who wants the same block waits for it
        with self._locks[hash(coords) % len(self._locks)]:
            now = self.stamps(start, stop)
            found = self._kept.small.get(key)
            if found is not None and found[0] == now:
                return found[1]
            made = self._read_together(start, stop)
            if made is not None:
                self._kept.small.put(key, (now, made), made.nbytes)
            return made

    def _read_together(self, start: Shape, stop: Shape) -> Array | None:
        """Read a box of many small chunks of one local file, with few calls."""
        chunks = self.index.chunks
        if (
            self._plain is not None
            or not isinstance(chunks, ByteRanges)
            or len(chunks.urls) != 1
            or chunks.parts is not None
            or chunks.fronts
        ):
            return self._read_chunks(start, stop)
        source = self.store.sources.open(chunks.urls[0]) if chunks.urls[0] else None
        grid = self._grid(start, stop)
        spans = spans_of(chunks.offsets[grid].reshape(-1), chunks.lengths[grid].reshape(-1))
        if spans is None or not isinstance(source, ReadFile):
            return self._read_chunks(start, stop)
        pieces = {first: source.read(first, last - first) for first, last in set(spans.values())}

        def decoded(scratch: Bytes1D) -> Iterator[tuple[tuple[slice, ...], Array | None]]:
            for coords, place in self._cut(start, stop, self.index.chunk_shape):
                offset, length = int(chunks.offsets[coords]), int(chunks.lengths[coords])
                if not length:
                    yield place.target, None
                    continue
                first, _ = spans[offset]
                stored = pieces[first][offset - first : offset - first + length]
                chunk = self._decode_chunk(coords, scratch, stored)
                yield place.target, None if chunk is None else chunk[place.source]

        with borrowed("scratch", self._decode.nbytes) as scratch:
            return assembled(decoded(scratch), start, stop, self.dtype, self.fill)

    def _plain_piece(self, coords: Shape, box: tuple[slice, ...]) -> Array | None:
        """Read a piece of a chunk that is plain bytes; None where that cannot be done."""
        if self._plain is None or self.reader is None:
            return None
        ((url, offset, length),) = self.reader.ranges(self.reader.number(coords))
        source = self.store.sources.open(url) if url != INLINE else None
        if length != self._plain.nbytes or not isinstance(source, ReadFile):
            return None
        with located(lambda: self._where(coords), is_decoding=False):
            return self._plain.read(source, offset, box)

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
        return api.open_path(self.store.index, self.path, storage=self.store.sources.storage)

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

    def _decode_chunk(
        self, coords: Shape, scratch: Bytes1D | None, stored: Bytes1D | None = None
    ) -> Array | None:
        if self._decode.nbytes > self._kept.most:
            raise LimitError(
                f"{self.store.where(self.path)}: a chunk of {self._decode.nbytes} bytes is more "
                f"than the {self._kept.most} that this server decodes; give it more --memory"
            )
        if stored is None:
            stored = self.stored(coords)
        if stored is None:
            return None
        with located(lambda: self._where(coords)):
            return self._decode(stored, scratch)

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
            with located(lambda: self._where(coords), is_decoding=False):
                self._check_size(number, self.reader)
                return self.reader.read(number)
        data = self.store.get_sync(chunk_key(self.path, coords))
        return None if data is None else np.frombuffer(data.to_bytes(), np.uint8)
