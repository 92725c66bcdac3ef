"""Samples of a TIFF strip or tile: their data type, how they are packed, how they are predicted.

Spec: TIFF 6.0 sections 8 (BitsPerSample, SampleFormat) and 14 (Predictor 2); Adobe Photoshop TIFF
      Technical Note 3 (Predictor 3, 24-bit floats); DNG 1.4 (predictors across two and four
      pixels). Where these are silent, what libtiff does.

Decoding a strip takes up to three steps after decompression: reverse the prediction, unpack
samples that do not fill whole bytes, swap bytes. Their order depends on the predictor:

- Predictor 2 subtracts *samples*, so they are unpacked and swapped first, then summed.
- Predictor 3 subtracts *bytes*, after the bytes of a row were sorted into planes, most significant
  byte first. So bytes are summed first, then joined to little-endian numbers, whatever the file's
  order.

Prediction restarts in each row, and each band is predicted from itself. Arrays here are
(rows, columns, bands), the order in which a strip or tile stores samples.
"""

import math
import struct
from collections.abc import Sequence
from typing import Any, Literal

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.errors import ChunkDecodeError, ChunkEncodeError, UnsupportedError
from anychunk.io import copying
from anychunk.io.buffers import borrowed
from anychunk.model.grid import Array

type Bytes1D = npt.NDArray[np.uint8]
type Shape = tuple[int, int, int]
type Bits = int | tuple[int, ...]

UINT, INT, FLOAT, VOID, COMPLEX_INT, COMPLEX_FLOAT = 1, 2, 3, 4, 5, 6
COMPLEX = (COMPLEX_INT, COMPLEX_FLOAT)
RGB565 = (5, 6, 5)
WHOLE_BITS = (8, 16, 32, 64, 128)

DISTANCES = {2: 1, 34892: 2, 34893: 4}
"""Horizontal differencing, by predictor: the distance in pixels to the subtracted sample."""
FLOAT_DISTANCES = {3: 1, 34894: 2, 34895: 4}
"""Floating point differencing, by predictor: the same distance."""

FLOATS = {16: "float16", 24: "float32", 32: "float32", 64: "float64"}
COMPLEX_INTS = {16: "complex64", 32: "complex64", 64: "complex128"}
COMPLEX_WORDS: dict[Bits, int] = {16: 2, 32: 4, 64: 8}
"""Size in bytes of the words that complex samples are differenced as, by BitsPerSample."""
COMPLEX_FLOATS = {32: "complex64", 64: "complex64", 128: "complex128"}


def sample_dtype(sample_format: int, bits: Bits) -> np.dtype[Any]:
    """Return the data type that samples decode to: the narrowest of numpy that holds them."""
    name = None
    if bits == RGB565:
        name = "uint8"
    elif isinstance(bits, tuple):
        pass
    elif sample_format in (UINT, VOID, INT) and 1 <= bits <= 64:
        size = max(8, 1 << (bits - 1).bit_length())
        name = "bool" if bits == 1 else f"{'int' if sample_format == INT else 'uint'}{size}"
    elif sample_format == FLOAT:
        name = FLOATS.get(bits)
    elif sample_format == COMPLEX_INT:
        name = COMPLEX_INTS.get(bits)
    elif sample_format == COMPLEX_FLOAT:
        name = COMPLEX_FLOATS.get(bits)
    if name is None:
        raise UnsupportedError(
            f"{bits}-bit samples in SampleFormat {sample_format} are not supported; supported: "
            "integers of 1 to 64 bits, floats of 16, 24, 32 or 64, complex of 16 to 128"
        )
    return np.dtype(name)


def row_bytes(columns: int, bands: int, bits: Bits) -> int:
    """Return the number of bytes per row; rows are padded to whole bytes (TIFF 6.0 section 3)."""
    pixel = sum(bits) if isinstance(bits, tuple) else bits * bands
    return -(-columns * pixel // 8)


def is_whole(sample_format: int, bits: Bits) -> bool:
    """Return whether stored samples differ from numpy's by their byte order only."""
    if sample_format == COMPLEX_INT or (sample_format == COMPLEX_FLOAT and bits == 32):
        return False
    return bits in WHOLE_BITS


def unpack(data: Bytes1D, *, shape: Shape, sample_format: int, bits: Bits, is_big: bool) -> Array:
    """Return stored bytes as samples of `sample_dtype`; as a view if they fill whole words."""
    order: Literal[">", "<"] = ">" if is_big else "<"
    if isinstance(bits, tuple):
        # RGB565 is the only mix of widths that `sample_dtype` accepts; one pixel is one word
        return _unpack_565(data.view(f"{order}u2")).reshape(shape)
    if is_whole(sample_format, bits):
        stored = sample_dtype(sample_format, bits).newbyteorder(order)
        return data.view(stored).reshape(shape)
    if sample_format in (COMPLEX_INT, COMPLEX_FLOAT):
        kind = "i" if sample_format == COMPLEX_INT else "f"
        target = sample_dtype(sample_format, bits)
        half = np.dtype(f"f{target.itemsize // 2}")
        # numpy has no complex integers and no complex of two float16: widen both parts
        return data.view(f"{order}{kind}{bits // 16}").astype(half).view(target).reshape(shape)
    if sample_format == FLOAT:
        return imagecodecs.float24_decode(data, byteorder=order).reshape(shape)  # type: ignore[no-any-return]
    if bits == 24 and is_big:
        data = swap_24_bits(data)
    run = math.prod(shape[1:])
    return _extend_sign(_unpack_bits(data, run, bits), sample_format, bits).reshape(shape)


def swap_24_bits(data: Bytes1D) -> Bytes1D:
    """Reverse the bytes of 24-bit integers, as libtiff does for big-endian files.

    All readers take 24-bit integers as packed bits, most significant byte first, even in
    little-endian files. libtiff and GDAL swap them for big-endian files like any other integer, so
    there the most significant byte is the last (libtiff, `_TIFFSwab24BitData`; GDAL #2361).
    """
    return np.ascontiguousarray(data.reshape(-1, 3)[:, ::-1]).reshape(-1)


def _unpack_bits(data: Bytes1D, run: int, bits: int) -> Array:
    """Unpack unsigned integers, most significant bit first; rows of `run` samples end at a byte."""
    dtype = sample_dtype(UINT, bits)
    if bits <= 32:
        return imagecodecs.packints_decode(data, dtype, bits, runlen=run)  # type: ignore[no-any-return]
    # wider than packints_decode takes: one pass per bit
    stride = -(-run * bits // 8)
    flags = np.unpackbits(data.reshape(-1, stride), axis=1)[:, : run * bits]
    values = np.zeros((len(flags), run), np.uint64)
    for plane in np.moveaxis(flags.reshape(len(flags), run, bits), -1, 0):
        values = (values << np.uint64(1)) | plane
    return values


def _extend_sign(values: Array, sample_format: int, bits: int) -> Array:
    """Extend the sign bit of packed two's complement integers to the whole word."""
    if sample_format != INT or values.dtype == np.bool_:
        return values
    shift = values.dtype.itemsize * 8 - bits
    signed = values.view(np.dtype(f"i{values.dtype.itemsize}"))
    return (signed << shift) >> shift


def _unpack_565(words: Array) -> Array:
    """Scale 5, 6 and 5 bits to 8 by repeating their bits, as tifffile does."""
    out = np.empty((words.size, 3), np.uint8)
    for i, (shift, bits) in enumerate(((11, 5), (5, 6), (0, 5))):
        value = (words.astype(np.uint32) >> shift) & ((1 << bits) - 1)
        total = (8 // bits + 1) * bits  # the shortest multiple of `bits` above 8
        out[:, i] = value * ((2**total - 1) // (2**bits - 1)) >> (total - 8)
    return out


def pack(array: Array, *, sample_format: int, bits: Bits, is_big: bool) -> Bytes1D:
    """Return (rows, columns, bands) as stored bytes."""
    order: Literal[">", "<"] = ">" if is_big else "<"
    if isinstance(bits, int) and is_whole(sample_format, bits):
        stored = np.ascontiguousarray(array, array.dtype.newbyteorder(order))
        return stored.reshape(-1).view(np.uint8)
    if isinstance(bits, int) and sample_format in (UINT, VOID) and bits <= 32:
        if array.dtype != np.bool_ and bits < array.dtype.itemsize * 8 and (array >> bits).any():
            raise ChunkEncodeError(
                f"tiff-tile: the largest sample is {array.max()}, which does not fit {bits} bits"
            )
        run = math.prod(array.shape[-2:])
        plain = np.ascontiguousarray(array).reshape(-1)
        if bits == 1:
            packed = np.packbits(plain.astype(bool).reshape(-1, run), axis=1)
            return packed.reshape(-1)
        packed = np.frombuffer(imagecodecs.packints_encode(plain, bits, runlen=run), np.uint8)
        return swap_24_bits(packed) if bits == 24 and is_big else packed
    raise UnsupportedError(
        f"tiff-tile: {bits}-bit samples in SampleFormat {sample_format} cannot be encoded"
    )


def unpredict(array: Array, *, predictor: int, bits: int, sample_format: int) -> Array:
    """Reverse horizontal differencing, in place if `array` is writable."""
    distance = DISTANCES[predictor]
    if not array.dtype.isnative:
        array = array.byteswap(inplace=array.flags.writeable).view(array.dtype.newbyteorder("="))
    if not array.flags.writeable:
        array = array.copy()
    # floats are differenced too, as integers of the same bits (libtiff, tif_predict.c)
    words = array if array.dtype.kind in "iu" else array.view(f"u{array.dtype.itemsize}")
    imagecodecs.delta_decode(words, axis=-2, dist=distance, out=words)
    if bits not in WHOLE_BITS:
        # sums wrap at the width of the samples, not at that of the words that now hold them
        if sample_format == INT:
            return _extend_sign(words.view(f"u{words.itemsize}"), sample_format, bits)
        words &= words.dtype.type((1 << bits) - 1)
    return array


def unpredict_complex(
    data: Bytes1D,
    *,
    shape: Shape,
    bits: Bits,
    predictor: int,
    is_big: bool,
) -> Bytes1D:
    """Reverse the differencing of complex samples; return their bytes in native order.

    libtiff (tif_predict.c) differences and swaps a complex sample as one integer of its width, so
    in a big-endian file the real and the imaginary part change places as well.
    """
    if bits not in COMPLEX_WORDS:
        raise UnsupportedError(
            f"tiff-tile: predictor {predictor} with {bits}-bit complex samples is not supported; "
            f"supported: {' '.join(map(str, COMPLEX_WORDS))} bits"
        )
    words = data.view(f"{'>' if is_big else '<'}u{COMPLEX_WORDS[bits]}").reshape(shape)
    summed = unpredict(words, predictor=predictor, bits=COMPLEX_WORDS[bits] * 8, sample_format=UINT)
    return summed.reshape(-1).view(np.uint8)


def unpredict_float(
    data: Bytes1D, *, shape: Shape, bits: int, predictor: int, out: Bytes1D | None = None
) -> Array:
    """Reverse floating point differencing: sum the bytes of each row, then join byte planes.

    Parameters:
        data: Decompressed rows. Each row holds the most significant bytes of all its samples, then
            the next ones, and so on; every byte minus the one `distance` pixels before it.
        shape: (rows, columns, bands).
        bits: 16, 24, 32 or 64.
        predictor: One of `FLOAT_DISTANCES`.
        out: Where to put the samples, if it is large enough.
    """
    rows, columns, bands = shape
    distance = FLOAT_DISTANCES[predictor]
    if bits == 24:
        return _unpredict_float24(data, shape, distance)
    # summed and joined here, because imagecodecs.floatpred_decode takes five times as long
    size, run = bits // 8, columns * bands
    if distance > columns:
        raise ChunkDecodeError(
            f"tiff-tile: rows of {columns} pixels, expected at least {distance} for predictor "
            f"{predictor}"
        )
    rows_of_bytes = data.reshape(rows, size * columns, bands)
    if not data.flags.writeable:
        rows_of_bytes = rows_of_bytes.copy()
    imagecodecs.delta_decode(rows_of_bytes, axis=-2, dist=distance, out=rows_of_bytes)
    if out is None or out.nbytes < data.nbytes:
        out = np.empty(data.nbytes, np.uint8)
    target = out[: data.nbytes]
    join_byte_planes(rows_of_bytes.reshape(rows, size, run), target)
    return target.view(FLOATS[bits]).reshape(shape)


def _unpredict_float24(data: Bytes1D, shape: Shape, distance: int) -> Array:
    """Reverse the differencing of 24-bit floats, which become float32."""
    rows, columns, bands = shape
    planes = data.reshape(rows, -1, bands * distance)
    if planes.shape[1] * bands * distance != columns * bands * 3:
        raise ChunkDecodeError(
            f"tiff-tile: rows of {columns} 24-bit floats are not a multiple of {distance} bytes"
        )
    summed = np.add.accumulate(planes, axis=1, dtype=np.uint8)
    triples = np.moveaxis(summed.reshape(rows, 3, columns * bands), 1, 2)
    packed = np.ascontiguousarray(triples).reshape(-1)
    return imagecodecs.float24_decode(packed, byteorder=">").reshape(shape)  # type: ignore[no-any-return]


# The header of a Blosc 1 chunk, the start of each block, the length before each block
BLOSC_HEADER, BLOSC_START, BLOSC_LENGTH = 16, 4, 4
BLOSC_SHUFFLED, BLOSC_UNSPLIT = 0x01, 0x10
BLOSC_LIMIT = 1 << 30
"""Blosc counts bytes as signed 32-bit integers."""


def join_byte_planes(planes: Bytes1D, out: Bytes1D) -> None:
    """Join (rows, size, run) byte planes to rows of `run` little-endian numbers of `size` bytes.

    numpy needs one strided pass per plane. Blosc has vector code that joins all planes at once
    ("unshuffle"), which no Python binding offers on its own. So the planes are written into a Blosc
    chunk of uncompressed blocks, one per row, and that chunk is decoded.

    Spec: https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst

    Parameters:
        planes: Most significant byte first; Blosc wants the least significant one first.
        out: Flat, as long as `planes`.
    """
    rows, size, run = planes.shape
    block = size * run
    head = BLOSC_HEADER + rows * BLOSC_START
    total = head + rows * (BLOSC_LENGTH + block)
    if not 0 < total < BLOSC_LIMIT:
        out.reshape(rows, run, size)[...] = planes[:, ::-1].transpose(0, 2, 1)
        return
    with borrowed("planes", total) as chunk:
        flags = BLOSC_SHUFFLED | BLOSC_UNSPLIT
        chunk[:BLOSC_HEADER] = np.frombuffer(
            # format version 2 with blosclz 1, flags, item size, decoded, block and chunk size
            struct.pack("<4B3I", 2, 1, flags, size, rows * block, block, total),
            np.uint8,
        )
        starts = head + (BLOSC_LENGTH + block) * np.arange(rows, dtype="<u4")
        chunk[BLOSC_HEADER:head] = starts.view(np.uint8)
        blocks = chunk[head:].reshape(rows, BLOSC_LENGTH + block)
        # a block whose stored length is its decoded length is not compressed
        blocks[:, :BLOSC_LENGTH] = np.frombuffer(struct.pack("<I", block), np.uint8)
        blocks[:, BLOSC_LENGTH:].reshape(rows, size, run)[...] = planes[:, ::-1]
        imagecodecs.blosc_decode(chunk, numthreads=1, out=out)


def predict(array: Array, predictor: int) -> Array:
    """Difference samples along each row, to be compressed."""
    if predictor in DISTANCES:
        words = np.ascontiguousarray(array)
        if words.dtype.kind not in "iu":
            words = words.view(f"u{words.dtype.itemsize}")
        distance = DISTANCES[predictor]
        # rather than imagecodecs.delta_encode, which takes eight times as long for several bands
        coded = np.empty_like(words)
        coded[..., :distance, :] = words[..., :distance, :]
        np.subtract(
            words[..., distance:, :], words[..., :-distance, :], out=coded[..., distance:, :]
        )
        return coded.view(array.dtype)
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    if native.ndim == 3 and native.shape[1] > FLOAT_DISTANCES[predictor]:
        return _predict_float(native, FLOAT_DISTANCES[predictor])
    return imagecodecs.floatpred_encode(  # type: ignore[no-any-return]
        native, axis=-2, dist=FLOAT_DISTANCES[predictor]
    )


def _predict_float(array: Array, distance: int) -> Array:
    """Split rows into byte planes, most significant first, and difference their bytes.

    Three times as fast as imagecodecs.floatpred_encode.
    """
    rows, columns, bands = array.shape
    size, run = array.dtype.itemsize, columns * bands
    words = array.reshape(rows, run).view(f"u{size}")
    planes = np.empty((rows, size, run), np.uint8)
    for number in range(size):
        planes[:, size - 1 - number] = (words >> (8 * number)).astype(np.uint8)
    flat, step = planes.reshape(rows, -1), bands * distance
    coded = flat.copy()
    np.subtract(flat[:, step:], flat[:, :-step], out=coded[:, step:])
    return coded.reshape(-1).view(array.dtype).reshape(array.shape)


def deinterleave(array: Array, out: Array) -> None:
    """Copy (depth, rows, columns, bands) into the low corner of (depth, bands, rows, columns)."""
    depth, rows, columns, _ = array.shape
    copying.assign(out[:depth, :, :rows, :columns], np.moveaxis(array, -1, 1))


def as_bits(value: int | Sequence[int]) -> Bits:
    """Return BitsPerSample as one number if it is the same for all bands."""
    if isinstance(value, int):
        return value
    unique = set(value)
    return int(value[0]) if len(unique) == 1 else tuple(int(v) for v in value)
