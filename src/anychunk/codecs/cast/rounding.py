"""Five ways to round, each applied once: to integers, and to the numbers of a narrower float.

Spec: IEEE 754-2019 section 4.3; zarr-extensions, codecs/cast_value, `rounding`.
"""

from typing import Literal, get_args

import numpy as np

from anychunk.codecs.cast.number_types import Block, FloatType

type Rounding = Literal[
    "nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away"
]
MODES: tuple[str, ...] = get_args(Rounding.__value__)

EXPONENT_BITS = np.int64(0x7FF0000000000000)
BIAS, EXPONENT_SHIFT = 1023, 52
DIRECT = {
    "nearest-even": np.rint,
    "towards-zero": np.trunc,
    "towards-positive": np.ceil,
    "towards-negative": np.floor,
}


def nearest_away(values: Block, out: Block, spare: Block, like: Block) -> None:
    """Round to the nearest integer, ties away from zero; exact, unlike `floor(x + 0.5)`.

    `spare` may be `values`, which is lost then. `like` has the sign and the infinities of `values`.
    """
    np.trunc(values, out=out)
    np.subtract(values, out, out=spare)  # the fraction, exactly
    np.add(spare, spare, out=spare)
    np.trunc(spare, out=spare)  # 1 or -1 from a half on
    np.add(out, spare, out=out)
    np.copysign(out, like, out=out)
    if not np.isfinite(np.add.reduce(spare)):  # infinity minus infinity is no fraction
        np.copyto(out, like, where=~np.isfinite(like))


def to_integer(mode: Rounding, values: Block, out: Block, spare: Block) -> None:
    """Round to integers, as floats. Only nearest-away uses `spare`, and for it `out` is another."""
    if mode == "nearest-away":
        nearest_away(values, out, spare, values)
    else:
        DIRECT[mode](values, out=out)


def to_grid(
    values: Block, out: Block, spare: tuple[Block, Block], kind: FloatType, mode: Rounding
) -> Block:
    """Round float64 values to numbers of `kind`, its exponent taken as unbounded above.

    Each value is an integer number of steps of its binade; scaling by a power of two is exact, so
    the one rounding is that to an integer. No array may be another; the result is one of them.
    """
    step, other = spare
    bits = step.view(np.int64)
    np.bitwise_and(values.view(np.int64), EXPONENT_BITS, out=bits)
    np.maximum(bits, np.int64((kind.min_exponent + BIAS) << EXPONENT_SHIFT), out=bits)
    np.subtract(bits, np.int64((kind.precision - 1) << EXPONENT_SHIFT), out=bits)
    if kind.precision == 1:  # one over the step must stay a normal number
        np.minimum(bits, np.int64((2 * BIAS - 1) << EXPONENT_SHIFT), out=bits)
    np.subtract(np.int64(2 * BIAS << EXPONENT_SHIFT), bits, out=out.view(np.int64))
    np.multiply(values, out, out=out)
    if mode == "nearest-away":
        nearest_away(out, other, out, values)
        out = other
    else:
        DIRECT[mode](out, out=out)
    np.multiply(out, step, out=out)
    return out
