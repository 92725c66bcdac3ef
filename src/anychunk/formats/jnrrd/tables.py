"""Tables of tiles, held against the number of tiles and against the file.

Spec: JNRRD Tiling Extension 1.0.0 sections 5 to 7; docs/formats/jnrrd.md.
"""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from anychunk.formats.jnrrd.tiled import Tiled
from anychunk.formats.jnrrd.tiling import Finding, Table, error, warning


def check_tables(tiled: Tiled, size: int) -> Iterator[Finding]:
    """Hold every table against the number of tiles, and every tile against the file."""
    tiling, total = tiled.tiling, tiled.tiles
    for name in ("size_table", "compression_levels", "metadata"):
        table = getattr(tiling, name)
        if table is not None and len(table) != total:
            yield error(name, f"has {len(table)} entries, expected {total}, one a tile")
            return
    yield from check_checksums(tiled)
    if tiling.storage == "internal":
        yield from check_ranges(tiled, size)


def check_ranges(tiled: Tiled, size: int) -> Iterator[Finding]:
    tiling = tiled.tiling
    offsets, sizes = cast("Table", tiling.offset_table), tiling.size_table
    expected = tiled.tile_bytes()
    if sizes is not None and not sizes.all():
        bad = int(np.flatnonzero(sizes == 0)[0])
        yield error("size_table", f"{tiled.name(bad)} has 0 bytes")
    elif sizes is not None and tiling.compression == "raw" and (sizes != expected).any():
        bad = int(np.flatnonzero(sizes != expected)[0])
        yield error(
            "size_table",
            f"{tiled.name(bad)} has {sizes[bad]} bytes, expected {expected[bad]} raw ones",
        )
    lengths = expected if tiling.compression == "raw" else sizes
    least = np.uint64(1) if lengths is None else lengths
    inside = (offsets >= np.uint64(tiled.end)) & (offsets <= np.uint64(size))
    inside &= np.where(inside, np.uint64(size) - np.where(inside, offsets, 0), 0) >= least
    if not inside.all():
        bad = int(np.flatnonzero(~inside)[0])
        length = 1 if lengths is None else lengths[bad]
        yield error(
            "offset_table",
            f"{tiled.name(bad)} is {length} bytes at {offsets[bad]}, expected inside the data, "
            f"{tiled.end} to {size}",
        )
    elif tiling.level_offsets is not None:
        yield from check_level_offsets(tiled)


def check_level_offsets(tiled: Tiled) -> Iterator[Finding]:
    """Compare what only advises with the table that rules."""
    given, offsets = tiled.tiling.level_offsets or (), tiled.tiling.offset_table
    for layout in tiled.layouts:
        number, before = layout.level.number, tiled.before(layout)
        first = int(cast("Table", offsets)[before : before + layout.tiles].min())
        if number < len(given) and given[number] != first:
            yield warning(
                "level_offsets",
                f"level {number} at {given[number]}, but its tiles are at {first}",
            )


def check_checksums(tiled: Tiled) -> Iterator[Finding]:
    for number, entry in enumerate(tiled.tiling.metadata or ()):
        algorithm = entry.get("checksum_algorithm")
        if algorithm is None:
            continue
        if algorithm != "crc32":
            yield warning("metadata", f"checksums by {str(algorithm)[:40]!r} are not verified")
            return
        if checksum(entry) is None:
            shown = str(entry.get("checksum"))[:40]
            yield error("metadata", f"{tiled.name(number)} has the checksum {shown!r}, no crc32")
            return


def checksum(entry: Any) -> int | None:
    """Give the CRC-32 of a tile where its algorithm is named."""
    text = entry.get("checksum")
    if entry.get("checksum_algorithm") != "crc32" or not isinstance(text, str) or len(text) != 8:
        return None
    try:
        return int(text, 16) if text.isalnum() else None
    except ValueError:
        return None
