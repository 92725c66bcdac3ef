"""Block functions of `(x - offset) * scale` and its inverse `x / scale + offset`.

Spec: zarr-extensions, codecs/scale_offset. Everything is computed in the data type of the array. A
value whose result would wrap or overflow to infinity has no result, and neither has an integer that
is not divisible by `scale`.

Integers: the inputs whose intermediate values and results fit are an interval, with bounds that are
computed exactly in advance (Python integers). So nothing wraps inside it, and no wider type is
needed.
Floats: each operation is rounded to the type, as numpy does.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from anychunk.codecs.cast.blockwise import GOOD, Scratch, Step, first, in_parts
from anychunk.codecs.cast.cast_plan import after_widening, look_up, tabulate
from anychunk.codecs.cast.from_float import fit, load, store
from anychunk.codecs.cast.number_types import (
    BY_NAME,
    DOUBLE,
    Block,
    FloatType,
    IntType,
    NumberType,
    code_values,
)
from anychunk.codecs.cast.rounding import to_grid
from anychunk.codecs.cast.scalar_map import as_number

type Operations = tuple[tuple[np.ufunc, Any], tuple[np.ufunc, Any]]
"""Two operations, each with its second operand."""


def encode_plan(kind: NumberType, offset: Block, scale: Block) -> Step:
    """Return the block function of `(x - offset) * scale`; both scalars are stored as `kind`."""
    if isinstance(kind, IntType):
        return _integers(kind, offset, scale, _encode_integers)
    return _floats(kind, (np.subtract, offset), (np.multiply, scale))


def decode_plan(kind: NumberType, offset: Block, scale: Block) -> Step:
    """Return the block function of `x / scale + offset`; both scalars are stored as `kind`."""
    if isinstance(kind, IntType):
        return _integers(kind, offset, scale, _decode_integers)
    return _floats(kind, (np.divide, scale), (np.add, offset))


def _integers(
    kind: IntType, offset: Block, scale: Block, make: Callable[[IntType, int, int], Step]
) -> Step:
    inner = make(kind, int(as_number(offset, kind)), int(as_number(scale, kind)))
    if not kind.is_foreign:
        return inner
    # types of 2 and 4 bits: the arithmetic of int64 with their bounds, once for each of 256 codes
    results, is_bad = tabulate(inner, code_values(kind), BY_NAME["int64"])
    return look_up(results.astype(np.uint8) & np.uint8((1 << kind.bits) - 1), is_bad)


def _encode_integers(kind: IntType, offset: int, scale: int) -> Step:
    # low <= (x - offset) * scale <= high, solved for x; a negative scale swaps the bounds
    least, most = (kind.low, kind.high) if scale > 0 else (kind.high, kind.low)
    # the difference must fit, too: with scale -1, 128 is no int8, though -128 is
    low = max(kind.low, -(-least // scale) + offset, kind.low + offset)  # division rounded up
    high = min(kind.high, most // scale + offset, kind.high + offset)

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        bad = _first_outside(x, low, high, kind)
        if bad == GOOD:
            np.subtract(x, _modulo(offset, x.dtype), out=out)
            if scale != 1:
                np.multiply(out, _modulo(scale, x.dtype), out=out)
        return bad

    return apply


def _decode_integers(kind: IntType, offset: int, scale: int) -> Step:
    # low <= x / scale + offset <= high, solved for x; the division is exact or has no result
    least, most = sorted(((kind.low - offset) * scale, (kind.high - offset) * scale))
    low, high = max(kind.low, least), min(kind.high, most)
    if scale == -1:
        low = max(low, -kind.high)  # the only quotient that does not fit is low / -1

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        quotient = x
        if scale != 1:
            divisor = _modulo(scale, x.dtype)
            quotient = np.floor_divide(x, divisor, out=out)
            product = np.multiply(out, divisor, out=scratch.array("product", x.dtype, x.size))
            # multiplying back is faster than the remainder
            if not np.array_equal(product, x):
                return first((product != x) | _outside(x, low, high))
        bad = _first_outside(x, low, high, kind)
        if bad == GOOD:
            np.add(quotient, _modulo(offset, x.dtype), out=out)
        return bad

    return apply


def _first_outside(x: Block, low: int, high: int, kind: IntType) -> int:
    if (low, high) == (kind.low, kind.high) or (low <= int(x.min()) and int(x.max()) <= high):
        return GOOD
    return first(_outside(x, low, high))


def _outside(x: Block, low: int, high: int) -> Block:
    return np.less(x, low) | np.greater(x, high)


def _modulo(number: int, dtype: np.dtype[Any]) -> Block:
    """Return an integer modulo 2**bits of `dtype`."""
    return np.array(number % (1 << 8 * dtype.itemsize), f"u{dtype.itemsize}").view(dtype)


def _floats(kind: FloatType, *steps: tuple[np.ufunc, Block]) -> Step:
    operations: Any = tuple((ufunc, as_number(operand, kind)) for ufunc, operand in steps)
    if not kind.is_foreign:
        return _native_floats(operations, kind.dtype)
    inner = _foreign_floats(kind, operations)
    if kind.itemsize > 1:
        return after_widening(inner)
    return look_up(*tabulate(inner, code_values(kind), kind))


def _native_floats(operations: Operations, dtype: np.dtype[Any]) -> Step:
    """Return a step that relies on the processor's overflow flag.

    The flag is set only if finite numbers overflow, not by infinities in the input, and reading it
    costs nothing. `out` may be `x`; the index of a bad value is then meaningless, because its input
    has been overwritten.
    """
    (inner, a), (outer, b) = operations
    a, b = dtype.type(a), dtype.type(b)

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        try:
            with np.errstate(over="raise"):
                inner(x, a, out=out)
                outer(out, b, out=out)
        except FloatingPointError:
            return max(0, first(np.isinf(outer(inner(x, a), b)) & np.isfinite(x)))
        return GOOD

    return apply


def _foreign_floats(kind: FloatType, operations: Operations) -> Step:
    """Return a step that computes in float64 and rounds each result to `kind`.

    That is two roundings, but float64 has at least twice the precision of `kind` plus two bits, and
    then rounding twice equals rounding once (Figueroa, "When is double rounding innocuous?", 1995).
    """
    names = ("result", "rounded", "step")

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        original = values = load(x, DOUBLE.dtype, scratch)
        result, rounded, step = (scratch.array(name, np.float64, x.size) for name in names)
        for ufunc, operand in operations:
            ufunc(values, operand, out=result)
            values = to_grid(result, rounded, (step, step), kind, "nearest-even")
            bad = fit(original, values, kind, None)
            if bad != GOOD:
                return bad
        store(values, out, kind, scratch)
        return GOOD

    return in_parts(apply)
