"""Put georeferenced images on one common pixel grid, chunk by chunk.

Every image must have the reference system and the pixel size of the first, and start a whole number
of chunks from the north-west corner of the mosaic. A chunk that an image fills only partly is
allowed only at the edge of the mosaic: beyond the image's last pixel it holds padding. Absent
chunks cover nothing, so gaps between images, and chunks that a file declares absent, read as the
fill value.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from anychunk.combine.chunk_tables import join_tables
from anychunk.combine.compatibility import Files, check_compatible, check_sample_meaning
from anychunk.errors import FormatError, UnsupportedError
from anychunk.metadata import comparison, geo
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, Node

type Overlap = Literal["error", "first", "last"]

TOLERANCE = 1e-3
"""How many pixels an image may be off the common grid: the rounding error of coordinates."""
SIZE_TOLERANCE = 1e-9
"""How much pixel sizes may differ, relatively: 1e-3 pixels over a million pixels."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """An image, and the row and column of its first pixel on the common grid."""

    image: GroupIndex
    row: int
    column: int


def mosaic(groups: Files, overlap: Overlap) -> dict[str, Node]:
    """Return one mosaic per image name, made of the images of that name in all files.

    Parameters:
        groups: The indexes of the files, by url. Each image needs a georeference.
        overlap: "first" or "last": the file whose chunk is used where several files have one;
            "error" refuses overlaps.

    Raises:
        FormatError: If an image does not fit the common grid, or overlaps another.
        ValueError: If `overlap` has another value.
    """
    if overlap not in ("error", "first", "last"):
        raise ValueError(f"overlap is {overlap!r}, expected 'error', 'first' or 'last'")
    first_url, first = next(iter(groups.items()))
    for url, group in groups.items():
        if set(group.members) != set(first.members):
            raise FormatError(
                f"combine: {url} has the images {' '.join(sorted(group.members))}, "
                f"expected {' '.join(sorted(first.members))} as in {first_url}"
            )
    return {
        name: _image(name, {url: group.members[name] for url, group in groups.items()}, overlap)
        for name in first.members
    }


def _image(name: str, images: Mapping[str, Node], overlap: Overlap) -> GroupIndex:
    placed, transform = _placed(name, images)
    check_sample_meaning(name, images)
    image = next(iter(placed.values())).image
    height = max(p.row + _array(p.image, "0", name).shape[-2] for p in placed.values())
    width = max(p.column + _array(p.image, "0", name).shape[-1] for p in placed.values())
    members: dict[str, Node] = {}
    for key, member in image.members.items():
        if isinstance(member, ArrayIndex) and (joined := _level(key, placed, overlap, name)):
            members[key] = _georeferenced(joined, transform, (height, width))
    dropped = sorted(set(image.members) - set(members))
    if dropped:
        warnings.warn(
            f"combine: image {name}: {' '.join(dropped)} dropped: not on the common grid",
            stacklevel=5,
        )
    attributes = {**image.attributes, **_georeference(transform, (height, width))}
    return GroupIndex(members=members, attributes=_with_kept_levels(attributes, members))


def _georeference(transform: geo.Transform, size: tuple[int, int]) -> dict[str, Json]:
    return {
        "spatial:transform": list(transform),
        "spatial:shape": list(size),
        "spatial:bbox": list(geo.bounds(transform, size)),
    }


def _georeferenced(
    level: ArrayIndex, transform: geo.Transform, full: tuple[int, int]
) -> ArrayIndex:
    """Replace the georeference of a level, if it has one, with that of the mosaic."""
    if "spatial:transform" not in level.attributes:
        return level
    height, width = level.shape[-2:]
    down, across = (
        max(1, round(n / max(1, m))) for n, m in zip(full, (height, width), strict=True)
    )
    place = _georeference(geo.rescaled(transform, across, down), (height, width))
    return replace(level, attributes={**level.attributes, **place})


def _with_kept_levels(attributes: dict[str, Json], members: Mapping[str, Node]) -> dict[str, Json]:
    """Remove dropped levels from the list of datasets in OME metadata."""
    ome = attributes.get("ome")
    if not ome:
        return attributes
    images = [
        {**image, "datasets": [d for d in image.get("datasets", []) if d.get("path") in members]}
        for image in ome.get("multiscales", [])
    ]
    return {**attributes, "ome": {**ome, "multiscales": images}}


def _array(image: GroupIndex, key: str, name: str) -> ArrayIndex:
    found = image.members.get(key)
    if not isinstance(found, ArrayIndex):
        raise FormatError(
            f"combine: image {name} has no array {key}, only {' '.join(image.members) or 'nothing'}"
        )
    return found


def _placed(name: str, images: Mapping[str, Node]) -> tuple[dict[str, Placed], geo.Transform]:
    """Return where each image lies on the common grid, and the transform of that grid.

    The grid is that of the first image, extended to the north-west corner of the mosaic.
    """
    transforms = {url: _transform(url, name, image) for url, image in images.items()}
    _check_grids(name, images, transforms)
    a, b, x, d, e, y = next(iter(transforms.values()))
    columns = {url: (t[2] - x) / a for url, t in transforms.items()}
    rows = {url: (t[5] - y) / e for url, t in transforms.items()}
    for url in images:
        off = max(abs(n - round(n)) for n in (columns[url], rows[url]))
        if off > TOLERANCE:
            raise FormatError(
                f"combine: {url} {name}: is {off:.3g} pixels off the grid of the first image, "
                f"expected at most {TOLERANCE:g}"
            )
    left, top = min(round(c) for c in columns.values()), min(round(r) for r in rows.values())
    placed = {
        url: Placed(image=image, row=round(rows[url]) - top, column=round(columns[url]) - left)
        for url, image in images.items()
        if isinstance(image, GroupIndex)
    }
    return placed, (a, b, x + left * a, d, e, y + top * e)


def _transform(url: str, name: str, image: Node) -> geo.Transform:
    found = image.attributes.get("spatial:transform")
    if not isinstance(image, GroupIndex) or not isinstance(found, list) or len(found) != 6:
        raise FormatError(f"combine: {url} {name}: has no georeference; a mosaic needs one")
    a, b, x, d, e, y = (float(n) for n in found)
    if not all(map(math.isfinite, (a, b, x, d, e, y))) or (a, b) == (0, 0) or (d, e) == (0, 0):
        raise FormatError(f"combine: {url} {name}: transform {found} has no pixel size")
    return a, b, x, d, e, y


def _check_grids(
    name: str, images: Mapping[str, Node], transforms: Mapping[str, geo.Transform]
) -> None:
    """Refuse images whose reference system or pixel size is not that of the first."""
    first_url, first = next(iter(transforms.items()))
    a, b, _, d, e, _ = first
    if b or d:  # so a and e are not 0: offsets are divided by them
        raise FormatError(
            f"combine: {first_url} {name}: its transform {list(first)} is rotated, "
            "expected a north-up grid"
        )
    systems = {url: geo.crs(image.attributes) for url, image in images.items()}
    for url, (a1, b1, _, d1, e1, _) in transforms.items():
        if not comparison.is_same(systems[url], systems[first_url]):
            raise FormatError(
                f"combine: {url} {name}: its reference system differs from that of {first_url}"
            )
        if not np.allclose([a1, b1, d1, e1], [a, b, d, e], rtol=SIZE_TOLERANCE, atol=0):
            raise FormatError(
                f"combine: {url} {name}: pixel size {a1} x {e1}, rotation {b1} {d1}, "
                f"expected {a} x {e}, 0.0 0.0 as in {first_url}"
            )


def _level(
    key: str, placed: Mapping[str, Placed], overlap: Overlap, name: str
) -> ArrayIndex | None:
    """Return one level of the mosaic, or None if it does not fit; level 0 must fit."""
    arrays = {}
    for url, place in placed.items():
        found = place.image.members.get(key)
        if not isinstance(found, ArrayIndex):
            return None
        arrays[url] = found
    try:
        return _joined_level(key, placed, arrays, overlap, name)
    except (FormatError, UnsupportedError):
        if key == "0":
            raise
        return None


def _joined_level(
    key: str,
    placed: Mapping[str, Placed],
    arrays: Mapping[str, ArrayIndex],
    overlap: Overlap,
    name: str,
) -> ArrayIndex:
    path = f"{name}/{key}"
    codecs = check_compatible(path, arrays, free_axes=(-2, -1))
    first = next(iter(arrays.values()))
    factors = [_factor(_array(p.image, "0", name), arrays[u], u) for u, p in placed.items()]
    if len(set(factors)) > 1:
        raise FormatError(
            f"combine: {path}: reduced by different factors {sorted(set(factors))}, "
            "expected the same factor in all files"
        )
    starts = {
        url: _start(url, (p.row, p.column), factors[0], first, path) for url, p in placed.items()
    }
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
