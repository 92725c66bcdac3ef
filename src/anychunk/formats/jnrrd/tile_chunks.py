"""Tiles as chunks of the Zarr view: one array per level.

Spec: JNRRD Tiling Extension 1.0.0 sections 5 to 7; docs/formats/jnrrd.md.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs import streams
from anychunk.codecs.window import front as window_front
from anychunk.errors import FormatError, LimitError, UnsupportedError
from anychunk.formats import _raw
from anychunk.formats.jnrrd.codecs import bytes_codec, compressor, fill_json
from anychunk.formats.jnrrd.external_files import References
from anychunk.formats.jnrrd.external_tiles import (
    listed_urls,
    pattern_objects,
    pattern_urls,
    url_table,
)
from anychunk.formats.jnrrd.tile_layout import Layout, dimension_counts, tile_numbers
from anychunk.formats.jnrrd.tile_pattern import Pattern, check_unique_names
from anychunk.formats.jnrrd.tiled_volume import TiledVolume, checksum
from anychunk.formats.jnrrd.tiling_fields import Level
from anychunk.io.source import Source
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.images import VARIABLE
from anychunk.model.index import ArrayIndex, ByteRanges, Computed, Json, Objects, Uint64

MOST_FRONTS = 1 << 16
"""Maximum number of distinct windows per level: `front_ids` are 16-bit numbers."""


def array_indexes(
    tiled: TiledVolume, source: Source, references: References
) -> dict[str, ArrayIndex]:
    """Return the arrays of a tiled volume, by the name of their level.

    Parameters:
        tiled: The volume.
        source: The file of the header, and of internal tiles.
        references: Resolves the names of external tiles.
    """
    tiling, volume = tiled.tiling, tiled.volume
    chunk_tables = external_tables(tiled, references)
    by_level = {layout.level.number: layout for layout in tiled.layouts}
    found = {}
    for level in tiled.levels:
        layout = by_level.get(level.number)
        if layout is None:
            found[str(level.number)] = virtual_array(tiled, level)
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
            dimension_names=(None,) * (len(level.sizes) + len(volume.trailing)),
        )
    return found


def with_trailing(chunks: ByteRanges | Objects, trailing: int) -> ByteRanges | Objects:
    """Append the grid axis for the bytes of a `block` sample, which are never split."""
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


def byte_ranges(tiled: TiledVolume, layout: Layout, source: Source) -> ByteRanges:
    """Return the chunk table of a level whose tiles are in the file of the header."""
    tiling = tiled.tiling
    table = cast("Uint64", tiling.offset_table)
    numbers = tile_numbers(layout, tiling.dimensions) + tiled.before(layout)
    offsets = table[numbers]
    if tiling.compression == "raw":
        lengths = tiled.tile_bytes()[numbers]
        if tiling.sparse and tiling.size_table is not None:
            lengths = np.where(tiling.size_table[numbers] > 0, lengths, np.uint64(0))
    elif tiling.size_table is not None:
        lengths = tiling.size_table[numbers]
    else:
        # the length is not known: take all up to the next tile or the end of the file, and leave
        # it to the decoder to stop at the end of the stream (`leading` of `anychunk.stream`)
        starts = np.append(np.unique(table), np.uint64(source.size()))
        lengths = starts[np.searchsorted(starts, offsets, side="right")] - offsets
    return ByteRanges(offsets=offsets, lengths=lengths, urls=(tiled.url,))


def external_tables(tiled: TiledVolume, references: References) -> dict[int, ByteRanges | Objects]:
    """Return the chunk tables of all stored levels, by number, if tiles are separate files."""
    tiling, pattern = tiled.tiling, tiled.pattern
    if tiling.storage == "internal":
        return {}
    if pattern is not None:
        counts = [(x.level.number, dimension_counts(x, tiling.dimensions)) for x in tiled.layouts]
        check_unique_names(pattern, counts)
    if tiling.files is None:
        named = cast("Pattern", pattern)
        return {x.level.number: _named(named, x, tiled, references) for x in tiled.layouts}
    others = None
    if pattern is not None:
        check_named(pattern, tiled)
        others = {
            x.level.number: pattern_urls(pattern, x, tiling, references, tiled.before(x))
            for x in tiled.layouts
        }
    urls = listed_urls(
        tiling.files,
        tiled.layouts,
        tiling.dimensions,
        references,
        others=others,
        is_sparse=tiling.sparse,
    )
    return {
        x.level.number: url_table(urls[x.level.number], x, tiling.dimensions) for x in tiled.layouts
    }


def check_named(pattern: Pattern, tiled: TiledVolume) -> None:
    """Raise `LimitError` if a pattern would have to be expanded to too many names."""
    most = limits.get().named_chunks
    if tiled.tiles > most:
        raise LimitError(
            f"{tiled.url}: tile:pattern {pattern.text!r} requires a list of {tiled.tiles} names, "
            f"expected at most {most}; a pattern of tile indices alone requires no list; "
            f"{limits.how_to_raise('named_chunks')}"
        )


def _named(
    pattern: Pattern, layout: Layout, tiled: TiledVolume, references: References
) -> ByteRanges | Objects:
    """Return the chunk table of a level whose tiles are named by a pattern."""
    objects = pattern_objects(pattern, layout, tiled.tiling, references)
    if objects is not None:
        return objects
    check_named(pattern, tiled)
    urls = pattern_urls(pattern, layout, tiled.tiling, references, tiled.before(layout))
    return url_table(urls, layout, tiled.tiling.dimensions)


def fronts_and_codecs(
    tiled: TiledVolume, layout: Layout
) -> tuple[dict[str, Any], tuple[Json, ...]]:
    """Return the front fields of a level's chunk table, and the codecs that read the fronts.

    A front is inline data that the index puts before the stored bytes of a chunk. The outermost
    codec removes its part first: the window header, then the checksum.
    """
    tiling, volume = tiled.tiling, tiled.volume
    windows, ids = window_fronts(layout, volume.trailing, tiled.url)
    is_external = tiling.storage == "external"
    # inside of a window, a codec does not learn that its chunk is a range of a larger file, where
    # bytes may follow the stream
    is_exact = is_external or (tiling.size_table is not None and not windows)
    codecs: tuple[Json, ...] = (
        bytes_codec(volume),
        *compressor(tiling.compression, is_exact=is_exact or tiling.compression == "raw"),
    )
    before = tiled.before(layout)
    entries = (tiling.metadata or ())[before : before + layout.tiles]
    checksums = [checksum(entry) for entry in entries]
    has_checksums = any(value is not None for value in checksums)
    if has_checksums:
        checked = {"compression": "raw", "checksum": True}
        codecs = (*codecs, {"name": "anychunk.stream", "configuration": checked})
    if windows:
        codecs = (_raw.window_codec(codecs),)
    if has_checksums:
        numbers = tile_numbers(layout, tiling.dimensions)
        of_window = np.zeros(numbers.shape, np.int64) if ids is None else ids
        fronts = tuple(
            (windows[int(w)] if windows else b"") + streams.front(checksums[int(n)])
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
    """Return the different windows of a level as fronts, and the front of every chunk.

    An axis has few distinct windows: only its first and last tiles differ from the others. The
    windows of chunks are the combinations of those, numbered like the cells of a grid, so no loop
    over chunks is needed.
    """
    if layout.axes is None:
        return (), None
    kinds, ids, count = [], np.zeros((), np.int64), 1
    for axis in reversed(layout.axes):
        columns = np.stack([axis.stored, axis.start, axis.length], axis=1)
        unique, inverse = np.unique(columns, axis=0, return_inverse=True)
        kinds.append(unique.tolist())
        count *= len(unique)
        ids = np.add.outer(ids * len(unique), inverse.reshape(-1))
    if count > MOST_FRONTS:
        raise UnsupportedError(
            f"{url}: tiles have {count} different windows, expected at most {MOST_FRONTS}"
        )
    fronts = []
    for picked in itertools.product(*kinds):
        stored, start, length = zip(*picked, strict=True)
        zeros = (0,) * len(trailing)
        fronts.append(window_front((*stored, *trailing), (*start, *zeros), (*length, *trailing)))
    return tuple(fronts), ids.astype(np.uint16)


def virtual_array(tiled: TiledVolume, level: Level) -> ArrayIndex:
    """Return the array of a virtual level: the store computes it from a finer stored one."""
    source = virtual_source(tiled.levels, level)
    ratio = [a // b for a, b in zip(level.scale, source.scale, strict=True)]
    volume = tiled.volume
    chunk = tuple(min(t, n) for t, n in zip(level.tile, level.sizes, strict=True))
    if volume.type == "block":
        raise FormatError(
            f"{tiled.url}: tile:levels_virtual: samples of type block cannot be downsampled"
        )
    return ArrayIndex(
        shape=level.sizes[::-1],
        chunk_shape=chunk[::-1],
        data_type=volume.data_type,
        codecs=(_raw.bytes_codec(volume.itemsize, "little"),),
        chunks=Computed(
            source=f"0/{source.number}/{VARIABLE}",
            method="downsample",
            configuration={"ratio": ratio[::-1], "method": tiled.tiling.downsample_method},
            grid=grid_shape(level.sizes, chunk)[::-1],
        ),
        fill_value=fill_json(0, volume.dtype),
        dimension_names=(None,) * len(level.sizes),
    )


def virtual_source(levels: Sequence[Level], level: Level) -> Level:
    """Return the nearest finer stored level with an integer ratio; level 0 always qualifies."""
    finer = [
        x
        for x in levels[: level.number]
        if x.is_stored and all(a % b == 0 for a, b in zip(level.scale, x.scale, strict=True))
    ]
    return finer[-1]
