"""Bodies of responses: bytes in memory, or a stored chunk that is read while it is sent."""

from dataclasses import dataclass
from typing import Protocol

import xxhash

from anychunk.decode.boxes import located
from anychunk.decode.chunks import ChunkReader
from anychunk.io.file import PreadSource
from anychunk.io.source import Source, is_remote
from anychunk.model.index import INLINE, ByteRanges, Objects

STREAMED_BYTES = 4 << 20
"""Stored chunks of at least this length are read while they are sent."""


class Body(Protocol):
    """The bytes of a response, and their ETag."""

    @property
    def etag(self) -> str: ...
    @property
    def is_in_memory(self) -> bool:
        """Whether `read` returns without I/O."""
        ...

    def __len__(self) -> int: ...
    def read(self, start: int, stop: int) -> bytes | memoryview: ...


@dataclass(frozen=True)
class BytesBody:
    """Bytes in memory."""

    data: bytes | memoryview
    etag: str
    is_in_memory: bool = True

    @classmethod
    def of(cls, data: bytes | memoryview, version: str = "") -> "BytesBody":
        """Return a body whose ETag is a hash of its bytes, and the version of its file if given."""
        digest = xxhash.xxh3_64_hexdigest(data)
        return cls(data, f'"{digest}-{version}"' if version else f'"{digest}"')

    def __len__(self) -> int:
        return len(self.data)

    def read(self, start: int, stop: int) -> bytes | memoryview:
        return memoryview(self.data)[start:stop]


class StoredBody:
    """A stored chunk: its front, which the index holds, and the byte ranges that follow it.

    The ETag is a hash of where the bytes are and of the versions of their sources: a hash of the
    bytes would need all of them before the first one is sent.
    """

    is_in_memory = False

    def __init__(self, reader: ChunkReader, number: int) -> None:
        self._reader, self._where = reader, reader.describe(number)
        self._front = reader.front(number)
        self._parts: list[tuple[Source, int, int]] = []
        for url, offset, length in reader.ranges(number):
            source = self._source(url)
            if isinstance(source, PreadSource):
                source.verify()
            self._parts.append((source, offset, source.size() if length < 0 else length))
        self._size = len(self._front) + sum(length for _, _, length in self._parts)
        version = [
            (source.url, source.pin(), source.pin().identity, offset, length)
            for source, offset, length in self._parts
        ]
        self.etag = f'"{xxhash.xxh3_64_hexdigest(repr((self._front, version)).encode())}"'

    def _source(self, url: str) -> Source:
        chunks = self._reader.chunks
        if isinstance(chunks, Objects) and not is_remote(url):
            return PreadSource(url, roots=chunks.places)
        return self._reader.sources.open(url)

    def __len__(self) -> int:
        return self._size

    def read(self, start: int, stop: int) -> bytes | memoryview:
        pieces = []
        if start < len(self._front):
            pieces.append(self._front[start:stop])
        # `begin` is where each part begins inside the body
        begin = len(self._front)
        for source, offset, length in self._parts:
            low, high = max(start, begin), min(stop, begin + length)
            if low < high:
                with located(lambda: self._where, is_decoding=False):
                    pieces.append(source.read(offset + low - begin, high - low).tobytes())
            begin += length
        return b"".join(pieces)


def stored_body(reader: ChunkReader, number: int) -> Body | None:
    """Return the stored bytes of a chunk, or None if the chunk is absent."""
    size = reader.size(number)
    if size is None:
        return None
    if size >= STREAMED_BYTES and not has_inline_chunks(reader):
        return StoredBody(reader, number)
    with located(lambda: reader.describe(number), is_decoding=False):
        data = reader.read(number)
    return None if data is None else BytesBody.of(memoryview(data))


def has_inline_chunks(reader: ChunkReader) -> bool:
    """Whether the index itself holds the bytes of some chunks."""
    return isinstance(reader.chunks, ByteRanges) and INLINE in reader.chunks.urls
