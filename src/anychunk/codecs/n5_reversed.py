"""`anychunk.n5_reversed`, array to bytes: one N5 block whose axes the array has in reverse.

Spec:     as `n5_default`. N5 lists its dimensions fastest first, (x, y, z), and stores samples in
          that order, so they are in C order for an array (z, y, x): no transposition, only the
          sizes in the header of the block are reversed. `block_shape` is the block size of the
          dataset in the array's order, where blocks are larger than the chunk
          (`anychunk.n5_cropped`).
JSON:     {"name": "anychunk.n5_reversed", "configuration": {"codecs": [
          {"name": "bytes", "configuration": {"endian": "big"}}]}}
Lossless: yes.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy.typing as npt

from anychunk.codecs.base import Bytes1D, ChunkSpec
from anychunk.codecs.n5_block import BlockHeader, read_header, write_header
from anychunk.codecs.n5_cropped import N5Cropped
from anychunk.codecs.n5_default import Shape


@dataclass(frozen=True, kw_only=True)
class N5Reversed(N5Cropped):
    """Stores a chunk (z, y, x) as an N5 block."""

    name: ClassVar[str] = "anychunk.n5_reversed"
    block_shape: tuple[int, ...] = ()
    """Block size of the N5 dataset, in the axis order of the array; empty: that of the chunk."""

    def configuration(self) -> dict[str, Any]:
        found = super().configuration()
        return found if self.block_shape else {"codecs": found["codecs"]}

    def expected_ndim(self, ndim: int) -> int:
        return len(self.block_shape) or ndim

    def largest(self, spec: ChunkSpec) -> Shape:
        return self.block_shape or spec.shape

    def read_header(self, data: Bytes1D) -> BlockHeader:
        header = read_header(data)
        return replace(header, shape=header.shape[::-1])

    def encode_block(self, array: npt.NDArray[Any], spec: ChunkSpec) -> tuple[bytes, Bytes1D]:
        return write_header(array.shape[::-1]), self.encode_inner(array, spec)
