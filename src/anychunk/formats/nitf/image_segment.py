"""The validated subheader of an image segment: shape, samples and blocks."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from anychunk.codecs.jbp_block import sample_dtype
from anychunk.errors import (
    AnychunkError,
    CodecConfigError,
    FormatError,
    TruncatedError,
    UnsupportedError,
)
from anychunk.formats.nitf.fixed_width import number
from anychunk.formats.nitf.header import Segment, bands
from anychunk.model.grid import grid_shape

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
