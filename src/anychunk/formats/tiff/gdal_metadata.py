"""What GDAL's own tags state: GDAL_METADATA, GDAL_NODATA, and texts under GDAL's names.

Spec: GDAL's GTiff driver: https://gdal.org/drivers/raster/gtiff.html
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import tifffile

from anychunk.formats.tiff.directory import DOUBLE, FLOAT, LONG, RATIONAL, SHORT
from anychunk.metadata.crs import crs_from_geokeys
from anychunk.metadata.geo import geotiff_gcps, geotiff_transform
from anychunk.metadata.geo_keys import PIXEL_IS_POINT, RASTER_TYPE, float_json, geo_keys
from anychunk.metadata.meaning import Band, Place
from anychunk.metadata.pam import number_of
from anychunk.model.index import Json

METADATA, NODATA = 42112, 42113
"""GDAL's private tags."""
TEXTS = {
    269: "TIFFTAG_DOCUMENTNAME", 270: "TIFFTAG_IMAGEDESCRIPTION", 271: "TIFFTAG_MAKE",
    272: "TIFFTAG_MODEL", 305: "TIFFTAG_SOFTWARE", 306: "TIFFTAG_DATETIME", 315: "TIFFTAG_ARTIST",
    316: "TIFFTAG_HOSTCOMPUTER", 33432: "TIFFTAG_COPYRIGHT",
}  # fmt: skip
"""Tags with a text, by GDAL's names."""
NUMBERS = {280: "TIFFTAG_MINSAMPLEVALUE", 281: "TIFFTAG_MAXSAMPLEVALUE"}
RESOLUTIONS = {282: "TIFFTAG_XRESOLUTION", 283: "TIFFTAG_YRESOLUTION"}
UNIT_TEXTS = {1: "1 (unitless)", 2: "2 (pixels/inch)", 3: "3 (pixels/cm)"}
LONGEST_TEXT = 1 << 16
"""Longer texts are documents of their own, which `tiff.tags` has."""

# not xml.sax.saxutils, which imports urllib
ESCAPED = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&amp;": "&"}
"""GDAL escapes values twice; the XML parser undoes it once. The ampersand is the last."""


@dataclass(frozen=True, kw_only=True)
class GdalMetadata:
    """The items of GDAL_METADATA."""

    tags: dict[str, str] = field(default_factory=dict)
    """Of the whole image, without those of other domains."""
    domains: dict[str, dict[str, str]] = field(default_factory=dict)
    bands: dict[int, dict[str, str]] = field(default_factory=dict)
    """Of each band, by role (scale, offset, description, unittype, colorinterp)."""
    band_tags: dict[int, dict[str, str]] = field(default_factory=dict)
    band_domains: dict[int, dict[str, dict[str, str]]] = field(default_factory=dict)

    def band(self, number: int) -> Band:
        """Return what the items state about a band, but for its colour."""
        roles = self.bands.get(number, {})
        return Band(
            name=roles.get("description") or None,
            unit=roles.get("unittype") or None,
            scale=_number(roles.get("scale"), 1.0),
            offset=_number(roles.get("offset"), 0.0),
            tags=self.band_tags.get(number, {}),
        )

    def json(self) -> dict[str, Json]:
        """Return the items as an attribute: {name: text}, and {band: {name: text}} per band.

        Items of another domain are in an object of its name.
        """
        found: dict[str, Json] = {**self.tags, **self.domains}
        names = {"scale": "SCALE", "offset": "OFFSET", "description": "DESCRIPTION",
                 "unittype": "UNITTYPE", "colorinterp": "COLORINTERP"}  # fmt: skip
        for number in sorted({*self.bands, *self.band_tags, *self.band_domains}):
            roles = {names[role]: text for role, text in self.bands.get(number, {}).items()}
            tags, domains = self.band_tags.get(number, {}), self.band_domains.get(number, {})
            found[f"band {number}"] = {**roles, **tags, **domains}
        return found


ROLES = ("scale", "offset", "description", "unittype", "colorinterp")


def gdal_metadata(page: tifffile.TiffPage) -> GdalMetadata:
    """Return the items of a page's GDAL_METADATA; none if it has none or is not well-formed."""
    text = page.tags.valueof(METADATA)
    if not isinstance(text, str):
        return GdalMetadata()
    try:
        root = ET.fromstring(text.rstrip("\0 \n"))  # noqa: S314 - expat bounds entities itself
    except (ET.ParseError, ValueError):
        return GdalMetadata()
    found = GdalMetadata()
    for item in root.iter("Item"):
        name, domain = item.get("name", ""), item.get("domain", "")
        value = item.text or ""
        for escaped, character in ESCAPED.items():
            value = value.replace(escaped, character)
        sample = item.get("sample", "")
        if not value:
            continue
        if not sample.isdecimal():
            target = found.domains.setdefault(domain, {}) if domain else found.tags
            target[name] = value
        elif (role := item.get("role", "").lower()) in ROLES:
            found.bands.setdefault(int(sample), {})[role] = value
        elif not domain:
            found.band_tags.setdefault(int(sample), {})[name] = value
        else:
            found.band_domains.setdefault(int(sample), {}).setdefault(domain, {})[name] = value
    return found


def texts(page: tifffile.TiffPage, keys: Mapping[int, Any]) -> dict[str, str]:
    """Return the descriptive tags of a page by GDAL's names.

    Parameters:
        page: the page.
        keys: its GeoKeys, which say what pixels stand for.
    """
    found: dict[str, str] = {}
    for code, name in TEXTS.items():
        value = page.tags.valueof(code)
        if isinstance(value, str) and value and len(value) <= LONGEST_TEXT:
            found[name] = value
    for code, name in NUMBERS.items():
        value = page.tags.valueof(code)
        value = value[0] if isinstance(value, tuple) and value else value
        if isinstance(value, int):
            found[name] = str(value)
    for code, name in RESOLUTIONS.items():
        tag = page.tags.get(code)
        if tag is not None and (tag.dtype, tag.count) == (RATIONAL, 1):
            above, below = tag.value
            found[name] = f"{np.float32(above / below) if below else 0:.8g}"
    unit = page.tags.valueof(296)
    if isinstance(unit, int):
        found["TIFFTAG_RESOLUTIONUNIT"] = UNIT_TEXTS.get(int(unit), str(int(unit)))
    if RASTER_TYPE in keys:
        found["AREA_OR_POINT"] = "Point" if keys[RASTER_TYPE] == PIXEL_IS_POINT else "Area"
    return found


def nodata(page: tifffile.TiffPage, dtype: np.dtype[Any]) -> float | int | None:
    """Return GDAL_NODATA; None if it is missing or `dtype` cannot represent it."""
    text = page.tags.valueof(NODATA)
    return number_of(text, dtype) if isinstance(text, str) else None


def fill_value(nodata: float | None, dtype: np.dtype[Any]) -> Json:
    """Return what absent strips and tiles read as: nodata if there is one, otherwise zero."""
    if nodata is None:
        return {"b": False, "c": [0.0, 0.0]}.get(dtype.kind, 0)
    return float_json(nodata) if dtype.kind == "f" else nodata


def _number(text: str | None, default: float) -> float:
    try:
        number = float(text) if text is not None else default
    except ValueError:
        return default
    return number if np.isfinite(number) else default


# Where a TIFF page lies on the earth: GeoTIFF tags, ground control points, RPC.
#
# Spec: GeoTIFF 1.1 (OGC 19-008r4) sections 7 and 8; RPCs in GeoTIFF
#       (http://geotiff.maptools.org/rpc_prop.html); precedence of the tags as in GDAL.


PIXEL_SCALE, TIEPOINTS, MATRIX, RPC = 33550, 33922, 34264, 50844
KEY_DIRECTORY, DOUBLE_PARAMS, ASCII_PARAMS = 34735, 34736, 34737
PLACE_NUMBERS = (SHORT, LONG, FLOAT, DOUBLE)
"""Types of tags that are read as floating point numbers."""
RPC_NUMBERS = (
    "err_bias", "err_rand", "line_off", "samp_off", "lat_off", "long_off", "height_off",
    "line_scale", "samp_scale", "lat_scale", "long_scale", "height_scale",
)  # fmt: skip
RPC_LISTS = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")
"""The contents of the RPC tag, in their order: single numbers, then lists of 20."""


def page_geo_keys(page: tifffile.TiffPage) -> dict[int, Any]:
    """Return the GeoKeys of a page by number; empty if it has none."""
    directory = page.tags.get(KEY_DIRECTORY)
    if directory is None or directory.dtype != SHORT:
        return {}
    text = page.tags.valueof(ASCII_PARAMS, "")
    return dict(
        geo_keys(
            np.asarray(directory.value).reshape(-1).tolist(),
            numbers(page, DOUBLE_PARAMS) or (),
            text if isinstance(text, str) else "",
        )
    )


def page_place(page: tifffile.TiffPage, keys: Mapping[int, Any]) -> Place:
    """Return where a page lies.

    Parameters:
        page: the page.
        keys: its GeoKeys.
    """
    is_point = keys.get(RASTER_TYPE) == PIXEL_IS_POINT
    scale, tiepoints = numbers(page, PIXEL_SCALE), numbers(page, TIEPOINTS)
    transform = geotiff_transform(
        scale=scale, tiepoints=tiepoints, matrix=numbers(page, MATRIX), is_point=is_point
    )
    gcps = () if transform is not None else geotiff_gcps(tiepoints, is_point=is_point)
    crs = crs_from_geokeys(keys) if keys else None
    return Place(crs=crs, transform=transform, gcps=gcps, rpc=_rpc(numbers(page, RPC)))


def numbers(page: tifffile.TiffPage, code: int) -> Sequence[float] | None:
    """Return the numbers of a tag; None if it is missing or has another type."""
    tag = page.tags.get(code)
    if tag is None or tag.dtype not in PLACE_NUMBERS:
        return None
    return np.asarray(tag.value).reshape(-1).tolist()


def _rpc(values: Sequence[float] | None) -> dict[str, Json] | None:
    """Return the rational polynomial coefficients of the RPC tag by GDAL's names in lower case."""
    first, each = len(RPC_NUMBERS), 20
    if values is None or len(values) != first + each * len(RPC_LISTS):
        return None
    if not all(math.isfinite(value) for value in values):
        return None
    found: dict[str, Json] = dict(zip(RPC_NUMBERS, values, strict=False))
    for i, name in enumerate(RPC_LISTS):
        found[name] = list(values[first + i * each : first + (i + 1) * each])
    return found
