"""Which pages of a series have the layout of its first page.

tifffile puts pages into one series although their JPEG tables, fax options or chroma subsampling
differ. In a long series it inspects only a few pages and reads no more than the byte offsets of the
others. So the tags that decide how samples are decoded are compared here, directory by directory.

Spec: TIFF 6.0 section 2, BigTIFF: twelve or twenty bytes per directory entry.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import tifffile

from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats.tiff.byte_ranges import Page
from anychunk.formats.tiff.layout import Layout, page_layout

JPEG_TABLES = 347
DECODING_TAGS = {
    256, 257, 258, 259, 262, 266, 277, 278, 284, 292, 317, 322, 323, 338, 339, JPEG_TABLES, 529,
    530, 532, 32997, 32998, 65007, 65008, 65009,
}  # fmt: skip
"""Tags that decide how samples are decoded."""
TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
TYPE_SIZES |= {16: 8, 17: 8, 18: 8}
"""Bytes per value, by the type of a tag."""
MAX_VALUE_BYTES = 1 << 16
"""Longer values are compared by their offset, not by their content."""

type Entry = tuple[int, int, int, bytes]
"""Tag, type, count and value of a directory entry."""


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
    model = None if all(page is keyframe for page in pages) else _signature(keyframe)
    if model is None:
        return [MatchedPage(page=page, layout=None) for page in pages]
    # pages with equal signatures share a layout: a stack of thousands has one or two signatures
    seen: dict[tuple[Entry, ...], Layout | UnsupportedError | None] = {model[0]: None}
    found: list[MatchedPage] = []
    for page in pages:
        own = model if page is keyframe else None if page is None else _signature(page)
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
    where = layout.where.rpartition(" page ")[0]
    try:
        other = page_layout(page.aspage(), f"{where} page {page.index}")
    except UnsupportedError as e:
        return e
    is_same = without_tables(replace(other, where=layout.where)) == without_tables(layout)
    return None if is_same else other


def without_tables(layout: Layout) -> Layout:
    """Return `layout` without its JPEG tables."""
    kept = tuple((key, value) for key, value in layout.configuration if key != "jpeg_tables")
    return replace(layout, configuration=kept)


def _signature(page: Page) -> tuple[tuple[Entry, ...], bytes | None] | None:
    """Return the decoding tags of a page and its JPEG tables; None if it has no directory."""
    form = page.parent.tiff
    if form.is_ndpi or getattr(page, "is_virtual", False) or not page.offset:
        return None
    entries = list(_entries(page))
    tables = next((value for code, _, _, value in entries if code == JPEG_TABLES), None)
    return tuple(entry for entry in entries if entry[0] != JPEG_TABLES), tables


def _entries(page: Page) -> Iterator[Entry]:
    """Yield the directory entries of a page that are decoding tags."""
    form, file = page.parent.tiff, page.parent.filehandle
    order = form.byteorder
    file.seek(page.offset)
    count = int.from_bytes(file.read(form.tagnosize), "big" if order == ">" else "little")
    data = file.read(form.tagsize * min(count, 4096))
    inline = form.offsetsize
    entry = struct.Struct(f"{order}HH{'Q' if inline == 8 else 'I'}{inline}s")
    if len(data) % entry.size:
        raise FormatError(
            f"page {page.index} @{page.offset}: its directory of {count} entries is truncated "
            f"after {len(data)} bytes"
        )
    for code, kind, number, value in entry.iter_unpack(data):
        if code in DECODING_TAGS:
            length = TYPE_SIZES.get(kind, 1) * number
            if inline < length <= MAX_VALUE_BYTES:
                file.seek(int.from_bytes(value, "big" if order == ">" else "little"))
                yield code, kind, number, file.read(length)
            else:
                yield code, kind, number, value[: min(length, inline)]
