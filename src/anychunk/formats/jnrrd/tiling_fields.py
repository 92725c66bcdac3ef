"""The `tile:` fields of a header, checked, as plain data. Axes are in the order of the file.

Spec: JNRRD Tiling Extension 1.0.0 sections 4 to 7 and 12; docs/formats/jnrrd.md.

A check yields findings instead of raising, so that `validate` can list all of them; `parse` raises
the first error. Checks run from general to specific, and each may rely on those before it.
"""

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.errors import FormatError, LimitError
from anychunk.formats.jnrrd.header import Header
from anychunk.formats.jnrrd.volume import Volume
from anychunk.model.grid import Numbers, Shape, chunk_coords, chunk_number, grid_shape
from anychunk.model.index import Json, Uint64

type Severity = Literal["error", "warning"]

URI = "https://jnrrd.org/extensions/tile/v1.0.0"
SPARSE_URI = "https://jnrrd.org/extensions/tile/v1.1.0"
"""Declared by files that leave out tiles or pad with NaN (null), which 1.0.0 does not have."""
KNOWN_URI = re.compile(r"https?://jnrrd\.org/extensions/tile/v1\.\d+\.\d+/?")
ANY_URI = re.compile(r"https?://jnrrd\.org/extensions/tile(/.*)?")
TABLES = ("offset_table", "size_table", "compression_levels")
PLAIN = (
    *("storage", "format", "pattern", "base_dir", "edge_handling", "padding_value"),
    *("compression", "downsample_method", "sparse", "zarr_metadata"),
)
LONG = (*TABLES, "files", "metadata")
"""Fields with one entry per tile."""
SCHEMA_ENTRIES = 16
"""How many entries of such a field are checked against the JSON schema."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One defect of a file."""

    severity: Severity
    """`error`: samples cannot be trusted; `warning`: they are not affected."""
    field: str
    """The field of the header that is wrong, such as `tile:sizes`."""
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def error(field: str, message: str) -> Finding:
    """Return an error about a field of the extension."""
    return Finding(severity="error", field=f"tile:{field}", message=message)


def warning(field: str, message: str) -> Finding:
    """Return a warning about a field of the extension."""
    return Finding(severity="warning", field=f"tile:{field}", message=message)


def first_error(findings: Sequence[Finding]) -> Finding | None:
    """Return the first finding that is an error, or None."""
    return next((f for f in findings if f.severity == "error"), None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Tiling:
    """Every field of the extension. Sizes and scales are per entry of `dimensions`."""

    dimensions: Shape
    """The axes that are tiled. Their order is the order of the tile grid, first fastest; it does
    not change the order of samples inside a tile."""
    sizes: Shape
    storage: Literal["internal", "external"]
    format: Literal["contiguous", "chunked"] | None = None
    offset_table: Uint64 | None = None
    size_table: Uint64 | None = None
    pattern: str | None = None
    files: tuple[Mapping[str, Json], ...] | None = None
    base_dir: str | None = None
    edge_handling: Literal["pad", "variable"] = "pad"
    padding_value: float | None = 0
    overlap: Shape = ()
    compression: Literal["raw", "gzip", "bzip2", "zstd", "lz4"] = "raw"
    compression_levels: Uint64 | None = None
    levels: int = 1
    level_scales: tuple[Shape, ...] = ()
    level_offsets: tuple[int, ...] | None = None
    downsample_method: str = "average"
    level_tile_sizes: tuple[Shape, ...] = ()
    levels_stored: Shape = (0,)
    levels_virtual: Shape = ()
    level_quality: tuple[Mapping[str, Json], ...] | None = None
    metadata: tuple[Mapping[str, Json], ...] | None = None
    sparse: bool = False
    """Whether tiles may be left out that hold nothing but the padding value."""
    zarr_metadata: str | None = None
    """The pattern of the `.zarray` documents of tiles that are the chunks of Zarr arrays."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """One resolution of the volume, with one entry per axis of the file."""

    number: int
    sizes: Shape
    """Voxels along each axis."""
    tile: Shape
    """Voxels of a tile along each axis; every tile spans an axis that is not tiled."""
    scale: Shape
    """How much coarser the level is than level 0, along each axis."""
    is_stored: bool
    """Whether its tiles are stored; otherwise it is computed when it is read."""


def levels_of(tiling: Tiling, volume: Volume) -> tuple[Level, ...]:
    """Return every level, stored or virtual."""
    found = []
    for number in range(tiling.levels):
        scale, tile, sizes = [1] * len(volume.sizes), list(volume.sizes), list(volume.sizes)
        for position, axis in enumerate(tiling.dimensions):
            scale[axis] = tiling.level_scales[number][position]
            # section 7.4.3 divides without rounding up: trailing voxels that fill no window are
            # dropped, but an axis shorter than its scale keeps one voxel
            sizes[axis] = max(1, volume.sizes[axis] // scale[axis])
            tile[axis] = tiling.level_tile_sizes[number][position]
        found.append(
            Level(
                number=number,
                sizes=tuple(sizes),
                tile=tuple(tile),
                scale=tuple(scale),
                is_stored=number in tiling.levels_stored,
            )
        )
    return tuple(found)


def tiling_prefix(header: Header) -> str | None:
    """Return the prefix under which the tiling extension is declared, or None if not tiled.

    JNRRD identifies an extension by its URI; `tile` is only the customary prefix.
    """
    declared = header.extensions
    ours = [prefix for prefix, uri in declared.items() if KNOWN_URI.fullmatch(uri)]
    other = [uri for uri in declared.values() if ANY_URI.fullmatch(uri) and not ours]
    if other:
        raise FormatError(
            f"{header.url}: tiling extension {other[0]} is not supported; supported: {URI}"
        )
    if len(ours) > 1:
        raise FormatError(
            f"{header.url}: the tiling extension is declared under several prefixes, "
            f"{' '.join(ours)}; expected one"
        )
    if not ours:
        if "tile" not in declared and "tile:enabled" in header.fields:
            # opened as a plain volume, the tiles would be shown in the wrong places
            raise FormatError(
                f"{header.url}: tile:enabled is given, but no extension is declared as 'tile'; "
                f'add {{"extensions": {{"tile": "{URI}"}}}}'
            )
        return None
    fields = header.of_prefix(ours[0])
    return ours[0] if fields and fields.get("enabled") is not False else None


@cache
def schema() -> dict[str, Json]:
    """Return the JSON schema of section 12, with its errors corrected (docs/formats/jnrrd.md)."""
    text = resources.files(__package__).joinpath("schema.json").read_text("utf-8")
    return cast("dict[str, Json]", json.loads(text))


def read_tiling(
    fields: Mapping[str, Json], volume: Volume
) -> tuple[Tiling | None, tuple[Finding, ...]]:
    """Check the fields of the extension.

    Parameters:
        fields: The fields of the extension, without their prefix.
        volume: What the other fields say about the samples.

    Returns:
        The fields as data, None if a finding is an error; and all findings.
    """
    completed = complete(fields)
    findings: list[Finding] = []
    for check in (check_required, check_schema, check_shapes, check_levels):
        findings += check(completed, volume)
        if any(f.severity == "error" for f in findings):
            return None, tuple(findings)
    tables: dict[str, Uint64 | None] = {}
    for name in TABLES:
        table = read_table(completed.get(name), name)
        if isinstance(table, Finding):
            return None, (*findings, table)
        tables[name] = table
    return make_tiling(completed, tables), tuple(findings)


def complete(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Add the fields that a writer omitted but that follow from others."""
    made = dict(fields)
    if isinstance(made.get("data_pattern"), str):
        # section 9.4.2: the pattern of the tiles, while tile:pattern names the documents of Zarr
        if made.get("zarr_compatible") is True and isinstance(made.get("pattern"), str):
            made["zarr_metadata"] = made["pattern"]
        made["pattern"] = made["data_pattern"]
    scales = made.get("level_scales")
    if "levels" not in made and isinstance(scales, list):
        made["levels"] = len(scales)
    if made.get("levels") == 1 and "level_scales" not in made:
        made["level_scales"] = [1]
    levels = made.get("levels", 1)
    if isinstance(levels, int) and isinstance(scales, list) and len(scales) == levels:
        for given, other in (
            ("levels_stored", "levels_virtual"),
            ("levels_virtual", "levels_stored"),
        ):
            if isinstance(made.get(given), list) and other not in made:
                made[other] = [n for n in range(levels) if n not in made[given]]
    return made


def check_required(fields: Mapping[str, Json], volume: Volume) -> Iterator[Finding]:
    for name in ("enabled", "dimensions", "sizes", "storage"):
        if name not in fields:
            yield error(name, "is required and missing")
    match fields.get("storage"):
        case "internal" if "offset_table" not in fields:
            yield error("offset_table", "is required for internal tiles and missing")
        case "internal" if fields.get("sparse") is True and not fields.get("size_table", [0]):
            yield error("size_table", "is required for sparse tiles and missing")
        case "internal" if volume.encoding != "raw":
            # tile:compression describes the tiles; `encoding` must not contradict it
            yield error(
                "storage", f"internal tiles with encoding {volume.encoding!r}, expected 'raw'"
            )
        case "external" if "pattern" not in fields and "files" not in fields:
            yield error("pattern", "external tiles need a pattern or files; neither is given")


def check_schema(fields: Mapping[str, Json], volume: Volume) -> Iterator[Finding]:
    """Check the fields against the JSON schema.

    Only the first entries of long tables, because jsonschema is slow; `read_table` checks the rest.

    """
    import jsonschema  # slow to import

    short = {
        name: value[:SCHEMA_ENTRIES] if name in LONG and isinstance(value, list) else value
        for name, value in fields.items()
    }
    for found in jsonschema.Draft7Validator(schema()).iter_errors(short):
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in found.absolute_path)
        message = found.message if len(found.message) < 200 else f"{found.message[:200]}…"
        yield error(place.lstrip(".") or "fields", message)


def check_shapes(fields: Mapping[str, Json], volume: Volume) -> Iterator[Finding]:
    """Check the fields with one entry per tiled dimension, and the type of entries per tile."""
    dimensions = fields["dimensions"]
    ndim, count = len(volume.sizes), len(dimensions)
    if len(set(dimensions)) != count or max(dimensions) >= ndim:
        yield error("dimensions", f"{dimensions}, expected distinct axes below {ndim}")
    for name in ("sizes", "overlap"):
        if name in fields and len(fields[name]) != count:
            yield error(
                name, f"has {len(fields[name])} entries, expected {count}, one per dimension"
            )
    is_open = fields.get("sparse") is True or ("files" in fields and "pattern" in fields)
    if is_open and any(fields.get("overlap", ())):
        # that it is a halo is checked by the number of tiles, too
        yield error("overlap", "with sparse tiles, or with both pattern and files, is not allowed")
    for name in ("files", "metadata"):
        if not all(isinstance(entry, dict) for entry in fields.get(name, ())):
            yield error(name, "has an entry that is not a JSON object")


def check_levels(fields: Mapping[str, Json], volume: Volume) -> Iterator[Finding]:
    """Check the fields with one entry per level."""
    levels, count = fields.get("levels", 1), len(fields["dimensions"])
    scales = fields.get("level_scales", [1])
    if len(scales) != levels:
        yield error("level_scales", f"has {len(scales)} entries, expected {levels}, one per level")
        return
    for number, scale in enumerate(scales):
        if isinstance(scale, list) and len(scale) != count:
            yield error(
                "level_scales", f"level {number} has {len(scale)} scales for {count} dimensions"
            )
            return
    spread = [spread_scale(scale, count) for scale in scales]
    if spread[0] != (1,) * count:
        yield error("level_scales", f"level 0 has scale {scales[0]}, expected 1 (full resolution)")
    for number, (finer, coarser) in enumerate(itertools.pairwise(spread), 1):
        if any(c < f for f, c in zip(finer, coarser, strict=True)):
            yield warning("level_scales", f"level {number} is finer than the level before it")
    yield from check_tile_sizes(fields, levels, count)
    yield from check_stored(fields, levels)
    for name in ("level_offsets", "level_quality"):
        if name in fields and len(fields[name]) != levels:
            yield warning(name, f"has {len(fields[name])} entries for {levels} levels")


def check_tile_sizes(fields: Mapping[str, Json], levels: int, count: int) -> Iterator[Finding]:
    tiles = fields.get("level_tile_sizes")
    if tiles is None:
        return
    if len(tiles) != levels or any(len(tile) != count for tile in tiles):
        yield error("level_tile_sizes", f"{str(tiles)[:80]}, expected {levels} lists of {count}")
    elif list(tiles[0]) != list(fields["sizes"]):
        yield error(
            "level_tile_sizes", f"level 0 has {tiles[0]}, but tile:sizes is {fields['sizes']}"
        )


def check_stored(fields: Mapping[str, Json], levels: int) -> Iterator[Finding]:
    stored = fields.get("levels_stored", list(range(levels)))
    virtual = fields.get("levels_virtual", [])
    if sorted(stored + virtual) != list(range(levels)):
        yield error(
            "levels_stored",
            f"{stored} and levels_virtual {virtual}: expected each of the {levels} levels once",
        )
    elif 0 in virtual:
        yield error("levels_virtual", "lists level 0, which must be stored")


def spread_scale(scale: int | list[int], count: int) -> Shape:
    """Return one scale per dimension; a single number applies to all of them."""
    return tuple(scale) if isinstance(scale, list) else (scale,) * count


def read_table(values: Json, name: str) -> Uint64 | Finding | None:
    """Return a table as an array, or an error if an entry is not an unsigned 64-bit integer."""
    if values is None:
        return None
    if set(map(type, values)) - {int}:
        bad = next(i for i, v in enumerate(values) if type(v) is not int)
        return error(name, f"entry {bad} is {str(values[bad])[:40]}, expected an integer")
    try:
        return np.array(values, np.uint64)
    except OverflowError:
        bad = next(i for i, v in enumerate(values) if not 0 <= v < 1 << 64)
        return error(name, f"entry {bad} is {str(values[bad])[:40]}, expected 0 to 2**64 - 1")


def make_tiling(fields: Mapping[str, Json], tables: Mapping[str, Uint64 | None]) -> Tiling:
    """Return the checked fields as data."""
    levels, count = fields.get("levels", 1), len(fields["dimensions"])
    scales = [spread_scale(s, count) for s in fields.get("level_scales", [1])]
    tiles = fields.get("level_tile_sizes") or [fields["sizes"]] * levels
    given: dict[str, Any] = {name: fields[name] for name in PLAIN if name in fields}
    given |= tables
    for name in ("files", "metadata", "level_quality", "level_offsets"):
        if name in fields:
            given[name] = tuple(fields[name])
    return Tiling(
        dimensions=tuple(fields["dimensions"]),
        sizes=tuple(fields["sizes"]),
        overlap=tuple(fields.get("overlap") or (0,) * count),
        levels=levels,
        level_scales=tuple(scales),
        level_tile_sizes=tuple(tuple(tile) for tile in tiles),
        levels_stored=tuple(sorted(fields.get("levels_stored", range(levels)))),
        levels_virtual=tuple(sorted(fields.get("levels_virtual", ()))),
        **given,
    )


# The geometry of the tiles of a level: how many, how large, and which voxels each contributes.
#
# Spec: JNRRD Tiling Extension 1.0.0 sections 5.1, 7.1, 7.2 and 7.4.3; docs/formats/jnrrd.md.
#
# Order. Dimension 0 is the fastest, in the tile grid as inside a tile (section 5.1). The grid
# follows the order of `tile:dimensions`: its first entry is the fastest. `model.grid` numbers
# chunks in C order, slowest first, hence the reversals below.
#
# Overlap. Section 7.2 does not say what `tile:overlap` does to `tile:sizes`. It is a halo: tiles
# lie `sizes` apart, and each is stored with `overlap` voxels more on both sides. A chunk of the
# Zarr view is the core of a tile, so that every voxel comes from exactly one tile.
# `tiled_volume.check_tables` refuses files whose tiles have another number or size.


def tile_number(indices: Sequence[int], grid: Shape) -> int:
    """Return the number of a tile in the table of its level; the first dimension is fastest."""
    return chunk_number(indices[::-1], grid[::-1])


def tile_indices(number: int, grid: Shape) -> list[int]:
    """Return the indices of a tile from its number in the table of its level."""
    return list(chunk_coords(number, grid[::-1])[::-1])


def all_indices(grid: Shape) -> Iterator[Shape]:
    """Yield the indices of all tiles in table order."""
    for coords in itertools.product(*(range(n) for n in grid[::-1])):
        yield coords[::-1]


@dataclass(frozen=True, eq=False)
class Axis:
    """The tiles of one axis as they are stored, and their cores."""

    chunk: int
    """The number of voxels of a core, or of a chunk."""
    stored: Numbers
    """For each tile, how many voxels are stored."""
    start: Numbers
    """For each tile, where its core begins in what is stored."""
    length: Numbers
    """For each tile, how many voxels its core has."""


def axis_layout(size: int, tile: int, overlap: int, *, is_padded: bool) -> Axis:
    """Return the layout of one axis.

    Parameters:
        size: The number of voxels of the volume.
        tile: `tile:sizes`.
        overlap: `tile:overlap`.
        is_padded: Whether tiles at the edge are stored in full (section 7.1, `pad`); otherwise they
            are cropped to the volume (`variable`), their halo included.
    """
    if not is_padded:  # sums of what a header says may be over 64 bits
        tile, overlap = min(tile, size), min(overlap, size)
    core = np.arange(0, size, tile, dtype=np.int64)
    low, high = core - overlap, core + tile + overlap
    if not is_padded:
        low, high = np.maximum(low, 0), np.minimum(high, size)
    # a core may include padding beyond the volume, which zarr crops: windows of the same shape in
    # every tile need fewer different fronts. A single cropped tile may be far smaller than
    # `tile:sizes`, and so is its chunk
    return Axis(
        chunk=tile,
        stored=high - low,
        start=core - low,
        length=np.minimum(core + tile, high) - core,
    )


@dataclass(frozen=True, eq=False)
class Layout:
    """The tiles of one level, axes in the order of the file."""

    level: Level
    chunk: Shape
    """The shape of a chunk, which is the core of a tile."""
    counts: Shape
    """Tiles along each axis."""
    stored: Shape
    """The shape of the largest stored tile."""
    axes: tuple[Axis, ...] | None
    """None if every tile is stored whole and is one chunk."""

    @property
    def tiles(self) -> int:
        """The number of tiles."""
        return math.prod(self.counts)


def spread(values: Shape, dimensions: Shape, ndim: int, other: int) -> Shape:
    """Return one value per axis, from one per tiled dimension; other axes get `other`."""
    found = [other] * ndim
    for axis, value in zip(dimensions, values, strict=True):
        found[axis] = value
    return tuple(found)


def dimension_counts(layout: Layout, dimensions: Shape) -> Shape:
    """Return the tile grid of a level: its tiles along each of `tile:dimensions`."""
    return tuple(layout.counts[axis] for axis in dimensions)


def lay_out(tiling: Tiling, level: Level) -> Layout:
    """Return the layout of a level."""
    counts = grid_shape(level.sizes, level.tile)
    overlap = spread(tiling.overlap, tiling.dimensions, len(level.sizes), 0)
    is_padded = tiling.edge_handling == "pad"
    is_even = all(n % t == 0 for n, t in zip(level.sizes, level.tile, strict=True))
    # the usual case: tiles are chunks, without a front and without the window codec
    if not any(overlap) and (is_padded or is_even):
        return Layout(level, level.tile, counts, level.tile, None)
    if math.prod(counts) > limits.get().varying_chunks:
        raise LimitError(
            f"level {level.number}: {math.prod(counts)} tiles of varying shape, expected at most "
            f"{limits.get().varying_chunks}; {limits.how_to_raise('varying_chunks')}"
        )
    axes = tuple(
        axis_layout(n, t, o, is_padded=is_padded)
        for n, t, o in zip(level.sizes, level.tile, overlap, strict=True)
    )
    stored = tuple(int(axis.stored.max()) for axis in axes)
    return Layout(level, tuple(axis.chunk for axis in axes), counts, stored, axes)


def stored_voxels(layout: Layout, dimensions: Shape) -> npt.NDArray[np.uint64] | int:
    """Return how many voxels each tile stores, in table order; a single number if all are equal."""
    if layout.axes is None:
        return math.prod(layout.stored)
    lengths = [axis.stored.astype(np.uint64) for axis in layout.axes]
    if all((part == part[0]).all() for part in lengths):
        return math.prod(layout.stored)
    whole = math.prod(n for a, n in enumerate(layout.stored) if a not in dimensions)
    # the first of `dimensions` is the fastest, so it comes last in C order
    voxels = np.array(whole, np.uint64)
    for axis in reversed(dimensions):
        voxels = np.multiply.outer(voxels, lengths[axis])
    return voxels.reshape(-1)


def tile_numbers(layout: Layout, dimensions: Shape) -> Numbers:
    """Return, for every chunk, the number of its tile in the level's table, in numpy axis order."""
    strides = [0] * len(layout.counts)
    step = 1
    for axis in dimensions:
        strides[axis] = step
        step *= layout.counts[axis]
    numbers = np.zeros((), np.int64)
    for count, stride in reversed(list(zip(layout.counts, strides, strict=True))):
        numbers = np.add.outer(numbers, np.arange(count, dtype=np.int64) * stride)
    return numbers
