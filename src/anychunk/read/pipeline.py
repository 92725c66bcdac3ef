"""The fast read path: all chunks of a selection are planned at once and decoded by a few threads.

zarr asks the configured pipeline class once per array. `Dispatcher` takes the arrays of stores that
have chunk readers, and leaves every other array to the pipeline that was configured before it.
"""

import asyncio
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.codec import Codec, CodecPipeline, GetResult
from zarr.abc.store import Store
from zarr.registry import register_pipeline

from anychunk import limits
from anychunk.codecs.cast.fused_cast import fuse
from anychunk.codecs.chain import Decoder, ours
from anychunk.codecs.zarr_core import ArraySpec, Buffer, NDBuffer, codecs_from_list
from anychunk.decode.boxes import located, raise_located
from anychunk.decode.chunks import ChunkReader, HasReaders, Reading, Stored
from anychunk.decode.rows import Rows, raw_layout
from anychunk.errors import ChunkDecodeError, LimitError
from anychunk.io import Bytes1D, copying, measuring
from anychunk.io.buffers import borrowed
from anychunk.io.cache import Cache
from anychunk.io.threads import cores, run_ranges
from anychunk.model.grid import Numbers, Plan, Shape, parse_many_coords
from anychunk.read.adjacent import adjacent_runs
from anychunk.read.joint_places import Places, Selector, is_inside, joint_box
from anychunk.read.many_chunks import many_chunks
from anychunk.read.window_reads import TOUCHED, WindowRead
from anychunk.read.zarr_core import (
    DEFAULT_PIPELINE,
    ArrayV3Metadata,
    BatchedCodecPipeline,
    pipeline_registry,
)

if TYPE_CHECKING:
    from anychunk.decode.tile_streams import TilePiece

type Item = tuple[Any, ArraySpec, Selector, Selector, bool]

PATH = "codec_pipeline.path"
INLINE_BYTES = 256 << 10
"""To decode up to this much, only the caller's thread is used: starting others would cost more."""
INLINE_JOINT = 16 << 10
"""The same for small tiles of JPEG 2000, which take ten times as long for the same number."""
INLINE_COPY = 4 << 20
"""The same for uncompressed chunks, which are only copied; `_copies_inline` has more conditions."""
FRESH_MEMORY = 32 << 20
"""The C library takes memory above this from the system, page by page as it is written to."""
LEAST_ROWS = 64 << 10
"""Shorter uncompressed chunks of remote arrays are fetched whole: one request costs more."""
LEAST_COPIES, LEAST_COPY = 16 << 20, 4 << 20
"""Adjacent uncompressed samples are divided among threads above this, in pieces of this size."""
MANY_BYTES = 4 << 20
"""How many bytes of chunks a thread decodes in one call of the compiled loop."""
RUN, RUN_JOINT = 64, 1024
"""Maximum number of chunks that a thread takes at a time; of those that are decoded together."""

PRESENT, MISSING = GetResult(status="present"), GetResult(status="missing")

RECENT: Cache[npt.NDArray[Any]] = Cache(lambda: limits.get().recent_bytes)
"""Decoded chunks of which only a part was read, for the whole process: the next read often takes
another part of the same chunk."""

DECODERS: Cache[Decoder] = Cache(64)
"""Decoders of the last arrays: files of a set often differ only in where their chunks are."""

if hasattr(os, "register_at_fork"):
    # a thread that does not exist in the child may have held the lock
    os.register_at_fork(after_in_child=RECENT.clear)
    os.register_at_fork(after_in_child=DECODERS.clear)


def workers() -> int:
    """Return the number of threads: `codec_pipeline.max_workers` of zarr, or one per core."""
    return int(zarr.config.get("codec_pipeline.max_workers", None) or cores())


class _Batch:
    """One selection: the chunks that it touches, and where each goes in the result."""

    def __init__(
        self,
        places: Places,
        spec: ArraySpec,
        out: Any,
        decode: Decoder,
        *,
        drop_axes: tuple[int, ...] = (),
        is_plain: bool = False,
    ) -> None:
        self.places, self.drop_axes, self.decode = places, drop_axes, decode
        self.wrap: Callable[[Any], Any] = lambda value: value
        if isinstance(out, NDBuffer):
            # assign to numpy arrays directly; arrays on a device need zarr's wrapper
            array = out.as_ndarray_like()
            if isinstance(array, np.ndarray):
                out = array
            else:
                self.wrap = spec.prototype.nd_buffer.from_numpy_array
        self.out = out
        self.shape = spec.shape
        self.dtype = spec.dtype.to_native_dtype()
        self.is_plain = is_plain
        """Whether `places` are slices and `out` is an array of the decoded type."""
        self.fill = spec.dtype.default_scalar() if spec.fill_value is None else spec.fill_value
        self.recent: Sequence[Hashable] = ()
        """The cache keys of the chunks; empty if decoded chunks are not to be cached."""
        self.where: tuple[Numbers, Shape] | None = None
        """The numbers of the chunks, and the grid, if the place of a chunk matters for decoding."""
        self.missing: list[int] = []
        """The positions of chunks that the file declares absent."""
        self.row = 1
        """How many chunks follow each other along the last axis."""

    def locate(self, numbers: Numbers, grid: Shape) -> None:
        """Say which chunks are read."""
        if self.decode.depends_on_place:
            self.where = (numbers, grid)

    def decoder(self, position: int) -> Decoder:
        """Return the decoder of the chunk at a position of the batch."""
        if self.where is None:
            return self.decode
        numbers, grid = self.where
        return self.decode.at(int(numbers[position]), grid)

    def scatter(
        self, positions: Sequence[int], chunks: Iterable[Stored], name: Callable[[int], str]
    ) -> None:
        """Decode chunks and copy each to its place in the result."""
        if measuring.collectors:
            chunks = measuring.timed_each("fetch_seconds", chunks)
        chunks, done = self._decode_together(positions, chunks)
        if len(done) == len(positions):
            return
        # memory for a very large chunk is allocated only after its stored bytes were checked
        nbytes = self.decode.nbytes
        with borrowed("scratch", nbytes if nbytes <= limits.get().free_bytes else 0) as scratch:
            for number, (position, (source, target), stored) in enumerate(
                zip(positions, self.places(positions), chunks, strict=True)
            ):
                if number in done:
                    continue
                if stored is None:
                    self._fill(position, target)
                    continue
                try:
                    decode = self.decode if self.where is None else self.decoder(position)
                    if self.recent:
                        key = self.recent[position]
                        part = self.part(key, stored, source, decode)
                        if part is None:
                            part = self.kept(key, stored, decode)[source]
                        self.place(target, part)
                    else:
                        memory = scratch if len(scratch) else None
                        self.take(stored, memory, source, target, decode)
                except Exception as e:
                    raise_located(e, partial(name, position))
                    raise

    def _decode_together(
        self, positions: Sequence[int], chunks: Iterable[Stored]
    ) -> tuple[Iterable[Stored], set[int]]:
        """Place the chunks that are decoded faster together; return all, and which those are."""
        if not self.decode.takes_many or self.recent or len(positions) < 2:
            return chunks, set()
        listed, done = list(chunks), set[int]()
        present = [i for i, stored in enumerate(listed) if stored is not None]
        for joint in self.decode.many([cast("Bytes1D", listed[i]) for i in present]):
            own = [positions[present[number]] for number in joint.numbers]
            box = joint_box(joint, own, self.places) if self.is_plain else None
            if box is not None:
                parts = [(joint.array, *box)]
            else:
                parts = [
                    (array, *next(iter(self.places(range(position, position + 1)))))
                    for position, (_, array) in zip(own, joint.pieces(), strict=True)
                ]
            if not all(is_inside(source, array.shape) for array, source, _ in parts):
                continue  # decoded one by one, which words the error
            for array, source, target in parts:
                self.place(target, array[source])
            done.update(present[number] for number in joint.numbers)
        return listed, done

    def _fill(self, position: int, target: Selector) -> None:
        """Fill the place of an absent chunk."""
        self.out[target] = self.fill
        self.missing.append(position)  # atomic: threads share the list
        if measuring.collectors:
            measuring.count(absent_chunks=1)

    def take(
        self,
        stored: Bytes1D,
        scratch: Bytes1D | None,
        source: Selector,
        target: Selector,
        decode: Decoder,
    ) -> None:
        """Decode one chunk, directly into the result if the selection takes all of it."""
        if self.is_plain:
            place = self.out[target]
            is_fit = place.shape == self.shape or (
                decode.takes_cropped
                and not decode.has_parts  # it may decode less
                and is_first_part(source, place.shape, self.shape)
            )
            if is_fit and decode.into(stored, scratch, place):
                return
        part = decode.part(stored, source)
        if part is not None:
            self.place(target, part)
            return
        self.place(target, decode(stored, scratch)[source])

    def part(
        self, key: Hashable, stored: Bytes1D, source: Selector, decode: Decoder
    ) -> npt.NDArray[Any] | None:
        """Decode a part of a chunk; None if it is cached, or should be, after many parts."""
        spent = TOUCHED.get(key) or 0
        if spent >= decode.nbytes or RECENT.get(key) is not None:
            return None
        part = decode.part(stored, source)
        if part is not None:
            TOUCHED.put(key, spent + part.nbytes + decode.nbytes // 16, 64)
        return part

    def kept(self, key: Hashable, stored: Bytes1D, decode: Decoder) -> npt.NDArray[Any]:
        """Return a decoded chunk from the cache, or decode and cache it."""
        array = RECENT.get(key)
        if array is None:
            # not the scratch buffer: the cached array outlives this read
            memory = np.empty(decode.nbytes, np.uint8)
            array = decode(stored, memory)
            if not np.may_share_memory(array, memory):
                array = array.copy()  # codecs may return memory that they reuse
            array = array.view()
            array.flags.writeable = False
            RECENT.put(key, array, array.nbytes)
        elif measuring.collectors:
            measuring.count(cache_hits=1)
        return array

    def place(self, selection: Selector, array: npt.NDArray[Any]) -> None:
        """Copy a decoded piece to its place in the result."""
        if measuring.collectors:
            measuring.timed("copy_seconds", self._place, selection, array)
        else:
            self._place(selection, array)

    def _place(self, selection: Selector, array: npt.NDArray[Any]) -> None:
        out = self.out
        if self.drop_axes:
            array = array.squeeze(axis=self.drop_axes)
        if (
            isinstance(array, np.ndarray)
            and array.ndim > 1
            and isinstance(out, np.ndarray)
            and type(selection) is tuple
            and all(type(s) is slice for s in selection)
        ):
            copying.assign(out[selection], array)
        else:
            out[selection] = self.wrap(array)


def is_first_part(source: Sequence[slice], part: Shape, whole: Shape) -> bool:
    """Return whether a box takes all of a chunk but some of its last rows and columns."""
    return part[:-2] == whole[:-2] and not any(s.start for s in source)


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

    def __setstate__(self, state: dict[str, Any]) -> None:
        # unpickled, perhaps on a worker that never calls `open`
        install()
        self.__dict__.update(state)

    @property
    def _base(self) -> CodecPipeline:
        """The pipeline of zarr, for what it does with single chunks."""
        if self._made_base is None:
            self._made_base = BatchedCodecPipeline.from_codecs(self._codecs)
        return self._made_base

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> Self:
        raise NotImplementedError("IndexPipeline requires a store; use Dispatcher as the pipeline")

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
            codecs: Sequence[Codec] = self._codecs
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
        batch = _Batch(places, spec, out, self._decoder_for(spec, reader), drop_axes=drop_axes)
        if reader is None:
            await self._read_computed(batch, [item[0] for item in items])
        elif reader.is_local:
            # not on zarr's event loop, which serves all other reads of the process
            await asyncio.to_thread(self._read_local, batch, reader, reader.begin(), numbers)
        else:
            await self._read_remote(batch, reader, numbers)
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
        batch = _Batch(plan.places, spec, out, decode, is_plain=True)
        batch.recent = keys
        batch.row = plan.grid[-1]
        found = np.asarray(numbers)
        if decode.is_view and read_adjacent(batch, reader, reading, plan, found):
            return
        if not keys and read_many(batch, reader, reading, plan, found):
            return
        self._read_local(batch, reader, reading, found)

    @staticmethod
    def _read_local(batch: _Batch, reader: ChunkReader, reading: Reading, numbers: Numbers) -> None:
        # before any thread starts: a changed file is one error, not one per thread
        reading.check()
        if reader.windows is not None and read_windows(batch, reader, reading, numbers):
            return
        reading.expect(numbers)
        batch.locate(numbers, reader.grid)

        def name(position: int) -> str:
            return reader.describe(int(numbers[position]))

        def run(positions: range) -> None:
            batch.scatter(
                positions, reading.stream(numbers[positions.start : positions.stop]), name
            )

        in_threads(run, len(numbers), batch.decode, row=batch.row)

    async def _read_remote(self, batch: _Batch, reader: ChunkReader, numbers: Numbers) -> None:
        try:
            if reader.windows is not None and await fetch_windows(batch, reader, numbers):
                return
            batch.locate(numbers, reader.grid)
            rows = selected_rows(batch, reader, numbers)
            if rows:
                await fetch_rows(batch, reader, numbers, rows)
            parts = await asyncio.to_thread(selected_parts, batch, reader, numbers)
            if parts:
                parts = await fetch_parts(batch, reader, numbers, parts)
            done = rows.keys() | parts.keys()
            rest = [position for position in range(len(numbers)) if position not in done]

            def name(position: int) -> str:
                return reader.describe(int(numbers[position]))

            def deliver(positions: Sequence[int], chunks: list[Stored]) -> None:
                batch.scatter([rest[position] for position in positions], chunks, name)

            if rest:
                await reader.fetch_many(numbers[rest], deliver)
        except BaseExceptionGroup as group:
            # the caller can act on one failure; the others follow from it
            raise group.exceptions[0] from None

    async def _read_computed(self, batch: _Batch, keys: Sequence[Any]) -> None:
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


def read_adjacent(
    batch: _Batch, reader: ChunkReader, reading: Reading, plan: Plan, numbers: Numbers
) -> bool:
    """Read chunks that follow each other together; return False, having read none, if few do."""
    reading.check()
    runs = adjacent_runs(reader, reading, plan, numbers, batch.dtype)
    if runs is None:
        return False
    total = batch.out.nbytes
    threads = workers() if total > LEAST_COPIES else 1
    pieces = list(runs.pieces(total if threads == 1 else max(LEAST_COPY, total // (2 * threads))))

    def copy(positions: range) -> None:
        for run in pieces[positions.start : positions.stop]:
            target = runs.target(run)
            place = batch.out[target]
            if measuring.collectors:
                measuring.count(
                    chunks=run.chunks, stored_bytes=place.nbytes, decoded_bytes=place.nbytes
                )
                is_done = measuring.timed("fetch_seconds", runs.fill, run, place)
            else:
                is_done = runs.fill(run, place)
            if not is_done:
                batch.place(target, runs.array(run))

    def read(positions: range) -> None:
        for position in positions:
            number = runs.rest[position]
            batch.scatter(
                range(number, number + 1),
                reading.stream(numbers[number : number + 1]),
                lambda position: reader.describe(int(numbers[position])),
            )

    if threads == 1:
        copy(range(len(pieces)))
    else:
        run_ranges(copy, len(pieces), threads=min(threads, len(pieces)), most=1)
    if runs.rest:
        in_threads(read, len(runs.rest), batch.decode)
    return True


def read_many(
    batch: _Batch, reader: ChunkReader, reading: Reading, plan: Plan, numbers: Numbers
) -> bool:
    """Read chunks by the compiled loop; return False, having read none, if it cannot."""
    reading.check()
    chunks = many_chunks(reader, reading, plan, numbers, out=batch.out, decode=batch.decode)
    if chunks is None:
        return False
    batch.locate(numbers, reader.grid)

    def name(position: int) -> str:
        return reader.describe(int(numbers[position]))

    def run(positions: range) -> None:
        for left in chunks.take(positions):
            part = range(left, left + 1)
            batch.scatter(part, reading.stream(numbers[part.start : part.stop]), name)

    nbytes, count = batch.decode.nbytes, len(numbers)
    is_little = count * nbytes <= (INLINE_COPY if batch.decode.is_view else INLINE_BYTES)
    threads = 1 if is_little else min(workers(), count)
    run_ranges(run, count, threads=threads, most=max(1, MANY_BYTES // nbytes))
    return True


def read_windows(batch: _Batch, reader: ChunkReader, reading: Reading, numbers: Numbers) -> bool:
    """Read a selection of parts of local tiles; return False if it cannot be planned as boxes."""
    work = WindowRead(batch, reader, reading, RECENT)
    tasks = work.plan(numbers, batch.places(range(len(numbers))))
    if tasks is None:
        return False

    def run(positions: range) -> None:
        for position in positions:
            work.read(tasks[position])

    run_ranges(run, len(tasks), threads=min(workers(), len(tasks)), most=1)
    work.finish()
    return True


async def fetch_windows(batch: _Batch, reader: ChunkReader, numbers: Numbers) -> bool:
    """Do the same with remote tiles."""
    reading = reader.begin()
    work = WindowRead(batch, reader, reading)
    places = list(batch.places(range(len(numbers))))
    tasks = await asyncio.to_thread(work.plan, numbers, places)
    if tasks is None:
        return False

    def deliver(positions: Sequence[int], chunks: list[Stored]) -> None:
        for position, stored in zip(positions, chunks, strict=True):
            if stored is not None:
                work.decode(tasks[position], stored)

    wanted = [(i, task.number, task.window, task.is_whole) for i, task in enumerate(tasks)]
    await reader.fetch_windows(reading, wanted, deliver)
    await asyncio.to_thread(work.finish)
    return True


def selected_rows(batch: _Batch, reader: ChunkReader, numbers: Numbers) -> dict[int, Rows]:
    """Return, by position, what is selected of chunks of which only some rows are to be fetched."""
    layout = raw_layout(reader.index, batch.dtype)
    found: dict[int, Rows] = {}
    if layout is None:
        return found
    for position, (source, _) in enumerate(batch.places(range(len(numbers)))):
        number = int(numbers[position])
        length = reader.ranges(number)[0][2]
        if length > LEAST_ROWS:
            rows = layout.rows(reader.front(number), length, source)
            if rows is not None:
                found[position] = rows
    return found


async def fetch_rows(
    batch: _Batch, reader: ChunkReader, numbers: Numbers, rows: Mapping[int, Rows]
) -> None:
    """Fetch some rows of remote chunks, given by position."""
    ranges = []
    for position, one in rows.items():
        url, offset, _ = reader.ranges(int(numbers[position]))[0]
        ranges.append([(url, offset + start, one.length) for start in one.starts])

    def deliver(positions: Sequence[int], chunks: list[Stored]) -> None:
        for position, data in zip(positions, chunks, strict=True):
            _, target = next(iter(batch.places([position])))
            if data is not None:
                batch.place(target, rows[position].array(data))

    await reader.fetch_rows(list(rows), ranges, deliver)


def selected_parts(batch: _Batch, reader: ChunkReader, numbers: Numbers) -> dict[int, "TilePiece"]:
    """Return, by position, the parts of JPEG 2000 tiles of TIFF that are fetched instead of all."""
    found: dict[int, TilePiece] = {}
    if not batch.decode.has_parts:
        return found
    from anychunk.decode.tile_streams import plan_piece, stream_codec  # with decoders of TIFF

    codec = stream_codec(reader.index)
    if codec is None:
        return found
    reading = reader.begin()
    for position, (source, _) in enumerate(batch.places(range(len(numbers)))):
        number = int(numbers[position])
        url, offset, length = reader.ranges(number)[0]
        if length > LEAST_ROWS:
            with located(partial(reader.describe, number)):
                file = reading.source(url)
                piece = plan_piece(codec, file, (offset, length), reader.index.chunk_shape, source)
            if piece is not None:
                found[position] = piece
    return found


async def fetch_parts(
    batch: _Batch, reader: ChunkReader, numbers: Numbers, parts: Mapping[int, "TilePiece"]
) -> dict[int, "TilePiece"]:
    """Fetch planned parts, given by position; return those that decoded."""
    ranges = []
    for position, part in parts.items():
        url = reader.ranges(int(numbers[position]))[0][0]
        ranges.append([(url, offset, length) for offset, length in part.planned.ranges])
    done: dict[int, TilePiece] = {}

    def deliver(positions: Sequence[int], chunks: list[Stored]) -> None:
        for position, data in zip(positions, chunks, strict=True):
            _, target = next(iter(batch.places([position])))
            try:
                array = parts[position].array(np.empty(0, np.uint8) if data is None else data)
            except (ChunkDecodeError, LimitError):
                continue  # some streams decode only as a whole, such as samples of 30 bits
            batch.place(target, array)
            done[position] = parts[position]

    await reader.fetch_rows(list(parts), ranges, deliver)
    return done


def recall(keys: Sequence[Hashable], plan: Plan, out: npt.NDArray[Any]) -> bool:
    """Fill `out` from cached chunks; return False, leaving `out` unchanged, if any is missing."""
    found = []
    for key in keys:
        array = RECENT.get(key)
        if array is None:
            return False
        found.append(array)
    if measuring.collectors:
        measuring.count(cache_hits=len(found))
        measuring.timed("copy_seconds", _fill, found, plan, out)
    else:
        _fill(found, plan, out)
    return True


def _fill(found: Sequence[npt.NDArray[Any]], plan: Plan, out: npt.NDArray[Any]) -> None:
    for array, (source, target) in zip(found, plan.places(range(len(found))), strict=True):
        out[target] = array[source]


def in_threads(run: Callable[[range], None], count: int, decode: Decoder, *, row: int = 1) -> None:
    """Call `run` on ranges that cover `count` chunks, on several threads if that is faster.

    Parameters:
        run: Called with a range of positions.
        count: The number of chunks.
        decode: Their decoder.
        row: Ranges are rows of so many chunks, if those are decoded faster together.
    """
    threads = min(workers(), count)
    nbytes = decode.nbytes
    if decode.is_view:
        inline = _copies_inline(count, nbytes)
    else:
        inline = count * nbytes <= (INLINE_JOINT if decode.takes_many else INLINE_BYTES)
    if threads == 1 or inline:
        run(range(count))
        return
    if not decode.takes_many or row == 1:
        run_ranges(run, count, threads=threads, most=RUN)
        return

    # few and long: each is a call of the decoder, which takes as long as several chunks
    rows = -(-count // row)
    some = row * max(1, min(RUN_JOINT // row, -(-rows // (2 * threads))))

    def run_rows(parts: range) -> None:
        for part in parts:
            run(range(part * some, min((part + 1) * some, count)))

    run_ranges(run_rows, -(-count // some), threads=threads, most=1)


def _copies_inline(count: int, nbytes: int) -> bool:
    """Return whether one thread copies chunks of uncompressed samples as fast as several.

    Small copies spend most of their time in the interpreter, one thread at a time. How small they
    are depends on the memory that they write to: that of a large result is slower at first.
    """
    total = count * nbytes
    return total <= INLINE_COPY or nbytes < (64 << 10 if total > FRESH_MEMORY else 512 << 10)


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

    previous: str = DEFAULT_PIPELINE

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: Any, store: Store) -> CodecPipeline:  # type: ignore[override]
        if not isinstance(store, HasReaders) or not isinstance(array_metadata, ArrayV3Metadata):
            return cls._previous().from_array_metadata_and_store(array_metadata, store)
        codecs = array_metadata.codecs
        codecs_from_list(codecs)
        return IndexPipeline(codecs, store, base=BatchedCodecPipeline.from_codecs(codecs))

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> CodecPipeline:  # type: ignore[override]
        # changes only chains that contain our own `scale_offset` and `cast_value`
        return cls._previous().from_codecs(fuse(tuple(codecs)))

    @classmethod
    def _previous(cls) -> type[CodecPipeline]:
        return pipeline_registry[cls.previous]


NAME = f"{Dispatcher.__module__}.{Dispatcher.__qualname__}"
register_pipeline(Dispatcher)  # type: ignore[type-abstract]


def install(*, force: bool = False) -> None:
    """Replace zarr's default pipeline by the dispatcher; with `force`, any pipeline."""
    current = zarr.config.get(PATH)
    if current == NAME or (current != DEFAULT_PIPELINE and not force):
        return
    Dispatcher.previous = current
    zarr.config.set({PATH: NAME})


def is_installed() -> bool:
    """Return whether the dispatcher is zarr's default pipeline."""
    return bool(zarr.config.get(PATH) == NAME)


def uninstall() -> None:
    """Restore the pipeline that the dispatcher replaced."""
    if zarr.config.get(PATH) == NAME:
        zarr.config.set({PATH: Dispatcher.previous})
