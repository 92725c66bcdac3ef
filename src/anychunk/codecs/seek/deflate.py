"""Deflate streams in pieces: gzip members, zlib streams, and points where decoding can begin.

Spec: RFC 1950, 1951, 1952.

A block of deflate begins at any bit, and its matches reach back 32 KiB. So a *point* is a bit
position where a block begins, with the 32 KiB that precede it, the *window*. Shifting the bytes
from there to a byte boundary would break stored blocks, which are aligned in the original. Instead
a few empty blocks are put in front, which end at the wanted bit of their last byte.

Points are found by trying: near the wanted place, every bit position that could be the header of a
block with dynamic codes, or of a stored one, is decoded, and compared with what the walk decodes.
"""

import functools
import importlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import Bytes1D
from anychunk.codecs.seek.walk import Stream
from anychunk.errors import ChunkDecodeError

WBITS = {"gzip": 31, "zlib": 15}
"""How zlib is told the container, by compression."""
GZIP_MAGIC = b"\x1f\x8b"
STEP = 64 << 10
"""Stored bytes that are passed to the decoder at a time."""
WINDOW = 32768
"""RFC 1951 section 2: matches reach back at most this far."""

STORED, START = 8, 255
"""Kinds of points beside the bits 0 to 7: the length of a stored block; the start of a stream."""


@functools.cache
def backend(*, has_copy: bool) -> tuple[Any, tuple[type[Exception], ...]]:
    """Return the fastest installed module with zlib's interface, and its exceptions.

    Parameters:
        has_copy: Whether decoders must be copied; those of isal cannot be.
    """
    for package, name in (("isal", "isal_zlib"), ("zlib_ng", "zlib_ng")):
        if has_copy and package == "isal":
            continue
        try:
            module = importlib.import_module(f"{package}.{name}")
        except ImportError:
            continue
        return module, (module.error, zlib.error)
    return zlib, (zlib.error,)


class Inflating:
    """A decoder somewhere in a gzip or zlib stream: a `State`."""

    def __init__(self, stream: Stream, compression: str, padding: int = 0) -> None:
        """Begin at the start of a stream; `padding` bytes may follow its last piece."""
        self.stream, self.compression, self._padding = stream, compression, padding
        self.at = 0
        """How many stored bytes were consumed."""
        self.decoded = 0
        self.member = (0, 0)
        """Where the current member begins, in stored and in decoded bytes."""
        self._is_done = False
        self._module, self._errors = backend(has_copy=True)
        self.inner = self._module.decompressobj(WBITS[compression])

    def copy(self) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        # zlib does not copy a decoder that has reached its end; it is replaced by `_next_member`
        other.inner = self.inner if self.inner.eof else self.inner.copy()
        return other

    def advance(self, most: int) -> bytes:
        while not self._is_done:
            if self.inner.eof:
                self._next_member()
                continue
            block = self.stream.read(self.at, STEP)
            try:
                piece: bytes = self.inner.decompress(block, most)
            except self._errors as e:
                raise ChunkDecodeError(f"{self.compression}: {e}") from e
            # at the end of a member, zlib repeats the unused data as its unconsumed tail
            tail = self.inner.unused_data if self.inner.eof else self.inner.unconsumed_tail
            self.at += len(block) - len(tail)
            if piece:
                self.decoded += len(piece)
                return piece
            if not len(block) and not self.inner.eof:
                raise ChunkDecodeError(f"{self.compression}: truncated after {self.at} bytes")
        return b""

    def _next_member(self) -> None:
        """Begin the next member of a gzip stream, if there is one."""
        magic = self.stream.read(self.at, 2).tobytes() if self.compression == "gzip" else b""
        if magic != GZIP_MAGIC:
            self._is_done = True
            return
        self.member = (self.at, self.decoded)
        self.inner = self._module.decompressobj(WBITS[self.compression])

    def finish(self) -> None:
        """Check that the stream ends here or after all of its padding, with the right checksum."""
        expected, left = self.decoded, self._padding + 1
        while left and (piece := self.advance(left)):
            left -= len(piece)
        if self.decoded - expected not in (0, self._padding):
            raise ChunkDecodeError(
                f"{self.compression}: decodes to more bytes than expected, {expected}"
            )


def _bits(pairs: list[tuple[int, int]]) -> tuple[int, int]:
    """Return (value, count) pairs as one number, the first in the lowest bits, and its length."""
    value = length = 0
    for one, count in pairs:
        value, length = value | one << length, length + count
    return value, length


EMPTY_FIXED = _bits([(0, 1), (1, 2), (0, 7)])
"""A block with fixed codes that holds only its end: 10 bits."""
EMPTY_DYNAMIC = _bits(
    [
        # not final, dynamic; 257 literal codes, 1 distance code, 18 code length codes
        *[(0, 1), (2, 2), (0, 5), (0, 5), (14, 4)],
        # RFC 1951 section 3.2.7: symbols 18 and 1 of the code length code have one bit each
        *[(1 if s in (1, 18) else 0, 3) for s in (16, 17, 18, 0, 8, 7, 9, 6, 10)],
        *[(1 if s in (1, 18) else 0, 3) for s in (5, 11, 4, 12, 3, 13, 2, 14, 1)],
        # literal 0 has one bit, 255 have none, the end of the block has one; so has distance 0
        *[(0, 1), (1, 1), (138 - 11, 7), (1, 1), (117 - 11, 7), (0, 1), (0, 1)],
        (1, 1),
    ]
)
"""A block with dynamic codes that holds only its end: 91 bits, an odd number."""


def _aligned(bit: int) -> bytes:
    """Return empty blocks that end `bit` bits into their last byte; at 0, a whole byte."""
    value, length = EMPTY_DYNAMIC if bit & 1 else (0, 0)
    while length % 8 != bit:
        value, length = value | EMPTY_FIXED[0] << length, length + EMPTY_FIXED[1]
    return value.to_bytes(-(-length // 8), "little")


ALIGNED = [_aligned(bit) for bit in range(8)]


def front(first: int, bit: int) -> bytes:
    """Return what replaces the first byte of a range that begins at a point.

    Parameters:
        first: The first byte of the range.
        bit: The bit of it where the block begins; `STORED` if it is the length of a stored block.
    """
    if bit == STORED:
        return bytes([0, first])  # the header of a stored block: not final, type 0, padding
    if bit == 0:
        return bytes([first])
    head = ALIGNED[bit]
    return head[:-1] + bytes([head[-1] | (first >> bit << bit & 255)])


class Segment:
    """A decoder that begins at a point."""

    def __init__(self, data: Bytes1D, bit: int, window: bytes, compression: str) -> None:
        self._data, self._compression = memoryview(data), compression
        self._module, self._errors = backend(has_copy=False)
        self._head = b""
        self._at = 0
        if bit == START:
            self._inner = self._module.decompressobj(WBITS[compression])
            return
        if not len(data) or bit > STORED:
            raise ChunkDecodeError(f"{compression}: a point at bit {bit} of {len(data)} bytes")
        options = {"zdict": window} if window else {}
        self._inner = self._module.decompressobj(-15, **options)
        self._head = self._decompress(front(int(data[0]), bit), 1 << 20)
        self._at = 1

    def _decompress(self, block: Any, most: int) -> bytes:
        try:
            return self._inner.decompress(block, most)  # type: ignore[no-any-return]
        except self._errors as e:
            raise ChunkDecodeError(f"{self._compression}: {e}") from e

    def advance(self, most: int) -> bytes:
        if self._head:
            piece, self._head = self._head[:most], self._head[most:]
            return piece
        while True:
            if self._inner.eof and not self._next_member():
                return b""
            block = self._data[self._at : self._at + STEP]
            piece = self._decompress(block, most)
            tail = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail
            self._at += len(block) - len(tail)
            if piece or (not len(block) and not self._inner.eof):
                return piece

    def _next_member(self) -> bool:
        """Skip the checksum of a member of which only the end was decoded, and begin the next."""
        if self._compression != "gzip":
            return False
        # a decoder of raw deflate leaves the trailer, CRC-32 and size; one of gzip consumes it
        for at in (self._at + 8, self._at):
            if bytes(self._data[at : at + 2]) == GZIP_MAGIC:
                self._at = at
                self._inner = self._module.decompressobj(WBITS["gzip"])
                return True
        return False


# RFC 1951 section 3.2.7: lengths of 3 bits, 0 for no code; a complete code sums up to 128 / 128
_SHARE = np.array([0, *(128 >> i for i in range(1, 8))], np.int16)
_FOUR = np.arange(4096)
KRAFT = sum(_SHARE[_FOUR >> shift & 7] for shift in (0, 3, 6, 9)).astype(np.int16)
"""The sum over four code lengths."""
_HEADS = np.arange(1 << 16)
IS_HEAD = ((_HEADS & 7) == 4) & ((_HEADS >> 3 & 31) <= 29) & ((_HEADS >> 8 & 31) <= 29)
"""Whether 16 bits may begin a block: not final, dynamic, at most 286 and 30 codes."""


def dynamic_candidates(data: Bytes1D) -> npt.NDArray[np.int64]:
    """Return the bit positions where a block with dynamic codes could begin.

    There the code of the code lengths is complete, which chance makes rare.
    """
    count = len(data) - 12
    if count <= 0:
        return np.zeros(0, np.int64)
    low, middle, high = (data[i : count + i].astype(np.uint32) for i in range(3))
    words = low | middle << np.uint32(8) | high << np.uint32(16)
    around = np.lib.stride_tricks.sliding_window_view(data, 11)
    found = []
    u64 = np.uint64
    for bit in range(8):
        at = np.flatnonzero(IS_HEAD[words >> np.uint32(bit) & np.uint32(0xFFFF)])
        rows = around[at]  # 88 bits from each place on
        first = np.ascontiguousarray(rows[:, :8]).view("<u8").ravel() >> u64(bit)
        rest = sum(rows[:, 8 + i].astype(u64) << u64(8 * i) for i in range(3))
        if bit:
            first |= rows[:, 8].astype(u64) << u64(64 - bit)
        # after 17 bits follow up to 19 code lengths of 3 bits
        lengths = first >> u64(17) | (rest >> u64(bit)) << u64(47)
        lengths &= (u64(1) << (u64(3) * ((first >> u64(13) & u64(15)) + u64(4)))) - u64(1)
        total = sum(KRAFT[lengths >> u64(12 * i) & u64(4095)] for i in range(5))
        found.append(at[total == 128] * 8 + bit)
    return np.sort(np.concatenate(found))


def stored_candidates(data: Bytes1D) -> npt.NDArray[np.int64]:
    """Return the byte positions of what could be the length of a stored block."""
    return np.flatnonzero((data[:-3] ^ data[2:-1] == 255) & (data[1:-2] ^ data[3:] == 255))


@dataclass(frozen=True)
class Point:
    """A place in a stream where decoding can begin."""

    at: int
    """The stored byte where it is."""
    bit: int
    """The bit of that byte; or `STORED`, or `START`."""
    decoded: int
    """How many decoded bytes precede it."""
    window: bytes = b""
    """The decoded bytes that precede it, as far as they are needed."""


LOOK = 24 << 10
"""Stored bytes that are searched for candidates at a time."""
MOST_LOOK = 192 << 10
PROBE = 8 << 10
"""Stored bytes that are decoded from a candidate on, to compare them."""
ENOUGH = 1024
"""Decoded bytes that must be equal."""


def find_point(state: Inflating, tail: bytes, decoded: int) -> Point | None:
    """Return the next point after the place of a decoder, or None if there is none near.

    Parameters:
        state: The decoder, which is not changed.
        tail: The last decoded bytes, at least 32 KiB if there were as many.
        decoded: How many bytes were decoded.
    """
    for ahead in range(0, MOST_LOOK, LOOK):
        look = state.stream.read(state.at + ahead, LOOK + 12)
        if len(look) < 64:
            return None
        for bit, kind in _candidates(look):
            found = _tried(state, tail, decoded, ahead * 8 + bit, kind)
            if found is not None:
                return found
    return None


def _candidates(look: Bytes1D) -> Iterator[tuple[int, int]]:
    """Yield bit positions and kinds of what could be points, in order."""
    pairs = [(int(bit), int(bit) % 8) for bit in dynamic_candidates(look)]
    pairs += [(int(at) * 8, STORED) for at in stored_candidates(look)]
    yield from sorted(pairs)


def _tried(state: Inflating, tail: bytes, decoded: int, position: int, kind: int) -> Point | None:
    """Return the point at a bit position, if what is decoded from it is right."""
    start, ahead = state.at + position // 8, -(-position // 8)
    after = state.stream.read(start, PROBE + 1)
    try:
        # most of the wrong ones fail in the Huffman tables
        Segment(after[:2048], kind, bytes(WINDOW), "raw").advance(1 << 16)
        walk = state.copy()
        before = _raw(walk, state.stream.read(state.at, ahead))
        window = (tail + before)[-WINDOW:]
        expected = _raw(walk, state.stream.read(state.at + ahead, PROBE))
        found = _all(Segment(after, kind, window, "raw"), len(expected) + 1)
        length = min(len(found), len(expected))
        if length < ENOUGH or found[:length] != expected[:length]:
            return None
        # a stored block may need one byte for each that it decodes to; inside of one, what looks
        # like the length of another decodes rightly, until that length is over
        needed = needed_window(state.stream.read(start, 2 * WINDOW), kind, window)
    except ChunkDecodeError:
        return None
    return Point(start, kind, decoded + len(before), needed)


def _raw(state: Inflating, data: Bytes1D) -> bytes:
    """Decode exactly these stored bytes within one member."""
    try:
        return state.inner.decompress(data)  # type: ignore[no-any-return]
    except backend(has_copy=True)[1] as e:
        raise ChunkDecodeError(str(e)) from e


def _all(segment: Segment, most: int) -> bytes:
    pieces, left = [], most
    while left:
        piece = segment.advance(left)
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def needed_window(after: Bytes1D, kind: int, window: bytes) -> bytes:
    """Return the window with zeros where the segment does not reach, without leading zeros.

    Only the first 32 KiB after a point can reach the window. They are decoded with windows that
    are marked by their positions, so that each decoded byte says where it comes from.
    """
    size = len(window)
    places = np.arange(size, dtype=np.uint32)
    marks = [np.zeros(size, np.uint8), np.full(size, 255, np.uint8)]
    marks += [(places & 255).astype(np.uint8), (places >> 8).astype(np.uint8)]
    outs = [
        np.frombuffer(_all(Segment(after, kind, mark.tobytes(), "raw"), WINDOW), np.uint8)
        for mark in marks
    ]
    if len(outs[0]) < WINDOW:
        return window  # the stream ends here
    from_window = outs[0] != outs[1]
    used = outs[2][from_window].astype(np.int64) | outs[3][from_window].astype(np.int64) << 8
    is_used = np.zeros(size, bool)
    is_used[used] = True
    return np.where(is_used, np.frombuffer(window, np.uint8), 0).astype(np.uint8).tobytes()


def pack_window(window: bytes) -> bytes:
    """Compress a window; mostly zeros."""
    return zlib.compress(window, 9) if window else b""


def unpack_window(data: bytes) -> bytes:
    """Decompress a window, which may be damaged."""
    if not data:
        return b""
    decoder = zlib.decompressobj()
    try:
        window = decoder.decompress(data, WINDOW + 1)
    except zlib.error as e:
        raise ChunkDecodeError(f"a window of a seek point is damaged: {e}") from e
    if len(window) > WINDOW or not decoder.eof:
        raise ChunkDecodeError("a window of a seek point is damaged")
    return window
