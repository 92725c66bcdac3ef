"""Determine what `tile:overlap` means in a file: the only reading that fits its tiles.

Spec: JNRRD Tiling Extension 1.0.0 sections 5 to 7; docs/formats/jnrrd.md.

Section 7.2 can be read in several ways (`tile_layout.py`), and a wrong choice shows wrong voxels
without any error. So nothing is assumed: readings that contradict the file are eliminated, first by
the number of tiles, which costs nothing, then by the size of stored tiles. Readings that place
every tile identically count as one. If none or several remain, the file is refused.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs import leading_stream
from anychunk.errors import ChunkDecodeError, FormatError
from anychunk.formats.jnrrd.external_files import References
from anychunk.formats.jnrrd.tile_layout import (
    READINGS,
    Layout,
    dimension_counts,
    lay_out,
    stored_voxels,
    tile_counts,
)
from anychunk.formats.jnrrd.tile_pattern import LEVEL, Pattern
from anychunk.formats.jnrrd.tiling_fields import Finding, Level, Table, Tiling, error
from anychunk.formats.jnrrd.volume import Volume
from anychunk.io import Source, open_source, read_object


@dataclass(frozen=True, eq=False)
class Tiles:
    """Where the stored tiles are."""

    tiling: Tiling
    source: Source
    """The file of the header."""
    references: References
    """Resolves the names of external tiles."""
    pattern: Pattern | None
    """`tile:pattern`, parsed."""


def choose_layouts(
    tiling: Tiling,
    levels: Sequence[Level],
    volume: Volume,
    *,
    source: Source,
    references: References,
    pattern: Pattern | None,
) -> tuple[Layout, ...] | Finding:
    """Return the layouts of the stored levels, or an error if the overlap is undecidable.

    Parameters:
        tiling: The fields of the extension.
        levels: All levels.
        volume: The samples.
        source: The file of the header.
        references: Resolves the names of external tiles.
        pattern: `tile:pattern`, parsed.
    """
    tiles = Tiles(tiling, source, references, pattern)
    stored = [level for level in levels if level.is_stored]
    table = tiling.offset_table if tiling.storage == "internal" else tiling.files
    # a list may leave out tiles that are absent, or that a pattern names
    is_partial = tiling.storage == "external" and (tiling.sparse or tiling.pattern is not None)
    entries = None if table is None or is_partial else len(table)
    field = "offset_table" if tiling.storage == "internal" else "files"
    found: dict[tuple[object, ...], tuple[Layout, ...]] = {}
    # without overlap, all readings place tiles identically
    for reading in READINGS if any(tiling.overlap) else READINGS[:1]:
        counts = [tile_counts(tiling, level, reading) for level in stored]
        total = sum(math.prod(c) for c in counts if c is not None)
        if None in counts or (entries is not None and total != entries):
            continue
        layouts = tuple(cast("Layout", lay_out(tiling, level, reading)) for level in stored)
        # keyed by geometry: "shared" and "shared to the end" often place all tiles alike
        found.setdefault(tuple(x.geometry() for x in layouts), layouts)
    if not found:
        return error(field, _wrong_count(tiling, stored, entries))
    if len(found) > 1:
        fitting = [x for x in found.values() if fits(x, tiles, volume)]
        if len(fitting) > 1:
            # if no reading is complete, files are missing and decide nothing
            fitting = [x for x in fitting if _is_complete(x, tiles)] or fitting
        if len(fitting) != 1:
            return error(
                "overlap",
                f"{list(tiling.overlap)}: {len(fitting)} meanings of overlap agree with the "
                "number and size of tiles, expected exactly 1",
            )
        return fitting[0]
    return next(iter(found.values()))


def _wrong_count(tiling: Tiling, stored: Sequence[Level], entries: int | None) -> str:
    """Return a message that compares a table's length with the number of tiles (as `halo`)."""
    counts = [tile_counts(tiling, level, "halo") or () for level in stored]
    grids = " + ".join("x".join(str(c[axis]) for axis in tiling.dimensions) for c in counts)
    total = sum(math.prod(c) for c in counts)
    return f"has {entries} entries, expected {total} tiles ({grids})"


def fits(
    layouts: Sequence[Layout],
    tiles: Tiles,
    volume: Volume,
) -> bool:
    """Return whether the stored tiles have the sizes that these layouts predict.

    The decoded size of compressed tiles is unknown, so only the first one is decoded and checked.
    """
    tiling, source = tiles.tiling, tiles.source
    size = np.uint64(volume.itemsize)
    voxels = [np.broadcast_to(stored_voxels(x, tiling.dimensions), x.tiles) for x in layouts]
    expected = np.concatenate(voxels).astype(np.uint64) * size
    if tiling.compression != "raw":
        data = first_tile(tiles)
        try:
            # strict about the decoded size, so success means that the size is right
            leading_stream.decode(tiling.compression, data, int(expected[0]))
        except ChunkDecodeError:
            return False
        return True
    if tiling.storage == "external":
        return len(first_tile(tiles)) == int(expected[0])
    if tiling.size_table is not None:
        return bool(np.array_equal(tiling.size_table, expected))
    # neither compressed nor a size table: the room up to the next tile must do, and must be used
    # up if the file claims that its tiles are contiguous
    offsets = cast("Table", tiling.offset_table)
    order = np.argsort(offsets, kind="stable")
    room = np.diff(np.append(offsets[order], np.uint64(source.size())))
    is_tight = tiling.format == "contiguous"
    matches = room == expected[order] if is_tight else room >= expected[order]
    # anything may follow the last tile
    return bool(matches[:-1].all() and room[-1] >= expected[order][-1])


def _is_complete(layouts: Sequence[Layout], tiles: Tiles) -> bool:
    """Return whether the last tile of each level exists, and no tile after it.

    A pattern does not say how many tiles there are, but the existing files do.
    """
    tiling, pattern = tiles.tiling, tiles.pattern
    if pattern is None or tiling.files is not None:
        return True

    def is_there(name: str) -> bool:
        try:
            url, roots = tiles.references.url(name), tiles.references.roots
            open_source(url, storage=tiles.source.storage, roots=roots).size()
        except FileNotFoundError:
            return False
        return True

    before = 0
    for layout in layouts:
        grid = dimension_counts(layout, tiling.dimensions)
        last, total, level = [n - 1 for n in grid], math.prod(grid), layout.level.number
        # the tile after the last one along each axis; an axis that the pattern does not contain
        # yields the name of the last tile itself, which is removed below
        behind = {
            pattern.name(
                [n if i == axis else last[i] for i, n in enumerate(grid)],
                level=level,
                number=total - 1,
                before=before,
            )
            for axis in range(len(grid))
        }
        # without {l}, {i} counts through all levels: the next number is a tile of the next level
        if LEVEL in pattern.positions or layout is layouts[-1]:
            behind.add(pattern.name(last, level=level, number=total, before=before))
        name = pattern.name(last, level=level, number=total - 1, before=before)
        if not is_there(name) or any(is_there(other) for other in behind - {name}):
            return False
        before += total
    return True


def first_tile(tiles: Tiles) -> npt.NDArray[np.uint8]:
    """Return the stored bytes of the first tile of level 0."""
    tiling, source = tiles.tiling, tiles.source
    if tiling.storage == "internal":
        offsets = cast("Table", tiling.offset_table)
        start, stop = int(offsets[0]), source.size()
        if tiling.size_table is not None:
            stop = min(stop, start + int(tiling.size_table[0]))
        if start >= stop:
            return np.empty(0, np.uint8)
        limits.check_chunk(stop - start, where=f"{source.url}: the first tile")
        return source.read(start, stop - start)
    zeros = [0] * len(tiling.dimensions)
    names = [
        f.get("file")
        for f in tiling.files or ()
        if f.get("indices") == zeros and not f.get("level")
    ]
    if not names and tiles.pattern is not None:
        names = [tiles.pattern.name(zeros, level=0, number=0, before=0)]
    name = names[0] if names and isinstance(names[0], str) else ""
    data = read_object(
        tiles.references.url(name), storage=source.storage, roots=tiles.references.roots
    )
    if data is None:
        raise FormatError(f"{source.url}: the first tile, {name}, is missing")
    return data
