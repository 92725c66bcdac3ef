"""The fields that JNRRD and NRRD share about the samples: type, sizes, byte order, encoding.

Spec: JNRRD 1.0.0 section 3; NRRD format, "Basic field specifications"; docs/formats/jnrrd.md.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from anychunk.errors import FormatError, FormatWarning, UnsupportedError
from anychunk.formats import _raw
from anychunk.model.grid import Shape
from anychunk.model.index import Json

type Endian = Literal["little", "big"]

TYPES = (
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "block"),
)
C_NAMES = {
    "int8": "signed char|int8_t",
    "uint8": "uchar|unsigned char|uint8_t",
    "int16": "short|short int|signed short|signed short int|int16_t",
    "uint16": "ushort|unsigned short|unsigned short int|uint16_t",
    "int32": "int|signed int|int32_t",
    "uint32": "uint|unsigned int|uint32_t",
    "int64": "longlong|long long|long long int|signed long long|signed long long int|int64_t",
    "uint64": "ulonglong|unsigned long long|unsigned long long int|uint64_t",
    "float16": "half",
    "float32": "float",
    "float64": "double",
}
ALIASES = {alias: name for name, text in C_NAMES.items() for alias in text.split("|")}
ENCODINGS = ("raw", "ascii", "hex", "gzip", "bzip2", "zstd", "lz4")
ENCODING_ALIASES = {"txt": "ascii", "text": "ascii", "gz": "gzip", "bz2": "bzip2"}
MOST_AXES = 16
"""Teem's NRRD_DIM_MAX."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """The samples of a file, axes in the order of the file: axis 0 is the fastest."""

    type: str
    sizes: Shape
    endian: Endian
    encoding: str
    block_size: int = 1
    """Bytes per sample of type `block`, which has no numeric meaning."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of the Zarr view; `block` samples are bytes along an additional axis."""
        if self.type == "bfloat16":
            import ml_dtypes

            return cast("np.dtype[Any]", np.dtype(ml_dtypes.bfloat16))
        return np.dtype("uint8" if self.type == "block" else self.type)

    @property
    def data_type(self) -> str:
        """The Zarr data type."""
        return "uint8" if self.type == "block" else self.type

    @property
    def itemsize(self) -> int:
        """Bytes per sample."""
        return self.block_size if self.type == "block" else self.dtype.itemsize

    @property
    def trailing(self) -> Shape:
        """The additional axis of the Zarr view, if the samples are of type `block`."""
        return (self.block_size,) if self.type == "block" else ()

    @property
    def nbytes(self) -> int:
        """Bytes of all samples, uncompressed."""
        return math.prod(self.sizes) * self.itemsize


def read_volume(fields: Mapping[str, Json], url: str, *, is_tiled: bool = False) -> Volume:
    """Check and read the fields that every file has."""
    kind = read_type(require(fields, "type", url), url)
    sizes = read_sizes(fields, url)
    block = fields.get("block_size", 1)
    if kind == "block" and not is_count(fields.get("block_size")):
        raise FormatError(
            f"{url}: type block with block_size {fields.get('block_size')!r}, expected at least 1"
        )
    encoding = fields.get("encoding", "raw") if is_tiled else require(fields, "encoding", url)
    return Volume(
        type=kind,
        sizes=sizes,
        endian=read_endian(fields, kind, encoding, url),
        encoding=read_encoding(encoding, url),
        block_size=block if kind == "block" else 1,
    )


def require(fields: Mapping[str, Json], key: str, url: str) -> Json:
    """Return the value of a field; raise `FormatError` if it is missing or null."""
    if fields.get(key) is None:
        raise FormatError(f"{url}: the required field {key!r} is missing")
    return fields[key]


def is_count(value: Json) -> bool:
    """Return whether a JSON value is an integer of at least 1; `true` is not one."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def read_type(value: Json, url: str) -> str:
    """Return the name of a sample type; NRRD's C names are aliases."""
    name = " ".join(value.replace("_", " ").split()) if isinstance(value, str) else ""
    found = ALIASES.get(name) or ALIASES.get(str(value))
    if found is None and value not in TYPES:
        raise UnsupportedError(
            f"{url}: type {value!r} is not supported; supported: {' '.join(TYPES)}"
        )
    return found or cast("str", value)


def read_sizes(fields: Mapping[str, Json], url: str) -> Shape:
    """Return the sizes of the axes, which must agree with `dimension`."""
    sizes = require(fields, "sizes", url)
    dimension = require(fields, "dimension", url)
    if not isinstance(sizes, list) or not sizes or not all(is_count(n) for n in sizes):
        raise FormatError(f"{url}: sizes is {str(sizes)[:80]}, expected integers >= 1")
    if dimension != len(sizes) or isinstance(dimension, bool):
        raise FormatError(f"{url}: dimension is {dimension!r}, but sizes has {len(sizes)} entries")
    if len(sizes) > MOST_AXES:
        raise UnsupportedError(
            f"{url}: {len(sizes)} axes are not supported; supported: up to {MOST_AXES}"
        )
    # sizes are multiplied as 64-bit integers from here on
    if math.prod(sizes) >= 1 << 62:
        raise FormatError(f"{url}: sizes {sizes} are more than 2**62 samples")
    return tuple(sizes)


def read_endian(fields: Mapping[str, Json], kind: str, encoding: Json, url: str) -> Endian:
    """Return the byte order; warn if it is missing but needed."""
    endian = fields.get("endian")
    if endian in ("little", "big"):
        return cast("Endian", endian)
    if endian is not None:
        raise FormatError(f"{url}: endian is {endian!r}, expected 'little' or 'big'")
    is_plain = kind in ("int8", "uint8", "block") or encoding in ("ascii", "txt", "text")
    if not is_plain:
        warnings.warn(
            f"{url}: endian is missing for {kind} samples; they are read as little-endian",
            FormatWarning,
            stacklevel=2,
        )
    return "little"


def read_encoding(value: Json, url: str) -> str:
    """Return the name of an encoding; NRRD's short names are aliases."""
    name = ENCODING_ALIASES.get(value, value) if isinstance(value, str) else None
    if name not in ENCODINGS:
        raise UnsupportedError(
            f"{url}: encoding {value!r} is not supported; supported: {' '.join(ENCODINGS)}"
        )
    return str(name)


# Compressions and padding values as Zarr metadata: standard codecs wherever those are exact.


# levels are irrelevant for reading, but the codecs' configurations require them
EXACT: dict[str, Json] = {
    "gzip": {"name": "gzip", "configuration": {"level": 6}},
    "zstd": {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
    "bzip2": {"name": "numcodecs.bz2", "configuration": {"level": 9}},
    "lz4": {"name": "anychunk.stream", "configuration": {"compression": "lz4"}},
}


def bytes_codec(volume: Volume) -> Json:
    """Return the codec of uncompressed samples, as JSON."""
    return _raw.bytes_codec(volume.dtype.itemsize, volume.endian)


def compressor(name: str, *, is_exact: bool, skip: int = 0) -> tuple[Json, ...]:
    """Return the codecs of a compression, as JSON.

    Parameters:
        name: The compression as the header names it; `raw` means none.
        is_exact: Whether the byte range ends with the stream. Otherwise other bytes follow,
            and the decoder must stop at the end of the stream.
        skip: How many decoded bytes precede the samples.
    """
    if name == "raw" and is_exact and not skip:
        return ()
    if is_exact and not skip:
        return (EXACT[name],)
    configuration: dict[str, Json] = {"compression": name, "leading": True}
    if skip:
        configuration["skip"] = skip
    return ({"name": "anychunk.stream", "configuration": configuration},)


def fill_json(value: float | None, dtype: np.dtype[Any]) -> Json:
    """Return a padding value as the `fill_value` of Zarr metadata; None (null) is NaN.

    Raises:
        FormatError: An integer type cannot hold the value.
    """
    if value is None:
        value = math.nan
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if not math.isfinite(value) or value != int(value):
            raise FormatError(f"tile:padding_value: {value} cannot be stored as {dtype}")
        if not bounds.min <= value <= bounds.max:
            raise FormatError(f"tile:padding_value: {value}, expected {bounds.min} to {bounds.max}")
        return int(value)
    shown: Json = float(value)
    if math.isnan(shown):
        shown = "NaN"
    elif math.isinf(shown):
        shown = "Infinity" if shown > 0 else "-Infinity"
    return [shown, 0.0] if dtype.kind == "c" else shown
