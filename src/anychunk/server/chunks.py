"""The bytes of one chunk of the hierarchy that a file is served as."""

import itertools
import math
import threading
import time
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from anychunk import codecs
from anychunk import resample as ds
from anychunk.codecs.chain import Encoder
from anychunk.decode.boxes import array_spec
from anychunk.errors import FormatError
from anychunk.model.grid import Shape, cut_box
from anychunk.model.index import ArrayIndex, Computed, Node, find
from anychunk.read.zarr_store import IndexStore
from anychunk.server import wanted
from anychunk.server.bodies import Held
from anychunk.server.pixels import Kept, Pixels, Stamp, assembled

type Array = npt.NDArray[Any]

MANY = 64
"""Of so many files a cached chunk is held against each; of more it is made anew in time."""
STALE_S = 5.0

_tokens = itertools.count(10**9)


class Chunks:
    """Makes chunks of one hierarchy as it is served."""

    def __init__(self, tree: Node, store: IndexStore, *, kept: Kept) -> None:
        self.tree, self.store = tree, store
        self._kept = kept
        self.token = next(_tokens)
        self._arrays: dict[str, ArrayIndex] = {}
        self._pixels: dict[str, Pixels] = {}
        self._encoders: dict[str, Encoder] = {}
        self._lock = threading.Lock()

    def array(self, path: str) -> ArrayIndex | None:
        """Give an array of the hierarchy; the first time it may have to be looked for."""
        known = self._arrays.get(path)
        if known is None:
            found = find(self.tree, path)
            known = found if isinstance(found, ArrayIndex) else None
            if known is not None:
                self._arrays[path] = known
        return known

    def is_known(self, path: str) -> bool:
        """Whether `array` gives an answer at once."""
        return path in self._arrays

    def pixels(self, array: ArrayIndex) -> Pixels:
        """Give the reader of the array of the file that is behind one as it is served."""
        path = cast("Computed", array.chunks).source
        with self._lock:
            found = self._pixels.get(path)
            if found is None:
                own = find(self.store.index, path)
                if not isinstance(own, ArrayIndex):
                    raise FormatError(f"{self.store.where(path)}: no array is there any more")
                found = Pixels(self.store, path, own, self._kept, piece=array.chunk_shape)
                self._pixels[path] = found
            return found

    def cached(self, path: str, array: ArrayIndex, coords: Shape) -> Held | None:
        """Give a chunk that takes no time: made before, and the file is still the same."""
        chunks = cast("Computed", array.chunks)
        if chunks.method == "pass":
            pixels = self._pixels.get(chunks.source)
            stored = None if pixels is None else pixels.passed_now(coords)
            return None if stored is None else Held.of(memoryview(stored))
        found = self._kept.encoded.get((self.token, path, coords))
        if found is None:
            return None
        return found[1] if found[0] == self._stamps(array, coords) else None

    def body(self, path: str, array: ArrayIndex, coords: Shape) -> Held | None:
        """Make a chunk; None: it is absent, and reads as fill."""
        chunks = cast("Computed", array.chunks)
        if chunks.method == "pass":
            stored = self.pixels(array).passed(coords)
            return None if stored is None else Held.of(memoryview(stored))
        stamps = self._stamps(array, coords)
        pixels = self._chunk(array, coords)
        if pixels is None:
            return None
        body = Held.of(memoryview(self._encoder(path, array)(padded(pixels, array))))
        key = (self.token, path, coords)
        self._kept.encoded.put(key, (stamps, body), len(body))
        return body

    def is_computed(self, array: ArrayIndex) -> bool:
        """Whether a chunk is made from many of the file."""
        return cast("Computed", array.chunks).method == "shrink"

    def _base(self, array: ArrayIndex, coords: Shape) -> tuple[Pixels, Shape, Shape]:
        """Give the array of the file that a chunk is made from, and which box of it."""
        chunks = cast("Computed", array.chunks)
        start, stop = box(array, coords)
        scale = [1] * len(start)
        while chunks.method == "shrink":
            scale = [s * r for s, r in zip(scale, chunks.configuration["ratio"], strict=True)]
            array = cast("ArrayIndex", self.array(chunks.source))
            chunks = cast("Computed", array.chunks)
        pixels = self.pixels(array)
        shape = pixels.index.shape
        low = tuple(a * s for a, s in zip(start, scale, strict=True))
        high = tuple(min(b * s, n) for b, s, n in zip(stop, scale, shape, strict=True))
        return pixels, low, high

    def _stamps(self, array: ArrayIndex, coords: Shape) -> Stamp:
        """Give what changes when the file does; a file that is pinned raises instead."""
        pixels, low, high = self._base(array, coords)
        pixels.check(low, high)
        count = math.prod(
            -(-(b - a) // n) for a, b, n in zip(low, high, pixels.index.chunk_shape, strict=True)
        )
        if count > MANY and pixels.is_mutable:
            return (int(time.monotonic() / STALE_S),)
        return pixels.stamps(low, high)

    def _chunk(self, array: ArrayIndex, coords: Shape) -> Array | None:
        chunks = cast("Computed", array.chunks)
        start, stop = box(array, coords)
        if chunks.method != "shrink":
            return self.pixels(array).read(start, stop)
        wanted.check()
        pixels, low, high = self._base(array, coords)
        if pixels.is_absent(low, high):
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
        """Read a box of an array as it is served; None: all of it is absent."""
        array = self.array(path)
        if array is None:
            raise FormatError(f"{self.store.where(path)}: no array is there")
        chunks = cast("Computed", array.chunks)
        if chunks.method != "shrink":
            return self.pixels(array).read(start, stop, is_sweep=True)
        return self._read_computed(path, array, start, stop)

    def _read_computed(
        self, path: str, array: ArrayIndex, start: Shape, stop: Shape
    ) -> Array | None:
        cut = list(cut_box(start, stop, chunk_shape=array.chunk_shape, shape=array.shape))
        made = wanted.on_threads(lambda one: self._kept_chunk(path, array, one[0]), cut)
        pieces = (
            (place.target, None if chunk is None else chunk[place.source])
            for (_, place), chunk in zip(cut, made, strict=True)
        )
        spec = array_spec(array)
        return assembled(pieces, start, stop, spec.dtype.to_native_dtype(), spec.fill_value)

    def _kept_chunk(self, path: str, array: ArrayIndex, coords: Shape) -> Array | None:
        """Give a computed chunk that others are computed from."""
        key, now = (self.token, path, coords), self._stamps(array, coords)
        found = self._kept.small.get(key)
        if found is not None and found[0] == now:
            return found[1]
        made = self._chunk(array, coords)
        if made is not None:
            self._kept.small.put(key, (now, made), made.nbytes)
        return made

    def _encoder(self, path: str, array: ArrayIndex) -> Encoder:
        found = self._encoders.get(path)
        if found is None:
            chain = [codecs.from_json(codec) for codec in array.codecs]
            found = self._encoders[path] = Encoder(chain, array_spec(array))
        return found


def box(array: ArrayIndex, coords: Shape) -> tuple[Shape, Shape]:
    """Give where a chunk begins and ends inside its array."""
    start = tuple(c * n for c, n in zip(coords, array.chunk_shape, strict=True))
    stop = tuple(
        min(a + n, size) for a, n, size in zip(start, array.chunk_shape, array.shape, strict=True)
    )
    return start, stop


def padded(pixels: Array, array: ArrayIndex) -> Array:
    """Fill a chunk at the edge of its array up."""
    if pixels.shape == array.chunk_shape:
        return pixels
    out = np.full(array.chunk_shape, array_spec(array).fill_value, pixels.dtype)
    out[tuple(slice(n) for n in pixels.shape)] = pixels
    return out
