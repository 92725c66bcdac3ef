"""Arrays of ordinary Zarr that zarr opened: read by the engine, written by zarr's own pipeline.

Such arrays change while they are open. So nothing outlives one read: no decoded chunk, no index of
a shard, no open file. What the engine does not read, zarr reads, and reports errors.
"""

import asyncio
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from zarr.abc.codec import Codec, CodecPipeline, GetResult
from zarr.abc.store import Store
from zarr.storage import LocalStore, ObjectStore

from anychunk import codecs, limits
from anychunk.codecs.chain import Decoder
from anychunk.codecs.chunk_layout import ChunkLayout, ShardLayout
from anychunk.engine.rows import ABSENT, PLACED, Data, names_of, table_of_places
from anychunk.engine.shards import read_shard
from anychunk.engine.threads import INLINE_BYTES
from anychunk.errors import AnychunkError
from anychunk.formats._zarr_metadata import from_v2
from anychunk.io.system import DIRECTORY, HAS_HANDLES, NOFOLLOW, READ
from anychunk.io.threads import run_ranges
from anychunk.native import loops
from anychunk.zarr.core import (
    ArraySpec,
    ArrayV3Metadata,
    Buffer,
    NDBuffer,
    default_buffer_prototype,
)
from anychunk.zarr.foreign import chunk_spec
from anychunk.zarr.selectors import Places, boxes_of, fill_of, workers

type Item = tuple[Any, ArraySpec, Any, Any, bool]
type Layout = ChunkLayout | ShardLayout

PRESENT, MISSING = GetResult(status="present"), GetResult(status="missing")
INLINE_RESULT, INLINE_CHUNKS = 64 << 10, 4
"""Results up to this size, from so many chunks, are read on the event loop itself."""
MANY_BYTES = 4 << 20
"""How many bytes of chunks a thread decodes in one call of the compiled loop."""


class Delegating(CodecPipeline):
    """A pipeline that reads by itself, and leaves single chunks to zarr's pipeline."""

    @property
    @abstractmethod
    def base(self) -> CodecPipeline:
        """The pipeline of zarr."""

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> Self:
        raise NotImplementedError(f"{cls.__name__} requires a store")

    def validate(self, **kwargs: Any) -> None:
        self.base.validate(**kwargs)

    def compute_encoded_size(self, byte_length: int, array_spec: ArraySpec) -> int:
        return self.base.compute_encoded_size(byte_length, array_spec)

    async def decode(
        self, chunk_bytes_and_specs: Iterable[tuple[Buffer | None, ArraySpec]]
    ) -> Iterable[NDBuffer | None]:
        return await self.base.decode(chunk_bytes_and_specs)

    async def encode(
        self, chunk_arrays_and_specs: Iterable[tuple[NDBuffer | None, ArraySpec]]
    ) -> Iterable[Buffer | None]:
        return await self.base.encode(chunk_arrays_and_specs)


class StorePipeline(Delegating):
    """Reads the chunks of one array; leaves everything else to zarr's pipeline."""

    def __init__(self, base: CodecPipeline, documents: Sequence[Any], store: Store) -> None:
        """Create the pipeline of an array.

        Parameters:
            base: That of zarr.
            documents: The JSON of the codecs.
            store: The store of the array.
        """
        self._base, self._documents, self._store = base, tuple(documents), store
        self._layout: tuple[ArraySpec, Layout | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_layout": None}  # it has addresses of functions

    @property
    def base(self) -> CodecPipeline:
        return self._base

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        base = self._base.evolve_from_array_spec(array_spec)
        return type(self)(base, self._documents, self._store)

    def __iter__(self) -> Iterator[Codec]:
        return iter(self._base)  # type: ignore[call-overload,no-any-return]

    @property
    def supports_partial_decode(self) -> bool:
        return self._base.supports_partial_decode

    @property
    def supports_partial_encode(self) -> bool:
        return self._base.supports_partial_encode

    async def write(
        self, batch_info: Iterable[Any], value: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> None:
        await self._base.write(batch_info, value, drop_axes)

    async def read(
        self, batch_info: Iterable[Item], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> tuple[GetResult, ...]:
        items = list(batch_info)
        found = None if drop_axes or not items else self._places(items, out)
        if found is None:
            return await self._base.read(items, out, drop_axes)
        layout, places, target = found
        spec, keys = items[0][1], [item[0].path for item in items]
        read: Callable[..., Any] = read_shards if isinstance(layout, ShardLayout) else read_files
        root = root_of(self._store)
        if root is not None:
            arguments = layout, root, keys, places, target, fill_of(spec)
            if target.nbytes <= INLINE_RESULT and len(keys) <= INLINE_CHUNKS:
                done = read(*arguments)  # in less time than another thread takes to start
            else:
                done = await asyncio.to_thread(read, *arguments)
        elif isinstance(layout, ChunkLayout):
            done = await fetch(layout, self._store, keys, places, target, fill_of(spec))
        else:
            return await self._base.read(items, out, drop_axes)
        results = [MISSING if state == ABSENT else PRESENT for state in done.tolist()]
        left = np.flatnonzero((done != PLACED) & (done != ABSENT)).tolist()
        if left:
            rest = await self._base.read([items[i] for i in left], out, drop_axes)
            for i, result in zip(left, rest, strict=True):
                results[i] = result
        return tuple(results)

    def _places(self, items: Sequence[Item], out: NDBuffer) -> tuple[Layout, Places, Any] | None:
        """Return the layout and the boxes of a selection; None if zarr is to read it."""
        spec, array = items[0][1], out.as_ndarray_like()
        if not isinstance(array, np.ndarray) or array.dtype != spec.dtype.to_native_dtype():
            return None
        layout = self._layout_for(spec)
        boxes = None if layout is None else boxes_of([(s, t) for _, _, s, t, _ in items], array)
        if layout is None or boxes is None or not boxes[1].flags.c_contiguous:
            return None
        return layout, *boxes

    def _layout_for(self, spec: ArraySpec) -> Layout | None:
        known = self._layout
        if known is None or (known[0] is not spec and known[0] != spec):
            known = self._layout = spec, self._made_layout(spec)
        return known[1]

    def _made_layout(self, spec: ArraySpec) -> Layout | None:
        if loops is None:
            return None
        try:
            decode = Decoder([codecs.from_json(d) for d in self._documents], chunk_spec(spec))
        except Exception:  # noqa: BLE001 - zarr has built these codecs; ours are not needed
            return None
        layout = decode.layout or decode.shards
        nbytes = layout.inner.nbytes if isinstance(layout, ShardLayout) else decode.nbytes
        return layout if nbytes <= limits.get().free_bytes else None


def pipeline_of(base: CodecPipeline, metadata: Any, store: Store) -> CodecPipeline:
    """Return what reads an array of a store faster than zarr's pipeline, or that."""
    if not isinstance(store, LocalStore | ObjectStore):
        return base
    try:
        document = metadata.to_dict()
        if isinstance(metadata, ArrayV3Metadata):
            documents = document["codecs"]
        else:
            documents = from_v2(document, {}, "")["codecs"]
    except (AnychunkError, KeyError, ValueError, TypeError):
        return base
    return StorePipeline(base, documents, store)


def root_of(store: Store) -> str | None:
    """Return the folder of a store on this machine; None if it has none."""
    if not HAS_HANDLES:
        return None
    if isinstance(store, LocalStore):
        return str(store.root)
    prefix = getattr(getattr(store, "store", None), "prefix", None)
    return str(prefix) if isinstance(prefix, Path) else None


def read_files(  # noqa: PLR0917 - a selection
    layout: ChunkLayout, root: str, keys: Sequence[str], places: Places, out: Any, fill: Any
) -> Any:
    """Read chunks that are files; return for each whether it is placed, absent or left."""
    done = np.zeros(len(keys), np.uint8)
    table = table_of_places(layout, places, out)
    try:
        folder = os.open(root, DIRECTORY & ~NOFOLLOW)
    except OSError:
        return done
    try:
        if table is not None:
            names, offsets = names_of(keys)
            lengths = np.zeros(len(keys), np.uint64)
            data = Data(names, offsets, lengths, folder, most_stored(layout))

            def run(items: range) -> None:
                part = slice(items.start, items.stop)
                done[part] = table.part(part).decode(data.part(part))

            is_little = len(keys) * layout.nbytes <= INLINE_BYTES
            threads = 1 if is_little else min(workers(), len(keys))
            most = max(1, MANY_BYTES // layout.nbytes)
            run_ranges(run, len(keys), threads=threads, most=most)
    finally:
        os.close(folder)
    fill_absent(done, places, out, fill)
    return done


def read_shards(  # noqa: PLR0917 - a selection
    layout: ShardLayout, root: str, keys: Sequence[str], places: Places, out: Any, fill: Any
) -> Any:
    """Read shards that are files, in the same way."""
    done = np.zeros(len(keys), np.uint8)
    few = len(keys) < workers()

    def run(items: range) -> None:
        for i in items:
            try:
                handle = os.open(f"{root}/{keys[i]}", READ)
            except FileNotFoundError:
                done[i] = ABSENT
                continue
            except OSError:
                continue
            threads = workers() if few else 1
            try:
                is_done = read_shard(
                    handle, layout, *places[i], out=out, fill=fill, threads=threads
                )
            finally:
                os.close(handle)
            done[i] = PLACED if is_done else 0

    run_ranges(run, len(keys), threads=1 if few else workers(), most=4)
    fill_absent(done, places, out, fill)
    return done


async def fetch(  # noqa: PLR0917 - a selection
    layout: ChunkLayout, store: Any, keys: Sequence[str], places: Places, out: Any, fill: Any
) -> Any:
    """Read chunks that are objects of a remote store, in the same way."""
    done = np.zeros(len(keys), np.uint8)
    table = table_of_places(layout, places, out)
    if table is None:
        return done
    slots = asyncio.Semaphore(limits.get().concurrency)
    prototype = default_buffer_prototype()

    def decode(i: int, stored: Any) -> None:
        data = Data(stored, np.zeros(1, np.uint64), np.array([len(stored)], np.uint64))
        done[i] = table.part(slice(i, i + 1)).decode(data)[0]

    async def one(i: int) -> None:
        async with slots:
            found = await store.get(keys[i], prototype)
            if found is None:
                done[i] = ABSENT
            elif len(found):
                await asyncio.to_thread(decode, i, found.as_numpy_array().view(np.uint8))

    async with asyncio.TaskGroup() as tasks:
        for i in range(len(keys)):
            tasks.create_task(one(i))
    fill_absent(done, places, out, fill)
    return done


def fill_absent(done: Any, places: Places, out: Any, fill: Any) -> None:
    """Fill the places of absent chunks."""
    for i in np.flatnonzero(done == ABSENT).tolist():
        out[places[i][1]] = fill


def most_stored(layout: ChunkLayout) -> int:
    """Return how many bytes a stored chunk may have, which may be longer than decoded."""
    return max(limits.get().free_bytes, 2 * layout.nbytes)
