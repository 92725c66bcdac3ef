"""Local chunks: as runs of bytes, by the compiled loop, as windows of tiles, or one by one."""

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from anychunk import limits
from anychunk.codecs.chunk_layout import ShardLayout
from anychunk.decode.chunks import Stored
from anychunk.engine.chunks import decode_chunks
from anychunk.engine.raw import adjacent_runs
from anychunk.engine.request import Request
from anychunk.engine.rows import ABSENT, PLACED, Data, Table, names_of, table_of, table_of_places
from anychunk.engine.threads import INLINE_BYTES, INLINE_COPY, in_threads
from anychunk.io import measuring
from anychunk.io.buffers import MemorySource
from anychunk.io.file import FileSource
from anychunk.io.inside import Walk
from anychunk.io.source import local_path
from anychunk.io.system import HAS_HANDLES
from anychunk.io.threads import run_ranges
from anychunk.model.index import WHOLE, ByteRanges, Objects
from anychunk.native import loops

LEAST_COPIES, LEAST_COPY = 16 << 20, 4 << 20
"""Adjacent uncompressed samples are divided among threads above this, in pieces of this size."""
MANY_BYTES = 4 << 20
"""How many bytes of chunks a thread decodes in one call of the compiled loop."""
FEW_COPIES = 3
"""To copy fewer uncompressed chunks, preparing the loop would cost more than it saves."""


def read_local(request: Request, threads: int) -> None:
    """Read the chunks of a request on at most so many threads."""
    reader, reading, decode = request.reader, request.reading, request.decode
    # before any thread starts: a changed file is one error, not one per thread
    reading.check()
    if reader.windows is not None:
        from anychunk.engine.tiles import read_windows  # with all of JPEG 2000

        if read_windows(request, threads):
            return
    if request.plan is not None and request.plan.is_box and decode.is_view:
        rest = _read_runs(request, threads)
        if rest is not None:
            _read_each(request, rest, threads)
            return
    if decode.shards is not None and request.is_plain and isinstance(reader.chunks, Objects):
        _read_shards(request, decode.shards, reader.chunks, threads)
        return
    table = rows_of(request)
    if table is not None:
        with local_data(request) as data:
            if data is not None:
                for positions, some in data:
                    _read_rows(request, table, positions, some, threads)
                return
    reading.expect(request.numbers)
    _read_each(request, range(len(request)), threads)


def rows_of(request: Request) -> Table | None:
    """Return what the compiled loop needs to place the chunks of a request; None if it cannot."""
    layout, reader = request.decode.layout, request.reader
    if (
        loops is None
        or layout is None
        or not request.is_plain
        or request.recent
        or reader.chunks.fronts
        or layout.nbytes > limits.get().free_bytes
        or (request.decode.is_view and len(request) < FEW_COPIES)
    ):
        return None
    if layout.last and reader.index.shape[-1] % layout.shape[-2]:
        layout = replace(layout, last=())  # tiles, of which the last is whole, unlike strips
    if request.plan is None:
        return table_of_places(layout, request.listed, request.out)
    return table_of(layout, request.plan, request.numbers, request.out, reader.grid)


@contextmanager
def local_data(request: Request) -> "Generator[list[tuple[np.ndarray | None, Data]] | None]":
    """Provide where the bytes of chunks are: positions (None: all) with their data.

    None if chunks are not ranges of mapped files, or files below a folder.
    """
    chunks = request.reader.chunks
    if isinstance(chunks, ByteRanges):
        yield _ranges(request, chunks)
        return
    base, roots = local_path(chunks.base), [local_path(root) for root in chunks.places]
    if not HAS_HANDLES or not chunks.is_sparse:
        yield None
        return
    coords = np.stack(np.unravel_index(request.numbers, request.reader.grid), -1)
    names, offsets = names_of([chunks.name(tuple(one)) for one in coords.tolist()])
    with Walk(roots) as walk:
        try:
            folder = walk.directory(base)
        except OSError:
            yield None  # read by path, which says what is wrong
            return
        lengths = np.zeros(len(offsets), np.uint64)
        yield [(None, Data(names, offsets, lengths, folder, request.reading.most_stored()))]


def _ranges(request: Request, chunks: ByteRanges) -> "list[tuple[np.ndarray | None, Data]] | None":
    numbers, reading = request.numbers, request.reading
    lengths = np.ascontiguousarray(chunks.lengths.reshape(-1)[numbers], np.uint64)
    if not chunks.urls or chunks.parts is not None or (lengths == WHOLE).any():
        return None
    offsets = np.ascontiguousarray(chunks.offsets.reshape(-1)[numbers], np.uint64)
    found: list[tuple[np.ndarray | None, Data]] = []
    ids = None if chunks.url_ids is None else chunks.url_ids.reshape(-1)[numbers]
    for number in [0] if ids is None else np.unique(ids).tolist():
        source = reading.source(chunks.urls[number])
        if not isinstance(source, FileSource | MemorySource):
            return None
        data = Data(source.read(0, source.size()), offsets, lengths)
        if ids is None:
            return [(None, data)]
        positions = np.flatnonzero(ids == number)
        found.append(
            (positions, data._replace(offsets=offsets[positions], lengths=lengths[positions]))
        )
    return found


def _read_rows(
    request: Request, table: Table, positions: "np.ndarray | None", data: Data, threads: int
) -> None:
    """Read chunks by the compiled loop, and what it leaves over one by one."""
    if positions is not None:
        table = table.part(positions)
    count, nbytes = len(data.offsets), request.decode.nbytes

    def run(items: range) -> None:
        part = slice(items.start, items.stop)
        some = data.part(part)
        done = table.part(part).decode(some)
        if data.folder < 0:
            done[some.lengths == 0] = ABSENT
        if (done == PLACED).all():
            return
        at = range(count) if positions is None else positions
        for i in np.flatnonzero(done == ABSENT):
            position = int(at[items.start + int(i)])
            request.fill_absent(position, request.place_of(position)[1])
        left = [
            int(at[items.start + int(i)])
            for i in np.flatnonzero((done != ABSENT) & (done != PLACED))
        ]
        leave(request, left)

    is_little = count * nbytes <= (INLINE_COPY if request.decode.is_view else INLINE_BYTES)
    threads = 1 if is_little else min(threads, count)
    run_ranges(run, count, threads=threads, most=max(1, MANY_BYTES // nbytes))


def _read_shards(request: Request, layout: ShardLayout, chunks: Objects, threads: int) -> None:
    """Read shards that are files, and those that are left over one by one."""
    from anychunk.engine.shards import read_shard  # only Zarr has them

    base, roots = local_path(chunks.base), [local_path(root) for root in chunks.places]
    left = []
    few = len(request) < threads

    def run(items: range) -> None:
        with Walk(roots) as walk:
            for position in items:
                coords = request.reader.coords(int(request.numbers[position]))
                source, target = request.place_of(position)
                try:
                    handle = walk.open(f"{base}/{chunks.name(coords)}")
                except OSError:
                    left.append(position)
                    continue
                try:
                    is_done = read_shard(
                        handle, layout, source, target, out=request.out, fill=request.fill,
                        threads=threads if few else 1,
                    )  # fmt: skip
                finally:
                    os.close(handle)
                if not is_done:
                    left.append(position)

    run_ranges(run, len(request), threads=1 if few else threads, most=4)
    leave(request, left)


def leave(request: Request, positions: Sequence[int]) -> None:
    """Read chunks one by one that a layout has left over."""
    if not positions:
        return
    if measuring.collectors:
        measuring.count(leftover_chunks=len(positions))
    decode_chunks(request, positions, request.reading.stream(request.numbers[list(positions)]))


def _read_each(request: Request, chosen: Sequence[int], threads: int) -> None:
    """Read chunks one by one."""

    def run(items: range) -> None:
        positions = chosen[items.start : items.stop]
        stored = request.reading.stream(request.numbers[list(positions)])
        decode_chunks(request, positions, stored)

    row = request.plan.grid[-1] if request.plan is not None and request.plan.grid else 1
    in_threads(run, len(chosen), request.decode, threads=threads, row=row)


def _read_runs(request: Request, threads: int) -> Sequence[int] | None:
    """Read chunks that follow each other together; return the others, None if few follow."""
    assert request.plan is not None
    reader, dtype = request.reader, request.decode.dtype
    runs = adjacent_runs(reader, request.reading, request.plan, request.numbers, dtype)
    if runs is None:
        return None
    total = request.out.nbytes
    threads = threads if total > LEAST_COPIES else 1
    pieces = list(runs.pieces(total if threads == 1 else max(LEAST_COPY, total // (2 * threads))))

    def copy(positions: range) -> None:
        for run in pieces[positions.start : positions.stop]:
            target = runs.target(run)
            place = request.out[target]
            if measuring.collectors:
                nbytes = place.nbytes
                measuring.count(chunks=run.chunks, stored_bytes=nbytes, decoded_bytes=nbytes)
                is_done = measuring.timed("fetch_seconds", runs.fill, run, place)
            else:
                is_done = runs.fill(run, place)
            if not is_done:
                request.place(target, runs.array(run))

    run_ranges(copy, len(pieces), threads=min(threads, len(pieces)), most=1)
    return runs.rest


class Taken:
    """Decodes chunks of a request whose bytes have arrived."""

    def __init__(self, request: Request) -> None:
        self._request, self._table = request, rows_of(request)

    def chunks(self, positions: Sequence[int], chunks: Iterable[Stored]) -> None:
        """Decode chunks to their places."""
        left = []
        for position, stored in zip(positions, chunks, strict=True):
            if self._table is not None and stored is not None and len(stored):
                data = Data(stored, np.zeros(1, np.uint64), np.array([len(stored)], np.uint64))
                if self._table.part(slice(position, position + 1)).decode(data)[0] == PLACED:
                    continue
                if measuring.collectors:
                    measuring.count(leftover_chunks=1)
            left.append((position, stored))
        if left:
            decode_chunks(self._request, *zip(*left, strict=True))
