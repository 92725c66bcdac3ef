"""OME attributes of an image: axes with their units, levels, channels. And OME-TIFF in many files.

Spec: OME-Zarr 0.5; OME-TIFF 6 (https://ome-model.readthedocs.io); ImageJ and other kinds as
      tifffile reads their axes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import numpy as np

from anychunk.errors import FormatError
from anychunk.formats.tiff.images import Image
from anychunk.formats.tiff.stack import AXES, Stack
from anychunk.metadata import ome
from anychunk.model.index import Json

UNITS = {
    "µm": "micrometer", "μm": "micrometer", "um": "micrometer", "micron": "micrometer",
    "microns": "micrometer", "\\u00b5m": "micrometer", "nm": "nanometer", "mm": "millimeter",
    "cm": "centimeter", "m": "meter", "metre": "meter", "pm": "picometer", "å": "angstrom",
    "in": "inch", "ft": "foot", "s": "second", "sec": "second", "ms": "millisecond",
    "µs": "microsecond", "min": "minute", "h": "hour",
}  # fmt: skip
KNOWN_UNITS = {*UNITS.values(), "yard", "mile", "day", "kilometer"}


def attribute(image: Image, paths: Sequence[str], xml: ET.Element | None) -> Json:
    """Give the `ome` attribute of an image whose levels are at `paths`."""
    first = image.levels[0]
    names = first.dimension_names
    scales, units = _scales(image)
    axes = [ome.Axis(name=name, unit=units.get(name)) for name in names]
    levels = ome.shrunk_levels(
        paths, [s.shape for s in image.levels], tuple(scales.get(name, 1.0) for name in names)
    )
    found = ome.ome(axes, levels, name=image.name or None)
    channels = _channels(xml, first) if xml is not None else []
    if channels:
        found["omero"] = {"channels": channels}
    return found


def _scales(image: Image) -> tuple[dict[str, float], dict[str, str]]:
    """Give size and unit of a pixel along named axes, as far as the file tells.

    From the ends that tifffile notes for each axis: its own `coord_scales` makes every coordinate,
    however many a damaged file announces.
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
    """Read XResolution, YResolution and ResolutionUnit (TIFF 6.0 section 8)."""
    tags = stack.keyframe.tags
    unit = {2: "inch", 3: "centimeter"}.get(int(tags.valueof(296, 2) or 0))
    sizes: dict[str, float] = {}
    for letter, code in (("X", 282), ("Y", 283)):
        value = tags.valueof(code)
        if unit and isinstance(value, tuple) and len(value) == 2 and value[0] and value[1]:
            sizes[letter] = value[1] / value[0]
    return sizes, dict.fromkeys(sizes, unit or "")


def parse_xml(text: str | None) -> ET.Element | None:
    if not text:
        return None
    try:
        return ET.fromstring(text)  # noqa: S314 - expat bounds entities itself
    except (ET.ParseError, ValueError):
        return None


def children(element: ET.Element, name: str) -> list[ET.Element]:
    """List direct children by name, whatever version of the OME namespace they have."""
    return [child for child in element if child.tag.rpartition("}")[2] == name]


def _channels(pixels: ET.Element, stack: Stack) -> list[Json]:
    found = []
    for i, channel in enumerate(children(pixels, "Channel")):
        entry: dict[str, Json] = {
            "label": channel.attrib.get("Name") or channel.attrib.get("ID") or f"{i}",
            "color": _color(channel.attrib.get("Color")),
            "active": True,
        }
        if stack.layout.dtype.kind in "iu":
            bounds = np.iinfo(stack.layout.dtype)
            low, high = int(bounds.min), int(bounds.max)
            entry["window"] = {"min": low, "max": high, "start": low, "end": high}
        found.append(entry)
    return found


def _color(text: str | None) -> str:
    """Give OME's signed RGBA number as six hexadecimal digits."""
    try:
        number = int(text) & 0xFFFFFFFF if text is not None else 0xFFFFFFFF
    except ValueError:
        number = 0xFFFFFFFF
    return f"{number >> 8:06X}"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where OME-XML says that planes are: some pages of one file, one after the other."""

    start: int
    """The number of the first plane."""
    count: int | None
    """None: as many as the file has pages."""
    file: str | None
    """None: the file that holds the XML."""
    directory: int


def pixels_of(root: ET.Element) -> list[ET.Element]:
    return [p for image in children(root, "Image") for p in children(image, "Pixels")]


def pixels_of_image(image: Image, pixels: Sequence[ET.Element]) -> ET.Element | None:
    """Find the Pixels of an image, among those of which this file holds planes."""
    if image.kind != "ome" or image.series is None:
        return None
    number = int(image.series._index)  # noqa: SLF001 - it has no public name
    return pixels[number] if number < len(pixels) else None


def own_pixels(root: ET.Element, where: str, pages: int) -> list[ET.Element]:
    """List the Pixels of which this file holds planes: tifffile has a series for each of them."""
    uuid, name = root.attrib.get("UUID"), where.rpartition("/")[2]
    return [
        pixels
        for pixels in pixels_of(root)
        if any(
            place.file is None and place.directory < pages
            for place in placements(pixels, uuid, name, where)
        )
    ]


def placements(pixels: ET.Element, root_uuid: str | None, name: str, where: str) -> list[Placement]:
    """Say where planes are, in the order of the XML: what comes later rules."""
    try:
        sizes, axes = plane_sizes(pixels)
        found = [
            _placement(data, axes, sizes, root_uuid, name) for data in children(pixels, "TiffData")
        ]
    except (KeyError, ValueError) as e:
        raise FormatError(f"{where}: OME-XML TiffData does not hold ({e})") from e
    return [place for place in found if place is not None]


def plane_sizes(pixels: ET.Element) -> tuple[list[int], str]:
    """Give the sizes and the letters of the axes that planes are counted along, slowest first."""
    axes = pixels.attrib["DimensionOrder"][::-1][:-2]
    bands = max(
        [int(c.attrib.get("SamplesPerPixel", 1)) for c in children(pixels, "Channel")] or [1]
    )
    sizes = [
        int(pixels.attrib[f"Size{a}"]) // (bands if a == "C" and bands > 1 else 1) for a in axes
    ]
    return sizes, axes


def _placement(
    data: ET.Element, axes: str, sizes: list[int], root_uuid: str | None, name: str
) -> Placement | None:
    first = [int(data.attrib.get(f"First{a}", 0)) for a in axes]
    if any(not 0 <= n < size for n, size in zip(first, sizes, strict=True)):
        return None  # left over from an image that was cropped
    start = int(np.ravel_multi_index(first, sizes)) if sizes else 0
    # OME-TIFF: without IFD and PlaneCount, all pages of the file
    text = data.attrib.get("PlaneCount", data.attrib.get("NumPlanes"))
    count = int(text) if text is not None else 1 if "IFD" in data.attrib else 0
    file = None
    for uuid in children(data, "UUID")[:1]:
        named = uuid.attrib.get("FileName")
        is_own = (root_uuid is not None and uuid.text == root_uuid) or (
            root_uuid is None and (named or "").lower() == name.lower()
        )
        file = None if is_own else named
    return Placement(
        start=start, count=count or None, file=file, directory=int(data.attrib.get("IFD", 0))
    )
