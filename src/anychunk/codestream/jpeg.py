"""JPEG markers: what a decoder must be told, and what it must not guess.

Spec: ITU-T T.81 annex B; T.871 (JFIF); Adobe Technical Note 5116 (APP14).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from anychunk.errors import FormatError, TruncatedError, UnsupportedError

SOI, EOI, SOS, DQT, DHT, DAC, DRI, DNL, APP0, APP14, COM = (
    0xD8, 0xD9, 0xDA, 0xDB, 0xC4, 0xCC, 0xDD, 0xDC, 0xE0, 0xEE, 0xFE,
)  # fmt: skip
FRAMES = frozenset(range(0xC0, 0xD0)) - {DHT, 0xC8, DAC}
"""SOF0 to SOF15."""
ALONE = frozenset((0x01, *range(0xD0, 0xD8)))
"""Markers without parameters: TEM, RST0 to RST7."""

type ColorTransform = Literal["none", "ycbcr", "ycck"]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """T.81 B.2.2."""

    process: int
    """0 baseline, 1 extended, 2 progressive, 3 lossless; +4: differential, +8: arithmetic."""
    depth: int
    height: int
    width: int
    components: tuple[tuple[int, int, int], ...]
    """(identifier, horizontal, vertical sampling factor)."""

    @property
    def is_lossless(self) -> bool:
        return self.process & 3 == 3

    @property
    def is_subsampled(self) -> bool:
        return len({(h, v) for _, h, v in self.components}) > 1


@dataclass(frozen=True, kw_only=True)
class JpegHeader:
    """What stands before the first scan."""

    frame: Frame | None
    has_huffman_tables: bool
    has_quantization_tables: bool
    restart_interval: int
    has_jfif: bool
    adobe_transform: int | None
    """0, 1 or 2 of the APP14 marker; None: there is none."""
    scan_offset: int
    """Where the first SOS is; the length of the data where there is none (tables only)."""

    @property
    def color_transform(self) -> ColorTransform:
        """What the stream itself says of its colours, by the rules of libjpeg."""
        if self.frame is None:
            raise FormatError("JPEG: tables without a frame have no colours")
        identifiers = tuple(c[0] for c in self.frame.components)
        if len(identifiers) == 3:
            if self.adobe_transform is not None:
                return "none" if self.adobe_transform == 0 else "ycbcr"
            if self.has_jfif:
                return "ycbcr"
            return "none" if identifiers in ((82, 71, 66), (114, 103, 98)) else "ycbcr"
        if len(identifiers) == 4:
            return "ycck" if self.adobe_transform == 2 else "none"
        return "none"


def markers(data: bytes | memoryview) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, where its parameters begin, where they end) up to and with SOS or EOI."""
    if bytes(data[:2]) != b"\xff\xd8":
        raise FormatError(
            f"JPEG begins with ffd8, here stands {bytes(data[:2]).hex() or 'nothing'}"
        )
    position = 2
    while position + 2 <= len(data):
        if data[position] != 0xFF:
            raise FormatError(f"JPEG: at byte {position} stands {data[position]:#04x}, no marker")
        marker = data[position + 1]
        if marker == 0xFF:  # T.81 B.1.1.2: fill bytes before a marker
            position += 1
        elif marker == EOI:
            yield marker, position, position
            return
        elif marker in ALONE:
            position += 2
        else:
            end = _segment_end(data, position)
            yield marker, position + 4, end
            if marker == SOS:
                return
            position = end
    raise TruncatedError(f"JPEG: the header goes on after {len(data)} bytes")


def _segment_end(data: bytes | memoryview, position: int) -> int:
    length = int.from_bytes(data[position + 2 : position + 4], "big")
    if position + 4 > len(data) or position + 2 + length > len(data):
        raise TruncatedError(f"JPEG: the header goes on after {len(data)} bytes")
    if data[position + 1] == 0 or length < 2:
        raise FormatError(
            f"JPEG: marker {data[position + 1]:#04x} at byte {position} has length {length}"
        )
    return position + 2 + length


def read_header(data: bytes | memoryview) -> JpegHeader:
    """Parse SOI up to the first SOS, or up to EOI where there are tables only."""
    frame: Frame | None = None
    seen = set()
    restart_interval, adobe, has_jfif, scan = 0, None, False, len(data)
    for marker, start, end in markers(data):
        body = bytes(data[start:end])
        seen.add(marker)
        if marker in FRAMES:
            if frame is not None:
                raise UnsupportedError("JPEG: a hierarchical stream of several frames")
            frame = read_frame(marker, body)
        elif marker == DRI and len(body) >= 2:
            restart_interval = int.from_bytes(body[:2], "big")
        elif marker == APP0 and body[:5] == b"JFIF\0":
            has_jfif = True
        elif marker == APP14 and body[:5] == b"Adobe" and len(body) >= 12:
            adobe = body[11]
        elif marker == SOS:
            scan = start - 4
    if frame is None and SOS in seen:
        raise FormatError("JPEG: a scan begins before any frame")
    return JpegHeader(
        frame=frame, has_huffman_tables=DHT in seen, has_quantization_tables=DQT in seen,
        restart_interval=restart_interval, has_jfif=has_jfif, adobe_transform=adobe,
        scan_offset=scan,
    )  # fmt: skip


def read_frame(marker: int, body: bytes) -> Frame:
    if len(body) < 6:
        raise FormatError(f"JPEG: SOF has {len(body)} bytes, at least 6 are expected")
    depth, height, width, count = struct.unpack(">BHHB", body[:6])
    if count < 1 or len(body) != 6 + 3 * count or width < 1 or not 2 <= depth <= 16:
        raise FormatError(
            f"JPEG: SOF of {width} x {height}, {depth} bits, {count} components in {len(body)} "
            "bytes"
        )
    components = tuple(
        (body[i], body[i + 1] >> 4, body[i + 1] & 15) for i in range(6, len(body), 3)
    )
    if any(not 1 <= factor <= 4 for c in components for factor in c[1:]):
        raise FormatError("JPEG: SOF has a sampling factor outside 1 to 4")
    return Frame(
        process=marker - 0xC0, depth=depth, height=height, width=width, components=components
    )
