"""An oracle of `cast_value` in exact arithmetic, written from its text and not from our code.

Values are Fractions (or the float NaN and infinities); the numbers of a type are listed or
computed from its published parameters.
"""

import math
from fractions import Fraction
from functools import cache

INTS = {
    f"{sign}int{bits}": ((0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    for bits in (2, 4, 8, 16, 32, 64)
    for sign in ("", "u")
}
# mantissa bits, bias, largest finite, has infinity, has NaN (zarr-extensions, data-types)
FLOATS = {
    "float64": (52, 1023, Fraction(2**53 - 1) * 2**971, True, True),
    "float32": (23, 127, Fraction(2**24 - 1) * 2**104, True, True),
    "float16": (10, 15, Fraction(65504), True, True),
    "bfloat16": (7, 127, Fraction(2**8 - 1) * 2**120, True, True),
    "float8_e3m4": (4, 3, Fraction(31, 2), True, True),
    "float8_e4m3": (3, 7, Fraction(240), True, True),
    "float8_e4m3b11fnuz": (3, 11, Fraction(30), False, True),
    "float8_e4m3fnuz": (3, 8, Fraction(240), False, True),
    "float8_e5m2": (2, 15, Fraction(57344), True, True),
    "float8_e5m2fnuz": (2, 16, Fraction(57344), False, True),
    "float8_e8m0fnu": (0, 127, Fraction(2**127), False, True),
    "float6_e2m3fn": (3, 1, Fraction(15, 2), False, False),
    "float6_e3m2fn": (2, 3, Fraction(28), False, False),
    "float4_e2m1fn": (1, 1, Fraction(6), False, False),
}
ERROR = "error"


def round_fraction(value: Fraction, mode: str) -> int:
    below = math.floor(value)
    rest = value - below
    if rest == 0:
        return below
    if mode == "towards-negative":
        return below
    if mode == "towards-positive":
        return below + 1
    if mode == "towards-zero":
        return below if value > 0 else below + 1
    if rest != Fraction(1, 2):
        return below + (rest > Fraction(1, 2))
    if mode == "nearest-away":
        return below + 1 if value > 0 else below
    return below if below % 2 == 0 else below + 1


def exponent(value: Fraction) -> int:
    """floor(log2(value)) for a positive value."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    while Fraction(2) ** guess > value:
        guess -= 1
    while Fraction(2) ** (guess + 1) <= value:
        guess += 1
    return guess


@cache
def rounded(value: Fraction, name: str, mode: str) -> Fraction:
    """The nearest number of a type that has no largest one."""
    if name in INTS:
        return Fraction(round_fraction(value, mode))
    if not value:
        return value
    mantissa, bias, *_ = FLOATS[name]
    smallest_normal = 1 - bias if name != "float8_e8m0fnu" else -(10**6)
    step = Fraction(2) ** (max(exponent(abs(value)), smallest_normal) - mantissa)
    return round_fraction(value / step, mode) * step


def to_int(value, name: str, mode: str, out_of_range: str | None):
    if not isinstance(value, Fraction):
        return ERROR
    low, high = INTS[name]
    number = rounded(value, name, mode)
    if low <= number <= high:
        return number
    if out_of_range == "clamp":
        return Fraction(low if number < low else high)
    if out_of_range == "wrap":
        return (number - low) % (high - low + 1) + low
    return ERROR


def to_float(value, name: str, mode: str, out_of_range: str | None):
    _, _, largest, has_infinity, has_nan = FLOATS[name]
    if not isinstance(value, Fraction):
        survives = has_nan if math.isnan(value) else has_infinity
        return value if survives else ERROR
    low = -largest if name != "float8_e8m0fnu" else Fraction(1, 2**127)
    number = rounded(value, name, mode)
    if low <= number <= largest:
        return number
    if out_of_range != "clamp":
        return ERROR
    if has_infinity:
        return math.inf if number > 0 else -math.inf
    return largest if number > largest else low


def cast(value, name: str, mode: str, out_of_range: str | None):
    return (to_int if name in INTS else to_float)(value, name, mode, out_of_range)
