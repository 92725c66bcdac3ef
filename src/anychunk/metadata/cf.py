"""CF and GDAL attributes of an image array, and the coordinate arrays beside it.

Spec: CF conventions 1.11 sections 2.5, 5.6 and 8.1; what xarray, rioxarray and GDAL read of them
      was found by experiment (docs/what-is-where.md).
"""

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anychunk.metadata import crs as crs_text
from anychunk.metadata import dates
from anychunk.metadata.meaning import Axis, Crs, Meaning, Transform
from anychunk.model.index import INLINE, ArrayIndex, ByteRanges, Json

GRID_MAPPING = "spatial_ref"
"""Name of the variable with the CRS, where rioxarray looks for it."""
SCALE, OFFSET = "scale", "offset"
"""Names of the coordinates along c that hold scale and offset where bands differ in them."""
EPSG_URL = "http://www.opengis.net/def/crs/EPSG/0/"
NAMES = (
    "grid_mapping", "coordinates", "_CRS", "_FillValue", "missing_value", "scale_factor",
    "add_offset", "units", "long_name", "COLOR_INTERPRETATION",
)  # fmt: skip
"""The attributes of an image array that `image_attributes` writes."""


def image_attributes(
    meaning: Meaning, data_type: Json, *, beside: Sequence[str]
) -> dict[str, Json]:
    """Return the attributes of an image array.

    Parameters:
        meaning: what its samples mean.
        data_type: Zarr's name of its data type.
        beside: names of the arrays of its level group.
    """
    found: dict[str, Json] = {}
    listed = [name for name in (GRID_MAPPING, SCALE, OFFSET) if name in beside]
    if GRID_MAPPING in listed:
        found["grid_mapping"] = GRID_MAPPING
    if listed:
        # without it xarray shows the CRS as a variable, and `.rio.crs` is None
        found["coordinates"] = " ".join(listed)
    if (system := gdal_crs(meaning.place.crs)) is not None:
        found["_CRS"] = system
    found |= nodata_attributes(meaning.nodata, data_type)
    scales, offsets = ({getattr(b, n) for b in meaning.bands} for n in ("scale", "offset"))
    if SCALE not in beside and scales not in (set(), {1.0}):
        found["scale_factor"] = scales.pop()
    if OFFSET not in beside and offsets not in (set(), {0.0}):
        found["add_offset"] = offsets.pop()
    units = {band.unit for band in meaning.bands}
    if len(units) == 1 and (unit := units.pop()) is not None:
        found["units"] = unit
    if len(meaning.bands) == 1 and meaning.bands[0].name:
        found["long_name"] = meaning.bands[0].name
    colours = [band.interpretation for band in meaning.bands]
    if any(colours):
        found["COLOR_INTERPRETATION"] = [c or "Undefined" for c in colours]
        if len(colours) == 1:
            found["COLOR_INTERPRETATION"] = colours[0]
    return found


def gdal_crs(crs: Crs | None) -> Json | None:
    """Return the attribute `_CRS`, which GDAL before 3.13 takes a CRS from."""
    if crs is None:
        return None
    if crs.wkt is not None:
        return {"wkt": crs.wkt}
    authority, _, number = (crs.code or "").partition(":")
    return {"url": EPSG_URL + number} if authority == "EPSG" else None


def nodata_attributes(nodata: float | None, data_type: Json) -> dict[str, Json]:
    """Return `_FillValue` and `missing_value`; empty if the type cannot represent `nodata`."""
    if nodata is None or not isinstance(data_type, str):
        return {}
    if data_type.startswith("float"):
        # xarray's Zarr v3 backend decodes the text; a plain number would stop it
        packed = base64.standard_b64encode(struct.pack("<d", float(nodata))).decode()
        plain = {"missing_value": float(nodata)} if math.isfinite(nodata) else {}
        return {"_FillValue": packed, **plain}
    if fits(nodata, data_type):
        return {"_FillValue": int(nodata), "missing_value": int(nodata)}
    return {}


def fits(value: float, data_type: Json) -> bool:
    """Return whether samples of a type can have a value; False for types but real numbers."""
    name = data_type if isinstance(data_type, str) else ""
    if name.startswith("float"):
        return True
    if not name.startswith(("int", "uint")) or not math.isfinite(value) or value != int(value):
        return False
    low, high = type_range(name)
    return low <= value <= high


def type_range(data_type: Json) -> tuple[float, float]:
    """Return the least and largest value that samples of a type can have; 0 and 1 for floats."""
    name = data_type if isinstance(data_type, str) else ""
    digits = name.removeprefix("u").removeprefix("int")
    if not digits.isdigit():
        return 0, 1
    bits = int(digits)
    return (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def read_nodata(attributes: Mapping[str, Json]) -> float | int | None:
    """Return the nodata that CF attributes state, in any of the spellings of Zarr stores."""
    for key in ("_FillValue", "missing_value"):
        value = attributes.get(key)
        if isinstance(value, str):
            try:
                value = struct.unpack("<d", base64.standard_b64decode(value))[0]
            except (ValueError, struct.error):
                value = {"NaN": math.nan}.get(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    return None


def axis_array(axis: Axis, size: int, *, scale: float, origin: float) -> ArrayIndex:
    """Return the coordinate array of an axis with a stated scale, or with values of its own."""
    values = axis.values
    numbers = np.asarray(values) if values is not None else origin + scale * np.arange(size)
    if dates.is_dates(axis.attributes) and np.all(np.abs(numbers) < 1 << 53):
        numbers = np.rint(numbers).astype(np.int64)
    attributes: dict[str, Json] = {"units": axis.unit} if axis.unit else {}
    if axis.name in "xyz":
        attributes["axis"] = axis.name.upper()
    return inline_array(axis.name, numbers, {**attributes, **axis.attributes})


def grid_array(name: str, transform: Transform, size: int, crs: Crs | None) -> ArrayIndex:
    """Return the coordinate array y or x of an unrotated grid: the centres of its pixels."""
    first, step = (transform[2], transform[0]) if name == "x" else (transform[5], transform[4])
    values = first + step * (np.arange(size) + 0.5)
    attributes: dict[str, Json] = {"axis": name.upper()}
    kind = None if crs is None else crs_text.is_geographic(crs)
    if kind is True:
        word, unit = {"x": ("longitude", "degrees_east"), "y": ("latitude", "degrees_north")}[name]
        attributes |= {"standard_name": word, "long_name": word, "units": unit}
    elif kind is False:
        attributes |= {"standard_name": f"projection_{name}_coordinate"}
        if crs is not None and (length := crs_text.linear_unit(crs)) is not None:
            attributes["units"] = length
    return inline_array(name, values, attributes)


def is_rotated(transform: Transform) -> bool:
    """Return whether a grid has no coordinates per axis."""
    return bool(transform[1] or transform[3])


def grid_mapping_array(crs: Crs | None, transform: Transform | None) -> ArrayIndex:
    """Return the scalar variable whose attributes are the CRS and the transform."""
    attributes: dict[str, Json] = {} if crs is None else crs_text.cf_attributes(crs)
    if transform is not None:
        a, b, c, d, e, f = transform
        attributes["GeoTransform"] = " ".join(repr(float(n)) for n in (c, a, b, f, d, e))
    return ArrayIndex(
        shape=(),
        chunk_shape=(),
        data_type="int32",
        codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
        chunks=ByteRanges(offsets=np.zeros((), "u8"), lengths=np.zeros((), "u8"), urls=(INLINE,)),
        fill_value=0,
        dimension_names=(),
        attributes=attributes,
    )


def inline_array(
    name: str, values: Any, attributes: Mapping[str, Json] | None = None
) -> ArrayIndex:
    """Return a coordinate of float64 or int64 numbers; its one chunk is in the index itself."""
    import numcodecs  # slow to import

    numbers = np.asarray(values)
    is_integer = numbers.dtype == np.int64
    numbers = np.ascontiguousarray(numbers, "<i8" if is_integer else "<f8")
    blosc = numcodecs.Blosc(cname="zstd", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE)
    settings = {"typesize": 8, "cname": "zstd", "clevel": 5, "shuffle": "shuffle", "blocksize": 0}
    return _inline(
        name,
        len(numbers),
        bytes(blosc.encode(numbers)),
        data_type="int64" if is_integer else "float64",
        codecs=(
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "blosc", "configuration": settings},
        ),
        fill_value=0 if is_integer else 0.0,
        attributes=dict(attributes or {}),
    )


def inline_values(array: ArrayIndex) -> tuple[float, ...] | None:
    """Return the numbers of a coordinate that `inline_array` made; None for any other array."""
    import numcodecs  # slow to import

    chunks = array.chunks
    names = [codec.get("name") if isinstance(codec, Mapping) else None for codec in array.codecs]
    if (
        array.data_type not in ("float64", "int64")
        or names != ["bytes", "blosc"]
        or not isinstance(chunks, ByteRanges)
        or chunks.urls != (INLINE,)
        or chunks.offsets.size != 1
    ):
        return None
    try:
        kind = "<i8" if array.data_type == "int64" else "<f8"
        numbers = np.frombuffer(numcodecs.Blosc().decode(chunks.inline), kind)
    except (ValueError, RuntimeError):
        return None
    return tuple(numbers.tolist()) if numbers.shape == array.shape else None


def label_array(name: str, labels: Sequence[str]) -> ArrayIndex:
    """Return a coordinate of text; its one chunk is in the index itself."""
    import numcodecs  # slow to import

    data = numcodecs.VLenUTF8().encode(np.asarray(labels, dtype=object))
    return _inline(
        name,
        len(labels),
        bytes(data),
        data_type="string",
        codecs=({"name": "vlen-utf8"},),
        fill_value="",
        attributes={},
    )


def _inline(
    name: str,
    size: int,
    data: bytes,
    *,
    data_type: str,
    codecs: tuple[Json, ...],
    fill_value: Json,
    attributes: dict[str, Json],
) -> ArrayIndex:
    count = min(size, 1)  # an image may have no pixels
    chunks = ByteRanges(
        offsets=np.zeros(count, "u8"),
        lengths=np.full(count, len(data), "u8"),
        urls=(INLINE,),
        inline=data,
    )
    return ArrayIndex(
        shape=(size,),
        chunk_shape=(max(size, 1),),
        data_type=data_type,
        codecs=codecs,
        chunks=chunks,
        fill_value=fill_value,
        dimension_names=(name,),
        attributes=attributes,
    )
