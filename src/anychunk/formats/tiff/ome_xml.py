"""OME-XML in a TIFF file: the file and page of every plane, and the channels.

Spec: OME-TIFF 6 (https://ome-model.readthedocs.io).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from anychunk.errors import FormatError
from anychunk.formats.tiff.images import Image
from anychunk.model.index import Json


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Planes of an image that are consecutive pages of one file: a TiffData element."""

    start: int
    """The number of the first plane."""
    count: int | None
    """The number of planes; None for as many as the file has pages."""
    file: str | None
    """Name of the file; None for the file that holds the XML."""
    directory: int
    """The page of the first plane."""


def parse_xml(text: str | None) -> ET.Element | None:
    """Return the root of an OME-XML document; None if there is none or it is not well-formed."""
    if not text:
        return None
    try:
        return ET.fromstring(text)  # noqa: S314 - expat bounds entities itself
    except (ET.ParseError, ValueError):
        return None


def children(element: ET.Element, name: str) -> list[ET.Element]:
    """Return the direct children with this name, in any version of the OME namespace."""
    return [child for child in element if child.tag.rpartition("}")[2] == name]


def pixels_of_image(image: Image, pixels: Sequence[ET.Element]) -> ET.Element | None:
    """Return the Pixels element of an image, from those that `own_pixels` returns."""
    if image.kind != "ome" or image.series is None:
        return None
    number = int(image.series._index)  # noqa: SLF001 - tifffile has no public name for it
    return pixels[number] if number < len(pixels) else None


def own_pixels(root: ET.Element, where: str, pages: int) -> list[ET.Element]:
    """Return the Pixels elements with planes in this file; tifffile has one series for each."""
    uuid, name = root.attrib.get("UUID"), where.rpartition("/")[2]
    every = [p for image in children(root, "Image") for p in children(image, "Pixels")]
    return [
        pixels
        for pixels in every
        if any(
            place.file is None and place.directory < pages
            for place in placements(pixels, uuid, name, where)
        )
    ]


def placements(pixels: ET.Element, root_uuid: str | None, name: str, where: str) -> list[Placement]:
    """Return where planes are, in document order: a later placement overrides an earlier one.

    Parameters:
        pixels: the Pixels element.
        root_uuid: UUID of the OME element, which identifies the file that holds the XML.
        name: name of the file that holds the XML.
        where: names the file in messages.
    """
    try:
        sizes, axes = plane_sizes(pixels)
        found = [
            _placement(data, axes, sizes, root_uuid, name) for data in children(pixels, "TiffData")
        ]
    except (KeyError, ValueError) as e:
        raise FormatError(f"{where}: OME-XML Pixels or TiffData cannot be read ({e!r})") from e
    return [place for place in found if place is not None]


def plane_sizes(pixels: ET.Element) -> tuple[list[int], str]:
    """Return sizes and letters of the axes that planes are counted along, slowest axis first."""
    # DimensionOrder lists the fastest axis first and begins with XY
    axes = pixels.attrib["DimensionOrder"][::-1][:-2]
    bands = max(
        [int(c.attrib.get("SamplesPerPixel", 1)) for c in children(pixels, "Channel")] or [1]
    )
    # SizeC counts samples; a page of RGB holds three of them in one plane
    sizes = [
        int(pixels.attrib[f"Size{a}"]) // (bands if a == "C" and bands > 1 else 1) for a in axes
    ]
    return sizes, axes


def _placement(
    data: ET.Element, axes: str, sizes: list[int], root_uuid: str | None, name: str
) -> Placement | None:
    first = [int(data.attrib.get(f"First{a}", 0)) for a in axes]
    if any(not 0 <= n < size for n, size in zip(first, sizes, strict=True)):
        return None  # left over from before the image was cropped
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


def channels(pixels: ET.Element, dtype: np.dtype[Any]) -> list[Json]:
    """Return the channels of an image as entries of OME-Zarr's `omero.channels`."""
    found = []
    for i, channel in enumerate(children(pixels, "Channel")):
        entry: dict[str, Json] = {
            "label": channel.attrib.get("Name") or channel.attrib.get("ID") or f"{i}",
            "color": _color(channel.attrib.get("Color")),
            "active": True,
        }
        if dtype.kind in "iu":
            bounds = np.iinfo(dtype)
            low, high = int(bounds.min), int(bounds.max)
            entry["window"] = {"min": low, "max": high, "start": low, "end": high}
        found.append(entry)
    return found


def _color(text: str | None) -> str:
    """Return OME's signed 32-bit RGBA number as six hexadecimal digits; white if it is missing."""
    try:
        number = int(text) & 0xFFFFFFFF if text is not None else 0xFFFFFFFF
    except ValueError:
        number = 0xFFFFFFFF
    return f"{number >> 8:06X}"
