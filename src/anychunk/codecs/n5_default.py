"""`n5_default`, array to bytes: one N5 block, its header and its samples.

Spec:     N5 file-system specification, mode 0; the codec of zarr-n5. The inner codecs are
          `transpose` to reversed axes, `bytes` big-endian, and a compressor where there is one.
JSON:     {"name": "n5_default", "configuration": {"codecs": [
          {"name": "transpose", "configuration": {"order": [1, 0]}},
          {"name": "bytes", "configuration": {"endian": "big"}},
          {"name": "zstd", "configuration": {"level": 3, "checksum": false}}]}}
Lossless: yes. A block may be cropped where the array ends, or padded: its header says which. A
          block of no bytes reads as fill.
"""

from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.base import Bytes1D, ChunkSpec
from anychunk.codecs.chain import Wrapping
from anychunk.codecs.n5_block import check_samples, read_header, write_header
from anychunk.codecs.zarr_core import ZDType
from anychunk.errors import CodecConfigError

type Shape = tuple[int, ...]

DATA_TYPES = tuple(
    [f"{kind}{bits}" for bits in (8, 16, 32, 64) for kind in ("uint", "int")]
    + ["float32", "float64"]
)
"""The types of samples that N5 has."""


def fit(array: npt.NDArray[Any], shape: Shape, fill: Any) -> npt.NDArray[Any]:
    """Crop or pad an array at the high ends of its axes."""
    inner = tuple(slice(min(n, m)) for n, m in zip(array.shape, shape, strict=True))
    cropped = array[inner]
    if cropped.shape == shape:
        return cropped
    out = np.full(shape, fill, array.dtype)
    out[inner] = cropped
    return out


@dataclass(frozen=True, kw_only=True)
class N5Default(Wrapping):
    """Stores a chunk as an N5 block.

    Encoding an array smaller than the chunk gives a cropped block, as N5 in Java writes at edges;
    zarr itself always hands over whole chunks, which become padded blocks.
    """

    name: ClassVar[str] = "n5_default"
    is_fixed_size = False

    def validate(self, *, shape: Shape, dtype: ZDType[Any, Any], chunk_grid: Any) -> None:
        name = dtype.to_native_dtype().name
        if name not in DATA_TYPES:
            raise CodecConfigError(
                f"{self.name}: N5 has no data type {name}; it has {' '.join(DATA_TYPES)}"
            )

    def largest(self, spec: ChunkSpec) -> Shape:
        """Give the shape that no block may pass."""
        return spec.shape

    def encode_block(self, array: npt.NDArray[Any], spec: ChunkSpec) -> tuple[bytes, Bytes1D]:
        """Give the header and the payload of a block."""
        return write_header(array.shape), self.encode_inner(array, spec)

    def encode_chunk(self, array: npt.NDArray[Any], spec: ChunkSpec) -> BytesLike:
        header, payload = self.encode_block(array, spec)
        return np.concatenate([np.frombuffer(header, np.uint8), payload])

    def decode_chunk(
        self, data: Bytes1D, spec: ChunkSpec, scratch: Bytes1D | None = None
    ) -> npt.NDArray[Any]:
        if not len(data):
            return np.full(spec.shape, spec.fill_value, spec.dtype)
        header = read_header(data)
        shape = check_samples(header, self.largest(spec))
        payload = data[header.nbytes :]
        decoded = max(header.elements * spec.dtype.itemsize, spec.nbytes)
        limits.check_chunk(decoded, where="n5 block", stored=len(data))
        array = self.decode_inner(payload, shape, spec, scratch)
        return array if shape == spec.shape else fit(array, spec.shape, spec.fill_value)
