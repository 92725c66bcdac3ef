"""`n5_default`, array to bytes: one N5 block, a header followed by samples.

Spec:     N5 file-system specification, mode 0; the codec of zarr-n5. The inner codecs are
          `transpose` with reversed axes, big-endian `bytes`, and optionally a compressor.
JSON:     {"name": "n5_default", "configuration": {"codecs": [
          {"name": "transpose", "configuration": {"order": [1, 0]}},
          {"name": "bytes", "configuration": {"endian": "big"}},
          {"name": "zstd", "configuration": {"level": 3, "checksum": false}}]}}
Lossless: yes. At the end of the array a block may be cropped or padded, as its header says. A
          block of zero bytes reads as the fill value.
"""

from collections.abc import Buffer as BytesLike
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.base import Bytes1D, ChunkSpec
from anychunk.codecs.chunk_layout import ChunkLayout
from anychunk.codecs.n5_block import BlockHeader, check_samples, read_header, write_header
from anychunk.codecs.wrapping import WrappingCodec
from anychunk.errors import CodecConfigError
from anychunk.model.grid import Shape

DATA_TYPES = tuple(
    [f"{kind}{bits}" for bits in (8, 16, 32, 64) for kind in ("uint", "int")]
    + ["float32", "float64"]
)
"""Data types of N5."""


def fit(array: npt.NDArray[Any], shape: Shape, fill: Any) -> npt.NDArray[Any]:
    """Return `array` cropped, or padded with `fill`, to `shape` at the high end of each axis."""
    inner = tuple(slice(min(n, m)) for n, m in zip(array.shape, shape, strict=True))
    cropped = array[inner]
    if cropped.shape == shape:
        return cropped
    out = np.full(shape, fill, array.dtype)
    out[inner] = cropped
    return out


@dataclass(frozen=True, kw_only=True)
class N5Default(WrappingCodec):
    """Stores a chunk as an N5 block.

    An array smaller than the chunk is encoded to a cropped block, as N5 in Java writes at edges.
    zarr itself always passes whole chunks, which become padded blocks.
    """

    name: ClassVar[str] = "n5_default"
    is_fixed_size = False

    def evolved(self, spec: ChunkSpec) -> Self:
        name = spec.dtype.name
        if name not in DATA_TYPES:
            raise CodecConfigError(
                f"{self.name}: N5 has no data type {name}; expected one of {' '.join(DATA_TYPES)}"
            )
        return self

    def largest(self, spec: ChunkSpec) -> Shape:
        """Return the largest shape that a block may have."""
        return spec.shape

    def read_header(self, data: Bytes1D) -> BlockHeader:
        """Return the header of a block, its sizes in the axis order of the array."""
        return read_header(data)

    def encode_block(self, array: npt.NDArray[Any], spec: ChunkSpec) -> tuple[bytes, Bytes1D]:
        """Return the header and the payload of a block."""
        return write_header(array.shape), self.encode_inner(array, spec)

    def encode_chunk(self, array: npt.NDArray[Any], spec: ChunkSpec) -> BytesLike:
        header, payload = self.encode_block(array, spec)
        return np.concatenate([np.frombuffer(header, np.uint8), payload])

    def dimension(self, axis: int, axes: int) -> int:
        """Return which dimension of N5 an axis of the array is."""
        return axis

    def chunk_layout(self, spec: ChunkSpec) -> ChunkLayout | None:
        """Return what the compiled loop needs to decode many blocks at once; None if it cannot."""
        from anychunk.codecs.chain import Decoder

        found = Decoder(self.inner, replace(spec, shape=self.largest(spec))).layout
        count = len(spec.shape)
        if found is None or found.axes[-1] is not None:
            return None
        stored = [axis for axis in found.axes if axis is not None]
        if [self.dimension(axis, count) for axis in stored] != list(range(count))[::-1]:
            return None
        return replace(found, head=count)

    def decode_chunk(
        self, data: Bytes1D, spec: ChunkSpec, scratch: Bytes1D | None = None
    ) -> npt.NDArray[Any]:
        if not len(data):
            return np.full(spec.shape, spec.fill_value, spec.dtype)
        header = self.read_header(data)
        shape = check_samples(header, self.largest(spec))
        payload = data[header.nbytes :]
        decoded = max(header.elements * spec.dtype.itemsize, spec.nbytes)
        limits.check_chunk(decoded, where="n5 block", stored=len(data))
        array = self.decode_inner(payload, shape, spec, scratch)
        return array if shape == spec.shape else fit(array, spec.shape, spec.fill_value)
