"""Array -> array codecs as Zarr v2 filters.

Zarr v2 hands a filter bytes and does not say their type, so the configuration has one key more:
`dtype`, the numpy type string of what the filter encodes.
"""

from collections.abc import Buffer as BytesLike
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from numcodecs.abc import Codec as NumcodecsCodec

from anychunk.codecs.base import ArrayToArray, ChunkSpec, Json, _mapped, as_bytes
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError


class ArrayFilter(NumcodecsCodec):  # type: ignore[misc]
    """The Zarr v2 twin of an array -> array codec: the same keys, flat, with `id` and `dtype`."""

    codec: ClassVar[type[ArrayToArray]]
    encoded_dtype: ClassVar[Callable[[Any, np.dtype[Any]], np.dtype[Any]]]

    def __init__(self, *, dtype: npt.DTypeLike, **options: Json) -> None:
        self._set(dtype, self.codec(**options))

    def _set(self, dtype: npt.DTypeLike, inner: ArrayToArray) -> None:
        with _mapped(self.codec_id, CodecConfigError):
            self.dtype = np.dtype(dtype)
        self.inner = inner

    def _spec(self, shape: tuple[int, ...]) -> ChunkSpec:
        return ChunkSpec(shape, self.dtype)

    def encode(self, buf: Any) -> npt.NDArray[Any]:
        with _mapped(self.inner.name, ChunkEncodeError):
            array = buf if isinstance(buf, np.ndarray) else as_bytes(buf)
            if array.dtype != self.dtype:
                array = array.view(self.dtype)
            result = self.inner.encode_array(array, self._spec(array.shape))
        is_contiguous = result.flags.c_contiguous or result.flags.f_contiguous
        return result if is_contiguous else np.ascontiguousarray(result)

    def decode(self, buf: BytesLike, out: BytesLike | None = None) -> Any:
        with _mapped(self.inner.name, ChunkDecodeError):
            stored = as_bytes(buf).view(type(self).encoded_dtype(self.inner, self.dtype))
            result = self.inner.decode_array(stored, self._spec(stored.shape))
        if out is None:
            return result
        as_bytes(out)[:] = as_bytes(result)
        return out

    def get_config(self) -> dict[str, Json]:
        return {"id": self.codec_id, "dtype": self.dtype.str, **self.inner.configuration()}

    @classmethod
    def from_config(cls, config: Mapping[str, Json]) -> Self:
        rest = dict(config)
        if "dtype" not in rest:
            raise CodecConfigError(f"{cls.codec_id}: required key 'dtype' is missing")
        made = cls.__new__(cls)
        made._set(rest.pop("dtype"), cls.codec.from_configuration(rest))  # noqa: SLF001 - its own class
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dtype={self.dtype.str!r}, {self.inner!r})"


def array_filter(
    codec: type[ArrayToArray],
    encoded_dtype: Callable[[Any, np.dtype[Any]], np.dtype[Any]] = lambda _, dtype: dtype,
) -> type[ArrayFilter]:
    """Make the Zarr v2 twin of a codec; `encoded_dtype` gives the type that it stores."""
    body = {
        "codec_id": codec.name,
        "codec": codec,
        "encoded_dtype": staticmethod(encoded_dtype),
        "__module__": codec.__module__,
    }
    return type(f"{codec.__name__}V2", (ArrayFilter,), body)
