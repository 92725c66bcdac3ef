"""Encoding of TIFF strips and tiles: the compressions that imagecodecs writes.

The mirror image of `decoders`: predict, pack and compress, or encode a picture.
"""

from collections.abc import Buffer as BytesLike
from collections.abc import Callable
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.codecs.tiff import samples
from anychunk.codecs.tiff.tile import (
    LERC,
    LZMA,
    LZW,
    NEVER_YCBCR,
    NONE,
    PACKBITS,
    PNG,
    RGB,
    YCBCR,
    Tile,
)
from anychunk.errors import UnsupportedError
from anychunk.model.grid import Array

# of the numbers registered for a compression, the one that is written
DEFLATE, OLD_DEFLATE, ZSTD, JPEG = 8, 32946, 50000, 7
JPEG2000, JPEG_XR, JPEG_XL, WEBP = 34712, 34934, 50002, 50001


JPEG_COLORS = {RGB: "RGB", YCBCR: "YCBCR", **dict.fromkeys(NEVER_YCBCR, "RGB")}
"""Colour space of the JPEG streams that are written, by PhotometricInterpretation."""

type Encoder = Callable[[Any, int | None], BytesLike]


def _with_level(name: str) -> Encoder:
    """Return imagecodecs' encoder of this name; level None is its default."""

    def compress(data: Any, level: int | None) -> BytesLike:
        encode = getattr(imagecodecs, f"{name}_encode")
        return encode(data) if level is None else encode(data, level)  # type: ignore[no-any-return]

    return compress


STREAM_ENCODERS: dict[int, Encoder] = {
    NONE: lambda data, _: data,
    LZW: lambda data, _: imagecodecs.lzw_encode(data),
    DEFLATE: _with_level("deflate"),
    OLD_DEFLATE: _with_level("deflate"),
    LZMA: _with_level("lzma"),
    ZSTD: _with_level("zstd"),
}
PICTURE_ENCODERS: dict[int, Encoder] = {
    JPEG2000: _with_level("jpeg2k"),
    LERC: _with_level("lerc"),
    PNG: _with_level("png"),
    JPEG_XR: _with_level("jpegxr"),
    WEBP: _with_level("webp"),
    JPEG_XL: _with_level("jpegxl"),
}
ENCODED = frozenset((JPEG, PACKBITS, *STREAM_ENCODERS, *PICTURE_ENCODERS))


def encode(tile: Tile, array: Array) -> BytesLike:
    """Return the stored bytes of a chunk, given as (depth, rows, columns, bands)."""
    depth, rows, columns, bands = array.shape
    pixels = array.reshape(depth * rows, columns, bands)
    stream = STREAM_ENCODERS.get(tile.compression)
    if stream is not None:
        return _in_bit_order(tile, stream(_stored(tile, pixels), tile.level))
    if tile.compression == PACKBITS:
        return _in_bit_order(tile, _packbits(tile, pixels))
    native = np.ascontiguousarray(pixels, tile.dtype)
    if tile.compression == LERC and tile.byte_order == "big":
        native = native.byteswap()  # see decoders.decode_lerc
        if native.dtype.kind == "f" and np.isnan(native).any():
            raise UnsupportedError(
                "tiff-tile: LERC in big-endian order loses numbers whose swapped bytes are NaN; "
                "use byte_order little"
            )
    picture = native[..., 0] if bands == 1 else native
    if tile.compression == JPEG:
        return _jpeg(tile, picture)
    compress = PICTURE_ENCODERS.get(tile.compression)
    if compress is None:
        raise UnsupportedError(
            f"tiff-tile: compression {tile.compression} cannot be encoded; supported: "
            f"{' '.join(str(n) for n in sorted(ENCODED))}"
        )
    return compress(picture, tile.level)


def _stored(tile: Tile, pixels: Array) -> npt.NDArray[np.uint8]:
    """Predict and pack samples, in the byte order of the file."""
    if tile.subsampling != (1, 1):
        raise UnsupportedError(
            f"tiff-tile: YCbCr with subsampling {list(tile.subsampling)} cannot be encoded; "
            "use JPEG"
        )
    is_big = tile.byte_order == "big"
    if tile.predictor in samples.FLOAT_DISTANCES:
        coded = samples.predict(np.ascontiguousarray(pixels, tile.dtype), tile.predictor)
        data = coded.reshape(-1).view(np.uint8)
    else:
        kind = tile.sample_format
        if tile.predictor != 1:
            native = np.ascontiguousarray(pixels, tile.dtype)
            if kind in samples.COMPLEX:
                if tile.bits != 64 or kind == samples.COMPLEX_INT:
                    raise UnsupportedError(
                        f"tiff-tile: {tile.bits}-bit samples in SampleFormat {kind} cannot be "
                        f"encoded with predictor {tile.predictor}; use predictor 1"
                    )
                native, kind = native.view(np.uint64), samples.UINT
            pixels = samples.predict(native, tile.predictor)
        data = samples.pack(pixels, sample_format=kind, bits=tile.bits, is_big=is_big)
    return data


def _in_bit_order(tile: Tile, data: BytesLike) -> BytesLike:
    """Reverse the bits of each byte if the file stores the lowest first (FillOrder 2)."""
    return data if tile.fill_order == 1 else imagecodecs.bitorder_encode(bytes(data))


def _packbits(tile: Tile, pixels: Array) -> bytes:
    # TIFF 6.0 section 9: no run crosses the end of a row
    rows = _stored(tile, pixels).reshape(-1, tile.row_bytes)
    return b"".join(imagecodecs.packbits_encode(row.tobytes()) for row in rows)


def _jpeg(tile: Tile, picture: Array) -> BytesLike:
    if tile.jpeg_tables is not None:
        raise UnsupportedError(
            "tiff-tile: JPEG cannot be encoded with jpeg_tables; leave out jpeg_tables"
        )
    colors: dict[str, Any] = {}
    if tile.samples_per_pixel == 3 and tile.photometric in JPEG_COLORS:
        colors = {"colorspace": "RGB", "outcolorspace": JPEG_COLORS[tile.photometric]}
    return imagecodecs.jpeg8_encode(picture, tile.level, **colors)  # type: ignore[no-any-return]
