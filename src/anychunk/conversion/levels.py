"""The levels of an image: which are written, how each is chunked and encoded. Pure."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from anychunk.codecs import data_types
from anychunk.conversion import presets
from anychunk.conversion.packing import Packing
from anychunk.errors import FormatError, OptionError
from anychunk.io.threads import cores
from anychunk.limits import MIB
from anychunk.metadata.cf import NAMES as CF_NAMES
from anychunk.metadata.cf import fits
from anychunk.metadata.hierarchy import fill_of, has_absent_chunks
from anychunk.metadata.meaning import NAMES, Display, Meaning
from anychunk.metadata.meaning import Level as ImageLevel
from anychunk.metadata.ome import step
from anychunk.metadata.reading import image_label, levels_of, meaning_of
from anychunk.model import images as im
from anychunk.model.grid import Shape, Slices, chunk_box, grid_shape
from anychunk.model.images import VARIABLE, Image
from anychunk.model.index import ArrayIndex, Json, Node, Objects, find
from anychunk.options import check
from anychunk.resample import BY_WINDOW, output_shape

REGION_BYTES = 16 * MIB
"""About how much a worker reads, encodes and writes at a time, unless a shard is larger."""
ROOT_TWO = math.sqrt(2) * (1 + 1e-9)
"""z is halved while its elements are at most this many times longer than the shortest side."""
MASK = "mask"
"""Name of the mask in a level group."""
VARIABLE_ITEMSIZE = 16
"""Bytes assumed for types of variable length; it only affects how the work is split."""


@dataclass(frozen=True, kw_only=True)
class ZarrOptions:
    """What the caller asks for in a Zarr target; None leaves the choice to the preset."""

    like: str = "ome-zarr"
    chunk: Sequence[int] | None = None
    shard: Sequence[int] | bool | None = None
    compression: str | Sequence[Any] | None = None
    compression_level: int | None = None
    pack: str | None = None
    levels: int | None = None
    method: str | None = None
    axes: Sequence[str] | None = None
    image: int | str | None = None
    only_planes: bool = False
    """Whether computed levels are shorter only along y and x, for formats of planes."""
    packed: Mapping[str, Packing] = field(default_factory=dict)
    """How `pack` stores the samples of images, by their path in the target."""
    region_bytes: int | None = None
    """About how much is computed at a time; None: `REGION_BYTES`."""
    notes: list[str] = field(default_factory=list)
    """Filled while planning: what the caller should know about the result."""

    def encoding(self) -> "ZarrOptions":
        """Return only how samples are encoded, for the arrays beside the levels."""
        return ZarrOptions(
            like=self.like,
            compression=self.compression,
            compression_level=self.compression_level,
        )


INTERNAL = ("only_planes", "region_bytes", "notes")
"""Fields of `ZarrOptions` that callers do not set."""
EVERYWHERE = ("overwrite", "progress", "target_storage", "workers")
"""Options of `write` and `convert` that Zarr and TIFF targets have besides those of their own."""


def options_for[T](kind: type[T], where: str, given: Mapping[str, Any]) -> T:
    """Return the caller's options for one kind of target; refuse those that it does not have."""
    known = {field.name for field in fields(kind)} - {*INTERNAL}  # type: ignore[arg-type]
    check(where, given, {*known, *EVERYWHERE})
    return kind(**{name: value for name, value in given.items() if name in known})


def run_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a Zarr or TIFF target is written, as their functions take it."""
    return {
        "overwrite": given.get("overwrite", False),
        "count": given.get("workers") or cores(),
        "progress": given.get("progress"),
        "target_storage": given.get("target_storage"),
    }


@dataclass(frozen=True, kw_only=True)
class Level:
    """One array to write."""

    path: str
    """In the target."""
    source: str | None
    """Path of the array that it is a copy of; None: computed from the level before it."""
    order: tuple[int, ...]
    """Axes of the source in the target's order; axes that are left out have length 1."""
    ratio: Shape
    """How many elements of the level before it become one, along each axis."""
    shape: Shape
    outer: Shape
    """Shape of one object in the store: a shard, or a chunk where there are no shards."""
    region: Shape
    """Shape that is computed at a time: whole objects."""
    nodata: float | None
    method: str
    itemsize: int
    metadata: dict[str, Json]
    """The content of its `zarr.json`."""
    hidden: float | None = None
    """The value of the source that is NaN in the target."""
    error: float = 0
    """How much its values may differ when they are read back, because they are packed."""

    @property
    def grid(self) -> Shape:
        """The number of regions along each axis."""
        return grid_shape(self.shape, self.region)

    def box(self, coords: Shape) -> Slices:
        """Return the part of the array that the region at `coords` covers."""
        return chunk_box(coords, self.region, self.shape)

    @property
    def nbytes(self) -> int:
        """The decoded size."""
        return math.prod(self.shape) * self.itemsize

    def as_index(self) -> ArrayIndex:
        """Return it as an array of an index, as the writer of the hierarchy takes it."""
        document = self.metadata
        return ArrayIndex(
            shape=self.shape,
            chunk_shape=self.outer,
            data_type=document["data_type"],
            codecs=tuple(document["codecs"]),
            chunks=Objects(base="", pattern="", grid=grid_shape(self.shape, self.outer)),
            fill_value=document["fill_value"],
            dimension_names=tuple(document["dimension_names"]),
            attributes=document["attributes"],
        )


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The arrays of one image, as they are planned."""

    meaning: Meaning
    """What the samples mean, with the axes of the target."""
    levels: tuple[Level, ...]
    masks: tuple[Level, ...] = ()
    """One per level, or none."""
    described: tuple[ImageLevel, ...] = ()
    """The levels as the writer of the hierarchy takes them."""


def image_levels(source: Node, image: Image, path: str, options: ZarrOptions) -> Chain:
    """Plan the levels of one image: copies of the source's, or computed from the finest.

    Parameters:
        source: The index of the source.
        image: One of its images.
        path: Of the image's group in the target.
        options: What the caller asks for.
    """
    preset = presets.preset(options.like)
    first = _array(source, image.levels[0])
    meaning, order = target_meaning(meaning_of(source, image), first.shape, options)
    nodata = hidden = usable_nodata(meaning.nodata, first.data_type)
    if path in options.packed and nodata is not None:
        # it may be far from the values, and would not survive being packed
        if not math.isnan(nodata):
            options.notes.append(f"{path or '/'}: nodata {nodata:g} is written as NaN")
        nodata = math.nan
        meaning = replace(meaning, nodata=nodata)
    count = preset.levels if options.levels is None else options.levels
    if data_kind(first) == "other" and count is not None:
        options.notes.append(
            f"{image.path or '/'}: {first.data_type} cannot be averaged; no levels were computed"
        )
        count = None
    recipe = Recipe(
        order=order,
        names=meaning.names,
        path=path,
        options=options,
        nodata=nodata,
        hidden=hidden if path in options.packed else None,
        is_counted=is_palette(meaning) or image_label(image.attributes) is not None,
    )
    stored = levels_of(source, image)
    # those that `levels_of` returns: all but levels with other axes than the first
    paths = [p for p in image.levels if len(_array(source, p).shape) == len(first.shape)]
    if count is None or (options.levels is None and len(image.levels) > 1):
        levels = [
            recipe.level(level.image, f"{i}/{VARIABLE}", source=name)
            for i, (level, name) in enumerate(zip(stored, paths, strict=True))
        ]
        masks = _copied_masks(stored, paths, recipe)
        facts = [_reordered(level, order) for level in stored]
    else:
        levels = [recipe.level(first, f"0/{VARIABLE}", source=image.levels[0])]
        scale = tuple(step(meaning, number) for number in range(len(meaning.axes)))
        names = tuple("" if n == "z" and options.only_planes else n for n in meaning.names)
        ratios = level_ratios(levels[0].shape, names, scale, count)
        for number, ratio in enumerate(ratios, 1):
            shape = output_shape(levels[-1].shape, ratio)
            levels.append(recipe.level(first, f"{number}/{VARIABLE}", ratio=ratio, shape=shape))
        masks = _computed_masks(meaning, stored, paths, recipe, levels)
        facts = _computed_facts(stored, order, ratios)
    by_level = {mask.path.rsplit("/", 2)[-2]: mask for mask in masks}
    described = [
        ImageLevel(
            name=str(number),
            image=level.as_index(),
            factor=fact.factor,
            scale=fact.scale,
            origin=fact.origin,
            mask=by_level[str(number)].as_index() if str(number) in by_level else None,
        )
        for number, (level, fact) in enumerate(zip(levels, facts, strict=True))
    ]
    return Chain(
        meaning=meaning, levels=tuple(levels), masks=tuple(masks), described=tuple(described)
    )


@dataclass(frozen=True)
class _Facts:
    """What is known about the grid of a level, along the axes of the target."""

    factor: tuple[float, ...] | None
    scale: tuple[float, ...] | None = None
    origin: tuple[float, ...] | None = None


def _reordered(level: ImageLevel, order: tuple[int, ...]) -> _Facts:
    def pick(values: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return None if values is None else tuple(values[i] for i in order)

    return _Facts(pick(level.factor), pick(level.scale), pick(level.origin))


def _computed_facts(
    stored: Sequence[ImageLevel], order: tuple[int, ...], ratios: Sequence[Shape]
) -> list[_Facts]:
    """Return the true factors of computed levels: products of ratios, whatever was cut off."""
    factor = (1.0,) * len(order)
    found = [_reordered(stored[0], order)]
    for ratio in ratios:
        factor = tuple(f * r for f, r in zip(factor, ratio, strict=True))
        found.append(_Facts(factor))
    return found


def _mask_recipe(recipe: "Recipe") -> "Recipe":
    options = recipe.options.encoding()
    return Recipe(order=(0, 1), names=("y", "x"), path=recipe.path, options=options)


def _copied_masks(
    stored: Sequence[ImageLevel], paths: Sequence[str], recipe: "Recipe"
) -> list[Level]:
    found = []
    for number, level in enumerate(stored):
        if level.mask is not None and len(level.mask.shape) == 2:
            name = im.join(paths[number].rpartition("/")[0], MASK)
            found.append(_mask_recipe(recipe).level(level.mask, f"{number}/{MASK}", source=name))
    return found


def _computed_masks(
    meaning: Meaning,
    stored: Sequence[ImageLevel],
    paths: Sequence[str],
    recipe: "Recipe",
    levels: Sequence[Level],
) -> list[Level]:
    """Plan the masks of computed levels: a pixel is valid if any that it covers is."""
    names, mask = meaning.names, stored[0].mask
    if mask is None or not {"y", "x"} <= set(names):
        return []
    axes = (names.index("y"), names.index("x"))
    if mask.shape != tuple(levels[0].shape[i] for i in axes):
        return []
    drawn = meaning.display or Display(model="channels")
    valid = drawn.get("mask", {}).get("valid", 255)
    own = replace(_mask_recipe(recipe), how="max" if valid else "min")
    name = im.join(paths[0].rpartition("/")[0], MASK)
    found = [own.level(mask, f"0/{MASK}", source=name)]
    for number, level in enumerate(levels[1:], 1):
        ratio, shape = (tuple(value[i] for i in axes) for value in (level.ratio, level.shape))
        found.append(own.level(mask, f"{number}/{MASK}", ratio=ratio, shape=shape))
    return found


def beside_level(
    source: Node, name: str, path: str, options: ZarrOptions, taken: Collection[str]
) -> Level:
    """Plan a copy of an array of an image group that is not one of its levels.

    Parameters:
        source: The index of the source.
        name: Path of the array.
        path: Of the image's group in the target.
        options: What the caller asks for.
        taken: Names of the level groups.
    """
    array = _array(source, name)
    own = name.rsplit("/", 1)[-1]
    while own in taken:
        own += "_"  # levels are renumbered, so the source's name may be taken
    recipe = Recipe(
        order=tuple(range(len(array.shape))),
        names=[axis["name"] for axis in im.named_axes(array)],
        path=path,
        options=options.encoding(),
    )
    return recipe.level(array, own, source=name)


def _array(source: Node, path: str) -> ArrayIndex:
    found = find(source, path)
    if not isinstance(found, ArrayIndex):
        raise FormatError(f"convert: {path} of the source is not an array")
    return found


def target_meaning(
    meaning: Meaning, shape: Shape, options: ZarrOptions
) -> tuple[Meaning, tuple[int, ...]]:
    """Return the meaning with the axes of the target, and the source's axis for each of them.

    Axes come in the order t, c, z, y, x, unless one of them has another name. An axis c of length 1
    is dropped.
    """
    axes = meaning.axes
    if options.axes is not None:
        names = tuple(SYNONYMS.get(name, name) for name in options.axes)
        if len(names) != len(axes) or len(set(names)) != len(names):
            raise OptionError(
                f"convert: axes {' '.join(names)}, expected {len(axes)} different names, "
                "one per axis of the image"
            )
        axes = tuple(replace(a, name=n, unit=None) for a, n in zip(axes, names, strict=True))
    names = tuple(axis.name for axis in axes)
    order = tuple(range(len(names)))
    if set(names) <= set(NAMES) and len(set(names)) == len(names):
        order = tuple(sorted(order, key=lambda i: NAMES.index(names[i])))
    bands = meaning.bands
    if len(order) > 2 and "c" in names and shape[names.index("c")] == 1:
        order = tuple(i for i in order if names[i] != "c")
        bands = bands[:1]
    return replace(meaning, axes=tuple(axes[i] for i in order), bands=bands), order


SYNONYMS = {"band": "c", "channel": "c", "time": "t"}
"""Names of axes that `axes` may use, and those that are written."""


def usable_nodata(nodata: float | None, data_type: Json) -> float | None:
    """Return the nodata that samples are compared with; None if the type cannot represent it."""
    return nodata if nodata is not None and fits(nodata, data_type) else None


def is_palette(meaning: Meaning) -> bool:
    """Return whether samples are numbers of colours or classes, which cannot be averaged."""
    if meaning.display is not None and meaning.display["model"] == "palette":
        return True
    return any(band.interpretation == "Palette" for band in meaning.bands)


def level_ratios(
    shape: Shape, names: Sequence[str], scale: tuple[float, ...], count: int
) -> list[Shape]:
    """Return the ratio of each computed level to the one before it.

    The axes of space are halved. z is halved only while its elements are not clearly longer than
    those of x and y, so that elements become more isotropic and thin stacks keep their slices.

    Parameters:
        shape: Of the full resolution.
        names: Of the axes.
        scale: The size of an element along each axis.
        count: The number of levels, including the full resolution; 0: halve until no axis of space
            is longer than `presets.SMALL`.
    """
    axes = presets.growing_axes(names)
    ratios: list[Shape] = []
    size = list(scale)
    while len(ratios) + 1 < count or (
        count == 0 and max((shape[i] for i in axes), default=0) > presets.SMALL
    ):
        long = [i for i in axes if shape[i] > 1]
        if not long:
            break
        least = min(abs(size[i]) for i in long)
        ratio = tuple(
            2 if i in long and (names[i] != "z" or abs(size[i]) <= least * ROOT_TWO) else 1
            for i in range(len(shape))
        )
        ratios.append(ratio)
        shape = output_shape(shape, ratio)
        size = [s * r for s, r in zip(size, ratio, strict=True)]
    return ratios


def data_kind(array: ArrayIndex) -> str:
    """Return `number`, `bool`, or `other` for types that cannot be averaged."""
    name = array.data_type
    if not isinstance(name, str):
        return "other"
    if name == "bool":
        return "bool"
    return "number" if name.startswith(("int", "uint", "float", "complex")) else "other"


def itemsize_of(array: ArrayIndex) -> int:
    """Return the bytes per element; an assumed size for types of variable length."""
    dtype = data_types.native(array.data_type)
    return VARIABLE_ITEMSIZE if dtype.kind in "OT" else dtype.itemsize


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the arrays of one image are chunked and encoded."""

    order: tuple[int, ...]
    names: Sequence[str]
    path: str
    options: ZarrOptions
    nodata: float | None = None
    hidden: float | None = None
    is_counted: bool = False
    """Whether samples are numbers of colours, classes or objects."""
    how: str | None = None
    """How coarser levels are computed, whatever the options say."""

    def level(
        self,
        array: ArrayIndex,
        name: str,
        *,
        source: str | None = None,
        ratio: Shape | None = None,
        shape: Shape | None = None,
    ) -> Level:
        """Plan one array: a copy of `source`, or `ratio` times smaller than the one before it."""
        full = tuple(array.shape[i] for i in self.order)
        here = full if shape is None else shape
        itemsize = itemsize_of(array)
        stored = tuple(array.chunk_shape[i] for i in self.order)
        # chunk and shard are chosen by the full resolution, so that all levels share them
        chunk, shard = self.chunk_and_shard(full, itemsize, stored)
        inner = presets.clipped(chunk, here)
        outer = tuple(
            min(s, -(-max(n, 1) // c) * c) for s, c, n in zip(shard, inner, here, strict=True)
        )
        metadata = {
            **array.metadata(),
            "shape": list(here),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(outer)}},
            "codecs": list(self.codecs(array.data_type, inner, outer, itemsize)),
            "dimension_names": list(self.names),
            "fill_value": "NaN" if self.packing else target_fill(array, self.nodata),
            "attributes": kept_attributes(array.attributes) if source is not None else {},
        }
        return Level(
            path=im.join(self.path, name),
            source=source,
            order=self.order,
            ratio=ratio or (1,) * len(here),
            shape=here,
            outer=outer,
            region=region_shape(
                shard, full, self.names, itemsize, stored, most=self.options.region_bytes
            ),
            nodata=self.nodata,
            method=self.method(array),
            itemsize=itemsize,
            metadata=metadata,
            hidden=self.hidden,
            error=self.packing.error if self.packing else 0,
        )

    @property
    def packing(self) -> Packing | None:
        """How the samples are packed, if they are."""
        return self.options.packed.get(self.path)

    def chunk_and_shard(self, shape: Shape, itemsize: int, stored: Shape) -> tuple[Shape, Shape]:
        """Return the shapes of chunk and shard; either may still be larger than the array."""
        preset, options = presets.preset(self.options.like), self.options
        if options.chunk is None:
            most = preset.chunk_bytes // itemsize
            chunk = presets.chunk_shape(shape, self.names, most, stored)
        else:
            chunk = presets.trailing(options.chunk, len(shape), "chunk")
        if options.shard and preset.zarr_format == 2:
            raise OptionError(
                f"convert: Zarr v2, which the preset {options.like} writes, has no shards"
            )
        codecs = presets.compressors(options.compression or (), None, itemsize)
        if (
            options.shard is False
            or (self.packing and options.shard is None)
            or any(c.get("name") == "sharding_indexed" for c in codecs)
        ):
            return chunk, chunk
        if options.shard is None or options.shard is True:
            wanted = preset.shard_bytes or (presets.SHARD_BYTES if options.shard else 0)
            most = wanted // itemsize
            return chunk, presets.shard_shape(chunk, shape, self.names, most, stored)
        shard = presets.trailing(options.shard, len(shape), "shard")
        if any(s % c for s, c in zip(shard, chunk, strict=True)):
            raise OptionError(
                f"convert: shard {shard} is not a multiple of chunk {chunk} along every axis"
            )
        return chunk, shard

    def codecs(
        self, data_type: Json, inner: Shape, outer: Shape, itemsize: int
    ) -> tuple[Json, ...]:
        """Return the codec chain as JSON."""
        preset, options = presets.preset(self.options.like), self.options
        given, level = options.compression, options.compression_level
        if given is None:
            given = preset.compression
            level = preset.compression_level if level is None else level
        compressed = presets.compressors(given, level, itemsize)
        if self.packing:
            compressed = [*self.packing.codecs, *compressed]
        return presets.codec_chain(data_type, inner, outer, compressed)

    def method(self, array: ArrayIndex) -> str:
        """Return how coarser levels are computed."""
        # the mean of two palette indices, classes or objects is an unrelated third one
        is_counted = data_kind(array) == "bool" or self.is_counted
        found = self.how or self.options.method or ("mode" if is_counted else "average")
        if found not in BY_WINDOW:
            raise OptionError(f"convert: method={found!r}, expected one of: {' '.join(BY_WINDOW)}")
        return found


def target_fill(array: ArrayIndex, nodata: float | None) -> Json:
    """Return the fill value of an array of the target.

    Chunks of nothing but this value are not stored. With nodata it is nodata, which is the only one
    that GDAL looks at. Without, an array that may have absent chunks keeps the value of its source,
    so that they stay absent.
    """
    if nodata is None and has_absent_chunks(array):
        return array.fill_value
    return fill_of(array.data_type, nodata, array.fill_value)


def kept_attributes(attributes: Mapping[str, Json]) -> dict[str, Json]:
    """Return the attributes of an array that the hierarchy does not write anew."""
    return {
        key: value
        for key, value in attributes.items()
        if key not in CF_NAMES and not key.startswith(("proj:", "spatial:"))
    }


def region_shape(
    shard: Shape,
    shape: Shape,
    names: Sequence[str],
    itemsize: int,
    stored: Shape,
    *,
    most: int | None = None,
) -> Shape:
    """Return the shape of one region: whole shards, with even lengths along halved axes."""
    most = (REGION_BYTES if most is None else most) // itemsize
    covered = tuple(min(n, s) for n, s in zip(shape, stored, strict=True))
    axes = presets.growing_axes(names)
    # up to twice the bound if that prevents stored chunks from being read for two regions
    wide = presets.grow(list(shard), covered, axes, 2 * most)
    grown = list(presets.shard_shape(wide, shape, names, most, stored))
    for axis in axes:
        grown[axis] *= 1 + grown[axis] % 2
    return tuple(grown)
