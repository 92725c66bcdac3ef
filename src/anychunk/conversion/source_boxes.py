"""Boxes of a source array; a chunk that several regions need is decoded once."""

import math
import threading
from typing import Any, cast

import numpy as np
import zarr
from zarr.codecs import BytesCodec, TransposeCodec

from anychunk.codecs.window import Window
from anychunk.io.cache import Cache
from anychunk.limits import MIB
from anychunk.model.grid import Array, Shape, Slices, chunk_box, cut_box
from anychunk.selection.cuts import Cut

CACHE_BYTES = 64 * MIB
"""Bound of the decoded chunks that are cached; a single chunk is cached whatever its size."""
CHEAP_CODECS = (BytesCodec, TransposeCodec, Window)
"""Codecs that cost so little that decoding again is cheaper than a cache."""


class GivenBoxes:
    """Reads boxes of an array that a program holds: numpy, dask, zarr or anything that slices."""

    def __init__(self, array: Any) -> None:
        self.array, self.ndim = array, array.ndim

    def read(self, box: Slices) -> Array:
        """Read the samples of a box."""
        return np.asarray(self.array[box])


class CutBoxes:
    """Reads boxes of a part of an array."""

    def __init__(self, boxes: "SourceBoxes", cut: Cut) -> None:
        self.boxes, self.cut, self.ndim = boxes, cut, len(cut.shape)

    def read(self, box: Slices) -> Array:
        """Read the samples of a box of the part."""
        itemsize = self.boxes.array.dtype.itemsize
        return self.cut.read(self.boxes.read, box, self.boxes.chunk, itemsize)


class SourceBoxes:
    """Reads boxes of an array; caches decoded chunks if regions are smaller than chunks.

    Safe for threads.
    """

    def __init__(self, array: zarr.Array[Any], region: Shape) -> None:
        """Wrap `array`, to read boxes of shape `region` or smaller."""
        self.array, self.ndim = array, array.ndim
        self.chunk = tuple(array.chunks)
        self._nbytes = math.prod(self.chunk) * array.dtype.itemsize
        is_cut = any(r < min(c, n) for r, c, n in zip(region, self.chunk, array.shape, strict=True))
        codecs = cast("Any", array.metadata).codecs  # arrays of an index are Zarr v3
        self.is_cached = is_cut and not all(isinstance(codec, CHEAP_CODECS) for codec in codecs)
        self._chunks: Cache[Array] = Cache(max(CACHE_BYTES, self._nbytes))
        self._decoding: dict[Shape, threading.Lock] = {}
        self._lock = threading.Lock()

    def read(self, box: Slices) -> Array:
        """Read the samples of a box."""
        if not self.is_cached:
            return np.asarray(self.array[box])
        out = np.empty([s.stop - s.start for s in box], self.array.dtype)
        start, stop = tuple(s.start for s in box), tuple(s.stop for s in box)
        for coords, piece in cut_box(
            start, stop, chunk_shape=self.chunk, shape=tuple(self.array.shape)
        ):
            out[piece.target] = self._chunk(coords)[piece.source]
        return out

    def _chunk(self, coords: Shape) -> Array:
        """Return a decoded chunk; threads that ask for the same one wait for its first decoding."""
        with self._lock:
            lock = self._decoding.setdefault(coords, threading.Lock())
        with lock:
            found = self._chunks.get(coords)
            if found is None:
                found = np.asarray(self.array[chunk_box(coords, self.chunk, self.array.shape)])
                self._chunks.put(coords, found, self._nbytes)
            with self._lock:
                self._decoding.pop(coords, None)
        return found
