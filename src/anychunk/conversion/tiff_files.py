"""Conversion to Cloud Optimized GeoTIFF and OME-TIFF: parallel, larger than memory, resumable.

A COG begins with its directories and its coarsest level, but the finest level is known first. So
each task writes its encoded tiles to a file beside the target, and when all are there, the target
is put together from them. Where a later run continues from the coarsest level of a task, the task
also keeps that level, reduced and not encoded: so nothing is decoded again, and lossy compressions
do not add up.
"""

import itertools
import os
import shutil
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from anychunk import api
from anychunk.conversion.executor import compare_all, start_workers, write_all
from anychunk.conversion.levels import Level
from anychunk.conversion.plan import Run
from anychunk.conversion.source_boxes import GivenBoxes
from anychunk.conversion.staging import Stage, staged, with_files
from anychunk.conversion.tasks import Conversion, Task, Use, differences, reduced, same
from anychunk.conversion.tiff_plan import TiffOptions, TiffPlan, Written, make_tiff_plan, pages
from anychunk.errors import ChunkEncodeError, FormatError
from anychunk.formats.tiff.write_directory import Page, framed, layout
from anychunk.io import sink
from anychunk.io.source import Storage, is_remote
from anychunk.limits import MIB
from anychunk.model import images as im
from anychunk.model.grid import Array, Shape, Slices
from anychunk.options import Progress
from anychunk.selection import Part
from anychunk.zarr.array import open_path

RECORD = np.dtype([("array", "<i4"), ("tile", "<i8"), ("offset", "<u8"), ("length", "<u8")])
"""Where a tile is in the file of a task; a piece for a later run has the number -1."""
PIECE = -1
COPY_BYTES = 8 * MIB
"""How much is gathered before it is written to the target."""
OPEN_FILES = 200
"""Files of tiles that are open at a time while they are put together."""


@dataclass(frozen=True)
class TiffReport:
    """What a conversion to TIFF did."""

    arrays: int
    nbytes: int
    skipped_bytes: int
    losses: tuple[str, ...]
    notes: tuple[str, ...]


def to_tiff(
    node: Any,
    url: str,
    options: TiffOptions,
    *,
    verify: bool,
    overwrite: bool,
    count: int,
    progress: Progress | None,
    storage: Storage | None,
    target_storage: Storage | None,
    given: Mapping[str, GivenBoxes] | None = None,
    part: Part | None = None,
) -> TiffReport:
    """Write a TIFF file, on `count` threads.

    A remote target is put together in a local temporary folder, and then uploaded.
    """
    made = make_tiff_plan(node, url, options, count)
    fingerprint = with_files(made.plan.fingerprint, node.pins)
    with staged_file(url, fingerprint, overwrite=overwrite, storage=target_storage) as stage:
        conversion = TiffConversion(
            made,
            f"{Path(stage.url).parent}/tiles",
            source_storage=storage,
            given=given,
            part=part,
        )
        with start_workers(count, None, conversion) as workers:
            skipped = write_all(conversion, stage.journal, workers, progress)
            conversion.assemble(stage.url)
            if verify:
                errors = compare_all(conversion, workers, progress)
        shutil.rmtree(conversion.target, ignore_errors=True)
        if is_remote(url):
            sink.upload(url, stage.url, storage=target_storage)
    notes = [*made.plan.notes]
    if made.is_lossy and verify:
        notes.append(
            f"{options.compression} is lossy; the largest difference is "
            f"{max(errors.values(), default=0):g}"
        )
    return TiffReport(
        arrays=len(made.plan.arrays),
        nbytes=made.plan.nbytes,
        skipped_bytes=skipped,
        losses=made.plan.losses,
        notes=tuple(notes),
    )


@contextmanager
def staged_file(
    url: str, fingerprint: str, *, overwrite: bool, storage: Storage | None
) -> Iterator[Stage]:
    """Yield where to write a file; a remote one is staged in a temporary folder."""
    if not is_remote(url):
        with staged(
            url, fingerprint, top=url, is_in_place=False, overwrite=overwrite, storage=None
        ) as stage:
            yield stage
        return
    sink.check_free(url, overwrite=overwrite, storage=storage)
    with tempfile.TemporaryDirectory(prefix="anychunk-") as folder:
        aside = f"{folder}/{url.rpartition('/')[2]}"
        with staged(
            aside, fingerprint, top=aside, is_in_place=False, overwrite=True, storage=None
        ) as stage:
            yield stage


class TiffConversion(Conversion):
    """Runs the tasks of a plan; tiles go to one file per task."""

    def __init__(
        self,
        made: TiffPlan,
        target: str,
        *,
        source_storage: Storage | None = None,
        given: Mapping[str, GivenBoxes] | None = None,
        part: Part | None = None,
    ) -> None:
        super().__init__(made.plan, target, source_storage=source_storage, given=given, part=part)
        self.made = made
        self.numbers = made.numbers()
        self.runs = {id(run): number for number, run in enumerate(made.plan.runs)}
        self._lock = threading.Lock()
        self._written: dict[str, Any] = {}
        self._file = ""

    def path(self, task: Task) -> str:
        """Return the name of the file of a task."""
        return f"{self.target}/{task.name().replace('/', '-')}"

    def write(self, task: Task) -> int:
        """Compute a task and write its tiles; return the checksum of their file."""
        pieces: list[Any] = []
        records: list[tuple[int, int, int, int]] = []
        at = 0

        def keep(array: int, tile: int, data: Any) -> None:
            nonlocal at
            view = memoryview(data).cast("B")
            records.append((array, tile, at, len(view)))
            pieces.append(view)
            at += len(view)

        run = self.plan.runs[task.run]
        later = self.later(task.run)

        def put(level: Level, coords: Shape, data: Array) -> None:
            written = self.made.arrays[level.path]
            for tile, stored in encoded(written, level.box(coords), data):
                keep(self.numbers[level.path], tile, stored)
            if later is not None and level is run.top:
                small = reduced(data, later.ratio, later.method, later.nodata)
                keep(self.numbers[later.path], PIECE, np.ascontiguousarray(small))

        self.compute(task, put)
        table = np.array(records, RECORD).tobytes()
        pieces += [table, len(records).to_bytes(8, "little")]
        checksum = 0
        for piece in pieces:
            checksum = zlib.crc32(piece, checksum)
        sink.put(self.path(task), *pieces)
        return checksum

    def later(self, run: int) -> Level | None:
        """Return the level that the next run computes from the coarsest of this one."""
        if run + 1 < len(self.plan.runs):
            after = self.plan.runs[run + 1]
            if after.first > 0:
                return after.levels[after.first]
        return None

    def stored_checksum(self, task: Task) -> int:
        """Return the checksum of the file of a task; -1 if there is none."""
        try:
            with Path(self.path(task)).open("rb") as file:
                checksum = 0
                while piece := file.read(COPY_BYTES):
                    checksum = zlib.crc32(piece, checksum)
                return checksum
        except OSError:
            return -1

    def _reduced_child(self, run: Run, number: int, child: Shape, use: Use) -> Array:
        if number != run.first:
            return super()._reduced_child(run, number, child, use)
        # the run before has kept what this level needs
        task = Task(self.runs[id(run)] - 1, child)
        level, finer = run.levels[number], run.levels[number - 1]
        with Path(self.path(task)).open("rb") as file:
            found = records_of(file)
            record = found[found["tile"] == PIECE][0]
            file.seek(int(record["offset"]))
            data = file.read(int(record["length"]))
        sizes = [s.stop - s.start for s in finer.box(child)]
        shape = [n // r for n, r in zip(sizes, level.ratio, strict=True)]
        dtype = self.made.arrays[level.path].format.dtype
        return np.frombuffer(data, dtype).reshape(shape)

    def assemble(self, path: str) -> None:
        """Put the file together: directories, then tiles, from the coarsest level to the finest."""
        tasks = [t for run in range(len(self.plan.runs)) for t in self.tasks(run)]
        tables = {
            name: np.zeros(written.count, np.uint64) for name, written in self.made.arrays.items()
        }
        places = {name: np.zeros((len(table), 2), np.uint64) for name, table in tables.items()}
        names = list(self.made.arrays)
        for number, task in enumerate(tasks):
            with Path(self.path(task)).open("rb") as file:
                found = records_of(file)
            for array in np.unique(found["array"]):
                own = found[(found["array"] == array) & (found["tile"] != PIECE)]
                tables[names[array]][own["tile"]] = own["length"]
                places[names[array]][own["tile"], 0] = number
                places[names[array]][own["tile"], 1] = own["offset"]
        missing = [name for name, table in tables.items() if not table.all()]
        if missing:
            raise ChunkEncodeError(f"{path}: tiles of {missing[0]} were not written")
        chain, order = pages(self.made, tables)
        placed = layout(chain, order, is_cog=self.made.is_cog, big=self.made.big)
        if not placed.is_big and placed.size >= 1 << 32:
            raise FormatError(f"{path}: {placed.size} bytes need BigTIFF; leave out bigtiff")
        where = self.places_of_pages(order, places)
        with sink.create(path) as out, TaskFiles([self.path(t) for t in tasks]) as files:
            out.write(placed.head)
            for group in order:
                copy_tiles(group, [where[id(page)] for page in group], files, out, self.made.is_cog)
            if out.tell() != placed.size:
                raise ChunkEncodeError(f"{path}: {out.tell()} bytes, expected {placed.size}")
        self._file = path

    def places_of_pages(
        self, order: list[list[Page]], places: Mapping[str, Array]
    ) -> dict[int, Array]:
        """Return the task and the offset of every tile, by page."""
        found: dict[int, Array] = {}
        # as `pages` orders them: coarsest first, planes in order, masks after their level
        at = iter([page for group in order for page in group])
        for picture in self.made.pictures:
            for number in reversed(range(len(picture.levels))):
                written = picture.levels[number]
                parts = np.split(places[written.level.path], picture.planes)
                for part in parts:
                    found[id(next(at))] = part
                for mask in picture.masks[number : number + 1]:
                    found[id(next(at))] = places[mask.level.path]
        return found

    def compare(self, task: Task) -> tuple[list[str], dict[str, float]]:
        """Compute a task again and compare it with the file.

        Returns the differences; if the compression is lossy, the largest of every array instead.
        """
        findings: list[str] = []
        errors: dict[str, float] = {}

        def check(level: Level, coords: Shape, data: Array) -> None:
            written, box = self.made.arrays[level.path], level.box(coords)
            there = self.read_target(level, box)
            if written.is_mask:
                data = np.where(valid_pixels(written, data), np.uint8(255), np.uint8(0))
            elif self.made.is_lossy:
                error = float(differences(there, data).max(initial=0.0))
                errors[level.path] = max(error, errors.get(level.path, 0.0))
                return
            wrong = np.argwhere(~same(there, data))
            if len(wrong):
                at = tuple(int(s.start + i) for s, i in zip(box, wrong[0], strict=True))
                findings.append(
                    f"{level.path} {at}: read back {there[tuple(wrong[0])]}, expected "
                    f"{data[tuple(wrong[0])]}; {len(wrong)} values differ in this region"
                )

        self.compute(task, check)
        return findings, errors

    def read_target(self, level: Level, box: Slices) -> Array:
        """Read a box back from the finished file, by our own reader."""
        array = self.opened(level)
        lead, sizes = level.shape[:-2], [s.stop - s.start for s in box]
        inside = box[-2:]
        is_whole = all((s.start, s.stop) == (0, n) for s, n in zip(box[:-2], lead, strict=True))
        if is_whole:
            found = np.asarray(array[(..., *inside)])
            return found.reshape(sizes)
        out = np.empty(sizes, array.dtype)
        stored = tuple(array.shape[:-2])
        for at in itertools.product(*(range(s.start, s.stop) for s in box[:-2])):
            plane = np.unravel_index(int(np.ravel_multi_index(at, lead)), stored)
            into = tuple(n - s.start for n, s in zip(at, box[:-2], strict=True))
            out[into] = array[(*map(int, plane), *inside)]
        return out

    def opened(self, level: Level) -> Any:
        """Return an array of the finished file, opened once."""
        with self._lock:
            if not self._written:
                node = api.index(self._file, sidecars=False)
                for picture, image in zip(self.made.pictures, im.images(node), strict=True):
                    for written, path in zip(picture.levels, image.levels, strict=True):
                        self._written[written.level.path] = open_path(node, path)
                    for mask, path in zip(picture.masks, image.levels, strict=False):
                        beside = im.join(path.rpartition("/")[0], "mask")
                        self._written[mask.level.path] = open_path(node, beside)
            return self._written[level.path]


def records_of(file: BinaryIO) -> Any:
    """Return the table of a file of tiles."""
    size = os.fstat(file.fileno()).st_size
    file.seek(size - 8)
    count = int.from_bytes(file.read(8), "little")
    file.seek(size - 8 - count * RECORD.itemsize)
    return np.frombuffer(file.read(count * RECORD.itemsize), RECORD)


def valid_pixels(written: Written, data: Array) -> Array:
    """Return where a mask says that pixels are valid."""
    return np.asarray(data != 0 if written.valid else data == 0)


def encoded(written: Written, box: Slices, data: Array) -> Iterator[tuple[int, Any]]:
    """Yield the number and the stored bytes of every tile of a region."""
    spread, shape, side = written.spread, written.level.shape, written.spread.side
    if written.is_mask:
        data = valid_pixels(written, data)
    down, across = spread.tiles(shape)
    rows, columns = data.shape[-2:]
    ndim = data.ndim
    order = (*spread.paged, ndim - 2, ndim - 1, *spread.banded)
    arranged = data.transpose(order)
    sizes = [data.shape[i] for i in spread.paged]
    planes = arranged.reshape(-1, rows, columns, written.format.bands)
    first_row, first_column = box[-2].start // side, box[-1].start // side
    for number, at in enumerate(np.ndindex(*sizes)):
        full = [shape[i] for i in spread.paged]
        here = [box[i].start + n for i, n in zip(spread.paged, at, strict=True)]
        plane = int(np.ravel_multi_index(here, full)) if full else 0
        for row in range(-(-rows // side)):
            for column in range(-(-columns // side)):
                part = planes[
                    number,
                    row * side : (row + 1) * side,
                    column * side : (column + 1) * side,
                ]
                tile = (plane * down + first_row + row) * across + first_column + column
                yield tile, written.format.encode(part)


class TaskFiles:
    """Files of tiles, of which a bounded number is open."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self._open: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._open.values():
            os.close(handle)

    def read(self, number: int, offset: int, length: int) -> bytes:
        """Read a tile."""
        handle = self._open.get(number)
        if handle is None:
            if len(self._open) >= OPEN_FILES:
                os.close(self._open.pop(next(iter(self._open))))
            flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
            handle = self._open[number] = os.open(self.paths[number], flags)
        if hasattr(os, "pread"):
            return os.pread(handle, length, offset)
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, length)


def copy_tiles(
    group: list[Page], places: list[Array], files: TaskFiles, out: BinaryIO, is_framed: bool
) -> None:
    """Append the tiles of pages, one of each in turn."""
    waiting: list[Any] = []
    size = 0
    lengths = [page.lengths.tolist() for page in group]
    tables = [place.tolist() for place in places]
    for tile in range(len(lengths[0])):
        for number in range(len(group)):
            task, offset = tables[number][tile]
            data = files.read(task, offset, lengths[number][tile])
            waiting += framed(data) if is_framed else (data,)
            size += len(data)
        if size >= COPY_BYTES:
            out.write(b"".join(waiting))
            waiting, size = [], 0
    out.write(b"".join(waiting))
