"""Georeferenced images put on one grid, chunk by chunk.

Every image must have the reference system and the pixel size of the first, and begin a whole number
of chunks from it. A chunk that an image fills only in part may lie only at the edge of the whole:
what stands behind the image in it is padding. Absent chunks cover nothing.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from anychunk.combine.tables import Files, check_alike, check_meaning, gather
from anychunk.errors import FormatError, UnsupportedError
from anychunk.metadata import comparison, geo
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, Node

type Overlap = Literal["error", "first", "last"]

TOLERANCE = 1e-3
"""How far, in pixels, an image may lie off the grid: what rounding of coordinates leaves."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """An image, and the column and row of its first pixel on the common grid."""

    image: GroupIndex
    column: int
    row: int


def mosaic(groups: Files, overlap: Overlap) -> dict[str, Node]:
    """Put the images of the same name of all files on one grid each."""
    first_url, first = next(iter(groups.items()))
    wrong = [url for url, group in groups.items() if set(group.members) != set(first.members)]
    if wrong:
        raise FormatError(f"combine: {wrong[0]} has other images than {first_url}")
    made: dict[str, Node] = {}
    for name in first.members:
        images = {url: group.members[name] for url, group in groups.items()}
        made[name] = _image(name, images, overlap)
    return made


def _image(name: str, images: Mapping[str, Node], overlap: Overlap) -> GroupIndex:
    placed, transform = _place(name, images)
    check_meaning(name, images)
    image = next(iter(placed.values())).image
    height = max(p.row + _array(p.image, "0", name).shape[-2] for p in placed.values())
    width = max(p.column + _array(p.image, "0", name).shape[-1] for p in placed.values())
    members: dict[str, Node] = {}
    for key, member in image.members.items():
        if isinstance(member, ArrayIndex) and (joined := _join(key, placed, overlap, name)):
            members[key] = _relocated(joined, transform, (height, width))
    dropped = sorted(set(image.members) - set(members))
    if dropped:
        warnings.warn(
            f"combine: image {name}: {' '.join(dropped)} do not fit the common grid and are "
            "left out",
            stacklevel=5,
        )
    attributes = {**image.attributes, "spatial:transform": list(transform)}
    attributes["spatial:shape"] = [height, width]
    attributes["spatial:bbox"] = list(geo.bounds(transform, (height, width)))
    return GroupIndex(members=members, attributes=_kept_levels(attributes, members))


def _relocated(level: ArrayIndex, transform: geo.Transform, full: tuple[int, int]) -> ArrayIndex:
    """Say where a level is that said so in its own file."""
    if "spatial:transform" not in level.attributes:
        return level
    height, width = level.shape[-2:]
    down, across = (
        max(1, round(n / max(1, m))) for n, m in zip(full, (height, width), strict=True)
    )
    own = geo.rescaled(transform, across, down)
    place = {
        "spatial:transform": list(own),
        "spatial:shape": [height, width],
        "spatial:bbox": list(geo.bounds(own, (height, width))),
    }
    return replace(level, attributes={**level.attributes, **place})


def _kept_levels(attributes: dict[str, Json], members: Mapping[str, Node]) -> dict[str, Json]:
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
        raise FormatError(f"combine: image {name} has no array {key}")
    return found


def _place(name: str, images: Mapping[str, Node]) -> tuple[dict[str, Placed], geo.Transform]:
    """Find each image's place from the north-west corner of all."""
    transforms = {url: _transform(url, name, image) for url, image in images.items()}
    first_url, first = next(iter(transforms.items()))
    a, b, _, d, e, _ = first
    if b or d:
        raise FormatError(f"combine: {first_url} {name}: its grid is turned, expected north up")
    systems = {url: geo.crs(image.attributes) for url, image in images.items()}
    for url, (a1, b1, _, d1, e1, _) in transforms.items():
        if not comparison.is_same(systems[url], systems[first_url]):
            raise FormatError(f"combine: {url} {name}: another reference system than {first_url}")
        if not np.allclose([a1, b1, d1, e1], [a, b, d, e], rtol=1e-9, atol=0):
            raise FormatError(f"combine: {url} {name}: pixels of {a1} x {e1}, expected {a} x {e}")
    columns = {url: (t[2] - first[2]) / a for url, t in transforms.items()}
    rows = {url: (t[5] - first[5]) / e for url, t in transforms.items()}
    for url in images:
        off = max(abs(columns[url] - round(columns[url])), abs(rows[url] - round(rows[url])))
        if off > TOLERANCE:
            raise FormatError(f"combine: {url} {name}: lies {off:.3g} pixels off the grid")
    left, top = min(round(c) for c in columns.values()), min(round(r) for r in rows.values())
    placed = {
        url: Placed(image=image, column=round(columns[url]) - left, row=round(rows[url]) - top)
        for url, image in images.items()
        if isinstance(image, GroupIndex)
    }
    return placed, (a, b, first[2] + left * a, d, e, first[5] + top * e)


def _transform(url: str, name: str, image: Node) -> geo.Transform:
    found = image.attributes.get("spatial:transform")
    if not isinstance(image, GroupIndex) or not isinstance(found, list) or len(found) != 6:
        raise FormatError(f"combine: {url} {name}: has no georeference")
    return tuple(float(n) for n in found)  # type: ignore[return-value]


def _join(key: str, placed: Mapping[str, Placed], overlap: Overlap, name: str) -> ArrayIndex | None:
    """Put one level of all images together; None where it does not fit, which level 0 must."""
    arrays = {}
    for url, place in placed.items():
        found = place.image.members.get(key)
        if not isinstance(found, ArrayIndex):
            return None
        arrays[url] = found
    try:
        return _joined(key, placed, arrays, overlap, name)
    except (FormatError, UnsupportedError):
        if key == "0":
            raise
        return None


def _joined(
    key: str,
    placed: Mapping[str, Placed],
    arrays: Mapping[str, ArrayIndex],
    overlap: Overlap,
    name: str,
) -> ArrayIndex:
    path = f"{name}/{key}"
    codecs = check_alike(path, arrays, but=-1)
    first = next(iter(arrays.values()))
    factors = [_factor(_array(p.image, "0", name), arrays[u], u) for u, p in placed.items()]
    if len(set(factors)) > 1:
        raise FormatError(f"combine: {path}: levels of several factors {sorted(set(factors))}")
    down, across = factors[0]
    corners = {url: (p.row, p.column) for url, p in placed.items()}
    starts = {u: _start(u, corners[u], (down, across), first, path) for u in arrays}
    ends = {u: (starts[u][0] + a.shape[-2], starts[u][1] + a.shape[-1]) for u, a in arrays.items()}
    height, width = (max(end[i] for end in ends.values()) for i in (0, 1))
    shape = (*first.shape[:-2], height, width)
    for url, array in arrays.items():
        if array.shape[:-2] != first.shape[:-2]:
            raise FormatError(f"combine: {url} {path}: shape {array.shape}, expected {shape}")
        for end, whole, chunk in zip(
            ends[url], (height, width), first.chunk_shape[-2:], strict=True
        ):
            if end % chunk and end != whole:
                raise FormatError(
                    f"combine: {url} {path}: ends at {end}, inside a chunk of {chunk}, and "
                    "others go on behind it"
                )
    made = replace(first, shape=shape, codecs=codecs, chunks=_empty(shape, first))
    owners, numbers = _owners(arrays, starts, made.grid, overlap, path)
    tables = [a.chunks for a in arrays.values() if isinstance(a.chunks, ByteRanges)]
    return replace(made, chunks=gather(tables, owners, numbers))


def _factor(full: ArrayIndex, level: ArrayIndex, url: str) -> tuple[int, int]:
    """Give how many pixels of level 0 one pixel is, down and across."""
    down = max(1, round(full.shape[-2] / max(1, level.shape[-2])))
    across = max(1, round(full.shape[-1] / max(1, level.shape[-1])))
    if level.shape[-2] != -(-full.shape[-2] // down) or level.shape[-1] != -(
        -full.shape[-1] // across
    ):
        raise FormatError(f"combine: {url}: {level.shape} is no level of {full.shape}")
    return down, across


def _start(
    url: str, corner: tuple[int, int], factor: tuple[int, int], array: ArrayIndex, path: str
) -> tuple[int, int]:
    """Give (row, column) on this level's grid, which must begin a chunk."""
    for place, scale, chunk in zip(corner, factor, array.chunk_shape[-2:], strict=True):
        if place % (scale * chunk):
            raise FormatError(
                f"combine: {url} {path}: begins {place} pixels from the first, "
                f"not a multiple of {scale * chunk}"
            )
    return corner[0] // factor[0], corner[1] // factor[1]


def _empty(shape: tuple[int, ...], array: ArrayIndex) -> ByteRanges:
    grid = tuple(-(-n // c) for n, c in zip(shape, array.chunk_shape, strict=True))
    zeros = np.zeros(grid, np.uint64)
    return ByteRanges(offsets=zeros, lengths=zeros, urls=("",))


def _owners(
    arrays: Mapping[str, ArrayIndex],
    starts: Mapping[str, tuple[int, int]],
    grid: tuple[int, ...],
    overlap: Overlap,
    path: str,
) -> tuple[Any, Any]:
    """Give which array each chunk of the whole comes from, and its number there."""
    owners, numbers = np.full(grid, -1, np.int64), np.zeros(grid, np.int64)
    urls = list(arrays)
    for i, (url, array) in enumerate(arrays.items()):
        row, column = (s // c for s, c in zip(starts[url], array.chunk_shape[-2:], strict=True))
        place = (..., slice(row, row + array.grid[-2]), slice(column, column + array.grid[-1]))
        chunks = array.chunks
        present = np.ones(array.grid, np.bool_)
        if isinstance(chunks, ByteRanges):
            present = chunks.lengths > 0
        there, taken = owners[place], owners[place] >= 0
        both = taken & present
        if overlap == "error" and both.any():
            other = urls[int(there[both][0])]
            raise FormatError(
                f"combine: {url} {path}: covers {int(both.sum())} chunks of {other}; "
                "give overlap='first' or 'last'"
            )
        wins = present & ~taken if overlap == "first" else present
        there[wins] = i
        numbers[place][wins] = np.arange(math.prod(array.grid)).reshape(array.grid)[wins]
    return owners, numbers
