"""A plain selection of an array, cut along its chunk grid with a few arrays, no object a chunk."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

type Spans = list[tuple[int, int]]
type Slices = tuple[slice, ...]


def spans(selection: Any, shape: tuple[int, ...]) -> tuple[Spans, tuple[int, ...]] | None:
    """Give (start, stop) along each axis, and the axes that an integer takes away.

    None for whatever is not integers and slices without a step, inside the array: zarr knows it.
    """
    parts = selection if isinstance(selection, tuple) else (selection,)
    # a field of a structured type is a string, a mask or a list of indices compares by element
    if not all(type(part) in (slice, int) or part is Ellipsis for part in parts):
        return None
    if sum(part is Ellipsis for part in parts) > 1 or len(parts) > len(shape) + (Ellipsis in parts):
        return None
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        whole = (slice(None),) * (len(shape) - len(parts) + 1)
        parts = (*parts[:at], *whole, *parts[at + 1 :])
    parts += (slice(None),) * (len(shape) - len(parts))
    found, dropped = [], []
    for axis, (part, size) in enumerate(zip(parts, shape, strict=True)):
        if type(part) is int and -size <= part < size:
            start = part % size
            found.append((start, start + 1))
            dropped.append(axis)
        elif type(part) is slice and part.step in (None, 1):
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

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(map(len, self.sources))

    def __len__(self) -> int:
        return math.prod(self.grid)

    def numbers(self, grid: Sequence[int]) -> npt.NDArray[np.int64]:
        """Give the number of each chunk in an array of `grid` chunks."""
        found = np.zeros((), np.int64)
        for first, count, size in zip(self.firsts, self.grid, grid, strict=True):
            found = found[..., None] * size + np.arange(first, first + count)
        return found.reshape(-1)

    def places(self, positions: range) -> Iterator[tuple[Slices, Slices]]:
        """Give, for a run of chunks, what of each is wanted and where it goes."""
        if not self.sources:
            yield from [((), ())] * len(positions)
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
    firsts, sources, targets = [], [], []
    for (start, stop), n in zip(pieces, chunk, strict=True):
        numbers = range(start // n, -(-stop // n)) if stop > start else range(0)
        edges = [(max(start, c * n), min(stop, (c + 1) * n)) for c in numbers]
        firsts.append(numbers.start)
        sources.append(
            [slice(a - c * n, b - c * n) for c, (a, b) in zip(numbers, edges, strict=True)]
        )
        targets.append([slice(a - start, b - start) for a, b in edges])
    return Plan(tuple(firsts), tuple(sources), tuple(targets))
