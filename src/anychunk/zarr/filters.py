"""Our codecs as numcodecs codecs, for Zarr v2: `anychunk.zarr.filters.Offset` has the id `offset`.

A class is made on first access, from the codec in `anychunk.codecs` with the same class name.
"""

from collections.abc import Buffer as BytesLike
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from numcodecs.abc import Codec

from anychunk import codecs
from anychunk.codecs.base import (
    ArrayToArray,
    Bytes1D,
    BytesToBytes,
    ChunkSpec,
    as_bytes,
    foreign_errors_as,
)
from anychunk.errors import AnychunkError, ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.model.grid import Array
from anychunk.model.index import Json

type Plain = type[BytesToBytes | ArrayToArray]


def __getattr__(name: str) -> Any:
    plain: Any = codecs.class_named(name)
    made = globals()[name] = v2_filter(plain)
    return made


@cache
def v2_filter(plain: Any) -> type["Filter"]:
    """Return the numcodecs class of a codec, for Zarr v2 `filters`; not of an array -> bytes codec.

    Its `id` is the name of the codec, and its other keys are those of the configuration. List it
    under `numcodecs.codecs` in the packaging metadata.

    The hooks of a bytes -> bytes codec get None for `spec`. Zarr v2 gives a filter bytes without
    their data type, so the configuration of an array -> array codec has one more key than in Zarr
    v3: `dtype`, the numpy type string of the decoded array.
    """
    for kind, base in ((BytesToBytes, BytesFilter), (ArrayToArray, ArrayFilter)):
        if issubclass(plain, kind):
            body = {"__module__": __name__, "__doc__": plain.__doc__}
            return type(plain.__name__, (base,), body | {"plain": plain, "codec_id": plain.name})
    raise TypeError(f"{plain!r} is not bytes -> bytes or array -> array: it cannot be a filter")


def _restored(plain: type, state: dict[str, Any]) -> "Filter":
    cls = v2_filter(plain)
    made = cls.__new__(cls)
    made.__dict__.update(state)
    return made


class Filter(Codec):  # type: ignore[misc]
    """The base of these classes."""

    plain: ClassVar[Any]
    inner: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.plain, self.__dict__)


class BytesFilter(Filter):
    """A bytes -> bytes codec as a numcodecs codec."""

    def __init__(self, **options: Json) -> None:
        self.inner = self.plain(**options)

    def encode(self, buf: BytesLike) -> Bytes1D:
        with foreign_errors_as(ChunkEncodeError, self.inner.name):
            return as_bytes(self.inner.encode_bytes(as_bytes(in_memory_order(buf)), None))

    def decode(self, buf: BytesLike, out: BytesLike | None = None) -> BytesLike:
        with foreign_errors_as(ChunkDecodeError, self.inner.name):
            data = as_bytes(self.inner.decode_bytes(as_bytes(buf), None))
        if out is None:
            return data
        as_bytes(out)[:] = data
        return out

    def get_config(self) -> dict[str, Json]:
        return {"id": self.codec_id, **self.inner.configuration()}

    @classmethod
    def from_config(cls, config: Mapping[str, Json]) -> Self:
        made = cls.__new__(cls)
        made.inner = cls.plain.from_configuration(config)
        return made


class ArrayFilter(Filter):
    """An array -> array codec as a numcodecs codec."""

    def __init__(self, *, dtype: npt.DTypeLike, **options: Json) -> None:
        self._set(dtype, self.plain(**options))

    def _set(self, dtype: npt.DTypeLike, inner: ArrayToArray) -> None:
        try:
            self.dtype = np.dtype(dtype)
        except (TypeError, ValueError) as e:
            raise CodecConfigError(f"{self.codec_id}: dtype {dtype!r}: {e}") from e
        self.inner = inner

    def _spec(self, shape: tuple[int, ...]) -> ChunkSpec:
        return ChunkSpec(shape, self.dtype)

    def encode(self, buf: Any) -> Array:
        with foreign_errors_as(ChunkEncodeError, self.inner.name):
            array = in_memory_order(buf)
            if array.dtype != self.dtype:
                array = _viewed(array, self.dtype, ChunkEncodeError, self.inner.name)
            result: Array = self.inner.encode_array(array, self._spec(array.shape))
        is_contiguous = result.flags.c_contiguous or result.flags.f_contiguous
        return result if is_contiguous else np.ascontiguousarray(result)

    def decode(self, buf: BytesLike, out: BytesLike | None = None) -> Any:
        with foreign_errors_as(ChunkDecodeError, self.inner.name):
            dtype = self.inner.encoded_dtype(self.dtype)
            stored = _viewed(as_bytes(buf), dtype, ChunkDecodeError, self.inner.name)
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
        made._set(rest.pop("dtype"), cls.plain.from_configuration(rest))  # noqa: SLF001 - its own class
        return made


def in_memory_order(data: BytesLike | Array) -> Array:
    """Return what Zarr v2 gives a filter as a flat array, in the order of its memory.

    A chunk of an array with `"order": "F"` is in Fortran order, and is stored in that order.
    """
    array = data if isinstance(data, np.ndarray) else as_bytes(data)
    return array.reshape(-1, order="A")


def _viewed(array: Array, dtype: np.dtype[Any], error: type[AnychunkError], name: str) -> Array:
    if array.nbytes % dtype.itemsize:
        raise error(f"{name}: {array.nbytes} bytes, expected a multiple of {dtype.itemsize}")
    return array.view(dtype)
