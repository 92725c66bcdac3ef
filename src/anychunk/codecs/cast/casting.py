"""Conversion of numbers by value from any real type to any other, rounded once.

Spec: zarr-extensions, codecs/cast_value, "Procedure": a value is mapped explicitly, or is exact in
the target, or is rounded and then brought into range by a rule; else it has no result.

A cast is planned once for its types and rules, as a chain of block functions (`blocks.Step`) with
buffers that are reused; what cannot happen for a pair of types is not checked.
"""

from typing import Literal

import numpy as np

from anychunk.codecs.cast import float_casting, int_casting
from anychunk.codecs.cast.blocks import GOOD, Scratch, Step, copy, put
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

type OutOfRange = Literal["clamp", "wrap"] | None

SAFE = 1
"""A number that every type holds."""
MANY = 8
"""More keys than this are searched for, not compared with one by one."""


def plan(
    source: NumberType,
    target: NumberType,
    *,
    rounding: Rounding = "nearest-even",
    out_of_range: OutOfRange = None,
    entries: tuple[Entry, ...] = (),
) -> Step:
    """Give the block function that casts stored values of `source` to stored values of `target`."""
    if source == target and not entries and not has_unused_bits(source):
        return copy
    if source.is_foreign and source.stored.itemsize == 1:
        return _tabulated(source, target, rounding, out_of_range, entries)
    if source.is_foreign:
        # bfloat16 is the upper half of float32, bit for bit
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
        # the common case: the cast notices NaN anyway
        value = entries[0].value
        return float_casting.float_to_int(source, target, rounding, out_of_range, nan=value)
    step = _by_kind(source, target, rounding, out_of_range)
    return _mapped(step, entries, is_total=is_total(source, target))


def is_total(source: NumberType, target: NumberType) -> bool:
    """Whether a plain cast gives every value a result."""
    if isinstance(source, FloatType):
        return isinstance(target, FloatType) and float_casting.holds(target, source)
    if isinstance(target, FloatType):
        extent = max(-source.low, source.high)
        return target.low <= source.low and extent <= target.high
    return target.low <= source.low and source.high <= target.high


def _by_kind(
    source: NumberType, target: NumberType, rounding: Rounding, out_of_range: OutOfRange
) -> Step:
    if isinstance(source, IntType):
        if isinstance(target, IntType):
            return int_casting.int_to_int(source, target, out_of_range)
        return int_casting.int_to_float(source, target, rounding, out_of_range)
    if isinstance(target, IntType):
        return float_casting.float_to_int(source, target, rounding, out_of_range)
    return float_casting.float_to_float(source, target, rounding, out_of_range)


def _mapped(step: Step, entries: tuple[Entry, ...], *, is_total: bool) -> Step:
    """Put the values of a scalar map around a step, which need not know their keys."""
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
            for entry in reversed(entries):  # the first entry writes last
                mask = hits if len(entries) == 1 else entry.mask(x, hits)
                put(out, mask, entry.value, scratch)
        return bad

    return apply


def _searched(step: Step, entries: tuple[Entry, ...], *, is_total: bool) -> Step:
    """Do the same for many keys, by bisection: the time of one pass a key would add up."""
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
    rest = scratch.array("rest", x.dtype, x.size)
    np.copyto(rest, x)
    put(rest, hits, np.array(SAFE, x.dtype), scratch)
    return rest


def _widen(stored: Block) -> Block:
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def after_widening(step: Step) -> Step:
    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        wide = scratch.array("wide", np.uint32, x.size)
        np.left_shift(x, np.uint32(16), out=wide, dtype=np.uint32)
        return step(wide.view(np.float32), out, scratch)

    return apply


def _tabulated(
    source: NumberType,
    target: NumberType,
    rounding: Rounding,
    out_of_range: OutOfRange,
    entries: tuple[Entry, ...],
) -> Step:
    """Cast a type of 256 codes or fewer by looking them up."""
    values = code_values(source)
    wide = BY_NAME[values.dtype.name]
    step = _by_kind(wide, target, rounding, out_of_range)
    table, is_bad = tabulate(step, values, target)
    codes = np.arange(256, dtype=np.uint8) & used_bits(source)
    for entry in reversed(entries):
        mask = _code_mask(entry, codes, values)
        table[mask] = entry.value
        is_bad[mask] = False
    return look_up(table, is_bad)


def _code_mask(entry: Entry, codes: Block, values: Block) -> Block:
    if entry.match == "nan":
        return np.isnan(values)
    same: Block = codes == entry.key if entry.match == "bits" else values == values[entry.key]
    return same


def tabulate(step: Step, values: Block, target: NumberType) -> tuple[Block, Block]:
    """Run a step on every value; give the results and which values have none."""
    table = np.zeros(values.size, target.stored)
    is_bad = np.zeros(values.size, bool)
    scratch = Scratch()

    def fill(start: int, stop: int) -> None:
        if step(values[start:stop], table[start:stop], scratch) == GOOD:
            return
        if stop - start == 1:
            is_bad[start] = True
            return
        middle = (start + stop) // 2
        fill(start, middle)
        fill(middle, stop)

    with np.errstate(all="ignore"):
        fill(0, values.size)
    return table, is_bad


def look_up(table: Block, is_bad: Block) -> Step:
    has_bad = bool(is_bad.any())

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        if has_bad:
            bad = is_bad[x]
            index = int(bad.argmax())
            if bad[index]:
                return index
        np.take(table, x, out=out, mode="clip")  # a byte is always inside; "raise" would buffer
        return GOOD

    return apply
