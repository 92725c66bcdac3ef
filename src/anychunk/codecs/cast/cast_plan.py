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

from anychunk.codecs.cast import from_float, from_int
from anychunk.codecs.cast.blockwise import GOOD, Scratch, Step, copy, put
from anychunk.codecs.cast.from_float import OutOfRange
from anychunk.codecs.cast.number_types import (
    BY_NAME,
    Block,
    FloatType,
    IntType,
    NumberType,
    code_values,
    has_unused_bits,
    used_bits,
)
from anychunk.codecs.cast.rounding import Rounding
from anychunk.codecs.cast.scalar_map import Entry

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
            return from_int.int_to_int(source, target, out_of_range)
        return from_int.int_to_float(source, target, rounding, out_of_range)
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

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
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

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        places = np.minimum(np.searchsorted(keys, x), keys.size - 1)
        hits = keys[places] == x
        rest = x if is_total or not hits.any() else _without(x, hits, scratch)
        bad = step(rest, out, scratch)
        if bad == GOOD:
            out[hits] = values[places[hits]]
        return bad

    return apply


def _without(x: Block, hits: Block, scratch: Scratch) -> Block:
    """Return a copy of a block with `SAFE` in place of the keys."""
    rest = scratch.array("rest", x.dtype, x.size)
    np.copyto(rest, x)
    put(rest, hits, np.array(SAFE, x.dtype), scratch)
    return rest


def _widen(stored: Block) -> Block:
    """Return bfloat16 bits as float32: they are its upper half."""
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def after_widening(step: Step) -> Step:
    """Return a step on bfloat16 bits from a step on float32."""

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
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


def _code_mask(entry: Entry, codes: Block, values: Block) -> Block:
    """Return which of the 256 codes have the key of an entry."""
    if entry.match == "nan":
        return np.isnan(values)
    same: Block = codes == entry.key if entry.match == "bits" else values == values[entry.key]
    return same


def tabulate(step: Step, values: Block, target: NumberType) -> tuple[Block, Block]:
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


def look_up(table: Block, is_bad: Block) -> Step:
    """Return the step that maps each byte through a table of 256 results."""
    has_bad = bool(is_bad.any())

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        if has_bad:
            bad = is_bad[x]
            index = int(bad.argmax())
            if bad[index]:
                return index
        # a byte cannot be out of range, and the default mode "raise" would buffer the output
        np.take(table, x, out=out, mode="clip")
        return GOOD

    return apply
