"""What a TIFF says about its pixels: tags, GeoTIFF, nodata, OME, as JSON attributes."""

import enum
import math
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import tifffile

from anychunk.metadata import geo
from anychunk.model.index import Json

TABLES = {
    273,
    279,
    288,
    289,
    324,
    325,
    330,
    34735,
    34736,
    34737,
    347,
    519,
    520,
    521,
    50838,
    50839,
    65426,
    65432,
    42112,
}
"""Tags that say where things are, or that are given in a better form."""
MOST = 2048
"""Longer values of a tag are left out: they are data, not description."""


def tag_attributes(page: tifffile.TiffPage) -> dict[str, Json]:
    """Give the tags of a page by name, as far as JSON can hold them."""
    found: dict[str, Json] = {}
    for tag in page.tags:
        if tag.code in TABLES or tag.count > MOST * 4:
            continue
        value = as_json(tag.value)
        if value is not None and tag.name not in found:
            found[str(tag.name)] = value
    return found


def as_json(value: Any) -> Json:  # noqa: PLR0911 - one line a type
    """Give a value as JSON, or None where it is too long or has no such form."""
    if isinstance(value, enum.Enum):
        return int(value) if isinstance(value, int) else value.name
    if isinstance(value, bool | str):
        return value if len(str(value)) <= 1 << 20 else None
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 64 else None
    if isinstance(value, np.ndarray):
        return as_json(value.tolist()) if value.size <= MOST else None
    if isinstance(value, list | tuple):
        return [as_json(v) for v in value] if len(value) <= MOST else None
    if isinstance(value, dict):
        return {str(k): as_json(v) for k, v in value.items()} if len(value) <= MOST else None
    return None


def page_attributes(page: tifffile.TiffPage) -> dict[str, Json]:
    """Give what stands under `tiff` in the attributes of an image."""
    found: dict[str, Json] = {
        "compression": _name(page.compression),
        "photometric": _name(page.photometric),
        "bits_per_sample": as_json(page.bitspersample),
        "sample_format": _name(page.sampleformat),
        "planar_config": _name(page.planarconfig),
        "predictor": _name(page.predictor),
        "tags": tag_attributes(page),
    }
    if page.extrasamples:
        found["extra_samples"] = [_name(e) for e in page.extrasamples]
    colormap = page.tags.valueof(320)
    if colormap is not None:
        values = np.asarray(colormap).reshape(-1)
        if values.size % 3 == 0 and values.size <= 3 << 16:
            found["tags"].pop("ColorMap", None)
            found["color_map"] = values.reshape(3, -1).tolist()
    keys = page_geo_keys(page)
    if keys:
        found["geo_keys"] = {_key_name(k): v for k, v in keys.items()}
    gdal = gdal_metadata(page)
    if gdal:
        found["gdal_metadata"] = gdal
    return found


def _name(value: Any) -> Json:
    return value.name if isinstance(value, enum.Enum) else as_json(value)


def _key_name(key: int) -> str:
    try:
        return str(tifffile.TIFF.GEO_KEYS(key).name)
    except ValueError:
        return str(key)


def page_geo_keys(page: tifffile.TiffPage) -> dict[int, Any]:
    directory = page.tags.valueof(34735)
    if not isinstance(directory, tuple | list | np.ndarray):
        return {}
    doubles = page.tags.valueof(34736, ())
    text = page.tags.valueof(34737, "")
    return geo.geo_keys(
        [int(n) for n in directory],
        doubles if isinstance(doubles, tuple) else (doubles,),
        text if isinstance(text, str) else "",
    )


def page_transform(page: tifffile.TiffPage) -> geo.Transform | None:
    """Give the affine transform of a GeoTIFF page, as GDAL reads it."""
    keys = page_geo_keys(page)
    return geo.geotiff_transform(
        scale=_numbers(page.tags.valueof(33550)),
        tiepoints=_numbers(page.tags.valueof(33922)),
        matrix=_numbers(page.tags.valueof(34264)),
        is_point=keys.get(geo.RASTER_TYPE) == geo.PIXEL_IS_POINT,
    )


def _numbers(value: Any) -> Sequence[float] | None:
    if value is None:
        return None
    values = np.asarray(value).reshape(-1)
    return values.tolist() if values.dtype.kind in "iuf" else None


def gdal_metadata(page: tifffile.TiffPage) -> dict[str, Json]:
    """Read the GDAL_METADATA tag: {name: text}, items of one band as {band: {name: text}}."""
    text = page.tags.valueof(42112)
    if not isinstance(text, str):
        return {}
    try:
        root = ET.fromstring(text.rstrip("\0 \n"))  # noqa: S314 - expat bounds entities itself
    except ET.ParseError:
        return {"xml": text}
    found: dict[str, Json] = {}
    for item in root.iter("Item"):
        name, band = item.attrib.get("name", ""), item.attrib.get("sample")
        target = found if band is None else found.setdefault(f"band {band}", {})
        if isinstance(target, dict):
            target[name] = item.text or ""
    return found


def fill_value(page: tifffile.TiffPage, dtype: np.dtype[Any]) -> Json:
    """Give GDAL's nodata as a fill value, where the type can hold it; zero otherwise."""
    zero: Json = {"b": False, "c": [0.0, 0.0]}.get(dtype.kind, 0)
    text = page.tags.valueof(42113)
    if not isinstance(text, str) or dtype.kind in "bc":
        return zero
    text = text.strip("\0 \n").replace(",", ".")
    try:
        if dtype.kind in "iu":
            number = int(text) if text.lstrip("+-").isdigit() else float(text)
            bounds = np.iinfo(dtype)
            is_held = number == int(number) and bounds.min <= number <= bounds.max
            return int(number) if is_held else zero
        with np.errstate(over="ignore"):
            value = float(dtype.type(float(text)))
    except (ValueError, OverflowError):
        return zero
    return float_json(value)


def float_json(value: float) -> Json:
    """Spell a float as Zarr metadata does."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def geo_attributes(
    page: tifffile.TiffPage, shape: tuple[int, int], full: tuple[int, int] | None = None
) -> dict[str, Json]:
    """Give `proj:` and `spatial:` of a page, or of a level of `shape` below one of `full`."""
    transform = page_transform(page)
    if transform is not None and full is not None and all(shape):
        transform = geo.rescaled(transform, full[1] / shape[1], full[0] / shape[0])
    return geo.attributes(
        shape=shape, transform=transform, code=geo.geotiff_code(page_geo_keys(page))
    )
