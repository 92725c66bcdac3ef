'''Base classes for codecs: the public extension point of anychunk for chunk encodings.

A codec is a frozen, keyword-only dataclass that inherits from one of three classes:

- `BytesToBytes`: compressors, checksums, headers; implement `encode_bytes` and `decode_bytes`.
- `ArrayToArray`: filters on values; implement `encode_array` and `decode_array`.
- `ArrayToBytes`: serializers; implement `encode_chunk` and `decode_chunk`.

These hooks take and return numpy arrays and bytes. The base classes add strict JSON in both
directions, and do not import zarr: `anychunk.zarr.codecs.zarr_codec` makes zarr's class of a codec,
with synchronous and asynchronous methods, and errors that derive from `AnychunkError`. A complete
codec:

    """`acme.shuffle`, bytes to bytes: the first byte of every element, then every second byte, ...

    Spec:     byte shuffle, as in HDF5 and Blosc.
    JSON:     {"name": "acme.shuffle", "configuration": {"itemsize": 4}}
    Lossless: yes.
    """

    from collections.abc import Buffer
    from dataclasses import dataclass
    from typing import Any, ClassVar

    from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
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

        def compute_encoded_size(self, input_byte_length: int, spec: ChunkSpec) -> int:
            return input_byte_length

Make zarr's classes in a second module, `acme.zarr`, because this one imports zarr:

    """The codecs of acme as zarr's codecs and Zarr v2 filters."""

    from acme import shuffle
    from anychunk.zarr.codecs import zarr_codec
    from anychunk.zarr.filters import v2_filter

    Shuffle = zarr_codec(shuffle.Shuffle)
    ShuffleV2 = v2_filter(shuffle.Shuffle)  # optional: the same codec for Zarr v2

Register them in the packaging metadata of the distribution, under the name used in the JSON:

    [project.entry-points."anychunk.codecs"]
    "acme.shuffle" = "acme.shuffle:Shuffle"

    [project.entry-points."zarr.codecs"]
    "acme.shuffle" = "acme.zarr:Shuffle"

    [project.entry-points."numcodecs.codecs"]
    "acme.shuffle" = "acme.zarr:ShuffleV2"

anychunk finds the codec through the first group, and lists it in `anychunk codecs`; zarr finds it
through the second. `acme.zarr.Shuffle` is the class to use with zarr:
`zarr.create_array(..., compressors=[Shuffle(itemsize=4)])`. Test the codec with
`anychunk.testing.codecs.CodecContract`.

**Configuration.** Every dataclass field is a key of the JSON configuration. A field with a default
is an optional key, and is left out of the JSON while it has that default; a field without one is
required. Unknown and missing keys are refused. Values must be what `json` reads and writes; where
the field holds something else, override `parse_configuration` (JSON to field values) and
`configuration` (field values to JSON). A `runtime_field` is an option of the running process that
never appears in the JSON. Check values in `__post_init__` and raise `CodecConfigError`; call
`self.check_schema()` there if a JSON schema is shipped with the codec (see `schema`).

**Checks against the array.** `evolved(spec)` is called when an array is created or opened, with
the spec of a chunk at that point of the chain: override it to refuse chunks that the codec cannot
store; it returns the codec. An array -> array codec that changes the shape, the data type or the
fill value says so in `encoded_spec(spec)`, by returning the changed spec.

**Errors.** Hooks raise `ChunkDecodeError` or `ChunkEncodeError`, or another `AnychunkError`. Any
other exception, except `MemoryError`, is turned into one of these two, with its cause; but one that
is raised by anychunk's own code, a codec of this package included, becomes an `InternalError`. So
check the length of the data before numpy does.

**Threads.** Hooks run on several threads at once: keep no state in the codec.
'''

from __future__ import annotations

import json
import math
from collections.abc import Buffer as BytesLike
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache, lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    CodecConfigError,
    defect,
    is_defect,
)

if TYPE_CHECKING:
    from anychunk.model.grid import Array
    from anychunk.model.index import Json

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
    data_type: Any = None
    """The data type as zarr has it, where `dtype` does not tell: strings of any length."""

    @property
    def nbytes(self) -> int:
        """Size of the decoded chunk in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def as_bytes(data: BytesLike | Array) -> Bytes1D:
    """Return a flat uint8 view of `data`; only arrays that are not C-contiguous are copied."""
    if isinstance(data, np.ndarray):
        if data.dtype == np.uint8 and data.ndim == 1 and data.flags.c_contiguous:
            return data
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)


def runtime_field(default: Any = None) -> Any:
    """Declare an option of the running process: never written to JSON and not compared."""
    return field(default=default, compare=False, repr=False, metadata={"runtime": True})


@contextmanager
def foreign_errors_as(error: type[AnychunkError], name: str) -> Iterator[None]:
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
    """Shared by the three kinds of codecs: JSON in both directions, and what zarr asks a codec."""

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

    def compute_encoded_size(self, input_byte_length: int, spec: ChunkSpec) -> int:
        """Return the encoded size; override it if `is_fixed_size` is true."""
        raise NotImplementedError(f"{self.name}: the encoded size is known only after encoding")

    def evolved(self, spec: ChunkSpec) -> Self:
        """Return the codec for chunks as `spec` describes them; override it to refuse some."""
        return self

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        """Return what an encoded chunk is; override it if that differs from `spec`."""
        return spec


class BytesToBytes(_CodecBase):
    """Base of bytes -> bytes codecs: compressors, checksums, headers.

    Set `is_fixed_size` to whether the encoded size follows from the decoded size.

    A codec that directly follows little-endian `bytes`, and is the last of its chain, may define
    more methods:

    - `chunk_layout(spec) -> ChunkLayout | None` says how a chunk becomes pixels if it is a stream
      of rows of samples, so that the compiled loop decodes many at once; None if it is not.
    - `decode_part(data, spec, rows, columns) -> array | None` decodes only a part of a large chunk,
      given as ranges along the last two axes; None if decoding the chunk whole is as cheap.
    """

    @property
    def needs_spec(self) -> bool:
        """Whether decoding needs the chunk's shape and data type, which Zarr v2 does not pass."""
        return False

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


class ArrayToArray(_CodecBase):
    """Base of array -> array codecs: filters on values.

    `spec` describes the decoded chunk in both hooks. An encoded chunk of another data type or shape
    is announced by overriding `encoded_spec` and, if its size differs, `compute_encoded_size`.
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

    def compute_encoded_size(self, input_byte_length: int, spec: ChunkSpec) -> int:
        """Return the encoded size: that of the decoded chunk, unless overridden."""
        return input_byte_length

    def encoded_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the data type of an encoded chunk, which Zarr v2 does not state."""
        return dtype


class ArrayToBytes(_CodecBase):
    """Base of array -> bytes codecs: serializers.

    Set `is_fixed_size` to whether the encoded size follows from the decoded size.
    """

    def encode_chunk(self, array: Array, spec: ChunkSpec) -> BytesLike:
        """Return the encoded bytes; `array` has any layout, as in `ArrayToArray.encode_array`."""
        raise NotImplementedError

    def decode_chunk(self, data: Bytes1D, spec: ChunkSpec) -> Array:
        """Return an array of `spec.shape` and `spec.dtype`, in either byte order."""
        raise NotImplementedError


OwnCodec = BytesToBytes | ArrayToArray | ArrayToBytes
"""A codec of any of the three kinds."""
