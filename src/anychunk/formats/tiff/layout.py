"""The layout of a TIFF page: geometry, samples and compression, as its tags state them.

Spec: TIFF 6.0 sections 2 to 15; SGI ImageDepth and TileDepth.
"""

import base64
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tifffile

from anychunk.codecs import to_json
from anychunk.codecs.tiff import samples
from anychunk.codecs.tiff.decoders import KNOWN
from anychunk.codecs.tiff.tile import CCITT_T4, NONE, OLD_JPEG, PICTURES, YCBCR
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.errors import AnychunkError, FormatError, UnsupportedError
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.index import Json

JPEG, ZSTD, EER = 7, 50000, 65002


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Geometry, samples and compression of one page."""

    where: str
    """Names the page in messages."""
    width: int
    height: int
    depth: int
    bands: int
    is_tiled: bool
    is_planar: bool
    """Whether bands are stored separately, in their own strips or tiles."""
    chunk_width: int
    chunk_height: int
    chunk_depth: int
    compression: int
    bits: samples.Bits
    sample_format: int
    predictor: int
    photometric: int
    fill_order: int
    is_big: bool
    """Whether samples are big-endian."""
    configuration: tuple[tuple[str, Any], ...] = ()
    """Further settings of the tiff-tile codec, as pairs so that the layout is hashable."""

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Data type of decoded samples."""
        try:
            return samples.sample_dtype(self.sample_format, self.bits)
        except UnsupportedError as e:
            raise UnsupportedError(f"{self.where}: {e}") from e

    @property
    def chunk_bands(self) -> int:
        """Bands per strip or tile."""
        return 1 if self.is_planar else self.bands

    @property
    def shape(self) -> Shape:
        """Shape of the page: (band, y, x), or (z, band, y, x) if its depth is more than 1."""
        return (*((self.depth,) if self.depth > 1 else ()), self.bands, self.height, self.width)

    @property
    def chunk_shape(self) -> Shape:
        """Shape of a strip or tile, with the axes of `shape`."""
        deep = (self.chunk_depth,) if self.depth > 1 else ()
        return (*deep, self.chunk_bands, self.chunk_height, self.chunk_width)

    @property
    def file_grid(self) -> Shape:
        """Number of strips or tiles along (separate bands, z, y, x), the order of the file."""
        return (
            self.bands if self.is_planar else 1,
            *grid_shape(
                (self.depth, self.height, self.width),
                (self.chunk_depth, self.chunk_height, self.chunk_width),
            ),
        )

    @cached_property
    def is_plain(self) -> bool:
        """Whether decompressed samples are the decoded ones, except for byte order."""
        return (
            self.predictor == 1
            and self.fill_order == 1
            and samples.is_whole(self.sample_format, self.bits)
            and not self.is_subsampled
        )

    @cached_property
    def is_subsampled(self) -> bool:
        """Whether chroma is subsampled."""
        return bool(dict(self.configuration).get("subsampling", (1, 1)) != (1, 1))

    @property
    def row_bytes(self) -> int:
        """Bytes per uncompressed row of a strip or tile."""
        return samples.row_bytes(self.chunk_width, self.chunk_bands, self.bits)

    @property
    def last_height(self) -> int:
        """Rows of the last strips or tiles that lie inside the image."""
        return self.height % self.chunk_height or self.chunk_height

    @property
    def has_short_strip(self) -> bool:
        """Whether the last strip has fewer rows than the others; tiles are always whole."""
        return not self.is_tiled and self.last_height != self.chunk_height

    def tile(self) -> TiffTile:
        """Return the codec that decodes a strip or tile."""
        try:
            return TiffTile(
                compression=self.compression,
                bits_per_sample=self.bits,
                samples_per_pixel=self.chunk_bands,
                photometric=self.photometric,
                planar_config=2 if self.is_planar else 1,
                predictor=self.predictor,
                tile_width=self.chunk_width,
                tile_height=self.chunk_height,
                sample_format=self.sample_format,
                byte_order="big" if self.is_big else "little",
                fill_order=self.fill_order,
                tile_depth=self.chunk_depth,
                last_height=self.last_height,
                last_width=(self.width % self.chunk_width) or self.chunk_width,
                **dict(self.configuration),
            )
        except AnychunkError as e:
            raise type(e)(f"{self.where}: {e}") from e

    def codecs(self, *, leading: int) -> tuple[Json, ...]:
        """Return the codecs of an array with `leading` axes in front: standard ones if possible."""
        is_portable = (
            self.is_plain and self.compression in (NONE, ZSTD) and not self.has_short_strip
        )
        if not is_portable:
            little = {"name": "bytes", "configuration": {"endian": "little"}}
            return (little, to_json(self.tile()))
        endian = "big" if self.is_big and self.dtype.itemsize > 1 else "little"
        codecs: list[Json] = [{"name": "bytes", "configuration": {"endian": endian}}]
        if self.chunk_bands > 1:
            # the file interleaves bands: y, x, band
            first = leading + (self.depth > 1)
            order = [*range(first), first + 1, first + 2, first]
            codecs.insert(0, {"name": "transpose", "configuration": {"order": order}})
        if self.compression == ZSTD:
            codecs.append({"name": "zstd", "configuration": {"level": 0, "checksum": False}})
        return tuple(codecs)


def page_layout(page: tifffile.TiffPage, where: str) -> Layout:
    """Return the layout of a page.

    Parameters:
        page: the page, with its tags.
        where: names the page in messages.

    Raises:
        FormatError: a tag has a value of the wrong type or out of range.
        UnsupportedError: the page is valid, but there is no decoder for it.
    """

    def number(attribute: str) -> int:
        return integer(getattr(page, attribute), f"{where}: {attribute}")

    compression, bands = number("compression"), number("samplesperpixel")
    is_planar = page.planarconfig == 2 and bands > 1
    is_tiled = number("tilewidth") > 0
    width = number("imagewidth")
    is_picture = compression in PICTURES
    layout = Layout(
        where=where,
        width=width,
        height=number("imagelength"),
        depth=max(1, number("imagedepth")),
        bands=bands,
        is_tiled=is_tiled,
        is_planar=is_planar,
        chunk_width=number("tilewidth") if is_tiled else max(1, width),
        chunk_height=max(1, number("tilelength" if is_tiled else "rowsperstrip")),
        chunk_depth=max(1, number("tiledepth")) if is_tiled else 1,
        compression=compression,
        bits=samples.as_bits(page.bitspersample),
        sample_format=number("sampleformat"),
        # compressions of whole pictures (JPEG, WebP …) ignore predictor and bit order
        predictor=1 if is_picture else number("predictor"),
        photometric=_photometric(page, compression, where),
        fill_order=1 if is_picture else number("fillorder"),
        is_big=page.parent.byteorder == ">",
        configuration=tuple(_configuration(page, compression, is_planar, where).items()),
    )
    _check(layout, page)
    return layout


def integer(value: Any, where: str) -> int:
    """Return the value of a tag that must be an integer; damaged tags may have any type."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise FormatError(f"{where} is {value!r}, expected an integer")
    return int(value)


def _photometric(page: tifffile.TiffPage, compression: int, where: str) -> int:
    if compression == JPEG and page.samplesperpixel == 3 and 262 not in page.tags:
        return YCBCR  # without the tag, the JPEG stream itself states its colour space
    return integer(page.photometric, f"{where}: photometric")


def _check(layout: Layout, page: tifffile.TiffPage) -> None:
    for name in ("width", "height", "bands"):
        if not 0 <= getattr(layout, name) < 1 << 32:
            raise FormatError(
                f"{layout.where}: {name} is {getattr(layout, name)}, expected 0 to {(1 << 32) - 1}"
            )
    if layout.compression not in KNOWN:
        known = " ".join(str(n) for n in sorted(KNOWN))
        raise UnsupportedError(
            f"{layout.where}: compression {page.compression!r} is not supported; supported: {known}"
        )
    tag = page.tags.get(339)
    if tag is not None and isinstance(tag.value, tuple) and len(set(tag.value)) > 1:
        raise UnsupportedError(
            f"{layout.where}: bands of different SampleFormat {tag.value} are not supported"
        )
    if layout.bands > 1 and page.planarconfig not in (1, 2):
        raise UnsupportedError(
            f"{layout.where}: PlanarConfiguration {page.planarconfig} is not supported; "
            "supported: 1 2"
        )
    if layout.is_subsampled and layout.is_planar:
        raise UnsupportedError(
            f"{layout.where}: subsampled YCbCr in separate planes is not supported"
        )
    # before anyone multiplies these numbers in 64 bits
    if math.prod(layout.file_grid) > 1 << 40:
        raise FormatError(
            f"{layout.where}: a grid of {layout.file_grid} strips or tiles, expected at most 2**40"
        )


def _configuration(
    page: tifffile.TiffPage, compression: int, is_planar: bool, where: str
) -> dict[str, Any]:
    """Return the settings of tiff-tile that only some compressions need."""
    found: dict[str, Any] = {}
    if compression == CCITT_T4:
        found["t4_options"] = integer(page.tags.valueof(292, 0), f"{where}: T4Options") & 7
    if compression == JPEG and page.jpegtables:
        found["jpeg_tables"] = base64.b64encode(page.jpegtables).decode()
    if compression == EER:
        # bits of a run length, and of the sub-pixel positions in x and y
        codes = ((65007, 7), (65008, 2), (65009, 2))
        found["eer"] = tuple(
            integer(page.tags.valueof(code, default), f"{where}: tag {code}")
            for code, default in codes
        )
    if page.photometric == YCBCR and not is_planar and page.samplesperpixel == 3:
        if compression not in PICTURES:
            found |= _ycbcr(page, compression, where)
    elif page.photometric == YCBCR and is_planar and compression not in PICTURES:
        found["subsampling"] = subsampling(page, (1, 1), where)
    return found


def subsampling(page: tifffile.TiffPage, default: tuple[int, int], where: str) -> tuple[int, int]:
    """Return how many pixels share one colour sample, across and down."""
    value = page.subsampling or default
    if not isinstance(value, tuple) or len(value) != 2:
        raise FormatError(f"{where}: YCbCrSubSampling is {value!r}, expected two integers")
    across, down = (integer(n, f"{where}: YCbCrSubSampling") for n in value)
    return across, down


def _ycbcr(page: tifffile.TiffPage, compression: int, where: str) -> dict[str, Any]:
    """Return the settings of tiff-tile that convert YCbCr to RGB."""
    found: dict[str, Any] = {}
    if compression != OLD_JPEG:
        # TIFF 6.0 section 21: the default is 2, 2
        found["subsampling"] = subsampling(page, (2, 2), where)
        if found["subsampling"] == (1, 1):
            return {}
    for code, key, count in ((529, "ycbcr_coefficients", 3), (532, "reference_black_white", 6)):
        value = page.tags.valueof(code)
        if isinstance(value, tuple) and len(value) == 2 * count:
            pairs = zip(value[::2], value[1::2], strict=True)
            found[key] = tuple(float(a) / float(b) if b else 0.0 for a, b in pairs)
        # not rationals, although the standard requires them
        elif isinstance(value, tuple) and len(value) == count:
            found[key] = tuple(float(a) for a in value)
    return found
