"""bzip2 streams in pieces, in order.

Spec: the format of bzip2 1.0 (https://sourceware.org/bzip2); there is no document.

bz2's decoder cannot be copied, and cannot begin at a block. So a copy begins its stream again, and
the range of a piece begins where its stream does. Volumes of several streams, as pbzip2 writes
them, have as many places to begin at.
"""

from bz2 import BZ2Decompressor
from typing import Self

import numpy as np

from anychunk.codecs.base import Bytes1D
from anychunk.codecs.seek.walk import Stream, stream_of
from anychunk.errors import ChunkDecodeError

BLOCK = 64 << 10
"""Stored bytes that are given to the decoder at a time."""
HEADER = np.frombuffer(b"BZh9", np.uint8)
"""The header for the largest blocks, which is right for smaller ones, too. Ranges leave it out, so
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
