"""Boxes of pixels of one array of a file, from decoded chunks that are cached.

Unlike `decode.boxes`, this reader serves many small overlapping requests from many threads: it
caches decoded chunks, reads pieces of uncompressed ones, decodes neighbouring small ones together,
and keeps those too large for memory in temporary files.
"""

import itertools
import math
import tempfile
import threading
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from anychunk import codecs, limits
from anychunk.codecs.chain import Decoder
from anychunk.decode.boxes import array_spec, located
from anychunk.decode.chunks import ChunkReader
from anychunk.decode.rows import raw_layout
from anychunk.errors import ChunkDecodeError, LimitError, SourceError
from anychunk.io import copying
from anychunk.io.buffers import borrowed
from anychunk.io.cache import Cache
from anychunk.io.file import PreadSource, stat_pin
from anychunk.io.open_sources import Sources
from anychunk.io.source import Bytes1D, Storage, is_remote, local_path
from anychunk.model.grid import (
    Array,
    Piece,
    Shape,
    Slices,
    chunk_box,
    chunk_key,
    chunk_number,
    cut_box,
    touched_chunks,
    touched_grid,
)
from anychunk.model.index import (
    INLINE,
    WHOLE,
    ArrayIndex,
    ByteRanges,
    Node,
    Objects,
    Uint64,
)
from anychunk.zarr.array import from_store
from anychunk.zarr.store import IndexStore

if TYPE_CHECKING:
    from anychunk_serve.response_bodies import BytesBody

type Version = tuple[Any, ...]
"""Changes when the files behind a cached value do."""

_tokens = itertools.count()

MOST_NOW = limits.MIB
"""Chunks up to this length are read in the event loop if the page cache holds them."""
GAP = 16 * limits.KIB
"""Chunks with at most this many bytes between them are fetched by one read."""
SMALL = 256 * limits.KIB
"""Chunks up to this size are decoded in blocks of several."""
LEAST_CHUNK = limits.MIB
"""Of uncompressed chunks of at least this size, only the rows that a piece touches are read."""
LARGE = 32 * limits.MIB
"""Chunks of at least this size are decoded one at a time and kept in temporary files."""
DISK = 4 * limits.GIB
"""Most bytes of temporary files."""


class Caches:
    """The caches that all served files share."""

    def __init__(self, *, memory: int) -> None:
        """Create empty caches that together use at most `memory` bytes."""
        self.most = memory
        """Size of the largest chunk that is decoded."""
        self.small: Cache[tuple[Version, Array]] = Cache(memory // 4, largest=memory // 8)
        """Decoded chunks and blocks."""
        self.large: Cache[tuple[Version, Array]] = Cache(DISK, largest=DISK // 2)
        """Decoded chunks in temporary files."""
        self.encoded: Cache[tuple[Version, BytesBody]] = Cache(memory // 8, largest=memory // 16)
        """Encoded chunks, ready to be sent."""
        self.large_lock = threading.Lock()
        """Held while a large chunk is decoded, to bound the memory of several."""


def spilled(array: Array) -> Array:
    """Move an array into an unnamed temporary file; return a memory map of it."""
    try:
        # mapping is safe here: no other process can open the file and truncate it
        with tempfile.TemporaryFile() as file:
            np.ascontiguousarray(array).tofile(file)
            file.flush()
            return np.memmap(file, array.dtype, "r", shape=array.shape)
    except OSError as e:
        raise SourceError(
            f"a decoded chunk of {array.nbytes} bytes cannot be kept on disk: {e.strerror or e}"
        ) from e


def served_store(
    index: Node, storage: Storage | None = None, roots: Sequence[str] = ()
) -> IndexStore:
    """Open an index for serving: local files are read, never mapped, and must lie in `roots`."""
    store = IndexStore(index, storage=storage)
    roots = roots or index.roots
    store.sources = Sources(index.pins, storage=storage, mapped=False, roots=roots)
    return store


def assembled(
    pieces: Iterable[tuple[tuple[slice, ...], Array | None]],
    start: Shape,
    stop: Shape,
    dtype: np.dtype[Any],
    fill: Any,
) -> Array | None:
    """Assemble the box from `start` to `stop` from its pieces.

    Parameters:
        pieces: Yields where in the box each piece goes, and its pixels, or None if it is absent.
        start: First element of the box.
        stop: End of the box, exclusive.
        dtype: Data type of the result.
        fill: Value of absent pieces.

    Returns:
        The box, or None if every piece is absent.
    """
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
    """Coalesce byte ranges that are close together; return the span of each range, by its offset.

    Return None if together they are too long to be read at once, or a length is unknown.
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
    """Return the shape of blocks in which small chunks are decoded, or None.

    For chunks that extend beyond the pieces that are served, as strips do: otherwise each strip
    would be decoded once for every piece in its row. A block is a whole number of chunks.
    """
    if piece is None or math.prod(array.chunk_shape) * itemsize > SMALL:
        return None
    block = tuple(map(max, array.chunk_shape, piece))
    sides = zip(block, array.chunk_shape, strict=True)
    inside = tuple(map(min, block, array.shape))
    if inside == piece or any(b % n for b, n in sides):
        return None
    return block if math.prod(block) * itemsize <= LARGE else None


def owned(array: Array) -> Array:
    """Return a copy that shares no memory with `array`."""
    out = np.empty(array.shape, array.dtype)
    copying.assign(out, array)
    return out


class BoxReader:
    """Reads boxes of one array of a file. Safe for threads."""

    def __init__(
        self,
        store: IndexStore,
        path: str,
        index: ArrayIndex,
        caches: Caches,
        *,
        piece: Shape | None = None,
    ) -> None:
        """Prepare for reading.

        Parameters:
            store: The open file.
            path: The path of the array.
            index: The array.
            caches: Shared by all files.
            piece: The shape of most boxes that will be read.
        """
        self.store, self.path, self.index = store, path, index
        self.reader: ChunkReader | None = store.chunk_reader(path)
        self._caches = caches
        # not id(self): the caches outlive readers
        self._token = next(_tokens)
        self.spec = array_spec(index)
        self.dtype = self.spec.dtype
        is_range = self.reader is not None and self.reader.has_ranges
        chain = [codecs.from_json(c) for c in index.codecs]
        self._decode = Decoder(chain, self.spec, is_range=is_range)
        self._is_large = self._decode.nbytes >= LARGE
        self.fill = self.spec.fill_value
        layout = raw_layout(index, self.dtype)
        is_small = self._decode.nbytes < LEAST_CHUNK
        self._layout = None if layout is None or layout.has_window or is_small else layout
        self._block = block_shape(index, piece, self.dtype.itemsize)
        self._sweep = self._sweep_block(piece)
        self._locks = tuple(threading.Lock() for _ in range(16))

    def check(self, start: Shape, stop: Shape) -> None:
        """Raise `SourceChangedError` if a file that holds part of the box has changed."""
        chunks = self.index.chunks
        if not isinstance(chunks, ByteRanges):
            return
        ids = (0,) if chunks.url_ids is None else np.unique(chunks.url_ids[self._grid(start, stop)])
        for number in ids:
            url = chunks.urls[number]
            source = self.store.sources.open(url) if url != INLINE else None
            # a remote source is checked with every response instead
            if isinstance(source, PreadSource):
                source.verify()

    def is_absent(self, start: Shape, stop: Shape) -> bool:
        """Whether the file declares every chunk of a box absent."""
        chunks = self.index.chunks
        return isinstance(chunks, ByteRanges) and not chunks.lengths[self._grid(start, stop)].any()

    def _grid(self, start: Shape, stop: Shape) -> Slices:
        return touched_grid(start, stop, self.index.chunk_shape)

    def _cut(self, start: Shape, stop: Shape, sides: Shape) -> Iterator[tuple[Shape, Piece]]:
        return cut_box(start, stop, chunk_shape=sides, shape=self.index.shape)

    def _sweep_block(self, piece: Shape | None) -> Shape | None:
        """Return the shape of blocks of whole rows of uncompressed chunks, or None."""
        if self._layout is None or piece is None:
            return None
        last = self._layout.order[-1]
        block = (*piece[:last], self.index.chunk_shape[last], *piece[last + 1 :])
        return block if math.prod(block) * self.dtype.itemsize <= LARGE else None

    @property
    def is_mutable(self) -> bool:
        """Whether each chunk is a local file, which has no pin and may change at any time."""
        chunks = self.index.chunks
        return isinstance(chunks, Objects) and not is_remote(chunks.base)

    def version(self, start: Shape, stop: Shape) -> Version:
        """Return a value that changes when a chunk of the box does.

        For pinned files, only if a stream is found to be damaged after a part of it was read.
        """
        if not self.is_mutable:
            return (self.store.damaged_streams,)
        return tuple(self._chunk_version(coords) for coords in self._coords(start, stop))

    def _coords(self, start: Shape, stop: Shape) -> Iterator[Shape]:
        return touched_chunks(start, stop, self.index.chunk_shape)

    def _chunk_version(self, coords: Shape) -> Version:
        chunks = self.index.chunks
        if not isinstance(chunks, Objects) or is_remote(chunks.base):
            return (self.store.damaged_streams,)
        found = stat_pin(f"{local_path(chunks.base)}/{chunks.name(coords)}")
        return () if found is None else (found, found.identity)

    def read(self, start: Shape, stop: Shape, *, is_sweep: bool = False) -> Array | None:
        """Read the box from `start` to `stop` into new memory; return None if all of it is absent.

        Parameters:
            start: First element of the box.
            stop: End of the box, exclusive.
            is_sweep: Whether the boxes beside it will be read next.
        """
        self.check(start, stop)
        if self._is_remote_batch(start, stop):
            return self._read_by_zarr(start, stop)
        if is_sweep and self._sweep is not None:
            return self._read_blocks(self._sweep, start, stop)
        if self._block is None:
            return self._read_chunks(start, stop)
        return self._read_blocks(self._block, start, stop)

    def _read_chunks(self, start: Shape, stop: Shape) -> Array | None:
        nbytes = 0 if self._is_large or self._layout is not None else self._decode.nbytes
        with borrowed("scratch", nbytes) as scratch:

            def pieces() -> Iterator[tuple[tuple[slice, ...], Array | None]]:
                for coords, place in self._cut(start, stop, self.index.chunk_shape):
                    piece = self._uncompressed_piece(coords, place.source)
                    if piece is None:
                        chunk = self._chunk(coords, scratch, is_cached=not place.is_whole)
                        piece = None if chunk is None else chunk[place.source]
                    yield place.target, piece

            return assembled(pieces(), start, stop, self.dtype, self.fill)

    def _read_blocks(self, block: Shape, start: Shape, stop: Shape) -> Array | None:
        """Read a box from cached blocks of many small chunks each."""

        def pieces() -> Iterator[tuple[tuple[slice, ...], Array | None]]:
            for coords, place in self._cut(start, stop, block):
                found = self._cached_block(coords, block)
                yield place.target, None if found is None else found[place.source]

        return assembled(pieces(), start, stop, self.dtype, self.fill)

    def _cached_block(self, coords: Shape, block: Shape) -> Array | None:
        box = chunk_box(coords, block, self.index.shape)
        start, stop = tuple(s.start for s in box), tuple(s.stop for s in box)
        key = (self._token, "block", coords)
        # threads that need the same block wait for the one that reads it
        with self._locks[hash(coords) % len(self._locks)]:
            now = self.version(start, stop)
            found = self._caches.small.get(key)
            if found is not None and found[0] == now:
                return found[1]
            made = self._read_together(start, stop)
            if made is not None:
                self._caches.small.put(key, (now, made), made.nbytes)
            return made

    def _read_together(self, start: Shape, stop: Shape) -> Array | None:
        """Read and decode a box of many small chunks; those of one local file with few reads."""
        chunks = self.index.chunks
        if (
            self._layout is not None
            or not isinstance(chunks, ByteRanges)
            or len(chunks.urls) != 1
            or chunks.parts is not None
            or chunks.fronts
        ):
            return self._read_chunks(start, stop)
        source = self.store.sources.open(chunks.urls[0]) if chunks.urls[0] else None
        grid = self._grid(start, stop)
        spans = spans_of(chunks.offsets[grid].reshape(-1), chunks.lengths[grid].reshape(-1))
        if spans is None or not isinstance(source, PreadSource):
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

    def _uncompressed_piece(self, coords: Shape, box: tuple[slice, ...]) -> Array | None:
        """Read a piece of an uncompressed chunk; None if the chunk must be read whole."""
        if self._layout is None or self.reader is None:
            return None
        ((url, offset, length),) = self.reader.ranges(self.reader.number(coords))
        source = self.store.sources.open(url) if url != INLINE else None
        if length != self._decode.nbytes or not isinstance(source, PreadSource):
            return None
        with located(lambda: self._where(coords), is_decoding=False):
            layout = self._layout
            rows = layout.cut(tuple(box[axis] for axis in layout.order), layout.chunk)
            data = source.read_runs([offset + start for start in rows.starts], rows.length)
            return rows.array(data)

    def _is_remote_batch(self, start: Shape, stop: Shape) -> bool:
        """Whether a box touches several small remote chunks, best fetched together by zarr."""
        if self.reader is None or self.reader.is_local or self._decode.nbytes > LARGE:
            return False
        return len(list(itertools.islice(self._coords(start, stop), 2))) > 1

    def _read_by_zarr(self, start: Shape, stop: Shape) -> Array:
        box = tuple(slice(a, b) for a, b in zip(start, stop, strict=True))
        return np.asarray(self._remote[box])

    @cached_property
    def _remote(self) -> Any:
        return from_store(self.store, self.path)

    def _chunk(self, coords: Shape, scratch: Bytes1D, *, is_cached: bool) -> Array | None:
        """Return one decoded chunk, or None if it is absent.

        A chunk that is not cached may be in `scratch`, valid only until the next one is decoded.
        """
        cache = self._caches.large if self._is_large else self._caches.small
        key, now = (self._token, coords), self._chunk_version(coords)
        found = cache.get(key)
        if found is not None and found[0] == now:
            return found[1]
        if self._is_large:
            return self._large_chunk(coords, key, now)
        made = self._decode_chunk(coords, scratch)
        if made is None or not is_cached:
            return made
        # out of the scratch memory, which the next chunk overwrites
        made = owned(made)
        cache.put(key, (now, made), made.nbytes)
        return made

    def _large_chunk(self, coords: Shape, key: Hashable, now: Version) -> Array | None:
        cache = self._caches.large
        with self._caches.large_lock:
            found = cache.get(key)
            if found is not None and found[0] == now:
                return found[1]
            made = self._decode_chunk(coords, None)
            if made is None:
                return None
            made = spilled(made)
            cache.put(key, (now, made), made.nbytes)
            return made

    def _decode_chunk(
        self, coords: Shape, scratch: Bytes1D | None, stored: Bytes1D | None = None
    ) -> Array | None:
        if self._decode.nbytes > self._caches.most:
            raise LimitError(
                f"{self.store.where(self.path)}: a chunk decodes to {self._decode.nbytes} bytes, "
                f"expected at most {self._caches.most}; restart the server with more --memory"
            )
        if stored is None:
            stored = self.stored(coords)
        if stored is None:
            return None
        with located(lambda: self._where(coords)):
            return self._decode.at(chunk_number(coords, self.index.grid), self.index.grid)(
                stored, scratch
            )

    def _where(self, coords: Shape) -> str:
        if self.reader is None:
            return f"{self.store.where(self.path)} chunk {coords}"
        return self.reader.describe(self.reader.number(coords))

    def _check_size(self, number: int, reader: ChunkReader) -> None:
        """Raise `LimitError` if a chunk is stored in far more bytes than it decodes to."""
        chunks = reader.chunks
        # a part of a stream or of a large tile has all of its bytes, of which only some are read
        is_part = reader.pieces is not None or reader.windows is not None
        if isinstance(chunks, ByteRanges) and not is_part:
            length = sum(length for _, _, length in reader.ranges(number))
            if length > max(LARGE, 2 * self._decode.nbytes):
                raise LimitError(
                    f"{reader.describe(number)}: {length} bytes are stored for a chunk of "
                    f"{self._decode.nbytes} decoded bytes, expected at most twice as many, or "
                    f"{LARGE}; the file is damaged, or must be read with anychunk.open"
                )

    def passed_now(self, coords: Shape) -> Bytes1D | None:
        """Return the stored bytes of a chunk if the page cache holds them, else None."""
        chunks, reader = self.index.chunks, self.reader
        if reader is None or not isinstance(chunks, ByteRanges) or chunks.parts is not None:
            return None
        number = reader.number(coords)
        ((url, offset, length),) = reader.ranges(number)
        source = self.store.sources.open(url) if url else None
        if length <= 0 or length > MOST_NOW or not isinstance(source, PreadSource):
            return None
        stored = source.read_now(offset, length)
        return None if stored is None else self._checked(stored, coords)

    def passed(self, coords: Shape) -> Bytes1D | None:
        """Return the stored bytes of a chunk that is sent unchanged, or None if it is absent."""
        stored = self.stored(coords)
        return None if stored is None else self._checked(stored, coords)

    def _checked(self, stored: Bytes1D, coords: Shape) -> Bytes1D:
        # without compression the length is known; compressed bytes are left to the client to check
        if self._decode.is_view and len(stored) != self._decode.nbytes:
            raise ChunkDecodeError(
                f"{self._where(coords)}: {len(stored)} bytes are stored, "
                f"expected {self._decode.nbytes}"
            )
        return stored

    def stored(self, coords: Shape) -> Bytes1D | None:
        """Return the stored bytes of a chunk, or None if it is absent."""
        if self.reader is not None:
            number = self.reader.number(coords)
            with located(lambda: self._where(coords), is_decoding=False):
                self._check_size(number, self.reader)
                return self.reader.read(number)
        data = self.store.get_sync(chunk_key(self.path, coords))
        return None if data is None else np.frombuffer(data.to_bytes(), np.uint8)
