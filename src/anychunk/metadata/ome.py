"""The OME-Zarr 0.5 `multiscales` attribute of an image group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TYPES = {"t": "time", "time": "time", "c": "channel", "band": "channel", "channel": "channel"}
"""Types of axes by name; those of x, y, z are space, others have none."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    name: str
    type: str | None = None
    unit: str | None = None
    """As OME-Zarr spells it: micrometer, millimeter, second …"""

    def json(self) -> dict[str, str]:
        kind = (
            self.type or TYPES.get(self.name) or ("space" if self.name in ("x", "y", "z") else None)
        )
        pairs = {"name": self.name, "type": kind, "unit": self.unit}
        return {key: value for key, value in pairs.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Level:
    path: str
    scale: tuple[float, ...]
    """Size of one element along each axis, in the axis' unit."""
    translation: tuple[float, ...] | None = None
    """Where the centre of the first element is."""

    def json(self) -> dict[str, Any]:
        transformations: list[dict[str, Any]] = [{"type": "scale", "scale": list(self.scale)}]
        if self.translation is not None and any(self.translation):
            transformations.append({"type": "translation", "translation": list(self.translation)})
        return {"path": self.path, "coordinateTransformations": transformations}


def ome(
    axes: Sequence[Axis], levels: Sequence[Level], *, name: str | None = None
) -> dict[str, Any]:
    """Give the value of an image group's `ome` attribute; levels full resolution first."""
    image: dict[str, Any] = {
        "axes": [axis.json() for axis in axes],
        "datasets": [level.json() for level in levels],
    }
    if name is not None:
        image["name"] = name
    return {"version": "0.5", "multiscales": [image]}


def shrunk_levels(
    paths: Sequence[str], shapes: Sequence[tuple[int, ...]], scale: tuple[float, ...]
) -> list[Level]:
    """Give levels that cover the same extent as the first: pixel centres shift with their size.

    `scale` is the element size of the first level.
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
