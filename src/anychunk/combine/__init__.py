"""Combine the indexes of many files into one: stacked, concatenated, mosaicked or grouped.

Only chunk tables are joined; no chunk is read. So the chunks must fit: the same data type and chunk
shape everywhere, and boundaries between files only at chunk boundaries. Files may be compressed in
different ways. An error names the first file that does not fit, and what differs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, cast

from anychunk.combine.compatibility import Files, check_sample_meaning
from anychunk.combine.concat import axis_number, concat
from anychunk.combine.images import (
    Arrays,
    SameImages,
    check_levels,
    full_arrays,
    image_node,
    joined_levels,
    rebuilt,
    same_images,
    with_common_levels,
)
from anychunk.combine.mosaic import Overlap, mosaic
from anychunk.combine.shared_edges import without_shared_edges
from anychunk.combine.stack import stack
from anychunk.errors import FormatError
from anychunk.formats._jpeg2000_windows import divided_tree, whole_tree
from anychunk.io.secrets import without_secrets
from anychunk.io.url import absolute, is_remote
from anychunk.metadata import comparison, joining
from anychunk.metadata.dates import Georeference
from anychunk.metadata.meaning import Level
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node
from anychunk.model.pin import Pin  # noqa: TC001 - the annotation is read at run time elsewhere

type How = Literal["stack", "concat", "mosaic", "group"]


def combine(
    files: Mapping[str, Node],
    how: How,
    *,
    along: str | int | None = None,
    overlap: Overlap = "error",
    names: Sequence[str] | None = None,
    dates: Mapping[str, int | None] | None = None,
    georeference: Georeference = "error",
) -> GroupIndex:
    """Combine the indexes of several files into one.

    Parameters:
        files: The indexes, by url; the order is that of the result.
        how: "stack" (new axis), "concat" (along an axis), "mosaic" (one map grid), "group".
        along: For "stack" the name of the new axis, t, z or c; by default t, or z if files have t.
            For "concat" the name or number of an axis.
        overlap: For "mosaic", whose chunk is used where files overlap; "error" refuses overlaps.
        names: For "group", the names of the groups; derived from the urls by default.
        dates: For "stack" along t, the date of each file (`metadata.dates`), by url; by default
            what the files state.
        georeference: For "stack", what happens if files are at different places: "error", or "drop"
            to drop their georeference with a warning.

    Raises:
        ValueError: If there are no files, or the options do not fit `how`.
        FormatError: If files do not fit together; the message lists them.
        UnsupportedError: If chunks are stored in a way that cannot be combined like this.
    """
    if not files:
        raise ValueError("combine: got 0 files, expected at least 1")
    # with whole tiles as chunks: where tiles are divided depends on how they are combined
    groups = {without_secrets(url): _as_group(whole_tree(node)) for url, node in files.items()}
    known = None if dates is None else [dates.get(url) for url in files]
    made = _combined(
        groups,
        how,
        along=along,
        overlap=overlap,
        names=names,
        dates=known,
        georeference=georeference,
    )
    return cast("GroupIndex", divided_tree(made))


def check_places(images: Sequence[SameImages]) -> None:
    """Refuse files whose images are at different places."""
    for same in images:
        places = {url: meaning.place for url, meaning in same.meanings.items()}
        joining.check_one_place(places, where=f"combine: image {same.path or '/'}")


def _combined(
    groups: dict[str, GroupIndex],
    how: How,
    *,
    along: str | int | None,
    overlap: Overlap,
    names: Sequence[str] | None,
    dates: Sequence[int | None] | None,
    georeference: Georeference,
) -> GroupIndex:
    if how == "group":
        members = zip(names or group_names(list(groups)), _without_pins(groups), strict=True)
        return _root(groups, GroupIndex(members=dict(members)), how)
    images = same_images(groups)
    axis: str | None = None
    if how == "stack":
        axis = _stack_axis(images, None if along is None else str(along))
        if axis != "t" and any(date is not None for date in dates or ()):
            raise ValueError(f"dates= needs a stack along t; these files stack along {axis}")
        if georeference == "error":
            check_places(images)
        made = {same.path: _stacked(same, axis, dates) for same in images}
    elif how == "concat":
        if along is None:
            raise ValueError("combine='concat' needs along=, the name or number of an axis")
        made = {same.path: _concatenated(same, along) for same in images}
        axes = {same.first.names[_axis_number(same, along)] for same in images}
        axis = axes.pop() if len(axes) == 1 else None
    elif how == "mosaic":
        made = {same.path: mosaic(without_shared_edges(same), overlap) for same in images}
    else:
        raise ValueError(f"combine is {how!r}, expected stack, concat, mosaic or group")
    tree = rebuilt(next(iter(groups.values())), made)
    whole = tree if isinstance(tree, GroupIndex) else GroupIndex(members={"0": tree})
    return _root(groups, whole, how, axis, is_image="" in made)


def _stack_axis(images: Sequence[SameImages], along: str | None) -> str:
    """Return the name of the new axis, the same for all images."""
    names = [name for same in images for name in same.first.names]
    try:
        return joining.stack_axis(list(dict.fromkeys(names)), along)
    except FormatError as e:
        raise FormatError(f"combine: {e}") from e


def _stacked(images: SameImages, axis: str, dates: Sequence[int | None] | None) -> Node:
    images = with_common_levels(images)
    position = joining.stack_position(images.first.names, axis)
    _check(images, has_own_bands=axis == "c")
    meaning = joining.stacked(
        list(images.meanings.values()),
        axis,
        where=f"combine: image {images.path or '/'}",
        dates=dates,
    )

    def join(path: str, arrays: Arrays) -> ArrayIndex:
        return stack(path, arrays, axis, position)

    levels = joined_levels(images, join, None, may_drop=True)
    return image_node(images, meaning, [_with_axis(level, position) for level in levels])


def _with_axis(level: Level, position: int) -> Level:
    """Return a level with what the format states about each axis, for one axis more."""

    def longer(values: tuple[float, ...] | None, value: float) -> tuple[float, ...] | None:
        return None if values is None else (*values[:position], value, *values[position:])

    return replace(
        level,
        factor=longer(level.factor, 1.0),
        scale=longer(level.scale, 1.0),
        origin=longer(level.origin, 0.0),
    )


def _axis_number(images: SameImages, along: str | int) -> int:
    first = replace(full_arrays(images)[0], dimension_names=images.first.names)
    return axis_number(first, along, images.array_path(images.first_levels[0].name))


def _concatenated(images: SameImages, along: str | int) -> Node:
    arrays = full_arrays(images)
    axis = _axis_number(images, along)
    name = images.first.names[axis]
    is_place = name in ("x", "y")
    if not is_place:
        images = with_common_levels(images, axis)
    _check(images, has_own_bands=name == "c")

    def join(path: str, arrays: Arrays) -> ArrayIndex:
        return concat(path, arrays, name)

    def join_mask(path: str, masks: Arrays) -> ArrayIndex:
        return concat(path, masks, name)

    levels = joined_levels(images, join, join_mask if is_place else None, may_drop=not is_place)
    meaning = joining.concatenated(
        list(images.meanings.values()),
        axis,
        [array.shape for array in arrays],
        where=f"combine: image {images.path or '/'}",
    )
    return image_node(images, meaning, [_without_origin(level, images) for level in levels])


def _without_origin(level: Level, images: SameImages) -> Level:
    """Return a level whose position follows from the whole, which may start elsewhere."""
    return level if images.first.place.transform is None else replace(level, origin=None)


def _check(images: SameImages, *, has_own_bands: bool) -> None:
    full_arrays(images)
    check_levels(images)
    if not images.is_array:
        check_sample_meaning(images.path, images.meanings, has_own_bands=has_own_bands)


def _as_group(node: Node) -> GroupIndex:
    if isinstance(node, GroupIndex):
        return node
    about = node.attributes.get("anychunk")
    attributes = {"anychunk": about} if about else {}
    return GroupIndex(members={"0": replace(node, pins={})}, attributes=attributes, pins=node.pins)


def _without_pins(groups: Files) -> list[GroupIndex]:
    """Return the groups without their pins, which only a root has."""
    return [replace(group, pins={}) for group in groups.values()]


def _root(
    groups: Files,
    made: GroupIndex,
    how: str,
    along: str | int | None = None,
    *,
    is_image: bool = False,
) -> GroupIndex:
    """Return the root group, with those of its attributes that all files share.

    Parameters:
        groups: The files.
        made: The combined tree, with the attributes of the first file.
        how: How the files were combined.
        along: The axis along which they were.
        is_image: Whether the root is itself an image, which has attributes of its own.
    """
    kept = {
        key: value
        for key, value in made.attributes.items()
        if key != "anychunk" and (is_image or _is_shared(key, groups))
    }
    first = next(iter(groups.values())).attributes.get("anychunk") or {}
    about: dict[str, Json] = {"combine": how, "files": len(groups)}
    if along is not None:
        about["along"] = along
    about |= {key: first[key] for key in ("format", "version") if key in first}
    pins: dict[str, Pin] = {}
    for group in groups.values():
        pins |= group.pins
    # a folder cannot be pinned: it has no size, etag or modification time that reflects its content
    if folders := [absolute(url) for url, group in groups.items() if url not in group.pins]:
        about["folders"] = folders
    return GroupIndex(members=made.members, attributes={**kept, "anychunk": about}, pins=pins)


def _is_shared(key: str, groups: Files) -> bool:
    values = [group.attributes.get(key) for group in groups.values()]
    return all(comparison.is_same(value, values[0]) for value in values)


def group_names(urls: Sequence[str]) -> list[str]:
    """Return a unique group name for each file: its stem, preceded by folder names if necessary.

    Raises:
        FormatError: If a url occurs twice.
    """
    # a query names nothing that a group could be named by
    paths = [url.partition("?")[0] if is_remote(url) else url for url in urls]
    parts = [path.rstrip("/").replace("\\", "/").split("/") for path in paths]
    for depth in range(1, max(len(p) for p in parts) + 1):
        names = ["_".join([*p[-depth:-1], p[-1].rpartition(".")[0] or p[-1]]) for p in parts]
        if len(set(names)) == len(names):
            return names
    names = ["_".join(p) for p in parts]  # files that differ in their extensions only
    if len(set(names)) != len(names):
        name, count = Counter(names).most_common(1)[0]
        raise FormatError(f"combine: {urls[names.index(name)]} is listed {count} times")
    return names


def axis_of(node: GroupIndex) -> str:
    """Return the axis along which a combined index can be appended to."""
    axis = node.attributes["anychunk"].get("along")
    if axis is None:
        raise FormatError(
            "combine: the axis is another one in different images, expected the same in all"
        )
    return str(axis)
