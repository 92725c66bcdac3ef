"""`anychunk.n5`, array to bytes: one N5 block whose samples `n5_default` cannot describe.

Spec:     as `n5_default`, with these differences. `block_shape` is the block size of the dataset,
          in the axis order of the array, where it is larger than the chunk: if a dataset is smaller
          than one block, its chunk is as large as the dataset, so that a huge block size does not
          allocate a huge chunk. If `reversed`, the array has N5's axes in reverse, (z, y, x): N5
          lists its dimensions fastest first and stores samples in that order, so they need no
          transposition, only the sizes in the header of the block are reversed. If `content` is
          "bytes", the chunk has one element: the decompressed bytes of a block of any mode, without
          its header, for varlength and object blocks, whose content only the program that wrote
          them can interpret; `itemsize` is the size of N5's data type, in which varlength blocks
          count their elements.
JSON:     {"name": "anychunk.n5", "configuration": {"codecs": [
          {"name": "bytes", "configuration": {"endian": "big"}}], "reversed": true}}; left out by
          default: "block_shape", "reversed", "content", "itemsize"
Lossless: yes; encoding bytes writes an object block.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.base import Bytes1D, ChunkSpec
from anychunk.codecs.chunk_layout import ChunkLayout
from anychunk.codecs.n5_block import OBJECT, BlockHeader, read_header, write_header
from anychunk.codecs.n5_default import N5Default
from anychunk.errors import ChunkEncodeError, CodecConfigError
from anychunk.model.grid import Shape

BYTE = np.dtype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class N5(N5Default):
    """Stores a chunk as an N5 block, or as the part of one that lies inside the array."""

    name: ClassVar[str] = "anychunk.n5"
    block_shape: tuple[int, ...] = ()
    """Block size of the N5 dataset, in the axis order of the array; empty: that of the chunk."""
    reversed: bool = False
    """Whether the array has N5's axes in reverse."""
    content: Literal["samples", "bytes"] = "samples"
    """What a chunk has: the samples of a block, or one element with its bytes."""
    itemsize: int = 1
    """Size of an element of the N5 dataset, if the content is bytes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        block = self.block_shape
        if not isinstance(block, list | tuple) or not all(type(n) is int and n > 0 for n in block):
            raise CodecConfigError(
                f"{self.name}: block_shape is {block!r}, expected integers of at least 1"
            )
        object.__setattr__(self, "block_shape", tuple(block))
        if not isinstance(self.reversed, bool) or self.content not in ("samples", "bytes"):
            raise CodecConfigError(
                f"{self.name}: reversed is {self.reversed!r} and content {self.content!r}, "
                "expected true or false, and samples or bytes"
            )
        is_bytes = self.content == "bytes"
        sizes = (1, 2, 4, 8) if is_bytes else (1,)
        if type(self.itemsize) is not int or self.itemsize not in sizes:
            raise CodecConfigError(
                f"{self.name}: itemsize {self.itemsize!r} with content {self.content}, "
                f"expected one of {sizes}"
            )
        if is_bytes and (block or self.reversed):
            raise CodecConfigError(
                f"{self.name}: block_shape and reversed are for samples, the content is bytes"
            )

    def configuration(self) -> dict[str, Any]:
        found = super().configuration()
        return found | {"block_shape": list(self.block_shape)} if self.block_shape else found

    def evolved(self, spec: ChunkSpec) -> Self:
        if self.content == "bytes":
            return self
        if self.block_shape and len(self.block_shape) != len(spec.shape):
            raise CodecConfigError(
                f"{self.name}: block_shape {self.block_shape} does not match chunks {spec.shape}"
            )
        return super().evolved(spec)

    def largest(self, spec: ChunkSpec) -> Shape:
        return self.block_shape or spec.shape

    def dimension(self, axis: int, axes: int) -> int:
        return axes - 1 - axis if self.reversed else axis

    def chunk_layout(self, spec: ChunkSpec) -> ChunkLayout | None:
        return super().chunk_layout(spec) if self.content == "samples" else None

    def read_header(self, data: Bytes1D) -> BlockHeader:
        header = read_header(data)
        return replace(header, shape=header.shape[::-1]) if self.reversed else header

    def encode_block(self, array: npt.NDArray[Any], spec: ChunkSpec) -> tuple[bytes, Bytes1D]:
        if self.content == "bytes":
            if array.size != 1:
                raise ChunkEncodeError(
                    f"{self.name}: the chunk has {array.size} elements, expected 1"
                )
            payload = bytes(array.reshape(-1)[0])
            return write_header((), mode=OBJECT, elements=len(payload)), self.pack(payload)
        shape = array.shape[::-1] if self.reversed else array.shape
        return write_header(shape), self.encode_inner(array, spec)

    def decode_chunk(
        self, data: Bytes1D, spec: ChunkSpec, scratch: Bytes1D | None = None
    ) -> npt.NDArray[Any]:
        if self.content == "samples":
            return super().decode_chunk(data, spec, scratch)
        out = np.empty(spec.shape, spec.dtype)
        out[...] = self.unpack(data, read_header(data)) if len(data) else b""
        return out

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
