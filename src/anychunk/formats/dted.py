"""DTED: digital terrain elevation data, one cell of one degree per file (.dt0 .dt1 .dt2).

Spec:    MIL-PRF-89020B; GDAL's reader where files differ from it.
Axes:    (y, x), north up. Elevations are posts: they lie at the centres of pixels.
Opened:  levels 0, 1 and 2 and finer ones, with or without labels in front, partial cells too.
Refused: files that end before the records that their header announces; wrong checksums, unless
         opened with `checksums=False`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from anychunk import limits
from anychunk.codecs.dted import (
    SENTINEL,
    VOID,
    Dted,
    record_bytes,
    stored_checksums,
)
from anychunk.codecs.dted import (
    checksums as computed_checksums,
)
from anychunk.errors import FormatError, TruncatedError
from anychunk.io.source import Source, Storage
from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import Axis, Band, Crs, Level, Meaning, Place
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json

EXTENSIONS = (".dt0", ".dt1", ".dt2", ".dt3", ".dt4", ".dt5")
LABELS = (b"VOL", b"HDR")
"""Records of 80 bytes that may precede the headers, from the days of tapes."""
LABEL, UHL, DSI, ACC = 80, 80, 648, 2700
"""Lengths of the records before the data."""
DATUMS = {"WGS84": "EPSG:4326", "WGS72": "EPSG:4322"}
CHUNK_BYTES = 512 * limits.KIB
"""Desired length of a chunk, a run of records."""
"""Most posts per side that the two bytes of a record's counts can number."""

UHL_FIELDS = {
    "vertical_accuracy": (28, 32),
    "security_code": (32, 35),
    "unique_reference": (35, 47),
}
DSI_FIELDS = {
    "security_class": (3, 4),
    "security_control": (4, 6),
    "security_handling": (6, 33),
    "series": (59, 64),
    "dsi_reference": (64, 79),
    "edition": (87, 89),
    "match_merge_version": (89, 90),
    "maintenance_date": (90, 94),
    "match_merge_date": (94, 98),
    "maintenance_description": (98, 102),
    "producer": (102, 110),
    "vertical_datum": (141, 144),
    "horizontal_datum": (144, 149),
    "digitizing_system": (149, 159),
    "compilation_date": (159, 163),
    "partial_cell_indicator": (289, 291),
}
ACC_FIELDS = {
    "horizontal_accuracy": (3, 7),
    "absolute_vertical_accuracy": (7, 11),
    "relative_horizontal_accuracy": (11, 15),
    "relative_vertical_accuracy": (15, 19),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The headers of a file."""

    longitude: float
    """Of the posts of the first record, in degrees."""
    latitude: float
    """Of the southernmost posts."""
    step_x: float
    """Distance of records, in degrees."""
    step_y: float
    """Distance of posts along a record."""
    columns: int
    rows: int
    start: int
    """Offset of the first data record."""
    about: dict[str, Json]
    """What else the headers say."""


@dataclass(frozen=True)
class Finding:
    """One defect of a file, for `anychunk verify`."""

    severity: Literal["error", "warning"]
    field: str
    message: str


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a DTED file."""
    start = headers_start(head)
    return head[start : start + 3] == b"UHL" and head[start + UHL : start + UHL + 3] == b"DSI"


def headers_start(head: bytes) -> int:
    """Return the offset of the UHL record, after the labels."""
    start = 0
    while start < 2 * LABEL and head[start : start + 3] in LABELS:
        start += LABEL
    return start


def parse(source: Source, *, checksums: bool = True) -> GroupIndex:
    """Index a DTED file; `checksums=False` reads records whose checksums are wrong."""
    cell = read_cell(source)
    array = array_index(cell, source, verify=checksums)
    return root_group({"0": image_group(meaning_of_cell(cell), [Level(name="0", image=array)])})


def read_cell(source: Source) -> Cell:
    """Read the headers of a file."""
    longest = 2 * LABEL + UHL + DSI + ACC
    head = source.read(0, min(longest, source.size())).tobytes()
    start = headers_start(head)
    if len(head) < start + UHL + DSI + ACC:
        raise TruncatedError(
            f"{source.url}: {len(head)} bytes, expected headers of {start + UHL + DSI + ACC}"
        )
    uhl = head[start : start + UHL]
    dsi = head[start + UHL : start + UHL + DSI]
    acc = head[start + UHL + DSI : start + UHL + DSI + ACC]
    if uhl[:3] != b"UHL" or dsi[:3] != b"DSI":
        raise FormatError(f"{source.url}: expected the records UHL and DSI at byte {start}")
    columns, rows = count(uhl, 47, source.url), count(uhl, 51, source.url)
    found: dict[str, Json] = {}
    for record, fields in ((uhl, UHL_FIELDS), (dsi, DSI_FIELDS), (acc, ACC_FIELDS)):
        for key, (low, high) in fields.items():
            value = text(record[low:high])
            if value:
                found[key] = value
    series = str(found.get("series", ""))
    if series.startswith("DTED") and series[4:].isdigit():
        found["level"] = int(series[4:])
    return Cell(
        longitude=angle(uhl[4:12], "EW", source.url),
        latitude=angle(uhl[12:20], "NS", source.url),
        # tenths of seconds of arc
        step_x=count(uhl, 20, source.url) / 36000,
        step_y=count(uhl, 24, source.url) / 36000,
        columns=columns,
        rows=rows,
        start=start + UHL + DSI + ACC,
        about=found,
    )


def text(value: bytes) -> str:
    """Return a field as text; some writers end fields with zeros."""
    return value.decode("latin1").replace("\0", " ").strip()


def count(uhl: bytes, offset: int, url: str) -> int:
    """Return one of the positive numbers of four digits of the UHL record."""
    value = text(uhl[offset : offset + 4])
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise FormatError(
            f"{url}: UHL bytes {offset}..{offset + 4} are {value!r}, expected a positive number"
        )
    return int(value)


def angle(value: bytes, hemispheres: str, url: str) -> float:
    """Return degrees of DDDMMSSH.

    Some writers give latitudes two digits of degrees and a space behind them; the place of the
    hemisphere tells them apart. GDAL takes 380000N for 380 degrees.
    """
    found = re.fullmatch(
        rf"(\d{{2,3}})(\d\d)(\d\d)([{hemispheres}])", text(value).upper(), re.ASCII
    )
    if found is None:
        raise FormatError(
            f"{url}: the UHL origin is {text(value)!r}, expected DDDMMSS and one of {hemispheres}"
        )
    degrees, minutes, seconds = (int(found[i]) for i in (1, 2, 3))
    total = degrees + minutes / 60 + seconds / 3600
    return total if found[4] in "EN" else -total


def records_per_chunk(cell: Cell) -> int:
    """Return how many records a chunk has: a divisor of all but the last.

    The last record lies on the edge that a cell shares with its neighbour, so cells without it can
    be joined chunk by chunk.
    """
    most = max(1, CHUNK_BYTES // record_bytes(cell.rows))
    whole = max(1, cell.columns - 1)
    return max(n for n in range(1, min(most, whole) + 1) if whole % n == 0)


def array_index(cell: Cell, source: Source, *, verify: bool) -> ArrayIndex:
    """Return the index of the elevations."""
    size = record_bytes(cell.rows)
    missing = source.size() < cell.start + cell.columns * size
    offsets = partial_offsets(cell, source) if missing else None
    step = records_per_chunk(cell) if offsets is None else 1
    codec = Dted(
        num_lat_points=cell.rows,
        num_lon_lines=step,
        record_size=size,
        verify_checksums=verify,
    )
    firsts = np.arange(0, cell.columns, step, dtype=np.uint64)
    lengths = np.minimum(step, cell.columns - firsts) * np.uint64(size)
    starts = firsts * np.uint64(size) + np.uint64(cell.start)
    if offsets is not None:
        starts, lengths = offsets, np.where(offsets > 0, np.uint64(size), np.uint64(0))
    return ArrayIndex(
        shape=(cell.rows, cell.columns),
        chunk_shape=(cell.rows, step),
        data_type="int16",
        codecs=({"name": "bytes", "configuration": {"endian": "little"}}, codec.to_dict()),
        chunks=ByteRanges(offsets=starts[None], lengths=lengths[None], urls=(source.url,)),
        fill_value=VOID,
        dimension_names=("y", "x"),
    )


def partial_offsets(cell: Cell, source: Source) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return the offset of each record of a cell that has only some of them; 0 if it is absent.

    Each record numbers its line of longitude. A file that ends inside a record is truncated.
    """
    size = record_bytes(cell.rows)
    stored, rest = divmod(max(0, source.size() - cell.start), size)
    if rest or not stored or text_of(cell, "partial_cell_indicator") in ("", "0", "00"):
        raise TruncatedError(
            f"{source.url}: {source.size()} bytes, expected {cell.start + cell.columns * size} for "
            f"{cell.columns} records of {size}"
        )
    found = np.zeros(cell.columns, np.uint64)
    for number in range(stored):
        offset = cell.start + number * size
        head = source.read(offset, 6).tobytes()
        column = int.from_bytes(head[4:6], "big")
        if head[0] != SENTINEL or column >= cell.columns or found[column]:
            raise FormatError(
                f"{source.url} @{offset}: record {number} of a partial cell begins with "
                f"{head.hex()}, expected aa and a line of longitude below {cell.columns}"
            )
        found[column] = offset
    return found


def text_of(cell: Cell, key: str) -> str:
    return str(cell.about.get(key, ""))


def meaning_of_cell(cell: Cell) -> Meaning:
    """Return place, unit and voids of a cell."""
    code = DATUMS.get(text_of(cell, "horizontal_datum"))
    left = cell.longitude - cell.step_x / 2
    top = cell.latitude + (cell.rows - 0.5) * cell.step_y
    return Meaning(
        axes=(Axis(name="y"), Axis(name="x")),
        place=Place(
            crs=None if code is None else Crs(code=code, is_geographic=True),
            transform=(cell.step_x, 0.0, left, 0.0, -cell.step_y, top),
        ),
        nodata=VOID,
        bands=(Band(unit="m"),),
        native={"dted": cell.about},
    )


def check_header(source: Source, *, storage: Storage | None = None) -> Iterator[Finding]:
    """Yield what is wrong with the headers and the checksums of a file, for `anychunk verify`."""
    cell = read_cell(source)
    size = record_bytes(cell.rows)
    stored = max(0, source.size() - cell.start) // size
    step = max(1, 4 * limits.MIB // size)
    for first in range(0, min(stored, cell.columns), step):
        number = min(step, stored - first, cell.columns - first)
        data = source.read(cell.start + first * size, number * size)
        records = np.asarray(data).reshape(number, size)
        wrong = np.flatnonzero(computed_checksums(records) != stored_checksums(records))
        for row in wrong[:3]:
            yield Finding(
                "warning",
                f"record {first + int(row)}",
                f"has checksum {computed_checksums(records)[row]}, "
                f"expected {stored_checksums(records)[row]}",
            )
    for key, (low, high) in (("latitude", (281, 285)), ("longitude", (285, 289))):
        start = headers_start(source.read(0, min(2 * LABEL, source.size())).tobytes())
        dsi = source.read(start + UHL, DSI).tobytes()
        counted = text(dsi[low:high])
        expected = cell.rows if key == "latitude" else cell.columns
        if counted.isdigit() and int(counted) != expected:
            yield Finding(
                "warning", "DSI", f"counts {counted} points of {key}, the UHL record {expected}"
            )
