"""Metadata of Zarr arrays, v3 and v2, as the fields of an `ArrayIndex`.

Spec:    https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html and .../v2/v2.0.html
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from anychunk import codecs as ours
from anychunk.codecs import data_types
from anychunk.errors import FormatError, UnsupportedError
from anychunk.model.grid import Shape
from anychunk.model.index import Json, check_dimension_names

type Document = dict[str, Json]
type Fields = dict[str, Any]
"""The arguments of an `ArrayIndex`, without its chunks."""

DIMENSIONS = "_ARRAY_DIMENSIONS"
"""The attribute that holds dimension names: a convention of xarray, v2 itself has none."""
ARRAY_FILTERS = ("delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype")
BYTES_FILTERS = (
    "zlib", "bz2", "lzma", "lz4", "shuffle", "crc32", "adler32", "fletcher32", "jenkins_lookup3",
)  # fmt: skip
SHUFFLES = {0: "noshuffle", 1: "shuffle", 2: "bitshuffle"}


def parse_document(text: str | bytes | Document, where: str) -> Document:
    """Return a metadata document, given as text or as an object."""
    try:
        found = json.loads(text) if isinstance(text, str | bytes) else text
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{where}: expected JSON ({e})") from e
    if not isinstance(found, dict):
        raise FormatError(f"{where}: {type(found).__name__}, expected an object")
    return found


def parse_array(document: Document, where: str) -> Fields:
    """Return the fields of an array from its `zarr.json`."""
    try:
        grid = document["chunk_grid"]
        if grid["name"] != "regular":
            raise UnsupportedError(
                f"{where}: chunk grid {grid['name']!r} is not supported; supported: regular"
            )
        shape, chunks = document["shape"], grid["configuration"]["chunk_shape"]
        if document.get("storage_transformers"):
            raise UnsupportedError(f"{where}: storage transformers are not supported")
        names = document.get("dimension_names") or [None] * len(shape)
        fields = {
            "shape": parse_lengths(shape, where),
            "chunk_shape": parse_lengths(chunks, where),
            "data_type": document["data_type"],
            "codecs": tuple(map(ours.with_own_name, document["codecs"])),
            "fill_value": document["fill_value"],
            "attributes": read_attributes(document, where),
            "dimension_names": tuple(names),
        }
    except KeyError as e:
        raise FormatError(f"{where}: zarr.json has no {e}") from e
    except (TypeError, ValueError) as e:
        if isinstance(e, FormatError):
            raise
        raise FormatError(f"{where}: zarr.json is malformed ({e})") from e
    check_array(fields, where)
    return fields


def check_array(fields: Fields, where: str) -> None:
    """Refuse fields of an array that contradict each other.

    What zarr cannot open, such as a data type or a codec that it does not have, is found when the
    array is opened.
    """
    check_chunk_shape(fields, where)
    shape, names = fields["shape"], fields["dimension_names"]
    if len(names) != len(shape) or not all(name is None or type(name) is str for name in names):
        raise FormatError(
            f"{where}: dimension_names {names}, expected {len(shape)}, each of them text or null"
        )
    check_dimension_names(names, where)
    for codec in fields["codecs"]:
        if not isinstance(codec, dict) or not isinstance(codec.get("name"), str):
            raise FormatError(f"{where}: codec {codec!r}, expected an object with a name")
    try:
        data_types.native(fields["data_type"])
    except Exception:  # noqa: BLE001 - zarr raises many kinds
        return  # opening this array says that its type is not supported; the others can be read
    try:
        data_types.scalar(fields["data_type"], fields["fill_value"])
    except Exception as e:
        raise FormatError(
            f"{where}: fill value {fields['fill_value']!r} is not a {fields['data_type']} ({e})"
        ) from e


def check_chunk_shape(fields: Fields, where: str) -> None:
    """Refuse a chunk shape that makes no grid."""
    shape, chunks = fields["shape"], fields["chunk_shape"]
    if len(chunks) != len(shape) or 0 in chunks:
        raise FormatError(f"{where}: chunk shape {chunks} does not fit shape {shape}")


def read_attributes(document: Document, where: str) -> Document:
    """Return the attributes of a metadata document."""
    found = document.get("attributes") or {}
    if not isinstance(found, dict):
        raise FormatError(f"{where}: attributes are {str(found)[:80]}, expected an object")
    return dict(found)


def key_pattern(document: Document, where: str) -> str:
    """Return the separator of chunk keys, after `c` in Zarr v3's default encoding."""
    try:
        encoding = document.get("chunk_key_encoding", "default")
        name = encoding if isinstance(encoding, str) else encoding["name"]
        configuration = {} if isinstance(encoding, str) else encoding.get("configuration", {})
        default = "/" if name == "default" else "."
        separator = configuration.get("separator", default)
    except (KeyError, AttributeError, TypeError) as e:
        raise FormatError(f"{where}: chunk_key_encoding {encoding!r} has no name") from e
    if name not in ("default", "v2") or separator not in (".", "/"):
        raise UnsupportedError(
            f"{where}: chunk_key_encoding {encoding!r} is not supported; supported: default, v2"
        )
    return f"c{separator}" if name == "default" else str(separator)


def from_v2(zarray: Mapping[str, Any], zattrs: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields of an array from `.zarray` and `.zattrs`.

    Raises:
        FormatError: If they are malformed.
        UnsupportedError: If the data type or a filter is not supported.
    """
    try:
        shape = parse_lengths(zarray["shape"], where)
        chunks = parse_lengths(zarray["chunks"], where)
        dtype = np.dtype(zarray["dtype"]) if isinstance(zarray["dtype"], str) else None
        order, filters = zarray.get("order", "C"), zarray.get("filters") or []
        compressor = zarray.get("compressor")
    except KeyError as e:
        raise FormatError(f"{where}: .zarray has no {e}") from e
    except (TypeError, ValueError) as e:
        if isinstance(e, FormatError):
            raise
        raise FormatError(f"{where}: .zarray is malformed ({e})") from e
    # text is stored as objects, and its first filter encodes them
    is_text = dtype == np.dtype(object) and filters[:1] == [{"id": "vlen-utf8"}]
    if dtype is None or (dtype.kind not in "biufc" and not is_text):
        raise UnsupportedError(
            f"{where}: Zarr v2 data type {zarray['dtype']!r} is not supported; "
            "supported: numbers, bool, text (vlen-utf8)"
        )
    if not isinstance(filters, list) or order not in ("C", "F"):
        raise FormatError(
            f"{where}: order {order!r}, filters {filters!r}, expected 'C' or 'F', and a list"
        )
    filters = filters[1:] if is_text else filters
    steps = [_codec(step, where) for step in [*filters, *([compressor] if compressor else [])]]
    kinds = [is_array for is_array, _ in steps]
    if kinds != sorted(kinds, reverse=True):
        # v3 encodes samples first, then bytes: another order would give other samples
        raise UnsupportedError(
            f"{where}: a Zarr v2 filter of samples after one of bytes is not supported"
        )
    serializer: Json = {"name": "vlen-utf8" if is_text else "bytes"}
    if dtype.itemsize > 1 and not is_text:
        endian = "big" if dtype.byteorder == ">" else "little"
        serializer = {"name": "bytes", "configuration": {"endian": endian}}
    axes = list(range(len(shape)))[::-1]
    transpose = [{"name": "transpose", "configuration": {"order": axes}}] if order == "F" else []
    names = zattrs.get(DIMENSIONS)
    fits = isinstance(names, list) and len(names) == len(shape)
    return {
        "shape": shape,
        "chunk_shape": tuple(max(n, 1) for n in chunks),
        "data_type": "string" if is_text else dtype.name,
        "codecs": (
            *transpose,  # filters of v2 see samples in their order in memory
            *[step for is_array, step in steps if is_array],
            serializer,
            *[step for is_array, step in steps if not is_array],
        ),
        "fill_value": _fill(zarray.get("fill_value"), dtype),
        "dimension_names": tuple(names)
        if isinstance(names, list) and fits
        else (None,) * len(shape),
        "attributes": {key: value for key, value in zattrs.items() if key != DIMENSIONS},
    }


def parse_lengths(found: Any, where: str) -> Shape:
    """Return a JSON list of lengths, one per axis, as a tuple."""
    if not isinstance(found, list) or not all(type(n) is int and n >= 0 for n in found):
        raise FormatError(f"{where}: lengths {found!r}, expected a list of non-negative integers")
    return tuple(found)


def _codec(step: Any, where: str) -> tuple[bool, Json]:
    """Return (whether it works on arrays, v3 JSON) of a v2 filter or compressor."""
    if not isinstance(step, dict) or not isinstance(step.get("id"), str):
        raise FormatError(f"{where}: Zarr v2 filter {step!r}, expected an object with an id")
    configuration = {k: v for k, v in step.items() if k != "id"}
    name = ours.with_own_name({"name": step["id"]})["name"]
    if name in ARRAY_FILTERS or name in BYTES_FILTERS:
        # before ours: the `packbits` of Zarr v3 has another order of bits
        is_array = name in ARRAY_FILTERS
        return is_array, {"name": f"numcodecs.{name}", "configuration": configuration}
    if name in ours.table():
        return False, {"name": name, "configuration": configuration}
    if name == "gzip":
        return False, {"name": name, "configuration": {"level": configuration.get("level", 1)}}
    if name == "zstd":
        level, checksum = configuration.get("level", 0), bool(configuration.get("checksum"))
        return False, {"name": name, "configuration": {"level": level, "checksum": checksum}}
    if name == "blosc":
        shuffle = SHUFFLES.get(configuration.get("shuffle", 1), "noshuffle")
        settings = {
            "cname": configuration.get("cname", "lz4"),
            "clevel": configuration.get("clevel", 5),
            "shuffle": shuffle,
            "typesize": 1,  # decoding takes it from the stored frame
            "blocksize": configuration.get("blocksize", 0),
        }
        return False, {"name": name, "configuration": settings}
    raise UnsupportedError(f"{where}: Zarr v2 filter {name!r} is not supported")


def _fill(value: Any, dtype: np.dtype[Any]) -> Json:
    if dtype.kind == "O":
        return value if isinstance(value, str) else ""
    if value is None:
        return False if dtype.kind == "b" else [0.0, 0.0] if dtype.kind == "c" else 0
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iu" and isinstance(value, float) and value.is_integer():
        return int(value)
    if dtype.kind == "c" and isinstance(value, int | float):
        return [float(value), 0.0]
    return value
