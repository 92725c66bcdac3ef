"""Coarser levels of a volume while it streams by, tile after tile.

Where the tiles of level 0 are a whole number of windows, each gives its part of every coarser level
as it passes, exactly as if computed from the whole volume; the parts wait in a scratch file. Other
levels, and filters that look beyond the window, are computed from the volume itself, in pieces.
"""

import itertools
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from anychunk import resample as ds
from anychunk.decode.computed import shrink
from anychunk.model.grid import Shape

type Array = npt.NDArray[Any]
type Read = Callable[[Shape, Shape], Array]


@dataclass(frozen=True)
class Target:
    """One coarser level, axes in numpy's order."""

    number: int
    shape: Shape
    scale: Shape


class Pyramid:
    """Makes and keeps the coarser levels of one volume."""

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
        ds.check_method(method)
        self._read, self._shape, self._dtype, self._method = read, shape, dtype, method
        self._grid = tuple(-(-n // t) for n, t in zip(shape, tile, strict=True))
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
        # unlinked from the start: nothing is left behind, however the process ends
        self._file = tempfile.TemporaryFile(dir=folder) if passing else None  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def _passes(self, number: int, tile: Shape) -> bool:
        """Whether no window of the level lies across two tiles."""
        axes = zip(tile, self._ratios[number], self._grid, strict=True)
        return self._method in ds.BY_WINDOW and all(n == 1 or t % r == 0 for t, r, n in axes)

    def _layout(self) -> dict[int, int]:
        starts, end = {}, 0
        for number, block in self._blocks.items():
            starts[number] = end
            end += math.prod(block) * self._dtype.itemsize * math.prod(self._grid)
        return starts

    def put(self, coords: Shape, tile: Array) -> None:
        """Take a tile of level 0 that passes by; any thread may call it."""
        if self._file is None:
            return
        number = int(np.ravel_multi_index(coords, self._grid))
        for level, block in self.parts(tile):
            nbytes = math.prod(self._blocks[level]) * self._dtype.itemsize
            os.pwrite(
                self._file.fileno(),
                np.ascontiguousarray(block),
                self._starts[level] + number * nbytes,
            )

    def parts(self, tile: Array) -> Iterator[tuple[int, Array]]:
        """Compute what a tile of level 0 is at each coarser level that needs no other tile."""
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
        """Find the nearest finer level whose windows make up those of this one."""
        ratio = self._ratios[level]
        fitting = [
            n
            for n in self._blocks
            if n < level and all(a % b == 0 for a, b in zip(ratio, self._ratios[n], strict=True))
        ]
        return fitting[-1] if fitting else None

    def _sums(self, tile: Array, ratio: Shape, finer: int | None, sums: dict[int, Array]) -> Array:
        """Add up windows, from the sums of a finer level where there are any."""
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
        """Give a box of a coarser level."""
        if level in self._blocks:
            return self._read_blocks(level, start, stop)
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
        ranges = [range(a // n, -(-b // n)) for a, b, n in zip(start, stop, block, strict=True)]
        for coords in itertools.product(*ranges):
            origin = [c * n for c, n in zip(coords, block, strict=True)]
            end = [min(o + n, size) for o, n, size in zip(origin, block, shape, strict=True)]
            part = self._read_block(
                level, coords, [e - o for o, e in zip(origin, end, strict=True)]
            )
            low = [max(a, o) for a, o in zip(start, origin, strict=True)]
            high = [min(b, e) for b, e in zip(stop, end, strict=True)]
            target = tuple(slice(p - a, q - a) for p, q, a in zip(low, high, start, strict=True))
            source = tuple(slice(p - o, q - o) for p, q, o in zip(low, high, origin, strict=True))
            out[target] = part[source]
        return out

    def _read_block(self, level: int, coords: Shape, shape: Sequence[int]) -> Array:
        number = int(np.ravel_multi_index(coords, self._grid))
        slot = math.prod(self._blocks[level]) * self._dtype.itemsize
        nbytes = math.prod(shape) * self._dtype.itemsize
        if self._file is None:
            raise RuntimeError("the scratch file is closed")
        data = os.pread(self._file.fileno(), nbytes, self._starts[level] + number * slot)
        return np.frombuffer(data, self._dtype).reshape(shape)


def trimmed(array: Array, ratio: Shape) -> Array:
    """Drop the rest that fills no window."""
    return array[tuple(slice(n // r * r) for n, r in zip(array.shape, ratio, strict=True))]


def divided(ratio: Shape, finer: Shape) -> Shape:
    return tuple(a // b for a, b in zip(ratio, finer, strict=True))
