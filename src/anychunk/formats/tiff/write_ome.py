"""OME-XML of the images of an OME-TIFF file.

Spec: OME-TIFF 6 and the OME schema 2016-06 (https://ome-model.readthedocs.io).
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from anychunk.errors import UnsupportedError
from anychunk.formats.tiff.ome_xml import children, parse_xml
from anychunk.metadata.crs import linear_unit
from anychunk.metadata.meaning import Axis, Meaning
from anychunk.metadata.ome import step

NAMESPACE = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
SCHEMA = f"{NAMESPACE} {NAMESPACE}/ome.xsd"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
TYPES = {
    "int8": "int8", "int16": "int16", "int32": "int32", "uint8": "uint8", "uint16": "uint16",
    "uint32": "uint32", "float32": "float", "float64": "double", "complex64": "complex",
    "complex128": "double-complex", "bool": "bit",
}  # fmt: skip
UNITS = {
    "angstrom": "Å", "nanometer": "nm", "micrometer": "µm", "millimeter": "mm", "centimeter": "cm",
    "meter": "m", "kilometer": "km", "picometer": "pm", "inch": "in", "foot": "ft",
}  # fmt: skip
TIMES = {
    "second": "s", "millisecond": "ms", "microsecond": "µs", "minute": "min", "hour": "h",
    "day": "d",
}  # fmt: skip
ORDER = "XYZCT"
"""Of planes: z changes fastest, then c, then t."""


@dataclass(frozen=True)
class OmeImage:
    """One image of the file."""

    meaning: Meaning
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    samples: int
    """Bands in each page: 3 or 4 of a colour image, else 1."""
    first: int
    """The number of its first page."""
    pages: int


def check_type(dtype: np.dtype[Any], where: str) -> None:
    """Raise `UnsupportedError` if OME has no such type of pixels."""
    if dtype.name not in TYPES:
        raise UnsupportedError(f"{where}: OME-TIFF has no data type {dtype}; write .tif or .zarr")


def document(images: Sequence[OmeImage], before: str | None) -> str:
    """Return OME-XML that describes the images.

    Parameters:
        images: the images.
        before: OME-XML of the source; if it describes the same images, everything in it that is
            not about the layout of planes is kept.
    """
    root = _kept(before, len(images))
    if root is None:
        ET.register_namespace("", NAMESPACE)
        root = ET.Element(
            f"{{{NAMESPACE}}}OME", {f"{{{INSTANCE}}}schemaLocation": SCHEMA, "Creator": "anychunk"}
        )
        for number, _ in enumerate(images):
            new = ET.SubElement(root, f"{{{NAMESPACE}}}Image", {"ID": f"Image:{number}"})
            ET.SubElement(new, f"{{{NAMESPACE}}}Pixels", {"ID": f"Pixels:{number}"})
    namespace = root.tag.rpartition("}")[0].removeprefix("{")
    ET.register_namespace("", namespace)
    root.set("UUID", f"urn:uuid:{uuid.uuid4()}")
    for number, (element, image) in enumerate(zip(children(root, "Image"), images, strict=True)):
        if image.meaning.name and "Name" not in element.attrib:
            element.set("Name", image.meaning.name)
        _describe(children(element, "Pixels")[0], image, f"{{{namespace}}}", number)
    return '<?xml version="1.0" encoding="UTF-8"?>' + ET.tostring(root, encoding="unicode")


def _kept(before: str | None, count: int) -> ET.Element | None:
    """Return the source's document, if each of its images has one Pixels."""
    root = parse_xml(before)
    if root is None or not root.tag.endswith("}OME"):
        return None
    images = children(root, "Image")
    if len(images) != count or any(len(children(i, "Pixels")) != 1 for i in images):
        return None
    return root


def _describe(pixels: ET.Element, image: OmeImage, prefix: str, number: int) -> None:
    """Set the attributes of Pixels, its channels, and where its planes are."""
    names, meaning = image.meaning.names, image.meaning
    sizes = dict(zip(names, image.shape, strict=True))
    pixels.set("DimensionOrder", ORDER)
    pixels.set("Type", TYPES[image.dtype.name])
    pixels.set("BigEndian", "false")
    pixels.set("Interleaved", "true" if image.samples > 1 else "false")
    for letter in ORDER:
        pixels.set(f"Size{letter}", str(sizes.get(letter.lower(), 1)))
    for axis in meaning.axes:
        _set_size(pixels, _sized(meaning, axis))
    known = children(pixels, "Channel")
    for child in list(pixels):
        if child.tag.rpartition("}")[2] in ("TiffData", "BinData", "MetadataOnly", "Channel"):
            pixels.remove(child)
    count = sizes.get("c", 1) // image.samples
    is_same = len(known) == count
    for band in range(count):
        kept = known[band] if is_same else ET.Element(f"{prefix}Channel")
        pixels.insert(band, _channel(kept, image, number, band))
    place = {"IFD": str(image.first), "PlaneCount": str(image.pages)}
    pixels.insert(count, ET.Element(f"{prefix}TiffData", place))


def _channel(element: ET.Element, image: OmeImage, number: int, band: int) -> ET.Element:
    element.attrib.setdefault("ID", f"Channel:{number}:{band}")
    element.set("SamplesPerPixel", str(image.samples))
    if image.samples > 1:
        return element
    drawn: Mapping[str, Any] = image.meaning.display or {}
    listed = {c["band"]: c for c in drawn.get("channels", [])}
    channel = listed.get(band, {})
    name = image.meaning.band(band).name or channel.get("label")
    if name:
        element.set("Name", name)
    color = channel.get("color")
    if color:
        value = int(color, 16) << 8 | 0xFF
        element.set("Color", str(value - (1 << 32) if value >= 1 << 31 else value))
    return element


def _sized(meaning: Meaning, axis: Axis) -> Axis:
    """Return an axis with the pixel size of the georeference, where that is in metres."""
    place = meaning.place
    is_placed = place.transform is not None and axis.name in ("x", "y") and axis.scale is None
    if not is_placed or place.crs is None or linear_unit(place.crs) != "metre":
        return axis
    return replace(axis, unit="meter", scale=step(meaning, meaning.axes.index(axis)))


def _set_size(pixels: ET.Element, axis: Axis) -> None:
    if axis.name in ("x", "y", "z"):
        name = f"PhysicalSize{axis.name.upper()}"
        unit = UNITS.get(axis.unit or "")
    elif axis.name == "t":
        name, unit = "TimeIncrement", TIMES.get(axis.unit or "")
    else:
        return
    if axis.scale is not None and axis.scale > 0 and unit is not None:
        pixels.set(name, repr(axis.scale))
        pixels.set(f"{name}Unit", unit)


def losses(meaning: Meaning) -> list[str]:
    """Return what OME-TIFF cannot hold."""
    found = []
    for axis in meaning.axes:
        known = UNITS if axis.name in ("x", "y", "z") else TIMES
        if axis.scale is not None and axis.unit not in known and axis.name != "c":
            size = f"{axis.scale:g} {axis.unit or 'without a unit'}"
            found.append(f"the size of elements along {axis.name}, {size}")
        if axis.values is not None:
            found.append(f"the positions along {axis.name}")
        if axis.origin and axis.name != "c":
            found.append(f"the position of the first element along {axis.name}")
    if meaning.space is not None:
        found.append("the orientation in space")
    drawn: Mapping[str, Any] = meaning.display or {}
    if any("window" in c for c in drawn.get("channels", [])):
        found.append("the limits of channels")
    if any((b.scale, b.offset) != (1.0, 0.0) for b in meaning.bands):
        found.append("scale and offset of bands")
    return found
