"""The fill value behind a codec that changes values.

zarr writes the fill value for elements that were never assigned and shows it for absent chunks, so
it passes through the codecs like any other value: `resolve_metadata` must return the encoded one.
"""

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
    """Return the number type of a zarr data type; `CodecConfigError` if it has none."""
    kind = number_type(zdtype.to_native_dtype())
    if kind is None:
        raise CodecConfigError(
            f"{codec}: the codec only supports integer and floating-point data types, "
            f"got {zdtype.to_native_dtype()}"
        )
    return kind


class EncodesFill(Hashable, Protocol):
    """A codec that changes values, including the fill value."""

    @property
    def strict(self) -> bool: ...

    def encode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]: ...
    def decode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]: ...
    def encode_fill(self, fill: npt.NDArray[Any]) -> npt.NDArray[Any]: ...


def there_and_back(
    codec: EncodesFill, fill: npt.NDArray[Any], *, what_to_do: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the encoded fill value, and what it decodes to.

    Parameters:
        codec: the codec.
        fill: the fill value as a 0-d array.
        what_to_do: advice for the message of the error.

    Raises:
        CodecConfigError: the fill value cannot be encoded, or cannot be decoded again.
    """
    spec = ChunkSpec((), fill.dtype)
    try:
        encoded = codec.encode_array(fill, spec)
        return encoded, codec.decode_array(encoded, spec)
    except AnychunkError as e:
        raise CodecConfigError(f"{e}; this is the fill value of the array: {what_to_do}") from e


def with_encoded_fill(codec: EncodesFill, spec: ArraySpec, zdtype: ZDType[Any, Any]) -> ArraySpec:
    """Return the spec of the encoded chunk, with data type `zdtype` and the encoded fill value."""
    dtype = spec.dtype.to_native_dtype()
    fill = spec.dtype.default_scalar() if spec.fill_value is None else spec.fill_value
    if type(fill) is not dtype.type:
        fill = spec.dtype.cast_scalar(fill)
    stored = np.asarray(fill, dtype)
    encoded = _encoded_fill(codec, repr(codec), codec.strict, dtype, stored.tobytes())
    return replace(spec, dtype=zdtype, fill_value=encoded[()])


@lru_cache(maxsize=256)
def _encoded_fill(
    codec: EncodesFill, text: str, strict: bool, dtype: np.dtype[Any], fill: bytes
) -> npt.NDArray[Any]:
    # cached, because zarr resolves the spec for every chunk. `text` and `strict` are keys of the
    # cache because codecs that compare equal may differ in the sign of a zero, and in `strict`
    return codec.encode_fill(np.frombuffer(fill, dtype).reshape(()))
