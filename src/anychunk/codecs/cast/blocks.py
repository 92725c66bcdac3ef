"""Run a function over an array in blocks that stay in the processor's cache.

Whatever the array's strides and byte order, a function sees flat, native blocks; the result has
the layout of the input. Beside input and output, a run takes less than a mebibyte.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from anychunk.codecs.cast.number_types import Block, NumberType, stored_view

BYTES = 1 << 18
"""Size of a block in its widest type: about half of a second-level cache."""
GOOD = -1
FEW = 32
"""One in this many, or fewer."""


class Scratch:
    """Buffers of one run, made when first asked for."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, str], Block] = {}

    def array(self, purpose: str, dtype: npt.DTypeLike, length: int) -> Block:
        key = (purpose, np.dtype(dtype).char)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.size < length:
            buffer = self._buffers[key] = np.empty(length, dtype)
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


def copy(x: Block, out: Block, scratch: Scratch) -> int:
    """Cast as numpy does, where that is right for every value."""
    np.copyto(out, x, casting="unsafe")
    return GOOD


def in_parts(step: Step, *, width: int = 8) -> Step:
    """Run a step that needs more bytes an element than the block was cut for on parts of it."""
    size = BYTES // width

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        for start in range(0, x.size, size):
            part = slice(start, start + size)
            bad = step(x[part], out[part], scratch)
            if bad != GOOD:
                return start + bad
        return GOOD

    return apply


def put(out: Block, mask: Block, value: Block, scratch: Scratch) -> None:
    """Write one value where the mask is true.

    numpy's masked copy branches at every element: fast where the mask has few edges, slow without
    pattern. Then a few values are written by index, and many by their bits, without any branch.
    """
    if not mask.any():
        return
    if mask.all():
        out[...] = value
        return
    sample = mask[mask.size // 2 :][: mask.size // 8]
    edges = np.count_nonzero(sample[1:] != sample[:-1])
    if edges * FEW <= sample.size:
        np.copyto(out, value, where=mask)
    elif np.count_nonzero(mask) * FEW < mask.size:
        out[mask.nonzero()[0]] = value
    else:
        _blend(out.view(f"u{out.dtype.itemsize}"), mask, value, scratch)


def _blend(bits: Block, mask: Block, value: Block, scratch: Scratch) -> None:
    keep = scratch.array("keep", bits.dtype, mask.size)
    np.copyto(keep, mask, casting="unsafe")
    np.subtract(keep, keep.dtype.type(1), out=keep)  # all ones where the old value stays
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
    """Apply `step` to every block; `dtype` is `target`'s in the byte order of the result."""
    out = np.empty_like(array, dtype=dtype, order="K", subok=False)
    if array.size == 0:
        return out
    stored, stored_out = stored_view(array, source), stored_view(out, target)
    scratch = Scratch()
    with np.errstate(all="ignore"):
        if step is copy:
            np.copyto(stored_out, stored, casting="unsafe")
            return out
        for x, y in _blocks(stored, stored_out, source, target):
            if step(x, y, scratch) != GOOD:
                raise BadValueError(_locate(step, stored, source, target))
    return out


def _size(source: NumberType, target: NumberType) -> int:
    """Give the number of elements of a block."""
    return BYTES // max(source.stored.itemsize, target.stored.itemsize, 4)


def _blocks(
    array: npt.NDArray[Any], out: npt.NDArray[Any], source: NumberType, target: NumberType
) -> Iterator[tuple[Block, Block]]:
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
        yield from cast("Iterator[tuple[Block, Block]]", iterator)


def _locate(
    step: Step, array: npt.NDArray[Any], source: NumberType, target: NumberType
) -> tuple[int, ...]:
    """Find the first bad value in C order; the run may have met another one first."""
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
    for block in cast("Iterator[Block]", iterator):
        index = step(block, out[: block.size], scratch)
        if index != GOOD:
            return tuple(int(i) for i in np.unravel_index(start + index, array.shape))
        start += block.size
    raise AssertionError("a value that was bad is good now")  # steps are pure functions
