"""N5 folders as an index: groups whose members are read on demand, and images.

A dataset at path p is an image group p with one level group, `p/0`. The datasets of a pyramid are
the level groups of its group, under their own names: `p/s0`, `p/s1` … A dataset that is opened by
its own url is an array.
"""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from anychunk import limits
from anychunk.errors import AnychunkError, FormatError, OptionError, UnsupportedError
from anychunk.formats._axes import image_axes, pick, transposed
from anychunk.formats.n5.attributes import (
    NAME,
    Dataset,
    is_dataset,
    read_attributes,
    read_dataset,
    to_codecs,
)
from anychunk.formats.n5.multiscale import Named, axis_names, place, pyramid
from anychunk.io.inside import is_below, resolved
from anychunk.io.opening import Folder
from anychunk.io.source import signed_of
from anychunk.io.system import is_link
from anychunk.metadata import cf
from anychunk.metadata.exported import imported
from anychunk.metadata.hierarchy import (
    AXES,
    axis_json,
    group_attributes,
    image_group,
    level_group,
    own_attributes,
    place_attributes,
)
from anychunk.metadata.meaning import Axis, Level, Meaning
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node, Objects

type Attributes = dict[str, Json]

OWN = "anychunk"
"""The attribute that holds what N5 has no attributes for."""
STRUCTURE = frozenset(("dimensions", "blockSize", "dataType", "compression", "compressionType"))
"""Attributes that say how a dataset is stored, and nothing about what its samples mean."""
VARIABLE = {"string": 16, "object": 16}
"""Types of variable length, with an estimate of the memory that an element takes."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `anychunk.open` for N5."""

    axes: str = "zyx"
    """`zyx`: slowest dimension first, as in OME-Zarr; `xyz`: as in `attributes.json`."""
    content: Literal["samples", "bytes"] = "samples"
    """`bytes`: every dataset is an array of its blocks, whose elements are the blocks' payloads."""

    def __post_init__(self) -> None:
        for name, known in (("axes", ("zyx", "xyz")), ("content", ("samples", "bytes"))):
            value = getattr(self, name)
            if value not in known:
                raise OptionError(f"N5: {name}={value!r}, expected one of {' '.join(known)}")

    @property
    def is_reversed(self) -> bool:
        """Whether arrays have the dimensions of N5 in reverse."""
        return self.axes == "zyx"

    def order(self, values: Shape | tuple[Any, ...]) -> tuple[Any, ...]:
        """Convert a list from N5 order to the order of stored arrays."""
        return tuple(values[::-1]) if self.is_reversed else tuple(values)


def read_folder(folder: Folder) -> Attributes | None:
    """Return the attributes of a group or dataset, None if it has no `attributes.json`."""
    data = folder.read(NAME)
    return None if data is None else read_attributes(data, f"{folder.path}/{NAME}")


def node(folder: Folder, attributes: Attributes, options: Options, parent: Attributes) -> Node:
    """Index a folder: a dataset as an image, a pyramid as one, or a group.

    Parameters:
        folder: The folder.
        attributes: Its attributes.
        options: The caller's options.
        parent: The attributes of the group that holds it; BigDataViewer stores the
            factors of levels there.
    """
    if is_dataset(attributes):
        meaning, (level,) = dataset_image(folder, attributes, options)
        return image_group(meaning, [level])
    members = Members(folder, options, attributes)
    described: Attributes = {"n5": attributes} if attributes else {}
    if options.content == "bytes":
        return GroupIndex(members=members, attributes=described)
    named = pyramid(attributes, members.attributes)
    found = pyramid_image(folder, attributes, named, options, parent)
    if found is None:
        return GroupIndex(members=members, attributes=described)
    meaning, levels = found
    full = levels[0].image.shape
    members.levels = {level.name: level_group(meaning, level, full) for level in levels}
    return GroupIndex(members=members, attributes=group_attributes(meaning, levels))


def lone_array(folder: Folder, attributes: Attributes, options: Options) -> ArrayIndex:
    """Index a dataset that is opened by its own url: an array, which says what it means itself."""
    meaning, (level,) = dataset_image(folder, attributes, options)
    array = level.image
    described = cf.image_attributes(meaning, array.data_type, beside=())
    described |= place_attributes(meaning, level, array.shape)
    own = own_attributes(meaning)
    if any(axis.scale is not None or axis.values is not None for axis in meaning.axes):
        own[AXES] = [axis_json(axis) for axis in meaning.axes]
    return replace(
        array,
        dimension_names=meaning.names,
        attributes={**described, **own, **meaning.native},
    )


def dataset_image(
    folder: Folder, attributes: Attributes, options: Options
) -> tuple[Meaning, list[Level]]:
    """Return a dataset as an image of one level, `0`."""
    dataset = read_dataset(attributes, f"{folder.path}/{NAME}")
    array = array_index(dataset, folder, options)
    if attributes.keys() <= STRUCTURE:
        meaning, order = plain_meaning(len(dataset.dimensions), dataset.data_type, options)
    else:
        meaning, order = meaning_of(dataset, [("0", attributes)], ({}, {}), options)
    meaning = completed(meaning, attributes)
    return meaning, [Level(name="0", image=transposed(array, order))]


@lru_cache(maxsize=256)
def plain_meaning(ndim: int, data_type: str, options: Options) -> tuple[Meaning, Shape]:
    """Return what `meaning_of` does for a dataset with attributes of structure alone."""
    sizes = (1,) * ndim
    dataset = Dataset(dimensions=sizes, block_size=sizes, data_type=data_type, compression={})
    return meaning_of(dataset, [("0", {})], ({}, {}), options)


def pyramid_image(
    folder: Folder,
    attributes: Attributes,
    named: list[Named],
    options: Options,
    parent: Attributes,
) -> tuple[Meaning, list[Level]] | None:
    """Return a pyramid as an image; None if its first level is not a dataset of numbers.

    Levels end before a dataset that cannot be indexed, or does not belong to the first one: what is
    wrong with it is said when it is opened.
    """
    found: list[tuple[Dataset, ArrayIndex]] = []
    for name, level in named:
        child = folder.child(name)
        try:
            dataset = read_dataset(level, f"{child.path}/{NAME}") if is_dataset(level) else None
            if dataset is None or dataset.data_type in VARIABLE:
                break
            array = array_index(dataset, child, options)
        except AnychunkError:
            break
        first = found[0][0] if found else dataset
        if len(dataset.dimensions) != len(first.dimensions) or min(dataset.dimensions) < 1:
            break
        found.append((dataset, replace(array, attributes={"n5": level})))
    if not found:
        return None
    ndim, levels = len(found[0][0].dimensions), named[: len(found)]
    meaning, order = meaning_of(found[0][0], levels, (attributes, parent), options)
    meaning = completed(meaning, attributes)
    made = []
    for number, (name, _) in enumerate(levels):
        placed = place(attributes, parent, levels, number, ndim)
        factor, scale, origin = (
            value and pick(options.order(value), order)
            for value in (placed.factor, placed.scale, placed.translation)
        )
        image = transposed(found[number][1], order)
        made.append(Level(name=name, image=image, factor=factor, scale=scale, origin=origin))
    return meaning, made


def completed(meaning: Meaning, attributes: Attributes) -> Meaning:
    """Return a meaning with what the writer of this package stored under a name of its own."""
    shown = {key: value for key, value in attributes.items() if key != OWN}
    return imported(replace(meaning, native={"n5": shown}), attributes.get(OWN))


def meaning_of(
    dataset: Dataset, levels: list[Named], around: tuple[Attributes, Attributes], options: Options
) -> tuple[Meaning, Shape]:
    """Return what N5's own attributes say, and the order of the axes.

    Parameters:
        dataset: The dataset, or the first level of a pyramid.
        levels: All levels.
        around: The attributes of the group of the levels, and of the group that holds it.
        options: The caller's options.
    """
    ndim = len(dataset.dimensions)
    placed = place(*around, levels, 0, ndim)
    known = options.order(axis_names((levels[0][1], around[0]), ndim))
    if options.content == "bytes" or dataset.data_type in VARIABLE:
        # not numbers, or not one per element: only the axes themselves have names
        names, order = tuple(f"dim_{n}" for n in range(ndim)), tuple(range(ndim))
        return Meaning(axes=tuple(Axis(name=name) for name in names)), order
    if options.is_reversed:
        names, order = image_axes(known)
    else:
        order = tuple(range(ndim))
        is_distinct = len(set(known)) == ndim
        names = tuple((is_distinct and name) or f"dim_{n}" for n, name in enumerate(known))
    scale = (None,) * ndim if placed.scale is None else placed.scale
    facts = zip(
        names,
        *(pick(options.order(v), order) for v in (placed.units, scale, placed.translation)),
        strict=True,
    )
    axes = [
        # bands have numbers, not positions
        Axis(name=name) if name == "c" else Axis(name=name, unit=unit, scale=size, origin=origin)
        for name, unit, size, origin in facts
    ]
    return Meaning(axes=tuple(axes)), order


@dataclass(eq=False)
class Members(Mapping[str, Node]):
    """The members of a group: listed when iterated, each read on demand."""

    folder: Folder
    options: Options
    parent: Attributes
    """The attributes of the group."""
    levels: Mapping[str, Node] = field(default_factory=dict)
    """The level groups, if the group is a pyramid."""
    _read: dict[str, Node] = field(default_factory=dict, repr=False)

    @property
    def is_remote(self) -> bool:
        """Whether listing or reading members takes requests."""
        return not self.folder.is_local

    def attributes(self, name: str) -> Attributes | None:
        """Return the attributes of a member without indexing it."""
        return read_folder(self.folder.child(name)) if is_name(name) else None

    def __getitem__(self, name: str) -> Node:
        found = self.levels.get(name) or self._read.get(name)
        if found is None:
            if not is_name(name):
                raise KeyError(name)
            child = self.folder.child(name)
            attributes = read_folder(child)
            if attributes is None and not is_folder(child):
                raise KeyError(name)
            if not attributes or not is_dataset(attributes):
                check_link(child)
            found = node(child, attributes or {}, self.options, self.parent)
            if len(self._read) < MOST_KEPT:
                self._read[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self[name] is not None
        except KeyError:
            return False

    def __iter__(self) -> Iterator[str]:
        try:
            names = [name for name in self.folder.names()[0] if is_name(name)]
        except UnsupportedError:
            # a web server cannot list, but the levels of a pyramid are known
            if not self.levels:
                raise
            names = []
        yield from self.levels
        yield from (name for name in names if name not in self.levels)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Members):
            return (self.folder.path, self.options) == (other.folder.path, other.options)
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": {}}


MOST_KEPT = 4096
"""Maximum number of members of one group that are cached after they were read."""


def is_name(name: str) -> bool:
    """Return whether a member may have this name: a single path component, not hidden."""
    return bool(name) and not name.startswith(".") and not any(c in name for c in "/\\\0")


def is_folder(folder: Folder) -> bool:
    """Return whether a folder exists: in N5 every existing folder is a group."""
    if folder.is_local:
        return os.path.isdir(folder.path)  # noqa: PTH112 - once per member
    try:
        return any(folder.names())
    except UnsupportedError:
        # a web server cannot list, so this may be a group without attributes
        return True


def check_link(folder: Folder) -> None:
    """Refuse a symbolic link to a parent folder: walking the hierarchy would never end."""
    if folder.is_local and is_link(folder.path):
        target = resolved(folder.path)
        if is_below(resolved(os.path.dirname(folder.path)), target):  # noqa: PTH120
            raise FormatError(f"{folder.path}: a symbolic link to its parent folder {target}")


def array_index(dataset: Dataset, folder: Folder, options: Options) -> ArrayIndex:
    """Return the index of a dataset, its dimensions in N5 order or reversed."""
    where = f"{folder.path}/{NAME}"
    if options.content == "bytes" or dataset.data_type == "object":
        return blocks_index(dataset, folder, options)
    is_string = dataset.data_type == "string"
    itemsize = VARIABLE.get(dataset.data_type) or np.dtype(dataset.data_type).itemsize
    block = dataset.block_size
    chunk = block
    if not is_string and math.prod(block) * itemsize > limits.get().free_bytes:
        # a block may be far larger than the dataset, but nobody reads what lies beyond it
        pairs = zip(block, dataset.dimensions, strict=True)
        chunk = tuple(min(size, max(n, 1)) for size, n in pairs)
    limits.check_chunk(math.prod(chunk) * itemsize, where=f"{where} blockSize {list(block)}")
    compressor = to_codecs(dataset.compression, 1 if is_string else itemsize, where)
    if is_string:
        codecs = string_codecs(compressor, len(block), options)
    elif options.is_reversed:
        codecs = (reversed_codec(compressor, options.order(block) if chunk != block else None),)
    else:
        codecs = (samples_codec(compressor, len(block), block if chunk != block else None),)
    return ArrayIndex(
        shape=options.order(dataset.dimensions),
        chunk_shape=options.order(chunk),
        data_type=dataset.data_type,
        codecs=codecs,
        chunks=block_objects(folder, grid_shape(dataset.dimensions, chunk), options),
        fill_value="" if is_string else 0,
        dimension_names=(None,) * len(block),
    )


def reversed_codec(compressor: list[Json], block: Shape | None = None) -> Json:
    """Return the codec of numeric blocks for an array (z, y, x), whose bytes are in C order.

    Parameters:
        compressor: The codecs of the compression.
        block: The block size, if it is larger than the chunk.
    """
    inner = [{"name": "bytes", "configuration": {"endian": "big"}}, *compressor]
    configuration: dict[str, Json] = {"codecs": inner, "reversed": True}
    if block is not None:
        configuration["block_shape"] = list(block)
    return {"name": "anychunk.n5", "configuration": configuration}


def samples_codec(compressor: list[Json], ndim: int, block: Shape | None = None) -> Json:
    """Return the codec of numeric blocks, `n5_default` as zarr-n5 writes it.

    Parameters:
        compressor: The codecs of the compression.
        ndim: The number of dimensions.
        block: The block size, if it is larger than the chunk.
    """
    order = list(range(ndim))[::-1]
    inner = [
        {"name": "transpose", "configuration": {"order": order}},
        {"name": "bytes", "configuration": {"endian": "big"}},
        *compressor,
    ]
    if block is None:
        return {"name": "n5_default", "configuration": {"codecs": inner}}
    configuration = {"codecs": inner, "block_shape": list(block)}
    return {"name": "anychunk.n5", "configuration": configuration}


def string_codecs(compressor: list[Json], ndim: int, options: Options) -> tuple[Json, ...]:
    """Return the codecs of blocks of strings, which expect the dimensions in N5 order."""
    configuration = {"codecs": [{"name": "bytes"}, *compressor]}
    found: tuple[Json, ...] = (
        {"name": "vlen-utf8"},
        {"name": "anychunk.n5_string", "configuration": configuration},
    )
    if not options.is_reversed or ndim == 1:
        return found
    order = list(range(ndim))[::-1]
    return ({"name": "transpose", "configuration": {"order": order}}, *found)


def block_objects(folder: Folder, grid: Shape, options: Options) -> Objects:
    """Return the chunk table of a dataset: one object per block, named by its N5 coordinates."""
    pattern = "/".join(options.order(tuple(f"{{{i}}}" for i in range(len(grid)))))
    roots = folder.roots if folder.is_local else ()
    return Objects(
        base=folder.path,
        pattern=pattern,
        grid=options.order(grid),
        is_sparse=True,
        roots=roots,
        signed=signed_of(folder.storage),
    )


def blocks_index(dataset: Dataset, folder: Folder, options: Options) -> ArrayIndex:
    """Return the index of a dataset as an array of its blocks, each one element."""
    ndim = len(dataset.block_size)
    itemsize = 1 if dataset.data_type in VARIABLE else np.dtype(dataset.data_type).itemsize
    compressor = to_codecs(dataset.compression, itemsize, f"{folder.path}/{NAME}")
    configuration: dict[str, Json] = {
        "codecs": [{"name": "bytes"}, *compressor],
        "content": "bytes",
    }
    if itemsize > 1:
        configuration["itemsize"] = itemsize
    grid = options.order(grid_shape(dataset.dimensions, dataset.block_size))
    return ArrayIndex(
        shape=grid,
        chunk_shape=(1,) * ndim,
        data_type="variable_length_bytes",
        codecs=({"name": "anychunk.n5", "configuration": configuration},),
        chunks=block_objects(folder, options.order(grid), options),
        fill_value="",
        dimension_names=(None,) * ndim,
    )
