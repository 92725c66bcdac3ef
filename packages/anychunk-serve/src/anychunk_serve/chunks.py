"""Produce the bytes of served chunks."""

import itertools
import math
import threading
import time
from typing import cast

import numpy as np

from anychunk import codecs
from anychunk import resample as ds
from anychunk.codecs.chain import Encoder
from anychunk.decode.boxes import array_spec
from anychunk.errors import FormatError
from anychunk.model.grid import Array, Shape, chunk_box, cut_box, touched_grid
from anychunk.model.index import ArrayIndex, ByteRanges, Computed, Json, Node, find
from anychunk.zarr.store import IndexStore
from anychunk_serve import cancellation
from anychunk_serve.box_reader import BoxReader, Caches, Version, assembled
from anychunk_serve.response_bodies import BytesBody

MOST_STATS = 64
"""A cached chunk made from up to this many files is checked against each; others expire."""
EXPIRES_S = 5.0

_tokens = itertools.count(10**9)


class Chunks:
    """Produces the chunks of one served hierarchy."""

    def __init__(self, tree: Node, store: IndexStore, *, caches: Caches) -> None:
        """Prepare to produce chunks.

        Parameters:
            tree: The hierarchy, as `hierarchy.served_tree` plans it.
            store: The open file.
            caches: Shared by all files.
        """
        self.tree, self.store = tree, store
        self.caches = caches
        self.token = next(_tokens)
        """Identifies this hierarchy in keys of the shared caches."""
        self.drawn: dict[str, dict[str, Json]] = {}
        """Attributes of groups whose channels have been sampled, by path."""
        self._arrays: dict[str, ArrayIndex] = {}
        self._readers: dict[str, BoxReader] = {}
        self._encoders: dict[str, Encoder] = {}
        self._lock = threading.Lock()

    def array(self, path: str) -> ArrayIndex | None:
        """Return an array of the hierarchy, or None; the first search for it may need I/O."""
        known = self._arrays.get(path)
        if known is None:
            found = find(self.tree, path)
            known = found if isinstance(found, ArrayIndex) else None
            if known is not None:
                self._arrays[path] = known
        return known

    def is_known(self, path: str) -> bool:
        """Whether `array` returns without I/O."""
        return path in self._arrays

    def reader(self, array: ArrayIndex) -> BoxReader:
        """Return the reader of the file's own array behind a served one."""
        path = cast("Computed", array.chunks).source
        with self._lock:
            found = self._readers.get(path)
            if found is None:
                own = find(self.store.index, path)
                if not isinstance(own, ArrayIndex):
                    raise FormatError(f"{self.store.where(path)}: the array no longer exists")
                found = BoxReader(self.store, path, own, self.caches, piece=array.chunk_shape)
                self._readers[path] = found
            return found

    def cached(self, path: str, array: ArrayIndex, coords: Shape) -> BytesBody | None:
        """Return a chunk if that takes no time: it is cached, and its file has not changed."""
        chunks = array.chunks
        if isinstance(chunks, ByteRanges):
            return inline_body(chunks, coords)
        chunks = cast("Computed", chunks)
        if chunks.method == "pass":
            reader = self._readers.get(chunks.source)
            stored = None if reader is None else reader.passed_now(coords)
            return None if stored is None else BytesBody.of(memoryview(stored))
        found = self.caches.encoded.get((self.token, path, coords))
        if found is None:
            return None
        return found[1] if found[0] == self._version(array, coords) else None

    def body(self, path: str, array: ArrayIndex, coords: Shape) -> BytesBody | None:
        """Make a chunk; return None if it is absent and reads as fill."""
        if isinstance(array.chunks, ByteRanges):
            return inline_body(array.chunks, coords)
        chunks = cast("Computed", array.chunks)
        if chunks.method == "pass":
            stored = self.reader(array).passed(coords)
            return None if stored is None else BytesBody.of(memoryview(stored))
        # before the pixels: a change in between makes the cached chunk outdated, never wrong
        version = self._version(array, coords)
        pixels = self._pixels(array, coords)
        if pixels is None:
            return None
        body = BytesBody.of(memoryview(self._encoder(path, array)(padded(pixels, array))))
        key = (self.token, path, coords)
        self.caches.encoded.put(key, (version, body), len(body))
        return body

    def is_computed(self, array: ArrayIndex) -> bool:
        """Whether the array is a level that the file lacks, made from many of its chunks."""
        chunks = array.chunks
        return isinstance(chunks, Computed) and chunks.method == "shrink"

    def _base(self, array: ArrayIndex, coords: Shape) -> tuple[BoxReader, Shape, Shape]:
        """Return the file's own array that a chunk is made from, and the box of it."""
        chunks = cast("Computed", array.chunks)
        start, stop = bounds(array, coords)
        scale = [1] * len(start)
        while chunks.method == "shrink":
            scale = [s * r for s, r in zip(scale, chunks.configuration["ratio"], strict=True)]
            array = cast("ArrayIndex", self.array(chunks.source))
            chunks = cast("Computed", array.chunks)
        reader = self.reader(array)
        shape = reader.index.shape
        low = tuple(a * s for a, s in zip(start, scale, strict=True))
        high = tuple(min(b * s, n) for b, s, n in zip(stop, scale, shape, strict=True))
        return reader, low, high

    def _version(self, array: ArrayIndex, coords: Shape) -> Version:
        """Return a value that changes with the files of a chunk; raise if a pinned file changed."""
        reader, low, high = self._base(array, coords)
        reader.check(low, high)
        grid = touched_grid(low, high, reader.index.chunk_shape)
        count = math.prod(side.stop - side.start for side in grid)
        if count > MOST_STATS and reader.is_mutable:
            return (int(time.monotonic() / EXPIRES_S),)
        return reader.version(low, high)

    def _pixels(self, array: ArrayIndex, coords: Shape) -> Array | None:
        """Return the decoded or computed pixels of a chunk, cut at the edge of the array."""
        chunks = cast("Computed", array.chunks)
        start, stop = bounds(array, coords)
        if chunks.method != "shrink":
            return self.reader(array).read(start, stop)
        cancellation.check()
        reader, low, high = self._base(array, coords)
        if reader.is_absent(low, high):
            return None
        ratio = tuple(chunks.configuration["ratio"])
        low = tuple(a * r for a, r in zip(start, ratio, strict=True))
        high = tuple(b * r for b, r in zip(stop, ratio, strict=True))
        below = self.read(chunks.source, low, high)
        if below is None:
            return None
        how = chunks.configuration
        return ds.by_window(below, ratio, how["method"], how["nodata"])

    def read(self, path: str, start: Shape, stop: Shape) -> Array | None:
        """Read a box of a served array; return None if all of it is absent."""
        array = self.array(path)
        if array is None:
            raise FormatError(f"{self.store.where(path)}: no such array")
        chunks = cast("Computed", array.chunks)
        if chunks.method != "shrink":
            return self.reader(array).read(start, stop, is_sweep=True)
        return self._read_computed(path, array, start, stop)

    def _read_computed(
        self, path: str, array: ArrayIndex, start: Shape, stop: Shape
    ) -> Array | None:
        cut = list(cut_box(start, stop, chunk_shape=array.chunk_shape, shape=array.shape))
        made = cancellation.map_on_threads(
            lambda one: self._cached_pixels(path, array, one[0]), cut
        )
        pieces = (
            (place.target, None if chunk is None else chunk[place.source])
            for (_, place), chunk in zip(cut, made, strict=True)
        )
        spec = array_spec(array)
        return assembled(pieces, start, stop, spec.dtype, spec.fill_value)

    def _cached_pixels(self, path: str, array: ArrayIndex, coords: Shape) -> Array | None:
        """Return a computed chunk from which coarser ones are computed."""
        key, now = (self.token, path, coords), self._version(array, coords)
        found = self.caches.small.get(key)
        if found is not None and found[0] == now:
            return found[1]
        made = self._pixels(array, coords)
        if made is not None:
            self.caches.small.put(key, (now, made), made.nbytes)
        return made

    def _encoder(self, path: str, array: ArrayIndex) -> Encoder:
        found = self._encoders.get(path)
        if found is None:
            chain = [codecs.from_json(codec) for codec in array.codecs]
            found = self._encoders[path] = Encoder(chain, array_spec(array))
        return found


def inline_body(chunks: ByteRanges, coords: Shape) -> BytesBody | None:
    """Return a chunk of a coordinate array, which is in the hierarchy itself."""
    offset, length = int(chunks.offsets[coords]), int(chunks.lengths[coords])
    return BytesBody.of(chunks.inline[offset : offset + length]) if length else None


def bounds(array: ArrayIndex, coords: Shape) -> tuple[Shape, Shape]:
    """Return where a chunk begins and ends inside its array."""
    box = chunk_box(coords, array.chunk_shape, array.shape)
    return tuple(part.start for part in box), tuple(part.stop for part in box)


def padded(pixels: Array, array: ArrayIndex) -> Array:
    """Return a chunk in its full shape, with fill values beyond the edge of the array."""
    if pixels.shape == array.chunk_shape:
        return pixels
    out = np.full(array.chunk_shape, array_spec(array).fill_value, pixels.dtype)
    out[tuple(slice(n) for n in pixels.shape)] = pixels
    return out
