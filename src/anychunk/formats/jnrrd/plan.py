"""What is to be written: options in numpy's axis order, fields in the file's."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal, cast

import numpy as np

from anychunk.codecs.streams import ENCODE
from anychunk.errors import CodecConfigError, UnsupportedError
from anychunk.formats.jnrrd.axes import per_axis
from anychunk.formats.jnrrd.codecs import fill_json
from anychunk.formats.jnrrd.files import dimension_counts
from anychunk.formats.jnrrd.header import Header, Line, make_line
from anychunk.formats.jnrrd.layout import Layout, lay_out
from anychunk.formats.jnrrd.pattern import Pattern, all_indices, check_tells_apart, parse_pattern
from anychunk.formats.jnrrd.tiling import Level, Tiling, levels_of, read_tiling
from anychunk.formats.jnrrd.volume import Volume
from anychunk.model.grid import Shape
from anychunk.model.index import Json
from anychunk.resample import METHODS

SUFFIXES = {"raw": "", "gzip": ".gz", "bzip2": ".bz2", "zstd": ".zst", "lz4": ".lz4"}
ENCODERS = {"raw": "raw", "gzip": "gzip", "bzip2": "bzip2", "zstd": "zstd", "lz4": "lz4_frame"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Everything that is known before the first sample is read."""

    volume: Volume
    tiling: Tiling
    levels: tuple[Level, ...]
    layouts: tuple[Layout, ...]
    fields: Mapping[str, Json]
    """Of the extension, in the order they are written, without the tables."""
    lines: tuple[Line, ...]
    """Of another header, to be kept."""
    names: tuple[str, ...] | None
    """Of external tiles, in table order."""
    encoder_levels: tuple[int | None, ...]
    """One a tile."""
    quality: bool
    tile_metadata: bool

    @property
    def tiles(self) -> int:
        return sum(layout.tiles for layout in self.layouts)

    def encode(self, tile: np.ndarray[Any, Any], number: int) -> Any:
        flat = np.ascontiguousarray(tile).reshape(-1).view(np.uint8)
        return ENCODE[ENCODERS[self.tiling.compression]](flat, self.encoder_levels[number])


def default_tile(shape: Shape) -> Shape:
    """Cut the two fast axes at 256, the next at 64, and slower ones at every element."""
    most = [256, 256, 64]
    return tuple(
        min(size, most[i]) if i < len(most) else 1 for i, size in enumerate(reversed(shape))
    )[::-1]


def make_volume(shape: Shape, dtype: np.dtype[Any], endian: str) -> Volume:
    name = dtype.name
    if dtype.kind not in "iufc" and name != "bfloat16":
        raise UnsupportedError(
            f"jnrrd: arrays of {dtype} are not written; convert to a number, as bool to uint8"
        )
    if dtype.itemsize > 16 or name in ("longdouble", "clongdouble", "float128"):
        raise UnsupportedError(f"jnrrd: arrays of {dtype} are not written; convert to float64")
    if not shape or min(shape) < 1:
        raise UnsupportedError(f"jnrrd: an array of shape {shape} has no samples to write")
    if endian not in ("little", "big"):
        raise CodecConfigError(f"jnrrd: endian {endian!r}, known: little big")
    return Volume(type=name, sizes=shape[::-1], endian=cast("Any", endian), encoding="raw")


def reverse(values: int | Sequence[int] | None, count: int, name: str) -> list[int] | None:
    """Turn numpy's order into the file's; one number stands for every axis."""
    if values is None:
        return None
    listed = [values] * count if isinstance(values, int) else [int(v) for v in values]
    if len(listed) != count:
        raise CodecConfigError(f"jnrrd: {name} has {len(listed)} entries for {count} tiled axes")
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
    """Make the fields of a pyramid; nothing where there is one level."""
    if level_scales is None and levels is not None:
        level_scales = [2**n for n in range(levels)]
    if level_scales is None:
        return {}
    if levels is not None and levels != len(level_scales):
        raise CodecConfigError(f"jnrrd: {levels} levels with {len(level_scales)} level_scales")
    fields: dict[str, Json] = {
        "levels": len(level_scales),
        "level_scales": [
            s if isinstance(s, int) else reverse(s, count, "level_scales") for s in level_scales
        ],
        "downsample_method": downsample,
    }
    if downsample not in METHODS:
        raise CodecConfigError(f"jnrrd: downsample {downsample!r}, known: {' '.join(METHODS)}")
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
    pattern: str | None = None,
    files: Sequence[str] | bool | None = None,
    base_dir: str | None = None,
    header: Header | Mapping[str, Json] | None = None,
    endian: str = "little",
) -> Plan:
    """Check the options and lay out every level."""
    ndim, kept = len(shape), kept_lines(header)
    volume = make_volume(shape, dtype, endian)
    chosen = range(ndim) if tile_dimensions is None else [int(a) for a in tile_dimensions]
    if any(not -ndim <= a < ndim for a in chosen):
        raise CodecConfigError(f"jnrrd: tile_dimensions {list(chosen)} of an array of {ndim} axes")
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
            raise CodecConfigError("jnrrd: pattern, files and base_dir are for external storage")
        fields["format"] = format
    tiling, levels_found = checked(fields, volume)
    layouts = tuple(
        cast("Layout", lay_out(tiling, level)) for level in levels_found if level.is_stored
    )
    total = sum(layout.tiles for layout in layouts)
    names = None
    if storage == "external":
        names = external(
            fields,
            tiling,
            layouts,
            url,
            labels=labels_of(kept, ndim),
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
    fill_json(value, dtype)
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def checked(fields: Mapping[str, Json], volume: Volume) -> tuple[Tiling, tuple[Level, ...]]:
    """Run the reader's own checks, as far as they need no table."""
    stand_in: dict[str, Json] = (
        {"offset_table": []} if fields["storage"] == "internal" else {"pattern": ""}
    )
    tiling, findings = read_tiling({**fields, **stand_in}, volume)
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
    pattern: str | None,
    files: Sequence[str] | bool | None,
    base_dir: str | None,
) -> tuple[str, ...]:
    """Name the tiles, and add the fields that tell the names."""
    if pattern is not None and not isinstance(files, bool) and files is not None:
        raise CodecConfigError("jnrrd: pattern and a list of files exclude each other")
    if base_dir is not None:
        fields["base_dir"] = base_dir
    text = pattern or default_pattern(tiling, url, is_below=base_dir is None)
    parsed = parse_pattern(text, tiling.dimensions, labels)
    counts = [(x.level.number, dimension_counts(x, tiling.dimensions)) for x in layouts]
    names = tuple(files) if files and not isinstance(files, bool) else ()
    if not names:
        check_tells_apart(parsed, counts)
        names = tuple(pattern_names(parsed, counts))
    total = sum(math.prod(grid) for _, grid in counts)
    if len(names) != total or len(set(names)) != total:
        raise CodecConfigError(f"jnrrd: {len(set(names))} different files for {total} tiles")
    if files:
        fields["files"] = listing(names, counts, has_levels=tiling.levels > 1)
    else:
        fields["pattern"] = text
    return names


def default_pattern(tiling: Tiling, url: str, *, is_below: bool) -> str:
    stem = PurePosixPath(url).name.removesuffix(".jnrrd")
    level = "level_{l}/" if tiling.levels > 1 else ""
    places = "_".join(f"{{d{p}}}" for p in reversed(range(len(tiling.dimensions))))
    if len(tiling.dimensions) <= 3:
        places = "_".join(f"{{{'xyz'[p]}}}" for p in reversed(range(len(tiling.dimensions))))
    start = f"{stem.replace('{', '_').replace('}', '_')}.tiles/" if is_below else ""
    return f"{start}{level}{places}.raw{SUFFIXES[tiling.compression]}"


def pattern_names(pattern: Pattern, counts: Sequence[tuple[int, Shape]]) -> Iterable[str]:
    before = 0
    for level, grid in counts:
        for number, indices in enumerate(all_indices(grid)):
            yield pattern.name(indices, level=level, number=number, before=before)
        before += math.prod(grid)


def listing(
    names: Sequence[str], counts: Sequence[tuple[int, Shape]], *, has_levels: bool
) -> list[dict[str, Json]]:
    tiles = ((level, indices) for level, grid in counts for indices in all_indices(grid))
    return [
        {**({"level": level} if has_levels else {}), "indices": list(indices), "file": name}
        for (level, indices), name in zip(tiles, names, strict=True)
    ]


def spread_levels(
    given: int | Sequence[int] | None, total: int, fields: dict[str, Json]
) -> tuple[int | None, ...]:
    if given is None:
        return (None,) * total
    listed = [given] * total if isinstance(given, int) else [int(n) for n in given]
    if len(listed) != total:
        raise CodecConfigError(f"jnrrd: {len(listed)} compression_levels for {total} tiles")
    fields["compression_levels"] = listed
    return tuple(listed)


def kept_lines(header: Header | Mapping[str, Json] | None) -> tuple[Line, ...]:
    if header is None:
        return ()
    if isinstance(header, Header):
        return header.lines
    return tuple(make_line(str(key), value) for key, value in header.items())


def labels_of(kept: Sequence[Line], ndim: int) -> list[str | None]:
    """Give the labels that a reader will find: they may say what {c} and {t} mean."""
    found = [line.value for line in kept if line.key == "labels"]
    return per_axis({"labels": found[-1] if found else None}, "labels", ndim)
