"""The meaning of samples as N5 attributes: those of n5-viewer and COSEM, and one of our own."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from anychunk.errors import FormatError
from anychunk.formats._axes import MOST_NATIVE, SHORT_UNITS
from anychunk.formats.n5.hierarchy import OWN
from anychunk.formats.n5.multiscale import GROUP_KEYS, LEVEL_KEYS
from anychunk.metadata.exported import exported
from anychunk.metadata.meaning import NAMES, Meaning
from anychunk.model.index import Json

WRITTEN = {
    *("n5", OWN, "dimensions", "blockSize", "dataType", "compression", "compressionType"),
    *("resolution", "offset", "units", "axes", "ordering"),
    *GROUP_KEYS,
    *LEVEL_KEYS,
}
"""Attributes of another N5 dataset that are not copied, because they are written anew."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """What is written about samples, in N5 order."""

    attributes: dict[str, Json] = field(default_factory=dict)
    """Of the dataset, or of the group of a pyramid."""
    names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    steps: tuple[float, ...] | None = None
    """Sizes of elements; None if they are not known."""
    origins: tuple[float, ...] = ()

    def level(self, factors: Sequence[int]) -> dict[str, Json]:
        """Return the attributes of a level.

        Neuroglancer's `axes`, unless they are what is assumed without it; COSEM's `transform`,
        which lists slowest axes first.
        """
        is_usual = self.names == ("x", "y", "z")[: len(self.names)]
        is_named = all(name in NAMES for name in self.names)
        found: dict[str, Json] = {"axes": list(self.names)} if is_named and not is_usual else {}
        if self.steps is None:
            return found
        scale = [s * f for s, f in zip(self.steps, factors, strict=True)]
        shifts = zip(self.origins, self.steps, factors, strict=True)
        found["transform"] = {
            "ordering": "C",
            "axes": list(self.names)[::-1],
            "scale": scale[::-1],
            "translate": [o + s * (f - 1) / 2 for o, s, f in shifts][::-1],
            "units": list(self.units)[::-1],
        }
        return found


def describe(meaning: Meaning | None, *, is_reversed: bool, ndim: int, url: str) -> Described:
    """Return the attributes that hold a meaning.

    Parameters:
        meaning: What the samples mean, in the order of the caller's array.
        is_reversed: Whether that is the reverse of N5's.
        ndim: The number of dimensions.
        url: Names the target in messages.
    """
    if meaning is None:
        return Described()
    if len(meaning.axes) != ndim:
        raise FormatError(f"{url}: meaning has {len(meaning.axes)} axes, the array {ndim}")
    axes = meaning.axes[::-1] if is_reversed else meaning.axes
    steps = [_step(meaning, axis.name, axis.scale) for axis in axes]
    is_known = any(step is not None for step in steps)
    units = tuple(
        "" if axis.unit is None else SHORT_UNITS.get(axis.unit, axis.unit) for axis in axes
    )
    found: dict[str, Json] = {
        key: value for key, value in _n5_attributes(meaning).items() if key not in WRITTEN
    }
    if is_known:
        spatial = [
            unit for axis, unit in zip(axes, units, strict=True) if axis.name in ("x", "y", "z")
        ]
        found["pixelResolution"] = {
            "dimensions": [1.0 if step is None else step for step in steps],
            "unit": next((unit for unit in spatial if unit), "pixel"),
        }
    own = exported(meaning)
    if native := kept_native(meaning):
        own["native"] = native
    if own:
        found[OWN] = own
    return Described(
        attributes=found,
        names=tuple(axis.name for axis in axes),
        units=units,
        steps=tuple(1.0 if step is None else step for step in steps) if is_known else None,
        origins=tuple(axis.origin for axis in axes),
    )


def _n5_attributes(meaning: Meaning) -> dict[str, Json]:
    found = meaning.native.get("n5")
    return found if isinstance(found, dict) else {}


def kept_native(meaning: Meaning) -> dict[str, Json]:
    """Return the attributes of another format that are kept; none if they are too long."""
    found = {key: value for key, value in meaning.native.items() if key != "n5"}
    return found if len(json.dumps(found, default=str)) <= MOST_NATIVE else {}


def _step(meaning: Meaning, name: str, scale: float | None) -> float | None:
    """Return the size of an element: as stated, or that of the georeference."""
    transform = meaning.place.transform
    if scale is not None or transform is None or name not in ("x", "y"):
        return scale
    a, b, _, d, e, _ = transform
    return math.hypot(a, d) if name == "x" else math.hypot(b, e)
