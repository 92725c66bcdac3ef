"""What sample values mean: nodata, scale, offset and bands, and how Zarr spells fill values."""

import math
from typing import Any

import numpy as np

from anychunk.metadata._tiff import Attributes, gdal_nodata, gdal_scales
from anychunk.metadata.drawing import palette
from anychunk.model.index import ArrayIndex, Json

CF = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "units", "calendar")
"""CF attributes that change which values samples represent."""
NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Zarr v3's spelling of the floats that JSON cannot represent."""
UNSCALED = [1.0, 0.0]
"""Scale and offset of a band that states neither."""


def nodata(attributes: Attributes, array: ArrayIndex) -> float | None:
    """Return the value of `array` that marks missing samples; None if there is none.

    Parsers write nodata as the fill value. Zero is every array's default fill value, so it counts
    as nodata only where the image's attributes declare it.

    Parameters:
        attributes: the attributes of the image that `array` is a level of.
        array: one level of the image.
    """
    value = array.fill_value
    if isinstance(value, str):
        value = NON_FINITE.get(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if value != 0 or gdal_nodata(attributes) == 0 else None


def packing(attributes: Attributes, bands: int) -> tuple[float, float] | None:
    """Return the (scale, offset) that all bands share; None if they differ or are (1, 0)."""
    pairs = list(gdal_scales(attributes).values())
    if len(pairs) != bands or len(set(pairs)) != 1:
        return None
    scale, offset = pairs[0]
    if isinstance(scale, str) or isinstance(offset, str) or [scale, offset] == UNSCALED:
        return None
    return scale, offset


def sample_meaning(attributes: Attributes) -> dict[str, Json]:
    """Return everything that decides which values samples represent, by name."""
    found: dict[str, Json] = {key: attributes.get(key) for key in CF}
    found["nodata"] = gdal_nodata(attributes)
    found["color_map"] = palette(attributes)
    for band, pair in gdal_scales(attributes).items():
        found[f"scale and offset of {band}"] = list(pair)
    return found


def fill_value_json(value: Any, dtype: np.dtype[Any]) -> Json:
    """Return a fill value as Zarr v3 metadata spells it for `dtype`."""
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind == "c":
        return [float_json(value.real), float_json(value.imag)]
    return float_json(value) if dtype.kind == "f" else int(value)


def float_json(value: float) -> Json:
    """Return a float as Zarr v3 metadata spells it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)
