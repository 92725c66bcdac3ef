"""What answers are made of: bytes at hand, or the stored bytes of a chunk too large for that."""

from dataclasses import dataclass
from typing import Protocol

import xxhash

from anychunk.decode.boxes import located
from anychunk.decode.chunks import ChunkReader
from anychunk.io import Source, is_remote
from anychunk.model.index import INLINE, ByteRanges, Objects
from anychunk.server.sources import ReadFile

LARGE = 4 << 20
"""Stored chunks from this length on are read while they are sent."""


class Body(Protocol):
    """What is sent, and the tag that tells it from any other version."""

    @property
    def etag(self) -> str: ...
    @property
    def is_at_hand(self) -> bool:
        """Whether reading is a slice of memory."""
        ...

    def __len__(self) -> int: ...
    def read(self, start: int, stop: int) -> bytes | memoryview: ...


@dataclass(frozen=True)
class Held:
    """Bytes at hand."""

    data: bytes | memoryview
    etag: str
    is_at_hand: bool = True

    @classmethod
    def of(cls, data: bytes | memoryview) -> "Held":
        return cls(data, f'"{xxhash.xxh3_64_hexdigest(data)}"')

    def __len__(self) -> int:
        return len(self.data)

    def read(self, start: int, stop: int) -> bytes | memoryview:
        return memoryview(self.data)[start:stop]


class Ranges:
    """A stored chunk as its front and the ranges of the objects that hold it."""

    is_at_hand = False

    def __init__(self, reader: ChunkReader, number: int) -> None:
        self._reader, self._where = reader, reader.describe(number)
        self._front = reader.front(number)
        self._parts: list[tuple[Source, int, int]] = []
        for url, offset, length in reader.ranges(number):
            source = self._source(url)
            self._parts.append((source, offset, source.size() if length < 0 else length))
        self._size = len(self._front) + sum(length for _, _, length in self._parts)
        version = [
            (source.url, repr(source.pin()), offset, length)
            for source, offset, length in self._parts
        ]
        self.etag = f'"{xxhash.xxh3_64_hexdigest(repr((self._front, version)).encode())}"'

    def _source(self, url: str) -> Source:
        chunks = self._reader.chunks
        if isinstance(chunks, Objects) and not is_remote(url):
            return ReadFile(url, roots=chunks.places)
        return self._reader.sources.open(url)

    def __len__(self) -> int:
        return self._size

    def read(self, start: int, stop: int) -> bytes | memoryview:
        pieces = []
        if start < len(self._front):
            pieces.append(self._front[start:stop])
        at = len(self._front)
        for source, offset, length in self._parts:
            low, high = max(start, at), min(stop, at + length)
            if low < high:
                with located(lambda: self._where, is_decoding=False):
                    pieces.append(source.read(offset + low - at, high - low).tobytes())
            at += length
        return b"".join(pieces)


def stored_body(reader: ChunkReader, number: int) -> Body | None:
    """Give the stored bytes of a chunk; None where it is absent."""
    size = reader.size(number)
    if size is None:
        return None
    if size >= LARGE and not is_inline(reader):
        return Ranges(reader, number)
    with located(lambda: reader.describe(number), is_decoding=False):
        data = reader.read(number)
    return None if data is None else Held.of(memoryview(data))


def is_inline(reader: ChunkReader) -> bool:
    return isinstance(reader.chunks, ByteRanges) and INLINE in reader.chunks.urls
