"""The plan of a file to write: the caller's options, checked, as fields and layouts.

Options are in numpy's axis order, slowest first; fields in the file's, fastest first. The plan
holds everything that is known before the first sample is read.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Unpack, cast

import numpy as np

from anychunk.codecs.streams import ENCODE, check_option
from anychunk.errors import OptionError, UnsupportedError
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
from anychunk.options import TiledOptions
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


def default_chunk(shape: Shape) -> Shape:
    """Return the shape of tiles used by default: 64 x 256 x 256 of the three fastest axes."""
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
        raise OptionError(f"jnrrd: endian {endian!r}, expected little or big")
    return Volume(type=name, sizes=shape[::-1], endian=cast("Any", endian), encoding="raw")


def reverse(values: Sequence[int], count: int, name: str) -> list[int]:
    """Return values in the file's order."""
    listed = [int(v) for v in values]
    if len(listed) != count:
        raise OptionError(f"jnrrd: {name} has {len(listed)} entries, expected {count}")
    return listed[::-1]


def level_fields(
    count: int, levels: int | None, method: str, options: TiledOptions
) -> dict[str, Json]:
    """Return the fields of the levels; none if there is only level 0."""
    level_scales = options.get("level_scales")
    if level_scales is None and levels is not None:
        level_scales = [2**n for n in range(levels)]
    if level_scales is None:
        return {}
    if levels is not None and levels != len(level_scales):
        raise OptionError(
            f"jnrrd: {len(level_scales)} level_scales, expected {levels}, one per level"
        )
    fields: dict[str, Json] = {
        "levels": len(level_scales),
        "level_scales": [
            s if isinstance(s, int) else reverse(s, count, "level_scales") for s in level_scales
        ],
        "downsample_method": method,
    }
    if method not in METHODS:
        raise OptionError(f"jnrrd: method {method!r}, expected one of {' '.join(METHODS)}")
    if (chunks := options.get("level_chunks")) is not None:
        fields["level_tile_sizes"] = [reverse(chunk, count, "level_chunks") for chunk in chunks]
    if (listed := options.get("levels_virtual")) is not None:
        virtual = sorted(int(n) for n in listed)
        fields["levels_stored"] = [n for n in range(len(level_scales)) if n not in virtual]
        fields["levels_virtual"] = virtual
    return fields


EDGES = {"padded": "pad", "cropped": "variable"}
"""How a file says what `edges` asks for."""


ORDERS = ("contiguous", "chunked")


def tiled_axes(given: Sequence[int] | None, ndim: int) -> list[int]:
    """Return the numbers of the axes that are tiled."""
    chosen = range(ndim) if given is None else [int(a) for a in given]
    if any(not -ndim <= a < ndim for a in chosen):
        raise OptionError(
            f"jnrrd: chunk_axes {list(chosen)}, expected axes from {-ndim} to {ndim - 1}"
        )
    return [a % ndim for a in chosen]


def tile_fields(count: int, dtype: np.dtype[Any], options: TiledOptions) -> dict[str, Json]:
    """Return the fields of how tiles are stored."""
    edges, padding_value = options.get("edges", "padded"), options.get("padding_value", 0)
    order = options.get("chunk_order", ORDERS[0])
    for name, value, known in (("edges", edges, EDGES), ("chunk_order", order, ORDERS)):
        if value not in known:
            raise OptionError(f"jnrrd: {name} {value!r}, expected one of {' '.join(known)}")
    fields: dict[str, Json] = {"storage": "external" if options.get("external") else "internal"}
    if edges != "padded" or padding_value != 0:
        fields["edge_handling"] = EDGES[edges]
    if padding_value != 0:
        fields["padding_value"] = padding_json(padding_value, dtype)
    if any(halo := reverse(options.get("halo") or (0,) * count, count, "halo")):
        fields["overlap"] = halo
    return fields | ({"sparse": True} if options.get("sparse") else {})


def make_plan(
    shape: Shape,
    dtype: np.dtype[Any],
    url: str,
    *,
    chunk: Sequence[int] | None = None,
    compression: str = "raw",
    compression_level: int | Sequence[int] | None = None,
    levels: int | None = None,
    method: str = "average",
    **options: Unpack[TiledOptions],
) -> Plan:
    """Check the options of `write` and lay out every level.

    Raises:
        OptionError: An option is wrong, or contradicts another.
        UnsupportedError: The format cannot hold the array.
    """
    ndim, kept = len(shape), kept_lines(options.get("header"))
    volume = make_volume(shape, dtype, options.get("endian", "little"))
    axes = tiled_axes(options.get("chunk_axes"), ndim)
    if chunk is None:
        chunk = [default_chunk(shape)[a] for a in axes]
    fields: dict[str, Json] = {
        "enabled": True,
        "dimensions": [ndim - 1 - a for a in reversed(axes)],
        "sizes": reverse(chunk, len(axes), "chunk"),
        **tile_fields(len(axes), dtype, options),
    }
    if compression != "raw":
        fields["compression"] = compression
    fields |= level_fields(len(axes), levels, method, options)
    is_external = options.get("external", False)
    if not is_external:
        if any(options.get(name) is not None for name in ("pattern", "files", "base_dir")):
            raise OptionError("jnrrd: pattern, files and base_dir require external=True")
        fields["format"] = options.get("chunk_order", "contiguous")
    tiling, levels_found = checked(fields, volume)
    layouts = tuple(lay_out(tiling, level) for level in levels_found if level.is_stored)
    total = sum(layout.tiles for layout in layouts)
    names = None
    if is_external:
        names = external(
            fields,
            tiling,
            layouts,
            url,
            labels=labels_of(kept, ndim),
            words=placeholder_words(rebuild(kept, url)),
            pattern=options.get("pattern"),
            files=options.get("files"),
            base_dir=options.get("base_dir"),
        )
    encoder_levels = spread_levels(compression_level, total, fields)
    return Plan(
        volume=volume,
        tiling=tiling,
        levels=levels_found,
        layouts=layouts,
        fields=fields,
        lines=kept,
        names=names,
        encoder_levels=encoder_levels,
        quality=options.get("quality", False),
        tile_metadata=options.get("chunk_metadata", False),
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
        raise OptionError(f"jnrrd: {next(f for f in findings if f.severity == 'error')}")
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
        raise OptionError("jnrrd: pattern and a list of files are both given, expected one")
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
        raise OptionError(f"jnrrd: {len(set(names))} distinct files, expected {total}")
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
    compression = fields.get("compression", "raw")
    listed = [given] * total if isinstance(given, int) else [int(n) for n in given]
    if len(listed) != total:
        raise OptionError(f"jnrrd: compression_level has {len(listed)} entries, expected {total}")
    for level in {*listed}:
        check_option(compression, level, "jnrrd")
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
