"""Boxes of a source array, where no chunk is decoded for every region that it reaches into."""

import math
import threading
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BytesCodec, TransposeCodec

from anychunk.codecs.window import Window
from anychunk.io.cache import Cache
from anychunk.limits import MIB
from anychunk.model.grid import Shape, chunk_box, cut_box

type Array = npt.NDArray[Any]

KEPT_BYTES = 64 * MIB
"""Decoded chunks that are kept, together; one is kept however large it is."""
PLAIN = (BytesCodec, TransposeCodec, Window)
"""Codecs that are no work to run again."""


class Decoded:
    """Reads boxes of an array; keeps the last chunks where a region is smaller than they are."""

    def __init__(self, array: zarr.Array[Any], region: Shape) -> None:
        self.array = array
        self.chunk = tuple(array.chunks)
        self._nbytes = math.prod(self.chunk) * array.dtype.itemsize
        is_cut = any(r < min(c, n) for r, c, n in zip(region, self.chunk, array.shape, strict=True))
        codecs = cast("Any", array.metadata).codecs  # an index is Zarr v3
        self.is_kept = is_cut and not all(isinstance(codec, PLAIN) for codec in codecs)
        # one chunk is kept however large it is
        self._kept: Cache[Array] = Cache(max(KEPT_BYTES, self._nbytes))
        self._locks: dict[Shape, threading.Lock] = {}
        self._lock = threading.Lock()

    def read(self, box: tuple[slice, ...]) -> Array:
        if not self.is_kept:
            return np.asarray(self.array[box])
        out = np.empty([s.stop - s.start for s in box], self.array.dtype)
        start, stop = tuple(s.start for s in box), tuple(s.stop for s in box)
        for coords, piece in cut_box(
            start, stop, chunk_shape=self.chunk, shape=tuple(self.array.shape)
        ):
            out[piece.target] = self._chunk(coords)[piece.source]
        return out

    def _chunk(self, coords: Shape) -> Array:
        """Decode a chunk once, even if several threads want it."""
        with self._lock:
            lock = self._locks.setdefault(coords, threading.Lock())
        with lock:
            found = self._kept.get(coords)
            if found is None:
                found = np.asarray(self.array[chunk_box(coords, self.chunk, self.array.shape)])
                self._kept.put(coords, found, self._nbytes)
            with self._lock:
                self._locks.pop(coords, None)
        return found
