"""Data types of arrays, from their JSON in Zarr v3 to numpy's, and their fill values.

Numbers are understood here. All other types, and all unusual texts, are left to zarr, which is
imported for them by name: see `anychunk.zarr.data_types`.
"""

import math
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from anychunk.model.index import Json

NUMBERS = frozenset(
    (
        *("bool", "complex64", "complex128", "float16", "float32", "float64"),
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    )
)
"""Names of data types that are those of numpy."""
SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def native(data_type: Json) -> np.dtype[Any]:
    """Return numpy's data type for the JSON of one.

    Raises:
        ValueError: There is none.
    """
    if isinstance(data_type, str) and data_type in NUMBERS:
        return _dtype(data_type)
    found: np.dtype[Any] = _others().data_type(data_type).to_native_dtype()
    return found


def name_of(dtype: np.dtype[Any]) -> Json:
    """Return the JSON of a data type of numpy.

    Raises:
        ValueError: There is none.
    """
    if dtype.name in NUMBERS:
        return dtype.name
    found: Json = _others().data_type(dtype).to_json(zarr_format=3)
    return found


def scalar(data_type: Json, value: Json) -> Any:
    """Return a fill value, given as JSON, as a scalar of numpy.

    Raises:
        ValueError, TypeError: It is not a value of this type.
    """
    if isinstance(data_type, str) and data_type in NUMBERS:
        dtype = _dtype(data_type)
        plain = _plain(value, dtype)
        if plain is not None:
            return dtype.type(plain)
    return _others().data_type(data_type).from_json_scalar(value, zarr_format=3)


def default(dtype: np.dtype[Any]) -> Any:
    """Return the fill value of a type that has none of its own."""
    is_number = dtype.name in NUMBERS
    return dtype.type(0) if is_number else _others().data_type(dtype).default_scalar()


def _plain(value: Json, dtype: np.dtype[Any]) -> Any:
    """Return a value that is written the usual way as Python's; None for any other."""
    match dtype.kind, value:
        case "b", bool():
            return value
        case "c", [real, imaginary]:
            half = np.dtype(f"f{dtype.itemsize // 2}")
            parts = _plain(real, half), _plain(imaginary, half)
            return None if None in parts else complex(*parts)
        case "f", str():
            return SPECIAL.get(value)
        case _, bool():
            pass
        case "i" | "u", int() if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            return value
        case "f", int() | float() if abs(value) <= float(np.finfo(dtype).max):
            return value
    return None


@cache
def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(name)


def _others() -> Any:
    return import_module("anychunk.zarr.data_types")
