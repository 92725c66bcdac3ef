"""The axes of a volume: which are space, time or channels, and where their samples lie.

Spec: JNRRD 1.0.0 sections 8 and 9; NRRD format sections 4 and 6. All lists are in the order of the
file, fastest axis first.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from anychunk.formats._axes import known_name, ome_unit
from anychunk.model.grid import Shape
from anychunk.model.index import Json

DOMAIN = ("space", "domain")
"""NRRD's kinds of a spatial axis."""
UNKNOWN = ("none", "???")


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Where the samples along one axis lie."""

    scale: float | None = None
    """Distance of samples; None if the header does not state it."""
    origin: float = 0.0
    """Position of the first sample."""
    unit: str | None = None
    """As OME-Zarr spells it."""


def per_axis(fields: Mapping[str, Json], key: str, ndim: int) -> list[Json]:
    """Return a field with one value per axis; all None if its length is not `ndim`."""
    values = fields.get(key)
    return values if isinstance(values, list) and len(values) == ndim else [None] * ndim


def kinds(fields: Mapping[str, Json], ndim: int) -> list[str | None]:
    """Return the kind of each axis as NRRD spells it in lower case; None if it has none."""
    found = [
        kind.lower().replace("_", "-") if isinstance(kind, str) else None
        for kind in per_axis(fields, "kinds", ndim)
    ]
    return [None if kind in UNKNOWN else kind for kind in found]


def names(fields: Mapping[str, Json], ndim: int) -> list[str | None]:
    """Return x, y, z, c or t for each axis; None for an axis of unknown meaning.

    A kind, a direction or a label decides. Of axes that have none of these, the first three are
    spatial, unless other axes have directions: then they are channels.
    """
    directions = [vector(d) for d in per_axis(fields, "space_directions", ndim)]
    labels = [known_name(label) for label in per_axis(fields, "labels", ndim)]
    given = kinds(fields, ndim)
    times = [is_time(fields, direction) for direction in directions]
    found: list[str | None] = []
    for direction, label, kind, is_direction_in_time in zip(
        directions, labels, given, times, strict=True
    ):
        if kind == "time" or label == "t" or is_direction_in_time:
            found.append("t")
        elif direction is not None or kind in DOMAIN or (kind is None and label in ("x", "y", "z")):
            found.append("space")
        elif kind is not None or label == "c" or any(directions):
            found.append("c")
        else:
            found.append("space" if found.count("space") < 3 else None)
    return _with_spatial_names(found, labels)


def _with_spatial_names(found: list[str | None], labels: list[str | None]) -> list[str | None]:
    """Name spatial axes by their labels, if all have distinct ones, or else x, y, z in order."""
    chosen = [label for name, label in zip(found, labels, strict=True) if name == "space"]
    if len(set(chosen)) != len(chosen) or not set(chosen) <= {"x", "y", "z"}:
        chosen = [*"xyz", *[None] * len(chosen)][: len(chosen)]
    rest = iter(chosen)
    return [next(rest) if name == "space" else name for name in found]


def is_time(fields: Mapping[str, Json], direction: list[float] | None) -> bool:
    """Return whether a direction points along the time axis of a space with time."""
    return (
        direction is not None
        and has_time(fields)
        and len(direction) == 4
        and not any(direction[:3])
        and bool(direction[3])
    )


def has_time(fields: Mapping[str, Json]) -> bool:
    """Return whether the fourth component of the space is time."""
    space = fields.get("space")
    word = space.lower().replace("_", "-") if isinstance(space, str) else ""
    return word.endswith("-time") or word in ("rast", "last", "lpst")


def vector(value: Json) -> list[float] | None:
    """Return a direction as floats, or None if it is missing, zero or not finite."""
    found = numbers(value)
    return found if found is not None and any(found) else None


def numbers(value: Json) -> list[float] | None:
    """Return a list of finite numbers as floats, or None."""
    if not isinstance(value, list) or not value:
        return None
    return [float(v) for v in value] if all(map(is_number, value)) else None


def is_number(value: Json) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def placed(fields: Mapping[str, Json], sizes: Shape) -> list[Placed]:
    """Return where the samples along each axis lie, as far as a step and an origin express it.

    OME-Zarr 0.5 has no rotation and no reflection, so an axis with a direction has an origin only
    if every axis points along its own positive axis of the space.
    """
    ndim = len(sizes)
    directions = [vector(d) for d in per_axis(fields, "space_directions", ndim)]
    units = per_axis(fields, "units", ndim)
    components = _components(fields, directions, ndim)
    origin = numbers(fields.get("space_origin"))
    of_space = fields.get("space_units")
    space_units = of_space if isinstance(of_space, list) else []
    found = []
    for axis, direction in enumerate(directions):
        if direction is None:
            scale, first = _along(fields, axis, sizes)
            found.append(Placed(scale=scale, origin=first, unit=ome_unit(units[axis])))
            continue
        number = components[axis] if components else None
        unit = space_units[number] if number is not None and number < len(space_units) else None
        if number is None and len({str(u) for u in space_units}) == 1:
            unit = space_units[0]
        is_stated = number is not None and origin is not None and len(origin) == len(direction)
        found.append(
            Placed(
                scale=math.hypot(*direction),
                origin=origin[number] if is_stated and origin and number is not None else 0.0,
                unit=ome_unit(unit) or ome_unit(units[axis]),
            )
        )
    return found


def _components(
    fields: Mapping[str, Json], directions: list[list[float] | None], ndim: int
) -> list[int | None] | None:
    """Return the component of the space that each axis points along.

    None if any of them points elsewhere, or backwards: the matrix is not diagonal then.
    """
    own = {"x": 0, "y": 1, "z": 2, "t": 3}
    found: list[int | None] = []
    for name, direction in zip(names(fields, ndim), directions, strict=True):
        if direction is None:
            found.append(None)
            continue
        along = [i for i, v in enumerate(direction) if v]
        if len(along) != 1 or direction[along[0]] < 0 or along[0] != own.get(name or ""):
            return None
        found.append(along[0])
    return found


def _along(fields: Mapping[str, Json], axis: int, sizes: Shape) -> tuple[float | None, float]:
    """Return step and origin of an axis without a direction: `spacings`, or the range of the axis.

    Where the centering is not known, the lower bound is the position of the first sample: NRRD
    compares it with the ORIGIN of VTK's headers.
    """
    ndim, size = len(sizes), sizes[axis]
    spacing, low, high, center = (
        per_axis(fields, key, ndim)[axis]
        for key in ("spacings", "axis_mins", "axis_maxs", "centers")
    )
    is_cell = center == "cell"
    step = float(spacing) if is_number(spacing) and spacing > 0 else None
    if step is None and is_number(low) and is_number(high) and high > low:
        parts = size if is_cell else size - 1 if center == "node" else 0
        step = (high - low) / parts if parts > 0 else None
    if not is_number(low) or step is None:
        return step, 0.0
    return step, float(low) + (step / 2 if is_cell else 0.0)
