"""Block functions that cast from floating point numbers.

Spec: zarr-extensions, codecs/cast_value. NaN and infinities survive where the target has them and
are errors elsewhere, whatever `out_of_range` says. `clamp` gives an infinity where there is one.
"""

from typing import Any, Literal

import numpy as np

from anychunk.codecs.cast.blocks import GOOD, Scratch, Step, copy, first, in_parts, put
from anychunk.codecs.cast.number_types import Block, FloatType, IntType
from anychunk.codecs.cast.rounding import Rounding, to_grid, to_integer

type OutOfRange = Literal["clamp", "wrap"] | None


def load(x: Block, dtype: np.dtype[Any], scratch: Scratch) -> Block:
    """Give floats in a type that holds them all; a copy only where the type is another."""
    if x.dtype == dtype:
        return x
    values = scratch.array("loaded", dtype, x.size)
    np.copyto(values, x)
    return values


def store(values: Block, out: Block, target: FloatType, scratch: Scratch) -> None:
    """Write floats that the target holds exactly."""
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
    # a payload may have been in the lower half alone
    np.putmask(out, is_nan, np.uint16(target.nan or 0))


def fit(x: Block, rounded: Block, target: FloatType, out_of_range: OutOfRange) -> int:
    """Bring rounded values into the target's range, in place; give the first that cannot be."""
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
    if holds(target, source):
        return _copy(target)
    general = through_grid(target, rounding, out_of_range)
    # numpy casts between its own types with one rounding to nearest, ties to even
    if rounding == "nearest-even" and not target.is_foreign:
        return _direct(target, general)
    return general


def holds(target: FloatType, source: FloatType) -> bool:
    """Whether every number of `source`, with its infinities and NaN, is one of `target`."""
    return (
        target.precision >= source.precision
        and target.spacing_exponent <= source.spacing_exponent
        and target.high >= source.high
        and target.low <= source.low
        and target.has_infinity >= source.has_infinity
        and (target.nan is not None or source.nan is None)
    )


def _copy(target: FloatType) -> Step:
    if not target.is_foreign:
        return copy

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        store(x, out, target, scratch)
        return GOOD

    return apply


def _direct(target: FloatType, general: Step) -> Step:
    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        smallest, largest = np.fmin.reduce(x), np.fmax.reduce(x)
        if not (smallest >= target.low and largest <= target.high):
            return general(x, out, scratch)
        np.copyto(out, x, casting="same_kind")
        return GOOD

    return apply


def through_grid(target: FloatType, rounding: Rounding, out_of_range: OutOfRange) -> Step:
    # only rounding away from zero needs a third array
    names = ("rounded", "step", "other" if rounding == "nearest-away" else "step")

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
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
    nan: Block | None = None,
) -> Step:
    """Round, check the extremes of the block, and copy; NaN becomes `nan` where that is given."""
    # float32 has 24 bits: integers of 16 are exact, and their bounds too
    is_short = source.precision <= 24 and target.bits <= 16
    work: np.dtype[Any] = np.dtype(np.float32 if is_short else np.float64)
    low, high = float(target.low), _largest(target, work)

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        values = load(x, work, scratch)
        rounded = scratch.array("rounded", work, x.size)
        spare = scratch.array("spare", work, x.size) if rounding == "nearest-away" else rounded
        to_integer(rounding, values, rounded, spare)
        missing = None
        if nan is None:
            least, most = np.minimum.reduce(rounded), np.maximum.reduce(rounded)
        else:
            least, most = np.fmin.reduce(rounded), np.fmax.reduce(rounded)
            if np.isnan(least):  # nothing but NaN
                out[...] = nan
                return GOOD
            missing = np.not_equal(rounded, rounded, out=scratch.array("missing", bool, x.size))
        # every comparison with NaN is false
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
    rounded: Block,
    out: Block,
    target: IntType,
    *,
    bounds: tuple[float, float],
    out_of_range: OutOfRange,
    missing: Block | None,
) -> int:
    """Store integers that are not all inside the bounds, or give the first without a result."""
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
    np.putmask(out, over, out.dtype.type(target.high))  # of 64 bits it is no float
    return GOOD


def _largest(target: IntType, work: np.dtype[Any]) -> float:
    """Give the largest float that is not above the largest integer."""
    largest = work.type(target.high)
    if int(largest) > target.high:
        largest = np.nextafter(largest, work.type(0))
    return float(largest)


def _store(rounded: Block, out: Block, target: IntType) -> None:
    if target.is_foreign:
        signed = out.view(np.int8)
        np.copyto(signed, rounded, casting="unsafe")
        np.bitwise_and(out, np.uint8((1 << target.bits) - 1), out=out)
    else:
        np.copyto(out, rounded, casting="unsafe")


def _wrap(rounded: Block, out: Block, target: IntType) -> None:
    """Reduce modulo 2**bits; the remainder of floats is exact at any size."""
    np.fmod(rounded, rounded.dtype.type(2.0**target.bits), out=rounded)
    if target.bits < 64:
        _store(rounded.astype(np.int64), out, target)
        return
    magnitude = np.abs(rounded).astype(np.uint64)
    np.negative(magnitude, out=magnitude, where=rounded < 0)
    out.view(np.uint64)[:] = magnitude
