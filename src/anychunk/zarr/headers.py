"""File headers for `pad`, which turn each chunk into a file of another format.

A `Header` is a template: bytes of a constant length, and the fields that differ from chunk to
chunk. `pad` returns the codec that writes it, and `attributes` declares it in the array, so that
`writable`, and every other writer that knows the attribute, can write to the array again:

    header = tiff((256, 256), "uint16", compression="zstd")
    array = zarr.create_array(..., compressors=[ZstdCodec(), pad(header)],
                              attributes=header.attributes())
    array = writable(zarr.open_array(...))
"""

import itertools
import math
import struct
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import zarr
from numpy.lib import format as npy_format

from anychunk import codecs
from anychunk.codecs.header_template import KEY, Field, Header
from anychunk.codecs.offset import Offset
from anychunk.codecs.pad import Pad
from anychunk.errors import ChunkDecodeError, CodecConfigError, UnsupportedError
from anychunk.model.grid import Shape
from anychunk.options import checked
from anychunk.zarr.core import Buffer, default_buffer_prototype, sync

__all__ = ["Field", "Header", "declared", "n5", "npy", "pad", "rebuild", "tiff", "writable"]

type Interleave = Literal["pixel", "band"]

SHORT, LONG = 3, 4
MIN_IS_BLACK, RGB = 1, 2
UNASSOCIATED_ALPHA = 2
COMPRESSIONS = {"none": 1, "deflate": 8, "zstd": 50000}
SAMPLE_FORMATS = {"u": 1, "b": 1, "i": 2, "f": 3, "c": 6}


def _layout(shape: Shape, interleave: Interleave) -> tuple[int, int, int]:
    """Return (height, width, samples) of a 2-D or 3-D chunk."""
    match shape, interleave:
        case (height, width), _:
            return height, width, 1
        case (height, width, samples), "pixel":
            return height, width, samples
        case (samples, height, width), "band":
            return height, width, samples
    raise CodecConfigError(f"tiff header: shape {shape}, expected 2 or 3 dimensions")


@checked()
def tiff(
    shape: Shape,
    dtype: npt.DTypeLike,
    *,
    compression: Literal["none", "deflate", "zstd"] = "none",
    interleave: Interleave = "pixel",
) -> Header:
    """Return a header that turns chunks into little-endian TIFF files.

    The chunk must be encoded by little-endian `bytes`, followed by the compressor.

    Parameters:
        shape: shape of the chunk: (y, x), or (y, x, band) with "pixel", or (band, y, x) with
            "band" interleaving.
        dtype: data type of the array.
        compression: "none", "deflate" (a zlib stream: `numcodecs.zlib`) or "zstd".
        interleave: where the band axis is. "pixel" makes files of one strip, "band" of one strip
            per band.

    Raises:
        CodecConfigError: TIFF cannot hold such a chunk.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in SAMPLE_FORMATS:
        raise CodecConfigError(f"tiff header: TIFF has no sample type for {dtype}")
    height, width, samples = _layout(shape, interleave)
    is_planar = interleave == "band" and samples > 1
    if is_planar and compression != "none":
        raise CodecConfigError(
            "tiff header: a compressed chunk is one stream, but TIFF needs one per band; "
            'use interleave="pixel" with the band last, or compression="none"'
        )
    strips = samples if is_planar else 1
    is_color = samples in (3, 4) and dtype.kind == "u"
    entries = [
        (256, LONG, [width]),
        (257, LONG, [height]),
        (258, SHORT, [dtype.itemsize * 8] * samples),
        (259, SHORT, [COMPRESSIONS[compression]]),
        (262, SHORT, [RGB if is_color else MIN_IS_BLACK]),
        (273, LONG, [0] * strips),
        (277, SHORT, [samples]),
        (278, LONG, [height]),
        (279, LONG, [0] * strips),
        (284, SHORT, [2 if is_planar else 1]),
        (339, SHORT, [SAMPLE_FORMATS[dtype.kind]] * samples),
    ]
    if extra := samples - (3 if is_color else 1):
        entries.insert(-1, (338, SHORT, [UNASSOCIATED_ALPHA if is_color else 0] * extra))
    # the values do not change the length of the IFD, so it is laid out once with zeros to find
    # where the strips begin, and again with their offsets and byte counts
    strip_bytes = height * width * dtype.itemsize * (samples // strips)
    nbytes = len(_ifd(entries))
    offsets = [nbytes + i * strip_bytes for i in range(strips)]
    counts = [strip_bytes] * strips
    entries = [
        (tag, kind, {273: offsets, 279: counts}.get(tag, values)) for tag, kind, values in entries
    ]
    whole = _ifd(entries)
    if compression == "none":
        return Header(whole, payload=strip_bytes * strips)
    # one strip: its byte count is stored in the entry itself, and is all that varies
    place = 8 + 2 + 12 * [tag for tag, _, _ in entries].index(279) + 8
    return Header(whole, (Field(value="nbytes", at=place),))


def _ifd(entries: list[tuple[int, int, list[int]]]) -> bytes:
    """Return a classic little-endian TIFF up to the first strip.

    TIFF 6.0 section 2: entries of 12 bytes; values longer than 4 bytes are stored after the table.
    """
    tail_at = 8 + 2 + 12 * len(entries) + 4
    table, tail = b"", b""
    for tag, kind, values in entries:
        data = struct.pack(f"<{len(values)}{'H' if kind == SHORT else 'I'}", *values)
        if len(data) > 4:
            value = struct.pack("<I", tail_at + len(tail))
            tail += data + bytes(-len(data) % 4)
        else:
            value = data.ljust(4, b"\0")
        table += struct.pack("<HHI", tag, kind, len(values)) + value
    header = b"II*\0" + struct.pack("<IH", 8, len(entries)) + table + bytes(4) + tail
    return header + bytes(-len(header) % 16)


def n5(shape: Shape) -> Header:
    """Return the header of an N5 block in default mode; the payload must be big-endian.

    Parameters:
        shape: The shape of the block, in N5 order, fastest axis first. For an array in C order this
            is the shape of the chunk reversed.
    """
    return Header(struct.pack(f">HH{len(shape)}I", 0, len(shape), *shape))


def npy(shape: Shape, dtype: npt.DTypeLike) -> Header:
    """Return a header that turns uncompressed chunks into NPY files, with the order of `dtype`."""
    dtype = np.dtype(dtype)
    description = {
        "descr": npy_format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": tuple(int(n) for n in shape),
    }
    return Header(_npy_header(description), payload=math.prod(shape) * dtype.itemsize)


def _npy_header(description: dict[str, Any]) -> bytes:
    from io import BytesIO

    buffer = BytesIO()
    npy_format.write_array_header_1_0(buffer, description)
    return buffer.getvalue()


# -- arrays with a header


def pad(header: Header) -> Pad:
    """Return the codec that writes a header; it is the last one of the chain."""
    made: Pad = codecs.Pad(location=header.location, nbytes=header.nbytes, padding_func=header)
    return made


def declared(array: "zarr.Array[Any]") -> Header:
    """Return the header that the attributes of an array declare, checked against its codecs.

    Raises:
        CodecConfigError: the attributes declare none, or another one than the last codec writes.
    """
    return _declared(array)[0]


def _declared(array: "zarr.Array[Any]") -> tuple[Header, Pad | Offset]:
    attributes = array.attrs.asdict()
    if KEY not in attributes:
        raise CodecConfigError(f"{array.store_path}: the attributes declare no header ({KEY})")
    header = Header.from_json(attributes[KEY])
    codec = _last_codec(array)
    location = codec.location if isinstance(codec, Pad) else "start"
    length = codec.nbytes if isinstance(codec, Pad) else codec.offset
    if (location, length) != (header.location, header.nbytes):
        raise CodecConfigError(
            f"{array.store_path}: the attributes declare {header.nbytes} bytes at the "
            f"{header.location}, the last codec {length} at the {location}"
        )
    return header, codec


def _last_codec(array: "zarr.Array[Any]") -> Pad | Offset:
    found = array.metadata.codecs[-1] if array.metadata.zarr_format == 3 else None
    if isinstance(found, Pad | Offset):
        return found
    raise UnsupportedError(
        f"{array.store_path}: the last codec is {found}, expected pad or offset; headers inside "
        "shards, and of Zarr v2, are not supported"
    )


def writable(array: "zarr.Array[Any]") -> "zarr.Array[Any]":
    """Return an array whose chunks are written with the header that its attributes declare."""
    header, codec = _declared(array)
    made: Any = (
        replace(codec, padding=None, padding_func=header)
        if isinstance(codec, Pad)
        else replace(codec, prefix=None, prefix_func=header)
    )
    metadata = array.metadata
    assert metadata.zarr_format == 3  # `_declared` has checked it
    changed = replace(metadata, codecs=(*metadata.codecs[:-1], made))
    inner = zarr.AsyncArray(changed, array.store_path, array.config)
    return zarr.Array(inner)


def rebuild(array: "zarr.Array[Any]") -> int:
    """Write the declared header anew in all stored chunks; return how many have changed.

    For arrays that were written by software that does not know the attribute, and for headers with
    the coordinates of the chunk, which codecs are not told.
    """
    header, _ = _declared(array)
    return sync(_rebuild(array, header))


async def _rebuild(array: "zarr.Array[Any]", header: Header) -> int:
    changed = 0
    for place in itertools.product(*map(range, array.cdata_shape)):
        path = array.store_path / array.metadata.encode_chunk_key(place)
        found = await path.get(default_buffer_prototype())
        if found is None:
            continue
        data = found.to_bytes()
        size = len(data) - header.nbytes
        if size < 0:
            raise ChunkDecodeError(
                f"{path}: {len(data)} bytes, expected at least {header.nbytes} of the header"
            )
        made = header.fill(size, shape=array.chunks, coordinates=place)
        is_start = header.location == "start"
        whole = made + data[header.nbytes :] if is_start else data[:size] + made
        if whole != data:
            await path.set(_buffer(whole))
            changed += 1
    return changed


def _buffer(data: bytes) -> Buffer:
    return default_buffer_prototype().buffer.from_bytes(data)
