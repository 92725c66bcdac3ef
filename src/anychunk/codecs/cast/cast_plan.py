"""Plan the cast from any real number type to any other, by value and rounded once.

Spec: zarr-extensions, codecs/cast_value, "Procedure": a value is mapped explicitly, or is exact in
the target, or is rounded and then brought into range by a rule; otherwise it has no result.

`plan` runs once for a pair of types and a set of rules, and returns one block function
(`blockwise.Step`). Checks that cannot fail for the pair of types are left out of it. How a type is
read depends on how it is stored:

- numpy's own types: directly, by `from_float` or `from_int`;
- types of `ml_dtypes` of one byte: a table of 256 results, made by casting every code once;
- bfloat16: widened to float32 by a shift, which is exact.
"""

import numpy as np

from anychunk.codecs.cast import from_float
from anychunk.codecs.cast.blockwise import GOOD, Scratch, Step, copy, first, in_parts, put
from anychunk.codecs.cast.from_float import OutOfRange, Rounding, store, through_grid
from anychunk.codecs.cast.number_types import (
    BY_NAME,
    FloatType,
    IntType,
    NumberType,
    code_values,
    has_unused_bits,
    used_bits,
)
from anychunk.codecs.cast.scalar_map import Entry
from anychunk.model.grid import Array

# Array functions that cast from integers.
#
# Spec: zarr-extensions, codecs/cast_value.
#
# To a float type, the difficulty is to round only once. Integers of up to 53 bits are exact as
# float64, from which `from_float.through_grid` rounds in any mode. Integers of 64 bits are not: a
# cast to float64 would already round, to nearest. They are cast to float64 with the exact error of
# the sum of two halves (`_split`), and to narrower types after rounding to odd (`_through_odd`).


LOW_BITS = 11
"""How many bits longer a 64-bit integer is than the significand of float64."""


def int_to_int(source: IntType, target: IntType, out_of_range: OutOfRange) -> Step:
    """Return the step that checks the extremes of a block against the range, and copies."""
    low, high = max(source.low, target.low), min(source.high, target.high)
    is_checked = (low, high) != (source.low, source.high) and out_of_range != "wrap"

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
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

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        single = scratch.array("integers", np.float32, x.size)
        np.copyto(single, x, casting="unsafe")
        store(single, out, target, scratch)
        return GOOD

    return apply


def _through_double(target: FloatType, rounding: Rounding, out_of_range: OutOfRange) -> Step:
    """Return the step for integers that float64 represents exactly."""
    general = through_grid(target, rounding, out_of_range)

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
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

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
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

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        kind = x.dtype.type
        high = (x >> kind(32)).astype(np.float64) * 2.0**32
        low = (x & kind(0xFFFFFFFF)).astype(np.float64)
        np.add(high, low, out=out)
        error = low - (out - high)
        towards = _direction(out, error, rounding)
        np.copyto(out, np.nextafter(out, towards), where=~np.isnan(towards))
        return GOOD

    return in_parts(apply, width=32)


def _direction(nearest: Array, error: Array, rounding: Rounding) -> Array:
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


SAFE = 1
"""A number that every type can represent."""
MANY = 8
"""Up to this many keys of a scalar map are compared one by one; more are bisected."""


def plan(
    source: NumberType,
    target: NumberType,
    *,
    rounding: Rounding = "nearest-even",
    out_of_range: OutOfRange = None,
    entries: tuple[Entry, ...] = (),
) -> Step:
    """Return the block function that casts from `source` to `target`.

    Parameters:
        source: the type of the input.
        target: the type of the result.
        rounding: the mode for values between two numbers of the target.
        out_of_range: the rule for values beyond the range of the target; None: they have no result.
        entries: the scalar map, which takes precedence over all rules.
    """
    if source == target and not entries and not has_unused_bits(source):
        return copy
    if source.is_foreign and source.stored.itemsize == 1:
        wide = BY_NAME[code_values(source).dtype.name]
        step = _by_kind(wide, target, rounding, out_of_range)
        return _tabulated(step, source, target, entries)
    if source.is_foreign:
        # bfloat16 is the upper half of float32, so the keys of the map are widened as well
        widened = tuple(Entry(_widen(e.key), e.value, e.match) for e in entries)
        return after_widening(_with_map(source, target, rounding, out_of_range, widened))
    return _with_map(source, target, rounding, out_of_range, entries)


def _with_map(
    source: NumberType,
    target: NumberType,
    rounding: Rounding,
    out_of_range: OutOfRange,
    entries: tuple[Entry, ...],
) -> Step:
    if not entries:
        return _by_kind(source, target, rounding, out_of_range)
    is_nan_alone = [entry.match for entry in entries] == ["nan"]
    if is_nan_alone and isinstance(source, FloatType) and isinstance(target, IntType):
        # the common case, nodata as NaN: the cast notices NaN anyway, without a pass for the mask
        value = entries[0].value
        return from_float.float_to_int(source, target, rounding, out_of_range, nan=value)
    step = _by_kind(source, target, rounding, out_of_range)
    return _mapped(step, entries, is_total=is_total(source, target))


def is_total(source: NumberType, target: NumberType) -> bool:
    """Return whether a cast without rules has a result for every value."""
    if isinstance(source, FloatType):
        return isinstance(target, FloatType) and from_float.holds(target, source)
    if isinstance(target, FloatType):
        extent = max(-source.low, source.high)
        return target.low <= source.low and extent <= target.high
    return target.low <= source.low and source.high <= target.high


def _by_kind(
    source: NumberType, target: NumberType, rounding: Rounding, out_of_range: OutOfRange
) -> Step:
    if isinstance(source, IntType):
        if isinstance(target, IntType):
            return int_to_int(source, target, out_of_range)
        return int_to_float(source, target, rounding, out_of_range)
    if isinstance(target, IntType):
        return from_float.float_to_int(source, target, rounding, out_of_range)
    return from_float.float_to_float(source, target, rounding, out_of_range)


def _mapped(step: Step, entries: tuple[Entry, ...], *, is_total: bool) -> Step:
    """Return a step that applies a scalar map around `step`.

    Keys often have no result themselves (NaN to an integer), so `step` gets a copy of the block
    with harmless numbers in their place, unless it has a result for every value (`is_total`).
    """
    by_value = tuple(entry for entry in entries if entry.match == "value")
    if len(by_value) > MANY:
        others = tuple(entry for entry in entries if entry.match != "value")
        inner = _mapped(step, others, is_total=is_total) if others else step
        return _searched(inner, by_value, is_total=is_total)

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        hits = entries[0].mask(x, scratch.array("hits", bool, x.size))
        for entry in entries[1:]:
            hits |= entry.mask(x, scratch.array("more hits", bool, x.size))
        rest = x if is_total or not hits.any() else _without(x, hits, scratch)
        bad = step(rest, out, scratch)
        if bad == GOOD:
            for entry in reversed(entries):  # the first of equal keys wins, so it writes last
                mask = hits if len(entries) == 1 else entry.mask(x, hits)
                put(out, mask, entry.value, scratch)
        return bad

    return apply


def _searched(step: Step, entries: tuple[Entry, ...], *, is_total: bool) -> Step:
    """Return the same step as `_mapped` for many keys, by bisection instead of one pass per key."""
    keys = np.array([entry.key for entry in entries])
    order = np.argsort(keys)
    keys, values = keys[order], np.array([entry.value for entry in entries])[order]

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        places = np.minimum(np.searchsorted(keys, x), keys.size - 1)
        hits = keys[places] == x
        rest = x if is_total or not hits.any() else _without(x, hits, scratch)
        bad = step(rest, out, scratch)
        if bad == GOOD:
            out[hits] = values[places[hits]]
        return bad

    return apply


def _without(x: Array, hits: Array, scratch: Scratch) -> Array:
    """Return a copy of a block with `SAFE` in place of the keys."""
    rest = scratch.array("rest", x.dtype, x.size)
    np.copyto(rest, x)
    put(rest, hits, np.array(SAFE, x.dtype), scratch)
    return rest


def _widen(stored: Array) -> Array:
    """Return bfloat16 bits as float32: they are its upper half."""
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def after_widening(step: Step) -> Step:
    """Return a step on bfloat16 bits from a step on float32."""

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        wide = scratch.array("wide", np.uint32, x.size)
        np.left_shift(x, np.uint32(16), out=wide, dtype=np.uint32)
        return step(wide.view(np.float32), out, scratch)

    return apply


def _tabulated(
    step: Step, source: NumberType, target: NumberType, entries: tuple[Entry, ...]
) -> Step:
    """Return a step that casts a one-byte type by table lookup; `step` casts its widened values."""
    values = code_values(source)
    table, is_bad = tabulate(step, values, target)
    codes = np.arange(256, dtype=np.uint8) & used_bits(source)
    for entry in reversed(entries):
        mask = _code_mask(entry, codes, values)
        table[mask] = entry.value
        is_bad[mask] = False
    return look_up(table, is_bad)


def _code_mask(entry: Entry, codes: Array, values: Array) -> Array:
    """Return which of the 256 codes have the key of an entry."""
    if entry.match == "nan":
        return np.isnan(values)
    same: Array = codes == entry.key if entry.match == "bits" else values == values[entry.key]
    return same


def tabulate(step: Step, values: Array, target: NumberType) -> tuple[Array, Array]:
    """Run a step on every value; return the results, and which values have none.

    A step reports only its first bad value and leaves the rest of the block undefined, so blocks
    with bad values are halved until each bad value is isolated. Values are sorted by their bits
    first: bad ones, which are often those beyond a bound, are then next to each other, and codes
    that differ only in unused bits are one value.
    """
    bits, places = np.unique(values.view(np.uint64), return_inverse=True)
    once = bits.view(values.dtype)
    table = np.zeros(once.size, target.stored)
    is_bad = np.zeros(once.size, bool)
    scratch = Scratch()

    def fill(start: int, stop: int) -> None:
        if step(once[start:stop], table[start:stop], scratch) == GOOD:
            return
        if stop - start == 1:
            is_bad[start] = True
            return
        middle = (start + stop) // 2
        fill(start, middle)
        fill(middle, stop)

    with np.errstate(all="ignore"):
        fill(0, once.size)
    return table[places], is_bad[places]


def look_up(table: Array, is_bad: Array) -> Step:
    """Return the step that maps each byte through a table of 256 results."""
    has_bad = bool(is_bad.any())

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        if has_bad:
            bad = is_bad[x]
            index = int(bad.argmax())
            if bad[index]:
                return index
        # a byte cannot be out of range, and the default mode "raise" would buffer the output
        np.take(table, x, out=out, mode="clip")
        return GOOD

    return apply
