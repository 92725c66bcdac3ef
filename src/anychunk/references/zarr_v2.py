"""Convert the metadata of an array between Zarr v3 and v2.

Spec:    https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html
Opened:  numeric and boolean types; text (objects with the filter `vlen-utf8` alone); C and F order;
         filters and compressors of numcodecs, and ours.
Refused: structured, date and other object types; v3 codecs that have no v2 form.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal

import numpy as np

from anychunk.codecs import codec_class, from_json
from anychunk.codecs.jbp_block import JbpBlock
from anychunk.codecs.tiff.tile import NONE, ZSTD
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.errors import UnsupportedError
from anychunk.formats._zarr_metadata import DIMENSIONS, SHUFFLES
from anychunk.metadata.cf import read_nodata
from anychunk.metadata.hierarchy import has_absent_chunks
from anychunk.model.index import ArrayIndex, Json
from anychunk.references.osml_codecs import with_uri

IMODES: dict[tuple[int, ...], Literal["P", "R"]] = {(1, 2, 0): "P", (1, 0, 2): "R"}
"""NITF's IMODE of bands interleaved by pixel and by row, by the order of the transpose."""
PVTYPES = {"u": "INT", "i": "SI", "f": "R", "c": "C"}
"""NITF's pixel value types, by numpy's kinds."""
SAMPLE_FORMATS = {"u": 1, "i": 2, "f": 3, "c": 6}
"""TIFF's sample formats, by numpy's kinds."""


def to_v2(array: ArrayIndex, where: str) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return `.zarray` and `.zattrs` of an array.

    Raises:
        UnsupportedError: If Zarr v2 cannot express the array.
    """
    if array.data_type == "string":
        return _text_to_v2(array, where)
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
        "fill_value": _v2_fill(array),
        "order": order,
        "filters": steps or None,
        "dimension_separator": ".",
    }
    return zarray, _v2_attributes(array)


def _v2_attributes(array: ArrayIndex) -> dict[str, Json]:
    names = [
        name if name is not None else f"dim_{i}" for i, name in enumerate(array.dimension_names)
    ]
    return {**array.attributes, DIMENSIONS: names}


def _v2_fill(array: ArrayIndex) -> Json:
    """Return the fill value, null where none is needed: xarray takes that of Zarr v2 for nodata."""
    is_needed = array.shape and has_absent_chunks(array)
    return array.fill_value if is_needed or read_nodata(array.attributes) is not None else None


def _text_to_v2(array: ArrayIndex, where: str) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return an array of text as Zarr v2 has it: objects, and a filter that encodes them."""
    if [_name(codec) for codec in array.codecs] != ["vlen-utf8"]:
        names = " ".join(map(_name, array.codecs))
        raise UnsupportedError(f"{where}: text in the codecs {names} has no Zarr v2 form")
    zarray = {
        "zarr_format": 2,
        "shape": list(array.shape),
        "chunks": list(array.chunk_shape),
        "dtype": "|O",
        "compressor": None,
        "fill_value": _v2_fill(array),
        "order": "C",
        "filters": [{"id": "vlen-utf8"}],
        "dimension_separator": ".",
    }
    return zarray, _v2_attributes(array)


def _interleaved_bands(array: ArrayIndex, where: str) -> list[Json] | None:
    """Return bands interleaved by pixel or by row as a TIFF or NITF codec; None for other arrays.

    Zarr v2 can only reverse all axes (order F), not swap some. Both codecs do, and also define the
    byte order: tiff-tile is little-endian here, jbp-block always big-endian.
    """
    is_packed = len(array.codecs) == 3 and _name(array.codecs[2]) == "zstd"
    if len(array.codecs) != 2 + is_packed or len(array.shape) != 3:
        return None
    transpose, serializer = array.codecs[:2]
    imode = IMODES.get(tuple(_configuration(transpose).get("order", ())))
    if _name(transpose) != "transpose" or _name(serializer) != "bytes" or imode is None:
        return None
    dtype = _numpy_type(array.data_type, where)
    bands, height, width = array.chunk_shape
    is_big = dtype.itemsize > 1 and _configuration(serializer).get("endian") == "big"
    if dtype.kind not in PVTYPES or (imode == "R" and not is_big and dtype.itemsize > 1):
        return None
    if is_packed and (imode == "R" or is_big):
        return None
    if imode == "P" and not is_big:
        codec = TiffTile(
            compression=ZSTD[0] if is_packed else NONE,
            bits_per_sample=8 * dtype.itemsize,
            samples_per_pixel=bands,
            photometric=2 if bands == 3 else 1,
            tile_width=width,
            tile_height=height,
            # what `bytes` decodes is never short
            last_height=height,
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
    serial = {"name": "bytes", "configuration": little} if dtype.itemsize > 1 else "bytes"
    named = with_uri(codec, array)
    named["configuration"].pop("last_height", None)
    return [serial, named]


def _name(codec: Json) -> str:
    return codec if isinstance(codec, str) else str(codec["name"])


def _configuration(codec: Json) -> dict[str, Json]:
    found = {} if isinstance(codec, str) else codec.get("configuration", {})
    if not isinstance(found, Mapping):
        raise UnsupportedError(
            f"codec {_name(codec)!r}: its configuration is {found!r:.60}, expected an object"
        )
    return dict(found)


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
    if name in ("zstd", "numcodecs.zstd"):
        if not configuration.get("checksum"):
            # numcodecs' default; tensorstore knows no such member
            configuration.pop("checksum", None)
        return {"id": "zstd", **configuration}
    if name.startswith("numcodecs."):
        return {"id": name.removeprefix("numcodecs."), **configuration}
    if name == "gzip" or (name in _v2_codecs() and not _needs_spec(codec)):
        return {"id": name, **configuration}
    raise UnsupportedError(f"{where}: codec {name!r} has no Zarr v2 form")


def _needs_spec(codec: Json) -> bool:
    """Return whether a codec of ours decodes only with the shape of the chunk."""
    is_ours = codec_class(_name(codec)) is not None
    return is_ours and bool(getattr(from_json(codec), "needs_spec", False))


@cache
def _v2_codecs() -> frozenset[str]:
    """Return the names of installed Zarr v2 filters; to list them, all packages are looked at."""
    return frozenset(entry.name for entry in entry_points(group="numcodecs.codecs"))


def _v2_dtype(data_type: Json, endian: Json, where: str) -> str:
    return _numpy_type(data_type, where).newbyteorder(">" if endian == "big" else "<").str


def _numpy_type(data_type: Json, where: str) -> np.dtype[Any]:
    try:
        return np.dtype(data_type)
    except (TypeError, ValueError) as e:
        raise UnsupportedError(f"{where}: data type {data_type!r} has no Zarr v2 form") from e
