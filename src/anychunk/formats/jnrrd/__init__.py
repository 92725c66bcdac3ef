"""JNRRD and NRRD: an n-dimensional volume with a text header, whole or in tiles.

Spec:    JNRRD 1.0.0 ("0004"), Tiling Extension 1.0.0; NRRD0001 to NRRD0005 (Teem).
Axes:    those of the header reversed, slowest first; named by their labels, or else by their kinds.
Opened:  every type; raw, ascii, hex, gzip, bzip2, zstd and LZ4 frame; attached and detached data;
         internal and external tiles, padded, cropped or overlapping; levels, stored and virtual.
Refused: references outside the folder of the file (unless allowed); tables that contradict it.
"""

import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
import numpy.typing as npt

from anychunk.errors import AnychunkError, FormatError, FormatWarning, OptionError
from anychunk.formats.jnrrd import axes, nrrd
from anychunk.formats.jnrrd.header import MAGIC, Header, Line, read_header
from anychunk.formats.jnrrd.parse import (
    open_header,
    open_tiled,
    read_tiled,
    stored_arrays,
    tiled_index,
    untiled_index,
)
from anychunk.formats.jnrrd.parse import parse as parse_jnrrd
from anychunk.formats.jnrrd.tiled_volume import TiledVolume
from anychunk.formats.jnrrd.tiling_fields import Finding, error, first_error, tiling_prefix, warning
from anychunk.formats.jnrrd.write import write_tiled
from anychunk.formats.jnrrd.write_untiled import is_detached, is_nrrd, write_plain
from anychunk.io.block_cache import buffered
from anychunk.io.open_sources import Sources
from anychunk.io.opening import open_source
from anychunk.io.source import Source, Storage
from anychunk.model.grid import Shape, chunk_box
from anychunk.model.images import VARIABLE
from anychunk.model.index import ArrayIndex, Computed, GroupIndex, Json
from anychunk.options import JnrrdOptions, check_for, checked

if TYPE_CHECKING:
    from anychunk.decode.boxes import ArrayReader


__all__ = [
    "EXTENSIONS",
    "Finding",
    "Header",
    "Line",
    "TileReader",
    "check_header",
    "claims",
    "parse",
    "read_header",
    "read_tile",
    "sniff",
    "tile_of_voxel",
    "validate",
    "write",
    "writes_beside",
]

EXTENSIONS = (".jnrrd", ".nrrd", ".nhdr")


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a JNRRD or NRRD file."""
    return MAGIC.match(head) is not None or nrrd.sniff(head)


def parse(source: Source, *, allow: Iterable[str] = ()) -> GroupIndex:
    """Index a file; `allow` lists further folders that may hold its tiles or data files."""
    if nrrd.sniff(source.read(0, min(16, source.size())).tobytes()):
        return nrrd.parse(source, allow=allow)
    return parse_jnrrd(source, allow=allow)


def claims(url: str) -> bool:
    """Return whether `url` names a JNRRD or NRRD file."""
    return url.lower().endswith(EXTENSIONS)


def writes_beside(url: str, options: Mapping[str, Any]) -> bool:
    """Return whether writing `url` with these options makes files beside it that it names."""
    if is_plain(url, options):
        return is_detached(url, **options)
    return bool(options.get("external"))


def is_plain(url: str, options: Mapping[str, Any]) -> bool:
    """Return whether a file has no tiles: every NRRD file, and JNRRD with `chunked=False`."""
    return is_nrrd(url) or options.get("chunked") is False


@checked()
def write(array: Any, url: str, **options: Unpack[JnrrdOptions]) -> None:
    """Write an array as tiled JNRRD, or without tiles as NRRD or JNRRD.

    Sizes and axes are in numpy's order, slowest first. docs/formats/jnrrd.md describes the options.

    Parameters:
        array: A numpy, dask or zarr array, or anything with `shape`, `dtype` and slicing.
        url: The file to write; `.nrrd` and `.nhdr` are NRRD, `.jnrrd` is JNRRD.
        **options: Those of `write_tiled` or `write_plain`.

    Raises:
        OptionError: An option is wrong, or contradicts another.
        UnsupportedError: The format cannot hold the array.
    """
    given: dict[str, Any] = {**options}
    chunked = given.pop("chunked", None)
    if not is_plain(url, {"chunked": chunked}):
        check_for(write_tiled, f"{url}: with tiles", given)
        write_tiled(array, url, **given)
        return
    if chunked:
        raise OptionError(f"{url}: NRRD has no tiles; write .jnrrd, or leave out chunked")
    if given.pop("checkpoints", None) is not None:  # a target that nobody sees yet
        given["overwrite"] = True
    check_for(write_plain, f"{url}: without tiles", given)
    write_plain(array, url, **given)


# Reading single tiles by their indices. Arguments are in numpy's axis order, slowest first.


class TileReader:
    """Reads single tiles of one file, whose header is parsed once."""

    def __init__(
        self, url: str | Path, *, storage: Storage | None = None, allow: Iterable[str] = ()
    ) -> None:
        source = open_source(str(url), storage=storage)
        near = buffered(source)
        header = open_header(near)
        self.url = source.url
        self.tiled = open_tiled(header, near, allow=allow)
        self.arrays = stored_arrays(self.tiled, near, allow=allow)
        """The levels by number, in the order of the file's axes, whatever their meaning."""
        self.sources = Sources({source.url: source.pin()}, storage=storage)
        self._readers: dict[str, ArrayReader] = {}

    def array(self, level: int) -> ArrayIndex:
        """Return the index of a level."""
        found = self.arrays.get(str(level))
        if found is None:
            raise FormatError(f"{self.url}: level {level}, expected below {len(self.tiled.levels)}")
        return found

    def reader(self, path: str) -> "ArrayReader":
        """Return the reader of a level, given its path in the index, such as `0/2/image`."""
        if path not in self._readers:
            from anychunk.decode.boxes import ArrayReader
            from anychunk.decode.chunks import ChunkReader

            array = self.arrays[path.split("/")[1]]
            chunks = ChunkReader(array, self.sources, where=f"{self.url} {path}")
            self._readers[path] = ArrayReader(chunks)
        return self._readers[path]

    def read(self, indices: Iterable[int], level: int = 0) -> npt.NDArray[Any]:
        """Read one tile, as `read_tile` does."""
        array = self.array(level)
        coords = self.coords(tuple(indices), array)
        box = chunk_box(coords, array.chunk_shape, array.shape)
        if not isinstance(array.chunks, Computed):
            start, stop = tuple(s.start for s in box), tuple(s.stop for s in box)
            return self.reader(f"0/{level}/{VARIABLE}").read(start, stop)
        from anychunk.decode.computed import compute_chunk

        chunk = compute_chunk(array, coords, self.reader(array.chunks.source))
        return chunk[tuple(slice(s.stop - s.start) for s in box)]

    def coords(self, indices: Shape, array: ArrayIndex) -> Shape:
        """Return the chunk coordinates of a tile; indices of axes that are not tiled are optional.

        Indices count tiles and are never divided by the tile size. Section 8.2's `read_tile` calls
        section 8.1 with them, which divides them as if they were voxels.
        """
        ndim, trailing = len(self.tiled.volume.sizes), len(self.tiled.volume.trailing)
        tiled = sorted(ndim - 1 - axis for axis in self.tiled.tiling.dimensions)
        coords = [0] * (ndim + trailing)
        if len(indices) not in (ndim, len(tiled)):
            raise FormatError(
                f"{self.url}: {len(indices)} tile indices, expected {len(tiled)}, "
                "one per tiled axis"
            )
        for axis, index in zip(
            range(ndim) if len(indices) == ndim else tiled, indices, strict=True
        ):
            coords[axis] = int(index)
        if any(not 0 <= c < n for c, n in zip(coords, array.grid, strict=True)):
            raise FormatError(
                f"{self.url}: tile {indices} is outside the tile grid {array.grid[:ndim]}"
            )
        return tuple(coords)


@checked()
def read_tile(
    url: str | Path,
    indices: Iterable[int],
    level: int = 0,
    *,
    storage: Storage | None = None,
    allow: Iterable[str] = (),
) -> npt.NDArray[Any]:
    """Read one tile: its core voxels, without padding and without the overlap.

    To read several tiles of one file use a `TileReader`, which parses the header once.

    Parameters:
        url: A tiled JNRRD file.
        indices: The tile, counted in tiles, not voxels; slowest axis first. Axes that are not tiled
            may be left out.
        level: The level; 0 is full resolution.
        storage: How remote objects are accessed, as in `anychunk.open`.
        allow:  Further folders that may hold external tiles.

    Raises:
        FormatError: The file is not tiled, or has no such level or tile.
    """
    return TileReader(url, storage=storage, allow=allow).read(indices, level)


@checked()
def tile_of_voxel(
    url: str | Path, voxel: Iterable[int], level: int = 0, *, storage: Storage | None = None
) -> Shape:
    """Return the indices of the tile that holds a voxel of a level, one per axis, slowest first.

    Parameters:
        url: A tiled JNRRD file.
        voxel: The coordinates of the voxel in the level, slowest axis first.
        level: The level, 0 is full resolution.
        storage: How remote objects are accessed, as in `anychunk.open`.
    """
    reader = TileReader(url, storage=storage)
    array = reader.array(level)
    ndim = len(reader.tiled.volume.sizes)
    place = tuple(voxel)
    if len(place) != ndim or any(
        not 0 <= v < n for v, n in zip(place, array.shape[:ndim], strict=True)
    ):
        raise FormatError(
            f"{reader.url}: voxel {place} is outside level {level} of shape {array.shape[:ndim]}"
        )
    return tuple(int(v) // n for v, n in zip(place, array.chunk_shape[:ndim], strict=True))


# All defects of a JNRRD file: in its fields, its tables, and the bytes of every tile.
#
# Spec: JNRRD Tiling Extension 1.0.0, whose faults docs/formats/jnrrd.md lists. NRRD format
# sections
# 1.1, 1.3 and 4 for the rules of NRRD headers.

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
    """Return the defects of a JNRRD or NRRD header, as `validate` does, without reading samples.

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
