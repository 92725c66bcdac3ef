"""The OME-Zarr 0.5 `multiscales` attribute of an image group: axes, their order, levels.

Spec: https://ngff.openmicroscopy.org/0.5
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TYPES = {"t": "time", "time": "time", "c": "channel", "band": "channel", "channel": "channel"}
"""Axis types by axis name; x, y and z are of type space, other names have no type."""
SPACE = ("z", "y", "x")
ORDER = {"t": 0, "time": 0, "c": 1, "band": 1, "channel": 1, "z": 2, "y": 3, "x": 4}
"""Position of an axis by name: OME-Zarr 0.5 requires time, then channel, then space (z, y, x)."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of an image."""

    name: str
    type: str | None = None
    """Overrides the type that the name implies."""
    unit: str | None = None
    """Unit of the axis as OME-Zarr spells it: micrometer, millimeter, second …"""

    def json(self) -> dict[str, str]:
        """Return the axis as an entry of `axes`."""
        kind = self.type or TYPES.get(self.name) or ("space" if self.name in SPACE else None)
        pairs = {"name": self.name, "type": kind, "unit": self.unit}
        return {key: value for key, value in pairs.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Level:
    """One resolution of an image."""

    path: str
    """Path of the array, relative to the image group."""
    scale: tuple[float, ...]
    """Size of one element along each axis, in the axis' unit."""
    translation: tuple[float, ...] | None = None
    """Position of the centre of the first element."""

    def json(self) -> dict[str, Any]:
        """Return the level as an entry of `datasets`."""
        transformations: list[dict[str, Any]] = [{"type": "scale", "scale": list(self.scale)}]
        if self.translation is not None and any(self.translation):
            transformations.append({"type": "translation", "translation": list(self.translation)})
        return {"path": self.path, "coordinateTransformations": transformations}


def ome(
    axes: Sequence[Axis], levels: Sequence[Level], *, name: str | None = None
) -> dict[str, Any]:
    """Return the `ome` attribute of an image group; `levels` start with full resolution."""
    image: dict[str, Any] = {
        "axes": [axis.json() for axis in axes],
        "datasets": [level.json() for level in levels],
    }
    if name is not None:
        image["name"] = name
    return {"version": "0.5", "multiscales": [image]}


def ome_order(names: Sequence[str]) -> tuple[int, ...]:
    """Return the axis numbers in OME-Zarr's order; unchanged if it does not define one of them."""
    if not all(name in ORDER for name in names):
        return tuple(range(len(names)))
    return tuple(sorted(range(len(names)), key=lambda i: ORDER[names[i]]))


def shrunk_levels(
    paths: Sequence[str], shapes: Sequence[tuple[int, ...]], scale: tuple[float, ...]
) -> list[Level]:
    """Return levels that all cover the extent of the first one.

    The first element of a coarser level covers several elements of the first level, so its centre
    moves by half the difference of their sizes.

    Parameters:
        paths: paths of the arrays, full resolution first.
        shapes: shapes of the arrays.
        scale: size of one element of the first level along each axis.
    """
    levels = []
    for path, shape in zip(paths, shapes, strict=True):
        factors = [full / max(here, 1) for full, here in zip(shapes[0], shape, strict=True)]
        levels.append(
            Level(
                path=path,
                scale=tuple(s * f for s, f in zip(scale, factors, strict=True)),
                translation=tuple(s * (f - 1) / 2 for s, f in zip(scale, factors, strict=True)),
            )
        )
    return levels
