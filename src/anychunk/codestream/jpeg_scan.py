"""JPEG streams to their end: what entropy-coded data shows without being decoded.

Spec: ITU-T T.81 annex B; MIL-STD-188-198A for the APP6 marker of NITF and its default tables.

A decoder that meets damage makes up pixels. This walk refuses what it can see: a stream without an
end marker, other markers in the data of a scan, restart markers that are missing or out of order,
less data than the blocks of the picture take at the very least.
"""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychunk.codestream.jpeg import (
    DHT,
    DNL,
    DQT,
    EOI,
    SOS,
    Frame,
    JpegHeader,
    markers,
    read_header,
)
from anychunk.errors import FormatError, TruncatedError, UnsupportedError

type Bytes1D = npt.NDArray[np.uint8]

APP6 = 0xE6
PROGRESSIVE = 2
DECODED = (0, 1, 2, 3)
"""Baseline, extended, progressive and lossless; nobody writes the others."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One whole stream in a run of bytes."""

    header: JpegHeader
    frame: Frame
    start: int
    end: int
    """Behind its end marker."""
    q_level: int
    """Which default tables of NITF stand in for those that are left out; 0: none."""

    @property
    def bands(self) -> int:
        return len(self.frame.components)

    @property
    def lacks_tables(self) -> bool:
        has_quantization = self.header.has_quantization_tables or self.frame.is_lossless
        return not (self.header.has_huffman_tables and has_quantization)


def units(frame: Frame) -> int:
    """How many minimum coded units a scan of all bands has (T.81 A.2)."""
    if frame.is_lossless:
        return frame.width * frame.height
    is_single = len(frame.components) == 1
    wide = 8 * (1 if is_single else max(h for _, h, _ in frame.components))
    high = 8 * (1 if is_single else max(v for _, _, v in frame.components))
    return -(-frame.width // wide) * -(-frame.height // high)


def head(data: Bytes1D, start: int = 0) -> Stream:
    """Read what stands before the first scan of the stream at `start`, and no further."""
    view = memoryview(data[start:])
    header = read_header(view)
    frame = header.frame
    if frame is None or not frame.height:
        raise FormatError("JPEG: the stream holds no picture")
    if frame.process not in DECODED:
        raise UnsupportedError(
            f"JPEG: process {frame.process} is not decoded; decoded: {' '.join(map(str, DECODED))}"
        )
    level = 0
    for marker, at, stop in markers(view):
        # MIL-STD-188-198A: identifier, version, IMODE, blocks across and down, colours, bits,
        # class, process, and at byte 16 the level
        if marker == APP6 and stop - at > 16 and bytes(view[at : at + 5]) == b"NITF\0":
            level = view[at + 16]
    return Stream(header=header, frame=frame, start=start, end=len(data), q_level=level)


def walk(data: Bytes1D, start: int = 0) -> Stream:
    """Read the stream at `start` to its end marker."""
    stream = head(data, start)
    at = start + stream.header.scan_offset
    interval = stream.header.restart_interval
    while True:
        at, code = _marker(data, at)
        if code == EOI:
            break
        if code == 0 or 0xD0 <= code <= 0xD7:
            raise FormatError(f"JPEG: marker {code:#04x} stands outside a scan")
        if at + 2 > len(data):
            raise TruncatedError("JPEG: the stream ends before its end marker")
        length = int(data[at]) << 8 | int(data[at + 1])
        if length < 2 or at + length > len(data):
            raise TruncatedError(f"JPEG: marker {code:#04x} of {length} bytes leaves the stream")
        if code == SOS:
            bands = int(data[at + 2]) if length > 2 else 0
            at = _scan(data, at + length, stream, bands, interval)
        else:
            at += length
    return Stream(
        header=stream.header, frame=stream.frame, start=start, end=at, q_level=stream.q_level
    )


def _marker(data: Bytes1D, at: int) -> tuple[int, int]:
    """Give where the marker at `at` ends, and the marker; fill bytes may stand before it."""
    begin = at
    while at < len(data) and data[at] == 0xFF:
        at += 1
    if at >= len(data):
        raise TruncatedError("JPEG: the stream ends before its end marker")
    if at == begin:
        raise FormatError(f"JPEG: at byte {at} stands {int(data[at]):#04x}, not a marker")
    return at + 1, int(data[at])


def _scan(data: Bytes1D, at: int, stream: Stream, bands: int, interval: int) -> int:
    """Pass over entropy-coded data to the marker behind it."""
    begin, restarts = at, 0
    while True:
        at = next_marker(data, at)
        code = int(data[at + 1])
        if not 0xD0 <= code <= 0xD7:
            break
        if code != 0xD0 + restarts % 8 or not interval:
            raise FormatError(f"JPEG: restart marker {code:#04x} is out of order")
        restarts += 1
        at += 2
    if bands == stream.bands and stream.frame.process != PROGRESSIVE:
        _check_amount(stream.frame, at - begin, restarts, interval)
        if code not in (EOI, DNL):
            raise FormatError(f"JPEG: marker {code:#04x} in the data of the only scan")
    return at


def _check_amount(frame: Frame, nbytes: int, restarts: int, interval: int) -> None:
    """Hold a scan of all bands against what it must have at the least."""
    count = units(frame)
    expected = (count - 1) // interval if interval else 0
    if restarts != expected:
        raise FormatError(f"JPEG: {restarts} restart markers, expected {expected}")
    # at least a bit for a sample of a lossless scan, two codes for a block of another
    if 8 * nbytes < count * (1 if frame.is_lossless else 2):
        raise TruncatedError(f"JPEG: {nbytes} bytes of data for {count} units")


def next_marker(data: Bytes1D, at: int, piece: int = 1 << 16) -> int:
    """Find the next 0xFF that is neither stuffed nor a fill byte."""
    while at < len(data) - 1:
        part = data[at : at + piece + 1]
        found = np.flatnonzero(part[:-1] == 0xFF)
        after = part[found + 1]
        found = found[(after != 0) & (after != 0xFF)]
        if len(found):
            return at + int(found[0])
        at += len(part) - 1
    raise TruncatedError("JPEG: the stream ends before its end marker")


# MIL-STD-188-198A: quantisation tables by Q level, in zigzag order as a DQT marker has them
_Q_TABLES = {
    1: "8 72 72 72 72 72 72 72 72 72 78 74 76 74 78 89 81 84 84 81 89 106 93 94 99 94 93 106 "
    "129 111 108 116 116 108 111 129 135 128 136 145 136 128 135 155 160 177 177 160 155 "
    "193 213 228 213 193 255 255 255 255 255 255 255 255 255 255",
    2: "8 36 36 36 36 36 36 36 36 36 39 37 38 37 39 45 41 42 42 41 45 53 47 47 50 47 47 53 "
    "65 56 54 59 59 54 56 65 68 64 69 73 69 64 68 78 81 89 89 81 78 98 108 115 108 98 130 "
    "144 144 130 178 190 178 243 243 255",
    3: "8 10 10 10 10 10 10 10 10 10 11 10 11 10 11 13 11 12 12 11 13 15 13 13 14 13 13 15 "
    "18 16 15 16 16 15 16 18 19 18 19 21 19 18 19 22 23 25 25 23 22 27 30 32 30 27 36 40 "
    "40 36 50 53 50 68 68 91",
    4: "8 7 7 7 7 7 7 7 7 7 8 7 8 7 8 9 8 8 8 8 9 11 9 9 10 9 9 11 13 11 11 12 12 11 11 13 "
    "14 13 14 15 14 13 14 16 16 18 18 16 16 20 22 23 22 20 26 29 29 26 36 38 36 49 49 65",
    5: "4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 5 5 5 5 5 5 6 5 5 6 5 5 6 7 6 6 6 6 6 6 7 8 7 8 8 8 7 "
    "8 9 9 10 10 9 9 11 12 13 12 11 14 16 16 14 20 21 20 27 27 36",
}
# ITU-T T.81 tables K.3 and K.5: counts of codes by length, then the symbols
_DC = bytes.fromhex("00010501010101010100000000000000") + bytes(range(12))
_AC = bytes.fromhex(
    "0002010303020403050504040000017d"
    "01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a161718191a25262728"
    "292a3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a83848586878889"
    "8a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2"
    "e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9fa"
)


def with_tables(data: bytes, stream: Stream) -> bytes:
    """Put the tables that NITF assumes into a stream that leaves them out."""
    lacks_quantization = not stream.header.has_quantization_tables
    values = _Q_TABLES.get(stream.q_level)
    if stream.frame.depth != 8 or (lacks_quantization and values is None):
        raise FormatError(
            f"JPEG: the stream of {stream.frame.depth} bits lacks tables, and its Q level "
            f"{stream.q_level} names none; known: 1 to 5, for 8 bits"
        )
    segments = [data[:2]]
    if values is not None and lacks_quantization:
        table = bytes(int(v) for v in values.split())
        body = b"".join(bytes([slot]) + table for slot in range(4))
        segments.append(struct.pack(">BBH", 0xFF, DQT, len(body) + 2) + body)
    if not stream.header.has_huffman_tables:
        body = b"".join(bytes([slot]) + _DC + bytes([0x10 | slot]) + _AC for slot in range(4))
        segments.append(struct.pack(">BBH", 0xFF, DHT, len(body) + 2) + body)
    return b"".join([*segments, data[2:]])
