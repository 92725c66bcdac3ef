"""The levels of an image: which are written, how each is chunked and encoded. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anychunk.codecs.zarr_core import parse_dtype
from anychunk.conversion import presets
from anychunk.errors import FormatError, UnsupportedError
from anychunk.limits import MIB
from anychunk.metadata import drawing, geo, ome, samples
from anychunk.model import images as im
from anychunk.model.grid import Shape, Slices, chunk_box, grid_shape
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, Json, Node, find
from anychunk.resample import BY_WINDOW, output_shape

REGION_BYTES = 16 * MIB
"""About how much a worker reads, encodes and writes at a time, unless a shard is larger."""
ROOT_TWO = math.sqrt(2) * (1 + 1e-9)
"""z is halved while its elements are at most this many times longer than the shortest side."""
VARIABLE_ITEMSIZE = 16
"""Bytes assumed for types of variable length; it only affects how the work is split."""


@dataclass(frozen=True, kw_only=True)
class ZarrOptions:
    """What the caller asks for in a Zarr target; None leaves the choice to the preset."""

    like: str = "ome-zarr"
    chunk: Sequence[int] | None = None
    shard: Sequence[int] | bool | None = None
    compression: str | Sequence[Json] | None = None
    levels: int | None = None
    method: str | None = None
    axes: Sequence[str] | None = None
    image: int | str | None = None
    notes: list[str] = field(default_factory=list)
    """Filled while planning: what the caller should know about the result."""


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


def image_levels(source: Node, image: Image, path: str, options: ZarrOptions) -> list[Level]:
    """Plan the levels of one image: copies of the source's, or computed from the finest."""
    preset = presets.preset(options.like)
    first = _array(source, image.levels[0])
    names, order = target_axes(image, first.shape, options)
    count = preset.levels if options.levels is None else options.levels
    if data_kind(first) == "other" and count is not None:
        options.notes.append(
            f"{image.path or '/'}: {first.data_type} cannot be averaged; no levels were computed"
        )
        count = None
    recipe = Recipe(
        order=order, names=names, path=path, options=options, attributes=image.attributes
    )
    if count is None or (options.levels is None and len(image.levels) > 1):
        stored = [(_array(source, name), name) for name in image.levels]
        return [
            recipe.level(array, f"{i}", source=name)
            for i, (array, name) in enumerate(stored)
            if len(array.shape) == len(first.shape)
        ]
    levels = [recipe.level(first, "0", source=image.levels[0])]
    scale = tuple(image.scale[i] for i in order)
    for number, ratio in enumerate(level_ratios(levels[0].shape, names, scale, count), 1):
        shape = output_shape(levels[-1].shape, ratio)
        levels.append(recipe.level(first, f"{number}", ratio=ratio, shape=shape))
    return levels


def beside_level(
    source: Node, name: str, path: str, options: ZarrOptions, levels: Sequence[Level]
) -> Level:
    """Plan a copy of an array stored beside `levels`, such as a mask."""
    array = _array(source, name)
    own, taken = name.rsplit("/", 1)[-1], {level.path for level in levels}
    while im.join(path, own) in taken:
        own += "_"  # levels are renumbered, so the source's name may be taken
    recipe = Recipe(
        order=tuple(range(len(array.shape))),
        names=[axis["name"] for axis in im.named_axes(array)],
        path=path,
        options=ZarrOptions(like=options.like, compression=options.compression),
    )
    return recipe.level(array, own, source=name)


def _array(source: Node, path: str) -> ArrayIndex:
    found = find(source, path)
    if not isinstance(found, ArrayIndex):
        raise FormatError(f"convert: {path} of the source is not an array")
    return found


def target_axes(
    image: Image, shape: Shape, options: ZarrOptions
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the target's axis names, and the number of the source axis for each of them."""
    if options.axes is not None:
        names = tuple(options.axes)
        if len(names) != len(image.axes) or len(set(names)) != len(names):
            raise UnsupportedError(
                f"convert: axes {' '.join(names)}, expected {len(image.axes)} different names, "
                "one per axis of the image"
            )
    else:
        names = image.names
    order = ome.ome_order(names)
    others = set(names) - {*presets.SPACE, "t", "time", "band"}
    if "band" in names and others and shape[names.index("band")] == 1:
        # OME-Zarr 0.5 allows one axis besides time and space: drop the band axis of length 1
        order = tuple(i for i in order if names[i] != "band")
    return tuple(names[i] for i in order), order


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
    dtype = parse_dtype(array.data_type, zarr_format=3)
    return int(getattr(dtype, "item_size", VARIABLE_ITEMSIZE))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the arrays of one image are chunked and encoded."""

    order: tuple[int, ...]
    names: Sequence[str]
    path: str
    options: ZarrOptions
    attributes: Mapping[str, Json] = field(default_factory=dict)
    """Of the image: they may declare nodata or a palette."""

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
            "attributes": dict(array.attributes)
            if source is not None
            else coarser_georeference(array.attributes, self.names, full, here),
        }
        return Level(
            path=im.join(self.path, name),
            source=source,
            order=self.order,
            ratio=ratio or (1,) * len(here),
            shape=here,
            outer=outer,
            region=region_shape(shard, full, self.names, itemsize, stored),
            nodata=samples.nodata(self.attributes, array),
            method=self.method(array),
            itemsize=itemsize,
            metadata=metadata,
        )

    def chunk_and_shard(self, shape: Shape, itemsize: int, stored: Shape) -> tuple[Shape, Shape]:
        """Return the shapes of chunk and shard; either may still be larger than the array."""
        preset, options = presets.preset(self.options.like), self.options
        if options.chunk is None:
            most = preset.chunk_bytes // itemsize
            chunk = presets.chunk_shape(shape, self.names, most, stored)
        else:
            chunk = presets.trailing(options.chunk, len(shape), "chunk")
        if options.shard is False:
            return chunk, chunk
        if options.shard is None or options.shard is True:
            most = preset.shard_bytes // itemsize
            return chunk, presets.shard_shape(chunk, shape, self.names, most, stored)
        shard = presets.trailing(options.shard, len(shape), "shard")
        if any(s % c for s, c in zip(shard, chunk, strict=True)):
            raise UnsupportedError(
                f"convert: shard {shard} is not a multiple of chunk {chunk} along every axis"
            )
        return chunk, shard

    def codecs(
        self, data_type: Json, inner: Shape, outer: Shape, itemsize: int
    ) -> tuple[Json, ...]:
        """Return the codec chain as JSON."""
        preset, given = presets.preset(self.options.like), self.options.compression
        compressed = presets.compressors(preset.compression if given is None else given, itemsize)
        return presets.codec_chain(data_type, inner, outer, compressed)

    def method(self, array: ArrayIndex) -> str:
        """Return how coarser levels are computed."""
        # the mean of two palette indices, or of two classes, is an unrelated third one
        is_counted = data_kind(array) == "bool" or drawing.palette(self.attributes) is not None
        found = self.options.method or ("mode" if is_counted else "average")
        if found not in BY_WINDOW:
            raise UnsupportedError(
                f"convert: unknown method {found!r}; expected one of: {' '.join(BY_WINDOW)}"
            )
        return found


def coarser_georeference(
    attributes: dict[str, Json], names: Sequence[str], full: Shape, here: Shape
) -> dict[str, Json]:
    """Return the georeference of a computed level, derived from that of the full resolution."""
    transform = attributes.get("spatial:transform")
    if not isinstance(transform, list) or len(transform) != 6 or not {"y", "x"} <= set(names):
        return {}
    down, across = (_halvings(full[i], here[i]) for i in (names.index("y"), names.index("x")))
    a, b, c, d, e, f = transform
    shape = (here[names.index("y")], here[names.index("x")])
    return geo.attributes(
        shape=shape,
        transform=geo.rescaled((a, b, c, d, e, f), across, down),
        code=attributes.get("proj:code"),
        projjson=attributes.get("proj:projjson"),
    )


def _halvings(full: int, here: int) -> int:
    """Return the power of two by which an axis was reduced.

    `full / here` would be too large wherever an odd last element was dropped on the way.
    """
    ratio = 1
    while full > here:
        full, ratio = max(1, full // 2), ratio * 2
    return ratio


def region_shape(
    shard: Shape, shape: Shape, names: Sequence[str], itemsize: int, stored: Shape
) -> Shape:
    """Return the shape of one region: whole shards, with even lengths along halved axes."""
    most = REGION_BYTES // itemsize
    covered = tuple(min(n, s) for n, s in zip(shape, stored, strict=True))
    axes = presets.growing_axes(names)
    # up to twice the bound if that prevents stored chunks from being read for two regions
    wide = presets.grow(list(shard), covered, axes, 2 * most)
    grown = list(presets.shard_shape(wide, shape, names, most, stored))
    for axis in axes:
        grown[axis] *= 1 + grown[axis] % 2
    return tuple(grown)
