"""From a header to an index: one image, with a group per level."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anychunk.errors import FormatError, FormatWarning, UnsupportedError
from anychunk.formats.jnrrd import axes, untiled_volume
from anychunk.formats.jnrrd.external_files import References
from anychunk.formats.jnrrd.header import Header, read_header
from anychunk.formats.jnrrd.meaning import image_of
from anychunk.formats.jnrrd.tile_chunks import array_indexes, with_zarr_fill
from anychunk.formats.jnrrd.tile_pattern import parse_pattern, placeholder_words
from anychunk.formats.jnrrd.tiled_volume import TiledVolume, check_sizes, check_tables
from anychunk.formats.jnrrd.tiling_fields import (
    LONG,
    Finding,
    Level,
    first_error,
    lay_out,
    levels_of,
    read_tiling,
    tiling_prefix,
)
from anychunk.formats.jnrrd.volume import Volume, read_volume
from anychunk.io.source import Source, folder_of
from anychunk.metadata import hierarchy
from anychunk.model.index import ArrayIndex, GroupIndex, Json
from anychunk.model.pin import Pin

VERSIONS = ("0004",)
MOST_SHOWN = 256
"""Longer tables are left out of the attributes."""


def parse(source: Source, *, allow: Iterable[str] = ()) -> GroupIndex:
    """Index a JNRRD file; `allow` lists further folders that may hold its tiles or data files."""
    header = open_header(source)
    prefix = tiling_prefix(header)
    if prefix is None:
        return untiled_index(header.fields, header.end, source, key="jnrrd", allow=allow)
    return tiled_index(header, open_tiled(header, source, allow=allow), source, allow=allow)


def open_header(source: Source) -> Header:
    """Read the header of a file; raise `UnsupportedError` if its version is not supported."""
    header = read_header(source)
    version = header.fields["jnrrd"]
    if version not in VERSIONS:
        raise UnsupportedError(
            f"{source.url}: jnrrd version {str(version)[:40]!r} is not supported; "
            f"supported: {' '.join(VERSIONS)}"
        )
    return header


def open_tiled(header: Header, source: Source, *, allow: Iterable[str] = ()) -> TiledVolume:
    """Return the tiled volume of a header; raise its first error, warn about the rest."""
    prefix = tiling_prefix(header)
    if prefix is None:
        raise FormatError(f"{source.url}: the volume is not tiled; open it with anychunk.open")
    tiled, findings = read_tiled(header, prefix, source, allow=allow)
    report(findings, source.url)
    if tiled is None:
        # for the type checker: there is an error among the findings, so `report` has raised
        raise FormatError(f"{source.url}: the tiling cannot be read")
    return tiled


def tiled_index(
    header: Header,
    tiled: TiledVolume,
    source: Source,
    *,
    allow: Iterable[str] = (),
    key: str = "jnrrd",
) -> GroupIndex:
    """Index a tiled volume; `key` is the name of its format, "jnrrd" or "nrrd"."""
    arrays = stored_arrays(tiled, source, allow=allow)
    long = {f"{tiling_prefix(header)}:{name}" for name in LONG}
    shown = {
        key: value
        for key, value in header.fields.items()
        if key not in long or len(value) <= MOST_SHOWN
    }
    is_external = tiled.tiling.storage == "external"
    roots = references(None, source, allow).roots if is_external else ()
    return image_group(shown, tiled.volume, tiled.levels, arrays, key=key, pins={}, roots=roots)


def stored_arrays(
    tiled: TiledVolume, source: Source, *, allow: Iterable[str] = ()
) -> dict[str, ArrayIndex]:
    """Return the array of each level, by its number; axes are those of the file, slowest first."""
    return array_indexes(tiled, source, references(tiled.tiling.base_dir, source, allow))


def references(base_dir: str | None, source: Source, allow: Iterable[str]) -> References:
    """Return the resolver of the file names in a header."""
    return References(folder_of(source.url), base_dir or "", tuple(allow), tuple(source.roots))


def report(findings: Sequence[Finding], url: str) -> None:
    """Raise the first error; warn about findings that do not affect samples."""
    worst = first_error(findings)
    if worst is not None:
        raise FormatError(f"{url}: {worst}")
    for finding in findings:
        warnings.warn(f"{url}: {finding}", FormatWarning, stacklevel=4)


def read_tiled(
    header: Header, prefix: str, source: Source, *, allow: Iterable[str] = ()
) -> tuple[TiledVolume | None, tuple[Finding, ...]]:
    """Read and check everything that a header says about tiles.

    Returns:
        The tiled volume, None if it cannot be laid out; and all findings.
    """
    volume = read_volume(header.fields, source.url, is_tiled=True)
    tiling, findings = read_tiling(header.of_prefix(prefix), volume)
    if tiling is None:
        return None, findings
    levels = levels_of(tiling, volume)
    words = placeholder_words(header.fields)
    labels = axes.per_axis(header.fields, "labels", len(volume.sizes))
    files = references(tiling.base_dir, source, allow)
    tiling, more = with_zarr_fill(
        tiling,
        levels,
        volume,
        source=source,
        references=files,
        labels=labels,
        words=words,
    )
    findings = (*findings, *more)
    check_sizes(tiling, levels, volume, source.url)
    pattern = None
    if tiling.pattern is not None:
        pattern = parse_pattern(tiling.pattern, tiling.dimensions, labels, words)
    tiled = TiledVolume(
        url=source.url,
        end=header.end,
        volume=volume,
        tiling=tiling,
        levels=levels,
        layouts=tuple(lay_out(tiling, level) for level in levels if level.is_stored),
        pattern=pattern,
    )
    return tiled, (*findings, *check_tables(tiled, source, files))


def untiled_index(
    fields: Mapping[str, Json], end: int, source: Source, *, key: str, allow: Iterable[str] = ()
) -> GroupIndex:
    """Index a volume without tiles, of a JNRRD or an NRRD file.

    Parameters:
        fields: The header.
        end: Where the header ends.
        source: The file.
        key: The name of the attribute that keeps the header, "jnrrd" or "nrrd".
        allow: Further folders that may hold data files.
    """
    volume = read_volume(fields, source.url)
    data = untiled_volume.read_data(fields, source.url, end, references(None, source, allow))
    array, pins = untiled_volume.array_index(volume, data, source)
    level = Level(
        number=0,
        sizes=volume.sizes,
        tile=volume.sizes,
        scale=(1,) * len(volume.sizes),
        is_stored=True,
    )
    return image_group(fields, volume, (level,), {"0": array}, key=key, pins=pins, roots=data.roots)


def image_group(
    fields: Mapping[str, Json],
    volume: Volume,
    levels: Sequence[Level],
    arrays: dict[str, ArrayIndex],
    *,
    key: str,
    pins: dict[str, Pin],
    roots: tuple[str, ...],
) -> GroupIndex:
    """Return the hierarchy of a file: one image, its levels and its metadata."""
    image = hierarchy.image_group(*image_of(fields, volume, levels, arrays, key=key))
    return replace(hierarchy.root_group({"0": image}, pins=pins), roots=roots)
