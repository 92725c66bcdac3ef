"""Tables of code-blocks as bytes, for saved indexes."""

import struct
import zlib

import numpy as np

from anychunk.codestream.block_table import (
    MAX_BLOCKS,
    SEGMENTED,
    BlockTable,
    TileLayout,
    count_tile_blocks,
)
from anychunk.codestream.jpeg2000 import MainHeader, TilePart
from anychunk.codestream.packets import read_tile
from anychunk.errors import FormatError

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
