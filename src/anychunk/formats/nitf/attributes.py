"""Headers and TREs as JSON: the attributes under `nitf`."""

from typing import Any

from anychunk import limits
from anychunk.formats.nitf.fixed_width import Values, number
from anychunk.formats.nitf.header import OVERFLOW, File, Segment, lookup_tables
from anychunk.formats.nitf.tre import Tre, split, text_or_hex, tre_json
from anychunk.io.source import Source
from anychunk.model.index import Json

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
