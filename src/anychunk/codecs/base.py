"""The zarr side of every codec, written once.

A codec is a frozen dataclass whose fields are its JSON configuration, with two or three hooks that
know numpy and bytes only: `encode_bytes`/`decode_bytes`, `encode_array`/`decode_array`, or both
mixed for array -> bytes. This module gives it zarr's synchronous and asynchronous methods, strict
JSON both ways, and a Zarr v2 twin. Hooks raise `AnychunkError`; anything else that escapes them is
mapped here, so no foreign exception leaves a codec.
"""

import asyncio
import json
from collections.abc import Buffer as BytesLike
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache, lru_cache
from importlib import resources
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
from numcodecs.abc import Codec as NumcodecsCodec
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec

from anychunk.codecs.zarr_core import ArraySpec, Buffer, NDBuffer
from anychunk.errors import AnychunkError, ChunkDecodeError, ChunkEncodeError, CodecConfigError

type Json = Any
type Bytes1D = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class ChunkSpec:
    """What a codec may know of the chunk in its hands."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """Of the decoded chunk; its byte order is the one zarr asks for."""
    fill_value: Any = 0

    @property
    def nbytes(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count * self.dtype.itemsize


@lru_cache(maxsize=256)
def chunk_spec(spec: ArraySpec) -> ChunkSpec:
    return ChunkSpec(spec.shape, spec.dtype.to_native_dtype(), spec.fill_value)


def as_bytes(data: BytesLike | npt.NDArray[Any]) -> Bytes1D:
    """View anything that holds bytes as one flat uint8 array; copy only what is not contiguous."""
    if isinstance(data, np.ndarray):
        if data.dtype == np.uint8 and data.ndim == 1:
            return data
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)


def as_aligned(data: Bytes1D, dtype: np.dtype[Any]) -> Bytes1D:
    """Copy bytes that begin where an item of `dtype` must not: the codecs of others may want it."""
    return data.copy() if data.ctypes.data % dtype.alignment else data


def runtime_field(default: Any = None) -> Any:
    """Declare an option of the running process: never written to JSON, never compared."""
    return field(default=default, compare=False, repr=False, metadata={"runtime": True})


@contextmanager
def _mapped(name: str, error: type[AnychunkError]) -> Iterator[None]:
    try:
        yield
    except (AnychunkError, MemoryError):
        raise
    except Exception as e:
        raise error(f"{name}: {e or type(e).__name__}") from e


@lru_cache(maxsize=32)
def schema(name: str) -> dict[str, Json]:
    """Read the JSON schema of a codec, which is shipped beside it."""
    text = resources.files("anychunk.codecs").joinpath("schemas", f"{name}.json").read_text("utf-8")
    return cast("dict[str, Json]", json.loads(text))


def check_schema(name: str, configuration: Mapping[str, Json]) -> None:
    import jsonschema  # slow to import, and needed only where a configuration is made

    validator = jsonschema.Draft202012Validator(schema(name)["properties"]["configuration"])
    for error in validator.iter_errors(dict(configuration)):
        place = ".".join(str(part) for part in error.absolute_path)
        raise CodecConfigError(f"{name}: {place and place + ': '}{error.message}")


class _Configured:
    """JSON both ways from the dataclass fields."""

    name: ClassVar[str]

    @classmethod
    @cache  # a class has one answer, and asking dataclasses costs more than the rest of parsing
    def json_fields(cls) -> tuple[Field[Any], ...]:
        declared = fields(cast("Any", cls))
        return tuple(f for f in declared if not f.metadata.get("runtime"))

    @classmethod
    def parse_configuration(cls, configuration: Mapping[str, Json]) -> dict[str, Any]:
        """Turn a JSON configuration into constructor arguments; override to convert values."""
        return dict(configuration)

    def configuration(self) -> dict[str, Json]:
        """Give the JSON configuration; override to convert values. Defaults are left out."""
        return {
            f.name: getattr(self, f.name)
            for f in self.json_fields()
            if f.default is MISSING or getattr(self, f.name) != f.default
        }

    def check_schema(self) -> None:
        """Hold the configuration against the codec's JSON schema; call it in `__post_init__`."""
        check_schema(self.name, self.configuration())

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Json]) -> Self:
        known = {f.name for f in cls.json_fields()}
        required = {
            f.name
            for f in cls.json_fields()
            if f.default is MISSING and f.default_factory is MISSING
        }
        if unknown := sorted(set(configuration) - known):
            raise CodecConfigError(
                f"{cls.name}: unknown key {unknown[0]!r}; known keys: {', '.join(sorted(known))}"
            )
        if missing := sorted(required - set(configuration)):
            raise CodecConfigError(f"{cls.name}: required key {missing[0]!r} is missing")
        return cls(**cls.parse_configuration(configuration))

    @classmethod
    def from_dict(cls, data: Mapping[str, Json] | str) -> Self:
        if isinstance(data, str):
            data = {"name": data}
        if data.get("name") != cls.name:
            raise CodecConfigError(
                f"{cls.name}: the JSON names another codec, {data.get('name')!r}"
            )
        extra = sorted(set(data) - {"name", "configuration", "must_understand"})
        if extra:
            raise CodecConfigError(f"{cls.name}: unknown key {extra[0]!r} beside 'configuration'")
        configuration = data.get("configuration", {})
        if not isinstance(configuration, Mapping):
            raise CodecConfigError(
                f"{cls.name}: configuration is {type(configuration).__name__}, expected an object"
            )
        return cls.from_configuration(configuration)

    def to_dict(self) -> dict[str, Json]:
        configuration = self.configuration()
        if not configuration:
            return {"name": self.name}
        return {"name": self.name, "configuration": configuration}


class BytesToBytes(_Configured, BytesBytesCodec):
    """Base of our bytes -> bytes codecs.

    `data` is one flat uint8 array, possibly read-only. `spec` is None in Zarr v2, which does not
    tell. `out`, where given, is a writable flat uint8 array of the decoded chunk's size that the
    decoder may fill and return instead of allocating.
    """

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        raise NotImplementedError

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        raise NotImplementedError

    def _encode_sync(self, chunk_bytes: Buffer, spec: ArraySpec) -> Buffer | None:
        with _mapped(self.name, ChunkEncodeError):
            data = self.encode_bytes(as_bytes(chunk_bytes.as_numpy_array()), chunk_spec(spec))
        return spec.prototype.buffer.from_array_like(as_bytes(data))

    def _decode_sync(self, chunk_bytes: Buffer, spec: ArraySpec) -> Buffer:
        decoded = chunk_spec(spec)
        with _mapped(self.name, ChunkDecodeError):
            data = self.decode_bytes(as_bytes(chunk_bytes.as_numpy_array()), decoded)
        return spec.prototype.buffer.from_array_like(as_aligned(as_bytes(data), decoded.dtype))

    async def _encode_single(self, chunk_data: Buffer, spec: ArraySpec) -> Buffer | None:
        return await asyncio.to_thread(self._encode_sync, chunk_data, spec)

    async def _decode_single(self, chunk_data: Buffer, spec: ArraySpec) -> Buffer:
        return await asyncio.to_thread(self._decode_sync, chunk_data, spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        raise NotImplementedError(f"{self.name}: the encoded size is known only after encoding")


class ArrayToArray(_Configured, ArrayArrayCodec):
    """Base of our array -> array codecs.

    `encode_array` gets the array as zarr holds it: either byte order, any strides, read-only.
    `spec` always describes the decoded side. Neither hook may change its input.
    """

    is_fixed_size = True

    def encode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]:
        raise NotImplementedError

    def decode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]:
        raise NotImplementedError

    def _encode_sync(self, chunk_array: NDBuffer, spec: ArraySpec) -> NDBuffer | None:
        with _mapped(self.name, ChunkEncodeError):
            array = self.encode_array(chunk_array.as_numpy_array(), chunk_spec(spec))
        return spec.prototype.nd_buffer.from_ndarray_like(array)

    def _decode_sync(self, chunk_array: NDBuffer, spec: ArraySpec) -> NDBuffer:
        with _mapped(self.name, ChunkDecodeError):
            array = self.decode_array(chunk_array.as_numpy_array(), chunk_spec(spec))
        return spec.prototype.nd_buffer.from_ndarray_like(array)

    async def _encode_single(self, chunk_data: NDBuffer, spec: ArraySpec) -> NDBuffer | None:
        return await asyncio.to_thread(self._encode_sync, chunk_data, spec)

    async def _decode_single(self, chunk_data: NDBuffer, spec: ArraySpec) -> NDBuffer:
        return await asyncio.to_thread(self._decode_sync, chunk_data, spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        return input_byte_length


class ArrayToBytes(_Configured, ArrayBytesCodec):
    """Base of our array -> bytes codecs."""

    def encode_chunk(self, array: npt.NDArray[Any], spec: ChunkSpec) -> BytesLike:
        raise NotImplementedError

    def decode_chunk(self, data: Bytes1D, spec: ChunkSpec) -> npt.NDArray[Any]:
        raise NotImplementedError

    def _encode_sync(self, chunk_array: NDBuffer, spec: ArraySpec) -> Buffer | None:
        with _mapped(self.name, ChunkEncodeError):
            data = self.encode_chunk(chunk_array.as_numpy_array(), chunk_spec(spec))
        return spec.prototype.buffer.from_array_like(as_bytes(data))

    def _decode_sync(self, chunk_bytes: Buffer, spec: ArraySpec) -> NDBuffer:
        with _mapped(self.name, ChunkDecodeError):
            decoded = chunk_spec(spec)
            array = self.decode_chunk(as_bytes(chunk_bytes.as_numpy_array()), decoded)
        if array.dtype.kind in "iufc":
            # the codecs of others expect the byte order that zarr asks for, as `bytes` gives it
            array = array.astype(decoded.dtype, copy=False)
        return spec.prototype.nd_buffer.from_ndarray_like(array)

    async def _encode_single(self, chunk_data: NDBuffer, spec: ArraySpec) -> Buffer | None:
        return await asyncio.to_thread(self._encode_sync, chunk_data, spec)

    async def _decode_single(self, chunk_data: Buffer, spec: ArraySpec) -> NDBuffer:
        return await asyncio.to_thread(self._decode_sync, chunk_data, spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        raise NotImplementedError(f"{self.name}: the encoded size is known only after encoding")


class BytesFilter(NumcodecsCodec):  # type: ignore[misc]
    """The Zarr v2 twin of a bytes -> bytes codec: the same keys, flat, beside `id`."""

    codec: ClassVar[type[BytesToBytes]]

    def __init__(self, **options: Json) -> None:
        self.inner = self.codec(**options)

    def encode(self, buf: BytesLike) -> Bytes1D:
        with _mapped(self.inner.name, ChunkEncodeError):
            return as_bytes(self.inner.encode_bytes(as_bytes(buf), None))

    def decode(self, buf: BytesLike, out: BytesLike | None = None) -> BytesLike:
        with _mapped(self.inner.name, ChunkDecodeError):
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
        made.inner = cls.codec.from_configuration(config)
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"


def v2_filter(codec: type[BytesToBytes]) -> type[BytesFilter]:
    """Make the Zarr v2 twin of a bytes -> bytes codec."""
    name = f"{codec.__name__}V2"
    body = {"codec_id": codec.name, "codec": codec, "__module__": codec.__module__}
    return type(name, (BytesFilter,), body)
