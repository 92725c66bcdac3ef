"""The LZ4 of N5 containers: the blocks of lz4-java, and the other dialects that writers produce.

lz4-java's LZ4BlockOutputStream: blocks of "LZ4Block", a token, the stored length, the decoded
length and a checksum, all little-endian, then an empty block.
"""

import struct

import numpy as np
import xxhash

from anychunk.codecs import streams
from anychunk.codecs.base import Bytes1D
from anychunk.errors import ChunkDecodeError

MAGIC = b"LZ4Block"
HEAD = struct.Struct("<8sBiiI")
RAW, LZ4 = 0x10, 0x20
SEED = 0x9747B28C


def checksum(data: Bytes1D) -> int:
    """Return the checksum of a decoded block."""
    # xxHash32, of which lz4-java keeps 28 bits (StreamingXXHash32.asChecksum)
    return xxhash.xxh32_intdigest(data, SEED) & 0x0FFFFFFF


def encode(data: Bytes1D, block_size: int) -> bytes:
    """Return what LZ4BlockOutputStream writes with its fast compressor."""
    # the low bits of the token: the block size as a power of two above 1 KiB
    level = max(0, (block_size - 1).bit_length() - 10)
    pieces = []
    for start in range(0, len(data), block_size):
        block = data[start : start + block_size]
        stored, method = bytes(streams.encode_lz4_block(block)), LZ4
        if len(stored) >= len(block):
            stored, method = block.tobytes(), RAW
        pieces += [
            HEAD.pack(MAGIC, method | level, len(stored), len(block), checksum(block)),
            stored,
        ]
    return b"".join([*pieces, HEAD.pack(MAGIC, RAW | level, 0, 0, 0)])


def decode(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    """Decode all blocks to `nbytes` bytes; the empty block at the end may be missing."""
    target = out if out is not None and len(out) == nbytes else np.empty(nbytes, np.uint8)
    place = filled = 0
    while place < len(data):
        method, stored, decoded, check = _read_head(data, place)
        place += HEAD.size
        if decoded == 0 and stored == 0:
            if place < len(data):
                raise ChunkDecodeError(f"lz4 java: {len(data) - place} bytes follow the last block")
            break
        if place + stored > len(data):
            raise ChunkDecodeError(
                f"lz4 java: the block @{place} has {stored} bytes, the stream ends @{len(data)}"
            )
        if filled + decoded > nbytes:
            raise ChunkDecodeError(f"lz4 java: decodes to more than {nbytes} bytes")
        block = data[place : place + stored]
        part = target[filled : filled + decoded]
        part[:] = (streams.decode_raw if method == RAW else streams.decode_lz4_block)(
            block, decoded, None
        )
        if checksum(part) != check:
            raise ChunkDecodeError(
                f"lz4 java: the checksum of the block @{place} is {checksum(part):#x}, "
                f"expected {check:#x}"
            )
        place, filled = place + stored, filled + decoded
    if filled != nbytes:
        raise ChunkDecodeError(f"lz4 java: decodes to {filled} bytes, expected {nbytes}")
    return target


def _read_head(data: Bytes1D, place: int) -> tuple[int, int, int, int]:
    if place + HEAD.size > len(data):
        raise ChunkDecodeError(
            f"lz4 java: the stream ends after {len(data)} bytes, inside a block header"
        )
    magic, token, stored, decoded, check = HEAD.unpack(data[place : place + HEAD.size])
    method = token & 0xF0
    if magic != MAGIC or method not in (RAW, LZ4) or stored < 0 or decoded < 0:
        raise ChunkDecodeError(
            f"lz4 java: expected a block @{place}, found {bytes(magic).hex()} {token:#x}"
        )
    return method, stored, decoded, check


def decode_any(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    """Decode any of the three dialects, which differ in their first bytes."""
    start = data[:8].tobytes()
    if start == MAGIC:
        return decode(data, nbytes, out)
    if start[:4] == streams.LZ4_FRAME:
        return streams.decode_lz4_frame(data, nbytes, out)
    return streams.decode_lz4_block(data, nbytes, out)
