"""The plan of a file to write: the caller's options, checked, as fields and layouts.

Options are in numpy's axis order, slowest first; fields in the file's, fastest first. The plan
holds everything that is known before the first sample is read.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal, cast

import numpy as np

from anychunk.codecs.streams import ENCODE
from anychunk.errors import CodecConfigError, UnsupportedError
from anychunk.formats.jnrrd.axes import per_axis
from anychunk.formats.jnrrd.header import Header, Line, make_line, rebuild
from anychunk.formats.jnrrd.tile_pattern import (
    Pattern,
    check_unique_names,
    parse_pattern,
    pattern_names,
    placeholder_words,
)
from anychunk.formats.jnrrd.tiling_fields import (
    Layout,
    Level,
    Tiling,
    all_indices,
    dimension_counts,
    lay_out,
    levels_of,
    read_tiling,
)
from anychunk.formats.jnrrd.volume import Volume, fill_json
from anychunk.model.grid import Shape
from anychunk.model.index import Json
from anychunk.resample import METHODS

SUFFIXES = {"raw": "", "gzip": ".gz", "bzip2": ".bz2", "zstd": ".zst", "lz4": ".lz4"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Everything about a file to write that is known before its samples are read."""

    volume: Volume
    tiling: Tiling
    levels: tuple[Level, ...]
    """All levels, stored or virtual."""
    layouts: tuple[Layout, ...]
    """The layouts of the stored levels, in order."""
    fields: Mapping[str, Json]
    """The fields of the extension in the order in which they are written, without the tables."""
    lines: tuple[Line, ...]
    """The lines of another header, to be kept."""
    names: tuple[str, ...] | None
    """The names of external tiles in table order; None if tiles are internal."""
    encoder_levels: tuple[int | None, ...]
    """The compression level of each tile, in table order; None: the encoder's default."""
    quality: bool
    """Whether `tile:level_quality` is written."""
    tile_metadata: bool
    """Whether `tile:metadata` is written."""

    @property
    def tiles(self) -> int:
        """The number of stored tiles."""
        return sum(layout.tiles for layout in self.layouts)

    def encode(self, tile: np.ndarray[Any, Any], number: int) -> Any:
        """Return the stored bytes of the tile at place `number` of the tables."""
        flat = np.ascontiguousarray(tile).reshape(-1).view(np.uint8)
        return ENCODE[self.tiling.compression](flat, self.encoder_levels[number])


def default_tile(shape: Shape) -> Shape:
    """Return the tile shape used by default: 64 x 256 x 256 of the three fastest axes."""
    most = [256, 256, 64]
    return tuple(
        min(size, most[i]) if i < len(most) else 1 for i, size in enumerate(reversed(shape))
    )[::-1]


def make_volume(shape: Shape, dtype: np.dtype[Any], endian: str) -> Volume:
    """Return the description of the samples; raise if the format cannot hold them."""
    name = dtype.name
    if dtype.kind not in "iufc" and name != "bfloat16":
        raise UnsupportedError(
            f"jnrrd: arrays of {dtype} cannot be written; convert to a numeric type, such as uint8"
        )
    if dtype.itemsize > 16 or name in ("longdouble", "clongdouble", "float128"):
        raise UnsupportedError(f"jnrrd: arrays of {dtype} cannot be written; convert to float64")
    if not shape or min(shape) < 1:
        raise UnsupportedError(f"jnrrd: shape {shape}, expected at least one axis and no size 0")
    if endian not in ("little", "big"):
        raise CodecConfigError(f"jnrrd: endian {endian!r}, expected little or big")
    return Volume(type=name, sizes=shape[::-1], endian=cast("Any", endian), encoding="raw")


def reverse(values: int | Sequence[int] | None, count: int, name: str) -> list[int] | None:
    """Return values in the file's order; a single number applies to every tiled axis."""
    if values is None:
        return None
    listed = [values] * count if isinstance(values, int) else [int(v) for v in values]
    if len(listed) != count:
        raise CodecConfigError(f"jnrrd: {name} has {len(listed)} entries, expected {count}")
    return listed[::-1]


def level_fields(
    count: int,
    *,
    levels: int | None,
    level_scales: Sequence[int | Sequence[int]] | None,
    level_tile_sizes: Sequence[Sequence[int]] | None,
    levels_virtual: Sequence[int] | None,
    downsample: str,
) -> dict[str, Json]:
    """Return the fields of the levels; none if there is only level 0."""
    if level_scales is None and levels is not None:
        level_scales = [2**n for n in range(levels)]
    if level_scales is None:
        return {}
    if levels is not None and levels != len(level_scales):
        raise CodecConfigError(
            f"jnrrd: {len(level_scales)} level_scales, expected {levels}, one per level"
        )
    fields: dict[str, Json] = {
        "levels": len(level_scales),
        "level_scales": [
            s if isinstance(s, int) else reverse(s, count, "level_scales") for s in level_scales
        ],
        "downsample_method": downsample,
    }
    if downsample not in METHODS:
        raise CodecConfigError(
            f"jnrrd: downsample {downsample!r}, expected one of {' '.join(METHODS)}"
        )
    if level_tile_sizes is not None:
        fields["level_tile_sizes"] = [
            reverse(tile, count, "level_tile_sizes") for tile in level_tile_sizes
        ]
    if levels_virtual is not None:
        virtual = sorted(int(n) for n in levels_virtual)
        fields["levels_stored"] = [n for n in range(len(level_scales)) if n not in virtual]
        fields["levels_virtual"] = virtual
    return fields


def make_plan(
    shape: Shape,
    dtype: np.dtype[Any],
    url: str,
    *,
    tile: int | Sequence[int] | None = None,
    tile_dimensions: Sequence[int] | None = None,
    storage: Literal["internal", "external"] = "internal",
    format: Literal["contiguous", "chunked"] = "contiguous",
    compression: Literal["raw", "gzip", "bzip2", "zstd", "lz4"] = "raw",
    compression_levels: int | Sequence[int] | None = None,
    edge_handling: Literal["pad", "variable"] = "pad",
    padding_value: float = 0,
    overlap: int | Sequence[int] | None = None,
    levels: int | None = None,
    level_scales: Sequence[int | Sequence[int]] | None = None,
    level_tile_sizes: Sequence[Sequence[int]] | None = None,
    levels_virtual: Sequence[int] | None = None,
    downsample: str = "average",
    quality: bool = False,
    tile_metadata: bool = False,
    sparse: bool = False,
    pattern: str | None = None,
    files: Sequence[str] | bool | None = None,
    base_dir: str | None = None,
    header: Header | Mapping[str, Json] | None = None,
    endian: str = "little",
) -> Plan:
    """Check the options of `write` and lay out every level.

    Raises:
        CodecConfigError: An option is wrong, or contradicts another.
        UnsupportedError: The format cannot hold the array.
    """
    ndim, kept = len(shape), kept_lines(header)
    volume = make_volume(shape, dtype, endian)
    chosen = range(ndim) if tile_dimensions is None else [int(a) for a in tile_dimensions]
    if any(not -ndim <= a < ndim for a in chosen):
        raise CodecConfigError(
            f"jnrrd: tile_dimensions {list(chosen)}, expected axes from {-ndim} to {ndim - 1}"
        )
    axes = [a % ndim for a in chosen]
    if tile is None:
        tile = [default_tile(shape)[a] for a in axes]
    fields: dict[str, Json] = {
        "enabled": True,
        "dimensions": [ndim - 1 - a for a in reversed(axes)],
        "sizes": reverse(tile, len(axes), "tile"),
        "storage": storage,
    }
    if edge_handling != "pad" or padding_value != 0:
        fields["edge_handling"] = edge_handling
    if padding_value != 0:
        fields["padding_value"] = padding_json(padding_value, dtype)
    if overlap is not None and any(reverse(overlap, len(axes), "overlap") or ()):
        fields["overlap"] = reverse(overlap, len(axes), "overlap")
    fields |= {"sparse": True} if sparse else {}
    if compression != "raw":
        fields["compression"] = compression
    fields |= level_fields(
        len(axes),
        levels=levels,
        level_scales=level_scales,
        level_tile_sizes=level_tile_sizes,
        levels_virtual=levels_virtual,
        downsample=downsample,
    )
    if storage == "internal":
        if pattern is not None or files is not None or base_dir is not None:
            raise CodecConfigError("jnrrd: pattern, files and base_dir require storage='external'")
        fields["format"] = format
    tiling, levels_found = checked(fields, volume)
    layouts = tuple(lay_out(tiling, level) for level in levels_found if level.is_stored)
    total = sum(layout.tiles for layout in layouts)
    names = None
    if storage == "external":
        names = external(
            fields,
            tiling,
            layouts,
            url,
            labels=labels_of(kept, ndim),
            words=placeholder_words(rebuild(kept, url)),
            pattern=pattern,
            files=files,
            base_dir=base_dir,
        )
    encoder_levels = spread_levels(compression_levels, total, fields)
    return Plan(
        volume=volume,
        tiling=tiling,
        levels=levels_found,
        layouts=layouts,
        fields=fields,
        lines=kept,
        names=names,
        encoder_levels=encoder_levels,
        quality=quality,
        tile_metadata=tile_metadata,
    )


def padding_json(value: float, dtype: np.dtype[Any]) -> Json:
    """Return a padding value as JSON, NaN as null; raise if the type cannot hold it."""
    fill_json(value, dtype)
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def checked(fields: Mapping[str, Json], volume: Volume) -> tuple[Tiling, tuple[Level, ...]]:
    """Apply the reader's checks to the fields: what is written must be readable.

    Tables do not exist yet, but the reader requires them, so empty ones are checked instead.
    """
    empty: dict[str, Json] = (
        {"offset_table": []} if fields["storage"] == "internal" else {"pattern": ""}
    )
    tiling, findings = read_tiling({**fields, **empty}, volume)
    if tiling is None:
        raise CodecConfigError(f"jnrrd: {next(f for f in findings if f.severity == 'error')}")
    return replace(tiling, offset_table=None, pattern=None), levels_of(tiling, volume)


def external(
    fields: dict[str, Json],
    tiling: Tiling,
    layouts: Sequence[Layout],
    url: str,
    *,
    labels: Sequence[str | None],
    words: Mapping[str, str],
    pattern: str | None,
    files: Sequence[str] | bool | None,
    base_dir: str | None,
) -> tuple[str, ...]:
    """Return the names of external tiles, and add to `fields` those that list them.

    Parameters:
        fields: The fields of the extension.
        tiling: The same fields, parsed.
        layouts: The layouts of the stored levels.
        url: The file that is written.
        labels: The labels of the file's axes.
        words: The fields of the header that a pattern may name.
        pattern: `tile:pattern`; None: `default_pattern`.
        files: The names to write to `tile:files`; True: those of the pattern.
        base_dir: `tile:base_dir`.
    """
    if pattern is not None and not isinstance(files, bool) and files is not None:
        raise CodecConfigError("jnrrd: pattern and a list of files are both given, expected one")
    if base_dir is not None:
        fields["base_dir"] = base_dir
    text = pattern or default_pattern(tiling, url, is_below=base_dir is None)
    parsed = parse_pattern(text, tiling.dimensions, labels, words)
    counts = [(x.level.number, dimension_counts(x, tiling.dimensions)) for x in layouts]
    names = tuple(files) if files and not isinstance(files, bool) else ()
    if not names:
        check_unique_names(parsed, counts)
        names = tuple(all_names(parsed, counts))
    total = sum(math.prod(grid) for _, grid in counts)
    if len(names) != total or len(set(names)) != total:
        raise CodecConfigError(f"jnrrd: {len(set(names))} distinct files, expected {total}")
    if files:
        fields["files"] = listing(names, counts, has_levels=tiling.levels > 1)
    else:
        fields["pattern"] = text
    return names


def default_pattern(tiling: Tiling, url: str, *, is_below: bool) -> str:
    """Return a pattern for the tiles of `url`; `is_below`: in a folder named after it."""
    stem = PurePosixPath(url).name.removesuffix(".jnrrd")
    level = "level_{l}/" if tiling.levels > 1 else ""
    places = "_".join(f"{{d{p}}}" for p in reversed(range(len(tiling.dimensions))))
    if len(tiling.dimensions) <= 3:
        places = "_".join(f"{{{'xyz'[p]}}}" for p in reversed(range(len(tiling.dimensions))))
    start = f"{stem.replace('{', '_').replace('}', '_')}.tiles/" if is_below else ""
    return f"{start}{level}{places}.raw{SUFFIXES[tiling.compression]}"


def all_names(pattern: Pattern, counts: Sequence[tuple[int, Shape]]) -> Iterator[str]:
    """Yield the names of the tiles of all stored levels, in table order."""
    before = 0
    for level, grid in counts:
        yield from pattern_names(pattern, level, grid, before=before)
        before += math.prod(grid)


def listing(
    names: Sequence[str], counts: Sequence[tuple[int, Shape]], *, has_levels: bool
) -> list[dict[str, Json]]:
    """Return `tile:files`, from names in table order."""
    tiles = ((level, indices) for level, grid in counts for indices in all_indices(grid))
    return [
        {**({"level": level} if has_levels else {}), "indices": list(indices), "file": name}
        for (level, indices), name in zip(tiles, names, strict=True)
    ]


def spread_levels(
    given: int | Sequence[int] | None, total: int, fields: dict[str, Json]
) -> tuple[int | None, ...]:
    """Return the compression level of every tile, and add it to `fields`."""
    if given is None:
        return (None,) * total
    listed = [given] * total if isinstance(given, int) else [int(n) for n in given]
    if len(listed) != total:
        raise CodecConfigError(f"jnrrd: {len(listed)} compression_levels, expected {total}")
    fields["compression_levels"] = listed
    return tuple(listed)


def kept_lines(header: Header | Mapping[str, Json] | None) -> tuple[Line, ...]:
    """Return further header lines that the caller wants to keep."""
    if header is None:
        return ()
    if isinstance(header, Header):
        return header.lines
    return tuple(make_line(str(key), value) for key, value in header.items())


def labels_of(kept: Sequence[Line], ndim: int) -> list[str | None]:
    """Return the labels that a reader will find, which may say what {c} and {t} are."""
    found = [line.value for line in kept if line.key == "labels"]
    return per_axis({"labels": found[-1] if found else None}, "labels", ndim)
