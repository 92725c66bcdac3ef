"""Boxes of an array of a file, from decoded chunks that are kept within a bound."""

import itertools
import tempfile
import threading
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from anychunk import api, codecs, limits
from anychunk.codecs.chain import Decoder
from anychunk.computed import array_spec
from anychunk.errors import AnychunkError, ChunkDecodeError, LimitError, SourceError
from anychunk.index import ArrayIndex, ByteRanges, GroupIndex, Node, Objects, Shape
from anychunk.reader import ChunkReader, located
from anychunk.server.cache import Bounded
from anychunk.server.sources import ReadSources, stamp
from anychunk.source import Bytes1D, is_remote, local_path
from anychunk.store import IndexStore

type Array = npt.NDArray[Any]
type Stamp = tuple[Any, ...]

_tokens = itertools.count()

LARGE = 32 * limits.MIB
"""Decoded chunks from this size on are kept in a file, and are decoded one at a time."""
DISK = 4 * limits.GIB
"""The most that they take there."""


class Decoded:
    """What all files that are served share: decoded chunks, small ones in memory."""

    def __init__(self, *, memory: int) -> None:
        self.most = memory
        """The largest chunk that is decoded."""
        self.small: Bounded[tuple[Stamp, Array]] = Bounded(memory // 4)
        self.large: Bounded[tuple[Stamp, Array]] = Bounded(DISK)
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


class Pixels:
    """One array of a file."""

    def __init__(self, store: IndexStore, path: str, index: ArrayIndex, decoded: Decoded) -> None:
        self.store, self.path, self.index = store, path, index
        self.reader: ChunkReader | None = store.chunk_reader(path)
        self._decoded = decoded
        self._token = next(_tokens)  # a cache outlives the arrays that it has chunks of
        self.spec = array_spec(index)
        self.dtype = self.spec.dtype.to_native_dtype()
        self._decode = Decoder([codecs.from_json(c) for c in index.codecs], self.spec)
        self.fill = self.spec.fill_value

    def check(self) -> None:
        """Look whether the file is still the one that was indexed."""
        chunks = self.index.chunks
        if isinstance(chunks, ByteRanges):
            urls = chunks.urls if len(chunks.urls) == 1 else ()
            for url in urls:
                if url:
                    cast("ReadSources", self.store.sources).check(url)

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

    def _coords(self, start: Shape, stop: Shape) -> "itertools.product[tuple[int, ...]]":
        return itertools.product(
            *(
                range(a // n, -(-b // n))
                for a, b, n in zip(start, stop, self.index.chunk_shape, strict=True)
            )
        )

    def _stamp(self, coords: Shape) -> Stamp:
        chunks = self.index.chunks
        if not isinstance(chunks, Objects) or is_remote(chunks.base):
            return ()
        return stamp(f"{local_path(chunks.base)}/{chunks.name(coords)}") or ("absent",)

    def read(self, start: Shape, stop: Shape) -> Array | None:
        """Read the box from `start` to `stop`; None: all of it is absent."""
        self.check()
        if self._is_batch(start, stop):
            return self._read_by_zarr(start, stop)
        shape = tuple(b - a for a, b in zip(start, stop, strict=True))
        if not shape:
            return self._chunk((), is_kept=False)
        out: Array | None = None
        absent: list[tuple[slice, ...]] = []
        chunk_shape = self.index.chunk_shape
        for coords in self._coords(start, stop):
            origin = tuple(c * n for c, n in zip(coords, chunk_shape, strict=True))
            end = tuple(o + n for o, n in zip(origin, chunk_shape, strict=True))
            low = tuple(map(max, start, origin))
            high = tuple(map(min, stop, end))
            target = tuple(slice(p - a, q - a) for p, q, a in zip(low, high, start, strict=True))
            source = tuple(slice(p - o, q - o) for p, q, o in zip(low, high, origin, strict=True))
            is_whole = all(
                p == o and q == min(e, n)
                for p, q, o, e, n in zip(low, high, origin, end, self.index.shape, strict=True)
            )
            chunk = self._chunk(coords, is_kept=not is_whole)
            if chunk is None:
                absent.append(target)
                continue
            piece = chunk[source]
            if piece.shape == shape:
                return piece
            if out is None:
                out = np.empty(shape, self.dtype)
            out[target] = piece
        if out is None:
            return None
        for place in absent:
            out[place] = self.fill
        return out

    def _is_batch(self, start: Shape, stop: Shape) -> bool:
        """Whether chunks are several, small and remote: fetched together they take one request."""
        if self.reader is None or self.reader.is_local or self._decode.nbytes > LARGE:
            return False
        return len(list(itertools.islice(self._coords(start, stop), 2))) > 1

    def _read_by_zarr(self, start: Shape, stop: Shape) -> Array:
        array = api.open_path(self.store.index, self.path)
        box = tuple(slice(a, b) for a, b in zip(start, stop, strict=True))
        return np.asarray(array[box])

    def _chunk(self, coords: Shape, *, is_kept: bool) -> Array | None:
        """Decode one chunk; None where it is absent."""
        is_large = self._decode.nbytes >= LARGE
        kept = self._decoded.large if is_large else self._decoded.small
        key = (self._token, coords)
        now = self._stamp(coords)
        found = kept.get(key)
        if found is not None and found[0] == now:
            return found[1]
        if is_large:
            with self._decoded.one_at_a_time:
                found = kept.get(key)
                if found is not None and found[0] == now:
                    return found[1]
                made = self._decode_chunk(coords)
                made = None if made is None else spilled(made)
                if made is not None:
                    kept.put(key, (now, made), made.nbytes)
                return made
        made = self._decode_chunk(coords)
        if is_kept and made is not None:
            kept.put(key, (now, made), made.nbytes)
        return made

    def _decode_chunk(self, coords: Shape) -> Array | None:
        if self._decode.nbytes > self._decoded.most:
            raise LimitError(
                f"{self.store.where(self.path)}: a chunk of {self._decode.nbytes} bytes is more "
                f"than the {self._decoded.most} that this server decodes; give it more --memory"
            )
        stored = self.stored(coords)
        if stored is None:
            return None
        where = self._where(coords)
        try:
            return self._decode(stored)
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

    def stored(self, coords: Shape) -> Bytes1D | None:
        """Give the stored bytes of a chunk."""
        if self.reader is not None:
            try:
                return self.reader.read(self.reader.number(coords))
            except AnychunkError as e:
                raise located(e, self._where(coords)) from e
        key = "/".join([*([self.path] if self.path else []), "c", *map(str, coords)])
        data = self.store.get_sync(key)
        return None if data is None else np.frombuffer(data.to_bytes(), np.uint8)
