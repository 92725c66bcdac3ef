"""The compressions of TIFF strips and tiles, each one function.

Streams give bytes, at most as many as wanted: a strip may go on behind its last row, and TIFF
readers stop there. Pictures give an array (rows, columns, bands). Every decoder releases the GIL.
"""

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import Bytes1D, as_bytes
from anychunk.errors import ChunkDecodeError

if TYPE_CHECKING:
    from anychunk.codecs.tiff_tile import TiffTile

type Array = npt.NDArray[Any]
type Stream = Callable[[Bytes1D, Bytes1D], Bytes1D]
type Picture = Callable[["TiffTile", Bytes1D], Array]

RGB, CMYK, YCBCR = 2, 5, 6
COLORS = {0: 1, 1: 1, 2: 3, 3: 1, 4: 1, 5: 4, 6: 3, 8: 3, 9: 3, 10: 3}
"""Bands that are colour, by PhotometricInterpretation; further ones are extra samples."""
SHADES = (0, 1, 3, 8, 9, 10)
"""MinIsWhite, MinIsBlack, palette and Lab: never stored as YCbCr (libtiff, tif_jpeg.c)."""


def inflate(data: Bytes1D, out: Bytes1D) -> Bytes1D:
    try:
        return as_bytes(imagecodecs.deflate_decode(data, out=out))
    except imagecodecs.DeflateError as first:
        # a stream may go on behind the last row, or lack its checksum, and still give every row;
        # one byte more than wanted makes zlib look at a checksum that is there
        stream = zlib.decompressobj()
        try:
            return as_bytes(stream.decompress(data.tobytes(), len(out) + 1))[: len(out)]
        except zlib.error as e:
            raise ChunkDecodeError(f"deflate: {e}") from first


def unzstd(data: Bytes1D, out: Bytes1D) -> Bytes1D:
    return as_bytes(imagecodecs.zstd_decode(data, out=out))


def unlzw(data: Bytes1D, out: Bytes1D) -> Bytes1D:
    return as_bytes(imagecodecs.lzw_decode(data, out=out))


def unlzma(data: Bytes1D, out: Bytes1D) -> Bytes1D:
    return as_bytes(imagecodecs.lzma_decode(data, out=out))


def unpackbits(data: Bytes1D, out: Bytes1D) -> Bytes1D:
    try:
        return as_bytes(imagecodecs.packbits_decode(data, out=out))
    except imagecodecs.PackbitsError:
        # the last run may reach over the end
        longer = np.empty(len(out) + 128, np.uint8)
        return as_bytes(imagecodecs.packbits_decode(data, out=longer))[: len(out)]


STREAMS: dict[int, Stream] = {
    5: unlzw,
    8: inflate,
    32946: inflate,
    50013: inflate,
    32773: unpackbits,
    34925: unlzma,
    50000: unzstd,
    34926: unzstd,
}


def jpeg_colors(tile: "TiffTile", *, is_jfif: bool) -> tuple[int | None, int | None]:
    """Give the colour space of the stream and of the result, as jpeg8_decode takes them."""
    if tile.samples_per_pixel == 1:
        return None, 1 if tile.planar_config == 2 else None
    if tile.samples_per_pixel == 3 and tile.photometric in SHADES and not is_jfif:
        # bands that are no colours: libjpeg would take any three for YCbCr
        return RGB, RGB
    if tile.samples_per_pixel != COLORS.get(tile.photometric):
        return None, None
    if tile.photometric == RGB:
        # a stream of RGB without a JFIF header says nothing of its colours
        return (None if is_jfif else RGB), RGB
    return None, {YCBCR: RGB, CMYK: 4}.get(tile.photometric)


def unjpeg(tile: "TiffTile", data: Bytes1D, out: Array | None = None) -> Array:
    """Decode; into `out` where it has the shape of the picture, which a last strip may not have."""
    whole = data
    tables, data = tables_of(tile, data)
    check_jpeg_end(data)
    stream, result = jpeg_colors(tile, is_jfif=data[6:10].tobytes() == b"JFIF")
    try:
        return imagecodecs.jpeg8_decode(  # type: ignore[no-any-return]
            data,
            tables=tables,
            colorspace=stream,
            outcolorspace=result,
            shape=(tile.tile_height, tile.tile_width),
            out=out,
        )
    except ValueError:
        if out is None:
            raise
        return unjpeg(tile, whole)
    except imagecodecs.Jpeg8Error as e:
        # lossless streams of DNG: other precisions, a row folded into several components
        if not any(word in str(e) for word in ("precision", "conversion", "Huffman", "SOF type")):
            raise
        array = imagecodecs.ljpeg_decode(data)
        shape = (tile.tile_height, tile.tile_width, tile.samples_per_pixel)
        return array.reshape(shape) if array.size == np.prod(shape) else array  # type: ignore[no-any-return]


def tables_of(tile: "TiffTile", data: Bytes1D) -> tuple[bytes | None, Bytes1D]:
    """Give the JPEG tables of a chunk and its stream: they may be a stream of their own in front.

    (ITU-T T.81 B.5: the abbreviated format for tables ends with EOI, and has no entropy-coded data
    in which its bytes could occur; segments are hopped over all the same.)
    """
    if tile.tables != b"":
        return tile.tables, data
    end = 2
    while data[end : end + 2].tobytes() != b"\xff\xd9":
        if end + 4 > len(data) or data[end] != 0xFF:
            raise ChunkDecodeError("JPEG tables in front of a chunk do not end")
        end += 2 + int.from_bytes(data[end + 2 : end + 4].tobytes(), "big")
    tables = data[: end + 2].tobytes()
    return (tables if len(tables) > 4 else None), data[end + 2 :]


def check_jpeg_end(data: Bytes1D) -> None:
    """Refuse a stream without its end marker: libjpeg would paint the missing rows grey."""
    if b"\xff\xd9" not in data[-64:].tobytes() and b"\xff\xd9" not in data.tobytes():
        raise ChunkDecodeError("JPEG stream ends before its end marker")


RIFF_TURNED = bytes.fromhex("4a926262")
"""The signature of WebP with the bits of each byte turned round."""


def unwebp(tile: "TiffTile", data: Bytes1D) -> Array:
    if data[:4].tobytes() == RIFF_TURNED:
        # FillOrder 2, which other streams of pictures are not subject to (libtiff, tif_webp.c)
        data = imagecodecs.bitorder_decode(data, out=np.empty_like(data))
    # an opaque alpha band may be left out of the stream
    has_alpha = True if tile.samples_per_pixel == 4 else None
    return imagecodecs.webp_decode(data, hasalpha=has_alpha)  # type: ignore[no-any-return]


def unlerc(tile: "TiffTile", data: Bytes1D) -> Array:
    """Decode LERC, compressed once more by deflate or zstd where its signature is not there."""
    nbytes = tile.nbytes + 4096
    if data[:2].tobytes() in (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"):
        data = inflate(data, np.empty(nbytes, np.uint8))
    elif data[:4].tobytes() == b"\x28\xb5\x2f\xfd":
        data = unzstd(data, np.empty(nbytes, np.uint8))
    array, mask = imagecodecs.lerc_decode(data, masks=True)
    if array.ndim == 3 and mask is not None and mask.ndim == 3:
        # bands that are valid in different places are one after the other
        array, mask = np.moveaxis(array, 0, -1), np.moveaxis(mask, 0, -1)
    if tile.byte_order == "big":
        # numbers are swapped before LERC compresses them (libtiff, TIFFWriteEncodedStrip)
        array = array.byteswap()
    return _masked(tile, array, mask)


def _masked(tile: "TiffTile", array: Array, mask: Array | None) -> Array:
    """Show what LERC says of valid pixels, as libtiff does (tif_lerc.c)."""
    has_alpha = array.ndim == 3 and array.shape[-1] == tile.samples_per_pixel - 1
    if (has_alpha or (array.ndim == 2 and tile.samples_per_pixel == 2)) and array.dtype == np.uint8:
        # alpha that is only 0 and 255 is kept as the mask
        alpha = np.full(array.shape[:2], True) if mask is None else mask
        return np.dstack([array, np.where(alpha, 255, 0).astype(np.uint8)])
    if mask is not None and array.dtype.kind == "f":
        valid = mask if mask.ndim == array.ndim else mask[..., None]
        array = np.where(valid.astype(bool), array, np.nan).astype(array.dtype)
    return array


def uneer(tile: "TiffTile", data: Bytes1D) -> Array:
    skip, horizontal, vertical = tile.eer or (8 if tile.compression == 65000 else 7, 2, 2)
    shape = (tile.tile_height, tile.tile_width)
    return imagecodecs.eer_decode(data, shape, skip, horizontal, vertical)  # type: ignore[no-any-return]


def _j2k(tile: "TiffTile", data: Bytes1D) -> Array:
    return imagecodecs.jpeg2k_decode(data, numthreads=1)  # type: ignore[no-any-return]


def _jxl(tile: "TiffTile", data: Bytes1D) -> Array:
    return imagecodecs.jpegxl_decode(data, numthreads=1)  # type: ignore[no-any-return]


def _jxr(tile: "TiffTile", data: Bytes1D) -> Array:
    return imagecodecs.jpegxr_decode(data)  # type: ignore[no-any-return]


def _png(tile: "TiffTile", data: Bytes1D) -> Array:
    return imagecodecs.png_decode(data)  # type: ignore[no-any-return]


PICTURES: dict[int, Picture] = {
    7: unjpeg,
    33007: unjpeg,
    34892: unjpeg,
    22610: _jxr,
    34934: _jxr,
    33003: _j2k,
    33004: _j2k,
    33005: _j2k,
    34712: _j2k,
    34887: unlerc,
    34933: _png,
    50001: unwebp,
    34927: unwebp,
    50002: _jxl,
    52546: _jxl,
    65000: uneer,
    65001: uneer,
    65002: uneer,
}
