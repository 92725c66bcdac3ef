"""What the subheader of an image says, checked: its shape, its samples, its blocks."""

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
from anychunk.formats.nitf.fields import number
from anychunk.formats.nitf.header import Segment, bands
from anychunk.model.index import Json

OPENED = "NC NM C1 M1 C3 M3 C4 M4 C5 M5 I1 C8 M8 CD MD"
REFUSED = {
    "C0": "a user's own compression",
    "M0": "a user's own compression",
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
IMODES = ("B", "P", "R", "S")


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image segment."""

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
        try:
            return sample_dtype(self.pvtype, self.nbpp)
        except CodecConfigError as e:
            raise UnsupportedError(f"{self.where}: {e}") from None

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.bands, self.rows, self.columns

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks down and across that hold pixels of the image; a file may have more."""
        return -(-self.rows // self.block_height), -(-self.columns // self.block_width)

    @property
    def is_masked(self) -> bool:
        return self.ic.startswith("M") or self.ic == "NM"

    @property
    def has_bands_apart(self) -> bool:
        """Whether all blocks of one band come before those of the next."""
        return self.imode == "S" and self.bands > 1


def read_image(segment: Segment, url: str, size: int) -> Image:
    """Check a subheader and give what matters for its pixels; `size` is that of the file."""
    where = f"{url} {segment.name}"
    try:
        image = _read_image(segment, where)
    except AnychunkError as e:
        raise (e if str(e).startswith(where) else type(e)(f"{where}: {e}")) from e
    blocks = image.blocks_down * image.blocks_across * (image.bands if image.imode == "S" else 1)
    # each takes a byte at the least, or an entry of a mask: no table is made for more
    if blocks > size:
        raise TruncatedError(f"{where}: {blocks} blocks in a file of {size} bytes")
    return image


def _read_image(segment: Segment, where: str) -> Image:
    values = segment.values
    ic = values["IC"].upper()
    if ic not in OPENED.split():
        kind = f" ({REFUSED[ic]})" if ic in REFUSED else ""
        raise UnsupportedError(f"{where}: IC {ic!r}{kind} is not opened; opened: {OPENED}")
    rows, columns = number(values, "NROWS"), number(values, "NCOLS")
    nbpp = number(values, "NBPP")
    down, across = number(values, "NBPC"), number(values, "NBPR")
    height, width = number(values, "NPPBV"), number(values, "NPPBH")
    # JBP 5.4.2.2: 0 where one block holds the image and more than 8192 pixels
    height = rows if height == 0 and down == 1 else height
    width = columns if width == 0 and across == 1 else width
    count = bands(values)
    if min(rows, columns, count, down, across, height, width) < 1 or not 1 <= nbpp <= 64:
        raise FormatError(
            f"{where}: {count} bands of {rows} x {columns} in {down} x {across} blocks of "
            f"{height} x {width} with {nbpp} bits are not an image"
        )
    if down * height < rows or across * width < columns:
        raise FormatError(
            f"{where}: {down} x {across} blocks of {height} x {width} do not cover "
            f"{rows} x {columns} pixels"
        )
    # one band is stored alike in every mode, and some files leave it blank
    imode = values["IMODE"].upper() or ("B" if count == 1 else "")
    if imode not in IMODES:
        raise FormatError(f"{where}: IMODE is {imode!r}, expected one of {' '.join(IMODES)}")
    # ABPP may be blank or out of range in files that are otherwise sound; then all bits count
    abpp = values["ABPP"] if isinstance(values["ABPP"], int) else nbpp
    return Image(
        segment=segment, where=where, rows=rows, columns=columns, bands=count, nbpp=nbpp,
        abpp=abpp if 1 <= abpp <= nbpp else nbpp,
        pjust="L" if values["PJUST"].upper() == "L" else "R",
        pvtype=values["PVTYPE"].strip().upper(), imode=imode, ic=ic,
        blocks_down=down, blocks_across=across, block_height=height, block_width=width,
    )  # fmt: skip


def fill_json(dtype: np.dtype[Any], value: Any) -> Json:
    """Give a fill value as Zarr v3 metadata has it."""
    if dtype.kind == "c":
        return [float_json(value.real), float_json(value.imag)]
    return float_json(value) if dtype.kind == "f" else int(value)


def float_json(value: Any) -> Json:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)
