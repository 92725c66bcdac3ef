"""Arrays of one band without their band axis: (1, y, x) as (y, x)."""

from dataclasses import replace
from typing import Any

import numpy.typing as npt

from anychunk.model.index import ArrayIndex, ByteRanges


def without_single_band(array: ArrayIndex) -> ArrayIndex:
    """Return an array whose first axis has length 1 without that axis; others unchanged.

    Its codecs must not depend on the number of axes, as those that turn bytes into bytes.
    """
    chunks = array.chunks
    if len(array.shape) != 3 or array.shape[0] != 1 or not isinstance(chunks, ByteRanges):
        return array
    return replace(
        array,
        shape=array.shape[1:],
        chunk_shape=array.chunk_shape[1:],
        dimension_names=array.dimension_names[1:],
        chunks=replace(
            chunks,
            offsets=chunks.offsets[0],
            lengths=chunks.lengths[0],
            url_ids=_first(chunks.url_ids),
            front_ids=_first(chunks.front_ids),
        ),
    )


def _first(table: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    return None if table is None else table[0]
