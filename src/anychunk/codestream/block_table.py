"""The code-blocks of a JPEG 2000 tile: how many there are, and the table of them.

Spec: ITU-T T.800 annex B.

Code-blocks are numbered by component, resolution and sub-band (`tile_bands`), in raster order over
the whole sub-band. Their columns and rows are counted from the origin of the reference grid (T.800
B.7), so that they are the same in every cut of the tile.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from anychunk.codestream.jpeg2000 import Component, MainHeader, Rect, Style, TilePart
from anychunk.codestream.packets import (
    HT,
    LAZY,
    TERMINATE_ALL,
    Tile,
    band_spans,
    ceil_shift,
    read_tile,
)
from anychunk.errors import FormatError

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


# Tables of code-blocks as bytes, for saved indexes.

MAGIC = b"A2KB\x01"
SIZES = struct.Struct("<11IIQI")
"""Entries of each column; the tile, the length of its body and of its markers."""


def pack(layout: TileLayout, table: BlockTable) -> bytes:
    """Return a tile and its table as a few bytes per code-block, compressed.

    Offsets are saved as the distance from the end of the range before, in the order of the stream,
    where most are 0; and numbers byte by byte, the low bytes of all first, because high bytes are
    mostly 0 (as the filter `shuffle` does).
    """
    permuted = np.argsort(table.offsets, kind="stable")
    ends = table.offsets[permuted] + table.lengths[permuted]
    gaps = table.offsets[permuted] - np.concatenate([[0], ends[:-1]])
    order_gaps = np.diff(permuted, prepend=-1) - 1
    columns = [
        table.planes, table.passes, np.diff(table.starts).astype("<u2"), order_gaps.astype("<i4"),
        gaps.astype("<i8"), table.lengths[permuted], np.diff(table.segment_starts).astype("<u2"),
        table.segment_passes, table.segment_lengths,
        layout.starts.astype("<i8"), layout.offsets.astype("<i8"),
    ]  # fmt: skip
    shuffled = [
        np.ascontiguousarray(c.view(np.uint8).reshape(-1, c.dtype.itemsize).T) for c in columns
    ]
    sizes = SIZES.pack(*(len(c) for c in columns), layout.number, layout.total, len(layout.markers))
    body = sizes + layout.markers + b"".join(c.tobytes() for c in shuffled)
    return MAGIC + zlib.compress(body, 6)


def unpack(header: MainHeader, data: bytes) -> tuple[TileLayout, BlockTable]:
    """Return what `pack` packed; `data` is untrusted.

    Raises:
        FormatError: It is not a table of a tile of this codestream.
    """
    if data[:5] != MAGIC:
        raise FormatError(f"a code-block table begins with {data[:5].hex()}")
    try:
        reader = zlib.decompressobj()
        body = reader.decompress(data[5:], 64 * MAX_BLOCKS)
        sizes = SIZES.unpack_from(body)
        return _unpack(header, memoryview(body)[SIZES.size :], sizes)
    except (zlib.error, struct.error, ValueError, OverflowError) as e:
        if isinstance(e, FormatError):
            raise
        raise FormatError(f"a code-block table is damaged: {e}") from e


def _unpack(
    header: MainHeader, rest: memoryview, sizes: tuple[int, ...]
) -> tuple[TileLayout, BlockTable]:
    *counts, number, total, length = sizes
    dtypes = ("u1", "<u2", "<u2", "<i4", "<i8", "<u4", "<u2", "<u2", "<u4", "<i8", "<i8")
    markers, at, columns = bytes(rest[:length]), length, []
    for count, name in zip(counts, dtypes, strict=True):
        dtype = np.dtype(name)
        taken = np.frombuffer(rest[at : at + count * dtype.itemsize], np.uint8)
        shuffled = taken.reshape(dtype.itemsize, count)
        columns.append(np.ascontiguousarray(shuffled.T).view(dtype).reshape(count))
        at += count * dtype.itemsize
    planes, passes, each, order_gaps, gaps, lengths = columns[:6]
    each_segment, segment_passes, segment_lengths, starts, offsets = columns[6:]
    if number >= header.siz.tiles or total >= 1 << 62 or not len(starts):
        raise FormatError(f"a code-block table of tile {number} with {total} bytes")
    head = struct.pack(">HHHIBB", 0xFF90, 10, 0, 0, 0, 1) + markers + b"\xff\x93"
    tile = read_tile(header, memoryview(head), [TilePart(number, 0, 0, len(head))])
    if tile is None:
        raise FormatError("a code-block table of a tile that cannot have one")
    tile.bodies.clear()
    blocks = count_tile_blocks(header.siz.components, header.siz.tile(number), tile.styles)
    is_segmented = any(style.block_style & SEGMENTED for style in tile.styles)
    order_of = np.cumsum(order_gaps.astype(np.int64) + 1) - 1
    ends = np.cumsum(gaps + lengths)
    is_valid = (
        len(planes) == len(passes) == len(each) == blocks
        and len(each_segment) == (blocks if is_segmented else 0)
        and each.sum() == len(gaps) == len(lengths) == len(order_gaps)
        and each_segment.sum() == len(segment_passes) == len(segment_lengths)
        and len(starts) == len(offsets)
        and starts[0] == 0
        and bool((np.diff(starts) >= 0).all())
        and bool((starts <= total).all())
        and bool((offsets >= 0).all())
        and np.array_equal(np.sort(order_of), np.arange(len(ends)))
        and bool(((ends - lengths >= 0) & (ends <= total)).all())
    )
    if not is_valid:
        raise FormatError(f"a code-block table of tile {number} contradicts its codestream")
    placed = np.empty(len(ends), np.int64)
    placed[order_of] = ends - lengths
    layout = TileLayout(
        number=number, tile=tile, markers=markers, starts=starts, offsets=offsets, total=total
    )
    ordered = np.empty(len(ends), np.uint32)
    ordered[order_of] = lengths
    table = BlockTable(
        planes=planes,
        passes=passes,
        starts=np.concatenate([[0], np.cumsum(each)]).astype(np.uint32),
        offsets=placed,
        lengths=ordered,
        segment_starts=np.concatenate([[0], np.cumsum(each_segment)]).astype(np.uint32)
        if is_segmented
        else np.empty(0, np.uint32),
        segment_passes=segment_passes,
        segment_lengths=segment_lengths,
    )
    return layout, table
