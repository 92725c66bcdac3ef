"""LZW strips of TIFF in pieces, by their clear codes.

Spec: TIFF 6.0 section 13.

After a clear code the table is empty, so decoding can begin there without anything from before.
The widths of the codes that follow depend only on how many there were, so their positions are known
without decoding, and the next clear code is found by looking at all of them at once.
"""

import os
from typing import Self

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.base import Bytes1D, as_bytes
from anychunk.codecs.seek.walk import Stream
from anychunk.errors import ChunkDecodeError

CLEAR, END = 256, 257
MOST_CODES = 4200
"""More codes than fit into the table."""
GROUP = 16
"""Segments that are decoded at a time."""
MARK = os.urandom(12)
"""What no file can be made to decode to."""
MOST_ENDS = 1 << 16
"""How many groups are remembered."""
SEGMENT_BYTES = 8 << 20
"""More than a segment can decode to: 3,838 codes, the longest of as many bytes."""


def _widths(count: int) -> npt.NDArray[np.int64]:
    """Return the widths of the codes after a clear code."""
    found, entries, width = np.empty(count, np.int64), 258, 9
    for i in range(count):
        found[i] = width
        entries += i > 0  # each code but the first adds an entry
        # the width grows one entry early, as all writers of TIFF do
        if entries + 1 >= 1 << width and width < 12:
            width += 1
    return found


WIDTHS = _widths(MOST_CODES)
PLACES = np.concatenate([[0], np.cumsum(WIDTHS)])
"""The bit where each code begins."""
MOST_BYTES = int(PLACES[-1]) // 8 + 4


class Unpacking:
    """A decoder somewhere in an LZW stream: a `State`."""

    def __init__(self, stream: Stream, stop: int) -> None:
        """Begin at the start of a stream, which decodes to at least `stop` bytes."""
        self.stream, self._stop = stream, stop
        self.decoded = 0
        self.bit = 0
        """Where the current group begins, behind a clear code."""
        self.group = 0
        """How many bytes were decoded before the current group."""
        self.end = 0
        """Where the last segment of the group ends; 0: at the end of the stream, without a code for
        it; -1: the stream has no segments."""
        self._next = 0
        self._left = np.empty(0, np.uint8)
        self._skip = 0
        self._usual, self._size = -1, 0
        self._ends: dict[int, tuple[int, int]] = {}
        """Where groups end, by where they begin; shared by all copies."""
        head = stream.read(0, 2).tobytes()
        if int.from_bytes(head, "big") >> 7 == CLEAR:
            self._next = 9
        else:
            self._next = (
                self.end
            ) = -1  # an old stream, lowest bit first: it can only be decoded as a whole

    def copy(self) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        if len(self._left) and self._next >= 0:
            # decode the group again rather than keep what it decodes to
            again = {"_next": self.bit, "_skip": self.decoded - self.group}
            other.__dict__ |= again | {"_left": self._left[:0]}
        return other

    @property
    def position(self) -> tuple[int, int]:
        """The bit where the group of the next decoded byte begins, and the decoded bytes before."""
        if self._next < 0:
            return 0, 0
        return (self.bit, self.group) if len(self._left) else (self._next, self.decoded)

    def advance(self, most: int) -> Bytes1D:
        if not len(self._left):
            self._decode_group()
        piece, self._left = self._left[:most], self._left[most:]
        self.decoded += len(piece)
        return piece

    def finish(self) -> None:
        """Do nothing: a strip may go on after its last row, and there is no checksum."""

    def _decode_group(self) -> None:
        remaining = self._stop - (self.decoded - self._skip)
        if self._next < 0:
            self._decode_all()
            return
        self.bit, self.group = self._next, self.decoded - self._skip
        if self.bit >= 8 * self.stream.length or remaining <= 0:
            return
        known = self._ends.get(self.bit)
        if known is None and self._decode_usual(remaining):
            return
        end, code = known or (self.bit, CLEAR)
        for _ in range(GROUP if known is None else 0):
            end, code = self._segment_end(end)
            if code != CLEAR:
                break
        if len(self._ends) < MOST_ENDS:
            self._ends[self.bit] = end, code
        start, whole = self.bit >> 3, 8 * self.stream.length
        # without any code at its end, the last segment is the rest of the stream
        self.end = end if code else 0
        data = self.stream.read(start, -(-end // 8) - start)
        most = min(remaining, GROUP * SEGMENT_BYTES) if code else remaining
        stop = end - 8 * start if code else 0
        self._left = decode_segment(data, bit=self.bit & 7, stop=stop, most=most)[self._skip :]
        self._skip = 0
        self._next = end if code == CLEAR else whole

    def _decode_all(self) -> None:
        if self.decoded >= self._stop:
            return
        limits.check_chunk(self._stop, where="lzw", stored=self.stream.length)
        self._left = decode(self.stream.read(0, self.stream.length), self._stop)[self.decoded :]

    def _decode_usual(self, remaining: int) -> bool:
        """Decode segments that end where those before did; return whether there were any.

        Looking only there is fast, but misses a clear code before. So known literals are put
        behind the last clear code: a decoder that has missed anything does not decode them.
        """
        if self._usual < 0:
            return False
        span, start = int(PLACES[self._usual + 1]), self.bit >> 3
        stored = self.stream.read(start, -(-((self.bit & 7) + GROUP * span) // 8) + 1)
        data, end = stored.tobytes(), self.bit & 7
        while end + span <= 8 * len(data) and end < GROUP * span:
            at = end + span - 12
            code = int.from_bytes(data[at >> 3 : (at >> 3) + 3].ljust(3, b"\0"), "big")
            if code >> (12 - (at & 7)) & 4095 != CLEAR:
                break
            end += span
        if end < span:
            return False
        most = 4 * self._size + (1 << 20)
        try:
            found = decode_segment(stored, bit=self.bit & 7, stop=end, most=most, mark=MARK)
        except ChunkDecodeError:
            return False
        if found[-len(MARK) :].tobytes() != MARK:
            return False
        self._size = len(found)
        self._left = found[: -len(MARK)][:remaining][self._skip :]
        self._skip = 0
        self._next = self.end = 8 * start + end
        if len(self._ends) < MOST_ENDS:
            self._ends[self.bit] = self._next, CLEAR
        return True

    def _segment_end(self, bit: int) -> tuple[int, int]:
        """Return where the segment at `bit` ends, and the code there; 0 if there is none."""
        data = self.stream.read(bit >> 3, MOST_BYTES)
        number, code = find_end(data, bit & 7)
        if code:
            self._usual = number if code == CLEAR and WIDTHS[number] == 12 else -1
            return bit + int(PLACES[number + 1]), code
        if number == MOST_CODES:
            # a full table that is never cleared: the rest has one state, and no points
            limits.check_chunk(self._stop, where="lzw", stored=self.stream.length)
        return 8 * self.stream.length, 0


_BYTES = [(PLACES[:-1] + bit) >> 3 for bit in range(8)]
_SHIFTS = [(32 - (PLACES[:-1] + bit) % 8 - WIDTHS).astype(np.uint32) for bit in range(8)]
_MASKS = ((1 << WIDTHS) - 1).astype(np.uint32)
"""Where each code is, for each bit that a segment may begin at."""


def find_end(data: Bytes1D, bit: int) -> tuple[int, int]:
    """Return the number of the first clear or end code of a segment, and the code.

    If there is none, the number of codes and 0.

    Parameters:
        data: The stored bytes, from the one on in which the segment begins.
        bit: The bit of the first byte where it begins.
    """
    count = min(MOST_CODES, int(np.searchsorted(PLACES, 8 * len(data) - bit, "right")) - 1)
    if count <= 0:
        return 0, 0
    if len(data) < MOST_BYTES:
        data = np.concatenate([data, np.zeros(4, np.uint8)])
    # the four bytes from every byte on, of which only those that begin a code are looked at
    words = np.ndarray((len(data) - 3,), "<u4", np.ascontiguousarray(data), strides=(1,))
    codes = words[_BYTES[bit][:count]]
    codes.byteswap(inplace=True)
    codes >>= _SHIFTS[bit][:count]
    codes &= _MASKS[:count]
    is_end = (codes | np.uint32(1)) == END  # 256 or 257
    number = int(is_end.argmax())
    return (number, int(codes[number])) if is_end[number] else (count, 0)


def decode_segment(data: Bytes1D, *, bit: int, stop: int, most: int, mark: bytes = b"") -> Bytes1D:
    """Decode segments that begin at `bit` of the first byte, to at most `most` bytes.

    They get a clear code in front. The code that ends at bit `stop`, a clear code or the end of the
    stream, becomes the end: the two differ in their last bit. With 0, everything is decoded. LZW
    has no aligned parts, so that the bytes can be shifted.

    With `mark`, the code that ends at `stop` must be a clear code; these bytes follow it.
    """
    if not 0 <= stop <= 8 * len(data) or not 0 <= bit < 8:
        raise ChunkDecodeError(f"lzw: a segment from bit {bit} to {stop} of {len(data)} bytes")
    count = -(-stop // 8) if stop else len(data)
    stream = np.empty(count + 2, np.uint8)
    body, shift = stream[1:], bit - 1  # the first of its bits is the last one of the clear code
    if shift <= 0:
        np.right_shift(data[:count], -shift, out=body[:count])
        body[count] = 0
        if shift:
            body[1:] |= data[:count] << np.uint8(7)
    else:
        np.left_shift(data[:count], np.uint8(shift), out=body[:count])
        body[: count - 1] |= data[1:count] >> np.uint8(8 - shift)
        body[count] = 0
    stream[0] = CLEAR >> 1
    stream[1] &= 0x7F
    if mark:
        stream = _marked(stream, 8 + stop - shift, mark)
    elif stop:
        last = stop - 1 - shift
        body[last >> 3] |= 128 >> (last & 7)
    return decode(stream, most)


def _marked(stream: Bytes1D, bit: int, mark: bytes) -> Bytes1D:
    """Return a stream that is cut at `bit`, after a clear code, with literals and an end."""
    kept = int(stream[bit >> 3]) >> (8 - (bit & 7)) if bit & 7 else 0
    for code in (*mark, END):
        kept = kept << 9 | code
    count = (bit & 7) + 9 * (len(mark) + 1)
    tail = (kept << -count % 8).to_bytes(-(-count // 8), "big")
    return np.concatenate([stream[: bit >> 3], np.frombuffer(tail, np.uint8)])


def decode(stream: Bytes1D, most: int) -> Bytes1D:
    """Decode a whole stream, to at most `most` bytes."""
    try:
        return as_bytes(imagecodecs.lzw_decode(stream, out=np.empty(most, np.uint8)))
    except (RuntimeError, ValueError) as e:
        raise ChunkDecodeError(f"lzw: {e}") from e
