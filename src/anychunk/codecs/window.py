"""`anychunk.window`, array to bytes: the chunk is a window of a stored array.

Spec:     ours. The stored bytes begin with three little-endian uint32 vectors, one number per axis:
          the shape of the stored array, the start of the window in it, and the shape of the window.
          The stored array follows, encoded by the inner codecs. A window smaller than the chunk is
          padded with the fill value at the high end of each axis.
JSON:     {"name": "anychunk.window", "configuration": {"codecs": [{"name": "bytes"}]}}
Lossless: yes; encoding stores the whole chunk.

For files that store chunks cropped at the edge of the array, or with a halo around them: the index
puts the header in front of each chunk, so the file itself stays unchanged.
"""

import math
import struct
from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.base import Bytes1D, ChunkSpec
from anychunk.codecs.wrapping import WrappingCodec
from anychunk.errors import ChunkDecodeError
from anychunk.model.grid import Shape


def front(stored: Shape, start: Shape | None = None, shape: Shape | None = None) -> bytes:
    """Return the header; by default the window is the whole stored array."""
    start = (0,) * len(stored) if start is None else start
    return struct.pack(f"<{3 * len(stored)}I", *stored, *start, *(shape or stored))


def read_front(data: Bytes1D, chunk: Shape) -> tuple[Shape, Shape, Shape]:
    """Return the stored shape, the start and the shape of the window, checked against the chunk."""
    ndim = len(chunk)
    if len(data) < 12 * ndim:
        raise ChunkDecodeError(
            f"anychunk.window: {len(data)} bytes, expected at least a header of {12 * ndim}"
        )
    numbers = struct.unpack(f"<{3 * ndim}I", data[: 12 * ndim])
    stored, start, shape = numbers[:ndim], numbers[ndim : 2 * ndim], numbers[2 * ndim :]
    for i in range(ndim):
        if start[i] + shape[i] > stored[i] or shape[i] > chunk[i]:
            raise ChunkDecodeError(
                f"anychunk.window: a window of shape {shape} at {start} in a stored array of "
                f"shape {stored} does not fit a chunk of shape {chunk}"
            )
    return stored, start, shape


def pad(array: npt.NDArray[Any], shape: Shape, fill: Any) -> npt.NDArray[Any]:
    """Return `array` extended with `fill` to `shape`, at the high end of each axis."""
    out = np.full(shape, fill, array.dtype)
    out[tuple(slice(n) for n in array.shape)] = array
    return out


@dataclass(frozen=True, kw_only=True)
class Window(WrappingCodec):
    """Stores a chunk after a header that says which part of the stored array it is."""

    name: ClassVar[str] = "anychunk.window"

    def encode_chunk(self, array: npt.NDArray[Any], spec: ChunkSpec) -> BytesLike:
        return np.concatenate(
            [np.frombuffer(front(array.shape), np.uint8), self.encode_inner(array, spec)]
        )

    def decode_chunk(
        self, data: Bytes1D, spec: ChunkSpec, scratch: Bytes1D | None = None
    ) -> npt.NDArray[Any]:
        stored, start, shape = read_front(data, spec.shape)
        payload = data[12 * len(stored) :]
        decoded = max(math.prod(stored) * spec.dtype.itemsize, spec.nbytes)
        limits.check_chunk(decoded, where=self.name, stored=len(payload))
        array = self.decode_inner(payload, stored, spec, scratch)
        window = array[tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))]
        return window if shape == spec.shape else pad(window, spec.shape, spec.fill_value)
