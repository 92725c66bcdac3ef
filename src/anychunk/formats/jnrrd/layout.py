"""Where the tiles of a level lie: counts, stored shapes, and the window of each that is its own.

Spec: JNRRD Tiling Extension 1.0.0 sections 5.1, 7.1, 7.2 and 7.4.3; docs/formats/jnrrd.md.

The extension does not say what `tile:overlap` does to sizes, so a file may mean one of three.
Ours is `halo`: tiles lie side by side, and each is stored with its overlap around it. In the other
two `tile:sizes` is what is stored: neighbours share `overlap` voxels (`shared`), or the overlap is
a border inside the tile on both sides (`border`).
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from anychunk.errors import LimitError
from anychunk.formats.jnrrd.tiling import Level, Tiling
from anychunk.model.grid import Shape

type Ints = npt.NDArray[np.int64]
type Reading = Literal["halo", "shared", "shared to the end", "border"]

READINGS: tuple[Reading, ...] = ("halo", "shared", "shared to the end", "border")
MOST_WINDOWS = 1 << 24
"""How many chunks may have a front of their own."""


def stride(tile: int, overlap: int, reading: Reading) -> int:
    """How far apart tiles begin; 0 or less where the reading is impossible."""
    match reading:
        case "halo":
            return tile
        case "border":
            return tile - 2 * overlap
    return tile - overlap


def count(size: int, tile: int, overlap: int, reading: Reading) -> int:
    """How many tiles an axis has."""
    step = stride(tile, overlap, reading)
    if reading == "shared":
        return max(1, -(-(size - overlap) // step))
    return -(-size // step)


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis: its tiles as stored, and its chunks as windows of them."""

    chunk: int
    low: Ints
    """Where each tile begins; what it is stored with may lie before the data."""
    stored: Ints
    """Length of each tile as it is stored."""
    tile: Ints
    """Which tile each chunk is in."""
    start: Ints
    """Where each chunk begins in its tile."""
    length: Ints
    """How much of each chunk its tile holds."""


def axis_layout(
    size: int, tile: int, overlap: int, *, is_padded: bool, reading: Reading, tiles: int
) -> Axis:
    """Lay out one axis."""
    step = stride(tile, overlap, reading)
    before = 0 if reading.startswith("shared") else overlap
    length = tile + 2 * overlap if reading == "halo" else tile
    low = np.arange(tiles, dtype=np.int64) * step - before
    high = low + length
    if not is_padded:
        low, high = np.maximum(low, 0), np.minimum(high, size)
    chunks = np.arange(-(-size // step), dtype=np.int64)
    at = np.minimum(chunks, tiles - 1)
    start = chunks * step - low[at]
    own = np.minimum(
        np.minimum((chunks + 1) * step, size) - chunks * step, high[at] - chunks * step
    )
    if is_padded:
        # padding may be shown: zarr crops what lies beyond the array
        own = np.minimum(step, high[at] - chunks * step)
    # a single cropped tile may be far smaller than its nominal size
    chunk = step if is_padded else min(step, size)
    return Axis(chunk=chunk, low=low, stored=high - low, tile=at, start=start, length=own)


@dataclass(frozen=True, eq=False)
class Layout:
    """The tiles of one level, axes in the order of the file."""

    level: Level
    chunk: Shape
    counts: Shape
    """Tiles along each axis."""
    stored: Shape
    """The largest stored tile."""
    axes: tuple[Axis, ...] | None
    """None: every tile is stored whole, and is its chunk."""

    @property
    def tiles(self) -> int:
        return math.prod(self.counts)

    @property
    def grid(self) -> Shape:
        """Chunks along each axis."""
        return tuple(-(-n // c) for n, c in zip(self.level.sizes, self.chunk, strict=True))

    def geometry(self) -> tuple[object, ...]:
        """Compare two readings by the extent of every tile: if those agree, so does the volume."""
        extents = () if self.axes is None else self.axes
        return (self.counts, *((bytes(axis.low), bytes(axis.stored)) for axis in extents))


def spread(values: Shape, dimensions: Shape, ndim: int, other: int) -> Shape:
    """Give one value an axis from one a tiled dimension."""
    found = [other] * ndim
    for axis, value in zip(dimensions, values, strict=True):
        found[axis] = value
    return tuple(found)


def tile_counts(tiling: Tiling, level: Level, reading: Reading) -> Shape | None:
    """How many tiles along each axis; None where the reading is impossible."""
    overlap = spread(tiling.overlap, tiling.dimensions, len(level.sizes), 0)
    if any(stride(t, o, reading) < 1 for t, o in zip(level.tile, overlap, strict=True)):
        return None
    return tuple(
        count(n, t, o, reading) for n, t, o in zip(level.sizes, level.tile, overlap, strict=True)
    )


def lay_out(tiling: Tiling, level: Level, reading: Reading = "halo") -> Layout | None:
    """Lay out a level; None where the reading is impossible for it."""
    counts = tile_counts(tiling, level, reading)
    if counts is None:
        return None
    overlap = spread(tiling.overlap, tiling.dimensions, len(level.sizes), 0)
    is_padded = tiling.edge_handling == "pad"
    is_even = all(n % t == 0 for n, t in zip(level.sizes, level.tile, strict=True))
    if not any(overlap) and (is_padded or is_even):
        return Layout(level, level.tile, counts, level.tile, None)
    if math.prod(counts) > MOST_WINDOWS:
        raise LimitError(
            f"level {level.number}: {math.prod(counts)} tiles of varying shape, "
            f"expected at most {MOST_WINDOWS}"
        )
    axes = tuple(
        axis_layout(n, t, o, is_padded=is_padded, reading=reading, tiles=c)
        for n, t, o, c in zip(level.sizes, level.tile, overlap, counts, strict=True)
    )
    stored = tuple(int(axis.stored.max()) for axis in axes)
    return Layout(level, tuple(axis.chunk for axis in axes), counts, stored, axes)


def stored_voxels(layout: Layout, dimensions: Shape) -> npt.NDArray[np.uint64] | int:
    """How many voxels each tile holds, in table order; one number where all hold the same."""
    if layout.axes is None:
        return math.prod(layout.stored)
    lengths = [axis.stored.astype(np.uint64) for axis in layout.axes]
    if all((part == part[0]).all() for part in lengths):
        return math.prod(layout.stored)
    whole = math.prod(n for a, n in enumerate(layout.stored) if a not in dimensions)
    # the first of `dimensions` is fastest: last in C order
    voxels = np.array(whole, np.uint64)
    for axis in reversed(dimensions):
        voxels = np.multiply.outer(voxels, lengths[axis])
    return voxels.reshape(-1)


def tile_numbers(layout: Layout, dimensions: Shape) -> npt.NDArray[np.int64]:
    """Give the place in the level's table of the tile of every chunk, in numpy axis order."""
    ndim = len(layout.counts)
    strides = [0] * ndim
    step = 1
    for axis in dimensions:
        strides[axis] = step
        step *= layout.counts[axis]
    numbers = np.zeros((), np.int64)
    for axis in reversed(range(ndim)):
        tiles = (
            np.arange(layout.grid[axis], dtype=np.int64)
            if layout.axes is None
            else layout.axes[axis].tile
        )
        numbers = np.add.outer(numbers, tiles * strides[axis])
    return numbers
