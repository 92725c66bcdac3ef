"""Read selections of arrays whose chunks are parts of large tiles.

Chunk by chunk, a selection of several chunks of one tile would decode what they share several
times, and a small part of a chunk would cost a whole one. So the selection itself is planned: what
it takes of each tile is one window, in pieces if it is large, or the whole tile from about half of
it on.
"""

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.jpeg2000.tiles import bands_first
from anychunk.codecs.jpeg2000.windows import FRONT, decode_window
from anychunk.codestream.jpeg2000 import Rect
from anychunk.decode.boxes import located
from anychunk.decode.chunks import Stored
from anychunk.decode.windows import PIECE, pieces
from anychunk.engine.chunks import RECENT, TOUCHED
from anychunk.engine.request import Request, Selector
from anychunk.errors import ChunkDecodeError, LimitError
from anychunk.io import measuring
from anychunk.io.cache import Cache
from anychunk.io.source import Bytes1D
from anychunk.io.threads import cores, run_ranges
from anychunk.model.grid import Numbers

type Array = npt.NDArray[Any]

MARGIN = 128
"""What decoding a part costs in addition, in rows and columns: code-blocks are decoded whole."""


@dataclass(eq=False)
class _Member:
    """One chunk of the selection."""

    position: int
    number: int
    source: tuple[Any, ...]
    target: Selector
    chunk: Rect
    """The window of the chunk, in samples of the level on the reference grid."""
    need: Rect
    """The part of it that is decoded."""
    key: Hashable = None
    """Under which the chunk is cached; None: it is not."""


@dataclass(eq=False)
class _Group:
    """What a selection takes of one tile."""

    members: list[_Member] = field(default_factory=list)
    buffer: Array | None = None

    @property
    def window(self) -> Rect:
        needs = [member.need for member in self.members]
        return Rect(
            min(n.x0 for n in needs),
            min(n.y0 for n in needs),
            max(n.x1 for n in needs),
            max(n.y1 for n in needs),
        )


@dataclass(eq=False)
class Task:
    """One window that is decoded at once."""

    group: _Group
    window: Rect
    is_whole: bool
    """Whether the whole tile is decoded for it."""
    is_walked: bool
    """Whether its packets have been walked."""

    @property
    def number(self) -> int:
        """The number of a chunk in the tile."""
        return self.group.members[0].number


def read_windows(request: Request, threads: int) -> bool:
    """Read a selection of parts of local tiles; return False if it cannot be planned as boxes."""
    work = WindowRead(request, RECENT)
    tasks = work.plan(request.numbers, request.places(range(len(request))))
    if tasks is None:
        return False

    def run(positions: range) -> None:
        for position in positions:
            work.read(tasks[position])

    run_ranges(run, len(tasks), threads=min(threads, len(tasks)), most=1)
    work.finish()
    return True


async def fetch_windows(request: Request) -> bool:
    """Read a selection of parts of tiles; return False if it cannot be planned as boxes."""
    work = WindowRead(request)
    places = list(request.places(range(len(request))))
    tasks = await asyncio.to_thread(work.plan, request.numbers, places)
    if tasks is None:
        return False

    def deliver(positions: Sequence[int], chunks: list[Stored]) -> None:
        for position, stored in zip(positions, chunks, strict=True):
            if stored is not None:
                work.decode(tasks[position], stored)

    wanted = [(i, task.number, task.window, task.is_whole) for i, task in enumerate(tasks)]
    await request.reader.fetch_windows(request.reading, wanted, deliver)
    await asyncio.to_thread(work.finish)
    return True


class WindowRead:
    """One selection, planned and decoded."""

    def __init__(self, request: Request, recent: Cache[Array] | None = None) -> None:
        """`recent` is where chunks are kept of which several parts were read."""
        reader = request.reader
        assert reader.windows is not None
        self._target, self._reader, self._reading = request, reader, request.reading
        self._windows, self._recent = reader.windows, recent
        self._bands, self._height, self._width = bands_first(reader.index.chunk_shape)
        self._groups: dict[Hashable, _Group] = {}
        self._threads = 1
        self._dtype = self._windows.codec.header.siz.dtype.newbyteorder("=")

    def plan(self, numbers: Numbers, places: Iterable[tuple[Any, Any]]) -> list[Task] | None:
        """Return what is to be decoded; None if the selection has to be read chunk by chunk."""
        listed = list(zip(numbers.tolist(), places, strict=True))
        if not all(_is_box(source) for _, (source, _) in listed):
            return None
        for position, (number, (source, target)) in enumerate(listed):
            self._add(position, number, source, target)
        tasks = []
        for owner, group in list(self._groups.items()):
            if _is_scattered(group):
                # as where single rows and columns are taken
                del self._groups[owner]
                for member in group.members:
                    self._groups[owner, member.position] = _Group([member])
        for group in self._groups.values():
            tasks += self._tasks(group)
        self._threads = min(4, cores()) if len(tasks) == 1 else 1
        return tasks

    def _add(self, position: int, number: int, source: tuple[Any, ...], target: Selector) -> None:
        reader, place = self._reader, self._target
        if reader.is_absent(number):
            place.out[target] = place.fill
            place.missing.append(position)
            return
        key = place.recent[position] if place.recent else None
        if key is not None and self._recent is not None:
            kept = self._recent.get(key)
            if kept is not None:
                if measuring.collectors:
                    measuring.count(cache_hits=1)
                place.place(target, kept[source])
                return
        with located(lambda: reader.describe(number)):
            chunk = self._windows.chunk(reader.front(number), (self._height, self._width))
        y0, y1 = _span(source[-2], chunk.height)
        x0, x1 = _span(source[-1], chunk.width)
        need = Rect(chunk.x0 + x0, chunk.y0 + y0, chunk.x0 + x1, chunk.y0 + y1)
        if y0 >= y1 or x0 >= x1:
            return
        if key is not None:
            spent = (TOUCHED.get(key) or 0) + (need.width + MARGIN) * (need.height + MARGIN)
            if spent >= chunk.width * chunk.height:
                need = chunk
            else:
                TOUCHED.put(key, spent, 64)
                key = None
        owner = tuple(reader.ranges(number))
        group = self._groups.setdefault(owner, _Group())
        group.members.append(_Member(position, number, source, target, chunk, need, key))

    def _tasks(self, group: _Group) -> list[Task]:
        reader, first = self._reader, group.members[0]
        url = reader.ranges(first.number)[0][0]
        ranges = [(offset, length) for _, offset, length in reader.ranges(first.number)]
        window = group.window
        with located(lambda: reader.describe(first.number), is_decoding=False):
            known = self._windows.known(self._reading.source(url), ranges, window)
        tile = self._windows.tile_area(known.tile)
        share = window.width * window.height / max(1, tile.width * tile.height)
        is_coarse = self._windows.codec.resolution_level > 0
        is_large = window.width * window.height > PIECE * PIECE
        # a coarse level has few of the tile's code-blocks, but a local one is there anyway
        is_whole = share >= 1 / 2 and (not is_coarse or (is_large and reader.is_local))
        group.buffer = self._buffer(group, window)
        is_walked = known.table is not None
        is_whole |= not is_walked
        return [
            Task(group, piece, is_whole, is_walked)
            for piece in ([window] if is_whole else pieces(window))
        ]

    def _buffer(self, group: _Group, window: Rect) -> Array:
        """Return where the window is decoded to: the result itself, if it is exactly that."""
        target, shape = self._target, (self._bands, window.height, window.width)
        nbytes = self._bands * window.height * window.width * self._dtype.itemsize
        limits.check_chunk(nbytes, where=self._reader.where)
        out = target.out
        if (
            target.is_plain
            and len(self._groups) == 1
            and isinstance(out, np.ndarray)
            and out.dtype == self._dtype
            and out.flags.c_contiguous
            and out.size == self._bands * window.height * window.width
            and out.shape[-2:] == shape[-2:]
            and not any(member.key is not None for member in group.members)
        ):
            return out.reshape(shape)
        return np.empty(shape, self._dtype)

    def read(self, task: Task) -> None:
        """Read and decode one task from a local source."""
        get = self._reading.read_window
        if measuring.collectors:
            get = partial(measuring.timed, "fetch_seconds", get)
        payload = get(task.number, task.window, is_whole=task.is_whole, has_front=False)
        assert payload is not None
        self._measured(task, payload)

    def decode(self, task: Task, payload: Bytes1D) -> None:
        """Decode one task into the buffer of its group, from bytes with the front of its chunk."""
        self._measured(task, payload[FRONT.size :])

    def _measured(self, task: Task, payload: Bytes1D) -> None:
        if measuring.collectors:
            size = task.window.width * task.window.height * self._bands * self._dtype.itemsize
            measuring.count(chunks=1, stored_bytes=len(payload), decoded_bytes=size)
            measuring.timed("decode_seconds", self._decode, task, payload)
        else:
            self._decode(task, payload)

    def _decode(self, task: Task, payload: Bytes1D) -> None:
        codec, group = self._windows.codec, task.group
        assert group.buffer is not None
        corner, window = group.window, task.window
        y, x = window.y0 - corner.y0, window.x0 - corner.x0
        place = group.buffer[:, y : y + window.height, x : x + window.width]
        level = codec.resolution_level
        with located(lambda: self._reader.describe(task.number)):
            view = memoryview(payload)
            try:
                decode_window(
                    codec.header,
                    level,
                    view,
                    window,
                    place,
                    is_walked=task.is_walked,
                    threads=self._threads,
                )
            except (ChunkDecodeError, LimitError):
                if task.is_whole:
                    raise
                # some streams decode only as a whole, such as samples of 30 bits
                whole = self._reading.read_window(
                    task.number, window, is_whole=True, has_front=False
                )
                assert whole is not None
                decode_window(codec.header, level, memoryview(whole), window, place)

    def finish(self) -> None:
        """Copy what was decoded to its place in the result."""
        for group in self._groups.values():
            buffer = group.buffer
            assert buffer is not None
            if np.may_share_memory(buffer, self._target.out):
                continue
            corner = group.window
            for member in group.members:
                self._keep(member, buffer, corner)
                y, x = member.chunk.y0 - corner.y0, member.chunk.x0 - corner.x0
                lead = buffer.reshape(*self._reader.index.chunk_shape[:-2], *buffer.shape[-2:])
                inside = (
                    _moved(member.source[-2], y, member.chunk.height),
                    _moved(member.source[-1], x, member.chunk.width),
                )
                self._target.place(member.target, lead[(*member.source[:-2], *inside)])

    def _keep(self, member: _Member, buffer: Array, corner: Rect) -> None:
        """Cache a whole chunk of which several parts were read."""
        if member.key is None or self._recent is None:
            return
        chunk = member.chunk
        y, x = chunk.y0 - corner.y0, chunk.x0 - corner.x0
        shape = self._reader.index.chunk_shape
        kept = np.full((self._bands, self._height, self._width), self._target.fill, self._dtype)
        kept[:, : chunk.height, : chunk.width] = buffer[
            :, y : y + chunk.height, x : x + chunk.width
        ]
        kept = kept.reshape(shape)
        kept.flags.writeable = False
        self._recent.put(member.key, kept, kept.nbytes)


def _is_scattered(group: _Group) -> bool:
    window = group.window
    used = sum(member.need.width * member.need.height for member in group.members)
    return len(group.members) > 1 and 2 * used < window.width * window.height


def _is_box(source: Any) -> bool:
    """Return whether the part of a chunk that is taken is a box along the last two axes."""
    return (
        type(source) is tuple
        and len(source) >= 2
        and all(
            type(part) is int or (type(part) is slice and part.step in (None, 1))
            for part in source[-2:]
        )
        and all(type(part) in (int, slice) for part in source)
    )


def _span(part: int | slice, size: int) -> tuple[int, int]:
    if isinstance(part, slice):
        start, stop, _ = part.indices(size)
        return start, stop
    return part, part + 1


def _moved(part: int | slice, by: int, size: int) -> int | slice:
    start, stop = _span(part, size)
    return slice(start + by, stop + by) if isinstance(part, slice) else start + by
