"""Attributes of a TIFF image: its tags, OME axes and scales, GeoTIFF georeference, nodata.

Spec: TIFF 6.0 section 8; GeoTIFF 1.1; OME-Zarr 0.5; GDAL_METADATA and GDAL_NODATA as GDAL writes
      them; axes of OME, ImageJ and other kinds as tifffile reads them.
"""

import enum
import math
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import tifffile

from anychunk.formats.tiff.images import Image
from anychunk.formats.tiff.ome_xml import channels
from anychunk.formats.tiff.page_stack import AXES, Stack
from anychunk.metadata import geo, ome
from anychunk.metadata.samples import float_json
from anychunk.model.index import Json

HIDDEN = {
    273, 279, 288, 289, 324, 325, 330, 347, 519, 520, 521, 34735, 34736, 34737, 42112, 50838, 50839,
    65426, 65432,
}  # fmt: skip
"""Tags left out of `tiff.tags`: byte offsets, and those that have a separate attribute."""
MAX_VALUES = 2048
"""Tags with more values than this are left out: they are data, not description."""
MAX_TEXT = 1 << 20
MAX_HEX_BYTES = 64

UNITS = {
    "µm": "micrometer", "μm": "micrometer", "um": "micrometer", "micron": "micrometer",
    "microns": "micrometer", "\\u00b5m": "micrometer", "nm": "nanometer", "mm": "millimeter",
    "cm": "centimeter", "m": "meter", "metre": "meter", "pm": "picometer", "å": "angstrom",
    "in": "inch", "ft": "foot", "s": "second", "sec": "second", "ms": "millisecond",
    "µs": "microsecond", "min": "minute", "h": "hour",
}  # fmt: skip
"""OME-Zarr's unit names, by the spelling found in files, in lower case."""
KNOWN_UNITS = {*UNITS.values(), "yard", "mile", "day", "kilometer"}


def page_attributes(page: tifffile.TiffPage) -> dict[str, Json]:
    """Return the attributes of a page that are stored under `tiff`."""
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


def tag_attributes(page: tifffile.TiffPage) -> dict[str, Json]:
    """Return the tags of a page by name, those that JSON can represent."""
    found: dict[str, Json] = {}
    for tag in page.tags:
        if tag.code in HIDDEN or tag.count > MAX_VALUES * 4:
            continue
        value = as_json(tag.value)
        if value is not None and tag.name not in found:
            found[str(tag.name)] = value
    return found


def as_json(value: Any) -> Json:  # noqa: PLR0911 - one line per type
    """Return a tag's value as JSON; None if it is too long or has no JSON equivalent."""
    if isinstance(value, enum.Enum):
        return int(value) if isinstance(value, int) else value.name
    if isinstance(value, bool | str):
        return value if len(str(value)) <= MAX_TEXT else None
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.hex() if len(value) <= MAX_HEX_BYTES else None
    if isinstance(value, np.ndarray):
        return as_json(value.tolist()) if value.size <= MAX_VALUES else None
    if isinstance(value, list | tuple):
        return [as_json(v) for v in value] if len(value) <= MAX_VALUES else None
    if isinstance(value, dict):
        return {str(k): as_json(v) for k, v in value.items()} if len(value) <= MAX_VALUES else None
    return None


def _name(value: Any) -> Json:
    return value.name if isinstance(value, enum.Enum) else as_json(value)


def _key_name(key: int) -> str:
    try:
        return str(tifffile.TIFF.GEO_KEYS(key).name)
    except ValueError:
        return str(key)


def gdal_metadata(page: tifffile.TiffPage) -> dict[str, Json]:
    """Return the items of GDAL_METADATA: {name: text}, and {band: {name: text}} per band."""
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
    """Return GDAL_NODATA as a fill value if `dtype` can represent it, otherwise zero."""
    zero: Json = {"b": False, "c": [0.0, 0.0]}.get(dtype.kind, 0)
    text = page.tags.valueof(42113)
    if not isinstance(text, str) or dtype.kind in "bc":
        return zero
    text = text.strip("\0 \n").replace(",", ".")
    try:
        if dtype.kind in "iu":
            # not through float: it cannot represent every 64-bit integer
            number = int(text) if text.lstrip("+-").isdigit() else float(text)
            bounds = np.iinfo(dtype)
            is_held = number == int(number) and bounds.min <= number <= bounds.max
            return int(number) if is_held else zero
        with np.errstate(over="ignore"):
            value = float(dtype.type(float(text)))
    except (ValueError, OverflowError):
        return zero
    return float_json(value)


def ome_attribute(image: Image, paths: Sequence[str], xml: ET.Element | None) -> Json:
    """Return the `ome` attribute of an image.

    Parameters:
        image: the image.
        paths: paths of the arrays of its levels.
        xml: its OME-XML Pixels element, for the channels.
    """
    first = image.levels[0]
    names = first.dimension_names
    scales, units = _scales(image)
    axes = [ome.Axis(name=name, unit=units.get(name)) for name in names]
    levels = ome.shrunk_levels(
        paths, [s.shape for s in image.levels], tuple(scales.get(name, 1.0) for name in names)
    )
    found = ome.ome(axes, levels, name=image.name or None)
    described = channels(xml, first.layout.dtype) if xml is not None else []
    if described:
        found["omero"] = {"channels": described}
    return found


def _scales(image: Image) -> tuple[dict[str, float], dict[str, str]]:
    """Return the size and the unit of a pixel along the axes for which the file states them.

    Computed from the (first, last) coordinates that tifffile keeps per axis. Its own `coord_scales`
    would build the array of all coordinates, however many a damaged file announces.
    """
    sizes, units = _resolution(image.levels[0])
    series = image.series
    if series is not None:
        for letter, ends in dict(series._coords).items():  # noqa: SLF001 - see above
            if letter in AXES and letter in series.axes and isinstance(ends, tuple):
                count = int(series.shape[series.axes.index(letter)])
                sizes[letter] = (ends[1] - ends[0]) / max(count, 1)
                units.pop(letter, None)
        units |= dict(series._units)  # noqa: SLF001
    scales = {AXES[a]: abs(float(v)) for a, v in sizes.items() if math.isfinite(v) and v != 0}
    named = {}
    for letter, unit in units.items():
        word = UNITS.get(str(unit).strip().lower(), str(unit).strip().lower())
        if letter in AXES and word in KNOWN_UNITS:
            named[AXES[letter]] = word
    return scales, named


def _resolution(stack: Stack) -> tuple[dict[str, float], dict[str, str]]:
    """Return pixel sizes and units of XResolution and YResolution (TIFF 6.0 section 8)."""
    tags = stack.keyframe.tags
    unit = {2: "inch", 3: "centimeter"}.get(int(tags.valueof(296, 2) or 0))
    sizes: dict[str, float] = {}
    for letter, code in (("X", 282), ("Y", 283)):
        value = tags.valueof(code)
        if unit and isinstance(value, tuple) and len(value) == 2 and value[0] and value[1]:
            sizes[letter] = value[1] / value[0]
    return sizes, dict.fromkeys(sizes, unit or "")


def geo_attributes(
    page: tifffile.TiffPage, shape: tuple[int, int], full: tuple[int, int] | None = None
) -> dict[str, Json]:
    """Return the `proj:` and `spatial:` attributes of a page or of one of its levels.

    Parameters:
        page: the page with the GeoTIFF tags.
        shape: height and width of the level.
        full: height and width of the page, if the level is a different page.
    """
    transform = page_transform(page)
    if transform is not None and full is not None and all(shape):
        transform = geo.rescaled(transform, full[1] / shape[1], full[0] / shape[0])
    return geo.attributes(
        shape=shape, transform=transform, code=geo.geotiff_code(page_geo_keys(page))
    )


def page_geo_keys(page: tifffile.TiffPage) -> dict[int, Any]:
    """Return the GeoKeys of a page by number; empty if it has none."""
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
    """Return the affine transform of a GeoTIFF page, as GDAL reads it."""
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
