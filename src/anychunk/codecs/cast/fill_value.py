"""The fill value behind a codec that changes values.

zarr writes the fill value for elements that were never assigned and shows it for absent chunks, so
it passes through the codecs like any other value: `encoded_spec` must return the encoded one.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.cast.number_types import NumberType, number_type
from anychunk.codecs.data_types import default
from anychunk.errors import AnychunkError, CodecConfigError


def number_type_of(dtype: np.dtype[Any], codec: str) -> NumberType:
    """Return the number type of a data type; `CodecConfigError` if it has none."""
    kind = number_type(dtype)
    if kind is None:
        raise CodecConfigError(
            f"{codec}: the codec only supports integer and floating-point data types, got {dtype}"
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


def with_encoded_fill(codec: EncodesFill, spec: ChunkSpec, dtype: np.dtype[Any]) -> ChunkSpec:
    """Return the spec of the encoded chunk, with data type `dtype` and the encoded fill value."""
    fill = default(spec.dtype) if spec.fill_value is None else spec.fill_value
    stored = np.asarray(fill, spec.dtype)
    encoded = _encoded_fill(codec, repr(codec), codec.strict, spec.dtype, stored.tobytes())
    return replace(spec, dtype=dtype, fill_value=encoded[()], data_type=None)


@lru_cache(maxsize=256)
def _encoded_fill(
    codec: EncodesFill, text: str, strict: bool, dtype: np.dtype[Any], fill: bytes
) -> npt.NDArray[Any]:
    # cached, because zarr resolves the spec for every chunk. `text` and `strict` are keys of the
    # cache because codecs that compare equal may differ in the sign of a zero, and in `strict`
    return codec.encode_fill(np.frombuffer(fill, dtype).reshape(()))
