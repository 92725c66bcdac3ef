"""How the tiles of a TIFF file are written: compression, predictor, and the tags that say so.

Spec: TIFF 6.0 sections 13 to 15 and 22; TIFF Technical Note 3 (floating point predictor); LERC,
      WebP and Zstandard as libtiff registers them.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import imagecodecs
import numpy as np

from anychunk.codecs.tiff import encoders, samples
from anychunk.codecs.tiff.tile import LERC, LZMA, LZW, NONE, PACKBITS, YCBCR, Tile
from anychunk.errors import ChunkEncodeError, OptionError, UnsupportedError
from anychunk.formats.tiff.write_directory import RATIONAL, Tag, longs, shorts
from anychunk.model.grid import Array

BITS, COMPRESSION, PLANAR, PREDICTOR, TILE_WIDTH, TILE_LENGTH = 258, 259, 284, 317, 322, 323
SAMPLES, SAMPLE_FORMAT, SUBSAMPLING, REFERENCE, LERC_PARAMETERS = 277, 339, 530, 532, 50674
HORIZONTAL, FLOATING_POINT = 2, 3
LERC_VERSION = 4
"""LERC 2 version 4 and later; the second number of the tag is 0: not compressed again."""
ZLIB_DEFAULT, LIBDEFLATE_BEST = 6, 12
"""Levels of deflate."""
SIDE = 512
"""Of tiles, unless the caller asks for another."""
LARGEST_SIDE = 16384


@dataclass(frozen=True)
class Kind:
    """A compression that is written."""

    code: int
    default: float | None = None
    limits: tuple[float, float] | None = None
    """Of its level; None: it has none."""
    is_picture: bool = False
    bands: tuple[int, ...] = ()
    """Numbers of bands that it holds; any if empty."""
    is_8_bit: bool = False


KINDS = {
    "none": Kind(NONE),
    "deflate": Kind(encoders.DEFLATE, 6, (0, 12)),
    "zstd": Kind(encoders.ZSTD, 9, (1, 22)),
    "lzw": Kind(LZW),
    "lzma": Kind(LZMA, 6, (0, 9)),
    "packbits": Kind(PACKBITS),
    "jpeg": Kind(encoders.JPEG, 75, (1, 100), is_picture=True, bands=(1, 3), is_8_bit=True),
    "webp": Kind(encoders.WEBP, None, (1, 100), is_picture=True, bands=(3, 4), is_8_bit=True),
    "lerc": Kind(LERC, 0, (0, np.inf), is_picture=True),
}
SAMPLE_FORMATS = {
    "b": samples.UINT, "u": samples.UINT, "i": samples.INT, "f": samples.FLOAT,
    "c": samples.COMPLEX_FLOAT,
}  # fmt: skip
LERC_TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64")
TYPES = (*LERC_TYPES, "bool", "int64", "uint64", "float16", "complex64", "complex128")
"""The data types that TIFF holds and other software reads."""


@dataclass(frozen=True)
class Compression:
    """A compression and its level."""

    name: str
    level: float | None

    @property
    def kind(self) -> Kind:
        """What is known about it."""
        return KINDS[self.name]

    @property
    def is_lossy(self) -> bool:
        """Whether samples may change."""
        return (
            self.name == "jpeg"
            or (self.name == "webp" and self.level is not None)
            or (self.name == "lerc" and bool(self.level))
        )


def parse_compression(given: Any, level: Any) -> Compression:
    """Return a compression with its level, both of which are checked; None: the default level."""
    kind = KINDS.get(given.lower()) if isinstance(given, str) else None
    if kind is None:
        raise OptionError(
            f"tiff: compression {given!r}, expected {' '.join(KINDS)}; its level is the option "
            "compression_level"
        )
    if level is None:
        return Compression(given.lower(), kind.default)
    low, high = kind.limits or (0, -1)
    if not isinstance(level, int | float) or not low <= level <= high:
        known = f"{low:g} to {high:g}" if kind.limits else "none, it has no levels"
        raise OptionError(f"tiff: compression_level={level!r} of {given}, expected {known}")
    return Compression(given.lower(), float(level))


@dataclass(frozen=True)
class TileFormat:
    """How tiles of one kind are encoded."""

    compression: Compression
    dtype: np.dtype[Any]
    bands: int
    """Bands in each tile."""
    total_bands: int
    """Bands of the image; more than `bands` if they are stored apart."""
    photometric: int
    predictor: int
    side: int
    is_bits: bool = False
    """Whether samples are single bits, as of masks."""

    @property
    def bits(self) -> int:
        """Bits of a sample."""
        return 1 if self.is_bits else self.dtype.itemsize * 8

    @property
    def sample_format(self) -> int:
        """SampleFormat."""
        return samples.UINT if self.is_bits else SAMPLE_FORMATS[self.dtype.kind]

    @cached_property
    def tile(self) -> Tile:
        """The codec's description of a tile."""
        level = self.compression.level
        if self.compression.name == "deflate" and level is not None and level >= ZLIB_DEFAULT:
            # as libtiff does: libdeflate needs one more to compress as well as zlib
            level = min(level + 1, LIBDEFLATE_BEST)
        return Tile(
            compression=self.compression.kind.code,
            bits_per_sample=self.bits,
            samples_per_pixel=self.bands,
            photometric=self.photometric,
            predictor=self.predictor,
            tile_width=self.side,
            tile_height=self.side,
            sample_format=self.sample_format,
            level=None if level is None else int(level),
        )

    def tags(self) -> list[Tag]:
        """Return the tags that describe the encoding."""
        found = [
            shorts(BITS, *[self.bits] * self.total_bands),
            shorts(COMPRESSION, self.compression.kind.code),
            shorts(SAMPLES, self.total_bands),
            shorts(PLANAR, 1 if self.bands == self.total_bands else 2),
            longs(TILE_WIDTH, self.side),
            longs(TILE_LENGTH, self.side),
        ]
        if self.sample_format != samples.UINT:
            found.append(shorts(SAMPLE_FORMAT, *[self.sample_format] * self.total_bands))
        if self.predictor != 1:
            found.append(shorts(PREDICTOR, self.predictor))
        if self.compression.name == "lerc":
            found.append(longs(LERC_PARAMETERS, LERC_VERSION, 0))
        if self.photometric == YCBCR:
            found.append(shorts(SUBSAMPLING, 2, 2))
            found.append(reference_black_white())
        return found

    def encode(self, pixels: Array) -> Any:
        """Return the stored bytes of a tile, given as (rows, columns, bands), padded at edges."""
        whole = padded(pixels, self.side)
        own = ENCODERS.get(self.compression.name)
        if own is not None:
            return own(self, whole[..., 0] if self.bands == 1 else whole)
        return encoders.encode(self.tile, whole[np.newaxis])


def reference_black_white() -> Tag:
    """Return the range of luma and colour differences of JPEG (TIFF 6.0 section 20)."""
    pairs = [v for n in (0, 255, 128, 255, 128, 255) for v in (n, 1)]
    return Tag(REFERENCE, RATIONAL, struct.pack("<12I", *pairs))


def padded(pixels: Array, side: int) -> Array:
    """Extend a tile at the edge of an image by its last row and column, which compress well."""
    rows, columns, bands = pixels.shape
    if rows == columns == side:
        return pixels
    whole = np.empty((side, side, bands), pixels.dtype)
    whole[:rows, :columns] = pixels
    whole[:rows, columns:] = pixels[:, -1:]
    whole[rows:] = whole[rows - 1]
    return whole


def _jpeg(tile: TileFormat, picture: Array) -> Any:
    quality = int(tile.compression.level or 75)
    if picture.ndim == 2:
        return imagecodecs.jpeg8_encode(np.ascontiguousarray(picture), quality)
    return imagecodecs.jpeg8_encode(
        np.ascontiguousarray(picture),
        quality,
        colorspace="RGB",
        outcolorspace="YCBCR",
        subsampling="420",
    )


def _webp(tile: TileFormat, picture: Array) -> Any:
    data, level = np.ascontiguousarray(picture), tile.compression.level
    if level is None:
        return imagecodecs.webp_encode(data, lossless=True)
    return imagecodecs.webp_encode(data, level, lossless=False)


def _lerc(tile: TileFormat, picture: Array) -> Any:
    data, most = np.ascontiguousarray(picture), float(tile.compression.level or 0)
    missing = np.isnan(data) if data.dtype.kind == "f" else np.zeros(0, bool)
    if not missing.any():
        return imagecodecs.lerc_encode(data, most)
    # libtiff reads what LERC's mask excludes as NaN
    everywhere = missing if missing.ndim == 2 else missing.all(axis=-1)
    if missing.sum() != everywhere.sum() * tile.bands:
        raise ChunkEncodeError(
            "tiff: lerc holds NaN only where all bands are NaN; use zstd or deflate"
        )
    return imagecodecs.lerc_encode(np.where(missing, 0, data), most, masks=~everywhere)


ENCODERS: dict[str, Callable[[TileFormat, Array], Any]] = {
    "jpeg": _jpeg,
    "webp": _webp,
    "lerc": _lerc,
}
"""Compressions whose level the codec `tiff-tile` does not have."""


def predictor_for(compression: Compression, dtype: np.dtype[Any], given: Any) -> int:
    """Return the predictor: that asked for, or the one that suits the type.

    Parameters:
        compression: the compression.
        dtype: of the samples.
        given: "auto", or None; "none", "horizontal", "float", or their numbers 1 to 3.
    """
    is_possible = not compression.kind.is_picture and compression.name not in ("none", "packbits")
    names = {"none": 1, "horizontal": HORIZONTAL, "float": FLOATING_POINT}
    wanted = names.get(given, given)
    if wanted in (None, "auto"):
        if not is_possible or dtype.kind not in "iuf":
            return 1
        return FLOATING_POINT if dtype.kind == "f" else HORIZONTAL
    if wanted not in (1, 2, 3):
        raise OptionError(f"tiff: predictor {given!r}; expected auto, none, horizontal or float")
    is_float = dtype.kind == "f"
    if wanted != 1 and (
        not is_possible or dtype.kind not in "iuf" or (wanted == FLOATING_POINT) > is_float
    ):
        raise UnsupportedError(
            f"tiff: predictor {given!r} is not possible for {dtype} with {compression.name}"
        )
    return int(wanted)


def check_type(compression: Compression, dtype: np.dtype[Any], bands: int, where: str) -> None:
    """Raise `UnsupportedError` if samples cannot be written with this compression."""
    kind, name = compression.kind, compression.name
    if dtype.name not in TYPES:
        raise UnsupportedError(
            f"{where}: TIFF has no data type {dtype}; supported: {' '.join(TYPES)}"
        )
    if kind.is_8_bit and dtype != np.uint8:
        raise UnsupportedError(f"{where}: {name} holds uint8, found {dtype}; use zstd or deflate")
    if kind.bands and bands not in kind.bands:
        expected = " or ".join(map(str, kind.bands))
        raise UnsupportedError(
            f"{where}: {name} holds {expected} bands, found {bands}; use zstd or deflate"
        )
    if name == "lerc" and dtype.name not in LERC_TYPES:
        raise UnsupportedError(f"{where}: lerc does not hold {dtype}; use zstd or deflate")
