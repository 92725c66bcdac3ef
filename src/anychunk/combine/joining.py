"""Many files, one index: stacked on a new axis, concatenated, on one map grid, or group by group.

Only chunk tables are put together; no chunk is read. So chunks must fit: the same type, codecs and
chunk shape everywhere, and joints only where chunks end. What does not fit is named file by file.
"""

import math
import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from zarr.abc.codec import BytesBytesCodec

from anychunk import codecs as registry
from anychunk.combine.mosaic import Overlap, mosaic
from anychunk.combine.tables import Files, check_alike, check_meaning, gather, refuse
from anychunk.errors import FormatError, UnsupportedError
from anychunk.io import absolute
from anychunk.metadata import comparison, geo
from anychunk.metadata.ome import Axis
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, Node, find
from anychunk.model.pin import Pin  # noqa: TC001 - the annotation is read at run time elsewhere

type How = Literal["stack", "concat", "mosaic", "group"]

STACK = "file"
"""Name of the new axis where the caller gives none."""


def combine(
    files: Mapping[str, Node],
    how: How,
    *,
    along: str | int | None = None,
    overlap: Overlap = "error",
    names: Sequence[str] | None = None,
) -> GroupIndex:
    """Put the indexes of several files, by url, into one; `names` are those of their groups."""
    if not files:
        raise ValueError("combine: no files")
    groups = {url: _as_group(node) for url, node in files.items()}
    if how == "group":
        found = zip(names or group_names(list(groups)), _bare(groups), strict=True)
        return _root(groups, dict(found), how)
    if how == "stack":
        made = _same_trees(groups, lambda path, arrays: stack(path, arrays, str(along or STACK)))
        made = _placed(_lift_attributes(made, str(along or STACK)), groups, None)
        return _root(groups, made.members, how, made.attributes)
    if how == "concat":
        if along is None:
            raise ValueError("combine='concat' needs along=, the name or number of an axis")
        made = _same_trees(groups, lambda path, arrays: concat(path, arrays, along))
        made = _placed(made, groups, along)
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


def _bare(groups: Files) -> list[GroupIndex]:
    """Take the pins off: they belong to the root."""
    return [replace(group, pins={}) for group in groups.values()]


def _root(
    groups: Files,
    members: Mapping[str, Node],
    how: str,
    attributes: Mapping[str, Json] | None = None,
) -> GroupIndex:
    """Make the root; of the first file's `attributes` it has those that all files have alike."""
    kept = {
        key: value
        for key, value in (attributes or {}).items()
        if key != "anychunk" and _is_common(key, groups)
    }
    first = next(iter(groups.values())).attributes.get("anychunk") or {}
    about: dict[str, Json] = {"combine": how, "files": len(groups)}
    about |= {key: first[key] for key in ("format", "version") if key in first}
    pins: dict[str, Pin] = {}
    for group in groups.values():
        pins |= group.pins
    # a folder has no version of its own that a pin could tell
    if folders := [absolute(url) for url, group in groups.items() if url not in group.pins]:
        about["folders"] = folders
    return GroupIndex(members=members, attributes={**kept, "anychunk": about}, pins=pins)


def _is_common(key: str, groups: Files) -> bool:
    values = [group.attributes.get(key) for group in groups.values()]
    return all(comparison.is_same(value, values[0]) for value in values)


def group_names(urls: Sequence[str]) -> list[str]:
    """Name a group after each file: its stem, with its folders where stems repeat."""
    parts = [url.rstrip("/").replace("\\", "/").split("/") for url in urls]
    for depth in range(1, max(len(p) for p in parts) + 1):
        names = ["_".join([*p[-depth:-1], p[-1].rpartition(".")[0] or p[-1]]) for p in parts]
        if len(set(names)) == len(names):
            return names
    names = ["_".join(p) for p in parts]  # the same stem with other endings
    if len(set(names)) != len(names):
        raise FormatError("combine: a file is given twice")
    return names


def _same_trees(
    groups: Files, join: Callable[[str, Mapping[str, ArrayIndex]], ArrayIndex]
) -> GroupIndex:
    """Join arrays of the same path of all files."""
    trees = {url: dict(group.arrays()) for url, group in groups.items()}
    first_url, first = next(iter(trees.items()))
    wrong = [
        f"{url} has the arrays {' '.join(tree) or '(none)'}, {first_url} has {' '.join(first)}"
        for url, tree in trees.items()
        if set(tree) != set(first)
    ]
    refuse(wrong)

    def build(node: GroupIndex, path: str) -> GroupIndex:
        same = {url: find(group, path) for url, group in groups.items()}
        check_meaning(path, {url: image for url, image in same.items() if image is not None})
        members: dict[str, Node] = {}
        for name, member in node.members.items():
            below = f"{path}/{name}" if path else name
            if isinstance(member, GroupIndex):
                members[name] = build(member, below)
            else:
                members[name] = join(below, {url: tree[below] for url, tree in trees.items()})
        return GroupIndex(members=members, attributes=node.attributes)

    return build(groups[first_url], "")


def stack(path: str, arrays: Mapping[str, ArrayIndex], name: str) -> ArrayIndex:
    """Put arrays on a new first axis, a chunk long each."""
    codecs = check_alike(path, arrays)
    first = next(iter(arrays.values()))
    if name in first.dimension_names:
        raise FormatError(f"combine: {path} has an axis {name!r} already; give another along=")
    count = math.prod(first.grid)
    grid = (len(arrays), *first.grid)
    owners = np.repeat(np.arange(len(arrays)), count).reshape(grid)
    numbers = np.tile(np.arange(count), len(arrays)).reshape(grid)
    lifted = [_lift_fronts(a, path) for a in arrays.values()]
    return replace(
        first,
        shape=(len(arrays), *first.shape),
        chunk_shape=(1, *first.chunk_shape),
        codecs=lift(codecs, path),
        dimension_names=(name, *first.dimension_names),
        chunks=gather(lifted, owners, numbers),
    )


def lift(chain: Sequence[Json], path: str) -> tuple[Json, ...]:
    """Give the codecs for chunks with one more axis in front, of length 1."""
    return tuple(_lift_codec(codec, path) for codec in chain)


def _lift_codec(codec: Json, path: str) -> Json:
    name = codec if isinstance(codec, str) else codec["name"]
    if name in ("bytes", "scale_offset", "cast_value"):
        return codec
    if name == "transpose":
        order = [0, *(axis + 1 for axis in codec["configuration"]["order"])]
        return {"name": name, "configuration": {"order": order}}
    if name == "anychunk.window":
        inner = lift(codec["configuration"]["codecs"], path)
        return {"name": name, "configuration": {"codecs": list(inner)}}
    data = {"name": codec} if isinstance(codec, str) else codec
    if isinstance(registry.from_json(data), BytesBytesCodec):
        return codec
    raise UnsupportedError(
        f"combine: {path}: codec {name!r} does not stand a further axis; "
        "combine with concat or group instead"
    )


def _lift_fronts(array: ArrayIndex, path: str) -> ByteRanges:
    """Give headers of `anychunk.window` one more axis."""
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges):
        raise TypeError(f"{path}: {type(chunks).__name__}")
    if not any(chunks.fronts):
        return chunks
    ndim = len(array.shape)
    names = [c if isinstance(c, str) else c["name"] for c in array.codecs]
    if "bytes" in names:
        return chunks  # codecs of bytes read them, whatever the axes are
    if "anychunk.window" not in names or any(len(f) != 12 * ndim for f in chunks.fronts):
        raise UnsupportedError(
            f"combine: {path}: its chunks have headers that do not stand a further axis; "
            "combine with concat or group instead"
        )
    fronts = []
    for front in chunks.fronts:
        numbers = struct.unpack(f"<{3 * ndim}I", front)
        stored, start, shape = (numbers[i * ndim : (i + 1) * ndim] for i in range(3))
        fronts.append(struct.pack(f"<{3 * ndim + 3}I", 1, *stored, 0, *start, 1, *shape))
    return replace(chunks, fronts=tuple(fronts))


def _lift_attributes(group: GroupIndex, name: str) -> GroupIndex:
    """Tell `ome.multiscales` of the new axis."""
    members = {
        key: _lift_attributes(member, name) if isinstance(member, GroupIndex) else member
        for key, member in group.members.items()
    }
    attributes = dict(group.attributes)
    images = (attributes.get("ome") or {}).get("multiscales")
    if images:
        lifted = [_lift_image(image, name) for image in images]
        attributes["ome"] = {**attributes["ome"], "multiscales": lifted}
    return GroupIndex(members=members, attributes=attributes)


def _lift_image(image: dict[str, Json], name: str) -> dict[str, Json]:
    def lifted(step: dict[str, Json]) -> dict[str, Json]:
        kind = step.get("type")
        if kind not in ("scale", "translation"):
            return step
        return {**step, kind: [1.0 if kind == "scale" else 0.0, *step[kind]]}

    found = {**image, "axes": [Axis(name=name).json(), *image.get("axes", [])]}
    found["datasets"] = [
        {**d, "coordinateTransformations": [lifted(s) for s in d["coordinateTransformations"]]}
        for d in image.get("datasets", [])
    ]
    if "coordinateTransformations" in image:
        found["coordinateTransformations"] = [lifted(s) for s in image["coordinateTransformations"]]
    return found


def axis_number(array: ArrayIndex, along: str | int, path: str) -> int:
    names = array.dimension_names
    if isinstance(along, int) and -len(names) <= along < len(names):
        return along % len(names)
    if along in names:
        return names.index(str(along))
    raise FormatError(f"combine: {path} has no axis {along!r}, but {' '.join(map(str, names))}")


def axis_of(node: GroupIndex, how: How, along: str | int | None) -> int:
    """Give the number of the axis that arrays of a combined index grow along."""
    if how == "stack":
        return 0
    numbers = {axis_number(array, along or 0, path) for path, array in node.arrays()}
    if len(numbers) != 1:
        raise FormatError(f"combine: {along!r} is the axes {sorted(numbers)} of several arrays")
    return numbers.pop()


def concat(path: str, arrays: Mapping[str, ArrayIndex], along: str | int) -> ArrayIndex:
    """Put arrays one behind the other along an axis that they have."""
    first = next(iter(arrays.values()))
    axis = axis_number(first, along, path)
    codecs = check_alike(path, arrays, but=axis)
    chunk = first.chunk_shape[axis]
    refuse(
        [
            f"{url} {path}: {array.shape[axis]} along {along!r} end inside a chunk of {chunk}; "
            "only the last file may"
            for url, array in list(arrays.items())[:-1]
            if array.shape[axis] % chunk
        ]
    )
    grids = [array.grid for array in arrays.values()]
    owners = np.concatenate([np.full(g, i, np.int64) for i, g in enumerate(grids)], axis=axis)
    numbers = np.concatenate(
        [np.arange(math.prod(g), dtype=np.int64).reshape(g) for g in grids], axis=axis
    )
    shape = list(first.shape)
    shape[axis] = sum(array.shape[axis] for array in arrays.values())
    tables = [a.chunks for a in arrays.values() if isinstance(a.chunks, ByteRanges)]
    chunks = gather(tables, owners, numbers)
    return replace(first, shape=tuple(shape), codecs=codecs, chunks=chunks)


def _placed(made: GroupIndex, groups: Files, along: str | int | None, path: str = "") -> GroupIndex:
    """Drop what the first file says of its place on earth, where that is not the place of all."""
    members: dict[str, Node] = {}
    is_longer = False
    for name, member in made.members.items():
        below = f"{path}/{name}" if path else name
        if isinstance(member, GroupIndex):
            members[name] = _placed(member, groups, along, below)
        else:
            members[name] = member
            is_longer |= along is not None and _is_on_map(made, member, along, below)
    same = [image for group in groups.values() if (image := find(group, path)) is not None]
    gone = comparison.differing_georeference([image.attributes for image in same])
    if is_longer:
        gone = gone or ("spatial:",)
    if not gone:
        return replace(made, members=members)
    if not is_longer and any(key.startswith(gone) for image in same for key in image.attributes):
        warnings.warn(
            f"combine: image {path or '/'}: files lie at several places on earth; "
            "their georeference is left out",
            stacklevel=5,
        )
    bare = {
        name: replace(m, attributes=geo.without_georeference(m.attributes, gone))
        if isinstance(m, ArrayIndex)
        else m
        for name, m in members.items()
    }
    return replace(made, members=bare, attributes=geo.without_georeference(made.attributes, gone))


def _is_on_map(image: GroupIndex, array: ArrayIndex, along: str | int, path: str) -> bool:
    """Whether an axis is one of those of the map."""
    name = array.dimension_names[axis_number(array, along, path)]
    return name in image.attributes.get("spatial:dimensions", ())
