"""An index as zarr arrays and groups, which read local files in the caller's thread.

zarr creates several objects per chunk and runs every selection on its event loop, which costs more
than decoding small chunks. Selections that are not basic, and arrays that are not local, are still
read by zarr, with the same result.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import zarr
from zarr.storage import StorePath

from anychunk import codecs
from anychunk.codecs import zarr_registry
from anychunk.codecs.zarr_core import ArraySpec, default_buffer_prototype, get_data_type_from_json
from anychunk.decode.chunks import ChunkReader
from anychunk.errors import NoSuchImageError, untrusted
from anychunk.io import OnChange, Storage
from anychunk.model.grid import plan_box, spans
from anychunk.model.images import array_path
from anychunk.model.index import ArrayIndex, GroupIndex, Node, find, walk
from anychunk.read import pipeline
from anychunk.read.pipeline import IndexPipeline
from anychunk.read.zarr_core import ArrayV3Metadata, AsyncArray, AsyncGroup, GroupMetadata, cpu
from anychunk.read.zarr_store import IndexStore


def open_store(
    index: Node, *, storage: Storage | None = None, on_change: OnChange = "error"
) -> IndexStore:
    """Return a store that shows an index to zarr.

    Two settings of zarr change for the whole process, unless they were already configured: its
    default pipeline is replaced by one that reads arrays of such stores in batches, and our classes
    are registered under codec names that are still unregistered. `anychunk.disable` undoes the
    first.
    """
    if on_change not in ("error", "warn"):
        raise ValueError(f"on_change is {on_change!r}, expected 'error' or 'warn'")
    pipeline.install()
    zarr_registry.register_unclaimed()
    return IndexStore(index, storage=storage, on_change=on_change)


def open_group(
    index: GroupIndex, *, storage: Storage | None = None, on_change: OnChange = "error"
) -> "Group":
    """Open the root group of an index."""
    place = StorePath(open_store(index, storage=storage, on_change=on_change))
    return Group(AsyncGroup(GroupMetadata(attributes=index.attributes), place))


def open_path(
    index: Node, path: str, *, storage: Storage | None = None, on_change: OnChange = "error"
) -> "Array":
    """Open the array at `path` of an index."""
    return _array(index, path, open_store(index, storage=storage, on_change=on_change))


def _array(index: Node, path: str, store: IndexStore) -> "Array":
    found = find(index, path)
    if not isinstance(found, ArrayIndex):
        known = [name for name, member in walk(index) if isinstance(member, ArrayIndex)]
        more = f" and {len(known) - 20} more" if len(known) > 20 else ""
        raise NoSuchImageError(
            f"{store.where('')}: no array {path!r}; it has: {' '.join(known[:20])}{more}"
        )
    # from the index itself: zarr would ask the store for the metadata, through its event loop
    with _metadata_errors(store, path):
        return Array(AsyncArray(array_metadata(found), StorePath(store, path)))


@contextmanager
def _metadata_errors(store: Any, path: str) -> Generator[None]:
    """Raise what zarr raises on metadata, such as those of a saved index, as errors of ours."""
    where = store.where(path) if isinstance(store, IndexStore) else path
    with untrusted(f"{where}: zarr does not open the metadata"):
        yield


class Array(zarr.Array[ArrayV3Metadata]):
    """A read-only `zarr.Array` whose chunks are those of the files that an index describes."""

    def __getitem__(self, selection: Any) -> Any:
        found = self._read(selection)
        return super().__getitem__(selection) if found is None else found

    @cached_property
    def _reading(self) -> "_Reading | None":
        """Everything needed to read without zarr's event loop; None if that is impossible."""
        pipeline, prototype = self._async_array.codec_pipeline, default_buffer_prototype()
        if not isinstance(pipeline, IndexPipeline) or prototype.nd_buffer is not cpu.NDBuffer:
            return None
        metadata = self.metadata
        dtype = metadata.dtype.to_native_dtype()
        reader = pipeline.local_reader(self.path)
        if reader is None or dtype.kind not in "biufc":
            return None
        # not `self.chunks`: for a sharded array those are the pieces of a shard
        chunk = reader.index.chunk_shape
        spec = ArraySpec(chunk, metadata.dtype, metadata.fill_value, self.config, prototype)
        return _Reading(pipeline, reader, spec, dtype, self.shape)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_reading"}

    def _read(self, selection: Any) -> Any:
        reading = self._reading
        wanted = None if reading is None else spans(selection, reading.shape)
        if wanted is None or reading is None:
            return None
        pieces, dropped = wanted
        if len(dropped) == len(pieces):  # one element: zarr decides whether it is a scalar
            return None
        spec = reading.spec
        sizes = [stop - start for start, stop in pieces]
        if 0 in sizes:
            # other axes may announce any number of chunks, which zarr and `plan_box` would list
            out = np.empty(sizes, reading.dtype, spec.config.order)
        else:
            plan = plan_box(pieces, spec.shape)
            reading.pipeline.check_sizes(reading.reader, plan, spec)
            out = np.empty(sizes, reading.dtype, spec.config.order)
            reading.pipeline.read_now(reading.reader, plan, spec, out)
        if not dropped:
            return out
        return out[tuple(0 if axis in dropped else slice(None) for axis in range(out.ndim))]


def array_metadata(index: ArrayIndex) -> ArrayV3Metadata:
    """Return zarr's metadata of an array, with our classes for the codecs that are ours."""
    document = index.metadata()
    data_type = get_data_type_from_json(index.data_type, zarr_format=3)
    return ArrayV3Metadata(
        shape=index.shape,
        data_type=data_type,
        chunk_grid=document["chunk_grid"],
        chunk_key_encoding=document["chunk_key_encoding"],
        fill_value=data_type.from_json_scalar(index.fill_value, zarr_format=3),
        codecs=[codecs.from_json(codec) for codec in index.codecs],
        attributes=index.attributes,
        dimension_names=index.dimension_names,
    )


class _Reading(NamedTuple):
    pipeline: IndexPipeline
    reader: ChunkReader
    spec: ArraySpec
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Group(zarr.Group):
    """A read-only `zarr.Group` of an index; its members are `Array` and `Group` as well."""

    def image(self, image: int | str = 0, *, level: int | str = 0) -> Array:
        """Return one level of an image.

        Parameters:
            image: The number of the image below this group, or its path.
            level: The number of the level, 0 for full resolution, or its name.

        Raises:
            NoSuchImageError: There is no such image or level.
        """
        store = self.store
        if not isinstance(store, IndexStore):
            raise TypeError(f"{self!r}: not a group opened by anychunk")
        node = find(store.index, self.path)
        below = "" if node is None else array_path(node, image, level)
        return _array(store.index, "/".join(filter(None, [self.path, below])), store)

    def __getitem__(self, path: str) -> Any:
        store = self.store
        whole = "/".join(filter(None, [self.path, *path.split("/")]))
        if isinstance(store, IndexStore) and isinstance(find(store.index, whole), ArrayIndex):
            return _array(store.index, whole, store)
        if isinstance(store, IndexStore) and find(store.index, whole) is None:
            raise NoSuchImageError(f"{store.where(self.path)}: no array or group {path!r}")
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
