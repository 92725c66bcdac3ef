"""Apply a function to an array in blocks that stay in the processor's cache.

A cast takes several passes (round, find the extremes, compare, store). On a whole array each of
them would go to main memory; on a block of a quarter MiB only the first and the last do.

The function sees flat blocks in native byte order, whatever the strides and byte order of the
array; the result has the memory layout of the input. Besides input and output, a run needs less
than 1 MiB.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from anychunk.codecs.cast.number_types import NumberType, stored_view
from anychunk.model.grid import Array

BYTES = 1 << 18
"""Size of a block in its widest type: about half of a level-2 cache."""
GOOD = -1
"""Returned by a step if every value of the block has a result."""
FEW = 32
"""A mask is sparse if fewer than one in this many elements is an edge, or is true."""


class Scratch:
    """Temporary buffers of one run, allocated on first use and reused for every block."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, str], Array] = {}

    def array(self, purpose: str, dtype: npt.DTypeLike, length: int) -> Array:
        """Return the uninitialised buffer for a purpose; buffers of two purposes never overlap."""
        key = (purpose, np.dtype(dtype).char)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.size < length:
            buffer = self._buffers[key] = np.empty(length, dtype)
        return buffer[:length]


type Step = Callable[[Array, Array, Scratch], int]
"""Fills the second block from the first; returns `GOOD`, or the index of the first value without
a result. A step never changes its input. Unless it says otherwise, the blocks must not overlap."""


class BadValueError(Exception):
    """A value of the array has no result; `index` is its position."""

    def __init__(self, index: tuple[int, ...]) -> None:
        super().__init__(index)
        self.index = index


def first(mask: Array) -> int:
    """Return the index of the first true element, or `GOOD` if there is none."""
    index = int(mask.argmax()) if mask.size else 0
    return index if mask.size and mask[index] else GOOD


def copy(x: Array, out: Array, scratch: Scratch) -> int:
    """Cast with numpy, for pairs of types where that is correct for every value."""
    np.copyto(out, x, casting="unsafe")
    return GOOD


def in_parts(step: Step, *, width: int = 8) -> Step:
    """Return a step that runs `step` on parts of each block.

    Blocks are cut for the wider of the two types; a step whose temporary buffers take `width` bytes
    per element needs smaller ones to stay in the cache.
    """
    size = BYTES // width

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        for start in range(0, x.size, size):
            part = slice(start, start + size)
            bad = step(x[part], out[part], scratch)
            if bad != GOOD:
                return start + bad
        return GOOD

    return apply


def put(out: Array, mask: Array, value: Array, scratch: Scratch) -> None:
    """Write one value where the mask is true.

    numpy's masked copy branches at every element. That is fast if the branch is predictable, which
    means that the mask has few edges (patches of nodata), and slow for scattered values. Scattered
    values are written by index if they are few, and otherwise blended bitwise without branches.
    """
    if not mask.any():
        return
    if mask.all():
        out[...] = value
        return
    # an eighth, from the middle, is enough to estimate how many edges there are
    sample = mask[mask.size // 2 :][: mask.size // 8]
    edges = np.count_nonzero(sample[1:] != sample[:-1])
    if edges * FEW <= sample.size:
        np.copyto(out, value, where=mask)
    elif np.count_nonzero(mask) * FEW < mask.size:
        out[mask.nonzero()[0]] = value
    else:
        _blend(out.view(f"u{out.dtype.itemsize}"), mask, value, scratch)


def _blend(bits: Array, mask: Array, value: Array, scratch: Scratch) -> None:
    """Compute `bits & keep | value & ~keep`, where `keep` is all ones outside the mask."""
    keep = scratch.array("keep", bits.dtype, mask.size)
    np.copyto(keep, mask, casting="unsafe")
    np.subtract(keep, keep.dtype.type(1), out=keep)  # 1 becomes 0, and 0 wraps to all ones
    np.bitwise_and(bits, keep, out=bits)
    new = value.view(bits.dtype)[()]
    if new:
        np.invert(keep, out=keep)
        np.bitwise_and(keep, new, out=keep)
        np.bitwise_or(bits, keep, out=bits)


def run(
    step: Step,
    array: npt.NDArray[Any],
    source: NumberType,
    target: NumberType,
    dtype: np.dtype[Any],
) -> npt.NDArray[Any]:
    """Return the result of applying `step` to every block of an array.

    Parameters:
        step: the function.
        array: elements of `source`, in any layout and byte order.
        source: the number type of the input.
        target: the number type of the result.
        dtype: the dtype of `target`, in the byte order of the result.

    Raises:
        BadValueError: the first value, in C order, that has no result.
    """
    out = np.empty_like(array, dtype=dtype, order="K", subok=False)
    if array.size == 0:
        return out
    stored, stored_out = stored_view(array, source), stored_view(out, target)
    scratch = Scratch()
    with np.errstate(all="ignore"):
        if step is copy:  # one pass: blocks would only add overhead
            np.copyto(stored_out, stored, casting="unsafe")
            return out
        for x, y in _blocks(stored, stored_out, source, target):
            if step(x, y, scratch) != GOOD:
                raise BadValueError(_locate(step, stored, source, target))
    return out


def _size(source: NumberType, target: NumberType) -> int:
    """Return the number of elements per block."""
    return BYTES // max(source.stored.itemsize, target.stored.itemsize, 4)


def _blocks(
    array: npt.NDArray[Any], out: npt.NDArray[Any], source: NumberType, target: NumberType
) -> Iterator[tuple[Array, Array]]:
    """Yield input and output blocks; numpy's iterator copies only what is strided or swapped."""
    iterator = np.nditer(
        [array, out],
        flags=["external_loop", "buffered"],
        op_flags=[["readonly"], ["writeonly"]],
        op_dtypes=[source.stored, target.stored],
        casting="equiv",
        order="K",
        buffersize=_size(source, target),
    )
    with iterator:
        yield from cast("Iterator[tuple[Array, Array]]", iterator)


def _locate(
    step: Step, array: npt.NDArray[Any], source: NumberType, target: NumberType
) -> tuple[int, ...]:
    """Return the index of the first bad value in C order.

    `run` iterates in memory order, so it may have found a different one first.
    """
    size = min(_size(source, target), array.size)
    scratch, out = Scratch(), np.empty(size, target.stored)
    iterator = np.nditer(
        array,
        flags=["external_loop", "buffered"],
        op_dtypes=[source.stored],
        casting="equiv",
        order="C",
        buffersize=size,
    )
    start = 0
    for block in cast("Iterator[Array]", iterator):
        index = step(block, out[: block.size], scratch)
        if index != GOOD:
            return tuple(int(i) for i in np.unravel_index(start + index, array.shape))
        start += block.size
    raise AssertionError("no bad value on the second run of a step")  # steps are pure
