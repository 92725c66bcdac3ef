"""A strip or tile of a TIFF file as plain data: the tag values that its bytes depend on.

Spec: TIFF 6.0 for the tags and their defaults; tifffile's `COMPRESSION` for compressions that are
      registered nowhere else.

`Tile` says how large a chunk is, stored and decoded. It neither decodes nor encodes: `decoders`,
`encoders` and `synthetic` take a `Tile`, and the codec `tiff_tile.TiffTile` is one. A strip is a
tile as wide as the image and RowsPerStrip high.
"""

import base64
import binascii
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import imagecodecs
import numpy as np

from anychunk.codecs.base import Bytes1D, runtime_field
from anychunk.codecs.tiff import samples
from anychunk.errors import ChunkDecodeError, CodecConfigError
from anychunk.model.grid import Array

# Compression (tag 259). Several numbers for one compression are registrations by different vendors
NONE, LZW, OLD_JPEG, PACKBITS, LZMA, LERC, PNG = 1, 5, 6, 32773, 34925, 34887, 34933
CCITT_RLE, CCITT_T4, CCITT_T6, CCITT_RLE_WORDS = 2, 3, 4, 32771
NEXT, THUNDERSCAN = 32766, 32809
LOG, LOG24 = 34676, 34677
"""Logarithm of luminance, with chromaticity or without (SGILOG); the second has 24 bits."""
DEFLATE = (8, 32946, 50013)
ZSTD = (50000, 34926)
JPEG = (7, 33007, 34892)
JPEG2000 = (34712, 33003, 33004, 33005)
JPEG_XR = (34934, 22610)
JPEG_XL = (50002, 52546)
WEBP = (50001, 34927)
EER = (65000, 65001, 65002)

PICTURES = frozenset((*JPEG, *JPEG2000, *JPEG_XR, *JPEG_XL, *WEBP, *EER, LERC, PNG))
"""Compressions whose streams hold an image with its own size, instead of the bytes of rows."""

# PhotometricInterpretation (tag 262)
RGB, CMYK, YCBCR, LOG_L, LOG_LUV = 2, 5, 6, 32844, 32845
COLORS = {0: 1, 1: 1, 2: 3, 3: 1, 4: 1, 5: 4, 6: 3, 8: 3, 9: 3, 10: 3, LOG_L: 1, LOG_LUV: 3}
"""Number of colour bands per PhotometricInterpretation; further bands are extra samples."""
NEVER_YCBCR = (0, 1, 3, 8, 9, 10)
"""MinIsWhite, MinIsBlack, palette and Lab: never stored as YCbCr (libtiff, tif_jpeg.c)."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """The tag values that describe one strip or tile."""

    compression: int = 1
    bits_per_sample: int | tuple[int, ...] = 8
    samples_per_pixel: int = 1
    """Bands in this chunk: 1 if the file stores bands separately (PlanarConfiguration 2)."""
    photometric: int = 1
    planar_config: int = 1
    predictor: int = 1
    tile_width: int = 256
    tile_height: int = 256
    """RowsPerStrip for strips."""
    sample_format: int = 1
    jpeg_tables: str | None = None
    """Base64 of the JPEGTables tag. Empty: each chunk is preceded by its tables."""
    byte_order: Literal["little", "big"] = "little"
    fill_order: int = 1
    t4_options: int = 0
    subsampling: tuple[int, int] = (1, 1)
    """Pixels that share one chroma sample, (across, down); only for YCbCr that is not JPEG."""
    ycbcr_coefficients: tuple[float, ...] = ()
    reference_black_white: tuple[float, ...] = ()
    tile_depth: int = 1
    last_height: int | None = None
    """Rows of the chunks at the lower edge. None: any chunk may have fewer than `tile_height`."""
    last_width: int | None = None
    """Columns of the chunks at the right edge, for compressions that store their own size."""
    eer: tuple[int, ...] = ()
    """Bits per EER code: pixels to skip, horizontal and vertical position within a pixel."""
    is_inside: bool = runtime_field(default=False)
    """Whether other chunks follow below: this one has exactly `tile_height` rows."""
    level: int | None = runtime_field()
    """Compression level, as imagecodecs defines it for the compression."""
    backend: Literal["direct", "libtiff"] = runtime_field("direct")

    @cached_property
    def tables(self) -> bytes | None:
        if self.jpeg_tables is None:
            return None
        try:
            # osml-imagery-io's first examples have the prefix
            return base64.b64decode(self.jpeg_tables.removeprefix("base64:"), validate=True)
        except (binascii.Error, ValueError, TypeError, AttributeError) as e:
            raise CodecConfigError(
                f"tiff-tile: jpeg_tables is {self.jpeg_tables!r:.40}, expected base64"
            ) from e

    @cached_property
    def bits(self) -> samples.Bits:
        return samples.as_bits(self.bits_per_sample)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return samples.sample_dtype(self.sample_format, self.bits)

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """(depth, bands, rows, columns) of the decoded chunk."""
        return (self.tile_depth, self.samples_per_pixel, self.tile_height, self.tile_width)

    @cached_property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @cached_property
    def row_bytes(self) -> int:
        return samples.row_bytes(self.tile_width, self.samples_per_pixel, self.bits)

    @cached_property
    def is_subsampled(self) -> bool:
        """Whether pixels share chroma samples in the decompressed bytes.

        Image streams such as JPEG are subsampled too, but their decoders already undo it.
        """
        return (
            self.photometric == YCBCR
            and self.subsampling != (1, 1)
            and self.compression not in PICTURES
        )

    @cached_property
    def is_direct(self) -> bool:
        """Whether the decompressed bytes, in native order, are the decoded chunk."""
        return (
            self.samples_per_pixel == 1
            and samples.is_whole(self.sample_format, self.bits)
            and not self.is_subsampled
        )

    def stored_bytes(self, rows: int) -> int:
        """Return the number of bytes of `rows` rows, decompressed but not unpacked."""
        if self.is_subsampled:
            # TIFF 6.0 section 21: a data unit is a block of luma samples, then Cb and Cr. Units at
            # the right and lower edge are stored whole
            across, down = self.subsampling
            units = -(-self.tile_width // across) * -(-rows // down)
            return units * (across * down + 2)
        return self.row_bytes * rows

    def rows_of(self, length: int) -> int:
        """Return the number of rows in `length` decompressed bytes; raise if there are too few.

        Only the last strip of a page may be short. Where `last_height` says how short, any other
        length means damage; without it (metadata of other writers) only whole rows are checked for.
        """
        if length >= self.stored_bytes(self.tile_height) * self.tile_depth:
            return self.tile_height
        if self.tile_depth == 1:
            last = self.last_height
            if last is None:
                rows, rest = divmod(length, self.row_bytes)
                if rows and not rest and not self.is_subsampled:
                    return rows
            else:
                # up to `down` heights share a row of data units, and so a number of bytes
                step = self.subsampling[1] if self.is_subsampled else 1
                if self.stored_bytes(last) <= length < self.stored_bytes(last + step):
                    return last
        raise ChunkDecodeError(
            f"tiff-tile: decompressed to {length} bytes, expected "
            f"{self.stored_bytes(self.tile_height) * self.tile_depth}"
            + (f" or {self.stored_bytes(self.last_height)}" if self.last_height else "")
        )


def split_jpeg_tables(tile: Tile, data: Bytes1D) -> tuple[bytes | None, Bytes1D]:
    """Return the JPEG tables of a chunk, and the chunk's own JPEG stream.

    Pages of one array may have different JPEGTables. `jpeg_tables` is then empty, and the index
    puts the tables in front of each chunk, as a stream in the abbreviated format for tables
    (ITU-T T.81 B.5): SOI, table segments, EOI. Segments are skipped by their lengths, because the
    bytes of EOI may occur inside one.
    """
    if tile.tables != b"":
        return tile.tables, data
    end = 2
    while data[end : end + 2].tobytes() != b"\xff\xd9":
        if end + 4 > len(data) or data[end] != 0xFF:
            raise ChunkDecodeError(
                f"tiff-tile: JPEG tables in front of the chunk have no end marker by byte {end}"
            )
        end += 2 + int.from_bytes(data[end + 2 : end + 4].tobytes(), "big")
    tables = data[: end + 2].tobytes()
    # SOI and EOI alone: this page has no JPEGTables
    return (tables if len(tables) > 4 else None), data[end + 2 :]


# One strip or tile as a TIFF file with a single strip, which libtiff decodes.
#
# Spec: TIFF 6.0 section 2 (file structure), 21 (YCbCr).
#
# The synthetic file consists of the tags that `Tile` holds and of the stored bytes, as one strip
# that
# is the whole image. It serves compressions that only libtiff decodes, the conversion of YCbCr
# with
# the coefficients of the page, and as a second opinion in tests (`backend="libtiff"`).

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
