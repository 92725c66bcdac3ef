"""The OME-Zarr 0.5 attribute of an image group: axes, levels, channels.

Spec: https://ngff.openmicroscopy.org/0.5
"""

import math
from collections.abc import Sequence
from typing import Any

from anychunk.metadata.cf import type_range
from anychunk.metadata.drawing import drawn
from anychunk.metadata.meaning import TYPES, Channel, Level, Meaning, factors
from anychunk.model.index import Json

COLORS = ("0000FF", "00FF00", "FF0000", "00FFFF", "FF00FF", "FFFF00")
"""Colours of listed channels that state none, by number; a single channel is white."""
RGB = ("FF0000", "00FF00", "0000FF")
VARIABLE = "image"
"""Name of the array in every level group."""


def ome(meaning: Meaning, levels: Sequence[Level]) -> dict[str, Any]:
    """Return the `ome` attribute of an image group."""
    axes = []
    for axis in meaning.axes:
        pairs = {"name": axis.name, "type": TYPES[axis.name], "unit": axis.unit}
        axes.append({key: value for key, value in pairs.items() if value is not None})
    image: dict[str, Any] = {
        "axes": axes,
        "datasets": [_dataset(meaning, level, levels[0].image.shape) for level in levels],
    }
    if meaning.name:
        image["name"] = meaning.name
    return {"version": "0.5", "multiscales": [image], **omero(meaning, levels[0])}


def omero(meaning: Meaning, level: Level) -> dict[str, Json]:
    """Return the attribute `omero` of an image, by its name; nothing if it has no channels."""
    channels = omero_channels(meaning, level)
    if not channels:
        return {}
    is_grey = len(channels) == 1 or drawn(meaning, len(channels))["model"] == "grey"
    model = "greyscale" if is_grey else "color"
    return {"omero": {"channels": channels, "rdefs": {"model": model}}}


def _dataset(meaning: Meaning, level: Level, full: Sequence[int]) -> dict[str, Any]:
    scale, translation = scale_and_translation(meaning, level, full)
    steps: list[dict[str, Any]] = [{"type": "scale", "scale": list(scale)}]
    if any(translation):
        steps.append({"type": "translation", "translation": list(translation)})
    return {"path": f"{level.name}/{VARIABLE}", "coordinateTransformations": steps}


def scale_and_translation(
    meaning: Meaning, level: Level, full: Sequence[int]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the size of an element of a level along each axis, and the centre of the first one.

    The first element of a coarser level covers several of the full resolution, so that its centre
    is half the difference of their sizes further on.
    """
    steps = [step(meaning, number) for number in range(len(meaning.axes))]
    factor = factors(level, full)
    scale = level.scale or tuple(s * f for s, f in zip(steps, factor, strict=True))
    origins = [axis.origin for axis in meaning.axes]
    origin = level.origin or tuple(
        o + s * (f - 1) / 2 for o, s, f in zip(origins, steps, factor, strict=True)
    )
    return scale, origin


def step(meaning: Meaning, number: int) -> float:
    """Return the size of an element: as stated, or that of the georeference, or 1."""
    axis, transform = meaning.axes[number], meaning.place.transform
    if axis.scale is not None:
        return axis.scale
    if transform is not None and axis.name in "xy":
        a, b, _, d, e, _ = transform
        return math.hypot(a, d) if axis.name == "x" else math.hypot(b, e)
    return 1.0


def pixel_size(meaning: Meaning) -> dict[str, float]:
    """Return the size of an element along each axis for which it is known."""
    is_placed = meaning.place.transform is not None
    return {
        axis.name: abs(step(meaning, number))
        for number, axis in enumerate(meaning.axes)
        if axis.scale is not None or (is_placed and axis.name in ("x", "y"))
    }


def omero_channels(meaning: Meaning, level: Level) -> list[Json]:
    """Return `omero.channels`, one per band; none for images that are not drawn by their bands."""
    if "c" not in meaning.names:
        return []
    count = level.image.shape[meaning.names.index("c")]
    display = drawn(meaning, count)
    if display["model"] in ("palette", "cmyk", "ycbcr"):
        return []
    listed: dict[int, Channel] = {c["band"]: c for c in display.get("channels", ())}
    is_sum = display["model"] == "channels"
    shown = display.get("bands", [])
    found = []
    for band in range(count):
        own = listed.get(band, Channel(band=band))
        color = COLORS[band % len(COLORS)] if is_sum and count > 1 else "FFFFFF"
        if display["model"] == "rgb" and band in shown[:3]:
            color = RGB[shown.index(band)]
        low, high = type_range(level.image.data_type)
        ranges = display.get("range") or []
        start, end = own.get("window") or (
            ranges[min(band, len(ranges) - 1)] if ranges else (low, high)
        )
        found.append(
            {
                "label": own.get("label") or meaning.band(band).name or str(band),
                "color": own.get("color", color),
                "active": own.get("active", is_sum or band in shown),
                "inverted": own.get("inverted", False),
                "family": "linear",
                "coefficient": 1,
                "window": {
                    "min": min(low, start),
                    "max": max(high, end),
                    "start": start,
                    "end": end,
                },
            }
        )
    return found
