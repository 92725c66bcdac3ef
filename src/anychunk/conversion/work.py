"""Make regions of a plan: read, shrink, encode, write. Runs on threads, or on Dask workers."""

import itertools
import math
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
import zarr.storage
from zarr.storage import StorePath

from anychunk import api
from anychunk.codecs.zarr_core import ArrayConfig, ArraySpec, default_buffer_prototype
from anychunk.conversion.decoded import Decoded
from anychunk.conversion.plan import Level, Plan, Run
from anychunk.conversion.shrink import shrink
from anychunk.errors import AnychunkError, ChunkEncodeError, UnsupportedError
from anychunk.io import Storage, is_remote, local_path, object_store, read_object, sink
from anychunk.limits import MIB
from anychunk.model.grid import Shape
from anychunk.read.zarr_core import ArrayV3Metadata, AsyncArray, ChunkTransform, evolve_codecs
from anychunk.read.zarr_store import IndexStore

type Array = npt.NDArray[Any]
type Keep = Callable[[Level, Shape, Array], None]

RELEASE_BYTES = 16 * MIB
"""After so many bytes made, pages of mapped sources are handed back."""


@dataclass(frozen=True)
class Task:
    """A region of the last level of a run, and all finer ones below it."""

    run: int
    coords: Shape

    def name(self) -> str:
        return "/".join(map(str, (self.run, *self.coords)))


class Stopped(Exception):  # noqa: N818 - no error: the caller asked for it
    """A worker was told to stop between two regions."""


class Workshop:
    """Makes the tasks of a plan at a target. Pickles without what it has open."""

    def __init__(
        self,
        plan: Plan,
        target: str,
        *,
        source_storage: Storage | None = None,
        target_storage: Storage | None = None,
    ) -> None:
        self.plan, self.target = plan, target
        self.source_storage, self.target_storage = source_storage, target_storage
        self._start()

    def _start(self) -> None:
        self._sources: dict[str, Decoded] = {}
        self._targets: dict[str, zarr.Array[Any]] = {}
        self._encoders: dict[str, Encoder] = {}
        self._made = 0
        self.stop = threading.Event()

    def __getstate__(self) -> dict[str, Any]:
        names = ("plan", "target", "source_storage", "target_storage")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def tasks(self, run: int) -> Iterator[Task]:
        for coords in itertools.product(*map(range, self.plan.runs[run].top.grid)):
            yield Task(run, coords)

    def write(self, task: Task) -> int:
        """Make a task and write it; give the checksum of what was written."""
        checksum = 0

        def keep(level: Level, coords: Shape, data: Array) -> None:
            nonlocal checksum
            for key, stored in self.encoder(level).objects(coords, data):
                if stored is not None:
                    sink.put(
                        f"{self.target}/{key}",
                        stored,
                        storage=self.target_storage,
                        root=self.target,
                    )
                    checksum = zlib.crc32(stored, zlib.crc32(key.encode(), checksum))

        self.make(task, keep)
        return checksum

    def stored_checksum(self, task: Task) -> int:
        """Give the checksum of what is there of a task."""
        checksum = 0
        for level, coords in self.regions(task):
            for key in self.encoder(level).keys(coords):
                stored = read_object(
                    f"{self.target}/{key}",
                    storage=self.target_storage,
                    roots=(local_path(self.target),),
                )
                if stored is not None:
                    checksum = zlib.crc32(stored, zlib.crc32(key.encode(), checksum))
        return checksum

    def compare(self, task: Task) -> list[str]:
        """Make a task again and hold what was written against it; say what differs."""
        found: list[str] = []

        def keep(level: Level, coords: Shape, data: Array) -> None:
            written = self.read_target(level, *level.bounds(coords))
            wrong = np.argwhere(~same(written, data))
            if len(wrong):
                start, _ = level.bounds(coords)
                at = tuple(int(a + b) for a, b in zip(start, wrong[0], strict=True))
                found.append(
                    f"{level.path} {at}: {written[tuple(wrong[0])]} was written, "
                    f"{data[tuple(wrong[0])]} expected; {len(wrong)} differ in this region"
                )

        self.make(task, keep)
        return found

    def nbytes(self, task: Task) -> int:
        """How many bytes of decoded data a task makes."""
        total = 0
        for level, coords in self.regions(task):
            start, stop = level.bounds(coords)
            total += math.prod(b - a for a, b in zip(start, stop, strict=True)) * level.itemsize
        return total

    def regions(self, task: Task) -> Iterator[tuple[Level, Shape]]:
        """Yield every region of a task in the order in which it is made."""
        run = self.plan.runs[task.run]
        yield from _below(run, len(run.levels) - 1, task.coords)

    def make(self, task: Task, keep: Keep) -> None:
        run = self.plan.runs[task.run]
        self._make(run, len(run.levels) - 1, task.coords, keep)

    def _make(self, run: Run, number: int, coords: Shape, keep: Keep) -> Array:
        level = run.levels[number]
        start, stop = level.bounds(coords)
        if number < run.first:
            return self.read_target(level, start, stop)
        if self.stop.is_set():
            raise Stopped
        data = (
            self.read_source(level, start, stop)
            if level.source is not None
            else self._assemble(run, number, coords, keep)
        )
        keep(level, coords, data)
        self._release(data.nbytes)
        return data

    def _assemble(self, run: Run, number: int, coords: Shape, keep: Keep) -> Array:
        """Make a region from the smaller versions of those below it."""
        level, finer = run.levels[number], run.levels[number - 1]
        start, stop = level.bounds(coords)
        data: Array | None = None
        for child in children(level, finer, coords):
            piece = self._make(run, number - 1, child, keep)
            small = shrink(piece, level.ratio, level.method, level.nodata)
            if data is None:
                data = np.empty([b - a for a, b in zip(start, stop, strict=True)], piece.dtype)
            at, _ = finer.bounds(child)
            begin = [a // r - s for a, r, s in zip(at, level.ratio, start, strict=True)]
            place = tuple(slice(b, b + n) for b, n in zip(begin, small.shape, strict=True))
            fitting = tuple(
                slice(max(0, min(n, size - b)))
                for b, n, size in zip(begin, small.shape, data.shape, strict=True)
            )
            data[place] = small[fitting]
        if data is None:
            raise ChunkEncodeError(f"convert: {level.path} {coords} has nothing below it")
        return data

    def read_source(self, level: Level, start: Shape, stop: Shape) -> Array:
        """Read a box in the target's order of axes."""
        source = self.source(level)
        box = [slice(0, 1)] * source.array.ndim
        for place, axis in enumerate(level.order):
            box[axis] = slice(start[place], stop[place])
        left_out = [i for i in range(source.array.ndim) if i not in level.order]
        data = source.read(tuple(box)).transpose(*level.order, *left_out)
        return data.reshape(data.shape[: len(level.order)])

    def read_target(self, level: Level, start: Shape, stop: Shape) -> Array:
        box = tuple(slice(a, b) for a, b in zip(start, stop, strict=True))
        return np.asarray(self.array(level)[box])

    def source(self, level: Level) -> Decoded:
        path = level.source or ""
        if path not in self._sources:
            array = api.open_path(self.plan.source, path, storage=self.source_storage)
            region = [1] * array.ndim
            for place, axis in enumerate(level.order):
                region[axis] = level.region[place]
            self._sources[path] = Decoded(array, tuple(region))
        return self._sources[path]

    def array(self, level: Level) -> zarr.Array[Any]:
        """Open an array of the target, whose metadata may not be written yet."""
        if level.path not in self._targets:
            metadata = parsed(level)
            place = self._place(level.path)
            self._targets[level.path] = zarr.Array(AsyncArray(metadata, place))
        return self._targets[level.path]

    def _place(self, path: str) -> StorePath:
        if not is_remote(self.target):
            store = zarr.storage.LocalStore(local_path(self.target), read_only=True)
            return StorePath(store, path)
        remote, root = object_store(self.target, self.target_storage)
        return StorePath(
            zarr.storage.ObjectStore(remote, read_only=True), f"{root.rstrip('/')}/{path}"
        )

    def encoder(self, level: Level) -> "Encoder":
        if level.path not in self._encoders:
            self._encoders[level.path] = Encoder(level)
        return self._encoders[level.path]

    def _release(self, nbytes: int) -> None:
        """Hand pages of mapped sources back from time to time: they would count as our memory."""
        self._made += nbytes
        if self._made < RELEASE_BYTES:
            return
        self._made = 0
        for source in self._sources.values():
            if isinstance(source.array.store, IndexStore):
                source.array.store.sources.release()


def _below(run: Run, number: int, coords: Shape) -> Iterator[tuple[Level, Shape]]:
    level = run.levels[number]
    if number > run.first and level.source is None:
        for child in children(level, run.levels[number - 1], coords):
            yield from _below(run, number - 1, child)
    yield level, coords


def children(level: Level, finer: Level, coords: Shape) -> Iterator[Shape]:
    """Yield the regions of the finer level that a region is made from.

    The last region along an axis takes what is left: elements dropped by halving still need a home.
    """
    ranges = []
    for c, ratio, count, below in zip(coords, level.ratio, level.grid, finer.grid, strict=True):
        stop = below if c == count - 1 else (c + 1) * ratio
        ranges.append(range(c * ratio, min(stop, below)))
    yield from itertools.product(*ranges)


def parsed(level: Level) -> ArrayV3Metadata:
    """Give zarr's view of an array; its codecs may be the caller's own."""
    try:
        return ArrayV3Metadata.from_dict(level.metadata)
    except AnychunkError:
        raise
    except (ValueError, TypeError, LookupError) as e:
        raise UnsupportedError(f"convert: {level.path or '/'}: {e}") from e


class Encoder:
    """Encodes the objects of one array."""

    def __init__(self, level: Level) -> None:
        self.level = level
        metadata = parsed(level)
        self.fill = metadata.fill_value
        self.spec = ArraySpec(
            shape=level.outer,
            dtype=metadata.data_type,
            fill_value=metadata.fill_value,
            config=ArrayConfig.from_dict({"order": "C", "write_empty_chunks": False}),
            prototype=default_buffer_prototype(),
        )
        self.full = replace(
            self.spec, config=ArrayConfig.from_dict({"order": "C", "write_empty_chunks": True})
        )
        shard = level.metadata["codecs"][0].get("configuration", {})
        self.inner = tuple(shard.get("chunk_shape", level.outer))
        try:
            self.transform = ChunkTransform(codecs=evolve_codecs(metadata.codecs, self.spec))
        except TypeError as e:
            raise ChunkEncodeError(f"convert: {e}") from e

    def may_hold_fill(self, part: Array) -> bool:
        """Whether a chunk in there may be fill alone: only then is all of it looked at."""
        first = part[tuple(slice(None, None, n) for n in self.inner)]
        return bool(same(first, np.asarray(self.fill, part.dtype)).any())

    def boxes(self, coords: Shape) -> Iterator[tuple[str, tuple[slice, ...]]]:
        """Yield key and place in the region of every object of a region."""
        level = self.level
        start, stop = level.bounds(coords)
        ranges = [
            range(a // n, -(-b // n)) for a, b, n in zip(start, stop, level.outer, strict=True)
        ]
        for at in itertools.product(*ranges):
            box = tuple(
                slice(c * n - a, min((c + 1) * n, b) - a)
                for c, n, a, b in zip(at, level.outer, start, stop, strict=True)
            )
            yield "/".join([level.path, "c", *map(str, at)]), box

    def keys(self, coords: Shape) -> Iterator[str]:
        for key, _ in self.boxes(coords):
            yield key

    def objects(self, coords: Shape, data: Array) -> Iterator[tuple[str, Any]]:
        """Yield every object of a region, encoded; None where it is fill alone."""
        for key, box in self.boxes(coords):
            yield key, self.encode(data[box])

    def encode(self, part: Array) -> Any:
        if part.shape != self.level.outer:
            whole = np.full(self.level.outer, self.fill, part.dtype)
            whole[tuple(slice(n) for n in part.shape)] = part
            part = whole
        buffer = self.spec.prototype.nd_buffer.from_numpy_array(np.ascontiguousarray(part))
        spec = self.spec if self.may_hold_fill(part) else self.full
        if spec is self.spec and buffer.all_equal(self.fill):
            return None
        try:
            stored = self.transform.encode_chunk(buffer, spec)
        except AnychunkError:
            raise
        except (ValueError, TypeError, RuntimeError) as e:
            raise ChunkEncodeError(f"convert: {self.level.path}: {e}") from e
        return None if stored is None else stored.as_numpy_array()


def same(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    """Compare element by element; NaN equals NaN."""
    equal = np.asarray(a == b)
    if a.dtype.kind in "fc":
        equal |= (a != a) & (b != b)  # noqa: PLR0124 - only NaN differs from itself
    return equal
