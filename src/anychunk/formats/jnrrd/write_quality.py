"""`tile:level_quality`: PSNR and RMSE of each level against full resolution.

Spec: JNRRD Tiling Extension 1.0.0 section 7.4.5, which does not define the measures.

A level is brought back to full resolution by repeating each voxel over its window; trailing voxels
that belong to no window take the value of the last one. The peak of PSNR is the range of the type
for integers (2**bits - 1), and the range of the samples for floats. A level without error has a
PSNR of 100, as level 0 in the example of the extension.
"""

import math
import threading
from collections.abc import Callable

import numpy as np

from anychunk.formats.jnrrd.write_plan import Plan
from anychunk.model.grid import Array, Shape
from anychunk.model.index import Json

LOSSLESS_DB = 100.0
ROWS_BYTES = 16 << 20
"""Approximate size of the part of the full resolution that is compared at a time."""


class Quality:
    """Accumulates the squared errors of tiles; any thread may add to it."""

    def __init__(self, plan: Plan, read: Callable[[Shape, Shape], Array]) -> None:
        self._plan, self._read = plan, read
        self._lock = threading.Lock()
        self._errors = dict.fromkeys((x.number for x in plan.levels if x.is_stored), 0.0)
        self._low, self._high = math.inf, -math.inf

    def add(self, level: int, tile: Array, start: Shape, stop: Shape) -> None:
        """Add the core voxels of a tile, which cover `start` to `stop` of their level."""
        if not self._plan.quality or not tile.size:
            return
        if level == 0:
            if tile.dtype.kind not in "iuc":
                self._add_range(tile)
            return
        squared = self._squared(level, tile, start, stop)
        with self._lock:
            self._errors[level] += squared

    def _add_range(self, tile: Array) -> None:
        """Extend the range of samples, which is the peak for floats."""
        values = tile.astype(np.float64)
        values = values[np.isfinite(values)]
        if values.size:
            with self._lock:
                self._low = min(self._low, float(values.min()))
                self._high = max(self._high, float(values.max()))

    def _squared(self, level: int, tile: Array, start: Shape, stop: Shape) -> float:
        """Return the summed squared error of a tile against full resolution, in row groups."""
        shape = self._plan.levels[level].sizes[::-1]
        scale = self._plan.levels[level].scale[::-1]
        full = self._plan.volume.sizes[::-1]
        low = [a * s for a, s in zip(start, scale, strict=True)]
        # the last coarse voxel also covers the trailing voxels that fill no window
        high = [n if b == m else b * s for b, s, m, n in zip(stop, scale, shape, full, strict=True)]
        total = 0.0
        row = math.prod(b - a for a, b in zip(low[1:], high[1:], strict=True)) * 16
        step = max(1, ROWS_BYTES // max(row, 1))
        kind = np.complex128 if tile.dtype.kind == "c" else np.float64
        columns = [
            np.minimum(np.arange(a, b) // s, m - 1) - first
            for a, b, s, m, first in zip(
                low[1:], high[1:], scale[1:], shape[1:], start[1:], strict=True
            )
        ]
        for at in range(low[0], high[0], step):
            end = min(at + step, high[0])
            rows = np.minimum(np.arange(at, end) // scale[0], shape[0] - 1) - start[0]
            back = tile[np.ix_(rows, *columns)].astype(kind)
            difference = self._read((at, *low[1:]), (end, *high[1:])).astype(kind) - back
            total += float((difference * difference.conj()).real.sum())
        return total

    def fields(self) -> list[Json] | None:
        """Return `tile:level_quality`, or None if not requested; virtual levels are empty."""
        if not self._plan.quality:
            return None
        return [self._entry(level.number) if level.is_stored else {} for level in self._plan.levels]

    def _entry(self, level: int) -> Json:
        error = math.sqrt(self._errors[level] / math.prod(self._plan.volume.sizes))
        if error == 0:
            return {"psnr": LOSSLESS_DB, "rmse": 0.0}
        if not math.isfinite(error):
            return {"psnr": None, "rmse": None}
        peak = self._peak()
        return {"psnr": 20 * math.log10(peak / error) if peak > 0 else None, "rmse": error}

    def _peak(self) -> float:
        """Return the largest possible difference of two samples."""
        dtype = self._plan.volume.dtype
        if dtype.kind in "iu":
            return float(2 ** (8 * dtype.itemsize) - 1)
        return self._high - self._low
