"""Coarser levels of a volume, computed while its tiles are written.

The volume may be larger than memory, and slow to read twice. So each tile of level 0 is reduced to
its part of every coarser level when it is written, and the parts are kept in a scratch file until
their level is written. The result is exactly that of reducing the whole volume, which is possible
only if no window (the voxels that become one coarser voxel) extends over two tiles. Other levels,
and filters that reach beyond their window, are computed from the volume itself, in pieces.
"""

import math
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from anychunk import resample as ds
from anychunk.formats.jnrrd.write_plan import Plan
from anychunk.io.system import read_at, write_at
from anychunk.model.grid import Array, Shape, chunk_box, chunk_number, cut_box, grid_shape
from anychunk.model.index import Json

type Read = Callable[[Shape, Shape], Array]


@dataclass(frozen=True)
class Target:
    """One coarser level, axes in numpy's order."""

    number: int
    shape: Shape
    scale: Shape
    """Voxels of level 0 per voxel, along each axis."""


class Pyramid:
    """Computes the coarser levels of one volume, and keeps them until they are written."""

    def __init__(
        self,
        read: Read,
        shape: Shape,
        tile: Shape,
        dtype: np.dtype[Any],
        targets: Sequence[Target],
        *,
        method: str,
        folder: str | None,
    ) -> None:
        """Prepare the levels.

        Parameters:
            read: Reads the box from a start to a stop of level 0.
            shape: The shape of level 0.
            tile: The shape of its tiles.
            dtype: The type of samples.
            targets: The coarser levels that are stored, finest first.
            method: The downsampling method.
            folder: Where the scratch file is created; None: the system's temporary directory.
        """
        ds.check_method(method)
        self._read, self._shape, self._dtype, self._method = read, shape, dtype, method
        self._grid = grid_shape(shape, tile)
        self._targets = {target.number: target for target in targets}
        self._ratios = {t.number: ds.clip_ratio(shape, t.scale) for t in targets}
        passing = [t.number for t in targets if self._passes(t.number, tile)]
        self._blocks = {
            n: tuple(
                -(-min(t, size) // r)
                for t, size, r in zip(tile, shape, self._ratios[n], strict=True)
            )
            for n in passing
        }
        self._starts = self._layout()
        # has no name: nothing is left behind, however the process ends
        self._file = tempfile.TemporaryFile(dir=folder) if passing else None  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def _passes(self, number: int, tile: Shape) -> bool:
        """Return whether no window of the level extends over two tiles."""
        axes = zip(tile, self._ratios[number], self._grid, strict=True)
        return self._method in ds.BY_WINDOW and all(n == 1 or t % r == 0 for t, r, n in axes)

    def _layout(self) -> dict[int, int]:
        """Return where the parts of each level begin in the scratch file; all have one length."""
        starts, end = {}, 0
        for number, block in self._blocks.items():
            starts[number] = end
            end += math.prod(block) * self._dtype.itemsize * math.prod(self._grid)
        return starts

    def put(self, coords: Shape, tile: Array) -> None:
        """Reduce a tile of level 0 and keep the parts; any thread may call it."""
        if self._file is None:
            return
        number = chunk_number(coords, self._grid)
        for level, block in self.parts(tile):
            nbytes = math.prod(self._blocks[level]) * self._dtype.itemsize
            write_at(
                self._file.fileno(),
                np.ascontiguousarray(block),
                self._starts[level] + number * nbytes,
            )

    def parts(self, tile: Array) -> Iterator[tuple[int, Array]]:
        """Yield the part of each coarser level that a tile of level 0 covers.

        A level is computed from a finer one where that gives the same result: sums of sums, maxima
        of maxima. Means of means would be rounded twice, so sums are kept until the end. The mode
        of a window does not follow from the modes of its parts, so it is computed from the tile.
        """
        sums: dict[int, Array] = {}
        done: dict[int, Array] = {}
        for level in self._blocks:
            ratio = self._ratios[level]
            finer = self._finer(level)
            if self._method == "average":
                sums[level] = self._sums(tile, ratio, finer, sums)
                count = math.prod(ratio)
                done[level] = ds.mean(sums[level], count, tile.dtype)
            elif finer is None or self._method == "mode":
                done[level] = ds.by_window(trimmed(tile, ratio), ratio, self._method)
            else:
                step = divided(ratio, self._ratios[finer])
                done[level] = ds.by_window(trimmed(done[finer], step), step, self._method)
            yield level, done[level]

    def _finer(self, level: int) -> int | None:
        """Return the nearest finer level whose windows divide those of this one, or None."""
        ratio = self._ratios[level]
        fitting = [
            n
            for n in self._blocks
            if n < level and all(a % b == 0 for a, b in zip(ratio, self._ratios[n], strict=True))
        ]
        return fitting[-1] if fitting else None

    def _sums(self, tile: Array, ratio: Shape, finer: int | None, sums: dict[int, Array]) -> Array:
        """Return the sum of each window, from the sums of a finer level if there is one.

        The type is wide enough for the coarsest level. Sums of 64-bit integers are kept as two
        halves along an additional first axis (`resample.window_sums`).
        """
        most = math.prod(self._ratios[max(self._blocks)])
        kind = ds.sum_dtype(tile.dtype, max(most, math.prod(ratio)))
        is_wide = tile.dtype.kind in "iu" and tile.dtype.itemsize == 8
        if finer is None:
            if is_wide:
                return ds.window_sums(trimmed(tile, ratio), ratio)
            return ds.add_up(trimmed(tile, ratio), ratio, kind)
        step = divided(ratio, self._ratios[finer])
        if is_wide:
            step = (1, *step)
        return ds.add_up(trimmed(sums[finer], step), step, kind)

    def read(self, level: int, start: Shape, stop: Shape) -> Array:
        """Return the box from `start` to `stop` of a coarser level."""
        if level in self._blocks:
            return self._read_blocks(level, start, stop)
        from anychunk.decode.computed import shrink  # slow to import

        return shrink(
            self._read,
            start=start,
            stop=stop,
            ratio=self._targets[level].scale,
            shape=self._shape,
            method=self._method,
            itemsize=self._dtype.itemsize,
        )

    def _read_blocks(self, level: int, start: Shape, stop: Shape) -> Array:
        block, shape = self._blocks[level], self._targets[level].shape
        out = np.empty([b - a for a, b in zip(start, stop, strict=True)], self._dtype)
        for coords, piece in cut_box(start, stop, chunk_shape=block, shape=shape):
            box = chunk_box(coords, block, shape)
            part = self._read_block(level, coords, [side.stop - side.start for side in box])
            out[piece.target] = part[piece.source]
        return out

    def _read_block(self, level: int, coords: Shape, shape: Sequence[int]) -> Array:
        number = chunk_number(coords, self._grid)
        slot = math.prod(self._blocks[level]) * self._dtype.itemsize
        nbytes = math.prod(shape) * self._dtype.itemsize
        if self._file is None:
            raise RuntimeError("the scratch file is closed")
        data = read_at(self._file.fileno(), nbytes, self._starts[level] + number * slot)
        return np.frombuffer(data, self._dtype).reshape(shape)


def trimmed(array: Array, ratio: Shape) -> Array:
    """Return an array without the trailing elements that fill no window."""
    return array[tuple(slice(n // r * r) for n, r in zip(array.shape, ratio, strict=True))]


def divided(ratio: Shape, finer: Shape) -> Shape:
    """Return the ratio of a level to a finer one, from the ratios of both to level 0."""
    return tuple(a // b for a, b in zip(ratio, finer, strict=True))


# `tile:level_quality`: PSNR and RMSE of each level against full resolution.
#
# Spec: JNRRD Tiling Extension 1.0.0 section 7.4.5, which does not define the measures.
#
# A level is brought back to full resolution by repeating each voxel over its window; trailing
# voxels that belong to no window take the value of the last one. The peak of PSNR is the range of
# the type for integers (2**bits - 1), and the range of the samples for floats. A level without
# error has a PSNR of 100, as level 0 in the example of the extension.


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
