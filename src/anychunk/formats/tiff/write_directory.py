"""Write the directories of a TIFF file, in front of its tiles: pure, given the tiles' lengths.

Spec: TIFF 6.0 section 2, BigTIFF; for the layout that GDAL calls cloud optimized,
      https://gdal.org/drivers/raster/cog.html (ghost area, leader and trailer of tiles).
"""

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anychunk.model.index import Uint64

BYTE, ASCII, SHORT, LONG, RATIONAL, UNDEFINED, DOUBLE, IFD, LONG8, IFD8 = (
    1, 2, 3, 4, 5, 7, 12, 13, 16, 18,
)  # fmt: skip
SIZES = {BYTE: 1, ASCII: 1, SHORT: 2, LONG: 4, RATIONAL: 8, UNDEFINED: 1, DOUBLE: 8, IFD: 4,
         LONG8: 8, IFD8: 8}  # fmt: skip
TILE_OFFSETS, TILE_BYTE_COUNTS, SUB_IFDS = 324, 325, 330
LEADER = TRAILER = 4
"""Bytes around each tile: its length, and its last four bytes again."""
CLASSIC_LIMIT = (1 << 32) - 1
GHOST = (
    "LAYOUT=IFDS_BEFORE_DATA\nBLOCK_ORDER=ROW_MAJOR\nBLOCK_LEADER=SIZE_AS_UINT4\n"
    "BLOCK_TRAILER=LAST_4_BYTES_REPEATED\nKNOWN_INCOMPATIBLE_EDITION=NO\n "
)
"""GDAL puts the space there so that YES fits in place of NO."""
MASKED = "MASK_INTERLEAVED_WITH_IMAGERY=YES\n"


@dataclass(frozen=True)
class Tag:
    """An entry of a directory, with its values as little-endian bytes."""

    code: int
    type: int
    data: bytes

    @property
    def count(self) -> int:
        """The number of values."""
        return len(self.data) // SIZES[self.type]


def shorts(code: int, *values: int) -> Tag:
    """Return a tag of 16-bit integers."""
    return Tag(code, SHORT, struct.pack(f"<{len(values)}H", *values))


def longs(code: int, *values: int) -> Tag:
    """Return a tag of 32-bit integers."""
    return Tag(code, LONG, struct.pack(f"<{len(values)}I", *values))


def doubles(code: int, *values: float) -> Tag:
    """Return a tag of floating point numbers."""
    return Tag(code, DOUBLE, struct.pack(f"<{len(values)}d", *values))


def rational(code: int, value: float) -> Tag:
    """Return a tag of one fraction."""
    from fractions import Fraction

    limit = (1 << 32) - 1
    found = Fraction(value).limit_denominator(10**6 if value < 4000 else 1)
    if found.numerator > limit:
        found = Fraction(limit)
    return Tag(code, RATIONAL, struct.pack("<2I", found.numerator, found.denominator))


def text(code: int, value: str) -> Tag:
    """Return a tag of text; UTF-8, as OME-TIFF and GDAL write it."""
    return Tag(code, ASCII, value.replace("\0", " ").encode() + b"\0")


@dataclass
class Page:
    """A directory and its tiles."""

    tags: list[Tag]
    lengths: Uint64
    """Of its tiles, in the order of the directory."""
    below: list["Page"] = field(default_factory=list)
    """Its SubIFDs."""
    offsets: Uint64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    """Of its tiles, once they are placed."""


type Group = Sequence[Page]
"""Pages whose tiles alternate: those of an image and of its mask."""


@dataclass(frozen=True)
class Layout:
    """Where everything is in the file."""

    head: bytes
    """Header, ghost area and directories."""
    size: int
    is_big: bool


def layout(
    chain: Sequence[Page], order: Sequence[Group], *, is_cog: bool, big: bool | None = None
) -> Layout:
    """Place directories and tiles.

    Parameters:
        chain: the pages, in the order of their directories.
        order: all pages, in the order of their tiles in the file.
        is_cog: whether to write the ghost area, leaders and trailers.
        big: whether to write BigTIFF; None: if the file is larger than 4 GiB otherwise.
    """
    has_mask = any(len(group) > 1 for group in order)
    ghost = ghost_area(has_mask=has_mask) if is_cog else b""
    is_big = bool(big)
    start = head_size(chain, ghost, is_big=is_big)
    size = place_tiles(order, start, is_cog=is_cog)
    if big is None and size > CLASSIC_LIMIT:
        is_big = True
        size = place_tiles(order, head_size(chain, ghost, is_big=True), is_cog=is_cog)
    return Layout(head_bytes(chain, ghost, is_big=is_big), size, is_big)


def ghost_area(*, has_mask: bool) -> bytes:
    """Return the description of the layout that GDAL looks for after the header."""
    content = GHOST[:-1] + (MASKED if has_mask else "") + " "
    return f"GDAL_STRUCTURAL_METADATA_SIZE={len(content):06d} bytes\n{content}".encode()


def place_tiles(order: Sequence[Group], start: int, *, is_cog: bool) -> int:
    """Set the offsets of all tiles, from `start` on; return where they end."""
    around = LEADER + TRAILER if is_cog else 0
    first = LEADER if is_cog else 0
    at = start
    for group in order:
        stacked = np.stack([page.lengths for page in group], axis=1)
        steps = (stacked + np.uint64(around)).reshape(-1)
        ends = np.cumsum(steps, dtype=np.uint64) + np.uint64(at)
        begins = (ends - steps + np.uint64(first)).reshape(stacked.shape)
        for number, page in enumerate(group):
            page.offsets = np.ascontiguousarray(begins[:, number])
        at = int(ends[-1]) if len(ends) else at
    return at


def _entries(page: Page, sub_offsets: Sequence[int], *, is_big: bool) -> list[Tag]:
    """Return all tags of a page in order; offsets are zero until tiles are placed."""
    wide = "<u8" if is_big else "<u4"
    offsets = page.offsets if len(page.offsets) else np.zeros_like(page.lengths)
    kept = [
        *page.tags,
        Tag(TILE_OFFSETS, LONG8 if is_big else LONG, offsets.astype(wide).tobytes()),
        Tag(TILE_BYTE_COUNTS, LONG, page.lengths.astype("<u4").tobytes()),
    ]
    if page.below:
        places = np.asarray(sub_offsets or [0] * len(page.below), wide)
        kept.append(Tag(SUB_IFDS, IFD8 if is_big else IFD, places.tobytes()))
    return sorted(kept, key=lambda tag: tag.code)


def _even(size: int) -> int:
    return size + size % 2


def _directory_size(entries: Sequence[Tag], *, is_big: bool) -> int:
    inline, entry, around = (8, 20, 16) if is_big else (4, 12, 6)
    outside = sum(_even(len(tag.data)) for tag in entries if len(tag.data) > inline)
    return _even(around + entry * len(entries) + outside)


def _header_size(ghost: bytes, *, is_big: bool) -> int:
    return _even((16 if is_big else 8) + len(ghost))


def _all_pages(chain: Sequence[Page]) -> list[Page]:
    """Return pages in the order of their directories: each followed by its SubIFDs."""
    return [page for top in chain for page in (top, *top.below)]


def head_size(chain: Sequence[Page], ghost: bytes, *, is_big: bool) -> int:
    """Return the length of everything in front of the tiles."""
    return _header_size(ghost, is_big=is_big) + sum(
        _directory_size(_entries(page, (), is_big=is_big), is_big=is_big)
        for page in _all_pages(chain)
    )


def head_bytes(chain: Sequence[Page], ghost: bytes, *, is_big: bool) -> bytes:
    """Return header, ghost area and directories."""
    start = _header_size(ghost, is_big=is_big)
    if is_big:
        header = struct.pack("<2sHHHQ", b"II", 43, 8, 0, start)
    else:
        header = struct.pack("<2sHI", b"II", 42, start)
    pieces = [(header + ghost).ljust(start, b"\0")]
    places: dict[int, int] = {}
    at = start
    for page in _all_pages(chain):
        places[id(page)] = at
        at += _directory_size(_entries(page, (), is_big=is_big), is_big=is_big)
    following = {id(page): places[id(after)] for page, after in itertools.pairwise(chain)}
    for page in _all_pages(chain):
        below = [places[id(sub)] for sub in page.below]
        entries = _entries(page, below, is_big=is_big)
        here, after = places[id(page)], following.get(id(page), 0)
        pieces.append(_directory_bytes(entries, here, after, is_big=is_big))
    return b"".join(pieces)


def _directory_bytes(entries: Sequence[Tag], at: int, after: int, *, is_big: bool) -> bytes:
    inline, entry, around = (8, 20, 16) if is_big else (4, 12, 6)
    count, head, place = ("<Q", "<HHQ", "<Q") if is_big else ("<H", "<HHI", "<I")
    outside = at + around + entry * len(entries)
    table, values = [struct.pack(count, len(entries))], b""
    rest: list[bytes] = []
    for tag in entries:
        table.append(struct.pack(head, tag.code, tag.type, tag.count))
        if len(tag.data) <= inline:
            table.append(tag.data.ljust(inline, b"\0"))
        else:
            table.append(struct.pack(place, outside))
            padded = tag.data.ljust(_even(len(tag.data)), b"\0")
            rest.append(padded)
            outside += len(padded)
    table.append(struct.pack(place, after))
    values = b"".join((*table, *rest))
    return values.ljust(_even(len(values)), b"\0")


def framed(data: Any) -> tuple[bytes, Any, bytes]:
    """Return a tile with its leader and trailer."""
    view = memoryview(data)
    return struct.pack("<I", len(view)), view, bytes(view[-TRAILER:]).rjust(TRAILER, b"\0")
