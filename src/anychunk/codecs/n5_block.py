"""The header of an N5 block, read and written.

Spec: N5 file-system specification. Big-endian `u16 mode, u16 ndim, u32 size[ndim]`; mode 1
      (varlength) goes on with `u32 elements`; mode 2 (object) is `u16 2, u32 bytes`, without
      dimensions, as the Java code has it.
"""

import math
import struct
from dataclasses import dataclass

from anychunk.codecs.base import Bytes1D
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, UnsupportedError

type Shape = tuple[int, ...]

DEFAULT, VARLENGTH, OBJECT = 0, 1, 2


@dataclass(frozen=True)
class BlockHeader:
    mode: int
    shape: Shape
    """In N5 order, dimension 0 fastest; empty for an object block."""
    elements: int
    """Of the payload: bytes, for varlength and object blocks of one-byte types."""
    nbytes: int
    """How long the header is."""


def read_header(data: Bytes1D) -> BlockHeader:
    """Read the header that a block begins with, checked against the block's own length."""
    start = data[:6].tobytes()
    if len(start) < 4:
        raise ChunkDecodeError(f"n5 block: {len(start)} bytes, expected a header")
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
        raise ChunkDecodeError(f"n5 block: {len(data)} bytes, expected a header of {nbytes}")


def check_samples(header: BlockHeader, block: Shape) -> Shape:
    """Give the shape of a block of numbers, or refuse one that is no such block."""
    if header.mode == OBJECT:
        raise UnsupportedError(
            "n5 block: an object block (mode 2), expected numbers; open the dataset with "
            'blocks="bytes" to get its bytes'
        )
    check_shape(header, block)
    if header.elements != math.prod(header.shape):
        raise UnsupportedError(
            f"n5 block: a varlength block (mode 1) of {header.elements} elements for the shape "
            f"{header.shape}, expected {math.prod(header.shape)}; open the dataset with "
            'blocks="bytes" to get its bytes'
        )
    return header.shape


def check_shape(header: BlockHeader, block: Shape) -> None:
    """Refuse a block that is none of its dataset."""
    if len(header.shape) != len(block):
        raise ChunkDecodeError(
            f"n5 block: {len(header.shape)} dimensions, expected {len(block)} as its dataset has"
        )
    if any(not 0 < n <= most for n, most in zip(header.shape, block, strict=True)):
        raise ChunkDecodeError(
            f"n5 block: its header says {header.shape}, expected at most the block size {block}"
        )


def write_header(shape: Shape, *, mode: int = DEFAULT, elements: int | None = None) -> bytes:
    if len(shape) >= 1 << 16 or any(not 0 <= n < 1 << 32 for n in shape):
        raise ChunkEncodeError(f"n5 block: a header cannot hold the shape {shape}")
    if mode == OBJECT:
        return struct.pack(">HI", mode, elements)
    head = struct.pack(f">HH{len(shape)}I", mode, len(shape), *shape)
    return head if mode == DEFAULT else head + struct.pack(">I", elements)
