"""Meaning as JSON in the headers of formats that allow fields of one's own, such as N5 and JNRRD.

What such a format has fields for (element sizes, units, orientation) is written there, for every
reader; this is the rest. It is read back on trust of no one: whatever does not have the expected
type is ignored.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from anychunk.metadata import reading
from anychunk.metadata.hierarchy import AXES, own_attributes
from anychunk.metadata.meaning import Axis, Crs, Meaning
from anychunk.model import images as im
from anychunk.model.index import Json

PREFIX = "anychunk."


def exported(meaning: Meaning) -> dict[str, Json]:
    """Return what a format without words for it keeps under our name; empty if that is nothing."""
    found: dict[str, Json] = {
        key.removeprefix(PREFIX): value
        for key, value in own_attributes(meaning).items()
        if key != AXES
    }
    place = meaning.place
    if meaning.display is not None and "mask" in meaning.display:
        # the mask itself is an array, which is not written
        found["display"] = {k: v for k, v in meaning.display.items() if k != "mask"}
    if meaning.nodata is not None:
        found["nodata"] = number_json(meaning.nodata)
    if place.crs is not None:
        pairs = {"code": place.crs.code, "wkt": place.crs.wkt}
        found["crs"] = {key: value for key, value in pairs.items() if value is not None}
    if place.transform is not None:
        found["transform"] = list(place.transform)
    if place.bbox is not None:
        found["bbox"] = list(place.bbox)
    axes = {
        axis.name: {"values": list(axis.values), "attributes": dict(axis.attributes)}
        for axis in meaning.axes
        if axis.values is not None
    }
    if axes:
        found["positions"] = axes
    return found


def imported(meaning: Meaning, found: Json) -> Meaning:
    """Return a meaning with what `exported` wrote; what the format itself says is kept.

    Parameters:
        meaning: what the format's own fields say.
        found: what the file has under our name.
    """
    if not isinstance(found, Mapping) or not found:
        return meaning
    named = {f"{PREFIX}{key}": value for key, value in found.items()}
    own = reading.own_meaning(named)
    place = replace(
        own.place,
        crs=_crs(found.get("crs")),
        transform=reading.transform_of(found.get("transform")),
        bbox=reading.numbers(found.get("bbox"), 4),  # type: ignore[arg-type]
    )
    axes = tuple(_with_positions(axis, found.get("positions")) for axis in meaning.axes)
    if place.transform is not None:
        # the transform has the positions; element sizes repeat its steps, for other readers
        axes = tuple(Axis(name=axis.name) if axis.name in ("x", "y") else axis for axis in axes)
    native = found.get("native")
    return replace(
        meaning,
        axes=axes,
        place=place,
        nodata=nodata if (nodata := number_of(found.get("nodata"))) is not None else meaning.nodata,
        bands=own.bands or meaning.bands,
        display=own.display or meaning.display,
        space=own.space or meaning.space,
        time=own.time or meaning.time,
        tags={**meaning.tags, **own.tags},
        native={**(native if isinstance(native, Mapping) else {}), **meaning.native},
    )


def _with_positions(axis: Axis, found: Json) -> Axis:
    own = found.get(axis.name) if isinstance(found, Mapping) else None
    if not isinstance(own, Mapping):
        return axis
    values = im.entries(own.get("values"))
    attributes = own.get("attributes")
    if not values or reading.numbers(values, len(values)) is None:
        return axis
    return replace(
        axis,
        values=tuple(float(value) for value in values),
        attributes=attributes if isinstance(attributes, Mapping) else {},
    )


def _crs(found: Json) -> Crs | None:
    if not isinstance(found, Mapping):
        return None
    code, wkt = found.get("code"), found.get("wkt")
    code, wkt = (text if isinstance(text, str) and text else None for text in (code, wkt))
    return Crs(code=code, wkt=wkt) if code or wkt else None


def number_json(value: float) -> Json:
    """Return a number as JSON, those that are not finite as text, as Zarr writes fill values."""
    if isinstance(value, int) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def number_of(value: Json) -> float | int | None:
    """Return the number that `number_json` wrote, None for anything else."""
    if isinstance(value, str):
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None
