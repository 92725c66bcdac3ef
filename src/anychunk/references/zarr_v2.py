"""Convert the metadata of an array between Zarr v3 and v2.

Spec:    https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html
Opened:  numeric and boolean types; C and F order; filters and compressors of numcodecs, and ours.
Refused: structured, string, date and object types; v3 codecs that have no v2 form.
"""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Literal

import numpy as np

from anychunk import codecs as ours
from anychunk.codecs.jbp_block import JbpBlock
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.errors import FormatError, UnsupportedError
from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, Json

IMODES: dict[tuple[int, ...], Literal["P", "R"]] = {(1, 2, 0): "P", (1, 0, 2): "R"}
"""NITF's IMODE of bands interleaved by pixel and by row, by the order of the transpose."""
PVTYPES = {"u": "INT", "i": "SI", "f": "R", "c": "C"}
"""NITF's pixel value types, by numpy's kinds."""
SAMPLE_FORMATS = {"u": 1, "i": 2, "f": 3, "c": 6}
"""TIFF's sample formats, by numpy's kinds."""
DIMENSIONS = "_ARRAY_DIMENSIONS"
"""The attribute that holds dimension names: a convention of xarray, v2 itself has none."""
ARRAY_FILTERS = ("delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype")
BYTES_FILTERS = (
    "zlib", "bz2", "lzma", "lz4", "shuffle", "crc32", "adler32", "fletcher32", "jenkins_lookup3",
)  # fmt: skip
SHUFFLES = {0: "noshuffle", 1: "shuffle", 2: "bitshuffle"}


def to_v2(array: ArrayIndex, where: str) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return `.zarray` and `.zattrs` of an array.

    Raises:
        UnsupportedError: If Zarr v2 cannot express the array.
    """
    chain = _interleaved_bands(array, where) or list(array.codecs)
    order = "C"
    if chain and _name(chain[0]) == "transpose":
        axes = _configuration(chain[0]).get("order")
        if axes != list(range(len(array.shape)))[::-1]:
            raise UnsupportedError(f"{where}: transpose {axes} has no Zarr v2 form")
        order, chain = "F", chain[1:]
    if not chain or _name(chain[0]) != "bytes":
        name = _name(chain[0]) if chain else "(none)"
        raise UnsupportedError(f"{where}: codec {name!r} has no Zarr v2 form")
    steps = [_filter(codec, where) for codec in chain[1:]]
    is_compressor = bool(steps) and steps[-1]["id"] in ("gzip", "zstd", "blosc", "zlib", "bz2")
    zarray = {
        "zarr_format": 2,
        "shape": list(array.shape),
        "chunks": list(array.chunk_shape),
        "dtype": _v2_dtype(array.data_type, _configuration(chain[0]).get("endian"), where),
        "compressor": steps.pop() if is_compressor else None,
        "fill_value": array.fill_value,
        "order": order,
        "filters": steps or None,
        "dimension_separator": ".",
    }
    names = [
        name if name is not None else f"dim_{i}" for i, name in enumerate(array.dimension_names)
    ]
    return zarray, {**array.attributes, DIMENSIONS: names}


def _interleaved_bands(array: ArrayIndex, where: str) -> list[Json] | None:
    """Return bands interleaved by pixel or by row as a TIFF or NITF codec; None for other arrays.

    Zarr v2 can only reverse all axes (order F), not swap some. Both codecs do, and also define the
    byte order: tiff-tile is little-endian here, jbp-block always big-endian.
    """
    if len(array.codecs) != 2 or len(array.shape) != 3:
        return None
    transpose, serializer = array.codecs
    imode = IMODES.get(tuple(_configuration(transpose).get("order", ())))
    if _name(transpose) != "transpose" or _name(serializer) != "bytes" or imode is None:
        return None
    dtype = _numpy_type(array.data_type, where)
    bands, height, width = array.chunk_shape
    is_big = dtype.itemsize > 1 and _configuration(serializer).get("endian") == "big"
    if dtype.kind not in PVTYPES or (imode == "R" and not is_big and dtype.itemsize > 1):
        return None
    if imode == "P" and not is_big:
        codec = TiffTile(
            bits_per_sample=8 * dtype.itemsize,
            samples_per_pixel=bands,
            photometric=2 if bands == 3 else 1,
            tile_width=width,
            tile_height=height,
            sample_format=SAMPLE_FORMATS[dtype.kind],
        ).to_dict()
    else:
        codec = JbpBlock(
            num_bands=bands,
            block_height=height,
            block_width=width,
            nbpp=8 * dtype.itemsize,
            imode=imode,
            pvtype=PVTYPES[dtype.kind],
        ).to_dict()
    little = {"endian": "little"}
    return [{"name": "bytes", "configuration": little} if dtype.itemsize > 1 else "bytes", codec]


def _name(codec: Json) -> str:
    return codec if isinstance(codec, str) else str(codec["name"])


def _configuration(codec: Json) -> dict[str, Json]:
    return {} if isinstance(codec, str) else dict(codec.get("configuration", {}))


def _filter(codec: Json, where: str) -> dict[str, Json]:
    name, configuration = _name(codec), _configuration(codec)
    if name == "blosc":
        shuffles = {text: number for number, text in SHUFFLES.items()}
        return {
            "id": "blosc",
            "cname": configuration.get("cname", "zstd"),
            "clevel": configuration.get("clevel", 5),
            "shuffle": shuffles.get(configuration.get("shuffle", "noshuffle"), 0),
            "blocksize": configuration.get("blocksize", 0),
        }
    if name in ("gzip", "zstd"):
        return {"id": name, **configuration}
    if name.startswith("numcodecs."):
        return {"id": name.removeprefix("numcodecs."), **configuration}
    if name in {entry.name for entry in entry_points(group="numcodecs.codecs")}:
        return {"id": name, **configuration}
    raise UnsupportedError(f"{where}: codec {name!r} has no Zarr v2 form")


def _v2_dtype(data_type: Json, endian: Json, where: str) -> str:
    return _numpy_type(data_type, where).newbyteorder(">" if endian == "big" else "<").str


def _numpy_type(data_type: Json, where: str) -> np.dtype[Any]:
    try:
        return np.dtype(data_type)
    except (TypeError, ValueError) as e:
        raise UnsupportedError(f"{where}: data type {data_type!r} has no Zarr v2 form") from e


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
    if dtype is None or dtype.kind not in "biufc":
        raise UnsupportedError(
            f"{where}: Zarr v2 data type {zarray['dtype']!r} is not supported; "
            "supported: numbers, bool"
        )
    if not isinstance(filters, list) or order not in ("C", "F"):
        raise FormatError(
            f"{where}: order {order!r}, filters {filters!r}, expected 'C' or 'F', and a list"
        )
    steps = [_codec(step, where) for step in [*filters, *([compressor] if compressor else [])]]
    serializer: Json = {"name": "bytes"}
    if dtype.itemsize > 1:
        endian = "big" if dtype.byteorder == ">" else "little"
        serializer = {"name": "bytes", "configuration": {"endian": endian}}
    axes = list(range(len(shape)))[::-1]
    transpose = [{"name": "transpose", "configuration": {"order": axes}}] if order == "F" else []
    names = zattrs.get(DIMENSIONS)
    fits = isinstance(names, list) and len(names) == len(shape)
    return {
        "shape": shape,
        "chunk_shape": tuple(max(n, 1) for n in chunks),
        "data_type": dtype.name,
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
    name, configuration = step["id"], {k: v for k, v in step.items() if k != "id"}
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
    if name in ARRAY_FILTERS or name in BYTES_FILTERS:
        is_array = name in ARRAY_FILTERS
        return is_array, {"name": f"numcodecs.{name}", "configuration": configuration}
    raise UnsupportedError(f"{where}: Zarr v2 filter {name!r} is not supported")


def _fill(value: Any, dtype: np.dtype[Any]) -> Json:
    if value is None:
        return False if dtype.kind == "b" else [0.0, 0.0] if dtype.kind == "c" else 0
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iu" and isinstance(value, float) and value.is_integer():
        return int(value)
    if dtype.kind == "c" and isinstance(value, int | float):
        return [float(value), 0.0]
    return value
