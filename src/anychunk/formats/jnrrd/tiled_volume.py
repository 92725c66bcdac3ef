"""A tiled volume as its header describes it, and the checks of its tables against the file.

Spec: JNRRD Tiling Extension 1.0.0 sections 5 to 7; docs/formats/jnrrd.md.

All tables have one entry per stored tile: level after level, in the order of the tile grid.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from anychunk import limits
from anychunk.codecs import leading_streams
from anychunk.errors import ChunkDecodeError, FormatError
from anychunk.formats.jnrrd.external_files import References
from anychunk.formats.jnrrd.tile_pattern import Pattern
from anychunk.formats.jnrrd.tiling_fields import (
    Finding,
    Layout,
    Level,
    Tiling,
    dimension_counts,
    error,
    first_error,
    spread,
    stored_voxels,
    tile_indices,
    warning,
)
from anychunk.formats.jnrrd.volume import Volume
from anychunk.io.opening import read_object
from anychunk.io.source import Bytes1D, Source
from anychunk.model.index import Uint64


@dataclass(frozen=True, eq=False, kw_only=True)
class TiledVolume:
    """A tiled volume as its header describes it."""

    url: str
    end: int
    """Where the header ends."""
    volume: Volume
    tiling: Tiling
    levels: tuple[Level, ...]
    """All levels, stored or virtual."""
    layouts: tuple[Layout, ...]
    """The layouts of the stored levels, in order."""
    pattern: Pattern | None = None
    """`tile:pattern`, parsed."""

    @property
    def tiles(self) -> int:
        """The number of stored tiles."""
        return sum(layout.tiles for layout in self.layouts)

    def before(self, layout: Layout) -> int:
        """Return the number of entries in every table that precede those of a level."""
        return sum(x.tiles for x in self.layouts if x.level.number < layout.level.number)

    def name(self, number: int) -> str:
        """Return a description of a tile, given its place in the tables, for messages."""
        for layout in self.layouts:
            if number < layout.tiles:
                grid = dimension_counts(layout, self.tiling.dimensions)
                return f"tile {tile_indices(number, grid)} of level {layout.level.number}"
            number -= layout.tiles
        return f"tile {number}"

    def tile_bytes(self) -> Uint64:
        """Return the decoded length of every tile in bytes, in table order."""
        return np.concatenate(
            [
                np.broadcast_to(
                    stored_voxels(layout, self.tiling.dimensions) * np.uint64(self.volume.itemsize),
                    layout.tiles,
                )
                for layout in self.layouts
            ]
        ).astype(np.uint64)


def check_sizes(tiling: Tiling, levels: Sequence[Level], volume: Volume, url: str) -> None:
    """Refuse tiles that exceed the chunk limit. Call it before anything is allocated for them."""
    for level in levels:
        overlap = spread(tiling.overlap, tiling.dimensions, len(level.sizes), 0)
        lengths = [t + 2 * o for t, o in zip(level.tile, overlap, strict=True)]
        if tiling.edge_handling == "variable":
            lengths = [min(a, b) for a, b in zip(lengths, level.sizes, strict=True)]
        nbytes = math.prod(lengths) * volume.itemsize
        limits.check_chunk(nbytes, where=f"{url}: tile:sizes, level {level.number}")


def check_tables(tiled: TiledVolume, source: Source, references: References) -> Iterator[Finding]:
    """Check the tables against the number of tiles, and the extent of every tile against the file.

    Parameters:
        tiled: The volume.
        source: The file of the header, and of internal tiles.
        references: Resolves the names of external tiles.
    """
    tiling, total = tiled.tiling, tiled.tiles
    is_internal = tiling.storage == "internal"
    # a list may leave out tiles that are absent, or that a pattern names
    has_files = not is_internal and not tiling.sparse and tiling.pattern is None
    tables = {
        "offset_table": tiling.offset_table if is_internal else None,
        "files": tiling.files if has_files else None,
        "size_table": tiling.size_table,
        "compression_levels": tiling.compression_levels,
        "metadata": tiling.metadata,
    }
    for name, table in tables.items():
        if table is not None and len(table) != total:
            grids = (dimension_counts(x, tiling.dimensions) for x in tiled.layouts)
            shown = " + ".join("x".join(map(str, grid)) for grid in grids)
            message = f"has {len(table)} entries, expected {total} ({shown}), one per tile"
            yield _of_table(tiling, name, message)
            return
    yield from check_checksums(tiled)
    ranges = list(check_ranges(tiled, source.size())) if is_internal else []
    yield from ranges
    is_whole = is_internal and tiling.compression == "raw"
    if any(tiling.overlap) and not is_whole and first_error(ranges) is None:
        yield from check_first_tile(tiled, source, references)


def _of_table(tiling: Tiling, name: str, message: str) -> Finding:
    """Return what is wrong with a table; if tiles overlap, their number or size may be."""
    if not any(tiling.overlap):
        return error(name, message)
    return _of_halo(tiling, f"tile:{name} {message}")


def _of_halo(tiling: Tiling, message: str) -> Finding:
    overlap = list(tiling.overlap)
    return error(
        "overlap", f"{overlap} voxels are stored on both sides of each tile, but {message}"
    )


def check_first_tile(
    tiled: TiledVolume, source: Source, references: References
) -> Iterator[Finding]:
    """Check that the first tile, compressed or external, is stored with its overlap.

    With another meaning of `tile:overlap` it would be smaller.
    """
    tiling, expected = tiled.tiling, int(tiled.tile_bytes()[0])
    data = first_tile(tiled, source, references)
    try:
        # strict about the decoded size, so success means that the size is right
        leading_streams.decode(tiling.compression, data, expected)
    except ChunkDecodeError as e:
        yield _of_halo(tiling, f"the first tile does not decode to {expected} bytes: {e}")
        return
    if tiling.compression == "raw" and len(data) > expected:
        yield _of_halo(tiling, f"the first tile has {len(data)} bytes, expected {expected}")


def first_tile(tiled: TiledVolume, source: Source, references: References) -> Bytes1D:
    """Return the stored bytes of the first tile of level 0."""
    tiling = tiled.tiling
    if tiling.storage == "internal":
        offsets = cast("Uint64", tiling.offset_table)
        start = int(offsets[0])
        stop = int(offsets[offsets > offsets[0]].min(initial=source.size()))
        if tiling.size_table is not None:
            stop = min(stop, start + int(tiling.size_table[0]))
        limits.check_chunk(stop - start, where=f"{tiled.url}: the first tile")
        return source.read(start, stop - start)
    zeros = [0] * len(tiling.dimensions)
    if tiled.pattern is not None:
        name = tiled.pattern.name(zeros, level=0, number=0, before=0)
    else:
        listed = (f for f in tiling.files or () if f.get("indices") == zeros and not f.get("level"))
        name = str(next(listed, {}).get("file", ""))
    data = read_object(references.url(name), storage=source.storage, roots=references.roots)
    if data is None:
        raise FormatError(f"{tiled.url}: the first tile, {name}, is missing")
    return data


def check_ranges(tiled: TiledVolume, size: int) -> Iterator[Finding]:
    """Check that every internal tile lies between the header and the end of the file."""
    tiling = tiled.tiling
    offsets, sizes = cast("Uint64", tiling.offset_table), tiling.size_table
    expected = tiled.tile_bytes()
    if tiling.sparse and sizes is not None:
        stored = sizes > 0
        offsets, sizes, expected = offsets[stored], sizes[stored], expected[stored]
        numbers = np.flatnonzero(stored)
    else:
        numbers = np.arange(len(offsets))
    if sizes is not None and not sizes.all():
        bad = int(np.flatnonzero(sizes == 0)[0])
        yield error("size_table", f"{tiled.name(bad)} has 0 bytes")
    elif sizes is not None and tiling.compression == "raw" and (sizes != expected).any():
        bad = int(np.flatnonzero(sizes != expected)[0])
        yield _of_table(
            tiling,
            "size_table",
            f"{tiled.name(int(numbers[bad]))} has {sizes[bad]} bytes, expected {expected[bad]} "
            "(raw samples)",
        )
    elif sizes is None and tiling.compression == "raw" and any(tiling.overlap):
        order = np.argsort(offsets, kind="stable")
        # anything may follow the last tile
        room, needed = np.diff(offsets[order]), expected[order][:-1]
        is_tight = tiling.format == "contiguous"
        if not (room == needed if is_tight else room >= needed).all():
            yield _of_table(tiling, "offset_table", f"tiles of {expected[0]} bytes do not fit")
    lengths = expected if tiling.compression == "raw" else sizes
    least = np.uint64(1) if lengths is None else lengths
    # entries are any 64-bit numbers: subtract only where it cannot wrap around
    inside = (offsets >= np.uint64(tiled.end)) & (offsets <= np.uint64(size))
    inside &= np.where(inside, np.uint64(size) - np.where(inside, offsets, 0), 0) >= least
    if not inside.all():
        bad = int(np.flatnonzero(~inside)[0])
        length = 1 if lengths is None else lengths[bad]
        yield _of_table(
            tiling,
            "offset_table",
            f"{tiled.name(int(numbers[bad]))} is {length} bytes at {offsets[bad]}, expected "
            f"between the end of the header and of the file, {tiled.end} to {size}",
        )
    elif tiling.level_offsets is not None:
        yield from check_level_offsets(tiled)


def check_level_offsets(tiled: TiledVolume) -> Iterator[Finding]:
    """Compare `level_offsets` with the offset table, which is used: a mismatch only warns."""
    given, offsets = tiled.tiling.level_offsets or (), tiled.tiling.offset_table
    if tiled.tiling.sparse:
        return  # a level may have no tiles at all
    for layout in tiled.layouts:
        number, before = layout.level.number, tiled.before(layout)
        first = int(cast("Uint64", offsets)[before : before + layout.tiles].min())
        if number < len(given) and given[number] != first:
            yield warning(
                "level_offsets",
                f"level {number} is at {given[number]}, but its first tile at {first}",
            )


def check_checksums(tiled: TiledVolume) -> Iterator[Finding]:
    """Check that checksums whose algorithm is known are well-formed; chunks verify them later."""
    for number, entry in enumerate(tiled.tiling.metadata or ()):
        algorithm = entry.get("checksum_algorithm")
        if algorithm is None:
            continue
        if algorithm != "crc32":
            yield warning(
                "metadata", f"checksum_algorithm {str(algorithm)[:40]!r} is unknown: not verified"
            )
            return
        if checksum(entry) is None:
            shown = str(entry.get("checksum"))[:40]
            yield error(
                "metadata",
                f"{tiled.name(number)} has the checksum {shown!r}, expected 8 hexadecimal digits",
            )
            return


def checksum(entry: Any) -> int | None:
    """Return the CRC-32 in an entry of `tile:metadata`, or None if it has none.

    A checksum without an algorithm is not verified: the extension does not name a default.
    """
    text = entry.get("checksum")
    if entry.get("checksum_algorithm") != "crc32" or not isinstance(text, str) or len(text) != 8:
        return None
    try:
        return int(text, 16) if text.isalnum() else None
    except ValueError:
        return None
