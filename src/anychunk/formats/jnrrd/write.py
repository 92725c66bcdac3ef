"""Writing an array as tiled JNRRD, tile after tile: the volume may be larger than memory.

Spec: JNRRD Tiling Extension 1.0.0; docs/formats/jnrrd.md.
"""

import math
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self, Unpack

import numpy as np

from anychunk import limits
from anychunk.errors import LimitError
from anychunk.formats._raw import Checkpoints
from anychunk.formats.jnrrd import write_header
from anychunk.formats.jnrrd.arranged import Arranged
from anychunk.formats.jnrrd.external_files import References
from anychunk.formats.jnrrd.tiling_fields import Layout, dimension_counts, spread, tile_indices
from anychunk.formats.jnrrd.write_header import Written
from anychunk.formats.jnrrd.write_levels import Pyramid, Quality, Target
from anychunk.formats.jnrrd.write_meaning import kept_header
from anychunk.formats.jnrrd.write_plan import Plan, default_chunk, make_plan
from anychunk.io import sink, threads
from anychunk.io.opening import read_object
from anychunk.io.source import folder_of, is_remote, local_path
from anychunk.model.grid import Array, Shape, chunk_box
from anychunk.options import Progress, TiledOptions


def write_tiled(
    array: Any,
    url: str,
    *,
    chunk: Sequence[int] | None = None,
    compression: str = "raw",
    compression_level: int | Sequence[int] | None = None,
    levels: int | None = None,
    method: str = "average",
    workers: int | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
    checkpoints: Checkpoints | None = None,
    **options: Unpack[TiledOptions],
) -> None:
    """Write an array as a tiled JNRRD file. Sizes and axes are in numpy's order, slowest first.

    Parameters:
        array: A numpy, dask or zarr array, or anything with `shape`, `dtype` and slicing.
        url: The file to write; a path or a remote url.
        chunk: The shape of tiles; by default 64 x 256 x 256 of the three fastest axes.
        compression: raw, gzip, bzip2, zstd or lz4.
        compression_level: Of all tiles, or one per tile.
        levels: How many levels to write, each half as large as the one before.
        method: How levels are computed.
        workers: How many threads compress tiles; by default one per core.
        progress: Called with (tiles done, total tiles).
        overwrite: Replace an existing file.
        checkpoints: The tiles that an earlier attempt has written. With it a local file is written
            under its own name and kept after a failure, so that it can be continued.
        **options: docs/formats/jnrrd.md describes them. Of a `meaning`, orientation, spacings,
            units, kinds and labels are written as the fields of JNRRD, the rest as an extension
            `anychunk`.

    Raises:
        OptionError: An option is wrong, or contradicts another.
        TargetExistsError: There is a file already.
        UnsupportedError: The format cannot hold the array.
        LimitError: The header would be longer than `limits.header_bytes`.
    """
    dtype = numeric_type(array)
    described = kept_header(
        options.get("header"),
        options.get("meaning"),
        tuple(int(n) for n in array.shape),
        # other tiles would be shown with an axis that the array does not have
        may_add_axes=options.get("edges", "padded") == "padded" and not options.get("halo"),
    )
    samples = Arranged(array, dtype, described.order)
    if chunk is None and options.get("chunk_axes") is None:
        chunk = default_chunk(tuple(int(n) for n in array.shape))
    given: dict[str, Any] = in_file_order({**options, "chunk": chunk}, described.order)
    plan = make_plan(
        samples.shape,
        dtype,
        url,
        compression=compression,
        compression_level=compression_level,
        levels=levels,
        method=method,
        **{**given, "header": described.header or None},
    )
    read = reader_of(samples, dtype)
    if checkpoints is None:
        check_free(url, plan.names or (), overwrite=overwrite)
    folder = None if is_remote(url) else str(Path(local_path(url)).parent)
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    tell = progress or (lambda done, of: None)
    with Writer(plan, read, workers or threads.cores(), folder) as writer:
        if plan.names is not None:
            write_external(writer, url, tell, checkpoints)
        elif is_remote(url):
            write_remote(writer, url, tell)
        else:
            with sink.create(url) if checkpoints is None else sink.update(url) as file:
                write_internal(writer, file, tell, checkpoints)


def numeric_type(array: Any) -> np.dtype[Any]:
    """Return the type of an array: numpy has several codes of one, as "L" and "Q" for uint64."""
    dtype: np.dtype[Any] = np.dtype(array.dtype)
    return np.dtype(dtype.name) if dtype.kind in "iufc" else dtype


def in_file_order(options: dict[str, Any], order: Sequence[int | None] | None) -> dict[str, Any]:
    """Return the options that have a value per axis of the array for the axes of the file.

    Parameters:
        options: Those of `write`.
        order: For each axis of the file the axis of the array, as in `Arranged`.
    """
    if order is None or order == tuple(range(len(order))):
        return options
    if options.get("chunk_axes") is not None:
        # the other options follow these, whatever their order
        count = sum(axis is not None for axis in order)
        dimensions = [order.index(int(a) % count) for a in options["chunk_axes"]]
        return {**options, "chunk_axes": dimensions}

    def moved(values: Any, added: int) -> Any:
        if not isinstance(values, Sequence) or len(values) != sum(a is not None for a in order):
            return values  # none, or wrong, which is reported with the others
        return [added if axis is None else values[axis] for axis in order]

    found = dict(options)
    for key, added in (("chunk", 1), ("halo", 0)):
        if key in options:
            found[key] = moved(options[key], added)
    for key in ("level_scales", "level_chunks"):
        if options.get(key) is not None:
            found[key] = [moved(values, 1) for values in options[key]]
    return found


def reader_of(array: Any, dtype: np.dtype[Any]) -> Callable[[Shape, Shape], Array]:
    """Return a function that reads a box of an array; dask and zarr compute it when called."""

    def read(start: Shape, stop: Shape) -> Array:
        box = np.asarray(array[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))])
        return box.astype(dtype, copy=False)

    return read


def check_free(url: str, names: Iterable[str], *, overwrite: bool) -> None:
    """Raise `TargetExistsError` if a header, or a local file that it will name, is there."""
    folder = folder_of(url)
    for place in (url, *(f"{folder}/{name}" for name in names if not is_remote(url))):
        sink.check_free(place, overwrite=overwrite)


@dataclass(frozen=True)
class Job:
    """A tile to write."""

    layout: Layout
    number: int
    """Its number within the level."""
    place: int
    """Its place in the tables of the file."""


@dataclass(frozen=True)
class Tile:
    """A tile, encoded."""

    place: int
    """Its place in the tables of the file."""
    data: Any
    """The stored bytes; empty if they are in place already."""
    size: int
    """How many bytes are stored."""
    checksum: int
    """Their CRC-32."""
    metadata: dict[str, Any] | None
    """Its entry in `tile:metadata`."""


@dataclass(frozen=True)
class Kept:
    """A tile that an earlier attempt has written, and whose bytes are intact."""

    size: int
    checksum: int
    """CRC-32 of its stored bytes."""


class Writer:
    """Encodes the tiles of a plan on several threads."""

    def __init__(
        self, plan: Plan, read: Callable[[Shape, Shape], Array], workers: int, folder: str | None
    ) -> None:
        """Prepare to write.

        Parameters:
            plan: The plan of the file.
            read: Reads the box from a start to a stop of level 0.
            workers: How many threads to use.
            folder: Where the scratch file for coarser levels is created.
        """
        self.plan, self.workers, self._read = plan, workers, read
        self.kept: Mapping[int, Kept] = {}
        """Tiles that are in place already, by their place in the tables."""
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
        """Yield the tiles of each level, in the order in which they are written."""
        before = 0
        for layout in self.plan.layouts:
            grid = dimension_counts(layout, self.plan.tiling.dimensions)
            order: Iterable[int] = range(layout.tiles)
            if self.plan.fields.get("format") == "chunked":
                order = morton_order(grid)
            yield [Job(layout, number, before + number) for number in order]
            before += layout.tiles

    def tiles(self, make: Callable[[Job], Tile] | None = None) -> Iterator[Tile]:
        """Yield every tile, encoded, in the order of the jobs.

        Order matters, since tiles are written one after the other. The number of tiles in memory is
        bounded to one more than there are threads, since tiles may be large. A level begins when
        the previous one is complete: coarser levels are made of the tiles of level 0.

        Parameters:
            make: Makes one tile, on any thread; by default `make`.
        """
        with ThreadPoolExecutor(self.workers, thread_name_prefix="anychunk-write") as pool:
            for jobs in self.jobs():
                yield from threads.in_order(
                    make or self.make, jobs, executor=pool, ahead=self.workers + 1
                )

    def make(self, job: Job) -> Tile:
        """Cut a tile from its level, with its halo, and encode it unless it is in place."""
        plan = self.plan
        kept = self.kept.get(job.place)
        if kept is not None and not self.needs_all_samples:
            return Tile(job.place, b"", kept.size, kept.checksum, None)
        layout = job.layout
        overlap = spread(plan.tiling.overlap, plan.tiling.dimensions, len(layout.counts), 0)[::-1]
        sizes, tile = layout.level.sizes[::-1], layout.level.tile[::-1]
        coords = self.coords(job)
        core = chunk_box(coords, tile, sizes)
        start, stop = tuple(side.start for side in core), tuple(side.stop for side in core)
        # the halo, as far as it lies inside the volume
        low = [max(0, a - o) for a, o in zip(start, overlap, strict=True)]
        high = [min(n, a + t + o) for a, t, o, n in zip(start, tile, overlap, sizes, strict=True)]
        box = self.read(layout.level.number, tuple(low), tuple(high))
        own = box[tuple(slice(a - b, e - b) for a, e, b in zip(start, stop, low, strict=True))]
        if layout.level.number == 0:
            self._pyramid.put(coords, own)
        self.quality.add(layout.level.number, own, start, stop)
        if kept is not None:
            about = describe(own, kept.checksum) if plan.tile_metadata else None
            return Tile(job.place, b"", kept.size, kept.checksum, about)
        stored = box
        if plan.tiling.edge_handling == "pad":
            # a halo before the volume is padding too, so the box may begin inside the stored tile
            full = tuple(t + 2 * o for t, o in zip(tile, overlap, strict=True))
            at = [b - (a - o) for a, o, b in zip(start, overlap, low, strict=True)]
            stored = padded(box, full, at, plan.tiling.padding_value)
        if plan.tiling.sparse and is_filled(stored, plan.tiling.padding_value):
            about = describe(own, 0) if plan.tile_metadata else None
            return Tile(job.place, b"", 0, 0, about)
        data = plan.encode(in_byte_order(stored, plan.volume.endian), job.place)
        checksum = zlib.crc32(data)
        about = describe(own, checksum) if plan.tile_metadata else None
        return Tile(job.place, data, memoryview(data).nbytes, checksum, about)

    def coords(self, job: Job) -> Shape:
        """Return the grid coordinates of a tile, slowest axis first."""
        dimensions, layout = self.plan.tiling.dimensions, job.layout
        indices = tile_indices(job.number, dimension_counts(layout, dimensions))
        return spread(tuple(indices), dimensions, len(layout.counts), 0)[::-1]

    def decoded_size(self, job: Job) -> int:
        """Return the bytes of samples that a tile contributes to its level."""
        level = job.layout.level
        core = chunk_box(self.coords(job), level.tile[::-1], level.sizes[::-1])
        itemsize: int = self.plan.volume.dtype.itemsize
        return itemsize * int(math.prod(s.stop - s.start for s in core))

    @property
    def needs_all_samples(self) -> bool:
        """Whether coarser levels or fields of the header are computed from the samples."""
        plan = self.plan
        return len(plan.levels) > 1 or plan.quality or plan.tile_metadata

    def read(self, level: int, start: Shape, stop: Shape) -> Array:
        """Return the box from `start` to `stop` of a level."""
        return self._read(start, stop) if level == 0 else self._pyramid.read(level, start, stop)


def padded(box: Array, shape: Shape, at: Sequence[int], value: float | None) -> Array:
    """Return an array of `shape` with `box` at position `at`, and the padding value elsewhere."""
    if box.shape == shape:
        return box
    out = np.full(shape, math.nan if value is None else value, box.dtype)
    out[tuple(slice(a, a + n) for a, n in zip(at, box.shape, strict=True))] = box
    return out


def is_filled(array: Array, value: float | None) -> bool:
    """Return whether an array holds nothing but the padding value; None is NaN.

    Bits are compared: a reader would show -0.0, or another NaN, as the padding value.
    """
    one = np.full(1, np.nan if value is None else value, array.dtype).view(np.uint8)
    stored = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return bool((stored.reshape(-1, one.size) == one).all())


def in_byte_order(array: Array, endian: str) -> Array:
    """Return an array in the given byte order."""
    if array.dtype.name == "bfloat16":
        return array if endian == "little" else array.view(np.uint16).byteswap()
    return array.astype(array.dtype.newbyteorder("<" if endian == "little" else ">"), copy=False)


def describe(own: Array, checksum: int) -> dict[str, Any]:
    """Return a tile's entry in `tile:metadata`: the range of its core, and its checksum."""
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
    return {**entry, "checksum": f"{checksum:08x}", "checksum_algorithm": "crc32"}


def morton_order(grid: Shape) -> list[int]:
    """Return the numbers of tiles in Morton order, which keeps neighbouring tiles close together.

    Reversed if that equals table order: the file would be "contiguous" instead of "chunked".
    """
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


def write_internal(
    writer: Writer, file: BinaryIO, tell: Progress, checkpoints: Checkpoints | None
) -> None:
    """Write tiles one after the other after the space reserved for the header, then the header."""
    plan = writer.plan
    written = Written(plan.tiles, has_metadata=plan.tile_metadata)
    start = write_header.room(plan)
    if start > limits.get().header_bytes:
        raise LimitError(
            f"jnrrd: {plan.tiles} tiles need a header of {start} bytes, over the limit of "
            f"{limits.get().header_bytes}; use larger tiles; {limits.how_to_raise('header_bytes')}"
        )
    if checkpoints is not None:
        writer.kept = intact_tiles(writer, file, start, checkpoints)
    position = start
    for done, tile in enumerate(writer.tiles(), 1):
        if tile.place not in writer.kept:
            file.seek(position)
            file.write(tile.data)
            if checkpoints is not None:
                checkpoints.add(f"{tile.place}.{tile.size}", tile.checksum)
        written.add(tile.place, position, tile.size, tile.metadata)
        position += tile.size
        tell(done, plan.tiles)
    text = write_header.text(plan, written, quality=writer.quality.fields(), length=start)
    file.seek(0)
    file.write(text)
    file.truncate(position)  # an earlier attempt may have left more


def intact_tiles(
    writer: Writer, file: BinaryIO, position: int, checkpoints: Checkpoints
) -> dict[int, Kept]:
    """Return the tiles at the beginning of the file that an earlier attempt has written.

    Each tile begins where the one before it ends, so the first that is missing or damaged is also
    the first to write.
    """
    known = recorded_tiles(checkpoints)
    kept: dict[int, Kept] = {}
    end = file.seek(0, 2)
    for job in (job for jobs in writer.jobs() for job in jobs):
        found = known.get(job.place)
        if found is None or position + found.size > end:
            break
        file.seek(position)
        if zlib.crc32(file.read(found.size)) != found.checksum:
            break
        kept[job.place] = found
        checkpoints.skip(writer.decoded_size(job))
        position += found.size
    return kept


def write_remote(writer: Writer, url: str, tell: Progress) -> None:
    """Write a local file, then upload it: the header comes first, but is known last."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/data"
        with sink.create(path) as file:
            write_internal(writer, file, tell, None)
        sink.put(url, Path(path).read_bytes())


def write_external(
    writer: Writer, url: str, tell: Progress, checkpoints: Checkpoints | None
) -> None:
    """Write every tile as a separate file, then the header that names them."""
    plan = writer.plan
    references = References(folder_of(url), plan.fields.get("base_dir", ""))
    urls = [references.url(name) for name in plan.names or ()]
    if not is_remote(url):
        # an old header would show a mixture of old and new tiles
        Path(local_path(url)).unlink(missing_ok=True)
    written = Written(plan.tiles, has_metadata=plan.tile_metadata)
    if checkpoints is not None:
        writer.kept = intact_files(writer, urls, references.folder, checkpoints)

    def make_and_put(job: Job) -> Tile:
        # on the worker's thread: uploads take longer than encoding
        tile = writer.make(job)
        if tile.place not in writer.kept:
            if tile.size:
                sink.put(urls[tile.place], tile.data, root=references.folder)
            else:
                sink.remove(urls[tile.place])  # of an earlier file: it would be shown
            if checkpoints is not None:
                checkpoints.add(f"{tile.place}.{tile.size}", tile.checksum)
        return Tile(tile.place, b"", tile.size, tile.checksum, tile.metadata)

    for done, tile in enumerate(writer.tiles(make_and_put), 1):
        written.add(tile.place, 0, tile.size, tile.metadata)
        tell(done, plan.tiles)
    text = write_header.text(plan, written, quality=writer.quality.fields(), length=None)
    if is_remote(url):
        sink.put(url, text)
    else:
        with sink.create(url) as file:
            file.write(text)


def intact_files(
    writer: Writer, urls: Sequence[str], folder: str, checkpoints: Checkpoints
) -> dict[int, Kept]:
    """Return the tiles whose files an earlier attempt has written and nobody has changed."""
    known = recorded_tiles(checkpoints)
    kept: dict[int, Kept] = {}
    for job in (job for jobs in writer.jobs() for job in jobs):
        if (found := known.get(job.place)) is None:
            continue
        data = read_object(urls[job.place], roots=(folder,))
        if data is not None and zlib.crc32(data) == found.checksum:
            kept[job.place] = found
            checkpoints.skip(writer.decoded_size(job))
    return kept


def recorded_tiles(checkpoints: Checkpoints) -> dict[int, Kept]:
    """Return the tiles of an earlier attempt, by their place in the tables, not yet checked."""
    found = {}
    for name, checksum in checkpoints.done.items():
        place, _, size = name.partition(".")
        if place.isdecimal() and size.isdecimal():
            found[int(place)] = Kept(int(size), checksum)
    return found
