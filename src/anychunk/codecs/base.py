'''Base classes for codecs: the public extension point of anychunk for chunk encodings.

A codec is a frozen, keyword-only dataclass that inherits from one of three classes:

- `BytesToBytes`: compressors, checksums, headers; implement `encode_bytes` and `decode_bytes`.
- `ArrayToArray`: filters on values; implement `encode_array` and `decode_array`.
- `ArrayToBytes`: serializers; implement `encode_chunk` and `decode_chunk`.

These hooks take and return numpy arrays and bytes. The base classes add what zarr expects around
them: synchronous and asynchronous methods, strict JSON in both directions, and errors that derive
from `AnychunkError`. A complete codec:

    """`acme.shuffle`, bytes to bytes: the first byte of every element, then every second byte, ...

    Spec:     byte shuffle, as in HDF5 and Blosc.
    JSON:     {"name": "acme.shuffle", "configuration": {"itemsize": 4}}
    Lossless: yes.
    """

    from collections.abc import Buffer
    from dataclasses import dataclass
    from typing import ClassVar

    from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec, v2_filter
    from anychunk.codecs.zarr_core import ArraySpec
    from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError


    @dataclass(frozen=True, kw_only=True)
    class Shuffle(BytesToBytes):
        """Groups the bytes of all elements by their significance."""

        name: ClassVar[str] = "acme.shuffle"
        is_fixed_size = True

        itemsize: int
        """Size of an element in bytes; a key of the JSON configuration, required."""

        def __post_init__(self) -> None:
            if type(self.itemsize) is not int or self.itemsize < 1:
                raise CodecConfigError(f"{self.name}: itemsize {self.itemsize!r}, expected >= 1")

        def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> Buffer:
            if len(data) % self.itemsize:
                raise ChunkEncodeError(f"{self.name}: {len(data)} bytes, not whole elements")
            return data.reshape(-1, self.itemsize).T

        def decode_bytes(
            self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
        ) -> Buffer:
            if len(data) % self.itemsize:
                raise ChunkDecodeError(f"{self.name}: {len(data)} bytes, not a multiple")
            return data.reshape(self.itemsize, -1).T

        def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
            return input_byte_length


    ShuffleV2 = v2_filter(Shuffle)  # optional: the same codec for Zarr v2

Register it in the packaging metadata of its distribution, under the name used in the JSON:

    [project.entry-points."zarr.codecs"]
    "acme.shuffle" = "acme.shuffle:Shuffle"

    [project.entry-points."anychunk.codecs"]
    "acme.shuffle" = "acme.shuffle:Shuffle"

    [project.entry-points."numcodecs.codecs"]
    "acme.shuffle" = "acme.shuffle:ShuffleV2"

zarr finds the codec through the first group. The second adds it to `anychunk codecs` and to
`anychunk.enable()`. Test it with `anychunk.testing.codecs.CodecContract`.

**Configuration.** Every dataclass field is a key of the JSON configuration. A field with a default
is an optional key, and is left out of the JSON while it has that default; a field without one is
required. Unknown and missing keys are refused. Values must be what `json` reads and writes; where
the field holds something else, override `parse_configuration` (JSON to field values) and
`configuration` (field values to JSON). A `runtime_field` is an option of the running process that
never appears in the JSON. Check values in `__post_init__` and raise `CodecConfigError`; call
`self.check_schema()` there if a JSON schema is shipped with the codec (see `schema`).

**Checks against the array.** zarr calls `validate(shape=..., dtype=..., chunk_grid=...)` when an
array is created or opened: override it to refuse arrays that the codec cannot store. `dtype` is
zarr's data type, of the array as a whole: a codec that follows one that changes the data
type checks in `evolve_from_array_spec(array_spec)` instead, which receives the type at that point
of the chain, and returns the codec. An array -> array codec that changes the shape, the data type
or the fill value says so in `resolve_metadata(chunk_spec)`, by returning the changed spec.

**Errors.** Hooks raise `ChunkDecodeError` or `ChunkEncodeError`, or another `AnychunkError`. Any
other exception, except `MemoryError`, is turned into one of these two, with its cause; but one that
is raised by anychunk's own code, a codec of this package included, becomes an `InternalError`. So
check the length of the data before numpy does.

**Threads.** Hooks run on several threads at once: keep no state in the codec.
'''

from __future__ import annotations

import json
import math
from abc import ABC
from collections.abc import Buffer as BytesLike
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache, lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from anychunk._after_import import after_import
from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    ChunkEncodeError,
    CodecConfigError,
    defect,
    is_defect,
)

if TYPE_CHECKING:
    from numcodecs.abc import Codec as NumcodecsCodec
    from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec

    from anychunk.codecs.zarr_core import ArraySpec, Buffer, NDBuffer
else:
    # zarr and numcodecs take longer to import than all codecs together, and parsing a file or
    # printing its index needs neither. When one of them is imported, by whomever, its classes
    # become the bases of ours: `_inherit_from_zarr`, `_inherit_from_numcodecs`.

    class _WithoutZarr:
        """Stands for a class of zarr."""

    class NumcodecsCodec(ABC):  # noqa: B024
        """Stands for the class of numcodecs, with its metaclass."""

    ArrayArrayCodec = ArrayBytesCodec = BytesBytesCodec = _WithoutZarr

type Json = Any
type Array = npt.NDArray[Any]
type Bytes1D = npt.NDArray[np.uint8]
"""Bytes as a flat uint8 array, possibly read-only."""


@dataclass(frozen=True, eq=False)
class ChunkSpec:
    """Describes the chunk that a hook encodes or decodes."""

    shape: tuple[int, ...]
    """Shape of the decoded chunk."""
    dtype: np.dtype[Any]
    """Data type of the decoded chunk, in the byte order that zarr expects."""
    fill_value: Any = 0
    """Fill value of the array, as the codec sees it."""

    @property
    def nbytes(self) -> int:
        """Size of the decoded chunk in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@lru_cache(maxsize=256)
def chunk_spec(spec: ArraySpec) -> ChunkSpec:
    """Return the `ChunkSpec` for zarr's spec of a chunk."""
    return ChunkSpec(spec.shape, spec.dtype.to_native_dtype(), spec.fill_value)


def as_bytes(data: BytesLike | Array) -> Bytes1D:
    """Return a flat uint8 view of `data`; only arrays that are not C-contiguous are copied."""
    if isinstance(data, np.ndarray):
        if data.dtype == np.uint8 and data.ndim == 1 and data.flags.c_contiguous:
            return data
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)


def in_memory_order(data: BytesLike | Array) -> Array:
    """Return what Zarr v2 gives a filter as a flat array, in the order of its memory.

    A chunk of an array with `"order": "F"` is in Fortran order, and is stored in that order.
    """
    array = data if isinstance(data, np.ndarray) else as_bytes(data)
    return array.reshape(-1, order="A")


def as_aligned(data: Bytes1D, dtype: np.dtype[Any]) -> Bytes1D:
    """Return `data`, copied if its address is not aligned for `dtype`.

    Slices (behind a header, for example) begin anywhere; codecs of other packages may rely on
    aligned buffers.
    """
    return data.copy() if data.ctypes.data % dtype.alignment else data


def runtime_field(default: Any = None) -> Any:
    """Declare an option of the running process: never written to JSON and not compared."""
    return field(default=default, compare=False, repr=False, metadata={"runtime": True})


@contextmanager
def _foreign_errors_as(error: type[AnychunkError], name: str) -> Iterator[None]:
    """Re-raise exceptions of libraries as `error`, with the codec's name; report defects."""
    try:
        yield
    except (AnychunkError, MemoryError):
        raise
    except Exception as e:
        if is_defect(e):
            raise defect(e, name) from e
        raise error(f"{name}: {str(e) or type(e).__name__}") from e


@lru_cache(maxsize=32)
def schema(name: str, package: str = "anychunk.codecs") -> dict[str, Json]:
    """Return the JSON schema of a codec, from the file `schemas/NAME.json` of `package`.

    The schema describes the whole codec object, `{"name": ..., "configuration": ...}`.
    """
    text = resources.files(package).joinpath("schemas", f"{name}.json").read_text("utf-8")
    return cast("dict[str, Json]", json.loads(text))


class _CodecBase:
    """Shared by the three kinds of codecs: JSON in both directions, and asynchronous methods."""

    name: ClassVar[str]
    """Name of the codec in JSON, which is also the name of its entry points."""
    is_fixed_size: bool = False
    """Whether the encoded size follows from the decoded size."""
    schema_package: ClassVar[str] = "anychunk.codecs"
    """Package whose `schemas` folder holds the JSON schema that `check_schema` reads."""

    @classmethod
    @cache  # `dataclasses.fields` takes longer than the rest of parsing a configuration
    def json_fields(cls) -> tuple[Field[Any], ...]:
        """Return the dataclass fields that are keys of the JSON configuration."""
        declared = fields(cast("Any", cls))
        return tuple(f for f in declared if not f.metadata.get("runtime"))

    @classmethod
    def parse_configuration(cls, configuration: Mapping[str, Json]) -> dict[str, Any]:
        """Return constructor arguments for a JSON configuration; override to convert values."""
        return dict(configuration)

    def configuration(self) -> dict[str, Json]:
        """Return the JSON configuration, without defaults; override to convert values."""
        return {
            f.name: getattr(self, f.name)
            for f in self.json_fields()
            if f.default is MISSING or getattr(self, f.name) != f.default
        }

    def check_schema(self) -> None:
        """Check the configuration against the codec's JSON schema; for use in `__post_init__`.

        Raises:
            CodecConfigError: the first violation, with its key.
        """
        import jsonschema  # slow to import, and needed only when a codec is built

        expected = schema(self.name, self.schema_package)["properties"]["configuration"]
        validator = jsonschema.Draft202012Validator(expected)
        for error in validator.iter_errors(self.configuration()):
            place = ".".join(str(part) for part in error.absolute_path)
            raise CodecConfigError(f"{self.name}: {place and place + ': '}{error.message}")

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Json]) -> Self:
        """Build the codec from its JSON configuration, after checking the keys."""
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
        """Build the codec from its JSON object, or from its name alone."""
        if isinstance(data, str):
            data = {"name": data}
        if data.get("name") != cls.name:
            raise CodecConfigError(
                f"{cls.name}: name is {data.get('name')!r}, expected {cls.name!r}"
            )
        extra = sorted(set(data) - {"name", "configuration", "must_understand"})
        if extra:
            raise CodecConfigError(f"{cls.name}: unknown key {extra[0]!r} next to 'configuration'")
        if not isinstance(data.get("must_understand", True), bool):
            raise CodecConfigError(
                f"{cls.name}: must_understand is {data['must_understand']!r}, expected a boolean"
            )
        configuration = data.get("configuration", {})
        if not isinstance(configuration, Mapping):
            raise CodecConfigError(
                f"{cls.name}: configuration is {type(configuration).__name__}, expected an object"
            )
        return cls.from_configuration(configuration)

    def to_dict(self) -> dict[str, Json]:
        """Return the JSON object of the codec."""
        configuration = self.configuration()
        if not configuration:
            return {"name": self.name}
        return {"name": self.name, "configuration": configuration}

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Return the encoded size; override it if `is_fixed_size` is true."""
        raise NotImplementedError(f"{self.name}: the encoded size is known only after encoding")

    def _encode_sync(self, data: Any, spec: ArraySpec) -> Any:
        raise NotImplementedError

    def _decode_sync(self, data: Any, spec: ArraySpec) -> Any:
        raise NotImplementedError

    async def _encode_single(self, chunk_data: Any, chunk_spec: ArraySpec) -> Any:
        import asyncio

        return await asyncio.to_thread(self._encode_sync, chunk_data, chunk_spec)

    async def _decode_single(self, chunk_data: Any, chunk_spec: ArraySpec) -> Any:
        import asyncio

        return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)


class BytesToBytes(_CodecBase, BytesBytesCodec):
    """Base of bytes -> bytes codecs: compressors, checksums, headers.

    Set `is_fixed_size` to whether the encoded size follows from the decoded size.

    A codec that directly follows little-endian `bytes`, and is the last of its chain, may define
    more methods. The first two skip the pass that would interpret decoded bytes as an array:

    - `decode_view(data, spec, scratch) -> array` decodes to an array of `spec.shape` and
      `spec.dtype` in any memory layout. The array may live in `scratch`, a buffer like
      `out` in `decode_bytes`.
    - `decode_into(data, spec, target, scratch) -> bool` decodes straight into `target`, an array
      of `spec.shape` and `spec.dtype` with any strides. It returns False, with `target` unchanged,
      for chunks that it does not handle; these are then decoded the ordinary way. If the codec has
      `takes_cropped = True`, the last two axes of `target` may be shorter than those of the chunk,
      whose first rows and columns it then takes.
    - `decode_part(data, spec, rows, columns) -> array | None` decodes only a part of a large chunk,
      given as ranges along the last two axes; None if decoding the chunk whole is as cheap.
    """

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        """Return the encoded bytes.

        Parameters:
            data: the bytes to encode; must not be changed.
            spec: the chunk; None in Zarr v2, which does not describe chunks to codecs.
        """
        raise NotImplementedError

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        """Return the decoded bytes.

        Parameters:
            data: the bytes to decode, which may be damaged; must not be changed.
            spec: the chunk; None in Zarr v2. `spec.nbytes` is the decoded size only for the first
                bytes -> bytes codec of a chain.
            out: a writable buffer of the decoded size, which may be filled and returned instead of
                allocating a new one.
        """
        raise NotImplementedError

    def require_spec(self, spec: ChunkSpec | None) -> ChunkSpec:
        """Return `spec`, for decoders that need the size of the chunk; refuse Zarr v2."""
        if spec is None:
            raise ChunkDecodeError(
                f"{self.name}: cannot decode without the shape and data type; use Zarr v3"
            )
        return spec

    def _encode_sync(self, chunk_bytes: Buffer, spec: ArraySpec) -> Buffer | None:
        with _foreign_errors_as(ChunkEncodeError, self.name):
            data = self.encode_bytes(as_bytes(chunk_bytes.as_numpy_array()), chunk_spec(spec))
        return spec.prototype.buffer.from_array_like(as_bytes(data))

    def _decode_sync(self, chunk_bytes: Buffer, spec: ArraySpec) -> Buffer:
        decoded = chunk_spec(spec)
        with _foreign_errors_as(ChunkDecodeError, self.name):
            data = self.decode_bytes(as_bytes(chunk_bytes.as_numpy_array()), decoded)
        return spec.prototype.buffer.from_array_like(as_aligned(as_bytes(data), decoded.dtype))


class ArrayToArray(_CodecBase, ArrayArrayCodec):
    """Base of array -> array codecs: filters on values.

    `spec` describes the decoded chunk in both hooks. An encoded chunk of another data type or shape
    is announced by overriding `resolve_metadata` and, if its size differs, `compute_encoded_size`.
    """

    is_fixed_size = True

    def encode_array(self, array: Array, spec: ChunkSpec) -> Array:
        """Return the encoded array.

        Parameters:
            array: in either byte order, with any strides, possibly read-only; must not be changed.
            spec: the chunk.
        """
        raise NotImplementedError

    def decode_array(self, array: Array, spec: ChunkSpec) -> Array:
        """Return an array of `spec.shape` and `spec.dtype`; `array` must not be changed."""
        raise NotImplementedError

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Return the encoded size: that of the decoded chunk, unless overridden."""
        return input_byte_length

    def _encode_sync(self, chunk_array: NDBuffer, spec: ArraySpec) -> NDBuffer | None:
        with _foreign_errors_as(ChunkEncodeError, self.name):
            array = self.encode_array(chunk_array.as_numpy_array(), chunk_spec(spec))
        return spec.prototype.nd_buffer.from_ndarray_like(array)

    def _decode_sync(self, chunk_array: NDBuffer, spec: ArraySpec) -> NDBuffer:
        with _foreign_errors_as(ChunkDecodeError, self.name):
            array = self.decode_array(chunk_array.as_numpy_array(), chunk_spec(spec))
        return spec.prototype.nd_buffer.from_ndarray_like(array)


class ArrayToBytes(_CodecBase, ArrayBytesCodec):
    """Base of array -> bytes codecs: serializers.

    Set `is_fixed_size` to whether the encoded size follows from the decoded size.
    """

    def encode_chunk(self, array: Array, spec: ChunkSpec) -> BytesLike:
        """Return the encoded bytes; `array` has any layout, as in `ArrayToArray.encode_array`."""
        raise NotImplementedError

    def decode_chunk(self, data: Bytes1D, spec: ChunkSpec) -> Array:
        """Return an array of `spec.shape` and `spec.dtype`, in either byte order."""
        raise NotImplementedError

    def _encode_sync(self, chunk_array: NDBuffer, spec: ArraySpec) -> Buffer | None:
        with _foreign_errors_as(ChunkEncodeError, self.name):
            data = self.encode_chunk(chunk_array.as_numpy_array(), chunk_spec(spec))
        return spec.prototype.buffer.from_array_like(as_bytes(data))

    def _decode_sync(self, chunk_bytes: Buffer, spec: ArraySpec) -> NDBuffer:
        with _foreign_errors_as(ChunkDecodeError, self.name):
            decoded = chunk_spec(spec)
            array = self.decode_chunk(as_bytes(chunk_bytes.as_numpy_array()), decoded)
        if array.dtype.kind in "iufc":
            # codecs of other packages expect the byte order of the spec, which `bytes` produces
            array = array.astype(decoded.dtype, copy=False)
        return spec.prototype.nd_buffer.from_ndarray_like(array)


class BytesFilter(NumcodecsCodec):  # type: ignore[misc]
    """A bytes -> bytes codec as a numcodecs codec, for Zarr v2; made by `v2_filter`."""

    codec: ClassVar[type[BytesToBytes]]

    def __init__(self, **options: Json) -> None:
        self.inner = self.codec(**options)

    def encode(self, buf: BytesLike) -> Bytes1D:
        with _foreign_errors_as(ChunkEncodeError, self.inner.name):
            return as_bytes(self.inner.encode_bytes(as_bytes(in_memory_order(buf)), None))

    def decode(self, buf: BytesLike, out: BytesLike | None = None) -> BytesLike:
        with _foreign_errors_as(ChunkDecodeError, self.inner.name):
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


def _viewed(array: Array, dtype: np.dtype[Any], error: type[AnychunkError], name: str) -> Array:
    if array.nbytes % dtype.itemsize:
        raise error(f"{name}: {array.nbytes} bytes, expected a multiple of {dtype.itemsize}")
    return array.view(dtype)


class ArrayFilter(NumcodecsCodec):  # type: ignore[misc]
    """An array -> array codec as a numcodecs codec, for Zarr v2; made by `v2_array_filter`."""

    codec: ClassVar[type[ArrayToArray]]
    encoded_dtype: ClassVar[Callable[[Any, np.dtype[Any]], np.dtype[Any]]]

    def __init__(self, *, dtype: npt.DTypeLike, **options: Json) -> None:
        self._set(dtype, self.codec(**options))

    def _set(self, dtype: npt.DTypeLike, inner: ArrayToArray) -> None:
        try:
            self.dtype = np.dtype(dtype)
        except (TypeError, ValueError) as e:
            raise CodecConfigError(f"{self.codec_id}: dtype {dtype!r}: {e}") from e
        self.inner = inner

    def _spec(self, shape: tuple[int, ...]) -> ChunkSpec:
        return ChunkSpec(shape, self.dtype)

    def encode(self, buf: Any) -> Array:
        with _foreign_errors_as(ChunkEncodeError, self.inner.name):
            array = in_memory_order(buf)
            if array.dtype != self.dtype:
                array = _viewed(array, self.dtype, ChunkEncodeError, self.inner.name)
            result = self.inner.encode_array(array, self._spec(array.shape))
        is_contiguous = result.flags.c_contiguous or result.flags.f_contiguous
        return result if is_contiguous else np.ascontiguousarray(result)

    def decode(self, buf: BytesLike, out: BytesLike | None = None) -> Any:
        with _foreign_errors_as(ChunkDecodeError, self.inner.name):
            dtype = type(self).encoded_dtype(self.inner, self.dtype)
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
        made._set(rest.pop("dtype"), cls.codec.from_configuration(rest))  # noqa: SLF001 - its own class
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dtype={self.dtype.str!r}, {self.inner!r})"


def v2_filter(codec: type[BytesToBytes]) -> type[BytesFilter]:
    """Return the numcodecs class of a bytes -> bytes codec, for Zarr v2 `filters`.

    Its `id` is the name of the codec, and its other keys are those of the configuration. List it
    under `numcodecs.codecs` in the packaging metadata. Its hooks get None for `spec`.
    """
    name = f"{codec.__name__}V2"
    body = {"codec_id": codec.name, "codec": codec, "__module__": codec.__module__}
    return type(name, (BytesFilter,), body)


def v2_array_filter(
    codec: type[ArrayToArray],
    encoded_dtype: Callable[[Any, np.dtype[Any]], np.dtype[Any]] = lambda _, dtype: dtype,
) -> type[ArrayFilter]:
    """Return the numcodecs class of an array -> array codec, for Zarr v2 `filters`.

    Zarr v2 gives a filter bytes without their data type, so the configuration has one more key than
    in Zarr v3: `dtype`, the numpy type string of the decoded array.

    Parameters:
        codec: the class of the codec.
        encoded_dtype: returns the dtype that a codec object stores for a decoded dtype; by default
            the same one.
    """
    body = {
        "codec_id": codec.name,
        "codec": codec,
        "encoded_dtype": staticmethod(encoded_dtype),
        "__module__": codec.__module__,
    }
    return type(f"{codec.__name__}V2", (ArrayFilter,), body)


def _inherit_from_zarr() -> None:
    from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec

    BytesToBytes.__bases__ = (_CodecBase, BytesBytesCodec)
    ArrayToArray.__bases__ = (_CodecBase, ArrayArrayCodec)
    ArrayToBytes.__bases__ = (_CodecBase, ArrayBytesCodec)


def _inherit_from_numcodecs() -> None:
    from numcodecs.abc import Codec

    BytesFilter.__bases__ = (Codec,)
    ArrayFilter.__bases__ = (Codec,)


after_import("zarr", _inherit_from_zarr)
after_import("numcodecs", _inherit_from_numcodecs)
