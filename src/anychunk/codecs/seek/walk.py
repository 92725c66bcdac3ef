"""Decode a stream in order, and remember states from which decoding can continue.

A stream is cut into pieces of equal decoded length. The first read of a piece decodes everything
before it; each piece that is passed leaves a state, so that later reads begin at the piece itself.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import imagecodecs
import numpy as np

from anychunk.codecs.base import Bytes1D, as_bytes
from anychunk.errors import ChunkDecodeError

MOST_STATES = 512
"""States kept per stream; beyond that every second one is dropped. One of deflate is about 48 KiB,
so they take at most 24 MiB."""
PIECE = 1 << 20
"""Decoded bytes at a time, where they are discarded."""


def checksum(data: Bytes1D) -> int:
    """Return the CRC-32 of gzip; libdeflate's is several times faster than zlib's."""
    return int(imagecodecs.deflate_crc32(data)) if len(data) else 0


class Stream:
    """The stored bytes of one stream, read by range."""

    def __init__(self, read: Callable[[int, int], Bytes1D], length: int, *, ahead: int = 0) -> None:
        """Describe a stream.

        Parameters:
            read: Returns the bytes at an offset of the stream, exactly as many as asked for.
            length: The length of the stream, or of the range that begins with it.
            ahead: The least number of bytes that are read at once, for remote streams.
        """
        self._read, self.length, self._ahead = read, length, ahead
        self._kept: tuple[int, Bytes1D] = (0, np.empty(0, np.uint8))

    def read(self, offset: int, length: int) -> Bytes1D:
        """Return these bytes; fewer at the end of the stream."""
        length = max(0, min(length, self.length - offset))
        if not self._ahead or not length:
            return self._read(offset, length) if length else np.empty(0, np.uint8)
        start, kept = self._kept  # one assignment: threads may replace it, which is harmless
        if not (start <= offset and offset + length <= start + len(kept)):
            start, most = offset, min(max(length, self._ahead), self.length - offset)
            kept = self._read(offset, most)
            self._kept = (start, kept)
        return kept[offset - start : offset - start + length]


def stream_of(data: bytes | Bytes1D) -> Stream:
    """Return a stream that is already in memory."""
    view = as_bytes(data)
    return Stream(lambda offset, length: view[offset : offset + length], len(view))


class Decoding(Protocol):
    """A decoder somewhere in a stream."""

    def advance(self, most: int) -> bytes | memoryview | Bytes1D:
        """Return the next decoded bytes, 1 to `most`; none at the end of the stream."""
        ...


class State(Decoding, Protocol):
    """A decoder of a whole stream."""

    decoded: int
    """How many decoded bytes precede the next one."""

    def copy(self) -> Self:
        """Return an independent decoder at the same place, or at the nearest place before it."""
        ...

    def finish(self) -> None:
        """Check what follows the last piece: the end of the stream, and its checksum."""
        ...


def fill(state: Decoding, out: Bytes1D) -> None:
    """Decode exactly as many bytes as `out` has."""
    filled = 0
    while filled < len(out):
        piece = state.advance(len(out) - filled)
        if not len(piece):
            raise ChunkDecodeError(
                f"the compressed stream ends early, {len(out) - filled} decoded bytes are missing"
            )
        out[filled : filled + len(piece)] = as_bytes(piece)
        filled += len(piece)


def skip(state: Decoding, count: int) -> None:
    """Decode `count` bytes and discard them."""
    while count:
        piece = state.advance(min(count, PIECE))
        if not len(piece):
            raise ChunkDecodeError(
                f"the compressed stream ends early, {count} decoded bytes are missing"
            )
        count -= len(piece)


@dataclass
class Verdict:
    """What is known about a stream as a whole."""

    is_sound: bool = False
    """Whether its end was reached, and what is there, such as a checksum, is right."""
    damage: str | None = None
    """What is wrong with it. Whatever was decoded before may be wrong as well."""

    def check(self) -> None:
        """Raise `ChunkDecodeError` if the stream is damaged."""
        if self.damage is not None:
            raise ChunkDecodeError(self.damage)


class Walker:
    """Reads pieces of one stream in any order. Thread-safe."""

    def __init__(
        self,
        begin: Callable[[], State],
        *,
        starts: Sequence[int],
        stop: int,
        verdict: Verdict | None = None,
    ) -> None:
        """Prepare to read a stream.

        Parameters:
            begin: Returns a decoder at the start of the stream.
            starts: Where pieces begin, in decoded bytes, in order.
            stop: Where the last piece ends.
            verdict: What is known about the stream; changed by reading it.
        """
        self._begin, self._starts, self._stop = begin, starts, stop
        self._lock = threading.Lock()
        self._offsets: list[int] = []
        self._states: list[State] = []
        self._at = 0
        self._frontier: State | None = None
        self._repeated: tuple[int, State] | None = None
        """Where the last read before the frontier ended, and its decoder. A bzip2 stream has only
        a state at its start, so reads in order continue here."""
        self._spacing = 0
        self._checksums: dict[tuple[int, int], int] = {}
        self.verdict = verdict or Verdict()
        self.decoded = 0
        """How many bytes were decoded so far, for tests."""

    def read(self, start: int, out: Bytes1D, *, to_end: bool = False) -> None:
        """Decode the piece that begins at `start` into `out`, which has its length.

        Parameters:
            start: Where the piece begins, in decoded bytes.
            out: Where it goes.
            to_end: Whether the stream must be known to be sound: if no read has reached its end
                yet, this one does.

        Raises:
            ChunkDecodeError: The stream is damaged; or it decodes to other bytes than before; or
                its own checksum, which is known when all of it was decoded, does not match. From
                then on, every read raises.
        """
        with self._lock:
            self.verdict.check()
            is_new = start >= self._at
            try:
                if is_new:
                    self._walk(start, out)
                while to_end and not self.verdict.is_sound:
                    self._walk(self._at, np.empty(self._boundary() - self._at, np.uint8))
            except ChunkDecodeError as e:
                self.verdict.damage = str(e)
                raise
            if is_new:
                return
            number = bisect_right(self._offsets, start) - 1
            repeated, self._repeated = self._repeated, None
            if repeated is not None and self._offsets[number] <= repeated[0] <= start:
                at, state = repeated
            else:
                state, at = self._states[number].copy(), self._offsets[number]
        skip(state, start - at)
        fill(state, out)
        self.decoded += start - at + len(out)
        expected = self._checksums.get((start, len(out)))
        if expected is not None and checksum(out) != expected:
            raise ChunkDecodeError("the piece decodes to other bytes than before")
        self._repeated = start + len(out), state

    def _walk(self, start: int, out: Bytes1D) -> None:
        """Go on from where the walk stands to the end of the piece at `start`."""
        state = self._frontier
        if state is None:
            state = self._states[-1].copy() if self._states else self._begin()
            if not self._states:
                self._keep(state)
        self._frontier = None
        try:
            while self._at < start:
                stop = min(self._boundary(), start)
                self._take(state, np.empty(stop - self._at, np.uint8))
            self._take(state, out)
            if self._at >= self._stop:
                state.finish()
                self.verdict.is_sound = True
        except BaseException:
            self._at = self._offsets[-1]  # the next read begins at the last state
            raise
        self._frontier = state

    def _boundary(self) -> int:
        """Return where the piece ends that the walk stands in."""
        number = bisect_right(self._starts, self._at)
        return min(self._starts[number], self._stop) if number < len(self._starts) else self._stop

    def _take(self, state: State, out: Bytes1D) -> None:
        fill(state, out)
        self.decoded += len(out)
        self._checksums[self._at, len(out)] = checksum(out)
        self._at += len(out)
        if self._at < self._stop:
            self._keep(state)

    def _keep(self, state: State) -> None:
        """Remember a state; if there are too many, drop every second one."""
        copy = state.copy()
        if self._states and copy.decoded - self._offsets[-1] < max(self._spacing, 1):
            return
        self._offsets.append(copy.decoded)
        self._states.append(copy)
        if len(self._states) > MOST_STATES:
            del self._offsets[1::2], self._states[1::2]
            self._spacing = 2 * self._at // MOST_STATES
