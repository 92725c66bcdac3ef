"""What a conversion makes from what. Plain data: it travels to a Dask worker."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from anychunk.model.grid import Shape, grid_shape
from anychunk.model.index import Json, Node


@dataclass(frozen=True, kw_only=True)
class Level:
    """One array to write."""

    path: str
    """In the target."""
    source: str | None
    """Path of the array that it is a copy of; None: made from the level before."""
    order: tuple[int, ...]
    """Axes of the source, in the order of the target; what is left out has length one."""
    ratio: Shape
    """How many elements of the level before become one, along each axis."""
    shape: Shape
    outer: Shape
    """Elements of one object in the store: a shard, or a chunk where there are no shards."""
    region: Shape
    """Elements that are made at a time: whole objects."""
    nodata: float | None
    method: str
    itemsize: int
    metadata: dict[str, Json]

    @property
    def grid(self) -> Shape:
        return grid_shape(self.shape, self.region)

    def bounds(self, coords: Shape) -> tuple[Shape, Shape]:
        """Give start and stop of a region."""
        start = tuple(c * r for c, r in zip(coords, self.region, strict=True))
        stop = tuple(min(a + r, n) for a, r, n in zip(start, self.region, self.shape, strict=True))
        return start, stop

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.itemsize


@dataclass(frozen=True, kw_only=True)
class Run:
    """Consecutive levels that are made together, so that the finest is read once."""

    levels: tuple[Level, ...]
    """All of the image up to the last of this run: what is finer than `first` is read back."""
    first: int

    @property
    def top(self) -> Level:
        return self.levels[-1]


@dataclass(frozen=True, kw_only=True)
class Plan:
    source: Node
    runs: tuple[Run, ...]
    groups: dict[str, dict[str, Json]]
    """Attributes of every group of the target, by path."""
    arrays: tuple[Level, ...]
    fingerprint: str
    """Of source and plan: what tells whether an unfinished target belongs to it."""
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(level.nbytes for level in self.arrays)


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the caller asks for."""

    like: str = "ome-zarr"
    chunk: Sequence[int] | None = None
    shard: Sequence[int] | bool | None = None
    compression: str | Sequence[Json] | None = None
    levels: int | None = None
    method: str | None = None
    axes: Sequence[str] | None = None
    image: int | str | None = None
    notes: list[str] = field(default_factory=list)
