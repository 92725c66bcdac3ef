"""An index as zarr arrays and groups, which read local files in the caller's thread.

zarr creates several objects per chunk and runs every selection on its event loop, which costs more
than decoding small chunks. Selections that are not basic, and arrays that are not local, are still
read by zarr, with the same result.
"""

import itertools
from collections.abc import AsyncGenerator, Generator, Hashable, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import zarr
from zarr.storage import StorePath

from anychunk import codecs
from anychunk._drawn import Drawn
from anychunk.engine.run import MOST_NUMBERS, Engine
from anychunk.errors import NoSuchImageError, OptionError, untrusted
from anychunk.io.source import OnChange, Storage
from anychunk.model import images as im
from anychunk.model.grid import BASIC, spans
from anychunk.model.images import array_path
from anychunk.model.index import (
    ArrayIndex,
    GroupIndex,
    Node,
    find,
    known_arrays,
    saved_at,
    walk,
)
from anychunk.options import checked
from anychunk.zarr.core import (
    ArrayConfig,
    ArrayV3Metadata,
    GroupMetadata,
    cpu,
    default_buffer_prototype,
)
from anychunk.zarr.data_types import data_type
from anychunk.zarr.metadata import array_metadata
from anychunk.zarr.pipeline import IndexPipeline
from anychunk.zarr.store import IndexStore

if TYPE_CHECKING:
    from anychunk.metadata.meaning import Meaning


def open_store(
    index: Node, *, storage: Storage | None = None, on_change: OnChange = "error"
) -> IndexStore:
    """Return a store that shows an index to zarr."""
    if on_change not in ("error", "warn"):
        raise OptionError(f"on_change is {on_change!r}, expected 'error' or 'warn'")
    return IndexStore(index, storage=storage, on_change=on_change)


def open_group(
    index: GroupIndex, *, storage: Storage | None = None, on_change: OnChange = "error"
) -> "Group":
    """Open the root group of an index."""
    return Group.opened(open_store(index, storage=storage, on_change=on_change))


def open_path(
    index: Node, path: str, *, storage: Storage | None = None, on_change: OnChange = "error"
) -> "Array":
    """Open the array at `path` of an index."""
    return from_store(open_store(index, storage=storage, on_change=on_change), path)


def from_store(store: IndexStore, path: str) -> "Array":
    """Open the array at `path` of a store that is open already."""
    found = find(store.index, path)
    if not isinstance(found, ArrayIndex):
        known = [name for name, member in walk(store.index) if isinstance(member, ArrayIndex)]
        more = f" and {len(known) - 20} more" if len(known) > 20 else ""
        raise NoSuchImageError(
            f"{store.where('')}: no array {path!r}; it has: {' '.join(known[:20])}{more}"
        )
    with _metadata_errors(store, path):
        return Array.opened(found, store, path)


@contextmanager
def _metadata_errors(store: Any, path: str) -> Generator[None]:
    """Raise what zarr raises on metadata, such as those of a saved index, as errors of ours."""
    where = store.where(path) if isinstance(store, IndexStore) else path
    with untrusted(f"{where}: zarr does not open the metadata"):
        yield


class AsyncArray(zarr.AsyncArray[ArrayV3Metadata]):
    """zarr's asynchronous array, read by our pipeline, whichever zarr's configuration names."""

    def __init__(
        self, metadata: ArrayV3Metadata, store_path: StorePath, config: Any = None
    ) -> None:
        super().__init__(metadata, store_path, config)
        reads = IndexPipeline(self.metadata.codecs, store_path.store)
        object.__setattr__(self, "codec_pipeline", reads)  # a frozen dataclass sets its fields so


class AsyncGroup(zarr.AsyncGroup):
    """zarr's asynchronous group of an `IndexStore`, whose members are of these two classes."""

    store: Any

    async def getitem(self, key: str) -> "AsyncArray | AsyncGroup":
        path = "/".join(filter(None, [self.path, *key.split("/")]))
        node = find(self.store.index, path)
        if node is None:
            raise KeyError(key)
        return async_node(node, self.store, path)

    async def members(
        self, max_depth: int | None = 0, *, use_consolidated_for_children: bool = True
    ) -> AsyncGenerator[tuple[str, "AsyncArray | AsyncGroup"]]:
        if max_depth is not None and max_depth < 0:
            raise ValueError(f"max_depth must be None or >= 0. Got '{max_depth}' instead")
        for name, node in walk(cast("Node", find(self.store.index, self.path))):
            if name and (max_depth is None or name.count("/") <= max_depth):
                yield name, async_node(node, self.store, "/".join(filter(None, [self.path, name])))


class Array(Drawn, zarr.Array[ArrayV3Metadata]):
    """A read-only `zarr.Array` whose chunks are those of the files that an index describes.

    zarr's own objects are made when they are asked for, if nothing can be wrong with them: reading
    a box of a local file does not need them, and they take longer to make than a small chunk to
    decode.
    """

    @classmethod
    def opened(cls, index: ArrayIndex, store: IndexStore, path: str) -> "Array":
        """Return the array at `path` of a store, whose index is `index`."""
        # from the index itself: zarr would ask the store for the metadata, through its event loop
        if not _is_certain(index, store):
            return cls(async_array(index, store, path))
        array: Array = object.__new__(cls)
        pairs = [codecs.with_key(codec) for codec in index.codecs]
        chain, keys = zip(*pairs, strict=True)
        array.__dict__["_parts"] = _Parts(index, store, path, chain, keys)
        return array

    def __repr__(self) -> str:
        store = self.store
        found = find(store.index, self.path) if isinstance(store, IndexStore) else None
        if not isinstance(found, ArrayIndex):
            return super().__repr__()
        from anychunk.metadata.summary import array_summary  # reading needs none of it

        return array_summary(cast("IndexStore", store).index, self.path, found)

    if not TYPE_CHECKING:  # it would make any name valid

        def __getattr__(self, name: str) -> Any:
            # Python calls this for what the instance lacks
            parts: _Parts | None = self.__dict__.get("_parts")
            if name != "_async_array" or parts is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            with _metadata_errors(parts.store, parts.path):
                made = async_array(parts.array, parts.store, parts.path)
            self.__dict__["_async_array"] = made
            return made

    @property
    def shape(self) -> tuple[int, ...]:
        parts: _Parts | None = self.__dict__.get("_parts")
        return super().shape if parts is None else parts.array.shape

    @shape.setter
    def shape(self, value: tuple[int, ...]) -> None:
        self.resize(value)  # as zarr does; a read-only store refuses it

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, selection: Any) -> Any:
        found = self._read(selection)
        if found is None and _has_steps(selection):
            found = self._pick(selection)
        return super().__getitem__(selection) if found is None else found

    @cached_property
    def _engine(self) -> Engine | None:
        """Everything needed to read without zarr's event loop; None if that is impossible."""
        if default_buffer_prototype().nd_buffer is not cpu.NDBuffer:
            return None
        parts: _Parts | None = self.__dict__.get("_parts")
        if parts is not None:
            index, dtype = parts.array, common_type(parts.array.data_type)
            config, path = array_config(zarr.config.get("array.order")), parts.path
            # of a deferred index no chunk is absent, and its fill value takes long to make
            is_known = "fill_value" in index.__dict__
            fill = dtype.from_json_scalar(index.fill_value, zarr_format=3) if is_known else 0
            key = (parts.keys, index.chunk_shape, index.data_type, repr(fill), config.order)
            reads = IndexPipeline(parts.codecs, parts.store, key=key)
        else:
            pipeline, metadata = self._async_array.codec_pipeline, self.metadata
            if not isinstance(pipeline, IndexPipeline):
                return None
            reads, path, config = pipeline, self.path, self.config
            dtype, fill = metadata.dtype, metadata.fill_value
        if dtype.to_native_dtype().kind not in "biufc":
            return None
        return reads.engine(path, dtype, fill, config)

    def get_orthogonal_selection(self, selection: Any, **options: Any) -> Any:
        found = None if any(options.values()) else self._pick(selection)
        return super().get_orthogonal_selection(selection, **options) if found is None else found

    def get_coordinate_selection(self, selection: Any, **options: Any) -> Any:
        found = None if any(options.values()) else self._points(selection)
        return super().get_coordinate_selection(selection, **options) if found is None else found

    def __getstate__(self) -> dict[str, Any]:
        return {"_async_array": self._async_array}

    def _read(self, selection: Any) -> Any:
        engine = self._engine
        wanted = None if engine is None else spans(selection, engine.shape)
        if wanted is None or engine is None:
            return None
        pieces, dropped = wanted
        out = engine.box(pieces)
        if not dropped:
            return out
        kept = tuple(0 if axis in dropped else slice(None) for axis in range(out.ndim))
        return out[(*kept, ...)]  # of a single element, an array without axes, as zarr returns

    def _pick(self, selection: Any) -> Any:
        """Return what lists of numbers, masks and steps take along each axis."""
        engine = self._engine
        parts = None if engine is None else picked(selection, engine.shape)
        if not parts or engine is None:  # a scalar has no axes to pick from
            return None
        out = engine.outer([np.atleast_1d(part) for part in parts])
        kept = tuple(0 if part.ndim == 0 else slice(None) for part in parts)
        return out[(*kept, ...)]

    def _points(self, selection: Any) -> Any:
        """Return the elements at coordinates."""
        engine = self._engine
        parts = selection if type(selection) is tuple else (selection,)
        if engine is None or not parts or len(parts) != len(engine.shape):
            return None
        found = []
        for part, size in zip(parts, engine.shape, strict=True):
            numbers = np.asarray(part)
            if numbers.dtype.kind not in "iu" or not is_within(numbers, size):
                return None
            found.append(np.where(numbers < 0, numbers + size, numbers).astype(np.int64))
        coords = np.broadcast_arrays(*found)
        return engine.points([c.reshape(-1) for c in coords]).reshape(coords[0].shape)


def _has_steps(selection: Any) -> bool:
    """Return whether a basic selection has a slice with steps."""
    parts = selection if type(selection) is tuple else (selection,)
    return BASIC.issuperset(map(type, parts)) and any(
        type(part) is slice and part.step not in (None, 1) for part in parts
    )


def is_within(numbers: Any, size: int) -> bool:
    """Return whether all numbers count elements of an axis, from its start or end."""
    return not numbers.size or (-size <= int(numbers.min()) and int(numbers.max()) < size)


def picked(selection: Any, shape: tuple[int, ...]) -> list[Any] | None:
    """Return the numbers that are taken along each axis, without axes where it is one integer.

    None for what zarr is to look at: anything but integers, slices, lists of integers and masks.
    """
    parts = list(selection) if type(selection) is tuple else [selection]
    gaps = [i for i, part in enumerate(parts) if part is Ellipsis]
    missing = len(shape) - len(parts) + len(gaps)
    if len(gaps) > 1 or missing < 0:
        return None
    at = gaps[0] if gaps else len(parts)
    parts[at : at + len(gaps)] = [slice(None)] * missing
    found = []
    for part, size in zip(parts, shape, strict=True):
        if type(part) is slice:
            listed = range(*part.indices(size))
            if listed.step < 1 or len(listed) > MOST_NUMBERS:
                return None
            found.append(np.arange(listed.start, listed.stop, listed.step))
            continue
        try:
            numbers = np.asarray(part)
        except ValueError:
            return None
        if numbers.dtype == bool and numbers.shape == (size,):
            found.append(np.flatnonzero(numbers))
        elif numbers.dtype.kind in "iu" and numbers.ndim < 2 and is_within(numbers, size):
            found.append(np.where(numbers < 0, numbers + size, numbers).astype(np.int64))
        else:
            return None
    return found


def async_array(index: ArrayIndex, store: IndexStore, path: str) -> AsyncArray:
    """Return zarr's asynchronous array of an index, with our classes of its codecs."""
    return AsyncArray(array_metadata(index.metadata()), StorePath(store, path))


def async_node(node: Node, store: IndexStore, path: str) -> AsyncArray | AsyncGroup:
    """Return zarr's asynchronous array or group of an index."""
    if isinstance(node, ArrayIndex):
        return async_array(node, store, path)
    return AsyncGroup(GroupMetadata(attributes=node.attributes), StorePath(store, path))


class _Parts(NamedTuple):
    """What zarr's objects are made of."""

    array: ArrayIndex
    store: IndexStore
    path: str
    codecs: tuple[Any, ...]
    keys: tuple[Hashable, ...]
    """Of the codecs."""


FORMATS = frozenset(("tiff", "nitf", "jpeg2000", "npy", "n5", "nifti", "dted"))
"""Formats whose parsers make all of the metadata, instead of passing on what a file states."""
TYPES = frozenset(
    (
        *("bool", "complex64", "complex128", "float16", "float32", "float64"),
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    )
)


def _is_certain(index: ArrayIndex, store: IndexStore) -> bool:
    """Return whether zarr accepts the metadata of an array, so that it can be asked later."""
    if not isinstance(index.data_type, str) or index.data_type not in TYPES:
        return False
    root = store.index
    if known_arrays(root) is not None:
        return True
    about = root.attributes.get("anychunk")
    name = about.get("format") if isinstance(about, Mapping) else None
    return isinstance(name, str) and name in FORMATS and saved_at(root) is None


@cache
def common_type(name: str) -> Any:
    """Return zarr's data type of one of these names."""
    return data_type(name)


@cache
def array_config(order: Any) -> ArrayConfig:
    """Return zarr's configuration of an array that is only read; it has a memory order."""
    return ArrayConfig.from_dict({"order": order})


class Image:
    """An image of a group: the same content at one or several resolutions."""

    def __init__(self, store: IndexStore, folder: str, found: im.Image) -> None:
        self._store, self._folder, self._found = store, folder, found

    def __repr__(self) -> str:
        from anychunk.metadata.summary import image_line

        return f"<Image {image_line(self._node, self._found)}>"

    @property
    def path(self) -> str:
        """The path of the image in its group; empty if the group is itself the image."""
        return self._found.path

    @cached_property
    def levels(self) -> tuple[Array, ...]:
        """The arrays of the levels, full resolution first."""
        return tuple(
            from_store(self._store, im.join(self._folder, path)) for path in self._found.levels
        )

    @property
    def axes(self) -> dict[str, str | None]:
        """The unit of each axis by its name, slowest first; None where the file declares none.

        The unit of georeferenced x and y is that of the CRS.
        """
        return {axis.name: axis.unit for axis in self._meaning.axes}

    @property
    def crs(self) -> str | None:
        """The coordinate reference system, such as `EPSG:32633`, or as WKT; None without one."""
        found = self._meaning.place.crs
        return None if found is None else found.code or found.wkt

    @property
    def pixel_size(self) -> dict[str, float]:
        """The size of an element of the full resolution along each axis for which it is known."""
        from anychunk.metadata.ome import pixel_size

        return pixel_size(self._meaning)

    @property
    def _node(self) -> Node:
        return cast("Node", find(self._store.index, self._folder))

    @cached_property
    def _meaning(self) -> "Meaning":
        from anychunk.metadata.reading import meaning_of  # reading needs none of it

        return meaning_of(self._node, self._found)


MOST_KEYS = 1000
"""How many paths are offered to complete a key."""


class Group(Drawn, zarr.Group):
    """A read-only `zarr.Group` of an index; its members are `Array` and `Group` as well."""

    @classmethod
    def opened(cls, store: IndexStore) -> "Group":
        """Return the root group of a store; zarr's objects are made when they are asked for."""
        group: Group = object.__new__(cls)
        group.__dict__["_store"] = store
        return group

    if not TYPE_CHECKING:  # it would make any name valid

        def __getattr__(self, name: str) -> Any:
            store: IndexStore | None = self.__dict__.get("_store")
            if name != "_async_group" or store is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            made = self.__dict__["_async_group"] = async_node(store.index, store, "")
            return made

    def __getstate__(self) -> dict[str, Any]:
        return {"_async_group": self._async_group}

    @property
    def _place(self) -> tuple[Any, str]:
        """The store, and the path in it."""
        store = self.__dict__.get("_store")
        return (self.store, self.path) if store is None else (store, "")

    def __repr__(self) -> str:
        store, path = self._place
        if not isinstance(store, IndexStore):
            return super().__repr__()
        from anychunk.metadata.summary import group_summary  # reading needs none of it

        return group_summary(store.index, path)

    @property
    def images(self) -> tuple[Image, ...]:
        """All images below this group, in the order of their numbers."""
        store, path, node = self._opened_here()
        return tuple(Image(store, path, found) for found in im.images(node))

    def _ipython_key_completions_(self) -> list[str]:
        """Return the paths of members, to complete `group["` without asking a server."""
        _, _, node = self._opened_here()
        if isinstance(node, ArrayIndex) or getattr(node.members, "is_remote", False):
            return []
        return [name for name, _ in itertools.islice(walk(node), MOST_KEYS) if name]

    def _opened_here(self) -> tuple[IndexStore, str, Node]:
        """Return the store, the path in it, and the index of this group."""
        store, path = self._place
        node = find(store.index, path) if isinstance(store, IndexStore) else None
        if node is None:
            raise TypeError("not a group that anychunk opened")
        return store, path, node

    @checked()
    def image(self, image: int | str = 0, *, level: int | str = 0) -> Array:
        """Return one level of an image.

        Parameters:
            image: The number of the image below this group, or its path.
            level: The number of the level, 0 for full resolution, or its name.

        Raises:
            NoSuchImageError: There is no such image or level.
        """
        store, path, node = self._opened_here()
        return from_store(store, "/".join(filter(None, [path, array_path(node, image, level)])))

    def __getitem__(self, path: str) -> Any:
        store, own = self._place
        whole = "/".join(filter(None, [own, *path.split("/")]))
        if isinstance(store, IndexStore) and isinstance(find(store.index, whole), ArrayIndex):
            return from_store(store, whole)
        if isinstance(store, IndexStore) and find(store.index, whole) is None:
            raise NoSuchImageError(f"{store.where(own)}: no array or group {path!r}")
        with _metadata_errors(store, whole):
            return _ours(super().__getitem__(path))

    def members(self, *args: Any, **kwargs: Any) -> tuple[tuple[str, Any], ...]:
        with _metadata_errors(self.store, self.path):
            return tuple((name, _ours(node)) for name, node in super().members(*args, **kwargs))

    def arrays(self) -> Generator[tuple[str, Any], None]:
        with _metadata_errors(self.store, self.path):
            found = tuple(super().arrays())
        for name, node in found:
            yield name, _ours(node)

    def groups(self) -> Generator[tuple[str, Any], None]:
        with _metadata_errors(self.store, self.path):
            found = tuple(super().groups())
        for name, node in found:
            yield name, _ours(node)


def _ours(node: Any) -> Any:
    """Return zarr's array or group as ours."""
    if isinstance(node, zarr.Group):
        return Group(node._async_group)  # noqa: SLF001 - the only way to the same group
    return Array(node.async_array)
