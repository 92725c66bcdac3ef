"""Chunks of one local file, decoded by the compiled loop: many per call, not each by itself.

Whatever the loop does not decode, such as an absent, short or damaged chunk, is left to the caller,
who reads it by itself, and words the error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs import libraries
from anychunk.codecs.chain import Decoder
from anychunk.codecs.chunk_layout import ChunkLayout
from anychunk.decode.chunks import ChunkReader, Reading
from anychunk.decode.rows import raw_layout
from anychunk.io import measuring
from anychunk.io.buffers import borrowed
from anychunk.io.source import Bytes1D
from anychunk.model.grid import Numbers, Plan
from anychunk.native import loops

type Array = npt.NDArray[Any]

LEAST_CHUNKS = 3
"""To decode fewer, the preparation would cost more than it saves."""


@dataclass(frozen=True)
class Places:
    """Where the chunks of a plan go in the memory of the result."""

    starts: npt.NDArray[np.int64]
    """The offset of the first sample of each chunk; -1 for a chunk whose first rows or columns are
    not wanted, which the loop leaves out."""
    extents: npt.NDArray[np.int64]
    """The rows and columns of each chunk that are wanted."""
    row_stride: int
    band_stride: int


@dataclass(frozen=True)
class ManyChunks:
    """The chunks of one selection."""

    layout: ChunkLayout
    places: Places
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    data: Bytes1D
    out: Array

    def take(self, positions: range) -> list[int]:
        """Decode chunks to their places; return the positions of those that are left."""
        done = np.zeros(len(positions), np.uint8)
        if measuring.collectors:
            measuring.decoding(
                lambda _: self._counted(positions, done), self._take, positions, done
            )
        else:
            self._take(positions, done)
        if done.all():
            return []
        return [positions.start + int(i) for i in np.flatnonzero(done == 0)]

    def _take(self, positions: range, done: npt.NDArray[np.uint8]) -> None:
        assert loops is not None
        part, layout, places = slice(positions.start, positions.stop), self.layout, self.places
        # one byte more, so that decoders notice streams that are longer
        with borrowed("many chunks", 1 + (layout.nbytes if layout.kind else 0)) as scratch:
            loops.place_chunks(
                layout.kind,
                layout.functions,
                layout.options,
                self.data,
                self.offsets[part],
                self.lengths[part],
                self.out,
                places.starts[part],
                places.extents[part],
                done,
                scratch,
                (layout.rows, layout.columns, layout.bands),
                (places.row_stride, places.band_stride),
                layout.size,
                layout.predictor,
                layout.is_swapped,
            )

    def _counted(self, positions: range, done: npt.NDArray[np.uint8]) -> dict[str, float]:
        found = int(np.count_nonzero(done))
        stored = self.lengths[positions.start : positions.stop][done == 1]
        return {
            "chunks": found,
            "stored_bytes": int(stored.sum()),
            "decoded_bytes": found * self.layout.nbytes,
        }


def many_chunks(
    reader: ChunkReader,
    reading: Reading,
    plan: Plan,
    numbers: Numbers,
    *,
    out: Array,
    decode: Decoder,
) -> ManyChunks | None:
    """Return what decodes the chunks of a selection together; None if they are read one by one.

    Parameters:
        reader: Of a local array.
        reading: What its source is checked by.
        plan: The selection.
        numbers: The chunk numbers of the plan.
        out: The result.
        decode: The decoder of the array.
    """
    if (
        loops is None
        or len(plan) < LEAST_CHUNKS
        or decode.nbytes > limits.get().free_bytes
        or not out.flags.c_contiguous
        or not out.dtype.isnative
    ):
        return None
    layout = raw_pixels(reader, out.dtype) if decode.is_view else decode.layout
    places = None if layout is None else places_of(plan, layout, reader.index.chunk_shape, out)
    if layout is None or places is None:
        return None
    ranges = reading.ranges_of(numbers)
    if ranges is None:
        return None
    data, offsets, lengths = ranges
    return ManyChunks(layout, places, offsets, lengths, data, out)


def raw_pixels(reader: ChunkReader, dtype: np.dtype[Any]) -> ChunkLayout | None:
    """Return the layout of uncompressed chunks that are rows of pixels."""
    found = raw_layout(reader.index, dtype)
    functions = libraries.functions(libraries.NONE)
    if found is None or functions is None or found.has_window or dtype.itemsize > 8:
        return None
    axes, chunk = len(found.order), found.chunk
    if axes >= 3 and found.order == (*range(axes - 3), axes - 2, axes - 1, axes - 3):
        rows, columns, bands = chunk[-3:]
    elif axes >= 2 and found.order == tuple(range(axes)):
        rows, columns, bands = *chunk[-2:], 1
    else:
        return None
    if any(n != 1 for n in chunk[: -3 if bands > 1 else -2]):
        return None
    is_swapped = not found.dtype.isnative
    if is_swapped and dtype.kind == "c":
        return None
    return ChunkLayout(
        libraries.NONE, functions, rows, columns, bands, dtype.itemsize, is_swapped=is_swapped
    )


def places_of(
    plan: Plan, layout: ChunkLayout, chunk_shape: Sequence[int], out: Array
) -> Places | None:
    """Return where the chunks of a plan go; None if they are not rows and columns of bands."""
    if len(chunk_shape) < 2 or tuple(chunk_shape[-2:]) != (layout.rows, layout.columns):
        return None
    several = [axis for axis, n in enumerate(chunk_shape[:-2]) if n > 1]
    if len(several) > 1 or layout.bands != (chunk_shape[several[0]] if several else 1):
        return None
    for axis in several:  # all bands of every chunk
        if any(part != slice(0, layout.bands) for part in plan.sources[axis]):
            return None
    starts = np.zeros((), np.int64)
    for axis, targets in enumerate(plan.targets):
        along = np.array([part.start for part in targets], np.int64) * out.strides[axis]
        starts = starts[..., None] + along
    for axis in (-2, -1):
        is_cut = np.array([part.start > 0 for part in plan.sources[axis]])
        if is_cut.any():
            starts[(..., is_cut, slice(None)) if axis == -2 else (..., is_cut)] = -1
    extents = np.empty((*plan.grid, 2), np.int64)
    extents[..., 0] = np.array([part.stop - part.start for part in plan.targets[-2]])[:, None]
    extents[..., 1] = np.array([part.stop - part.start for part in plan.targets[-1]])
    band_stride = out.strides[several[0]] if several else 0
    return Places(starts.reshape(-1), extents.reshape(-1, 2), out.strides[-2], band_stride)
