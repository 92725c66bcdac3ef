"""Tiles as chunks of the Zarr view: one array a level.

Spec: JNRRD Tiling Extension 1.0.0 sections 5 to 7; docs/formats/jnrrd.md.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from anychunk.codecs import crc32
from anychunk.codecs.window import front as window_front
from anychunk.errors import FormatError, LimitError
from anychunk.formats import _raw
from anychunk.formats.jnrrd.codecs import compressor, fill_json
from anychunk.formats.jnrrd.files import (
    References,
    dimension_counts,
    listed_urls,
    pattern_objects,
    pattern_urls,
    url_table,
)
from anychunk.formats.jnrrd.layout import Layout, tile_numbers
from anychunk.formats.jnrrd.pattern import Pattern, check_tells_apart, parse_pattern
from anychunk.formats.jnrrd.tables import checksum
from anychunk.formats.jnrrd.tiled import Tiled
from anychunk.formats.jnrrd.tiling import Level, Table
from anychunk.io import Source
from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, ByteRanges, Computed, Json, Objects

MOST_NAMED = 1 << 20
"""How many tiles are named one by one, where a pattern of chunk coordinates cannot say it."""
MOST_FRONTS = 1 << 16


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
    table = cast("Table", tiling.offset_table)
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
        _raw.bytes_codec(volume.dtype.itemsize, volume.endian),
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
        codecs = (_raw.window_codec(codecs),)
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
