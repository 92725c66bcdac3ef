"""All defects of a JNRRD file: in its fields, its tables, and the bytes of every tile."""

import math
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from anychunk.errors import AnychunkError, FormatWarning
from anychunk.formats.jnrrd import nrrd
from anychunk.formats.jnrrd.header import Header
from anychunk.formats.jnrrd.mistakes import nrrd_mistakes, tiling_mistakes
from anychunk.formats.jnrrd.parse import open_header, read_tiled, tiled_index, untiled_index
from anychunk.formats.jnrrd.tiled_volume import TiledVolume
from anychunk.formats.jnrrd.tiling_fields import Finding, first_error, tiling_prefix, warning
from anychunk.io import Source, Sources, Storage, buffered, open_source
from anychunk.model.index import ArrayIndex, Computed, GroupIndex

if TYPE_CHECKING:
    from anychunk.decode.boxes import ArrayReader  # slow to import, and not needed to parse a file


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
    yield from nrrd_mistakes(fields, 1 if text[6] == "." else int(text[7]))


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
    yield from tiling_mistakes(header, prefix)
    yield from check_encoding(header)
    tiled, findings = read_tiled(header, prefix, near, allow=allow)
    yield from findings
    if tiled is None or first_error(findings) is not None:
        return
    yield from check_format(tiled)
    root = tiled_index(header, tiled, near, allow=allow)
    if is_deep:
        yield from check_chunks(root, source, storage)


def check_format(tiled: TiledVolume) -> Iterator[Finding]:
    """Compare `tile:format` with the offsets: contiguous means table order without gaps."""
    tiling = tiled.tiling
    if tiling.storage == "external" or tiling.format is None:
        return
    offsets = cast("np.ndarray[tuple[int], np.dtype[np.uint64]]", tiling.offset_table)
    sizes = tiling.size_table
    if sizes is None and tiling.compression == "raw":
        sizes = tiled.tile_bytes()
    if sizes is None:
        is_tight = bool((np.diff(offsets.astype(np.int64)) > 0).all())
    else:
        is_tight = bool((offsets[:-1] + sizes[:-1] == offsets[1:]).all())
    if is_tight != (tiling.format == "contiguous"):
        actual = "contiguous" if is_tight else "in another order or have gaps"
        yield warning("format", f"is {tiling.format!r}, but the tiles are {actual}")


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
