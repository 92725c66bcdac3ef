"""The attribute `tiff` of an image: what its first page states, in TIFF's own words."""

import enum
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tifffile

from anychunk.formats.tiff.gdal_metadata import GdalMetadata
from anychunk.model.index import Json

HIDDEN = {
    273, 279, 288, 289, 320, 324, 325, 330, 347, 519, 520, 521, 34735, 34736, 34737, 42112, 50838,
    50839, 65426, 65432,
}  # fmt: skip
"""Tags left out of `tiff.tags`: byte offsets, and those that other attributes describe."""
MAX_VALUES = 2048
"""Tags with more values than this are left out: they are data, not description."""
MAX_TEXT = 1 << 20
MAX_HEX_BYTES = 64


def page_attributes(
    page: tifffile.TiffPage, keys: Mapping[int, Any], gdal: GdalMetadata
) -> dict[str, Json]:
    """Return the attributes of a page that are stored under `tiff`.

    Parameters:
        page: the page.
        keys: its GeoKeys.
        gdal: its GDAL_METADATA.
    """
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
    if keys:
        found["geo_keys"] = {_key_name(k): v for k, v in keys.items()}
    if items := gdal.json():
        found["gdal_metadata"] = items
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
