"""A plain selection of an array, cut along its chunk grid with a few arrays, no object a chunk."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
import numpy.typing as npt

type Spans = list[tuple[int, int]]
type Slices = tuple[slice, ...]

PLAIN = {slice, int, EllipsisType}
FEW = 16
"""Up to so many chunks are counted one by one: arrays would cost more."""


def spans(selection: Any, shape: tuple[int, ...]) -> tuple[Spans, tuple[int, ...]] | None:
    """Give (start, stop) along each axis, and the axes that an integer takes away.

    None for whatever is not integers and slices without a step, inside the array: zarr knows it.
    """
    parts = selection if type(selection) is tuple else (selection,)
    kinds = [type(part) for part in parts]
    # anything else is not even compared: a mask or a list of indices does so by element
    if not PLAIN.issuperset(kinds):
        return None
    gaps = kinds.count(EllipsisType)
    missing = len(shape) - len(parts) + gaps
    if gaps > 1 or missing < 0:
        return None
    if gaps:
        at = kinds.index(EllipsisType)
        parts = (*parts[:at], *(slice(None),) * missing, *parts[at + 1 :])
    elif missing:
        parts += (slice(None),) * missing
    found, dropped = [], []
    for axis, (part, size) in enumerate(zip(parts, shape, strict=True)):
        if type(part) is int and -size <= part < size:
            start = part % size
            found.append((start, start + 1))
            dropped.append(axis)
        elif type(part) is slice and (part.step is None or part.step == 1):
            start, stop, _ = part.indices(size)
            found.append((start, max(start, stop)))
        else:
            return None
    return found, tuple(dropped)


@dataclass(frozen=True)
class Plan:
    """The chunks that a box of an array touches, in C order."""

    firsts: tuple[int, ...]
    """The first chunk along each axis."""
    sources: tuple[list[slice], ...]
    """For each axis, what of each chunk along it is wanted."""
    targets: tuple[list[slice], ...]
    """For each axis, where in the result that goes."""

    grid: tuple[int, ...]
    """How many chunks it touches along each axis."""

    def __len__(self) -> int:
        return math.prod(self.grid)

    def numbers(self, grid: Sequence[int]) -> list[int] | npt.NDArray[np.int64]:
        """Give the number of each chunk in an array of `grid` chunks."""
        if len(self) <= FEW:
            few = [0]
            for first, count, size in zip(self.firsts, self.grid, grid, strict=True):
                few = [n * size + c for n in few for c in range(first, first + count)]
            return few
        many = np.zeros((), np.int64)
        for first, count, size in zip(self.firsts, self.grid, grid, strict=True):
            many = many[..., None] * size + np.arange(first, first + count)
        return many.reshape(-1)

    def places(self, positions: range) -> Iterator[tuple[Slices, Slices]]:
        """Give, for a run of chunks, what of each is wanted and where it goes."""
        if len(self) <= FEW:
            sides = itertools.product(*self.sources), itertools.product(*self.targets)
            every = zip(*sides, strict=True)
            yield from itertools.islice(every, positions.start, positions.stop)
            return
        along = np.unravel_index(np.arange(positions.start, positions.stop), self.grid)
        axes = [
            [(source[i], target[i]) for i in numbers.tolist()]
            for numbers, source, target in zip(along, self.sources, self.targets, strict=True)
        ]
        for pairs in zip(*axes, strict=True):
            sources, targets = zip(*pairs, strict=True)
            yield sources, targets


def cut(pieces: Spans, chunk: tuple[int, ...]) -> Plan:
    """Cut a box along a regular grid."""
    firsts, sources, targets, grid = [], [], [], []
    for (start, stop), n in zip(pieces, chunk, strict=True):
        first, end = start // n, -(-stop // n) if stop > start else start // n
        source, target = [], []
        for corner in range(first * n, end * n, n):
            low = max(corner, start)
            high = min(corner + n, stop)
            source.append(slice(low - corner, high - corner))
            target.append(slice(low - start, high - start))
        firsts.append(first)
        sources.append(source)
        targets.append(target)
        grid.append(end - first)
    return Plan(tuple(firsts), tuple(sources), tuple(targets), tuple(grid))
