"""The fast read path: all chunks of a selection are planned at once and decoded by a few threads.

`IndexPipeline` belongs to one array, and is pickled with it. While `anychunk.enable` is in effect,
zarr asks `Dispatcher` for the pipeline of each array that it opens: an `IndexPipeline` for stores
that have chunk readers, for others the pipeline that was configured before.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import zarr
from zarr.abc.codec import Codec, CodecPipeline, GetResult
from zarr.abc.store import Store
from zarr.registry import register_pipeline

from anychunk import codecs as registry
from anychunk.codecs.cast import fuse
from anychunk.codecs.chain import Decoder
from anychunk.decode.boxes import located
from anychunk.decode.chunks import ChunkReader, HasReaders
from anychunk.engine.local import read_local
from anychunk.engine.remote import read_remote
from anychunk.engine.request import Request, Selector
from anychunk.engine.run import Engine
from anychunk.engine.threads import in_threads
from anychunk.io.cache import Cache
from anychunk.model.grid import Numbers, parse_many_coords
from anychunk.zarr.codecs import adapted
from anychunk.zarr.core import (
    ArrayConfig,
    ArraySpec,
    ArrayV3Metadata,
    BatchedCodecPipeline,
    Buffer,
    NDBuffer,
    create_codec_pipeline,
    default_buffer_prototype,
    pipeline_registry,
)
from anychunk.zarr.foreign import chunk_spec
from anychunk.zarr.selectors import boxes_of, fill_of, workers
from anychunk.zarr.store_pipeline import Delegating, pipeline_of

type Item = tuple[Any, ArraySpec, Selector, Selector, bool]

PATH = "codec_pipeline.path"
PRESENT, MISSING = GetResult(status="present"), GetResult(status="missing")

DECODERS: Cache[Decoder] = Cache(64)
"""Decoders of the last arrays: files of a set often differ only in where their chunks are."""


class IndexPipeline(Delegating):
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
    def base(self) -> CodecPipeline:
        """The pipeline of zarr, for what it does with single chunks."""
        if self._made_base is None:
            self._made_base = BatchedCodecPipeline.from_codecs(map(adapted, self._codecs))
        return self._made_base

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        base = self.base.evolve_from_array_spec(array_spec)
        return type(self)(self._codecs, self._store, base=base)

    def __iter__(self) -> Iterator[Codec]:
        return iter(self._codecs)

    @property
    def supports_partial_decode(self) -> bool:
        return False

    @property
    def supports_partial_encode(self) -> bool:
        return False

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
            # from JSON: zarr may have chosen another package's class, which drops keys of ours
            documents = (
                [codec.to_dict() for codec in self._codecs]
                if reader is None
                else reader.index.codecs
            )
            chain = [registry.from_json(document) for document in documents]
            made = self._decoder = (spec, Decoder(chain, chunk_spec(spec), is_range=is_range))
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
        path, numbers = chunk_numbers(
            [item[0].path for item in items], self._store, len(spec.shape)
        )
        reader = self._store.chunk_reader(path)  # type: ignore[attr-defined]
        decode = self._decoder_for(spec, reader)
        places = [(source, target) for _, _, source, target, _ in items]
        request = requested(reader, decode, spec, numbers, places, out, drop_axes)
        if reader is None:
            await self._read_computed(request, [item[0] for item in items])
        elif reader.is_local:
            # not on zarr's event loop, which serves all other reads of the process
            await asyncio.to_thread(read_local, request, workers())
        else:
            await read_remote(request)
        results = [PRESENT] * len(items)
        for position in request.missing:
            results[position] = MISSING
        return tuple(results)

    def engine(self, path: str, dtype: Any, fill: Any, config: ArrayConfig) -> Engine | None:
        """Return what reads an array in the caller's thread; None unless its chunks are local."""
        reader: ChunkReader | None = self._store.chunk_reader(path)  # type: ignore[attr-defined]
        if reader is None or not reader.is_local:
            return None
        # not zarr's chunk shape: for a sharded array that is the one of the pieces of a shard
        shape = reader.index.chunk_shape
        spec = ArraySpec(shape, dtype, fill, config, default_buffer_prototype())
        decode = self._decoder_for(spec, reader)
        return Engine(reader, decode, fill_of(spec), order=config.order, threads=workers)

    async def _read_computed(self, request: Request, keys: Sequence[Any]) -> None:
        """Read chunks that the store computes, by key; each thread reads one at a time."""
        get: Callable[[str], Buffer | None] = self._store.get_sync  # type: ignore[attr-defined]

        def run(positions: range) -> None:
            for position in positions:
                data = get(keys[position].path)
                source, target = request.place_of(position)
                if data is None:
                    request.fill_absent(position, target)
                    continue
                with located(lambda position=position: str(keys[position])):  # type: ignore[misc]
                    request.place(target, request.decode(data.as_numpy_array())[source])

        await asyncio.to_thread(in_threads, run, len(keys), request.decode, threads=workers())


def requested(  # noqa: PLR0917 - what zarr's pipelines are given
    reader: ChunkReader | None,
    decode: Decoder,
    spec: ArraySpec,
    numbers: Numbers,
    places: Sequence[tuple[Selector, Selector]],
    out: NDBuffer,
    drop_axes: tuple[int, ...] = (),
) -> Request:
    """Return a selection of zarr's as a request."""
    # assign to numpy arrays directly; arrays on a device need zarr's wrapper
    array = out.as_ndarray_like()
    is_numpy = isinstance(array, np.ndarray)
    boxes = boxes_of(places, np.asarray(array)) if is_numpy and not drop_axes else None
    listed, target = (places, array if is_numpy else out) if boxes is None else boxes
    return Request(
        reader,  # type: ignore[arg-type]
        None if reader is None else reader.begin(),  # type: ignore[arg-type]
        decode,
        numbers=numbers,
        out=target,
        fill=fill_of(spec),
        listed=listed,
        drop_axes=drop_axes,
        wrap=None if is_numpy else spec.prototype.nd_buffer.from_numpy_array,
        is_plain=boxes is not None and array.dtype == decode.dtype,
    )


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
            try:
                base = cls._previous().from_array_metadata_and_store(array_metadata, store)
            except NotImplementedError:
                base = create_codec_pipeline(array_metadata)
            return pipeline_of(base, array_metadata, store)
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
