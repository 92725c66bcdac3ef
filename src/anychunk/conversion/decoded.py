"""Boxes of a source array, where no chunk is decoded for every region that it reaches into."""

import itertools
import math
import threading
from collections import OrderedDict
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BytesCodec, TransposeCodec

from anychunk.codecs.window import Window
from anychunk.limits import MIB
from anychunk.model.index import Shape

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
        self._kept: OrderedDict[Shape, Array] = OrderedDict()
        self._locks: dict[Shape, threading.Lock] = {}
        self._lock = threading.Lock()

    def read(self, box: tuple[slice, ...]) -> Array:
        if not self.is_kept:
            return np.asarray(self.array[box])
        out = np.empty([s.stop - s.start for s in box], self.array.dtype)
        ranges = [
            range(s.start // c, -(-s.stop // c)) for s, c in zip(box, self.chunk, strict=True)
        ]
        for coords in itertools.product(*ranges):
            chunk = self._chunk(coords)
            here, there = [], []
            for c, size, s, n in zip(coords, self.chunk, box, chunk.shape, strict=True):
                low, high = max(s.start, c * size), min(s.stop, c * size + n)
                here.append(slice(low - s.start, high - s.start))
                there.append(slice(low - c * size, high - c * size))
            out[tuple(here)] = chunk[tuple(there)]
        return out

    def _chunk(self, coords: Shape) -> Array:
        """Decode a chunk once, whoever else waits for it too."""
        with self._lock:
            lock = self._locks.setdefault(coords, threading.Lock())
        with lock:
            found = self._kept.get(coords)
            if found is None:
                box = tuple(
                    slice(c * size, (c + 1) * size)
                    for c, size in zip(coords, self.chunk, strict=True)
                )
                found = np.asarray(self.array[box])
            with self._lock:
                self._kept[coords] = found
                self._kept.move_to_end(coords)
                while len(self._kept) > max(1, KEPT_BYTES // max(self._nbytes, 1)):
                    self._kept.popitem(last=False)
                self._locks.pop(coords, None)
        return found
