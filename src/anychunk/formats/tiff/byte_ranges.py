"""The location of strips and tiles: arrays of offsets and lengths.

A page whose tables are shorter than its grid still opens: strips and tiles without an entry are
unreadable, not absent, so they point beyond the end of the file.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import tifffile

from anychunk import limits
from anychunk.codecs.tiff.tile import DEFLATE, LZW, NONE
from anychunk.errors import FormatError
from anychunk.formats._pieces import LEAST
from anychunk.formats.tiff.layout import Layout
from anychunk.formats.tiff.tifffile_source import source_file
from anychunk.model.fronts import WHOLE, Front
from anychunk.model.index import Uint64

type Page = tifffile.TiffPage | tifffile.TiffFrame

MANY = 1 << 16
"""Tables up to this length are allocated without a check against the file."""
PIECE = 1 << 20
"""Entries of a table that are checked at a time, so that temporary arrays stay small."""
OFFSETS, BYTE_COUNTS = (324, 273), (325, 279)
"""Tags of the tables, those of tiles first."""
ROWS_BYTES = limits.MIB
"""Target size of chunks where rows are contiguous in the file, so that any cut is possible."""


def check_count(layout: Layout, *, pages: int, known: int) -> None:
    """Check the number of strips or tiles of all pages, before tables are allocated for them.

    Parameters:
        layout: layout of the pages.
        pages: number of pages.
        known: number of strips or tiles that the file has entries for.
    """
    count = math.prod(layout.file_grid) * pages
    limits.check_table(count, where=layout.where)
    if count > MANY and known < count // 2:
        raise FormatError(
            f"{layout.where}: the tags announce {count} strips or tiles, the file has {known}"
        )


def page_table(page: Page, layout: Layout, size: int) -> tuple[Uint64, Uint64]:
    """Return the offsets and lengths of a page's strips or tiles, shaped like `layout.file_grid`.

    Length 0 marks those that the file declares absent (sparse files): their byte count is 0, except
    for that of the only strip if it has an offset, or the page has no data at all. An offset of 0
    with a byte count, beside others that have data, is damage; so is a byte count longer than the
    file. Those cannot be read.

    Parameters:
        page: the page, with its tables of offsets and byte counts.
        layout: layout of the page.
        size: length of the file.
    """
    count = math.prod(layout.file_grid)
    offsets = _offsets(page, layout, count)
    lengths = _lengths(page, layout, offsets, size)
    if len(offsets) == 0 and count:
        raise FormatError(
            f"{layout.where}: StripOffsets or TileOffsets are missing, expected {count} entries"
        )
    known = min(len(offsets), len(lengths), count)
    if known == count == 1 and not layout.is_tiled and not lengths[0] and 0 < offsets[0] < size:
        # the only strip, and not absent: as in libtiff, it may reach to the end of the file
        lengths[0] = np.uint64(size) - offsets[0]
    # the common case, without the work below; matters for tables of millions of tiles
    if known == count and _is_sound(offsets, lengths, count, size):
        if layout.compression == NONE:
            _limit_to_samples(lengths[:count], layout, is_single=count == 1)
        grid = layout.file_grid
        return offsets[:count].reshape(grid), lengths[:count].reshape(grid)
    # a table of another length than that of the page is damaged: its zeros do not say that
    has_data = bool(offsets[:known].any()) or _stated_length(page) not in (None, count)
    if known == count:
        full_offsets, full_lengths = offsets[:count], lengths[:count]
    else:
        full_offsets = np.full(count, size, np.uint64)
        # without an entry: one byte beyond the end, so that reading it raises TruncatedError
        full_lengths = np.ones(count, np.uint64)
        full_offsets[:known], full_lengths[:known] = offsets[:known], lengths[:known]
    del offsets, lengths
    # one of several byte counts that is longer than the file: the table itself is damaged
    most = max(size, 4 * _unit(layout, layout.chunk_height) * layout.chunk_depth)
    for start in range(0, known, PIECE):
        piece = slice(start, min(start + PIECE, known))
        _mend(
            full_offsets[piece],
            full_lengths[piece],
            size,
            most=most if known > 1 else None,
            has_data=has_data,
        )
    if layout.compression == NONE:
        _limit_to_samples(full_lengths, layout, is_single=count == 1)
    return full_offsets.reshape(layout.file_grid), full_lengths.reshape(layout.file_grid)


def _mend(offsets: Uint64, lengths: Uint64, size: int, *, most: int | None, has_data: bool) -> None:
    """Mark absent and lost strips or tiles, in place.

    Parameters:
        offsets, lengths: a part of the tables.
        size: length of the file.
        most: the longest byte count that can be right; None: any.
        has_data: whether the page has any data.
    """
    is_absent = lengths == 0
    is_lost = (offsets == 0) & ~is_absent
    if not has_data:
        is_absent, is_lost = np.ones_like(is_absent), np.zeros_like(is_lost)
    if most is not None:
        is_lost |= lengths > most
    offsets[is_absent] = 0
    offsets[is_lost] = size
    # some writers state byte counts that reach beyond the end; decoders need less than that
    room = size - np.minimum(offsets, np.uint64(size))
    np.copyto(lengths, np.minimum(lengths, room), where=room > 0)
    lengths[is_absent] = 0


def _is_sound(offsets: Uint64, lengths: Uint64, count: int, size: int) -> bool:
    """Return whether every strip or tile is present and inside the file, as in nearly all files."""
    for start in range(0, count, PIECE):
        piece = slice(start, min(start + PIECE, count))
        first, length = offsets[piece], lengths[piece]
        if first.max() > size or not first.min() or not length.min():
            return False
        if not (length <= size - first).all():
            return False
    return count > 0


def table_length(page: Page) -> int:
    """Return the number of strips or tiles that a page has offsets for."""
    file = source_file(page)
    entry = None if file is None else file.table(page.offset, OFFSETS)
    return len(page.dataoffsets) if entry is None else entry.number


def _stated_length(page: Page) -> int | None:
    """Return how many offsets a page's own tag has, None if it has no tags (tifffile cuts them)."""
    tags = getattr(page, "tags", None) or {}
    return next((tags[code].count for code in (273, 324) if code in tags), None)


def _offsets(page: Page, layout: Layout, count: int) -> Uint64:
    """Return up to `count` offsets of a page."""
    file = source_file(page)
    entry = None if file is None else file.table(page.offset, OFFSETS)
    if file is None or entry is None:
        return _column(page.dataoffsets, layout)
    return file.values(entry, count)


def _column(values: Any, layout: Layout) -> Uint64:
    """Return a tag's values as a new array."""
    if isinstance(values, int):
        values = (values,)
    if isinstance(values, bytes):
        values = tuple(values)  # tags of type BYTE or UNDEFINED
    try:
        return np.array(values, np.uint64).reshape(-1)
    except (TypeError, ValueError, OverflowError) as e:
        raise FormatError(
            f"{layout.where}: offsets or byte counts are not unsigned integers ({e})"
        ) from e


def _lengths(page: Page, layout: Layout, offsets: Uint64, size: int) -> Uint64:
    """Return byte counts; without the tag, the distance to the next strip or to the end."""
    tags = getattr(page, "tags", None)
    is_missing = tags is not None and not any(code in tags for code in (279, 325, 514))
    file = source_file(page)
    entry = None if file is None else file.table(page.offset, BYTE_COUNTS)
    if file is not None and entry is not None:
        return file.values(entry, len(offsets))
    if is_missing and len(offsets) > (layout.bands if layout.is_planar else 1):
        # TIFF 6.0 requires them; libtiff too, unless there is one strip or tile
        raise FormatError(
            f"{layout.where}: StripByteCounts or TileByteCounts of page {page.index} is missing, "
            f"which has {len(offsets)} strips or tiles"
        )
    if not is_missing or layout.compression == NONE:
        lengths = _column(page.databytecounts, layout)
        return np.resize(lengths, len(offsets)) if is_missing else lengths
    ordered = np.append(np.unique(offsets), np.uint64(size))
    following = ordered[np.searchsorted(ordered, offsets, side="right").clip(max=len(ordered) - 1)]
    return np.where(following > offsets, following - offsets, 0).astype(np.uint64)


def chunk_lengths(layout: Layout) -> Uint64:
    """Return the lengths of uncompressed strips or tiles, shaped like `layout.file_grid`."""
    grid = layout.file_grid
    lengths = np.full(grid, _full_length(layout), np.uint64)
    if layout.has_short_strip:
        lengths[:, :, -1, :] = _unit(layout, layout.last_height)
    return lengths


def _full_length(layout: Layout) -> int:
    """Return the bytes of an uncompressed strip or tile."""
    full = _unit(layout, layout.chunk_height) * layout.chunk_depth
    if full >= 1 << 63:
        raise FormatError(f"{layout.where}: a strip or tile of {full} bytes, expected below 2**63")
    return full


def _unit(layout: Layout, rows: int) -> int:
    """Return the bytes of `rows` uncompressed rows of a strip or tile."""
    return layout.tile().stored_bytes(rows) if layout.is_subsampled else layout.row_bytes * rows


def _limit_to_samples(lengths: Uint64, layout: Layout, *, is_single: bool) -> None:
    """Limit byte counts of uncompressed data to what the samples take, in place.

    Writers often get the byte count of a single strip wrong, so it is replaced.
    """
    if layout.has_short_strip:
        expected: Uint64 | np.uint64 = chunk_lengths(layout).reshape(-1)
    else:
        expected = np.uint64(_full_length(layout))
    if is_single:
        np.copyto(lengths, expected, where=lengths > 0)
    else:
        np.minimum(lengths, expected, out=lengths)


def recut(
    layout: Layout, offsets: Uint64, lengths: Uint64, size: int
) -> tuple[Layout, Uint64, Uint64]:
    """Divide contiguous uncompressed strips into chunks of equal length.

    Strips often have one row, or a last strip that is shorter. Tables are returned unchanged if
    strips are compressed, have gaps between them or are too short.

    Parameters:
        layout: layout of the pages.
        offsets, lengths: byte ranges of the strips, shaped (pages, *file_grid).
        size: length of the file.
    """
    if layout.is_tiled or layout.compression != NONE or not layout.is_plain or not offsets.size:
        return layout, offsets, lengths
    expected = chunk_lengths(layout)
    starts = offsets[..., :1, :]
    # row of strips n must begin where the first n strips of its column end
    run = np.concatenate([np.zeros_like(expected[..., :1, :]), expected[..., :-1, :]], axis=-2)
    is_whole = (lengths == expected).all() and (offsets == starts + np.cumsum(run, -2)).all()
    rows = whole_rows(layout.height, layout.row_bytes)
    if not is_whole or rows is None:
        return layout, offsets, lengths
    cut = replace(layout, chunk_height=rows)
    # a truncated file keeps its few long strips: no larger table for data that does not exist
    if math.prod(cut.file_grid) > MANY and int((starts + lengths[..., :1, :]).max()) > size:
        return layout, offsets, lengths
    steps = np.arange(cut.file_grid[-2], dtype=np.uint64) * np.uint64(rows * layout.row_bytes)
    offsets = starts + steps[:, None]
    return cut, offsets, np.full(offsets.shape, rows * layout.row_bytes, np.uint64)


STREAMS = {LZW: "lzw", **dict.fromkeys(DEFLATE, "zlib")}
"""Compressions of strips that can be cut, as `anychunk.piece` names them."""


def divide(layout: Layout, table: Uint64) -> tuple[Layout, dict[str, Any]]:
    """Divide long compressed strips into chunks that are pieces of their streams.

    Parameters:
        layout: layout of the pages.
        table: a table of the strips, shaped (pages, *file_grid).

    Returns:
        the layout of the pieces, and the fronts and front ids of all chunks, with the number of
        pieces per strip as `repeats`; the same layout and nothing, if strips are not divided.
    """
    rows = piece_rows(layout)
    if rows is None or not table.size:
        return layout, {}
    strips, per_strip = layout.file_grid[-2], -(-layout.chunk_height // rows)
    cut = replace(layout, chunk_height=rows, compression=NONE, stream=STREAMS[layout.compression])
    unique: dict[bytes, int] = {}
    ids = []
    for strip in range(strips):
        height = layout.last_height if strip == strips - 1 else layout.chunk_height
        stop = height * layout.row_bytes
        for first in range(0, height, rows):
            start, count = first * layout.row_bytes, min(rows, height - first)
            nbytes = count * layout.row_bytes
            front = Front(WHOLE, start, nbytes, nbytes, stop).pack()
            ids.append(unique.setdefault(front, len(unique)))
    along = np.array(ids, np.uint32).reshape(-1, 1)
    shape = (*table.shape[:-2], *along.shape)
    return cut, {
        "repeats": per_strip,
        "fronts": tuple(unique),
        "front_ids": np.broadcast_to(along, shape),
    }


def piece_rows(layout: Layout) -> int | None:
    """Return how many rows the pieces of a strip have; None if strips are not divided."""
    strip = layout.row_bytes * layout.chunk_height
    if (
        layout.is_tiled
        or layout.compression not in STREAMS
        or layout.is_volume
        or layout.fill_order != 1
        or layout.is_subsampled
        or strip < 2 * LEAST
    ):
        return None
    least, height = -(-LEAST // layout.row_bytes), layout.chunk_height
    even = next((n for n in range(least, min(8 * least, height)) if height % n == 0), None)
    if layout.file_grid[-2] > 1:
        return even  # chunks must not extend over two strips
    return even if even is not None and even < 2 * least else least


def whole_rows(height: int, row_bytes: int) -> int | None:
    """Return a divisor of `height` for chunks of about `ROWS_BYTES`, or None."""
    most = max(1, min(height, ROWS_BYTES // max(row_bytes, 1)))
    if most == height:
        return height
    return next((n for n in range(most, max(1, most // 8) - 1, -1) if height % n == 0), None)
