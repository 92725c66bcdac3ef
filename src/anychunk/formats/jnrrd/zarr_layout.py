"""`tile:zarr_compatible`: external tiles that are the chunks of Zarr v2 arrays.

Spec: JNRRD Tiling Extension (the longer text) section 9.4.2: `tile:pattern` names the `.zarray`
document of each level, `tile:data_pattern` the chunks. The text says no more; what a document
states must agree with the header, and its fill value is that of absent chunks.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard, cast

import numpy as np

from anychunk import limits
from anychunk.errors import FormatError
from anychunk.formats.jnrrd.external_files import References
from anychunk.formats.jnrrd.tile_pattern import Place, parse_pattern
from anychunk.formats.jnrrd.tiling_fields import Finding, Level, Tiling, error, warning
from anychunk.formats.jnrrd.volume import Volume
from anychunk.io.opening import read_object
from anychunk.io.source import Source
from anychunk.model.index import Json

COMPRESSORS = {"gzip": "gzip", "bz2": "bzip2", "zstd": "zstd"}
"""The compressions of tiles, by the ids of Zarr v2."""


def with_zarr_fill(
    tiling: Tiling,
    levels: Sequence[Level],
    volume: Volume,
    *,
    source: Source,
    references: References,
    labels: Sequence[str | None],
    words: Mapping[str, str],
) -> tuple[Tiling, list[Finding]]:
    """Check the documents of Zarr arrays; return the tiling with their fill value.

    Without a document, a chunk that is missing is an error: nothing says what it would hold.
    """
    if tiling.zarr_metadata is None:
        return tiling, []
    pattern = parse_pattern(tiling.zarr_metadata, tiling.dimensions, labels, words)
    chunks = parse_pattern(cast("str", tiling.pattern), tiling.dimensions, labels, words)
    axes = [
        tiling.dimensions[part.position]
        for part in chunks.parts
        if isinstance(part, Place) and part.position >= 0
    ]
    fill: Json = None
    zeros = [0] * len(tiling.dimensions)
    for level in levels:
        if not level.is_stored:
            continue
        name = pattern.name(zeros, level=level.number, number=0, before=0)
        data = read_object(references.url(name), storage=source.storage, roots=references.roots)
        if data is None:
            return tiling, [warning("zarr_compatible", f"{name} is missing: not checked")]
        limits.check_header(len(data), where=name)
        document = read_document(data.tobytes(), name)
        found = list(problems(document, tiling, level, axes=axes, volume=volume, name=name))
        if found:
            return tiling, found
        if level.number and document.get("fill_value") != fill:
            other = f"{name} has {document.get('fill_value')!r:.40}, level 0 {fill!r:.40}"
            return tiling, [error("zarr_compatible", f"fill values differ: {other}")]
        fill = document.get("fill_value")
    if fill is None or isinstance(fill, bool) or not isinstance(fill, int | float):
        return tiling, []
    return replace(tiling, sparse=True, padding_value=fill), []


def read_document(data: bytes, name: str) -> dict[str, Json]:
    """Parse a `.zarray` document."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{name}: is not JSON ({e})") from e
    if not isinstance(found, dict):
        raise FormatError(f"{name}: expected a JSON object")
    return found


def problems(
    document: Mapping[str, Json],
    tiling: Tiling,
    level: Level,
    *,
    axes: Sequence[int],
    volume: Volume,
    name: str,
) -> Iterator[Finding]:
    """Yield what a document states otherwise than the header."""
    yield from shape_problems(document, level, axes, volume, name)
    compressor = document.get("compressor")
    expected = volume.dtype.newbyteorder("<" if volume.endian == "little" else ">")
    if not is_type(document.get("dtype"), expected):
        yield error("zarr_compatible", f"{name} has dtype {document.get('dtype')!r:.40}")
    if document.get("order", "C") != "C" or document.get("filters"):
        yield error("zarr_compatible", f"{name} has filters, or another order than C")
    identity = compressor.get("id") if isinstance(compressor, dict) else None
    stated = "raw" if compressor is None else COMPRESSORS.get(str(identity))
    if stated != tiling.compression:
        yield error(
            "compression", f"is {tiling.compression!r}, but {name} has the compressor {identity!r}"
        )
    if tiling.edge_handling != "pad":
        yield error("edge_handling", "is 'variable', but the chunks of Zarr are always whole")
    fill = document.get("fill_value")
    if fill is not None and tiling.padding_value not in (0, fill):
        yield error("padding_value", f"is {tiling.padding_value}, but {name} has {fill!r:.40}")


def shape_problems(
    document: Mapping[str, Json], level: Level, axes: Sequence[int], volume: Volume, name: str
) -> Iterator[Finding]:
    """Yield what is wrong with the axes of a Zarr array.

    The coordinates in the names of its chunks are in the order of its axes, slowest first, and so
    must be the axes of a tile, except those along which a tile is one voxel thick.
    """
    chunks, shape = document.get("chunks"), document.get("shape")
    order = [axis for axis in axes if level.tile[axis] > 1]
    if order != sorted(order, reverse=True):
        yield error(
            "data_pattern",
            f"names the axes in the order {list(axes)}, that of the chunks of Zarr; "
            "expected the slowest first, as in a tile",
        )
    if not is_shape(chunks) or not is_shape(shape):
        yield error(
            "zarr_compatible", f"{name} has chunks {str(chunks)[:40]}, shape {str(shape)[:40]}"
        )
    elif len(axes) != len(chunks):
        # axes that the pattern does not name: only the sizes can be compared
        if sorted(n for n in chunks if n != 1) != sorted(n for n in level.tile if n != 1):
            yield error("sizes", f"{name} has chunks {str(chunks)[:60]}, expected {level.tile}")
    else:
        tile = [level.tile[axis] for axis in axes]
        if chunks != tile:
            yield error("sizes", f"{name} has chunks {str(chunks)[:60]}, expected {tile}")
        # OME-Zarr often rounds the sizes of levels up
        least = [level.sizes[axis] for axis in axes]
        most = [-(-volume.sizes[axis] // level.scale[axis]) for axis in axes]
        if len(shape) != len(least) or any(
            n not in (low, high) for n, low, high in zip(shape, least, most, strict=True)
        ):
            yield error("zarr_compatible", f"{name} has shape {str(shape)[:60]}, expected {least}")


def is_shape(value: Json) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int for n in value)


def is_type(value: Json, expected: np.dtype[Any]) -> bool:
    """Return whether a data type of Zarr v2 is the expected one."""
    try:
        return isinstance(value, str) and np.dtype(value) == expected
    except TypeError:
        return False
