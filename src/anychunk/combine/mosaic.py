"""Put georeferenced images on one common pixel grid, chunk by chunk.

Every image must have the reference system and the pixel size of the first, and start a whole number
of chunks from the north-west corner of the mosaic. A chunk that an image fills only partly is
allowed only at the edge of the mosaic: beyond the image's last pixel it holds padding. Absent
chunks cover nothing, so gaps between images, and chunks that a file declares absent, read as the
fill value.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from anychunk.combine.images import (
    Arrays,
    SameImages,
    check_compatible,
    check_sample_meaning,
    full_arrays,
    image_node,
    joined_level,
)
from anychunk.errors import FormatError, UnsupportedError
from anychunk.metadata import comparison, joining
from anychunk.metadata.meaning import Level, Meaning, Transform
from anychunk.model.grid import Numbers, Shape, grid_shape
from anychunk.model.index import INLINE, ArrayIndex, ByteRanges, Node, Parts

# Join the chunk tables of several arrays into one table.
#
# Every column of a table is handled the same way: the columns of all tables are concatenated into
# one flat column, and `picked` says which entry of it each chunk of the result takes. What tables
# hold besides columns (urls, inline bytes, parts) is concatenated too, and the numbers that point
# into it are shifted accordingly.


type Flags = npt.NDArray[np.bool_]


def join_tables(tables: Sequence[ByteRanges], owners: Numbers, numbers: Numbers) -> ByteRanges:
    """Return one table with chunks taken from several.

    Parameters:
        tables: The tables of the arrays that are joined.
        owners: Which of `tables` each chunk is taken from, shaped like the new grid; -1: absent.
        numbers: The number of that chunk in its own table, in C order.
    """
    grid = owners.shape
    starts = np.cumsum([0, *(t.offsets.size for t in tables)])
    is_present = owners.reshape(-1) >= 0
    picked = np.where(is_present, starts[owners.reshape(-1)] + numbers.reshape(-1), 0)
    # offsets of inline chunks count from the start of the joined inline bytes
    inline_starts = np.cumsum([0, *(len(t.inline) for t in tables)]).astype(np.uint64)
    offsets = [
        np.where(_is_inline(t), t.offsets.reshape(-1) + inline_starts[i], t.offsets.reshape(-1))
        for i, t in enumerate(tables)
    ]
    lengths = np.concatenate([t.lengths.reshape(-1) for t in tables])[picked]
    lengths[~is_present] = 0
    urls, url_ids = _deduplicated([(t.urls, t.url_ids) for t in tables], tables)
    has_fronts = any(t.fronts for t in tables)
    fronts, front_ids = _deduplicated([(t.fronts or (b"",), t.front_ids) for t in tables], tables)
    return ByteRanges(
        offsets=np.concatenate(offsets)[picked].reshape(grid),
        lengths=lengths.reshape(grid),
        urls=urls,
        url_ids=_compact(url_ids[picked].reshape(grid), len(urls)),
        parts=_joined_parts(tables, picked, is_present),
        fronts=fronts if has_fronts else (),
        front_ids=_compact(front_ids[picked].reshape(grid), len(fronts)) if has_fronts else None,
        inline=b"".join(t.inline for t in tables),
        tables={key: value for t in tables for key, value in t.tables.items()},
    )


def _is_inline(table: ByteRanges) -> Flags:
    """Return, for each chunk, whether its bytes are held by the index itself."""
    flags = np.array([url == INLINE for url in table.urls] or [False])
    if table.url_ids is None:
        return np.full(table.offsets.size, flags[0])
    return flags[table.url_ids.reshape(-1)]


def _deduplicated(
    entries: Sequence[tuple[Sequence[Any], Any]], tables: Sequence[ByteRanges]
) -> tuple[tuple[Any, ...], Numbers]:
    """Join small tables of values, each value once; return them and the ids of all chunks."""
    known: dict[Any, int] = {}
    ids = []
    for (values, local), table in zip(entries, tables, strict=True):
        here = np.array([known.setdefault(v, len(known)) for v in values] or [0], np.int64)
        size = table.offsets.size
        ids.append(np.full(size, here[0]) if local is None else here[local.reshape(-1)])
    return tuple(known), np.concatenate(ids)


def _compact(ids: Numbers, count: int) -> Any:
    """Return ids in the smallest type that holds `count` values; None if there is only one."""
    if count <= 1:
        return None
    return ids.astype(np.min_scalar_type(count - 1))


def _joined_parts(tables: Sequence[ByteRanges], picked: Numbers, is_present: Flags) -> Parts | None:
    """Join the further byte ranges of chunks, which are stored as in a CSR matrix."""
    if all(t.parts is None for t in tables):
        return None
    begins, counts, offsets, lengths, base = [], [], [], [], 0
    for table in tables:
        parts = table.parts
        if parts is None:
            begins.append(np.zeros(table.offsets.size, np.int64))
            counts.append(np.zeros(table.offsets.size, np.int64))
            continue
        starts = parts.starts.astype(np.int64)
        begins.append(starts[:-1] + base)
        counts.append(np.diff(starts))
        offsets.append(parts.offsets)
        lengths.append(parts.lengths)
        base += len(parts.offsets)
    count = np.where(is_present, np.concatenate(counts)[picked], 0)
    ends = np.cumsum(count)
    # row `begin + 0, begin + 1, …` of every picked chunk, all chunks in one array
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - count, count)
    rows = np.repeat(np.concatenate(begins)[picked], count) + within
    return Parts(
        starts=np.concatenate([[0], ends]).astype(np.uint64),
        offsets=np.concatenate(offsets)[rows],
        lengths=np.concatenate(lengths)[rows],
    )


type Overlap = Literal["error", "first", "last"]

TOLERANCE = 1e-3
"""How many pixels an image may be off the common grid: the rounding error of coordinates."""
SIZE_TOLERANCE = 1e-9
"""How much pixel sizes may differ, relatively: 1e-3 pixels over a million pixels."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """An image, and the row and column of its first pixel on the common grid."""

    full: ArrayIndex
    row: int
    column: int


def mosaic(images: SameImages, overlap: Overlap) -> Node:
    """Return one image made of an image of every file.

    Parameters:
        images: The images. Each needs a georeference.
        overlap: "first" or "last": the file whose chunk is used where several files have one;
            "error" refuses overlaps.

    Raises:
        FormatError: If an image does not fit the common grid, or overlaps another.
        ValueError: If `overlap` has another value.
    """
    if overlap not in ("error", "first", "last"):
        raise ValueError(f"overlap is {overlap!r}, expected 'error', 'first' or 'last'")
    name = images.path
    placed, transform = _placed(images)
    check_sample_meaning(name, images.meanings)
    levels, dropped = [], []
    for level in images.first_levels:
        found = _level(images, level.name, placed, overlap)
        if found is None:
            dropped.append(level.name)
        else:
            levels.append(found)
    if dropped:
        warnings.warn(
            f"combine: image {name}: {' '.join(dropped)} dropped: not on the common grid",
            stacklevel=5,
        )
    # the places differ, which is the point of a mosaic
    place = replace(images.first.place, transform=transform, gcps=(), rpc=None)
    meanings = [replace(meaning, place=place) for meaning in images.meanings.values()]
    meaning = joining.common(meanings, where=f"combine: image {name}")
    return image_node(images, meaning, levels)


def _placed(images: SameImages) -> tuple[dict[str, Placed], Transform]:
    """Return where each image lies on the common grid, and the transform of that grid.

    The grid is that of the first image, extended to the north-west corner of the mosaic.
    """
    name = images.path
    transforms = {url: _transform(url, name, m) for url, m in images.meanings.items()}
    _check_grids(images, transforms)
    a, b, x, d, e, y = next(iter(transforms.values()))
    columns = {url: (t[2] - x) / a for url, t in transforms.items()}
    rows = {url: (t[5] - y) / e for url, t in transforms.items()}
    for url in transforms:
        off = max(abs(n - round(n)) for n in (columns[url], rows[url]))
        if off > TOLERANCE:
            raise FormatError(
                f"combine: {url} {name}: is {off:.3g} pixels off the grid of the first image, "
                f"expected at most {TOLERANCE:g}"
            )
    left, top = min(round(c) for c in columns.values()), min(round(r) for r in rows.values())
    full = dict(zip(transforms, full_arrays(images), strict=True))
    placed = {
        url: Placed(full=array, row=round(rows[url]) - top, column=round(columns[url]) - left)
        for url, array in full.items()
    }
    return placed, (a, b, x + left * a, d, e, y + top * e)


def _transform(url: str, name: str, meaning: Meaning) -> Transform:
    found = meaning.place.transform
    if found is None or meaning.names[-2:] != ("y", "x"):
        raise FormatError(f"combine: {url} {name}: has no georeference; a mosaic needs one")
    a, b, _, d, e, _ = found
    if not all(map(math.isfinite, found)) or (a, b) == (0, 0) or (d, e) == (0, 0):
        raise FormatError(f"combine: {url} {name}: transform {list(found)} has no pixel size")
    return found


def _check_grids(images: SameImages, transforms: Mapping[str, Transform]) -> None:
    """Refuse images whose reference system or pixel size is not that of the first."""
    name = images.path
    first_url, first = next(iter(transforms.items()))
    a, b, _, d, e, _ = first
    if b or d:  # so a and e are not 0: offsets are divided by them
        raise FormatError(
            f"combine: {first_url} {name}: its transform {list(first)} is rotated, "
            "expected a north-up grid"
        )
    places = {url: meaning.place for url, meaning in images.meanings.items()}
    for url, (a1, b1, _, d1, e1, _) in transforms.items():
        if not comparison.is_same_crs(places[url], places[first_url]):
            raise FormatError(
                f"combine: {url} {name}: its reference system differs from that of {first_url}"
            )
        if not np.allclose([a1, b1, d1, e1], [a, b, d, e], rtol=SIZE_TOLERANCE, atol=0):
            raise FormatError(
                f"combine: {url} {name}: pixel size {a1} x {e1}, rotation {b1} {d1}, "
                f"expected {a} x {e}, 0.0 0.0 as in {first_url}"
            )


def _level(
    images: SameImages, name: str, placed: Mapping[str, Placed], overlap: Overlap
) -> Level | None:
    """Return one level of the mosaic, or None if it does not fit; the first must fit."""
    is_first = name == images.first_levels[0].name
    levels = images.level(name)
    if levels is None:
        return None
    down, across = 1, 1
    try:
        factors = {u: _factor(p.full, levels[u].image, u) for u, p in placed.items()}
        down, across = _one_factor(set(factors.values()), images.array_path(name))

        def join(path: str, arrays: Arrays) -> ArrayIndex:
            return _joined_level(path, arrays, placed, (down, across), overlap)

        joined = joined_level(images, name, join, join)
    except (FormatError, UnsupportedError):
        if is_first:
            raise
        return None
    ones = (1.0,) * (len(images.first.axes) - 2)
    return replace(joined, factor=(*ones, float(down), float(across)), scale=None, origin=None)


def _one_factor(factors: set[tuple[int, int]], path: str) -> tuple[int, int]:
    if len(factors) > 1:
        raise FormatError(
            f"combine: {path}: reduced by different factors {sorted(factors)}, "
            "expected the same factor in all files"
        )
    return next(iter(factors))


def _joined_level(
    path: str,
    arrays: Arrays,
    placed: Mapping[str, Placed],
    factor: tuple[int, int],
    overlap: Overlap,
) -> ArrayIndex:
    codecs = check_compatible(path, arrays, free_axes=(-2, -1))
    first = next(iter(arrays.values()))
    starts = {url: _start(url, (p.row, p.column), factor, first, path) for url, p in placed.items()}
    ends = {u: (starts[u][0] + a.shape[-2], starts[u][1] + a.shape[-1]) for u, a in arrays.items()}
    size = (max(end[0] for end in ends.values()), max(end[1] for end in ends.values()))
    _check_ends(ends, size, first.chunk_shape, path)
    shape = (*first.shape[:-2], *size)
    grid = grid_shape(shape, first.chunk_shape)
    owners, numbers = _owners(arrays, starts, grid, overlap, path)
    tables = [a.chunks for a in arrays.values() if isinstance(a.chunks, ByteRanges)]
    return replace(first, shape=shape, codecs=codecs, chunks=join_tables(tables, owners, numbers))


def _check_ends(
    ends: Mapping[str, tuple[int, int]], size: tuple[int, int], chunk_shape: Shape, path: str
) -> None:
    """Refuse images that end inside a chunk anywhere but at the edge of the mosaic."""
    for url, place in ends.items():
        for end, whole, chunk in zip(place, size, chunk_shape[-2:], strict=True):
            if end % chunk and end != whole:
                raise FormatError(
                    f"combine: {url} {path}: ends at pixel {end}, inside a chunk of {chunk}, but "
                    f"the mosaic continues to {whole}; only images at its edge may end inside one"
                )


def _factor(full: ArrayIndex, level: ArrayIndex, url: str) -> tuple[int, int]:
    """Return how many pixels of level 0 one pixel of `level` spans, down and across."""
    factors = [
        max(1, round(n / max(1, m))) for n, m in zip(full.shape[-2:], level.shape[-2:], strict=True)
    ]
    if level.shape[-2:] != grid_shape(full.shape[-2:], tuple(factors)):
        raise FormatError(
            f"combine: {url}: shape {level.shape} is not {full.shape} reduced by whole factors"
        )
    return factors[0], factors[1]


def _start(
    url: str, corner: tuple[int, int], factor: tuple[int, int], array: ArrayIndex, path: str
) -> tuple[int, int]:
    """Return the row and column on this level's grid where an image starts, on a chunk boundary."""
    for place, scale, chunk in zip(corner, factor, array.chunk_shape[-2:], strict=True):
        if place % (scale * chunk):
            raise FormatError(
                f"combine: {url} {path}: starts {place} pixels from the corner of the mosaic, "
                f"expected a multiple of {scale * chunk}, which is one chunk"
            )
    return corner[0] // factor[0], corner[1] // factor[1]


def _owners(
    arrays: Mapping[str, ArrayIndex],
    starts: Mapping[str, tuple[int, int]],
    grid: Shape,
    overlap: Overlap,
    path: str,
) -> tuple[Any, Any]:
    """Return which array each chunk of the mosaic comes from (-1: none), and its number there."""
    owners, numbers = np.full(grid, -1, np.int64), np.zeros(grid, np.int64)
    urls = list(arrays)
    for i, (url, array) in enumerate(arrays.items()):
        row, column = (s // c for s, c in zip(starts[url], array.chunk_shape[-2:], strict=True))
        place = (..., slice(row, row + array.grid[-2]), slice(column, column + array.grid[-1]))
        chunks = array.chunks
        present = np.ones(array.grid, np.bool_)
        if isinstance(chunks, ByteRanges):
            present = chunks.lengths > 0
        there, is_taken = owners[place], owners[place] >= 0  # `there` is a view
        both = is_taken & present
        if overlap == "error" and both.any():
            other = urls[int(there[both][0])]
            raise FormatError(
                f"combine: {url} {path}: overlaps {int(both.sum())} chunks of {other}; "
                "choose one with overlap='first' or 'last'"
            )
        wins = present & ~is_taken if overlap == "first" else present
        there[wins] = i
        numbers[place][wins] = np.arange(math.prod(array.grid)).reshape(array.grid)[wins]
    return owners, numbers
