"""How the pixels of a TIFF page lie in the file: plain data, from the page's tags.

Spec: TIFF 6.0 sections 2 to 15; SGI ImageDepth and TileDepth.
"""

import base64
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tifffile

from anychunk.codecs.tiff import samples
from anychunk.codecs.tiff.decoders import KNOWN
from anychunk.codecs.tiff.tile import CCITT_T4, NONE, OLD_JPEG, PICTURES, YCBCR
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.errors import AnychunkError, FormatError, UnsupportedError
from anychunk.model.grid import Shape
from anychunk.model.index import Json

ZSTD = 50000
JPEG = 7


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The geometry and the samples of one page."""

    where: str
    """Names the page in messages."""
    width: int
    height: int
    depth: int
    bands: int
    is_tiled: bool
    is_planar: bool
    """Whether each band has strips or tiles of its own."""
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
    configuration: tuple[tuple[str, Any], ...] = ()
    """Further keys of the tiff-tile codec."""

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        try:
            return samples.sample_dtype(self.sample_format, self.bits)
        except UnsupportedError as e:
            raise UnsupportedError(f"{self.where}: {e}") from e

    @property
    def chunk_bands(self) -> int:
        return 1 if self.is_planar else self.bands

    @property
    def shape(self) -> Shape:
        """Of one page: (z where there are several), band, y, x."""
        return (*((self.depth,) if self.depth > 1 else ()), self.bands, self.height, self.width)

    @property
    def chunk_shape(self) -> Shape:
        deep = (self.chunk_depth,) if self.depth > 1 else ()
        return (*deep, self.chunk_bands, self.chunk_height, self.chunk_width)

    @property
    def file_grid(self) -> Shape:
        """Strips or tiles in the order of the file: bands apart, depth, rows, columns."""
        return (
            self.bands if self.is_planar else 1,
            -(-self.depth // self.chunk_depth),
            -(-self.height // self.chunk_height),
            -(-self.width // self.chunk_width),
        )

    @cached_property
    def is_plain(self) -> bool:
        """Whether stored samples are the decoded ones, but for byte order and compression."""
        return (
            self.predictor == 1
            and self.fill_order == 1
            and samples.is_whole(self.sample_format, self.bits)
            and not self.is_subsampled
        )

    @cached_property
    def is_subsampled(self) -> bool:
        return bool(dict(self.configuration).get("subsampling", (1, 1)) != (1, 1))

    @property
    def row_bytes(self) -> int:
        return samples.row_bytes(self.chunk_width, self.chunk_bands, self.bits)

    @property
    def last_height(self) -> int:
        """Rows of the lowest strips or tiles that lie inside the image."""
        return self.height % self.chunk_height or self.chunk_height

    @property
    def has_short_strip(self) -> bool:
        return not self.is_tiled and self.last_height != self.chunk_height

    def tile(self) -> TiffTile:
        """Give the codec of this page's chunks."""
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
        """Give the codecs of an array with `leading` axes in front: portable ones if any do."""
        is_portable = (
            self.is_plain and self.compression in (NONE, ZSTD) and not self.has_short_strip
        )
        if not is_portable:
            little = {"name": "bytes", "configuration": {"endian": "little"}}
            return (little, self.tile().to_dict())
        endian = "big" if self.is_big and self.dtype.itemsize > 1 else "little"
        codecs: list[Json] = [{"name": "bytes", "configuration": {"endian": endian}}]
        if self.chunk_bands > 1:
            first = leading + (self.depth > 1)
            order = [*range(first), first + 1, first + 2, first]
            codecs.insert(0, {"name": "transpose", "configuration": {"order": order}})
        if self.compression == ZSTD:
            codecs.append({"name": "zstd", "configuration": {"level": 0, "checksum": False}})
        return tuple(codecs)


def page_layout(page: tifffile.TiffPage, where: str) -> Layout:
    """Read the layout of a page from its tags, and hold it against the rules."""
    compression = int(page.compression)
    is_planar = page.planarconfig == 2 and page.samplesperpixel > 1
    is_tiled = page.tilewidth > 0
    height, width, depth = int(page.imagelength), int(page.imagewidth), int(page.imagedepth)
    layout = Layout(
        where=where,
        width=width,
        height=height,
        depth=max(1, depth),
        bands=int(page.samplesperpixel),
        is_tiled=is_tiled,
        is_planar=is_planar,
        chunk_width=int(page.tilewidth) if is_tiled else max(1, width),
        chunk_height=max(1, int(page.tilelength if is_tiled else page.rowsperstrip)),
        chunk_depth=max(1, int(page.tiledepth)) if is_tiled else 1,
        compression=compression,
        bits=samples.as_bits(page.bitspersample),
        sample_format=int(page.sampleformat),
        predictor=1 if compression in PICTURES else int(page.predictor),
        photometric=_photometric(page, compression),
        fill_order=int(page.fillorder) if compression not in PICTURES else 1,
        is_big=page.parent.byteorder == ">",
        configuration=tuple(_configuration(page, compression, is_planar).items()),
    )
    _check(layout, page)
    return layout


def _photometric(page: tifffile.TiffPage, compression: int) -> int:
    if compression == JPEG and page.samplesperpixel == 3 and 262 not in page.tags:
        return YCBCR  # where the tag is missing, the stream itself says what its colours are
    return int(page.photometric)


def _check(layout: Layout, page: tifffile.TiffPage) -> None:
    for name in ("width", "height", "bands"):
        if not 0 <= getattr(layout, name) < 1 << 32:
            raise FormatError(f"{layout.where}: {name} is {getattr(layout, name)}")
    if layout.compression not in KNOWN:
        known = " ".join(str(n) for n in sorted(KNOWN))
        raise UnsupportedError(
            f"{layout.where}: compression {page.compression!r} is not opened; opened: {known}"
        )
    tag = page.tags.get(339)
    if tag is not None and isinstance(tag.value, tuple) and len(set(tag.value)) > 1:
        raise UnsupportedError(
            f"{layout.where}: bands of different SampleFormat {tag.value} are not opened"
        )
    if layout.bands > 1 and page.planarconfig not in (1, 2):
        raise UnsupportedError(
            f"{layout.where}: PlanarConfiguration {page.planarconfig} is not opened; opened: 1 2"
        )
    if layout.is_subsampled and layout.is_planar:
        raise UnsupportedError(f"{layout.where}: subsampled YCbCr in separate planes is not opened")
    if math.prod(layout.file_grid) > 1 << 40:
        raise FormatError(f"{layout.where}: {layout.file_grid} strips or tiles")


def _configuration(page: tifffile.TiffPage, compression: int, is_planar: bool) -> dict[str, Any]:
    """Collect the keys of tiff-tile that only some compressions need."""
    found: dict[str, Any] = {}
    if compression == CCITT_T4:
        found["t4_options"] = int(page.tags.valueof(292, 0)) & 7
    if compression == JPEG and page.jpegtables:
        found["jpeg_tables"] = base64.b64encode(page.jpegtables).decode()
    if compression == 65002:
        codes = ((65007, 7), (65008, 2), (65009, 2))
        found["eer"] = tuple(int(page.tags.valueof(code, default)) for code, default in codes)
    if page.photometric == YCBCR and not is_planar and page.samplesperpixel == 3:
        if compression not in PICTURES:
            found |= _ycbcr(page, compression)
    elif page.photometric == YCBCR and is_planar and compression not in PICTURES:
        found["subsampling"] = tuple(int(n) for n in page.subsampling or (1, 1))
    return found


def _ycbcr(page: tifffile.TiffPage, compression: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if compression != OLD_JPEG:
        # TIFF 6.0 section 21: the default is 2, 2
        found["subsampling"] = tuple(int(n) for n in page.subsampling or (2, 2))
        if found["subsampling"] == (1, 1):
            return {}
    for code, key, count in ((529, "ycbcr_coefficients", 3), (532, "reference_black_white", 6)):
        value = page.tags.valueof(code)
        if isinstance(value, tuple) and len(value) == 2 * count:
            pairs = zip(value[::2], value[1::2], strict=True)
            found[key] = tuple(float(a) / float(b) if b else 0.0 for a, b in pairs)
        elif isinstance(value, tuple) and len(value) == count:
            found[key] = tuple(float(a) for a in value)
    return found
