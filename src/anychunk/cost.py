"""What it takes to read a box of an array, estimated from its index, before reading anything."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychunk.io.url import is_remote
from anychunk.model.index import WHOLE, ArrayIndex, ByteRanges, Computed, Objects


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much may be read unasked."""

    decoded: int = 32 << 20
    """Bytes that are decoded."""
    stored: int = 8 << 20
    """Bytes that are read from local files."""
    stored_remote: int = 1 << 20
    """Bytes that are fetched from servers."""
    chunks: int = 4096
    """Chunks that are parts of files."""
    objects: int = 64
    """Chunks that are objects of their own."""


def is_within(budget: Budget, array: ArrayIndex, box: Sequence[slice]) -> bool:
    """Return whether reading a box of an array stays within a budget.

    Parameters:
        budget: how much may be read.
        array: the array.
        box: one slice per axis, with a start and a stop inside the array.
    """
    chunks = array.chunks
    if isinstance(chunks, Computed):
        return False
    ranges = [
        range(part.start // step, max(part.start, part.stop - 1) // step + 1)
        for part, step in zip(box, array.chunk_shape, strict=True)
    ]
    count = math.prod(map(len, ranges))
    most = budget.objects if isinstance(chunks, Objects) else budget.chunks
    decoded = count * math.prod(array.chunk_shape) * item_size(array.data_type)
    if count > most or decoded > budget.decoded:
        return False
    if not isinstance(chunks, ByteRanges) or array.is_inline:
        return True
    numbers = np.ravel_multi_index(np.meshgrid(*ranges, indexing="ij"), array.grid).reshape(-1)
    is_far = any(map(is_remote, chunks.urls[:1]))
    stored = stored_bytes(chunks.picked(numbers, (len(numbers),)))
    return stored <= (budget.stored_remote if is_far else budget.stored)


def stored_bytes(chunks: ByteRanges) -> int:
    """Return how many bytes of files chunks take; whole objects, whose size is unknown, not."""
    # chunks that are pieces of one stream share its bytes
    _, first = np.unique(chunks.offsets, return_index=True)
    lengths = chunks.lengths.reshape(-1)[first]
    found = int(lengths[lengths != WHOLE].sum(dtype=np.uint64))
    if chunks.parts is not None:
        found += int(chunks.parts.lengths.sum(dtype=np.uint64))
    return found


def item_size(data_type: Any) -> int:
    """Return the bytes of a sample; of types that numpy does not know, those of the largest."""
    try:
        return int(np.dtype(data_type).itemsize)
    except TypeError:
        return 16
