"""The layout of a TIFF page: geometry, samples and compression, as its tags state them.

Spec: TIFF 6.0 sections 2 to 15; SGI ImageDepth and TileDepth.
"""

import base64
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import tifffile

from anychunk.codecs import to_json
from anychunk.codecs.tiff import samples
from anychunk.codecs.tiff.decoders import KNOWN
from anychunk.codecs.tiff.tile import (
    CCITT_T4,
    LERC,
    LOG,
    LOG24,
    LOG_L,
    LOG_LUV,
    NEVER_YCBCR,
    NONE,
    OLD_JPEG,
    PICTURES,
    YCBCR,
)
from anychunk.codecs.tiff.tile import JPEG as EVERY_JPEG
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.errors import AnychunkError, FormatError, UnsupportedError
from anychunk.formats import _pieces
from anychunk.formats.tiff.directory import RATIONAL, SRATIONAL, check_directory, page_entries
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.index import Json

JPEG, ZSTD, EER = 7, 50000, 65002
MOST_TILES = 256
_tiles: dict[tuple[Any, ...], dict[str, Json]] = {}
"""The JSON of recent codecs, by what they depend on."""


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
    stream: str | None = None
    """The compression of long strips that are cut into chunks: these are then uncompressed."""

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
    def is_volume(self) -> bool:
        """Whether the page has several planes, or one in tiles of several."""
        return self.depth > 1 or self.chunk_depth > 1

    @property
    def shape(self) -> Shape:
        """Shape of the page: (band, y, x), or (z, band, y, x) if it is a volume."""
        return (*((self.depth,) if self.is_volume else ()), self.bands, self.height, self.width)

    @property
    def chunk_shape(self) -> Shape:
        """Shape of a strip or tile, with the axes of `shape`."""
        deep = (self.chunk_depth,) if self.is_volume else ()
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

    @property
    def is_portable(self) -> bool:
        """Whether standard codecs describe a strip or tile."""
        return self.is_plain and self.compression in (NONE, ZSTD) and not self.has_short_strip

    @property
    def _decoding(self) -> tuple[Any, ...]:
        """What the codec of a strip or tile depends on."""
        last_width = self.width % self.chunk_width
        return (
            self.compression, self.bits, self.chunk_bands, self.photometric, self.is_planar,
            self.predictor, self.chunk_width, self.chunk_height, self.sample_format, self.is_big,
            self.fill_order, self.chunk_depth, self.last_height, last_width, self.configuration,
        )  # fmt: skip

    def codecs(self) -> tuple[Json, ...]:
        """Return the codecs of a strip or tile in its stored order: standard ones if possible."""
        outer = () if self.stream is None else (_pieces.codec(self.stream),)
        if not self.is_portable:
            little = {"name": "bytes", "configuration": {"endian": "little"}}
            # levels of an image, and files of a set, often differ in size only
            kept = _tiles.get(key := self._decoding)
            if kept is None:
                if len(_tiles) >= MOST_TILES:
                    _tiles.clear()
                kept = _tiles[key] = to_json(self.tile())
            return (little, {**kept, "configuration": dict(kept["configuration"])}, *outer)
        endian = "big" if self.is_big and self.dtype.itemsize > 1 else "little"
        codecs: list[Json] = [{"name": "bytes", "configuration": {"endian": endian}}]
        if self.compression == ZSTD:
            codecs.append({"name": "zstd", "configuration": {"level": 0, "checksum": False}})
        return (*codecs, *outer)


def page_layout(page: tifffile.TiffPage, where: str) -> Layout:
    """Return the layout of a page.

    Parameters:
        page: the page, with its tags.
        where: names the page in messages.

    Raises:
        FormatError: a tag has a value of the wrong type or out of range.
        UnsupportedError: the page is valid, but there is no decoder for it.
    """

    def number(attribute: str, least: int = 0) -> int:
        return integer(getattr(page, attribute), f"{where}: {attribute}", least)

    check_directory(page, where)
    compression, bands = number("compression"), number("samplesperpixel", 1)
    is_planar = number("planarconfig") == 2 and bands > 1
    # NDPI pages have a tile size, but not the tag
    is_tiled = 322 in page.tags or number("tilewidth") > 0
    width, height = number("imagewidth"), number("imagelength")
    if width and 256 not in page.tags and compression not in (OLD_JPEG, *EVERY_JPEG):
        # tifffile has taken the size from what looks like a JPEG stream
        raise FormatError(
            f"{where}: ImageWidth and ImageLength are missing, and compression {compression} does "
            "not state a size"
        )
    stated = page.tags.get(258)
    if compression == LERC and stated is not None and 1 < stated.count < bands:
        # a band that LERC lacks is the opacity that its mask says: nothing else would tell
        raise FormatError(
            f"{where}: BitsPerSample has {stated.count} values, expected {bands}, one per sample"
        )
    is_picture = compression in PICTURES
    layout = Layout(
        where=where,
        width=width,
        height=height,
        depth=number("imagedepth", 1),
        bands=bands,
        is_tiled=is_tiled,
        is_planar=is_planar,
        chunk_width=number("tilewidth", 1) if is_tiled else max(1, width),
        # tifffile limits RowsPerStrip to ImageLength, which is 0 for a page without pixels
        chunk_height=number("tilelength", 1)
        if is_tiled
        else max(1, number("rowsperstrip", min(1, height))),
        chunk_depth=number("tiledepth", 1) if is_tiled else 1,
        compression=compression,
        bits=samples.as_bits(_bits(page, bands, where)),
        sample_format=_sample_format(page, bands, where),
        # compressions of whole pictures (JPEG, WebP …) ignore predictor and bit order
        predictor=1 if is_picture else number("predictor"),
        photometric=_photometric(page, compression, where),
        fill_order=1 if is_picture else number("fillorder"),
        is_big=page.parent.byteorder == ">",
        configuration=tuple(_configuration(page, compression, is_planar, where).items()),
    )
    if compression in (LOG, LOG24):
        layout = _log_layout(layout)
    _check(layout, page)
    return layout


def _log_layout(layout: Layout) -> Layout:
    """Return the layout of logarithmic luminance, decoded to Y or XYZ as float32.

    BitsPerSample and SampleFormat say what the writer handed to libtiff, not what is stored.
    """
    kinds = {(LOG, LOG_L, 1), (LOG, LOG_LUV, 3), (LOG24, LOG_LUV, 3)}
    kind = (layout.compression, layout.photometric, layout.bands)
    if kind not in kinds or layout.is_planar:
        raise UnsupportedError(
            f"{layout.where}: compression {layout.compression} with PhotometricInterpretation "
            f"{layout.photometric} and {layout.bands} {'separate ' * layout.is_planar}bands is not "
            f"supported; supported: {LOG_L} with 1 band, {LOG_LUV} with 3"
        )
    return replace(layout, bits=32, sample_format=samples.FLOAT, predictor=1)


def integer(value: Any, where: str, least: int = 0) -> int:
    """Return the value of a tag that must be an integer; damaged tags may have any type."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise FormatError(f"{where} is {value!r}, expected an integer")
    if value < least:
        raise FormatError(f"{where} is {int(value)}, expected at least {least}")
    return int(value)


def _per_band(value: Any, bands: int, where: str) -> tuple[int, ...]:
    """Return the values of a tag that has one value per band, or one for all of them."""
    # tifffile returns values of type BYTE as bytes
    values = tuple(value) if isinstance(value, tuple | list | bytes) else (value,)
    found = tuple(integer(v, where) for v in values[:bands])
    if len(found) == 0 or (len(found) < bands and len(set(found)) > 1):
        raise FormatError(f"{where} has {len(found)} values, expected 1 or {bands}")
    return found


SAMPLES = {2: 3, 5: 4, 6: 3, 8: 3}
"""The fewest samples of RGB, CMYK, YCbCr and Lab, by PhotometricInterpretation."""


def _bits(page: tifffile.TiffPage, bands: int, where: str) -> samples.Bits:
    """Return BitsPerSample: one number if it is the same for all bands."""
    tag = page.tags.get(258)
    least = SAMPLES.get(page.photometric, 1)
    if tag is not None and tag.count > bands < least:
        raise FormatError(
            f"{where}: SamplesPerPixel is {bands}, but BitsPerSample has {tag.count} values and "
            f"PhotometricInterpretation {int(page.photometric)} needs {least}"
        )
    bits = _per_band(page.bitspersample, bands, f"{where}: BitsPerSample")
    colors = page.tags.get(320)
    if page.photometric == 3 and colors is not None and bits[0] < 8:
        # TIFF 6.0 section 5: 3 * 2**BitsPerSample values. More of them belong to more bits, and
        # libtiff refuses the page; with fewer, rows would be too short if BitsPerSample were wrong
        most = 3 << bits[0]
        if colors.count > most:
            named = "is missing, which means 1 bit" if tag is None else f"is {bits[0]}"
            raise FormatError(
                f"{where}: BitsPerSample {named}, but ColorMap has {colors.count} values; expected "
                f"{most}, three for each of the {most // 3} values of a sample"
            )
    return bits[0] if len(set(bits)) == 1 else bits


def _sample_format(page: tifffile.TiffPage, bands: int, where: str) -> int:
    """Return SampleFormat, which must be the same for all bands."""
    value = page.tags.valueof(339, page.sampleformat)
    formats = _per_band(value, bands, f"{where}: SampleFormat")
    if len(set(formats)) > 1:
        raise UnsupportedError(
            f"{where}: bands of different SampleFormat {formats} are not supported"
        )
    return formats[0]


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
    if layout.bands > 1 and page.planarconfig not in (1, 2):
        raise UnsupportedError(
            f"{layout.where}: PlanarConfiguration {page.planarconfig} is not supported; "
            "supported: 1 2"
        )
    _check_samples(layout)
    _check_single_strip(layout, page)
    if (
        layout.compression == JPEG
        and layout.bands == 3
        and layout.photometric in NEVER_YCBCR
        and subsampling(page, (1, 1), layout.where) != (1, 1)
    ):
        # TIFF Technical Note 2: only YCbCr is subsampled; libtiff refuses such streams too
        raise FormatError(
            f"{layout.where}: YCbCrSubSampling {page.subsampling} with PhotometricInterpretation "
            f"{layout.photometric}, expected 6 (YCbCr)"
        )
    if layout.photometric == YCBCR and layout.bands < 3 and layout.compression not in PICTURES:
        # libtiff refuses some of them, and reads others as grey
        raise FormatError(
            f"{layout.where}: PhotometricInterpretation 6 (YCbCr) with SamplesPerPixel "
            f"{layout.bands}, expected 3 (TIFF 6.0 section 21)"
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


def _check_samples(layout: Layout) -> None:
    """Refuse widths of samples that readers do not agree on."""
    if layout.predictor in samples.DISTANCES and isinstance(layout.bits, int) and layout.bits < 8:
        raise UnsupportedError(
            f"{layout.where}: predictor {layout.predictor} with {layout.bits}-bit samples is not "
            "supported; supported: at least 8 bits"
        )
    if layout.bits in (40, 48, 56) and layout.sample_format in (1, 2, 4):
        # no reader shows whether their bytes follow the byte order of the file
        raise UnsupportedError(
            f"{layout.where}: {layout.bits}-bit integers are not supported; supported: 1 to 39 and "
            "64 bits, and widths between that are not whole bytes"
        )


def _check_single_strip(layout: Layout, page: tifffile.TiffPage) -> None:
    """Refuse a single uncompressed strip that is too short, if another tag contradicts it too.

    The byte count of such a strip may be wrong; BitsPerSample may have one value for all bands, and
    ColorMap fewer colours than a sample has values. But if two of them contradict the size of a
    row, samples would be taken from whatever follows the strip.
    """
    bits, counts, colors = (page.tags.get(code) for code in (258, 279, 320))
    if layout.compression != NONE or bits is None or counts is None or layout.is_subsampled:
        return
    found, needed = page.databytecounts[:1], layout.row_bytes * layout.height
    if counts.count != 1 or not found or not 0 < found[0] < needed:
        return
    strip = f"the strip {found[0]} bytes, expected {needed}"
    if layout.bands > 1 and bits.count == 1:
        raise FormatError(
            f"{layout.where}: SamplesPerPixel is {layout.bands}, but BitsPerSample has one value, "
            f"and {strip}"
        )
    if layout.photometric == 3 and colors is not None and layout.bits in (1, 2, 4):
        # from 8 bits on, libtiff leaves the colours out instead
        expected = 3 << layout.bits
        if colors.count < expected:
            raise FormatError(
                f"{layout.where}: BitsPerSample is {layout.bits}, but ColorMap has {colors.count} "
                f"values, expected {expected}, and {strip}"
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
    if not isinstance(value, tuple | bytes) or len(value) != 2:
        raise FormatError(f"{where}: YCbCrSubSampling is {value!r}, expected two integers")
    across, down = (integer(n, f"{where}: YCbCrSubSampling", 1) for n in value)
    return across, down


def _ycbcr(page: tifffile.TiffPage, compression: int, where: str) -> dict[str, Any]:
    """Return the settings of tiff-tile that convert YCbCr to RGB."""
    found: dict[str, Any] = {}
    if compression != OLD_JPEG:
        # TIFF 6.0 section 21: the default is 2, 2
        found["subsampling"] = subsampling(page, (2, 2), where)
        if found["subsampling"] == (1, 1):
            return {}
    # those too that tifffile cannot read
    codes = {entry.code for entry in page_entries(page, where)}
    for code, key, count in ((529, "ycbcr_coefficients", 3), (532, "reference_black_white", 6)):
        if code in page.tags or code in codes:
            found[key] = _rationals(page, code, count, f"{where}: {key}")
    return found


def _rationals(page: tifffile.TiffPage, code: int, count: int, where: str) -> tuple[float, ...]:
    """Return the numbers of a tag, rationals unless the writer stored them as another type."""
    tag = page.tags.get(code)  # None if tifffile cannot read it
    value = page.tags.valueof(code)
    if tag is not None and tag.count == count and isinstance(value, tuple):
        if tag.dtype not in (RATIONAL, SRATIONAL):
            return tuple(float(a) for a in value)
        pairs = zip(value[::2], value[1::2], strict=True)
        return tuple(float(a) / float(b) if b else 0.0 for a, b in pairs)
    raise FormatError(f"{where} is {value!r:.80}, expected {count} numbers")
