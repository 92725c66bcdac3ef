"""Samples of a TIFF strip or tile: their type, how they are packed, how they are predicted.

Spec: TIFF 6.0 sections 8 (BitsPerSample, SampleFormat), 14 (Predictor 2); Adobe Photoshop TIFF
      Technical Note 3 (Predictor 3, 24-bit floats); DNG 1.4 (predictors over two and four pixels).

Arrays here are (rows, columns, bands), the order in which a strip or tile stores them.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.codecs.tiff.byte_planes import joined
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, UnsupportedError

type Array = npt.NDArray[Any]
type Bits = int | tuple[int, ...]

UINT, INT, FLOAT, VOID, COMPLEX_INT, COMPLEX_FLOAT = 1, 2, 3, 4, 5, 6
COMPLEX = (COMPLEX_INT, COMPLEX_FLOAT)
RGB565 = (5, 6, 5)
WHOLE_BITS = (8, 16, 32, 64, 128)

DISTANCES = {2: 1, 34892: 2, 34893: 4}
"""Horizontal differencing: how many pixels back."""
FLOAT_DISTANCES = {3: 1, 34894: 2, 34895: 4}
"""Floating point differencing: how many pixels back."""

FLOATS = {16: "float16", 24: "float32", 32: "float32", 64: "float64"}
COMPLEX_INTS = {16: "complex64", 32: "complex64", 64: "complex128"}
COMPLEX_WORDS: dict[Bits, int] = {16: 2, 32: 4, 64: 8}
"""Bytes of complex samples that are differenced, by their bits."""
COMPLEX_FLOATS = {32: "complex64", 64: "complex64", 128: "complex128"}


def sample_dtype(sample_format: int, bits: Bits) -> np.dtype[Any]:
    """Give the type that samples are decoded to: the next one that numpy has."""
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
            f"samples of {bits} bits in SampleFormat {sample_format} are not opened; opened: "
            "integers of 1 to 64 bits, floats of 16, 24, 32, 64, complex of 16 to 128"
        )
    return np.dtype(name)


def row_bytes(columns: int, bands: int, bits: Bits) -> int:
    """How many bytes one row takes: rows begin at a byte (TIFF 6.0 section 3)."""
    pixel = sum(bits) if isinstance(bits, tuple) else bits * bands
    return -(-columns * pixel // 8)


def is_whole(sample_format: int, bits: Bits) -> bool:
    """Whether the stored samples are, but for their byte order, what numpy holds."""
    if sample_format == COMPLEX_INT or (sample_format == COMPLEX_FLOAT and bits == 32):
        return False
    return bits in WHOLE_BITS


def unpack(
    data: npt.NDArray[np.uint8],
    *,
    rows: int,
    columns: int,
    bands: int,
    sample_format: int,
    bits: Bits,
    is_big: bool,
) -> Array:
    """Turn stored bytes into samples of `sample_dtype`; a view where they are whole already."""
    shape = (rows, columns, bands)
    order: Literal[">", "<"] = ">" if is_big else "<"
    if isinstance(bits, tuple):
        return _unpack_565(data.view(f"{order}u2")).reshape(shape)
    if is_whole(sample_format, bits):
        stored = sample_dtype(sample_format, bits).newbyteorder(order)
        return data.view(stored).reshape(shape)
    if sample_format in (COMPLEX_INT, COMPLEX_FLOAT):
        kind = "i" if sample_format == COMPLEX_INT else "f"
        target = sample_dtype(sample_format, bits)
        half = np.dtype(f"f{target.itemsize // 2}")
        return data.view(f"{order}{kind}{bits // 16}").astype(half).view(target).reshape(shape)
    if sample_format == FLOAT:
        return imagecodecs.float24_decode(data, byteorder=order).reshape(shape)  # type: ignore[no-any-return]
    if bits == 24 and is_big:
        data = swapped_triples(data)
    return _sign(_unpack_bits(data, columns * bands, bits), sample_format, bits).reshape(shape)


def swapped_triples(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Turn integers of three bytes round, as libtiff does with those of a big-endian file.

    In little-endian files all readers take the first byte for the most significant one; so what
    libtiff and GDAL write as big-endian has it last (libtiff, `_TIFFSwab24BitData`; GDAL #2361).
    """
    return np.ascontiguousarray(data.reshape(-1, 3)[:, ::-1]).reshape(-1)


def _unpack_bits(data: npt.NDArray[np.uint8], run: int, bits: int) -> Array:
    dtype = sample_dtype(UINT, bits)
    if bits <= 32:
        return imagecodecs.packints_decode(data, dtype, bits, runlen=run)  # type: ignore[no-any-return]
    stride = -(-run * bits // 8)
    flags = np.unpackbits(data.reshape(-1, stride), axis=1)[:, : run * bits]
    values = np.zeros((len(flags), run), np.uint64)
    for plane in np.moveaxis(flags.reshape(len(flags), run, bits), -1, 0):
        values = (values << np.uint64(1)) | plane
    return values


def _sign(values: Array, sample_format: int, bits: int) -> Array:
    """Spread the sign of packed integers over the wider type."""
    if sample_format != INT or values.dtype == np.bool_:
        return values
    shift = values.dtype.itemsize * 8 - bits
    signed = values.view(np.dtype(f"i{values.dtype.itemsize}"))
    return (signed << shift) >> shift


def _unpack_565(words: Array) -> Array:
    """Scale 5, 6 and 5 bits to 8, as tifffile does."""
    out = np.empty((words.size, 3), np.uint8)
    for i, (shift, bits) in enumerate(((11, 5), (5, 6), (0, 5))):
        value = (words.astype(np.uint32) >> shift) & ((1 << bits) - 1)
        total = (8 // bits + 1) * bits
        out[:, i] = value * ((2**total - 1) // (2**bits - 1)) >> (total - 8)
    return out


def pack(array: Array, *, sample_format: int, bits: Bits, is_big: bool) -> npt.NDArray[np.uint8]:
    """Turn (rows, columns, bands) into stored bytes."""
    order: Literal[">", "<"] = ">" if is_big else "<"
    if isinstance(bits, int) and is_whole(sample_format, bits):
        stored = np.ascontiguousarray(array, array.dtype.newbyteorder(order))
        return stored.reshape(-1).view(np.uint8)
    if isinstance(bits, int) and sample_format in (UINT, VOID) and bits <= 32:
        if array.dtype != np.bool_ and bits < array.dtype.itemsize * 8 and (array >> bits).any():
            raise ChunkEncodeError(f"tiff-tile: values do not fit {bits} bits")
        run = math.prod(array.shape[-2:])
        plain = np.ascontiguousarray(array).reshape(-1)
        if bits == 1:
            packed = np.packbits(plain.astype(bool).reshape(-1, run), axis=1)
            return packed.reshape(-1)
        packed = np.frombuffer(imagecodecs.packints_encode(plain, bits, runlen=run), np.uint8)
        return swapped_triples(packed) if bits == 24 and is_big else packed
    raise UnsupportedError(
        f"tiff-tile: samples of {bits} bits in SampleFormat {sample_format} are not written"
    )


def unpredict(array: Array, *, predictor: int, bits: int, sample_format: int) -> Array:
    """Undo horizontal differencing, in place where `array` is writable and in native order."""
    distance = DISTANCES[predictor]
    if not array.dtype.isnative:
        array = array.byteswap(inplace=array.flags.writeable).view(array.dtype.newbyteorder("="))
    if not array.flags.writeable:
        array = array.copy()
    # differences are taken of the bits as integers, whatever they mean (libtiff, tif_predict.c)
    words = array if array.dtype.kind in "iu" else array.view(f"u{array.dtype.itemsize}")
    imagecodecs.delta_decode(words, axis=-2, dist=distance, out=words)
    if bits not in WHOLE_BITS:
        # packed samples wrap at their own width
        if sample_format == INT:
            return _sign(words.view(f"u{words.itemsize}"), sample_format, bits)
        words &= words.dtype.type((1 << bits) - 1)
    return array


def unpredict_complex(
    data: npt.NDArray[np.uint8],
    *,
    shape: tuple[int, int, int],
    bits: Bits,
    predictor: int,
    is_big: bool,
) -> npt.NDArray[np.uint8]:
    """Undo the differencing of complex samples, each of them one word; in native order then.

    (libtiff, tif_predict.c: so the parts of a sample change places in a big-endian file.)
    """
    if bits not in COMPLEX_WORDS:
        raise UnsupportedError(
            f"tiff-tile: predictor 2 of {bits}-bit complex samples is not opened"
        )
    words = data.view(f"{'>' if is_big else '<'}u{COMPLEX_WORDS[bits]}").reshape(shape)
    summed = unpredict(words, predictor=predictor, bits=COMPLEX_WORDS[bits] * 8, sample_format=UINT)
    return summed.reshape(-1).view(np.uint8)


def unpredict_float(
    data: npt.NDArray[np.uint8],
    *,
    rows: int,
    columns: int,
    bands: int,
    bits: int,
    predictor: int,
    out: npt.NDArray[np.uint8] | None = None,
) -> Array:
    """Undo floating point differencing: bytes differenced, most significant ones first in a row."""
    shape, distance = (rows, columns, bands), FLOAT_DISTANCES[predictor]
    if bits == 24:
        planes = data.reshape(rows, -1, bands * distance)
        if planes.shape[1] * bands * distance != columns * bands * 3:
            raise ChunkDecodeError("tiff-tile: rows of 24-bit floats do not divide evenly")
        summed = np.add.accumulate(planes, axis=1, dtype=np.uint8)
        triples = np.moveaxis(summed.reshape(rows, 3, columns * bands), 1, 2)
        packed = np.ascontiguousarray(triples).reshape(-1)
        return imagecodecs.float24_decode(packed, byteorder=">").reshape(shape)  # type: ignore[no-any-return]
    # summed and put together here: imagecodecs.floatpred_decode takes five times as long
    size, run = bits // 8, columns * bands
    if distance > columns:
        raise ChunkDecodeError(f"tiff-tile: predictor {predictor} over rows of {columns} pixels")
    rows_of_bytes = data.reshape(rows, size * columns, bands)
    if not data.flags.writeable:
        rows_of_bytes = rows_of_bytes.copy()
    imagecodecs.delta_decode(rows_of_bytes, axis=-2, dist=distance, out=rows_of_bytes)
    is_there = out is not None and out.nbytes >= data.nbytes
    target = out[: data.nbytes] if is_there and out is not None else np.empty(data.nbytes, np.uint8)
    joined(rows_of_bytes.reshape(rows, size, run), target)
    return target.view(FLOATS[bits]).reshape(shape)


def predict(array: Array, predictor: int) -> Array:
    """Difference samples along the row before they are compressed."""
    if predictor in DISTANCES:
        words = np.ascontiguousarray(array)
        if words.dtype.kind not in "iu":
            words = words.view(f"u{words.dtype.itemsize}")
        coded = imagecodecs.delta_encode(words, axis=-2, dist=DISTANCES[predictor])
        return coded.view(array.dtype)  # type: ignore[no-any-return]
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return imagecodecs.floatpred_encode(  # type: ignore[no-any-return]
        native, axis=-2, dist=FLOAT_DISTANCES[predictor]
    )


def deinterleave(array: Array, out: Array) -> None:
    """Put (depth, rows, columns, bands) into the low corner of (depth, bands, rows, columns)."""
    depth, rows, columns, _ = array.shape
    out[:depth, :, :rows, :columns] = np.moveaxis(array, -1, 1)


def as_bits(value: int | Sequence[int]) -> Bits:
    """Read BitsPerSample: one number where all samples have the same."""
    if isinstance(value, int):
        return value
    unique = set(value)
    return int(value[0]) if len(unique) == 1 else tuple(int(v) for v in value)
