"""`cast_value`, array to array: every number as one of another data type, by its value.

Spec:     zarr-extensions, codecs/cast_value.
JSON:     {"name": "cast_value", "configuration": {"data_type": "uint8", "rounding": "nearest-even",
          "out_of_range": "clamp", "scalar_map": {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]}}}
Lossless: where the target holds every value; else rounded once, and an error where nothing says
          what becomes of a value.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import ArrayToArray, ChunkSpec, Json, runtime_field
from anychunk.codecs.cast import casting, scalar_map
from anychunk.codecs.cast.array_filter import array_filter
from anychunk.codecs.cast.blocks import BadValueError, Step, run
from anychunk.codecs.cast.casting import OutOfRange
from anychunk.codecs.cast.fill_value import number_type_of, there_and_back, with_encoded_fill
from anychunk.codecs.cast.number_types import BY_NAME, FloatType, IntType, NumberType, number_type
from anychunk.codecs.cast.rounding import MODES, Rounding
from anychunk.codecs.cast.scalar_map import Entry, ScalarMap
from anychunk.codecs.zarr_core import ArraySpec, ZDType, get_data_type_from_json
from anychunk.errors import AnychunkError, ChunkDecodeError, ChunkEncodeError, CodecConfigError


@dataclass(frozen=True, eq=False)
class Direction:
    """One way of a cast: its types, its map, and the function that does it."""

    error: type[AnychunkError]
    source: NumberType
    target: NumberType
    entries: tuple[Entry, ...]
    step: Step


@lru_cache(maxsize=128)
def bind(codec: "CastValue", source: NumberType, *, is_encoding: bool) -> Direction:
    """Plan one way of a cast for an array of `source`."""
    kinds = (source, codec.kind) if is_encoding else (codec.kind, source)
    both = codec.scalar_map or ScalarMap()
    pairs, name = (both.encode, "encode") if is_encoding else (both.decode, "decode")
    entries = scalar_map.bind(pairs, *kinds, where=f"cast_value: scalar_map {name}")
    # an array of integers cannot wrap into a float array when it is read back
    rule = codec.out_of_range
    if rule == "wrap" and isinstance(kinds[1], FloatType):
        rule = None
    step = casting.plan(*kinds, rounding=codec.rounding, out_of_range=rule, entries=entries)
    return Direction(ChunkEncodeError if is_encoding else ChunkDecodeError, *kinds, entries, step)


@dataclass(frozen=True, kw_only=True)
class CastValue(ArrayToArray):
    """Casts to `data_type` when encoding, and back to the array's own type when decoding."""

    name: ClassVar[str] = "cast_value"

    data_type: Json
    """What is stored: a Zarr v3 data type as JSON. zarr's data type objects are taken as well."""
    rounding: Rounding = "nearest-even"
    """How a number that the target does not have is rounded."""
    out_of_range: OutOfRange = None
    """What becomes of a number beyond the target's range; None: it is an error."""
    scalar_map: ScalarMap | None = None
    """Values that are replaced before any other rule; given as JSON or as mappings."""
    strict: bool = runtime_field(default=True)
    """Whether integers must be exact as floats and the fill value must survive; arrays that exist
    are opened without."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_type", _type_name(self.data_type))
        if self.rounding not in MODES:
            raise CodecConfigError(
                f"cast_value: rounding {self.rounding!r} is none of {', '.join(MODES)}"
            )
        if self.out_of_range not in (None, "clamp", "wrap"):
            raise CodecConfigError(
                f"cast_value: out_of_range {self.out_of_range!r} is none of clamp, wrap"
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
        """The type that is stored."""
        return BY_NAME[self.data_type]

    @property
    def dtype(self) -> ZDType[Any, Any]:
        """Zarr's data type of what is stored."""
        return _zdtype(self.data_type)

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        # here and not in `validate`, which zarr calls again with the type of the array as a whole
        source = number_type_of(array_spec.dtype, self.name)
        for is_encoding in (True, False):
            bind(self, source, is_encoding=is_encoding)
        if self.strict:
            check_exact(source, self.kind)
        return self

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        return with_encoded_fill(self, chunk_spec, self.dtype)

    def encode_fill(self, fill: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Encode the fill value, and see that it comes back."""
        what_to_do = "choose another one, or give it a place in scalar_map"
        encoded, decoded = there_and_back(self, fill, what_to_do=what_to_do)
        if self.strict and not is_same(fill, decoded):
            raise CodecConfigError(
                f"cast_value: the fill value {fill[()]} becomes {encoded[()]} and comes back as "
                f"{decoded[()]}; choose another one, give it a place in scalar_map, or allow it "
                f"with strict=False"
            )
        return encoded

    def encode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]:
        source = self._source(spec, ChunkEncodeError)
        return self._run(array, bind(self, source, is_encoding=True), self.kind.dtype)

    def decode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]:
        source = self._source(spec, ChunkDecodeError)
        return self._run(array, bind(self, source, is_encoding=False), spec.dtype)

    def _source(self, spec: ChunkSpec, error: type[AnychunkError]) -> NumberType:
        kind = number_type(spec.dtype)
        if kind is None:
            raise error(f"cast_value: {spec.dtype} does not hold real numbers")
        return kind

    def _run(
        self, array: npt.NDArray[Any], direction: Direction, dtype: np.dtype[Any]
    ) -> npt.NDArray[Any]:
        if number_type(array.dtype) is not direction.source:
            raise direction.error(
                f"cast_value: a chunk of {array.dtype}, expected {direction.source.name}"
            )
        try:
            return run(direction.step, array, direction.source, direction.target, dtype)
        except BadValueError as e:
            value = array[e.index]
            why = explain(value, direction.target, self.out_of_range)
            raise direction.error(f"cast_value: {value} at {e.index} {why}") from None

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        dtype = chunk_spec.dtype.to_native_dtype()
        if number_type(dtype) is None:
            raise CodecConfigError(
                f"cast_value: the codec only supports fixed-size integer and floating-point data "
                f"types, got {dtype}"
            )
        return input_byte_length // dtype.itemsize * self.kind.stored.itemsize


def _type_name(data_type: object) -> str:
    """Give the name of a real number type, from its name, its JSON object or zarr's object."""
    data = data_type.to_json(zarr_format=3) if isinstance(data_type, ZDType) else data_type
    if isinstance(data, Mapping) and not set(data) - {"name", "configuration"}:
        data = data.get("name") if not data.get("configuration") else data
    if not isinstance(data, str) or data not in BY_NAME:
        raise CodecConfigError(
            f"cast_value: Invalid target data type {data_type!r}; expected one of the integer and "
            f"floating-point types {' '.join(BY_NAME)}"
        )
    return data


@lru_cache(maxsize=64)
def _zdtype(name: str) -> ZDType[Any, Any]:
    return get_data_type_from_json(name, zarr_format=3)


def check_exact(source: NumberType, target: NumberType) -> None:
    """Refuse integers on one side that the floats on the other do not all hold."""
    for integer, real in ((source, target), (target, source)):
        if not isinstance(integer, IntType) or not isinstance(real, FloatType):
            continue
        extent = max(-integer.low, integer.high)
        if extent > min(1 << real.precision, real.high) or real.low > integer.low:
            raise CodecConfigError(
                f"cast_value: {real.name} does not hold every {integer.name} exactly; allow "
                f"rounding with CastValue(..., strict=False)"
            )


def explain(value: Any, target: NumberType, out_of_range: OutOfRange) -> str:
    """Say why a value has no result."""
    number = float(value)
    if not math.isfinite(number):
        return f"has no value in dtype {target.name}; give it a place in scalar_map"
    advice = "" if out_of_range else "; set out_of_range, or give it a place in scalar_map"
    return f"is outside the range of dtype {target.name} [{target.low}, {target.high}]{advice}"


def is_same(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> bool:
    return bool(before == after) or bool(before != before and after != after)  # noqa: PLR0124 - NaN


CastValueV2 = array_filter(CastValue, lambda codec, _: codec.kind.dtype)
