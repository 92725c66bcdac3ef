"""Concatenate arrays of several files along an existing axis."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from anychunk.combine.chunk_tables import join_tables
from anychunk.combine.compatibility import check_compatible, raise_problems
from anychunk.errors import FormatError
from anychunk.model.index import ArrayIndex, ByteRanges


def concat(path: str, arrays: Mapping[str, ArrayIndex], along: str | int) -> ArrayIndex:
    """Return arrays, one per file, concatenated along the axis `along`.

    Raises:
        FormatError: If the arrays do not fit, or if any but the last ends inside a chunk: the
            padding of that chunk would lie in the middle of the result.
    """
    first = next(iter(arrays.values()))
    axis = axis_number(first, along, path)
    codecs = check_compatible(path, arrays, free_axes=(axis,))
    chunk = first.chunk_shape[axis]
    raise_problems(
        [
            f"{url} {path}: length {array.shape[axis]} along {along!r} is not a multiple of the "
            f"chunk length {chunk}; only the last file may end inside a chunk"
            for url, array in list(arrays.items())[:-1]
            if array.shape[axis] % chunk
        ]
    )
    grids = [array.grid for array in arrays.values()]
    owners = np.concatenate([np.full(g, i, np.int64) for i, g in enumerate(grids)], axis=axis)
    numbers = np.concatenate(
        [np.arange(math.prod(g), dtype=np.int64).reshape(g) for g in grids], axis=axis
    )
    shape = list(first.shape)
    shape[axis] = sum(array.shape[axis] for array in arrays.values())
    tables = [a.chunks for a in arrays.values() if isinstance(a.chunks, ByteRanges)]
    chunks = join_tables(tables, owners, numbers)
    return replace(first, shape=tuple(shape), codecs=codecs, chunks=chunks)


def axis_number(array: ArrayIndex, along: str | int, path: str) -> int:
    """Return the number of the axis `along`: a name, or a number that may be negative."""
    names = array.dimension_names
    if isinstance(along, int) and -len(names) <= along < len(names):
        return along % len(names)
    if along in names:
        return names.index(str(along))
    raise FormatError(
        f"combine: {path} has no axis {along!r}; its axes are {' '.join(map(str, names))}"
    )
