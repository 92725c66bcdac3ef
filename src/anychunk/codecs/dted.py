"""`anychunk.dted`, bytes to bytes: records of a DTED cell, as rows from north to south.

Spec:     MIL-PRF-89020B section 3.13: a record is the sentinel 0xAA, a block count of three bytes,
          the longitude and latitude counts of two each, elevations from south to north, and a
          checksum of four bytes; all big-endian. Elevations have a sign bit and a magnitude. Name
          and keys are those of osml-imagery-io.
JSON:     {"name": "anychunk.dted", "configuration":
          {"num_lat_points": 1201, "num_lon_lines": 200, "record_size": 2414}}; left out if 0:
          "trim_top", "trim_bottom", "trim_left", "trim_right"; ours, and left out if false:
          "verify_checksums"
Lossless: yes, for elevations that DTED can hold.

Decoded bytes are little-endian int16 of shape `(rows, columns)`, row 0 in the north. Trimmed rows
and columns are left out. A chunk at the edge of an array may have fewer records than
`num_lon_lines`; its missing columns are voids, -32767. Elevations below -16000 m, other than voids,
do not exist: such samples are read as two's complement, which some producers wrote, as GDAL does.
"""

from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError

VOID = -32767
SENTINEL = 0xAA
FRONT = 8
"""Bytes of a record before its elevations."""
BACK = 4
"""Bytes of its checksum."""
LOWEST = -16000
"""Lower values are taken for two's complement, as GDAL does (dted_api.c)."""


def record_bytes(points: int) -> int:
    """Return the length of a record with `points` elevations."""
    return FRONT + 2 * points + BACK


def elevations(raw: npt.NDArray[np.uint16]) -> npt.NDArray[np.int16]:
    """Return the values of 16-bit samples with a sign and a magnitude, in native byte order."""
    magnitude = (raw & np.uint16(0x7FFF)).astype(np.int16)
    values = np.where(raw & np.uint16(0x8000), -magnitude, magnitude)
    is_other = (values < LOWEST) & (values != VOID)
    return np.where(is_other, raw.view(np.int16), values) if is_other.any() else values


def sign_and_magnitude(values: npt.NDArray[np.int16]) -> npt.NDArray[np.uint16]:
    """Return the samples of elevations, big-endian."""
    raw = np.where(values < 0, np.uint16(0x8000) | np.abs(values).astype(np.uint16), values)
    return raw.astype(">u2")


def checksums(records: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the sum of all bytes of each record but its checksum."""
    return records[:, :-BACK].sum(axis=1, dtype=np.uint32)


def stored_checksums(records: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the checksum that each record has."""
    return np.ascontiguousarray(records[:, -BACK:]).view(">u4").reshape(-1).astype(np.uint32)


@dataclass(frozen=True, kw_only=True)
class Dted(BytesToBytes):
    """Data records of a DTED cell, one per line of longitude."""

    name: ClassVar[str] = "anychunk.dted"
    num_lat_points: int = 1201
    """Elevations per record."""
    num_lon_lines: int = 1201
    """Records per chunk."""
    record_size: int = 2414
    """Bytes per record."""
    trim_top: int = 0
    trim_bottom: int = 0
    trim_left: int = 0
    trim_right: int = 0
    verify_checksums: bool = False
    """Whether a record with a wrong checksum is an error."""

    def __post_init__(self) -> None:
        for key in ("num_lat_points", "num_lon_lines", "record_size"):
            self._check(key, 1)
        for key in ("trim_top", "trim_bottom", "trim_left", "trim_right"):
            self._check(key, 0)
        if not isinstance(self.verify_checksums, bool):
            raise CodecConfigError(
                f"{self.name}: verify_checksums is {self.verify_checksums!r}, expected a boolean"
            )
        if self.record_size < record_bytes(self.num_lat_points):
            raise CodecConfigError(
                f"{self.name}: record_size is {self.record_size}, expected at least "
                f"{record_bytes(self.num_lat_points)} for {self.num_lat_points} elevations"
            )
        if min(self.shape) < 1:
            raise CodecConfigError(f"{self.name}: nothing is left of {self.cell} after trimming")

    def _check(self, key: str, least: int) -> None:
        value: Any = getattr(self, key)
        if type(value) is not int or not least <= value < 1 << 31:
            raise CodecConfigError(
                f"{self.name}: {key} is {value!r}, expected an integer >= {least}"
            )

    @property
    def cell(self) -> tuple[int, int]:
        """Rows and columns before trimming."""
        return self.num_lat_points, self.num_lon_lines

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the decoded chunk."""
        rows, columns = self.cell
        return rows - self.trim_top - self.trim_bottom, columns - self.trim_left - self.trim_right

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        count, rest = divmod(len(data), self.record_size)
        if rest or not 1 <= count <= self.num_lon_lines:
            raise ChunkDecodeError(
                f"dted: {len(data)} bytes, expected up to {self.num_lon_lines} records of "
                f"{self.record_size}"
            )
        nbytes = 2 * self.shape[0] * self.shape[1]
        if spec is not None and spec.nbytes != nbytes:
            raise ChunkDecodeError(
                f"dted: {self.shape} elevations are {nbytes} bytes, expected {spec.nbytes} for the "
                "chunk"
            )
        limits.check_chunk(nbytes, where="dted", stored=len(data))
        records = np.asarray(data).reshape(count, self.record_size)
        self._check_records(records)
        columns = records[self.trim_left : self.num_lon_lines - self.trim_right]
        samples = np.ascontiguousarray(columns[:, FRONT : FRONT + 2 * self.num_lat_points])
        values = elevations(samples.view(">u2").astype(np.uint16))
        target = np.empty(nbytes, np.uint8) if out is None or len(out) != nbytes else out
        grid = target.view("<i2").reshape(self.shape)
        bottom, top = self.trim_bottom, self.num_lat_points - self.trim_top
        # a record begins in the south
        grid[:, : len(values)] = values[:, bottom:top].T[::-1]
        grid[:, len(values) :] = VOID
        return target

    def _check_records(self, records: npt.NDArray[np.uint8]) -> None:
        bad = np.flatnonzero(records[:, 0] != SENTINEL)
        if len(bad):
            raise ChunkDecodeError(
                f"dted: record {bad[0]} of the chunk begins with 0x{records[bad[0], 0]:02x}, "
                f"expected 0x{SENTINEL:02x}"
            )
        if self.verify_checksums:
            whole = records[:, : record_bytes(self.num_lat_points)]
            found, stated = checksums(whole), stored_checksums(whole)
            wrong = np.flatnonzero(found != stated)
            if len(wrong):
                raise ChunkDecodeError(
                    f"dted: record {wrong[0]} of the chunk has checksum {found[wrong[0]]}, "
                    f"expected {stated[wrong[0]]}; to read it all the same, open DTED files with "
                    "checksums=False"
                )

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        if self.shape != self.cell:
            raise ChunkEncodeError("dted: trimmed elevations cannot be encoded; leave out trim_*")
        rows, columns = self.cell
        if len(data) != 2 * rows * columns:
            raise ChunkEncodeError(
                f"dted: {len(data)} bytes, expected {2 * rows * columns} for {self.cell}"
            )
        values = np.asarray(data).view("<i2").reshape(self.cell).astype(np.int16)
        low = values[values != VOID]
        if low.size and low.min() < LOWEST:
            raise ChunkEncodeError(
                f"dted: elevation {low.min()}, expected at least {LOWEST}, or {VOID} for a void"
            )
        records = np.zeros((columns, self.record_size), np.uint8)
        records[:, 0] = SENTINEL
        counts = np.arange(columns, dtype=">u4")
        records[:, 1:4] = counts.view(np.uint8).reshape(columns, 4)[:, 1:]
        records[:, 4:6] = counts.view(np.uint8).reshape(columns, 4)[:, 2:]
        samples = np.ascontiguousarray(sign_and_magnitude(values[::-1].T))
        records[:, FRONT : FRONT + 2 * rows] = samples.view(np.uint8).reshape(columns, -1)
        end = record_bytes(rows)
        sums = checksums(records[:, :end]).astype(">u4")
        records[:, end - BACK : end] = sums.view(np.uint8).reshape(columns, BACK)
        return records.reshape(-1)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        return self.num_lon_lines * self.record_size
