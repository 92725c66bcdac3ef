"""A zarr array that reads small pieces of local files at once, in the thread that asks.

zarr takes every selection to its event loop and back, which costs more than the decoding of a chunk
or two. What is not plain and small here goes that way as well.
"""

import itertools
import math
from functools import cached_property
from typing import Any

import numpy as np
import zarr
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.metadata import ArrayV3Metadata

from anychunk.pipeline import IndexPipeline

AT_ONCE = 8
"""The most chunks that are read in the calling thread."""
AT_ONCE_BYTES = 4 << 20
"""The most that these may have, decoded; a single chunk may be larger."""

type Spans = list[tuple[int, int]]


def spans(selection: Any, shape: tuple[int, ...]) -> tuple[Spans, tuple[int, ...]] | None:
    """Give (start, stop) along each axis, and the axes that an integer takes away.

    None for whatever is not integers and slices without a step, inside the array: zarr knows it.
    """
    parts = selection if isinstance(selection, tuple) else (selection,)
    if sum(part is Ellipsis for part in parts) > 1 or len(parts) > len(shape) + (Ellipsis in parts):
        return None
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        whole = (slice(None),) * (len(shape) - len(parts) + 1)
        parts = (*parts[:at], *whole, *parts[at + 1 :])
    parts += (slice(None),) * (len(shape) - len(parts))
    found, dropped = [], []
    for axis, (part, size) in enumerate(zip(parts, shape, strict=True)):
        if type(part) is int and -size <= part < size:
            start = part % size
            found.append((start, start + 1))
            dropped.append(axis)
        elif type(part) is slice and part.step in (None, 1):
            start, stop, _ = part.indices(size)
            found.append((start, max(start, stop)))
        else:
            return None
    return found, tuple(dropped)


class Array(zarr.Array[ArrayV3Metadata]):
    """An array of an index."""

    def __getitem__(self, selection: Any) -> Any:
        # a field of a structured type is a string, a mask or a list of indices compares by element
        if isinstance(selection, slice | int | tuple) or selection is Ellipsis:
            kinds = selection if isinstance(selection, tuple) else (selection,)
            if all(type(part) in (slice, int) or part is Ellipsis for part in kinds):
                found = self._read_at_once(selection)
                if found is not None:
                    return found
        return super().__getitem__(selection)

    @cached_property
    def _reading(self) -> tuple[IndexPipeline, ArraySpec, np.dtype[Any]] | None:
        """What reading at once needs, found out once; None where it cannot be done."""
        pipeline, prototype = self._async_array.codec_pipeline, default_buffer_prototype()
        if not isinstance(pipeline, IndexPipeline) or prototype.nd_buffer is not cpu.NDBuffer:
            return None
        metadata = self.metadata
        spec = ArraySpec(self.chunks, metadata.dtype, metadata.fill_value, self.config, prototype)
        dtype = metadata.dtype.to_native_dtype()
        return (pipeline, spec, dtype) if dtype.kind in "biufc" else None

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_reading"}

    def _read_at_once(self, selection: Any) -> Any:
        reading, wanted = self._reading, spans(selection, self.shape)
        if wanted is None or reading is None:
            return None
        pipeline, spec, dtype = reading
        pieces, dropped = wanted
        if len(dropped) == len(pieces):  # one element: zarr knows whether it is a scalar
            return None
        chunk = spec.shape
        grid = [
            range(start // n, -(-stop // n)) if stop > start else range(0)
            for (start, stop), n in zip(pieces, chunk, strict=True)
        ]
        count = math.prod(map(len, grid))
        is_small = count == 1 or count * math.prod(chunk) * dtype.itemsize <= AT_ONCE_BYTES
        if not 0 < count <= AT_ONCE or not is_small:
            return None
        out = np.empty([stop - start for start, stop in pieces], dtype, self.config.order)
        places = [place(coords, pieces, chunk) for coords in itertools.product(*grid)]
        if not pipeline.read_now(self.path, places, spec, out):
            return None
        if not dropped:
            return out
        return out[tuple(0 if axis in dropped else slice(None) for axis in range(len(chunk)))]


def place(
    coords: tuple[int, ...], pieces: Spans, chunk: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]:
    """Give what of one chunk is wanted, and where it goes."""
    source, target = [], []
    for c, (start, stop), n in zip(coords, pieces, chunk, strict=True):
        first, last = max(start, c * n), min(stop, (c + 1) * n)
        source.append(slice(first - c * n, last - c * n))
        target.append(slice(first - start, last - start))
    return coords, tuple(source), tuple(target)
