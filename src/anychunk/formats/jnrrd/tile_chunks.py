"""Tiles as chunks of the Zarr view: one array per level.

Spec: JNRRD Tiling Extension 1.0.0 sections 5 to 7; docs/formats/jnrrd.md.
"""

import itertools
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs import streams
from anychunk.codecs.window import front as window_front
from anychunk.errors import FormatError, LimitError, UnsupportedError
from anychunk.formats import _raw
from anychunk.formats.jnrrd.external_files import References
from anychunk.formats.jnrrd.tile_pattern import (
    NUMBER,
    Pattern,
    Place,
    check_unique_names,
    parse_pattern,
    pattern_names,
)
from anychunk.formats.jnrrd.tiled_volume import TiledVolume, checksum
from anychunk.formats.jnrrd.tiling_fields import (
    Finding,
    Layout,
    Level,
    Tiling,
    dimension_counts,
    error,
    tile_indices,
    tile_number,
    tile_numbers,
    warning,
)
from anychunk.formats.jnrrd.volume import Volume, bytes_codec, compressor, fill_json
from anychunk.io.opening import read_object
from anychunk.io.source import Source, is_remote
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.images import VARIABLE
from anychunk.model.index import WHOLE, ArrayIndex, ByteRanges, Computed, Json, Objects, Uint64

# `tile:zarr_compatible`: external tiles that are the chunks of Zarr v2 arrays.
#
# Spec: JNRRD Tiling Extension (the longer text) section 9.4.2: `tile:pattern` names the `.zarray`
# document of each level, `tile:data_pattern` the chunks. The text says no more; what a document
# states must agree with the header, and its fill value is that of absent chunks.


COMPRESSORS = {"gzip": "gzip", "bz2": "bzip2", "zstd": "zstd"}
"""The compressions of tiles, by the ids of Zarr v2."""


def with_zarr_fill(
    tiling: Tiling,
    levels: Sequence[Level],
    volume: Volume,
    *,
    source: Source,
    references: References,
    labels: Sequence[str | None],
    words: Mapping[str, str],
) -> tuple[Tiling, list[Finding]]:
    """Check the documents of Zarr arrays; return the tiling with their fill value.

    Without a document, a chunk that is missing is an error: nothing says what it would hold.
    """
    if tiling.zarr_metadata is None:
        return tiling, []
    pattern = parse_pattern(tiling.zarr_metadata, tiling.dimensions, labels, words)
    chunks = parse_pattern(cast("str", tiling.pattern), tiling.dimensions, labels, words)
    axes = [
        tiling.dimensions[part.position]
        for part in chunks.parts
        if isinstance(part, Place) and part.position >= 0
    ]
    fill: Json = None
    zeros = [0] * len(tiling.dimensions)
    for level in levels:
        if not level.is_stored:
            continue
        name = pattern.name(zeros, level=level.number, number=0, before=0)
        data = read_object(references.url(name), storage=source.storage, roots=references.roots)
        if data is None:
            return tiling, [warning("zarr_compatible", f"{name} is missing: not checked")]
        limits.check_header(len(data), where=name)
        document = read_document(data.tobytes(), name)
        found = list(problems(document, tiling, level, axes=axes, volume=volume, name=name))
        if found:
            return tiling, found
        if level.number and document.get("fill_value") != fill:
            other = f"{name} has {document.get('fill_value')!r:.40}, level 0 {fill!r:.40}"
            return tiling, [error("zarr_compatible", f"fill values differ: {other}")]
        fill = document.get("fill_value")
    if fill is None or isinstance(fill, bool) or not isinstance(fill, int | float):
        return tiling, []
    return replace(tiling, sparse=True, padding_value=fill), []


def read_document(data: bytes, name: str) -> dict[str, Json]:
    """Parse a `.zarray` document."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{name}: is not JSON ({e})") from e
    if not isinstance(found, dict):
        raise FormatError(f"{name}: expected a JSON object")
    return found


def problems(
    document: Mapping[str, Json],
    tiling: Tiling,
    level: Level,
    *,
    axes: Sequence[int],
    volume: Volume,
    name: str,
) -> Iterator[Finding]:
    """Yield what a document states otherwise than the header."""
    yield from shape_problems(document, level, axes, volume, name)
    compressor = document.get("compressor")
    expected = volume.dtype.newbyteorder("<" if volume.endian == "little" else ">")
    if not is_type(document.get("dtype"), expected):
        yield error("zarr_compatible", f"{name} has dtype {document.get('dtype')!r:.40}")
    if document.get("order", "C") != "C" or document.get("filters"):
        yield error("zarr_compatible", f"{name} has filters, or another order than C")
    identity = compressor.get("id") if isinstance(compressor, dict) else None
    stated = "raw" if compressor is None else COMPRESSORS.get(str(identity))
    if stated != tiling.compression:
        yield error(
            "compression", f"is {tiling.compression!r}, but {name} has the compressor {identity!r}"
        )
    if tiling.edge_handling != "pad":
        yield error("edge_handling", "is 'variable', but the chunks of Zarr are always whole")
    fill = document.get("fill_value")
    if fill is not None and tiling.padding_value not in (0, fill):
        yield error("padding_value", f"is {tiling.padding_value}, but {name} has {fill!r:.40}")


def shape_problems(
    document: Mapping[str, Json], level: Level, axes: Sequence[int], volume: Volume, name: str
) -> Iterator[Finding]:
    """Yield what is wrong with the axes of a Zarr array.

    The coordinates in the names of its chunks are in the order of its axes, slowest first, and so
    must be the axes of a tile, except those along which a tile is one voxel thick.
    """
    chunks, shape = document.get("chunks"), document.get("shape")
    order = [axis for axis in axes if level.tile[axis] > 1]
    if order != sorted(order, reverse=True):
        yield error(
            "data_pattern",
            f"names the axes in the order {list(axes)}, that of the chunks of Zarr; "
            "expected the slowest first, as in a tile",
        )
    if not is_shape(chunks) or not is_shape(shape):
        yield error(
            "zarr_compatible", f"{name} has chunks {str(chunks)[:40]}, shape {str(shape)[:40]}"
        )
    elif len(axes) != len(chunks):
        # axes that the pattern does not name: only the sizes can be compared
        if sorted(n for n in chunks if n != 1) != sorted(n for n in level.tile if n != 1):
            yield error("sizes", f"{name} has chunks {str(chunks)[:60]}, expected {level.tile}")
    else:
        tile = [level.tile[axis] for axis in axes]
        if chunks != tile:
            yield error("sizes", f"{name} has chunks {str(chunks)[:60]}, expected {tile}")
        # OME-Zarr often rounds the sizes of levels up
        least = [level.sizes[axis] for axis in axes]
        most = [-(-volume.sizes[axis] // level.scale[axis]) for axis in axes]
        if len(shape) != len(least) or any(
            n not in (low, high) for n, low, high in zip(shape, least, most, strict=True)
        ):
            yield error("zarr_compatible", f"{name} has shape {str(shape)[:60]}, expected {least}")


def is_shape(value: Json) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int for n in value)


def is_type(value: Json, expected: np.dtype[Any]) -> bool:
    """Return whether a data type of Zarr v2 is the expected one."""
    try:
        return isinstance(value, str) and np.dtype(value) == expected
    except TypeError:
        return False


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


# External tiles as chunk tables: one file per tile, named by a pattern or by a list.
#
# Spec: JNRRD Tiling Extension 1.0.0 section 6; docs/formats/jnrrd.md.


def pattern_objects(
    pattern: Pattern, layout: Layout, tiling: Tiling, references: References
) -> Objects | None:
    """Return the tiles of a level as a pattern of chunk coordinates, or None if that is impossible.

    A pattern takes no memory per tile. It is impossible where a name depends on the number of a
    tile, where names leave the folder, where a brace of a name would be taken for a coordinate, or
    where a digit may complete a `%2e`.
    """
    texts = [references.base_dir, *(part for part in pattern.parts if isinstance(part, str))]
    letters = "{}%" if is_remote(references.folder) else "{}"
    is_ambiguous = any(letter in text for text in texts for letter in letters)
    if is_ambiguous or NUMBER in pattern.positions:
        return None
    ndim = len(layout.counts)
    parts = []
    for part in pattern.parts:
        if isinstance(part, str):
            parts.append(part)
        elif part.position < 0:
            parts.append(str(layout.level.number).zfill(part.width))
        else:
            axis = ndim - 1 - tiling.dimensions[part.position]
            parts.append(f"{{{axis}:0{part.width}}}" if part.width else f"{{{axis}}}")
    text = posixpath.normpath(posixpath.join(references.base_dir, "".join(parts)))
    if is_remote(text) or text.startswith(("/", "..")):
        return None
    # digits cannot leave a folder: if one tile is inside, all are
    references.url(pattern.name([0] * ndim, level=layout.level.number, number=0, before=0))
    return Objects(
        base=references.folder,
        pattern=text,
        grid=layout.counts[::-1],
        is_sparse=tiling.sparse,
        roots=references.roots,
    )


def pattern_urls(
    pattern: Pattern, layout: Layout, tiling: Tiling, references: References, before: int
) -> list[str]:
    """Return the url of every tile of a level, in table order."""
    grid = dimension_counts(layout, tiling.dimensions)
    names = pattern_names(pattern, layout.level.number, grid, before=before)
    return [references.url(name) for name in names]


def listed_urls(
    files: Sequence[Mapping[str, Json]],
    layouts: Sequence[Layout],
    dimensions: Shape,
    references: References,
    *,
    others: Mapping[int, list[str]] | None = None,
    is_sparse: bool = False,
) -> dict[int, list[str]]:
    """Return the urls of every stored level in table order, from `tile:files`; "" if absent.

    Parameters:
        files: The entries of the list.
        layouts: The layouts of the stored levels.
        dimensions: `tile:dimensions`.
        references: Resolves names.
        others: The urls of the tiles that are not listed, where there is a pattern, too.
        is_sparse: Whether tiles that are not listed are absent.

    Raises:
        FormatError: A tile or a file is listed twice, or a tile is missing.
    """
    names: dict[int, list[str | None]] = {
        layout.level.number: [None] * layout.tiles for layout in layouts
    }
    grids = {x.level.number: dimension_counts(x, dimensions) for x in layouts}
    for entry, given in enumerate(files):
        level, number = _place(given, entry, grids)
        if names[level][number] is not None:
            raise FormatError(
                f"tile:files: entry {entry} repeats tile {given['indices']} of level {level}"
            )
        names[level][number] = given["file"]
    found: dict[int, list[str]] = {}
    for level, listed in names.items():
        if others is not None:
            found[level] = [
                other if name is None else references.url(name)
                for name, other in zip(listed, others[level], strict=True)
            ]
            continue
        if None in listed and not is_sparse:
            missing = tile_indices(listed.index(None), grids[level])
            raise FormatError(f"tile:files: no file for tile {missing} of level {level}")
        found[level] = ["" if name is None else references.url(name) for name in listed]
    _check_once(found.values())
    return found


def _place(given: Mapping[str, Json], entry: int, grids: Mapping[int, Shape]) -> tuple[int, int]:
    """Return the level of an entry of `tile:files`, and its tile number in the level's table."""
    level: Json = given.get("level", 0)
    indices: Json = given.get("indices")
    name = given.get("file")
    if type(level) is not int or level not in grids:
        raise FormatError(f"tile:files: entry {entry} has level {level!r:.40}, which is not stored")
    grid = grids[level]
    is_list = isinstance(indices, list) and len(indices) == len(grid)
    if not is_list or not all(
        type(i) is int and 0 <= i < n for i, n in zip(indices, grid, strict=True)
    ):
        raise FormatError(
            f"tile:files: entry {entry} has indices {str(indices)[:60]}, expected {len(grid)} "
            f"integers below {list(grid)}"
        )
    if not isinstance(name, str):
        raise FormatError(f"tile:files: entry {entry} has file {str(name)[:60]}, expected a string")
    return level, tile_number(indices, grid)


def _check_once(levels: Iterable[list[str]]) -> None:
    seen: set[str] = set()
    for urls in levels:
        for url in urls:
            if url and url in seen:
                raise FormatError(f"tile:files: the file {url} is listed for two tiles")
            seen.add(url)


def url_table(urls: list[str], layout: Layout, dimensions: Shape) -> ByteRanges:
    """Return the chunk table of a level whose tiles are whole files, listed in table order."""
    numbers = tile_numbers(layout, dimensions)
    is_there = np.array([bool(url) for url in urls])
    return ByteRanges(
        offsets=np.zeros(numbers.shape, np.uint64),
        lengths=np.where(is_there[numbers], np.uint64(WHOLE), np.uint64(0)),
        urls=tuple(urls),
        url_ids=numbers.astype(np.uint32),
    )
