"""Whether the pages of a series are laid out as its first one.

tifffile takes pages for alike whose JPEG tables, fax options or chroma differ; and of a long series
it looks at a few pages only, and reads the others for where their strips are. So what decides how
samples are decoded is compared here, as it stands in each directory.

Spec: TIFF 6.0 section 2, BigTIFF: twelve or twenty bytes an entry.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import tifffile

from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats.tiff.layout import Layout, page_layout
from anychunk.formats.tiff.table import Page

TABLES = 347
CODES = {
    256, 257, 258, 259, 262, 266, 277, 278, 284, 292, 317, 322, 323, 338, 339, TABLES, 529, 530,
    532, 32997, 32998, 65007, 65008, 65009,
}  # fmt: skip
"""Tags that decide how samples are decoded."""
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
SIZES |= {16: 8, 17: 8, 18: 8}
LONGEST = 1 << 16
"""Values beyond this are known by where they are."""

type Entry = tuple[int, int, int, bytes]


@dataclass(frozen=True, eq=False, kw_only=True)
class Relative:
    """One page, how it is laid out, and the JPEG tables that it brings."""

    page: Page | None
    """None: there is no page for this place."""
    layout: Layout | None
    """None: as the first page of the series."""
    tables: bytes | None = None
    error: UnsupportedError | None = None
    """Why it has no layout."""


def relatives(
    pages: Sequence[Page | None], keyframe: tifffile.TiffPage, layout: Layout
) -> list[Relative]:
    """Give every page with its layout, as far as that is not `layout`, of `keyframe`."""
    marked = None if all(page is keyframe for page in pages) else _marks(keyframe)
    if marked is None:
        return [Relative(page=page, layout=None) for page in pages]
    seen: dict[tuple[Entry, ...], Layout | UnsupportedError | None] = {marked[0]: None}
    found: list[Relative] = []
    for page in pages:
        own = marked if page is keyframe else None if page is None else _marks(page)
        if page is None or own is None:
            found.append(Relative(page=page, layout=None, tables=marked[1]))
            continue
        mark, tables = own
        if mark not in seen:
            seen[mark] = _other_layout(page, layout)
        other = seen[mark]
        if isinstance(other, UnsupportedError):
            found.append(Relative(page=page, layout=None, error=other))
        else:
            found.append(Relative(page=page, layout=other, tables=tables))
    return found


def _other_layout(page: Page, layout: Layout) -> Layout | UnsupportedError | None:
    """Give the layout of a page whose tags differ; None where they come to the same."""
    where = layout.where.rpartition(" page ")[0]
    try:
        other = page_layout(page.aspage(), f"{where} page {page.index}")
    except UnsupportedError as e:
        return e
    return (
        None
        if without_tables(replace(other, where=layout.where)) == without_tables(layout)
        else other
    )


def without_tables(layout: Layout) -> Layout:
    kept = tuple((key, value) for key, value in layout.configuration if key != "jpeg_tables")
    return replace(layout, configuration=kept)


def _marks(page: Page) -> tuple[tuple[Entry, ...], bytes | None] | None:
    """Give the entries that matter, and the JPEG tables; None where there is no directory."""
    form = page.parent.tiff
    if form.is_ndpi or getattr(page, "is_virtual", False) or not page.offset:
        return None
    entries = list(_entries(page))
    tables = next((value for code, _, _, value in entries if code == TABLES), None)
    return tuple(entry for entry in entries if entry[0] != TABLES), tables


def _entries(page: Page) -> Iterator[Entry]:
    form, file = page.parent.tiff, page.parent.filehandle
    order = form.byteorder
    file.seek(page.offset)
    count = int.from_bytes(file.read(form.tagnosize), "big" if order == ">" else "little")
    data = file.read(form.tagsize * min(count, 4096))
    inline = form.offsetsize
    entry = struct.Struct(f"{order}HH{'Q' if inline == 8 else 'I'}{inline}s")
    if len(data) % entry.size:
        raise FormatError(f"page {page.index}: its directory @{page.offset} is cut")
    for code, kind, number, value in entry.iter_unpack(data):
        if code in CODES:
            length = SIZES.get(kind, 1) * number
            if inline < length <= LONGEST:
                file.seek(int.from_bytes(value, "big" if order == ">" else "little"))
                yield code, kind, number, file.read(length)
            else:
                yield code, kind, number, value[: min(length, inline)]
