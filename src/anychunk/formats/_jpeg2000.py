"""JPEG 2000 codestreams as Zarr arrays: one array per resolution, all referring to the same bytes.

Zarr chunks form a regular grid from the image's corner; JPEG 2000 tiles form a grid from their own
origin, whose size may not be divisible at lower resolutions. So there are three cases:

- a chunk is one tile, where both grids coincide;
- a chunk is the bytes of all tiles that it touches, and the codec crops and joins them: at a
  resolution that halves an odd tile size, or if the image begins inside its first tile;
- the image is one chunk, if tiles cannot be decoded separately: subsampled components have no
  common grid of tiles.

Packet headers that the main header holds (PPM) are part of the codec's configuration, by tile.
"""

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs import to_json
from anychunk.codecs.jpeg2000 import Front, Jpeg2000, has_windows
from anychunk.codecs.jpeg2000.tiles import check_decodable, edges, level_image, parse_header, scale
from anychunk.codestream.jpeg2000 import PROGRESSIONS, MainHeader, Siz, packed_parts
from anychunk.codestream.tiles import Codestream
from anychunk.errors import AnychunkError, FormatError
from anychunk.metadata.meaning import Level, Meaning
from anychunk.metadata.ome import scale_and_translation
from anychunk.model.grid import Numbers, grid_shape
from anychunk.model.index import ArrayIndex, ByteRanges, Json, Node, Parts

CODESTREAM_MAGIC = b"\xff\x4f\xff\x51"
"""SOC and SIZ markers, with which every codestream begins."""
SPANNING_BYTES = 16 * limits.MIB
"""Maximum size of chunks that touch several tiles."""
SPANNING_DOUBLINGS = 2
"""How many times such chunks are doubled in size, so that fewer tiles are decoded twice: a chunk of
4 x 4 tiles decodes 25 tiles for 16, a chunk of one tile decodes 4 for 1."""


@dataclass(frozen=True)
class _Axis:
    """One axis of a level: its size, its chunk size, and the tiles that each chunk touches."""

    size: int
    chunk: int
    first: Numbers
    """The first tile of each chunk."""
    last: Numbers
    """The last tile of each chunk."""

    @property
    def count(self) -> int:
        """Number of chunks."""
        return len(self.first)

    def is_plain(self, tiles: int) -> bool:
        """Return whether chunk i is exactly tile i, for each of `tiles` tiles."""
        numbers = np.arange(tiles)
        return np.array_equal(self.first, numbers) and np.array_equal(self.last, numbers)

    def pairs(self) -> tuple[Numbers, Numbers]:
        """Return the chunk and the tile of every pair that overlaps, ordered by chunk."""
        counts = self.last - self.first + 1
        chunks = np.repeat(np.arange(self.count), counts)
        starts = np.cumsum(counts) - counts
        return chunks, np.arange(counts.sum()) - starts[chunks] + self.first[chunks]


def axis(edge: Numbers, chunk: int) -> _Axis:
    """Return an axis divided into chunks; `edge` holds the borders of its tiles, starting at 0."""
    size = int(edge[-1])
    begin = np.arange(0, size, chunk)
    end = np.minimum(begin + chunk, size)
    first = np.searchsorted(edge, begin, "right") - 1
    last = np.searchsorted(edge, end, "left") - 1
    return _Axis(size, chunk, first, last)


def chunk_size(tile: int, step: int, factor: int) -> int:
    """Return the smallest chunk size that is a whole number of tiles, in samples of a level.

    Parameters:
        tile: size of a tile on the reference grid.
        step: reference grid points per sample.
        factor: samples per sample of the coarsest component; the result is a multiple of it, so
            that chunks do not divide such a sample.
    """
    return math.lcm(tile, step * factor) // step


@lru_cache(maxsize=64)
def axes(siz: Siz, level: int) -> tuple[_Axis, _Axis] | None:
    """Return the axes y and x of a level; None if the image must be one chunk."""
    x_edges, y_edges = edges(siz, level)
    image = level_image(siz, level)
    x_step, y_step = scale(siz, level)
    x_sub, y_sub = siz.subsampling
    x_factor = math.lcm(*(c.dx // x_sub for c in siz.components))
    y_factor = math.lcm(*(c.dy // y_sub for c in siz.components))
    x_chunk = chunk_size(siz.tile_width, x_step, x_factor)
    y_chunk = chunk_size(siz.tile_height, y_step, y_factor)
    # whether tiles begin at the image's corner, as chunks do
    x_aligned = siz.columns == 1 or -(-siz.tile_x0 // x_step) == image.x0
    y_aligned = siz.rows == 1 or -(-siz.tile_y0 // y_step) == image.y0
    is_cut = (siz.columns > 1 and image.x0 % x_factor) or (siz.rows > 1 and image.y0 % y_factor)
    # components of different subsampling: a tile must hold whole samples of each
    is_mixed = max(x_factor, y_factor) > 1
    if is_mixed and (is_cut or not (x_aligned and y_aligned) or has_gaps(siz, level)):
        return None
    pixel = len(siz.components) * siz.dtype.itemsize
    for _ in range(0 if x_aligned and y_aligned else SPANNING_DOUBLINGS):
        if 4 * x_chunk * y_chunk * pixel <= SPANNING_BYTES:
            x_chunk, y_chunk = 2 * x_chunk, 2 * y_chunk
    return axis(y_edges, min(y_chunk, image.height)), axis(x_edges, min(x_chunk, image.width))


def has_gaps(siz: Siz, level: int) -> bool:
    """Return whether some component has no sample in some tile.

    OpenJPEG does not decode such a tile without the rest of the stream.
    """
    x = siz.tile_x0 + np.arange(siz.columns + 1) * siz.tile_width
    y = siz.tile_y0 + np.arange(siz.rows + 1) * siz.tile_height
    x, y = np.clip(x, siz.image.x0, siz.image.x1), np.clip(y, siz.image.y0, siz.image.y1)
    return any(
        not np.diff(-(-edge // (step << level))).all()
        for c in set(siz.components)
        for edge, step in ((x, c.dx), (y, c.dy))
    )


def level_arrays(stream: Codestream, url: str, *, fill_value: int = 0) -> list[ArrayIndex]:
    """Return the arrays of a codestream, full resolution first.

    They are shaped (c, y, x), or (y, x) if there is one component.

    Parameters:
        stream: the codestream: main header and byte ranges of its tile-parts.
        url: url of the file.
        fill_value: fill value of the arrays.

    Raises:
        UnsupportedError: the codestream needs a decoder for part 2 extensions.
        LimitError: a chunk would be too large.
    """
    header = stream.header
    where = f"{url} codestream @{stream.offset}"
    try:
        check_decodable(header)
    except AnychunkError as e:
        raise type(e)(f"{where}: {e}") from e
    arrays: list[ArrayIndex] = []
    shared: ByteRanges | None = None
    text = base64.b64encode(header.data + b"".join(packed_parts(header, stream.order))).decode()
    for level in range(header.levels + 1):
        image = level_image(header.siz, level)
        if image.width < 1 or image.height < 1:
            break
        found = axes(header.siz, level)
        if found is None:
            chunk = (image.height, image.width)
            chunks = whole_range(stream, url)
        else:
            y, x = found
            chunk = (y.chunk, x.chunk)
            if y.is_plain(header.siz.rows) and x.is_plain(header.siz.columns):
                # levels whose chunks are tiles have the same byte ranges, so they share a table
                shared = chunks = shared or tile_ranges(stream, y, x, url)
            else:
                chunks = tile_ranges(stream, y, x, url)
        codec = Jpeg2000(main_header=text if found else None, resolution_level=level)
        shape = (image.height, image.width)
        arrays.append(
            _array(header.siz, codec, chunks, shape=shape, chunk=chunk, fill_value=fill_value)
        )
        limits.check_chunk(
            math.prod(arrays[-1].chunk_shape) * header.siz.dtype.itemsize,
            where=where,
            stored=stream.length,
        )
    if not arrays:
        raise FormatError(
            f"{where}: no sample of a component is inside the image, XRsiz and YRsiz are "
            f"{[(c.dx, c.dy) for c in header.siz.components]}"
        )
    return arrays


def _array(
    siz: Siz,
    codec: Jpeg2000,
    chunks: ByteRanges,
    *,
    shape: tuple[int, int],
    chunk: tuple[int, int],
    fill_value: int,
) -> ArrayIndex:
    bands = band_axis(siz)
    return ArrayIndex(
        shape=(*bands, *shape),
        chunk_shape=(*bands, *chunk),
        data_type=siz.dtype.name,
        codecs=({"name": "bytes", "configuration": {"endian": "little"}}, to_json(codec)),
        chunks=chunks,
        fill_value=fill_value,
        dimension_names=("c", "y", "x") if bands else ("y", "x"),
    )


def band_axis(siz: Siz) -> tuple[int, ...]:
    """Return the length of the axis c; empty if there is one component, and so no such axis."""
    count = len(siz.components)
    return (count,) if count > 1 else ()


def chunk_grid(siz: Siz, rows: int, columns: int) -> tuple[int, ...]:
    """Return the shape of the table of chunks, each of which has all components."""
    return (*(1 for _ in band_axis(siz)), rows, columns)


def whole_range(stream: Codestream, url: str) -> ByteRanges:
    """Return the byte range of an image that is one chunk: the whole codestream."""
    grid = chunk_grid(stream.header.siz, 1, 1)
    return ByteRanges(
        offsets=np.full(grid, stream.offset, np.uint64),
        lengths=np.full(grid, stream.length, np.uint64),
        urls=(url,),
    )


def has_single_parts(stream: Codestream) -> bool:
    """Return whether every tile has exactly one tile-part."""
    starts = stream.starts
    return len(stream.offsets) == len(starts) - 1 and bool((starts[1:] > starts[:-1]).all())


def single_parts(stream: Codestream, url: str) -> ByteRanges:
    """Return the byte ranges of chunks that are tiles of one tile-part each."""
    siz = stream.header.siz
    grid = chunk_grid(siz, siz.rows, siz.columns)
    return ByteRanges(
        offsets=stream.offsets.reshape(grid), lengths=stream.lengths.reshape(grid), urls=(url,)
    )


def tile_ranges(stream: Codestream, y: _Axis, x: _Axis, url: str) -> ByteRanges:
    """Return the byte ranges of chunks: the tile-parts of their tiles, coalesced if adjacent."""
    y_chunks, y_tiles = y.pairs()
    x_chunks, x_tiles = x.pairs()
    chunks = (y_chunks[:, None] * x.count + x_chunks).reshape(-1)
    tiles = (y_tiles[:, None] * stream.header.siz.columns + x_tiles).reshape(-1)
    # chunks in order, and the tiles of each chunk in raster order
    order = np.argsort(chunks, kind="stable")
    chunks, tiles = chunks[order], tiles[order]
    # from (chunk, tile) to (chunk, tile-part): the parts of tile n are starts[n] : starts[n + 1]
    starts = stream.starts.astype(np.int64)
    counts = starts[tiles + 1] - starts[tiles]
    before = np.cumsum(counts) - counts
    parts = np.arange(counts.sum()) - np.repeat(before - starts[tiles], counts)
    chunks = np.repeat(chunks, counts)
    offsets, lengths = stream.offsets[parts], stream.lengths[parts]
    grid = chunk_grid(stream.header.siz, y.count, x.count)
    return _coalesced(chunks, offsets, lengths, grid=grid, url=url)


def _coalesced(
    chunks: Numbers,
    offsets: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.uint64],
    *,
    grid: tuple[int, ...],
    url: str,
) -> ByteRanges:
    """Return byte ranges of chunks; `chunks` are the chunk numbers of the parts, in order."""
    is_new = np.ones(len(chunks), bool)
    is_new[1:] = (chunks[1:] != chunks[:-1]) | (offsets[1:] != offsets[:-1] + lengths[:-1])
    begins = np.flatnonzero(is_new)
    chunks, offsets = chunks[begins], offsets[begins]
    lengths = np.add.reduceat(lengths, begins)
    is_first = np.ones(len(chunks), bool)
    is_first[1:] = chunks[1:] != chunks[:-1]
    # the first part of each chunk goes into the dense table, further parts into the sparse one
    further = ~is_first
    table = None
    if further.any():
        counts = np.bincount(chunks[further], minlength=math.prod(grid))
        table = Parts(
            starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64),
            offsets=offsets[further],
            lengths=lengths[further],
        )
    return ByteRanges(
        offsets=offsets[is_first].reshape(grid),
        lengths=lengths[is_first].reshape(grid),
        urls=(url,),
        parts=table,
    )


def levels(header: MainHeader, arrays: list[ArrayIndex], meaning: Meaning) -> list[Level]:
    """Return the levels of an image; samples of level n are 2**n pixels apart.

    Low-pass samples are at even positions of the reference grid (T.800 annex F), not between two
    samples, so the first one is not where the first of averaged pixels would be.

    Parameters:
        header: main header of the codestream.
        arrays: its arrays, full resolution first.
        meaning: what its samples mean.
    """
    full = level_image(header.siz, 0)
    first = Level(name="0", image=arrays[0])
    steps, origins = scale_and_translation(meaning, first, arrays[0].shape)
    lead = len(arrays[0].shape) - 2
    found = []
    for number, array in enumerate(arrays):
        image, factor = level_image(header.siz, number), 1 << number
        shift = (0,) * lead + (image.y0 * factor - full.y0, image.x0 * factor - full.x0)
        found.append(
            Level(
                name=str(number),
                image=array,
                factor=(1.0,) * lead + (float(factor),) * 2,
                origin=tuple(o + s * n for o, s, n in zip(origins, steps, shift, strict=True)),
            )
        )
    return found


def describe(header: MainHeader) -> dict[str, Any]:
    """Return the coding parameters of a codestream as JSON."""
    siz, cod = header.siz, header.cod
    style = cod.style
    return {
        "image": {"x0": siz.image.x0, "y0": siz.image.y0, "x1": siz.image.x1, "y1": siz.image.y1},
        "tiles": {
            "x0": siz.tile_x0, "y0": siz.tile_y0, "width": siz.tile_width,
            "height": siz.tile_height, "rows": siz.rows, "columns": siz.columns,
        },
        "components": _runs(siz),
        "capabilities": siz.capabilities,
        "progression": PROGRESSIONS[cod.progression],
        "layers": cod.layers,
        "levels": header.levels,
        "transform": "5/3" if header.is_reversible else "9/7",
        "has_color_transform": cod.is_transformed,
        "block": [1 << style.ycb, 1 << style.xcb],
        "is_ht": header.is_ht,
        **({"comments": list(header.comments)} if header.comments else {}),
    }  # fmt: skip


def _runs(siz: Siz) -> list[dict[str, Any]]:
    """Return the components run-length encoded: consecutive equal ones share an entry."""
    found: list[dict[str, Any]] = []
    for c in siz.components:
        entry = {"depth": c.depth, "is_signed": c.is_signed, "dx": c.dx, "dy": c.dy}
        if found and {**found[-1], "count": 1} == {**entry, "count": 1}:
            found[-1]["count"] += 1
        else:
            found.append({**entry, "count": 1})
    return found


# Large JPEG 2000 tiles as chunks of 1024 x 1024, and back.
#
# A chunk that is a whole tile is decoded and, from a remote file, fetched as a whole, however
# small
# the part that is read. So the chunks of large tiles are divided. Every part refers to the bytes
# of
# the whole tile, with its own position in front; `decode.windows` reads only what a part needs.
#
# `divided` and `whole` only change the grid of an index: they are inverse to each other. Where
# bytes
# are referred to by others (saved indexes, combined files), chunks are whole tiles.

SIDE = 1024
"""Size of a chunk along y and x, and the size above which tiles are divided."""
SMALLEST = 512
"""Chunks that must divide a tile without a remainder have at least this size."""


def divided(array: ArrayIndex) -> ArrayIndex:
    """Return an array whose chunks are parts of large tiles; other arrays are returned unchanged.

    Chunks of arrays with several rows or columns of tiles must divide a tile without a remainder,
    so that no chunk touches two tiles.
    """
    codec = _codec(array, is_window=False)
    chunks = array.chunks
    if codec is None or not isinstance(chunks, ByteRanges) or any(chunks.fronts):
        return array
    if codec.get("main_header") is None:
        return array
    header = parse_header(codec["main_header"])
    level = int(codec.get("resolution_level", 0))
    height, width = array.chunk_shape[-2:]
    shape = (_side(height, array.grid[-2]), _side(width, array.grid[-1]))
    if not is_large(header) or not _can_divide(header, array, level):
        return array
    # a small level of a large tile stays one chunk, but has few of the tile's code-blocks
    if shape == (height, width) and level == 0:
        return array
    chunk_shape = (*array.chunk_shape[:-2], *shape)
    grid = grid_shape(array.shape, chunk_shape)
    rows, columns = (np.arange(grid[axis]) * shape[axis] for axis in (-2, -1))
    owners = _numbers(array.grid, rows // height, columns // width)
    if header.siz.tiles == 1:
        # of several images that were stacked or concatenated, each has the same positions
        rows, columns = rows % height, columns % width
    positions = [Front(y, x).pack() for y in rows.tolist() for x in columns.tolist()]
    known = {front: number for number, front in enumerate(dict.fromkeys(positions))}
    ids = np.array([known[front] for front in positions], np.uint32).reshape(grid[-2:])
    return replace(
        array,
        chunk_shape=chunk_shape,
        codecs=(array.codecs[0], _named({**codec, "window": True})),
        chunks=replace(
            chunks.picked(owners, grid),
            fronts=tuple(known),
            front_ids=np.ascontiguousarray(np.broadcast_to(ids, grid)),
        ),
    )


def whole(array: ArrayIndex) -> ArrayIndex:
    """Return an array that `divided` has divided with chunks that are whole tiles again."""
    codec = _codec(array, is_window=True)
    chunks = array.chunks
    if codec is None or not isinstance(chunks, ByteRanges):
        return array
    header = parse_header(codec["main_header"])
    level = int(codec.get("resolution_level", 0))
    found = axes(header.siz, level)
    assert found is not None  # or it would not have been divided
    height, width = (axis.chunk for axis in found)
    chunk_shape = (*array.chunk_shape[:-2], height, width)
    grid = grid_shape(array.shape, chunk_shape)
    rows = np.arange(grid[-2]) * height // array.chunk_shape[-2]
    columns = np.arange(grid[-1]) * width // array.chunk_shape[-1]
    made = chunks.picked(_numbers(array.grid, rows, columns), grid)
    return replace(
        array,
        chunk_shape=chunk_shape,
        codecs=(array.codecs[0], _named({k: v for k, v in codec.items() if k != "window"})),
        chunks=replace(made, fronts=(), front_ids=None),
    )


def is_divided(array: ArrayIndex) -> bool:
    """Return whether the chunks of an array are parts of tiles."""
    return _codec(array, is_window=True) is not None


def divided_tree(node: Node) -> Node:
    """Return an index with the chunks of all large tiles divided."""
    return _each(node, divided)


def whole_tree(node: Node) -> Node:
    """Return an index in which all chunks are whole tiles."""
    return _each(node, whole)


def _each(node: Node, change: Callable[[ArrayIndex], ArrayIndex]) -> Node:
    if isinstance(node, ArrayIndex):
        return change(node)
    members = {name: _each(member, change) for name, member in node.members.items()}
    return replace(node, members=members)


def _codec(array: ArrayIndex, *, is_window: bool) -> dict[str, Json] | None:
    """Return the configuration of an array's only codec besides `bytes`; None for other codecs."""
    if len(array.codecs) != 2 or not all(isinstance(codec, dict) for codec in array.codecs):
        return None
    first, last = array.codecs
    names = first.get("name"), last.get("name")
    if names != ("bytes", Jpeg2000.name) or len(array.shape) < 2:
        return None
    found = last.get("configuration", {})
    if not isinstance(found, dict) or found.get("window", False) is not is_window:
        return None
    return found


def _named(configuration: dict[str, Json]) -> Json:
    return {"name": Jpeg2000.name, "configuration": configuration}


def _side(size: int, count: int) -> int:
    """Return the size of chunks along an axis, given that of a tile and the number of tiles."""
    if size <= SIDE:
        return size
    if count == 1:
        return SIDE
    return next((n for n in range(SIDE, SMALLEST - 1, -1) if size % n == 0), size)


def is_large(header: MainHeader) -> bool:
    """Return whether tiles are large at full resolution."""
    rect = header.siz.tile(0).scaled(*scale(header.siz, 0))
    return rect.width * rect.height > SIDE * SIDE


def _can_divide(header: MainHeader, array: ArrayIndex, level: int) -> bool:
    """Return whether parts of tiles can be decoded, and each chunk is exactly one tile."""
    siz = header.siz
    found = axes(siz, level)
    if found is None or not has_windows(header):
        return False
    y, x = found
    return (
        (y.chunk, x.chunk) == array.chunk_shape[-2:]
        and y.is_plain(siz.rows)
        and x.is_plain(siz.columns)
        and (siz.tiles == 1 or array.shape[-2:] == (y.size, x.size))
    )


def _numbers(grid: tuple[int, ...], rows: Numbers, columns: Numbers) -> Numbers:
    """Return the numbers of the chunks in these rows and columns of `grid`, for all other axes."""
    lead = np.arange(math.prod(grid[:-2]))[:, None, None] * math.prod(grid[-2:])
    return (lead + rows[:, None] * grid[-1] + columns).reshape(-1)
