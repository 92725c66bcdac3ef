"""Size of a pixel along the axes of a TIFF image, as OME-XML, ImageJ, vendors or the tags state it.

Spec: TIFF 6.0 section 8 (XResolution, ResolutionUnit); OME-XML PhysicalSize and TimeIncrement;
      ImageJ's description (ij.io.TiffDecoder, ij.io.FileOpener); others as tifffile reads them.
"""

import math
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import tifffile

from anychunk.formats.tiff.directory import RATIONAL
from anychunk.formats.tiff.images import Image

UNITS = {
    "µm": "micrometer", "μm": "micrometer", "um": "micrometer", "micron": "micrometer",
    "microns": "micrometer", "\\u00b5m": "micrometer", "nm": "nanometer", "mm": "millimeter",
    "cm": "centimeter", "m": "meter", "metre": "meter", "pm": "picometer", "å": "angstrom",
    "km": "kilometer", "in": "inch", "ft": "foot", "yd": "yard", "mi": "mile", "dm": "decimeter",
    "s": "second", "sec": "second", "ms": "millisecond", "µs": "microsecond", "μs": "microsecond",
    "us": "microsecond", "ns": "nanosecond", "min": "minute", "h": "hour", "d": "day",
}  # fmt: skip
"""OME-Zarr's unit names, by the spelling found in files, in lower case."""
KNOWN_UNITS = {*UNITS.values()}
PLAIN, INCH, CENTIMETER = 1, 2, 3
"""Values of ResolutionUnit; 1 means that the unit is unknown."""
RESOLUTION_UNITS = {INCH: "inch", CENTIMETER: "centimeter"}
X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT = 282, 283, 296
LETTERS = {"x": "X", "y": "Y", "z": "Z", "t": "T"}


@dataclass(frozen=True)
class Size:
    """The size of an element along an axis."""

    scale: float
    unit: str | None = None
    origin: float = 0.0


def sizes(image: Image, xml: ET.Element | None) -> dict[str, Size]:
    """Return the sizes of elements along x, y, z and t, as far as the file states them.

    Parameters:
        image: the image.
        xml: its OME-XML Pixels element.
    """
    page = image.levels[0].keyframe
    found = tagged_sizes(page)
    if image.kind == "imagej":
        found |= imagej_sizes(page)
    elif image.kind != "ome":
        found |= _vendor_sizes(image.series)
    if xml is not None:
        found |= ome_sizes(xml)
    return found


def tagged_sizes(page: tifffile.TiffPage) -> dict[str, Size]:
    """Return what XResolution and YResolution state per inch or centimetre."""
    number = page.tags.valueof(RESOLUTION_UNIT, INCH)
    unit = RESOLUTION_UNITS.get(number) if isinstance(number, int) else None
    return _by_tags(page, unit) if unit is not None else {}


def _by_tags(page: tifffile.TiffPage, unit: str | None) -> dict[str, Size]:
    found = {}
    for name, code in (("x", X_RESOLUTION), ("y", Y_RESOLUTION)):
        tag = page.tags.get(code)
        if tag is not None and (tag.dtype, tag.count) == (RATIONAL, 1):
            pixels, units = tag.value
            if pixels and units:
                found[name] = Size(units / pixels, unit)
    return found


def imagej_sizes(page: tifffile.TiffPage) -> dict[str, Size]:
    """Return what ImageJ's description states.

    With ResolutionUnit 1 the number is that of XResolution and the unit that of the description.
    With inches or centimetres the tags are right, whatever the description says.
    """
    described = page.parent.imagej_metadata
    if not isinstance(described, dict):
        return {}
    unit = unit_name(described.get("unit"))
    found: dict[str, Size] = {}
    if page.tags.valueof(RESOLUTION_UNIT) == PLAIN and unit is not None:
        found = _by_tags(page, unit)
    tagged = {**tagged_sizes(page), **found}
    spacing = positive(described.get("spacing"))
    if spacing is not None:
        found["z"] = Size(spacing, unit or (tagged["x"].unit if "x" in tagged else None))
    interval, rate = positive(described.get("finterval")), positive(described.get("fps"))
    if interval is None and rate is not None:
        interval = 1 / rate
    if interval is not None:
        found["t"] = Size(interval, unit_name(described.get("tunit")) or "second")
    return {
        name: _with_origin(size, described.get(f"{name}origin")) for name, size in found.items()
    }


def _with_origin(size: Size, pixels: Any) -> Size:
    """Return a size whose origin is as many pixels after the first one."""
    is_number = isinstance(pixels, int | float) and math.isfinite(pixels)
    return Size(size.scale, size.unit, -pixels * size.scale) if is_number and pixels else size


def ome_sizes(xml: ET.Element) -> dict[str, Size]:
    """Return what the Pixels element of OME-XML states; units are µm and s by default."""
    found = {}
    for name, letter in LETTERS.items():
        key, default = ("TimeIncrement", "s") if name == "t" else (f"PhysicalSize{letter}", "µm")
        scale = positive(_float(xml.get(key)))
        if scale is not None:
            found[name] = Size(scale, unit_name(xml.get(f"{key}Unit", default)))
    return found


def _vendor_sizes(series: Any) -> dict[str, Size]:
    """Return what other formats state, by the (first, last) coordinates that tifffile keeps.

    Its own `coord_scales` would build the array of all coordinates, however many a damaged file
    announces.
    """
    if series is None:
        return {}
    units: dict[str, Any] = dict(series._units)  # noqa: SLF001 - see above
    found = {}
    for name, letter in LETTERS.items():
        ends = series._coords.get(letter)  # noqa: SLF001
        if letter in series.axes and isinstance(ends, tuple):
            count = int(series.shape[series.axes.index(letter)])
            scale = positive(abs(ends[1] - ends[0]) / max(count, 1))
            if scale is not None:
                found[name] = Size(scale, unit_name(units.get(letter)))
    return found


def unit_name(text: Any) -> str | None:
    """Return OME-Zarr's name of a unit; None if it is not one of length or time."""
    word = str(text or "").strip().lower()
    word = UNITS.get(word, word)
    return word if word in KNOWN_UNITS else None


def positive(value: Any) -> float | None:
    """Return a positive finite number; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and value > 0 else None


def _float(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
