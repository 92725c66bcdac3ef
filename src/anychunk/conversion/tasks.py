"""The tasks of a plan: read a region, reduce it, encode it, write it.

A task is one region of the coarsest level of a run together with every region below it. It is
computed depth first: a region of a coarser level is assembled from the reduced regions of the finer
one, each of which is written as soon as it is computed. So the finest level is read once, and a
worker holds only one region per level. Tasks run on threads, or on Dask workers.
"""

import itertools
import math
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
import zarr.storage
from zarr.storage import StorePath

from anychunk.conversion import zarr_v2
from anychunk.conversion.levels import Level
from anychunk.conversion.plan import Plan, Run
from anychunk.conversion.source_boxes import CutBoxes, GivenBoxes, SourceBoxes
from anychunk.errors import AnychunkError, ChunkEncodeError, UnsupportedError
from anychunk.io import sink
from anychunk.io.object_stores import object_store
from anychunk.io.opening import read_object
from anychunk.io.source import Storage, is_remote, local_path
from anychunk.limits import MIB
from anychunk.model.grid import Array, Shape, Slices, chunk_key, cut_box, touched_chunks
from anychunk.resample import by_window
from anychunk.selection import Part
from anychunk.zarr.array import open_path
from anychunk.zarr.core import (
    ArrayConfig,
    ArraySpec,
    ArrayV3Metadata,
    ChunkTransform,
    default_buffer_prototype,
    evolve_codecs,
)
from anychunk.zarr.metadata import array_metadata
from anychunk.zarr.store import IndexStore

type Use = Callable[[Level, Shape, Array], None]
"""Called with a level, the coordinates of a region, and its samples."""

RELEASE_BYTES = 16 * MIB
"""After this many bytes, the pages of memory-mapped sources are released."""


@dataclass(frozen=True)
class Task:
    """One region of the coarsest level of a run, and all regions below it."""

    run: int
    coords: Shape

    def name(self) -> str:
        """Return its name in the journal."""
        return "/".join(map(str, (self.run, *self.coords)))


class Stopped(Exception):  # noqa: N818 - not an error: the caller asked for it
    """A worker was told to stop between two regions."""


class Conversion:
    """Runs the tasks of a plan against one target.

    Safe for threads. A pickled copy arrives without open arrays.
    """

    def __init__(
        self,
        plan: Plan,
        target: str,
        *,
        source_storage: Storage | None = None,
        target_storage: Storage | None = None,
        given: Mapping[str, GivenBoxes] | None = None,
        part: Part | None = None,
    ) -> None:
        self.plan, self.target, self.part = plan, target, part
        self.given = dict(given or {})
        """Arrays of the source that a program holds, by path."""
        self.source_storage, self.target_storage = source_storage, target_storage
        self._start()

    def _start(self) -> None:
        self._sources: dict[str, SourceBoxes] = {}
        self._targets: dict[str, zarr.Array[Any]] = {}
        self._encoders: dict[str, Encoder] = {}
        self._unreleased = 0
        self.stop = threading.Event()

    def __getstate__(self) -> dict[str, Any]:
        names = ("plan", "target", "source_storage", "target_storage", "given", "part")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def tasks(self, run: int) -> Iterator[Task]:
        """Yield the tasks of a run."""
        top = self.plan.runs[run].top
        for coords in touched_chunks((0,) * len(top.shape), top.shape, top.region):
            yield Task(run, coords)

    def write(self, task: Task) -> int:
        """Compute a task and write it; return the checksum of the objects written."""
        checksum = 0

        def put(level: Level, coords: Shape, data: Array) -> None:
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

        self.compute(task, put)
        return checksum

    def stored_checksum(self, task: Task) -> int:
        """Return the checksum of a task's objects as they are stored now."""
        checksum = 0
        for level, coords in self.regions(task):
            for key, _ in self.encoder(level).boxes(coords):
                stored = read_object(
                    f"{self.target}/{key}",
                    storage=self.target_storage,
                    roots=(local_path(self.target),),
                )
                if stored is not None:
                    checksum = zlib.crc32(stored, zlib.crc32(key.encode(), checksum))
        return checksum

    def compare(self, task: Task) -> tuple[list[str], dict[str, float]]:
        """Compute a task again and compare it with what was written.

        Returns the differences, and the largest error of every packed array, by its path.
        """
        found: list[str] = []
        errors: dict[str, float] = {}

        def check(level: Level, coords: Shape, data: Array) -> None:
            box = level.box(coords)
            written = self.read_target(level, box)
            if level.error:
                error = differences(written, data)
                errors[level.path] = max(float(error.max(initial=0.0)), errors.get(level.path, 0.0))
                wrong = np.argwhere(error > level.error)
            else:
                wrong = np.argwhere(~same(written, data))
            if len(wrong):
                at = tuple(int(s.start + i) for s, i in zip(box, wrong[0], strict=True))
                found.append(
                    f"{level.path} {at}: read back {written[tuple(wrong[0])]}, expected "
                    f"{data[tuple(wrong[0])]}; {len(wrong)} values differ in this region"
                )

        self.compute(task, check)
        return found, errors

    def nbytes(self, task: Task) -> int:
        """Return the decoded size of a task's regions."""
        return sum(
            math.prod(s.stop - s.start for s in level.box(coords)) * level.itemsize
            for level, coords in self.regions(task)
        )

    def regions(self, task: Task) -> Iterator[tuple[Level, Shape]]:
        """Yield every region of a task, in the order in which they are computed."""
        run = self.plan.runs[task.run]
        yield from _regions_below(run, len(run.levels) - 1, task.coords)

    def compute(self, task: Task, use: Use) -> None:
        """Compute every region of a task and call `use` with each."""
        run = self.plan.runs[task.run]
        self._region(run, len(run.levels) - 1, task.coords, use)

    def _region(self, run: Run, number: int, coords: Shape, use: Use) -> Array:
        level = run.levels[number]
        box = level.box(coords)
        if number < run.first:
            # an earlier run has written this level
            return self.read_target(level, box)
        if self.stop.is_set():
            raise Stopped
        data = (
            self.read_source(level, box)
            if level.source is not None
            else self._assemble(run, number, coords, use)
        )
        use(level, coords, data)
        self._release(data.nbytes)
        return data

    def _assemble(self, run: Run, number: int, coords: Shape, use: Use) -> Array:
        """Compute a region from the regions of the finer level below it."""
        level, finer = run.levels[number], run.levels[number - 1]
        box = level.box(coords)
        data: Array | None = None
        for child in children(level, finer, coords):
            small = self._reduced_child(run, number, child, use)
            if data is None:
                data = np.empty([s.stop - s.start for s in box], small.dtype)
            begin = [
                s.start // r - b.start
                for s, r, b in zip(finer.box(child), level.ratio, box, strict=True)
            ]
            into = tuple(slice(b, b + n) for b, n in zip(begin, small.shape, strict=True))
            # the last child along an axis may reach beyond the coarser level's odd end
            fitting = tuple(
                slice(max(0, min(n, size - b)))
                for b, n, size in zip(begin, small.shape, data.shape, strict=True)
            )
            data[into] = small[fitting]
        if data is None:
            raise ChunkEncodeError(f"convert: {level.path} {coords} has no finer regions below it")
        return data

    def _reduced_child(self, run: Run, number: int, child: Shape, use: Use) -> Array:
        """Return a region of the level below `number`, reduced to its place in that level."""
        level = run.levels[number]
        piece = self._region(run, number - 1, child, use)
        return reduced(piece, level.ratio, level.method, level.nodata)

    def read_source(self, level: Level, box: Slices) -> Array:
        """Read a box of the source, with the axes in the target's order."""
        source = self.source(level)
        ndim = source.ndim
        full = [slice(0, 1)] * ndim
        for part, axis in zip(box, level.order, strict=True):
            full[axis] = part
        left_out = [i for i in range(ndim) if i not in level.order]
        data = source.read(tuple(full)).transpose(*level.order, *left_out)
        data = data.reshape(data.shape[: len(level.order)])
        if level.hidden is not None:
            data = np.where(data == level.hidden, data.dtype.type(np.nan), data)
        return data

    def read_target(self, level: Level, box: Slices) -> Array:
        """Read a box back from the target."""
        return np.asarray(self.array(level)[box])

    def source(self, level: Level) -> SourceBoxes | GivenBoxes | CutBoxes:
        """Return the array that a level is copied from, opened once."""
        path = level.source or ""
        if path in self.given:
            return self.given[path]
        cut = None if self.part is None else self.part.cuts[path]
        if path not in self._sources:
            if self.part is None or cut is None:
                array = open_path(self.plan.source, path, storage=self.source_storage)
                kept = list(range(array.ndim))
            else:
                array = open_path(self.part.source, cut.path, storage=self.source_storage)
                kept = [axis for axis in range(array.ndim) if axis not in cut.dropped]
            region = [1] * array.ndim
            for size, axis in zip(level.region, level.order, strict=True):
                region[kept[axis]] = size
            self._sources[path] = SourceBoxes(array, tuple(region))
        boxes = self._sources[path]
        return boxes if cut is None else CutBoxes(boxes, cut)

    def array(self, level: Level) -> zarr.Array[Any]:
        """Return an array of the target, opened once; its metadata need not be written yet."""
        if level.path not in self._targets:
            metadata = parsed_metadata(level)
            found = zarr.AsyncArray(metadata, self._store(level.path))
            self._targets[level.path] = zarr.Array(found)
        return self._targets[level.path]

    def _store(self, path: str) -> StorePath:
        if not is_remote(self.target):
            store = zarr.storage.LocalStore(local_path(self.target), read_only=True)
            return StorePath(store, path)
        remote, root = object_store(self.target, self.target_storage)
        return StorePath(
            zarr.storage.ObjectStore(remote, read_only=True), f"{root.rstrip('/')}/{path}"
        )

    def encoder(self, level: Level) -> "Encoder":
        """Return the encoder of a level, built once."""
        if level.path not in self._encoders:
            self._encoders[level.path] = Encoder(level)
        return self._encoders[level.path]

    def _release(self, nbytes: int) -> None:
        """Release the pages of mapped sources from time to time: they count as our memory."""
        self._unreleased += nbytes
        if self._unreleased < RELEASE_BYTES:
            return
        self._unreleased = 0
        for source in self._sources.values():
            if isinstance(source.array.store, IndexStore):
                source.array.store.sources.release()


def _regions_below(run: Run, number: int, coords: Shape) -> Iterator[tuple[Level, Shape]]:
    level = run.levels[number]
    if number > run.first and level.source is None:
        for child in children(level, run.levels[number - 1], coords):
            yield from _regions_below(run, number - 1, child)
    yield level, coords


def children(level: Level, finer: Level, coords: Shape) -> Iterator[Shape]:
    """Yield the regions of the finer level that a region is computed from.

    The last region along an axis takes all remaining ones. Where halving drops an odd element,
    the finer level may have an extra region, which must still be written by some task.
    """
    ranges = []
    for c, ratio, count, below in zip(coords, level.ratio, level.grid, finer.grid, strict=True):
        stop = below if c == count - 1 else (c + 1) * ratio
        ranges.append(range(c * ratio, min(stop, below)))
    yield from itertools.product(*ranges)


def reduced(piece: Array, ratio: Shape, method: str, nodata: float | None) -> Array:
    """Reduce the complete windows of a piece; elements equal to `nodata` are excluded."""
    count = tuple(n // r for n, r in zip(piece.shape, ratio, strict=True))
    if 0 in count:
        return np.empty(count, piece.dtype)
    whole = piece[tuple(slice(n * r) for n, r in zip(count, ratio, strict=True))]
    return by_window(whole, ratio, method, nodata)


def parsed_metadata(level: Level) -> ArrayV3Metadata:
    """Return zarr's metadata object; raise `UnsupportedError` for codecs that are refused."""
    try:
        return array_metadata(level.metadata)
    except (ValueError, TypeError, LookupError, UnsupportedError) as e:
        raise UnsupportedError(f"convert: {level.path or '/'}: {e}") from e


class Encoder:
    """Encodes the objects (shards, or chunks) of one array."""

    def __init__(self, level: Level) -> None:
        self.level = level
        metadata = parsed_metadata(level)
        self.fill = metadata.fill_value
        self.spec = ArraySpec(
            shape=level.outer,
            dtype=metadata.data_type,
            fill_value=metadata.fill_value,
            config=ArrayConfig.from_dict({"order": "C", "write_empty_chunks": False}),
            prototype=default_buffer_prototype(),
        )
        # zarr compares every element with the fill value to detect empty chunks; this does not
        self.unchecked = replace(
            self.spec, config=ArrayConfig.from_dict({"order": "C", "write_empty_chunks": True})
        )
        shard = level.metadata["codecs"][0].get("configuration", {})
        self.inner = tuple(shard.get("chunk_shape", level.outer))
        try:
            self.transform = ChunkTransform(codecs=evolve_codecs(metadata.codecs, self.spec))
        except TypeError as e:
            raise ChunkEncodeError(f"convert: {level.path}: {e}") from e

    def may_hold_empty_chunks(self, part: Array) -> bool:
        """Whether the first element of any chunk in `part` is the fill value."""
        first = part[tuple(slice(None, None, n) for n in self.inner)]
        return bool(same(first, np.asarray(self.fill, part.dtype)).any())

    def boxes(self, coords: Shape) -> Iterator[tuple[str, Slices]]:
        """Yield the key of every object of a region, and the part of the region it holds."""
        level, box = self.level, self.level.box(coords)
        start, stop = tuple(s.start for s in box), tuple(s.stop for s in box)
        is_v2 = level.metadata["chunk_key_encoding"]["name"] == "v2"
        key_of = zarr_v2.chunk_key if is_v2 else chunk_key
        for at, piece in cut_box(start, stop, chunk_shape=level.outer, shape=level.shape):
            yield key_of(level.path, at), piece.target

    def objects(self, coords: Shape, data: Array) -> Iterator[tuple[str, Any]]:
        """Yield (key, bytes) of every object of a region; None: only fill values, not stored."""
        for key, box in self.boxes(coords):
            yield key, self.encode(data[box])

    def encode(self, part: Array) -> Any:
        """Encode one object, padded with the fill value at the edges of the array."""
        if part.shape != self.level.outer:
            whole = np.full(self.level.outer, self.fill, part.dtype)
            whole[tuple(slice(n) for n in part.shape)] = part
            part = whole
        buffer = self.spec.prototype.nd_buffer.from_numpy_array(np.ascontiguousarray(part))
        spec = self.spec if self.may_hold_empty_chunks(part) else self.unchecked
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


def differences(a: Array, b: Array) -> npt.NDArray[np.float64]:
    """Return how much elements differ: infinitely where only one is NaN."""
    with np.errstate(invalid="ignore"):
        found = np.abs(a.astype(np.float64) - b.astype(np.float64))
    found[same(a, b)] = 0
    found[np.isnan(found)] = np.inf
    return found
