"""Numbers of the data types that `cast_value` and `scale_offset` are defined for, as exact fractions.

A value is a `Fraction`, or one of the floats NaN, Infinity, -Infinity and -0.0. Nothing here is taken
from an implementation: the parameters are those of the data types' specifications, and every result
is computed with integers of any size.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

type Value = Fraction | float
"""A number; as a float only NaN, an infinity or -0.0."""

ROUNDINGS = (
    "nearest-even",
    "towards-zero",
    "towards-positive",
    "towards-negative",
    "nearest-away",
)
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Integers:
    """An integer type."""

    name: str
    low: Fraction
    high: Fraction
    has_infinity = has_nan = has_negative_zero = False

    def step(self, value: Fraction) -> Fraction:
        """Return the distance of neighbouring numbers around `value`."""
        return Fraction(1)


@dataclass(frozen=True)
class Floats:
    """A binary floating-point type."""

    name: str
    mantissa: int
    """Bits of the significand without the hidden one."""
    smallest_exponent: int
    """Exponent of the smallest normal number."""
    high: Fraction
    has_infinity: bool
    has_nan: bool
    has_negative_zero: bool

    @property
    def has_zero(self) -> bool:
        return self.name != "float8_e8m0fnu"

    @property
    def low(self) -> Fraction:
        """Return the lowest finite number."""
        return -self.high if self.has_zero else 1 / self.high

    def step(self, value: Fraction) -> Fraction:
        """Return the distance of neighbouring numbers around `value`, as if the type had no end."""
        exponent = floor_log2(abs(value)) if value else self.smallest_exponent
        if self.has_zero:
            exponent = max(exponent, self.smallest_exponent)
        return power_of_two(exponent - self.mantissa)


type Type = Integers | Floats


def floor_log2(value: Fraction) -> int:
    """Return the exponent of the largest power of two that is not above a positive value."""
    above, below = value.numerator, value.denominator
    guess = above.bit_length() - below.bit_length()
    is_reached = above >= below << guess if guess >= 0 else above << -guess >= below
    return guess if is_reached else guess - 1


@cache
def power_of_two(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def _float(name: str, mantissa: int, bias: int, high: int | Fraction, special: str) -> Floats:
    """Return a type; `special` says what it has: Infinity, NaN, and a zero with a sign (-)."""
    return Floats(
        name, mantissa, 1 - bias, Fraction(high), "I" in special, "N" in special, "-" in special
    )


TYPES: dict[str, Type] = {
    kind.name: kind
    for kind in (
        *(
            Integers(f"int{bits}", Fraction(-(2 ** (bits - 1))), Fraction(2 ** (bits - 1) - 1))
            for bits in (2, 4, 8, 16, 32, 64)
        ),
        *(
            Integers(f"uint{bits}", Fraction(0), Fraction(2**bits - 1))
            for bits in (2, 4, 8, 16, 32, 64)
        ),
        _float("float4_e2m1fn", 1, 1, 6, "-"),
        _float("float6_e2m3fn", 3, 1, Fraction(15, 2), "-"),
        _float("float6_e3m2fn", 2, 3, 28, "-"),
        _float("float8_e3m4", 4, 3, Fraction(31, 2), "IN-"),
        _float("float8_e4m3", 3, 7, 240, "IN-"),
        _float("float8_e4m3b11fnuz", 3, 11, 30, "N"),
        _float("float8_e4m3fnuz", 3, 8, 240, "N"),
        _float("float8_e5m2", 2, 15, 57344, "IN-"),
        _float("float8_e5m2fnuz", 2, 16, 57344, "N"),
        _float("float8_e8m0fnu", 0, 127, Fraction(2) ** 127, "N"),
        _float("bfloat16", 7, 127, (2**8 - 1) * Fraction(2) ** 120, "IN-"),
        _float("float16", 10, 15, 65504, "IN-"),
        _float("float32", 23, 127, (2**24 - 1) * Fraction(2) ** 104, "IN-"),
        _float("float64", 52, 1023, (2**53 - 1) * Fraction(2) ** 971, "IN-"),
    )
}


def round_to_integer(value: Fraction, mode: str) -> int:
    """Round to an integer."""
    below = math.floor(value)
    rest = value - below
    if not rest:
        return below
    match mode:
        case "towards-negative":
            return below
        case "towards-positive":
            return below + 1
        case "towards-zero":
            return below if value > 0 else below + 1
        case "nearest-away" if rest == HALF:
            return below + 1 if value > 0 else below
        case _ if rest == HALF:
            return below + below % 2
        case _:
            return below + (rest > HALF)


def round_to_type(value: Fraction, kind: Type, mode: str = "nearest-even") -> Fraction:
    """Round to a number that the type would have if its range had no end."""
    if isinstance(kind, Integers):
        return Fraction(round_to_integer(value, mode))
    step = kind.step(value)
    return round_to_integer(value / step, mode) * step


def is_number(value: Value) -> bool:
    """Return whether a value is finite."""
    return isinstance(value, Fraction) or value == 0


def to_json(value: Value | None, kind: Type) -> object:
    """Return a value in the fill value encoding of its type; None, an error, is null."""
    if value is None:
        return None
    if isinstance(value, float) and value != 0:
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(kind, Integers):
        return int(value)
    return int(value) if isinstance(value, Fraction) and _is_short(value) else float(value)


def _is_short(value: Fraction) -> bool:
    """Return whether a number is written without a fraction, and exactly by every JSON library."""
    return value.denominator == 1 and abs(value) < 10**6


def payload_nan(kind: Floats) -> str:
    """Return a NaN that is not the default one of its type, as its bits."""
    size = {"float16": 2, "float32": 4, "float64": 8}[kind.name]
    default = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}[size]
    return f"0x{default + 1:0{2 * size}x}"
