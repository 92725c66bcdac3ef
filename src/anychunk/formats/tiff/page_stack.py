"""Pages of one layout stacked into arrays: the axes of the series, then those of a page."""

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile

from anychunk import limits
from anychunk.codecs.tiff.tile import OLD_JPEG, YCBCR
from anychunk.errors import AnychunkError, FormatError, UnsupportedError
from anychunk.formats._side_files import as_mask
from anychunk.formats.tiff.axes import Arrangement, arrangement
from anychunk.formats.tiff.byte_ranges import (
    Page,
    check_count,
    divide,
    page_table,
    recut,
    table_length,
)
from anychunk.formats.tiff.directory import (
    JPEG_TABLES,
    Entry,
    check_entries,
    form_of,
    has_directory,
    page_entries,
)
from anychunk.formats.tiff.layout import JPEG, Layout, page_layout, subsampling
from anychunk.io.source import Source
from anychunk.model.grid import Shape
from anychunk.model.index import WHOLE, ArrayIndex, ByteRanges, Json, Uint64

# Which pages of a series have the layout of its first page.
#
# tifffile puts pages into one series although their JPEG tables, fax options or chroma
# subsampling differ. In a long series it inspects only a few pages and reads no more than the
# byte offsets of the others. So the tags that decide how samples are decoded are compared here,
# directory by directory.


DECODING_TAGS = {
    256, 257, 258, 259, 262, 266, 277, 278, 284, 292, 317, 322, 323, 338, 339, JPEG_TABLES, 529,
    530, 532, 32997, 32998, 65007, 65008, 65009,
}  # fmt: skip
"""Tags that decide how samples are decoded."""
MAX_VALUE_BYTES = 1 << 16
"""Longer values are compared by their offset, not by their content."""

type Signature = tuple[Entry, ...]
"""The decoding tags of a page, with the values that are stored elsewhere."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MatchedPage:
    """One page of a series, compared with the first."""

    page: Page | None
    """The page; None if the series has no page at this position."""
    layout: Layout | None
    """The layout of the page; None: that of the first page of the series."""
    tables: bytes | None = None
    """The page's own JPEG tables."""
    error: UnsupportedError | None = None
    """Why its layout is not supported."""


def match_pages(
    pages: Sequence[Page | None], keyframe: tifffile.TiffPage, layout: Layout
) -> list[MatchedPage]:
    """Return every page, with its layout if that differs from the first page's.

    Parameters:
        pages: pages of the series.
        keyframe: the page that tifffile takes as the model of the series.
        layout: layout of `keyframe`.
    """
    model = None if all(page is keyframe for page in pages) else _signature(keyframe, layout)
    if model is None:
        return [MatchedPage(page=page, layout=None) for page in pages]
    # pages with equal signatures share a layout: a stack of thousands has one or two signatures
    seen: dict[Signature, Layout | UnsupportedError | None] = {model[0]: None}
    found: list[MatchedPage] = []
    for page in pages:
        own = model if page is keyframe else None if page is None else _signature(page, layout)
        if page is None or own is None:
            found.append(MatchedPage(page=page, layout=None, tables=model[1]))
            continue
        signature, tables = own
        if signature not in seen:
            seen[signature] = _other_layout(page, layout)
        other = seen[signature]
        if isinstance(other, UnsupportedError):
            found.append(MatchedPage(page=page, layout=None, error=other))
        else:
            found.append(MatchedPage(page=page, layout=other, tables=tables))
    return found


def _other_layout(page: Page, layout: Layout) -> Layout | UnsupportedError | None:
    """Return the layout of a page whose tags differ; None if it equals `layout` after all."""
    try:
        other = page_layout(page.aspage(), _where(page, layout))
    except UnsupportedError as e:
        return e
    is_same = without_tables(replace(other, where=layout.where)) == without_tables(layout)
    return None if is_same else other


def without_tables(layout: Layout) -> Layout:
    """Return `layout` without its JPEG tables."""
    kept = tuple((key, value) for key, value in layout.configuration if key != "jpeg_tables")
    return replace(layout, configuration=kept)


def _signature(page: Page, layout: Layout) -> tuple[Signature, bytes | None] | None:
    """Return the decoding tags of a page and its JPEG tables; None if it has no directory.

    Raises `FormatError` if one of its structural tags cannot be read.
    """
    if page.parent.tiff.is_ndpi or not has_directory(page):
        return None
    where = _where(page, layout)
    entries = page_entries(page, where)
    check_entries(entries, form_of(page), where)
    found = list(_with_values(entries, page))
    tables = next((entry.value for entry in found if entry.code == JPEG_TABLES), None)
    return tuple(entry for entry in found if entry.code != JPEG_TABLES), tables


def _where(page: Page, layout: Layout) -> str:
    return f"{layout.where.rpartition(' page ')[0]} page {page.index}"


def _with_values(entries: Sequence[Entry], page: Page) -> Iterator[Entry]:
    """Yield the decoding tags, with the values that are stored elsewhere."""
    file, form = page.parent.filehandle, form_of(page)
    for entry in entries:
        code, kind, number, value = entry
        if code in DECODING_TAGS:
            length = entry.length
            if len(value) < length <= MAX_VALUE_BYTES:
                file.seek(form.number(value))
                value = file.read(length)
            yield Entry(code, kind, number, value[:length])


AXES = {"T": "t", "C": "c", "Z": "z", "I": "page", "Q": "other", "S": "sample", "Y": "y", "X": "x"}
"""Axis names by tifffile's letters; other letters get tifffile's name."""
NO_TABLES = b"\xff\xd8\xff\xd9"
"""An empty stream of JPEG tables."""


@dataclass(frozen=True, kw_only=True)
class Plane:
    """One page of a stack."""

    page: Page | None
    """The page; None if it is declared but missing, or if its file is missing."""
    file: int = 0
    """Number of the source that contains the page."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Stack:
    """Pages that share a layout, in C order over the leading axes."""

    layout: Layout
    keyframe: tifffile.TiffPage
    axes: tuple[str, ...]
    """Names of the leading axes."""
    sizes: Shape
    """Sizes of the leading axes."""
    planes: Sequence[Plane | None]
    """The pages; None where the file declares no page."""
    run: int | None = None
    """Offset of the first page if the samples of all pages are contiguous: there may be fewer
    directories than pages (ImageJ)."""
    tables: tuple[bytes | None, ...] = ()
    """JPEG tables of each plane, if they differ."""

    @cached_property
    def arrangement(self) -> Arrangement:
        """The axes of the images that the stack consists of."""
        return arrangement(self.axes, self.sizes, self.layout)


def series_stacks(level: Any, where: str) -> tuple[list[Stack], list[AnychunkError]]:
    """Return the stack of one level of a series, or several stacks if its pages differ in layout.

    Also returns the errors of the pages that are refused.
    """
    keyframe = level.keyframe
    layout = page_layout(keyframe, f"{where} page {keyframe.index}")
    pages = list(level._pages)  # noqa: SLF001 - indexing would read directories that may not exist
    matched = match_pages(pages, keyframe, layout)
    if any(m.layout is not None or m.error is not None for m in matched):
        return _stacks_by_layout(matched, keyframe, layout)
    stack = series_stack(level, pages, layout)
    return [_with_tables(stack, [m.tables for m in matched])], []


def series_stack(level: Any, pages: Sequence[Page | None], layout: Layout) -> Stack:
    """Return the stack of the pages of a series, all with the same layout."""
    size = math.prod(layout.shape)
    total = math.prod(int(n) for n in level.shape)
    # tifffile knows the offset of the first page if the pages are contiguous
    run = level.dataoffset if layout.is_plain and not layout.is_volume and size else None
    count = total // size if run and size else len(pages)
    names, sizes = leading_axes(level.axes, tuple(int(n) for n in level.shape), count, size)
    planes = [None if page is None else Plane(page=page) for page in pages]
    return Stack(
        layout=layout,
        keyframe=level.keyframe,
        axes=names,
        sizes=sizes,
        planes=planes,
        run=run or None,
    )


def _stacks_by_layout(
    matched: Sequence[MatchedPage], keyframe: tifffile.TiffPage, layout: Layout
) -> tuple[list[Stack], list[AnychunkError]]:
    """Return one stack per layout, and the errors of the pages that are refused."""
    if any(m.page is None for m in matched):
        raise UnsupportedError(
            f"{layout.where}: an image with both missing pages and pages of different layouts "
            "is not supported"
        )
    groups: dict[Layout, list[MatchedPage]] = {}
    for one in matched:
        if one.error is None:
            groups.setdefault(without_tables(one.layout or layout), []).append(one)
    stacks = []
    for group in groups.values():
        first = group[0]
        own = layout if first.layout is None else first.layout
        page = keyframe if first.page is None or first.layout is None else first.page.aspage()
        stack = Stack(
            layout=own,
            keyframe=page,
            axes=("page",) if len(group) > 1 else (),
            sizes=(len(group),) if len(group) > 1 else (),
            planes=[Plane(page=one.page) for one in group],
        )
        stacks.append(_with_tables(stack, [one.tables for one in group]))
    return stacks, list(dict.fromkeys(m.error for m in matched if m.error is not None))


def _with_tables(stack: Stack, tables: Sequence[bytes | None]) -> Stack:
    """Store JPEG tables per plane if they differ.

    The codec's configuration holds one set for the whole array; others are put in front of the
    chunks.
    """
    if stack.layout.compression != JPEG or len(set(tables)) == 1:
        return stack
    plain = without_tables(stack.layout)
    in_front = replace(plain, configuration=(*plain.configuration, ("jpeg_tables", "")))
    return replace(stack, layout=in_front, tables=tuple(tables))


def page_stack(page: tifffile.TiffPage, where: str) -> Stack:
    """Return the stack of a single page, which `where` names."""
    layout = page_layout(page, where)
    return Stack(layout=layout, keyframe=page, axes=(), sizes=(), planes=[Plane(page=page)])


def leading_axes(
    axes: str, shape: Shape, count: int, page_size: int
) -> tuple[tuple[str, ...], Shape]:
    """Return names and sizes of the axes that pages are stacked along, without those of size 1.

    Parameters:
        axes: tifffile's letters of the axes of the series.
        shape: shape of the series.
        count: number of pages.
        page_size: number of samples per page.
    """
    # tifffile does not say how many of the axes are within a page: the sizes must multiply to it
    for cut in range(len(shape) + 1):
        if math.prod(shape[:cut]) == count and math.prod(shape[cut:]) == page_size:
            kept = [
                (letter, n) for letter, n in zip(axes[:cut], shape[:cut], strict=True) if n != 1
            ]
            break
    else:
        kept = [("I", count)] if count != 1 else []
    names: list[str] = []
    for letter, _ in kept:
        # names must be unique within the array
        name = AXES.get(letter) or tifffile.TIFF.AXES_NAMES.get(letter, letter.lower())
        names.append(name if name not in (*names, "y", "x") else f"{name}_{len(names)}")
    return tuple(names), tuple(n for _, n in kept)


def stack_arrays(stack: Stack, sources: Sequence[Source], *, fill_value: Json) -> list[ArrayIndex]:
    """Return the arrays of a stack: one, or several if its axes are more than an image has.

    Parameters:
        stack: the pages.
        sources: sources of the files, as `Plane.file` numbers them.
        fill_value: fill value of the arrays.
    """
    # tables are (planes, separate bands, z, y, x) until they are reordered below
    layout, offsets, lengths = _tables(stack, sources)
    layout, offsets, lengths = recut(layout, offsets, lengths, sources[0].size())
    layout, fronts = divide(layout, offsets)
    if fronts:
        repeats, rows = fronts.pop("repeats"), layout.file_grid[-2]
        offsets = np.repeat(offsets, repeats, axis=-2)[..., :rows, :]
        lengths = np.repeat(lengths, repeats, axis=-2)[..., :rows, :]
    elif layout.compression == OLD_JPEG:
        layout, fronts = _old_jpeg(stack, layout, sources, offsets, lengths)
    elif header := getattr(stack.keyframe, "jpegheader", None):
        # NDPI: a page is one JPEG stream, whose restart intervals are the tiles without its header
        headers = [getattr(p.page, "jpegheader", None) if p else None for p in stack.planes]
        fronts = _page_fronts(headers, header, offsets)
    elif stack.tables:
        fronts = _page_fronts(stack.tables, NO_TABLES, offsets)
    ids = [p.file if p is not None else 0 for p in stack.planes]
    if any(ids):
        per_plane = np.array(ids, np.uint8 if max(ids) < 256 else np.uint32)
        fronts["url_ids"] = np.broadcast_to(per_plane.reshape((-1,) + (1,) * 4), offsets.shape)
    limits.check_chunk(math.prod(layout.chunk_shape) * layout.dtype.itemsize, where=layout.where)
    axes = stack.arrangement
    if layout is not stack.layout:
        axes = replace(axes, layout=layout)
    tables = {"offsets": offsets, "lengths": lengths, **fronts}
    arrays = []
    for part in axes.parts():
        own = {
            name: axes.table(table, part) if isinstance(table, np.ndarray) else table
            for name, table in tables.items()
        }
        arrays.append(
            ArrayIndex(
                shape=axes.shape,
                chunk_shape=axes.chunk_shape,
                data_type=layout.dtype.name,
                codecs=array_codecs(axes),
                chunks=ByteRanges(urls=tuple(source.url for source in sources), **own),
                fill_value=fill_value,
                dimension_names=axes.names,
            )
        )
    return arrays


def mask_array(stack: Stack, sources: Sequence[Source]) -> ArrayIndex:
    """Return the array of a mask, uint8: 255 where a pixel is valid."""
    fill = False if stack.layout.dtype == bool else 0
    return as_mask(stack_arrays(stack, sources, fill_value=fill)[0])


def array_codecs(axes: Arrangement) -> tuple[Json, ...]:
    """Return the codecs of an array, with a transposition where samples are in another order."""
    layout = axes.layout
    order = axes.stored_order(is_interleaved=layout.is_portable)
    codecs = layout.codecs()
    if order is None:
        return codecs
    return ({"name": "transpose", "configuration": {"order": order}}, *codecs)


def _tables(stack: Stack, sources: Sequence[Source]) -> tuple[Layout, Uint64, Uint64]:
    """Return offsets and lengths of all planes, shaped (planes, *file_grid)."""
    layout = stack.layout
    if stack.run is not None:
        # contiguous uncompressed pages: each one is a single strip, which `recut` may divide
        layout = replace(
            layout, is_tiled=False, chunk_width=layout.width, chunk_height=layout.height
        )
        count = math.prod(stack.sizes)
        nbytes = layout.row_bytes * layout.height
        if stack.run + count * nbytes >= 1 << 63:
            raise FormatError(
                f"{layout.where}: {count} pages of {nbytes} bytes, the object has "
                f"{sources[0].size()} bytes"
            )
        room = max(0, sources[0].size() - stack.run) // max(nbytes, 1)
        check_count(layout, pages=count, known=room)
        grid = (count, *layout.file_grid)
        offsets = np.arange(math.prod(grid), dtype=np.uint64) * np.uint64(nbytes)
        offsets += np.uint64(stack.run)
        lengths = np.full(grid, nbytes, np.uint64)
        return layout, offsets.reshape(grid), lengths
    sizes = [source.size() for source in sources]
    known = sum(table_length(p.page) for p in stack.planes if p is not None and p.page)
    check_count(layout, pages=len(stack.planes), known=known)
    if len(stack.planes) == 1 and (only := stack.planes[0]) is not None and only.page is not None:
        # a table of one page may be large: it is not copied
        first, second = page_table(only.page, layout, sizes[only.file])
        return layout, first[None], second[None]
    shape = (len(stack.planes), *layout.file_grid)
    offsets, lengths = np.zeros(shape, np.uint64), np.zeros(shape, np.uint64)
    for i, plane in enumerate(stack.planes):
        if plane is None:
            continue
        if plane.page is None and plane.file == 0:
            # declared but missing: one byte beyond the end, so that reading raises TruncatedError
            offsets[i], lengths[i] = sizes[0], 1
            continue
        if plane.page is None:
            lengths[i] = WHOLE  # a missing file: reading the chunk raises an error that names it
            continue
        offsets[i], lengths[i] = page_table(plane.page, layout, sizes[plane.file])
    return layout, offsets, lengths


def _old_jpeg(
    stack: Stack, layout: Layout, sources: Sequence[Source], offsets: Uint64, lengths: Uint64
) -> tuple[Layout, dict[str, Any]]:
    """Return the layout of an old-style JPEG page, and its tables and headers."""
    if len(stack.planes) != 1:
        raise FormatError(
            f"{layout.where}: {len(stack.planes)} pages of old-style JPEG in one array, expected 1"
        )
    source, page = sources[0], stack.keyframe
    found = interchange_stream(page, layout, source, offsets, lengths)
    if found is not None:
        whole = replace(layout, chunk_width=layout.width, chunk_height=layout.height)
        start, length = (np.full((1, *whole.file_grid), n, np.uint64) for n in found)
        return whole, {"offsets": start, "lengths": length}
    if are_whole_streams(source, offsets, lengths, layout):
        kept = tuple((k, v) for k, v in layout.configuration if k == "jpeg_tables")
        return replace(layout, compression=JPEG, configuration=kept), {}
    headers, ids = fronts(page, layout, source, offsets)
    return layout, {"fronts": headers, "front_ids": ids}


def _page_fronts(headers: Sequence[bytes | None], other: bytes, offsets: Uint64) -> dict[str, Any]:
    """Return the fronts that put the header of each page before all of its tiles."""
    unique = tuple(dict.fromkeys(h or other for h in headers))
    ids = np.array([unique.index(h or other) for h in headers], np.uint32)
    spread = np.broadcast_to(ids.reshape((-1,) + (1,) * 4), offsets.shape)
    return {"fronts": unique, "front_ids": spread}


# Old-style JPEG (compression 6): the header missing from each strip, built from the page's tags.
#
# Spec: TIFF 6.0 section 22, as libtiff reads it: each strip is one restart interval, and
# JPEGQTables,
#       JPEGDCTables and JPEGACTables are offsets of the tables. ITU-T T.81 annex B for the
#       markers.

SOI, SOF0, SOF1 = b"\xff\xd8", b"\xff\xc0", b"\xff\xc1"
DHT, DQT, SOS = b"\xff\xc4", b"\xff\xdb", b"\xff\xda"
INTERCHANGE, INTERCHANGE_LENGTH = 513, 514
HEADER_BYTES = 1 << 16
"""Bytes of a stream in which its scan must begin: tables take a few hundred, metadata more."""
Q_TABLES, DC_TABLES, AC_TABLES = 519, 520, 521


def are_whole_streams(source: Source, offsets: Uint64, lengths: Uint64, layout: Layout) -> bool:
    """Return whether each strip or tile is a complete JPEG stream, by the first and the last."""
    present = np.flatnonzero(lengths)
    if not present.size:
        return False
    ends = [_peek(source, int(offsets.flat[i])) == SOI for i in {present[0], present[-1]}]
    if any(ends) and not all(ends):
        raise UnsupportedError(
            f"{layout.where}: old-style JPEG of which only some strips or tiles begin with SOI is "
            "not supported"
        )
    return all(ends)


def interchange_stream(
    page: tifffile.TiffPage, layout: Layout, source: Source, offsets: Uint64, lengths: Uint64
) -> tuple[int, int] | None:
    """Return offset and length of the JPEG stream that holds the whole page, or None.

    JPEGInterchangeFormat points at it. Some writers let the strip begin inside the header of its
    scan, so that it cannot be decoded on its own. As libtiff does, the stream is decoded then.
    """
    start = _offset(page)
    if start is None or not offsets.size or layout.is_tiled or layout.is_planar:
        return None
    header = _header(source, start)
    if header is None:
        return None
    length = page.tags.valueof(INTERCHANGE_LENGTH)
    length = length[0] if isinstance(length, tuple) and len(length) == 1 else length
    end = start + length if isinstance(length, int) else 0
    first, last = int(offsets.flat[0]), int((offsets + lengths).max())
    # a stream of tables ends before the strips; one of the whole page contains them, but for EOI
    if not start < first < header.end and not (start < first and end + 2 >= last):
        return None
    if (header.rows, header.columns, header.bands) != (layout.height, layout.width, layout.bands):
        raise UnsupportedError(
            f"{layout.where}: the JPEG stream at {start} has {header.bands} bands of {header.rows} "
            f"x {header.columns}, expected {layout.bands} of {layout.height} x {layout.width}"
        )
    return start, min(max(end, last), source.size()) - start


def _offset(page: tifffile.TiffPage) -> int | None:
    """Return JPEGInterchangeFormat."""
    start = page.tags.valueof(INTERCHANGE)
    start = start[0] if isinstance(start, tuple) and len(start) == 1 else start
    return start if isinstance(start, int) else None


@dataclass(frozen=True)
class _Header:
    """What the segments in front of a scan say."""

    rows: int
    columns: int
    bands: int
    end: int
    """Where the entropy-coded data begin; 0 if there is no scan."""


def _header(source: Source, start: int) -> _Header | None:
    """Return the header of the JPEG stream at `start`; None if there is none that is complete."""
    found = _segments(source, start)
    return found if found is not None and found.rows and found.end else None


def _segments(source: Source, start: int) -> _Header | None:
    """Return what the segments at `start` say, as far as they go; None if there is no stream."""
    data = _peek(source, start, HEADER_BYTES)
    if data[:2] != SOI:
        return None
    at, rows, columns, bands = 2, 0, 0, 0
    while at + 4 <= len(data) and data[at] == 0xFF:
        if data[at + 1] == 0xFF:
            at += 1  # fill bytes may precede a marker (T.81 B.1.1.2)
            continue
        marker, length = data[at : at + 2], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in (SOF0, SOF1) and at + 10 <= len(data):
            rows, columns, bands = struct.unpack(">HHB", data[at + 5 : at + 10])
        at += 2 + length
        if marker == SOS:
            return _Header(rows, columns, bands, start + at)
    return _Header(rows, columns, bands, 0)


def _peek(source: Source, offset: int, length: int = 2) -> bytes:
    """Return up to `length` bytes, fewer at the end of the file."""
    room = max(0, source.size() - offset)
    return source.read(offset, min(length, room)).tobytes() if room else b""


def fronts(
    page: tifffile.TiffPage, layout: Layout, source: Source, offsets: Uint64
) -> tuple[tuple[bytes, ...], npt.NDArray[np.uint8]]:
    """Return the distinct headers, and for each strip the number of the header it needs."""
    if layout.is_planar or layout.bands not in (1, 3):
        kind = "separate planes" if layout.is_planar else "strips or tiles"
        raise UnsupportedError(
            f"{layout.where}: old-style JPEG in {kind} of {layout.bands} bands is not supported; "
            "supported: strips and tiles of 1 or 3 bands"
        )
    _check_width(page, layout, source)
    tables = _old_tables(page, layout, source)
    found: dict[bytes, int] = {}
    ids = np.zeros(offsets.shape, np.uint8)
    last = offsets.size - 1
    for i, offset in enumerate(offsets.reshape(-1).tolist()):
        # the last strip is shorter, tiles are whole
        rows = layout.last_height if i == last and not layout.is_tiled else layout.chunk_height
        header = SOI + tables + _frame(page, layout, rows)
        if _peek(source, offset) != SOS:
            header += _scan(page, layout)
        ids.flat[i] = found.setdefault(header, len(found))
    return tuple(found), ids


def _check_width(page: tifffile.TiffPage, layout: Layout, source: Source) -> None:
    """Raise `FormatError` if a frame beside the tables has another width than the page.

    The samples of a strip follow each other without marks: with another number of units per row,
    every row would begin at a wrong place. libtiff compares the widths, too (tif_ojpeg.c).
    """
    start = _offset(page)
    header = None if start is None else _segments(source, start)
    if header is None or not header.rows or layout.is_tiled:
        return
    across = subsampling(page, (2, 2), layout.where)[0] if layout.photometric == YCBCR else 1
    unit = 8 * max(1, across)
    if header.columns < layout.width or -(-header.columns // unit) != -(-layout.width // unit):
        raise FormatError(
            f"{layout.where}: ImageWidth is {layout.width}, but the JPEG frame at {start} has "
            f"{header.columns} columns"
        )


def _unique(page: tifffile.TiffPage, code: int, layout: Layout) -> tuple[list[int], list[int]]:
    """Return the distinct offsets of tables, and for each component the number of its table."""
    value = page.tags.valueof(code)
    offsets: Sequence[int] = value if isinstance(value, tuple) else (value,)
    if value is None or len(offsets) < layout.bands:
        raise UnsupportedError(
            f"{layout.where}: old-style JPEG without tables in tag {code} is not supported"
        )
    unique = list(dict.fromkeys(int(n) for n in offsets[: layout.bands]))
    return unique, [unique.index(int(n)) for n in offsets[: layout.bands]]


def _old_tables(page: tifffile.TiffPage, layout: Layout, source: Source) -> bytes:
    """Return the DQT and DHT markers of a page."""
    parts = []
    for i, offset in enumerate(_unique(page, Q_TABLES, layout)[0]):
        values = _exactly(source, offset, 64, layout)
        parts.append(DQT + struct.pack(">HB", 67, i) + values)
    for kind, code in ((0, DC_TABLES), (1, AC_TABLES)):
        for i, offset in enumerate(_unique(page, code, layout)[0]):
            counts = _exactly(source, offset, 16, layout)
            values = _exactly(source, offset + 16, min(sum(counts), 256), layout)
            parts.append(
                DHT + struct.pack(">HB", 19 + len(values), kind << 4 | i) + counts + values
            )
    return b"".join(parts)


def _exactly(source: Source, offset: int, length: int, layout: Layout) -> bytes:
    data = _peek(source, offset, length)
    if len(data) != length:
        raise FormatError(
            f"{layout.where} @{offset}: a JPEG table of {length} bytes, the object ends after "
            f"{source.size()}"
        )
    return data


def _frame(page: tifffile.TiffPage, layout: Layout, rows: int) -> bytes:
    """Return the SOF0 marker of a strip with `rows` rows."""
    across, down = (1, 1)
    if layout.photometric == YCBCR:
        across, down = subsampling(page, (2, 2), layout.where)
    if not (0 < across < 5 and 0 < down < 5 and rows < 1 << 16 and layout.chunk_width < 1 << 16):
        raise FormatError(
            f"{layout.where}: old-style JPEG of {rows} x {layout.chunk_width} with subsampling "
            f"{down} x {across}, expected sides below 65536 and subsampling 1 to 4"
        )
    uses = _unique(page, Q_TABLES, layout)[1]
    parts = [
        bytes((i + 1, (across << 4 | down) if i == 0 else 0x11, use)) for i, use in enumerate(uses)
    ]
    head = struct.pack(">HBHHB", 8 + 3 * len(uses), 8, rows, layout.chunk_width, len(uses))
    return SOF0 + head + b"".join(parts)


def _scan(page: tifffile.TiffPage, layout: Layout) -> bytes:
    """Return the SOS marker of a strip."""
    dc, ac = _unique(page, DC_TABLES, layout)[1], _unique(page, AC_TABLES, layout)[1]
    parts = [bytes((i + 1, d << 4 | a)) for i, (d, a) in enumerate(zip(dc, ac, strict=True))]
    return SOS + struct.pack(">HB", 6 + 2 * len(dc), len(dc)) + b"".join(parts) + b"\x00\x3f\x00"
