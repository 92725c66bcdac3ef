"""Old-style JPEG (compression 6): the header that each strip lacks, built from the page's tags.

Spec: TIFF 6.0 section 22, as libtiff reads it: each strip is a restart interval of its own; tables
      lie where JPEGQTables, JPEGDCTables and JPEGACTables say. ITU-T T.81 annex B for the markers.
"""

import struct
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import tifffile

from anychunk.codecs.tiff.tile import YCBCR
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats.tiff.layout import Layout
from anychunk.formats.tiff.table import Table
from anychunk.io import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

SOI, SOF0, DHT, DQT, SOS = b"\xff\xd8", b"\xff\xc0", b"\xff\xc4", b"\xff\xdb", b"\xff\xda"
Q_TABLES, DC_TABLES, AC_TABLES = 519, 520, 521


def is_whole_stream(source: Source, offsets: Table, lengths: Table) -> bool:
    """Whether the only strip is a JPEG stream as any other."""
    return (
        offsets.size == 1 and bool(lengths.flat[0]) and _peek(source, int(offsets.flat[0])) == SOI
    )


def _peek(source: Source, offset: int, length: int = 2) -> bytes:
    room = max(0, source.size() - offset)
    return source.read(offset, min(length, room)).tobytes() if room else b""


def fronts(
    page: tifffile.TiffPage, layout: Layout, source: Source, offsets: Table
) -> tuple[tuple[bytes, ...], npt.NDArray[np.uint8]]:
    """Give the headers that strips need in front, and which one each has."""
    if layout.is_tiled or layout.is_planar or layout.bands not in (1, 3):
        raise UnsupportedError(
            f"{layout.where}: old-style JPEG other than in strips of 1 or 3 bands"
        )
    tables = _tables(page, layout, source)
    found: dict[bytes, int] = {}
    ids = np.zeros(offsets.shape, np.uint8)
    last = offsets.size - 1
    for i, offset in enumerate(offsets.reshape(-1).tolist()):
        rows = layout.last_height if i == last else layout.chunk_height
        header = SOI + tables + _frame(page, layout, rows)
        if _peek(source, offset) != SOS:
            header += _scan(page, layout)
        ids.flat[i] = found.setdefault(header, len(found))
    return tuple(found), ids


def _unique(page: tifffile.TiffPage, code: int, layout: Layout) -> tuple[list[int], list[int]]:
    """Give the offsets of tables, each once, and which one each component uses."""
    value = page.tags.valueof(code)
    offsets: Sequence[int] = value if isinstance(value, tuple) else (value,)
    if value is None or len(offsets) < layout.bands:
        raise UnsupportedError(
            f"{layout.where}: old-style JPEG without tables in tag {code} is not opened"
        )
    unique = list(dict.fromkeys(int(n) for n in offsets[: layout.bands]))
    return unique, [unique.index(int(n)) for n in offsets[: layout.bands]]


def _tables(page: tifffile.TiffPage, layout: Layout, source: Source) -> bytes:
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
        raise FormatError(f"{layout.where}: a JPEG table at {offset} lies beyond the end")
    return data


def _frame(page: tifffile.TiffPage, layout: Layout, rows: int) -> bytes:
    across, down = (1, 1)
    if layout.photometric == YCBCR:
        across, down = (int(n) for n in page.subsampling or (2, 2))
    if not (0 < across < 5 and 0 < down < 5 and rows < 1 << 16 and layout.width < 1 << 16):
        raise FormatError(f"{layout.where}: old-style JPEG of {layout.width} x {rows}")
    uses = _unique(page, Q_TABLES, layout)[1]
    parts = [
        bytes((i + 1, (across << 4 | down) if i == 0 else 0x11, use)) for i, use in enumerate(uses)
    ]
    head = struct.pack(">HBHHB", 8 + 3 * len(uses), 8, rows, layout.width, len(uses))
    return SOF0 + head + b"".join(parts)


def _scan(page: tifffile.TiffPage, layout: Layout) -> bytes:
    dc, ac = _unique(page, DC_TABLES, layout)[1], _unique(page, AC_TABLES, layout)[1]
    parts = [bytes((i + 1, d << 4 | a)) for i, (d, a) in enumerate(zip(dc, ac, strict=True))]
    return SOS + struct.pack(">HB", 6 + 2 * len(dc), len(dc)) + b"".join(parts) + b"\x00\x3f\x00"
