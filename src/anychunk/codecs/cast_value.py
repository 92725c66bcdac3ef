"""`cast_value`, array to array: numbers converted by value to another data type.

Spec:     zarr-extensions, codecs/cast_value.
JSON:     {"name": "cast_value", "configuration": {"data_type": "uint8", "rounding": "nearest-even",
          "out_of_range": "clamp", "scalar_map": {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]}}}
Lossless: if the target can represent every value. Others are rounded once, brought into range as
          `out_of_range` says, or mapped; a value to which none of these applies is an error.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import ArrayToArray, ChunkSpec, runtime_field
from anychunk.codecs.cast import cast_plan, scalar_map
from anychunk.codecs.cast.blockwise import BadValueError, Step, run
from anychunk.codecs.cast.from_float import MODES, OutOfRange, Rounding
from anychunk.codecs.cast.number_types import BY_NAME, FloatType, IntType, NumberType, number_type
from anychunk.codecs.cast.scalar_map import (
    Entry,
    ScalarMap,
    number_type_of,
    there_and_back,
    with_encoded_fill,
)
from anychunk.errors import AnychunkError, ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.model.index import Json


@dataclass(frozen=True, eq=False)
class Direction:
    """Encoding or decoding, for an array of one number type."""

    error: type[AnychunkError]
    source: NumberType
    target: NumberType
    entries: tuple[Entry, ...]
    step: Step


def bind(codec: "CastValue", source: NumberType, *, is_encoding: bool) -> Direction:
    """Return the plan for encoding or decoding an array of number type `source`."""
    # codecs that compare equal may differ in the sign of a zero, which their text shows
    return _bind(codec, source, is_encoding, repr(codec))


@lru_cache(maxsize=128)
def _bind(codec: "CastValue", source: NumberType, is_encoding: bool, text: str) -> Direction:
    kinds = (source, codec.kind) if is_encoding else (codec.kind, source)
    both = codec.scalar_map or ScalarMap()
    pairs, name = (both.encode, "encode") if is_encoding else (both.decode, "decode")
    entries = scalar_map.bind(pairs, *kinds, where=f"cast_value: scalar_map {name}")
    # "wrap" is allowed for an integer target; decoding to a float array then has no rule
    rule = codec.out_of_range
    if rule == "wrap" and isinstance(kinds[1], FloatType):
        rule = None
    step = cast_plan.plan(*kinds, rounding=codec.rounding, out_of_range=rule, entries=entries)
    return Direction(ChunkEncodeError if is_encoding else ChunkDecodeError, *kinds, entries, step)


@dataclass(frozen=True, kw_only=True)
class CastValue(ArrayToArray):
    """Casts to `data_type` when encoding, and to the data type of the array when decoding."""

    name: ClassVar[str] = "cast_value"

    data_type: Json
    """The stored data type, as Zarr v3 JSON or as a data type object of zarr."""
    rounding: Rounding = "nearest-even"
    """How to round numbers that the target cannot represent."""
    out_of_range: OutOfRange = None
    """What to do with numbers beyond the range of the target; None: raise an error."""
    scalar_map: ScalarMap | None = None
    """Values that are replaced before any other rule applies, as JSON or as mappings."""
    strict: bool = runtime_field(default=True)
    """Whether the float type must represent every integer of the other type, and the fill value
    must survive a round trip; False for codecs built from JSON."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_type", _type_name(self.data_type))
        if self.rounding not in MODES:
            raise CodecConfigError(
                f"cast_value: rounding {self.rounding!r}, expected one of {', '.join(MODES)}"
            )
        if self.out_of_range not in (None, "clamp", "wrap"):
            raise CodecConfigError(
                f"cast_value: out_of_range {self.out_of_range!r}, expected clamp or wrap"
            )
        if self.out_of_range == "wrap" and isinstance(self.kind, FloatType):
            raise CodecConfigError(
                f"cast_value: out_of_range 'wrap' is only valid for integer target types, "
                f"not {self.kind.name}"
            )
        if self.scalar_map is not None:
            parsed = scalar_map.parse_scalar_map(self.scalar_map, codec=self.name)
            object.__setattr__(self, "scalar_map", parsed)

    @classmethod
    def parse_configuration(cls, configuration: Mapping[str, Json]) -> dict[str, Any]:
        return {**configuration, "strict": False}

    def configuration(self) -> dict[str, Json]:
        configuration = super().configuration()
        if self.scalar_map is not None:
            configuration["scalar_map"] = self.scalar_map.to_json()
        return configuration

    @property
    def kind(self) -> NumberType:
        """The stored number type."""
        return BY_NAME[self.data_type]

    def evolved(self, spec: ChunkSpec) -> Self:
        source = number_type_of(spec.dtype, self.name)
        for is_encoding in (True, False):
            bind(self, source, is_encoding=is_encoding)
        if self.strict:
            check_exact(source, self.kind)
        return self

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        return with_encoded_fill(self, spec, self.kind.dtype)

    def encode_fill(self, fill: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the encoded fill value; if `strict`, it must decode to itself."""
        what_to_do = "choose another one, or add it to scalar_map"
        encoded, decoded = there_and_back(self, fill, what_to_do=what_to_do)
        if self.strict and not is_same(fill, decoded):
            raise CodecConfigError(
                f"cast_value: the fill value {fill[()]} is encoded as {encoded[()]}, which decodes "
                f"to {decoded[()]}; choose another one, add it to scalar_map, or allow it with "
                "strict=False"
            )
        return encoded

    def encode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]:
        source = self._source(spec, ChunkEncodeError)
        return self._run(array, bind(self, source, is_encoding=True), self.kind.dtype)

    def decode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]:
        source = self._source(spec, ChunkDecodeError)
        return self._run(array, bind(self, source, is_encoding=False), spec.dtype)

    def encoded_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return self.kind.dtype

    def _source(self, spec: ChunkSpec, error: type[AnychunkError]) -> NumberType:
        kind = number_type(spec.dtype)
        if kind is None:
            raise error(f"cast_value: the data type {spec.dtype} is not a real number type")
        return kind

    def _run(
        self, array: npt.NDArray[Any], direction: Direction, dtype: np.dtype[Any]
    ) -> npt.NDArray[Any]:
        if number_type(array.dtype) is not direction.source:
            raise direction.error(
                f"cast_value: the chunk has dtype {array.dtype}, expected {direction.source.name}"
            )
        try:
            return run(direction.step, array, direction.source, direction.target, dtype)
        except BadValueError as e:
            value = array[e.index]
            why = explain(value, direction.target, self.out_of_range)
            raise direction.error(f"cast_value: {value} at {e.index} {why}") from None

    def compute_encoded_size(self, input_byte_length: int, spec: ChunkSpec) -> int:
        dtype = spec.dtype
        if number_type(dtype) is None:
            raise CodecConfigError(
                f"cast_value: the codec only supports fixed-size integer and floating-point data "
                f"types, got {dtype}"
            )
        return input_byte_length // dtype.itemsize * self.kind.stored.itemsize


def _type_name(data_type: object) -> str:
    """Return the name of a real number type, given its name, its JSON object or zarr's object."""
    is_object = hasattr(data_type, "to_json")
    data: Any = data_type.to_json(zarr_format=3) if is_object else data_type  # type: ignore[attr-defined]
    if isinstance(data, Mapping) and not set(data) - {"name", "configuration"}:
        data = data.get("name") if not data.get("configuration") else data
    if not isinstance(data, str) or data not in BY_NAME:
        raise CodecConfigError(
            f"cast_value: Invalid target data type {data_type!r}; expected one of the integer and "
            f"floating-point types {' '.join(BY_NAME)}"
        )
    return data


def check_exact(source: NumberType, target: NumberType) -> None:
    """Check that the float type, if there is one, can represent every integer of the other type."""
    for integer, real in ((source, target), (target, source)):
        if not isinstance(integer, IntType) or not isinstance(real, FloatType):
            continue
        extent = max(-integer.low, integer.high)
        if extent > min(1 << real.precision, real.high) or real.low > integer.low:
            raise CodecConfigError(
                f"cast_value: {real.name} cannot represent every {integer.name} exactly; allow "
                "rounding with CastValue(..., strict=False)"
            )


def explain(value: Any, target: NumberType, out_of_range: OutOfRange) -> str:
    """Return why a value has no result, for the error message."""
    number = float(value)
    if not math.isfinite(number):
        return f"cannot be represented in dtype {target.name}; add it to scalar_map"
    advice = "" if out_of_range else "; set out_of_range, or add it to scalar_map"
    return f"is outside the range of dtype {target.name} [{target.low}, {target.high}]{advice}"


def is_same(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> bool:
    """Return whether two 0-d arrays are equal, or both NaN."""
    return bool(before == after) or bool(before != before and after != after)  # noqa: PLR0124 - NaN
