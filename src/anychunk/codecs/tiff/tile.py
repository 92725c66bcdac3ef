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
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from anychunk.codecs.base import Bytes1D, runtime_field
from anychunk.codecs.tiff import samples
from anychunk.errors import ChunkDecodeError, CodecConfigError

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
