"""Copy between arrays whose fastest axes differ, tile by tile, so that cache lines are used whole.

A plain assignment traverses one of the two arrays across its fastest axis, touching a cache line
per element, and numpy does not avoid that. Here a tile that fits in the cache is read along one
array and written along the other, which is four times faster for a chunk of 64 x 64 x 64.

Interleaved bands of one or two bytes are separated by a compiled loop where there is one
([decision 003](docs/decisions/003-separating-bands.md)).
"""

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.native import loops

SMALL = 32768
"""Arrays of at most this many elements are assigned: the calls per tile would cost more."""
TILE_BYTES = 64 << 10
LINE_BYTES = 64
MOST_BANDS = 4
"""Of more bands, each is copied by itself."""
LEAST_COLUMNS = 16
"""Narrower arrays are left to numpy."""


def assign(out: npt.NDArray[Any], array: npt.NDArray[Any]) -> None:
    """Do `out[...] = array` for arrays of the same shape."""
    if loops is not None and (_place_pixels(out, array) or _separate_bands(out, array)):
        return
    if (
        array.size <= SMALL
        or out.shape != array.shape
        or array.dtype.kind not in "biufc"
        or (read := fastest(array)) == (written := fastest(out))
    ):
        out[...] = array
        return
    if abs(array.strides[written]) <= LINE_BYTES:
        # few interleaved bands: striding over them still uses most of each cache line
        for here, there in zip(np.moveaxis(out, read, 0), np.moveaxis(array, read, 0), strict=True):
            here[...] = there
        return
    steps = tile_shape(array.shape, array.dtype.itemsize, read, written)
    tile = tile_like(array, steps, written)
    starts = [range(0, n, step) for n, step in zip(array.shape, steps, strict=True)]
    for start in itertools.product(*starts):
        place = tuple(slice(i, i + n) for i, n in zip(start, steps, strict=True))
        piece = array[place]
        here = tile if piece.shape == tile.shape else tile[tuple(slice(n) for n in piece.shape)]
        here[...] = piece
        out[place] = here


def _place_pixels(out: npt.NDArray[Any], array: npt.NDArray[Any]) -> bool:
    """Copy (…, bands, rows, columns) that is stored as (rows, columns, bands), without gaps.

    Return False if it is not that.
    """
    size = array.dtype.itemsize
    if (
        array.ndim < 3
        or out.shape != array.shape
        or not 1 < array.shape[-3] <= MOST_BANDS
        or array.strides[-3] != size
        or out.strides[-1] != size
        or array.dtype.kind not in "biuf"
        or array.dtype.newbyteorder("=") != out.dtype
        or math.prod(array.shape[:-3]) != 1
    ):
        return False
    pixels = array.reshape(array.shape[-3:]).transpose(1, 2, 0)
    if not pixels.flags.c_contiguous or np.may_share_memory(out, array):
        return False
    assert loops is not None
    bands, rows, columns = array.shape[-3:]
    is_swapped = not array.dtype.isnative
    return loops.place_rows(pixels, out, (rows, columns, bands), size, 1, is_swapped)


def _separate_bands(out: npt.NDArray[Any], array: npt.NDArray[Any]) -> bool:
    """Copy with the compiled loop, if `array` has a few interleaved bands; return False if not."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if (
        size > 2
        or kind not in "biuf"
        or kind != out.dtype.kind
        or size != out.dtype.itemsize
        or array.ndim < 3
        or out.shape != array.shape
        or min(array.shape) < 1
        or out.shape[-1] < LEAST_COLUMNS
        or out.strides[-1] != size
        or not size < array.strides[-1] <= MOST_BANDS * size
        or np.may_share_memory(out, array)
    ):
        return False
    assert loops is not None
    is_swapped = array.dtype.isnative != out.dtype.isnative
    return loops.separate_bands(array, out, is_swapped)


def fastest(array: npt.NDArray[Any]) -> int:
    """Return the axis with the smallest stride."""
    axes = [i for i, n in enumerate(array.shape) if n > 1]
    return min(reversed(axes), key=lambda i: abs(array.strides[i]), default=-1)


def tile_shape(shape: tuple[int, ...], itemsize: int, read: int, written: int) -> tuple[int, ...]:
    """Return a tile shape that is long along both fast axes and fits in the cache."""
    side = 128 if itemsize <= 2 else 64
    steps = [1] * len(shape)
    steps[read], steps[written] = min(shape[read], side), min(shape[written], side)
    room = max(1, TILE_BYTES // (steps[read] * steps[written] * itemsize))
    for axis in sorted(range(len(shape)), key=lambda i: shape[i]):
        if axis not in (read, written):
            steps[axis] = min(shape[axis], room)
            room //= steps[axis]
    return tuple(steps)


def tile_like(array: npt.NDArray[Any], shape: tuple[int, ...], outer: int) -> npt.NDArray[Any]:
    """Allocate a tile in the memory order of `array`, but with `outer` slowest, padded by one line.

    Without the padding, rows a power of two apart would compete for the same few cache sets.
    """
    order = sorted(range(array.ndim), key=lambda i: (i != outer, -abs(array.strides[i])))
    row = math.prod(shape[i] for i in order[1:])
    pitch = row + LINE_BYTES // array.dtype.itemsize
    rows = np.empty((shape[outer], pitch), array.dtype)[:, :row]
    return rows.reshape([shape[i] for i in order]).transpose(np.argsort(order))
