"""How Zarr spells fill values."""

import math
from typing import Any

import numpy as np

from anychunk.model.index import Json


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
