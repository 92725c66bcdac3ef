"""The geometry of the tiles of a level: how many, how large, and which voxels each contributes.

Spec: JNRRD Tiling Extension 1.0.0 sections 5.1, 7.1, 7.2 and 7.4.3; docs/formats/jnrrd.md.

Order. Dimension 0 is the fastest, in the tile grid as inside a tile (section 5.1). The grid follows
the order of `tile:dimensions`: its first entry is the fastest. `model.grid` numbers chunks
in C order, slowest first, hence the reversals below.

Overlap. Section 7.2 gives each tile `tile:overlap` extra voxels, but does not say what that does to
`tile:sizes` and to the number of tiles. Writers differ, so a file is read in one of these ways:

`halo`              Tiles lie `sizes` apart, and each is stored with `overlap` voxels more on both
                    sides. This is how we write: the tile grid does not depend on the overlap.
`shared`            `sizes` is what is stored; neighbours have `overlap` voxels in common, so tiles
                    lie `sizes - overlap` apart. There are as many tiles as it takes to cover the
                    axis: no tile consists of voxels that its neighbour already has.
`shared to the end` The same, but tiles continue to the end of the axis, even if they add nothing.
`border`            `sizes` is what is stored, including `overlap` voxels on both sides that belong
                    to the neighbours; tiles lie `sizes - 2 * overlap` apart.

`overlap.py` chooses among them. In all of them a chunk of the Zarr view extends from the
start of one tile to the start of the next. It is read from the tile that starts there, so that
every voxel comes from exactly one tile: where tiles disagree about a voxel that they share, the
core of a tile wins.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.errors import LimitError
from anychunk.formats.jnrrd.tiling_fields import Level, Tiling
from anychunk.model.grid import Shape, chunk_coords, chunk_number, grid_shape

type Ints = npt.NDArray[np.int64]
type Reading = Literal["halo", "shared", "shared to the end", "border"]

READINGS: tuple[Reading, ...] = ("halo", "shared", "shared to the end", "border")


def tile_number(indices: Sequence[int], grid: Shape) -> int:
    """Return the number of a tile in the table of its level; the first dimension is fastest."""
    return chunk_number(indices[::-1], grid[::-1])


def tile_indices(number: int, grid: Shape) -> list[int]:
    """Return the indices of a tile from its number in the table of its level."""
    return list(chunk_coords(number, grid[::-1])[::-1])


def all_indices(grid: Shape) -> Iterator[Shape]:
    """Yield the indices of all tiles in table order."""
    for coords in itertools.product(*(range(n) for n in grid[::-1])):
        yield coords[::-1]


def stride(tile: int, overlap: int, reading: Reading) -> int:
    """Return the distance between the starts of tiles; 0 or less if the reading is impossible."""
    match reading:
        case "halo":
            return tile
        case "border":
            return tile - 2 * overlap
    return tile - overlap


def count(size: int, tile: int, overlap: int, reading: Reading) -> int:
    """Return how many tiles an axis has."""
    step = stride(tile, overlap, reading)
    if reading == "shared":
        # the last `overlap` voxels need no tile that begins in them
        return max(1, -(-(size - overlap) // step))
    return -(-size // step)


@dataclass(frozen=True, eq=False)
class Axis:
    """The tiles of one axis as they are stored, and its chunks as windows of them."""

    chunk: int
    """The number of voxels of a chunk."""
    low: Ints
    """For each tile, where its stored voxels begin; a halo may begin before the volume."""
    stored: Ints
    """For each tile, how many voxels are stored."""
    tile: Ints
    """For each chunk, the tile that holds it."""
    start: Ints
    """For each chunk, where it begins in the stored tile."""
    length: Ints
    """For each chunk, how many of its voxels the tile holds."""


def axis_layout(
    size: int, tile: int, overlap: int, *, is_padded: bool, reading: Reading, tiles: int
) -> Axis:
    """Return the layout of one axis.

    Parameters:
        size: The number of voxels of the volume.
        tile: `tile:sizes`.
        overlap: `tile:overlap`.
        is_padded: Whether tiles at the edge are stored in full (section 7.1, `pad`); otherwise they
            are cropped to the volume (`variable`), their halo included.
        reading: The interpretation of `overlap`; see the module docstring.
        tiles: The number of tiles (`count`).
    """
    step = stride(tile, overlap, reading)
    before = 0 if reading.startswith("shared") else overlap
    length = tile + 2 * overlap if reading == "halo" else tile
    low = np.arange(tiles, dtype=np.int64) * step - before
    high = low + length
    if not is_padded:
        low, high = np.maximum(low, 0), np.minimum(high, size)
    chunks = np.arange(-(-size // step), dtype=np.int64)
    # `shared` has fewer tiles than chunks: the last tile holds the last chunks too
    at = np.minimum(chunks, tiles - 1)
    start = chunks * step - low[at]
    own = np.minimum(
        np.minimum((chunks + 1) * step, size) - chunks * step, high[at] - chunks * step
    )
    if is_padded:
        # the window may include padding beyond the volume, which zarr crops; full windows of the
        # same shape in every tile need fewer different fronts
        own = np.minimum(step, high[at] - chunks * step)
    # a single cropped tile may be far smaller than `tile:sizes`; so is its chunk
    chunk = step if is_padded else min(step, size)
    return Axis(chunk=chunk, low=low, stored=high - low, tile=at, start=start, length=own)


@dataclass(frozen=True, eq=False)
class Layout:
    """The tiles of one level, axes in the order of the file."""

    level: Level
    chunk: Shape
    """The shape of a chunk."""
    counts: Shape
    """Tiles along each axis."""
    stored: Shape
    """The shape of the largest stored tile."""
    axes: tuple[Axis, ...] | None
    """None if every tile is stored whole and is one chunk."""

    @property
    def tiles(self) -> int:
        """The number of tiles."""
        return math.prod(self.counts)

    @property
    def grid(self) -> Shape:
        """Chunks along each axis."""
        return grid_shape(self.level.sizes, self.chunk)

    def geometry(self) -> tuple[object, ...]:
        """Return the extent of every tile; two readings with the same extents are the same."""
        extents = () if self.axes is None else self.axes
        return (self.counts, *((bytes(axis.low), bytes(axis.stored)) for axis in extents))


def spread(values: Shape, dimensions: Shape, ndim: int, other: int) -> Shape:
    """Return one value per axis, from one per tiled dimension; other axes get `other`."""
    found = [other] * ndim
    for axis, value in zip(dimensions, values, strict=True):
        found[axis] = value
    return tuple(found)


def dimension_counts(layout: Layout, dimensions: Shape) -> Shape:
    """Return the tile grid of a level: its tiles along each of `tile:dimensions`."""
    return tuple(layout.counts[axis] for axis in dimensions)


def tile_counts(tiling: Tiling, level: Level, reading: Reading) -> Shape | None:
    """Return the number of tiles along each axis; None if the reading is impossible."""
    overlap = spread(tiling.overlap, tiling.dimensions, len(level.sizes), 0)
    if any(stride(t, o, reading) < 1 for t, o in zip(level.tile, overlap, strict=True)):
        return None
    return tuple(
        count(n, t, o, reading) for n, t, o in zip(level.sizes, level.tile, overlap, strict=True)
    )


def lay_out(tiling: Tiling, level: Level, reading: Reading = "halo") -> Layout | None:
    """Return the layout of a level; None if the reading is impossible."""
    counts = tile_counts(tiling, level, reading)
    if counts is None:
        return None
    overlap = spread(tiling.overlap, tiling.dimensions, len(level.sizes), 0)
    is_padded = tiling.edge_handling == "pad"
    is_even = all(n % t == 0 for n, t in zip(level.sizes, level.tile, strict=True))
    # the usual case: tiles are chunks, without a front and without the window codec
    if not any(overlap) and (is_padded or is_even):
        return Layout(level, level.tile, counts, level.tile, None)
    if math.prod(counts) > limits.get().varying_chunks:
        raise LimitError(
            f"level {level.number}: {math.prod(counts)} tiles of varying shape, expected at most "
            f"{limits.get().varying_chunks}; {limits.how_to_raise('varying_chunks')}"
        )
    axes = tuple(
        axis_layout(n, t, o, is_padded=is_padded, reading=reading, tiles=c)
        for n, t, o, c in zip(level.sizes, level.tile, overlap, counts, strict=True)
    )
    stored = tuple(int(axis.stored.max()) for axis in axes)
    return Layout(level, tuple(axis.chunk for axis in axes), counts, stored, axes)


def stored_voxels(layout: Layout, dimensions: Shape) -> npt.NDArray[np.uint64] | int:
    """Return how many voxels each tile stores, in table order; a single number if all are equal."""
    if layout.axes is None:
        return math.prod(layout.stored)
    lengths = [axis.stored.astype(np.uint64) for axis in layout.axes]
    if all((part == part[0]).all() for part in lengths):
        return math.prod(layout.stored)
    whole = math.prod(n for a, n in enumerate(layout.stored) if a not in dimensions)
    # the first of `dimensions` is the fastest, so it comes last in C order
    voxels = np.array(whole, np.uint64)
    for axis in reversed(dimensions):
        voxels = np.multiply.outer(voxels, lengths[axis])
    return voxels.reshape(-1)


def tile_numbers(layout: Layout, dimensions: Shape) -> npt.NDArray[np.int64]:
    """Return, for every chunk, the number of its tile in the level's table, in numpy axis order."""
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
