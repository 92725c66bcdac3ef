"""The images of an index: which arrays are levels of one, and what their axes mean. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anychunk.errors import FormatError
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node, find

SPACE = ("z", "y", "x")
SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Floats that JSON has no number for, as Zarr metadata spells them."""
RANK = {"t": 0, "time": 0, "c": 1, "band": 1, "channel": 1, "z": 2, "y": 3, "x": 4}
"""The order of axes that OME-Zarr 0.5 asks for."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """Arrays that show the same at several resolutions."""

    path: str
    """Of its group; of the array itself where it stands alone."""
    levels: tuple[str, ...]
    """Paths of arrays, full resolution first."""
    beside: tuple[str, ...] = ()
    """Paths of further arrays of the group, such as masks."""
    attributes: Mapping[str, Json]
    axes: tuple[Mapping[str, str], ...]
    """As in `ome.multiscales`: name, and type and unit where known."""
    scale: tuple[float, ...]
    """Size of an element of the first level along each axis, in the axis' unit."""
    translation: tuple[float, ...]
    """Where the centre of its first element is."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis["name"] for axis in self.axes)


def images(node: Node, path: str = "") -> Iterator[Image]:
    """Yield every image of an index, depth first; an array in no pyramid is one of its own."""
    if isinstance(node, ArrayIndex):
        yield _lone(node, path)
        return
    levels = level_names(node)
    if levels:
        yield _image(node, path, levels)
    for name, member in node.members.items():
        if isinstance(member, GroupIndex) or not levels:
            yield from images(member, join(path, name))


def join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def level_names(group: GroupIndex) -> list[str]:
    """Give the members that are levels: as `ome` says, or else those that are numbers."""
    datasets = multiscale(group.attributes).get("datasets") or []
    named = [d.get("path") for d in datasets if isinstance(d, Mapping)]
    found = [n for n in named if isinstance(n, str) and isinstance(find(group, n), ArrayIndex)]
    if found:
        return found
    numbers = sorted((n for n in group.members if n.isascii() and n.isdigit()), key=int)
    return [n for n in numbers if isinstance(group.members[n], ArrayIndex)]


def multiscale(attributes: Mapping[str, Json]) -> Mapping[str, Json]:
    ome = attributes.get("ome")
    found = ome.get("multiscales") if isinstance(ome, Mapping) else None
    first = found[0] if isinstance(found, Sequence) and found else {}
    return first if isinstance(first, Mapping) else {}


def _image(group: GroupIndex, path: str, levels: list[str]) -> Image:
    first = group[levels[0]]
    if not isinstance(first, ArrayIndex):
        raise FormatError(f"{path}: its level {levels[0]} is a group")
    described = multiscale(group.attributes)
    axes = described.get("axes") or ()
    if len(axes) != len(first.shape) or not all(
        isinstance(a, Mapping) and isinstance(a.get("name"), str) for a in axes
    ):
        axes = named_axes(first)
    scale, translation = transformation(described, levels[0], len(first.shape))
    beside = [
        name
        for name, member in group.members.items()
        if isinstance(member, ArrayIndex) and name not in levels
    ]
    return Image(
        path=path,
        levels=tuple(join(path, name) for name in levels),
        beside=tuple(join(path, name) for name in beside),
        attributes=group.attributes,
        axes=tuple(axes),
        scale=scale,
        translation=translation,
    )


def _lone(array: ArrayIndex, path: str) -> Image:
    ones, zeros = (1.0,) * len(array.shape), (0.0,) * len(array.shape)
    return Image(
        path=path,
        levels=(path,),
        attributes={},
        axes=tuple(named_axes(array)),
        scale=ones,
        translation=zeros,
    )


def named_axes(array: ArrayIndex) -> list[dict[str, str]]:
    return [{"name": name or f"dim_{i}"} for i, name in enumerate(array.dimension_names)]


def transformation(
    described: Mapping[str, Any], path: str, ndim: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Give scale and translation that `multiscales` has for a level."""
    datasets = described.get("datasets") or ()
    own = next((d for d in datasets if isinstance(d, Mapping) and d.get("path") == path), {})
    scale, translation = [1.0] * ndim, [0.0] * ndim
    steps = [*own.get("coordinateTransformations", ())]
    steps += described.get("coordinateTransformations") or ()
    for step in steps:
        values = step.get(step.get("type")) if isinstance(step, Mapping) else None
        if not isinstance(values, Sequence) or len(values) != ndim:
            continue
        if step["type"] == "scale":
            scale = [a * b for a, b in zip(scale, values, strict=True)]
            translation = [a * b for a, b in zip(translation, values, strict=True)]
        elif step["type"] == "translation":
            translation = [a + b for a, b in zip(translation, values, strict=True)]
    return tuple(scale), tuple(translation)


def nodata(attributes: Mapping[str, Json], array: ArrayIndex) -> float | None:
    """Give the value that stands for nothing: a fill value that the source sets.

    Zero is what absent chunks read as anyway; it stands for nothing only where GDAL's tag says so.
    """
    value = SPECIAL.get(array.fill_value) if isinstance(array.fill_value, str) else array.fill_value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if value != 0 or _says_zero(attributes) else None


def _says_zero(attributes: Mapping[str, Json]) -> bool:
    tiff = attributes.get("tiff")
    tags = tiff.get("tags") if isinstance(tiff, Mapping) else None
    try:
        return isinstance(tags, Mapping) and float(str(tags["GDAL_NODATA"]).strip("\0 \n")) == 0
    except (KeyError, ValueError):
        return False


def packing(attributes: Mapping[str, Json], bands: int) -> tuple[float, float] | None:
    """Give (scale, offset) where GDAL's metadata has the same for all bands, and not (1, 0)."""
    tiff = attributes.get("tiff")
    found = tiff.get("gdal_metadata") if isinstance(tiff, Mapping) else None
    each = [v for k, v in found.items() if k.startswith("band ")] if found else []
    try:
        pairs = {(float(b.get("SCALE", 1)), float(b.get("OFFSET", 0))) for b in each}
    except (AttributeError, TypeError, ValueError):
        return None
    is_one = len(pairs) == 1 and len(each) == bands
    return next(iter(pairs)) if is_one and pairs != {(1.0, 0.0)} else None


def ome_order(names: Sequence[str]) -> tuple[int, ...]:
    """Give the axes in the order of OME-Zarr; as they are where one is unknown there."""
    if not all(name in RANK for name in names):
        return tuple(range(len(names)))
    return tuple(sorted(range(len(names)), key=lambda i: RANK[names[i]]))


def chosen(found: Sequence[Image], image: int | str | None) -> Image:
    """Give the image of this number, or at this path; the first by default."""
    if isinstance(image, str) and any(i.path == image for i in found):
        return next(i for i in found if i.path == image)
    text = str(image or 0)
    number = int(text) if text.isdigit() else -1
    if not 0 <= number < len(found):
        known = " ".join(i.path or "/" for i in found[:20])
        raise KeyError(f"no image {image!r}; there are {len(found)}: {known}")
    return found[number]


def array_path(node: Node, image: int | str, level: int | str) -> str:
    """Return the path of a level of an image, given by number or by path.

    A path at which there is no array is returned as it is: opening it says what there is.
    """
    path = "" if isinstance(node, ArrayIndex) else f"{image}/{level}"
    if isinstance(find(node, path), ArrayIndex):
        return path
    try:
        return chosen(list(images(node)), image).levels[int(level)]
    except (KeyError, IndexError, ValueError):
        return path


def palette(attributes: Mapping[str, Json]) -> list[Any] | None:
    """Give the colours that an image's values count, as the format's own attributes have them."""
    for native in attributes.values():
        table = native.get("color_map") if isinstance(native, Mapping) else None
        if isinstance(table, list):
            return table
    return None
