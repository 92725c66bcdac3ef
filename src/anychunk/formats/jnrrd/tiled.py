"""A tiled file, as far as its header tells.

Spec: JNRRD Tiling Extension 1.0.0 sections 5 to 7; docs/formats/jnrrd.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anychunk import limits
from anychunk.formats.jnrrd.files import dimension_counts, tile_indices
from anychunk.formats.jnrrd.layout import Layout, spread, stored_voxels
from anychunk.formats.jnrrd.tiling import Level, Table, Tiling
from anychunk.formats.jnrrd.volume import Volume


@dataclass(frozen=True, eq=False, kw_only=True)
class Tiled:
    """A tiled file, as far as its header tells."""

    url: str
    end: int
    """Where the header ends."""
    volume: Volume
    tiling: Tiling
    levels: tuple[Level, ...]
    layouts: tuple[Layout, ...]
    """Of the stored levels."""

    @property
    def tiles(self) -> int:
        return sum(layout.tiles for layout in self.layouts)

    def before(self, layout: Layout) -> int:
        """How many tiles stand before those of a level in every table."""
        return sum(x.tiles for x in self.layouts if x.level.number < layout.level.number)

    def name(self, number: int) -> str:
        """Name a tile by its place in the tables."""
        for layout in self.layouts:
            if number < layout.tiles:
                grid = dimension_counts(layout, self.tiling.dimensions)
                return f"tile {tile_indices(number, grid)} of level {layout.level.number}"
            number -= layout.tiles
        return f"tile {number}"

    def tile_bytes(self) -> Table:
        """Give the decoded size of every tile, in table order."""
        return np.concatenate(
            [
                np.broadcast_to(
                    stored_voxels(layout, self.tiling.dimensions) * np.uint64(self.volume.itemsize),
                    layout.tiles,
                )
                for layout in self.layouts
            ]
        ).astype(np.uint64)


def check_sizes(tiling: Tiling, levels: Sequence[Level], volume: Volume, url: str) -> None:
    """Refuse tiles larger than a chunk may be, before anything is computed from their sizes."""
    for level in levels:
        overlap = spread(tiling.overlap, tiling.dimensions, len(level.sizes), 0)
        lengths = [t + 2 * o for t, o in zip(level.tile, overlap, strict=True)]
        if tiling.edge_handling == "variable":
            lengths = [min(a, b) for a, b in zip(lengths, level.sizes, strict=True)]
        nbytes = math.prod(lengths) * volume.itemsize
        limits.check_chunk(nbytes, where=f"{url}: tile:sizes, level {level.number}")
