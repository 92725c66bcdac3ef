"""Axes of volumes whose formats name them freely, or not at all, as t, c, z, y, x."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.errors import UnsupportedError
from anychunk.metadata.meaning import NAMES
from anychunk.model.grid import Shape
from anychunk.model.index import PIECE, ArrayIndex, ByteRanges, Chunks, Computed, Objects

WORDS = {"time": "t", "frame": "t", "channel": "c", "channels": "c", "band": "c", "bands": "c"}
"""Names of axes other than t, c, z, y, x that mean one of these."""
UNITS = {
    "nm": "nanometer",
    "um": "micrometer",
    "\u00b5m": "micrometer",
    "\u03bcm": "micrometer",
    "micron": "micrometer",
    "microns": "micrometer",
    "mm": "millimeter",
    "millimeters": "millimeter",
    "cm": "centimeter",
    "m": "meter",
    "s": "second",
    "sec": "second",
    "seconds": "second",
    "ms": "millisecond",
    "us": "microsecond",
    "min": "minute",
    "h": "hour",
}
"""How OME-Zarr spells the units that volumes are given in."""
SHORT_UNITS = {long: short for short, long in reversed(UNITS.items())}
"""How volumes spell the units of OME-Zarr."""
MOST_NATIVE = 1 << 20
"""Characters of the attributes of another format that are kept in a header; more are left out."""
NO_UNITS = ("", "pixel", "pixels", "px", "voxel", "none", "none.")


def ome_unit(unit: object) -> str | None:
    """Return a unit as OME-Zarr spells it, unknown ones unchanged; None if there is none."""
    if not isinstance(unit, str) or unit.strip().lower() in NO_UNITS:
        return None
    word = unit.strip()
    return UNITS.get(word) or UNITS.get(word.lower(), word)


def known_name(name: object) -> str | None:
    """Return t, c, z, y or x for a name that means one of these in any case."""
    word = name.strip().lower() if isinstance(name, str) else ""
    word = WORDS.get(word, word)
    return word if word in NAMES else None


def image_axes(names: Sequence[str | None]) -> tuple[tuple[str, ...], Shape]:
    """Return the names of the axes of an array, in the order in which it is shown.

    A single axis of unknown meaning is z, or t where there is a z already: viewers step through
    either. With more of them, or without x and y, the array is not an image, and its axes are only
    numbered.

    Parameters:
        names: t, c, z, y, x, or None for an axis of unknown meaning, in the order of the array.

    Returns:
        The names, and for each the number of its axis in `names`.
    """
    found = list(names)
    if found.count(None) == 1:
        found[found.index(None)] = next((name for name in "zt" if name not in found), None)
    ranks = [NAMES.index(name) for name in found if name is not None]
    same = tuple(range(len(found)))
    if len(ranks) != len(found) or len(set(ranks)) != len(ranks) or not {"x", "y"} <= set(found):
        return tuple(f"dim_{axis}" for axis in same), same
    order = tuple(sorted(same, key=ranks.__getitem__))
    return tuple(NAMES[ranks[axis]] for axis in order), order


def transposed(array: ArrayIndex, order: Shape) -> ArrayIndex:
    """Return an array with its axes in another order; its stored bytes stay as they are.

    Parameters:
        array: the array as it is stored.
        order: for each axis of the result, the number of its axis in `array`.
    """
    if order == tuple(range(len(array.shape))):
        return array
    codecs = array.codecs
    if not isinstance(array.chunks, Computed):
        # Zarr's `order` says where each axis of the stored chunk is in the array
        inverse = sorted(range(len(order)), key=order.__getitem__)
        codecs = ({"name": "transpose", "configuration": {"order": inverse}}, *codecs)
    return replace(
        array,
        shape=pick(array.shape, order),
        chunk_shape=pick(array.chunk_shape, order),
        dimension_names=pick(array.dimension_names, order),
        codecs=codecs,
        chunks=_transposed_chunks(array.chunks, order),
    )


def pick(values: Sequence[Any], order: Shape) -> tuple[Any, ...]:
    """Return the values of the axes in another order."""
    return tuple(values[axis] for axis in order)


def _transposed_chunks(chunks: Chunks, order: Shape) -> Chunks:
    if isinstance(chunks, Computed):
        configuration = dict(chunks.configuration)
        if "ratio" in configuration:
            configuration["ratio"] = list(pick(configuration["ratio"], order))
        return replace(chunks, grid=pick(chunks.grid, order), configuration=configuration)
    if isinstance(chunks, Objects):
        ids = chunks.front_ids
        return replace(
            chunks,
            grid=pick(chunks.grid, order),
            pattern=_renumbered(chunks, order),
            front_ids=None if ids is None else _turned(ids, order),
        )
    if chunks.parts is not None:
        raise UnsupportedError("chunks in several parts cannot be transposed")
    tables: dict[str, Any] = {
        name: None if (table := getattr(chunks, name)) is None else _turned(table, order)
        for name in ("url_ids", "front_ids")
    }
    return replace(
        chunks,
        offsets=_turned(chunks.offsets, order),
        lengths=_turned(chunks.lengths, order),
        **tables,
    )


def _turned(table: Any, order: Shape) -> Any:
    return np.ascontiguousarray(table.transpose(order))


def _renumbered(chunks: Objects, order: Shape) -> str:
    """Return a pattern whose numbers refer to the transposed grid."""
    place = {old: new for new, old in enumerate(order)}
    return re.sub(r"\{(\d+)", lambda match: f"{{{place[int(match[1])]}", chunks.pattern)


def without_axis(array: ArrayIndex, axis: int) -> ArrayIndex | None:
    """Return an array without an axis of length 1; None if its codecs depend on the axis.

    Samples that follow each other in C order are the same bytes with the axis and without it.
    """
    codecs = [codec.get("name") if isinstance(codec, dict) else codec for codec in array.codecs]
    if array.shape[axis] != 1 or array.chunk_shape[axis] != 1 or codecs[:1] != ["bytes"]:
        return None
    rest = tuple(n for n in range(len(array.shape)) if n != axis)
    # the fronts of pieces of a stream state lengths in bytes
    chunks = _squeezed(array.chunks, axis, may_have_fronts=codecs == ["bytes", PIECE])
    if chunks is None:
        return None
    return replace(
        array,
        shape=pick(array.shape, rest),
        chunk_shape=pick(array.chunk_shape, rest),
        dimension_names=pick(array.dimension_names, rest),
        chunks=chunks,
    )


def _squeezed(chunks: Chunks, axis: int, *, may_have_fronts: bool) -> Chunks | None:
    if isinstance(chunks, Computed):
        rest = tuple(n for n in range(len(chunks.grid)) if n != axis)
        configuration = {**chunks.configuration}
        configuration["ratio"] = list(pick(configuration["ratio"], rest))
        return replace(chunks, grid=pick(chunks.grid, rest), configuration=configuration)
    if not isinstance(chunks, ByteRanges) or chunks.parts is not None:
        return None
    if chunks.fronts and not may_have_fronts:
        return None
    tables: dict[str, Any] = {
        name: None if (table := getattr(chunks, name)) is None else table.squeeze(axis)
        for name in ("offsets", "lengths", "url_ids", "front_ids")
    }
    return replace(chunks, **tables)


# Arrays of one band without their band axis: (1, y, x) as (y, x).


def without_single_band(array: ArrayIndex) -> ArrayIndex:
    """Return an array whose first axis has length 1 without that axis; others unchanged.

    Its codecs must not depend on the number of axes, as those that turn bytes into bytes.
    """
    chunks = array.chunks
    if len(array.shape) != 3 or array.shape[0] != 1 or not isinstance(chunks, ByteRanges):
        return array
    return replace(
        array,
        shape=array.shape[1:],
        chunk_shape=array.chunk_shape[1:],
        dimension_names=array.dimension_names[1:],
        chunks=replace(
            chunks,
            offsets=chunks.offsets[0],
            lengths=chunks.lengths[0],
            url_ids=_first(chunks.url_ids),
            front_ids=_first(chunks.front_ids),
        ),
    )


def _first(table: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    return None if table is None else table[0]
