"""Headers as JSON: what stands under `nitf` in the attributes of a group."""

from typing import Any

from anychunk import limits
from anychunk.formats.nitf.fields import Values, number
from anychunk.formats.nitf.header import OVERFLOW, File, Segment, tables
from anychunk.formats.nitf.tre import Tre, split, text_or_hex, tre_json
from anychunk.io import Source
from anychunk.model.index import Json

EXTENSIONS = ("UDHD", "XHD", "UDID", "IXSHD", "SXSHD", "TXSHD")
"""Fields that hold extensions; they are shown as `tres`."""


def extensions(values: Values) -> tuple[list[Tre], list[bytes]]:
    """Give the extensions of a header, and the rests that are none."""
    found: list[Tre] = []
    rests = []
    for name in EXTENSIONS:
        if isinstance(values.get(name), bytes):
            tres, rest = split(values[name])
            found += tres
            if rest.strip(b"\0 "):
                rests.append(rest)
    return found, rests


def overflow(file: File, source: Source) -> dict[tuple[str, int], list[Tre]]:
    """Give the extensions that stand in a DES of their own, by the header they belong to."""
    found: dict[tuple[str, int], list[Tre]] = {}
    for segment in file.of("des"):
        values = segment.values
        if values.get("DESID", "").strip() not in OVERFLOW or not values.get("DESOFLW", "").strip():
            continue
        item = values.get("DESITEM")
        length = max(0, min(segment.length, source.size() - segment.offset))
        length = min(length, limits.get().header_bytes)
        tres, _ = split(source.read(segment.offset, length).tobytes()) if length else ([], b"")
        is_image = values["DESOFLW"].strip() in ("UDID", "IXSHD")
        place = ("image", item - 1) if is_image and isinstance(item, int) else ("file", 0)
        found.setdefault(place, []).extend(tres)
    return found


def header_json(values: Values, tres: list[Tre], rests: list[bytes]) -> dict[str, Json]:
    """Give the fields of a header, and its extensions."""
    found: dict[str, Json] = {}
    for name, value in values.items():
        if name in EXTENSIONS or name in (
            "BANDS",
            "image",
            "graphic",
            "label",
            "text",
            "des",
            "res",
        ):
            continue
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
    luts = tables(record)
    return {**shown, "LUTD": luts} if luts else shown


def placement(values: Values) -> dict[str, Json]:
    """Give display and attachment levels, and where the image lies in what it is attached to."""
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


def listing(file: File) -> list[Json]:
    """List every segment that is no image, with its bytes."""
    return [_listed(segment) for segment in file.segments if segment.kind != "image"]


def _listed(segment: Segment) -> Json:
    entry: dict[str, Json] = {
        "kind": segment.kind,
        "number": segment.number,
        "header_offset": segment.header_offset,
        "header_length": segment.header_length,
        "offset": segment.offset,
        "length": segment.length,
    }
    tres, rests = extensions(segment.values)
    entry["header"] = header_json(segment.values, tres, rests)
    if segment.problem:
        entry["problem"] = segment.problem
    return entry
