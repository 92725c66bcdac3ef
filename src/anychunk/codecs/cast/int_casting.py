"""Block functions that cast from integers.

Spec: zarr-extensions, codecs/cast_value.
"""

from typing import Literal

import numpy as np

from anychunk.codecs.cast.blocks import GOOD, Scratch, Step, copy, first, in_parts
from anychunk.codecs.cast.float_casting import store, through_grid
from anychunk.codecs.cast.number_types import Block, FloatType, IntType
from anychunk.codecs.cast.rounding import Rounding

type OutOfRange = Literal["clamp", "wrap"] | None

LOW_BITS = 11
"""Bits by which a 64-bit integer is longer than the significand of float64."""


def int_to_int(source: IntType, target: IntType, out_of_range: OutOfRange) -> Step:
    """Check the range by the extremes of a block, then copy."""
    low, high = max(source.low, target.low), min(source.high, target.high)
    is_checked = (low, high) != (source.low, source.high) and out_of_range != "wrap"

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        if is_checked and not (low <= int(x.min()) and int(x.max()) <= high):
            if out_of_range is None:
                return first((x < low) | (x > high))
            x = np.clip(x, low, high, out=scratch.array("clipped", x.dtype, x.size))
        np.copyto(out, x, casting="unsafe")  # modulo 2**bits: what "wrap" asks for
        if target.is_foreign:
            np.bitwise_and(out, np.uint8((1 << target.bits) - 1), out=out)
        return GOOD

    return apply


def int_to_float(
    source: IntType, target: FloatType, rounding: Rounding, out_of_range: OutOfRange
) -> Step:
    extent = max(-source.low, source.high)
    is_exact = extent <= min(1 << target.precision, target.high) and target.low <= source.low
    # the processor rounds to nearest, ties to even, from integers of any size
    if is_exact or (rounding == "nearest-even" and target.name in {"float32", "float64"}):
        return _copy(target)
    if source.bits < 64:
        return _through_double(target, rounding, out_of_range)
    if target.precision == 53:
        return _split(rounding)
    return _through_odd(target, rounding, out_of_range)


def _copy(target: FloatType) -> Step:
    if not target.is_foreign:
        return copy

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        single = scratch.array("integers", np.float32, x.size)
        np.copyto(single, x, casting="unsafe")
        store(single, out, target, scratch)
        return GOOD

    return apply


def _through_double(target: FloatType, rounding: Rounding, out_of_range: OutOfRange) -> Step:
    general = through_grid(target, rounding, out_of_range)

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        double = scratch.array("double", np.float64, x.size)
        np.copyto(double, x)
        return general(double, out, scratch)

    return in_parts(apply)


def _through_odd(target: FloatType, rounding: Rounding, out_of_range: OutOfRange) -> Step:
    """Cut 64-bit integers to what float64 holds, the last bit kept set when anything was cut.

    With two bits more than the target has, no later rounding can tell the difference (rounding to
    odd; Boldo and Melquiond, 2008).
    """
    general = through_grid(target, rounding, out_of_range)

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        kind = x.dtype.type
        cut = scratch.array("cut", x.dtype, x.size)
        low = scratch.array("low", x.dtype, x.size)
        np.bitwise_and(x, kind((1 << LOW_BITS) - 1), out=low)
        np.minimum(low, kind(1), out=low)
        np.left_shift(low, kind(LOW_BITS), out=low)
        np.right_shift(x, kind(LOW_BITS), out=cut)
        np.left_shift(cut, kind(LOW_BITS), out=cut)
        np.bitwise_or(cut, low, out=cut)
        # integers that float64 holds stay as they are: they may be smaller than the bits cut
        limit = kind(1 << 53)
        is_short = np.less_equal(x, limit)
        if np.issubdtype(x.dtype, np.signedinteger):
            is_short &= np.greater_equal(x, -limit)
        np.copyto(cut, x, where=is_short)
        double = scratch.array("double", np.float64, x.size)
        np.copyto(double, cut, casting="unsafe")
        return general(double, out, scratch)

    return in_parts(apply, width=16)


def _split(rounding: Rounding) -> Step:
    """Cast 64-bit integers to float64 otherwise than to nearest, ties to even.

    Upper and lower half are exact doubles; the error of their sum is exact as well (Dekker 1971),
    and says which neighbour is wanted.
    """

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        kind = x.dtype.type
        high = (x >> kind(32)).astype(np.float64) * 2.0**32
        low = (x & kind(0xFFFFFFFF)).astype(np.float64)
        np.add(high, low, out=out)
        error = low - (out - high)
        towards = _direction(out, error, rounding)
        np.copyto(out, np.nextafter(out, towards), where=~np.isnan(towards))
        return GOOD

    return in_parts(apply, width=32)


def _direction(nearest: Block, error: Block, rounding: Rounding) -> Block:
    """Say towards which infinity the nearest double must move, or NaN where it is right."""
    towards = np.full(nearest.size, np.nan)
    if rounding == "nearest-away":
        is_tie = 2 * np.abs(error) == np.spacing(np.abs(nearest))
        moves = is_tie & (np.sign(error) == np.sign(nearest))
        np.copyto(towards, np.sign(nearest) * np.inf, where=moves)
        return towards
    up, down = error > 0, error < 0
    if rounding == "towards-zero":
        up, down = up & (nearest < 0), down & (nearest > 0)
    if rounding != "towards-negative":
        towards[up] = np.inf
    if rounding != "towards-positive":
        towards[down] = -np.inf
    return towards
