"""The images of an index: which arrays are the levels of which image, with axes and scales."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anychunk.errors import FormatError
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node, find


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image: arrays that hold the same content at several resolutions."""

    path: str
    """Path of its group, or of the array if that is outside of any multiscale group."""
    levels: tuple[str, ...]
    """Paths of the arrays, full resolution first."""
    beside: tuple[str, ...] = ()
    """Paths of the group's other arrays, such as masks."""
    attributes: Mapping[str, Json]
    """Attributes of its group; empty for an array outside of any multiscale group."""
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


def images(node: Node, path: str = "") -> Iterator[Image]:
    """Yield every image of an index, depth first; an array outside of a multiscale is an image."""
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
    """Return the path of a member of the node at `path`."""
    return f"{path}/{name}" if path else name


def level_names(group: GroupIndex) -> list[str]:
    """Return the names of the arrays in an image group that are its levels.

    As listed in `ome.multiscales`, or else the arrays whose names are numbers, in numeric order.
    """
    datasets = multiscale(group.attributes).get("datasets") or []
    named = [d.get("path") for d in datasets if isinstance(d, Mapping)]
    found = [n for n in named if isinstance(n, str) and isinstance(find(group, n), ArrayIndex)]
    if found:
        return found
    numbers = sorted((n for n in group.members if n.isascii() and n.isdigit()), key=int)
    return [n for n in numbers if isinstance(group.members[n], ArrayIndex)]


def multiscale(attributes: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the first entry of `ome.multiscales`; empty if there is none."""
    ome = attributes.get("ome")
    found = ome.get("multiscales") if isinstance(ome, Mapping) else None
    first = found[0] if isinstance(found, Sequence) and found else {}
    return first if isinstance(first, Mapping) else {}


def _image(group: GroupIndex, path: str, levels: list[str]) -> Image:
    first = group[levels[0]]
    if not isinstance(first, ArrayIndex):
        raise FormatError(f"{path}: level {levels[0]} is a group, expected an array")
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
    datasets = described.get("datasets") or ()
    own = next((d for d in datasets if isinstance(d, Mapping) and d.get("path") == path), {})
    scale, translation = [1.0] * ndim, [0.0] * ndim
    # OME-Zarr 0.5: those of the dataset are applied first, then those of the whole multiscale
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


def chosen(found: Sequence[Image], image: int | str | None) -> Image:
    """Return the image with this number or path; the first by default.

    Raises:
        KeyError: there is no such image.
    """
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

    A path without an array is returned unchanged: the error of opening it lists what exists.
    """
    path = "" if isinstance(node, ArrayIndex) else f"{image}/{level}"
    if isinstance(find(node, path), ArrayIndex):
        return path
    try:
        return chosen(list(images(node)), image).levels[int(level)]
    except (KeyError, IndexError, ValueError):
        return path
