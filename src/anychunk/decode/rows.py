"""Rows of uncompressed chunks: a window of a remote array fetches its own bytes, not whole chunks.

For arrays whose stored bytes are the samples themselves: `bytes`, after `transpose` and within
`anychunk.window` or not.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.codecs.window import Window, read_front
from anychunk.io.source import Bytes1D
from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, ByteRanges, Json

type Array = npt.NDArray[Any]

LEAST_RUN = 512
"""Shorter runs of bytes are read together with the bytes between them."""
MOST_RUNS = 1 << 12
"""Chunks of which more runs are wanted are read whole."""


def runs(shape: Shape, box: Sequence[slice], itemsize: int) -> tuple[int, list[int], int]:
    """Cut a box of a C-ordered array into runs of consecutive bytes, all of the same length.

    A run covers part of one axis, and all later axes in full: either because the box covers them,
    or because runs along them would be shorter than `LEAST_RUN`.

    Returns:
        The axis that runs are cut along, the offset of each run, and their length in bytes.
    """
    strides = [itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    axis = run_axis(shape, box, itemsize)
    ranges = [range(part.start, part.stop) for part in box[:axis]]
    first = box[axis].start * strides[axis]
    starts = [
        first + sum(i * stride for i, stride in zip(place, strides, strict=False))
        for place in itertools.product(*ranges)
    ]
    return axis, starts, (box[axis].stop - box[axis].start) * strides[axis]


def run_axis(shape: Shape, box: Sequence[slice], itemsize: int) -> int:
    """Return the axis that the runs of a box are cut along."""
    for axis in range(len(shape) - 1, 0, -1):
        count = box[axis].stop - box[axis].start
        nbytes = count * itemsize * math.prod(shape[axis + 1 :])
        if count < shape[axis] and nbytes >= LEAST_RUN:
            return axis
    return 0


@dataclass(frozen=True)
class Rows:
    """The runs of one chunk that a selection needs."""

    box: tuple[slice, ...]
    """The part of the chunk that is selected, in storage order."""
    shape: Shape
    """The shape of the stored chunk."""
    axis: int
    starts: list[int]
    length: int
    layout: "RawLayout"
    dropped: Shape
    """The axes of the array that integers in the selection remove."""

    def array(self, data: Bytes1D) -> Array:
        """Return the selected part, from the bytes of all runs."""
        lead = [part.stop - part.start for part in self.box[: self.axis + 1]]
        array = data.view(self.layout.dtype).reshape([*lead, *self.shape[self.axis + 1 :]])
        piece = array[(slice(None),) * (self.axis + 1) + self.box[self.axis + 1 :]]
        in_order = piece.transpose(np.argsort(self.layout.order))
        return in_order.squeeze(axis=self.dropped) if self.dropped else in_order


@dataclass(frozen=True)
class RawLayout:
    """How the samples of an array are laid out in the stored bytes of its chunks."""

    chunk: Shape
    """The shape of a chunk, in storage order."""
    order: Shape
    """For each stored axis, the axis of the array."""
    dtype: np.dtype[Any]
    has_window: bool
    """Whether a front states the shape of the stored chunk, which may be shorter."""

    def rows(self, front: bytes, length: int, selection: Any) -> Rows | None:
        """Return the runs that a selection of a chunk needs; None if it is to be read whole.

        Parameters:
            front: The inline bytes in front of the chunk.
            length: The number of its stored bytes.
            selection: An integer or a slice of step 1 for each axis; for anything else, the chunk
                is read whole.
        """
        shape = self.chunk
        if self.has_window:
            shape, start, window = read_front(np.frombuffer(front, np.uint8), shape)
            if any(start) or window != shape:
                return None
        elif front:
            return None
        box = _box(selection, [shape[i] for i in np.argsort(self.order)])
        if box is None or math.prod(shape) * self.dtype.itemsize != length:
            return None
        stored = tuple(box[axis] for axis in self.order)
        cut = run_axis(shape, stored, self.dtype.itemsize)
        if math.prod(part.stop - part.start for part in stored[:cut]) > MOST_RUNS:
            return None
        dropped = tuple(i for i, part in enumerate(selection) if not isinstance(part, slice))
        found = self.cut(stored, shape, dropped)
        return None if 2 * found.length * len(found.starts) > length else found

    def cut(self, stored: tuple[slice, ...], shape: Shape, dropped: Shape = ()) -> Rows:
        """Return the runs of a box of a chunk of `shape`, both in storage order."""
        axis, starts, size = runs(shape, stored, self.dtype.itemsize)
        return Rows(stored, shape, axis, starts, size, self, dropped)


def _box(selection: Any, shape: Sequence[int]) -> list[slice] | None:
    if not isinstance(selection, tuple) or len(selection) != len(shape):
        return None
    found = []
    for part, size in zip(selection, shape, strict=True):
        if isinstance(part, int | np.integer) and 0 <= part < size:
            found.append(slice(int(part), int(part) + 1))
            continue
        if type(part) is not slice or part.step not in (None, 1):
            return None
        start, stop, _ = part.indices(size)
        if stop <= start:
            return None
        found.append(slice(start, stop))
    return found


def raw_layout(index: ArrayIndex, dtype: np.dtype[Any]) -> RawLayout | None:
    """Return the layout of an array's samples, or None if they are encoded in any way."""
    chunks = index.chunks
    if not isinstance(chunks, ByteRanges) or chunks.parts is not None or dtype.kind not in "biufc":
        return None
    codecs: Sequence[Json] = index.codecs
    order: Shape = tuple(range(len(index.shape)))
    has_window = False
    if codecs and _name(codecs[0]) == "transpose":
        order, codecs = tuple(codecs[0]["configuration"]["order"]), codecs[1:]
    if len(codecs) == 1 and _name(codecs[0]) == Window.name:
        has_window, codecs = True, codecs[0]["configuration"]["codecs"]
    if len(codecs) != 1 or _name(codecs[0]) != "bytes":
        return None
    if has_window != bool(chunks.fronts):
        return None
    configuration = codecs[0].get("configuration", {}) if isinstance(codecs[0], Mapping) else {}
    stored = dtype.newbyteorder(configuration.get("endian") or "=")
    return RawLayout(tuple(index.chunk_shape[i] for i in order), order, stored, has_window)


def _name(codec: Json) -> str:
    return str(codec["name"] if isinstance(codec, Mapping) else codec)
