"""JNRRD and NRRD: an n-dimensional volume with a text header, whole or in tiles.

Spec:    JNRRD 1.0.0 ("0004"), Tiling Extension 1.0.0; NRRD0001 to NRRD0005 (Teem).
Axes:    those of the header reversed, slowest first; named by their labels, or else by their kinds.
Opened:  every type; raw, ascii, hex, gzip, bzip2, zstd and LZ4 frame; attached and detached data;
         internal and external tiles, padded, cropped or overlapping; levels, stored and virtual.
Refused: references outside the folder of the file (unless allowed); tables that contradict it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy.typing as npt

from anychunk.errors import FormatError, OptionError
from anychunk.formats.jnrrd import nrrd
from anychunk.formats.jnrrd.header import MAGIC, Header, Line, read_header
from anychunk.formats.jnrrd.parse import open_header, open_tiled, stored_arrays
from anychunk.formats.jnrrd.parse import parse as parse_jnrrd
from anychunk.formats.jnrrd.tiling_fields import Finding
from anychunk.formats.jnrrd.validate import check_header, validate
from anychunk.formats.jnrrd.write import write_tiled
from anychunk.formats.jnrrd.write_untiled import is_detached, is_nrrd, write_plain
from anychunk.io.block_cache import buffered
from anychunk.io.open_sources import Sources
from anychunk.io.opening import open_source
from anychunk.io.source import Source, Storage
from anychunk.model.grid import Shape, chunk_box
from anychunk.model.images import VARIABLE
from anychunk.model.index import ArrayIndex, Computed, GroupIndex
from anychunk.options import JnrrdOptions, check_for, checked

if TYPE_CHECKING:
    from anychunk.decode.boxes import ArrayReader  # slow to import, and not needed to parse a file

__all__ = [
    "EXTENSIONS",
    "Finding",
    "Header",
    "Line",
    "TileReader",
    "check_header",
    "claims",
    "parse",
    "read_header",
    "read_tile",
    "sniff",
    "tile_of_voxel",
    "validate",
    "write",
    "writes_beside",
]

EXTENSIONS = (".jnrrd", ".nrrd", ".nhdr")


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a JNRRD or NRRD file."""
    return MAGIC.match(head) is not None or nrrd.sniff(head)


def parse(source: Source, *, allow: Iterable[str] = ()) -> GroupIndex:
    """Index a file; `allow` lists further folders that may hold its tiles or data files."""
    if nrrd.sniff(source.read(0, min(16, source.size())).tobytes()):
        return nrrd.parse(source, allow=allow)
    return parse_jnrrd(source, allow=allow)


def claims(url: str) -> bool:
    """Return whether `url` names a JNRRD or NRRD file."""
    return url.lower().endswith(EXTENSIONS)


def writes_beside(url: str, options: Mapping[str, Any]) -> bool:
    """Return whether writing `url` with these options makes files beside it that it names."""
    if is_plain(url, options):
        return is_detached(url, **options)
    return bool(options.get("external"))


def is_plain(url: str, options: Mapping[str, Any]) -> bool:
    """Return whether a file has no tiles: every NRRD file, and JNRRD with `chunked=False`."""
    return is_nrrd(url) or options.get("chunked") is False


@checked()
def write(array: Any, url: str, **options: Unpack[JnrrdOptions]) -> None:
    """Write an array as tiled JNRRD, or without tiles as NRRD or JNRRD.

    Sizes and axes are in numpy's order, slowest first. docs/formats/jnrrd.md describes the options.

    Parameters:
        array: A numpy, dask or zarr array, or anything with `shape`, `dtype` and slicing.
        url: The file to write; `.nrrd` and `.nhdr` are NRRD, `.jnrrd` is JNRRD.
        **options: Those of `write_tiled` or `write_plain`.

    Raises:
        OptionError: An option is wrong, or contradicts another.
        UnsupportedError: The format cannot hold the array.
    """
    given: dict[str, Any] = {**options}
    chunked = given.pop("chunked", None)
    if not is_plain(url, {"chunked": chunked}):
        check_for(write_tiled, f"{url}: with tiles", given)
        write_tiled(array, url, **given)
        return
    if chunked:
        raise OptionError(f"{url}: NRRD has no tiles; write .jnrrd, or leave out chunked")
    if given.pop("checkpoints", None) is not None:  # a target that nobody sees yet
        given["overwrite"] = True
    check_for(write_plain, f"{url}: without tiles", given)
    write_plain(array, url, **given)


# Reading single tiles by their indices. Arguments are in numpy's axis order, slowest first.


class TileReader:
    """Reads single tiles of one file, whose header is parsed once."""

    def __init__(
        self, url: str | Path, *, storage: Storage | None = None, allow: Iterable[str] = ()
    ) -> None:
        source = open_source(str(url), storage=storage)
        near = buffered(source)
        header = open_header(near)
        self.url = source.url
        self.tiled = open_tiled(header, near, allow=allow)
        self.arrays = stored_arrays(self.tiled, near, allow=allow)
        """The levels by number, in the order of the file's axes, whatever their meaning."""
        self.sources = Sources({source.url: source.pin()}, storage=storage)
        self._readers: dict[str, ArrayReader] = {}

    def array(self, level: int) -> ArrayIndex:
        """Return the index of a level."""
        found = self.arrays.get(str(level))
        if found is None:
            raise FormatError(f"{self.url}: level {level}, expected below {len(self.tiled.levels)}")
        return found

    def reader(self, path: str) -> "ArrayReader":
        """Return the reader of a level, given its path in the index, such as `0/2/image`."""
        if path not in self._readers:
            from anychunk.decode.boxes import ArrayReader
            from anychunk.decode.chunks import ChunkReader

            array = self.arrays[path.split("/")[1]]
            chunks = ChunkReader(array, self.sources, where=f"{self.url} {path}")
            self._readers[path] = ArrayReader(chunks)
        return self._readers[path]

    def read(self, indices: Iterable[int], level: int = 0) -> npt.NDArray[Any]:
        """Read one tile, as `read_tile` does."""
        array = self.array(level)
        coords = self.coords(tuple(indices), array)
        box = chunk_box(coords, array.chunk_shape, array.shape)
        if not isinstance(array.chunks, Computed):
            start, stop = tuple(s.start for s in box), tuple(s.stop for s in box)
            return self.reader(f"0/{level}/{VARIABLE}").read(start, stop)
        from anychunk.decode.computed import compute_chunk

        chunk = compute_chunk(array, coords, self.reader(array.chunks.source))
        return chunk[tuple(slice(s.stop - s.start) for s in box)]

    def coords(self, indices: Shape, array: ArrayIndex) -> Shape:
        """Return the chunk coordinates of a tile; indices of axes that are not tiled are optional.

        Indices count tiles and are never divided by the tile size. Section 8.2's `read_tile` calls
        section 8.1 with them, which divides them as if they were voxels.
        """
        ndim, trailing = len(self.tiled.volume.sizes), len(self.tiled.volume.trailing)
        tiled = sorted(ndim - 1 - axis for axis in self.tiled.tiling.dimensions)
        coords = [0] * (ndim + trailing)
        if len(indices) not in (ndim, len(tiled)):
            raise FormatError(
                f"{self.url}: {len(indices)} tile indices, expected {len(tiled)}, "
                "one per tiled axis"
            )
        for axis, index in zip(
            range(ndim) if len(indices) == ndim else tiled, indices, strict=True
        ):
            coords[axis] = int(index)
        if any(not 0 <= c < n for c, n in zip(coords, array.grid, strict=True)):
            raise FormatError(
                f"{self.url}: tile {indices} is outside the tile grid {array.grid[:ndim]}"
            )
        return tuple(coords)


@checked()
def read_tile(
    url: str | Path,
    indices: Iterable[int],
    level: int = 0,
    *,
    storage: Storage | None = None,
    allow: Iterable[str] = (),
) -> npt.NDArray[Any]:
    """Read one tile: its core voxels, without padding and without the overlap.

    To read several tiles of one file use a `TileReader`, which parses the header once.

    Parameters:
        url: A tiled JNRRD file.
        indices: The tile, counted in tiles, not voxels; slowest axis first. Axes that are not tiled
            may be left out.
        level: The level; 0 is full resolution.
        storage: How remote objects are accessed, as in `anychunk.open`.
        allow:  Further folders that may hold external tiles.

    Raises:
        FormatError: The file is not tiled, or has no such level or tile.
    """
    return TileReader(url, storage=storage, allow=allow).read(indices, level)


@checked()
def tile_of_voxel(
    url: str | Path, voxel: Iterable[int], level: int = 0, *, storage: Storage | None = None
) -> Shape:
    """Return the indices of the tile that holds a voxel of a level, one per axis, slowest first.

    Parameters:
        url: A tiled JNRRD file.
        voxel: The coordinates of the voxel in the level, slowest axis first.
        level: The level, 0 is full resolution.
        storage: How remote objects are accessed, as in `anychunk.open`.
    """
    reader = TileReader(url, storage=storage)
    array = reader.array(level)
    ndim = len(reader.tiled.volume.sizes)
    place = tuple(voxel)
    if len(place) != ndim or any(
        not 0 <= v < n for v, n in zip(place, array.shape[:ndim], strict=True)
    ):
        raise FormatError(
            f"{reader.url}: voxel {place} is outside level {level} of shape {array.shape[:ndim]}"
        )
    return tuple(int(v) // n for v, n in zip(place, array.chunk_shape[:ndim], strict=True))
