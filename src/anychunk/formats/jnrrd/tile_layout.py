"""The geometry of the tiles of a level: how many, how large, and which voxels each contributes.

Spec: JNRRD Tiling Extension 1.0.0 sections 5.1, 7.1, 7.2 and 7.4.3; docs/formats/jnrrd.md.

Order. Dimension 0 is the fastest, in the tile grid as inside a tile (section 5.1). The grid follows
the order of `tile:dimensions`: its first entry is the fastest. `model.grid` numbers chunks
in C order, slowest first, hence the reversals below.

Overlap. Section 7.2 does not say what `tile:overlap` does to `tile:sizes`. It is a halo: tiles lie
`sizes` apart, and each is stored with `overlap` voxels more on both sides. A chunk of the Zarr view
is the core of a tile, so that every voxel comes from exactly one tile. `tiled_volume.check_tables`
refuses files whose tiles have another number or size.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.errors import LimitError
from anychunk.formats.jnrrd.tiling_fields import Level, Tiling
from anychunk.model.grid import Numbers, Shape, chunk_coords, chunk_number, grid_shape


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


@dataclass(frozen=True, eq=False)
class Axis:
    """The tiles of one axis as they are stored, and their cores."""

    chunk: int
    """The number of voxels of a core, or of a chunk."""
    stored: Numbers
    """For each tile, how many voxels are stored."""
    start: Numbers
    """For each tile, where its core begins in what is stored."""
    length: Numbers
    """For each tile, how many voxels its core has."""


def axis_layout(size: int, tile: int, overlap: int, *, is_padded: bool) -> Axis:
    """Return the layout of one axis.

    Parameters:
        size: The number of voxels of the volume.
        tile: `tile:sizes`.
        overlap: `tile:overlap`.
        is_padded: Whether tiles at the edge are stored in full (section 7.1, `pad`); otherwise they
            are cropped to the volume (`variable`), their halo included.
    """
    if not is_padded:  # sums of what a header says may be over 64 bits
        tile, overlap = min(tile, size), min(overlap, size)
    core = np.arange(0, size, tile, dtype=np.int64)
    low, high = core - overlap, core + tile + overlap
    if not is_padded:
        low, high = np.maximum(low, 0), np.minimum(high, size)
    # a core may include padding beyond the volume, which zarr crops: windows of the same shape in
    # every tile need fewer different fronts. A single cropped tile may be far smaller than
    # `tile:sizes`, and so is its chunk
    return Axis(
        chunk=tile,
        stored=high - low,
        start=core - low,
        length=np.minimum(core + tile, high) - core,
    )


@dataclass(frozen=True, eq=False)
class Layout:
    """The tiles of one level, axes in the order of the file."""

    level: Level
    chunk: Shape
    """The shape of a chunk, which is the core of a tile."""
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


def spread(values: Shape, dimensions: Shape, ndim: int, other: int) -> Shape:
    """Return one value per axis, from one per tiled dimension; other axes get `other`."""
    found = [other] * ndim
    for axis, value in zip(dimensions, values, strict=True):
        found[axis] = value
    return tuple(found)


def dimension_counts(layout: Layout, dimensions: Shape) -> Shape:
    """Return the tile grid of a level: its tiles along each of `tile:dimensions`."""
    return tuple(layout.counts[axis] for axis in dimensions)


def lay_out(tiling: Tiling, level: Level) -> Layout:
    """Return the layout of a level."""
    counts = grid_shape(level.sizes, level.tile)
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
        axis_layout(n, t, o, is_padded=is_padded)
        for n, t, o in zip(level.sizes, level.tile, overlap, strict=True)
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


def tile_numbers(layout: Layout, dimensions: Shape) -> Numbers:
    """Return, for every chunk, the number of its tile in the level's table, in numpy axis order."""
    strides = [0] * len(layout.counts)
    step = 1
    for axis in dimensions:
        strides[axis] = step
        step *= layout.counts[axis]
    numbers = np.zeros((), np.int64)
    for count, stride in reversed(list(zip(layout.counts, strides, strict=True))):
        numbers = np.add.outer(numbers, np.arange(count, dtype=np.int64) * stride)
    return numbers
