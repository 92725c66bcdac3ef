"""Chunk grids: boxes cut along them, and the numbers and keys of chunks. Pure.

The only place in the library that computes which chunks a box touches, and the keys of chunks.
Chunks are numbered in C order over the grid; coordinates count chunks, not elements.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

type Array = npt.NDArray[Any]
type Shape = tuple[int, ...]
type Slices = tuple[slice, ...]
type Spans = list[tuple[int, int]]
type Numbers = npt.NDArray[np.int64]

BASIC = {slice, int, EllipsisType}
FEW = 16
"""Up to this many chunks are enumerated one by one: building arrays would cost more."""


def grid_shape(shape: Shape, chunk_shape: Shape) -> Shape:
    """Return the number of chunks along each axis."""
    return tuple(-(-size // chunk) for size, chunk in zip(shape, chunk_shape, strict=True))


def chunk_number(coords: Sequence[int], grid: Shape) -> int:
    """Return the number of the chunk at `coords`, in C order over `grid`."""
    number = 0
    for coord, size in zip(coords, grid, strict=True):
        number = number * size + coord
    return number


def is_at_edges(number: int, grid: Shape) -> tuple[bool, bool]:
    """Return whether a chunk is in the last row, and in the last column, of the last two axes."""
    row, column = divmod(number, grid[-1])
    return row % grid[-2] == grid[-2] - 1, column == grid[-1] - 1


def chunk_coords(number: int, grid: Shape) -> Shape:
    """Return the grid coordinates of chunk `number`."""
    found = []
    for size in reversed(grid):
        number, coord = divmod(number, size)
        found.append(coord)
    return tuple(found[::-1])


def chunk_key(path: str, coords: Sequence[int]) -> str:
    """Return the key of a chunk in Zarr's default encoding: `path/c/1/0/7`."""
    return "/".join([path, "c", *map(str, coords)] if path else ["c", *map(str, coords)])


def split_key(key: str) -> tuple[str, str] | None:
    """Split a chunk key into the array's path and the text of the coordinates, or return None."""
    text = f"/{key}"
    if text.endswith("/c"):
        # an array without axes has one chunk, `c`; it may lie below a group called `c`
        return text[1:-2], ""
    path, found, rest = text.rpartition("/c/")
    return (path[1:], rest) if found else None


def parse_coords(text: str, grid: Shape) -> Shape | None:
    """Parse grid coordinates such as `1/0/7`; return None if `grid` has no such chunk."""
    parts = text.split("/") if text else []
    if len(parts) != len(grid) or not all(p.isascii() and p.isdigit() for p in parts):
        return None
    # Zarr writes no leading zeros; int() would accept them, and very long digit strings too
    if any(len(p) > 20 or (p[0] == "0" and p != "0") for p in parts):
        return None
    coords = tuple(int(p) for p in parts)
    return coords if all(c < size for c, size in zip(coords, grid, strict=True)) else None


def chunk_numbers(coords: Array, grid: Shape) -> Numbers:
    """Return the number of the chunk at each row of `coords`, in C order over `grid`."""
    steps = np.cumprod([1, *grid[:0:-1]])[::-1] if grid else np.zeros(0, np.int64)
    numbers: Numbers = coords @ steps
    return numbers


def parse_many_coords(texts: Sequence[str], grid: Shape) -> Numbers:
    """Parse many well-formed coordinates such as `1/0/7` at once; return their chunk numbers.

    A Python loop over coordinates would cost more than decoding small chunks does.
    """
    if not grid:
        return np.zeros(len(texts), np.int64)
    coords = np.fromstring("/".join(texts), np.int64, sep="/").reshape(-1, len(grid))
    return chunk_numbers(coords, grid)


def chunk_box(coords: Shape, chunk_shape: Shape, shape: Shape) -> Slices:
    """Return the part of an array of `shape` that the chunk at `coords` covers."""
    return tuple(
        slice(c * n, min((c + 1) * n, size))
        for c, n, size in zip(coords, chunk_shape, shape, strict=True)
    )


def touched_grid(start: Shape, stop: Shape, chunk_shape: Shape) -> Slices:
    """Return the slices of the chunk grid that the box from `start` to `stop` touches."""
    sides = zip(start, stop, chunk_shape, strict=True)
    return tuple(slice(a // n, -(-b // n)) for a, b, n in sides)


def touched_chunks(start: Shape, stop: Shape, chunk_shape: Shape) -> Iterator[Shape]:
    """Yield the coordinates of every chunk that the box from `start` to `stop` touches."""
    sides = touched_grid(start, stop, chunk_shape)
    return itertools.product(*(range(side.start, side.stop) for side in sides))


class Piece(NamedTuple):
    """The intersection of a box with one chunk."""

    source: Slices
    """The part of the chunk that the box takes."""
    target: Slices
    """Where that part goes in the box."""
    is_whole: bool
    """Whether the box takes all of the chunk that lies inside the array."""


def piece_of(
    coords: Shape, start: Shape, stop: Shape, *, chunk_shape: Shape, shape: Shape
) -> Piece:
    """Return what the box from `start` to `stop` of an array of `shape` takes from one chunk."""
    source, target, is_whole = [], [], True
    sides = zip(coords, start, stop, chunk_shape, shape, strict=True)
    for c, first, last, n, size in sides:
        origin, end = c * n, min((c + 1) * n, size)
        low, high = max(first, origin), min(last, end)
        source.append(slice(low - origin, high - origin))
        target.append(slice(low - first, high - first))
        is_whole &= low == origin and high == end
    return Piece(tuple(source), tuple(target), is_whole)


def cut_box(
    start: Shape, stop: Shape, *, chunk_shape: Shape, shape: Shape
) -> Iterator[tuple[Shape, Piece]]:
    """Yield the coordinates of each chunk that a box touches, and what the box takes from it."""
    for coords in touched_chunks(start, stop, chunk_shape):
        yield coords, piece_of(coords, start, stop, chunk_shape=chunk_shape, shape=shape)


def spans(selection: Any, shape: Shape) -> tuple[Spans, tuple[int, ...]] | None:
    """Return (start, stop) along each axis, and the axes that an integer index removes.

    None unless the selection consists of in-range integers and slices of step 1: everything else
    is left to zarr.
    """
    parts = selection if type(selection) is tuple else (selection,)
    kinds = [type(part) for part in parts]
    # types first: comparing a mask or a list of indices would compare its elements
    if not BASIC.issuperset(kinds):
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


@dataclass(slots=True)  # not frozen, which would triple the cost of building one per request
class Plan:
    """The chunks that a box of an array touches, in C order.

    The same as `cut_box`, kept per axis: a box of many small chunks is planned with a few arrays
    instead of one object per chunk.
    """

    firsts: Shape
    """The first chunk along each axis."""
    sources: tuple[list[slice], ...]
    """For each axis, the part of each chunk along it that the box takes."""
    targets: tuple[list[slice], ...]
    """For each axis, where in the box that part goes."""
    grid: Shape
    """The number of chunks touched along each axis."""
    is_box: bool = True
    """Whether all of each chunk is taken between the first and the last one along an axis."""

    def __len__(self) -> int:
        return math.prod(self.grid)

    def numbers(self, grid: Sequence[int]) -> list[int] | Numbers:
        """Return the number of each chunk in an array whose chunk grid is `grid`."""
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
        """Yield, for a run of chunks, the part of each that is taken and where it goes."""
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


def plan_box(box: Spans, chunk_shape: Shape) -> Plan:
    """Plan the reading of a box, given as (start, stop) along each axis."""
    firsts, sources, targets, grid = [], [], [], []
    for (start, stop), n in zip(box, chunk_shape, strict=True):
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
