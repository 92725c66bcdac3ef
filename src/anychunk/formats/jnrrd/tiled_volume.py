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
from anychunk.formats.jnrrd.tile_layout import (
    Layout,
    dimension_counts,
    spread,
    stored_voxels,
    tile_indices,
)
from anychunk.formats.jnrrd.tile_pattern import Pattern
from anychunk.formats.jnrrd.tiling_fields import Finding, Level, Table, Tiling, error, warning
from anychunk.formats.jnrrd.volume import Volume


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

    def tile_bytes(self) -> Table:
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


def check_tables(tiled: TiledVolume, size: int) -> Iterator[Finding]:
    """Check the tables against the number of tiles, and the extent of every tile against the file.

    Parameters:
        tiled: The volume.
        size: The length of the file in bytes.
    """
    tiling, total = tiled.tiling, tiled.tiles
    for name in ("size_table", "compression_levels", "metadata"):
        table = getattr(tiling, name)
        if table is not None and len(table) != total:
            yield error(name, f"has {len(table)} entries, expected {total}, one per tile")
            return
    yield from check_checksums(tiled)
    if tiling.storage == "internal":
        yield from check_ranges(tiled, size)


def check_ranges(tiled: TiledVolume, size: int) -> Iterator[Finding]:
    """Check that every internal tile lies between the header and the end of the file."""
    tiling = tiled.tiling
    offsets, sizes = cast("Table", tiling.offset_table), tiling.size_table
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
        yield error(
            "size_table",
            f"{tiled.name(int(numbers[bad]))} has {sizes[bad]} bytes, expected {expected[bad]} "
            "(raw samples)",
        )
    lengths = expected if tiling.compression == "raw" else sizes
    least = np.uint64(1) if lengths is None else lengths
    # entries are any 64-bit numbers: subtract only where it cannot wrap around
    inside = (offsets >= np.uint64(tiled.end)) & (offsets <= np.uint64(size))
    inside &= np.where(inside, np.uint64(size) - np.where(inside, offsets, 0), 0) >= least
    if not inside.all():
        bad = int(np.flatnonzero(~inside)[0])
        length = 1 if lengths is None else lengths[bad]
        yield error(
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
        first = int(cast("Table", offsets)[before : before + layout.tiles].min())
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
