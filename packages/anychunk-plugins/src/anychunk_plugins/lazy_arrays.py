"""Arrays of files as dask's: chunks of a sensible size, bands without an axis of their own."""

import math
from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np

from anychunk.errors import LimitError
from anychunk.model.grid import Array

LEAST_BYTES = 1 << 20
"""Small chunks are read several at a time: dask takes a while for each."""
MOST_BYTES = 64 << 20
"""The longest such read."""
MOST_BLOCKS = 1 << 14
"""Above so many of them in a plane, dask takes noticeably long for one."""
MOST_ALONG = 1 << 20
"""Chunks along one axis, which dask lists when an array is made."""


class Bands:
    """Some bands of an array, along its last axis; or one band without that axis.

    Not a selection of a dask array, which would list every chunk of an array of any size.
    """

    def __init__(
        self, array: Any, axis: int | None, bands: Sequence[int], *, is_single: bool = False
    ) -> None:
        """Choose bands.

        Parameters:
            array: a zarr array.
            axis: its axis of bands; None if it is one band.
            bands: their numbers.
            is_single: whether the result has no axis of bands.
        """
        self.array, self.axis, self.bands, self.is_single = array, axis, [*bands], is_single
        place = [n for i, n in enumerate(array.shape) if i != axis]
        chunks = [n for i, n in enumerate(array.chunks) if i != axis]
        self.shape = tuple(place) if is_single else (*place, len(self.bands))
        self.chunks = tuple(chunks) if is_single else (*chunks, len(self.bands))
        self.dtype, self.ndim = array.dtype, len(self.shape)

    def __getitem__(self, selection: Any) -> Array:
        """Read a selection of slices and integers."""
        given = selection if isinstance(selection, tuple) else (selection,)
        given = (*given, *[slice(None)] * (self.ndim - len(given)))
        if self.is_single:
            given = (*given, 0)
        parts = [part if isinstance(part, slice) else slice(part, part + 1) for part in given]
        bands, first = self.bands[parts.pop()], min(self.bands)
        if self.axis is None:
            data = np.asarray(self.array[tuple(parts)])[..., np.newaxis]
        else:
            # bands lie close together, and those of pictures in one chunk
            first, last = min(bands, default=0), max(bands, default=-1)
            parts.insert(self.axis, slice(first, last + 1))
            data = np.moveaxis(np.asarray(self.array[tuple(parts)]), self.axis, -1)
            data = data[..., [band - first for band in bands]]
        return data[tuple(slice(None) if isinstance(part, slice) else 0 for part in given)]


def lazy(array: Any) -> Any:
    """Return a zarr array, or bands of one, as a dask array; its chunks are the file's, or several.

    Raises `LimitError` if there are so many that dask could not list those of one axis.
    """
    is_last = isinstance(array, Bands) and not array.is_single
    sides = 1 if is_last else 0
    shape, chunk = (given[: array.ndim - sides] for given in (array.shape, array.chunks))
    chunks = several_chunks(shape, chunk, array.dtype.itemsize)
    most = max((-(-n // side) for n, side in zip(shape, chunks, strict=True)), default=0)
    if most > MOST_ALONG:
        raise LimitError(
            f"{most} chunks along an axis are over the limit of {MOST_ALONG} of dask; "
            "select a part of the array first"
        )
    chunks = (*chunks, array.shape[-1]) if is_last else chunks
    meta = np.empty((0,) * array.ndim, array.dtype)
    # not named by its content, which would have to be hashed
    return da.from_array(array, chunks=chunks, name=False, meta=meta)


def spread(mask: Any, like: Any) -> Any:
    """Return a mask (y, x) with the axes and chunks of an image (…, y, x, samples)."""
    shape = (*like.shape[:-1], 1)
    found = da.broadcast_to(mask[..., np.newaxis], shape)
    return found.rechunk((*like.chunks[:-1], (1,)))


def several_chunks(shape: Sequence[int], chunk: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return a multiple of a chunk along the last two axes.

    The least one of `LEAST_BYTES`, or with which a plane has at most `MOST_BLOCKS`, as far as they
    are not longer than `MOST_BYTES`.
    """
    found = [max(1, min(n, side)) for n, side in zip(shape, chunk, strict=True)]
    plane = [axis for axis in range(len(found)) if axis >= len(found) - 2]

    def is_enough() -> bool:
        nbytes = math.prod(found) * itemsize
        blocks = math.prod(-(-shape[axis] // found[axis]) for axis in plane)
        return nbytes >= LEAST_BYTES and (blocks <= MOST_BLOCKS or 2 * nbytes > MOST_BYTES)

    while not is_enough():
        growing = [axis for axis in plane if found[axis] < shape[axis]]
        if not growing:
            break
        axis = min(growing, key=lambda i: found[i])
        found[axis] = min(2 * found[axis], shape[axis])
    return tuple(found)


def levels_or_one(levels: list[Any]) -> Any:
    """Return levels as napari takes them: a list if there are several that become smaller."""
    kept = levels[:1]
    for level in levels[1:]:
        if math.prod(level.shape) < math.prod(kept[-1].shape):
            kept.append(level)
    return kept if len(kept) > 1 else kept[0]
