"""The fast read path: all chunks of a selection are planned at once and decoded by a few threads.

`IndexPipeline` belongs to one array, and is pickled with it. While `anychunk.enable` is in effect,
zarr asks `Dispatcher` for the pipeline of each array that it opens: an `IndexPipeline` for stores
that have chunk readers, for others the pipeline that was configured before.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.codec import Codec, CodecPipeline, GetResult
from zarr.abc.store import Store
from zarr.registry import register_pipeline

from anychunk import limits
from anychunk.codecs.cast import fuse
from anychunk.codecs.chain import Decoder, ours
from anychunk.codecs.zarr_core import (
    ArraySpec,
    ArrayV3Metadata,
    BatchedCodecPipeline,
    Buffer,
    NDBuffer,
    pipeline_registry,
)
from anychunk.decode.chunks import ChunkReader, HasReaders
from anychunk.io.cache import Cache
from anychunk.model.grid import Numbers, Plan, parse_many_coords
from anychunk.read.batch import Batch, recall
from anychunk.read.chunk_threads import in_threads
from anychunk.read.joint_places import Selector
from anychunk.read.local_reads import read_adjacent, read_local, read_many
from anychunk.read.remote_reads import read_remote
from anychunk.zarr.codecs import adapted

type Item = tuple[Any, ArraySpec, Selector, Selector, bool]

PATH = "codec_pipeline.path"
PRESENT, MISSING = GetResult(status="present"), GetResult(status="missing")

DECODERS: Cache[Decoder] = Cache(64)
"""Decoders of the last arrays: files of a set often differ only in where their chunks are."""


class IndexPipeline(CodecPipeline):
    """Reads arrays of a store that has chunk readers."""

    def __init__(
        self,
        codecs: Sequence[Codec],
        store: Store,
        *,
        base: CodecPipeline | None = None,
        key: tuple[Hashable, ...] | None = None,
    ) -> None:
        """Create the pipeline of an array.

        Parameters:
            codecs: The codecs of the array.
            store: Its store.
            base: zarr's pipeline; None: made when it is needed.
            key: Equal for arrays that the same decoder serves; None: the decoder is not shared.
        """
        self._made_base = base
        self._key = key
        self._codecs = tuple(codecs)
        self._store = store
        self._decoder: tuple[ArraySpec, Decoder] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_decoder": None}

    @property
    def _base(self) -> CodecPipeline:
        """The pipeline of zarr, for what it does with single chunks."""
        if self._made_base is None:
            self._made_base = BatchedCodecPipeline.from_codecs(map(adapted, self._codecs))
        return self._made_base

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> Self:
        raise NotImplementedError("IndexPipeline requires a store")

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        base = self._base.evolve_from_array_spec(array_spec)
        return type(self)(self._codecs, self._store, base=base)

    def __iter__(self) -> Iterator[Codec]:
        return iter(self._codecs)

    @property
    def supports_partial_decode(self) -> bool:
        return False

    @property
    def supports_partial_encode(self) -> bool:
        return False

    def validate(self, **kwargs: Any) -> None:
        self._base.validate(**kwargs)

    def compute_encoded_size(self, byte_length: int, array_spec: ArraySpec) -> int:
        return self._base.compute_encoded_size(byte_length, array_spec)

    async def decode(
        self, chunk_bytes_and_specs: Iterable[tuple[Buffer | None, ArraySpec]]
    ) -> Iterable[NDBuffer | None]:
        return await self._base.decode(chunk_bytes_and_specs)

    async def encode(
        self, chunk_arrays_and_specs: Iterable[tuple[NDBuffer | None, ArraySpec]]
    ) -> Iterable[Buffer | None]:
        return await self._base.encode(chunk_arrays_and_specs)

    async def write(
        self, batch_info: Iterable[Any], value: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> None:
        raise ValueError("store was opened in read-only mode and does not support writing")

    def _decoder_for(self, spec: ArraySpec, reader: ChunkReader | None) -> Decoder:
        made = self._decoder
        if made is None or (made[0] is not spec and made[0] != spec):
            is_range = reader is not None and reader.has_ranges
            key = None if self._key is None else (*self._key, is_range)
            shared = None if key is None else DECODERS.get(key)
            if shared is not None:
                self._decoder = (spec, shared)
                return shared
            codecs: Sequence[Any] = self._codecs
            if reader is not None:
                # zarr may have chosen another package's class, which drops keys that only ours has
                codecs = [ours(c, d) for c, d in zip(codecs, reader.index.codecs, strict=True)]
            made = self._decoder = (spec, Decoder(codecs, spec, is_range=is_range))
            if key is not None:
                DECODERS.put(key, made[1], 1)
        return made[1]

    async def read(
        self, batch_info: Iterable[Item], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> tuple[GetResult, ...]:
        items = list(batch_info)
        if not items:
            return ()
        spec = items[0][1]

        def places(positions: Iterable[int]) -> Iterator[tuple[Selector, Selector]]:
            return ((items[position][2], items[position][3]) for position in positions)

        path, numbers = chunk_numbers(
            [item[0].path for item in items], self._store, len(spec.shape)
        )
        reader = self._store.chunk_reader(path)  # type: ignore[attr-defined]
        batch = Batch(places, spec, out, self._decoder_for(spec, reader), drop_axes=drop_axes)
        if reader is None:
            await self._read_computed(batch, [item[0] for item in items])
        elif reader.is_local:
            # not on zarr's event loop, which serves all other reads of the process
            await asyncio.to_thread(read_local, batch, reader, reader.begin(), numbers)
        else:
            await read_remote(batch, reader, numbers)
        results = [PRESENT] * len(items)
        for position in batch.missing:
            results[position] = MISSING
        return tuple(results)

    def local_reader(self, path: str) -> ChunkReader | None:
        """Return the chunk reader of an array whose chunks are all local, or None."""
        reader: ChunkReader | None = self._store.chunk_reader(path)  # type: ignore[attr-defined]
        return reader if reader is not None and reader.is_local else None

    def check_sizes(self, reader: ChunkReader, plan: Plan, spec: ArraySpec) -> None:
        """Refuse large chunks that are too large for their stored bytes.

        To be called before any memory is allocated for the result.
        """
        decode = self._decoder_for(spec, reader)
        if decode.nbytes <= limits.get().free_bytes or not decode.is_sized:
            return
        for number in plan.numbers(reader.grid):
            stored = reader.size(int(number))
            if stored is not None:
                where = reader.describe(int(number))
                limits.check_chunk(decode.nbytes, where=where, stored=stored)

    def read_now(
        self, reader: ChunkReader, plan: Plan, spec: ArraySpec, out: npt.NDArray[Any]
    ) -> None:
        """Read chunks of a local array in the caller's thread, without zarr's event loop."""
        decode = self._decoder_for(spec, reader)
        numbers = plan.numbers(reader.grid)
        reading = reader.begin()
        keys: Sequence[Hashable] = ()
        wanted = len(plan) * decode.nbytes
        # cache only if at least half of the decoded bytes remain for later reads, the chunks do not
        # fill most of the cache, and decoding does any work
        if 2 * out.nbytes <= wanted <= limits.get().recent_bytes // 2 and not decode.is_view:
            token = reading.token()
            if token is not None:
                keys = [(token, reader.where, int(number)) for number in numbers]
                if recall(keys, plan, out):
                    return
        batch = Batch(plan.places, spec, out, decode, is_plain=True)
        batch.recent = keys
        batch.row = plan.grid[-1]
        found = np.asarray(numbers)
        if decode.is_view and read_adjacent(batch, reader, reading, plan, found):
            return
        if not keys and read_many(batch, reader, reading, plan, found):
            return
        read_local(batch, reader, reading, found)

    async def _read_computed(self, batch: Batch, keys: Sequence[Any]) -> None:
        """Read chunks that the store computes, by key; each thread reads one at a time."""
        get: Callable[[str], Buffer | None] = self._store.get_sync  # type: ignore[attr-defined]

        def name(position: int) -> str:
            return str(keys[position])

        def run(positions: range) -> None:
            for position in positions:
                data = get(keys[position].path)
                stored = None if data is None else data.as_numpy_array()
                batch.scatter(range(position, position + 1), [stored], name)

        await asyncio.to_thread(in_threads, run, len(keys), batch.decode)


def chunk_numbers(keys: Sequence[str], store: Store, ndim: int) -> tuple[str, Numbers]:
    """Split chunk keys of one array into the array's path and their chunk numbers."""
    path = "/".join(keys[0].split("/")[: -(ndim + 1)])
    reader = store.chunk_reader(path)  # type: ignore[attr-defined]
    if reader is None or ndim == 0:
        return path, np.zeros(len(keys), np.int64)
    start = len(path) + 3 if path else 2
    return path, parse_many_coords([key[start:] for key in keys], reader.index.grid)


class Dispatcher(CodecPipeline):
    """Takes the arrays of our stores; leaves others to the pipeline configured before it."""

    previous: str = ""
    """The pipeline that it replaced, as zarr's configuration names it."""

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: Any, store: Store) -> CodecPipeline:  # type: ignore[override]
        if not isinstance(store, HasReaders) or not isinstance(array_metadata, ArrayV3Metadata):
            return cls._previous().from_array_metadata_and_store(array_metadata, store)
        return IndexPipeline(array_metadata.codecs, store)

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> CodecPipeline:  # type: ignore[override]
        # changes only chains that contain our own `scale_offset` and `cast_value`
        return cls._previous().from_codecs(map(adapted, fuse(tuple(codecs))))

    @classmethod
    def _previous(cls) -> type[CodecPipeline]:
        return pipeline_registry[cls.previous]


NAME = f"{Dispatcher.__module__}.{Dispatcher.__qualname__}"


def install() -> None:
    """Make the dispatcher zarr's pipeline."""
    if (current := zarr.config.get(PATH)) != NAME:
        Dispatcher.previous = current
        register_pipeline(Dispatcher)  # type: ignore[type-abstract]
        zarr.config.set({PATH: NAME})


def uninstall() -> None:
    """Restore the pipeline that the dispatcher replaced, unless another one was set since."""
    if zarr.config.get(PATH) == NAME:
        zarr.config.set({PATH: Dispatcher.previous})
    pipeline_registry.pop(NAME, None)
