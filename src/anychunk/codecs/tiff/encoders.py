"""Encoding of TIFF strips and tiles: the compressions that imagecodecs writes."""

from collections.abc import Buffer as BytesLike
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.codecs.tiff import samples
from anychunk.codecs.tiff.decoders import SHADES
from anychunk.errors import UnsupportedError

if TYPE_CHECKING:
    from anychunk.codecs.tiff_tile import TiffTile

LERC = 34887
type Array = npt.NDArray[Any]

COLORS = {2: "RGB", 6: "YCBCR", **dict.fromkeys(SHADES, "RGB")}
"""Colour spaces that JPEG is written in, by PhotometricInterpretation."""


def _leveled(name: str) -> Callable[[Any, int | None], BytesLike]:
    def compress(data: Any, level: int | None) -> BytesLike:
        encode = getattr(imagecodecs, f"{name}_encode")
        return encode(data) if level is None else encode(data, level)  # type: ignore[no-any-return]

    return compress


STREAMS: dict[int, Callable[[Any, int | None], BytesLike]] = {
    1: lambda data, _: data,
    5: lambda data, _: imagecodecs.lzw_encode(data),
    8: _leveled("deflate"),
    32946: _leveled("deflate"),
    34925: _leveled("lzma"),
    50000: _leveled("zstd"),
}
PICTURES: dict[int, Callable[[Any, int | None], BytesLike]] = {
    34712: _leveled("jpeg2k"),
    LERC: _leveled("lerc"),
    34933: _leveled("png"),
    34934: _leveled("jpegxr"),
    50001: _leveled("webp"),
    50002: _leveled("jpegxl"),
}


def encode(tile: "TiffTile", array: Array) -> BytesLike:
    """Encode (depth, rows, columns, bands)."""
    depth, rows, columns, bands = array.shape
    pixels = array.reshape(depth * rows, columns, bands)
    stream = STREAMS.get(tile.compression)
    if stream is not None:
        return _bit_order(tile, stream(_stored(tile, pixels), tile.level))
    if tile.compression == 32773:
        return _bit_order(tile, _packbits(tile, pixels))
    native = np.ascontiguousarray(pixels, tile.dtype)
    if tile.compression == LERC and tile.byte_order == "big":
        native = native.byteswap()  # see tiff_decoders.unlerc
    picture = native[..., 0] if bands == 1 else native
    if tile.compression == 7:
        return _jpeg(tile, picture)
    compress = PICTURES.get(tile.compression)
    if compress is None:
        raise UnsupportedError(
            f"tiff-tile: compression {tile.compression} is not written; written: "
            f"{' '.join(str(n) for n in sorted({7, 32773, *STREAMS, *PICTURES}))}"
        )
    return compress(picture, tile.level)


def _stored(tile: "TiffTile", pixels: Array) -> npt.NDArray[np.uint8]:
    """Predict and pack, in the byte order and bit order of the file."""
    if tile.subsampling != (1, 1):
        raise UnsupportedError("tiff-tile: subsampled YCbCr is not written; use JPEG")
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
                    raise UnsupportedError("tiff-tile: these samples are not written predicted")
                native, kind = native.view(np.uint64), samples.UINT
            pixels = samples.predict(native, tile.predictor)
        data = samples.pack(pixels, sample_format=kind, bits=tile.bits, is_big=is_big)
    return data


def _bit_order(tile: "TiffTile", data: BytesLike) -> BytesLike:
    """Turn the bits of each byte round where the file has the lowest first."""
    return data if tile.fill_order == 1 else imagecodecs.bitorder_encode(bytes(data))


def _packbits(tile: "TiffTile", pixels: Array) -> bytes:
    # TIFF 6.0 section 9: each row is packed on its own
    rows = _stored(tile, pixels).reshape(-1, tile.row_bytes)
    return b"".join(imagecodecs.packbits_encode(row.tobytes()) for row in rows)


def _jpeg(tile: "TiffTile", picture: Array) -> BytesLike:
    if tile.jpeg_tables is not None:
        raise UnsupportedError("tiff-tile: JPEG is written with its tables in each chunk only")
    colors: dict[str, Any] = {}
    if tile.samples_per_pixel == 3 and tile.photometric in COLORS:
        colors = {"colorspace": "RGB", "outcolorspace": COLORS[tile.photometric]}
    return imagecodecs.jpeg8_encode(picture, tile.level, **colors)  # type: ignore[no-any-return]
