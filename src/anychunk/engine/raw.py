"""Uncompressed chunks that follow each other in the file and in the result are copied together.

Contiguous strips are cut into chunks of about a megabyte. What surrounds the copy of one of them
costs about as much as the copy, if the memory of the result is in use already. Here such chunks are
one larger array, longer along the axis that is the first one in the file, and divided among threads
by its size instead of by chunks.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anychunk.decode.chunks import ChunkReader, Reading
from anychunk.decode.rows import RawLayout, raw_layout
from anychunk.io import copying
from anychunk.io.buffers import MemorySource
from anychunk.io.file import FileSource
from anychunk.model.grid import FEW, Numbers, Plan, Shape, chunk_coords
from anychunk.native import loops

type Array = npt.NDArray[Any]

LEAST_FILL = 1 << 20
"""Less is copied from the map: opening the file again would cost more."""
PAGE, TOO_NEAR = 4096, 32
"""Where an operating system copies by one instruction, some processors of AMD take four times as
long if the memory is fewer bytes than this ahead of the source, apart from whole pages."""


class Run(NamedTuple):
    """What is copied at once of one chunk, or of several."""

    position: int
    """Of the first chunk in the plan."""
    chunks: int
    start: int
    """Where it begins in the file."""
    row: int
    """Where it goes in the result, along the axis that chunks follow each other along."""
    rows: int


@dataclass(frozen=True)
class Runs:
    """The runs of a selection."""

    plan: Plan
    layout: RawLayout
    axis: int
    """Along which chunks follow each other."""
    source: FileSource | MemorySource
    found: list[Run]
    rest: list[int]
    """The positions of chunks that are in no run."""

    @property
    def row_bytes(self) -> int:
        """The bytes of one row, which is what a chunk has at one place of the axis."""
        chunk = self.layout.chunk[self.layout.order.index(self.axis)]
        return self.layout.dtype.itemsize * math.prod(self.layout.chunk) // chunk

    def pieces(self, most: int) -> Iterator[Run]:
        """Yield all runs, in pieces of at most `most` bytes, but at least one row."""
        step = max(1, most // self.row_bytes)
        for run in self.found:
            for row in range(0, run.rows, step):
                start, rows = run.start + row * self.row_bytes, min(step, run.rows - row)
                # all chunks of a run are counted with its first piece
                chunks = 0 if row else run.chunks
                yield Run(run.position, chunks, start, run.row + row, rows)

    def target(self, run: Run) -> tuple[slice, ...]:
        """Return the box of the result that a run goes to."""
        place = chunk_coords(run.position, self.plan.grid)
        found = [targets[i] for targets, i in zip(self.plan.targets, place, strict=True)]
        found[self.axis] = slice(run.row, run.row + run.rows)
        return tuple(found)

    def array(self, run: Run) -> Array:
        """Return the samples, a view of the file."""
        layout = self.layout
        shape = [
            run.rows if axis == self.axis else n
            for n, axis in zip(layout.chunk, layout.order, strict=True)
        ]
        data = self.source.read(run.start, run.rows * self.row_bytes)
        array = data.view(layout.dtype).reshape(shape)
        return array.transpose([layout.order.index(i) for i in range(len(shape))])

    def fill(self, run: Run, out: Array) -> bool:
        """Read straight to the place in the result; return False if it is to be copied there."""
        return (
            out.nbytes >= LEAST_FILL
            and isinstance(self.source, FileSource)
            and self.layout.order[-1] == len(self.layout.order) - 1
            and self.layout.dtype == out.dtype
            and out.flags.c_contiguous
            and not is_slow(out.ctypes.data, run.start)
            and self.source.fill(memoryview(out.reshape(-1).view(np.uint8)), run.start)
        )


def is_slow(address: int, offset: int) -> bool:
    """Return whether some processors read a file slowly from this offset to this memory.

    So are data that libtiff wrote, from offset 8 on: numpy's memory is 16 bytes from the start of a
    page.
    """
    return 0 < (address - offset) % PAGE < TOO_NEAR


def adjacent_runs(
    reader: ChunkReader, reading: Reading, plan: Plan, numbers: Numbers, dtype: np.dtype[Any]
) -> Runs | None:
    """Return the runs of a selection; None if chunks are to be read one by one.

    Whatever is doubtful, such as a chunk beyond the end of the file, is in no run.

    Parameters:
        reader: Of a local array whose chunks are not compressed.
        reading: What the source is checked by.
        plan: The selection.
        numbers: The chunk numbers of the plan.
        dtype: The data type of the array.
    """
    chunks = reader.ranges_of_one_file
    if chunks is None:
        return None
    layout = raw_layout(reader.index, dtype)
    axis = None if layout is None else joining_axis(layout, plan)
    source = reading.source(chunks.urls[0])
    if layout is None or axis is None or not isinstance(source, FileSource | MemorySource):
        return None
    # lists: for a few chunks, arrays would cost more than they save
    offsets = chunks.offsets.reshape(-1)[numbers].tolist()
    lengths = chunks.lengths.reshape(-1)[numbers].tolist()
    nbytes, size = layout.dtype.itemsize * math.prod(layout.chunk), source.size()
    starts = [
        offset if length == nbytes and offset + nbytes <= size else None
        for offset, length in zip(offsets, lengths, strict=True)
    ]
    if 2 * starts.count(None) > len(starts):
        return None
    row = nbytes // layout.chunk[layout.order.index(axis)]
    found = list(join_rows(starts, plan.sources[axis], plan.targets[axis], row))
    if len(found) > max(FEW, len(starts) // 2):
        return None
    rest = [position for position, start in enumerate(starts) if start is None]
    return Runs(plan, layout, axis, source, found, rest)


def joining_axis(layout: RawLayout, plan: Plan) -> int | None:
    """Return the axis along which the chunks of a selection follow each other in the file.

    None if there is none, or if the selection takes only a part of the chunks along another axis.
    """
    axes = range(len(layout.order))
    is_same = layout.order == tuple(axes)
    if layout.has_window or not (is_same or _has_pixels(layout)):
        return None
    shape: Shape = tuple(layout.chunk[layout.order.index(axis)] for axis in axes)
    # the last one with several chunks: its chunks are neighbours in the plan
    several = [axis for axis in axes if plan.grid[axis] > 1]
    first = next((axis for axis in layout.order if shape[axis] > 1), None)
    axis = several[-1] if several else first
    if axis is None:
        return None
    # what is stored before it would divide its rows
    place = layout.order.index(axis)
    if any(n != 1 for n in layout.chunk[:place]):
        return None
    for other, n in enumerate(shape):
        sources = plan.sources[other]
        # between the first and the last chunk, a box takes all
        if other != axis and not sources[0] == sources[-1] == slice(0, n):
            return None
    return axis


def _has_pixels(layout: RawLayout) -> bool:
    """Return whether chunks are rows of a few interleaved bands, which the compiled loop copies."""
    axes = len(layout.order)
    return (
        loops is not None
        and axes >= 3
        and layout.order == (*range(axes - 3), axes - 2, axes - 1, axes - 3)
        and 1 < layout.chunk[-1] <= copying.MOST_BANDS
    )


def join_rows(
    starts: Sequence[int | None], sources: Sequence[slice], targets: Sequence[slice], row: int
) -> Iterator[Run]:
    """Join the rows of chunks that follow each other.

    Parameters:
        starts: Where each chunk of a plan begins in the file; None if it is in no run.
        sources: The rows that are taken of each chunk along the axis.
        targets: Where these go in the result.
        row: The bytes of a row.
    """
    run: Run | None = None
    end = 0
    for position, offset in enumerate(starts):
        place = position % len(sources)
        part = sources[place]
        start = None if offset is None else offset + part.start * row
        rows = part.stop - part.start
        if run is not None and place and start == end:
            run = run._replace(chunks=run.chunks + 1, rows=run.rows + rows)
        else:
            if run is not None:
                yield run
            run = None if start is None else Run(position, 1, start, targets[place].start, rows)
        end = 0 if offset is None else offset + part.stop * row
    if run is not None:
        yield run
