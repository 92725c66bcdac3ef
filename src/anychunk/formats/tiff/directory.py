"""Directory entries by strict rules, before values from tifffile are used.

tifffile replaces a tag that it cannot read by the tag's default, and takes values of any type. A
page would then open with wrong offsets or with samples of the wrong size. So the entries of each
directory are read here too: a structural tag that is present must be readable, have a type that the
standard allows for it, and as many values as it needs.

Spec: TIFF 6.0 section 2 and BigTIFF: twelve or twenty bytes per entry, the first entry of a tag
      counts, and readers accept BYTE, SHORT and LONG for any unsigned integer. TIFF Technical
      Note 1 and BigTIFF: offsets of directories have the types IFD, LONG8 and IFD8 too.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple, Protocol

import tifffile

from anychunk.errors import FormatError

type Page = tifffile.TiffPage | tifffile.TiffFrame

BYTE, SHORT, LONG, RATIONAL, UNDEFINED, SRATIONAL, FLOAT, DOUBLE = 1, 3, 4, 5, 7, 10, 11, 12
LONG8 = 16
INTEGERS = frozenset((BYTE, SHORT, LONG, LONG8))
"""Types of structural tags."""
DIRECTORIES = INTEGERS | {13, 18}
"""Types of offsets of directories: IFD and IFD8 too, which libtiff accepts for nothing else."""
SUB_IFDS = 330
TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
TYPE_SIZES |= {16: 8, 17: 8, 18: 8}
"""Bytes per value, by the type of a tag."""
TYPE_NAMES = {
    1: "BYTE", 2: "ASCII", 3: "SHORT", 4: "LONG", 5: "RATIONAL", 6: "SBYTE", 7: "UNDEFINED",
    8: "SSHORT", 9: "SLONG", 10: "SRATIONAL", 11: "FLOAT", 12: "DOUBLE", 13: "IFD", 16: "LONG8",
    17: "SLONG8", 18: "IFD8",
}  # fmt: skip

SINGLE = {
    254: "NewSubfileType", 255: "SubfileType", 256: "ImageWidth", 257: "ImageLength",
    259: "Compression", 262: "PhotometricInterpretation", 266: "FillOrder", 277: "SamplesPerPixel",
    278: "RowsPerStrip", 284: "PlanarConfiguration", 292: "T4Options", 317: "Predictor",
    322: "TileWidth", 323: "TileLength", 512: "JPEGProc", 513: "JPEGInterchangeFormat",
    514: "JPEGInterchangeFormatLength", 32997: "ImageDepth", 32998: "TileDepth",
    65007: "SkipBits", 65008: "HorizontalSubBits", 65009: "VerticalSubBits",
}  # fmt: skip
"""Structural tags with a single unsigned integer."""
SEVERAL = {
    258: "BitsPerSample", 273: "StripOffsets", 279: "StripByteCounts", 324: "TileOffsets",
    325: "TileByteCounts", 330: "SubIFDs", 338: "ExtraSamples", 339: "SampleFormat",
    519: "JPEGQTables", 520: "JPEGDCTables", 521: "JPEGACTables", 530: "YCbCrSubSampling",
}  # fmt: skip
"""Structural tags with one or more unsigned integers."""
JPEG_TABLES = 347
STRUCTURAL = {**SINGLE, **SEVERAL, JPEG_TABLES: "JPEGTables"}
"""Names of the tags that decide where samples are and how they are decoded."""
MOST_ENTRIES = 4096
"""tifffile refuses longer directories."""
MOST_DIRECTORIES = 1000
"""How many directories are checked to explain a failure."""


class Entry(NamedTuple):
    """A directory entry, as stored."""

    code: int
    type: int
    number: int
    """The count of values."""
    value: bytes
    """The value, or its offset if it is longer than this field."""

    @property
    def length(self) -> int:
        """Length of the value in bytes; 0 for an unknown type."""
        return TYPE_SIZES.get(self.type, 0) * self.number


class Readable(Protocol):
    """A file that can be read at a position."""

    def seek(self, offset: int, /) -> int: ...
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Form:
    """How a file stores its directories."""

    order: Literal["<", ">"]
    is_big: bool
    """Whether it is a BigTIFF."""
    size: int
    """Length of the file."""
    has_high_halves: bool = False
    """Whether the high halves of offsets are stored behind each directory (NDPI above 4 GB)."""

    @property
    def inline(self) -> int:
        """Length of the field for a value or its offset."""
        return 8 if self.is_big else 4

    @cached_property
    def entry(self) -> struct.Struct:
        """An entry: tag, type, count, and value or offset."""
        return struct.Struct(f"{self.order}HH{'Q' if self.is_big else 'I'}{self.inline}s")

    def number(self, data: bytes) -> int:
        """Return the unsigned integer that `data` stores."""
        return int.from_bytes(data, "big" if self.order == ">" else "little")


TILE_SIZE = {322, 323}
TILES = {*TILE_SIZE, 324, 325}
"""Tags of the size of tiles, and of where they are."""


def form_of(page: Page) -> Form:
    """Return how the file of a page stores its directories."""
    form = page.parent.tiff
    return _form(form.byteorder, form.is_bigtiff, page.parent.filehandle.size, form.is_ndpi)


_form = lru_cache(maxsize=16)(Form)
"""The same object for all pages of a file."""


def has_directory(page: Page) -> bool:
    """Return whether a page has a directory; virtual pages have none."""
    return bool(page.offset) and not getattr(page, "is_virtual", False)


def page_entries(page: Page, where: str) -> list[Entry]:
    """Return the entries of a page's directory; none if it has no directory."""
    if not has_directory(page):
        return []
    return read_entries(page.parent.filehandle, page.offset, form_of(page), where)


def check_directory(page: Page, where: str) -> None:
    """Raise `FormatError` if a structural tag of a page is not what the standard allows."""
    check_entries(page_entries(page, where), form_of(page), where)


def read_entries(file: Readable, offset: int, form: Form, where: str) -> list[Entry]:
    """Return the entries of the directory at `offset`."""
    file.seek(offset)
    count = form.number(file.read(8 if form.is_big else 2))
    entry = form.entry
    data = file.read(entry.size * min(count, MOST_ENTRIES))
    if len(data) != entry.size * count:
        raise FormatError(
            f"{where} @{offset}: its directory of {count} entries ends after {len(data)} bytes, "
            f"expected {entry.size * count} and at most {MOST_ENTRIES} entries"
        )
    return list(map(Entry._make, entry.iter_unpack(data)))


def check_entries(entries: Iterable[Entry], form: Form, where: str) -> None:
    """Raise `FormatError` if an entry of a structural tag cannot be read or has a wrong type."""
    seen: set[int] = set()
    for entry in entries:
        code = entry.code
        # of a tag that is repeated, the first entry counts
        if code not in STRUCTURAL or code in seen:
            continue
        seen.add(code)
        name = STRUCTURAL[code]
        others = DIRECTORIES if code == SUB_IFDS else INTEGERS
        expected = (BYTE, UNDEFINED) if code == JPEG_TABLES else others
        if entry.type not in expected:
            kind = TYPE_NAMES.get(entry.type, str(entry.type))
            allowed = "UNDEFINED" if code == JPEG_TABLES else "BYTE, SHORT, LONG or LONG8"
            raise FormatError(f"{where}: {name} has type {kind}, expected {allowed}")
        if entry.number < 1 or (code in SINGLE and entry.number > 1):
            least = "1" if code in SINGLE else "at least 1"
            raise FormatError(f"{where}: {name} has {entry.number} values, expected {least}")
        length = entry.length
        if length > form.inline and not form.has_high_halves:
            offset = form.number(entry.value)
            # the first eight bytes are the header of the file
            if offset < 8 or offset + length > form.size:
                raise FormatError(
                    f"{where}: the {entry.number} values of {name} are at bytes {offset}.."
                    f"{offset + length}, expected within 8..{form.size}"
                )
    # without one of them, tiles would be taken for strips
    missing = TILE_SIZE - seen
    if missing and seen & TILES:
        found = ", ".join(STRUCTURAL[code] for code in sorted(seen & TILES))
        names = " and ".join(STRUCTURAL[code] for code in sorted(missing))
        raise FormatError(f"{where}: found {found}, but not {names}, which tiles must have")


def check_chain(file: Readable, form: Form, where: str) -> None:
    """Check the structural tags of every directory of the main chain.

    Explains why tifffile failed; directories of other pages are checked when they are used.
    """
    pointer = 8 if form.is_big else 4
    file.seek(pointer)
    offset = form.number(file.read(form.inline))
    seen: set[int] = set()
    while offset and offset not in seen and len(seen) < MOST_DIRECTORIES:
        name = f"{where} page {len(seen)}"
        seen.add(offset)
        entries = read_entries(file, offset, form, name)
        check_entries(entries, form, name)
        offset = form.number(file.read(form.inline))


LONG_TABLE = 1 << 16
"""Tables of more values are not read by tifffile, which makes a Python integer of each."""
TABLES = frozenset((273, 279, 324, 325))
"""StripOffsets, StripByteCounts, TileOffsets, TileByteCounts."""
KEPT = 5
"""How many values of a long table tifffile is shown."""
TABLE_TYPES = {SHORT: "u2", LONG: "u4", LONG8: "u8"}


def without_long_tables(data: bytes, form: Form) -> tuple[bytes, dict[int, Entry]]:
    """Return directory entries in which long tables have few values, and the entries as stored.

    So few that they do not add up to a whole image, but too many to fit into the entry itself.
    Tables that are not inside the file stay as they are, and are refused later.

    Parameters:
        data: the entries, without the number before them.
        form: how the file stores them.
    """
    entry = form.entry
    short = bytearray(data)
    found: dict[int, Entry] = {}
    for i, fields in enumerate(entry.iter_unpack(data)):
        one = Entry._make(fields)
        offset = form.number(one.value)
        if (
            one.code in TABLES
            and one.code not in found
            and one.number > LONG_TABLE
            and one.type in TABLE_TYPES
            and 8 <= offset <= form.size - one.length
        ):
            found[one.code] = one
            entry.pack_into(short, i * entry.size, one.code, one.type, KEPT, one.value)
    return bytes(short) if found else data, found


def with_wide_bytes(data: bytes, form: Form) -> bytes:
    """Return directory entries in which single structural BYTE values have the type SHORT.

    tifffile returns a BYTE as a string of one byte, and not as a number.

    Parameters:
        data: the entries, without the number before them.
        form: how the file stores them.
    """
    entry = form.entry
    # types are the third and fourth byte of each entry
    if BYTE not in data[2 if form.order == "<" else 3 :: entry.size]:
        return data
    wide = bytearray(data)
    for i, (code, kind, count, value) in enumerate(entry.iter_unpack(data)):
        if kind == BYTE and count == 1 and (code in SINGLE or code in SEVERAL):
            number = struct.pack(f"{form.order}H", value[0]).ljust(len(value), b"\0")
            entry.pack_into(wide, i * entry.size, code, SHORT, 1, number)
    return bytes(wide)
