"""Round to integers, and to the numbers of a narrower float type, in five modes.

Spec: IEEE 754-2019 section 4.3; zarr-extensions, codecs/cast_value, `rounding`.

Every function rounds exactly once: its other operations are exact in floating point. All of them
work in caller-provided buffers; their docstrings say which of these may be the same.
"""

from typing import Literal, get_args

import numpy as np

from anychunk.codecs.cast.number_types import FloatType
from anychunk.model.grid import Array

type Rounding = Literal[
    "nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away"
]
MODES: tuple[str, ...] = get_args(Rounding.__value__)

EXPONENT_BITS = np.int64(0x7FF0000000000000)
BIAS, EXPONENT_SHIFT = 1023, 52
"""Layout of float64."""
DIRECT = {
    "nearest-even": np.rint,
    "towards-zero": np.trunc,
    "towards-positive": np.ceil,
    "towards-negative": np.floor,
}
"""Modes that numpy has as a function."""


def nearest_away(values: Array, out: Array, spare: Array, like: Array) -> None:
    """Round to the nearest integer, ties away from zero.

    `floor(x + 0.5)` is wrong for 0.49999999999999994 and for large odd numbers, where the sum is
    rounded. Truncating, and then truncating twice the fraction, is exact.

    Parameters:
        values: the values to round.
        out: the result; must not be `values`.
        spare: a buffer, which may be `values` if these are no longer needed.
        like: has the signs and infinities of `values`, for -0.0 and infinities.
    """
    np.trunc(values, out=out)
    np.subtract(values, out, out=spare)  # the fraction, which is exact
    np.add(spare, spare, out=spare)
    np.trunc(spare, out=spare)  # 1 or -1 if the fraction is at least a half
    np.add(out, spare, out=out)
    np.copysign(out, like, out=out)
    if not np.isfinite(np.add.reduce(spare)):  # infinity minus infinity made NaN
        np.copyto(out, like, where=~np.isfinite(like))


def to_integer(mode: Rounding, values: Array, out: Array, spare: Array) -> None:
    """Round to integers, which stay floats.

    `spare` is used for nearest-away only, where `out` must not be `values`.
    """
    if mode == "nearest-away":
        nearest_away(values, out, spare, values)
    else:
        DIRECT[mode](values, out=out)


def to_grid(
    values: Array, out: Array, spare: tuple[Array, Array], kind: FloatType, mode: Rounding
) -> Array:
    """Round float64 values to numbers of a narrower type, as if its exponent had no upper bound.

    Between two powers of two (a binade), the numbers of `kind` are the multiples of a step, which
    is a power of two as well. Dividing by the step is exact, rounding the quotient to an integer is
    the only rounding, and multiplying by the step is exact again. Below the smallest normal number
    the step is constant, which `maximum` ensures. Steps are built from the exponent bits of the
    values, because `frexp` and `ldexp` are much slower. The caller checks for overflow
    (`from_float.fit`).

    Parameters:
        values: the values to round, unchanged.
        out: a buffer.
        spare: two buffers. The second is used for nearest-away only; in other modes it may be the
            same as the first.
        kind: the narrower type.
        mode: the rounding mode.

    Returns:
        the rounded values, in `out` or in the second spare buffer. No other two arrays may overlap.
    """
    step, other = spare
    bits = step.view(np.int64)
    np.bitwise_and(values.view(np.int64), EXPONENT_BITS, out=bits)
    np.maximum(bits, np.int64((kind.min_exponent + BIAS) << EXPONENT_SHIFT), out=bits)
    np.subtract(bits, np.int64((kind.precision - 1) << EXPONENT_SHIFT), out=bits)
    if (
        kind.precision == 1
    ):  # the step is as large as the value: keep its reciprocal a normal number
        np.minimum(bits, np.int64((2 * BIAS - 1) << EXPONENT_SHIFT), out=bits)
    # negating an exponent (2 * BIAS - e) gives the reciprocal of a power of two
    np.subtract(np.int64(2 * BIAS << EXPONENT_SHIFT), bits, out=out.view(np.int64))
    np.multiply(values, out, out=out)
    if mode == "nearest-away":
        nearest_away(out, other, out, values)
        out = other
    else:
        DIRECT[mode](out, out=out)
    np.multiply(out, step, out=out)
    return out
