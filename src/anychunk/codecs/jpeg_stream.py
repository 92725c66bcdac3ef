"""JPEG streams, walked marker by marker: what they hold, and where they end.

A decoder that meets damage makes up pixels. The walk refuses what it can see without decoding: a
stream without an end marker, markers where entropy-coded data should be, restart markers that are
missing or out of order, less data than the blocks of the picture take at the very least.
"""

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from anychunk.errors import ChunkDecodeError

type Bytes1D = npt.NDArray[np.uint8]

SOI, EOI, SOS, DQT, DHT, DRI, DNL, DAC = 0xD8, 0xD9, 0xDA, 0xDB, 0xC4, 0xDD, 0xDC, 0xCC
APP6 = 0xE6
FRAMES = {0xC0, 0xC1, 0xC2, 0xC3}
"""Baseline, extended, progressive and lossless, all with Huffman coding."""
OTHER_FRAMES = {0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}
"""Differential and arithmetic coding, which nobody writes."""
ALONE = {0x01, *range(0xD0, 0xD8)}
"""Markers without a length: TEM and the restart markers."""


@dataclass
class Stream:
    """What one stream announces."""

    start: int
    end: int = 0
    """Behind its end marker."""
    frame: int = 0
    bits: int = 0
    height: int = 0
    width: int = 0
    components: list[tuple[int, int, int]] = field(default_factory=list)
    """Identifier and sampling factors of each band."""
    restart_interval: int = 0
    quantisation: set[int] = field(default_factory=set)
    huffman: set[int] = field(default_factory=set)
    q_level: int = 0
    """Which default tables of MIL-STD-188-198A stand in for those left out."""
    scans: int = 0

    @property
    def is_lossless(self) -> bool:
        return self.frame == 0xC3

    @property
    def lacks_tables(self) -> bool:
        return not self.huffman or (not self.quantisation and not self.is_lossless)

    @property
    def units(self) -> int:
        """How many minimum coded units a scan of all bands has."""
        if len(self.components) == 1 or self.is_lossless:
            wide = high = 1 if self.is_lossless else 8
        else:
            wide = 8 * max(h for _, h, _ in self.components)
            high = 8 * max(v for _, _, v in self.components)
        return -(-self.width // wide) * -(-self.height // high)


def walk(data: Bytes1D, start: int = 0) -> Stream:
    """Walk the stream that begins at `start`, to its end."""
    stream = Stream(start)
    size = len(data)
    if size - start < 4 or data[start] != 0xFF or data[start + 1] != SOI:
        raise ChunkDecodeError(
            f"jpeg: begins with {data[start : start + 4].tobytes()!r}, expected a start marker"
        )
    at = start + 2
    while True:
        code, at = _marker(data, at)
        if code == EOI:
            break
        if code in ALONE:
            raise ChunkDecodeError(f"jpeg: marker 0xFF{code:02X} stands outside a scan")
        if at + 2 > size:
            raise ChunkDecodeError("jpeg: the stream ends before its end marker")
        length = int(data[at]) << 8 | int(data[at + 1])
        body = data[at + 2 : at + length].tobytes()
        if length < 2 or at + length > size:
            raise ChunkDecodeError(f"jpeg: marker 0xFF{code:02X} of {length} bytes leaves the stream")
        try:
            _read(stream, code, body)
        except (struct.error, IndexError) as e:
            raise ChunkDecodeError(f"jpeg: marker 0xFF{code:02X} is too short") from e
        at += length
        if code == SOS:
            at = _scan(data, at, stream, len(body))
    if not stream.scans:
        raise ChunkDecodeError("jpeg: the stream has no scan")
    stream.end = at
    return stream


def _marker(data: Bytes1D, at: int) -> tuple[int, int]:
    """Give the marker at `at`, and where it ends; fill bytes may stand before it."""
    size = len(data)
    if at >= size:
        raise ChunkDecodeError("jpeg: the stream ends before its end marker")
    if data[at] != 0xFF:
        raise ChunkDecodeError(f"jpeg: 0x{int(data[at]):02X} where a marker should be")
    while at < size and data[at] == 0xFF:
        at += 1
    if at >= size:
        raise ChunkDecodeError("jpeg: the stream ends before its end marker")
    return int(data[at]), at + 1


def _read(stream: Stream, code: int, body: bytes) -> None:
    if code in OTHER_FRAMES or code == DAC:
        raise ChunkDecodeError(
            f"jpeg: process 0xFF{code:02X} is not decoded; decoded: 0xFFC0 to 0xFFC3"
        )
    if code in FRAMES:
        _frame(stream, code, body)
    elif code == DRI:
        stream.restart_interval = struct.unpack(">H", body[:2])[0]
    elif code == DQT:
        _tables(body, stream.quantisation, lambda first, _: 128 if first >> 4 else 64)
    elif code == DHT:
        _tables(body, stream.huffman, lambda _, rest: 16 + sum(rest[:16]))
    elif code == APP6 and body[:5] == b"NITF\0" and len(body) > 16:
        stream.q_level = body[16]
    elif code == SOS and not stream.frame:
        raise ChunkDecodeError("jpeg: a scan before the frame")


def _tables(body: bytes, found: set[int], length: object) -> None:
    at = 0
    while at < len(body):
        found.add(body[at])
        at += 1 + length(body[at], body[at + 1 :])  # type: ignore[operator]
    if at != len(body):
        raise ChunkDecodeError("jpeg: a table is longer than its marker")


def _frame(stream: Stream, code: int, body: bytes) -> None:
    if stream.frame:
        raise ChunkDecodeError("jpeg: two frames in one stream")
    bits, height, width, count = struct.unpack(">BHHB", body[:6])
    components = [struct.unpack("BBB", body[6 + 3 * i : 9 + 3 * i]) for i in range(count)]
    stream.frame, stream.bits, stream.height, stream.width = code, bits, height, width
    stream.components = [(c, s >> 4, s & 15) for c, s, _ in components]
    factors_ok = all(1 <= h <= 4 and 1 <= v <= 4 for _, h, v in stream.components)
    if not count or not height or not width or not 2 <= bits <= 16 or not factors_ok:
        raise ChunkDecodeError(
            f"jpeg: a frame of {height} x {width}, {count} bands of {bits} bits, is not a picture"
        )


def _scan(data: Bytes1D, at: int, stream: Stream, header: int) -> int:
    """Pass over entropy-coded data to the marker behind it."""
    stream.scans += 1
    begin = at
    restarts = 0
    while True:
        at = next_marker(data, at)
        code = int(data[at + 1])
        if not 0xD0 <= code <= 0xD7:
            break
        if code != 0xD0 + restarts % 8 or not stream.restart_interval:
            raise ChunkDecodeError(f"jpeg: restart marker 0xFF{code:02X} is out of order")
        restarts += 1
        at += 2
    is_full = (header - 4) // 2 == len(stream.components) and stream.frame != 0xC2
    if is_full:
        _check_amount(stream, at - begin, restarts)
        if code not in (EOI, DNL):
            raise ChunkDecodeError(f"jpeg: marker 0xFF{code:02X} in the data of the only scan")
    return at


def _check_amount(stream: Stream, nbytes: int, restarts: int) -> None:
    """Hold a scan of all bands against what it must have at the least."""
    interval = stream.restart_interval
    expected = (stream.units - 1) // interval if interval else 0
    if restarts != expected:
        raise ChunkDecodeError(f"jpeg: {restarts} restart markers, expected {expected}")
    # at least one bit for each sample of a lossless scan, two codes for each block of another
    if 8 * nbytes < stream.units * (1 if stream.is_lossless else 2):
        raise ChunkDecodeError(f"jpeg: {nbytes} bytes of data for {stream.units} units")


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
    raise ChunkDecodeError("jpeg: the stream ends before its end marker")


# MIL-STD-188-198A: quantisation tables by Q level, in zigzag order as a DQT marker has them
_Q_TABLES = {
    1: "8 72 72 72 72 72 72 72 72 72 78 74 76 74 78 89 81 84 84 81 89 106 93 94 99 94 93 106 129 111 "
    "108 116 116 108 111 129 135 128 136 145 136 128 135 155 160 177 177 160 155 193 213 228 213 193 "
    "255 255 255 255 255 255 255 255 255 255",
    2: "8 36 36 36 36 36 36 36 36 36 39 37 38 37 39 45 41 42 42 41 45 53 47 47 50 47 47 53 65 56 54 59 "
    "59 54 56 65 68 64 69 73 69 64 68 78 81 89 89 81 78 98 108 115 108 98 130 144 144 130 178 190 178 "
    "243 243 255",
    3: "8 10 10 10 10 10 10 10 10 10 11 10 11 10 11 13 11 12 12 11 13 15 13 13 14 13 13 15 18 16 15 16 "
    "16 15 16 18 19 18 19 21 19 18 19 22 23 25 25 23 22 27 30 32 30 27 36 40 40 36 50 53 50 68 68 91",
    4: "8 7 7 7 7 7 7 7 7 7 8 7 8 7 8 9 8 8 8 8 9 11 9 9 10 9 9 11 13 11 11 12 12 11 11 13 14 13 14 15 "
    "14 13 14 16 16 18 18 16 16 20 22 23 22 20 26 29 29 26 36 38 36 49 49 65",
    5: "4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 5 5 5 5 5 5 6 5 5 6 5 5 6 7 6 6 6 6 6 6 7 8 7 8 8 8 7 8 9 9 10 10 "
    "9 9 11 12 13 12 11 14 16 16 14 20 21 20 27 27 36",
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


def default_tables(stream: Stream) -> bytes:
    """Give the tables that NITF assumes where a stream has none, as a stream of tables only."""
    values = _Q_TABLES.get(stream.q_level)
    if (values is None and not stream.quantisation) or stream.bits != 8:
        raise ChunkDecodeError(
            f"jpeg: the stream of {stream.bits} bits lacks tables, and its Q level "
            f"{stream.q_level} names none; known: 1 to 5, for 8 bits"
        )
    segments = [b"\xff\xd8"]
    if not stream.quantisation:
        table = bytes(int(v) for v in values.split())  # type: ignore[union-attr]
        body = b"".join(bytes([slot]) + table for slot in range(4))
        segments.append(struct.pack(">BBH", 0xFF, DQT, len(body) + 2) + body)
    if not stream.huffman:
        body = b"".join(bytes([slot]) + _DC + bytes([0x10 | slot]) + _AC for slot in range(4))
        segments.append(struct.pack(">BBH", 0xFF, DHT, len(body) + 2) + body)
    return b"".join([*segments, b"\xff\xd9"])
