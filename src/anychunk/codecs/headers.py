"""Ready-made headers that turn a chunk into a file of another format, for `offset` and `pad`.

Each is a function of the encoded chunk with a length known in advance:

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
    """Makes the header of one chunk; `nbytes` is how long it always is."""

    start: bytes
    end: bytes | None = None
    """What follows the byte count of the chunk; None where the header holds no such count."""
    payload: int | None = None
    """The length that every encoded chunk must have, where it is known."""

    @property
    def nbytes(self) -> int:
        return len(self.start) + (0 if self.end is None else 4 + len(self.end))

    def __call__(self, chunk: bytes) -> bytes:
        if self.payload not in (None, len(chunk)):
            raise ChunkEncodeError(
                f"header: the chunk has {len(chunk)} bytes, the header is made for {self.payload}"
            )
        if self.end is None:
            return self.start
        return self.start + struct.pack("<I", len(chunk)) + self.end


def _layout(shape: Shape, interleave: Interleave) -> tuple[int, int, int]:
    """Give (height, width, samples) of a 2-D or 3-D chunk."""
    match shape, interleave:
        case (height, width), _:
            return height, width, 1
        case (height, width, samples), "pixel":
            return height, width, samples
        case (samples, height, width), "band":
            return height, width, samples
    raise CodecConfigError(f"tiff header: shape {shape} is neither 2-D nor 3-D")


def tiff(
    shape: Shape,
    dtype: npt.DTypeLike,
    *,
    compression: Literal["none", "deflate", "zstd"] = "none",
    interleave: Interleave = "pixel",
) -> Header:
    """Make chunks that are little-endian TIFF files of one strip, or of one strip a band.

    `shape` is the chunk's: (y, x), or (y, x, band) as "pixel", or (band, y, x) as "band". The chunk
    must be encoded by `bytes` little, and for "deflate" (a zlib stream: `numcodecs.zlib`) or "zstd"
    by that compressor.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in SAMPLE_FORMATS:
        raise CodecConfigError(f"tiff header: {dtype} is no sample type of TIFF")
    height, width, samples = _layout(shape, interleave)
    is_planar = interleave == "band" and samples > 1
    if is_planar and compression != "none":
        raise CodecConfigError(
            "tiff header: a compressed chunk is one stream, but TIFF wants one a band; "
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
    # one strip: its byte count stands in the entry itself, and is the only thing that varies
    place = 8 + 2 + 12 * [tag for tag, _, _ in entries].index(279) + 8
    return Header(whole[:place], whole[place + 4 :])


def _ifd(entries: list[tuple[int, int, list[int]]]) -> bytes:
    """Write a classic little-endian TIFF up to where its first strip begins."""
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
    """Make the header of an N5 block in default mode.

    `shape` is in N5 order, fastest axis first: the chunk's, reversed, where the array is stored in
    C order. The payload is big-endian.
    """
    return Header(struct.pack(f">HH{len(shape)}I", 0, len(shape), *shape))


def npy(shape: Shape, dtype: npt.DTypeLike) -> Header:
    """Make uncompressed chunks that `numpy.load` reads, in the byte order of `dtype`."""
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
