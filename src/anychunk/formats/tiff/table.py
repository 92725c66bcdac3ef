"""Where the strips and tiles of pages are: offsets and lengths, as arrays.

A page whose tables are shorter than its grid still opens: what has no entry is unreadable, and not
absent.
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
"""Tables up to this length are made without asking whether the file can fill them."""
ROWS_BYTES = limits.MIB
"""About how long chunks are made where rows lie one after the other, so that any cut is right."""


def check_count(layout: Layout, *, pages: int, known: int) -> None:
    """Hold the strips or tiles that are announced against the entries there are, before tables."""
    count = math.prod(layout.file_grid) * pages
    if count > limits.get().chunks:
        raise LimitError(
            f"{layout.where}: {count} strips or tiles are over the limit of {limits.get().chunks}"
        )
    if count > MANY and known < count // 2:
        raise FormatError(
            f"{layout.where}: {count} strips or tiles are announced, there are {known}"
        )


def page_table(page: Page, layout: Layout, size: int) -> tuple[Table, Table]:
    """Give offsets and lengths in the file's order; length 0 where the file has no data."""
    count = math.prod(layout.file_grid)
    offsets = _column(page.dataoffsets, layout)
    lengths = _lengths(page, layout, offsets, size)
    if len(offsets) == 0 and count:
        raise FormatError(f"{layout.where}: StripOffsets or TileOffsets are missing")
    known = min(len(offsets), len(lengths), count)
    if known == count and layout.compression != NONE and _is_sound(offsets, lengths, count, size):
        grid = layout.file_grid
        return offsets[:count].reshape(grid), lengths[:count].reshape(grid)
    is_absent = (offsets[:known] == 0) | (lengths[:known] == 0)
    full_offsets = np.full(count, size, np.uint64)
    # one byte behind the end: reading a chunk that has no entry says that the file ends before it
    full_lengths = np.ones(count, np.uint64)
    full_offsets[:known] = np.where(is_absent, 0, offsets[:known])
    room = size - np.minimum(full_offsets[:known], np.uint64(size))
    clipped = np.where(room > 0, np.minimum(lengths[:known], room), lengths[:known])
    full_lengths[:known] = np.where(is_absent, 0, clipped)
    if layout.compression == NONE:
        full_lengths = _exact(full_lengths, layout, is_single=count == 1)
    return full_offsets.reshape(layout.file_grid), full_lengths.reshape(layout.file_grid)


def _is_sound(offsets: Table, lengths: Table, count: int, size: int) -> bool:
    """Whether every chunk is there and lies inside the file, as in nearly all of them."""
    if not count or offsets[:count].max() > size:
        return False
    is_there = (offsets[:count] > 0) & (lengths[:count] > 0)
    return bool((is_there & (lengths[:count] <= size - offsets[:count])).all())


def _column(values: Any, layout: Layout) -> Table:
    if isinstance(values, int):
        values = (values,)
    if isinstance(values, bytes):
        values = tuple(values)  # of type BYTE or UNDEFINED
    try:
        return np.asarray(values, np.uint64).reshape(-1)
    except (TypeError, ValueError, OverflowError) as e:
        raise FormatError(f"{layout.where}: offsets or byte counts are no numbers") from e


def _lengths(page: Page, layout: Layout, offsets: Table, size: int) -> Table:
    """Give byte counts; where the tag is missing, up to the next strip or the end."""
    tags = getattr(page, "tags", None)
    is_missing = tags is not None and not any(code in tags for code in (279, 325, 514))
    if not is_missing or layout.compression == NONE:
        lengths = _column(page.databytecounts, layout)
        return np.resize(lengths, len(offsets)) if is_missing else lengths
    ordered = np.append(np.unique(offsets), np.uint64(size))
    following = ordered[np.searchsorted(ordered, offsets, side="right").clip(max=len(ordered) - 1)]
    return np.where(following > offsets, following - offsets, 0).astype(np.uint64)


def chunk_lengths(layout: Layout) -> Table:
    """How long each strip or tile is where it is not compressed."""
    grid = layout.file_grid
    full = _unit(layout, layout.chunk_height) * layout.chunk_depth
    lengths = np.full(grid, full, np.uint64)
    if layout.has_short_strip:
        lengths[:, :, -1, :] = _unit(layout, layout.last_height)
    return lengths


def _unit(layout: Layout, rows: int) -> int:
    return layout.tile().stored_bytes(rows) if layout.is_subsampled else layout.row_bytes * rows


def _exact(lengths: Table, layout: Layout, *, is_single: bool) -> Table:
    """Cut byte counts of uncompressed data to what is there; a single wrong one is not believed."""
    expected = chunk_lengths(layout).reshape(-1)
    if is_single:
        return np.where(lengths > 0, expected, 0).astype(np.uint64)
    return np.minimum(lengths, expected)


def recut(layout: Layout, offsets: Table, lengths: Table, size: int) -> tuple[Layout, Table, Table]:
    """Cut rows that lie one after the other anew, into chunks that are all of one length.

    Tables are (pages, *file_grid). Given back as they are where strips are compressed, have gaps
    or hold less than a strip should.
    """
    if layout.is_tiled or layout.compression != NONE or not layout.is_plain or not offsets.size:
        return layout, offsets, lengths
    expected = chunk_lengths(layout)
    starts = offsets[..., :1, :]
    run = np.concatenate([np.zeros_like(expected[..., :1, :]), expected[..., :-1, :]], axis=-2)
    is_whole = (lengths == expected).all() and (offsets == starts + np.cumsum(run, -2)).all()
    rows = whole_rows(layout.height, layout.row_bytes)
    if not is_whole or rows is None:
        return layout, offsets, lengths
    cut = replace(layout, chunk_height=rows)
    if math.prod(cut.file_grid) > MANY and int((starts + lengths[..., :1, :]).max()) > size:
        return layout, offsets, lengths
    steps = np.arange(cut.file_grid[-2], dtype=np.uint64) * np.uint64(rows * layout.row_bytes)
    offsets = starts + steps[:, None]
    return cut, offsets, np.full(offsets.shape, rows * layout.row_bytes, np.uint64)


def whole_rows(height: int, row_bytes: int) -> int | None:
    """Give a number of rows that divides `height` and makes chunks of about `ROWS_BYTES`."""
    most = max(1, min(height, ROWS_BYTES // max(row_bytes, 1)))
    if most == height:
        return height
    return next((n for n in range(most, max(1, most // 8) - 1, -1) if height % n == 0), None)
