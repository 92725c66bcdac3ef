"""The location of strips and tiles: arrays of offsets and lengths.

A page whose tables are shorter than its grid still opens: strips and tiles without an entry are
unreadable, not absent, so they point beyond the end of the file.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile

from anychunk import limits
from anychunk.codecs.tiff.tile import NONE
from anychunk.errors import FormatError, LimitError
from anychunk.formats.tiff.layout import Layout

type Table = npt.NDArray[np.uint64]
type Page = tifffile.TiffPage | tifffile.TiffFrame

MANY = 1 << 16
"""Tables up to this length are allocated without a check against the file."""
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
    if count > limits.get().chunks:
        raise LimitError(
            f"{layout.where}: {count} strips or tiles, the limit is {limits.get().chunks}"
        )
    if count > MANY and known < count // 2:
        raise FormatError(
            f"{layout.where}: the tags announce {count} strips or tiles, the file has {known}"
        )


def page_table(page: Page, layout: Layout, size: int) -> tuple[Table, Table]:
    """Return the offsets and lengths of a page's strips or tiles, shaped like `layout.file_grid`.

    Length 0 marks those that the file declares absent (sparse files).

    Parameters:
        page: the page, with its tables of offsets and byte counts.
        layout: layout of the page.
        size: length of the file.
    """
    count = math.prod(layout.file_grid)
    offsets = _column(page.dataoffsets, layout)
    lengths = _lengths(page, layout, offsets, size)
    if len(offsets) == 0 and count:
        raise FormatError(
            f"{layout.where}: StripOffsets or TileOffsets are missing, expected {count} entries"
        )
    known = min(len(offsets), len(lengths), count)
    # the common case, without the copies below; matters for tables of millions of tiles
    if known == count and layout.compression != NONE and _is_sound(offsets, lengths, count, size):
        grid = layout.file_grid
        return offsets[:count].reshape(grid), lengths[:count].reshape(grid)
    is_absent = (offsets[:known] == 0) | (lengths[:known] == 0)
    full_offsets = np.full(count, size, np.uint64)
    # without an entry: one byte beyond the end, so that reading it raises TruncatedError
    full_lengths = np.ones(count, np.uint64)
    full_offsets[:known] = np.where(is_absent, 0, offsets[:known])
    # some writers state byte counts that reach beyond the end; decoders need less than that
    room = size - np.minimum(full_offsets[:known], np.uint64(size))
    clipped = np.where(room > 0, np.minimum(lengths[:known], room), lengths[:known])
    full_lengths[:known] = np.where(is_absent, 0, clipped)
    if layout.compression == NONE:
        full_lengths = _exact(full_lengths, layout, is_single=count == 1)
    return full_offsets.reshape(layout.file_grid), full_lengths.reshape(layout.file_grid)


def _is_sound(offsets: Table, lengths: Table, count: int, size: int) -> bool:
    """Return whether every strip or tile is present and inside the file, as in nearly all files."""
    if not count or offsets[:count].max() > size:
        return False
    is_there = (offsets[:count] > 0) & (lengths[:count] > 0)
    return bool((is_there & (lengths[:count] <= size - offsets[:count])).all())


def _column(values: Any, layout: Layout) -> Table:
    """Return a tag's values as an array."""
    if isinstance(values, int):
        values = (values,)
    if isinstance(values, bytes):
        values = tuple(values)  # tags of type BYTE or UNDEFINED
    try:
        return np.asarray(values, np.uint64).reshape(-1)
    except (TypeError, ValueError, OverflowError) as e:
        raise FormatError(
            f"{layout.where}: offsets or byte counts are not unsigned integers ({e})"
        ) from e


def _lengths(page: Page, layout: Layout, offsets: Table, size: int) -> Table:
    """Return byte counts; without the tag, the distance to the next strip or to the end."""
    tags = getattr(page, "tags", None)
    is_missing = tags is not None and not any(code in tags for code in (279, 325, 514))
    if not is_missing or layout.compression == NONE:
        lengths = _column(page.databytecounts, layout)
        return np.resize(lengths, len(offsets)) if is_missing else lengths
    ordered = np.append(np.unique(offsets), np.uint64(size))
    following = ordered[np.searchsorted(ordered, offsets, side="right").clip(max=len(ordered) - 1)]
    return np.where(following > offsets, following - offsets, 0).astype(np.uint64)


def chunk_lengths(layout: Layout) -> Table:
    """Return the lengths of uncompressed strips or tiles, shaped like `layout.file_grid`."""
    grid = layout.file_grid
    full = _unit(layout, layout.chunk_height) * layout.chunk_depth
    lengths = np.full(grid, full, np.uint64)
    if layout.has_short_strip:
        lengths[:, :, -1, :] = _unit(layout, layout.last_height)
    return lengths


def _unit(layout: Layout, rows: int) -> int:
    """Return the bytes of `rows` uncompressed rows of a strip or tile."""
    return layout.tile().stored_bytes(rows) if layout.is_subsampled else layout.row_bytes * rows


def _exact(lengths: Table, layout: Layout, *, is_single: bool) -> Table:
    """Return byte counts of uncompressed data, no longer than the samples take.

    Writers often get the byte count of a single strip wrong, so it is replaced.
    """
    expected = chunk_lengths(layout).reshape(-1)
    if is_single:
        return np.where(lengths > 0, expected, 0).astype(np.uint64)
    return np.minimum(lengths, expected)


def recut(layout: Layout, offsets: Table, lengths: Table, size: int) -> tuple[Layout, Table, Table]:
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


def whole_rows(height: int, row_bytes: int) -> int | None:
    """Return a divisor of `height` for chunks of about `ROWS_BYTES`, or None."""
    most = max(1, min(height, ROWS_BYTES // max(row_bytes, 1)))
    if most == height:
        return height
    return next((n for n in range(most, max(1, most // 8) - 1, -1) if height % n == 0), None)
