"""Pieces of large chunks that are plain bytes: little more is read than the rows wanted."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, ByteRanges
from anychunk.server.sources import ReadFile

type Array = npt.NDArray[Any]

LEAST_CHUNK = 1 << 20
"""Smaller chunks are read whole, and kept."""
LEAST_RUN = 512
"""Runs of fewer bytes are not read one by one, but with what lies between them."""


@dataclass(frozen=True)
class Plain:
    """How the elements of a chunk lie in its bytes."""

    shape: Shape
    """In the order that they are stored in."""
    order: Shape
    """Which axis of the array each stored axis is."""
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, source: ReadFile, offset: int, box: Sequence[slice]) -> Array:
        """Read a box, given in the axes of the array, of the chunk that begins at `offset`."""
        stored = [box[axis] for axis in self.order]
        axis, starts, length = runs(self.shape, stored, self.dtype.itemsize)
        data = source.read_runs([offset + start for start in starts], length)
        lead = [part.stop - part.start for part in stored[: axis + 1]]
        array = data.view(self.dtype).reshape([*lead, *self.shape[axis + 1 :]])
        piece = array[(slice(None),) * (axis + 1) + tuple(stored[axis + 1 :])]
        return piece.transpose(np.argsort(self.order))


def plain(array: ArrayIndex, dtype: np.dtype[Any]) -> Plain | None:
    """Say how chunks are stored, if they are large and nothing but bytes."""
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges) or chunks.parts is not None or chunks.fronts:
        return None
    if math.prod(array.chunk_shape) * dtype.itemsize < LEAST_CHUNK or dtype.kind not in "biufc":
        return None
    order: Shape = tuple(range(len(array.shape)))
    has_order = False
    for codec in array.codecs:
        name = codec["name"] if isinstance(codec, Mapping) else codec
        configuration = codec.get("configuration", {}) if isinstance(codec, Mapping) else {}
        if name == "transpose" and not has_order:
            order, has_order = tuple(configuration["order"]), True
        elif name == "bytes":
            dtype = dtype.newbyteorder(configuration.get("endian") or "=")
        else:
            return None
    return Plain(tuple(array.chunk_shape[axis] for axis in order), order, dtype)


def runs(shape: Shape, box: Sequence[slice], itemsize: int) -> tuple[int, list[int], int]:
    """Cut a box into runs of bytes: give the axis that each is a piece of, offsets, and length.

    Of the axes behind that one all is read: because all is wanted, or because pieces of it would be
    too short.
    """
    strides = [itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    axis = len(shape) - 1
    while axis > 0:
        wanted = box[axis].stop - box[axis].start
        if wanted < shape[axis] and wanted * strides[axis] >= LEAST_RUN:
            break
        axis -= 1
    ranges = [range(part.start, part.stop) for part in box[:axis]]
    first = box[axis].start * strides[axis]
    starts = [
        first + sum(i * stride for i, stride in zip(place, strides, strict=False))
        for place in itertools.product(*ranges)
    ]
    return axis, starts, (box[axis].stop - box[axis].start) * strides[axis]
