"""One strip or tile as a TIFF file with a single strip, which libtiff decodes.

Spec: TIFF 6.0 section 2 (file structure), 21 (YCbCr).

The synthetic file consists of the tags that `Tile` holds and of the stored bytes, as one strip that
is the whole image. It serves compressions that only libtiff decodes, the conversion of YCbCr with
the coefficients of the page, and as a second opinion in tests (`backend="libtiff"`).
"""

import base64
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import imagecodecs
import numpy as np

from anychunk.codecs.base import Bytes1D
from anychunk.codecs.tiff.tile import (
    CCITT_T4,
    COLORS,
    JPEG,
    LOG,
    LOG24,
    LOG_L,
    LOG_LUV,
    RGB,
    YCBCR,
    Tile,
    split_jpeg_tables,
)
from anychunk.errors import ChunkDecodeError
from anychunk.model.grid import Array

type Tag = tuple[int, str, Sequence[float] | bytes]

SHORT, LONG, RATIONAL, UNDEFINED = "H", "I", "R", "B"
TYPE_IDS = {SHORT: 3, LONG: 4, RATIONAL: 5, UNDEFINED: 7}
STRIP_OFFSETS, STRIP_BYTE_COUNTS = 273, 279
DENOMINATOR = 1 << 20
"""Denominator of the RATIONAL values that are written."""


def synthetic_tiff(tile: Tile, data: Bytes1D, *, rows: int, **changes: Any) -> bytes:
    """Return a TIFF whose only strip is `data`, `rows` high; `changes` override tag values."""
    head, place, order = frame(tile, rows, tuple(changes.items()))
    length = struct.pack(f"{order}I", len(data))
    return b"".join((head[:place], length, head[place + 4 :], data.tobytes()))


@lru_cache(maxsize=64)
def frame(tile: Tile, rows: int, changes: tuple[tuple[str, Any], ...]) -> tuple[bytes, int, str]:
    """Return what precedes the strip, where in it the length of the strip is, and the byte order.

    Chunks of one array differ only in that length.
    """
    order = ">" if tile.byte_order == "big" else "<"
    return *build(tags_of(tile, rows=rows, **dict(changes)), order), order


def tags_of(
    tile: Tile,
    *,
    rows: int,
    compression: int | None = None,
    predictor: int | None = None,
    fill_order: int | None = None,
    photometric: int | None = None,
) -> list[Tag]:
    """Return the tags of the synthetic file; the offset and length of its strip follow later."""
    bands = tile.samples_per_pixel
    photometric = photometric or photometric_of(tile)
    bits = tile.bits if isinstance(tile.bits, tuple) else (tile.bits,) * bands
    tags: list[Tag] = [
        (256, LONG, [tile.tile_width]),
        (257, LONG, [rows]),
        (258, SHORT, bits),
        (259, SHORT, [compression or tile.compression]),
        (262, SHORT, [photometric]),
        (266, SHORT, [fill_order or tile.fill_order]),
        (277, SHORT, [bands]),
        (278, LONG, [rows]),
        (284, SHORT, [1]),
        (317, SHORT, [predictor or tile.predictor]),
        (339, SHORT, [tile.sample_format] * bands),
    ]
    # TIFF 6.0 section 18: bands beyond the colours are declared as ExtraSamples
    extra = bands - COLORS.get(photometric, 1)
    if extra > 0:
        tags.append((338, SHORT, [0] * extra))
    if tile.compression == CCITT_T4:
        tags.append((292, LONG, [tile.t4_options]))
    if tile.tables is not None:
        tags.append((347, UNDEFINED, tile.tables))
    if photometric == YCBCR:
        tags.append((530, SHORT, tile.subsampling))
        if tile.ycbcr_coefficients:
            tags.append((529, RATIONAL, tile.ycbcr_coefficients))
        if tile.reference_black_white:
            tags.append((532, RATIONAL, tile.reference_black_white))
    return tags


def photometric_of(tile: Tile) -> int:
    """Return the PhotometricInterpretation to write: colours only where decoding depends on them.

    It does for JPEG, and for images of one band, where it says whether 0 is white (CCITT).
    """
    if tile.compression in (LOG, LOG24):
        return LOG_L if tile.samples_per_pixel == 1 else LOG_LUV
    if tile.samples_per_pixel == 1:
        return 0 if tile.photometric == 0 else 1
    is_color = tile.photometric in (RGB, YCBCR) and tile.compression in JPEG
    return tile.photometric if is_color and tile.samples_per_pixel == 3 else 1


def build(tags: Sequence[Tag], order: str) -> tuple[bytes, int]:
    """Lay out a TIFF: header, directory, values of more than four bytes; the strip is to follow.

    Returns them, and where the length of the strip is to be written.
    """
    count = len(tags) + 2
    heap_start = 8 + 2 + 12 * count + 4
    heap = bytearray()
    entries: list[tuple[int, bytes]] = []
    for code, kind, values in tags:
        packed, number = pack_values(kind, values, order)
        if len(packed) <= 4:
            field = packed.ljust(4, b"\0")
        else:
            field = struct.pack(f"{order}I", heap_start + len(heap))
            heap += packed + b"\0" * (len(packed) % 2)
        entries.append((code, struct.pack(f"{order}HHI", code, TYPE_IDS[kind], number) + field))
    start = heap_start + len(heap)
    for code, value in ((STRIP_OFFSETS, start), (STRIP_BYTE_COUNTS, 0)):
        entries.append((code, struct.pack(f"{order}HHII", code, 4, 1, value)))
    entries.sort()
    place = 10 + 12 * [code for code, _ in entries].index(STRIP_BYTE_COUNTS) + 8
    directory = b"".join(entry for _, entry in entries)
    header = struct.pack(f"{order}2sHIH", b"MM" if order == ">" else b"II", 42, 8, count)
    return b"".join((header, directory, b"\0\0\0\0", bytes(heap))), place


def pack_values(kind: str, values: Sequence[float] | bytes, order: str) -> tuple[bytes, int]:
    """Return the bytes of a tag's values, and the number of values."""
    if isinstance(values, bytes):
        return values, len(values)
    if kind == RATIONAL:
        pairs = [n for v in values for n in (round(max(v, 0) * DENOMINATOR), DENOMINATOR)]
        return struct.pack(f"{order}{len(pairs)}I", *pairs), len(values)
    return struct.pack(f"{order}{len(values)}{kind}", *(int(v) for v in values)), len(values)


def decode_libtiff(tile: Tile, data: Bytes1D) -> Array:
    """Decode with libtiff to (rows, columns, bands).

    libtiff refuses a strip that holds fewer rows than announced, so the height of chunks at the
    lower edge is tried after that of whole ones.
    """
    tables, data = split_jpeg_tables(tile, data)
    if tables != tile.tables:
        text = None if tables is None else base64.b64encode(tables).decode()
        tile = replace(tile, jpeg_tables=text)
    heights = [tile.tile_height * tile.tile_depth]
    if tile.last_height and tile.tile_depth == 1 and tile.last_height != heights[0]:
        heights.append(tile.last_height)
    failure: Exception | None = None
    for rows in heights:
        try:
            array = imagecodecs.tiff_decode(synthetic_tiff(tile, data, rows=rows))
        except (imagecodecs.TiffError, ValueError, IndexError) as e:
            failure = e
        else:
            return array.reshape(rows, tile.tile_width, tile.samples_per_pixel)  # type: ignore[no-any-return]
    raise ChunkDecodeError(
        f"libtiff: compression {tile.compression}: {str(failure) or 'does not decode'}"
    ) from failure


def ycbcr_to_rgb(tile: Tile, data: Bytes1D, rows: int) -> Array:
    """Convert uncompressed YCbCr samples, subsampled or not, to RGB.

    Data units are whole at the edges too (TIFF 6.0 section 21). All of their pixels are decoded,
    then cropped, because libtiff refuses images smaller than one unit.
    """
    across, down = tile.subsampling
    blocks, high = -(-tile.tile_width // across), -(-rows // down) * down
    size = across * down + 2
    if blocks * size % down:
        # libtiff computes the bytes per row of *pixels*, dropping the remainder of this division;
        # one more unit per row makes it come out even
        by_row = data.reshape(high // down, blocks, size)
        data, blocks = np.pad(by_row, ((0, 0), (0, 1), (0, 0))).reshape(-1), blocks + 1
    columns = blocks * across
    wide = tile if columns == tile.tile_width else replace(tile, tile_width=columns)
    plain = synthetic_tiff(
        wide, data, rows=high, compression=1, predictor=1, fill_order=1, photometric=YCBCR
    )
    try:
        array = imagecodecs.tiff_decode(plain, asrgb=True)
    except imagecodecs.TiffError as e:
        raise ChunkDecodeError(
            f"libtiff: YCbCr with subsampling {list(tile.subsampling)}: "
            f"{str(e) or 'does not decode'}"
        ) from e
    pixels = array.reshape(high, columns, 4)[:rows, : tile.tile_width, :3]
    return np.ascontiguousarray(pixels)
