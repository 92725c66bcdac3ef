"""bzip2 streams in pieces, by their blocks.

Spec: the format of bzip2 1.0 (https://sourceware.org/bzip2); there is no document.

A stream is `BZh` and a digit, blocks that begin at any bit with a magic number of 48 bits and their
CRC-32, and an end with another magic number and the combined checksum. A block with a header and an
end of its own is a whole stream, whose checksum the decoder verifies.
"""

import bz2
from typing import Self

import numpy as np

from anychunk.codecs.base import Bytes1D
from anychunk.codecs.seek.walk import Stream
from anychunk.errors import ChunkDecodeError

BLOCK, END = 0x314159265359, 0x177245385090
LOOK = 256 << 10
MOST_BLOCK = 4 << 20
"""More stored bytes than a block of 900,000 can take."""


def _patterns(magic: int) -> list[bytes]:
    """Return, for each bit that the magic number may begin at, the whole bytes of it."""
    found = []
    for bit in range(8):
        shifted = (magic << (8 - bit)).to_bytes(7, "big")
        found.append(shifted[:6] if bit == 0 else shifted[1:6])
    return found


PATTERNS = {BLOCK: _patterns(BLOCK), END: _patterns(END)}


def find_magics(data: bytes) -> list[int]:
    """Return the bits where a block or the end of a stream may begin, in order."""
    found = []
    for magic, patterns in PATTERNS.items():
        for bit, pattern in enumerate(patterns):
            at = data.find(pattern)
            while at >= 0:
                start = at if bit == 0 else at - 1
                if start >= 0 and _bits(data, 8 * start + bit, 48) == magic:
                    found.append(8 * start + bit)
                at = data.find(pattern, at + 1)
    return sorted(found)


def _bits(data: bytes, bit: int, count: int) -> int:
    """Return `count` bits; -1 if there are not as many."""
    part = data[bit >> 3 : (bit + count + 7) >> 3]
    if 8 * len(part) < (bit & 7) + count:
        return -1
    return int.from_bytes(part, "big") >> (8 * len(part) - (bit & 7) - count) & ((1 << count) - 1)


def block_stream(data: bytes, bit: int, stop: int) -> bytes:
    """Return the block from `bit` to `stop` as a stream of its own."""
    count = stop - bit
    block = _bits(data, bit, count)
    if count < 80 or block < 0:
        raise ChunkDecodeError(f"bzip2: a block of {count} bits, expected at least 80")
    checksum = block >> (count - 80) & 0xFFFFFFFF
    whole = (block << 80) | END << 32 | checksum
    padding = -(count + 80) % 8
    return b"BZh9" + (whole << padding).to_bytes((count + 80 + padding) // 8, "big")


class Unpacking:
    """A decoder somewhere in a bzip2 stream: a `State`."""

    def __init__(self, stream: Stream, *, bit: int | None = None, stop: int | None = None) -> None:
        """Begin at the start of a stream, or at a block.

        Parameters:
            stream: The stored bytes.
            bit: Where the block begins. None: at the start, and checksums are verified.
            stop: Where the last block ends; None: at the end of the stream.
        """
        self.stream, self._stop = stream, stop
        self.decoded = 0
        self.bit, self.block = bit or 0, 0
        """Where the current block begins, in stored bits and decoded bytes."""
        self._next = bit or 0
        self._is_whole = bit is None
        self._checksum = self._before = 0
        self._left = memoryview(b"")
        self._skip = 0
        self._is_done = False
        if bit is None and not self._begin_stream(0):
            raise ChunkDecodeError("bzip2: the stream does not begin with BZh")

    @property
    def position(self) -> tuple[int, int]:
        """The bit where the block of the next decoded byte begins, and the decoded bytes before."""
        return (self.bit, self.block) if len(self._left) else (self._next, self.decoded)

    @property
    def end(self) -> int:
        """The bit where the current block ends."""
        return self._next

    def copy(self) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        if len(self._left):
            # decode the block again rather than keep what it decodes to
            other.__dict__ |= {
                "_next": self.bit,
                "_skip": self.decoded - self.block,
                "_checksum": self._before,
                "_left": memoryview(b""),
            }
        return other

    def _begin_stream(self, at: int) -> bool:
        """Begin the stream at byte `at`; return False if there is none."""
        head = self.stream.read(at, 4).tobytes()
        if len(head) < 4 or head[:3] != b"BZh" or not 0x31 <= head[3] <= 0x39:
            return False
        self._next, self._checksum = 8 * (at + 4), 0
        return True

    def advance(self, most: int) -> memoryview:
        while not len(self._left) and not self._is_done:
            self._decode_block()
        piece, self._left = self._left[:most], self._left[most:]
        self.decoded += len(piece)
        return piece

    def finish(self) -> None:
        if len(self.advance(1)):
            raise ChunkDecodeError("bzip2: decodes to more bytes than expected")

    def _decode_block(self) -> None:
        if self._stop is not None and self._next >= self._stop:
            self._is_done = True
            return
        start = self._next >> 3
        head = self.stream.read(start, 16).tobytes()
        bit = self._next & 7
        magic = _bits(head, bit, 48)
        if magic == END:
            self._end_stream(start, bit, head)
            return
        if magic != BLOCK:
            raise ChunkDecodeError(f"bzip2: no block at bit {self._next}")
        decoded, end = self._decoded_block(start, bit)
        self.bit, self.block = self._next, self.decoded - self._skip
        self._before = self._checksum
        value = self._checksum
        self._checksum = (value << 1 & 0xFFFFFFFF | value >> 31) ^ _bits(head, bit + 48, 32)
        self._next = 8 * start + end
        self._left = memoryview(decoded)[self._skip :]
        self._skip = 0

    def _end_stream(self, start: int, bit: int, head: bytes) -> None:
        expected = _bits(head, bit + 48, 32)
        if self._is_whole and expected != self._checksum:
            raise ChunkDecodeError(
                f"bzip2: the checksum is {self._checksum:08x}, expected {expected:08x}"
            )
        self._is_done = not self._begin_stream(start + (bit + 80 + 7) // 8)

    def _decoded_block(self, start: int, bit: int) -> tuple[bytes, int]:
        """Return the decoded bytes of a block, and the bit behind it, from byte `start`."""
        error: Exception | None = None
        length, tried = LOOK, 0
        while tried < MOST_BLOCK:
            data = self.stream.read(start, length).tobytes()
            for end in find_magics(data):
                # by chance, the magic number may occur within a block
                if end <= bit or end // 8 < tried:
                    continue
                try:
                    return bz2.decompress(block_stream(data, bit, end)), end
                except (OSError, ValueError, EOFError) as e:
                    error = e
            tried = max(len(data) - 8, 1)
            if len(data) < length:
                break
            length *= 2
        raise ChunkDecodeError(f"bzip2: a block at byte {start} is damaged or cut") from error


def decode_segment(data: Bytes1D, *, bit: int, stop: int) -> Unpacking:
    """Return a decoder of the blocks from `bit` to `stop` of a range."""
    if not 0 <= bit < 8 or not bit < stop <= 8 * len(data):
        raise ChunkDecodeError(f"bzip2: blocks from bit {bit} to {stop} of {len(data)} bytes")
    # behind the last block follows the magic number of the next, or of the end, without its
    # checksum: decoding needs to see only that it is there
    padded = np.concatenate([data, np.zeros(16, np.uint8)])
    view = Stream(lambda offset, length: padded[offset : offset + length], len(padded))
    return Unpacking(view, bit=bit, stop=stop)
