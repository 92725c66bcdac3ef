"""`anychunk.stream`, bytes to bytes: the chunk as a compressed stream.

Spec:     gzip (RFC 1952), zlib (RFC 1950), bzip2 1.0, xz (.xz file format 1.2), zstd (RFC 8878),
          lz4 (LZ4 frame format 1.6), lz4_java (the LZ4 of N5, below), or raw. Concatenated
          members and frames are read.
JSON:     {"name": "anychunk.stream", "configuration": {"compression": "gzip", "leading": true,
          "skip": 16}}; left out by default: "level", "block_size" (of lz4_java), "leading", "skip",
          "checksum"
Lossless: yes. Other compressions than raw must be the first bytes -> bytes codec, because decoding
          needs the size of the chunk; only raw and lz4 frames with a content size have a Zarr v2
          form.

`lz4_java` writes what N5 in Java does: the blocks of lz4-java's LZ4BlockOutputStream. It also reads
an LZ4 frame (N5 in Rust) and a bare LZ4 block (z5), recognised by their first bytes.

`leading` is for files that record where a stream begins but not where it ends: the stored bytes
begin with the stream, and the bytes after its end are ignored. The first `skip` decoded bytes are
not part of the chunk; if `skip` is -1, the chunk is the last decoded bytes (gzip and bzip2 only).
Encoding writes `skip` zeros and the chunk, with nothing after the stream.

`checksum` is for files that keep the checksums of their chunks in a table: the index puts each
checksum in front of its chunk. The stored bytes begin with one byte, 1 if the checksum is known and
0 if not, and a CRC-32 (ISO 3309, as in gzip) of the rest as a little-endian uint32; it is verified
when decoding. Zarr's own `crc32c` uses another polynomial and follows the payload.
"""

import struct
from collections.abc import Buffer as BytesLike
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import xxhash

from anychunk import limits
from anychunk.codecs import leading_streams, streams
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec, as_bytes
from anychunk.errors import ChunkDecodeError, CodecConfigError

COMPRESSIONS = ("raw", "gzip", "zlib", "bzip2", "xz", "zstd", "lz4", "lz4_java")
BLOCK_SIZE = 1 << 16
"""Decoded bytes per block of lz4-java by default."""


@dataclass(frozen=True, kw_only=True)
class Stream(BytesToBytes):
    """Stores a chunk as one compressed stream."""

    name: ClassVar[str] = "anychunk.stream"

    compression: str
    """`raw`, `gzip`, `zlib`, `bzip2`, `xz`, `zstd`, `lz4` (frames) or `lz4_java`."""
    level: int | None = None
    """Compression level; None for the default."""
    block_size: int | None = None
    """Maximum number of decoded bytes per block of lz4-java; None for 64 KiB."""
    leading: bool = False
    """Whether other bytes may follow the stream."""
    skip: int = 0
    """How many decoded bytes precede the chunk; -1: as many as there are more."""
    checksum: bool = False
    """Whether a CRC-32 of the stream precedes it."""

    def __post_init__(self) -> None:
        found = self.compression
        if not isinstance(found, str) or found not in COMPRESSIONS:
            self._refuse("compression", " ".join(COMPRESSIONS))
        if self.level is not None and found not in streams.LEVELS:
            self._refuse("level", f"none with {found}")
        if found in streams.LEVELS:
            streams.check_level(found, self.level)
        # the range of lz4-java: 64 bytes to 32 MiB
        size = self.block_size
        is_size = found == "lz4_java" and type(size) is int and 64 <= size <= 1 << 25
        if size is not None and not is_size:
            self._refuse("block_size", f"64 to {1 << 25}, with lz4_java only")
        for key in ("leading", "checksum"):
            if not isinstance(getattr(self, key), bool):
                self._refuse(key, "true or false")
        if self.leading and found not in leading_streams.COMPRESSIONS:
            self._refuse("leading", f"false with {found}")
        least = -1 if found in leading_streams.TAILED else 0
        if type(self.skip) is not int or self.skip < least or (self.skip and not self.leading):
            self._refuse("skip", f"an integer of at least {least}, and 0 unless leading")

    def _refuse(self, key: str, expected: str) -> None:
        raise CodecConfigError(f"{self.name}: {key} is {getattr(self, key)!r}, expected {expected}")

    @property
    def needs_spec(self) -> bool:
        return self.leading or self.compression not in ("raw", "lz4")

    def of_ranges(self) -> Self:
        """Return the codec for ranges of larger files, which bytes may follow."""
        return replace(self, leading=True) if self.compression == "lz4" else self

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        if self.skip > 0:
            data = np.concatenate([np.zeros(self.skip, np.uint8), data])
        if self.compression == "lz4_java":
            stored: BytesLike = encode(data, self.block_size or BLOCK_SIZE)
        else:
            stored = streams.ENCODE[self.compression](data, self.level)
        if not self.checksum:
            return stored
        return streams.with_checksum(as_bytes(stored))

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        if self.checksum:
            data = streams.without_checksum(data)
        if self.compression == "raw" and not self.leading:
            return data
        if spec is None and not self.needs_spec:
            nbytes = streams.lz4_content_size(data)
            if nbytes is None:
                raise ChunkDecodeError(
                    f"{self.name}: the lz4 frame has no content size, which Zarr v2 needs"
                )
        else:
            nbytes = self.require_spec(spec).nbytes
        if self.skip < 0:
            return leading_streams.last_bytes(data, nbytes, self.compression)
        limits.check_chunk(nbytes + self.skip, where=self.name, stored=len(data))
        if self.leading:
            found = leading_streams.decode(self.compression, data, nbytes + self.skip)
            return found[self.skip :]
        if self.compression == "lz4_java":
            return decode_any(data, nbytes, out)
        return streams.DECODE[self.compression](data, nbytes, out)


# The LZ4 of N5 containers: the blocks of lz4-java, and the other dialects that writers produce.
#
# lz4-java's LZ4BlockOutputStream: blocks of "LZ4Block", a token, the stored length, the decoded
# length and a checksum, all little-endian, then an empty block.


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
