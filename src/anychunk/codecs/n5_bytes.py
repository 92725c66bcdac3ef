"""`anychunk.n5_bytes`, array to bytes: the payload of an N5 block of any mode, as one element.

Spec:     N5 file-system specification. The chunk has one element: the decompressed bytes of the
          block without its header. For varlength and object blocks, whose content only the program
          that wrote them can interpret. The inner codecs are `bytes` and optionally a compressor;
          `itemsize` is the size of N5's data type, in which varlength blocks count their elements.
JSON:     {"name": "anychunk.n5_bytes", "configuration": {"codecs": [{"name": "bytes"}]}}
Lossless: yes; encoding writes an object block.
"""

from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.base import Bytes1D, ChunkSpec
from anychunk.codecs.n5_block import OBJECT, BlockHeader, read_header, write_header
from anychunk.codecs.wrapping import WrappingCodec
from anychunk.errors import ChunkEncodeError, CodecConfigError

BYTE = np.dtype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class N5Bytes(WrappingCodec):
    """Stores one element of bytes as an N5 object block."""

    name: ClassVar[str] = "anychunk.n5_bytes"
    is_fixed_size = False
    itemsize: int = 1
    """Size of an element of the N5 dataset."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.itemsize) is not int or self.itemsize not in (1, 2, 4, 8):
            raise CodecConfigError(
                f"{self.name}: itemsize {self.itemsize!r}, expected 1, 2, 4 or 8"
            )

    def pack(self, payload: bytes) -> Bytes1D:
        """Encode bytes with the inner codecs."""
        data = np.frombuffer(payload, np.uint8)
        return self.encode_inner(data, ChunkSpec(data.shape, BYTE))

    def unpack(self, data: Bytes1D, header: BlockHeader) -> bytes:
        """Return the payload of a block whose header has been parsed."""
        size = header.elements * (1 if header.mode == OBJECT else self.itemsize)
        limits.check_chunk(size, where="n5 block", stored=len(data))
        spec = ChunkSpec((size,), BYTE)
        return self.decode_inner(data[header.nbytes :], spec.shape, spec).tobytes()

    def encode_chunk(self, array: npt.NDArray[Any], spec: ChunkSpec) -> BytesLike:
        if array.size != 1:
            raise ChunkEncodeError(f"{self.name}: the chunk has {array.size} elements, expected 1")
        payload = bytes(array.reshape(-1)[0])
        header = write_header((), mode=OBJECT, elements=len(payload))
        return np.concatenate([np.frombuffer(header, np.uint8), self.pack(payload)])

    def decode_chunk(
        self, data: Bytes1D, spec: ChunkSpec, scratch: Bytes1D | None = None
    ) -> npt.NDArray[Any]:
        out = np.empty(spec.shape, spec.dtype)
        out[...] = self.unpack(data, read_header(data)) if len(data) else b""
        return out
