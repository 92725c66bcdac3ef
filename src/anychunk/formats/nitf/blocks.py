"""The blocks of an image: which of them are stored, where, and the array that they form.

Spec: Joint BIIF Profile 5.4.3.2 and table A-3(A), the image data mask table.
"""

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.codecs.jbp_block import sample_dtype, sign_extended
from anychunk.codestream.jpeg2000 import MainHeader
from anychunk.errors import (
    AnychunkError,
    CodecConfigError,
    FormatError,
    TruncatedError,
    UnsupportedError,
)
from anychunk.formats.nitf.header import Segment, bands, lookup_tables, number
from anychunk.io.source import Source
from anychunk.metadata.geo_keys import fill_value_json
from anychunk.model.grid import grid_shape
from anychunk.model.index import ArrayIndex, ByteRanges, Json

# The validated subheader of an image segment: shape, samples and blocks.


SUPPORTED = "NC NM C1 M1 C3 M3 C4 M4 C5 M5 I1 C8 M8 CD MD"
REFUSED = {
    "C0": "a user-defined compression",
    "M0": "a user-defined compression",
    "C2": "ARIDPCM",
    "M2": "ARIDPCM",
    "C6": "a reserved compression",
    "M6": "a reserved compression",
    "C7": "SAR compression",
    "M7": "SAR compression",
    "C9": "H.264 video",
    "M9": "H.264 video",
    "CA": "H.265 video",
    "MA": "H.265 video",
    "CB": "JPEG XL",
    "CC": "zlib",
    "MC": "zlib",
}
"""Meaning of the values of IC that are not supported."""
IMODES = ("B", "P", "R", "S")
"""Interleaved by block, by pixel or by row, or band sequential."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image segment; names as in the subheader where the standard has one."""

    segment: Segment
    where: str
    """Names the segment in messages."""
    rows: int
    columns: int
    bands: int
    nbpp: int
    abpp: int
    pjust: str
    pvtype: str
    imode: str
    ic: str
    blocks_down: int
    blocks_across: int
    block_height: int
    block_width: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of decoded samples."""
        try:
            return sample_dtype(self.pvtype, self.nbpp)
        except CodecConfigError as e:
            raise UnsupportedError(f"{self.where}: {e}") from None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the image: (bands, y, x)."""
        return self.bands, self.rows, self.columns

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks down and across that contain pixels of the image; a file may have more."""
        down, across = grid_shape((self.rows, self.columns), (self.block_height, self.block_width))
        return down, across

    @property
    def is_masked(self) -> bool:
        """Whether a mask table precedes the image data."""
        return self.ic.startswith("M") or self.ic == "NM"

    @property
    def has_bands_apart(self) -> bool:
        """Whether all blocks of one band are stored before those of the next."""
        return self.imode == "S" and self.bands > 1


def read_image(segment: Segment, url: str, size: int) -> Image:
    """Validate the subheader of an image segment.

    Parameters:
        segment: the segment, with its parsed subheader.
        url: names the file in messages.
        size: length of the file.

    Raises:
        FormatError: the subheader contradicts itself or the file.
        UnsupportedError: it is valid, but there is no decoder for it.
    """
    where = f"{url} {segment.name}"
    try:
        image = _read_image(segment, where)
    except AnychunkError as e:
        raise (e if str(e).startswith(where) else type(e)(f"{where}: {e}")) from e
    blocks = image.blocks_down * image.blocks_across * (image.bands if image.imode == "S" else 1)
    # each block takes at least one byte or an entry of a mask table; check before allocating
    if blocks > size:
        raise TruncatedError(f"{where}: {blocks} blocks do not fit in a file of {size} bytes")
    return image


def _read_image(segment: Segment, where: str) -> Image:
    values = segment.values
    ic = values["IC"].upper()
    if ic not in SUPPORTED.split():
        kind = f" ({REFUSED[ic]})" if ic in REFUSED else ""
        raise UnsupportedError(f"{where}: IC {ic!r}{kind} is not supported; supported: {SUPPORTED}")
    rows, columns = number(values, "NROWS"), number(values, "NCOLS")
    nbpp = number(values, "NBPP")
    down, across = number(values, "NBPC"), number(values, "NBPR")
    height, width = number(values, "NPPBV"), number(values, "NPPBH")
    # JBP 5.4.2.2: 0 if a single block has more than 8192 pixels on that side
    height = rows if height == 0 and down == 1 else height
    width = columns if width == 0 and across == 1 else width
    count = bands(values)
    if min(rows, columns, count, down, across, height, width) < 1 or not 1 <= nbpp <= 64:
        raise FormatError(
            f"{where}: {count} bands of {rows} x {columns} in {down} x {across} blocks of "
            f"{height} x {width} with {nbpp} bits; expected sizes of at least 1, and 1 to 64 bits"
        )
    if nbpp == 1 and values["PVTYPE"].strip().upper() == "SI":
        raise FormatError(f"{where}: PVTYPE SI with NBPP 1, expected B (JBP table A-3)")
    if down * height < rows or across * width < columns:
        raise FormatError(
            f"{where}: {down} x {across} blocks of {height} x {width} do not cover "
            f"{rows} x {columns} pixels"
        )
    # with one band all modes are the same, and some files leave it blank
    imode = values["IMODE"].upper() or ("B" if count == 1 else "")
    if imode not in IMODES:
        raise FormatError(f"{where}: IMODE is {imode!r}, expected one of {' '.join(IMODES)}")
    # ABPP is blank or out of range in some otherwise valid files; then all bits are significant
    abpp = values["ABPP"] if isinstance(values["ABPP"], int) else nbpp
    return Image(
        segment=segment, where=where, rows=rows, columns=columns, bands=count, nbpp=nbpp,
        abpp=abpp if 1 <= abpp <= nbpp else nbpp,
        pjust="L" if values["PJUST"].upper() == "L" else "R",
        pvtype=values["PVTYPE"].strip().upper(), imode=imode, ic=ic,
        blocks_down=down, blocks_across=across, block_height=height, block_width=width,
    )  # fmt: skip


type Offsets = npt.NDArray[np.int64]
"""File offsets shaped like the block grid; -1: the block is not stored."""

DIMENSIONS = ("c", "y", "x")
LITTLE: Json = {"name": "bytes", "configuration": {"endian": "little"}}
ABSENT = 0xFFFFFFFF
"""Entry of a mask table for a block that is not stored."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The arrays of an image, full resolution first, and what its data states about them."""

    arrays: list[ArrayIndex]
    pad: Any = None
    """Value of pixels that mean nothing, or None if the file does not state it."""
    is_rgb: bool = False
    """Whether decoding turns luminance and chrominance into red, green and blue."""
    codestream: MainHeader | None = None
    """The main header of JPEG 2000, whose resolutions the arrays are."""


@dataclass(frozen=True)
class Mask:
    """Where image data begins, and where each block is in it."""

    start: int
    """File offset of the first byte of image data."""
    offsets: Offsets | None
    """Shaped like `block_grid`. None: blocks are stored one after another."""
    pad: Any
    """Value of pixels that are not stored, or None if the file does not state it."""
    table: int | None = None
    """File offset of the table of offsets."""

    def fill(self, image: Image) -> Any:
        """Return the value of pixels that are not stored."""
        return (transparent_entry(image) or 0) if self.pad is None else self.pad


def block_grid(image: Image) -> tuple[int, ...]:
    """Return the shape of the table of blocks, with a leading band axis if bands are separate."""
    grid = (image.blocks_down, image.blocks_across)
    return (image.bands, *grid) if image.has_bands_apart else grid


def without_mask(image: Image) -> Mask:
    """Return where the image data begins, of an image whose blocks follow each other."""
    return Mask(image.segment.offset, None, None)


def read_mask(source: Source, image: Image) -> Mask:
    """Read the mask table in front of the image data, if the image has one."""
    segment = image.segment
    if not image.is_masked:
        return without_mask(image)
    head = source.read(segment.offset, 10).tobytes()
    data_offset, block_width, pad_width, pad_bits = struct.unpack(">IHHH", head)
    if block_width not in (0, 4) or pad_width not in (0, 4) or pad_bits > 128:
        raise FormatError(
            f"{image.where}: the mask has records of {block_width} and {pad_width} bytes and a pad "
            f"pixel of {pad_bits} bits, expected 0 or 4 bytes, and up to 128 bits"
        )
    count = math.prod(block_grid(image))
    pad_bytes = -(-pad_bits // 8)
    length = 10 + pad_bytes + count * (block_width + pad_width)
    if length > segment.length or data_offset > segment.length:
        raise FormatError(
            f"{image.where}: the mask takes {length} bytes and places the image data at "
            f"{data_offset}, the segment has {segment.length} bytes"
        )
    code = source.read(segment.offset + 10, pad_bytes).tobytes()
    pad = pad_value(image, code) if pad_bits else None
    start = segment.offset + data_offset
    at = segment.offset + 10 + pad_bytes
    if not block_width:
        return Mask(start, None, pad)
    return Mask(start, read_offsets(source, at, block_grid(image), start), pad, at)


def read_offsets(source: Source, at: int, grid: tuple[int, ...], base: int) -> Offsets:
    """Read a table of 32-bit offsets relative to `base`, shaped like `grid`."""
    records = source.read(at, 4 * math.prod(grid)).view(">u4").astype(np.int64)
    return np.where(records == ABSENT, -1, records + base).reshape(grid)


def pad_value(image: Image, code: bytes) -> Any:
    """Return the sample value of a pad pixel, justified and signed like the image's samples."""
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


def transparent_entry(image: Image) -> int | None:
    """Return the palette index of pixels without a colour; None if the palette has no such."""
    lut = lookup_tables(image.segment.values["BANDS"][0]) if image.bands == 1 else []
    if image.nbpp != 8 or not lut or len(lut[0]) >= 255:
        return None
    colours = len(lut[0])
    # CADRG has 216 colours; some files also list the transparent one, as black
    is_listed = colours == 217 and not any(table[-1] for table in lut)
    return colours - 1 if is_listed else colours


def block_array(
    image: Image, codec: Json, chunks: ByteRanges, *, bands: int, fill: int
) -> ArrayIndex:
    """Return an array with one chunk per block, or per `bands` bands of a block."""
    return ArrayIndex(
        shape=image.shape,
        chunk_shape=(bands, image.block_height, image.block_width),
        data_type=image.dtype.name,
        codecs=(LITTLE, codec),
        chunks=chunks,
        fill_value=fill_value_json(fill, image.dtype),
        dimension_names=DIMENSIONS,
    )


def ranges(offsets: Offsets, end: int) -> tuple[Offsets, Offsets]:
    """Return offsets and lengths of blocks whose lengths the file does not state.

    A block extends to the next stored block, the last one to `end`. Blocks that are not stored have
    offset and length 0.
    """
    flat = offsets.reshape(-1)
    stored = np.unique(flat[flat >= 0])
    after = np.r_[stored[1:], end]
    lengths = np.zeros_like(flat)
    is_stored = flat >= 0
    lengths[is_stored] = after[np.searchsorted(stored, flat[is_stored])] - flat[is_stored]
    return np.where(is_stored, flat, 0).reshape(offsets.shape), lengths.reshape(offsets.shape)


def cropped(table: Offsets, image: Image) -> npt.NDArray[np.uint64]:
    """Return a table of blocks as (bands, y, x), without the blocks outside of the image."""
    down, across = image.blocks
    blocks = table.reshape(-1, image.blocks_down, image.blocks_across)
    return np.ascontiguousarray(blocks[:, :down, :across]).astype(np.uint64)


def check_inside(image: Image, offsets: Offsets) -> None:
    """Raise `FormatError` if a block begins after the end of the image data."""
    stored = offsets[offsets >= 0]
    if len(stored) and int(stored.max()) >= image.segment.end:
        raise FormatError(
            f"{image.where}: a block begins at {int(stored.max())}, "
            f"the image data ends at {image.segment.end}"
        )
