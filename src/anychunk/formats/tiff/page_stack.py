"""Pages of one layout stacked into one array: the axes of the series, then (band, y, x)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tifffile

from anychunk import limits
from anychunk.codecs.tiff.tile import OLD_JPEG
from anychunk.errors import AnychunkError, FormatError, UnsupportedError
from anychunk.formats.tiff import old_jpeg
from anychunk.formats.tiff.byte_ranges import Page, Table, check_count, page_table, recut
from anychunk.formats.tiff.layout import JPEG, Layout, page_layout
from anychunk.formats.tiff.page_matching import MatchedPage, match_pages, without_tables
from anychunk.io import Source
from anychunk.model.grid import Shape
from anychunk.model.index import WHOLE, ArrayIndex, ByteRanges, Json

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

    @property
    def shape(self) -> Shape:
        """Shape of the array."""
        return (*self.sizes, *self.layout.shape)

    @property
    def dimension_names(self) -> tuple[str, ...]:
        """Dimension names of the array."""
        deep = ("z",) if self.layout.depth > 1 else ()
        return (*self.axes, *deep, "band", "y", "x")


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
    run = level.dataoffset if layout.is_plain and layout.depth == 1 and size else None
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
    """Return the stack of a single page."""
    layout = page_layout(page, f"{where} page {page.index}")
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
        names.append(name if name not in (*names, "band", "y", "x") else f"{name}_{len(names)}")
    return tuple(names), tuple(n for _, n in kept)


def stack_index(
    stack: Stack, sources: Sequence[Source], *, fill_value: Json, attributes: Mapping[str, Json]
) -> ArrayIndex:
    """Return the array of a stack.

    Parameters:
        stack: the pages.
        sources: sources of the files, as `Plane.file` numbers them.
        fill_value: fill value of the array.
        attributes: attributes of the array.
    """
    # tables are (planes, separate bands, z, y, x) until they are reordered below
    layout, offsets, lengths = _tables(stack, sources)
    layout, offsets, lengths = recut(layout, offsets, lengths, sources[0].size())
    fronts: dict[str, Any] = {}
    if layout.compression == OLD_JPEG:
        layout, fronts = _old_jpeg(stack, layout, sources, offsets, lengths)
    elif header := getattr(stack.keyframe, "jpegheader", None):
        # NDPI: a page is one JPEG stream, whose restart intervals are the tiles without its header
        headers = [getattr(p.page, "jpegheader", None) if p else None for p in stack.planes]
        fronts = _page_fronts(headers, header, offsets)
    elif stack.tables:
        fronts = _page_fronts(stack.tables, NO_TABLES, offsets)
    deep = len(stack.sizes) + (layout.depth > 1)
    grid = (*stack.sizes, *_array_grid(layout))
    ids = [p.file if p is not None else 0 for p in stack.planes]
    if any(ids):
        per_plane = np.array(ids, np.uint8 if max(ids) < 256 else np.uint32)
        fronts["url_ids"] = np.broadcast_to(per_plane.reshape((-1,) + (1,) * 4), offsets.shape)
    tables = {"offsets": offsets, "lengths": lengths, **fronts}
    for name in ("offsets", "lengths", "front_ids", "url_ids"):
        if name in tables:
            # the file orders bands before z, the array z before bands
            tables[name] = np.ascontiguousarray(tables[name].swapaxes(1, 2)).reshape(grid)
    names = stack.dimension_names
    limits.check_chunk(math.prod(layout.chunk_shape) * layout.dtype.itemsize, where=layout.where)
    chunk = (1,) * len(stack.sizes) + layout.chunk_shape
    return ArrayIndex(
        shape=stack.shape,
        chunk_shape=chunk,
        data_type=layout.dtype.name,
        codecs=layout.codecs(leading=deep - (layout.depth > 1)),
        chunks=ByteRanges(urls=tuple(source.url for source in sources), **tables),
        fill_value=fill_value,
        dimension_names=names,
        attributes=dict(attributes),
    )


def _array_grid(layout: Layout) -> Shape:
    """Return the chunk grid of a page in the order of the array's axes."""
    planes, deep, rows, columns = layout.file_grid
    return (*((deep,) if layout.depth > 1 else ()), planes, rows, columns)


def _tables(stack: Stack, sources: Sequence[Source]) -> tuple[Layout, Table, Table]:
    """Return offsets and lengths of all planes, shaped (planes, *file_grid)."""
    layout = stack.layout
    if stack.run is not None:
        # contiguous uncompressed pages: each one is a single strip, which `recut` may divide
        layout = replace(
            layout, is_tiled=False, chunk_width=layout.width, chunk_height=layout.height
        )
        count = math.prod(stack.sizes)
        nbytes = layout.row_bytes * layout.height
        room = max(0, sources[0].size() - stack.run) // max(nbytes, 1)
        check_count(layout, pages=count, known=room)
        grid = (count, *layout.file_grid)
        offsets = np.arange(math.prod(grid), dtype=np.uint64) * np.uint64(nbytes)
        offsets += np.uint64(stack.run)
        lengths = np.full(grid, nbytes, np.uint64)
        return layout, offsets.reshape(grid), lengths
    sizes = [source.size() for source in sources]
    known = sum(len(p.page.dataoffsets) for p in stack.planes if p is not None and p.page)
    check_count(layout, pages=len(stack.planes), known=known)
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
    stack: Stack, layout: Layout, sources: Sequence[Source], offsets: Table, lengths: Table
) -> tuple[Layout, dict[str, Any]]:
    """Return the layout of an old-style JPEG page, and the headers in front of its strips."""
    if len(stack.planes) != 1:
        raise FormatError(
            f"{layout.where}: {len(stack.planes)} pages of old-style JPEG in one array, expected 1"
        )
    source = sources[0]
    if old_jpeg.is_whole_stream(source, offsets, lengths):
        kept = tuple((k, v) for k, v in layout.configuration if k == "jpeg_tables")
        return replace(layout, compression=JPEG, configuration=kept), {}
    headers, ids = old_jpeg.fronts(stack.keyframe, layout, source, offsets)
    return layout, {"fronts": headers, "front_ids": ids}


def _page_fronts(headers: Sequence[bytes | None], other: bytes, offsets: Table) -> dict[str, Any]:
    """Return the fronts that put the header of each page before all of its tiles."""
    unique = tuple(dict.fromkeys(h or other for h in headers))
    ids = np.array([unique.index(h or other) for h in headers], np.uint32)
    spread = np.broadcast_to(ids.reshape((-1,) + (1,) * 4), offsets.shape)
    return {"fronts": unique, "front_ids": spread}
