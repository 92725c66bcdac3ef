"""File headers for `offset` and `pad`, which turn each chunk into a file of another format.

A `Header` is called with the encoded chunk and returns the header, of a length known in advance:

    header = tiff((256, 256), "uint16", compression="zstd")
    Offset(offset=header.nbytes, prefix_func=header)
"""

import math
import struct
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from anychunk.errors import ChunkEncodeError, CodecConfigError

type Shape = tuple[int, ...]
type Interleave = Literal["pixel", "band"]

SHORT, LONG = 3, 4
MIN_IS_BLACK, RGB = 1, 2
UNASSOCIATED_ALPHA = 2
COMPRESSIONS = {"none": 1, "deflate": 8, "zstd": 50000}
SAMPLE_FORMATS = {"u": 1, "b": 1, "i": 2, "f": 3, "c": 6}


@dataclass(frozen=True)
class Header:
    """A header of constant length, in which only the size of the chunk may vary."""

    start: bytes
    """Everything up to the byte count of the chunk, or the whole header if it has none."""
    end: bytes | None = None
    """Everything after the byte count of the chunk; None if the header has no such count."""
    payload: int | None = None
    """Length that every encoded chunk must have; None if it may vary."""

    @property
    def nbytes(self) -> int:
        """Length of the header."""
        return len(self.start) + (0 if self.end is None else 4 + len(self.end))

    def __call__(self, chunk: bytes) -> bytes:
        """Return the header for an encoded chunk."""
        if self.payload not in (None, len(chunk)):
            raise ChunkEncodeError(
                f"header: the encoded chunk has {len(chunk)} bytes, expected {self.payload}"
            )
        if self.end is None:
            return self.start
        return self.start + struct.pack("<I", len(chunk)) + self.end


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
    return Header(whole[:place], whole[place + 4 :])


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
