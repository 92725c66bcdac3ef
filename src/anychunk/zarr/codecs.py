"""Our codecs as zarr's codecs: `anychunk.zarr.codecs.Offset` is zarr's class of `offset`.

A class is made on first access, from the codec in `anychunk.codecs` with the same class name.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar

from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec

from anychunk import codecs
from anychunk.codecs.base import (
    ArrayToArray,
    ArrayToBytes,
    Bytes1D,
    BytesToBytes,
    ChunkSpec,
    OwnCodec,
    as_bytes,
    foreign_errors_as,
)
from anychunk.codecs.standard import CODECS as STANDARD
from anychunk.errors import ChunkDecodeError, ChunkEncodeError
from anychunk.zarr.core import ArraySpec, Buffer, NDBuffer
from anychunk.zarr.data_types import data_type
from anychunk.zarr.foreign import Foreign, chunk_spec, zarr_codec_of


def __getattr__(name: str) -> Any:
    made = globals()[name] = zarr_codec(codecs.class_named(name))
    return made


_MADE: dict[type, type[Codec]] = {}


def zarr_codec(plain: type[OwnCodec]) -> type[Codec]:
    """Return zarr's class of a codec, which is a subclass of `plain` and has its class name.

    It is the same class at every call. Its objects are the codecs to give to `zarr.create_array`.
    """
    if plain in _MADE:
        return _MADE[plain]
    for kind, adapter in ADAPTERS.items():
        if issubclass(plain, kind):
            body = {
                "__module__": __name__,
                "__doc__": plain.__doc__,
                "plain": plain,
                # the codec's own method of this name takes another description of chunks
                "compute_encoded_size": _encoded_size,
            }
            # at once for all threads: a codec has one class
            return _MADE.setdefault(plain, type(plain.__name__, (plain, adapter), body))
    raise TypeError(f"{plain!r} does not derive from a class of anychunk.codecs.base")


def adapted(codec: OwnCodec | Codec) -> Codec:
    """Return zarr's codec with the fields of one of ours; others are returned unchanged."""
    if isinstance(codec, Codec):
        return codec
    if isinstance(codec, Foreign) or type(codec) in STANDARD.values():
        return zarr_codec_of(full(codec))
    return _restored(type(codec), _values(codec))


def full(codec: Any) -> dict[str, Any]:
    """Return the JSON of a codec that is not ours, with all settings: zarr requires them."""
    if isinstance(codec, Foreign):
        return codec.to_dict()
    given = {key: value for key, value in _values(codec).items() if value is not None}
    return {"name": codec.name, **({"configuration": given} if given else {})}


def from_json(data: Any) -> Codec:
    """Return zarr's codec for its JSON, of our class where we have one of its name.

    Raises:
        CodecConfigError: The JSON is not that of a codec, or its configuration is wrong.
        UnsupportedError: No codec of this name is registered.
    """
    name = data.get("name") if isinstance(data, Mapping) else None
    plain = codecs.codec_class(name) if isinstance(name, str) else None
    if plain is None:
        return adapted(codecs.from_json(data))  # which checks the JSON
    return zarr_codec(plain).from_dict(dict(data))


def _values(codec: Any) -> dict[str, Any]:
    return {field.name: getattr(codec, field.name) for field in fields(codec)}


def _restored(plain: type[OwnCodec], values: dict[str, Any]) -> Codec:
    return zarr_codec(plain)(**values)


def changed(spec: ArraySpec, encoded: Callable[[ChunkSpec], ChunkSpec]) -> ArraySpec:
    """Return zarr's spec of an encoded chunk."""
    plain = chunk_spec(spec)
    found = encoded(plain)
    if found is plain:
        return spec
    kind = data_type(found.dtype if found.data_type is None else found.data_type)
    return replace(spec, shape=found.shape, dtype=kind, fill_value=found.fill_value)


def _encoded_size(self: Any, input_byte_length: int, _chunk_spec: ArraySpec | None) -> int:
    # zarr's own codecs have this name for the second parameter, and its tests pass it by name
    spec = None if _chunk_spec is None else chunk_spec(_chunk_spec)
    size: int = self.plain.compute_encoded_size(self, input_byte_length, spec)
    return size


class _Adapter:
    """What the three kinds have in common."""

    plain: ClassVar[type[OwnCodec]]

    def __reduce__(self) -> tuple[Any, ...]:
        # by the codec that can be imported: classes of other packages' codecs are not found here
        return _restored, (self.plain, _values(self))

    def evolve_from_array_spec(self: Any, array_spec: ArraySpec) -> Any:
        return self.evolved(chunk_spec(array_spec))

    def resolve_metadata(self: Any, chunk_spec: ArraySpec) -> ArraySpec:
        return changed(chunk_spec, self.encoded_spec)

    def _encode_sync(self, data: Any, spec: ArraySpec) -> Any:
        raise NotImplementedError

    def _decode_sync(self, data: Any, spec: ArraySpec) -> Any:
        raise NotImplementedError

    async def _encode_single(self, chunk_data: Any, chunk_spec: ArraySpec) -> Any:
        return await asyncio.to_thread(self._encode_sync, chunk_data, chunk_spec)

    async def _decode_single(self, chunk_data: Any, chunk_spec: ArraySpec) -> Any:
        return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)


class _BytesBytes(_Adapter, BytesBytesCodec):
    def _encode_sync(self: Any, chunk_bytes: Buffer, spec: ArraySpec) -> Buffer | None:
        with foreign_errors_as(ChunkEncodeError, self.name):
            data = self.encode_bytes(as_bytes(chunk_bytes.as_numpy_array()), chunk_spec(spec))
        return spec.prototype.buffer.from_array_like(as_bytes(data))

    def _decode_sync(self: Any, chunk_bytes: Buffer, spec: ArraySpec) -> Buffer:
        decoded = chunk_spec(spec)
        with foreign_errors_as(ChunkDecodeError, self.name):
            data = self.decode_bytes(as_bytes(chunk_bytes.as_numpy_array()), decoded)
        return spec.prototype.buffer.from_array_like(_aligned(as_bytes(data), decoded.dtype))


class _ArrayArray(_Adapter, ArrayArrayCodec):
    @property
    def dtype(self: Any) -> Any:
        """The stored data type of `cast_value`, which zarr's own codec has as well."""
        return data_type(self.data_type)

    def _encode_sync(self: Any, chunk_array: NDBuffer, spec: ArraySpec) -> NDBuffer | None:
        with foreign_errors_as(ChunkEncodeError, self.name):
            array = self.encode_array(chunk_array.as_numpy_array(), chunk_spec(spec))
        return spec.prototype.nd_buffer.from_ndarray_like(array)

    def _decode_sync(self: Any, chunk_array: NDBuffer, spec: ArraySpec) -> NDBuffer:
        with foreign_errors_as(ChunkDecodeError, self.name):
            array = self.decode_array(chunk_array.as_numpy_array(), chunk_spec(spec))
        return spec.prototype.nd_buffer.from_ndarray_like(array)


class _ArrayBytes(_Adapter, ArrayBytesCodec):
    def _encode_sync(self: Any, chunk_array: NDBuffer, spec: ArraySpec) -> Buffer | None:
        with foreign_errors_as(ChunkEncodeError, self.name):
            data = self.encode_chunk(chunk_array.as_numpy_array(), chunk_spec(spec))
        return spec.prototype.buffer.from_array_like(as_bytes(data))

    def _decode_sync(self: Any, chunk_bytes: Buffer, spec: ArraySpec) -> NDBuffer:
        with foreign_errors_as(ChunkDecodeError, self.name):
            decoded = chunk_spec(spec)
            array = self.decode_chunk(as_bytes(chunk_bytes.as_numpy_array()), decoded)
        if array.dtype.kind in "iufc":
            # codecs of other packages expect the byte order of the spec, which `bytes` produces
            array = array.astype(decoded.dtype, copy=False)
        return spec.prototype.nd_buffer.from_ndarray_like(array)


ADAPTERS = {BytesToBytes: _BytesBytes, ArrayToArray: _ArrayArray, ArrayToBytes: _ArrayBytes}


def _aligned(data: Bytes1D, dtype: Any) -> Bytes1D:
    """Return `data`, copied if its address is not aligned for `dtype`.

    Slices (after a header, for example) begin anywhere; codecs of other packages may rely on
    aligned buffers.
    """
    return data.copy() if data.ctypes.data % dtype.alignment else data
