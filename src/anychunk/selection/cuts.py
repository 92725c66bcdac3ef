"""Elements of an array of the whole as an array of the part, read when it is sliced."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychunk.limits import MIB
from anychunk.model.grid import Array, Shape, Slices, spans

READ_BYTES = 64 * MIB
"""About how much is read at a time where bands that are not wanted are read, too."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Which elements of an array of the whole an array of the part has. Plain data."""

    path: str
    """Of the array in the index of the whole."""
    picks: tuple[Sequence[int], ...]
    """The elements along each of its axes."""
    dropped: tuple[int, ...] = ()
    """Axes with one element, which the part does not have."""

    @property
    def shape(self) -> Shape:
        """The shape of the array of the part."""
        return tuple(len(p) for axis, p in enumerate(self.picks) if axis not in self.dropped)

    def wanted(self, box: Slices) -> list[Sequence[int]]:
        """Return the elements of the whole, along each axis, that a box of the part has."""
        sides = iter(box)
        return [
            pick if axis in self.dropped else pick[(side := next(sides)).start : side.stop]
            for axis, pick in enumerate(self.picks)
        ]

    def read(
        self, read: Callable[[Slices], Array], box: Slices, chunk: Shape, itemsize: int
    ) -> Array:
        """Read a box of the part.

        Parameters:
            read: Reads a box of the whole.
            box: Of the part.
            chunk: Shape of the chunks of the whole.
            itemsize: Bytes per element.
        """
        wanted = self.wanted(box)
        spread = math.prod(
            len(numbers) if is_run(numbers) else max(numbers) + 1 - min(numbers)
            for numbers in wanted
        )
        sizes = [side.stop - side.start for side in box]
        if not all(map(is_run, wanted)) and spread * itemsize > READ_BYTES and max(sizes) > 1:
            axis = sizes.index(max(sizes))
            middle = box[axis].start + sizes[axis] // 2
            halves = (slice(box[axis].start, middle), slice(middle, box[axis].stop))
            parts = [
                self.read(read, (*box[:axis], half, *box[axis + 1 :]), chunk, itemsize)
                for half in halves
            ]
            return np.concatenate(parts, axis)
        data = gathered(read, wanted, chunk)
        kept = [n for axis, n in enumerate(data.shape) if axis not in self.dropped]
        return data.reshape(kept)


def is_run(numbers: Sequence[int]) -> bool:
    """Return whether numbers follow each other."""
    if isinstance(numbers, range):
        return numbers.step == 1
    return all(b == a + 1 for a, b in itertools.pairwise(numbers))


def gathered(
    read: Callable[[Slices], Array], wanted: Sequence[Sequence[int]], chunk: Shape
) -> Array:
    """Read elements that need not follow each other; chunks without any of them are not read."""
    for axis, numbers in enumerate(wanted):
        if is_run(numbers):
            continue
        parts: list[Array] = []
        place: dict[int, int] = {}
        for group in near_groups(sorted(set(numbers)), chunk[axis]):
            span = range(group[0], group[-1] + 1)
            data = gathered(read, [*wanted[:axis], span, *wanted[axis + 1 :]], chunk)
            place |= {number: len(place) + i for i, number in enumerate(group)}
            parts.append(np.take(data, [number - span.start for number in group], axis))
        return np.take(np.concatenate(parts, axis), [place[n] for n in numbers], axis)
    return read(tuple(slice(n[0], n[-1] + 1) if n else slice(0, 0) for n in wanted))


def near_groups(numbers: Sequence[int], chunk: int) -> Iterator[list[int]]:
    """Yield sorted numbers in groups between which no chunk is skipped."""
    group: list[int] = []
    for number in numbers:
        if group and number // chunk > group[-1] // chunk + 1:
            yield group
            group = []
        group.append(number)
    yield group


class CutArray:
    """An array of a part, read from the whole when it is sliced."""

    def __init__(self, array: Any, cut: Cut) -> None:
        self.array, self.cut = array, cut
        self.shape, self.ndim, self.dtype = cut.shape, len(cut.shape), array.dtype
        self.fill_value = array.fill_value
        self.chunks = tuple(
            min(n, max(len(pick), 1))
            for axis, (n, pick) in enumerate(zip(array.chunks, cut.picks, strict=True))
            if axis not in cut.dropped
        )

    @property
    def nbytes(self) -> int:
        """The decoded size."""
        return math.prod(self.shape) * int(self.dtype.itemsize)

    def __getitem__(self, wanted: Any) -> Any:
        found = spans(wanted, self.shape)
        if found is None:
            raise IndexError(f"{wanted!r}: expected integers and slices of step 1")
        pieces, dropped = found
        box = tuple(slice(start, stop) for start, stop in pieces)
        if any(side.start == side.stop for side in box):
            data = np.empty([side.stop - side.start for side in box], self.dtype)
        else:
            data = self.cut.read(
                lambda b: np.asarray(self.array[b]),
                box,
                tuple(self.array.chunks),
                self.dtype.itemsize,
            )
        return data[tuple(0 if axis in dropped else slice(None) for axis in range(data.ndim))]
