"""N5 folders as an index: groups whose members are read on demand, and datasets."""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from anychunk import limits
from anychunk.errors import FormatError, OptionError, UnsupportedError
from anychunk.formats.n5.attributes import NAME, Dataset, is_dataset, read_attributes, read_dataset
from anychunk.formats.n5.compression import to_codecs
from anychunk.formats.n5.multiscale import axis_names, multiscales
from anychunk.io import Folder
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node, Objects

type Attributes = dict[str, Json]

VARIABLE = {"string": 16, "object": 16}
"""Types of variable length, with an estimate of the memory that an element takes."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `anychunk.open` for N5."""

    axes: Literal["n5", "reversed"] = "n5"
    """`n5`: dimension 0 first, as `attributes.json` lists them; `reversed`: (z, y, x)."""
    blocks: Literal["samples", "bytes"] = "samples"
    """`bytes`: every dataset is an array of its blocks, whose elements are the blocks' payloads."""

    def __post_init__(self) -> None:
        for name, known in (("axes", ("n5", "reversed")), ("blocks", ("samples", "bytes"))):
            value = getattr(self, name)
            if value not in known:
                raise OptionError(f"N5: {name}={value!r}, expected one of {' '.join(known)}")

    def order(self, values: Shape | tuple[Any, ...]) -> tuple[Any, ...]:
        """Convert a list from N5 order to the order of the array's axes."""
        return tuple(values[::-1]) if self.axes == "reversed" else tuple(values)


def read_folder(folder: Folder) -> Attributes | None:
    """Return the attributes of a group or dataset, None if it has no `attributes.json`."""
    data = folder.read(NAME)
    return None if data is None else read_attributes(data, f"{folder.path}/{NAME}")


def node(folder: Folder, attributes: Attributes, options: Options, parent: Attributes) -> Node:
    """Index a folder: a dataset or a group.

    Parameters:
        folder: The folder.
        attributes: Its attributes.
        options: The caller's options.
        parent: The attributes of the group that holds it; BigDataViewer stores the
            factors of levels there.
    """
    if is_dataset(attributes):
        where = f"{folder.path}/{NAME}"
        return array_index(read_dataset(attributes, where), attributes, folder, options)
    members = Members(folder, options, attributes)
    described: Attributes = {"n5": attributes} if attributes else {}
    ome = multiscales(attributes, parent, members.attributes, options.order)
    return GroupIndex(members=members, attributes=described | ({"ome": ome} if ome else {}))


@dataclass(eq=False)
class Members(Mapping[str, Node]):
    """The members of a group: listed when iterated, each read on demand."""

    folder: Folder
    options: Options
    parent: Attributes
    """The attributes of the group."""
    _read: dict[str, Node] = field(default_factory=dict, repr=False)

    def attributes(self, name: str) -> Attributes | None:
        """Return the attributes of a member without indexing it."""
        return read_folder(self.folder.child(name)) if is_name(name) else None

    def __getitem__(self, name: str) -> Node:
        found = self._read.get(name)
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
        return (name for name in self.folder.names()[0] if is_name(name))

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
    if folder.is_local and os.path.islink(folder.path):  # noqa: PTH114 - once per member
        target = os.path.realpath(folder.path)
        above = os.path.realpath(os.path.dirname(folder.path))  # noqa: PTH120
        if os.path.commonpath([target, above]) == target:
            raise FormatError(f"{folder.path}: a symbolic link to its parent folder {target}")


def array_index(
    dataset: Dataset, attributes: Attributes, folder: Folder, options: Options
) -> ArrayIndex:
    """Return the index of a dataset."""
    where = f"{folder.path}/{NAME}"
    if options.blocks == "bytes" or dataset.data_type == "object":
        return blocks_index(dataset, attributes, folder, options)
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
        codecs = string_codecs(compressor)
    else:
        codecs = (samples_codec(compressor, len(block), block if chunk != block else None),)
    return ArrayIndex(
        shape=options.order(dataset.dimensions),
        chunk_shape=options.order(chunk),
        data_type=dataset.data_type,
        codecs=ordered(codecs, len(block), options),
        chunks=block_objects(folder, grid_shape(dataset.dimensions, chunk), options),
        fill_value="" if is_string else 0,
        dimension_names=options.order(axis_names(attributes, len(block))),
        attributes={"n5": attributes},
    )


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
    return {"name": "anychunk.n5_cropped", "configuration": configuration}


def string_codecs(compressor: list[Json]) -> tuple[Json, ...]:
    """Return the codecs of blocks of strings."""
    configuration = {"codecs": [{"name": "bytes"}, *compressor]}
    return (
        {"name": "vlen-utf8"},
        {"name": "anychunk.n5_string", "configuration": configuration},
    )


def ordered(codecs: tuple[Json, ...], ndim: int, options: Options) -> tuple[Json, ...]:
    """Return the codecs of an array whose axes may be reversed: N5 codecs expect N5 order."""
    if options.axes == "n5" or ndim == 1:
        return codecs
    order = list(range(ndim))[::-1]
    return ({"name": "transpose", "configuration": {"order": order}}, *codecs)


def block_objects(folder: Folder, grid: Shape, options: Options) -> Objects:
    """Return the chunk table of a dataset: one object per block, named by its N5 coordinates."""
    pattern = "/".join(options.order(tuple(f"{{{i}}}" for i in range(len(grid)))))
    roots = (folder.root,) if folder.is_local else ()
    return Objects(
        base=folder.path, pattern=pattern, grid=options.order(grid), is_sparse=True, roots=roots
    )


def blocks_index(
    dataset: Dataset, attributes: Attributes, folder: Folder, options: Options
) -> ArrayIndex:
    """Return the index of a dataset as an array of its blocks, each one element."""
    ndim = len(dataset.block_size)
    itemsize = 1 if dataset.data_type in VARIABLE else np.dtype(dataset.data_type).itemsize
    compressor = to_codecs(dataset.compression, itemsize, f"{folder.path}/{NAME}")
    configuration: dict[str, Json] = {"codecs": [{"name": "bytes"}, *compressor]}
    if itemsize > 1:
        configuration["itemsize"] = itemsize
    grid = options.order(grid_shape(dataset.dimensions, dataset.block_size))
    return ArrayIndex(
        shape=grid,
        chunk_shape=(1,) * ndim,
        data_type="variable_length_bytes",
        codecs=({"name": "anychunk.n5_bytes", "configuration": configuration},),
        chunks=block_objects(folder, options.order(grid), options),
        fill_value="",
        dimension_names=options.order(axis_names(attributes, ndim)),
        attributes={"n5": attributes},
    )
