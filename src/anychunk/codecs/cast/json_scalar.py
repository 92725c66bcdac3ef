"""Scalars in JSON, by the fill value encoding of their own type.

Spec: Zarr v3 core, "Fill value". Integers are JSON numbers; floats are numbers, `"NaN"`,
`"Infinity"`, `"-Infinity"`, or the bits in hexadecimal. As zarr-python does, numbers in strings
are read too, and `"+Infinity"`, which the text of `cast_value` uses.
"""

import math
import re
from typing import Any

import numpy as np

from anychunk.codecs.cast.blocks import GOOD, Scratch
from anychunk.codecs.cast.float_casting import float_to_float
from anychunk.codecs.cast.number_types import DOUBLE, Block, FloatType, IntType, NumberType

type Json = Any

SPECIAL = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}
HEX = re.compile(r"0[xX]([0-9a-fA-F]+)")


def normalized(value: object) -> Json:
    """Give the JSON of a scalar that may be a Python or numpy number."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def parse(value: Json, kind: NumberType) -> Block:
    """Read a scalar as a 0-d array of `kind.stored`; ValueError where the type cannot hold it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a number")  # noqa: TRY004 - one kind of failure
    if isinstance(kind, IntType):
        return _parse_int(value, kind)
    return _parse_float(value, kind)


def bits_of(value: Json) -> str | None:
    """Give the digits of a scalar written as bits, else None."""
    match = HEX.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None


def _parse_int(value: float | str, kind: IntType) -> Block:
    number = int(value)  # a string that is no integer raises ValueError, infinity OverflowError
    if not isinstance(value, str) and number != value:
        raise ValueError(f"{value!r} is not an integer")
    if not kind.low <= number <= kind.high:
        raise ValueError(f"{value!r} is outside {kind.low}..{kind.high}")
    if kind.is_foreign:
        number &= (1 << kind.bits) - 1
    return np.array(number, kind.stored)


def _parse_float(value: float | str, kind: FloatType) -> Block:
    digits = bits_of(value)
    if digits is not None:
        if len(digits) != 2 * kind.itemsize:
            raise ValueError(f"{value!r} has {len(digits)} digits, not {2 * kind.itemsize}")
        return np.array(int(digits, 16), kind.bits).view(kind.stored)
    number = SPECIAL[value] if isinstance(value, str) and value in SPECIAL else float(value)
    if math.isnan(number) and kind.nan is not None:
        return np.array(kind.nan, kind.bits).view(kind.stored)
    return from_float(number, kind)


def from_float(number: float, kind: FloatType) -> Block:
    """Round a number to the nearest of `kind`; ValueError where it is out of range."""
    source, out = np.array([number], np.float64), np.empty(1, kind.stored)
    with np.errstate(all="ignore"):
        bad = float_to_float(DOUBLE, kind, "nearest-even", None)(source, out, Scratch())
    if bad != GOOD:
        raise ValueError(f"outside {kind.low:g}..{kind.high:g}")
    return out[0:1].reshape(())
