"""`scale_offset`, array to array: `(x - offset) * scale`, in the data type of the array.

Spec:     zarr-extensions, codecs/scale_offset.
JSON:     {"name": "scale_offset", "configuration": {"offset": 5, "scale": 0.1}}
Lossless: for integers (otherwise an error); for floats, up to the rounding of both operations.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import ArrayToArray, ChunkSpec, Json, runtime_field
from anychunk.codecs.cast import json_scalar, scaling
from anychunk.codecs.cast.blockwise import BadValueError, Step, run
from anychunk.codecs.cast.fill_value import number_type_of, there_and_back, with_encoded_fill
from anychunk.codecs.cast.number_types import Block, FloatType, IntType, NumberType, number_type
from anychunk.codecs.cast.scalar_map import as_number
from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    ChunkEncodeError,
    CodecConfigError,
    CodecTypeError,
)

if TYPE_CHECKING:
    from anychunk.codecs.zarr_core import ArraySpec

type Scalar = int | float | str


@dataclass(frozen=True, eq=False)
class Bound:
    """Offset and scale as numbers of one type, with the block functions that apply them."""

    kind: NumberType
    offset: Block
    scale: Block
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
    encode, decode = scaling.encode_plan(kind, a, b), scaling.decode_plan(kind, a, b)
    return Bound(kind, a, b, encode, decode, is_identity)


def _parse(label: str, value: Scalar, kind: NumberType) -> Block:
    try:
        stored = json_scalar.parse(value, kind)
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
        if self.scale in json_scalar.SPECIAL:
            raise CodecConfigError(f"scale_offset: scale must be finite, not {self.scale!r}")
        if self.scale == 0:
            raise CodecConfigError("scale_offset: scale must be non-zero")

    @classmethod
    def parse_configuration(cls, configuration: Mapping[str, Json]) -> dict[str, Any]:
        return {**configuration, "strict": False}

    def bind(self, kind: NumberType) -> Bound:
        """Return the codec bound to a number type."""
        return bind(self.offset, self.scale, kind, repr(self))

    def evolve_from_array_spec(self, array_spec: "ArraySpec") -> Self:
        # not in `validate`, which zarr calls with the data type of the array as a whole: behind
        # another codec, the data has another type here
        self.bind(number_type_of(array_spec.dtype, self.name))
        return self

    def resolve_metadata(self, chunk_spec: "ArraySpec") -> "ArraySpec":
        return with_encoded_fill(self, chunk_spec, chunk_spec.dtype)

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

    # zarr's codec has this name for the second parameter, and zarr's tests pass it by name
    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: "ArraySpec") -> int:
        return input_byte_length


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
