"""The stored bytes of one array's chunks, by chunk number.

Local chunks are slices of a memory map. Remote chunks of one selection are fetched together: ranges
that lie close to each other are coalesced into one request, across chunks. None means that the file
declares the chunk absent; every failure raises.
"""

import asyncio
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    MissingFileError,
    TruncatedError,
    UnsupportedError,
)
from anychunk.io.buffers import MemorySource, borrowed, one_piece
from anychunk.io.file import FileSource, ObjectBuffer, stat_pin
from anychunk.io.inside import Walk
from anychunk.io.objects import ObjectSource
from anychunk.io.open_sources import Sources
from anychunk.io.opening import object_size, read_object
from anychunk.io.source import Bytes1D, Source, is_remote, local_path, report_change
from anychunk.model.grid import Numbers, Shape, chunk_coords, chunk_number
from anychunk.model.index import INLINE, PIECE, TILES, WHOLE, ArrayIndex, ByteRanges, Objects

if TYPE_CHECKING:
    from anychunk.codestream.jpeg2000 import Rect
    from anychunk.decode.pieces import PieceReading, Pieces
    from anychunk.decode.windows import Planned, TileWindows

USUAL_BYTES = 1 << 20
"""Files up to this length are read into a reused buffer."""

WHOLE_LENGTH = int(WHOLE)

type Stored = Bytes1D | None
type Deliver = Callable[[Sequence[int], list[Stored]], None]


@runtime_checkable
class HasReaders(Protocol):
    """A store whose chunks the pipeline may read in batches."""

    def chunk_reader(self, path: str) -> "ChunkReader | None": ...


class ChunkReader:
    """Knows where the chunks of one array are stored; `begin` starts reading them."""

    def __init__(self, index: ArrayIndex, sources: Sources, *, where: str = "") -> None:
        if not isinstance(index.chunks, ByteRanges | Objects):
            raise UnsupportedError(f"{where}: its chunks are computed, not stored")
        self.index = index
        self.grid = index.grid
        self.chunks = index.chunks
        self.sources = sources
        if isinstance(index.chunks, Objects):
            self.sources = sources.signed(index.chunks.signed)
        self.where = where
        urls = index.chunks.urls if isinstance(index.chunks, ByteRanges) else (index.chunks.base,)
        self.is_local = not any(is_remote(url) for url in urls)
        self.windows: TileWindows | None = None
        """Plans the bytes of chunks that are parts of JPEG 2000 tiles; None for other chunks."""
        self.pieces: Pieces | None = None
        """The streams whose pieces the chunks are, or None."""
        if index.has_codec(TILES):
            from anychunk.decode import windows  # with all of JPEG 2000

            self.windows = windows.TileWindows.of(index)
        elif index.has_codec(PIECE):
            from anychunk.decode import pieces  # with all seekable streams

            self.pieces = pieces.Pieces.of(self)

    @property
    def damaged_streams(self) -> int:
        """How many of the streams whose pieces the chunks are were found to be damaged."""
        return 0 if self.pieces is None else self.pieces.damaged

    @cached_property
    def has_ranges(self) -> bool:
        """Whether chunks are ranges of larger files, and not objects of their own."""
        chunks = self.chunks
        if not isinstance(chunks, ByteRanges) or not chunks.lengths.size:
            return False
        return bool(chunks.lengths.max() != WHOLE)

    @cached_property
    def inline(self) -> MemorySource:
        """The bytes of chunks that the index itself holds."""
        assert isinstance(self.chunks, ByteRanges)
        return MemorySource(self.chunks.inline, self.where)

    @property
    def ranges_of_one_file(self) -> ByteRanges | None:
        """Where the chunks are if each is one range of the same file, without a front; or None."""
        chunks = self.chunks
        if (
            not isinstance(chunks, ByteRanges)
            or len(chunks.urls) != 1
            or chunks.parts is not None
            or chunks.fronts
        ):
            return None
        return chunks

    def number(self, coords: Shape) -> int:
        """Return the number of the chunk at `coords`."""
        return chunk_number(coords, self.grid)

    def coords(self, number: int) -> Shape:
        """Return the grid coordinates of chunk `number`."""
        return chunk_coords(number, self.grid)

    def describe(self, number: int) -> str:
        """Return the address of a chunk, for error messages."""
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
        """Return whether the index declares the chunk absent, without asking any source."""
        return self._first_range(number)[1] == 0

    def ranges(self, number: int) -> list[tuple[str, int, int]]:
        """Return (url, offset, length) of every part of a chunk; length -1 is the whole object."""
        chunks = self.chunks
        if isinstance(chunks, Objects):
            return [(self.object_url(chunks, number), 0, -1)]
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
        """Return the inline bytes that a chunk begins with."""
        chunks = self.chunks
        if not chunks.fronts:
            return b""
        return chunks.fronts[0 if chunks.front_ids is None else int(chunks.front_ids.flat[number])]

    def object_url(self, chunks: Objects, number: int) -> str:
        """Return the url of a chunk that is a separate object."""
        return f"{chunks.base}/{chunks.name(self.coords(number))}"

    def size(self, number: int) -> int | None:
        """Return the number of stored bytes of a chunk without reading it; None if it is absent."""
        if self.is_absent(number):
            return None
        total = len(self.front(number))
        if self.pieces is not None:
            return total + self.pieces.front(number).size
        for url, _, length in self.ranges(number):
            if length >= 0:
                total += length
                continue
            if not isinstance(self.chunks, Objects):
                total += self.sources.open(url).size()
                continue
            size = object_size(url, storage=self.sources.storage, roots=self.chunks.places)
            if size is None:
                self.check_sparse(self.chunks, url)
                return None
            total += size
        return total

    def check_sparse(self, chunks: Objects, url: str) -> None:
        """Raise if a missing object is an error rather than an absent chunk."""
        if not chunks.is_sparse:
            raise TruncatedError(
                f"{self.where}: {url} is missing, and the format does not allow absent chunks"
            )

    def begin(self) -> "Reading":
        """Begin one read by the caller: every source is checked once, however much is read."""
        chunks = self.chunks
        if isinstance(chunks, Objects) and chunks.pin is not None:
            now = stat_pin(local_path(chunks.document))
            if now is None:
                report_change(chunks.document, "is gone", self.sources.on_change)
            else:
                self.sources.check(chunks.document, chunks.pin, now)
        return Reading(self)

    def read(self, number: int) -> Stored:
        """Return the stored bytes of one chunk, after checking its sources."""
        return self.begin().read(number)

    async def fetch_many(self, numbers: Numbers, deliver: Deliver) -> None:
        """Fetch remote chunks together; deliver each group as soon as it is complete.

        `deliver(positions, chunks)` runs in a thread. Memory is bounded: a request releases
        its slot only when the chunks that it completed have been delivered.
        """
        absent = [i for i, n in enumerate(numbers) if self.is_absent(int(n))]
        if absent:
            await asyncio.to_thread(deliver, absent, [None] * len(absent))
        gone = set(absent)
        reading = self.begin()
        if self.windows is not None:
            wanted = [(i, int(n), None, False) for i, n in enumerate(numbers) if i not in gone]
            await self.fetch_windows(reading, wanted, deliver)
            return
        waiting = [
            _Waiting(i, int(n), self.ranges(int(n))) for i, n in enumerate(numbers) if i not in gone
        ]
        if self.pieces is not None:
            await self._fetch_pieces(reading, waiting, deliver)
            return
        await self._fetch_ranges(reading, waiting, deliver, gap=limits.get().coalesce_gap)

    async def fetch_rows(
        self,
        positions: Sequence[int],
        ranges: Sequence[list[tuple[str, int, int]]],
        deliver: Deliver,
    ) -> None:
        """Fetch some ranges of each of several remote chunks; deliver them joined.

        Ranges are coalesced only if no more is fetched than twice of what they hold.
        """
        waiting = [_Waiting(i, -1, r) for i, r in zip(positions, ranges, strict=True)]
        await self._fetch_ranges(self.begin(), waiting, deliver, gap=0)

    async def _fetch_ranges(
        self, reading: "Reading", waiting: Sequence["_Waiting"], deliver: Deliver, *, gap: int
    ) -> None:
        bounds = limits.get()
        slots = asyncio.Semaphore(bounds.concurrency)
        async with asyncio.TaskGroup() as tasks:
            requests = coalesce(waiting, gap=gap, cap=bounds.coalesce_cap)
            most = min(bounds.coalesce_join, bounds.coalesce_cap)
            for request in joined(requests, most=most):
                tasks.create_task(self._serve(reading, request, slots, deliver))

    async def fetch_windows(
        self,
        reading: "Reading",
        wanted: Sequence[tuple[int, int, "Rect | None", bool]],
        deliver: Deliver,
    ) -> None:
        """Fetch the bytes that parts of remote tiles need, and deliver them as `fetch_many` does.

        Parameters:
            reading: What the sources are checked by.
            wanted: (position, number of the chunk, window or None for all of the chunk, whether to
                fetch the whole tile).
            deliver: Called with positions and the bytes for the codec.
        """
        assert self.windows is not None
        waiting: list[_Waiting] = [
            await asyncio.to_thread(self._waiting, reading, *one) for one in wanted
        ]
        bounds = limits.get()
        slots = asyncio.Semaphore(bounds.concurrency)
        ready = [w for w in waiting if not w.ranges]
        if ready:
            chunks = [w.join(self.front(w.number)) for w in ready]
            await asyncio.to_thread(deliver, [w.position for w in ready], chunks)
        async with asyncio.TaskGroup() as tasks:
            for request in coalesce(waiting, gap=self.windows.gap, cap=bounds.coalesce_cap):
                tasks.create_task(self._serve(reading, request, slots, deliver))

    def _waiting(
        self, reading: "Reading", position: int, number: int, window: "Rect | None", is_whole: bool
    ) -> "_Waiting":
        url, planned = reading.plan(number, window, is_whole=is_whole)
        ranges = [(url, offset, length) for offset, length in planned.ranges]
        return _Waiting(position, number, ranges, planned=planned)

    async def _fetch_pieces(
        self, reading: "Reading", waiting: Sequence["_Waiting"], deliver: Deliver
    ) -> None:
        """Decode pieces of streams, those of one stream in order."""
        streams: dict[tuple[str, int, int], list[_Waiting]] = {}
        for one in waiting:
            streams.setdefault(one.ranges[0], []).append(one)
        slots = asyncio.Semaphore(limits.get().concurrency)

        def run(wanted: list[_Waiting]) -> None:
            reading.expect([w.number for w in wanted])
            for one in wanted:
                deliver([one.position], [reading.read(one.number)])

        async def serve(wanted: list[_Waiting]) -> None:
            async with slots:
                await asyncio.to_thread(run, wanted)

        async with asyncio.TaskGroup() as tasks:
            for wanted in streams.values():
                tasks.create_task(serve(wanted))

    async def _serve(
        self, reading: "Reading", request: "Request", slots: asyncio.Semaphore, deliver: Deliver
    ) -> None:
        async with slots:
            data = await self._fetch(reading, request)
            ready = [w for w in request.fill(data) if w.is_complete]
            if ready:
                chunks = [w.join(self.front(w.number) if w.number >= 0 else b"") for w in ready]
                await asyncio.to_thread(deliver, [w.position for w in ready], chunks)

    async def _fetch(self, reading: "Reading", request: "Request") -> Stored:
        if request.length < 0:
            data = await asyncio.to_thread(self.sources.whole, request.url)
            if data is None and not isinstance(self.chunks, Objects):
                raise MissingFileError(f"{request.url}: no such object")
            if data is None:
                self.check_sparse(self.chunks, request.url)  # type: ignore[arg-type]
            return data
        source = reading.source(request.url)
        if isinstance(source, ObjectSource):
            return await source.fetch(request.offset, request.length)
        return await asyncio.to_thread(source.read, request.offset, request.length)


class Reading:
    """One read by the caller, during which each source is checked against its pin once.

    Shared by the threads that read and decode the chunks of one selection. A file that changes
    in the meantime is noticed by the next read; until then its memory map is consistent only if the
    writer replaced the file instead of overwriting it.
    """

    def __init__(self, chunks: ChunkReader) -> None:
        self._reader = chunks
        self._chunks = chunks.chunks
        self._checked: dict[str, Source] = {}
        self._lock = threading.Lock()
        self._pieces = None if chunks.pieces is None else chunks.pieces.begin(self)

    def expect(self, numbers: Numbers | Sequence[int]) -> None:
        """Say which chunks will be read, before any is: some are cheaper together."""
        if self._pieces is not None:
            self._pieces.expect(numbers)

    def source(self, url: str) -> Source:
        """Open a source of the array; the first call checks that it is what was indexed."""
        found = self._checked.get(url)
        if found is None:
            with self._lock:  # threads that start together must not each look at the file
                found = self._checked.get(url)
                if found is None:
                    found = self._checked[url] = self._open(url)
        return found

    def _open(self, url: str) -> Source:
        if url == INLINE and isinstance(self._chunks, ByteRanges):
            return self._reader.inline
        return self._reader.sources.verify(url)

    def check(self) -> None:
        """Check the source of an array that has only one; others are checked when read."""
        if isinstance(self._chunks, ByteRanges) and len(self._chunks.urls) == 1:
            self.source(self._chunks.urls[0])

    def token(self) -> object | None:
        """Return a token for the current version of the single local file that holds the chunks.

        None if the chunks are in several files or objects; or if a stream whose pieces they are
        was found to be damaged, so that what was cached of it may be wrong.
        """
        if not isinstance(self._chunks, ByteRanges) or len(self._chunks.urls) != 1:
            return None
        if self._reader.damaged_streams:
            return None
        source = self.source(self._chunks.urls[0])
        return source.token if isinstance(source, FileSource) else None

    def read(self, number: int) -> Stored:
        """Return the stored bytes of one chunk."""
        return self.read_many(np.asarray([number], np.int64))[0]

    def read_many(self, numbers: Numbers) -> list[Stored]:
        """Return the stored bytes of several chunks; remote ones are fetched one by one."""
        chunks = self._chunks
        if self._pieces is not None:
            return [self._read_piece(self._pieces, int(n)) for n in numbers]
        if isinstance(chunks, Objects):
            return [self._read_object(chunks, int(n)) for n in numbers]
        if self._reader.windows is not None:
            return [self.read_window(int(n)) for n in numbers]
        if len(numbers) == 1:
            return [self._one(chunks, int(numbers[0]))]
        offsets = chunks.offsets.reshape(-1)[numbers]
        lengths = chunks.lengths.reshape(-1)[numbers]
        if len(chunks.urls) == 1 and chunks.parts is None and not chunks.fronts:
            source = self.source(chunks.urls[0])
            if source.is_local and not (lengths == WHOLE).any():
                return self._slices(source, numbers, offsets, lengths)
        return [self._assemble(int(n)) for n in numbers]

    def _one(self, chunks: ByteRanges, number: int) -> Stored:
        """Return the stored bytes of one chunk, without arrays of one element each."""
        if len(chunks.urls) == 1 and chunks.parts is None and not chunks.fronts:
            source = self.source(chunks.urls[0])
            offset, length = chunks.offsets.item(number), chunks.lengths.item(number)
            if source.is_local and length != WHOLE_LENGTH:
                if length and offset + length > source.size():
                    raise self._truncated(number, source)
                return source.read(offset, length) if length else None
        return self._assemble(number)

    def _truncated(self, number: int, source: Source) -> TruncatedError:
        where = self._reader.describe(number)
        return TruncatedError(f"{where}: the object ends after {source.size()} bytes")

    def plan(
        self, number: int, window: "Rect | None" = None, *, is_whole: bool = False
    ) -> "tuple[str, Planned]":
        """Plan a part of a chunk that is a part of a tile; return its url and the plan.

        Parameters:
            number: The number of the chunk.
            window: In samples of the level, on the reference grid; all of the chunk by default.
            is_whole: Whether to read the whole tile.
        """
        reader = self._reader
        tiles = reader.windows
        assert tiles is not None
        found = reader.ranges(number)
        url = found[0][0]
        ranges = [(offset, length) for _, offset, length in found]
        try:
            if window is None:
                window = tiles.chunk(reader.front(number), reader.index.chunk_shape)
            return url, tiles.plan(self.source(url), ranges, window, is_whole=is_whole)
        except (AnychunkError, FileNotFoundError) as e:
            where = reader.describe(number)
            kind = type(e) if isinstance(e, AnychunkError) else TruncatedError
            raise kind(f"{where}: {e}") from e

    def read_window(
        self,
        number: int,
        window: "Rect | None" = None,
        *,
        is_whole: bool = False,
        has_front: bool = True,
    ) -> Stored:
        """Return the bytes for the codec, of a part of a chunk that is a part of a tile.

        Without the front of the chunk, those of a whole tile need not be copied.
        """
        if self._reader.is_absent(number):
            return None
        url, planned = self.plan(number, window, is_whole=is_whole)
        source = self.source(url)
        found = [source.read(offset, length) for offset, length in planned.ranges]
        front = self._reader.front(number) if has_front else b""
        return join(front, [planned.payload(found)])

    def stream(self, numbers: Numbers) -> Iterator[Stored]:
        """Yield the stored bytes of several local chunks; each is valid until the next.

        Chunks that are one file each are read into the same memory, one after the other, so that
        they are still in the processor's cache when they are decoded.
        """
        chunks = self._chunks
        if self._reader.windows is not None:
            yield from (self.read_window(int(n)) for n in numbers)
            return
        if self._pieces is not None:
            # one at a time: they are decoded, and larger than stored bytes
            yield from (self._read_piece(self._pieces, int(n)) for n in numbers)
            return
        if not isinstance(chunks, Objects):
            yield from self.read_many(numbers)
            return
        most = self.most_stored()
        base = local_path(chunks.base)
        roots = [local_path(root) for root in chunks.places]
        with borrowed("stored", min(most, USUAL_BYTES)) as memory, Walk(roots) as walk:
            buffer = ObjectBuffer(most, memory, walk=walk)
            for number in numbers.tolist():
                path = f"{base}/{chunks.name(self._reader.coords(number))}"
                data = buffer.read(path)
                if data is None:
                    self._reader.check_sparse(chunks, path)
                    yield None
                else:
                    yield join(self._reader.front(number), [data])

    def _read_piece(self, pieces: "PieceReading", number: int) -> Stored:
        if self._reader.is_absent(number):
            return None
        try:
            return pieces.read(number)
        except ChunkDecodeError as e:
            raise ChunkDecodeError(f"{self._reader.describe(number)}: {e}") from e
        except TruncatedError as e:
            raise TruncatedError(f"{self._reader.describe(number)}: {e}") from e

    def most_stored(self) -> int:
        """Return a bound for a stored chunk: twice the decoded size at 16 bytes per element."""
        return max(limits.get().free_bytes, 32 * math.prod(self._reader.index.chunk_shape))

    def _slices(
        self,
        source: Source,
        numbers: Numbers,
        offsets: npt.NDArray[np.uint64],
        lengths: npt.NDArray[np.uint64],
    ) -> list[Stored]:
        whole = self._checked_bytes(source, numbers, offsets, lengths)
        return [
            whole[offset : offset + length] if length else None
            for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True)
        ]

    def _checked_bytes(
        self,
        source: Source,
        numbers: Numbers,
        offsets: npt.NDArray[np.uint64],
        lengths: npt.NDArray[np.uint64],
    ) -> Bytes1D:
        """Return all bytes of a local source, in which all of these chunks end."""
        size = source.size()
        # unsigned arithmetic: `offsets + lengths` of a hostile table would wrap around
        beyond = (lengths > 0) & ((offsets > size) | (lengths > size - np.minimum(offsets, size)))
        if beyond.any():
            raise self._truncated(int(numbers[np.flatnonzero(beyond)[0]]), source)
        return source.read(0, size)

    def _assemble(self, number: int) -> Stored:
        reader = self._reader
        if reader.is_absent(number):
            return None
        pieces = []
        for url, offset, length in reader.ranges(number):
            try:
                pieces.append(
                    self._whole(url) if length < 0 else self.source(url).read(offset, length)
                )
            except (TruncatedError, FileNotFoundError) as e:
                raise TruncatedError(f"{reader.describe(number)}: {e}") from e
        return join(reader.front(number), pieces)

    def _whole(self, url: str) -> Bytes1D:
        data = self._reader.sources.whole(url)
        if data is None:
            raise MissingFileError(f"{url}: no such file or object")
        return data

    def _read_object(self, chunks: Objects, number: int) -> Stored:
        reader = self._reader
        url = reader.object_url(chunks, number)
        data = read_object(url, storage=reader.sources.storage, roots=chunks.places)
        if data is None:
            reader.check_sparse(chunks, url)
            return None
        return join(reader.front(number), [data])


def join(front: bytes, pieces: Sequence[Bytes1D]) -> Bytes1D:
    """Concatenate the parts of a chunk; a single part without a front stays a view."""
    if not front and len(pieces) == 1:
        return pieces[0]
    return one_piece([front, *pieces])


@dataclass(eq=False)
class _Waiting:
    """One chunk that is being fetched, with the parts that have arrived."""

    position: int
    number: int
    """The number of the chunk; -1 if only some ranges of it are fetched."""
    ranges: list[tuple[str, int, int]]
    pieces: dict[int, Stored] = field(default_factory=dict)
    planned: "Planned | None" = None
    """What the parts are joined to, if they are pieces of a tile."""

    @property
    def is_complete(self) -> bool:
        return len(self.pieces) == len(self.ranges)

    def join(self, front: bytes) -> Stored:
        pieces = [self.pieces[i] for i in range(len(self.ranges))]
        present = [piece for piece in pieces if piece is not None]
        if self.planned is not None:
            return join(front, [self.planned.payload(present)])
        return join(front, present) if len(present) == len(pieces) else None


@dataclass(eq=False)
class Request:
    """One contiguous range of one object, which holds parts of one or several chunks."""

    url: str
    offset: int
    length: int
    wanted: list[tuple[_Waiting, int]]

    def fill(self, data: Stored) -> list[_Waiting]:
        """Pass the received bytes to their chunks; return each of these chunks once."""
        for chunk, part in self.wanted:
            _, offset, length = chunk.ranges[part]
            start = offset - self.offset
            chunk.pieces[part] = (
                data if data is None or length < 0 else data[start : start + length]
            )
        return list(dict.fromkeys(chunk for chunk, _ in self.wanted))


def coalesce(waiting: Sequence[_Waiting], *, gap: int, cap: int) -> list[Request]:
    """Join ranges of one object that lie at most `gap` apart, up to `cap` bytes per request."""
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
    """Join requests that are longer than the gap between them, up to `most` bytes per request.

    The rows of a window are such requests: one longer request is cheaper than another round trip.
    """
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
