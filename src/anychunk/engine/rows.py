"""Chunks that are a stream of rows of samples: one call of the compiled loop decodes many.

What the loop does not decode, such as a short or damaged chunk, is left over, and read by itself.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anychunk.codecs.chunk_layout import ChunkLayout
from anychunk.io import measuring
from anychunk.io.buffers import borrowed
from anychunk.io.source import Bytes1D
from anychunk.model.grid import Plan, Shape
from anychunk.native import loops

type Array = npt.NDArray[Any]
type Ints = npt.NDArray[np.int64]

PLACED, ABSENT = 1, 2


class Data(NamedTuple):
    """The stored bytes of some chunks: parts of one buffer, or files by name."""

    buffer: Bytes1D
    """The bytes; or the names of files, each ended by a zero."""
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    """Of files: what was read, afterwards."""
    folder: int = -1
    """The handle of the folder of the files."""
    most: int = 0
    """The size of the largest file."""

    def part(self, positions: "slice | Ints") -> "Data":
        """Return the data of some of the chunks."""
        return self._replace(offsets=self.offsets[positions], lengths=self.lengths[positions])


class Table(NamedTuple):
    """Which box is taken of each chunk of a selection, and where it goes."""

    layout: ChunkLayout
    out: Array
    strides: Ints
    starts: Ints
    """The offset of the first sample in the memory of the result."""
    boxes: Ints
    """For each chunk and stored axis, where the box begins and how long it is."""
    shapes: Ints
    """The shape of each chunk; empty if all have the same."""

    def part(self, positions: "slice | Ints") -> "Table":
        """Return the entries of some of the chunks."""
        shapes = self.shapes[positions] if len(self.shapes) else self.shapes
        return self._replace(
            starts=self.starts[positions], boxes=self.boxes[positions], shapes=shapes
        )

    def decode(self, data: Data) -> npt.NDArray[np.uint8]:
        """Decode chunks to their places; return for each whether it is placed, absent or left."""
        done = np.zeros(len(data.offsets), np.uint8)
        if measuring.collectors:
            measuring.decoding(lambda _: self._counted(data, done), self._decode, data, done)
        else:
            self._decode(data, done)
        if len(self.shapes) and not done.all():
            # tiles in one column look like strips, of which the last is shorter
            left = np.flatnonzero(done == 0)
            whole = self.part(left)._replace(shapes=np.empty((0, 0), np.int64))
            done[left] = whole.decode(data.part(left))
        return done

    def _decode(self, data: Data, done: npt.NDArray[np.uint8]) -> None:
        assert loops is not None
        layout = self.layout
        # one byte more, so that decoders notice streams that are longer
        with borrowed("many chunks", 1 + (layout.nbytes if layout.kind else 0)) as scratch:
            loops.place_chunks(
                layout.kind,
                layout.functions,
                layout.options,
                data.buffer,
                data.offsets,
                data.lengths,
                self.out,
                self.starts,
                self.boxes,
                self.shapes,
                done,
                scratch,
                np.array(layout.shape, np.int64),
                self.strides,
                layout.size,
                layout.predictor,
                layout.is_swapped,
                layout.head,
                2,
                data.folder,
                data.most,
            )

    def _counted(self, data: Data, done: npt.NDArray[np.uint8]) -> dict[str, float]:
        found = int(np.count_nonzero(done == PLACED))
        stored = int(data.lengths[done == PLACED].sum())
        decoded = found * self.layout.nbytes
        return {"chunks": found, "stored_bytes": stored, "decoded_bytes": decoded}


def table_of(
    layout: ChunkLayout, plan: Plan, numbers: Ints, out: Array, grid: Shape
) -> Table | None:
    """Return the boxes of a selection; None if the loop cannot write to the result.

    Parameters:
        layout: Of the chunks.
        plan: The selection.
        numbers: The numbers of its chunks.
        out: The result.
        grid: The number of chunks of the array along each axis.
    """
    found = target_of(layout, out)
    if found is None:
        return None
    layout, strides = found
    boxes = np.empty((*plan.grid, len(layout.axes), 2), np.int64)
    boxes[...] = 0, 1
    starts = np.zeros(plan.grid, np.int64)
    for axis, (sources, targets) in enumerate(zip(plan.sources, plan.targets, strict=True)):
        side = (-1, *(1,) * (len(plan.grid) - axis - 1))
        starts += np.array([t.start * out.strides[axis] for t in targets]).reshape(side)
        if axis in layout.axes:  # others have one element in each chunk
            place = layout.axes.index(axis)
            boxes[..., place, 0] = np.array([s.start for s in sources]).reshape(side)
            boxes[..., place, 1] = np.array([s.stop - s.start for s in sources]).reshape(side)
    count, axes = len(plan), len(layout.axes)
    return Table(
        layout,
        out,
        strides,
        starts.reshape(count),
        boxes.reshape(count, axes, 2),
        shapes_of(layout, plan, int(numbers[-1]), grid).reshape(-1, axes),
    )


def table_of_places(
    layout: ChunkLayout, places: Sequence[tuple[Any, Any]], out: Array
) -> Table | None:
    """Return the same of chunks whose places are listed, as boxes."""
    found = target_of(layout, out)
    if found is None:
        return None
    layout, strides = found
    boxes = np.empty((len(places), len(layout.axes), 2), np.int64)
    boxes[...] = 0, 1
    starts = np.zeros(len(places), np.int64)
    for axis in range(out.ndim):
        starts += np.array([target[axis].start for _, target in places]) * out.strides[axis]
        if axis in layout.axes:
            place = layout.axes.index(axis)
            sides = [(s[axis].start, s[axis].stop - s[axis].start) for s, _ in places]
            boxes[:, place] = sides
    return Table(layout, out, strides, starts, boxes, np.empty((0, 0), np.int64))


def target_of(layout: ChunkLayout, out: Array) -> tuple[ChunkLayout, Ints] | None:
    """Return the layout for a result, and its strides; None if the loop cannot write to it."""
    if not out.flags.c_contiguous:
        return None
    if not out.dtype.isnative:
        if layout.predictor != 1 or out.dtype.kind == "c":
            return None
        layout = replace(layout, is_swapped=not layout.is_swapped)
    strides = [0 if axis is None else out.strides[axis] for axis in layout.axes]
    if strides[-2] != layout.size:
        if out.shape[-1] > 1:
            return None
        strides[-2] = layout.size  # one column
    return layout, np.array(strides, np.int64)


def shapes_of(layout: ChunkLayout, plan: Plan, last: int, grid: Shape) -> Ints:
    """Return the shape of each chunk; nothing if no chunk of a selection is a shorter last strip.

    `last` is the number of the last chunk. A last tile is stored whole, as a rule.
    """
    if not layout.last or grid[-1] > 1 or last % grid[-2] < grid[-2] - 1:
        return np.empty(0, np.int64)
    shapes = np.empty((*plan.grid, len(layout.axes)), np.int64)
    shapes[...] = layout.shape
    shapes[..., -1, 0, :] = layout.last
    return shapes


def names_of(names: Sequence[str]) -> tuple[Bytes1D, npt.NDArray[np.uint64]]:
    """Return names, each ended by a zero, and where each begins."""
    encoded = [name.encode() for name in names]
    lengths = np.array([len(name) + 1 for name in encoded], np.uint64)
    starts = (np.cumsum(lengths) - lengths).astype(np.uint64, copy=False)
    return np.frombuffer(b"\0".join([*encoded, b""]), np.uint8), starts
