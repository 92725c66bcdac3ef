"""The stored bytes of one array's chunks, by chunk number.

Local chunks are slices of a memory map. Remote chunks of one selection are fetched together: ranges
that lie close are read as one request, whatever chunk they belong to. None means that the file
declares the chunk absent; every failure raises.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.errors import TruncatedError, UnsupportedError
from anychunk.io import (
    Bytes1D,
    FileSource,
    MemorySource,
    ObjectBuffer,
    ObjectSource,
    Source,
    Sources,
    Walk,
    is_remote,
    local_path,
    object_size,
    open_source,
    read_object,
)
from anychunk.io.buffers import borrowed
from anychunk.model.grid import Numbers, Shape, chunk_coords, chunk_number
from anychunk.model.index import INLINE, WHOLE, ArrayIndex, ByteRanges, Objects

USUAL_BYTES = 1 << 20
"""Files up to this length are read into memory that is used again."""

type Stored = Bytes1D | None


@runtime_checkable
class HasReaders(Protocol):
    """A store whose chunks the pipeline may read in batches."""

    def chunk_reader(self, path: str) -> "ChunkReader | None": ...


class ChunkReader:
    """Reads chunks of one array, numbered in C order over the grid."""

    def __init__(self, index: ArrayIndex, sources: Sources, *, where: str = "") -> None:
        if not isinstance(index.chunks, ByteRanges | Objects):
            raise UnsupportedError(f"{where}: its chunks are computed, not stored")
        self.index = index
        self.grid = index.grid
        self.chunks = index.chunks
        self.sources = sources
        self.where = where
        urls = index.chunks.urls if isinstance(index.chunks, ByteRanges) else (index.chunks.base,)
        self.is_local = not any(is_remote(url) for url in urls)

    def number(self, coords: Shape) -> int:
        """Return the number of the chunk at `coords`."""
        return chunk_number(coords, self.grid)

    def coords(self, number: int) -> Shape:
        """Return the grid coordinates of chunk `number`."""
        return chunk_coords(number, self.grid)

    def describe(self, number: int) -> str:
        """Name a chunk for an error message."""
        place = f"{self.where} chunk {self.coords(number)}"
        if isinstance(self.chunks, Objects):
            return f"{place}, {self.chunks.name(self.coords(number))}"
        offset, length = self._first_range(number)
        if length == WHOLE:
            return f"{place}, {self.ranges(number)[0][0]}"
        return f"{place}, bytes {offset}..{offset + length}"

    def _first_range(self, number: int) -> tuple[int, int]:
        if isinstance(self.chunks, Objects):
            return 0, int(WHOLE)
        return int(self.chunks.offsets.flat[number]), int(self.chunks.lengths.flat[number])

    def is_absent(self, number: int) -> bool:
        """Whether the index declares the chunk absent, without asking any source."""
        return self._first_range(number)[1] == 0

    def verify(self) -> None:
        """Look once a batch whether the one source was changed; of several, each read looks."""
        if isinstance(self.chunks, ByteRanges) and len(self.chunks.urls) == 1:
            self._source(self.chunks.urls[0])

    def token(self) -> object | None:
        """Look whether the one local file was changed; give what stands for it as it is now.

        None: the chunks have several sources, or one each, and none tells of all.
        """
        if not isinstance(self.chunks, ByteRanges) or len(self.chunks.urls) != 1:
            return None
        source = self._source(self.chunks.urls[0])
        return source.token if isinstance(source, FileSource) else None

    def _source(self, url: str) -> Source:
        """Open a source of this array, and look whether it is still the one that was indexed."""
        if url == INLINE and isinstance(self.chunks, ByteRanges):
            return MemorySource(self.chunks.inline, self.where)
        return self.sources.verify(url)

    def read(self, number: int) -> Stored:
        """Give the stored bytes of one chunk."""
        return self.read_many(np.asarray([number], np.int64))[0]

    def read_many(self, numbers: Numbers) -> list[Stored]:
        """Give the stored bytes of several chunks, one after the other where they are remote."""
        chunks = self.chunks
        if isinstance(chunks, Objects):
            return [self._read_object(chunks, int(n)) for n in numbers]
        offsets = chunks.offsets.reshape(-1)[numbers]
        lengths = chunks.lengths.reshape(-1)[numbers]
        if len(chunks.urls) == 1 and chunks.parts is None and not chunks.fronts:
            source = self._source(chunks.urls[0])
            if source.is_local and not (lengths == WHOLE).any():
                return self._slices(source, numbers, offsets, lengths)
        return [self._assemble(int(n)) for n in numbers]

    def stream(self, numbers: Numbers) -> Iterator[Stored]:
        """Give the stored bytes of several local chunks; each is good until the next is asked for.

        Chunks that are one file each are read into the same memory, one after the other: they stay
        in the cache until they are decoded.
        """
        chunks = self.chunks
        if not isinstance(chunks, Objects):
            yield from self.read_many(numbers)
            return
        most = self._most_stored()
        base = local_path(chunks.base)
        roots = [local_path(root) for root in chunks.places]
        with borrowed("stored", min(most, USUAL_BYTES)) as memory, Walk(roots) as walk:
            buffer = ObjectBuffer(most, memory, walk=walk)
            for number in numbers.tolist():
                path = f"{base}/{chunks.name(self.coords(number))}"
                data = buffer.read(path)
                if data is None:
                    self._check_sparse(chunks, path)
                    yield None
                else:
                    yield join(self.front(number), [data])

    def _most_stored(self) -> int:
        """How long one chunk may be: no compression doubles its size, and types have 16 bytes."""
        return max(limits.get().free_bytes, 32 * math.prod(self.index.chunk_shape))

    def _slices(
        self,
        source: Source,
        numbers: Numbers,
        offsets: npt.NDArray[np.uint64],
        lengths: npt.NDArray[np.uint64],
    ) -> list[Stored]:
        size = source.size()
        beyond = (lengths > 0) & ((offsets > size) | (lengths > size - np.minimum(offsets, size)))
        if beyond.any():
            bad = int(np.flatnonzero(beyond)[0])
            raise TruncatedError(
                f"{self.describe(int(numbers[bad]))}: the object ends after {size} bytes"
            )
        whole = source.read(0, size)
        return [
            whole[offset : offset + length] if length else None
            for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True)
        ]

    def ranges(self, number: int) -> list[tuple[str, int, int]]:
        """Give (url, offset, length) of every part of a chunk; length -1 is the whole object."""
        chunks = self.chunks
        if isinstance(chunks, Objects):
            return [(self._object_url(chunks, number), 0, -1)]
        url = chunks.urls[0 if chunks.url_ids is None else int(chunks.url_ids.flat[number])]
        offset, length = self._first_range(number)
        found = [(url, offset, -1 if length == WHOLE else length)]
        if chunks.parts is not None:
            parts = chunks.parts
            start, stop = int(parts.starts[number]), int(parts.starts[number + 1])
            found += [
                (url, int(parts.offsets[i]), int(parts.lengths[i])) for i in range(start, stop)
            ]
        return found

    def front(self, number: int) -> bytes:
        """Give the inline bytes that a chunk begins with."""
        chunks = self.chunks
        if not chunks.fronts:
            return b""
        return chunks.fronts[0 if chunks.front_ids is None else int(chunks.front_ids.flat[number])]

    def _assemble(self, number: int) -> Stored:
        if self.is_absent(number):
            return None
        pieces = []
        for url, offset, length in self.ranges(number):
            try:
                pieces.append(
                    self._whole(url) if length < 0 else self._source(url).read(offset, length)
                )
            except (TruncatedError, FileNotFoundError) as e:
                raise TruncatedError(f"{self.describe(number)}: {e}") from e
        return join(self.front(number), pieces)

    def _whole(self, url: str) -> Bytes1D:
        data = self.sources.whole(url)
        if data is None:
            raise FileNotFoundError(f"{url}: no such file or object")
        return data

    def _object_url(self, chunks: Objects, number: int) -> str:
        return f"{chunks.base}/{chunks.name(self.coords(number))}"

    def _read_object(self, chunks: Objects, number: int) -> Stored:
        url = self._object_url(chunks, number)
        data = read_object(url, storage=self.sources.storage, roots=chunks.places)
        if data is None:
            self._check_sparse(chunks, url)
            return None
        return join(self.front(number), [data])

    def _check_sparse(self, chunks: Objects, url: str) -> None:
        """Raise where a missing object is a defect, not an absent chunk."""
        if not chunks.is_sparse:
            raise TruncatedError(f"{self.where}: {url} is missing, and every chunk must be there")

    def size(self, number: int) -> int | None:
        """How many bytes a chunk has, without reading it; None: absent."""
        if self.is_absent(number):
            return None
        total = len(self.front(number))
        for url, _, length in self.ranges(number):
            if length >= 0:
                total += length
                continue
            if not isinstance(self.chunks, Objects):
                total += open_source(url, storage=self.sources.storage).size()
                continue
            size = object_size(url, storage=self.sources.storage, roots=self.chunks.places)
            if size is None:
                self._check_sparse(self.chunks, url)
                return None
            total += size
        return total

    async def fetch_many(
        self, numbers: Numbers, deliver: "Callable[[Sequence[int], list[Stored]], None]"
    ) -> None:
        """Fetch remote chunks together; hand each group over as soon as it is complete.

        `deliver(positions, chunks)` runs in a thread. What waits for it is bounded, because a
        request's place is given on only when its chunks were taken.
        """
        absent = [i for i, n in enumerate(numbers) if self.is_absent(int(n))]
        if absent:
            await asyncio.to_thread(deliver, absent, [None] * len(absent))
        gone = set(absent)
        waiting = [
            _Waiting(i, int(n), self.ranges(int(n))) for i, n in enumerate(numbers) if i not in gone
        ]
        bounds = limits.get()
        gate = asyncio.Semaphore(bounds.concurrency)
        async with asyncio.TaskGroup() as tasks:
            requests = coalesce(waiting, gap=bounds.coalesce_gap, cap=bounds.coalesce_cap)
            most = min(bounds.coalesce_join, bounds.coalesce_cap)
            for request in joined(requests, most=most):
                tasks.create_task(self._serve(request, gate, deliver))

    async def _serve(
        self,
        request: "Request",
        gate: asyncio.Semaphore,
        deliver: "Callable[[Sequence[int], list[Stored]], None]",
    ) -> None:
        async with gate:
            data = await self._fetch(request)
            ready = [w for w in request.fill(data) if w.is_complete]
            if ready:
                chunks = [w.join(self.front(w.number)) for w in ready]
                await asyncio.to_thread(deliver, [w.position for w in ready], chunks)

    async def _fetch(self, request: "Request") -> Stored:
        if request.length < 0:
            data = await asyncio.to_thread(self.sources.whole, request.url)
            if data is None and not isinstance(self.chunks, Objects):
                raise FileNotFoundError(f"{request.url}: no such object")
            if data is None:
                self._check_sparse(self.chunks, request.url)  # type: ignore[arg-type]
            return data
        source = self._source(request.url)
        if isinstance(source, ObjectSource):
            return await source.fetch(request.offset, request.length)
        return await asyncio.to_thread(source.read, request.offset, request.length)


def join(front: bytes, pieces: Sequence[Bytes1D]) -> Bytes1D:
    """Concatenate; one piece without a front stays the view that it is."""
    if not front and len(pieces) == 1:
        return pieces[0]
    return np.concatenate([np.frombuffer(front, np.uint8), *pieces])


@dataclass(eq=False)
class _Waiting:
    """One chunk on its way, with the parts that have arrived."""

    position: int
    number: int
    ranges: list[tuple[str, int, int]]
    pieces: dict[int, Stored] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return len(self.pieces) == len(self.ranges)

    def join(self, front: bytes) -> Stored:
        pieces = [self.pieces[i] for i in range(len(self.ranges))]
        present = [piece for piece in pieces if piece is not None]
        return join(front, present) if len(present) == len(pieces) else None


@dataclass(eq=False)
class Request:
    """One contiguous range of one object, wanted by one or several chunks."""

    url: str
    offset: int
    length: int
    wanted: list[tuple[_Waiting, int]]

    def fill(self, data: Stored) -> list[_Waiting]:
        """Give each chunk its pieces of the answer; list every chunk once."""
        for chunk, part in self.wanted:
            _, offset, length = chunk.ranges[part]
            start = offset - self.offset
            chunk.pieces[part] = (
                data if data is None or length < 0 else data[start : start + length]
            )
        return list(dict.fromkeys(chunk for chunk, _ in self.wanted))


def coalesce(waiting: Sequence[_Waiting], *, gap: int, cap: int) -> list[Request]:
    """Join ranges of one object that lie at most `gap` apart, up to `cap` bytes a request."""
    wanted = sorted(
        (
            (url, offset, length, chunk, part)
            for chunk in waiting
            for part, (url, offset, length) in enumerate(chunk.ranges)
        ),
        key=lambda entry: entry[:3],
    )
    requests: list[Request] = []
    for url, offset, length, chunk, part in wanted:
        last = requests[-1] if requests else None
        if last is not None and last.url == url and length >= 0 and last.length >= 0:
            end = max(last.offset + last.length, offset + length)
            if offset <= last.offset + last.length + gap and end - last.offset <= cap:
                last.length = end - last.offset
                last.wanted.append((chunk, part))
                continue
        requests.append(Request(url, offset, length, [(chunk, part)]))
    return requests


def joined(requests: Sequence[Request], *, most: int) -> list[Request]:
    """Join neighbours that are longer than what lies between them, up to `most` bytes a request."""
    found: list[Request] = []
    shortest = 0
    for request in requests:
        last = found[-1] if found else None
        if last is not None and last.url == request.url and min(last.length, request.length) >= 0:
            hole = request.offset - last.offset - last.length
            end = max(last.offset + last.length, request.offset + request.length)
            if hole <= min(shortest, request.length) and end - last.offset <= most:
                last.length = end - last.offset
                last.wanted += request.wanted
                shortest = min(shortest, request.length)
                continue
        found.append(request)
        shortest = request.length
    return found
