"""Scalars in JSON, in the fill value encoding of their number type.

Spec: Zarr v3 core, "Fill value". Integers are JSON numbers; floats are numbers, `"NaN"`,
`"Infinity"`, `"-Infinity"`, or their bits in hexadecimal. As in zarr-python, numbers in strings are
accepted too, and so is `"+Infinity"`, which the specification of `cast_value` uses.
"""

import math
import re

import numpy as np

from anychunk.codecs.cast.blockwise import GOOD, Scratch
from anychunk.codecs.cast.from_float import float_to_float
from anychunk.codecs.cast.number_types import (
    DOUBLE,
    FloatType,
    IntType,
    NumberType,
    has_unused_bits,
    used_bits,
)
from anychunk.model.grid import Array
from anychunk.model.index import Json

SPECIAL = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}
HEX = re.compile(r"0[xX]([0-9a-fA-F]+)")


def normalized(value: object) -> Json:
    """Return the JSON of a Python or numpy scalar."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def parse(value: Json, kind: NumberType) -> Array:
    """Return a JSON scalar as a 0-d array of `kind.stored`.

    Raises:
        ValueError: the type cannot represent the scalar.
        OverflowError: an infinity for an integer type.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a number")  # noqa: TRY004 - callers catch ValueError
    if isinstance(kind, IntType):
        return _parse_int(value, kind)
    return _parse_float(value, kind)


def bits_of(value: Json) -> str | None:
    """Return the hexadecimal digits of a scalar written as bits, or None."""
    match = HEX.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None


def _parse_int(value: float | str, kind: IntType) -> Array:
    number = int(value)  # ValueError for other strings, OverflowError for infinities
    if not isinstance(value, str) and number != value:
        raise ValueError(f"{value!r} is not an integer")
    if not kind.low <= number <= kind.high:
        raise ValueError(f"{value!r} is outside [{kind.low}, {kind.high}]")
    if kind.is_foreign:
        number &= (1 << kind.bits) - 1
    return np.array(number, kind.stored)


def _parse_float(value: float | str, kind: FloatType) -> Array:
    digits = bits_of(value)
    if digits is not None:
        if len(digits) != 2 * kind.itemsize:
            raise ValueError(f"{value!r} has {len(digits)} digits, expected {2 * kind.itemsize}")
        bits = int(digits, 16) & (int(used_bits(kind)) if has_unused_bits(kind) else -1)
        return np.array(bits, kind.bits).view(kind.stored)
    number = SPECIAL[value] if isinstance(value, str) and value in SPECIAL else float(value)
    if math.isnan(number) and kind.nan is not None:
        return np.array(kind.nan, kind.bits).view(kind.stored)
    return round_to(number, kind)


def round_to(number: float, kind: FloatType) -> Array:
    """Return the number of `kind` that is nearest to `number`; ValueError if out of range."""
    source, out = np.array([number], np.float64), np.empty(1, kind.stored)
    with np.errstate(all="ignore"):
        bad = float_to_float(DOUBLE, kind, "nearest-even", None)(source, out, Scratch())
    if bad != GOOD:
        raise ValueError(f"outside [{kind.low:g}, {kind.high:g}]")
    return out[0:1].reshape(())
