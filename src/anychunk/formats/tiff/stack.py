"""Pages of one kind as one array: `(…, band, y, x)` with the axes of the series in front."""

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
from anychunk.formats.tiff.kinship import Relative, relatives, without_tables
from anychunk.formats.tiff.layout import JPEG, Layout, page_layout
from anychunk.formats.tiff.table import Page, Table, check_count, page_table, recut
from anychunk.io import Source
from anychunk.model.grid import Shape
from anychunk.model.index import WHOLE, ArrayIndex, ByteRanges, Json

AXES = {"T": "t", "C": "c", "Z": "z", "I": "page", "Q": "other", "S": "sample", "Y": "y", "X": "x"}
"""Names of axes by tifffile's letters; others by tifffile's own words."""

NO_TABLES = b"\xff\xd8\xff\xd9"


@dataclass(frozen=True, kw_only=True)
class Plane:
    """One page of a stack, in one of the files that the stack is made of."""

    page: Page | None
    """None: it is announced and not there; nor is its file, where that is another one."""
    file: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Stack:
    """Pages that share a layout, in C order over the leading axes. None: no page for this place."""

    layout: Layout
    keyframe: tifffile.TiffPage
    axes: tuple[str, ...]
    """Names of the leading axes."""
    sizes: Shape
    planes: Sequence[Plane | None]
    run: int | None = None
    """Where the pages begin that lie one after the other, however many directories there are."""
    tables: tuple[bytes | None, ...] = ()
    """JPEG tables of each plane, where they are not the same for all."""

    @property
    def shape(self) -> Shape:
        return (*self.sizes, *self.layout.shape)

    @property
    def dimension_names(self) -> tuple[str, ...]:
        deep = ("z",) if self.layout.depth > 1 else ()
        return (*self.axes, *deep, "band", "y", "x")


def series_stacks(level: Any, where: str) -> tuple[list[Stack], list[AnychunkError]]:
    """Read one level of a series of tifffile: a stack; several, where pages are not alike."""
    keyframe = level.keyframe
    layout = page_layout(keyframe, f"{where} page {keyframe.index}")
    pages = list(level._pages)  # noqa: SLF001 - indexing would read directories that need not be there
    kin = relatives(pages, keyframe, layout)
    if any(r.layout is not None or r.error is not None for r in kin):
        return _apart(kin, keyframe, layout)
    stack = series_stack(level, pages, layout)
    return [_with_tables(stack, [r.tables for r in kin])], []


def series_stack(level: Any, pages: Sequence[Page | None], layout: Layout) -> Stack:
    """Give the stack of pages that are all laid out the same."""
    size = math.prod(layout.shape)
    total = math.prod(int(n) for n in level.shape)
    run = level.dataoffset if layout.is_plain and layout.depth == 1 and size else None
    count = total // size if run and size else len(pages)
    if run is None and len(pages) < count:
        raise FormatError(f"{layout.where}: {count} planes are announced, there are {len(pages)}")
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


def _apart(
    kin: Sequence[Relative], keyframe: tifffile.TiffPage, layout: Layout
) -> tuple[list[Stack], list[AnychunkError]]:
    """Give a stack for the pages of each layout, and why others have none."""
    if any(r.page is None for r in kin):
        raise UnsupportedError(
            f"{layout.where}: further pages of its image are laid out differently"
        )
    groups: dict[Layout, list[Relative]] = {}
    for relative in kin:
        if relative.error is None:
            groups.setdefault(without_tables(relative.layout or layout), []).append(relative)
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
            planes=[Plane(page=relative.page) for relative in group],
        )
        stacks.append(_with_tables(stack, [relative.tables for relative in group]))
    return stacks, list(dict.fromkeys(r.error for r in kin if r.error is not None))


def _with_tables(stack: Stack, tables: Sequence[bytes | None]) -> Stack:
    """Keep the JPEG tables of each plane, where one configuration cannot hold them all."""
    if stack.layout.compression != JPEG or len(set(tables)) == 1:
        return stack
    plain = without_tables(stack.layout)
    in_front = replace(plain, configuration=(*plain.configuration, ("jpeg_tables", "")))
    return replace(stack, layout=in_front, tables=tuple(tables))


def page_stack(page: tifffile.TiffPage, where: str) -> Stack:
    """Give one page as a stack of its own."""
    layout = page_layout(page, f"{where} page {page.index}")
    return Stack(layout=layout, keyframe=page, axes=(), sizes=(), planes=[Plane(page=page)])


def leading_axes(
    axes: str, shape: Shape, count: int, page_size: int
) -> tuple[tuple[str, ...], Shape]:
    """Find the axes that the pages are stacked along; those of one element are left out."""
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
        name = AXES.get(letter) or tifffile.TIFF.AXES_NAMES.get(letter, letter.lower())
        names.append(name if name not in (*names, "band", "y", "x") else f"{name}_{len(names)}")
    return tuple(names), tuple(n for _, n in kept)


def stack_index(
    stack: Stack, sources: Sequence[Source], *, fill_value: Json, attributes: Mapping[str, Json]
) -> ArrayIndex:
    """Give the array of a stack, whose planes are in `sources`."""
    layout, offsets, lengths = _tables(stack, sources)
    layout, offsets, lengths = recut(layout, offsets, lengths, sources[0].size())
    fronts: dict[str, Any] = {}
    if layout.compression == OLD_JPEG:
        layout, fronts = _old_jpeg(stack, layout, sources, offsets, lengths)
    elif header := getattr(stack.keyframe, "jpegheader", None):
        headers = [getattr(p.page, "jpegheader", None) if p else None for p in stack.planes]
        fronts = _headed(headers, header, offsets)
    elif stack.tables:
        fronts = _headed(stack.tables, NO_TABLES, offsets)
    deep = len(stack.sizes) + (layout.depth > 1)
    grid = (*stack.sizes, *_array_grid(layout))
    ids = [p.file if p is not None else 0 for p in stack.planes]
    if any(ids):
        per_plane = np.array(ids, np.uint8 if max(ids) < 256 else np.uint32)
        fronts["url_ids"] = np.broadcast_to(per_plane.reshape((-1,) + (1,) * 4), offsets.shape)
    tables = {"offsets": offsets, "lengths": lengths, **fronts}
    for name in ("offsets", "lengths", "front_ids", "url_ids"):
        if name in tables:
            # from the file's order (band, z) to the array's (z, band)
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
    planes, deep, rows, columns = layout.file_grid
    return (*((deep,) if layout.depth > 1 else ()), planes, rows, columns)


def _tables(stack: Stack, sources: Sequence[Source]) -> tuple[Layout, Table, Table]:
    """Give offsets and lengths of every plane: (planes, *file_grid)."""
    layout = stack.layout
    if stack.run is not None:
        # uncompressed, one page behind the other: strips or tiles as wide as the image are rows
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
            # a page that is announced and not there: reading it says that the file ends before it
            offsets[i], lengths[i] = sizes[0], 1
            continue
        if plane.page is None:
            lengths[i] = WHOLE  # the url alone is known; no file there is one chunk long
            continue
        offsets[i], lengths[i] = page_table(plane.page, layout, sizes[plane.file])
    return layout, offsets, lengths


def _old_jpeg(
    stack: Stack, layout: Layout, sources: Sequence[Source], offsets: Table, lengths: Table
) -> tuple[Layout, dict[str, Any]]:
    if len(stack.planes) != 1:
        raise FormatError(f"{layout.where}: several pages of old-style JPEG as one array")
    source = sources[0]
    if old_jpeg.is_whole_stream(source, offsets, lengths):
        kept = tuple((k, v) for k, v in layout.configuration if k == "jpeg_tables")
        return replace(layout, compression=JPEG, configuration=kept), {}
    headers, ids = old_jpeg.fronts(stack.keyframe, layout, source, offsets)
    return layout, {"fronts": headers, "front_ids": ids}


def _headed(headers: Sequence[bytes | None], other: bytes, offsets: Table) -> dict[str, Any]:
    """Put the bytes that each page keeps once in front of each of its tiles."""
    unique = tuple(dict.fromkeys(h or other for h in headers))
    ids = np.array([unique.index(h or other) for h in headers], np.uint32)
    spread = np.broadcast_to(ids.reshape((-1,) + (1,) * 4), offsets.shape)
    return {"fronts": unique, "front_ids": spread}
