"""`scale_offset` directly followed by `cast_value`, as one codec in one pass.

Packing floats as scaled integers uses both codecs, one behind the other. Run separately, they write
and read an intermediate array of the wider type in main memory; fused, that array is one block in
the cache. Results and errors are those of the two codecs. The fused codec never appears in JSON.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from anychunk.codecs import cast_value as casts
from anychunk.codecs.base import ArrayToArray, ChunkSpec
from anychunk.codecs.cast.blockwise import GOOD, BadValueError, Scratch, Step, run
from anychunk.codecs.cast.number_types import FloatType, NumberType, number_type
from anychunk.codecs.cast_value import CastValue
from anychunk.codecs.scale_offset import ScaleOffset
from anychunk.model.grid import Array
from anychunk.model.index import Json


def fused_pairs(codecs: Sequence[Any]) -> list[Any]:
    """Return the codecs with each `scale_offset`, `cast_value` pair replaced by a fused codec."""
    fused: list[Any] = []
    for codec in codecs:
        last = fused[-1] if fused else None
        if isinstance(codec, CastValue) and isinstance(last, ScaleOffset):
            fused[-1] = FusedCast(scale_offset=last, cast_value=codec)
        else:
            fused.append(codec)
    return fused


def _in_turn(inner: Step, outer: Step, between: np.dtype[Any]) -> Step:
    """Return a step that runs two steps, with a block of type `between` in scratch memory."""

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        middle = scratch.array("between", between, x.size)
        bad = inner(x, middle, scratch)
        return outer(middle, out, scratch) if bad == GOOD else bad

    return apply


@lru_cache(maxsize=64)
def encode_plan(codec: "FusedCast", kind: NumberType, text: str) -> Step:
    """Return the step that encodes an array of `kind`; `text` as in `cast_value.bind`."""
    inner = codec.scale_offset.bind(kind)
    outer = casts.bind(codec.cast_value, kind, is_encoding=True).step
    # adding 0 or multiplying by 1 would change the sign of zero and the bits of NaN
    return outer if inner.is_identity else _in_turn(inner.encode, outer, kind.stored)


@lru_cache(maxsize=64)
def decode_plan(codec: "FusedCast", kind: NumberType, text: str) -> Step:
    """Return the step that decodes to an array of `kind`; `text` as in `cast_value.bind`."""
    inner = casts.bind(codec.cast_value, kind, is_encoding=False).step
    if codec.scale_offset.bind(kind).is_identity:
        return inner
    outer = codec.scale_offset.bind(kind).decode
    if isinstance(kind, FloatType) and not kind.is_foreign:
        return _in_place(inner, outer)
    return _in_turn(inner, outer, kind.stored)


def _in_place(inner: Step, outer: Step) -> Step:
    """Return a step that scales the cast values in place; `scaling` allows it for such floats."""

    def apply(x: Array, out: Array, scratch: Scratch) -> int:
        bad = inner(x, out, scratch)
        return outer(out, out, scratch) if bad == GOOD else bad

    return apply


@dataclass(frozen=True, kw_only=True)
class FusedCast(ArrayToArray):
    """`scale_offset` and `cast_value` as one codec."""

    scale_offset: ScaleOffset
    cast_value: CastValue

    def __post_init__(self) -> None:
        # for error messages only: codec classes with a `name` are those that appear in JSON
        object.__setattr__(self, "name", "scale_offset, cast_value")

    def configuration(self) -> dict[str, Json]:
        raise NotImplementedError("a fused codec has no JSON; serialize its two codecs instead")

    def evolved(self, spec: ChunkSpec) -> Self:
        self.scale_offset.evolved(spec)
        self.cast_value.evolved(self.scale_offset.encoded_spec(spec))
        return self

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        return self.cast_value.encoded_spec(self.scale_offset.encoded_spec(spec))

    def encode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]:
        kind, stored = number_type(spec.dtype), self.cast_value.kind
        if kind is not None and number_type(array.dtype) is kind:
            with suppress(BadValueError):
                return run(encode_plan(self, kind, repr(self)), array, kind, stored, stored.dtype)
        # run the codecs separately, which raises the error of the one that is to blame
        return self.cast_value.encode_array(self.scale_offset.encode_array(array, spec), spec)

    def decode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]:
        kind, stored = number_type(spec.dtype), self.cast_value.kind
        if kind is not None and number_type(array.dtype) is stored:
            with suppress(BadValueError):
                return run(decode_plan(self, kind, repr(self)), array, stored, kind, spec.dtype)
        return self.scale_offset.decode_array(self.cast_value.decode_array(array, spec), spec)

    def compute_encoded_size(self, input_byte_length: int, spec: ChunkSpec) -> int:
        return self.cast_value.compute_encoded_size(input_byte_length, spec)
