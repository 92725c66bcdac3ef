"""Walk JPEG streams to their end: checks of entropy-coded data that need no decoding.

Spec: ITU-T T.81 annexes A and B; MIL-STD-188-198A for the APP6 marker of NITF and its default
      tables.

On damaged data a decoder invents pixels, and libjpeg only warns. This walk raises for damage that
can be detected without decoding: no end marker, other markers inside the data of a scan, restart
markers that are missing or out of order, and less data than the minimum that the blocks of the
picture need.

In entropy-coded data, a byte of 0xFF is followed by a stuffed 0x00 (T.81 B.1.1.5). Any other 0xFF
begins a marker, or is a fill byte before one (B.1.1.2). So the next marker is found without
decoding.
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
    unit_size,
)
from anychunk.errors import FormatError, TruncatedError, UnsupportedError

type Bytes1D = npt.NDArray[np.uint8]

APP6 = 0xE6
PROGRESSIVE = 2
DECODED = (0, 1, 2, 3)
"""Processes that are decoded: baseline, extended, progressive and lossless, with Huffman codes."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The position of one stream in a sequence of bytes, and its header."""

    header: JpegHeader
    frame: Frame
    start: int
    end: int
    """Position after the end marker (`walk`), or the end of the data (`head`)."""
    q_level: int
    """Number of the NITF default tables that replace missing ones; 0 for none."""

    @property
    def bands(self) -> int:
        return len(self.frame.components)

    @property
    def lacks_tables(self) -> bool:
        has_quantization = self.header.has_quantization_tables or self.frame.is_lossless
        return not (self.header.has_huffman_tables and has_quantization)


def units(frame: Frame) -> int:
    """Return the number of minimum coded units (MCU) in a scan of all bands (T.81 A.2)."""
    if frame.is_lossless:
        return frame.width * frame.height
    wide, high = unit_size(frame)
    return -(-frame.width // wide) * -(-frame.height // high)


def skip_fill(data: Bytes1D, start: int) -> int:
    """Return the position of the marker at `start`, after any fill bytes of 0xFF (T.81 B.1.1.2)."""
    if data[start : start + 2].tobytes() != b"\xff\xff":
        return start
    is_other = data[start:] != 0xFF
    return start + max(int(is_other.argmax()) - 1, 0)


def head(data: Bytes1D, start: int = 0) -> Stream:
    """Read the header of the stream at `start`, without searching for its end."""
    start = skip_fill(data, start)
    view = memoryview(data[start:])
    header = read_header(view)
    frame = header.frame
    if frame is None or not frame.height:
        # T.81 B.2.5: a height of 0 is defined by DNL after the first scan, which is not read
        raise FormatError("JPEG: the stream has no frame of known height")
    if frame.process not in DECODED:
        raise UnsupportedError(
            f"JPEG: process {frame.process} is not supported; "
            f"supported: {' '.join(map(str, DECODED))}"
        )
    level = 0
    for marker, at, stop in markers(view):
        # MIL-STD-188-198A: identifier, version, IMODE, blocks per row and column, colours, bits,
        # class, process, and at byte 16 the Q level
        if marker == APP6 and stop - at > 16 and bytes(view[at : at + 5]) == b"NITF\0":
            level = view[at + 16]
    return Stream(header=header, frame=frame, start=start, end=len(data), q_level=level)


def walk(data: Bytes1D, start: int = 0) -> Stream:
    """Check the stream at `start` up to its end marker; return its position."""
    stream = head(data, start)
    at = stream.start + stream.header.scan_offset
    interval = stream.header.restart_interval
    while True:
        at, code = _marker(data, at)
        if code == EOI:
            break
        if code == 0 or 0xD0 <= code <= 0xD7:
            raise FormatError(f"JPEG: marker {code:#04x} at byte {at - 2} is outside a scan")
        if at + 2 > len(data):
            raise TruncatedError(f"JPEG: {len(data)} bytes without an end marker")
        length = int(data[at]) << 8 | int(data[at + 1])
        if length < 2 or at + length > len(data):
            raise TruncatedError(
                f"JPEG: marker {code:#04x} has {length} bytes, expected 2 to {len(data) - at}"
            )
        if code == SOS:
            bands = int(data[at + 2]) if length > 2 else 0
            at = _scan(data, at + length, stream, bands, interval)
        else:
            at += length
    return Stream(
        header=stream.header, frame=stream.frame, start=stream.start, end=at, q_level=stream.q_level
    )


def _marker(data: Bytes1D, at: int) -> tuple[int, int]:
    """Return the end and the code of the marker at `at`, after any fill bytes."""
    begin = at
    while at < len(data) and data[at] == 0xFF:
        at += 1
    if at >= len(data):
        raise TruncatedError(f"JPEG: {len(data)} bytes without an end marker")
    if at == begin:
        raise FormatError(f"JPEG: expected a marker at byte {at}, found {int(data[at]):#04x}")
    return at + 1, int(data[at])


def _scan(data: Bytes1D, at: int, stream: Stream, bands: int, interval: int) -> int:
    """Return the position of the marker after the entropy-coded data at `at`."""
    begin, restarts = at, 0
    while True:
        at = next_marker(data, at)
        code = int(data[at + 1])
        if not 0xD0 <= code <= 0xD7:
            break
        if code != 0xD0 + restarts % 8 or not interval:
            found = f"restart marker {code:#04x} at byte {at}"
            raise FormatError(
                f"JPEG: {found}, expected {0xD0 + restarts % 8:#04x}"
                if interval
                else f"JPEG: {found} without a restart interval (DRI)"
            )
        restarts += 1
        at += 2
    # Only a scan of all bands that is not progressive is the whole picture. Then its size is known,
    # and only EOI or DNL may follow
    if bands == stream.bands and stream.frame.process != PROGRESSIVE:
        _check_amount(stream.frame, at - begin, restarts, interval)
        if code not in (EOI, DNL):
            raise FormatError(
                f"JPEG: marker {code:#04x} at byte {at} inside the only scan, expected {EOI:#04x}"
            )
    return at


def _check_amount(frame: Frame, nbytes: int, restarts: int, interval: int) -> None:
    """Raise if a scan of all bands has fewer bytes or restart markers than its units need."""
    count = units(frame)
    expected = (count - 1) // interval if interval else 0
    if restarts != expected:
        raise FormatError(f"JPEG: {restarts} restart markers, expected {expected}")
    # at least one bit per unit of a lossless scan; in others, a DC and an AC code per block
    if 8 * nbytes < count * (1 if frame.is_lossless else 2):
        raise TruncatedError(
            f"JPEG: {nbytes} bytes of data, expected more for {count} minimum coded units"
        )


def next_marker(data: Bytes1D, at: int, piece: int = 1 << 16) -> int:
    """Return the position of the next 0xFF that is neither stuffed nor a fill byte.

    Parameters:
        data: The stream.
        at: Where to begin.
        piece: How many bytes are searched at a time; pieces overlap by one byte.
    """
    while at < len(data) - 1:
        part = data[at : at + piece + 1]
        found = np.flatnonzero(part[:-1] == 0xFF)
        after = part[found + 1]
        found = found[(after != 0) & (after != 0xFF)]
        if len(found):
            return at + int(found[0])
        at += len(part) - 1
    raise TruncatedError(f"JPEG: {len(data)} bytes without an end marker")


# MIL-STD-188-198A: quantisation tables by Q level, in the zigzag order of DQT
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
# ITU-T T.81 tables K.3 and K.5 as in DHT: the number of codes per length, then the symbols
_DC = bytes.fromhex("00010501010101010100000000000000") + bytes(range(12))
_AC = bytes.fromhex(
    "0002010303020403050504040000017d"
    "01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a161718191a25262728"
    "292a3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a83848586878889"
    "8a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2"
    "e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9fa"
)


def with_tables(data: bytes, stream: Stream) -> bytes:
    """Return a stream with the default tables of NITF inserted for those that it lacks."""
    lacks_quantization = not stream.header.has_quantization_tables
    values = _Q_TABLES.get(stream.q_level)
    if stream.frame.depth != 8 or (lacks_quantization and values is None):
        raise FormatError(
            f"JPEG: {stream.frame.depth}-bit stream without tables and with Q level "
            f"{stream.q_level}, expected 8 bits and Q level 1 to 5"
        )
    segments = [data[:2]]
    # all four slots get the same table: which ones the components use does not matter then
    if values is not None and lacks_quantization:
        table = bytes(int(v) for v in values.split())
        body = b"".join(bytes([slot]) + table for slot in range(4))
        segments.append(struct.pack(">BBH", 0xFF, DQT, len(body) + 2) + body)
    if not stream.header.has_huffman_tables:
        body = b"".join(bytes([slot]) + _DC + bytes([0x10 | slot]) + _AC for slot in range(4))
        segments.append(struct.pack(">BBH", 0xFF, DHT, len(body) + 2) + body)
    return b"".join([*segments, data[2:]])
