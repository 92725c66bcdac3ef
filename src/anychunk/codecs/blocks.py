"""Run a function over an array in blocks that stay in the processor's cache.

Whatever the array's strides and byte order, a function sees flat, native blocks; the result has
the layout of the input. Beside input and output, a run takes less than a mebibyte.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from anychunk.codecs.number_types import Block, NumberType, stored_view

SIZE = 1 << 15
"""Elements of a block: 256 KiB of float64, about half of a second-level cache."""
GOOD = -1


class Scratch:
    """Buffers of one run, made when first asked for."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._buffers: dict[tuple[str, str], Block] = {}

    def array(self, purpose: str, dtype: npt.DTypeLike, length: int) -> Block:
        key = (purpose, np.dtype(dtype).char)
        buffer = self._buffers.get(key)
        if buffer is None:
            buffer = self._buffers[key] = np.empty(self._size, dtype)
        return buffer[:length]


type Step = Callable[[Block, Block, Scratch], int]
"""Fill the second block from the first; give the index of the first value that has no result, or
`GOOD`. A step never changes its input, and the two never overlap."""


class BadValueError(Exception):
    """One value of an array has no result; carries where it is."""

    def __init__(self, index: tuple[int, ...]) -> None:
        super().__init__(index)
        self.index = index


def first(mask: Block) -> int:
    """Give the index of the first true element, or `GOOD`."""
    index = int(mask.argmax()) if mask.size else 0
    return index if mask.size and mask[index] else GOOD


def run(
    step: Step,
    array: npt.NDArray[Any],
    source: NumberType,
    target: NumberType,
    dtype: np.dtype[Any],
) -> npt.NDArray[Any]:
    """Apply `step` to every block; `dtype` is `target`'s in the byte order of the result."""
    out = np.empty_like(array, dtype=dtype, order="K", subok=False)
    if array.size == 0:
        return out
    blocks = _blocks(stored_view(array, source), stored_view(out, target), source, target, "K")
    scratch = Scratch(min(SIZE, max(1, array.size)))
    with np.errstate(all="ignore"):
        for x, y in blocks:
            if step(x, y, scratch) != GOOD:
                raise BadValueError(_locate(step, array, source, target))
    return out


def _blocks(
    array: npt.NDArray[Any],
    out: npt.NDArray[Any],
    source: NumberType,
    target: NumberType,
    order: Any,
) -> Iterator[tuple[Block, Block]]:
    iterator = np.nditer(
        [array, out],
        flags=["external_loop", "buffered"],
        op_flags=[["readonly"], ["writeonly"]],
        op_dtypes=[source.stored, target.stored],
        casting="equiv",
        order=order,
        buffersize=SIZE,
    )
    with iterator:
        yield from cast("Iterator[tuple[Block, Block]]", iterator)


def _locate(
    step: Step, array: npt.NDArray[Any], source: NumberType, target: NumberType
) -> tuple[int, ...]:
    """Find the first bad value in C order; the run may have met another one first."""
    view = stored_view(array, source)
    scratch = Scratch(min(SIZE, array.size))
    start = 0
    dummy = np.empty(min(SIZE, array.size), target.stored)
    iterator = np.nditer(
        view,
        flags=["external_loop", "buffered"],
        op_dtypes=[source.stored],
        casting="equiv",
        order="C",
        buffersize=SIZE,
    )
    for block in cast("Iterator[Block]", iterator):
        index = step(block, dummy[: block.size], scratch)
        if index != GOOD:
            return tuple(int(i) for i in np.unravel_index(start + index, array.shape))
        start += block.size
    raise AssertionError("a value that was bad is good now")  # steps are pure functions
