"""The code-blocks of a JPEG 2000 tile: how many there are, and the table of them.

Spec: ITU-T T.800 annex B.

Code-blocks are numbered by component, resolution and sub-band (`tile_bands`), in raster order over
the whole sub-band. Their columns and rows are counted from the origin of the reference grid (T.800
B.7), so that they are the same in every cut of the tile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from anychunk.codestream.jpeg2000 import Component, Rect, Style
from anychunk.codestream.packets import HT, LAZY, TERMINATE_ALL, Tile, band_spans, ceil_shift

type Uint8 = npt.NDArray[np.uint8]
type Uint16 = npt.NDArray[np.uint16]
type Uint32 = npt.NDArray[np.uint32]
type Int64 = npt.NDArray[np.int64]

MAX_BLOCKS = 1 << 22
"""Tiles of more code-blocks have no table: it would take more than 100 MB."""
ABSENT = 255
"""`planes` of a code-block that no packet includes."""
SEGMENTED = LAZY | TERMINATE_ALL | HT
"""Code-block styles with several codeword segments (T.800 table A.19)."""


class NoTableError(Exception):
    """The code-blocks of a tile cannot be told apart; it can only be decoded as a whole."""


class Band(NamedTuple):
    """One sub-band of a tile: the code-blocks that it is divided into."""

    columns: range
    """Numbers of the columns of code-blocks, counted from the origin of the reference grid."""
    rows: range
    base: int
    """Number of its first code-block in the tile."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TileLayout:
    """One tile: its coding style, and where its body is in the source."""

    number: int
    tile: Tile
    markers: bytes
    """The segments of its tile-part headers that override the main header."""
    starts: Int64
    """Where the packets of each tile-part begin in the body, which is all of them joined."""
    offsets: Int64
    """Where they begin in the source."""
    total: int
    """Length of the body."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockTable:
    """All code-blocks of one tile, by number; see the module."""

    planes: Uint8
    """Missing most significant bit-planes (T.800 B.10.5), or `ABSENT`."""
    passes: Uint16
    """Coding passes in all layers."""
    starts: Uint32
    """Code-block `i` has the byte ranges from `starts[i]` to `starts[i + 1]`, one per layer."""
    offsets: Int64
    """In the body of the tile."""
    lengths: Uint32
    segment_starts: Uint32
    """Likewise for codeword segments; empty if every code-block is one segment."""
    segment_passes: Uint16
    segment_lengths: Uint32

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in COLUMNS)


COLUMNS = (
    "planes", "passes", "starts", "offsets", "lengths", "segment_starts", "segment_passes",
    "segment_lengths",
)  # fmt: skip
DTYPES = ("u1", "<u2", "<u4", "<i8", "<u4", "<u4", "<u2", "<u4")


def block_exponents(style: Style, resolution: int) -> tuple[int, int]:
    """Return the size of code-blocks, which precincts limit, as powers of 2 (T.800 B-17, B-18)."""
    x, y = style.precincts[resolution] if style.precincts else (15, 15)
    is_split = resolution > 0
    return min(style.xcb, x - is_split), min(style.ycb, y - is_split)


def tile_bands(
    components: Sequence[Component], rect: Rect, styles: Sequence[Style]
) -> dict[tuple[int, int], list[Band]]:
    """Return the sub-bands of every (component, resolution): LL, or HL, LH and HH."""
    found: dict[tuple[int, int], list[Band]] = {}
    base = 0
    for number, (component, style) in enumerate(zip(components, styles, strict=True)):
        area = rect.scaled(component.dx, component.dy)
        for resolution in range(style.levels + 1):
            listed = []
            for columns, rows in band_grids(area, style, resolution):
                listed.append(Band(columns, rows, base))
                base += len(columns) * len(rows)
            found[number, resolution] = listed
    return found


def band_grids(area: Rect, style: Style, resolution: int) -> Iterator[tuple[range, range]]:
    """Yield the columns and rows of code-blocks of each sub-band of a resolution."""
    is_lowest = resolution == 0
    shift = style.levels - resolution
    x, y = block_exponents(style, resolution)
    across = band_spans(area.x0, area.x1, shift, is_lowest=is_lowest)
    down = band_spans(area.y0, area.y1, shift, is_lowest=is_lowest)
    for high_x, high_y in ((0, 0),) if is_lowest else ((1, 0), (0, 1), (1, 1)):
        (x0, x1), (y0, y1) = across[high_x], down[high_y]
        if x0 < x1 and y0 < y1:
            yield range(x0 >> x, ceil_shift(x1, x)), range(y0 >> y, ceil_shift(y1, y))
        else:
            yield range(0), range(0)


def count_tile_blocks(components: Sequence[Component], rect: Rect, styles: Sequence[Style]) -> int:
    """Return the number of code-blocks of a tile, without listing its components."""
    counts: dict[tuple[int, int, Style], int] = {}
    total = 0
    for component, style in zip(components, styles, strict=True):
        key = (component.dx, component.dy, style)
        if key not in counts:
            area = rect.scaled(component.dx, component.dy)
            counts[key] = sum(
                len(columns) * len(rows)
                for resolution in range(style.levels + 1)
                for columns, rows in band_grids(area, style, resolution)
            )
        total += counts[key]
    return total
