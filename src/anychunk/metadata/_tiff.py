"""What TIFF states about samples and location, read from the attributes under `tiff`.

The only module outside `formats.tiff` that knows these keys. The TIFF parser keeps GDAL's tags
under `tiff` and writes no format-independent equivalent; once it does, this module can be removed.
"""

from collections.abc import Mapping
from typing import Any

from anychunk.model.index import Json

type Attributes = Mapping[str, Json]


def gdal_nodata(attributes: Attributes) -> float | str | None:
    """Return the value of the GDAL_NODATA tag, as text where it is not a number."""
    tags = _mapping(_mapping(attributes.get("tiff")).get("tags"))
    text = str(tags.get("GDAL_NODATA", "")).strip("\0 \n")
    return as_number(text) if text else None


def gdal_scales(attributes: Attributes) -> dict[str, tuple[float | str, float | str]]:
    """Return (scale, offset) per band of GDAL_METADATA, by band name (`band 0`, `band 1` …)."""
    items = _mapping(_mapping(attributes.get("tiff")).get("gdal_metadata"))
    bands = sorted(name for name in items if name.startswith("band "))
    return {
        name: (as_number(items[name].get("SCALE", 1)), as_number(items[name].get("OFFSET", 0)))
        for name in bands
        if isinstance(items[name], Mapping)
    }


def geo_keys(attributes: Attributes) -> Mapping[str, Json]:
    """Return the GeoTIFF keys by name; empty if there are none."""
    return _mapping(_mapping(attributes.get("tiff")).get("geo_keys"))


def as_number(value: Any) -> float | str:
    """Return `value` as a float, or its text if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
