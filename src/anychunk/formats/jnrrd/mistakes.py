"""Mistakes that writers make, some of them because the examples of the documents make them.

Spec: JNRRD Tiling Extension 1.0.0; the faults of its text are listed in docs/formats/jnrrd.md. NRRD
format sections 1.1, 1.3 and 4 for the rules of NRRD headers.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import TypeGuard

from anychunk.formats.jnrrd import axes
from anychunk.formats.jnrrd.header import Header
from anychunk.formats.jnrrd.tiling_fields import Finding, error, warning
from anychunk.model.index import Json

HEXADECIMAL = re.compile(r"[0-9A-Fa-f]+")
PER_AXIS = (
    *("spacings", "thicknesses", "axis_mins", "axis_maxs", "centers", "labels", "units", "kinds"),
    "space_directions",
)
SINCE = {
    "kinds": 3,
    "thicknesses": 4,
    "sample_units": 4,
    "space": 4,
    "space_dimension": 4,
    "space_directions": 4,
    "space_origin": 4,
    "space_units": 4,
    "measurement_frame": 5,
}
"""The version of NRRD that added a field."""


def tiling_mistakes(header: Header, prefix: str) -> Iterator[Finding]:
    """Yield the mistakes of a header with tiles, whatever else is wrong with it."""
    fields = header.of_prefix(prefix)
    sizes, tile = header.fields.get("sizes"), fields.get("sizes")
    dimensions, offsets = fields.get("dimensions"), fields.get("offset_table")
    if _integers(offsets) and fields.get("storage") == "internal":
        yield from _wrong_offsets(offsets, header.end)
        if fields.get("compression", "raw") != "raw" and "size_table" not in fields:
            yield warning(
                "size_table",
                "is missing for compressed tiles; readers must find the end of each stream "
                "(the example of section 9.1 lacks it, too)",
            )
        if _integers(sizes) and _integers(tile) and _integers(dimensions):
            yield from _reversed_sizes(sizes, tile, dimensions, len(offsets), fields)
    entries = fields.get("metadata")
    for number, entry in enumerate(entries if isinstance(entries, list) else []):
        text = entry.get("checksum") if isinstance(entry, dict) else None
        if text is not None and not (isinstance(text, str) and HEXADECIMAL.fullmatch(text)):
            yield warning(
                "metadata",
                f"checksum {str(text)[:20]!r} of entry {number} is not hexadecimal "
                "(as in the example of section 7.5)",
            )
            break
    yield from _reversed_indices(fields)


def _integers(value: Json) -> TypeGuard[list[int]]:
    return isinstance(value, list) and bool(value) and all(type(n) is int for n in value)


def _wrong_offsets(offsets: list[int], end: int) -> Iterator[Finding]:
    if 0 <= min(offsets) < end and min(offsets) == 0:
        yield error(
            "offset_table",
            f"begins at 0, inside the header of {end} bytes; offsets count from the beginning of "
            "the file, not of the data",
        )


def _reversed_sizes(
    sizes: list[int],
    tile: list[int],
    dimensions: list[int],
    entries: int,
    fields: Mapping[str, Json],
) -> Iterator[Finding]:
    """Recognise lists in numpy's order, slowest axis first, by the number of tiles."""
    if len(tile) != len(dimensions) or any(not 0 <= d < len(sizes) for d in dimensions):
        return
    if min(tile) < 1 or fields.get("levels", 1) != 1 or fields.get("overlap"):
        return

    def count(listed: list[int], cut: list[int]) -> int:
        return math.prod(-(-listed[d] // t) for d, t in zip(dimensions, cut, strict=True))

    if entries == count(sizes, tile):
        return
    for name, found in (
        ("sizes", count(sizes[::-1], tile)),
        ("tile:sizes", count(sizes, tile[::-1])),
    ):
        if entries == found:
            yield error(
                "offset_table",
                f"has {entries} entries, which fits {name} reversed; lists in a header begin with "
                "the fastest axis",
            )
            return


def _reversed_indices(fields: Mapping[str, Json]) -> Iterator[Finding]:
    """Recognise `tile:files` whose indices begin with the slowest axis."""
    files = fields.get("files")
    # a list that leaves out tiles says nothing about the order
    if not isinstance(files, list) or fields.get("sparse") or fields.get("pattern"):
        return
    listed = [e.get("indices") for e in files if isinstance(e, dict) and not e.get("level")]
    known = [i for i in listed if isinstance(i, list) and i and all(type(n) is int for n in i)]
    if len(known) < 2 or known != listed or len({len(i) for i in known}) != 1:
        return
    steps = [sum(n != m for n, m in zip(known[0], known[1], strict=True)), known[1][-1]]
    has_others = any(any(indices[:-1]) for indices in known)
    if has_others and steps == [1, known[0][-1] + 1]:
        yield warning(
            "files",
            f"lists {known[0]} and then {known[1]}, as if indices began with the slowest axis; "
            "they begin with the fastest",
        )


def nrrd_mistakes(fields: Mapping[str, Json], version: int) -> Iterator[Finding]:
    """Yield what breaks the rules of NRRD without making samples unreadable."""
    for field, since in SINCE.items():
        if field in fields and version < since:
            yield _of_nrrd(field, f"is a field of NRRD000{since}; the header says NRRD000{version}")
    if "key_values" in fields and version < 2:
        yield _of_nrrd("key/value pairs", "need NRRD0002; the header says NRRD0001")
    sizes = fields.get("sizes")
    ndim = len(sizes) if isinstance(sizes, list) else 0
    for field in PER_AXIS:
        values = fields.get(field)
        if isinstance(values, list) and len(values) != ndim:
            yield _of_nrrd(field, f"has {len(values)} entries, expected {ndim}, one per axis")
    yield from _orientation_mistakes(fields, ndim)


def _orientation_mistakes(fields: Mapping[str, Json], ndim: int) -> Iterator[Finding]:
    if "space" in fields and "space_dimension" in fields:
        yield _of_nrrd("space_dimension", "is given beside space; expected only one of them")
    if "space_directions" in fields and not {"space", "space_dimension"} & fields.keys():
        yield _of_nrrd("space_directions", "needs a space or space dimension before it")
    directions = axes.per_axis(fields, "space_directions", ndim)
    for field in ("spacings", "axis_mins", "axis_maxs"):
        values = axes.per_axis(fields, field, ndim)
        for axis, (value, direction) in enumerate(zip(values, directions, strict=True)):
            if value is not None and direction is not None:
                yield _of_nrrd(field, f"has {value} for axis {axis}, which has a space direction")
                break


def _of_nrrd(field: str, message: str) -> Finding:
    return Finding(severity="warning", field=field.replace("_", " "), message=message)
