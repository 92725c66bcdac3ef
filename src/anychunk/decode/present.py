"""Which chunks of an array are there, so that the others need not be tried one by one.

A few bytes announce any number of absent chunks. Tables say which are absent, and folders are
listed; an entry that is neither a file nor a plain folder leaves the question to the reader.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.errors import AnychunkError
from anychunk.io.inside import real_path
from anychunk.io.opening import list_objects
from anychunk.io.source import Storage, is_remote, local_path
from anychunk.model.grid import Shape, chunk_number, grid_shape
from anychunk.model.index import ArrayIndex, ByteRanges, Objects

type Numbers = npt.NDArray[np.int64]

AT_ONCE = 1 << 20
COORDINATE = r"\{\d+(?::0\d{1,2})?\}"
"""A placeholder in a pattern of names."""


@dataclass(frozen=True, kw_only=True)
class Present:
    """The chunks of an array that are there."""

    array: ArrayIndex
    numbers: list[Numbers]
    """In pieces, each of any length."""

    def boxes(self, step: Shape) -> npt.NDArray[np.bool_]:
        """Return which boxes of `step` elements contain a part of one."""
        array = self.array
        marks = np.zeros(grid_shape(array.shape, step), bool)
        if not array.shape:
            return ~marks
        for numbers in self.numbers:
            coords = np.unravel_index(numbers, array.grid)
            sides = zip(coords, array.chunk_shape, array.shape, step, strict=True)
            first, last = zip(*(_boxes_of(*side) for side in sides), strict=True)
            spans = [int((b - a).max(initial=0)) + 1 for a, b in zip(first, last, strict=True)]
            # a shard may be larger than a box
            for shift in np.ndindex(*spans):
                at = [np.minimum(a + s, b) for a, b, s in zip(first, last, shift, strict=True)]
                marks[tuple(at)] = True
        return marks


def _boxes_of(coords: Numbers, chunk: int, size: int, step: int) -> tuple[Numbers, Numbers]:
    """Return the first and the last box along an axis that chunks touch."""
    if step % chunk == 0:
        boxes = coords // (step // chunk)
        return boxes, boxes
    exact = coords.astype(object)  # sizes may be close to 2**64
    ends = np.minimum((exact + 1) * chunk, size)
    return (exact * chunk // step).astype(np.int64), ((ends - 1) // step).astype(np.int64)


class UnlistedError(Exception):
    """A folder whose entries do not tell which chunks are absent."""


def present_chunks(array: ArrayIndex, storage: Storage | None = None) -> Present | None:
    """Return the chunks that are there; None if only reading tells."""
    chunks = array.chunks
    if isinstance(chunks, ByteRanges):
        stored = chunks.lengths.reshape(-1)
        starts = range(0, stored.size, AT_ONCE)
        pieces = [np.flatnonzero(stored[start : start + AT_ONCE]) + start for start in starts]
        return Present(array=array, numbers=pieces)
    if not isinstance(chunks, Objects) or not chunks.is_sparse:
        return None
    if math.prod(array.grid) > limits.get().chunks:
        return None  # what the answer is used for takes memory per chunk of the grid
    if not is_reversible(chunks):
        return None
    try:
        listed = _remote(chunks, storage) if is_remote(chunks.base) else _local(chunks)
        return Present(array=array, numbers=[np.fromiter(listed, np.int64)])
    except (UnlistedError, AnychunkError, OSError):
        return None


def is_reversible(chunks: Objects) -> bool:
    """Return whether an object's name tells the chunk: digits of two coordinates never touch."""
    between = re.split(COORDINATE, chunks.pattern)[1:-1]
    named = {int(axis) for axis in re.findall(r"\{(\d+)", chunks.pattern)}
    has_all = all(size == 1 or axis in named for axis, size in enumerate(chunks.grid))
    return has_all and all(text and not text.isdigit() for text in between)


def named_chunks(chunks: Objects, names: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield (number, name) of the chunks among objects, whatever the case of their letters."""
    whole = _regex(chunks.pattern)
    for name in names:
        for number in _number(chunks, name, whole):
            yield number, name


def _remote(chunks: Objects, storage: Storage | None) -> Iterator[int]:
    names = (name for name, _ in list_objects(chunks.base, storage=storage))
    for number, _ in named_chunks(chunks, names):
        yield number


def _local(chunks: Objects) -> Iterator[int]:
    """List folder by folder, without links; any entry in a chunk's place counts."""
    base = local_path(chunks.base)
    real_path(base, [local_path(root) for root in chunks.places])
    pieces = chunks.pattern.split("/")
    steps = [_regex("/".join(pieces[: i + 1])) for i in range(len(pieces))]
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        depth = folder.count("/")
        with os.scandir(f"{base}/{folder}") as entries:
            for entry in entries:
                name = f"{folder}{entry.name}"
                if not steps[depth].fullmatch(name):
                    continue
                if depth == len(pieces) - 1:
                    yield from _number(chunks, name, steps[depth])
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{name}/")
                else:
                    raise UnlistedError(name)


def _regex(pattern: str) -> re.Pattern[str]:
    """Return what matches the names of a pattern; some file systems ignore case."""
    text = re.split(COORDINATE, pattern)
    return re.compile(r"(\d{1,20})".join(map(re.escape, text)), re.IGNORECASE | re.ASCII)


def _number(chunks: Objects, name: str, whole: re.Pattern[str]) -> Iterator[int]:
    """Yield the number of the chunk that has this name, if one has."""
    found = whole.fullmatch(name)
    if found is None:
        return
    coords = [0] * len(chunks.grid)
    axes = re.findall(r"\{(\d+)(?::0\d{1,2})?\}", chunks.pattern)
    for axis, digits in zip(map(int, axes), found.groups(), strict=True):
        coords[axis] = int(digits)
    inside = all(c < size for c, size in zip(coords, chunks.grid, strict=True))
    if inside and chunks.name(tuple(coords)).lower() == name.lower():
        yield chunk_number(coords, chunks.grid)
