"""The samples that a dataset is written from, read one region at a time, in N5 axis order.

`Given` is the caller's array, `Stored` a level that has been written, `Halved` the next level
computed from it. `Regions` cuts any of them into pieces of whole blocks.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.n5_default import N5Default
from anychunk.model.grid import (
    Array,
    Shape,
    Slices,
    chunk_box,
    chunk_coords,
    cut_box,
    grid_shape,
    touched_chunks,
)
from anychunk.resample import by_window

REGION_BYTES = 64 << 20
"""Maximum number of bytes that one thread reads at a time."""


class Samples(Protocol):
    """An array to write."""

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def step(self) -> Shape:
        """The shape of its chunks: reading a part of one costs as much as reading all of it."""
        ...

    def read(self, region: Slices) -> Array:
        """Return the samples of a region."""
        ...


@dataclass(frozen=True, eq=False)
class Given:
    """The caller's numpy, zarr or dask array."""

    array: Any
    is_reversed: bool
    """Whether its axes are in reverse N5 order, slowest first."""

    @property
    def shape(self) -> Shape:
        return self._order(tuple(int(n) for n in self.array.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.array.dtype)
        return dtype.newbyteorder("=")

    @property
    def step(self) -> Shape:
        # zarr has chunks of (64, 64), dask of ((64, 64, 2), (64,)), numpy none
        chunks = getattr(self.array, "chunks", None) or (1,) * len(self.array.shape)
        return self._order(tuple(max(c) if isinstance(c, tuple) else int(c) for c in chunks))

    def read(self, region: Slices) -> Array:
        piece = np.asarray(self.array[self._order(region)])
        return piece.T if self.is_reversed else piece

    def _order(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return values[::-1] if self.is_reversed else values


@dataclass(frozen=True, eq=False)
class Stored:
    """A dataset that has just been written, with no block missing."""

    shape: Shape
    dtype: np.dtype[Any]
    step: Shape
    """The block size."""
    codec: N5Default
    fetch: Callable[[Shape], npt.NDArray[np.uint8]]
    """Returns the stored bytes of the block at some grid coordinates."""

    def read(self, region: Slices) -> Array:
        out = np.empty([s.stop - s.start for s in region], self.dtype)
        spec = ChunkSpec(self.step, self.dtype)
        start, stop = tuple(s.start for s in region), tuple(s.stop for s in region)
        for coords, piece in cut_box(start, stop, chunk_shape=self.step, shape=self.shape):
            block = self.codec.decode_chunk(self.fetch(coords), spec)
            out[piece.target] = block[piece.source]
        return out


@dataclass(frozen=True, eq=False)
class Halved:
    """Samples reduced by `factors`; trailing elements that fill no window are dropped."""

    full: Samples
    """The samples that are reduced."""
    factors: Shape
    """Elements of a window along each axis."""
    method: str = "average"
    nodata: float | None = None
    """A value that is excluded from windows."""

    @property
    def shape(self) -> Shape:
        return tuple(n // f for n, f in zip(self.full.shape, self.factors, strict=True))

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.full.dtype

    @property
    def step(self) -> Shape:
        return (1,) * len(self.factors)

    def read(self, region: Slices) -> Array:
        pairs = zip(region, self.factors, strict=True)
        full = self.full.read(tuple(slice(s.start * f, s.stop * f) for s, f in pairs))
        return by_window(full, self.factors, self.method, self.nodata)


def factors_of(shape: Shape, still: Collection[int] = ()) -> Shape:
    """Return 2 for every axis that is halved, 1 for those in `still` or of length 1."""
    return tuple(2 if n > 1 and i not in still else 1 for i, n in enumerate(shape))


@dataclass(frozen=True, kw_only=True)
class Regions:
    """An array cut into regions of whole blocks, each read in one piece."""

    shape: Shape
    """The shape of the array."""
    block: Shape
    """The shape of a block."""
    size: Shape
    """The shape of a region."""
    grid: Shape
    """Regions along each axis."""

    @classmethod
    def of(cls, samples: Samples, block: Shape) -> "Regions":
        """Cut an array so that a region covers whole chunks of it, up to `REGION_BYTES`.

        A chunk of the caller's array that several regions share is read once for each of them.
        """
        size = list(block)
        for axis, step in enumerate(samples.step):
            wanted = -(-step // block[axis]) * block[axis]
            others = math.prod(size) // size[axis] * samples.dtype.itemsize
            most = max(1, REGION_BYTES // (others * block[axis])) * block[axis]
            size[axis] = max(block[axis], min(wanted, most))
        return cls(
            shape=samples.shape,
            block=block,
            size=tuple(size),
            grid=grid_shape(samples.shape, tuple(size)),
        )

    def __len__(self) -> int:
        return math.prod(self.grid)

    def __getitem__(self, number: int) -> Slices:
        return chunk_box(chunk_coords(number, self.grid), self.size, self.shape)

    def blocks(self, region: Slices) -> Iterator[tuple[Shape, Slices]]:
        """Yield the grid coordinates of each block of a region, and its place in the region."""
        start, stop = tuple(s.start for s in region), tuple(s.stop for s in region)
        for coords in touched_chunks(start, stop, self.block):
            sides = zip(chunk_box(coords, self.block, self.shape), start, strict=True)
            yield coords, tuple(slice(s.start - first, s.stop - first) for s, first in sides)
