"""The levels of an image: which there are, how each is cut and encoded."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anychunk.codecs.zarr_core import parse_dtype
from anychunk.conversion import presets
from anychunk.conversion.plan import Level, Wishes
from anychunk.errors import FormatError, UnsupportedError
from anychunk.limits import MIB
from anychunk.metadata import drawing, geo, ome, samples
from anychunk.model import images as im
from anychunk.model.grid import Shape
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, Json, Node, find
from anychunk.resample import BY_WINDOW, output_shape

REGION_BYTES = 16 * MIB
"""About how much is read, encoded and written at a time by one worker, where shards are smaller."""
ROOT_TWO = math.sqrt(2) * (1 + 1e-9)


def image_levels(source: Node, image: Image, path: str, wishes: Wishes) -> list[Level]:
    """Plan the levels of one image."""
    preset = presets.preset(wishes.like)
    first = _array(source, image.levels[0])
    names, order = target_axes(image, first.shape, wishes)
    wanted = preset.levels if wishes.levels is None else wishes.levels
    if data_kind(first) == "other" and wanted is not None:
        wishes.notes.append(f"{image.path or '/'}: {first.data_type} has no means; no levels made")
        wanted = None
    recipe = Recipe(order=order, names=names, path=path, wishes=wishes, attributes=image.attributes)
    if wanted is None or (wishes.levels is None and len(image.levels) > 1):
        # the source's own levels are copied as they are
        stored = [(_array(source, place), place) for place in image.levels]
        return [
            recipe.level(array, f"{i}", source=place)
            for i, (array, place) in enumerate(stored)
            if len(array.shape) == len(first.shape)
        ]
    levels = [recipe.level(first, "0", source=image.levels[0])]
    scale = tuple(image.scale[i] for i in order)
    for number, ratio in enumerate(pyramid(levels[0].shape, names, scale, wanted), 1):
        shape = output_shape(levels[-1].shape, ratio)
        levels.append(recipe.level(first, f"{number}", ratio=ratio, shape=shape))
    return levels


def beside_level(
    source: Node, name: str, path: str, wishes: Wishes, levels: Sequence[Level]
) -> Level:
    """Plan an array that stands beside `levels`, such as a mask, as it is."""
    array = _array(source, name)
    own, taken = name.rsplit("/", 1)[-1], {level.path for level in levels}
    while im.join(path, own) in taken:
        own += "_"  # levels are numbered through, whatever the source calls them
    recipe = Recipe(
        order=tuple(range(len(array.shape))),
        names=[axis["name"] for axis in im.named_axes(array)],
        path=path,
        wishes=Wishes(like=wishes.like, compression=wishes.compression),
    )
    return recipe.level(array, own, source=name)


def _array(source: Node, path: str) -> ArrayIndex:
    found = find(source, path)
    if not isinstance(found, ArrayIndex):
        raise FormatError(f"convert: {path} is no array of the source")
    return found


def target_axes(
    image: Image, shape: Shape, wishes: Wishes
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Give the names of the target's axes, and the source's axes in that order."""
    if wishes.axes is not None:
        names = tuple(wishes.axes)
        if len(names) != len(image.axes) or len(set(names)) != len(names):
            raise UnsupportedError(
                f"convert: axes {' '.join(names)} for an image of {len(image.axes)} axes; "
                "name each once"
            )
    else:
        names = image.names
    order = ome.ome_order(names)
    others = set(names) - {*presets.SPACE, "t", "time", "band"}
    if "band" in names and others and shape[names.index("band")] == 1:
        # OME-Zarr has one axis besides time and space; that of the only band says nothing
        order = tuple(i for i in order if names[i] != "band")
    return tuple(names[i] for i in order), order


def pyramid(
    shape: Shape, names: Sequence[str], scale: tuple[float, ...], wanted: int
) -> list[Shape]:
    """Give the ratio of each further level to the one before it.

    Axes in space are halved; z only while its elements are not clearly longer than the others:
    so that elements come nearer to cubes, and thin stacks keep their slices.
    """
    axes = presets.growing_axes(names)
    ratios: list[Shape] = []
    size = list(scale)
    while len(ratios) + 1 < wanted or (
        wanted == 0 and max((shape[i] for i in axes), default=0) > presets.SMALL
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
    """Say whether values of a type have means."""
    name = array.data_type
    if not isinstance(name, str):
        return "other"
    if name == "bool":
        return "bool"
    return "number" if name.startswith(("int", "uint", "float", "complex")) else "other"


def itemsize_of(array: ArrayIndex) -> int:
    # a string has none of its own: any small number plans as well as another
    return int(getattr(parse_dtype(array.data_type, zarr_format=3), "item_size", 16))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the arrays of one image are cut and encoded."""

    order: tuple[int, ...]
    names: Sequence[str]
    path: str
    wishes: Wishes
    attributes: Mapping[str, Json] = field(default_factory=dict)
    """Of the image, which may say what stands for nothing."""

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
        chunk, shard = self.cut(full, itemsize, stored)
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
            else smaller_ground(array.attributes, self.names, full, here),
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

    def cut(self, shape: Shape, itemsize: int, stored: Shape) -> tuple[Shape, Shape]:
        """Give chunk and shard, neither shortened to the array yet."""
        preset, wishes = presets.preset(self.wishes.like), self.wishes
        if wishes.chunk is None:
            most = preset.chunk_bytes // itemsize
            chunk = presets.chunk_shape(shape, self.names, most, stored)
        else:
            chunk = presets.trailing(wishes.chunk, len(shape), "chunk")
        if wishes.shard is False:
            return chunk, chunk
        if wishes.shard is None or wishes.shard is True:
            most = preset.shard_bytes // itemsize
            return chunk, presets.shard_shape(chunk, shape, self.names, most, stored)
        shard = presets.trailing(wishes.shard, len(shape), "shard")
        if any(s % c for s, c in zip(shard, chunk, strict=True)):
            raise UnsupportedError(f"convert: shard {shard} is no multiple of the chunk {chunk}")
        return chunk, shard

    def codecs(
        self, data_type: Json, inner: Shape, outer: Shape, itemsize: int
    ) -> tuple[Json, ...]:
        preset, wish = presets.preset(self.wishes.like), self.wishes.compression
        compressed = presets.compressors(preset.compression if wish is None else wish, itemsize)
        return presets.chain(data_type, inner, outer, compressed)

    def method(self, array: ArrayIndex) -> str:
        # what counts colours or classes has no mean
        is_counted = data_kind(array) == "bool" or drawing.palette(self.attributes) is not None
        found = self.wishes.method or ("mode" if is_counted else "average")
        if found not in BY_WINDOW:
            raise UnsupportedError(f"convert: method {found!r}; known: {' '.join(BY_WINDOW)}")
        return found


def smaller_ground(
    attributes: dict[str, Json], names: Sequence[str], full: Shape, here: Shape
) -> dict[str, Json]:
    """Give the georeference of a level by that of the first: windows of whole pixels each."""
    transform = attributes.get("spatial:transform")
    if not isinstance(transform, list) or len(transform) != 6 or not {"y", "x"} <= set(names):
        return {}
    down, across = (_power(full[i], here[i]) for i in (names.index("y"), names.index("x")))
    a, b, c, d, e, f = transform
    shape = (here[names.index("y")], here[names.index("x")])
    return geo.attributes(
        shape=shape,
        transform=geo.rescaled((a, b, c, d, e, f), across, down),
        code=attributes.get("proj:code"),
        projjson=attributes.get("proj:projjson"),
    )


def _power(full: int, here: int) -> int:
    """Give by how much an axis was halved again and again, each time without its rest."""
    ratio = 1
    while full > here:
        full, ratio = max(1, full // 2), ratio * 2
    return ratio


def region_shape(
    shard: Shape, shape: Shape, names: Sequence[str], itemsize: int, stored: Shape
) -> Shape:
    """Give how much is made at a time: whole shards, even along the axes that are halved."""
    most = REGION_BYTES // itemsize
    covered = tuple(min(n, s) for n, s in zip(shape, stored, strict=True))
    axes = presets.growing_axes(names)
    # twice as much is worth it where it saves reading stored chunks twice
    wide = presets.grow(list(shard), covered, axes, 2 * most)
    grown = list(presets.shard_shape(wide, shape, names, most, stored))
    for axis in axes:
        grown[axis] *= 1 + grown[axis] % 2
    return tuple(grown)
