"""Large JPEG 2000 tiles as chunks of 1024 x 1024, and back.

A chunk that is a whole tile is decoded and, from a remote file, fetched as a whole, however small
the part that is read. So the chunks of large tiles are divided. Every part refers to the bytes of
the whole tile, with its own position in front; `decode.windows` reads only what a part needs.

`divided` and `whole` only change the grid of an index: they are inverse to each other. Where bytes
are referred to by others (saved indexes, combined files), chunks are whole tiles.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from anychunk.codecs.jpeg2000 import Jpeg2000
from anychunk.codecs.jpeg2000.tiles import parse_header, scale
from anychunk.codecs.jpeg2000.windows import Front, has_windows
from anychunk.codestream.jpeg2000 import MainHeader
from anychunk.formats._jpeg2000 import axes
from anychunk.model.grid import Numbers, grid_shape
from anychunk.model.index import ArrayIndex, ByteRanges, Json, Node

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
