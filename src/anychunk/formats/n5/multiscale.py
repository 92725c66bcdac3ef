"""The multiscale conventions of N5 as OME-Zarr `multiscales`.

Opened: n5-viewer (`downsamplingFactors`, `scales`, `pixelResolution`), BigDataViewer
        (`setup0/timepoint0/s0`, factors at the setup), COSEM (`transform` of each level, listed in
        C order unless `ordering` is "F"; `multiscales`), Paintera (`multiScale`, `resolution`,
        `offset`).

Factors are relative to s0 and in N5 order. The first element of a level covers f elements of s0, so
its centre is shifted by (f - 1) / 2 of them. Attributes are free-form JSON that anyone may have
written: whatever does not have the expected type and length is ignored.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anychunk.metadata.ome import Axis, Level, ome
from anychunk.model.index import Json

type Attributes = dict[str, Json]
type Vector = tuple[float, ...]
type Read = Callable[[str], Attributes | None]
type Order = Callable[[tuple[Any, ...]], tuple[Any, ...]]

MOST_LEVELS = 32
GROUP_KEYS = ("multiScale", "multiscales", "scales", "downsamplingFactors", "pixelResolution")
LEVEL_KEYS = ("downsamplingFactors", "transform", "pixelResolution")
UNITS = {
    "nm": "nanometer",
    "um": "micrometer",
    "µm": "micrometer",
    "μm": "micrometer",
    "micron": "micrometer",
    "mm": "millimeter",
    "cm": "centimeter",
    "m": "meter",
    "s": "second",
    "ms": "millisecond",
}


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The position and scale of one level, in N5 order."""

    scale: Vector
    translation: Vector
    axes: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None


def multiscales(group: Attributes, parent: Attributes, read: Read, order: Order) -> Json:
    """Return the `ome` attribute of a group, None if the group follows none of the conventions.

    Parameters:
        group: The attributes of the group.
        parent: The attributes of the group that holds it.
        read: Returns the attributes of a member, None if it does not exist.
        order: Converts a list from N5 order to the axis order of the arrays.
    """
    names = level_names(group, read)
    first = names[0][1] if names else {}
    if not any(k in group for k in GROUP_KEYS) and not any(k in first for k in LEVEL_KEYS):
        return None
    ndim = len(_list(first.get("dimensions")))
    placed = [place(group, parent, names, number, ndim) for number in range(len(names))]
    if not ndim or not placed:
        return None
    axes = placed[0].axes or axis_names(first, ndim)
    units = placed[0].units or (None,) * ndim
    return ome(
        order(tuple(Axis(name=n, unit=_unit(u)) for n, u in zip(axes, units, strict=True))),
        [
            Level(path=name, scale=order(p.scale), translation=order(p.translation))
            for (name, _), p in zip(names, placed, strict=True)
        ],
    )


def level_names(group: Attributes, read: Read) -> list[tuple[str, Attributes]]:
    """Return the names and attributes of the levels, finest first: s0, s1 … up to a gap."""
    listed = [_text(d.get("path")) for d in _cosem_datasets(group)]
    names = listed or [f"s{i}" for i in range(MOST_LEVELS)]
    found = []
    for name in names[:MOST_LEVELS]:
        attributes = read(name) if name else None
        if name is None or attributes is None or not _list(attributes.get("dimensions")):
            break
        found.append((name, attributes))
    return found


def place(
    group: Attributes,
    parent: Attributes,
    levels: list[tuple[str, Attributes]],
    number: int,
    ndim: int,
) -> Placed:
    """Return the position of one level: its own transform, or else its factors and resolution."""
    attributes = levels[number][1]
    listed = _cosem_datasets(group)
    own = attributes.get("transform") or (
        listed[number].get("transform") if number < len(listed) else None
    )
    transformed = _transform(own, ndim)
    if transformed:
        return transformed
    factors = level_factors(group, parent, levels, number, ndim)
    resolution, units = pixel_resolution(levels[0][1], group, parent, ndim)
    offset = _vector(group.get("offset"), ndim) or (0.0,) * ndim
    return Placed(
        scale=tuple(r * f for r, f in zip(resolution, factors, strict=True)),
        translation=tuple(
            o + r * (f - 1) / 2 for o, r, f in zip(offset, resolution, factors, strict=True)
        ),
        units=units,
    )


def level_factors(
    group: Attributes,
    parent: Attributes,
    levels: list[tuple[str, Attributes]],
    number: int,
    ndim: int,
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
) -> tuple[Vector, tuple[str, ...] | None]:
    """Return the element size of the first level, 1 if unknown, and its units."""
    for holder in (first, group, parent):
        for key in ("pixelResolution", "resolution"):
            found = holder.get(key)
            unit = None
            if isinstance(found, dict):  # n5-viewer: {"dimensions": […], "unit": "um"}
                unit, found = _text(found.get("unit")), found.get("dimensions")
            vector = _vector(found, ndim)
            if vector and min(vector) > 0:
                return vector, (unit,) * ndim if unit else None
    return (1.0,) * ndim, None


def axis_names(attributes: Attributes, ndim: int) -> tuple[str, ...]:
    """Return the names of the axes in N5 order: of `transform` or `axes`, or x, y, z, dim_3 …"""
    transform = attributes.get("transform")
    for holder in (transform if isinstance(transform, dict) else {}, attributes):
        names = _list(holder.get("axes"))
        if len(names) == ndim == len({n for n in names if isinstance(n, str)}):
            return _n5_order(names, holder)
    return tuple("xyz"[i] if i < 3 else f"dim_{i}" for i in range(ndim))


def _transform(found: Json, ndim: int) -> Placed | None:
    """Return the position that COSEM's `transform` describes, None if it is malformed."""
    if not isinstance(found, dict):
        return None
    scale, translate = _vector(found.get("scale"), ndim), _vector(found.get("translate"), ndim)
    if not scale or min(scale) <= 0:
        return None
    axes, units = (
        tuple(v) if len(v) == ndim and all(isinstance(n, str) for n in v) else None
        for v in (_list(found.get("axes")), _list(found.get("units")))
    )
    return Placed(
        scale=_n5_order(scale, found),
        translation=_n5_order(translate or (0.0,) * ndim, found),
        axes=_n5_order(axes, found) if axes and len(set(axes)) == ndim else None,
        units=_n5_order(units, found) if units else None,
    )


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


def _unit(unit: str | None) -> str | None:
    return None if unit is None else UNITS.get(unit, unit)
