"""The tags that say what the samples of a TIFF page mean: colours, place, nodata, bands, texts.

Spec: TIFF 6.0 sections 8, 16 and 23; GDAL's GTiff driver for GDAL_METADATA and GDAL_NODATA. The
      mirror image of `meaning`, `photometry`, `gdal_metadata` and `place`.
"""

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from anychunk.codecs.tiff.tile import YCBCR
from anychunk.errors import UnsupportedError
from anychunk.formats.tiff import gdal_metadata as gdal
from anychunk.formats.tiff import photometry as ph
from anychunk.formats.tiff.gdal_metadata import (
    ASCII_PARAMS,
    DOUBLE_PARAMS,
    KEY_DIRECTORY,
    MATRIX,
    PIXEL_SCALE,
    RPC,
    RPC_LISTS,
    RPC_NUMBERS,
    TIEPOINTS,
)
from anychunk.formats.tiff.ome_xml import children, parse_xml
from anychunk.formats.tiff.write_directory import Tag, doubles, rational, shorts, text
from anychunk.metadata import drawing
from anychunk.metadata.crs import linear_unit
from anychunk.metadata.geo_key_writing import GeoTags, geo_tags
from anychunk.metadata.meaning import Axis, Band, Display, Meaning
from anychunk.metadata.ome import step

# OME-XML of the images of an OME-TIFF file.
#
# Spec: OME-TIFF 6 and the OME schema 2016-06 (https://ome-model.readthedocs.io).

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


DATE_TIME, X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT = 306, 282, 283, 296
NO_UNIT, INCH, CENTIMETRE = 1, 2, 3
CENTIMETRES = {
    "meter": 1e2, "centimeter": 1.0, "millimeter": 1e-1, "micrometer": 1e-4, "nanometer": 1e-7,
}  # fmt: skip
"""Units of the axes x and y that TIFF's resolution can express."""
TEXT_CODES = {name: code for code, name in gdal.TEXTS.items()}
RESOLUTION_CODES = {name: code for code, name in gdal.RESOLUTIONS.items()}
NOT_ITEMS = {*TEXT_CODES, *RESOLUTION_CODES, *gdal.NUMBERS.values(), "TIFFTAG_RESOLUTIONUNIT"}
"""Texts that have tags of their own."""


@dataclass(frozen=True)
class Colors:
    """How samples are drawn, as tags."""

    photometric: int
    tags: tuple[Tag, ...] = ()
    """ExtraSamples and ColorMap, which overviews need too."""
    names: tuple[str | None, ...] = ()
    """The colours that a reader derives from these tags."""
    losses: tuple[str, ...] = ()


def colors(display: Display | None, bands: int, dtype: np.dtype[Any], *, is_jpeg: bool) -> Colors:
    """Return the tags of how samples are drawn.

    Parameters:
        display: how they are drawn.
        bands: the number of bands.
        dtype: of the samples.
        is_jpeg: whether three bands become YCbCr in the JPEG streams.
    """
    drawn = display or Display(model="channels")
    kind, tags, losses = _model(drawn, bands, dtype)
    losses += _display_losses(drawn)
    alpha = drawn.get("alpha")
    opaque = drawing.full_range(dtype.name)
    if alpha is not None and tuple(alpha["range"]) != opaque:
        losses.append(
            f"that band {alpha['band']} is opacity from {_listed(alpha['range'])}; TIFF takes it "
            f"for {_listed(opaque)}"
        )
        alpha = None
    count = ph.color_count(kind, bands)
    extra = [0] * (bands - count)
    if alpha is not None and count <= alpha["band"] < bands:
        extra[alpha["band"] - count] = ph.ASSOCIATED if alpha["associated"] else ph.UNASSOCIATED
    elif alpha is not None:
        losses.append(f"that band {alpha['band']} is opacity")
    if extra:
        tags.append(shorts(ph.EXTRA_SAMPLES, *extra))
    names: list[str | None] = [*ph.COLORS.get(kind, ("Gray",))[:count], *[None] * len(extra)]
    if alpha is not None and any(extra):
        names[alpha["band"]] = "Alpha"
    if is_jpeg and bands == 3 and kind == ph.RGB:
        kind = YCBCR
    return Colors(kind, tuple(tags), tuple(names), tuple(losses))


def _model(drawn: Display, bands: int, dtype: np.dtype[Any]) -> tuple[int, list[Tag], list[str]]:
    """Return PhotometricInterpretation, the palette, and what cannot be expressed."""
    model, first = drawn["model"], drawn.get("bands", [])
    if model == "rgb" and bands >= 3 and first == [0, 1, 2]:
        return ph.RGB, [], []
    if model == "cmyk" and bands >= 4 and first == [0, 1, 2, 3]:
        return ph.SEPARATED, [], []
    if model == "grey" and drawn.get("inverted"):
        return _inverted(drawn, bands, dtype)
    if model == "palette":
        table, losses = color_map(drawn, dtype)
        return (ph.PALETTE, [table], losses) if table is not None else (ph.MINISBLACK, [], losses)
    losses = []
    if model == "ycbcr":
        losses.append(f"that bands {first} are brightness and colour differences (YCbCr)")
    elif model in ("rgb", "cmyk"):
        losses.append(f"that bands {first} are drawn as {model}; TIFF needs them to be the first")
    return ph.MINISBLACK, [], losses


def _inverted(drawn: Display, bands: int, dtype: np.dtype[Any]) -> tuple[int, list[Tag], list[str]]:
    """Return the tags of shades of grey in which the lowest value is white.

    TIFF takes the largest value of the type for black. Samples of fewer bits get a palette instead.
    """
    full = drawing.full_range(dtype.name)
    white, black = drawn.get("range", [list(full)])[0]
    if (white, black) == full:
        return ph.MINISWHITE, [], []
    if bands > 1 or dtype != np.uint8 or not 0 <= white < black:
        return ph.MINISWHITE, [], [f"that white is {white:g}, and black is {black:g}"]
    values = np.clip((black - np.arange(256)) / (black - white), 0, 1)
    ramp = np.rint(values * 65535).astype(int).tolist()
    return ph.PALETTE, [shorts(ph.COLOR_MAP, *ramp * 3)], []


def _listed(limits: Sequence[float]) -> str:
    return " to ".join(f"{n:g}" for n in limits)


def _display_losses(drawn: Display) -> Iterator[str]:
    for channel in drawn.get("channels", []):
        if "color" in channel or "window" in channel:
            yield "colours and limits of channels; OME-TIFF (.ome.tif) holds colours"
            return


def color_map(drawn: Display, dtype: np.dtype[Any]) -> tuple[Tag | None, list[str]]:
    """Return ColorMap, and what it cannot hold."""
    palette = drawn.get("palette", {})
    first, listed = int(palette.get("first", 0)), palette.get("colors", [])
    entries = {"bool": 2, "uint8": 1 << 8, "uint16": 1 << 16}.get(dtype.name)
    if entries is None or drawn.get("bands") != [0]:
        return None, [
            f"the palette; TIFF has palettes of the first band, bool, uint8 or uint16, not {dtype}"
        ]
    if first < 0 or first + len(listed) > entries:
        return None, [f"the palette, whose values {first} to {first + len(listed) - 1} do not fit"]
    table = np.zeros((3, entries), np.uint16)
    values = np.asarray(listed, np.uint16).reshape(-1, 4)
    table[:, first : first + len(values)] = values[:, :3].T * 257  # 8 to 16 bits
    lost = ["the opacity of palette colours"] if len(values) and values[:, 3].min() < 255 else []
    return shorts(ph.COLOR_MAP, *table.reshape(-1).tolist()), lost


def nodata_tag(value: float | None) -> list[Tag]:
    """Return GDAL_NODATA."""
    if value is None:
        return []
    is_whole = isinstance(value, int) or (math.isfinite(value) and float(value).is_integer())
    return [text(gdal.NODATA, str(int(value)) if is_whole else repr(float(value)))]


def metadata_tag(meaning: Meaning, names: tuple[str | None, ...]) -> list[Tag]:
    """Return GDAL_METADATA: texts, and what is known about each band.

    Parameters:
        meaning: of the image.
        names: the colours that a reader derives from other tags.
    """
    items = [_item(name, value) for name, value in meaning.tags.items() if is_item(name)]
    items += _date_items(meaning)
    for number, band in enumerate(meaning.bands[: len(names)]):
        items += _band_items(number, band, names[number])
    if not items:
        return []
    return [text(gdal.METADATA, f"<GDALMetadata>\n{''.join(items)}</GDALMetadata>\n")]


def is_item(name: str) -> bool:
    """Return whether a text is an item of GDAL_METADATA: it has no tag of its own."""
    return name not in NOT_ITEMS and name != "AREA_OR_POINT"


def _band_items(number: int, band: Band, derived: str | None) -> Iterator[str]:
    is_scaled = (band.scale, band.offset) != (1.0, 0.0)
    roles = {
        "SCALE": repr(band.scale) if is_scaled else None,
        "OFFSET": repr(band.offset) if is_scaled else None,
        "DESCRIPTION": band.name,
        "UNITTYPE": band.unit,
        "COLORINTERP": None
        if band.interpretation == derived
        else band.interpretation or "Undefined",
    }
    for name, value in roles.items():
        if value is not None:
            yield _item(name, value, sample=str(number), role=name.lower())
    for name, value in band.tags.items():
        yield _item(name, value, sample=str(number))


def _item(name: str, value: str, **attributes: str) -> str:
    listed = "".join(f" {key}={quoteattr(a)}" for key, a in attributes.items())
    # escaped twice, as GDAL does, and expects
    content = escape(escape(printable(value)))
    return f"  <Item name={quoteattr(printable(name))}{listed}>{content}</Item>\n"


def printable(value: str) -> str:
    """Return a text without characters that XML does not allow."""
    return "".join(c for c in value if c >= " " or c in "\t\n\r")


def text_tags(meaning: Meaning) -> list[Tag]:
    """Return the tags of texts, such as Artist, of the date, and of the resolution."""
    found = {
        TEXT_CODES[name]: text(TEXT_CODES[name], value)
        for name, value in meaning.tags.items()
        if name in TEXT_CODES
    }
    when = _time(meaning)
    if DATE_TIME not in found and when is not None:
        found[DATE_TIME] = text(DATE_TIME, _tag_text(when))
    return [*found.values(), *resolution_tags(meaning)]


def _time(meaning: Meaning) -> datetime | None:
    """Return when an image was taken, in UTC."""
    try:
        when = datetime.fromisoformat(meaning.time or "")
        return when if when.tzinfo is None else when.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def _tag_text(when: datetime) -> str:
    """Return a date as the tag DateTime has it."""
    return f"{when:%Y:%m:%d %H:%M:%S}".rjust(19, "0")  # years before 1000


def _date_items(meaning: Meaning) -> Iterator[str]:
    """Yield when an image was taken, if DateTime cannot say it, or says when it was written."""
    when = _time(meaning)
    if when is None:
        return
    tag = meaning.tags.get(gdal.TEXTS[DATE_TIME], _tag_text(when))
    if tag != _tag_text(when) or when.microsecond:
        yield _item("ACQUISITIONDATETIME", when.isoformat(" "), domain="IMAGERY")


def per_centimetre(meaning: Meaning) -> tuple[float, float] | None:
    """Return the elements of x and y in a centimetre, None if TIFF cannot express their sizes."""
    sizes = {a.name: (a.scale, a.unit) for a in meaning.axes if a.name in ("x", "y")}
    found = []
    for name in ("x", "y"):
        scale, unit = sizes.get(name, (None, None))
        if scale is not None and scale > 0 and unit in CENTIMETRES:
            found.append(1 / (scale * CENTIMETRES[unit]))
    return (found[0], found[1]) if len(found) == 2 and max(found) < 1 << 32 else None


def resolution_tags(meaning: Meaning) -> list[Tag]:
    """Return the resolution: of the axes, or that of a TIFF that this was read from."""
    known = per_centimetre(meaning)
    if known is not None:
        x, y = known
        unit_code = CENTIMETRE
    else:
        try:
            x, y = (float(meaning.tags[name]) for name in gdal.RESOLUTIONS.values())
            unit_code = int(meaning.tags.get("TIFFTAG_RESOLUTIONUNIT", "1")[:1])
        except (KeyError, ValueError):
            return []
        if not 0 < min(x, y) <= max(x, y) < 1 << 32 or unit_code not in (NO_UNIT, INCH, CENTIMETRE):
            return []
    return [
        rational(X_RESOLUTION, x),
        rational(Y_RESOLUTION, y),
        shorts(RESOLUTION_UNIT, unit_code),
    ]


def place_tags(
    meaning: Meaning, vertical: Mapping[int, int] | None = None
) -> tuple[list[Tag], str | None]:
    """Return the tags of where an image lies, and what they cannot hold.

    Parameters:
        meaning: of the image.
        vertical: the GeoKeys of the CRS of heights, by number.
    """
    is_point = meaning.tags.get("AREA_OR_POINT") == "Point"
    found: GeoTags = geo_tags(meaning.place, is_point=is_point, vertical=vertical)
    tags = [
        doubles(code, *values)
        for code, values in (
            (PIXEL_SCALE, found.pixel_scale),
            (TIEPOINTS, found.tiepoints),
            (MATRIX, found.matrix),
            (DOUBLE_PARAMS, found.doubles),
        )
        if values
    ]
    if found.directory:
        tags.append(shorts(KEY_DIRECTORY, *found.directory))
    if found.text:
        tags.append(text(ASCII_PARAMS, found.text))
    if meaning.place.rpc is not None:
        tags += _rpc_tag(meaning.place.rpc)
    return tags, found.loss


def _rpc_tag(rpc: Mapping[str, Any]) -> list[Tag]:
    try:
        values = [float(rpc.get(name, 0.0)) for name in RPC_NUMBERS]
        for name in RPC_LISTS:
            values += [float(value) for value in rpc[name]]
    except (KeyError, TypeError, ValueError):
        return []
    expected = len(RPC_NUMBERS) + 20 * len(RPC_LISTS)
    return [doubles(RPC, *values)] if len(values) == expected else []


def orientation_tag(display: Display | None) -> list[Tag]:
    """Return Orientation, unless it is the usual one."""
    turned = 1 if display is None else display.get("orientation", 1)
    return [shorts(ph.ORIENTATION, turned)] if turned != 1 else []
