"""Where the samples to write come from: a region at a time, always in N5 axis order."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.n5_default import N5Default
from anychunk.model.grid import Shape
from anychunk.resample import by_window

type Array = npt.NDArray[Any]
type Region = tuple[slice, ...]


class Samples(Protocol):
    """What a dataset is written from."""

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def step(self) -> Shape:
        """A region that is read about as cheaply as any part of it."""
        ...

    def read(self, region: Region) -> Array: ...


@dataclass(frozen=True, eq=False)
class Given:
    """A numpy, zarr or dask array of the caller."""

    array: Any
    is_reversed: bool

    @property
    def shape(self) -> Shape:
        return self._order(tuple(int(n) for n in self.array.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.array.dtype)
        return dtype.newbyteorder("=")

    @property
    def step(self) -> Shape:
        # zarr's chunks are (64, 64), dask's ((64, 64, 2), (64,))
        chunks = getattr(self.array, "chunks", None) or (1,) * len(self.array.shape)
        return self._order(tuple(max(c) if isinstance(c, tuple) else int(c) for c in chunks))

    def read(self, region: Region) -> Array:
        piece = np.asarray(self.array[self._order(region)])
        return piece.T if self.is_reversed else piece

    def _order(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return values[::-1] if self.is_reversed else values


@dataclass(frozen=True, eq=False)
class Stored:
    """A dataset that was just written, every block of it."""

    shape: Shape
    dtype: np.dtype[Any]
    step: Shape
    """Its block size."""
    codec: N5Default
    fetch: Callable[[Shape], npt.NDArray[np.uint8]]
    """Gives the bytes of a block by its grid coordinates."""

    def read(self, region: Region) -> Array:
        out = np.empty([s.stop - s.start for s in region], self.dtype)
        spec = ChunkSpec(self.step, self.dtype)
        for coords in product(
            *[range(s.start // n, -(-s.stop // n)) for s, n in zip(region, self.step, strict=True)]
        ):
            block = self.codec.decode_chunk(self.fetch(coords), spec)
            source, target = [], []
            for c, n, s in zip(coords, self.step, region, strict=True):
                start, stop = max(c * n, s.start), min((c + 1) * n, s.stop)
                source.append(slice(start - c * n, stop - c * n))
                target.append(slice(start - s.start, stop - s.start))
            out[tuple(target)] = block[tuple(source)]
        return out


@dataclass(frozen=True, eq=False)
class Halved:
    """One of each window of `factors` elements; a rest at the end that fills none is dropped."""

    full: Samples
    factors: Shape
    method: str = "average"
    nodata: float | None = None

    @property
    def shape(self) -> Shape:
        return tuple(n // f for n, f in zip(self.full.shape, self.factors, strict=True))

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.full.dtype

    @property
    def step(self) -> Shape:
        return (1,) * len(self.factors)

    def read(self, region: Region) -> Array:
        pairs = zip(region, self.factors, strict=True)
        full = self.full.read(tuple(slice(s.start * f, s.stop * f) for s, f in pairs))
        return by_window(full, self.factors, self.method, self.nodata)


def factors_of(shape: Shape, still: Collection[int] = ()) -> Shape:
    """Halve every axis that can be halved, and is not to stay as it is."""
    return tuple(2 if n > 1 and i not in still else 1 for i, n in enumerate(shape))
