"""The size that a picture stream announces in its header, which is checked before it is decoded.

Spec: ITU-T T.81 B.2.2 (JPEG), T.800 A.5.1 and I.4 (JPEG 2000), T.832 8.3 and A.7 (JPEG XR), ISO/IEC
      18181-1 D.1 and 18181-2 4 (JPEG XL), PNG 11.2.1, RFC 9649 (WebP), LERC's Lerc2.cpp.

The decoders allocate what the header announces, and their bindings cannot report the size alone.
"""

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from anychunk import limits
from anychunk.codecs.base import Bytes1D
from anychunk.codecs.tiff.tile import (
    JPEG,
    JPEG2000,
    JPEG_XL,
    JPEG_XR,
    LERC,
    OLD_JPEG,
    PNG,
    WEBP,
    Tile,
)
from anychunk.errors import ChunkDecodeError

type Size = tuple[int, int, int]
"""(rows, columns, bands); bands are 1 where the decoder bounds their number to a few."""

ROUNDED_ROWS = 16
"""A strip of JPEG may be coded with its rows rounded up to whole blocks, at most this high."""


def check_picture(tile: Tile, data: Bytes1D) -> Size:
    """Return the size that a stream announces; raise if its strip or tile has fewer samples.

    Writers exist that announce the height of the whole image in each strip. Such streams are
    decoded up to `limits.free_bytes`, and cropped.
    """
    try:
        rows, columns, bands = size = SIZES[tile.compression](data.data)
    except (struct.error, IndexError):
        raise ChunkDecodeError(
            f"tiff-tile: the header of a picture is truncated after {len(data)} bytes"
        ) from None
    most_rows, most_columns = tile.tile_height * tile.tile_depth, tile.tile_width
    is_small = rows * columns <= (most_rows + ROUNDED_ROWS) * most_columns
    if is_small and bands <= tile.samples_per_pixel:
        return size
    nbytes = rows * columns * tile.samples_per_pixel * tile.dtype.itemsize
    is_cropped = columns == most_columns and nbytes <= limits.get().free_bytes
    if bands > tile.samples_per_pixel or not is_cropped:
        raise ChunkDecodeError(
            f"tiff-tile: the stream announces (rows, columns, bands) {(rows, columns, bands)}, "
            f"expected at most {(most_rows, most_columns, tile.samples_per_pixel)}"
        )
    return size


def jpeg_size(data: memoryview) -> Size:
    """Find the frame header. As libjpeg does, skip bytes between segments that are no marker."""
    at = 2
    while True:
        while data[at] != 0xFF:
            at += 1
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        at += 1
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # DHT, JPG, DAC
            rows, columns = struct.unpack_from(">HH", data, at + 3)
            return rows, columns, 1  # libjpeg decodes at most 10 components
        if marker == 0xDA:  # SOS
            raise ChunkDecodeError("tiff-tile: JPEG stream without a frame header")
        if marker not in (0x00, 0x01) and not 0xD0 <= marker <= 0xD9:  # these have no parameters
            at += int.from_bytes(data[at : at + 2], "big") or 2


def jpeg2000_size(data: memoryview) -> Size:
    """Read SIZ, which follows SOC directly, in a codestream or in the `jp2c` box of a JP2 file."""
    at = _codestream_start(data) if bytes(data[:2]) != b"\xff\x4f" else 0
    if bytes(data[at : at + 4]) != b"\xff\x4f\xff\x51":
        raise ChunkDecodeError(
            f"tiff-tile: JPEG 2000 begins with {data[at : at + 4].hex()}, expected ff4fff51"
        )
    x1, y1, x0, y0, *_, bands = struct.unpack_from(">8IH", data, at + 8)
    return max(y1 - y0, 0), max(x1 - x0, 0), bands


def _codestream_start(data: memoryview) -> int:
    """Return where the codestream of a JP2 file begins; a box is a length, a type and content."""
    at = 0
    while True:
        length, kind = struct.unpack_from(">I4s", data, at)
        head = 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, at + 8)
            head = 16
        if kind == b"jp2c":
            return at + head
        if length < head:  # 0: to the end of the file
            raise ChunkDecodeError("tiff-tile: JP2 without a box for its codestream")
        at += length


def jpeg_xr_size(data: memoryview) -> Size:
    """Read the larger of the sizes in the container and in the codestream: the decoder uses both.

    The container is a directory like TIFF's, with other tags.
    """
    (at,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, at)
    tags = {}
    for i in range(count):
        tag, kind, _, value = struct.unpack_from("<HHII", data, at + 2 + 12 * i)
        # by type: 1 byte, 2 of 16 bits, else 32 bits
        tags[tag] = value & {1: 0xFF, 3: 0xFFFF}.get(kind, 0xFFFFFFFF)
    start, length = tags.get(0xBCC0, 0), tags.get(0xBCC1, 0)
    if start + length > len(data):
        # the decoder would make up what is missing
        raise ChunkDecodeError(
            f"tiff-tile: JPEG XR stream of {length} bytes at {start} is truncated after {len(data)}"
        )
    is_short = data[start + 10] & 0x80
    columns, rows = struct.unpack_from(">HH" if is_short else ">II", data, start + 12)
    return max(rows + 1, tags.get(0xBC81, 0)), max(columns + 1, tags.get(0xBC80, 0)), 1


JXL_CONTAINER = b"\x00\x00\x00\x0cJXL \r\n\x87\n"
JXL_RATIOS = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))


def jpeg_xl_size(data: memoryview) -> Size:
    """Read the SizeHeader, a few bits in front of the codestream, lowest bit first."""
    head = bytes(data[:16])
    if head[:12] == JXL_CONTAINER:
        head = _jxl_codestream(data)
    if head[:2] != b"\xff\x0a":
        raise ChunkDecodeError(f"tiff-tile: JPEG XL begins with {head[:2].hex()}, expected ff0a")
    bits = int.from_bytes(head[2:], "little")

    def take(count: int) -> int:
        nonlocal bits
        value = bits & ((1 << count) - 1)
        bits >>= count
        return value

    is_small = take(1)

    def length() -> int:
        return 8 * (take(5) + 1) if is_small else take((9, 13, 18, 30)[take(2)]) + 1

    rows = length()
    ratio = take(3)
    if ratio:
        across, down = JXL_RATIOS[ratio - 1]
        return rows, rows * across // down, 1
    return rows, length(), 1


def _jxl_codestream(data: memoryview) -> bytes:
    """Return the first bytes of the codestream in a container, which may be split (`jxlp`)."""
    at, found = 0, b""
    while at + 8 <= len(data) and len(found) < 12:
        length, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, start)
            start += 8
        end = len(data) if length == 0 else at + length
        if end < start:
            break
        if kind in (b"jxlc", b"jxlp"):
            found += bytes(data[start + (4 if kind == b"jxlp" else 0) : end][:16])
        at = end
    return found


def png_size(data: memoryview) -> Size:
    columns, rows = struct.unpack_from(">II", data, 16)
    return rows, columns, 1


def webp_size(data: memoryview) -> Size:
    """Read the size of the first chunk: lossy, lossless, or extended with a canvas."""
    kind = bytes(data[12:16])
    if kind == b"VP8 ":
        columns, rows = struct.unpack_from("<HH", data, 26)
        return rows & 0x3FFF, columns & 0x3FFF, 1
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1, 1
    if kind == b"VP8X":
        columns, rows = (int.from_bytes(data[i : i + 3], "little") + 1 for i in (24, 27))
        return rows, columns, 1
    raise ChunkDecodeError(f"tiff-tile: WebP has a first chunk {kind!r}, expected VP8, VP8L, VP8X")


def lerc_size(data: memoryview) -> Size:
    """Read the headers of all blobs: a stream has one, or one per band."""
    if bytes(data[:10]) == b"CntZImage ":
        rows, columns = struct.unpack_from("<ii", data, 18)
        # the header of version 1 lacks the length of a blob: as many as could be there
        return max(rows, 0), max(columns, 0), bytes(data).count(b"CntZImage ")
    if bytes(data[:6]) != b"Lerc2 ":
        raise ChunkDecodeError(f"tiff-tile: LERC begins with {bytes(data[:6])!r}, expected Lerc2")
    largest, bands, at = (0, 0), 0, 0
    while bytes(data[at : at + 6]) == b"Lerc2 ":
        (version,) = struct.unpack_from("<i", data, at + 6)
        place = at + (14 if version >= 3 else 10)
        rows, columns, depth = struct.unpack_from("<iii", data, place)
        if version < 4:
            depth, place = 1, place - 4
        (length,) = struct.unpack_from("<i", data, place + 20)
        largest = max(largest, (max(rows, 0), max(columns, 0)), key=math.prod)
        bands += max(depth, 0)
        if length <= 0:
            break
        at += length
    return *largest, bands


LERC_TYPES = ("i1", "u1", "<i2", "<u2", "<i4", "<u4", "<f4", "<f8")


def lerc_dtype(data: memoryview) -> np.dtype[Any] | None:
    """Return the type of the samples of the first blob, if its header says it."""
    if bytes(data[:6]) != b"Lerc2 " or len(data) < 42:
        return None
    (version,) = struct.unpack_from("<i", data, 6)
    # version 3 brought a checksum, version 4 the number of values per pixel
    place = 30 + 4 * (version >= 3) + 4 * (version >= 4)
    (number,) = struct.unpack_from("<i", data, place)
    return np.dtype(LERC_TYPES[number]) if 0 <= number < len(LERC_TYPES) else None


SIZES: dict[int, Callable[[memoryview], Size]] = {
    LERC: lerc_size,
    PNG: png_size,
    OLD_JPEG: jpeg_size,
    **dict.fromkeys(JPEG, jpeg_size),
    **dict.fromkeys(JPEG2000, jpeg2000_size),
    **dict.fromkeys(JPEG_XR, jpeg_xr_size),
    **dict.fromkeys(JPEG_XL, jpeg_xl_size),
    **dict.fromkeys(WEBP, webp_size),
}
"""By compression. EER is absent: its streams have no size, the decoder gets it from the tile."""
