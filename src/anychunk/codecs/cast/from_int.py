"""Block functions that cast from integers.

Spec: zarr-extensions, codecs/cast_value.

To a float type, the difficulty is to round only once. Integers of up to 53 bits are exact as
float64, from which `from_float.through_grid` rounds in any mode. Integers of 64 bits are not: a
cast to float64 would already round, to nearest. They are cast to float64 with the exact error of
the sum of two halves (`_split`), and to narrower types after rounding to odd (`_through_odd`).
"""

import numpy as np

from anychunk.codecs.cast.blockwise import GOOD, Scratch, Step, copy, first, in_parts
from anychunk.codecs.cast.from_float import OutOfRange, store, through_grid
from anychunk.codecs.cast.number_types import Block, FloatType, IntType
from anychunk.codecs.cast.rounding import Rounding

LOW_BITS = 11
"""How many bits longer a 64-bit integer is than the significand of float64."""


def int_to_int(source: IntType, target: IntType, out_of_range: OutOfRange) -> Step:
    """Return the step that checks the extremes of a block against the range, and copies."""
    low, high = max(source.low, target.low), min(source.high, target.high)
    is_checked = (low, high) != (source.low, source.high) and out_of_range != "wrap"

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        if is_checked and not (low <= int(x.min()) and int(x.max()) <= high):
            if out_of_range is None:
                return first((x < low) | (x > high))
            x = np.clip(x, low, high, out=scratch.array("clipped", x.dtype, x.size))
        np.copyto(out, x, casting="unsafe")  # modulo 2**bits, which is what "wrap" means
        if target.is_foreign:
            np.bitwise_and(out, np.uint8((1 << target.bits) - 1), out=out)
        return GOOD

    return apply


def int_to_float(
    source: IntType, target: FloatType, rounding: Rounding, out_of_range: OutOfRange
) -> Step:
    """Return the step from integers to floats."""
    extent = max(-source.low, source.high)
    is_exact = extent <= min(1 << target.precision, target.high) and target.low <= source.low
    # the processor converts integers of any size with one rounding to nearest, ties to even
    if is_exact or (rounding == "nearest-even" and target.name in {"float32", "float64"}):
        return _copy(target)
    if source.bits < 64:
        return _through_double(target, rounding, out_of_range)
    if target.precision == 53:
        return _split(rounding)
    return _through_odd(target, rounding, out_of_range)


def _copy(target: FloatType) -> Step:
    """Return the step for integers that the target represents, or numpy rounds, correctly."""
    if not target.is_foreign:
        return copy

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        single = scratch.array("integers", np.float32, x.size)
        np.copyto(single, x, casting="unsafe")
        store(single, out, target, scratch)
        return GOOD

    return apply


def _through_double(target: FloatType, rounding: Rounding, out_of_range: OutOfRange) -> Step:
    """Return the step for integers that float64 represents exactly."""
    general = through_grid(target, rounding, out_of_range)

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        double = scratch.array("double", np.float64, x.size)
        np.copyto(double, x)
        return general(double, out, scratch)

    return in_parts(apply)


def _through_odd(target: FloatType, rounding: Rounding, out_of_range: OutOfRange) -> Step:
    """Return the step that rounds 64-bit integers to odd in float64, and then to the target.

    Rounding to odd drops the low bits, and sets the last remaining bit if any of them was set. It
    preserves on which side of every midpoint a value lies, so a second rounding to a type with at
    least two bits less gives the same result as a single one, in every mode (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums", 2008).
    """
    general = through_grid(target, rounding, out_of_range)

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        kind = x.dtype.type
        cut = scratch.array("cut", x.dtype, x.size)
        low = scratch.array("low", x.dtype, x.size)
        np.bitwise_and(x, kind((1 << LOW_BITS) - 1), out=low)
        np.minimum(low, kind(1), out=low)  # 1 if any dropped bit was set
        np.left_shift(low, kind(LOW_BITS), out=low)
        np.right_shift(x, kind(LOW_BITS), out=cut)
        np.left_shift(cut, kind(LOW_BITS), out=cut)
        np.bitwise_or(cut, low, out=cut)
        # float64 represents these exactly, and dropping low bits could remove all of them
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
    """Return the step from 64-bit integers to float64, in modes other than nearest-even.

    The upper and the lower half are exact as float64. Their sum is rounded to nearest, and its
    error, which float64 represents exactly (Dekker, 1971), shows which neighbour is correct.
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
    """Return the infinity towards which each value must move by one step; NaN where it must not."""
    towards = np.full(nearest.size, np.nan)
    if rounding == "nearest-away":
        # only ties may differ from nearest-even, and only those that it rounded towards zero
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
