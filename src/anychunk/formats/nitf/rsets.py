"""R-sets: reduced resolutions of an image in files beside it, `.r1` half as large, and so on."""

from collections.abc import Callable
from dataclasses import replace

from anychunk.errors import AnychunkError
from anychunk.io import Source, Storage, buffered, open_source, resolve
from anychunk.metadata.ome import Axis, ome, shrunk_levels
from anychunk.model.index import ArrayIndex, GroupIndex
from anychunk.model.pin import Pin

MOST = 16
"""Levels that are looked for at the most: a larger image cannot be."""


def with_rsets(
    index: GroupIndex, main: Source, parse: Callable[[Source], GroupIndex]
) -> GroupIndex:
    """Add the files beside a file as levels of its only image."""
    full = only_array(index)
    if full is None:
        return index
    base = main.url.removesuffix(".r0")
    levels, pins = [full], dict(index.pins)
    for number in range(1, MOST):
        found = sibling(f"{base}.r{number}", parse, main.storage)
        if found is None or not is_smaller(found[0], levels[-1]):
            break
        levels.append(found[0])
        pins.update(found[1])
    if len(levels) == 1:
        return index
    group = index.members["0"]
    assert isinstance(group, GroupIndex)
    names = [str(i) for i in range(len(levels))]
    axes = [Axis(name=name) for name in ("band", "y", "x")]
    shapes = [level.shape for level in levels]
    described = ome(axes, shrunk_levels(names, shapes, (1.0, 1.0, 1.0)))
    members = dict(zip(names, levels, strict=True))
    image = replace(group, members=members, attributes={**group.attributes, "ome": described})
    return replace(index, members={"0": image}, pins=pins)


def only_array(index: GroupIndex) -> ArrayIndex | None:
    """Give the array of a file that has one image with one level."""
    group = index.members.get("0")
    if len(index.members) != 1 or not isinstance(group, GroupIndex) or len(group.members) != 1:
        return None
    array = group.members["0"]
    return array if isinstance(array, ArrayIndex) else None


def sibling(
    url: str, parse: Callable[[Source], GroupIndex], storage: Storage | None
) -> tuple[ArrayIndex, dict[str, Pin]] | None:
    """Index a file beside another; None where there is none, or none that fits."""
    try:
        folder, _, name = url.rpartition("/")
        resolve(folder or ".", name)  # a link that leads out is none that fits
        source = open_source(url, storage=storage)
        array = only_array(parse(buffered(source)))
    except (FileNotFoundError, AnychunkError):
        return None
    return None if array is None else (array, {url: source.pin()})


def is_smaller(array: ArrayIndex, before: ArrayIndex) -> bool:
    """Whether an array can be the next level: the same samples, half of the rows and columns."""
    if (array.data_type, array.shape[0]) != (before.data_type, before.shape[0]):
        return False
    return all(
        abs(2 * small - large) <= 2
        for small, large in zip(array.shape[1:], before.shape[1:], strict=True)
    )
