"""Boxes, single elements, steps, lists and coordinates of one array, into numpy arrays."""

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.chain import Decoder
from anychunk.decode.chunks import ChunkReader, Reading
from anychunk.engine.chunks import RECENT, keep
from anychunk.engine.local import read_local
from anychunk.engine.request import Request
from anychunk.engine.threads import INLINE_BYTES
from anychunk.io import measuring
from anychunk.io.threads import cores, run_ranges
from anychunk.model.grid import Numbers, Plan, Spans, chunk_coords, plan_box

type Array = npt.NDArray[Any]

MOST_NUMBERS = 1 << 20
"""How many numbers of a slice are listed for `Engine.outer`; longer ones are read as a box."""
MOST_AROUND = 64 << 20
"""Coordinates are picked from boxes of at most this many bytes, or of one chunk."""


class Engine:
    """Reads one array whose chunks are all local."""

    def __init__(
        self,
        reader: ChunkReader,
        decode: Decoder,
        fill: Any,
        *,
        order: Any = "C",
        threads: Callable[[], int] = cores,
    ) -> None:
        """Prepare for reading.

        Parameters:
            reader: Of the array.
            decode: Its decoder.
            fill: The value of absent chunks.
            order: Of the axes of results in memory, `C` or `F`.
            threads: How many threads a read may use.
        """
        self.reader, self.decode, self.fill = reader, decode, fill
        self.index = reader.index
        self.shape, self.chunk, self.dtype = (
            reader.index.shape,
            reader.index.chunk_shape,
            decode.dtype,
        )
        self._order, self._threads = order, threads

    def box(self, box: Spans) -> Array:
        """Return a box, given as (start, stop) along each axis."""
        sizes = [stop - start for start, stop in box]
        if 0 in sizes:
            # other axes may announce any number of chunks, which `plan_box` would list
            return np.empty(sizes, self.dtype, self._order)
        plan = plan_box(box, self.chunk)
        numbers = plan.numbers(self.reader.grid)
        self._check_sizes(numbers)
        out = np.empty(sizes, self.dtype, self._order)
        self._read(plan, numbers, out)
        return out

    def outer(self, axes: Sequence[Array]) -> Array:
        """Return the elements at the numbers of each axis: the outer product, as `oindex` does."""
        out = np.empty([len(numbers) for numbers in axes], self.dtype, self._order)
        if not out.size:
            return out
        cuts = [cut(numbers, n) for numbers, n in zip(axes, self.chunk, strict=True)]
        for chosen in blocks(cuts, MOST_AROUND // self.dtype.itemsize):
            plan = Plan(
                tuple(c.chunks[0] for c in chosen),
                tuple([s for s, _ in c.places] for c in chosen),
                tuple([t for _, t in c.places] for c in chosen),
                tuple(len(c.chunks) for c in chosen),
                is_box=False,
            )
            numbers = np.zeros((), np.int64)
            for c, size in zip(chosen, self.reader.grid, strict=True):
                numbers = numbers[..., None] * size + np.array(c.chunks)
            around = np.empty([c.size for c in chosen], self.dtype)
            self._check_sizes(numbers.reshape(-1))
            self._read(plan, numbers.reshape(-1), around)
            for axis, c in enumerate(chosen):
                if len(c.picked) != c.size or (np.diff(c.picked) != 1).any():
                    around = around.take(c.picked, axis)
            out[places_of(chosen)] = around
        return out

    def points(self, coords: Sequence[Array]) -> Array:
        """Return the elements at coordinates: one list of numbers for each axis, all as long."""
        out = np.empty(len(coords[0]), self.dtype)
        grid = self.reader.grid
        at = (
            np.ravel_multi_index(
                [c // n for c, n in zip(coords, self.chunk, strict=True)], grid, mode="raise"
            )
            if len(out)
            else np.empty(0, np.int64)
        )
        order = np.argsort(at, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(at[order])) + 1) if len(out) else []
        reading = self.reader.begin()
        reading.check()
        self._check_sizes(at[[group[0] for group in groups]])

        def run(items: range) -> None:
            for group in groups[items.start : items.stop]:
                number = int(at[group[0]])
                corner = chunk_coords(number, grid)
                inside = [
                    c[group] - i * n for c, i, n in zip(coords, corner, self.chunk, strict=True)
                ]
                out[group] = self._piece(number, inside, reading)

        total = len(groups) * self.decode.nbytes
        threads = 1 if total <= INLINE_BYTES else min(self._threads(), len(groups))
        run_ranges(run, len(groups), threads=threads, most=8)
        return out

    def _piece(self, number: int, inside: Sequence[Array], reading: Reading) -> Array:
        """Return elements of one chunk, from the box around them."""
        corner = chunk_coords(number, self.reader.grid)
        box = [
            (i * n + int(c.min()), i * n + int(c.max()) + 1)
            for i, n, c in zip(corner, self.chunk, inside, strict=True)
        ]
        around = np.empty([stop - start for start, stop in box], self.dtype)
        plan = plan_box(box, self.chunk)
        wanted = self.dtype.itemsize * len(inside[0])
        self._read(plan, [number], around, reading, threads=1, wanted=wanted)
        found: Array = around[tuple(c - c.min() for c in inside)]
        return found

    def _check_sizes(self, numbers: Sequence[int] | Numbers) -> None:
        """Refuse large chunks that are too large for their stored bytes.

        To be called before any memory is allocated for the result.
        """
        if self.decode.nbytes <= limits.get().free_bytes or not self.decode.is_sized:
            return
        for number in numbers:
            stored = self.reader.size(int(number))
            if stored is not None:
                where = self.reader.describe(int(number))
                limits.check_chunk(self.decode.nbytes, where=where, stored=stored)

    def _read(
        self,
        plan: Plan,
        numbers: Sequence[int] | Numbers,
        out: Array,
        reading: Reading | None = None,
        *,
        threads: int | None = None,
        wanted: int | None = None,
    ) -> None:
        """Read a planned box, of which `wanted` bytes are taken, by default all."""
        reading = reading or self.reader.begin()
        keys = self._keys(numbers, out.nbytes if wanted is None else wanted, reading)
        if keys and recall(keys, plan, out):
            return
        request = self._request(plan, numbers, out, reading)
        request.recent = keys
        threads = threads or self._threads()
        if keys and self.decode.layout is not None and not self.decode.has_parts:
            self._read_cells(request, threads)
        else:
            self._read_request(request, threads)

    def _read_request(self, request: Request, threads: int) -> None:
        read_local(request, threads)

    def _request(
        self, plan: Plan, numbers: Sequence[int] | Numbers, out: Array, reading: Reading
    ) -> Request:
        return Request(
            self.reader, reading, self.decode, numbers=numbers, out=out, fill=self.fill, plan=plan
        )

    def _keys(
        self, numbers: Sequence[int] | Numbers, wanted: int, reading: Reading
    ) -> Sequence[Hashable]:
        """Return under which keys decoded chunks are cached; empty if they are not.

        They are if at least half of the decoded bytes remain for later reads, the chunks do not
        fill most of the cache, and decoding does any work.
        """
        decoded = len(numbers) * self.decode.nbytes
        if not 2 * wanted <= decoded <= limits.get().recent_bytes // 2 or self.decode.is_view:
            return ()
        token = reading.token()
        where = self.reader.where
        return () if token is None else [(token, where, int(number)) for number in numbers]

    def _read_cells(self, request: Request, threads: int) -> None:
        """Read whole chunks to memory that is cached, each as a request of its own."""
        request.reading.check()

        def run(items: range) -> None:
            for position in items:
                source, target = request.place_of(position)
                request.place(target, self._cell(request, position)[source])

        count = len(request)
        if count == 1 or count * self.decode.nbytes <= INLINE_BYTES:
            run(range(count))
        else:
            run_ranges(run, count, threads=min(threads, count), most=8)

    def _cell(self, request: Request, position: int) -> Array:
        key, number = request.recent[position], int(request.numbers[position])
        found = RECENT.get(key)
        if found is not None:
            if measuring.collectors:
                measuring.count(cache_hits=1)
            return found
        corner = chunk_coords(number, self.reader.grid)
        sides = zip(corner, self.chunk, self.shape, strict=True)
        box = [(i * n, min((i + 1) * n, size)) for i, n, size in sides]
        memory = np.empty([stop - start for start, stop in box], self.dtype)
        plan = plan_box(box, self.chunk)
        read_local(self._request(plan, [number], memory, request.reading), 1)
        return keep(key, memory)


class Cut:
    """The numbers that are wanted along one axis, by chunk."""

    def __init__(self, numbers: Array, chunk: int, wanted: Any = slice(None)) -> None:
        chunks, group = np.unique(numbers // chunk, return_inverse=True)
        self.chunks = chunks.tolist()
        self.numbers, self.chunk, self.wanted = numbers, chunk, wanted
        firsts = np.full(len(chunks), np.iinfo(np.int64).max)
        lasts = np.zeros(len(chunks), np.int64)
        np.minimum.at(firsts, group, numbers)
        np.maximum.at(lasts, group, numbers)
        lengths = lasts - firsts + 1
        starts = np.cumsum(lengths) - lengths
        self.size = int(lengths.sum())
        self.picked = starts[group] + numbers - firsts[group]
        """Where each number is in the boxes around the numbers of each chunk."""
        inside = (firsts - chunks * chunk).tolist()
        self.places = [
            (slice(i, i + n), slice(s, s + n))
            for i, n, s in zip(inside, lengths.tolist(), starts.tolist(), strict=True)
        ]
        """What is taken of each chunk, and where it goes among those boxes."""


def cut(numbers: Array, chunk: int) -> Cut:
    """Return the numbers along an axis by chunk."""
    return Cut(np.asarray(numbers, np.int64), chunk)


def blocks(cuts: Sequence[Cut], most: int) -> Iterator[list[Cut]]:
    """Divide the cuts of all axes so that the boxes have at most `most` elements, or one chunk."""
    if not cuts:
        yield []
        return
    others = math.prod(c.size for c in cuts[1:])
    for first in parts(cuts[0], max(1, most // others)):
        for rest in blocks(cuts[1:], max(1, most // first.size)):
            yield [first, *rest]


def places_of(cuts: Sequence[Cut]) -> tuple[Any, ...]:
    """Return where the numbers of cuts are in the result."""
    if all(isinstance(c.wanted, slice) for c in cuts[1:]):
        return (cuts[0].wanted,) if cuts else ()
    return np.ix_(
        *(np.arange(len(c.numbers)) if isinstance(c.wanted, slice) else c.wanted for c in cuts)
    )


def parts(whole: Cut, most: int) -> "list[Cut]":
    """Divide a cut into some of which the boxes have at most `most` elements, or one chunk."""
    if whole.size <= most or len(whole.chunks) == 1:
        return [whole]
    found: list[list[int]] = []
    chosen: list[int] = []
    size = 0
    for chunk, (source, _) in zip(whole.chunks, whole.places, strict=True):
        length = source.stop - source.start
        if chosen and size + length > most:
            found.append(chosen)
            chosen, size = [], 0
        chosen.append(chunk)
        size += length
    group = whole.numbers // whole.chunk
    cuts = []
    for some in itertools.chain(found, [chosen]):
        wanted = np.flatnonzero((group >= some[0]) & (group <= some[-1]))
        cuts.append(Cut(whole.numbers[wanted], whole.chunk, wanted))
    return cuts


def recall(keys: Sequence[Hashable], plan: Plan, out: Array) -> bool:
    """Fill `out` from cached chunks; return False, leaving `out` unchanged, if any is missing."""
    found = []
    for key in keys:
        array = RECENT.get(key)
        if array is None:
            return False
        found.append(array)
    if measuring.collectors:
        measuring.count(cache_hits=len(found))
        measuring.timed("copy_seconds", _fill, found, plan, out)
    else:
        _fill(found, plan, out)
    return True


def _fill(found: Sequence[Array], plan: Plan, out: Array) -> None:
    for array, (source, target) in zip(found, plan.places(range(len(found))), strict=True):
        out[target] = array[source]
