"""Codecs of zarr and of other packages, as codecs of ours.

`anychunk.codecs` imports this module by name at the first codec that it does not know.
"""

import asyncio
import json
from collections.abc import Buffer as BytesLike
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from zarr.abc.codec import ArrayArrayCodec, BytesBytesCodec, Codec
from zarr.codecs.numcodecs import BZ2, LZ4, LZMA, Blosc, GZip, Zlib, Zstd
from zarr.errors import UnknownCodecError
from zarr.registry import get_codec_class

from anychunk.codecs import libraries, streams
from anychunk.codecs.base import (
    ArrayToArray,
    ArrayToBytes,
    Bytes1D,
    BytesToBytes,
    ChunkSpec,
    as_bytes,
)
from anychunk.codecs.standard import Compressor
from anychunk.errors import AnychunkError, CodecConfigError, UnsupportedError
from anychunk.model.grid import Array
from anychunk.model.index import Json
from anychunk.zarr.core import ArrayConfig, ArraySpec, default_buffer_prototype
from anychunk.zarr.data_types import data_type

type Bounded = Callable[[Bytes1D, int], Bytes1D]

BOUNDED: dict[type, streams.DecodeBounded] = {
    Zstd: streams.decode_zstd_bounded,
    GZip: streams.decode_gzip_bounded,
    BZ2: streams.decode_bzip2_bounded,
    Blosc: streams.decode_blosc_bounded,
    LZ4: streams.decode_lz4_bounded,
}
"""Decoders that replace those of numcodecs."""
LEADING: dict[type, str] = {Zstd: "zstd", GZip: "gzip", BZ2: "bzip2"}
KINDS: dict[type, int] = {
    Zstd: libraries.ZSTD,
    GZip: libraries.GZIP,
    Zlib: libraries.DEFLATE,
    Blosc: libraries.BLOSC,
}


def foreign_codec(document: Any) -> Any:
    """Return the codec that zarr chooses for JSON, as one of ours."""
    codec = zarr_codec_of(document)
    if isinstance(codec, ArrayArrayCodec):
        return ForeignArrayToArray(codec, document)
    if not isinstance(codec, BytesBytesCodec):
        return ForeignArrayToBytes(codec, document)
    if isinstance(codec, LZMA | Zlib) or type(codec) in BOUNDED:
        return ForeignCompressor(codec, document)
    return ForeignBytesToBytes(codec, document)


def zarr_codec_of(document: Any) -> Codec:
    """Return zarr's codec for JSON.

    Raises:
        CodecConfigError: Its configuration is wrong.
        UnsupportedError: No codec of this name is registered.
    """
    name = document["name"]
    try:
        cls = zarr_class(name)
        found = None if cls is None else cls.from_dict(document)
    except AnychunkError:
        raise
    except Exception as e:
        raise CodecConfigError(f"codec {name!r}: {type(e).__name__}: {e}") from e
    if found is None:
        raise UnsupportedError(
            f"codec {name!r} is not registered; install the package that provides it"
        )
    return found


def zarr_class(name: str) -> type[Codec] | None:
    """Return the class that zarr chooses for a codec name; None if it finds none."""
    try:
        return get_codec_class(name)
    except UnknownCodecError:
        return None


def array_spec(spec: ChunkSpec) -> ArraySpec:
    """Return what zarr calls a chunk."""
    return ArraySpec(
        shape=spec.shape,
        dtype=data_type(spec.dtype if spec.data_type is None else spec.data_type),
        fill_value=spec.fill_value,
        config=ArrayConfig.from_dict({}),
        prototype=default_buffer_prototype(),
    )


def chunk_spec(spec: ArraySpec) -> ChunkSpec:
    """Return what zarr describes as a chunk of ours."""
    return ChunkSpec(spec.shape, spec.dtype.to_native_dtype(), spec.fill_value, spec.dtype)


@dataclass(frozen=True)
class Foreign:
    """What the kinds have in common."""

    codec: Any
    document: Any

    def to_dict(self) -> dict[str, Json]:
        return dict(self.document)

    def __hash__(self) -> int:
        return hash(json.dumps(self.document))

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.document["name"])

    def evolved(self, spec: ChunkSpec) -> Self:
        return replace(self, codec=self.codec.evolve_from_array_spec(array_spec(spec)))

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        return chunk_spec(self.codec.resolve_metadata(array_spec(spec)))

    def compute_encoded_size(self, input_byte_length: int, spec: ChunkSpec) -> int:
        return int(self.codec.compute_encoded_size(input_byte_length, array_spec(spec)))

    def _run(self, direction: str, data: Any, spec: ChunkSpec) -> Any:
        """Return what zarr's method makes of an array, or of bytes."""
        full = array_spec(spec)
        buffers = full.prototype
        is_bytes = isinstance(self.codec, BytesBytesCodec) or (
            direction == "decode" and not isinstance(self.codec, ArrayArrayCodec)
        )
        made: Any = (
            buffers.buffer.from_array_like(data)
            if is_bytes
            else buffers.nd_buffer.from_ndarray_like(data)
        )
        run = getattr(self.codec, f"_{direction}_sync", None)
        if run is not None:
            return run(made, full).as_numpy_array()
        # the codec has only an asynchronous method; worker threads have no running event loop
        return asyncio.run(getattr(self.codec, f"_{direction}_single")(made, full)).as_numpy_array()


class ForeignBytesToBytes(Foreign, BytesToBytes):
    """A bytes -> bytes codec of zarr's."""

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        return as_bytes(self._run("encode", data, self.require_spec(spec)))

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        return as_bytes(self._run("decode", data, self.require_spec(spec)))


class ForeignCompressor(ForeignBytesToBytes, Compressor):
    """A compressor of numcodecs, for which we have a decoder."""

    @property
    def kind(self) -> int | None:  # type: ignore[override]
        return next((kind for cls, kind in KINDS.items() if isinstance(self.codec, cls)), None)

    @property
    def is_sized(self) -> bool:  # type: ignore[override]
        return isinstance(self.codec, BZ2)

    @property
    def leading(self) -> str | None:  # type: ignore[override]
        return next((name for cls, name in LEADING.items() if isinstance(self.codec, cls)), None)

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        return streams.decode_bzip2(data, self.require_spec(spec).nbytes, out)

    def decode_bounded(self, data: Bytes1D, most: int, *, is_leading: bool = False) -> Bytes1D:
        codec = self.codec
        if isinstance(codec, LZMA):
            config: dict[str, Any] = dict(codec.codec_config)
            settings = {key: config[key] for key in ("format", "filters") if key in config}
            return streams.decode_lzma_bounded(data, most, is_leading=is_leading, **settings)
        if isinstance(codec, Zlib):
            return streams.decode_zlib_bounded(data, most, is_leading=is_leading)
        return BOUNDED[type(codec)](data, most)


class ForeignArrayToArray(Foreign, ArrayToArray):
    """An array -> array codec of zarr's."""

    def encode_array(self, array: Array, spec: ChunkSpec) -> Array:
        found: Array = self._run("encode", array, spec)
        return found

    def decode_array(self, array: Array, spec: ChunkSpec) -> Array:
        found: Array = self._run("decode", array, spec)
        return found


class ForeignArrayToBytes(Foreign, ArrayToBytes):
    """An array -> bytes codec of zarr's."""

    def encode_chunk(self, array: Array, spec: ChunkSpec) -> BytesLike:
        return as_bytes(self._run("encode", array, spec))

    def decode_chunk(self, data: Bytes1D, spec: ChunkSpec) -> Array:
        found: Array = self._run("decode", data, spec)
        return np.asarray(found)
