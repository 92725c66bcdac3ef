"""Old-style JPEG (compression 6): the header missing from each strip, built from the page's tags.

Spec: TIFF 6.0 section 22, as libtiff reads it: each strip is one restart interval, and JPEGQTables,
      JPEGDCTables and JPEGACTables are offsets of the tables. ITU-T T.81 annex B for the markers.
"""

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import tifffile

from anychunk.codecs.tiff.tile import YCBCR
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats.tiff.layout import Layout, subsampling
from anychunk.io.source import Source
from anychunk.model.index import Uint64

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    tables = _tables(page, layout, source)
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


def _tables(page: tifffile.TiffPage, layout: Layout, source: Source) -> bytes:
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
