"""What the samples of a TIFF image mean: axes, place, bands, nodata, drawing, texts."""

import enum
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import tifffile

from anychunk.formats.tiff import axes, ome_xml, photometry
from anychunk.formats.tiff.directory import RATIONAL
from anychunk.formats.tiff.gdal_metadata import (
    GdalMetadata,
    gdal_metadata,
    nodata,
    page_geo_keys,
    page_place,
    texts,
)
from anychunk.formats.tiff.images import Image
from anychunk.formats.tiff.page_stack import Stack
from anychunk.metadata import drawing
from anychunk.metadata.meaning import Axis, Band, Channel, Display, Meaning, Place
from anychunk.model.index import Json

UNDEFINED = "Undefined"
MOST_BANDS = (1 << 16) - 1
"""The most that SamplesPerPixel, a SHORT, can state; of more bands, none is described."""


def image_meaning(image: Image, xml: ET.Element | None) -> Meaning:
    """Return what the samples of an image mean, for each of the images it is divided into.

    Parameters:
        image: the image.
        xml: its OME-XML Pixels element.
    """
    full = image.levels[0]
    page = full.keyframe
    keys = page_geo_keys(page)
    gdal = gdal_metadata(page)
    place = page_place(page, keys)
    channels = ome_xml.channels(xml) if xml is not None else []
    tags = texts(page, keys)
    if image.kind == "ome":
        # the XML describes all images; the root group has it
        tags.pop("TIFFTAG_IMAGEDESCRIPTION", None)
    return Meaning(
        axes=_axes(image, xml, place),
        place=place,
        nodata=nodata(page, full.layout.dtype),
        name=image.name,
        tags={**gdal.tags, **tags},
        native={"tiff": {"kind": image.kind, **page_attributes(page, keys, gdal)}},
        bands=_bands(full, gdal, channels),
        display=_display(image, gdal, channels),
        time=page_time(page, gdal),
    )


def _axes(image: Image, xml: ET.Element | None, place: Place) -> tuple[Axis, ...]:
    """Return the axes; sizes of pixels on the ground are those of the place."""
    full = image.levels[0]
    arranged = full.arrangement
    stated = set(axes.stated(full.axes, arranged).values())
    found = sizes(image, xml)
    if place.transform is not None:
        stated -= {"x", "y"}
    listed = []
    for name in arranged.names:
        size = found.get(name) if name in stated else None
        if size is None:
            listed.append(Axis(name=name))
        else:
            listed.append(Axis(name=name, unit=size.unit, scale=size.scale, origin=size.origin))
    return tuple(listed)


def _band_count(stack: Stack) -> int:
    arranged = stack.arrangement
    names = arranged.names
    return arranged.shape[names.index("c")] if "c" in names else 1


def _bands(
    stack: Stack, gdal: GdalMetadata, channels: list[ome_xml.OmeChannel]
) -> tuple[Band, ...]:
    """Return what is known about each band; nothing if a damaged file announces too many."""
    page, count = stack.keyframe, _band_count(stack)
    if count > MOST_BANDS:
        return ()
    kind = photometry.photometric(page, stack.layout)
    colors: list[str | None] = [None] * count
    if count == stack.layout.bands:
        colors = photometry.interpretations(page, kind, count)
    names = ome_xml.band_names(channels, count)
    if not gdal.bands and not gdal.band_tags:
        plain = zip(names, colors, strict=True)
        return tuple(Band(name=name, interpretation=color) for name, color in plain)
    found = []
    for number in range(count):
        band = gdal.band(number)
        stated = gdal.bands.get(number, {}).get("colorinterp")
        color = colors[number] if stated is None else None if stated == UNDEFINED else stated
        found.append(replace(band, name=band.name or names[number], interpretation=color))
    return tuple(found)


def _display(image: Image, gdal: GdalMetadata, channels: list[ome_xml.OmeChannel]) -> Display:
    full = image.levels[0]
    stated = gdal.bands.get(0, {}).get("colorinterp")
    found = photometry.display(full.keyframe, full.layout, stated)
    count = _band_count(full)
    if count > full.layout.bands or (channels and found["model"] in ("grey", "channels")):
        listed = ome_xml.display_channels(channels, count)
        found = _as_channels(found, listed) if listed or count > 1 else found
    if image.kind == "imagej":
        found = _imagej_display(image, found, count)
    return drawing.with_mask(found) if image.masks else found


def _as_channels(display: Display, listed: list[Channel]) -> Display:
    """Return a display by channels, of an image that is otherwise drawn as `display` says."""
    if len(listed) == 1 and "color" not in listed[0] and display["model"] == "grey":
        return display
    found = drawing.channels(listed)
    if "orientation" in display:
        found["orientation"] = display["orientation"]
    return found


def _imagej_display(image: Image, display: Display, count: int) -> Display:
    """Return a display with the limits and colours that ImageJ stored."""
    page = image.levels[0].keyframe
    described = page.parent.imagej_metadata
    if not isinstance(described, Mapping) or display["model"] not in ("grey", "channels"):
        return display
    windows = _imagej_windows(described, count)
    tables = _imagej_tables(described, count)
    if count == 1:
        if tables and not _is_ramp(tables[0]) and image.levels[0].layout.dtype == np.uint8:
            return drawing.indexed(tables[0].tolist())
        if windows and not display.get("inverted"):
            return drawing.grey(limits=windows[0])
        return display
    listed = []
    for band in range(count):
        channel = Channel(band=band)
        if tables:
            channel["color"] = bytes(tables[band][-1].tolist()).hex().upper()
        if windows:
            channel["window"] = list(windows[band])
        listed.append(channel)
    is_stated = bool(tables or windows)
    return _as_channels(display, listed if is_stated else display.get("channels", []))


def _imagej_windows(described: Mapping[str, Any], count: int) -> list[tuple[float, float]]:
    """Return the limits of each channel; empty if they are not stated."""
    ranges = described.get("Ranges")
    if isinstance(ranges, tuple) and len(ranges) == 2 * count:
        pairs = list(zip(ranges[::2], ranges[1::2], strict=True))
    else:
        pairs = [(described.get("min"), described.get("max"))] if count == 1 else []
    is_stated = all(
        isinstance(n, int | float) and np.isfinite(n) for pair in pairs for n in pair
    ) and all(low < high for low, high in pairs)
    return [(float(low), float(high)) for low, high in pairs] if is_stated else []


def _imagej_tables(described: Mapping[str, Any], count: int) -> list[Any]:
    """Return the colours of each channel, (256, 3); empty if they are not stated."""
    tables = described.get("LUTs")
    if not isinstance(tables, list) or len(tables) != count:
        return []
    found = [np.asarray(table) for table in tables]
    is_known = all(table.shape == (3, 256) and table.dtype == np.uint8 for table in found)
    return [table.T for table in found] if is_known else []


def _is_ramp(table: Any) -> bool:
    """Return whether a table is that of one colour, from black."""
    ramp = np.arange(256)[:, None] * (table[-1].astype(int) / 255)
    return bool(np.abs(table.astype(int) - ramp).max() <= 1)


# When a TIFF image was taken, as far as its tags say.
#
# Spec: EXIF 2.32 section 4.6.5 (DateTimeOriginal, SubSecTimeOriginal, OffsetTimeOriginal); GDAL's
#       domain IMAGERY (ACQUISITIONDATETIME); TIFF 6.0 section 8 (DateTime), which many writers set
#       to the time of writing, so that it comes last.


DATETIME, EXIF = 306, 34665
ORIGINAL, FRACTION, OFFSET = "DateTimeOriginal", "SubsecTimeOriginal", "OffsetTimeOriginal"
"""Names that tifffile gives to tags of the EXIF directory."""


def page_time(page: tifffile.TiffPage, gdal: GdalMetadata) -> str | None:
    """Return when a page was taken, as ISO 8601; None if nothing readable says so."""
    return next(_stated(page, gdal), None)


def _stated(page: tifffile.TiffPage, gdal: GdalMetadata) -> Iterator[str]:
    exif = page.tags.valueof(EXIF)
    if isinstance(exif, Mapping):
        yield from exif_time(exif)
    text = gdal.domains.get("IMAGERY", {}).get("ACQUISITIONDATETIME")
    if text is not None:
        with suppress(ValueError):
            yield datetime.fromisoformat(text.strip()).isoformat()
    yield from _iso(page.tags.valueof(DATETIME))


def exif_time(exif: Mapping[str, Any]) -> Iterator[str]:
    """Yield DateTimeOriginal, with its fraction of a second and its offset if they are stated."""
    fraction, offset = (
        value.strip("\0 ") if isinstance(value := exif.get(name), str) else ""
        for name in (FRACTION, OFFSET)
    )
    for text in _iso(exif.get(ORIGINAL)):
        digits = fraction if fraction.isascii() and fraction.isdigit() else ""
        plain = f"{text}.{digits[:6]:0<6}" if digits else text
        try:
            yield datetime.fromisoformat(plain + offset).isoformat()
        except ValueError:  # an offset that is not one
            yield plain


def _iso(text: object) -> Iterator[str]:
    """Yield a date of TIFF and EXIF, `YYYY:MM:DD hh:mm:ss`, as ISO 8601, if it is one."""
    if not isinstance(text, str):
        return
    try:
        found = datetime.strptime(text.strip("\0 "), "%Y:%m:%d %H:%M:%S")  # noqa: DTZ007 - no zone is stated
    except ValueError:
        return
    yield found.isoformat()


# The attribute `tiff` of an image: what its first page states, in TIFF's own words.


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


# Size of a pixel along the axes of a TIFF image, as OME-XML, ImageJ, vendors or the tags state it.
#
# Spec: TIFF 6.0 section 8 (XResolution, ResolutionUnit); OME-XML PhysicalSize and TimeIncrement;
#       ImageJ's description (ij.io.TiffDecoder, ij.io.FileOpener); others as tifffile reads them.


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
