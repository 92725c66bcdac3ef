"""JPEG markers up to the first scan: the frame, and which tables are present.

Spec: ITU-T T.81 annex B.

A stream is a sequence of markers (0xFF and a code). Most begin a segment: two bytes of length,
which count themselves, and parameters. Entropy-coded data follows SOS; `jpeg_scan` skips it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from anychunk.errors import FormatError, TruncatedError, UnsupportedError

EOI, SOS, DQT, DHT, DAC, DRI, DNL = 0xD9, 0xDA, 0xDB, 0xC4, 0xCC, 0xDD, 0xDC
FRAMES = frozenset(range(0xC0, 0xD0)) - {DHT, 0xC8, DAC}
"""SOF0 to SOF15; the codes in between are DHT, JPG and DAC."""
STANDALONE = frozenset((0x01, *range(0xD0, 0xD8)))
"""Markers without parameters: TEM, RST0 to RST7."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Parameters of a frame header (T.81 B.2.2)."""

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


@dataclass(frozen=True, kw_only=True)
class JpegHeader:
    """What precedes the first scan."""

    frame: Frame | None
    """None for a stream of tables only (T.81 B.5)."""
    has_huffman_tables: bool
    has_quantization_tables: bool
    restart_interval: int
    scan_offset: int
    """Position of the first SOS; the length of the data if there is none."""


def markers(data: bytes | memoryview) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, start, end) of every segment's parameters, up to and including SOS or EOI."""
    if bytes(data[:2]) != b"\xff\xd8":
        raise FormatError(
            f"JPEG: expected ffd8 at the start, found {bytes(data[:2]).hex() or 'nothing'}"
        )
    position = 2
    while position + 2 <= len(data):
        if data[position] != 0xFF:
            raise FormatError(
                f"JPEG: expected a marker at byte {position}, found {data[position]:#04x}"
            )
        marker = data[position + 1]
        if marker == 0xFF:  # T.81 B.1.1.2: fill bytes before a marker
            position += 1
        elif marker == EOI:
            yield marker, position, position
            return
        elif marker in STANDALONE:
            position += 2
        else:
            end = _segment_end(data, position)
            yield marker, position + 4, end
            if marker == SOS:
                return
            position = end
    raise TruncatedError(f"JPEG: the header is truncated after {len(data)} bytes")


def _segment_end(data: bytes | memoryview, position: int) -> int:
    length = int.from_bytes(data[position + 2 : position + 4], "big")
    if position + 4 > len(data) or position + 2 + length > len(data):
        raise TruncatedError(f"JPEG: the header is truncated after {len(data)} bytes")
    if data[position + 1] == 0 or length < 2:
        raise FormatError(
            f"JPEG: marker {data[position + 1]:#04x} at byte {position} has length {length}, "
            "expected a marker other than 0 and a length of at least 2"
        )
    return position + 2 + length


def read_header(data: bytes | memoryview) -> JpegHeader:
    """Parse SOI up to the first SOS, or up to EOI if there are only tables."""
    frame: Frame | None = None
    seen = set()
    restart_interval, scan = 0, len(data)
    for marker, start, end in markers(data):
        body = bytes(data[start:end])
        seen.add(marker)
        if marker in FRAMES:
            if frame is not None:
                raise UnsupportedError(
                    "JPEG: hierarchical streams of several frames are not supported"
                )
            frame = read_frame(marker, body)
        elif marker == DRI and len(body) >= 2:
            restart_interval = int.from_bytes(body[:2], "big")
        elif marker == SOS:
            scan = start - 4
    if frame is None and SOS in seen:
        raise FormatError("JPEG: SOS without a frame header (SOF) before it")
    return JpegHeader(
        frame=frame, has_huffman_tables=DHT in seen, has_quantization_tables=DQT in seen,
        restart_interval=restart_interval, scan_offset=scan,
    )  # fmt: skip


def read_frame(marker: int, body: bytes) -> Frame:
    """Parse the parameters of SOF."""
    if len(body) < 6:
        raise FormatError(f"JPEG: SOF has {len(body)} bytes, expected at least 6")
    depth, height, width, count = struct.unpack(">BHHB", body[:6])
    if count < 1 or len(body) != 6 + 3 * count or width < 1 or not 2 <= depth <= 16:
        raise FormatError(
            f"JPEG: SOF has width {width}, {depth} bits, {count} components in {len(body)} bytes; "
            "expected at least 1, 2 to 16, and 3 bytes per component after 6"
        )
    components = tuple(
        (body[i], body[i + 1] >> 4, body[i + 1] & 15) for i in range(6, len(body), 3)
    )
    if any(not 1 <= factor <= 4 for c in components for factor in c[1:]):
        raise FormatError(
            f"JPEG: SOF has sampling factors {[c[1:] for c in components]}, expected 1 to 4"
        )
    return Frame(
        process=marker - 0xC0, depth=depth, height=height, width=width, components=components
    )


def unit_size(frame: Frame) -> tuple[int, int]:
    """Return the width and height in pixels of a minimum coded unit, MCU, in a scan of all bands.

    In a scan of several components, an MCU holds as many 8 x 8 blocks of each component as its
    sampling factors say. In a scan of one component it is a single block, whatever the factors
    (T.81 A.2).
    """
    if len(frame.components) == 1:
        return 8, 8
    return (
        8 * max(h for _, h, _ in frame.components),
        8 * max(v for _, _, v in frame.components),
    )


APP0, APP14 = 0xE0, 0xEE


def with_colors(data: bytes, frame: Frame, *, is_rgb: bool) -> bytes:
    """Return a stream of three components that declares their colours, so that no decoder guesses.

    Adobe's marker (T.872 6.5.3) says whether they are YCbCr, which decoders convert to RGB, or not.
    Where a stream has neither that marker nor JFIF's, libjpeg's rules hold.

    Parameters:
        data: The stream.
        frame: Its frame header.
        is_rgb: Whether the components are not YCbCr, whatever the stream declares.
    """
    if len(frame.components) != 3:
        return data
    kept, transform = [data[:2]], None
    names = tuple(name for name, _, _ in frame.components)
    at = 2
    for marker, start, end in markers(data):
        body = data[start:end]
        if marker == APP0 and body.startswith(b"JFIF\0"):
            transform = 1
        elif marker == APP14 and body.startswith(b"Adobe") and len(body) >= 12:
            transform = transform or int(body[11] != 0)
        else:
            kept.append(data[at:end])
        at = end
    if transform is None:
        transform = int(names != (82, 71, 66) and not frame.is_lossless)
    declared = 0 if is_rgb else transform
    kept[1:1] = [struct.pack(">BBH5sHHHB", 0xFF, APP14, 14, b"Adobe", 100, 0, 0, declared)]
    return b"".join([*kept, data[at:]])
