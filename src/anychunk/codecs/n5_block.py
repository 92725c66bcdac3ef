"""Read and write the header of an N5 block.

Spec: N5 file-system specification. Big-endian `u16 mode, u16 ndim, u32 size[ndim]`; mode 1
      (varlength) continues with `u32 elements`; mode 2 (object) is `u16 2, u32 bytes`, without
      dimensions, as in N5's Java code.
"""

import math
import struct
from dataclasses import dataclass

from anychunk.codecs.base import Bytes1D
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, UnsupportedError
from anychunk.model.grid import Shape

DEFAULT, VARLENGTH, OBJECT = 0, 1, 2


@dataclass(frozen=True)
class BlockHeader:
    """The header of one block."""

    mode: int
    """`DEFAULT`, `VARLENGTH` or `OBJECT`."""
    shape: Shape
    """Shape of the block in N5 order, fastest axis first; empty for an object block."""
    elements: int
    """Elements in the payload; in object blocks these are bytes."""
    nbytes: int
    """Length of the header."""


def read_header(data: Bytes1D) -> BlockHeader:
    """Parse the header at the start of a block."""
    start = data[:6].tobytes()
    if len(start) < 4:
        raise ChunkDecodeError(f"n5 block: {len(start)} bytes, expected at least a header of 4")
    mode, ndim = struct.unpack(">HH", start[:4])
    if mode == OBJECT:
        _check_length(data, 6)
        (count,) = struct.unpack(">I", start[2:6])
        return BlockHeader(mode, (), count, 6)
    if mode not in (DEFAULT, VARLENGTH):
        raise ChunkDecodeError(f"n5 block: mode {mode}, expected 0, 1 or 2")
    nbytes = 4 + 4 * ndim + (4 if mode == VARLENGTH else 0)
    _check_length(data, nbytes)
    numbers = struct.unpack(f">{(nbytes - 4) // 4}I", data[4:nbytes])
    shape = numbers[:ndim]
    return BlockHeader(mode, shape, numbers[-1] if mode else math.prod(shape), nbytes)


def _check_length(data: Bytes1D, nbytes: int) -> None:
    if len(data) < nbytes:
        raise ChunkDecodeError(
            f"n5 block: {len(data)} bytes, expected at least a header of {nbytes}"
        )


def check_samples(header: BlockHeader, block: Shape) -> Shape:
    """Return the shape of a block of samples.

    Parameters:
        header: the header of the block.
        block: the block size of the dataset, which no block may exceed.

    Raises:
        ChunkDecodeError: the block does not fit the dataset.
        UnsupportedError: the block holds something other than samples.
    """
    if header.mode == OBJECT:
        raise UnsupportedError(
            "n5 block: an object block (mode 2), expected samples; open the dataset with "
            'blocks="bytes" to read its bytes'
        )
    check_shape(header, block)
    if header.elements != math.prod(header.shape):
        raise UnsupportedError(
            f"n5 block: a varlength block (mode 1) of {header.elements} elements, expected "
            f"{math.prod(header.shape)} for shape {header.shape}; open the dataset with "
            'blocks="bytes" to read its bytes'
        )
    return header.shape


def check_shape(header: BlockHeader, block: Shape) -> None:
    """Check that a block has the dimensions of its dataset and is not larger than `block`."""
    if len(header.shape) != len(block):
        raise ChunkDecodeError(
            f"n5 block: the header has {len(header.shape)} dimensions, the dataset {len(block)}"
        )
    if any(not 0 < n <= most for n, most in zip(header.shape, block, strict=True)):
        raise ChunkDecodeError(
            f"n5 block: the header has shape {header.shape}, expected at most {block}"
        )


def write_header(shape: Shape, *, mode: int = DEFAULT, elements: int | None = None) -> bytes:
    """Return the header of a block; `elements` is required unless the mode is `DEFAULT`."""
    if len(shape) >= 1 << 16 or any(not 0 <= n < 1 << 32 for n in shape):
        raise ChunkEncodeError(
            f"n5 block: shape {shape} does not fit a header (2**16 axes, 2**32 elements each)"
        )
    if mode == OBJECT:
        return struct.pack(">HI", mode, elements)
    head = struct.pack(f">HH{len(shape)}I", mode, len(shape), *shape)
    return head if mode == DEFAULT else head + struct.pack(">I", elements)
