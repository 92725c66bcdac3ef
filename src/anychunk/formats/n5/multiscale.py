"""What N5's conventions say about axes, element sizes and levels.

Opened: n5-viewer (`downsamplingFactors`, `scales`, `pixelResolution`), BigDataViewer
        (`setup0/timepoint0/s0`, factors at the setup), COSEM (`transform` of each level, listed in
        C order unless `ordering` is "F"; `multiscales`), Paintera (`multiScale`, `resolution`,
        `offset`), Neuroglancer (`axes`, `units`, `resolution`).

Factors are relative to s0 and in N5 order. The first element of a level covers f elements of s0, so
its centre is shifted by (f - 1) / 2 of them. Attributes are free-form JSON that anyone may have
written: whatever does not have the expected type and length is ignored.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anychunk.formats._axes import known_name, ome_unit
from anychunk.model.index import Json

type Attributes = dict[str, Json]
type Vector = tuple[float, ...]
type Read = Callable[[str], Attributes | None]
type Named = tuple[str, Attributes]
"""A level: its name, and the attributes of its dataset."""

MOST_LEVELS = 32
GROUP_KEYS = ("multiScale", "multiscales", "scales", "downsamplingFactors", "pixelResolution")
LEVEL_KEYS = ("downsamplingFactors", "transform", "pixelResolution")


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The size and position of the elements of one level, in N5 order."""

    factor: Vector
    """Elements of the first level that an element covers."""
    scale: Vector | None
    """Size of an element; None if no attribute states it."""
    translation: Vector
    """Position of the centre of the first element."""
    units: tuple[str | None, ...]
    """As OME-Zarr spells them."""


def pyramid(group: Attributes, read: Read) -> list[Named]:
    """Return the levels of a group; empty if the group follows none of the conventions.

    Parameters:
        group: The attributes of the group.
        read: Returns the attributes of a member, None if it does not exist.
    """
    levels = level_names(group, read)
    first = levels[0][1] if levels else {}
    is_known = any(k in group for k in GROUP_KEYS) or any(k in first for k in LEVEL_KEYS)
    return levels if is_known else []


def level_names(group: Attributes, read: Read) -> list[Named]:
    """Return the names and attributes of the levels, finest first: s0, s1 … up to a gap."""
    listed = [_text(d.get("path")) for d in _cosem_datasets(group)]
    names = listed or [f"s{i}" for i in range(MOST_LEVELS)]
    found: list[Named] = []
    for name in names[:MOST_LEVELS]:
        attributes = read(name) if name else None
        if name is None or attributes is None or not _list(attributes.get("dimensions")):
            break
        found.append((name, attributes))
    return found


def place(
    group: Attributes, parent: Attributes, levels: list[Named], number: int, ndim: int
) -> Placed:
    """Return size and position of a level: its own transform, or else factors and resolution.

    Parameters:
        group: The attributes of the group of the levels; empty for a single dataset.
        parent: The attributes of the group that holds it.
        levels: All levels.
        number: Which of them.
        ndim: The number of dimensions.
    """
    own, first = (_level_transform(group, levels, n, ndim) for n in (number, 0))
    if own is not None and first is not None:
        scale, translation, units = own
        factor = tuple(a / b for a, b in zip(scale, first[0], strict=True))
        return Placed(factor=factor, scale=scale, translation=translation, units=units)
    factor = level_factors(group, parent, levels, number, ndim)
    resolution, units = pixel_resolution(levels[0][1], group, parent, ndim)
    offset = _offset(levels[0][1], group, ndim)
    steps = resolution or (1.0,) * ndim
    return Placed(
        factor=factor,
        scale=resolution and tuple(r * f for r, f in zip(steps, factor, strict=True)),
        translation=tuple(
            o + r * (f - 1) / 2 for o, r, f in zip(offset, steps, factor, strict=True)
        ),
        units=units,
    )


def _offset(first: Attributes, group: Attributes, ndim: int) -> Vector:
    found = _vector(group.get("offset"), ndim) or _vector(first.get("offset"), ndim)
    return found or (0.0,) * ndim


def level_factors(
    group: Attributes, parent: Attributes, levels: list[Named], number: int, ndim: int
) -> Vector:
    """Return how much coarser a level is than the first, along each axis.

    The level, the group or its parent may state it, under either of two names. Otherwise it is the
    ratio of the dimensions.
    """
    attributes = levels[number][1]
    candidates: list[Json] = [attributes.get("downsamplingFactors")]
    for holder in (group, parent):
        for key in ("downsamplingFactors", "scales"):
            table = _list(holder.get(key))
            candidates += [table[number]] if number < len(table) else []
    for candidate in candidates:
        factors = _vector(candidate, ndim)
        if factors and min(factors) > 0:
            return factors
    full, here = (_vector(a.get("dimensions"), ndim) for a in (levels[0][1], attributes))
    if not full or not here:
        return (1.0,) * ndim
    return tuple(float(max(1, round(n / max(m, 1)))) for n, m in zip(full, here, strict=True))


def pixel_resolution(
    first: Attributes, group: Attributes, parent: Attributes, ndim: int
) -> tuple[Vector | None, tuple[str | None, ...]]:
    """Return the element size of the first level, None if unknown, and its units."""
    for holder in (first, group, parent):
        for key in ("pixelResolution", "resolution"):
            found = holder.get(key)
            units: list[Json] = _list(holder.get("units"))
            if isinstance(found, dict):  # n5-viewer: {"dimensions": […], "unit": "um"}
                units, found = [found.get("unit")] * ndim, found.get("dimensions")
            vector = _vector(found, ndim)
            if vector and min(vector) > 0:
                return vector, _units(units, ndim)
    return None, (None,) * ndim


def axis_names(holders: tuple[Attributes, ...], ndim: int) -> tuple[str | None, ...]:
    """Return t, c, z, y, x or None for each dimension, in N5 order.

    Parameters:
        holders: Attributes that may name the axes: of the dataset, and of its group.
        ndim: The number of dimensions; without names the first three are x, y and z.
    """
    for attributes in holders:
        found = attributes.get("transform")
        transform = found if isinstance(found, dict) else {}
        # Neuroglancer, and cellmap's schemas of its N5 groups, list dimension 0 first
        for names in (
            _n5_order(_list(transform.get("axes")), transform),
            tuple(_list(attributes.get("axes"))),
        ):
            if len(names) == ndim == len({n for n in names if isinstance(n, str)}):
                return tuple(known_name(name) for name in names)
    return tuple("xyz"[i] if i < 3 else None for i in range(ndim))


def _level_transform(
    group: Attributes, levels: list[Named], number: int, ndim: int
) -> tuple[Vector, Vector, tuple[str | None, ...]] | None:
    """Return scale, translation and units of COSEM's `transform`, None if it is malformed."""
    listed = _cosem_datasets(group)
    found = levels[number][1].get("transform") or (
        listed[number].get("transform") if number < len(listed) else None
    )
    if not isinstance(found, dict):
        return None
    scale, translate = _vector(found.get("scale"), ndim), _vector(found.get("translate"), ndim)
    if not scale or min(scale) <= 0:
        return None
    return (
        _n5_order(scale, found),
        _n5_order(translate or (0.0,) * ndim, found),
        _units(_n5_order(_list(found.get("units")), found), ndim),
    )


def _units(found: Any, ndim: int) -> tuple[str | None, ...]:
    return tuple(ome_unit(unit) for unit in found) if len(found) == ndim else (None,) * ndim


def _n5_order(values: Any, holder: Attributes) -> tuple[Any, ...]:
    """Return values in N5 order; COSEM lists them slowest first, unless `ordering` is "F"."""
    return tuple(values) if holder.get("ordering") == "F" else tuple(values)[::-1]


def _cosem_datasets(group: Attributes) -> list[Attributes]:
    images = _list(group.get("multiscales"))
    first = images[0] if images and isinstance(images[0], dict) else {}
    return [d for d in _list(first.get("datasets")) if isinstance(d, dict)]


def _vector(value: Json, ndim: int) -> Vector | None:
    numbers = _list(value)
    if len(numbers) != ndim or not all(
        isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in numbers
    ):
        return None
    return tuple(float(n) for n in numbers)


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None
