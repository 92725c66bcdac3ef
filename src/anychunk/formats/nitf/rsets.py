"""R-sets: reduced resolutions of an image in sibling files, each half as large: .r1, .r2 …"""

from collections.abc import Callable
from dataclasses import replace

from anychunk.errors import AnychunkError
from anychunk.formats.nitf.attributes import ome_attribute
from anychunk.io import Source, Storage, buffered, open_source, resolve
from anychunk.model.index import ArrayIndex, GroupIndex
from anychunk.model.pin import Pin

MAX_LEVELS = 16
"""Maximum number of levels, including full resolution."""


def with_rsets(
    index: GroupIndex, main: Source, parse: Callable[[Source], GroupIndex]
) -> GroupIndex:
    """Add the R-set files next to a file as levels of its image.

    Files with several images, or whose image has several levels already, are returned unchanged.

    Parameters:
        index: index of the file.
        main: source of the file; `.r1` … are appended to its url, or replace its `.r0`.
        parse: indexes one file.
    """
    full = only_array(index)
    if full is None:
        return index
    base = main.url.removesuffix(".r0")
    levels, pins = [full], dict(index.pins)
    for number in range(1, MAX_LEVELS):
        found = sibling(f"{base}.r{number}", parse, main.storage)
        if found is None or not is_next_level(found[0], levels[-1]):
            break
        levels.append(found[0])
        pins.update(found[1])
    if len(levels) == 1:
        return index
    group = index.members["0"]
    assert isinstance(group, GroupIndex)
    members = {str(i): level for i, level in enumerate(levels)}
    attributes = {**group.attributes, "ome": ome_attribute(levels)}
    image = replace(group, members=members, attributes=attributes)
    return replace(index, members={"0": image}, pins=pins)


def only_array(index: GroupIndex) -> ArrayIndex | None:
    """Return the array of a file with one image of one level; None for any other file."""
    group = index.members.get("0")
    if len(index.members) != 1 or not isinstance(group, GroupIndex) or len(group.members) != 1:
        return None
    array = group.members["0"]
    return array if isinstance(array, ArrayIndex) else None


def sibling(
    url: str, parse: Callable[[Source], GroupIndex], storage: Storage | None
) -> tuple[ArrayIndex, dict[str, Pin]] | None:
    """Return the array and the pin of a file; None if it does not exist or cannot be opened."""
    try:
        folder, _, name = url.rpartition("/")
        resolve(folder or ".", name)  # raises for a link that leads out of the folder
        source = open_source(url, storage=storage)
        array = only_array(parse(buffered(source)))
    except (FileNotFoundError, AnychunkError):
        return None
    return None if array is None else (array, {url: source.pin()})


def is_next_level(array: ArrayIndex, before: ArrayIndex) -> bool:
    """Return whether `array` has the bands and type of `before`, and half its size."""
    if (array.data_type, array.shape[0]) != (before.data_type, before.shape[0]):
        return False
    # writers round odd sizes up or down
    return all(
        abs(2 * small - large) <= 2
        for small, large in zip(array.shape[1:], before.shape[1:], strict=True)
    )
