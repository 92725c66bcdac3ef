"""Zarr's own codecs, with which most arrays are stored, without zarr.

Spec:     Zarr v3 core and zarr-specs/codecs: bytes, transpose, gzip, zstd, blosc, crc32c,
          sharding_indexed.

zarr uses its own classes. These encode and decode the same bytes.
"""

import math
from collections.abc import Buffer as BytesLike
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self, cast

import numpy as np

from anychunk import limits
from anychunk.codecs import libraries, streams
from anychunk.codecs.base import ArrayToArray, ArrayToBytes, Bytes1D, BytesToBytes, ChunkSpec
from anychunk.codecs.base import as_bytes as flat
from anychunk.errors import ChunkDecodeError, CodecConfigError
from anychunk.io import buffers, copying
from anychunk.model.grid import Array, cut_box, grid_shape

NOTHING = np.iinfo(np.uint64).max
"""Offset and length of an inner chunk that a shard does not have."""


@dataclass(frozen=True, kw_only=True)
class Bytes(ArrayToBytes):
    """Elements in C order."""

    name: ClassVar[str] = "bytes"

    endian: str | None = None
    """Byte order; None for elements of one byte."""

    def __post_init__(self) -> None:
        if self.endian not in ("little", "big", None):
            raise CodecConfigError(f"bytes: endian {self.endian!r}, expected little or big")

    def evolved(self, spec: ChunkSpec) -> Self:
        dtype = spec.dtype
        if dtype.kind in "OT" or dtype.itemsize == 1 or dtype.newbyteorder("S") == dtype:
            return self if self.endian is None else replace(self, endian=None)
        if self.endian is None and dtype.names:
            return replace(self, endian="little")
        if self.endian is None:
            raise CodecConfigError(f"bytes: endian is missing, which {dtype} needs")
        return self

    def encode_chunk(self, array: Array, spec: ChunkSpec) -> BytesLike:
        dtype = array.dtype
        if self.endian is not None:
            dtype = dtype.newbyteorder(cast("Any", self.endian))
        if array.dtype == dtype and array.flags.c_contiguous:
            return flat(array.reshape(-1))
        stored = buffers.aligned(array.size * dtype.itemsize)
        copying.assign(stored.view(dtype).reshape(array.shape), array)
        return stored

    def decode_chunk(self, data: Bytes1D, spec: ChunkSpec) -> Array:
        dtype = spec.dtype
        if self.endian is not None:
            dtype = dtype.newbyteorder(cast("Any", self.endian))
        expected = math.prod(spec.shape) * dtype.itemsize
        if len(data) != expected:
            raise ChunkDecodeError(
                f"bytes: {len(data)} bytes, expected {expected} for shape {spec.shape}"
            )
        return data.view(dtype).reshape(spec.shape)


@dataclass(frozen=True, kw_only=True)
class Transpose(ArrayToArray):
    """Axes in another order."""

    name: ClassVar[str] = "transpose"

    order: Sequence[int]
    """Which axis of the array each stored axis is."""

    def __post_init__(self) -> None:
        order = self.order if isinstance(self.order, list | tuple) else ()
        if not order or sorted(order, key=str) != sorted(range(len(order)), key=str):
            raise CodecConfigError(f"transpose: order {self.order!r}, expected a permutation")
        object.__setattr__(self, "order", tuple(order))

    def evolved(self, spec: ChunkSpec) -> Self:
        if len(self.order) != len(spec.shape):
            raise CodecConfigError(
                f"transpose: order {self.order}, expected {len(spec.shape)} axes"
            )
        return self

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        return replace(spec, shape=tuple(spec.shape[axis] for axis in self.order))

    def encode_array(self, array: Array, spec: ChunkSpec) -> Array:
        return array.transpose(self.order)

    def decode_array(self, array: Array, spec: ChunkSpec) -> Array:
        return array.transpose(np.argsort(self.order))


class Compressor(BytesToBytes):
    """Base class of general-purpose compressors."""

    kind: ClassVar[int | None] = None
    """The number of the compression in the compiled loop, if that decodes it."""
    leading: ClassVar[str | None] = None
    """Its name in `leading_streams`, if that finds the end of a stream."""
    is_sized: ClassVar[bool] = True
    """Whether `decode_bytes` takes the size of the chunk; else `decode_bounded` does all."""

    def decode_bounded(self, data: Bytes1D, most: int, *, is_leading: bool) -> Bytes1D:
        """Decode to at most so many bytes, where the size is unknown, as between two filters."""
        raise NotImplementedError


def most_decoded(spec: ChunkSpec) -> int:
    """Return how many bytes a compressor may have encoded whose input has no known size.

    Filters may enlarge a chunk, and strings have any length; what is too long shows up later.
    """
    has_objects = spec.dtype.kind in "OT"
    return 16 * spec.nbytes + (limits.get().free_bytes if has_objects else 1 << 20)


@dataclass(frozen=True, kw_only=True)
class Zstd(Compressor):
    """Zstandard."""

    name: ClassVar[str] = "zstd"
    kind = libraries.ZSTD
    leading = "zstd"

    level: int = 0
    checksum: bool = False

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        if self.checksum:
            found: BytesLike = foreign(self.to_dict()).encode_bytes(data, spec)
            return found
        return streams.encode_zstd(data, self.level)

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        return streams.decode_zstd(data, self.require_spec(spec).nbytes, out)

    def decode_bounded(self, data: Bytes1D, most: int, *, is_leading: bool) -> Bytes1D:
        return streams.decode_zstd_bounded(data, most)


@dataclass(frozen=True, kw_only=True)
class Gzip(Compressor):
    """Gzip."""

    name: ClassVar[str] = "gzip"
    kind = libraries.GZIP
    leading = "gzip"

    level: int = 5

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        return streams.encode_gzip(data, self.level)

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        return streams.decode_gzip(data, self.require_spec(spec).nbytes, out)

    def decode_bounded(self, data: Bytes1D, most: int, *, is_leading: bool) -> Bytes1D:
        return streams.decode_gzip_bounded(data, most)


@dataclass(frozen=True, kw_only=True)
class Blosc(Compressor):
    """Blosc."""

    name: ClassVar[str] = "blosc"
    kind = libraries.BLOSC

    typesize: int | None = None
    cname: str = "zstd"
    clevel: int = 5
    shuffle: str | None = None
    blocksize: int = 0

    def evolved(self, spec: ChunkSpec) -> Self:
        # what zarr chooses where the metadata leave it open
        typesize = self.typesize or spec.dtype.itemsize
        usual = "bitshuffle" if spec.dtype.itemsize == 1 else "shuffle"
        return replace(self, typesize=typesize, shuffle=self.shuffle or usual)

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        return streams.encode_blosc(
            data,
            self.clevel,
            compressor=self.cname,
            shuffle=("noshuffle", "shuffle", "bitshuffle").index(self.shuffle or "bitshuffle"),
            typesize=self.typesize or 1,
            blocksize=self.blocksize,
        )

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        return streams.decode_blosc(data, self.require_spec(spec).nbytes, out)

    def decode_bounded(self, data: Bytes1D, most: int, *, is_leading: bool) -> Bytes1D:
        return streams.decode_blosc_bounded(data, most)


@dataclass(frozen=True, kw_only=True)
class Crc32c(BytesToBytes):
    """A checksum after the bytes."""

    name: ClassVar[str] = "crc32c"
    is_fixed_size = True

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        return np.concatenate([data, np.array([crc32c(data)], "<u4").view(np.uint8)])

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        if len(data) < 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:].tobytes(), "little"):
            raise ChunkDecodeError(
                "crc32c: the stored checksum differs from the checksum of the bytes"
            )
        return data[:-4]

    def compute_encoded_size(self, input_byte_length: int, spec: ChunkSpec) -> int:
        return input_byte_length + 4


def crc32c(data: Bytes1D) -> int:
    """Return the CRC-32C of bytes."""
    import google_crc32c

    return int(google_crc32c.value(data.tobytes()))


@dataclass(frozen=True, kw_only=True)
class Sharding(ArrayToBytes):
    """Shards: chunks in a chunk, with an index of them."""

    name: ClassVar[str] = "sharding_indexed"

    chunk_shape: tuple[int, ...]
    codecs: Sequence[Any] = ({"name": "bytes", "configuration": {"endian": "little"}},)
    index_codecs: Sequence[Any] = (
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "crc32c"},
    )
    index_location: str = "end"

    def __post_init__(self) -> None:
        shape = self.chunk_shape
        if not isinstance(shape, list | tuple) or not all(type(n) is int and n > 0 for n in shape):
            raise CodecConfigError(f"sharding_indexed: chunk_shape {shape!r}, expected sizes")
        object.__setattr__(self, "chunk_shape", tuple(shape))
        if self.index_location not in ("start", "end"):
            raise CodecConfigError(
                f"sharding_indexed: index_location {self.index_location!r}, expected start or end"
            )
        for key in ("codecs", "index_codecs"):
            given = getattr(self, key)
            if not isinstance(given, list | tuple) or not given:
                raise CodecConfigError(f"sharding_indexed: {key} {given!r:.100}, expected a list")
            named = tuple({"name": c} if isinstance(c, str) else c for c in given)
            object.__setattr__(self, key, named)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in self.json_fields()}

    def __hash__(self) -> int:
        return hash((self.chunk_shape, repr(self.codecs), self.index_location))

    def evolved(self, spec: ChunkSpec) -> Self:
        if len(self.chunk_shape) != len(spec.shape) or any(
            n % m for n, m in zip(spec.shape, self.chunk_shape, strict=True)
        ):
            raise CodecConfigError(
                f"sharding_indexed: chunk_shape {self.chunk_shape} does not divide {spec.shape}"
            )
        return self

    @cached_property
    def inner(self) -> tuple[Any, ...]:
        """The codecs of inner chunks."""
        return _chain(self.codecs)

    @cached_property
    def index(self) -> tuple[Any, ...]:
        """The codecs of the index."""
        return _chain(self.index_codecs)

    def encode_chunk(self, array: Array, spec: ChunkSpec) -> BytesLike:
        found: BytesLike = foreign(self.to_dict()).encode_chunk(array, spec)
        return found

    def decode_chunk(self, data: Bytes1D, spec: ChunkSpec) -> Array:
        from anychunk.codecs.chain import Decoder

        grid = grid_shape(spec.shape, self.chunk_shape)
        entries = ChunkSpec((*grid, 2), np.dtype("u8"), NOTHING)
        decode = Decoder(self.index, entries)
        nbytes = entries.nbytes
        for codec in self.index[1:]:
            nbytes = codec.compute_encoded_size(nbytes, entries)
        limits.check_chunk(nbytes, where="index of a shard", stored=len(data))
        if len(data) < nbytes:
            raise ChunkDecodeError(f"sharding_indexed: {len(data)} bytes, the index has {nbytes}")
        stored = data[:nbytes] if self.index_location == "start" else data[len(data) - nbytes :]
        table = decode(stored)
        decode = Decoder(self.inner, replace(spec, shape=self.chunk_shape))
        out = np.empty(spec.shape, spec.dtype)
        for coords, piece in cut_box(
            (0,) * len(grid), spec.shape, chunk_shape=self.chunk_shape, shape=spec.shape
        ):
            offset, length = map(int, table[coords])
            if offset == length == NOTHING:
                out[piece.target] = spec.fill_value
                continue
            if offset + length > len(data):
                raise ChunkDecodeError(
                    f"sharding_indexed: inner chunk {coords} at {offset}..{offset + length}, "
                    f"the shard has {len(data)} bytes"
                )
            out[piece.target] = decode(data[offset : offset + length])[piece.source]
        return out


CODECS: dict[str, type[BytesToBytes | ArrayToArray | ArrayToBytes]] = {
    cls.name: cls for cls in (Bytes, Transpose, Zstd, Gzip, Blosc, Crc32c, Sharding)
}


def _chain(documents: Sequence[Any]) -> tuple[Any, ...]:
    from anychunk.codecs import from_json

    return tuple(from_json(document) for document in documents)


def foreign(document: Any) -> Any:
    """Return zarr's codec for JSON, for what these do not do."""
    from anychunk.codecs import foreign_codec

    return foreign_codec(document)
