"""The image data mask: which blocks of an image are stored, and where.

Spec: Joint BIIF Profile 5.4.3.2 and table A-3(A).
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.codecs.jbp_block import sign_extended
from anychunk.errors import FormatError
from anychunk.formats.nitf.header import tables
from anychunk.formats.nitf.image import Image
from anychunk.io import Source

ABSENT = 0xFFFFFFFF
"""As an offset: the block is not stored."""


@dataclass(frozen=True)
class Mask:
    """Where image data begins, and where each block is in it."""

    start: int
    """First byte of image data, in the file."""
    offsets: npt.NDArray[np.int64] | None
    """In the file, shaped like the blocks (bands in front where they are apart); -1: not stored.
    None: there is no table, every block is stored one after the other."""
    pad: Any
    """Value of pixels that are not there, or None."""
    table: int | None = None
    """Where the table of offsets is in the file."""

    def fill(self, image: Image) -> Any:
        """Give the value of pixels that are not there."""
        return transparent(image) if self.pad is None else self.pad


def block_grid(image: Image) -> tuple[int, ...]:
    grid = (image.blocks_down, image.blocks_across)
    return (image.bands, *grid) if image.has_bands_apart else grid


def read_mask(source: Source, image: Image) -> Mask:
    """Read the mask at the beginning of the image data; an image without one has no table."""
    segment = image.segment
    if not image.is_masked:
        return Mask(segment.offset, None, None)
    head = source.read(segment.offset, 10).tobytes()
    data_offset, block_width, pad_width, pad_bits = struct.unpack(">IHHH", head)
    if block_width not in (0, 4) or pad_width not in (0, 4) or pad_bits > 128:
        raise FormatError(
            f"{image.where}: the mask has records of {block_width} and {pad_width} bytes and a pad "
            f"pixel of {pad_bits} bits, expected 0 or 4 bytes, and up to 128 bits"
        )
    count = int(np.prod(block_grid(image)))
    pad_bytes = -(-pad_bits // 8)
    length = 10 + pad_bytes + count * (block_width + pad_width)
    if length > segment.length or data_offset > segment.length:
        raise FormatError(
            f"{image.where}: the mask takes {length} bytes and points {data_offset} bytes on, "
            f"the image data has {segment.length}"
        )
    code = source.read(segment.offset + 10, pad_bytes).tobytes()
    pad = pad_value(image, code) if pad_bits else None
    start = segment.offset + data_offset
    at = segment.offset + 10 + pad_bytes
    if not block_width:
        return Mask(start, None, pad)
    return Mask(start, read_offsets(source, at, block_grid(image), start), pad, at)


def read_offsets(
    source: Source, at: int, grid: tuple[int, ...], base: int
) -> npt.NDArray[np.int64]:
    """Read a table of offsets from `base`; -1 where a block is not stored."""
    count = int(np.prod(grid))
    records = source.read(at, 4 * count).view(">u4").astype(np.int64)
    return np.where(records == ABSENT, -1, records + base).reshape(grid)


def pad_value(image: Image, code: bytes) -> Any:
    """Read the pad pixel as a sample of the image, as the image's own samples are read."""
    dtype = image.dtype
    if dtype.kind in "fc":
        if len(code) < dtype.itemsize:
            code = code.rjust(dtype.itemsize, b"\0")
        return np.frombuffer(code[-dtype.itemsize :], dtype.newbyteorder(">"))[0]
    value = int.from_bytes(code, "big") & ((1 << image.nbpp) - 1)
    unused = image.nbpp - image.abpp
    if image.pjust == "L":
        value >>= unused
    if dtype.kind == "u":
        return value
    unsigned = np.asarray([value], f"u{dtype.itemsize}")
    return int(sign_extended(unsigned, image.abpp if unused else image.nbpp, dtype)[0])


def transparent(image: Image) -> int:
    """Give the value of pixels that are not there: the one behind the colours of the image."""
    lut = tables(image.segment.values["BANDS"][0]) if image.bands == 1 else []
    if image.nbpp != 8 or not lut or len(lut[0]) >= 255:
        return 0
    colours = len(lut[0])
    # CADRG has 216 colours; some files list the transparent one too, as black
    is_listed = colours == 217 and not any(table[-1] for table in lut)
    return colours - 1 if is_listed else colours
