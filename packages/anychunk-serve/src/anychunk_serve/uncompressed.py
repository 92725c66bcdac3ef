"""Pieces of large uncompressed chunks: only the rows that a piece touches are read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychunk.decode.rows import runs
from anychunk.io.file import PreadSource
from anychunk.model.grid import Array, Shape
from anychunk.model.index import ArrayIndex, ByteRanges

LEAST_CHUNK = 1 << 20
"""Smaller chunks are read whole, and cached."""


@dataclass(frozen=True)
class Layout:
    """How the elements of a chunk are laid out in its bytes."""

    shape: Shape
    """The shape of a chunk, in storage order."""
    order: Shape
    """For each stored axis, the axis of the array."""
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, source: PreadSource, offset: int, box: Sequence[slice]) -> Array:
        """Read a box of the chunk that begins at byte `offset`; `box` is in the array's axes."""
        stored = [box[axis] for axis in self.order]
        axis, starts, length = runs(self.shape, stored, self.dtype.itemsize)
        data = source.read_runs([offset + start for start in starts], length)
        # up to `axis` exactly the box was read; later axes were read in full
        lead = [part.stop - part.start for part in stored[: axis + 1]]
        array = data.view(self.dtype).reshape([*lead, *self.shape[axis + 1 :]])
        piece = array[(slice(None),) * (axis + 1) + tuple(stored[axis + 1 :])]
        return piece.transpose(np.argsort(self.order))


def uncompressed_layout(array: ArrayIndex, dtype: np.dtype[Any]) -> Layout | None:
    """Return the layout of an array's chunks, or None if they are small or not raw samples."""
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
    return Layout(tuple(array.chunk_shape[axis] for axis in order), order, dtype)
