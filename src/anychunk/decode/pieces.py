"""Pieces of compressed streams: chunks that are cut from a stream as it is decoded.

The index gives every such chunk the whole stream, and a front that says which piece it is
(`anychunk.piece`). Here each stream is decoded once, in order, and leaves states from which pieces
are decoded again. What is passed on is the decoded piece, with a front that says so.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from anychunk import limits
from anychunk.codecs import streams
from anychunk.codecs.seek.points import begin
from anychunk.codecs.seek.walk import Stream, Verdict, Walker
from anychunk.codecs.tiff.decoders import inflate
from anychunk.errors import ChunkDecodeError, MissingFileError
from anychunk.io.forking import Lock, in_child
from anychunk.io.source import Bytes1D, Source, is_remote
from anychunk.model.fronts import DECODED, FRONT, Front, read_front
from anychunk.model.index import PIECE, ArrayIndex, ByteRanges

if TYPE_CHECKING:
    from anychunk.decode.chunks import ChunkReader, Reading

AHEAD = limits.MIB
"""The bytes of a remote stream that one request fetches."""
MOST_WHOLE = 512 * limits.MIB
"""Streams up to this decoded length are decoded at once if most of their pieces are wanted: that is
faster, but takes as much memory again as the result."""
MOST_CHECKED = 256 * limits.MIB
"""Local streams up to this decoded length are read to their end by the first read of any piece: its
checksum, which is there, covers every sample. Longer and remote ones are not."""
MOST_WALKERS = 64
"""Streams of one array whose states are kept."""

type Key = tuple[str, int, int, object]
"""A stream: url, offset, length and version of its file."""


def compression_of(index: ArrayIndex) -> str | None:
    """Return the compression of the streams that an array's chunks are pieces of, or None.

    None also if the chunks are ranges that can be decoded apart, by seek points.
    """
    if not isinstance(index.chunks, ByteRanges) or not index.chunks.fronts:
        return None
    for codec in index.codecs:
        if isinstance(codec, dict) and codec.get("name") == PIECE:
            configuration = codec.get("configuration", {})
            return None if "points" in configuration else configuration.get("compression")
    return None


def is_checked_late(index: ArrayIndex) -> bool:
    """Return whether pieces of an array are read before the checksum of their stream is known."""
    if compression_of(index) in (None, "lzw") or not isinstance(index.chunks, ByteRanges):
        return False
    longest = max(read_front(front).stop for front in index.chunks.fronts)
    return longest > MOST_CHECKED or any(map(is_remote, index.chunks.urls))


class Pieces:
    """The streams of one array, with their states."""

    @classmethod
    def of(cls, reader: "ChunkReader") -> "Pieces | None":
        """Return the streams of an array; None if its chunks are not pieces of any."""
        compression = compression_of(reader.index)
        return None if compression is None else cls(reader, compression)

    def __init__(self, reader: "ChunkReader", compression: str) -> None:
        self._reader, self.compression = reader, compression
        self._walkers: OrderedDict[Key, Walker] = OrderedDict()
        self._verdicts: dict[Key, Verdict] = {}
        self._lock = Lock()
        in_child(self._forget_states)

    @cached_property
    def starts(self) -> Sequence[int]:
        """Where pieces begin, in decoded bytes, in order."""
        return sorted({read_front(f).start for f in self._reader.chunks.fronts})

    @cached_property
    def _most(self) -> int:
        """The decoded length of the longest stream."""
        return max(read_front(f).stop for f in self._reader.chunks.fronts)

    @property
    def damaged(self) -> int:
        """How many streams are known to be damaged."""
        with self._lock:
            return sum(verdict.damage is not None for verdict in self._verdicts.values())

    def begin(self, reading: "Reading") -> "PieceReading":
        """Begin one read by the caller."""
        return PieceReading(self, reading)

    def _forget_states(self) -> None:
        # in a forked child: a thread of the parent may have been decoding
        self._walkers.clear()

    def verdict(self, key: Key) -> Verdict:
        """Return what is known about a stream; it outlives the states of its walker."""
        with self._lock:
            return self._verdicts.setdefault(key, Verdict())

    def padding(self, stop: int) -> int:
        """Return how many bytes may follow the last piece of a stream.

        The last strip of a TIFF page may have as many rows as the others.
        """
        return self._most - stop

    def front(self, number: int) -> Front:
        """Return the front of a chunk."""
        return read_front(self._reader.front(number))

    def place(self, number: int, reading: "Reading") -> tuple[Key, Source]:
        """Return the stream of a chunk, and the source that holds it."""
        url, offset, length = self._reader.ranges(number)[0]
        try:
            source = reading.source(url)
        except FileNotFoundError as e:
            raise MissingFileError(f"{self._reader.describe(number)}: {e}") from e
        if length < 0:
            length = source.size() - offset
        return (url, offset, length, source.token), source

    def walker(self, key: Key, source: Source, stop: int) -> Walker:
        """Return the walker of a stream, with what it remembers of it."""
        verdict, padding = self.verdict(key), self.padding(stop)
        with self._lock:
            found = self._walkers.get(key)
            if found is None:
                stream = stream_in(source, key)
                found = self._walkers[key] = Walker(
                    lambda: begin(stream, self.compression, stop, padding=padding),
                    starts=self.starts,
                    stop=stop,
                    verdict=verdict,
                )
            self._walkers.move_to_end(key)
            while len(self._walkers) > MOST_WALKERS:
                self._walkers.popitem(last=False)
            return found


def stream_in(source: Source, key: Key) -> Stream:
    """Return the stream of `key`, read from its source."""
    _, offset, length, _ = key
    ahead = 0 if source.is_local else AHEAD
    return Stream(lambda at, count: source.read(offset + at, count), length, ahead=ahead)


class PieceReading:
    """The pieces that one read of the caller takes."""

    def __init__(self, pieces: Pieces, reading: "Reading") -> None:
        self._pieces, self._reading = pieces, reading
        self._wanted: Counter[Key] = Counter()
        self._wholes: dict[Key, Bytes1D | None] = {}
        self._lock = threading.Lock()

    def expect(self, numbers: Any) -> None:
        """Say which chunks will be read."""
        if len(numbers) > 1:
            for number in numbers:
                self._wanted[self._pieces.place(int(number), self._reading)[0]] += 1

    def read(self, number: int) -> Bytes1D:
        """Return a decoded piece with its front."""
        pieces = self._pieces
        front = pieces.front(number)
        key, source = pieces.place(number, self._reading)
        limits.check_chunk(front.size, where=PIECE, stored=key[2])
        limits.check_stream(front.stop, where=PIECE, stored=key[2])
        pieces.verdict(key).check()
        stored = np.empty(FRONT.size + front.size, np.uint8)
        decoded = Front(DECODED, front.start, front.nbytes, front.size, front.stop)
        stored[: FRONT.size] = np.frombuffer(decoded.pack(), np.uint8)
        end = FRONT.size + front.nbytes
        stored[end:] = 0
        whole = self._whole(key, source, front.stop)
        if whole is not None:
            stored[FRONT.size : end] = whole[front.start : front.start + front.nbytes]
        else:
            walker = pieces.walker(key, source, front.stop)
            # LZW has no checksum; if a stream was not decoded at once, its end may say why
            to_end = key in self._wholes or (source.is_local and front.stop <= MOST_CHECKED)
            to_end &= pieces.compression != "lzw"
            walker.read(front.start, stored[FRONT.size : end], to_end=to_end)
        return stored

    def _whole(self, key: Key, source: Source, stop: int) -> Bytes1D | None:
        """Return the decoded stream, if most of it is wanted and that is faster."""
        # pieces of bzip2 are found by decoding from the start
        is_bzip2 = self._pieces.compression == "bzip2"
        least = 2 if is_bzip2 else max(2, len(self._pieces.starts) // 2)
        if self._pieces.compression == "lzw" or self._wanted[key] < least or stop > MOST_WHOLE:
            return None
        with self._lock:
            if key not in self._wholes:
                whole = self._wholes[key] = self._decode(key, source, stop)
                if whole is not None:
                    self._pieces.verdict(key).is_sound = True
            return self._wholes[key]

    def _decode(self, key: Key, source: Source, stop: int) -> Bytes1D | None:
        """Decode a whole stream by the fastest decoder; None if anything about it is unusual."""
        limits.check_chunk(stop, where=PIECE, stored=key[2])
        data = source.read(key[1], key[2])
        out = np.empty(stop, np.uint8)
        try:
            if self._pieces.compression != "zlib":
                return streams.DECODE[self._pieces.compression](data, stop, out)
            found = inflate(data, out)
        except ChunkDecodeError:
            return None
        return found if len(found) == stop else None
