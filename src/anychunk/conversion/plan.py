"""What a conversion makes from what. Pure, plain data: it travels to a Dask worker."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from zarr.core.dtype import parse_dtype

from anychunk import georeference, multiscales
from anychunk import images as im
from anychunk.conversion import presets
from anychunk.downsample import BY_WINDOW
from anychunk.errors import FormatError, UnsupportedError
from anychunk.images import Image
from anychunk.index import ArrayIndex, GroupIndex, Json, Node, Shape, find, grid_shape
from anychunk.limits import MIB

REGION_BYTES = 16 * MIB
"""About how much is read, encoded and written at a time by one worker, where shards are smaller."""
TASK_REGIONS = 16
"""How many regions of the finest level one task makes, at the most."""
ROOT_TWO = math.sqrt(2) * (1 + 1e-9)


@dataclass(frozen=True, kw_only=True)
class Level:
    """One array to write."""

    path: str
    """In the target."""
    source: str | None
    """Path of the array that it is a copy of; None: made from the level before."""
    order: tuple[int, ...]
    """Axes of the source, in the order of the target; what is left out has length one."""
    ratio: Shape
    """How many elements of the level before become one, along each axis."""
    shape: Shape
    outer: Shape
    """Elements of one object in the store: a shard, or a chunk where there are no shards."""
    region: Shape
    """Elements that are made at a time: whole objects."""
    nodata: float | None
    method: str
    itemsize: int
    metadata: dict[str, Json]

    @property
    def grid(self) -> Shape:
        return grid_shape(self.shape, self.region)

    def bounds(self, coords: Shape) -> tuple[Shape, Shape]:
        """Give start and stop of a region."""
        start = tuple(c * r for c, r in zip(coords, self.region, strict=True))
        stop = tuple(min(a + r, n) for a, r, n in zip(start, self.region, self.shape, strict=True))
        return start, stop

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.itemsize


@dataclass(frozen=True, kw_only=True)
class Run:
    """Consecutive levels that are made together, so that the finest is read once."""

    levels: tuple[Level, ...]
    """All of the image up to the last of this run: what is finer than `first` is read back."""
    first: int

    @property
    def top(self) -> Level:
        return self.levels[-1]


@dataclass(frozen=True, kw_only=True)
class Plan:
    source: Node
    runs: tuple[Run, ...]
    groups: dict[str, dict[str, Json]]
    """Attributes of every group of the target, by path."""
    arrays: tuple[Level, ...]
    fingerprint: str
    """Of source and plan: what tells whether an unfinished target belongs to it."""
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(level.nbytes for level in self.arrays)


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the caller asks for."""

    like: str = "ome-zarr"
    chunk: Sequence[int] | None = None
    shard: Sequence[int] | bool | None = None
    compression: str | Sequence[Json] | None = None
    levels: int | None = None
    method: str | None = None
    axes: Sequence[str] | None = None
    image: int | str | None = None
    notes: list[str] = field(default_factory=list)


def make_plan(source: Node, wishes: Wishes, workers: int) -> Plan:
    """Plan a Zarr v3 hierarchy that holds what the source does."""
    found = list(im.images(source))
    if wishes.image is not None:
        found = [im.chosen(found, wishes.image)]
    if not found:
        raise FormatError("convert: the source holds no array")
    is_one = len(found) == 1
    groups: dict[str, dict[str, Json]] = {"": root_attributes(source, found, is_one=is_one)}
    runs: list[Run] = []
    arrays: list[Level] = []
    for image in found:
        path = "" if is_one else image.path
        levels = image_levels(source, image, path, wishes)
        groups[path] = {**groups.get(path, {}), **image_attributes(image, levels, wishes)}
        extra = [beside_level(source, name, path, wishes) for name in image.beside]
        arrays += [*levels, *extra]
        for chain in (levels, *((level,) for level in extra)):
            runs += split_runs(tuple(chain), workers)
    for path in list(groups):
        for parent in parents(path):
            groups.setdefault(parent, group_attributes(source, parent))
    return Plan(
        source=source,
        runs=tuple(runs),
        groups=groups,
        arrays=tuple(arrays),
        fingerprint=fingerprint(source, arrays, groups),
        notes=tuple(dict.fromkeys(wishes.notes)),
    )


def parents(path: str) -> list[str]:
    parts = path.split("/")[:-1] if path else []
    return ["/".join(parts[:n]) for n in range(len(parts) + 1)]


def group_attributes(source: Node, path: str) -> dict[str, Json]:
    group = find(source, path)
    return dict(group.attributes) if isinstance(group, GroupIndex) else {}


def root_attributes(source: Node, found: list[Image], *, is_one: bool) -> dict[str, Json]:
    """Keep the source's own attributes; say where the data is from."""
    kept = {k: v for k, v in source.attributes.items() if k != "anychunk"}
    about = source.attributes.get("anychunk", {})
    kept["anychunk"] = {"converted_from": about}
    numbers = [image.path for image in found]
    if not is_one and all(n.isdigit() for n in numbers):
        kept["ome"] = {"version": "0.5", "bioformats2raw.layout": 3}
    return kept


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
        shape = tuple(max(1, n // r) for n, r in zip(levels[-1].shape, ratio, strict=True))
        levels.append(recipe.level(first, f"{number}", ratio=ratio, shape=shape))
    return levels


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
    order = im.ome_order(names)
    others = set(names) - {*presets.SPACE, "t", "time", "band"}
    if "band" in names and others and shape[names.index("band")] == 1:
        # OME-Zarr has one axis besides time and space; that of the only band says nothing
        order = tuple(i for i in order if names[i] != "band")
    return tuple(names[i] for i in order), order


def _array(source: Node, path: str) -> ArrayIndex:
    found = find(source, path)
    if not isinstance(found, ArrayIndex):
        raise FormatError(f"convert: {path} is no array of the source")
    return found


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
        shape = tuple(max(1, n // r) for n, r in zip(shape, ratio, strict=True))
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
            nodata=im.nodata(self.attributes, array),
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
        is_counted = data_kind(array) == "bool" or im.palette(self.attributes) is not None
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
    return georeference.attributes(
        shape=shape,
        transform=georeference.rescaled((a, b, c, d, e, f), across, down),
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


def beside_level(source: Node, name: str, path: str, wishes: Wishes) -> Level:
    """Plan an array that stands beside the levels, such as a mask, as it is."""
    array = _array(source, name)
    recipe = Recipe(
        order=tuple(range(len(array.shape))),
        names=[axis["name"] for axis in im.named_axes(array)],
        path=path,
        wishes=Wishes(like=wishes.like, compression=wishes.compression),
    )
    return recipe.level(array, name.rsplit("/", 1)[-1], source=name)


def image_attributes(image: Image, levels: Sequence[Level], wishes: Wishes) -> dict[str, Json]:
    """Keep the attributes of an image group; describe the levels that are written."""
    kept = {k: v for k, v in image.attributes.items() if k != "anychunk"}
    names = levels[0].metadata["dimension_names"]
    if not {"x", "y"} <= set(names) or not 2 <= len(names) <= 5:
        wishes.notes.append(
            f"{image.path or '/'}: axes {' '.join(names)} are none of OME-Zarr, so no ome "
            "attribute is written; name them with axes, such as zyx"
        )
        kept.pop("ome", None)
        return kept
    order = levels[0].order
    units = {a["name"]: a.get("unit") for a in image.axes} if wishes.axes is None else {}
    axes = [multiscales.Axis(name=n, unit=units.get(n)) for n in names]
    made = multiscales.ome(axes, level_scales(image, levels, order))
    before = kept.get("ome", {})
    described = (before.get("multiscales") or [{}])[0]
    named = {k: described[k] for k in ("name", "metadata") if k in described}
    if len(levels) > 1 and levels[1].source is None:
        named["type"] = levels[1].method
    made["multiscales"][0] = {**made["multiscales"][0], **named}
    kept["ome"] = {**before, **made}
    return kept


def level_scales(
    image: Image, levels: Sequence[Level], order: tuple[int, ...]
) -> list[multiscales.Level]:
    """Give scale and translation of every level, by the windows that its elements stand for."""
    scale = tuple(image.scale[i] for i in order)
    origin = tuple(image.translation[i] for i in order)
    if len(levels) > 1 and levels[1].source is not None:
        return copied_scales(image, levels, order)
    found = []
    factor = (1,) * len(scale)
    for level in levels:
        factor = tuple(f * r for f, r in zip(factor, level.ratio, strict=True))
        found.append(
            multiscales.Level(
                path=level.path.rsplit("/", 1)[-1],
                scale=tuple(s * f for s, f in zip(scale, factor, strict=True)),
                translation=tuple(
                    o + s * (f - 1) / 2 for o, s, f in zip(origin, scale, factor, strict=True)
                ),
            )
        )
    return found


def copied_scales(
    image: Image, levels: Sequence[Level], order: tuple[int, ...]
) -> list[multiscales.Level]:
    """Keep what the source says of levels that are copied."""
    described = im.multiscale(image.attributes)
    if not described:
        shapes = [level.shape for level in levels]
        scale = tuple(image.scale[i] for i in order)
        paths = [level.path.rsplit("/", 1)[-1] for level in levels]
        return multiscales.shrunk_levels(paths, shapes, scale)
    found = []
    for level, path in zip(levels, image.levels, strict=True):
        name = path.removeprefix(image.path).strip("/")
        scale, origin = im.transformation(described, name, len(image.axes))
        found.append(
            multiscales.Level(
                path=level.path.rsplit("/", 1)[-1],
                scale=tuple(scale[i] for i in order),
                translation=tuple(origin[i] for i in order),
            )
        )
    return found


def split_runs(levels: tuple[Level, ...], workers: int) -> list[Run]:
    """Join levels into runs: few reads, yet tasks enough for every worker."""
    runs = []
    first = 0
    while first < len(levels):
        last = first
        while last + 1 < len(levels) and levels[last + 1].source is None:
            above = levels[last + 1]
            regions = math.prod(levels[first].grid) / max(1, math.prod(above.grid))
            if math.prod(above.grid) < 4 * workers or regions > TASK_REGIONS:
                break
            last += 1
        runs.append(Run(levels=levels[: last + 1], first=first))
        first = last + 1
    return runs


def fingerprint(source: Node, arrays: Sequence[Level], groups: dict[str, Any]) -> str:
    """Name this conversion: the same source, made the same way."""
    content = {
        "arrays": [[a.path, a.source, a.order, a.ratio, a.method, a.metadata] for a in arrays],
        "groups": groups,
        "pins": {url: [p.size, p.etag, p.mtime_ns] for url, p in source.pins.items()},
    }
    text = json.dumps(content, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> Json:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no JSON")
