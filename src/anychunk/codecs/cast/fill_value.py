"""What a codec that changes values makes of the fill value."""

from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.cast.number_types import NumberType, number_type
from anychunk.codecs.zarr_core import ArraySpec, ZDType
from anychunk.errors import AnychunkError, CodecConfigError


def number_type_of(zdtype: ZDType[Any, Any], codec: str) -> NumberType:
    """Describe zarr's data type, or refuse it."""
    kind = number_type(zdtype.to_native_dtype())
    if kind is None:
        raise CodecConfigError(
            f"{codec}: the codec only supports integer and floating-point data types, "
            f"got {zdtype.to_native_dtype()}"
        )
    return kind


class EncodesFill(Hashable, Protocol):
    """A codec that changes values, the fill value too."""

    @property
    def strict(self) -> bool: ...

    def encode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]: ...
    def decode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]: ...
    def encode_fill(self, fill: npt.NDArray[Any]) -> npt.NDArray[Any]: ...


def there_and_back(
    codec: EncodesFill, fill: npt.NDArray[Any], *, what_to_do: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Encode the fill value, by the same rules as any other, and decode it again."""
    spec = ChunkSpec((), fill.dtype)
    try:
        encoded = codec.encode_array(fill, spec)
        return encoded, codec.decode_array(encoded, spec)
    except AnychunkError as e:
        raise CodecConfigError(f"{e}; it is the fill value: {what_to_do}") from e


def with_encoded_fill(codec: EncodesFill, spec: ArraySpec, zdtype: ZDType[Any, Any]) -> ArraySpec:
    """Give the spec of what `codec` makes of `spec`, which zarr asks for with every chunk."""
    dtype = spec.dtype.to_native_dtype()
    fill = spec.dtype.default_scalar() if spec.fill_value is None else spec.fill_value
    if type(fill) is not dtype.type:
        fill = spec.dtype.cast_scalar(fill)
    stored = np.asarray(fill, dtype)
    encoded = _encoded_fill(codec, codec.strict, dtype, stored.tobytes())
    return replace(spec, dtype=zdtype, fill_value=encoded[()])


@lru_cache(maxsize=256)
def _encoded_fill(
    codec: EncodesFill, strict: bool, dtype: np.dtype[Any], fill: bytes
) -> npt.NDArray[Any]:
    # `strict` is no part of a codec's identity, but it is of the answer
    return codec.encode_fill(np.frombuffer(fill, dtype).reshape(()))
