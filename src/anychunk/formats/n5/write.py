"""Writing arrays as N5 datasets: blocks in parallel, attributes last.

An interrupted write leaves no attributes, so that no reader mistakes the folder for a dataset; the
version of a new container is written last of all, so that it is not mistaken for an empty one.
Every existing block is complete, because each is written under a temporary name and renamed.
"""

import base64
import json
import math
import os
import re
import zlib
from collections.abc import Buffer, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Unpack

import numpy as np

from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.n5_block import write_header
from anychunk.codecs.n5_default import DATA_TYPES, N5Default, fit
from anychunk.errors import (
    CodecConfigError,
    FormatError,
    OptionError,
    TargetExistsError,
    UnsupportedError,
)
from anychunk.formats._axes import MOST_NATIVE, SHORT_UNITS
from anychunk.formats._raw import Checkpoints
from anychunk.formats.n5.attributes import NAME, complete, is_dataset, to_codecs
from anychunk.formats.n5.hierarchy import OWN, Options, pyramid_image, read_folder, samples_codec
from anychunk.formats.n5.multiscale import GROUP_KEYS, LEVEL_KEYS, axis_names
from anychunk.formats.n5.write_input import Given, Halved, Regions, Samples, Stored, factors_of
from anychunk.io import sink, threads
from anychunk.io.opening import Folder, read_object
from anychunk.io.source import Storage
from anychunk.metadata.exported import exported
from anychunk.metadata.hierarchy import group_attributes
from anychunk.metadata.meaning import NAMES, Meaning
from anychunk.model.grid import Shape
from anychunk.model.index import Json
from anychunk.options import N5Options
from anychunk.resample import BY_WINDOW

# `zarr.json` next to `attributes.json`, so that zarr reads the same block files.
#
# If every block is whole, the header of a block is constant, and standard codecs describe it:
# `transpose`, `bytes`, the compressor, and `pad`, which skips the header. Otherwise `n5_default` is
# needed, because only the header states the size of a cropped block.
#
# Arrays have the dimensions in N5 order, (x, y, z): chunk keys follow the order of the axes, and
# blocks are named in N5 order. OME-Zarr does not allow this order, so groups have GeoZarr's
# `multiscales` and no `ome`.


def array_metadata(attributes: dict[str, Json], *, is_cropped: bool) -> dict[str, Json]:
    """Return the Zarr v3 metadata of a dataset that is written.

    Parameters:
        attributes: The attributes of the dataset, complete.
        is_cropped: Whether blocks at the edge are cropped.
    """
    shape, block = attributes["dimensions"], attributes["blockSize"]
    names = axis_names((attributes,), len(block))
    itemsize = np.dtype(attributes["dataType"]).itemsize
    compressor = to_codecs(attributes["compression"], itemsize, "N5")
    is_whole = not is_cropped or all(n % m == 0 for n, m in zip(shape, block, strict=True))
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": attributes["dataType"],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": block}},
        "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": whole_block_codecs(compressor, block)
        if is_whole
        else [samples_codec(compressor, len(block))],
        "dimension_names": [name or f"dim_{n}" for n, name in enumerate(names)],
        "attributes": {},
    }


def reads_transposed(document: Json) -> bool:
    """Return whether a `zarr.json` of N5 blocks skips their header, but lacks `transpose`.

    The first axis of N5 is the fastest, so zarr then reads every block transposed. Example 3 of the
    proposals of `offset` and `pad` is such a document.
    """
    found = document if isinstance(document, dict) else {}
    codecs, shape = found.get("codecs"), found.get("shape")
    names = {c.get("name") for c in codecs or () if isinstance(c, dict)}
    skips = "transpose" not in names and not names.isdisjoint(("offset", "pad"))
    return skips and isinstance(shape, list) and sum(n != 1 for n in shape) > 1


def whole_block_codecs(compressor: list[Json], block: list[int]) -> list[dict[str, Any]]:
    """Return the codecs of blocks that all have the same header."""
    header = write_header(tuple(block))
    padding = base64.b64encode(header).decode("ascii")
    return [
        {"name": "transpose", "configuration": {"order": list(range(len(block)))[::-1]}},
        {"name": "bytes", "configuration": {"endian": "big"}},
        *compressor,
        {
            "name": "pad",
            "configuration": {"location": "start", "nbytes": len(header), "padding": padding},
        },
    ]


def group_metadata(attributes: dict[str, Json]) -> dict[str, Json]:
    """Return the Zarr v3 metadata of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes}


def pyramid_attributes(
    folder: Folder, group: dict[str, Json], levels: dict[str, dict[str, Json]]
) -> dict[str, Json]:
    """Return the Zarr attributes of a pyramid that is written.

    Parameters:
        folder: The folder of the group.
        group: The attributes of the group.
        levels: The attributes of its datasets, by name.
    """
    found = pyramid_image(folder, group, list(levels.items()), Options(axes="xyz"), {})
    return {} if found is None else group_attributes(*found)


# The meaning of samples as N5 attributes: those of n5-viewer and COSEM, and one of our own.


WRITTEN = {
    *("n5", OWN, "dimensions", "blockSize", "dataType", "compression", "compressionType"),
    *("resolution", "offset", "units", "axes", "ordering"),
    *GROUP_KEYS,
    *LEVEL_KEYS,
}
"""Attributes of another N5 dataset that are not copied, because they are written anew."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """What is written about samples, in N5 order."""

    attributes: dict[str, Json] = field(default_factory=dict)
    """Of the dataset, or of the group of a pyramid."""
    names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    steps: tuple[float, ...] | None = None
    """Sizes of elements; None if they are not known."""
    origins: tuple[float, ...] = ()

    def level(self, factors: Sequence[int]) -> dict[str, Json]:
        """Return the attributes of a level.

        Neuroglancer's `axes`, unless they are what is assumed without it; COSEM's `transform`,
        which lists slowest axes first.
        """
        is_usual = self.names == ("x", "y", "z")[: len(self.names)]
        is_named = all(name in NAMES for name in self.names)
        found: dict[str, Json] = {"axes": list(self.names)} if is_named and not is_usual else {}
        if self.steps is None:
            return found
        scale = [s * f for s, f in zip(self.steps, factors, strict=True)]
        shifts = zip(self.origins, self.steps, factors, strict=True)
        found["transform"] = {
            "ordering": "C",
            "axes": list(self.names)[::-1],
            "scale": scale[::-1],
            "translate": [o + s * (f - 1) / 2 for o, s, f in shifts][::-1],
            "units": list(self.units)[::-1],
        }
        return found


def describe(meaning: Meaning | None, *, is_reversed: bool, ndim: int, url: str) -> Described:
    """Return the attributes that hold a meaning.

    Parameters:
        meaning: What the samples mean, in the order of the caller's array.
        is_reversed: Whether that is the reverse of N5's.
        ndim: The number of dimensions.
        url: Names the target in messages.
    """
    if meaning is None:
        return Described()
    if len(meaning.axes) != ndim:
        raise FormatError(f"{url}: meaning has {len(meaning.axes)} axes, the array {ndim}")
    axes = meaning.axes[::-1] if is_reversed else meaning.axes
    steps = [_step(meaning, axis.name, axis.scale) for axis in axes]
    is_known = any(step is not None for step in steps)
    units = tuple(
        "" if axis.unit is None else SHORT_UNITS.get(axis.unit, axis.unit) for axis in axes
    )
    found: dict[str, Json] = {
        key: value for key, value in _n5_attributes(meaning).items() if key not in WRITTEN
    }
    if is_known:
        spatial = [
            unit for axis, unit in zip(axes, units, strict=True) if axis.name in ("x", "y", "z")
        ]
        found["pixelResolution"] = {
            "dimensions": [1.0 if step is None else step for step in steps],
            "unit": next((unit for unit in spatial if unit), "pixel"),
        }
    own = exported(meaning)
    if native := kept_native(meaning):
        own["native"] = native
    if own:
        found[OWN] = own
    return Described(
        attributes=found,
        names=tuple(axis.name for axis in axes),
        units=units,
        steps=tuple(1.0 if step is None else step for step in steps) if is_known else None,
        origins=tuple(axis.origin for axis in axes),
    )


def _n5_attributes(meaning: Meaning) -> dict[str, Json]:
    found = meaning.native.get("n5")
    return found if isinstance(found, dict) else {}


def kept_native(meaning: Meaning) -> dict[str, Json]:
    """Return the attributes of another format that are kept; none if they are too long."""
    found = {key: value for key, value in meaning.native.items() if key != "n5"}
    return found if len(json.dumps(found, default=str)) <= MOST_NATIVE else {}


def _step(meaning: Meaning, name: str, scale: float | None) -> float | None:
    """Return the size of an element: as stated, or that of the georeference."""
    transform = meaning.place.transform
    if scale is not None or transform is None or name not in ("x", "y"):
        return scale
    a, b, _, d, e, _ = transform
    return math.hypot(a, d) if name == "x" else math.hypot(b, e)


VERSION = "2.5.1"
"""The N5 version written to the root of a container. Blocks have not changed since, and older
readers refuse later versions."""
type Order = Callable[[Sequence[Any] | None], tuple[Any, ...] | None]

RESERVED = ("dimensions", "blockSize", "dataType", "compression")
"""Attributes that the caller must not set."""
MOST_THREADS = 16


@dataclass(frozen=True, kw_only=True)
class Target:
    """How and where one dataset is written, in N5 order."""

    folder: Folder
    block: Shape
    compression: dict[str, Json]
    """N5's JSON, with every parameter."""
    is_cropped: bool
    """Whether blocks at the edge are cropped to the dataset; otherwise they are padded."""
    has_zarr_metadata: bool
    """Whether a `zarr.json` is written next to `attributes.json`."""
    workers: int | None = None
    checkpoints: Checkpoints | None = None
    level: str = ""
    """The name of the level, for the checkpoints."""

    def codec(self, dtype: np.dtype[Any]) -> N5Default:
        """Return the codec of its blocks."""
        compressor = to_codecs(self.compression, dtype.itemsize, self.folder.path)
        return N5Default.from_dict(samples_codec(compressor, len(self.block)))

    def url(self, coords: Shape) -> str:
        """Return the url of the block at some grid coordinates."""
        return "/".join([self.folder.path, *map(str, coords)])

    def put(self, name: str, content: Json) -> None:
        """Write a JSON file of the dataset."""
        data = json.dumps(content, indent=2).encode()
        self.put_bytes(f"{self.folder.path}/{name}", data)

    def put_bytes(self, url: str, *pieces: Buffer) -> None:
        """Write one object; links that leave the caller's target are refused."""
        sink.put(url, *pieces, storage=self.folder.storage, root=self.folder.root)


def write(
    array: Any,
    url: str,
    *,
    axes: Sequence[str] = "zyx",
    chunk: Sequence[int] | None = None,
    compression: str | Mapping[str, Json] = "gzip",
    compression_level: int | None = None,
    levels: int | None = None,
    method: str = "average",
    overwrite: bool = False,
    workers: int | None = None,
    target_storage: Storage | None = None,
    checkpoints: Checkpoints | None = None,
    **options: Unpack[N5Options],
) -> None:
    """Write an array as an N5 dataset, or with `levels` as a group of datasets s0, s1 …

    Parameters:
        array: A numpy, zarr or dask array.
        url: The dataset or group, in a container whose name ends with `.n5`.
        axes: The order of `array` and of all arguments: "zyx" has the fastest axis, dimension 0 of
            N5, last; "xyz" has it first.
        chunk: The block size of the last axes; by default 64 x 64 x 64, or 512 x 512, or 65536
            elements.
        compression: A name, or N5's JSON with parameters.
        compression_level: The compression level.
        levels: How many levels to write, each half as large as the one before.
        method: How levels are made: average, max, min or mode.
        overwrite: Replace a dataset that is there.
        workers: The number of threads; by default one per core, at most 16.
        target_storage: How remote objects are accessed, as in `anychunk.open`.
        checkpoints: The blocks that an earlier attempt has written, which are not written again.
        **options: `edges`: "cropped" blocks at the edge, as Java writes them, or "padded" to whole
            blocks; `nodata`, a value that is excluded from downsampling; `still`, the axes that are
            not downsampled; `resolution`, the size of an element along each axis, and its `unit`;
            further `attributes`; `also_zarr`, to write a `zarr.json` next to the attributes, so
            that zarr reads the same blocks; `meaning`: sizes and units of elements are written as
            the attributes of n5-viewer and COSEM, the rest under `anychunk`.

    Raises:
        OptionError: An option is wrong.
        UnsupportedError: N5 has no such data type.
        TargetExistsError: A dataset already exists at `url`.
        FormatError: A dataset already exists above `url`.
    """
    axes, edges = "".join(axes), options.get("edges", "cropped")
    for name, value, known in (
        ("method", method, BY_WINDOW),
        ("axes", axes, ("zyx", "xyz")),
        ("edges", edges, ("cropped", "padded")),
    ):
        if value not in known:
            raise OptionError(f"N5: {name}={value!r}, expected one of {' '.join(known)}")
    samples = Given(array, axes == "zyx")
    check_samples(samples, url)

    def ordered(values: Sequence[Any] | None) -> tuple[Any, ...] | None:
        return None if values is None else tuple(values)[::-1] if axes == "zyx" else tuple(values)

    attributes, resolution = options.get("attributes"), options.get("resolution")
    folder = in_container(Folder(url, storage=target_storage))
    has_zarr = options.get("also_zarr", False)
    target = Target(
        folder=folder,
        block=check_block(ordered(chunk), samples, url, ordered),
        compression=checked_compression(compression, compression_level, samples, url),
        is_cropped=edges == "cropped",
        has_zarr_metadata=has_zarr,
        workers=workers,
        checkpoints=checkpoints,
    )
    described = describe(
        options.get("meaning"), is_reversed=axes == "zyx", ndim=len(samples.shape), url=url
    )
    if resolution is not None:
        described = replace(described, steps=None)  # the caller's are written instead
    given = {
        **(attributes or {}),
        **pixel_resolution(ordered(resolution), options.get("unit"), samples),
    }
    before = check_free(folder, attributes, is_pyramid=levels is not None, overwrite=overwrite)
    extra = {**before, **described.attributes, **given}
    if levels is None:
        own = described.level((1,) * len(samples.shape))
        write_dataset(samples, target, {**version(folder), **own, **extra})
    else:
        last = len(samples.shape) - 1
        smaller = partial(
            half,
            still=frozenset(last - n if axes == "zyx" else n for n in options.get("still", ())),
            method=method,
            nodata=options.get("nodata"),
        )
        write_pyramid(
            samples,
            target,
            levels,
            extra={**version(folder), **extra},
            smaller=smaller,
            meant=described,
        )
    complete_container(folder, has_zarr)


def checked_compression(
    given: str | Mapping[str, Json], level: int | None, samples: Samples, url: str
) -> dict[str, Json]:
    """Return N5's JSON of a compression, with every parameter."""
    try:
        found = complete(given if isinstance(given, str) else dict(given), level)
        to_codecs(found, samples.dtype.itemsize, url)
    except (CodecConfigError, FormatError, UnsupportedError) as e:
        raise OptionError(f"{url}: {e}") from e
    return found


def check_samples(samples: Samples, url: str) -> None:
    """Refuse an array that N5 cannot hold."""
    if samples.dtype.name not in DATA_TYPES:
        raise UnsupportedError(
            f"{url}: N5 has no data type {samples.dtype.name}; supported: {' '.join(DATA_TYPES)}"
        )
    if not samples.shape:
        raise UnsupportedError(f"{url}: shape (), expected at least one dimension")


def check_block(block: Shape | None, samples: Samples, url: str, order: Order) -> Shape:
    """Return the block size, or a default one; refuse one that does not fit the array.

    Parameters:
        block: The block size in N5 order, if the caller gives one.
        samples: What is written.
        url: Names the target in messages.
        order: Converts between N5 order and the caller's, in which messages list sizes.
    """
    shape = samples.shape
    if block is None:
        sides = {1: (65536,), 2: (512, 512)}.get(len(shape), (64, 64, 64))
        sides += (1,) * (len(shape) - len(sides))
        block = tuple(min(side, max(n, 1)) for side, n in zip(sides, shape, strict=True))
    if len(block) != len(shape) or not all(
        isinstance(n, int | np.integer) and n > 0 for n in block
    ):
        raise OptionError(
            f"{url}: chunk {order(block)!r}, expected one positive size per axis of shape "
            f"{order(shape)}"
        )
    # a Java array has at most 2**31 - 1 elements
    if math.prod(int(n) for n in block) * samples.dtype.itemsize >= 1 << 31:
        raise OptionError(
            f"{url}: chunk {order(block)!r} has 2 GiB or more, which Java cannot read"
        )
    return tuple(int(n) for n in block)


def check_free(
    folder: Folder,
    attributes: Mapping[str, Json] | None,
    *,
    is_pyramid: bool,
    overwrite: bool,
) -> dict[str, Json]:
    """Return the attributes that a group there already has; refuse a dataset, or remove it.

    A file is also refused, and a group with members where a dataset is written, which has none.
    """
    if taken := sorted(set(attributes or {}) & set(RESERVED)):
        raise OptionError(f"{folder.path}: the attribute {taken[0]!r} is reserved by N5")
    found = read_folder(folder) or {}
    check_container(folder)
    taken_by = [f for f in (folder, folder.child("s0")) if is_dataset(read_folder(f) or {})]
    is_taken = bool(taken_by)
    if folder.is_local and not is_taken and os.path.lexists(folder.path):
        is_taken = not os.path.isdir(folder.path) or (not is_pyramid and has_members(folder))  # noqa: PTH112
    if not is_taken:
        return found
    if not overwrite:
        raise TargetExistsError((taken_by or [folder])[0].path)
    sink.remove_all(folder.path, storage=folder.storage)
    return {}


def has_members(folder: Folder) -> bool:
    """Return whether a group has groups or datasets, unlike a folder of blocks."""
    return any(read_folder(folder.child(name)) is not None for name in folder.names()[0])


def check_container(folder: Folder) -> None:
    """Refuse to write into a container that is itself a dataset."""
    root = container(folder)
    if root in (None, folder.path):
        return
    if is_dataset(read_folder(Folder(str(root), storage=folder.storage)) or {}):
        raise FormatError(f"{root}: found a dataset, expected a group to write into")


def pixel_resolution(
    resolution: tuple[float, ...] | None, unit: str | None, samples: Samples
) -> dict[str, Json]:
    """Return the attribute in which n5-viewer keeps the element size."""
    if resolution is None:
        return {}
    if len(resolution) != len(samples.shape):
        raise OptionError(
            f"N5: resolution {resolution}, expected one number per axis of shape {samples.shape}"
        )
    size = [float(n) for n in resolution]
    return {"pixelResolution": {"dimensions": size, "unit": unit or "pixel"}}


def container(folder: Folder) -> str | None:
    """Return the url of the container of a folder: up to the first path component ending in .n5."""
    match = re.match(r"(?i)(.*?[^/\\]\.n5)(?:[/\\]|$)", folder.path)
    return match[1] if match else None


def in_container(folder: Folder) -> Folder:
    """Return the same folder; links on the way to it must not lead out of its container."""
    root = container(folder)
    if root in (None, folder.path) or not folder.is_local:
        return folder
    top = Folder(str(root), storage=folder.storage)
    return top.child(folder.path[len(top.path) :].strip("/"))


def version(folder: Folder) -> dict[str, Json]:
    """Return the version attribute, if the folder is the root of its container."""
    return {"n5": VERSION} if container(folder) == folder.path else {}


def complete_container(folder: Folder, has_zarr_metadata: bool) -> None:
    """Write the version to the root of the container, and `zarr.json` to the groups in between."""
    root = container(folder)
    if root is None or root == folder.path:
        return
    top = Folder(root, storage=folder.storage)
    found = read_folder(top) or {}
    if "n5" not in found:
        put_json(f"{root}/{NAME}", {"n5": VERSION, **found}, top)
    if has_zarr_metadata:
        steps = folder.path[len(root) :].strip("/").split("/")
        for count in range(len(steps)):
            place = "/".join([root, *steps[:count]])
            if Folder(place, storage=folder.storage).read("zarr.json") is None:
                put_json(f"{place}/zarr.json", group_metadata({}), top)


def put_json(url: str, content: Json, top: Folder) -> None:
    """Write a JSON file inside the container `top`."""
    data = json.dumps(content, indent=2).encode()
    sink.put(url, data, storage=top.storage, root=top.root)


def write_dataset(samples: Samples, target: Target, extra: dict[str, Json]) -> None:
    """Write the blocks of a dataset, then its attributes."""
    write_blocks(samples, target)
    found = {
        **extra,
        "dimensions": list(samples.shape),
        "blockSize": list(target.block),
        "dataType": samples.dtype.name,
        "compression": target.compression,
    }
    if target.has_zarr_metadata:
        target.put("zarr.json", array_metadata(found, is_cropped=target.is_cropped))
    target.put(NAME, found)


def half(samples: Samples, *, still: Collection[int], method: str, nodata: float | None) -> Halved:
    """Return samples of half the size."""
    return Halved(samples, factors_of(samples.shape, still), method, nodata)


def write_pyramid(
    samples: Samples,
    target: Target,
    levels: int,
    *,
    extra: dict[str, Json],
    smaller: Callable[[Samples], Halved],
    meant: Described,
) -> None:
    """Write s0, then compute each level from the previous one, which is read back block by block.

    Reading back costs less than computing every level from the caller's array, which may be slow.
    """
    if type(levels) is not int or not 1 <= levels <= 32:
        raise OptionError(f"N5: levels={levels!r}, expected 1 to 32")
    factors = (1,) * len(samples.shape)
    written: dict[str, dict[str, Json]] = {}
    table = []
    for number in range(levels):
        folder = target.folder.child(f"s{number}")
        here = replace(target, folder=folder, level=f"s{number}")
        table.append(list(factors))
        described = {"downsamplingFactors": list(factors), **meant.level(factors)}
        if "pixelResolution" in extra:
            described["pixelResolution"] = extra["pixelResolution"]
        write_dataset(samples, here, described)
        written[f"s{number}"] = read_folder(folder) or {}
        stored = Stored(
            samples.shape, samples.dtype, target.block, here.codec(samples.dtype), reader(here)
        )
        samples = smaller(stored)
        factors = tuple(a * b for a, b in zip(factors, samples.factors, strict=True))
    group = {**extra, "scales": table, "downsamplingFactors": table}
    if target.has_zarr_metadata:
        target.put("zarr.json", group_metadata(pyramid_attributes(target.folder, group, written)))
    target.put(NAME, group)


def reader(target: Target) -> Callable[[Shape], Any]:
    """Return a function that reads the stored bytes of a block that was written."""

    def fetch(coords: Shape) -> Any:
        data = read_object(
            target.url(coords), storage=target.folder.storage, roots=(target.folder.root,)
        )
        if data is None:
            raise FormatError(f"{target.url(coords)}: the block was written, but no longer exists")
        return data

    return fetch


def write_blocks(samples: Samples, target: Target) -> None:
    """Encode and write every block that is not yet there, on several threads."""
    codec = target.codec(samples.dtype)
    regions = Regions.of(samples, target.block)

    def write_region(number: int) -> None:
        region = regions[number]
        checkpoints, name = target.checkpoints, f"{target.level}/{number}"
        if checkpoints is not None and name in checkpoints.done:
            urls = [target.url(coords) for coords, _ in regions.blocks(region)]
            if stored_checksum(urls, target) == checkpoints.done[name]:
                sides = [s.stop - s.start for s in region]
                checkpoints.skip(math.prod(sides) * samples.dtype.itemsize)
                return
        piece = samples.read(region)
        checksum = 0
        for coords, place in regions.blocks(region):
            part = piece[place]
            if not target.is_cropped:
                part = fit(part, target.block, 0)
            block = codec.encode_block(part, ChunkSpec(part.shape, samples.dtype))
            target.put_bytes(target.url(coords), *block)
            if checkpoints is not None:
                for stored in block:
                    checksum = zlib.crc32(stored, checksum)
        if checkpoints is not None:
            checkpoints.add(name, checksum)

    count = len(regions)
    workers = min(target.workers or threads.cores(), MOST_THREADS, count)
    threads.run_all(write_region, range(count), threads=workers, name="anychunk-n5")


def stored_checksum(urls: Sequence[str], target: Target) -> int | None:
    """Return the CRC-32 of some blocks as they are stored; None if one is missing."""
    checksum = 0
    for url in urls:
        data = read_object(url, storage=target.folder.storage, roots=(target.folder.root,))
        if data is None:
            return None
        checksum = zlib.crc32(data, checksum)
    return checksum
