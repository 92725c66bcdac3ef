"""All defects of a JNRRD file: in its fields, its tables, and the bytes of every tile.

Spec: JNRRD Tiling Extension 1.0.0, whose faults docs/formats/jnrrd.md lists. NRRD format sections
1.1, 1.3 and 4 for the rules of NRRD headers.
"""

import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from anychunk.errors import AnychunkError, FormatWarning
from anychunk.formats.jnrrd import axes, nrrd
from anychunk.formats.jnrrd.header import Header
from anychunk.formats.jnrrd.parse import open_header, read_tiled, tiled_index, untiled_index
from anychunk.formats.jnrrd.tiled_volume import TiledVolume
from anychunk.formats.jnrrd.tiling_fields import Finding, error, first_error, tiling_prefix, warning
from anychunk.io.block_cache import buffered
from anychunk.io.open_sources import Sources
from anychunk.io.opening import open_source
from anychunk.io.source import Source, Storage
from anychunk.model.index import ArrayIndex, Computed, GroupIndex, Json
from anychunk.options import checked

if TYPE_CHECKING:
    from anychunk.decode.boxes import ArrayReader  # slow to import, and not needed to parse a file

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


@checked()
def validate(
    url: str | Path, *, storage: Storage | None = None, allow: Iterable[str] = ()
) -> list[Finding]:
    """Return all defects of a file, errors first; an empty list means that it is valid.

    Fields are checked against the schema and each other, tables against the file, and every tile
    is decoded and its checksum verified.

    Parameters:
        url: A JNRRD file.
        storage: How remote objects are accessed, as in `anychunk.open`.
        allow: Further folders that may hold external tiles or data files.

    Raises:
        OSError: The file cannot be read at all.
    """
    source = open_source(str(url), storage=storage)
    return _collected(_findings(source, storage, tuple(allow), is_deep=True), source.url)


def check_header(
    source: Source, *, storage: Storage | None = None, allow: Iterable[str] = ()
) -> list[Finding]:
    """Return the defects of a header: as `validate`, without reading samples; of NRRD files, too.

    Parameters:
        source: The file.
        storage: How remote objects are accessed, as in `anychunk.open`.
        allow: Further folders that may hold external tiles or data files.
    """
    if nrrd.sniff(source.read(0, min(16, source.size())).tobytes()):
        return _collected(_nrrd_findings(source), source.url)
    return _collected(_findings(source, storage, tuple(allow), is_deep=False), source.url)


def _nrrd_findings(source: Source) -> Iterator[Finding]:
    text, _ = nrrd.read_text(source)
    fields = nrrd.read_fields(text, source.url)
    yield from check_nrrd_rules(fields, 1 if text[6] == "." else int(text[7]))


def _collected(findings: Iterator[Finding], url: str) -> list[Finding]:
    """Return findings, the first exception and warnings as findings; errors first."""
    found: list[Finding] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FormatWarning)
        try:
            # one by one: those before an exception are kept
            for finding in findings:
                found.append(finding)  # noqa: PERF402
        except AnychunkError as e:
            found.append(_of_message("error", str(e), url))
    found += [
        _of_message("warning", str(entry.message), url)
        for entry in caught
        if issubclass(entry.category, FormatWarning)
    ]
    unique = dict.fromkeys(found)
    return sorted(unique, key=lambda finding: finding.severity)


def _of_message(severity: str, message: str, url: str) -> Finding:
    """Turn the message of an exception, `url: field: what`, back into a finding."""
    text = message.removeprefix(url).removeprefix(": ").strip()
    field, _, rest = text.partition(": ")
    if rest and " " not in field:
        return Finding(severity=severity, field=field, message=rest)  # type: ignore[arg-type]
    return Finding(severity=severity, field="file", message=text)  # type: ignore[arg-type]


def _findings(
    source: Source, storage: Storage | None, allow: tuple[str, ...], *, is_deep: bool
) -> Iterator[Finding]:
    near = buffered(source)
    header = open_header(near)
    prefix = tiling_prefix(header)
    if prefix is None:
        root = untiled_index(header.fields, header.end, near, key="jnrrd", allow=allow)
        if is_deep:
            yield from check_chunks(root, source, storage)
        return
    yield from check_examples(header, prefix)
    yield from check_encoding(header)
    tiled, findings = read_tiled(header, prefix, near, allow=allow)
    yield from findings
    if tiled is None or first_error(findings) is not None:
        return
    yield from check_format(tiled)
    root = tiled_index(header, tiled, near, allow=allow)
    if is_deep:
        yield from check_chunks(root, source, storage)


def check_examples(header: Header, prefix: str) -> Iterator[Finding]:
    """Yield mistakes that the examples of the document make, whatever else is wrong."""
    fields = header.of_prefix(prefix)
    offsets, entries = fields.get("offset_table"), fields.get("metadata")
    if isinstance(offsets, list) and offsets and fields.get("storage") == "internal":
        if all(type(n) is int for n in offsets) and min(offsets) == 0:
            yield error(
                "offset_table",
                f"begins at 0, inside the header of {header.end} bytes; offsets count from the "
                "beginning of the file, not of the data",
            )
        if fields.get("compression", "raw") != "raw" and "size_table" not in fields:
            yield warning(
                "size_table",
                "is missing for compressed tiles; readers must find the end of each stream "
                "(the example of section 9.1 lacks it, too)",
            )
    for number, entry in enumerate(entries if isinstance(entries, list) else []):
        text = entry.get("checksum") if isinstance(entry, dict) else None
        if text is not None and not (isinstance(text, str) and HEXADECIMAL.fullmatch(text)):
            yield warning(
                "metadata",
                f"checksum {str(text)[:20]!r} of entry {number} is not hexadecimal "
                "(as in the example of section 7.5)",
            )
            break


def check_format(tiled: TiledVolume) -> Iterator[Finding]:
    """Compare `tile:format` with the offsets: contiguous means table order without gaps.

    Tiles that are `chunked` may be in any order, this one too.
    """
    tiling = tiled.tiling
    if tiling.storage == "external" or tiling.format != "contiguous":
        return
    offsets = cast("np.ndarray[tuple[int], np.dtype[np.uint64]]", tiling.offset_table)
    sizes = tiling.size_table
    if sizes is None and tiling.compression == "raw":
        sizes = tiled.tile_bytes()
    if sizes is None:
        is_tight = bool((np.diff(offsets.astype(np.int64)) > 0).all())
    else:
        is_tight = bool((offsets[:-1] + sizes[:-1] == offsets[1:]).all())
    if not is_tight:
        yield warning("format", "is 'contiguous', but the tiles are in another order or have gaps")


def check_encoding(header: Header) -> Iterator[Finding]:
    """Warn if `encoding` is missing: JNRRD requires it, although tiled files do not need it."""
    if "encoding" not in header.fields:
        yield Finding(
            severity="warning", field="encoding", message="is required by JNRRD and missing"
        )


def check_chunks(root: GroupIndex, source: Source, storage: Storage | None) -> Iterator[Finding]:
    """Read and decode every stored chunk; yield those that fail."""
    from anychunk.decode.boxes import ArrayReader
    from anychunk.decode.chunks import ChunkReader

    sources = Sources({source.url: source.pin(), **root.pins}, storage=storage)
    for path, array in root.arrays():
        if isinstance(array.chunks, Computed):
            continue
        reader = ArrayReader(ChunkReader(array, sources, where=path))
        yield from _bad_chunks(reader, array)


def _bad_chunks(reader: "ArrayReader", array: ArrayIndex) -> Iterator[Finding]:
    for number in range(math.prod(array.grid)):
        try:
            reader.chunk(number)

        except (AnychunkError, FileNotFoundError) as e:
            field = "tile:metadata" if "checksum" in str(e) else "tile"
            yield Finding(severity="error", field=field, message=str(e))


def check_nrrd_rules(fields: Mapping[str, Json], version: int) -> Iterator[Finding]:
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
    yield from _check_orientation(fields, ndim)


def _check_orientation(fields: Mapping[str, Json], ndim: int) -> Iterator[Finding]:
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
