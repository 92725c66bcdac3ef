"""Block functions that cast from floating-point numbers.

Spec: zarr-extensions, codecs/cast_value. NaN and infinities are kept if the target has them and
have no result otherwise, whatever `out_of_range` says. `clamp` yields an infinity if the target has
one.

All functions check a block by its smallest and largest value first: almost all blocks are entirely
in range, and two reductions are much cheaper than a mask. numpy's `minimum` and `maximum` propagate
NaN and `fmin` and `fmax` ignore it, which decides what a comparison with the result means.
"""

from typing import Any, Literal, get_args

import numpy as np

from anychunk.codecs.cast.blockwise import GOOD, Scratch, Step, copy, first, in_parts, put
from anychunk.codecs.cast.number_types import FloatType, IntType
from anychunk.model.grid import Array

# Round to integers, and to the numbers of a narrower float type, in five modes.
#
# Spec: IEEE 754-2019 section 4.3; zarr-extensions, codecs/cast_value, `rounding`.
#
# Every function rounds exactly once: its other operations are exact in floating point. All of
# them
# work in caller-provided buffers; their docstrings say which of these may be the same.

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


type OutOfRange = Literal["clamp", "wrap"] | None
"""Rule for values beyond the range of the target; None: they have no result."""


def load(x: Array, dtype: np.dtype[Any], scratch: Scratch) -> Array:
    """Return the values as `dtype`, a wider type; copied only if the dtype differs."""
    if x.dtype == dtype:
        return x
    values = scratch.array("loaded", dtype, x.size)
    np.copyto(values, x)
    return values


def store(values: Array, out: Array, target: FloatType, scratch: Scratch) -> None:
    """Write values that the target can represent exactly."""
    if not target.is_foreign:
        np.copyto(out, values, casting="same_kind")
        return
    single = scratch.array("single", np.float32, values.size)
    np.copyto(single, values, casting="same_kind")
    if target.itemsize == 1:
        np.copyto(out.view(target.dtype), single, casting="unsafe")
        return
    bits = single.view(np.uint32)
    is_nan = np.not_equal(single, single)
    np.right_shift(bits, np.uint32(16), out=bits)
    np.copyto(out, bits, casting="unsafe")
    # the shift may have removed the only bits of a NaN payload, which leaves an infinity
    np.putmask(out, is_nan, np.uint16(target.nan or 0))


def fit(x: Array, rounded: Array, target: FloatType, out_of_range: OutOfRange) -> int:
    """Bring rounded values into the range of the target, in place.

    Parameters:
        x: the values before rounding, which distinguish infinities from overflow.
        rounded: the values after rounding, changed in place.
        target: the type whose range applies.
        out_of_range: the rule; "wrap" does not occur for floats.

    Returns:
        `GOOD`, or the index of the first value that has no result.
    """
    # a NaN that the target can represent must not hide the extremes; any other must fail the check
    is_nan_tolerant = target.nan is not None and target.has_infinity
    smallest = (np.fmin if is_nan_tolerant else np.minimum).reduce(rounded)
    largest = (np.fmax if is_nan_tolerant else np.maximum).reduce(rounded)
    if smallest >= target.low and largest <= target.high:
        return GOOD
    is_finite = np.isfinite(x)
    over, under = is_finite & (rounded > target.high), is_finite & (rounded < target.low)
    bad = np.zeros(x.size, bool) if out_of_range is not None else over | under
    if not target.has_infinity:
        bad |= np.isinf(x)
    if target.nan is None:
        bad |= np.isnan(x)
    index = first(bad)
    if index == GOOD:
        np.putmask(rounded, over, np.inf if target.has_infinity else target.high)
        np.putmask(rounded, under, -np.inf if target.has_infinity else target.low)
    return index


def float_to_float(
    source: FloatType, target: FloatType, rounding: Rounding, out_of_range: OutOfRange
) -> Step:
    """Return the step between two floating-point types."""
    if holds(target, source):
        return _copy(target)
    general = through_grid(target, rounding, out_of_range)
    # numpy casts between its own types with a single rounding to nearest, ties to even
    if rounding == "nearest-even" and not target.is_foreign:
        return _direct(target, general)
    return general


def holds(target: FloatType, source: FloatType) -> bool:
    """Return whether `target` represents every value of `source`, including infinities and NaN."""
    return (
        target.precision >= source.precision
        and target.spacing_exponent <= source.spacing_exponent
        and target.high >= source.high
        and target.low <= source.low
        and target.has_infinity >= source.has_infinity
        and (target.nan is not None or source.nan is None)
    )


def _copy(target: FloatType) -> Step:
    """Return the step for values that the target represents exactly."""
    if not target.is_foreign:
        return copy

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        store(x, out, target, scratch)
        return GOOD

    return apply


def _direct(target: FloatType, general: Step) -> Step:
    """Return a step that lets numpy cast blocks in range, and runs `general` on the others."""

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        smallest, largest = np.fmin.reduce(x), np.fmax.reduce(x)
        # negated, so that a block of NaN only, whose extremes are NaN, takes the general path
        if not (smallest >= target.low and largest <= target.high):
            return general(x, out, scratch)
        np.copyto(out, x, casting="same_kind")
        return GOOD

    return apply


def through_grid(target: FloatType, rounding: Rounding, out_of_range: OutOfRange) -> Step:
    """Return the step that rounds float64 to the numbers of any narrower type, in any mode."""
    # only nearest-away needs a third buffer
    names = ("rounded", "step", "other" if rounding == "nearest-away" else "step")

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        values = load(x, np.dtype(np.float64), scratch)
        rounded, step, other = (scratch.array(name, np.float64, x.size) for name in names)
        rounded = to_grid(values, rounded, (step, other), target, rounding)
        bad = fit(values, rounded, target, out_of_range)
        if bad == GOOD:
            store(rounded, out, target, scratch)
        return bad

    return in_parts(apply, width=16 if rounding == "nearest-away" else 8)


def float_to_int(
    source: FloatType,
    target: IntType,
    rounding: Rounding,
    out_of_range: OutOfRange,
    *,
    nan: Array | None = None,
) -> Step:
    """Return the step that rounds to integers, checks the extremes of the block, and stores.

    Parameters:
        source: the type of the input.
        target: the type of the result.
        rounding: the mode for fractions.
        out_of_range: the rule for values beyond the range of the target.
        nan: what NaN becomes, as a stored value; None: NaN has no result.
    """
    # float32 has 24 bits: it represents every 16-bit integer, and the bounds, exactly
    is_short = source.precision <= 24 and target.bits <= 16
    work: np.dtype[Any] = np.dtype(np.float32 if is_short else np.float64)
    low, high = float(target.low), _largest(target, work)

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        values = load(x, work, scratch)
        rounded = scratch.array("rounded", work, x.size)
        spare = scratch.array("spare", work, x.size) if rounding == "nearest-away" else rounded
        to_integer(rounding, values, rounded, spare)
        missing = None
        if nan is None:
            least, most = np.minimum.reduce(rounded), np.maximum.reduce(rounded)
        else:
            least, most = np.fmin.reduce(rounded), np.fmax.reduce(rounded)
            if np.isnan(least):  # fmin ignores NaN, so all values are NaN
                out[...] = nan
                return GOOD
            missing = np.not_equal(rounded, rounded, out=scratch.array("missing", bool, x.size))
        # without a value for NaN, a NaN makes the extremes NaN and this comparison false
        if least >= low and most <= high:
            _store(rounded, out, target)
        else:
            rules: Any = {"bounds": (low, high), "out_of_range": out_of_range}
            bad = _settle(rounded, out, target, missing=missing, **rules)
            if bad != GOOD:
                return bad
        if nan is not None and missing is not None:
            put(out, missing, nan, scratch)
        return GOOD

    return apply if is_short else in_parts(apply)


def _settle(
    rounded: Array,
    out: Array,
    target: IntType,
    *,
    bounds: tuple[float, float],
    out_of_range: OutOfRange,
    missing: Array | None,
) -> int:
    """Store integers that are not all in range; return the index of the first without a result."""
    over = rounded > bounds[1]
    has_result = ~over & (rounded >= bounds[0]) if out_of_range is None else np.isfinite(rounded)
    if missing is not None:
        has_result |= missing
    if not has_result.all():
        return first(~has_result)
    if out_of_range == "wrap":
        _wrap(rounded, out, target)
        return GOOD
    np.clip(rounded, *bounds, out=rounded)
    _store(rounded, out, target)
    # 2**63 - 1 is not a float, so clip cannot produce it
    np.putmask(out, over, out.dtype.type(target.high))
    return GOOD


def _largest(target: IntType, work: np.dtype[Any]) -> float:
    """Return the largest float that does not exceed the largest integer."""
    largest = work.type(target.high)
    if int(largest) > target.high:
        largest = np.nextafter(largest, work.type(0))
    return float(largest)


def _store(rounded: Array, out: Array, target: IntType) -> None:
    """Write integers in range; those of 2 and 4 bits keep their unused high bits zero."""
    if target.is_foreign:
        signed = out.view(np.int8)
        np.copyto(signed, rounded, casting="unsafe")
        np.bitwise_and(out, np.uint8((1 << target.bits) - 1), out=out)
    else:
        np.copyto(out, rounded, casting="unsafe")


def _wrap(rounded: Array, out: Array, target: IntType) -> None:
    """Store modulo 2**bits; `fmod` is exact for floats of any size."""
    np.fmod(rounded, rounded.dtype.type(2.0**target.bits), out=rounded)
    if target.bits < 64:
        _store(rounded.astype(np.int64), out, target)
        return
    # casting a negative float to an unsigned integer is undefined in C, so the sign comes last
    magnitude = np.abs(rounded).astype(np.uint64)
    np.negative(magnitude, out=magnitude, where=rounded < 0)
    out.view(np.uint64)[:] = magnitude
