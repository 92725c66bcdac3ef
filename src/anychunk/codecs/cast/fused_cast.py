"""`scale_offset` directly followed by `cast_value`, in one pass over each block.

The results are those of the two, one after the other, errors included; what is saved is the array
between them. It never appears in JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from zarr.abc.codec import Codec

from anychunk.codecs import cast_value as casts
from anychunk.codecs.base import ArrayToArray, ChunkSpec, Json
from anychunk.codecs.cast.blocks import GOOD, BadValueError, Scratch, Step, run
from anychunk.codecs.cast.number_types import Block, FloatType, NumberType, number_type
from anychunk.codecs.cast_value import CastValue
from anychunk.codecs.scale_offset import ScaleOffset
from anychunk.codecs.zarr_core import ArraySpec


def fuse(codecs: Sequence[Codec]) -> list[Codec]:
    """Put one codec in the place of each adjacent pair that can run as one."""
    fused: list[Codec] = []
    for codec in codecs:
        last = fused[-1] if fused else None
        if isinstance(codec, CastValue) and isinstance(last, ScaleOffset):
            fused[-1] = FusedCast(scale_offset=last, cast_value=codec)
        else:
            fused.append(codec)
    return fused


def _in_turn(inner: Step, outer: Step, between: np.dtype[Any]) -> Step:
    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        middle = scratch.array("between", between, x.size)
        bad = inner(x, middle, scratch)
        return outer(middle, out, scratch) if bad == GOOD else bad

    return apply


@lru_cache(maxsize=64)
def encode_plan(codec: "FusedCast", kind: NumberType) -> Step:
    inner = codec.scale_offset.bind(kind).encode
    outer = casts.bind(codec.cast_value, kind, is_encoding=True).step
    return _in_turn(inner, outer, kind.stored)


@lru_cache(maxsize=64)
def decode_plan(codec: "FusedCast", kind: NumberType) -> Step:
    inner = casts.bind(codec.cast_value, kind, is_encoding=False).step
    outer = codec.scale_offset.bind(kind).decode
    if isinstance(kind, FloatType) and not kind.is_foreign:
        return _in_place(inner, outer)
    return _in_turn(inner, outer, kind.stored)


def _in_place(inner: Step, outer: Step) -> Step:
    """Scale where the cast has written, which arithmetic of numpy's floats allows."""

    def apply(x: Block, out: Block, scratch: Scratch) -> int:
        bad = inner(x, out, scratch)
        return outer(out, out, scratch) if bad == GOOD else bad

    return apply


@dataclass(frozen=True, kw_only=True)
class FusedCast(ArrayToArray):
    """Both codecs as one."""

    scale_offset: ScaleOffset
    cast_value: CastValue

    def __post_init__(self) -> None:
        # for messages; a class that has a name would have a place in JSON
        object.__setattr__(self, "name", "scale_offset, cast_value")

    def configuration(self) -> dict[str, Json]:
        raise NotImplementedError("a fused codec stands for two in JSON")

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        self.scale_offset.evolve_from_array_spec(array_spec)
        self.cast_value.evolve_from_array_spec(self.scale_offset.resolve_metadata(array_spec))
        return self

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        return self.cast_value.resolve_metadata(self.scale_offset.resolve_metadata(chunk_spec))

    def encode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]:
        source, target = number_type(spec.dtype), self.cast_value.kind
        if source is not None and number_type(array.dtype) is source:
            try:
                return run(encode_plan(self, source), array, source, target, target.dtype)
            except BadValueError:
                pass
        # one of the two has something to say about it
        return self.cast_value.encode_array(self.scale_offset.encode_array(array, spec), spec)

    def decode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]:
        source, target = number_type(spec.dtype), self.cast_value.kind
        if source is not None and number_type(array.dtype) is target:
            try:
                return run(decode_plan(self, source), array, target, source, spec.dtype)
            except BadValueError:
                pass
        return self.scale_offset.decode_array(self.cast_value.decode_array(array, spec), spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        return self.cast_value.compute_encoded_size(input_byte_length, chunk_spec)
