"""Which pages of a series have the layout of its first page.

tifffile puts pages into one series although their JPEG tables, fax options or chroma subsampling
differ. In a long series it inspects only a few pages and reads no more than the byte offsets of the
others. So the tags that decide how samples are decoded are compared here, directory by directory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import tifffile

from anychunk.errors import UnsupportedError
from anychunk.formats.tiff.byte_ranges import Page
from anychunk.formats.tiff.directory import (
    JPEG_TABLES,
    Entry,
    check_entries,
    form_of,
    has_directory,
    page_entries,
)
from anychunk.formats.tiff.layout import Layout, page_layout

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
