"""Records of where pieces of a stream can be decoded from, found by walking it once."""

from bz2 import BZ2Decompressor
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from anychunk import limits
from anychunk.codecs.base import Bytes1D
from anychunk.codecs.seek import deflate, lzw
from anychunk.codecs.seek.deflate import START, Point
from anychunk.codecs.seek.walk import Decoding, State, Stream, checksum, fill, skip, stream_of
from anychunk.errors import ChunkDecodeError

# bzip2 streams in pieces, in order.
#
# Spec: the format of bzip2 1.0 (https://sourceware.org/bzip2); there is no document.
#
# bz2's decoder cannot be copied, and cannot begin at a block. So a copy begins its stream again,
# and
# the range of a piece begins where its stream does. Volumes of several streams, as pbzip2 writes
# them, have as many places to begin at.

BLOCK = 64 << 10
"""Stored bytes that are given to the decoder at a time."""
HEADER = np.frombuffer(b"BZh9", np.uint8)
"""The header for the largest blocks, which is also right for smaller ones. Ranges leave it out, so
that their first eight bytes contain a part of a checksum, by which they differ."""


class Unpacking:
    """A decoder somewhere in a bzip2 volume: a `State`."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.at = self.decoded = 0
        """How many stored bytes the decoder was given, and how many decoded bytes it returned."""
        if not self._begin():
            raise ChunkDecodeError("bzip2: the stream does not begin with BZh")

    def _begin(self) -> bool:
        """Begin the next stream; return False if there is none."""
        head = self.stream.read(self.at, 4).tobytes()
        if len(head) < 4 or head[:3] != b"BZh" or not 0x31 <= head[3] <= 0x39:
            return False
        self.member, self._decoder = (self.at, self.decoded), BZ2Decompressor()
        """Where the current stream begins, in stored and decoded bytes."""
        return True

    def copy(self) -> Self:
        other = type(self).__new__(type(self))
        at, decoded = self.member
        again = {"at": at, "decoded": decoded, "_decoder": BZ2Decompressor()}
        other.__dict__.update(self.__dict__ | again)
        return other

    def advance(self, most: int) -> bytes:
        while not self._decoder.eof or self._begin():
            block = np.empty(0, np.uint8)
            if self._decoder.needs_input:
                block = self.stream.read(self.at, BLOCK)
                if not len(block):
                    raise ChunkDecodeError(f"bzip2: truncated after {self.at} bytes")
            try:
                piece = self._decoder.decompress(block, most)
            except (OSError, ValueError, EOFError) as e:
                raise ChunkDecodeError(f"bzip2: {e}") from e
            # at the end of a stream, some bytes may not be the decoder's
            self.at += len(block) - len(self._decoder.unused_data)
            self.decoded += len(piece)
            if piece:
                return piece
        return b""

    def finish(self) -> None:
        if self.advance(1):
            raise ChunkDecodeError("bzip2: decodes to more bytes than expected")


def decode_range(data: Bytes1D) -> Unpacking:
    """Return a decoder of a range, which begins behind the header of a stream."""
    return Unpacking(stream_of(np.concatenate([HEADER, data])))


COMPRESSIONS = ("gzip", "zlib", "bzip2", "lzw")
SKIPPED = 16 << 20
"""Decoded bytes before the first piece that are passed at a time."""
BEFORE = 192 << 10
"""How many decoded bytes before a piece the search for a point begins."""
MARGIN = 16
"""Stored bytes that a range has more than the walk consumed: decoders differ in what they need."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A piece of a stream: the stored bytes that contain it, and how to decode them."""

    at: int
    """Where the stored bytes begin in the stream."""
    length: int
    bit: int
    """The bit of the first byte where decoding begins; also `STORED` (deflate only) or `START`."""
    stop: int
    """For LZW, the bit, from the first byte on, where decoding ends; 0 for the others."""
    skip: int
    """Decoded bytes that precede the piece."""
    nbytes: int
    checksum: int
    """The CRC-32 of the piece."""
    window: bytes
    """For deflate, the decoded bytes that precede the point, compressed."""


def begin(stream: Stream, compression: str, stop: int, *, padding: int = 0) -> State:
    """Return a decoder at the start of a stream.

    Parameters:
        stream: The stored bytes.
        compression: One of `COMPRESSIONS`.
        stop: How many decoded bytes are needed.
        padding: How many may follow them: none, or exactly as many. Not checked for LZW.
    """
    if compression == "lzw":
        return lzw.Unpacking(stream, stop)
    if compression == "bzip2":
        return Unpacking(stream)
    return deflate.Inflating(stream, compression, padding)


def decode_record(data: Bytes1D, record: Record, compression: str, out: Bytes1D) -> None:
    """Decode a piece from its stored bytes into `out`, and check it.

    Raises:
        ChunkDecodeError: The bytes do not decode, or to something else than when they were indexed.
    """
    total = record.skip + record.nbytes
    if compression == "lzw":
        limits.check_chunk(total, where="lzw", stored=len(data))
        if record.bit == START:
            found = lzw.decode(data, total)[record.skip :]
        else:
            found = lzw.decode_segment(data, bit=record.bit, stop=record.stop, most=total)
            found = found[record.skip :]
        if len(found) != len(out):
            raise ChunkDecodeError(f"lzw: {len(found)} bytes are decoded, expected {len(out)}")
        out[:] = found
    else:
        state: Decoding
        if compression == "bzip2":
            state = decode_range(data)
        else:
            window = deflate.unpack_window(record.window)
            state = deflate.Segment(data, record.bit, window, compression)
        skip(state, record.skip)
        fill(state, out)
    if checksum(out) != record.checksum:
        raise ChunkDecodeError(
            f"{compression}: the checksum of the piece is {checksum(out):08x}, "
            f"expected {record.checksum:08x}"
        )


def find_records(
    stream: Stream, compression: str, cuts: Sequence[int], *, padding: int = 0
) -> list[Record]:
    """Walk a stream and return a record for each of its pieces.

    Parameters:
        stream: The stored bytes.
        compression: One of `COMPRESSIONS`.
        cuts: The decoded offsets where pieces begin, and where the last one ends.
        padding: As of `begin`.

    Raises:
        LimitError: The stream is too short to decode to so many bytes, or a piece is too long.
    """
    limits.check_stream(cuts[-1], where=compression, stored=stream.length)
    longest = max((stop - start for start, stop in pairwise(cuts)), default=0)
    limits.check_chunk(longest, where=compression, stored=stream.length)
    if compression in ("gzip", "zlib"):
        state = deflate.Inflating(stream, compression, padding)
        return list(_deflate_records(state, cuts))
    if compression == "bzip2":
        return list(_bzip2_records(Unpacking(stream), cuts))
    return list(_lzw_records(stream, cuts))


def _deflate_records(state: deflate.Inflating, cuts: Sequence[int]) -> Iterator[Record]:
    stream, compression = state.stream, state.compression
    points = [Point(0, START, 0)]
    tail, before = b"", BEFORE
    # what precedes the first piece may be long, and is not kept
    for start, stop in pairwise((*range(0, cuts[0], SKIPPED), *cuts)):
        out = np.empty(stop - start, np.uint8)
        early = max(0, len(out) - before)
        fill(state, out[:early])
        if stop < cuts[-1]:
            if state.member[0] > points[-1].at:
                points.append(Point(state.member[0], START, state.member[1]))
            seen = (tail + out[max(0, early - deflate.WINDOW) : early].tobytes())[-deflate.WINDOW :]
            point = deflate.find_point(state, seen, state.decoded)
            if point is not None:
                points.append(point)
            if point is None or point.decoded > stop:
                before = min(2 * before, max(BEFORE, len(out) // 2))
        fill(state, out[early:])
        tail = (tail + out[-deflate.WINDOW :].tobytes())[-deflate.WINDOW :]
        if start >= cuts[0] and stop > start:
            end = min(stream.length, state.at + MARGIN)
            yield _checked(stream, compression, points, start=start, out=out, end=end)
        # of those before the next piece, the nearest is needed, and the start in any case
        past = [p for p in points if p.decoded <= stop]
        nearest = max(past, key=lambda p: p.decoded)
        points = [p for p in points if p.decoded > stop or p in (points[0], nearest)]
    state.finish()


def _checked(
    stream: Stream, compression: str, points: Sequence[Point], *, start: int, out: Bytes1D, end: int
) -> Record:
    """Return the record of a piece from the nearest point that it can be decoded from."""
    again = np.empty_like(out)
    for point in sorted(points, key=lambda p: p.decoded, reverse=True):
        if point.decoded > start:
            continue
        record = Record(
            at=point.at,
            length=end - point.at,
            bit=point.bit,
            stop=0,
            skip=start - point.decoded,
            nbytes=len(out),
            checksum=checksum(out),
            window=deflate.pack_window(point.window),
        )
        try:
            decode_record(stream.read(record.at, record.length), record, compression, again)
        except ChunkDecodeError:
            if point.decoded == 0:
                raise
            continue
        return record
    raise ChunkDecodeError(f"{compression}: no point before decoded byte {start}")


def _bzip2_records(state: Unpacking, cuts: Sequence[int]) -> Iterator[Record]:
    skip(state, cuts[0])
    for start, stop in pairwise(cuts):
        at, decoded = state.member
        at += len(HEADER)
        out = np.empty(stop - start, np.uint8)
        fill(state, out)
        yield Record(
            at=at,
            length=state.at - at,
            bit=START,
            stop=0,
            skip=start - decoded,
            nbytes=len(out),
            checksum=checksum(out),
            window=b"",
        )
    state.finish()


def _lzw_records(stream: Stream, cuts: Sequence[int]) -> Iterator[Record]:
    """Yield the records of a stream whose segments are decoded apart."""
    state = lzw.Unpacking(stream, cuts[-1])
    skip(state, cuts[0])
    for start, stop in pairwise(cuts):
        out = np.empty(stop - start, np.uint8)
        bit, decoded = state.position
        fill(state, out)
        end, at = state.end, bit >> 3
        length = stream.length - at
        if end:
            length = min(length, -(-end // 8) - at)
        record = Record(
            at=at,
            length=length,
            bit=bit & 7 if end >= 0 else START,
            stop=end - 8 * at if end > 0 else 0,
            skip=start - decoded,
            nbytes=len(out),
            checksum=checksum(out),
            window=b"",
        )
        decode_record(stream.read(at, length), record, "lzw", np.empty_like(out))
        yield record
    state.finish()
