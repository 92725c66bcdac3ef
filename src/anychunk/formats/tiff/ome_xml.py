"""OME-XML in a TIFF file: the file and page of every plane, and the channels.

Spec: OME-TIFF 6 (https://ome-model.readthedocs.io).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import numpy as np

from anychunk.errors import FormatError
from anychunk.formats.tiff.byte_ranges import MANY
from anychunk.formats.tiff.images import Image
from anychunk.metadata.meaning import Channel


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


def check_numbers(root: ET.Element, pages: int, where: str, *, area: int = 1) -> None:
    """Check how many planes OME-XML announces, before tifffile makes a list of them.

    Up to `MANY` planes are accepted without a check: they may be in files that are not here.

    Parameters:
        root: the OME element.
        pages: number of pages of the file.
        where: names the file in messages.
        area: pixels of a page; larger planes count as the pages that they would take.
    """
    for image in children(root, "Image"):
        for pixels in children(image, "Pixels"):
            data = children(pixels, "TiffData")
            most = max(MANY, 2 * (pages + len(data)))
            try:
                planes = _announced_planes(pixels) * _pages_per_plane(pixels, area)
                ends = [_announced_end(d) for d in data] or [0]
            except (KeyError, ValueError) as e:
                raise FormatError(
                    f"{where}: OME-XML Pixels or TiffData cannot be read ({e!r})"
                ) from e
            if max(planes, *ends) > most or sum(ends) > 4 * most:
                raise FormatError(
                    f"{where}: OME-XML announces an image of {planes} planes, and up to {max(ends)}"
                    f" in one TiffData; the file has {pages} pages, expected at most {most} planes"
                )
    for along in root.iter():
        if along.tag[:-1].endswith("Along") and "Start" in along.attrib:
            _check_modulo(along, where)


def _announced_planes(pixels: ET.Element) -> int:
    """Return the number of planes of an image, as tifffile counts them."""
    order = pixels.attrib["DimensionOrder"]
    sizes = {axis: int(pixels.attrib[f"Size{axis}"]) for axis in order[2:]}
    samples = [int(c.attrib.get("SamplesPerPixel", 1)) for c in children(pixels, "Channel")]
    if any(size < 0 for size in sizes.values()) or any(n < 1 for n in samples):
        raise ValueError(f"sizes {sizes}, SamplesPerPixel {samples}")
    return math.prod(sizes.values()) // (samples[0] if samples and "C" in sizes else 1)


def _pages_per_plane(pixels: ET.Element, area: int) -> int:
    """Return how many pages a plane takes if SizeX and SizeY are believed, as tifffile does."""
    width, height = int(pixels.attrib["SizeX"]), int(pixels.attrib["SizeY"])
    if width < 1 or height < 1:
        raise ValueError(f"SizeX {width}, SizeY {height}; expected at least 1")
    return max(1, width * height // max(1, area))


def _announced_end(data: ET.Element) -> int:
    """Return one more than the last page that a TiffData element may refer to."""
    first = int(data.attrib.get("IFD", 0))
    count = int(data.attrib.get("PlaneCount", data.attrib.get("NumPlanes", 1)))
    if first < 0 or count < 0:
        raise ValueError(f"IFD {first}, PlaneCount {count}; expected at least 0")
    return first + count


def _check_modulo(along: ET.Element, where: str) -> None:
    """Check the number of positions of a sub-dimension (OME's "6D, 7D and 8D storage")."""
    try:
        start, end = float(along.attrib["Start"]), float(along.attrib["End"])
        count = (end - start) / float(along.attrib.get("Step", 1))
    except (KeyError, ValueError, ZeroDivisionError):
        return  # tifffile raises too, and the file is read without its OME-XML
    if not abs(count) <= MANY:
        raise FormatError(
            f"{where}: OME-XML announces {count:g} positions along a modulo axis, expected at most "
            f"{MANY}"
        )


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


@dataclass(frozen=True, kw_only=True)
class OmeChannel:
    """A Channel element."""

    name: str | None
    color: str | None
    """RRGGBB."""
    samples: int
    """How many bands it has, such as three of RGB."""


def channels(pixels: ET.Element) -> list[OmeChannel]:
    """Return the channels of an image."""
    found = []
    for channel in children(pixels, "Channel"):
        samples = channel.get("SamplesPerPixel", "1")
        found.append(
            OmeChannel(
                name=channel.get("Name") or None,
                color=_color(channel.get("Color")),
                samples=max(1, int(samples)) if samples.isdecimal() else 1,
            )
        )
    return found


def band_names(channels: Sequence[OmeChannel], count: int) -> list[str | None]:
    """Return the name of each of `count` bands; bands of one channel have none of their own."""
    if sum(channel.samples for channel in channels) != count:
        return [None] * count
    names: list[str | None] = []
    for channel in channels:
        names += [channel.name] if channel.samples == 1 else [None] * channel.samples
    return names


def display_channels(channels: Sequence[OmeChannel], count: int) -> list[Channel]:
    """Return how channels of one band each are drawn; empty if the XML does not describe them."""
    if len(channels) != count:
        return []
    found = []
    for band, channel in enumerate(channels):
        entry = Channel(band=band)
        if channel.name is not None:
            entry["label"] = channel.name
        if channel.color is not None:
            entry["color"] = channel.color
        found.append(entry)
    return found


def _color(text: str | None) -> str | None:
    """Return OME's signed 32-bit RGBA number as six hexadecimal digits; None if it is missing."""
    try:
        return None if text is None else f"{(int(text) & 0xFFFFFFFF) >> 8:06X}"
    except ValueError:
        return None
