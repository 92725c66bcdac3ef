"""Decoding of TIFF strips and tiles: one function per compression, and the steps around them.

Spec: TIFF 6.0 and its technical notes, as libtiff reads them.

There are two kinds of compression. *Streams* decompress to the bytes of rows, which are then
unpacked. They return at most as many bytes as the chunk has: bytes may follow a stream (writers pad
strips, and libtiff stops at the last row), and a strip may continue after its last row, if its
compression neither states nor checks its length (LZW, PackBits). *Pictures* (`tile.PICTURES`)
decode to an array (rows, columns, bands). Every decoder releases the GIL.
"""

import base64
import lzma
import sys
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import imagecodecs
import numpy as np

from anychunk import decoders
from anychunk.codecs import jpeg
from anychunk.codecs.base import Bytes1D, as_bytes
from anychunk.codecs.jpeg import ends_in_grey, is_whole
from anychunk.codecs.leading_streams import zstd_frame_end
from anychunk.codecs.streams import XZ_MEMORY, decode_one_xz
from anychunk.codecs.tiff import fax, samples
from anychunk.codecs.tiff.picture_sizes import check_picture, lerc_dtype
from anychunk.codecs.tiff.tile import (
    CCITT_RLE,
    CCITT_RLE_WORDS,
    CCITT_T4,
    CCITT_T6,
    CMYK,
    COLORS,
    DEFLATE,
    EER,
    JPEG,
    JPEG2000,
    JPEG_XL,
    JPEG_XR,
    LERC,
    LOG,
    LOG24,
    LZMA,
    LZW,
    NEVER_YCBCR,
    NEXT,
    NONE,
    OLD_JPEG,
    PACKBITS,
    PNG,
    RGB,
    THUNDERSCAN,
    WEBP,
    YCBCR,
    ZSTD,
    Tile,
    decode_libtiff,
    split_jpeg_tables,
    ycbcr_to_rgb,
)
from anychunk.codestream.jpeg import read_header
from anychunk.codestream.jpeg_rows import rows_stream
from anychunk.codestream.jpeg_scan import head, units
from anychunk.errors import ChunkDecodeError, FormatError, UnsupportedError
from anychunk.model.grid import Array
from anychunk.native import loops

type StreamDecoder = Callable[[Bytes1D, Bytes1D], Bytes1D]
type PictureDecoder = Callable[[Tile, Bytes1D, Array | None], Array]
"""Takes an array of the chunk's size to decode into, or None; need not use it."""
type PartDecoder = Callable[[Tile, Bytes1D, range, range], Array | None]


def inflate(data: Bytes1D, out: Bytes1D) -> Bytes1D:
    try:
        return as_bytes(imagecodecs.deflate_decode(data, out=out))
    except imagecodecs.DeflateError as first:
        return _confirmed(data, len(out), "deflate", zlib.decompressobj(), first)


def _confirmed(
    data: Bytes1D, nbytes: int, name: str, stream: Any, first: Exception | None
) -> Bytes1D:
    """Decode a stream to its end, where its checksum is; bytes behind it are ignored.

    Without its end, or with more rows than the chunk, nothing says that its samples are right.
    """
    try:
        found = stream.decompress(data.tobytes(), nbytes + 1)
    except (zlib.error, lzma.LZMAError) as e:
        raise ChunkDecodeError(f"{name}: {e}") from first
    if not stream.eof or len(found) > nbytes:
        told = "decodes to more" if len(found) > nbytes else f"is truncated after {len(found)}"
        raise ChunkDecodeError(f"{name}: the stream {told}, expected {nbytes} bytes") from first
    return as_bytes(found)


def decode_zstd(data: Bytes1D, out: Bytes1D) -> Bytes1D:
    try:
        return as_bytes(imagecodecs.zstd_decode(data, out=out))
    except imagecodecs.ZstdError:
        # one frame, without what follows it
        end, _ = zstd_frame_end(data, 0)
        return as_bytes(imagecodecs.zstd_decode(data[:end], out=out))


def decode_lzw(data: Bytes1D, out: Bytes1D) -> Bytes1D:
    if loops is not None:
        found = loops.lzw_bytes(data, out)
        if found >= 0:
            return out[:found]
    return as_bytes(imagecodecs.lzw_decode(data, out=out))


def decode_lzma(data: Bytes1D, out: Bytes1D) -> Bytes1D:
    found = decode_one_xz(data, out)
    if found is not None:
        return found
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
    return _confirmed(data, len(out), "lzma", stream, None)


def decode_packbits(data: Bytes1D, out: Bytes1D) -> Bytes1D:
    if loops is not None:
        found = loops.packbits_bytes(data, out)
        if found >= 0:
            return out[:found]
    try:
        return as_bytes(imagecodecs.packbits_decode(data, out=out))
    except imagecodecs.PackbitsError:
        # the last run, of at most 128 bytes, may extend beyond the last row
        longer = np.empty(len(out) + 128, np.uint8)
        needed = data[: packbits_end(data, len(out))]
        return as_bytes(imagecodecs.packbits_decode(needed, out=longer))[: len(out)]


def packbits_end(data: Bytes1D, nbytes: int) -> int:
    """Return how many stored bytes decode to at least `nbytes`, or the length of the data."""
    stored, at, filled = data.tobytes(), 0, 0
    while filled < nbytes and at < len(stored):
        code = stored[at]
        if code < 128:  # TIFF 6.0 section 9: literal bytes, 128 is no operation, else a run
            filled, at = filled + code + 1, at + code + 2
        else:
            filled, at = filled + (257 - code if code > 128 else 0), at + (2 if code > 128 else 1)
    return at


STREAM_DECODERS: dict[int, StreamDecoder] = {
    LZW: decode_lzw,
    PACKBITS: decode_packbits,
    LZMA: decode_lzma,
    **dict.fromkeys(DEFLATE, inflate),
    **dict.fromkeys(ZSTD, decode_zstd),
}


def jpeg_colors(tile: Tile, *, is_jfif: bool) -> tuple[int | None, int | None]:
    """Return the colour spaces of the stream and of the result, as `jpeg8_decode` takes them.

    None leaves it to libjpeg, which guesses YCbCr for any stream of three components that has
    neither a JFIF nor an Adobe marker; in TIFF, PhotometricInterpretation decides.
    """
    if tile.samples_per_pixel == 1:
        return None, 1 if tile.planar_config == 2 else None
    if tile.samples_per_pixel == 3 and tile.photometric in NEVER_YCBCR and not is_jfif:
        # three bands that are not colours: "RGB to RGB" leaves them as they are
        return RGB, RGB
    if tile.samples_per_pixel != COLORS.get(tile.photometric):
        return None, None
    if tile.photometric == RGB:
        # without a JFIF marker the stream does not say that it is RGB
        return (None if is_jfif else RGB), RGB
    return None, {YCBCR: RGB, CMYK: 4}.get(tile.photometric)


def decode_jpeg(tile: Tile, data: Bytes1D, out: Array | None = None) -> Array:
    """Decode JPEG, into `out` if the shapes match; a last strip may be shorter."""
    tables, data = split_jpeg_tables(tile, data)
    data = with_jpeg_end(data)
    stream, result = jpeg_colors(tile, is_jfif=data[6:10].tobytes() == b"JFIF")
    if not decoders.is_used(decoders.LIBJPEG):
        check_picture(tile, data)
        joined = joined_tables(tables, data)
        array = jpeg.decode(joined, jpeg.whole_stream(joined, 0), is_rgb=stream == RGB)
        return array[..., 0] if tile.samples_per_pixel == 1 else array
    shape = (tile.tile_height, tile.tile_width)
    if out is None:
        bands = (tile.samples_per_pixel,) if tile.samples_per_pixel > 1 else ()
        out = np.empty((*shape, *bands), plain_dtype(tile))
    options = {"tables": tables, "colorspace": stream, "outcolorspace": result, "shape": shape}
    try:
        try:
            array = imagecodecs.jpeg8_decode(data, out=out, **options)
        except ValueError:
            # the stream announces another shape, which libjpeg would allocate unchecked
            check_picture(tile, data)
            array = imagecodecs.jpeg8_decode(data, **options)
    except imagecodecs.Jpeg8Error as e:
        # Lossless JPEG of DNG: precisions that libjpeg refuses, or one row of pixels coded as
        # several components of a narrower picture
        if not any(word in str(e) for word in ("precision", "conversion", "Huffman", "SOF type")):
            raise
        check_picture(tile, data)
        array = imagecodecs.ljpeg_decode(data)
        full = (*shape, tile.samples_per_pixel)
        return array.reshape(full) if array.size == np.prod(full) else array  # type: ignore[no-any-return]
    if array.dtype == np.uint8 and ends_in_grey(array, 8):
        whole = joined_tables(tables, data)
        if not is_whole(whole, head(whole), array):
            raise ChunkDecodeError(f"tiff-tile: JPEG stream of {len(data)} bytes is truncated")
    return array  # type: ignore[no-any-return]


def decode_jpeg_part(tile: Tile, data: Bytes1D, rows: range, columns: range) -> Array | None:
    """Decode a part of a JPEG chunk to (rows, columns, bands).

    None if the whole chunk is to be decoded: because of its coding, or because it is damaged or
    not as high as the chunk, which the other way reports.
    """
    if 2 * len(rows) > tile.tile_height:
        return None
    tables, stream = split_jpeg_tables(tile, data)
    stream = with_jpeg_end(stream)
    try:
        frame = read_header(memoryview(stream)).frame
        if frame is None or (frame.height, frame.width) != (tile.tile_height, tile.tile_width):
            return None
        found = rows_stream(stream, rows.start, rows.stop)
    except FormatError:
        return None  # libjpeg skips bytes between markers, so a damaged length may not hinder it
    if found is None:
        return None
    part = Tile(
        **{f.name: getattr(tile, f.name) for f in fields(Tile)}
        | {"tile_height": found.height, "last_height": found.height, "jpeg_tables": None}
    )
    # tables in front of the stream, as `split_jpeg_tables` found them
    if tables is not None:
        part = replace(part, jpeg_tables=base64.b64encode(tables).decode())
    array = fit(part, decode_jpeg(part, found.data))
    return array[rows.start - found.first : rows.stop - found.first, columns.start : columns.stop]


def with_jpeg_end(data: Bytes1D) -> Bytes1D:
    """Return a stream with its end marker; raise if it has none, because it is cut.

    libjpeg would fill missing rows with grey. A tile of NDPI is one restart interval of a larger
    picture: it ends in a restart marker.
    """
    # padding after the marker is short, as a rule: search the whole stream only if it must be
    if b"\xff\xd9" in data[-64:].tobytes() or b"\xff\xd9" in data.tobytes():
        return data
    if data[-2:].tobytes() not in RESTART_MARKERS or not _is_one_interval(data):
        raise ChunkDecodeError(f"tiff-tile: JPEG stream of {len(data)} bytes has no end marker")
    ended = data.copy()
    ended[-1] = 0xD9
    return ended


def _is_one_interval(data: Bytes1D) -> bool:
    """Return whether a restart interval of a stream is its whole picture (T.81 B.2.4.4)."""
    header = read_header(memoryview(data))
    return header.frame is not None and header.restart_interval == units(header.frame)


def joined_tables(tables: bytes | None, data: Bytes1D) -> Bytes1D:
    """Return a stream that begins with its tables, which are a stream of their own."""
    if tables is None:
        return data
    return np.concatenate([np.frombuffer(tables[:-2], np.uint8), data[2:]])


def decode_old_jpeg(tile: Tile, data: Bytes1D) -> Array:
    """Decode old-style JPEG, to which the index has prepended the header that the strip lacks.

    As in libtiff, chroma is repeated, not interpolated, and colours are converted with the
    coefficients of the page (`ycbcr_to_rgb`). Only libjpeg can be told to do so.
    """
    if not decoders.is_used(decoders.LIBJPEG):
        raise UnsupportedError(
            "old-style JPEG is decoded only by libjpeg-turbo; choose it: "
            'anychunk.decoders.use("jpeg", "libjpeg-turbo")'
        )
    check_picture(tile, data)
    whole = np.concatenate([data, np.frombuffer(b"\xff\xd9", np.uint8)])
    array = imagecodecs.jpeg8_decode(
        whole,
        colorspace="YCBCR" if tile.photometric == YCBCR else None,
        outcolorspace="YCBCR" if tile.photometric == YCBCR else None,
        fancyupsampling=False,
    )
    if ends_in_grey(array, 8) and not is_whole(whole, head(whole), array):
        raise ChunkDecodeError(f"tiff-tile: old-style JPEG strip of {len(data)} bytes is truncated")
    if tile.photometric != YCBCR:
        return array  # type: ignore[no-any-return]
    if array.shape[1:] != (tile.tile_width, 3):
        raise ChunkDecodeError(
            f"tiff-tile: old-style JPEG strip decodes to {array.shape}, expected rows of "
            f"{(tile.tile_width, 3)}"
        )
    plain = Tile(
        photometric=YCBCR,
        samples_per_pixel=3,
        tile_width=tile.tile_width,
        tile_height=len(array),
        ycbcr_coefficients=tile.ycbcr_coefficients,
        reference_black_white=tile.reference_black_white,
    )
    return ycbcr_to_rgb(plain, array.reshape(-1), len(array))


RESTART_MARKERS = frozenset(bytes((0xFF, 0xD0 + n)) for n in range(8))
RIFF_REVERSED = bytes.fromhex("4a926262")
"""`RIFF`, the signature of WebP, with the bits of each byte reversed."""


def decode_webp(tile: Tile, data: Bytes1D, out: Array | None = None) -> Array:
    if data[:4].tobytes() == RIFF_REVERSED:
        # libtiff applies FillOrder 2 to WebP and LERC, but to no other picture stream
        data = imagecodecs.bitorder_decode(data, out=np.empty_like(data))
    check_picture(tile, data)
    # encoders omit the alpha band from the stream if it is opaque
    has_alpha = True if tile.samples_per_pixel == 4 else None
    if out is not None:
        with suppress(ValueError):  # the stream has another shape
            return imagecodecs.webp_decode(data, hasalpha=has_alpha, out=out)  # type: ignore[no-any-return]
    return imagecodecs.webp_decode(data, hasalpha=has_alpha)  # type: ignore[no-any-return]


ZLIB = tuple(bytes((0x78, level)) for level in (0x01, 0x5E, 0x9C, 0xDA))
ZSTD_MAGIC = bytes.fromhex("28b52ffd")
LERC_REVERSED = tuple(
    bytes.fromhex(start) for start in ("32a64ec6", "14adf4bf", "1e80", "1e7a", "1e39", "1e5b")
)
"""`Lerc`, and the signatures of zstd and zlib, with the bits of each byte reversed."""


def decode_lerc(tile: Tile, data: Bytes1D, out: Array | None = None) -> Array:
    """Decode LERC, which may be compressed again by deflate or zstd (LercParameters tag).

    The tag is not needed: the second compression is recognised by its signature.
    """
    start = data[:4].tobytes()
    if start.startswith(LERC_REVERSED):
        # FillOrder 2
        data = imagecodecs.bitorder_decode(data, out=np.empty_like(data))
        start = data[:4].tobytes()
    if start[:2] in ZLIB:
        data = inflate(data, np.empty(tile.nbytes + 4096, np.uint8))
    elif start == ZSTD_MAGIC:
        data = decode_zstd(data, np.empty(tile.nbytes + 4096, np.uint8))
    size, dtype = check_picture(tile, data), lerc_dtype(data.data)
    if out is None or (*out.shape, 1) != size or dtype is None or dtype.itemsize != out.itemsize:
        out = None
    else:
        # imagecodecs compares only the sizes of the types
        out = out.view(dtype)
    array, mask = imagecodecs.lerc_decode(data, masks=True, out=out)
    if array.ndim == 3 and mask is not None and mask.ndim == 3:
        # bands with masks that differ are stored one after another
        array, mask = np.moveaxis(array, 0, -1), np.moveaxis(mask, 0, -1)
    if tile.byte_order == "big":
        # libtiff swaps samples before LERC compresses them (TIFFWriteEncodedStrip)
        if mask is not None and array.dtype.kind == "f":
            lost = int(np.count_nonzero(np.logical_not(mask)))
            raise ChunkDecodeError(
                f"tiff-tile: {lost} samples are lost: in big-endian files libtiff masks numbers "
                "whose swapped bytes are NaN; write the file again, in little-endian order"
            )
        array = array.byteswap()
    return _apply_lerc_mask(tile, array, mask)


def _apply_lerc_mask(tile: Tile, array: Array, mask: Array | None) -> Array:
    """Apply LERC's mask of valid pixels as libtiff does (tif_lerc.c): as alpha, or as NaN."""
    has_alpha = array.ndim == 3 and array.shape[-1] == tile.samples_per_pixel - 1
    if (has_alpha or (array.ndim == 2 and tile.samples_per_pixel == 2)) and array.dtype == np.uint8:
        # an alpha band of only 0 and 255 is stored as the mask, and not as a band
        alpha = np.full(array.shape[:2], True) if mask is None else mask
        return np.dstack([array, np.where(alpha, 255, 0).astype(np.uint8)])
    if mask is not None and array.dtype.kind == "f":
        valid = mask if mask.ndim == array.ndim else mask[..., None]
        array = np.where(valid.astype(bool), array, np.nan).astype(array.dtype)
    return array


def decode_eer(tile: Tile, data: Bytes1D, out: Array | None = None) -> Array:
    skip, horizontal, vertical = tile.eer or (8 if tile.compression == 65000 else 7, 2, 2)
    shape = (tile.tile_height, tile.tile_width)
    if len(data) % 2:
        # imagecodecs refuses an odd number of bytes. Ones skip pixels, and add none
        data = np.append(data, np.uint8(255))
    return imagecodecs.eer_decode(data, shape, skip, horizontal, vertical)  # type: ignore[no-any-return]


def decode_jpeg2000(tile: Tile, data: Bytes1D, out: Array | None = None) -> Array:
    """Decode a codestream or JP2 file; raise if OpenJPEG decodes it although it is damaged."""
    # slow to import, and rarely needed
    from anychunk.codecs.jpeg2000 import tiles, tiny_tiles

    rows, columns, bands = check_picture(tile, data)
    if out is not None and out.size == rows * columns * bands and out.dtype.kind in "iu":
        # bands one after the other, as OpenJPEG has them, and the chunk, too
        found = tiny_tiles.decode(data, out.reshape(bands, rows, columns))
        if found is not None:
            if not found.is_exact:
                tiles.check_stream(data)
            return found.samples[0] if bands == 1 else found.samples.transpose(1, 2, 0)
    if not decoders.is_used(decoders.OPENJPEG):
        tiles.check_stream(data)
        return np.moveaxis(tiles.decode_bare(data), 0, -1)
    array = imagecodecs.jpeg2k_decode(data, numthreads=1)
    tiles.check_stream(data)
    return array  # type: ignore[no-any-return]


def decode_jpeg2000_part(tile: Tile, data: Bytes1D, rows: range, columns: range) -> Array | None:
    """Decode a part of a bare codestream to (rows, columns, bands).

    None if the whole chunk is to be decoded: because of its coding, or because it is damaged or
    not of the size of the chunk, which the other way reports. A JP2 file may state colours that
    decoding it as a whole converts.
    """
    if 2 * len(rows) * len(columns) > tile.tile_height * tile.tile_width:
        return None
    expected = (tile.samples_per_pixel, tile.tile_height, tile.tile_width)
    from anychunk.codecs.jpeg2000 import decode_codestream_part

    found = decode_codestream_part(data, expected, rows, columns)
    return None if found is None else jpeg2000_samples(tile, found)


def jpeg2000_samples(tile: Tile, decoded: Array) -> Array | None:
    """Return what a codestream decodes to, (bands, y, x), as samples (y, x, bands) of the tile.

    None if they have another size.
    """
    if decoded.dtype.itemsize != tile.dtype.itemsize:
        return None
    array = np.moveaxis(decoded, 0, -1)
    return array if array.dtype == tile.dtype else _reinterpret(tile, array)


def _jpeg_xl(tile: Tile, data: Bytes1D, out: Array | None = None) -> Array:
    rows, columns, _ = check_picture(tile, data)
    # the number of bands and frames is not at the start of the stream: the decoder compares them
    # with those of `out`, before it allocates anything
    bands = (tile.samples_per_pixel,) if tile.samples_per_pixel > 1 else ()
    if out is None or out.shape != (rows, columns, *bands):
        out = np.empty((rows, columns, *bands), plain_dtype(tile))
    return imagecodecs.jpegxl_decode(data, numthreads=1, out=out)  # type: ignore[no-any-return]


def _jpeg_xr(tile: Tile, data: Bytes1D, out: Array | None = None) -> Array:
    check_picture(tile, data)
    return imagecodecs.jpegxr_decode(data)  # type: ignore[no-any-return]


def _png(tile: Tile, data: Bytes1D, out: Array | None = None) -> Array:
    check_picture(tile, data)
    return imagecodecs.png_decode(data)  # type: ignore[no-any-return]


PICTURE_DECODERS: dict[int, PictureDecoder] = {
    LERC: decode_lerc,
    PNG: _png,
    **dict.fromkeys(JPEG, decode_jpeg),
    **dict.fromkeys(JPEG2000, decode_jpeg2000),
    **dict.fromkeys(JPEG_XR, _jpeg_xr),
    **dict.fromkeys(JPEG_XL, _jpeg_xl),
    **dict.fromkeys(WEBP, decode_webp),
    **dict.fromkeys(EER, decode_eer),
}
"""Decoders of all `tile.PICTURES`, by compression."""

PART_DECODERS: dict[int, PartDecoder] = {
    **dict.fromkeys(JPEG, decode_jpeg_part),
    **dict.fromkeys(JPEG2000, decode_jpeg2000_part),
}
"""Decoders of a part of a chunk, by compression."""

CCITT = (CCITT_RLE, CCITT_T4, CCITT_T6, CCITT_RLE_WORDS)
LIBTIFF = (NEXT, THUNDERSCAN, LOG, LOG24)
"""Decoded by libtiff, the only decoder of these."""

KNOWN = frozenset((NONE, OLD_JPEG, *CCITT, *LIBTIFF, *STREAM_DECODERS, *PICTURE_DECODERS))
"""Every compression that is decoded."""


def plain_dtype(tile: Tile) -> np.dtype[Any]:
    """Return the type that pictures are decoded to: unsigned, where samples are integers or bools.

    Samples that are not those of a bool must not be written to one.
    """
    return np.dtype(f"u{tile.dtype.itemsize}") if tile.dtype.kind in "biu" else tile.dtype


def decode(tile: Tile, data: Bytes1D, out: Bytes1D) -> Array:
    """Decode a chunk to (rows, columns, bands).

    Parameters:
        tile: The tags that describe the chunk.
        data: Its stored bytes.
        out: A buffer as large as the decoded chunk. The result is in it if the decompressed bytes
            are, in native order, the decoded chunk (`Tile.is_direct`). Otherwise it may be a view
            of this thread's scratch buffer, which the next call overwrites.

    Raises:
        ChunkDecodeError: The chunk does not decode, or not to the shape that `tile` announces.
    """
    if tile.compression in CCITT:
        array = fax.decode(tile, data, out)
    elif tile.backend == "libtiff" or tile.compression in LIBTIFF:
        array = decode_libtiff(tile, data)
    elif tile.compression == OLD_JPEG:
        array = decode_old_jpeg(tile, data)
    elif (picture := PICTURE_DECODERS.get(tile.compression)) is not None:
        place = None
        if tile.tile_depth == tile.samples_per_pixel == 1:
            place = out.view(plain_dtype(tile)).reshape(tile.tile_height, tile.tile_width)
        array = picture(tile, data, place)
    else:
        array = _decode_rows(tile, data, out)
    return fit(tile, array)


_scratch = threading.local()


def scratch_buffer(nbytes: int) -> Bytes1D:
    """Return this thread's buffer, valid until its next chunk.

    `io.buffers.borrowed` cannot be used: decoded samples may still be a view of the buffer after
    the call that decoded them has returned. A buffer much larger than needed is released.
    """
    buffer = getattr(_scratch, "buffer", None)
    if buffer is None or len(buffer) < nbytes or len(buffer) > max(4 * nbytes, 1 << 22):
        buffer = _scratch.buffer = np.empty(nbytes, np.uint8)
    return buffer[:nbytes]


def _decode_rows(tile: Tile, data: Bytes1D, out: Bytes1D) -> Array:
    """Decompress a stream to rows, and unpack them."""
    if tile.fill_order == 2:
        data = imagecodecs.bitorder_decode(data, out=np.empty_like(data))
    nbytes = tile.stored_bytes(tile.tile_height) * tile.tile_depth
    decompress = STREAM_DECODERS.get(tile.compression)
    if decompress is None:
        plain = data[:nbytes]
    else:
        # joining byte planes needs a second buffer, so predictor 3 cannot start in `out`
        is_final = tile.is_direct and tile.predictor not in samples.FLOAT_DISTANCES
        plain = decompress(data, out if is_final else scratch_buffer(nbytes))
    rows = tile.rows_of(len(plain))
    plain = plain[: tile.stored_bytes(rows) * tile.tile_depth]
    if tile.is_subsampled:
        return ycbcr_to_rgb(tile, plain, rows)
    return _unpack(tile, plain, rows * tile.tile_depth, out)


def _unpack(tile: Tile, plain: Bytes1D, rows: int, out: Bytes1D) -> Array:
    """Return decompressed bytes as samples (rows, columns, bands)."""
    shape = (rows, tile.tile_width, tile.samples_per_pixel)
    bits, kind, predictor = tile.bits, tile.sample_format, tile.predictor
    if predictor in samples.FLOAT_DISTANCES:
        if kind != samples.FLOAT or isinstance(bits, tuple):
            raise UnsupportedError(
                f"tiff-tile: predictor {predictor} with SampleFormat {kind} is not supported; "
                f"supported: SampleFormat {samples.FLOAT} (floating point)"
            )
        target = out if tile.is_direct else None
        return samples.unpredict_float(
            plain, shape=shape, bits=bits, predictor=predictor, out=target
        )
    is_big = tile.byte_order == "big"
    is_complex = kind in samples.COMPLEX
    if predictor > 1 and is_complex:
        plain = samples.unpredict_complex(
            plain, shape=shape, bits=bits, predictor=predictor, is_big=is_big
        )
        is_big = sys.byteorder == "big"  # `unpredict_complex` has swapped already
    array = samples.unpack(plain, shape=shape, sample_format=kind, bits=bits, is_big=is_big)
    if predictor == 1 or is_complex:
        return array
    if isinstance(bits, tuple) or (bits, kind) == (24, samples.FLOAT):
        raise UnsupportedError(
            f"tiff-tile: predictor {predictor} with {bits}-bit samples in SampleFormat {kind} is "
            "not supported"
        )
    return samples.unpredict(array, predictor=predictor, bits=bits, sample_format=kind)


def fit(tile: Tile, array: Array) -> Array:
    """Check the shape of a decoded array; crop padding rows.

    A chunk is whole, or ends where the image does (`last_height`, `last_width`). Where those are
    not given, any shorter chunk is accepted.
    """
    if array.ndim == 2:
        array = array[..., None]
    rows, columns = tile.tile_height * tile.tile_depth, tile.tile_width
    last_rows = rows if tile.last_height is None else tile.last_height
    last_columns = columns if tile.last_width is None else tile.last_width
    # the last JPEG strip may be coded with its rows rounded up to whole blocks, at most 16 high
    if array.ndim == 3 and array.shape[1] == columns and not tile.is_inside:
        if array.shape[0] > rows:
            array = array[:rows]
        elif last_rows < array.shape[0] < min(rows, last_rows + 16):
            array = array[:last_rows]
    is_short = tile.last_height is None and array.shape[0] < rows
    is_narrow = tile.last_width is None and array.shape[1] < columns
    if (
        array.ndim != 3
        or array.shape[2] != tile.samples_per_pixel
        or (array.shape[0] not in (rows, last_rows) and not is_short)
        or (array.shape[1] not in (columns, last_columns) and not is_narrow)
    ):
        raise ChunkDecodeError(
            f"tiff-tile: decoded to (rows, columns, bands) {array.shape}, expected "
            f"{(rows, columns, tile.samples_per_pixel)}"
        )
    return array if array.dtype.newbyteorder("=") == tile.dtype else _reinterpret(tile, array)


def _reinterpret(tile: Tile, array: Array) -> Array:
    """View decoded samples as another type of the same size, for example bilevel as bool."""
    if array.dtype.itemsize == tile.dtype.itemsize and array.dtype.kind in "biu":
        if tile.dtype.kind == "b" and array.size and array.max() > 1:
            raise ChunkDecodeError(
                f"tiff-tile: decoded to samples up to {array.max()}, expected 0 and 1"
            )
        return array.view(tile.dtype)
    raise ChunkDecodeError(f"tiff-tile: decoded to {array.dtype}, expected {tile.dtype}")
