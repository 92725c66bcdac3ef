"""Tables of tiles, checked, as chunk tables of the Zarr view.

Spec: JNRRD Tiling Extension 1.0.0 sections 5 to 7; DECISIONS G.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs import crc32, leading_stream
from anychunk.codecs.window import front as window_front
from anychunk.errors import ChunkDecodeError, FormatError, LimitError
from anychunk.formats.jnrrd.codecs import bytes_codec, compressor, fill_json, window_codec
from anychunk.formats.jnrrd.files import (
    References,
    dimension_counts,
    listed_urls,
    pattern_objects,
    pattern_urls,
    tile_indices,
    url_table,
)
from anychunk.formats.jnrrd.layout import (
    READINGS,
    Layout,
    lay_out,
    spread,
    stored_voxels,
    tile_counts,
    tile_numbers,
)
from anychunk.formats.jnrrd.pattern import LEVEL, Pattern, check_tells_apart, parse_pattern
from anychunk.formats.jnrrd.tiling import Finding, Level, Tiling, error, warning
from anychunk.formats.jnrrd.volume import Volume
from anychunk.index import ArrayIndex, ByteRanges, Computed, Json, Objects
from anychunk.source import Source, open_source, read_object

type Shape = tuple[int, ...]
type Numbers = npt.NDArray[np.uint64]

MOST_NAMED = 1 << 20
"""How many tiles are named one by one, where a pattern of chunk coordinates cannot say it."""
MOST_FRONTS = 1 << 16


@dataclass(frozen=True, eq=False, kw_only=True)
class Tiled:
    """A tiled file, as far as its header tells."""

    url: str
    end: int
    """Where the header ends."""
    volume: Volume
    tiling: Tiling
    levels: tuple[Level, ...]
    layouts: tuple[Layout, ...]
    """Of the stored levels."""

    @property
    def tiles(self) -> int:
        return sum(layout.tiles for layout in self.layouts)

    def before(self, layout: Layout) -> int:
        """How many tiles stand before those of a level in every table."""
        return sum(x.tiles for x in self.layouts if x.level.number < layout.level.number)

    def name(self, number: int) -> str:
        """Name a tile by its place in the tables."""
        for layout in self.layouts:
            if number < layout.tiles:
                grid = dimension_counts(layout, self.tiling.dimensions)
                return f"tile {tile_indices(number, grid)} of level {layout.level.number}"
            number -= layout.tiles
        return f"tile {number}"

    def tile_bytes(self) -> Numbers:
        """Give the decoded size of every tile, in table order."""
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
    """Refuse tiles larger than a chunk may be, before anything is computed from their sizes."""
    for level in levels:
        overlap = spread(tiling.overlap, tiling.dimensions, len(level.sizes), 0)
        lengths = [t + 2 * o for t, o in zip(level.tile, overlap, strict=True)]
        if tiling.edge_handling == "variable":
            lengths = [min(a, b) for a, b in zip(lengths, level.sizes, strict=True)]
        nbytes = math.prod(lengths) * volume.itemsize
        limits.check_chunk(nbytes, where=f"{url}: tile:sizes, level {level.number}")


def choose_layouts(
    tiling: Tiling, levels: Sequence[Level], volume: Volume, source: Source, references: References
) -> tuple[Layout, ...] | Finding:
    """Lay out the stored levels; where tiles overlap, in the one way that fits the file."""
    stored = [level for level in levels if level.is_stored]
    table = tiling.offset_table if tiling.storage == "internal" else tiling.files
    entries = None if table is None else len(table)
    field = "offset_table" if tiling.storage == "internal" else "files"
    found: dict[tuple[object, ...], tuple[Layout, ...]] = {}
    for reading in READINGS if any(tiling.overlap) else READINGS[:1]:
        counts = [tile_counts(tiling, level, reading) for level in stored]
        total = sum(math.prod(c) for c in counts if c is not None)
        if None in counts or (entries is not None and total != entries):
            continue
        layouts = tuple(cast("Layout", lay_out(tiling, level, reading)) for level in stored)
        found.setdefault(tuple(x.geometry() for x in layouts), layouts)
    if not found:
        return error(field, _wrong_count(tiling, stored, entries))
    if len(found) > 1:
        fitting = [x for x in found.values() if fits(x, tiling, volume, source, references)]
        if len(fitting) > 1:
            fitting = [x for x in fitting if _is_all(x, tiling, source, references)] or fitting
        if len(fitting) != 1:
            how = "several ways to overlap fit" if fitting else "no way to overlap fits"
            return error("overlap", f"{list(tiling.overlap)}: {how} the number and size of tiles")
        return fitting[0]
    return next(iter(found.values()))


def _wrong_count(tiling: Tiling, stored: Sequence[Level], entries: int | None) -> str:
    counts = [tile_counts(tiling, level, "halo") or () for level in stored]
    grids = " + ".join("x".join(str(c[axis]) for axis in tiling.dimensions) for c in counts)
    total = sum(math.prod(c) for c in counts)
    return f"has {entries} entries, expected {total} tiles ({grids})"


def fits(
    layouts: Sequence[Layout],
    tiling: Tiling,
    volume: Volume,
    source: Source,
    references: References,
) -> bool:
    """Whether tiles of this layout have the sizes that the file has."""
    size = np.uint64(volume.itemsize)
    voxels = [np.broadcast_to(stored_voxels(x, tiling.dimensions), x.tiles) for x in layouts]
    expected = np.concatenate(voxels).astype(np.uint64) * size
    if tiling.compression != "raw":
        data = first_tile(tiling, source, references)
        try:
            leading_stream.decode(tiling.compression, data, int(expected[0]))
        except ChunkDecodeError:
            return False
        return True
    if tiling.storage == "external":
        return len(first_tile(tiling, source, references)) == int(expected[0])
    if tiling.size_table is not None:
        return bool(np.array_equal(tiling.size_table, expected))
    offsets = cast("Numbers", tiling.offset_table)
    order = np.argsort(offsets, kind="stable")
    room = np.diff(np.append(offsets[order], np.uint64(source.size())))
    is_tight = tiling.format == "contiguous"
    matches = room == expected[order] if is_tight else room >= expected[order]
    return bool(matches[:-1].all() and room[-1] >= expected[order][-1])


def _is_all(
    layouts: Sequence[Layout], tiling: Tiling, source: Source, references: References
) -> bool:
    """Whether the last tile of each level is there, and none behind it.

    A pattern counts no tiles, but the files that it names do.
    """
    if tiling.pattern is None or tiling.files is not None:
        return True
    pattern = parse_pattern(tiling.pattern, tiling.dimensions)

    def is_there(name: str) -> bool:
        try:
            open_source(references.url(name), storage=source.storage).size()
        except FileNotFoundError:
            return False
        return True

    before = 0
    for layout in layouts:
        grid = dimension_counts(layout, tiling.dimensions)
        last, total, level = [n - 1 for n in grid], math.prod(grid), layout.level.number
        behind = {
            pattern.name(
                [n if i == axis else last[i] for i, n in enumerate(grid)],
                level=level,
                number=total - 1,
                before=before,
            )
            for axis in range(len(grid))
        }
        if LEVEL in pattern.positions or layout is layouts[-1]:
            behind.add(pattern.name(last, level=level, number=total, before=before))
        name = pattern.name(last, level=level, number=total - 1, before=before)
        if not is_there(name) or any(is_there(other) for other in behind - {name}):
            return False
        before += total
    return True


def first_tile(tiling: Tiling, source: Source, references: References) -> npt.NDArray[np.uint8]:
    """Read the stored bytes of the first tile."""
    if tiling.storage == "internal":
        offsets = cast("Numbers", tiling.offset_table)
        start, stop = int(offsets[0]), source.size()
        if tiling.size_table is not None:
            stop = min(stop, start + int(tiling.size_table[0]))
        if start >= stop:
            return np.empty(0, np.uint8)
        limits.check_chunk(stop - start, where=f"{source.url}: the first tile")
        return source.read(start, stop - start)
    zeros = [0] * len(tiling.dimensions)
    if tiling.files is not None:
        names = [
            f["file"] for f in tiling.files if f.get("indices") == zeros and not f.get("level")
        ]
        name = names[0] if names and isinstance(names[0], str) else ""
    else:
        pattern = parse_pattern(cast("str", tiling.pattern), tiling.dimensions)
        name = pattern.name(zeros, level=0, number=0, before=0)
    data = read_object(references.url(name), storage=source.storage)
    if data is None:
        raise FormatError(f"{source.url}: the first tile, {name}, is missing")
    return data


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
    offsets, sizes = cast("Numbers", tiling.offset_table), tiling.size_table
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
        first = int(cast("Numbers", offsets)[before : before + layout.tiles].min())
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


def array_indexes(
    tiled: Tiled, source: Source, references: References, names: tuple[str, ...], labels: Any
) -> dict[str, ArrayIndex]:
    """Give one array a level."""
    tiling, volume = tiled.tiling, tiled.volume
    chunk_tables = external_tables(tiled, references, labels)
    by_level = {layout.level.number: layout for layout in tiled.layouts}
    found = {}
    for level in tiled.levels:
        layout = by_level.get(level.number)
        if layout is None:
            found[str(level.number)] = virtual_array(tiled, level, names)
            continue
        chunks: ByteRanges | Objects = (
            chunk_tables[level.number]
            if tiling.storage == "external"
            else byte_ranges(tiled, layout, source)
        )
        fronts, codecs = fronts_and_codecs(tiled, layout)
        found[str(level.number)] = ArrayIndex(
            shape=(*level.sizes[::-1], *volume.trailing),
            chunk_shape=(*layout.chunk[::-1], *volume.trailing),
            data_type=volume.data_type,
            codecs=codecs,
            chunks=with_trailing(replace(chunks, **fronts), len(volume.trailing)),
            fill_value=fill_json(tiling.padding_value, volume.dtype),
            dimension_names=names,
        )
    return found


def with_trailing(chunks: ByteRanges | Objects, trailing: int) -> ByteRanges | Objects:
    """Give the table the axis of bytes that opaque samples have."""
    if not trailing:
        return chunks
    if isinstance(chunks, Objects):
        ids = chunks.front_ids
        return replace(
            chunks, grid=(*chunks.grid, 1), front_ids=None if ids is None else ids[..., None]
        )
    tables: dict[str, Any] = {
        name: None if getattr(chunks, name) is None else getattr(chunks, name)[..., None]
        for name in ("url_ids", "front_ids")
    }
    return replace(
        chunks, offsets=chunks.offsets[..., None], lengths=chunks.lengths[..., None], **tables
    )


def byte_ranges(tiled: Tiled, layout: Layout, source: Source) -> ByteRanges:
    """Give the tiles of a level as ranges of the file."""
    tiling = tiled.tiling
    table = cast("Numbers", tiling.offset_table)
    numbers = tile_numbers(layout, tiling.dimensions) + tiled.before(layout)
    offsets = table[numbers]
    if tiling.compression == "raw":
        lengths = tiled.tile_bytes()[numbers]
    elif tiling.size_table is not None:
        lengths = tiling.size_table[numbers]
    else:
        # up to the next tile or the end: the decoder stops at the end of the stream
        starts = np.append(np.unique(table), np.uint64(source.size()))
        lengths = starts[np.searchsorted(starts, offsets, side="right")] - offsets
    return ByteRanges(offsets=offsets, lengths=lengths, urls=(tiled.url,))


def external_tables(
    tiled: Tiled, references: References, labels: Any
) -> dict[int, ByteRanges | Objects]:
    """Give the chunk tables of all stored levels whose tiles are files of their own."""
    tiling = tiled.tiling
    if tiling.storage == "internal":
        return {}
    if tiling.files is not None:
        urls = listed_urls(tiling.files, tiled.layouts, tiling.dimensions, references)
        return {
            x.level.number: url_table(urls[x.level.number], x, tiling.dimensions)
            for x in tiled.layouts
        }
    pattern = parse_pattern(cast("str", tiling.pattern), tiling.dimensions, labels)
    counts = [(x.level.number, dimension_counts(x, tiling.dimensions)) for x in tiled.layouts]
    check_tells_apart(pattern, counts)
    return {x.level.number: _named(pattern, x, tiled, references) for x in tiled.layouts}


def _named(
    pattern: Pattern, layout: Layout, tiled: Tiled, references: References
) -> ByteRanges | Objects:
    objects = pattern_objects(pattern, layout, tiled.tiling, references)
    if objects is not None:
        return objects
    if layout.tiles > MOST_NAMED:
        raise LimitError(
            f"{tiled.url}: tile:pattern names {layout.tiles} tiles one by one, "
            f"expected at most {MOST_NAMED}"
        )
    urls = pattern_urls(pattern, layout, tiled.tiling, references, tiled.before(layout))
    return url_table(urls, layout, tiled.tiling.dimensions)


def fronts_and_codecs(tiled: Tiled, layout: Layout) -> tuple[dict[str, Any], tuple[Json, ...]]:
    """Give the inline bytes of a level's chunks, and the codecs that understand them."""
    tiling, volume = tiled.tiling, tiled.volume
    is_exact = tiling.size_table is not None or tiling.storage == "external"
    codecs: tuple[Json, ...] = (
        bytes_codec(volume),
        *compressor(tiling.compression, is_exact=is_exact or tiling.compression == "raw"),
    )
    before = tiled.before(layout)
    entries = (tiling.metadata or ())[before : before + layout.tiles]
    checksums = [checksum(entry) for entry in entries]
    has_checksums = any(value is not None for value in checksums)
    if has_checksums:
        codecs = (*codecs, {"name": "anychunk.crc32"})
    windows, ids = window_fronts(layout, volume.trailing, tiled.url)
    if windows:
        codecs = (window_codec(codecs),)
    if has_checksums:
        numbers = tile_numbers(layout, tiling.dimensions)
        of_window = np.zeros(numbers.shape, np.int64) if ids is None else ids
        fronts = tuple(
            (windows[int(w)] if windows else b"") + crc32.front(checksums[int(n)])
            for w, n in zip(of_window.flat, numbers.flat, strict=True)
        )
        every = np.arange(len(fronts), dtype=np.uint32).reshape(numbers.shape)
        return {"fronts": fronts, "front_ids": every}, codecs
    if not windows:
        return {}, codecs
    return {"fronts": windows, "front_ids": ids if len(windows) > 1 else None}, codecs


def window_fronts(
    layout: Layout, trailing: Shape, url: str
) -> tuple[tuple[bytes, ...], npt.NDArray[Any] | None]:
    """Say of each chunk which part of its stored tile it is; few differ."""
    if layout.axes is None:
        return (), None
    kinds, ids, count = [], np.zeros((), np.int64), 1
    for axis in reversed(layout.axes):
        columns = np.stack([axis.stored[axis.tile], axis.start, axis.length], axis=1)
        unique, inverse = np.unique(columns, axis=0, return_inverse=True)
        kinds.append(unique.tolist())
        count *= len(unique)
        ids = np.add.outer(ids * len(unique), inverse.reshape(-1))
    if count > MOST_FRONTS:
        raise LimitError(f"{url}: tile:overlap makes {count} kinds of tile, at most {MOST_FRONTS}")
    fronts = []
    for number in range(count):
        picked = []
        for kind in reversed(kinds):
            number, place = divmod(number, len(kind))  # noqa: PLW2901
            picked.append(kind[place])
        stored, start, length = zip(*reversed(picked), strict=True)
        zeros = (0,) * len(trailing)
        fronts.append(window_front((*stored, *trailing), (*start, *zeros), (*length, *trailing)))
    return tuple(fronts), ids.astype(np.uint16)


def virtual_array(tiled: Tiled, level: Level, names: tuple[str, ...]) -> ArrayIndex:
    """Give a level that the store computes from the nearest finer stored one."""
    source = virtual_source(tiled.levels, level)
    ratio = [a // b for a, b in zip(level.scale, source.scale, strict=True)]
    volume = tiled.volume
    chunk = tuple(min(t, n) for t, n in zip(level.tile, level.sizes, strict=True))
    grid = tuple(-(-n // c) for n, c in zip(level.sizes, chunk, strict=True))
    if volume.type == "block":
        raise FormatError(f"{tiled.url}: tile:levels_virtual: opaque samples cannot be averaged")
    return ArrayIndex(
        shape=level.sizes[::-1],
        chunk_shape=chunk[::-1],
        data_type=volume.data_type,
        codecs=(
            {"name": "bytes", "configuration": {"endian": "little"}}
            if volume.itemsize > 1
            else {"name": "bytes"},
        ),
        chunks=Computed(
            source=f"0/{source.number}",
            method="downsample",
            configuration={"ratio": ratio[::-1], "method": tiled.tiling.downsample_method},
            grid=grid[::-1],
        ),
        fill_value=fill_json(0, volume.dtype),
        dimension_names=names,
    )


def virtual_source(levels: Sequence[Level], level: Level) -> Level:
    """Find the nearest finer stored level with an integer ratio; level 0 always has one."""
    finer = [
        x
        for x in levels[: level.number]
        if x.is_stored and all(a % b == 0 for a, b in zip(level.scale, x.scale, strict=True))
    ]
    return finer[-1]


def first_error(findings: Sequence[Finding]) -> Finding | None:
    return next((f for f in findings if f.severity == "error"), None)
