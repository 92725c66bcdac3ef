"""Write an array as tiled JNRRD, tile after tile: the volume may be larger than memory.

Spec: JNRRD Tiling Extension 1.0.0; docs/formats/jnrrd.md.
"""

import contextlib
import math
import os
import sys
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.errors import LimitError
from anychunk.formats.jnrrd import heading
from anychunk.formats.jnrrd.files import References, dimension_counts, folder_of, tile_indices
from anychunk.formats.jnrrd.heading import Written
from anychunk.formats.jnrrd.layout import Layout, spread
from anychunk.formats.jnrrd.plan import Plan, make_plan
from anychunk.formats.jnrrd.pyramid import Pyramid, Target
from anychunk.formats.jnrrd.quality import Quality
from anychunk.io import is_remote, local_path, sink
from anychunk.model.grid import Shape

type Array = npt.NDArray[Any]
type Progress = Callable[[int, int], None]
"""Called with (tiles done, tiles to do)."""


def claims(url: str) -> bool:
    return url.endswith(".jnrrd")


def write(
    array: Any,
    url: str,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> None:
    """Write a numpy, dask or zarr array. Sizes and axes are in numpy's order, slowest first.

    Options: `tile`, `tile_dimensions`, `storage`, `format`, `compression`, `compression_levels`,
    `edge_handling`, `padding_value`, `overlap`, `levels` or `level_scales`, `level_tile_sizes`,
    `levels_virtual`, `downsample`, `quality`, `tile_metadata`, `pattern` or `files`, `base_dir`,
    `header` (fields to write besides, or a header whose lines to keep), `endian`.
    """
    dtype = np.dtype(array.dtype)
    # a type under another code, as tifffile gives uint64, is the same type
    dtype = np.dtype(dtype.name) if dtype.kind in "iufc" else dtype
    plan = make_plan(tuple(int(n) for n in array.shape), dtype, url, **options)
    read = reader_of(array, dtype)
    folder = None if is_remote(url) else str(Path(local_path(url)).parent)
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    with (
        Writer(plan, read, workers or os.cpu_count() or 1, folder) as writer,
        shown(progress, plan.tiles) as tell,
    ):
        if plan.names is not None:
            write_external(writer, url, tell)
        elif is_remote(url):
            write_remote(writer, url, tell)
        else:
            with sink.create(url) as file:
                write_internal(writer, file, tell)


def reader_of(array: Any, dtype: np.dtype[Any]) -> Callable[[Shape, Shape], Array]:
    """Read boxes of anything that slices; dask and zarr compute them then."""

    def read(start: Shape, stop: Shape) -> Array:
        box = np.asarray(array[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))])
        return box.astype(dtype, copy=False)

    return read


@contextlib.contextmanager
def shown(progress: Progress | None, total: int) -> Iterator[Progress]:
    """Show a bar on a terminal, unless the caller wants to hear of progress."""
    if progress is not None:
        yield progress
        return
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    from rich.console import Console  # slow to import, and for terminals only
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("writing tiles", total=total)
        yield lambda done, of: bar.update(task, completed=done)


@dataclass(frozen=True)
class Job:
    """One tile to make."""

    layout: Layout
    number: int
    """In the level's table."""
    place: int
    """In all tables."""


@dataclass(frozen=True)
class Tile:
    """One tile, encoded."""

    place: int
    data: Any
    metadata: dict[str, Any] | None


class Writer:
    """Makes the tiles of a plan, on a few threads."""

    def __init__(
        self, plan: Plan, read: Callable[[Shape, Shape], Array], workers: int, folder: str | None
    ) -> None:
        self.plan, self.workers, self._read = plan, workers, read
        base = plan.levels[0]
        self.quality = Quality(plan, read)
        self._pyramid = Pyramid(
            read,
            base.sizes[::-1],
            base.tile[::-1],
            plan.volume.dtype,
            [
                Target(x.number, x.sizes[::-1], x.scale[::-1])
                for x in plan.levels[1:]
                if x.is_stored
            ],
            method=plan.tiling.downsample_method,
            folder=folder,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pyramid.__exit__(None, None, None)

    def jobs(self) -> Iterator[list[Job]]:
        """Give the tiles level by level; a level begins when the one before it is complete."""
        before = 0
        for layout in self.plan.layouts:
            grid = dimension_counts(layout, self.plan.tiling.dimensions)
            order: Iterable[int] = range(layout.tiles)
            if self.plan.fields.get("format") == "chunked":
                order = morton_order(grid)
            yield [Job(layout, number, before + number) for number in order]
            before += layout.tiles

    def tiles(self, take: Callable[[Tile], None]) -> None:
        """Make every tile and hand each over, in the order of the jobs."""
        with ThreadPoolExecutor(self.workers, thread_name_prefix="anychunk-write") as pool:
            for jobs in self.jobs():
                waiting: deque[Future[Tile]] = deque()
                try:
                    for job in jobs:
                        waiting.append(pool.submit(self.make, job))
                        if len(waiting) > self.workers:
                            take(waiting.popleft().result())
                    while waiting:
                        take(waiting.popleft().result())
                except BaseException:
                    for future in waiting:
                        future.cancel()
                    raise

    def make(self, job: Job) -> Tile:
        """Cut a tile from its level and encode it."""
        plan, layout = self.plan, job.layout
        grid = dimension_counts(layout, plan.tiling.dimensions)
        dimensions, ndim = plan.tiling.dimensions, len(layout.counts)
        coords = spread(tuple(tile_indices(job.number, grid)), dimensions, ndim, 0)[::-1]
        overlap = spread(plan.tiling.overlap, dimensions, ndim, 0)[::-1]
        sizes, tile = layout.level.sizes[::-1], layout.level.tile[::-1]
        core = [c * t for c, t in zip(coords, tile, strict=True)]
        end = [min(a + t, n) for a, t, n in zip(core, tile, sizes, strict=True)]
        low = [max(0, a - o) for a, o in zip(core, overlap, strict=True)]
        high = [min(n, a + t + o) for a, t, o, n in zip(core, tile, overlap, sizes, strict=True)]
        box = self.read(layout.level.number, tuple(low), tuple(high))
        own = box[tuple(slice(a - b, e - b) for a, e, b in zip(core, end, low, strict=True))]
        if layout.level.number == 0:
            self._pyramid.put(coords, own)
        self.quality.add(layout.level.number, own, tuple(core), tuple(end))
        stored = box
        if plan.tiling.edge_handling == "pad":
            full = tuple(t + 2 * o for t, o in zip(tile, overlap, strict=True))
            at = [b - (a - o) for a, o, b in zip(core, overlap, low, strict=True)]
            stored = padded(box, full, at, plan.tiling.padding_value)
        data = plan.encode(in_order(stored, plan.volume.endian), job.place)
        return Tile(job.place, data, describe(own, data) if plan.tile_metadata else None)

    def read(self, level: int, start: Shape, stop: Shape) -> Array:
        return self._read(start, stop) if level == 0 else self._pyramid.read(level, start, stop)


def padded(box: Array, shape: Shape, at: Sequence[int], value: float | None) -> Array:
    """Put a box into a larger one that is filled with the padding value."""
    if box.shape == shape:
        return box
    out = np.full(shape, math.nan if value is None else value, box.dtype)
    out[tuple(slice(a, a + n) for a, n in zip(at, box.shape, strict=True))] = box
    return out


def in_order(array: Array, endian: str) -> Array:
    if array.dtype.name == "bfloat16":
        return array if endian == "little" else array.view(np.uint16).byteswap()
    return array.astype(array.dtype.newbyteorder("<" if endian == "little" else ">"), copy=False)


def describe(own: Array, data: Any) -> dict[str, Any]:
    """Make a tile's entry in `tile:metadata`."""
    entry: dict[str, Any] = {}
    if own.dtype.kind != "c":
        values = own.astype(np.float32) if own.dtype.name == "bfloat16" else own
        if values.dtype.kind == "f":
            values = values[~np.isnan(values)]
        known = values.size > 0
        entry = {
            "min": values.min().item() if known else None,
            "max": values.max().item() if known else None,
        }
    return {**entry, "checksum": f"{zlib.crc32(data):08x}", "checksum_algorithm": "crc32"}


def morton_order(grid: Shape) -> list[int]:
    """Order tiles so that near ones lie near each other; never as the index does, if possible."""
    bits = max(grid).bit_length()
    keys = []
    for number in range(math.prod(grid)):
        indices = tile_indices(number, grid)
        keys.append(
            sum(
                ((index >> bit) & 1) << (bit * len(grid) + position)
                for bit in range(bits)
                for position, index in enumerate(indices)
            )
        )
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return order if order != list(range(len(keys))) else order[::-1]


def write_internal(writer: Writer, file: BinaryIO, tell: Progress) -> None:
    """Write tiles one after the other behind the room that the header needs, then the header."""
    plan = writer.plan
    written = Written(plan.tiles, has_metadata=plan.tile_metadata)
    start = heading.room(plan)
    if start > limits.get().header_bytes:
        raise LimitError(
            f"jnrrd: {plan.tiles} tiles make a header of {start} bytes, over the limit of "
            f"{limits.get().header_bytes}; use larger tiles"
        )
    position, done = start, 0
    file.seek(start)

    def take(tile: Tile) -> None:
        nonlocal position, done
        file.write(tile.data)
        written.add(tile.place, position, len(memoryview(tile.data).cast("B")), tile.metadata)
        position += written.size_of(tile.place)
        done += 1
        tell(done, plan.tiles)

    writer.tiles(take)
    text = heading.text(plan, written, quality=writer.quality.fields(), length=start)
    file.seek(0)
    file.write(text)


def write_remote(writer: Writer, url: str, tell: Progress) -> None:
    """Write a local file first: an object is put in one piece."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/data"
        with sink.create(path) as file:
            write_internal(writer, file, tell)
        sink.put(url, Path(path).read_bytes())


def write_external(writer: Writer, url: str, tell: Progress) -> None:
    """Write every tile as a file of its own, and the header that names them last."""
    plan = writer.plan
    references = References(folder_of(url), plan.fields.get("base_dir", ""))
    urls = [references.url(name) for name in plan.names or ()]
    if not is_remote(url):
        # an old header would lead to a mixture of old and new tiles
        Path(local_path(url)).unlink(missing_ok=True)
    written = Written(plan.tiles, has_metadata=plan.tile_metadata)
    make, done = writer.make, 0

    def make_and_put(job: Job) -> Tile:
        tile = make(job)
        sink.put(urls[tile.place], tile.data, root=references.folder)
        return Tile(tile.place, b"", tile.metadata)

    def take(tile: Tile) -> None:
        nonlocal done
        written.add(tile.place, 0, 0, tile.metadata)
        done += 1
        tell(done, plan.tiles)

    writer.make = make_and_put  # type: ignore[method-assign]
    writer.tiles(take)
    text = heading.text(plan, written, quality=writer.quality.fields(), length=None)
    if is_remote(url):
        sink.put(url, text)
    else:
        with sink.create(url) as file:
            file.write(text)
