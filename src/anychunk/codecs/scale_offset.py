"""`scale_offset`, array to array: `(x - offset) * scale`, in the data type of the array.

Spec:     zarr-extensions, codecs/scale_offset.
JSON:     {"name": "scale_offset", "configuration": {"offset": 5, "scale": 0.1}}
Lossless: for integers (otherwise an error); for floats, up to the rounding of both operations.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import ArrayToArray, ChunkSpec, runtime_field
from anychunk.codecs.cast import scalar_map
from anychunk.codecs.cast.blockwise import GOOD, BadValueError, Scratch, Step, first, in_parts, run
from anychunk.codecs.cast.cast_plan import after_widening, look_up, tabulate
from anychunk.codecs.cast.from_float import fit, load, store, to_grid
from anychunk.codecs.cast.number_types import (
    BY_NAME,
    DOUBLE,
    FloatType,
    IntType,
    NumberType,
    code_values,
    number_type,
)
from anychunk.codecs.cast.scalar_map import (
    as_number,
    number_type_of,
    there_and_back,
    with_encoded_fill,
)
from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    ChunkEncodeError,
    CodecConfigError,
    CodecTypeError,
)
from anychunk.model.grid import Array
from anychunk.model.index import Json

# Array functions of `(x - offset) * scale` and its inverse `x / scale + offset`.
#
# Spec: zarr-extensions, codecs/scale_offset. Everything is computed in the data type of the
# array. A value whose result would wrap or overflow to infinity has no result, and neither has an
# integer that is not divisible by `scale`.
#
# Integers: the inputs whose intermediate values and results fit are an interval, with bounds that
# are computed exactly in advance (Python integers). So nothing wraps inside it, and no wider type
# is needed. Floats: each operation is rounded to the type, as numpy does.


type Operations = tuple[tuple[np.ufunc, Any], tuple[np.ufunc, Any]]
"""Two operations, each with its second operand."""


def encode_plan(kind: NumberType, offset: Array, scale: Array) -> Step:
    """Return the block function of `(x - offset) * scale`; both scalars are stored as `kind`."""
    if isinstance(kind, IntType):
        return _integers(kind, offset, scale, _encode_integers)
    return _floats(kind, (np.subtract, offset), (np.multiply, scale))


def decode_plan(kind: NumberType, offset: Array, scale: Array) -> Step:
    """Return the block function of `x / scale + offset`; both scalars are stored as `kind`."""
    if isinstance(kind, IntType):
        return _integers(kind, offset, scale, _decode_integers)
    return _floats(kind, (np.divide, scale), (np.add, offset))


def _integers(
    kind: IntType, offset: Array, scale: Array, make: Callable[[IntType, int, int], Step]
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

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
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

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
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


def _first_outside(x: Array, low: int, high: int, kind: IntType) -> int:
    if (low, high) == (kind.low, kind.high) or (low <= int(x.min()) and int(x.max()) <= high):
        return GOOD
    return first(_outside(x, low, high))


def _outside(x: Array, low: int, high: int) -> Array:
    return np.less(x, low) | np.greater(x, high)


def _modulo(number: int, dtype: np.dtype[Any]) -> Array:
    """Return an integer modulo 2**bits of `dtype`."""
    return np.array(number % (1 << 8 * dtype.itemsize), f"u{dtype.itemsize}").view(dtype)


def _floats(kind: FloatType, *steps: tuple[np.ufunc, Array]) -> Step:
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

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
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

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
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


type Scalar = int | float | str


@dataclass(frozen=True, eq=False)
class Bound:
    """Offset and scale as numbers of one type, with the block functions that apply them."""

    kind: NumberType
    offset: Array
    scale: Array
    encode: Step
    decode: Step
    is_identity: bool


@lru_cache(maxsize=128)
def bind(offset: Scalar, scale: Scalar, kind: NumberType, text: str) -> Bound:
    """Return the codec bound to a number type; `text` distinguishes 0.0 from -0.0 in the cache.

    Raises:
        CodecConfigError: the type cannot represent a scalar, or the scale is zero in it.
    """
    a, b = _parse("offset", offset, kind), _parse("scale", scale, kind)
    if as_number(b, kind) == 0:
        raise CodecConfigError(
            f"scale_offset: scale must be non-zero, {scale!r} is zero in dtype {kind.name}"
        )
    is_identity = as_number(a, kind) == 0 and as_number(b, kind) == 1
    encode, decode = encode_plan(kind, a, b), decode_plan(kind, a, b)
    return Bound(kind, a, b, encode, decode, is_identity)


def _parse(label: str, value: Scalar, kind: NumberType) -> Array:
    try:
        stored = scalar_map.parse(value, kind)
    except (ValueError, OverflowError) as e:
        raise CodecConfigError(
            f"scale_offset: {label} value {value!r} is not representable in dtype {kind.name}: {e}"
        ) from e
    if not math.isfinite(as_number(stored, kind)):
        raise CodecConfigError(f"scale_offset: {label} must be finite, not {value!r}")
    return stored


@dataclass(frozen=True, kw_only=True)
class ScaleOffset(ArrayToArray):
    """Subtracts `offset` and multiplies by `scale`; decoding divides and adds."""

    name: ClassVar[str] = "scale_offset"

    offset: Scalar = 0
    """Subtracted when encoding. A string is in the fill value encoding of the data type."""
    scale: Scalar = 1
    """Factor applied when encoding, after `offset` has been subtracted."""
    strict: bool = runtime_field(default=True)
    """Whether the fill value must survive a round trip; False for codecs built from JSON."""

    def __post_init__(self) -> None:
        for label, value in (("offset", self.offset), ("scale", self.scale)):
            plain = value.item() if isinstance(value, np.generic) else value
            if isinstance(plain, bool) or not isinstance(plain, int | float | str):
                raise CodecTypeError(
                    f"scale_offset: {label} must be a number or string, got {type(value).__name__}"
                )
            if isinstance(plain, float) and not math.isfinite(plain):
                raise CodecConfigError(f"scale_offset: {label} must be finite, not {plain!r}")
            object.__setattr__(self, label, plain)
        if self.scale in scalar_map.SPECIAL:
            raise CodecConfigError(f"scale_offset: scale must be finite, not {self.scale!r}")
        if self.scale == 0:
            raise CodecConfigError("scale_offset: scale must be non-zero")

    @classmethod
    def parse_configuration(cls, configuration: Mapping[str, Json]) -> dict[str, Any]:
        return {**configuration, "strict": False}

    def bind(self, kind: NumberType) -> Bound:
        """Return the codec bound to a number type."""
        return bind(self.offset, self.scale, kind, repr(self))

    def evolved(self, spec: ChunkSpec) -> Self:
        self.bind(number_type_of(spec.dtype, self.name))
        return self

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        return with_encoded_fill(self, spec, spec.dtype)

    def encode_fill(self, fill: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the encoded fill value; if `strict`, it must decode to itself."""
        encoded, decoded = there_and_back(self, fill, what_to_do="choose another one")
        bound = self.bind(self._kind(fill, ChunkSpec((), fill.dtype), ChunkEncodeError))
        if self.strict and not survives(bound, fill, decoded):
            raise CodecConfigError(
                f"scale_offset: the fill value {fill[()]} is encoded as {encoded[()]}, which "
                f"decodes to {decoded[()]}; choose another one, or allow it with strict=False"
            )
        return encoded

    def encode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]:
        bound = self.bind(self._kind(array, spec, ChunkEncodeError))
        return self._run(bound, bound.encode, array, array.dtype, ChunkEncodeError)

    def decode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]:
        bound = self.bind(self._kind(array, spec, ChunkDecodeError))
        return self._run(bound, bound.decode, array, spec.dtype, ChunkDecodeError)

    def _kind(
        self, array: npt.NDArray[Any], spec: ChunkSpec, error: type[AnychunkError]
    ) -> NumberType:
        kind = number_type(array.dtype)
        if kind is None or kind is not number_type(spec.dtype):
            raise error(f"scale_offset: the chunk has dtype {array.dtype}, expected {spec.dtype}")
        return kind

    def _run(
        self,
        bound: Bound,
        step: Step,
        array: npt.NDArray[Any],
        dtype: np.dtype[Any],
        error: type[AnychunkError],
    ) -> npt.NDArray[Any]:
        if bound.is_identity:
            return array
        try:
            return run(step, array, bound.kind, bound.kind, dtype)
        except BadValueError as e:
            why = explain(bound, array[e.index], is_encoding=error is ChunkEncodeError)
            raise error(f"scale_offset: {array[e.index]} at {e.index} {why}") from None


def explain(bound: Bound, value: Any, *, is_encoding: bool) -> str:
    """Return why a value has no result, for the error message."""
    kind = bound.kind
    if isinstance(kind, FloatType):
        return f"has a result outside the range of dtype {kind.name} [{kind.low}, {kind.high}]"
    offset, scale = (int(as_number(scalar, kind)) for scalar in (bound.offset, bound.scale))
    if is_encoding:
        between, result = int(value) - offset, (int(value) - offset) * scale
    elif int(value) % scale:
        return f"has a non-zero remainder when divided by scale {scale}"
    else:
        between, result = int(value) // scale, int(value) // scale + offset
    bounds = f"outside the range of dtype {kind.name} [{kind.low}, {kind.high}]"
    if kind.low <= result <= kind.high:
        return f"becomes {result} by way of {between}, {bounds}"
    return f"becomes {result}, {bounds}"


def survives(bound: Bound, fill: npt.NDArray[Any], decoded: npt.NDArray[Any]) -> bool:
    """Return whether a fill value survives a round trip, up to the rounding of floats."""
    kind = bound.kind
    if isinstance(kind, IntType):
        return bool(fill == decoded)
    before, after = (float(value.astype(np.float64)) for value in (fill, decoded))
    if not math.isfinite(before):
        return before == after or (math.isnan(before) and math.isnan(after))
    largest = max(abs(before), abs(as_number(bound.offset, kind)))
    # four operations, each off by at most half a unit in the last place of `largest`; twice that
    return abs(before - after) <= 4 * largest * 2.0 ** (1 - kind.precision)
