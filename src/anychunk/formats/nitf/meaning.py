"""What the samples of an image mean: its bands, its colours, and text about it.

Spec: Joint BIIF Profile table A-3 (IREP, IREPBAND, ISUBCAT, LUTD) and MIL-STD-2411 (CADRG).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from anychunk import limits
from anychunk.formats.nitf.blocks import Image, Stored, transparent_entry
from anychunk.formats.nitf.header import OVERFLOW, File, Segment, Values, lookup_tables, number
from anychunk.formats.nitf.tre import Tre, split, text_or_hex, tre_json
from anychunk.io.source import Source
from anychunk.metadata.meaning import Axis, Band, Display, Meaning, Place
from anychunk.model.index import Json

COLOURS = {
    "R": "Red", "G": "Green", "B": "Blue", "M": "Gray", "LU": "Palette",
    "Y": "YCbCr_Y", "CB": "YCbCr_Cb", "CR": "YCbCr_Cr",
}  # fmt: skip
"""GDAL's names of the values of IREPBAND."""
IREPS = {"rgb": "RGB", "ycbcr": "YCBCR601"}
FILE_TAGS = (
    "FHDR CLEVEL STYPE OSTAID FDT FTITLE FSCLAS FSCLSY FSCODE FSCTLH FSREL FSDCTP FSDCDT FSDCXM "
    "FSDG FSDGDT FSCLTX FSCATP FSCAUT FSCRSN FSSRDT FSCTLN FSDWNG FSDEVT FSCOP FSCPYS ONAME OPHONE"
)
IMAGE_TAGS = (
    "IID1 IDATIM TGTID IID2 ITITLE ISCLAS ISCLSY ISCODE ISCTLH ISREL ISDCTP ISDCDT ISDCXM ISDG "
    "ISDGDT ISCLTX ISCATP ISCAUT ISCRSN ISSRDT ISCTLN ISDWNG ISDEVT ISORCE PVTYPE IREP "
    "ICAT IC IMODE"
)
"""Fields of the headers that are shown as tags, by GDAL's names: with the prefix NITF_."""
GREY_BITS = 8
"""Samples of up to as many bits are drawn over their whole range."""


def image_meaning(
    image: Image, stored: Stored, place: Place, *, file: Values, native: dict[str, Json]
) -> Meaning:
    """Return what the samples of an image mean.

    Parameters:
        image: its subheader.
        stored: its arrays.
        place: where it lies.
        file: the file header.
        native: attributes of the format.
    """
    array = stored.arrays[0]
    names = ("c", "y", "x")[-len(array.shape) :]
    bands = array.shape[0] if len(array.shape) == 3 else 1
    # pairs of bands may have become complex ones
    records = image.segment.values["BANDS"] if bands == image.bands else []
    if stored.is_rgb:
        records = [{**record, "IREPBAND": _rgb(record)} for record in records]
    return Meaning(
        axes=tuple(Axis(name=name) for name in names),
        place=place,
        nodata=nodata(image, stored),
        bands=image_bands(records, str(image.segment.values.get("IREP", ""))),
        display=display(image, stored, records, bands=bands),
        name=str(image.segment.values.get("IID1") or ""),
        tags=tags(file, image.segment.values),
        time=time(image.segment.values.get("IDATIM")),
        native=native,
    )


def _rgb(record: Values) -> str:
    colour = str(record.get("IREPBAND", ""))
    return {"Y": "R", "CB": "G", "CR": "B"}.get(colour.strip().upper(), colour)


def nodata(image: Image, stored: Stored) -> float | int | None:
    """Return the value of pixels that mean nothing: the pad pixel, or a palette's spare entry."""
    pad = transparent_entry(image) if stored.pad is None else stored.pad
    if pad is None or np.iscomplexobj(pad):
        return None
    return pad if isinstance(pad, int) else float(pad)


def image_bands(records: Sequence[Values], irep: str) -> tuple[Band, ...]:
    """Return the bands, named by their subcategory (a wavelength, for example) or their colour.

    Parameters:
        records: what the subheader states about each band.
        irep: what it states about the image.
    """
    found = []
    for record in records:
        colour, category = str(record.get("IREPBAND", "")), str(record.get("ISUBCAT", ""))
        # the colour of a single band says nothing that its interpretation does not
        name = category or (colour if len(records) > 1 else "")
        if record.get("LUTD"):
            colour = "LU"
        elif colour == "LU" or not colour:
            colour = "M" if irep == "MONO" and len(records) == 1 else ""
        known = COLOURS.get(colour.strip().upper())
        found.append(Band(name=name.strip() or None, interpretation=known))
    return tuple(found)


def display(image: Image, stored: Stored, records: Sequence[Values], *, bands: int) -> Display:
    """Return how an image is drawn."""
    data_type = stored.arrays[0].data_type
    if bands == 1:
        table = palette(image)
        if table is not None:
            return Display(model="palette", bands=[0], palette=table)
        return with_range(Display(model="grey", bands=[0]), image, data_type)
    colours = [str(record.get("IREPBAND", "")).strip().upper() for record in records]
    irep = str(image.segment.values.get("IREP", "")).strip().upper()
    if stored.is_rgb and irep == "YCBCR601":
        irep = "RGB"
    for model, wanted in (("rgb", ["R", "G", "B"]), ("ycbcr", ["Y", "CB", "CR"])):
        if all(colour in colours for colour in wanted):
            shown = [colours.index(colour) for colour in wanted]
        elif bands == 3 and irep == IREPS[model]:
            shown = [0, 1, 2]
        else:
            continue
        return with_range(Display(model=model, bands=shown), image, data_type)
    return Display(model="channels")


def with_range(drawn: Display, image: Image, data_type: Json) -> Display:
    """Return a description with the range of samples, if they have few bits."""
    bits = image.nbpp if image.pjust == "L" else image.abpp
    if isinstance(data_type, str) and data_type.startswith("uint") and bits <= GREY_BITS:
        drawn["range"] = [[0, 2**bits - 1]]
    return drawn


def palette(image: Image) -> dict[str, Json] | None:
    """Return the colours of an image of indices; None if it has no look-up tables."""
    luts = lookup_tables(image.segment.values["BANDS"][0]) if image.bands == 1 else []
    if not luts:
        return None
    # one table is a scale of grey; of two, the first has the more significant bytes
    red, green, blue = luts[:3] if len(luts) >= 3 else (luts[0],) * 3
    colours = [[r, g, b, 255] for r, g, b in zip(red, green, blue, strict=True)]
    clear = transparent_entry(image)
    if clear is not None:
        # MIL-STD-2411: pixels of CADRG without a colour have the index after the last one
        colours[clear:] = [[0, 0, 0, 0]]
    return {"first": 0, "colors": colours}


def time(text: str | None) -> str | None:
    """Return IDATIM, which is in UTC, as ISO 8601; None if it is missing or incomplete.

    CCYYMMDDhhmmss in NITF 2.1, DDhhmmssZMONYY in 2.0, where a year of two digits is ambiguous.
    """
    digits = (text or "").strip()
    if len(digits) != 14 or not (digits.isascii() and digits.isdigit()):
        return None
    try:
        return datetime.strptime(f"{digits}+0000", "%Y%m%d%H%M%S%z").isoformat()
    except ValueError:
        return None


def tags(file: Values, values: Values) -> dict[str, str]:
    """Return fields of the file header and of the subheader as text, by GDAL's names."""
    found = {}
    for header, names in ((file, FILE_TAGS), (values, IMAGE_TAGS)):
        for name in names.split():
            found[f"NITF_{name}"] = str(header.get(name, "")).strip()
    comments = [str(record.get("TEXT", "")) for record in values.get("ICOM", ())]
    found["NITF_IMAGE_COMMENTS"] = "".join(text.ljust(80) for text in comments).rstrip()
    return {name: text for name, text in found.items() if text}


# Headers and TREs as JSON: the attributes under `nitf`.


TRE_FIELDS = ("UDHD", "XHD", "UDID", "IXSHD", "SXSHD", "TXSHD")
"""Header fields that hold TREs; they appear as `tres` instead."""
SEGMENT_FIELDS = ("image", "graphic", "label", "text", "des", "res")
"""Lists of segment lengths in the file header; they appear as `segments` instead."""


def split_tres(values: Values) -> tuple[list[Tre], list[bytes]]:
    """Return the TREs of a header, and the bytes of its TRE fields that could not be parsed."""
    found: list[Tre] = []
    rests = []
    for name in TRE_FIELDS:
        if isinstance(values.get(name), bytes):
            tres, rest = split(values[name])
            found += tres
            if rest.strip(b"\0 "):
                rests.append(rest)
    return found, rests


def overflow_tres(file: File, source: Source) -> dict[tuple[str, int], list[Tre]]:
    """Return the TREs in overflow segments, by the header they belong to.

    The keys are `("image", number)` and `("file", 0)`.
    """
    found: dict[tuple[str, int], list[Tre]] = {}
    for segment in file.of("des"):
        values = segment.values
        if values.get("DESID", "").strip() not in OVERFLOW or not values.get("DESOFLW", "").strip():
            continue
        item = values.get("DESITEM")
        length = max(0, min(segment.length, source.size() - segment.offset))
        length = min(length, limits.get().header_bytes)
        # a truncated overflow segment does not damage the image: its readable TREs are kept
        tres, _ = split(source.read(segment.offset, length).tobytes()) if length else ([], b"")
        # DESOFLW names the field that overflowed, DESITEM the number of its segment, from 1
        is_image = values["DESOFLW"].strip() in ("UDID", "IXSHD")
        place = ("image", item - 1) if is_image and isinstance(item, int) else ("file", 0)
        found.setdefault(place, []).extend(tres)
    return found


def header_json(values: Values, tres: list[Tre], rests: list[bytes]) -> dict[str, Json]:
    """Return the fields of a header and its TREs as JSON."""
    found: dict[str, Json] = {}
    for name, value in values.items():
        if name not in (*TRE_FIELDS, *SEGMENT_FIELDS, "BANDS"):
            found[name] = _json(value)
    if "BANDS" in values:
        found["BANDS"] = [_band(record) for record in values["BANDS"]]
    if tres:
        found["tres"] = [tre_json(tre) for tre in tres]
    if rests:
        found["unparsed"] = [text_or_hex(rest[:256]) for rest in rests]
    return found


def _json(value: Any) -> Json:
    if isinstance(value, bytes):
        return text_or_hex(value)
    if isinstance(value, list):
        return [v["TEXT"] if set(v) == {"TEXT"} else _json(v) for v in value]
    if isinstance(value, dict):
        return {k: _json(v) for k, v in value.items()}
    return value


def _band(record: Values) -> Json:
    shown = {k: v for k, v in record.items() if k != "LUTD"}
    luts = lookup_tables(record)
    return {**shown, "LUTD": luts} if luts else shown


def placement(values: Values) -> dict[str, Json]:
    """Return the display and attachment levels of an image, and its offset in its parent."""
    found: dict[str, Json] = {}
    for name in ("IDLVL", "IALVL"):
        if isinstance(values.get(name), int):
            found[name] = number(values, name)
    text = values.get("ILOC", "")
    row, column = text[:5].strip(), text[5:].strip()
    if _is_number(row) and _is_number(column):
        found["row"], found["column"] = int(row), int(column)
    return found


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit() and text.isascii()


def segment_list(file: File) -> list[Json]:
    """Return all segments other than images, with their byte ranges."""
    return [_segment_json(segment) for segment in file.segments if segment.kind != "image"]


def _segment_json(segment: Segment) -> Json:
    entry: dict[str, Json] = {
        "kind": segment.kind,
        "number": segment.number,
        "header_offset": segment.header_offset,
        "header_length": segment.header_length,
        "offset": segment.offset,
        "length": segment.length,
    }
    tres, rests = split_tres(segment.values)
    entry["header"] = header_json(segment.values, tres, rests)
    if segment.problem:
        entry["problem"] = segment.problem
    return entry
