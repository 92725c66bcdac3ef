"""What GDAL's own tags state: GDAL_METADATA, GDAL_NODATA, and texts under GDAL's names.

Spec: GDAL's GTiff driver: https://gdal.org/drivers/raster/gtiff.html
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import tifffile

from anychunk.formats.tiff.directory import RATIONAL
from anychunk.metadata.geo_keys import PIXEL_IS_POINT, RASTER_TYPE
from anychunk.metadata.meaning import Band
from anychunk.metadata.pam import number_of
from anychunk.metadata.samples import float_json
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
