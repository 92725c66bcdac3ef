"""`pad`, `scale_offset` and `cast_value` in plain Python, as their pages and README.md describe them.

The functions are 40 statements, to read rather than to use: there is no array and no chunk.
A value is a `Fraction`; NaN, Infinity, -Infinity and -0.0 are floats, and the bits of a NaN text. An
error is ValueError. `FLOATS`: bits of the mantissa, exponent of the smallest normal number, largest
number, and whether the type has Infinity (I), NaN (N) and -0.0 (-).
"""

import base64
import math
from fractions import Fraction

FLOATS = {
    "float4_e2m1fn": (1, 0, 6, "-"),
    "float6_e2m3fn": (3, 0, Fraction(15, 2), "-"),
    "float6_e3m2fn": (2, -2, 28, "-"),
    "float8_e3m4": (4, -2, Fraction(31, 2), "IN-"),
    "float8_e4m3": (3, -6, 240, "IN-"),
    "float8_e4m3b11fnuz": (3, -10, 30, "N"),
    "float8_e4m3fnuz": (3, -7, 240, "N"),
    "float8_e5m2": (2, -14, 57344, "IN-"),
    "float8_e5m2fnuz": (2, -15, 57344, "N"),
    "float8_e8m0fnu": (0, -9999, Fraction(2) ** 127, "N"),
    "bfloat16": (7, -126, 255 * Fraction(2) ** 120, "IN-"),
    "float16": (10, -14, 65504, "IN-"),
    "float32": (23, -126, (2**24 - 1) * Fraction(2) ** 104, "IN-"),
    "float64": (52, -1022, (2**53 - 1) * Fraction(2) ** 971, "IN-"),
}
BOUNDS = {
    name: (Fraction(2) ** -127 if name == "float8_e8m0fnu" else -high, high)
    for name, (_, _, high, _) in FLOATS.items()
}
BOUNDS |= {
    f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (2, 4, 8, 16, 32, 64)
}
BOUNDS |= {f"uint{bits}": (0, 2**bits - 1) for bits in (2, 4, 8, 16, 32, 64)}


def pad(data, way, *, location, nbytes, padding=""):
    header = (
        base64.b64decode(padding, validate=True)
        if padding
        else bytes(nbytes if type(nbytes) is int else 0)
    )
    is_good = (
        type(nbytes) is int
        and len(header) == nbytes
        and location in ("start", "end")
        and padding in ("", base64.b64encode(header).decode())
    )
    if not is_good or (way == "decode" and len(data) < nbytes):
        raise ValueError(
            f"pad: {location!r}, {nbytes!r} bytes, padding {padding!r}, chunk of {len(data)} bytes"
        )
    if way == "encode":
        return header + data if location == "start" else data + header
    return data[nbytes:] if location == "start" else data[: len(data) - nbytes]


def value(scalar):
    is_kept = (
        scalar.startswith("0x")
        if isinstance(scalar, str)
        else scalar == 0 and math.copysign(1, scalar) < 0
    )
    return (
        scalar if is_kept else Fraction(scalar) if math.isfinite(float(scalar)) else float(scalar)
    )


def rounded(x, kind, mode="nearest-even"):
    """Round to a number of the type, as if its range had no end."""
    size, lowest, *_ = FLOATS.get(kind, (0, 0))
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent = (
        max(exponent - (Fraction(2) ** exponent > abs(x)), lowest) if kind in FLOATS and x else 0
    )
    below, rest = divmod(x / Fraction(2) ** (exponent - size), 1)
    is_up = {"towards-zero": x < 0, "towards-positive": True, "towards-negative": False}
    tie = x > 0 if mode == "nearest-away" else below % 2
    return (
        below + (rest > 0 and is_up.get(mode, rest * 2 > 1 or (rest * 2 == 1 and tie)))
    ) * Fraction(2) ** (exponent - size)


def cast_value(x, target, *, rounding="nearest-even", out_of_range=None, scalar_map=()):
    (low, high), has = BOUNDS[target], FLOATS.get(target, ("",))[-1]
    special = (
        "N"
        if isinstance(x, str) or x != x
        else "I"
        if abs(x) == math.inf
        else "-"
        if isinstance(x, float)
        else ""
    )
    mapped = [
        value(found)
        for key, found in scalar_map
        if value(key) == x or (key == "NaN" and special == "N")
    ]
    if mapped or (special and special in has):
        return mapped[0] if mapped else x
    near = rounded(Fraction(x), target, rounding) if special in ("", "-") else None
    if near is not None and (low <= near <= high or out_of_range == "wrap"):
        return (near - low) % (high - low + 1) + low
    if near is None or out_of_range != "clamp":
        raise ValueError(f"{x} is no {target}")
    return (math.inf if near > 0 else -math.inf) if "I" in has else high if near > high else low


def scale_offset(x, way, kind, *, offset=0, scale=1):
    if isinstance(x, float) and x != 0:  # NaN, or an infinity, of which only the sign changes
        return math.copysign(1, scale) * x
    for step in (
        (lambda x: x - Fraction(offset), lambda x: x * Fraction(scale))
        if way == "encode"
        else (lambda x: x / Fraction(scale), lambda x: x + Fraction(offset))
    ):
        exact = step(Fraction(x))
        x = rounded(exact, kind)
        if not BOUNDS[kind][0] <= x <= BOUNDS[kind][1] or (kind not in FLOATS and x != exact):
            raise ValueError(f"{exact} is no {kind}")
    return x
