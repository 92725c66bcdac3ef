"""Combine the indexes of many files into one: stacked, concatenated, mosaicked or grouped.

Only chunk tables are joined; no chunk is read. So the chunks must fit: the same data type, codecs
and chunk shape everywhere, and boundaries between files only at chunk boundaries.
Errors name every file that does not fit.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from anychunk.combine.compatibility import Files, check_sample_meaning, raise_problems
from anychunk.combine.concat import axis_number, concat
from anychunk.combine.mosaic import Overlap, mosaic
from anychunk.combine.stack import stack, with_ome_axis
from anychunk.errors import FormatError
from anychunk.io import absolute
from anychunk.metadata import comparison, geo
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node, find
from anychunk.model.pin import Pin  # noqa: TC001 - the annotation is read at run time elsewhere

type How = Literal["stack", "concat", "mosaic", "group"]

STACK_AXIS = "file"
"""The name of a stack's new axis if the caller chooses none."""


def combine(
    files: Mapping[str, Node],
    how: How,
    *,
    along: str | int | None = None,
    overlap: Overlap = "error",
    names: Sequence[str] | None = None,
) -> GroupIndex:
    """Combine the indexes of several files into one.

    Parameters:
        files: The indexes, by url; the order is that of the result.
        how: "stack" (new first axis), "concat" (along an axis), "mosaic" (one map grid), "group".
        along: For "stack" the name of the new axis, for "concat" the name or number of an axis.
        overlap: For "mosaic", whose chunk is used where files overlap; "error" refuses overlaps.
        names: For "group", the names of the groups; derived from the urls by default.

    Raises:
        ValueError: If there are no files, or the options do not fit `how`.
        FormatError: If files do not fit together; the message lists them.
        UnsupportedError: If chunks are stored in a way that cannot be combined like this.
    """
    if not files:
        raise ValueError("combine: got 0 files, expected at least 1")
    groups = {url: _as_group(node) for url, node in files.items()}
    if how == "group":
        members = zip(names or group_names(list(groups)), _without_pins(groups), strict=True)
        return _root(groups, dict(members), how)
    if how == "stack":
        axis_name = str(along or STACK_AXIS)
        made = _joined_trees(groups, lambda path, arrays: stack(path, arrays, axis_name))
        made = _with_common_georeference(with_ome_axis(made, axis_name), groups, None)
        return _root(groups, made.members, how, made.attributes)
    if how == "concat":
        if along is None:
            raise ValueError("combine='concat' needs along=, the name or number of an axis")
        made = _joined_trees(groups, lambda path, arrays: concat(path, arrays, along))
        made = _with_common_georeference(made, groups, along)
        return _root(groups, made.members, how, made.attributes)
    if how == "mosaic":
        return _root(groups, mosaic(groups, overlap), how)
    raise ValueError(f"combine is {how!r}, expected stack, concat, mosaic or group")


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
    members: Mapping[str, Node],
    how: str,
    attributes: Mapping[str, Json] | None = None,
) -> GroupIndex:
    """Return the root group, with those of `attributes` that all files share."""
    kept = {
        key: value
        for key, value in (attributes or {}).items()
        if key != "anychunk" and _is_shared(key, groups)
    }
    first = next(iter(groups.values())).attributes.get("anychunk") or {}
    about: dict[str, Json] = {"combine": how, "files": len(groups)}
    about |= {key: first[key] for key in ("format", "version") if key in first}
    pins: dict[str, Pin] = {}
    for group in groups.values():
        pins |= group.pins
    # a folder cannot be pinned: it has no size, etag or modification time that reflects its content
    if folders := [absolute(url) for url, group in groups.items() if url not in group.pins]:
        about["folders"] = folders
    return GroupIndex(members=members, attributes={**kept, "anychunk": about}, pins=pins)


def _is_shared(key: str, groups: Files) -> bool:
    values = [group.attributes.get(key) for group in groups.values()]
    return all(comparison.is_same(value, values[0]) for value in values)


def group_names(urls: Sequence[str]) -> list[str]:
    """Return a unique group name for each file: its stem, preceded by folder names if necessary.

    Raises:
        FormatError: If a url occurs twice.
    """
    parts = [url.rstrip("/").replace("\\", "/").split("/") for url in urls]
    for depth in range(1, max(len(p) for p in parts) + 1):
        names = ["_".join([*p[-depth:-1], p[-1].rpartition(".")[0] or p[-1]]) for p in parts]
        if len(set(names)) == len(names):
            return names
    names = ["_".join(p) for p in parts]  # files that differ in their extensions only
    if len(set(names)) != len(names):
        name, count = Counter(names).most_common(1)[0]
        raise FormatError(f"combine: {urls[names.index(name)]} is listed {count} times")
    return names


def _joined_trees(
    groups: Files, join: Callable[[str, Mapping[str, ArrayIndex]], ArrayIndex]
) -> GroupIndex:
    """Return the first file's tree, each array replaced by the join of all arrays at its path."""
    trees = {url: dict(group.arrays()) for url, group in groups.items()}
    first_url, first = next(iter(trees.items()))
    raise_problems(
        [
            f"{url} has the arrays {' '.join(tree) or '(none)'}, "
            f"expected {' '.join(first) or '(none)'} as in {first_url}"
            for url, tree in trees.items()
            if set(tree) != set(first)
        ]
    )

    def build(node: GroupIndex, path: str) -> GroupIndex:
        same = {url: find(group, path) for url, group in groups.items()}
        check_sample_meaning(path, {url: image for url, image in same.items() if image is not None})
        members: dict[str, Node] = {}
        for name, member in node.members.items():
            below = f"{path}/{name}" if path else name
            if isinstance(member, GroupIndex):
                members[name] = build(member, below)
            else:
                members[name] = join(below, {url: tree[below] for url, tree in trees.items()})
        return GroupIndex(members=members, attributes=node.attributes)

    return build(groups[first_url], "")


def axis_of(node: GroupIndex, how: How, along: str | int | None) -> int:
    """Return the number of the axis along which a combined index can be appended to."""
    if how == "stack":
        return 0
    numbers = {axis_number(array, along or 0, path) for path, array in node.arrays()}
    if len(numbers) != 1:
        raise FormatError(
            f"combine: {along!r} is axis {' and '.join(map(str, sorted(numbers)))} of different "
            "arrays, expected the same axis in all"
        )
    return numbers.pop()


def _with_common_georeference(
    made: GroupIndex, groups: Files, along: str | int | None, path: str = ""
) -> GroupIndex:
    """Drop the georeference of the first file wherever it does not apply to all files.

    Parameters:
        made: The combined tree, with the attributes of the first file.
        groups: The files.
        along: The axis of a concatenation; if it is a map axis, no file's extent applies.
        path: Where `made` is in the whole tree.
    """
    members: dict[str, Node] = {}
    is_extended = False
    for name, member in made.members.items():
        below = f"{path}/{name}" if path else name
        if isinstance(member, GroupIndex):
            members[name] = _with_common_georeference(member, groups, along, below)
        else:
            members[name] = member
            is_extended |= along is not None and _is_map_axis(made, member, along, below)
    same = [image for group in groups.values() if (image := find(group, path)) is not None]
    dropped = comparison.differing_georeference([image.attributes for image in same])
    if is_extended:
        dropped = dropped or ("spatial:",)
    if not dropped:
        return replace(made, members=members)
    if not is_extended and any(k.startswith(dropped) for image in same for k in image.attributes):
        warnings.warn(
            f"combine: image {path or '/'}: files are georeferenced differently; "
            "the georeference is dropped",
            stacklevel=5,
        )
    plain = {
        name: replace(m, attributes=geo.without_georeference(m.attributes, dropped))
        if isinstance(m, ArrayIndex)
        else m
        for name, m in members.items()
    }
    attributes = geo.without_georeference(made.attributes, dropped)
    return replace(made, members=plain, attributes=attributes)


def _is_map_axis(image: GroupIndex, array: ArrayIndex, along: str | int, path: str) -> bool:
    """Return whether the axis `along` is a map axis, x or y."""
    name = array.dimension_names[axis_number(array, along, path)]
    return name in image.attributes.get("spatial:dimensions", ())
