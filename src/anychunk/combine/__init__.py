"""Combine the indexes of many files into one: stacked, concatenated, mosaicked or grouped.

Only chunk tables are joined; no chunk is read. So the chunks must fit: the same data type and chunk
shape everywhere, and boundaries between files only at chunk boundaries. Files may be compressed in
different ways. An error names the first file that does not fit, and what differs.
"""

import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, cast

import numpy as np

from anychunk import codecs as registry
from anychunk.codecs.base import BytesToBytes
from anychunk.codecs.choice import Choice
from anychunk.codecs.dted import Dted
from anychunk.combine.images import (
    Arrays,
    Files,
    SameImages,
    check_compatible,
    check_levels,
    check_sample_meaning,
    full_arrays,
    image_node,
    joined_levels,
    raise_problems,
    rebuilt,
    same_images,
    with_common_levels,
)
from anychunk.combine.mosaic import Overlap, join_tables, mosaic
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats._jpeg2000 import divided_tree, whole_tree
from anychunk.io.source import absolute, is_remote, without_secrets
from anychunk.metadata import comparison, joining
from anychunk.metadata.dates import Georeference
from anychunk.metadata.meaning import Level, Transform
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, Node
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


# Concatenate arrays of several files along an existing axis.


def concat(path: str, arrays: Mapping[str, ArrayIndex], along: str | int) -> ArrayIndex:
    """Return arrays, one per file, concatenated along the axis `along`.

    Raises:
        FormatError: If the arrays do not fit, or if any but the last ends inside a chunk: the
            padding of that chunk would lie in the middle of the result.
    """
    first = next(iter(arrays.values()))
    axis = axis_number(first, along, path)
    codecs = check_compatible(path, arrays, free_axes=(axis,))
    chunk = first.chunk_shape[axis]
    raise_problems(
        [
            f"{url} {path}: length {array.shape[axis]} along {along!r} is not a multiple of the "
            f"chunk length {chunk}; only the last file may end inside a chunk"
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
    chunks = join_tables(tables, owners, numbers)
    return replace(first, shape=tuple(shape), codecs=codecs, chunks=chunks)


def axis_number(array: ArrayIndex, along: str | int, path: str) -> int:
    """Return the number of the axis `along`: a name, or a number that may be negative."""
    names = array.dimension_names
    if isinstance(along, int) and -len(names) <= along < len(names):
        return along % len(names)
    if along in names:
        return names.index(str(along))
    raise FormatError(
        f"combine: {path} has no axis {along!r}; its axes are {' '.join(map(str, names))}"
    )


# Cells of elevation that share the posts on their edges, as DTED has them: each post once.
#
# A cell of 1201 x 1201 posts repeats the southernmost posts in the cell below it, and the
# easternmost ones in the cell to its right. For a mosaic these are left out of every cell, so
# that cells lie 1200 posts apart and their chunks join; the mosaic itself ends one post before
# the last edges.


TOLERANCE = 1e-3
"""How many posts a cell may be off the common grid."""


def without_shared_edges(images: SameImages) -> SameImages:
    """Return the images without the posts that their neighbours repeat.

    Images are returned as they are if there is only one, if they are not DTED cells, or if they do
    not lie on a grid of cells that share their edges.
    """
    found = {url: [level.image for level in levels] for url, levels in images.levels.items()}
    arrays = {url: listed[0] for url, listed in found.items() if len(listed) == 1}
    if len(arrays) < 2 or len(arrays) != len(images.levels):
        return images
    transforms = {url: meaning.place.transform for url, meaning in images.meanings.items()}
    trimmed = {url: _trimmed(array) for url, array in arrays.items()}
    if None in trimmed.values() or not _are_cells(arrays, transforms):
        return images
    levels = {
        url: [replace(levels[0], image=trimmed[url] or levels[0].image)]
        for url, levels in images.levels.items()
    }
    return replace(images, levels=levels)


def _are_cells(
    arrays: Mapping[str, ArrayIndex], transforms: Mapping[str, Transform | None]
) -> bool:
    """Return whether all images lie whole cells, less a shared post each, apart."""
    first = next(iter(transforms.values()))
    rows, columns = next(iter(arrays.values())).shape[-2:]
    for array, transform in zip(arrays.values(), transforms.values(), strict=True):
        if transform is None or first is None or array.shape[-2:] != (rows, columns):
            return False
        if not first[0] or not first[4] or min(rows, columns) < 2:
            return False
        across = (transform[2] - first[2]) / first[0] / (columns - 1)
        down = (transform[5] - first[5]) / first[4] / (rows - 1)
        if max(abs(n - round(n)) for n in (across, down)) > TOLERANCE:
            return False
    return True


def _trimmed(array: ArrayIndex) -> ArrayIndex | None:
    """Return a cell without its southernmost row and easternmost column; None if it is no cell."""
    last, chunks = array.codecs[-1] if array.codecs else None, array.chunks
    if not isinstance(last, dict) or last.get("name") != Dted.name or len(array.shape) != 2:
        return None
    rows, columns = array.shape[0] - 1, array.shape[1] - 1
    step = array.chunk_shape[1]
    if not isinstance(chunks, ByteRanges) or array.grid[0] != 1 or columns % step or rows < 1:
        return None
    codec = {**last, "configuration": {**last["configuration"], "trim_bottom": 1}}
    kept = slice(0, columns // step)
    return replace(
        array,
        shape=(rows, columns),
        chunk_shape=(rows, step),
        codecs=(*array.codecs[:-1], codec),
        chunks=replace(chunks, offsets=chunks.offsets[:, kept], lengths=chunks.lengths[:, kept]),
    )


# Stack arrays of several files on a new axis.
#
# A chunk of the result is a chunk of one file with a further axis of length 1, so its bytes are
# unchanged. The new axis is added to everything that describes the chunk's axes: the codecs, and
# the headers of cropped chunks.


def stack(
    path: str, arrays: Mapping[str, ArrayIndex], axis_name: str, position: int = 0
) -> ArrayIndex:
    """Return arrays, one per file, stacked on a new axis of chunk length 1.

    Parameters:
        path: The path of the arrays inside their files, for messages.
        arrays: One array per file, by url.
        axis_name: The name of the new axis.
        position: Its number.

    Raises:
        FormatError: If the arrays do not fit.
        UnsupportedError: If a codec cannot decode chunks with one more axis.
    """
    codecs = check_compatible(path, arrays)
    first = next(iter(arrays.values()))
    count = math.prod(first.grid)
    grid = (len(arrays), *first.grid)
    owners = np.repeat(np.arange(len(arrays)), count).reshape(grid)
    numbers = np.tile(np.arange(count), len(arrays)).reshape(grid)
    tables = [_with_axis_in_fronts(array, position, path) for array in arrays.values()]
    owners, numbers = (np.moveaxis(table, 0, position) for table in (owners, numbers))
    return replace(
        first,
        shape=_inserted(first.shape, position, len(arrays)),
        chunk_shape=_inserted(first.chunk_shape, position, 1),
        codecs=_with_axis_in_codecs(codecs, position, path),
        dimension_names=_inserted(first.dimension_names, position, axis_name),
        chunks=join_tables(tables, owners, numbers),
    )


def _inserted[T](values: Sequence[T], position: int, value: T) -> tuple[T, ...]:
    return (*values[:position], value, *values[position:])


def _with_axis_in_codecs(chain: Sequence[Json], position: int, path: str) -> tuple[Json, ...]:
    """Return the codecs for chunks that have one more axis, of length 1."""
    return tuple(_with_axis_in_codec(codec, position, path) for codec in chain)


def _with_axis_in_codec(codec: Json, position: int, path: str) -> Json:
    name = codec if isinstance(codec, str) else codec["name"]
    if name in ("bytes", "scale_offset", "cast_value"):
        return codec  # they work element by element
    if name == "transpose":
        old = codec["configuration"]["order"]
        order = [position, *(axis + (axis >= position) for axis in old)]
        return {"name": name, "configuration": {"order": order}}
    if name == "anychunk.window":
        inner = _with_axis_in_codecs(codec["configuration"]["codecs"], position, path)
        return {"name": name, "configuration": {"codecs": list(inner)}}
    if name == Choice.name:
        choices = codec["configuration"]["choices"]
        longer = [list(_with_axis_in_codecs(chain, position, path)) for chain in choices]
        return {"name": name, "configuration": {"choices": longer}}
    data = {"name": codec} if isinstance(codec, str) else codec
    if isinstance(registry.from_json(data), BytesToBytes):
        return codec  # it does not see axes at all
    raise UnsupportedError(
        f"combine: {path}: codec {name!r} cannot decode chunks with an additional axis; "
        "use combine='concat' or 'group'"
    )


def _with_axis_in_fronts(array: ArrayIndex, position: int, path: str) -> ByteRanges:
    """Return the chunk table with one more axis in the headers of `anychunk.window`.

    Such a header is three rows of uint32, each as long as the chunk has axes: the stored shape,
    the start of the window in it, and the window's shape.
    """
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges):
        raise TypeError(f"{path}: {type(chunks).__name__}")
    if not any(chunks.fronts):
        return chunks
    ndim = len(array.shape)
    names = [c if isinstance(c, str) else c["name"] for c in array.codecs]
    if "bytes" in names or Choice.name in names:
        return chunks  # the fronts are read by bytes-to-bytes codecs, which do not see axes
    if "anychunk.window" not in names or any(len(f) != 12 * ndim for f in chunks.fronts):
        raise UnsupportedError(
            f"combine: {path}: its chunks have headers that do not allow an additional axis; "
            "use combine='concat' or 'group'"
        )
    fronts = []
    for front in chunks.fronts:
        numbers = struct.unpack(f"<{3 * ndim}I", front)
        rows = [numbers[i * ndim : (i + 1) * ndim] for i in range(3)]
        longer = [_inserted(row, position, n) for row, n in zip(rows, (1, 0, 1), strict=True)]
        fronts.append(struct.pack(f"<{3 * ndim + 3}I", *(n for row in longer for n in row)))
    return replace(chunks, fronts=tuple(fronts))
