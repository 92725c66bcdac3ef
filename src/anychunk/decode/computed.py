"""Chunks that are not stored: computed from another array of the same index."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk import resample as ds
from anychunk.decode.boxes import ArrayReader
from anychunk.errors import FormatError, LimitError
from anychunk.model.grid import Shape, chunk_box
from anychunk.model.index import ArrayIndex, Computed, Json

type Array = npt.NDArray[Any]
type Read = Callable[[Shape, Shape], Array]

PIECE_BYTES = 64 * limits.MIB
"""Approximate size of the part of the source that is in memory at a time."""


def shrink(
    read: Read, *, start: Shape, stop: Shape, ratio: Shape, shape: Shape, method: str, itemsize: int
) -> Array:
    """Compute the box from `start` to `stop` of a smaller array, reading bounded pieces."""
    ratio = ds.clip_ratio(shape, ratio)
    ranges = [
        ds.source_range(a, b, ratio=r, size=n, method=method)
        for a, b, r, n in zip(start, stop, ratio, shape, strict=True)
    ]
    nbytes = math.prod(b - a for a, b in ranges) * itemsize
    lengths = [b - a for a, b in zip(start, stop, strict=True)]
    # filters compute in 64-bit floats
    cost = nbytes if method in ds.BY_WINDOW else nbytes * max(1, 8 // itemsize)
    if cost > PIECE_BYTES and max(lengths) > 1:
        axis = lengths.index(max(lengths))
        middle = start[axis] + lengths[axis] // 2

        def part(first: Shape, last: Shape) -> Array:
            return shrink(
                read,
                start=first,
                stop=last,
                ratio=ratio,
                shape=shape,
                method=method,
                itemsize=itemsize,
            )

        low = part(start, (*stop[:axis], middle, *stop[axis + 1 :]))
        high = part((*start[:axis], middle, *start[axis + 1 :]), stop)
        return np.concatenate([low, high], axis)
    limits.check_chunk(cost, where="downsample: the source of one element")
    at = tuple(a for a, _ in ranges)
    source = read(at, tuple(b for _, b in ranges))
    return ds.downsample_region(
        source, at=at, start=start, stop=stop, ratio=ratio, shape=shape, method=method
    )


def _downsample(
    array: ArrayIndex, coords: Shape, configuration: Json, source: ArrayReader
) -> Array:
    """Compute one chunk of a smaller array, zero beyond the edge of the array."""
    box = chunk_box(coords, array.chunk_shape, array.shape)
    made = shrink(
        source.read,
        start=tuple(side.start for side in box),
        stop=tuple(side.stop for side in box),
        ratio=tuple(configuration["ratio"]),
        shape=source.index.shape,
        method=configuration["method"],
        itemsize=source.dtype.itemsize,
    )
    if made.shape == array.chunk_shape:
        return made
    out = np.zeros(array.chunk_shape, made.dtype)
    out[tuple(slice(n) for n in made.shape)] = made
    return out


METHODS: dict[str, Callable[[ArrayIndex, Shape, Json, ArrayReader], Array]] = {
    "downsample": _downsample
}


def compute_chunk(array: ArrayIndex, coords: Shape, source: ArrayReader) -> Array:
    """Compute the chunk of `array` at `coords` from the array that its index names."""
    chunks = array.chunks
    if not isinstance(chunks, Computed) or chunks.method not in METHODS:
        raise FormatError(
            f"index: chunks are computed by {getattr(chunks, 'method', None)!r}, "
            f"expected {' '.join(METHODS)}"
        )
    nbytes = math.prod(array.chunk_shape) * source.dtype.itemsize
    if nbytes > limits.get().chunk_bytes:
        raise LimitError(
            f"index: a computed chunk of {nbytes} bytes is over the limit of "
            f"{limits.get().chunk_bytes}; {limits.how_to_raise('chunk_bytes')}"
        )
    return METHODS[chunks.method](array, coords, chunks.configuration, source)
