"""One tile at a time, by its indices. Arguments are in numpy's axis order, slowest first."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy.typing as npt

from anychunk.decode.boxes import ArrayReader
from anychunk.decode.chunks import ChunkReader
from anychunk.decode.computed import compute_chunk
from anychunk.errors import FormatError
from anychunk.formats.jnrrd.parse import open_header, open_tiled, tiled_index
from anychunk.io import Sources, Storage, buffered, open_source
from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, Computed


class TileReader:
    """Reads the tiles of one file, each on its own."""

    def __init__(
        self, url: str | Path, *, storage: Storage | None = None, allow: Iterable[str] = ()
    ) -> None:
        source = open_source(str(url), storage=storage)
        near = buffered(source)
        header = open_header(near)
        self.url = source.url
        self.tiled = open_tiled(header, near, allow=allow)
        self.root = tiled_index(header, self.tiled, near, allow=allow)
        self.sources = Sources({source.url: source.pin()}, storage=storage)
        self._regions: dict[str, ArrayReader] = {}

    def array(self, level: int) -> ArrayIndex:
        try:
            array = self.root[f"0/{level}"]
        except KeyError:
            raise FormatError(
                f"{self.url}: level {level}, there are {len(self.tiled.levels)}"
            ) from None
        if not isinstance(array, ArrayIndex):
            raise FormatError(f"{self.url}: level {level} is no array")
        return array

    def region(self, path: str) -> ArrayReader:
        if path not in self._regions:
            array = self.root[path]
            if not isinstance(array, ArrayIndex):
                raise FormatError(f"{self.url}: {path} is no array")
            reader = ChunkReader(array, self.sources, where=f"{self.url} {path}")
            self._regions[path] = ArrayReader(reader)
        return self._regions[path]

    def read(self, indices: Iterable[int], level: int = 0) -> npt.NDArray[Any]:
        array = self.array(level)
        coords = self.coords(tuple(indices), array)
        start = tuple(c * n for c, n in zip(coords, array.chunk_shape, strict=True))
        stop = tuple(
            min(a + n, size)
            for a, n, size in zip(start, array.chunk_shape, array.shape, strict=True)
        )
        if not isinstance(array.chunks, Computed):
            return self.region(f"0/{level}").read(start, stop)
        chunk = compute_chunk(array, coords, self.region(array.chunks.source))
        return chunk[tuple(slice(b - a) for a, b in zip(start, stop, strict=True))]

    def coords(self, indices: Shape, array: ArrayIndex) -> Shape:
        """Give the chunk of a tile; axes that are not tiled may be left out."""
        ndim, trailing = len(self.tiled.volume.sizes), len(self.tiled.volume.trailing)
        tiled = sorted(ndim - 1 - axis for axis in self.tiled.tiling.dimensions)
        coords = [0] * (ndim + trailing)
        if len(indices) not in (ndim, len(tiled)):
            raise FormatError(
                f"{self.url}: {len(indices)} tile indices, expected {len(tiled)}, one a tiled axis"
            )
        for axis, index in zip(
            range(ndim) if len(indices) == ndim else tiled, indices, strict=True
        ):
            coords[axis] = int(index)
        if any(not 0 <= c < n for c, n in zip(coords, array.grid, strict=True)):
            raise FormatError(
                f"{self.url}: tile {indices} is outside the grid of {array.grid[:ndim]}"
            )
        return tuple(coords)


def read_tile(
    url: str | Path,
    indices: Iterable[int],
    level: int = 0,
    *,
    storage: Storage | None = None,
    allow: Iterable[str] = (),
) -> npt.NDArray[Any]:
    """Read one tile: its own voxels, without padding and without what overlaps its neighbours.

    `indices` count tiles, not voxels, slowest axis first; axes that are not tiled may be left out.
    """
    return TileReader(url, storage=storage, allow=allow).read(indices, level)


def tile_of_voxel(
    url: str | Path, voxel: Iterable[int], level: int = 0, *, storage: Storage | None = None
) -> Shape:
    """Give the indices of the tile that holds a voxel of a level, one an axis, slowest first."""
    reader = TileReader(url, storage=storage)
    array = reader.array(level)
    ndim = len(reader.tiled.volume.sizes)
    place = tuple(voxel)
    if len(place) != ndim or any(
        not 0 <= v < n for v, n in zip(place, array.shape[:ndim], strict=True)
    ):
        raise FormatError(
            f"{reader.url}: voxel {place} is outside level {level}, {array.shape[:ndim]}"
        )
    return tuple(int(v) // n for v, n in zip(place, array.chunk_shape[:ndim], strict=True))
