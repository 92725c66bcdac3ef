"""The images of an index: which arrays are the levels of which image, with axes and scales."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anychunk.errors import FormatError, NoSuchImageError
from anychunk.model.index import (
    CONTROL,
    ArrayIndex,
    GroupIndex,
    Json,
    Node,
    find,
    known_arrays,
)

VARIABLE = "image"
"""Name of the array in a level group."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image: arrays that hold the same content at several resolutions."""

    path: str
    """Path of its group, or of the array if that is outside of any multiscale group."""
    levels: tuple[str, ...]
    """Paths of the arrays, full resolution first."""
    beside: tuple[str, ...] = ()
    """Paths of other arrays that belong to the image, such as masks; coordinates are not listed."""
    attributes: Mapping[str, Json]
    """Attributes of its group, or of the array if that is outside of any multiscale group."""
    axes: tuple[Mapping[str, str], ...]
    """Entries of `ome.multiscales` axes: name, and type and unit if known."""
    scale: tuple[float, ...]
    """Size of one element of the first level along each axis, in the axis' unit."""
    translation: tuple[float, ...]
    """Position of the centre of the first level's first element."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(axis["name"] for axis in self.axes)

    def below(self, level: int) -> str:
        """Return the path of a level's array, relative to the image group."""
        return self.levels[level].removeprefix(self.path).strip("/")

    @property
    def level_names(self) -> tuple[str, ...]:
        """Names of the levels: of the level groups, or of the arrays where there are none."""
        return tuple(self.below(n).split("/")[0] or str(n) for n in range(len(self.levels)))


def images(node: Node, path: str = "") -> Iterator[Image]:
    """Yield every image of an index, depth first.

    An array outside of a multiscale group is an image, unless it is a coordinate.
    """
    if isinstance(node, ArrayIndex):
        yield _lone(node, path)
        return
    levels = level_paths(node)
    if levels:
        yield _image(node, path, levels)
    taken = {level.split("/")[0] for level in levels}
    named: set[str] | None = None
    for name, member in node.members.items():
        if isinstance(member, GroupIndex):
            if name not in taken:
                yield from images(member, join(path, name))
        elif not levels and not is_coordinate(name, member):
            if named is None:
                named = described_by(node)
            if name not in named:
                yield _lone(member, join(path, name))


def image_around(node: Node, path: str) -> Image | None:
    """Return the image that has the array at `path` as one of its levels; None if none has.

    Only the groups above the array are looked at: a container may hold very many images.
    """
    if isinstance(node, ArrayIndex):
        return None if path else _lone(node, path)
    parts = path.split("/")
    for count in reversed(range(len(parts))):
        place, below = "/".join(parts[:count]), "/".join(parts[count:])
        group = find(node, place)
        if isinstance(group, GroupIndex) and below in (levels := level_paths(group)):
            return _image(group, place, levels)
    found = find(node, path)
    return _lone(found, path) if isinstance(found, ArrayIndex) else None


def join(path: str, name: str) -> str:
    """Return the path of a member of the node at `path`."""
    return f"{path}/{name}" if path else name


def described_by(group: GroupIndex) -> set[str]:
    """Return the names of arrays that describe others of a group, by CF's attributes of those.

    The mask of a level group is one of them.
    """
    found: set[str] = {"mask"} if isinstance(group.members.get(VARIABLE), ArrayIndex) else set()
    arrays = [(n, a) for n, a in group.members.items() if isinstance(a, ArrayIndex)]
    for name, array in arrays:
        for key in ("coordinates", "grid_mapping", "bounds"):
            text = array.attributes.get(key)
            if isinstance(text, str):
                found |= {word.rstrip(":") for word in text.split()} - {name}
    # arrays that name each other are all images
    return found if len(found & {n for n, _ in arrays}) < len(arrays) else set()


def is_coordinate(name: str, array: ArrayIndex) -> bool:
    """Return whether an array only describes others: a scalar, or named after its dimension."""
    return not array.shape or array.dimension_names == (name,)


def level_paths(group: GroupIndex) -> list[str]:
    """Return the paths of the arrays below an image group that are its levels.

    As listed in `ome.multiscales`, or in GeoZarr's `multiscales`, or else the arrays whose names
    are numbers, in numeric order.
    """
    datasets = entries(multiscale(group.attributes).get("datasets"))
    named = [d.get("path") for d in datasets if isinstance(d, Mapping)]
    found = [n for n in named if isinstance(n, str) and isinstance(find(group, n), ArrayIndex)]
    if found:
        return found
    found = [path for asset in _assets(group.attributes) if (path := _asset_array(group, asset))]
    if found:
        return found
    numbers = sorted((n for n in group.members if n.isascii() and n.isdigit()), key=int)
    return [n for n in numbers if isinstance(group.members[n], ArrayIndex)]


def _assets(attributes: Mapping[str, Json]) -> list[str]:
    """Return the paths of the levels that GeoZarr's `multiscales` lists."""
    described = attributes.get("multiscales")
    layout = entries(described.get("layout")) if isinstance(described, Mapping) else ()
    assets = [entry.get("asset") for entry in layout if isinstance(entry, Mapping)]
    return [asset for asset in assets if isinstance(asset, str)]


def _asset_array(group: GroupIndex, asset: str) -> str | None:
    """Return the path of the array of a level: itself, or the only image in a level group."""
    node = find(group, asset)
    if isinstance(node, ArrayIndex):
        return asset
    if node is None:
        return None
    if isinstance(node.members.get(VARIABLE), ArrayIndex):
        return join(asset, VARIABLE)
    inside = [
        name
        for name, member in node.members.items()
        if isinstance(member, ArrayIndex) and not is_coordinate(name, member)
    ]
    return join(asset, inside[0]) if len(inside) == 1 else None


def multiscale(attributes: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the first entry of `ome.multiscales`; empty if there is none.

    OME-Zarr before 0.5 has the list among the attributes themselves, where GeoZarr has an object.
    """
    ome = attributes.get("ome")
    found = (ome if isinstance(ome, Mapping) else attributes).get("multiscales")
    first: Json = next(iter(entries(found)), {})
    return first if isinstance(first, Mapping) else {}


def entries(value: Json) -> Sequence[Json]:
    """Return a list of attributes, which come from a file and may be anything; empty if none."""
    return value if isinstance(value, list | tuple) else ()


def _image(group: GroupIndex, path: str, levels: list[str]) -> Image:
    first = group[levels[0]]
    if not isinstance(first, ArrayIndex):
        raise FormatError(f"{path}: level {levels[0]} is a group, expected an array")
    described = multiscale(group.attributes)
    axes = entries(described.get("axes"))
    if len(axes) != len(first.shape) or not all(
        isinstance(a, Mapping) and isinstance(a.get("name"), str) and not CONTROL.search(a["name"])
        for a in axes
    ):
        axes = named_axes(first)
    scale, translation = transformation(described, levels[0], len(first.shape))
    beside = [
        name
        for name, member in group.members.items()
        if isinstance(member, ArrayIndex) and name not in levels and not is_coordinate(name, member)
    ]
    for level in levels:
        folder, _, own = level.rpartition("/")
        around = find(group, folder) if folder else None
        if isinstance(around, GroupIndex) and own in around.members and "mask" in around.members:
            beside.append(join(folder, "mask"))
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
        attributes=array.attributes,
        axes=tuple(named_axes(array)),
        scale=ones,
        translation=zeros,
    )


def named_axes(array: ArrayIndex) -> list[dict[str, str]]:
    """Return the axes of an array by its dimension names; unnamed axes are numbered."""
    return [{"name": name or f"dim_{i}"} for i, name in enumerate(array.dimension_names)]


def transformation(
    described: Mapping[str, Any], path: str, ndim: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the scale and the translation of one level.

    Parameters:
        described: an entry of `ome.multiscales`.
        path: path of the level's array, as in `datasets`.
        ndim: number of axes; transformations of another length are ignored.
    """
    datasets = entries(described.get("datasets"))
    own = next((d for d in datasets if isinstance(d, Mapping) and d.get("path") == path), {})
    scale, translation = [1.0] * ndim, [0.0] * ndim
    # OME-Zarr 0.5: those of the dataset are applied first, then those of the whole multiscale
    for step in (
        *entries(own.get("coordinateTransformations")),
        *entries(described.get("coordinateTransformations")),
    ):
        kind = step.get("type") if isinstance(step, Mapping) else None
        if kind not in ("scale", "translation"):
            continue
        values = entries(step.get(kind))
        if len(values) != ndim or not all(isinstance(v, int | float) for v in values):
            continue
        if kind == "scale":
            scale = [a * b for a, b in zip(scale, values, strict=True)]
            translation = [a * b for a, b in zip(translation, values, strict=True)]
        else:
            translation = [a + b for a, b in zip(translation, values, strict=True)]
    return tuple(scale), tuple(translation)


def chosen(found: Sequence[Image], image: int | str | None) -> Image:
    """Return the image with this number or path; the first by default.

    Raises:
        NoSuchImageError: there is no such image.
    """
    if isinstance(image, str) and any(i.path == image for i in found):
        return next(i for i in found if i.path == image)
    text = str(image or 0)
    number = int(text) if text.isdigit() else -1
    if not 0 <= number < len(found):
        known = " ".join(i.path or "/" for i in found[:20])
        raise NoSuchImageError(f"no image {image!r}; there are {len(found)}: {known}")
    return found[number]


def array_path(node: Node, image: int | str, level: int | str) -> str:
    """Return the path of a level of an image, given by number or by path.

    Parameters:
        node: the index.
        image: the number of the image, or its path.
        level: the number of the level, 0 for full resolution, -1 for the coarsest; or its name.

    A path without an array is returned unchanged: the error of opening it lists what exists.
    """
    path = "" if isinstance(node, ArrayIndex) else f"{image}/{level}"
    at_once = known_arrays(node)
    if at_once is not None and join(path, VARIABLE) in at_once:
        return join(path, VARIABLE)
    for known in (path, join(path, VARIABLE)):
        if isinstance(find(node, known), ArrayIndex):
            return known
    try:
        found = chosen(list(images(node)), image)
        if isinstance(level, str) and level in found.level_names:
            return found.levels[found.level_names.index(level)]
        return found.levels[int(level)]
    except (KeyError, IndexError, ValueError):
        return path
