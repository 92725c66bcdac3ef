"""The geometry of a volume as OME-Zarr axes and transformations.

Spec: JNRRD 1.0.0 sections 4 and 5; OME-Zarr 0.5 section 2.4.
"""

import math
import re
from collections.abc import Mapping, Sequence

from anychunk.formats.jnrrd.tiling_fields import Level
from anychunk.metadata.ome import Axis
from anychunk.metadata.ome import Level as OmeLevel
from anychunk.metadata.ome import ome as ome_json
from anychunk.model.index import Json

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
    "ms": "millisecond",
    "us": "microsecond",
}
SPACE = ("space", "domain")
"""NRRD's kinds of a spatial axis."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_ -]{0,40}")


def per_axis(fields: Mapping[str, Json], key: str, ndim: int) -> list[Json]:
    """Return a field with one value per axis; all None if its length is not `ndim`."""
    values = fields.get(key)
    return values if isinstance(values, list) and len(values) == ndim else [None] * ndim


def kinds(fields: Mapping[str, Json], ndim: int) -> list[str | None]:
    """Return the OME type of each axis: space, time, channel, or None.

    An explicit kind, direction or label decides. Of axes that have none of these, the first
    three are spatial, unless other axes have directions: then they are channels.
    """
    given = per_axis(fields, "kinds", ndim)
    directions = per_axis(fields, "space_directions", ndim)
    has_directions = any(vector(d) for d in directions)
    labels = per_axis(fields, "labels", ndim)
    found: list[str | None] = []
    for axis in range(ndim):
        kind = given[axis] if isinstance(given[axis], str) else None
        label = labels[axis].lower() if isinstance(labels[axis], str) else ""
        if kind == "time" or label in ("t", "time"):
            found.append("time")
        elif vector(directions[axis]) or kind in SPACE or label in ("x", "y", "z"):
            found.append("space")
        elif (kind is not None and kind != "none") or has_directions or label in ("c", "channel"):
            found.append("channel")
        else:
            found.append("space" if sum(f == "space" for f in found) < 3 else None)
    return found


def names(fields: Mapping[str, Json], ndim: int) -> list[str]:
    """Return the names of the axes, fastest first: distinct, usable labels, or else by type."""
    labels = per_axis(fields, "labels", ndim)
    usable = [label for label in labels if isinstance(label, str) and NAME.fullmatch(label)]
    if len(set(usable)) == ndim:
        return list(usable)
    spatial = iter("xyz")
    found = []
    for axis, kind in enumerate(kinds(fields, ndim)):
        name = {"time": "t", "channel": "c"}.get(kind or "", f"dim_{axis}")
        if kind == "space":
            name = next(spatial, f"dim_{axis}")
        found.append(f"dim_{axis}" if name in found else name)
    return found


def vector(value: Json) -> list[float] | None:
    """Return a direction as floats, or None if it is missing, zero or not finite."""
    if not isinstance(value, list) or not value:
        return None
    if not all(isinstance(v, int | float) and math.isfinite(v) for v in value):
        return None
    return [float(v) for v in value] if any(value) else None


def spacings(fields: Mapping[str, Json], ndim: int) -> list[float]:
    """Return the distance between samples along each axis; 1 where it is unknown."""
    directions = per_axis(fields, "space_directions", ndim)
    plain = per_axis(fields, "spacings", ndim)
    found = []
    for axis in range(ndim):
        direction, spacing = vector(directions[axis]), plain[axis]
        if direction is not None:
            found.append(math.hypot(*direction))
        elif isinstance(spacing, int | float) and math.isfinite(spacing) and spacing > 0:
            found.append(float(spacing))
        else:
            found.append(1.0)
    return found


def origins(fields: Mapping[str, Json], ndim: int) -> list[float]:
    """Return the position of the first sample, as far as a translation along the axes expresses it.

    OME-Zarr 0.5 has no rotation or reflection, so the origin is zero unless every direction points
    along a different positive axis of the space.
    """
    directions = [vector(d) for d in per_axis(fields, "space_directions", ndim)]
    origin = vector(fields.get("space_origin"))
    found = [0.0] * ndim
    used: set[int] = set()
    for axis, direction in enumerate(directions):
        if direction is None:
            continue
        along = [i for i, v in enumerate(direction) if v]
        if origin is None or len(along) != 1 or direction[along[0]] < 0 or along[0] in used:
            return [0.0] * ndim
        if len(origin) != len(direction):
            return [0.0] * ndim
        used.add(along[0])
        found[axis] = origin[along[0]]
    return found


def units(fields: Mapping[str, Json], ndim: int) -> list[str | None]:
    """Return the unit of each axis by its OME name, None where it has none."""
    plain = per_axis(fields, "units", ndim)
    directions = per_axis(fields, "space_directions", ndim)
    of_space = fields.get("space_units")
    spatial = of_space[0] if isinstance(of_space, list) and of_space else None
    found = []
    for axis in range(ndim):
        unit = spatial if vector(directions[axis]) and spatial else plain[axis]
        found.append(UNITS.get(unit) if isinstance(unit, str) else None)
    return found


def ome(
    fields: Mapping[str, Json], ndim: int, levels: Sequence[Level], *, trailing: int
) -> dict[str, Json]:
    """Return the `ome` attribute of an image group.

    Parameters:
        fields: The header.
        ndim: The number of axes of the file.
        levels: All levels, full resolution first.
        trailing: How many axes the Zarr view has after those of the file (`Volume.trailing`).
    """
    name, kind, unit = names(fields, ndim), kinds(fields, ndim), units(fields, ndim)
    axes = [Axis(name=name[a], type=kind[a], unit=unit[a]) for a in reversed(range(ndim))]
    axes += [Axis(name="byte")] * trailing
    step, origin = spacings(fields, ndim), origins(fields, ndim)
    shown = [
        OmeLevel(
            path=str(level.number),
            scale=(
                *(step[a] * level.scale[a] for a in reversed(range(ndim))),
                *(1.0,) * trailing,
            ),
            translation=(
                # the first coarse voxel covers `scale` voxels; its centre is theirs
                *(origin[a] + step[a] * (level.scale[a] - 1) / 2 for a in reversed(range(ndim))),
                *(0.0,) * trailing,
            ),
        )
        for level in levels
    ]
    content = fields.get("content")
    return ome_json(axes, shown, name=content if isinstance(content, str) and content else None)
