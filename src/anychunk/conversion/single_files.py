"""Conversion to N5 and JNRRD, by the writers of these formats: the first level of each image.

The writers get the meaning of the samples, and write as much of it as the formats can hold.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychunk import api, formats
from anychunk.conversion.staging import Stage, staged, with_files
from anychunk.conversion.tasks import same
from anychunk.errors import FormatError, OptionError, UnsupportedError
from anychunk.formats._axes import MOST_NATIVE
from anychunk.formats.n5.write import check_container, container
from anychunk.io import sink
from anychunk.io.inside import real_path
from anychunk.io.opening import Folder
from anychunk.io.source import Storage, is_remote, local_path
from anychunk.limits import MIB
from anychunk.metadata.meaning import Level, Meaning
from anychunk.metadata.reading import image_label, levels_of, meaning_of
from anychunk.model import images as im
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, Node, find
from anychunk.options import Progress, check_for, names
from anychunk.selection import Part, selected
from anychunk.zarr.array import open_path

COMPARE_BYTES = 32 * MIB
"""About how much is compared with the source at a time."""


@dataclass(frozen=True)
class Written:
    """What was written."""

    arrays: int
    nbytes: int
    """Decoded bytes of all arrays."""
    skipped_bytes: int
    """How many of them an earlier attempt had written."""
    losses: tuple[str, ...] = ()
    """What the source states and the target cannot hold, one line each."""


@dataclass(frozen=True)
class Job:
    """The images to write, and how."""

    node: Node
    images: tuple[Image, ...]
    writer: formats.WritableFormat
    format: str
    options: Mapping[str, Any]
    """Those of `convert`, for the writer."""
    progress: Progress | None
    storage: Storage | None
    """Of the source."""
    target_storage: Storage | None
    part: Part | None = None
    """Where the samples are, if `node` describes a part of another index."""

    @property
    def is_resumable(self) -> bool:
        """Whether the writer records what it has written."""
        return "checkpoints" in names(self.writer.write)

    def fingerprint(self) -> str:
        """Return a hash that two conversions share if they write the same from the same source."""
        arrays = [find(self.node, image.levels[0]) for image in self.images]
        content = {
            "format": self.format,
            "options": {**self.options, "workers": None},
            "images": [
                [image.path, array.shape, array.data_type, image.attributes]
                for image, array in zip(self.images, arrays, strict=True)
                if isinstance(array, ArrayIndex)
            ],
            "pins": {url: [p.size, p.etag, p.mtime_ns] for url, p in self.node.pins.items()},
            "part": selected(self.node),
        }
        text = json.dumps(content, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def write(self, url: str, stage: Stage | None, *, verify: bool) -> Written:
        """Write every image to `url`, or below it if there are several."""
        nbytes = 0
        losses: list[str] = []
        tell = self.progress or (lambda done, of: None)
        total = sum(self.opened(image.levels[0]).nbytes for image in self.images)
        for image in self.images:
            array = self.opened(image.levels[0])
            target = f"{url}/{image.path}" if len(self.images) > 1 else url
            check_inside(target, url)
            samples = AsIntegers(array) if array.dtype.kind == "b" else array
            meaning, level = self.described(image)
            about = self.about(image, array.ndim) | self.target_options(stage, image)
            if "progress" in names(self.writer.write):
                about["progress"] = in_bytes(tell, nbytes, array.nbytes, total)
            self.writer.write(samples, target, **about)
            if verify:
                compare(samples, target, axes=about.get("axes"), storage=self.target_storage)
            nbytes += array.nbytes
            tell(nbytes, total)
            losses += losses_of(image, meaning, level, self.format)
        skipped = 0 if stage is None else stage.progress.skipped_bytes
        return Written(len(self.images), nbytes, skipped, tuple(dict.fromkeys(losses)))

    def about(self, image: Image, ndim: int) -> dict[str, Any]:
        """Return what the writer is told of an image: its meaning, and the caller's options."""
        meaning, level = self.described(image)
        is_known = "meaning" in names(self.writer.write)
        found: dict[str, Any] = {"meaning": meaning} if is_known else {}
        if self.format == "n5":
            found["axes"] = "xyz" if meaning.names[:1] == ("x",) else "zyx"
        if "levels" in self.options and self.format in LEVEL_OPTIONS:
            found |= LEVEL_OPTIONS[self.format](meaning, level, self.options["levels"])
            if image_label(image.attributes) is not None:
                found["method"] = "mode"
        return found | padded(self.options, ndim)

    def target_options(self, stage: Stage | None, image: Image) -> dict[str, Any]:
        """Return where and over what the writer writes."""
        found: dict[str, Any] = {}
        if stage is not None:
            found["checkpoints"] = stage.progress.of(image.path)
        elif "overwrite" in names(self.writer.write):
            found["overwrite"] = True  # that it may has been checked
        if self.target_storage is not None:
            found["target_storage"] = self.target_storage
        return found

    def opened(self, path: str) -> Any:
        """Open an array of the source."""
        if self.part is not None:
            return self.part.open_array(path, storage=self.storage)
        return open_path(self.node, path, storage=self.storage)

    def described(self, image: Image) -> tuple[Meaning, Level]:
        """Return the meaning of an image, and its first level."""
        return meaning_of(self.node, image), levels_of(self.node, image)[0]


def in_bytes(progress: Progress, before: int, nbytes: int, total: int) -> Progress:
    """Return a function for the writer of an image, which counts its own parts."""
    return lambda done, of: progress(before + nbytes * done // max(of, 1), total)


def losses_of(image: Image, meaning: Meaning, level: Level, name: str) -> Iterator[str]:
    """Yield what a target of the format `name` cannot hold, one line each."""
    where = image.path or "image"
    if level.mask is not None:
        yield f"{where}: the mask of valid pixels is not written; {name} has no masks"
    if level.image.data_type == "bool":
        yield f"{where}: booleans are written as uint8, 0 and 1; {name} has no booleans"
    left_out = [key for key in meaning.native if key != name]
    if left_out and len(json.dumps(dict(meaning.native), default=str)) > MOST_NATIVE:
        yield f"{where}: the attributes {' '.join(left_out)} are too long, and are not written"


def write_images(
    node: Node,
    url: str,
    format: str | None,
    *,
    image: int | str | None,
    options: dict[str, Any],
    storage: Storage | None,
    verify: bool,
    part: Part | None = None,
) -> Written:
    """Write the images of a hierarchy.

    Parameters:
        node: The source.
        url: The target.
        format: Of the target; None: inferred from its extension.
        image: The only image to write; None: all of them.
        options: Those of the target that were given.
        storage: Of the source.
        verify: Whether to read everything back and compare.
        part: Where the samples are, if `node` describes a part of another index.
    """
    found = list(im.images(node))
    if not found:
        raise FormatError("convert: the source has no arrays")
    if image is not None:
        found = [im.chosen(found, image)]
    writer: Any = writer_of(url) if format is None else formats.by_name(format)
    if not isinstance(writer, formats.WritableFormat):
        raise FormatError(f"{url}: anychunk cannot write format {format}; use zarr, n5 or jnrrd")
    name = next(n for n, module in formats.table().items() if module is writer)
    check_for(writer.write, f"{url}: {name}", options.keys() - {"overwrite", "progress"})
    overwrite, progress = options.pop("overwrite", False), options.pop("progress", None)
    target_storage = options.pop("target_storage", None)
    job = Job(node, tuple(found), writer, name, options, progress, storage, target_storage, part)
    is_folder = isinstance(writer, formats.FolderFormat)
    if not is_folder:
        check_single(url, found)
    if name == "n5":
        check_container(Folder(url, storage=target_storage))
    if not job.is_resumable or (is_remote(url) and not is_folder):
        if not is_folder:
            sink.check_free(url, overwrite=overwrite, storage=target_storage)
        return job.write(url, None, verify=verify)
    with staged(
        url,
        with_files(job.fingerprint(), node.pins),
        top=(container(Folder(url)) or url) if name == "n5" else url,
        is_in_place=is_spread(writer, url, options),
        overwrite=overwrite,
        storage=target_storage,
    ) as stage:
        return job.write(stage.url, stage, verify=verify)


def is_spread(writer: Any, url: str, options: Mapping[str, Any]) -> bool:
    """Return whether a writer makes further files beside the target, which it refers to by name."""
    asked = getattr(writer, "writes_beside", None)
    return asked is not None and bool(asked(url, options))


def check_single(url: str, found: list[Image]) -> None:
    """Raise `FormatError` if a single file cannot hold the images."""
    if len(found) > 1:
        known = " ".join(i.path or "/" for i in found[:20])
        raise FormatError(
            f"{url}: the source has {len(found)} images ({known}), expected one; "
            "choose it with image= or --image"
        )


def check_inside(target: str, url: str) -> None:
    """Raise if a symbolic link takes the path of an image outside the target."""
    if target != url and not is_remote(url):
        real_path(local_path(target), (local_path(url),))


def padded(given: Mapping[str, Any], ndim: int) -> dict[str, Any]:
    """Extend the sizes of `chunk`, of the last axes, to all axes, with 1 in front."""
    chunk = given.get("chunk")
    if chunk is None or "chunk_axes" in given:
        return dict(given)
    if isinstance(chunk, str) or not isinstance(chunk, Sequence):
        raise OptionError(f"chunk={chunk!r}, expected sizes of the last axes, such as (256, 256)")
    return {**given, "chunk": (1,) * (ndim - len(chunk)) + tuple(chunk)}


def compare(samples: Any, url: str, *, axes: str | None, storage: Storage | None) -> None:
    """Read back what was written, some rows at a time; raise `FormatError` if it differs."""
    known: dict[str, Any] = {"axes": axes} if axes is not None else {}
    node = api.index(url, storage=storage, **known)
    written: Any = open_path(node, next(im.images(node)).levels[0], storage=storage)
    if written.shape != samples.shape:
        raise FormatError(f"{url}: read back shape {written.shape}, expected {samples.shape}")
    row = math.prod(samples.shape[1:]) * samples.dtype.itemsize
    rows = max(1, COMPARE_BYTES // max(row, 1))
    for start in range(0, samples.shape[0], rows):
        box = slice(start, start + rows)
        there, expected = np.asarray(written[box]), np.asarray(samples[box])
        wrong = np.argwhere(~same(there, expected))
        if len(wrong):
            first = tuple(int(n) for n in wrong[0])
            at = (first[0] + start, *first[1:])
            raise FormatError(
                f"{url} {at}: read back {there[first]}, expected {expected[first]}; "
                f"{len(wrong)} values differ in these rows"
            )


def writer_of(url: str) -> formats.WritableFormat:
    """Return the format to write, inferred from the extension of the target."""
    try:
        return formats.writer(url)
    except UnsupportedError as e:
        raise UnsupportedError(
            f"{url}: cannot infer the format from this extension; use .zarr .tif .ome.tif .n5 "
            ".jnrrd .nrrd, or pass format"
        ) from e


class AsIntegers:
    """A boolean array as zeros and ones, for formats without booleans."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.ndim = array, array.shape, array.ndim
        self.dtype = np.dtype(np.uint8)

    def __getitem__(self, box: Any) -> Any:
        return np.asarray(self.array[box]).astype(np.uint8)


def still_axes(meaning: Meaning) -> list[int]:
    """Return the axes that are not reduced in coarser levels: bands and time."""
    return [i for i, name in enumerate(meaning.names) if name in ("c", "t")]


def downsample_method(meaning: Meaning, level: Level) -> str:
    """Return `mode` for booleans and palettes, whose values cannot be averaged, else `average`."""
    is_palette = meaning.display is not None and meaning.display["model"] == "palette"
    return "mode" if is_palette or level.image.data_type == "bool" else "average"


def n5_levels(meaning: Meaning, level: Level, levels: int) -> dict[str, Any]:
    """Return the options that make N5's levels equal to those of a Zarr target."""
    method = downsample_method(meaning, level)
    return {"method": method, "nodata": meaning.nodata, "still": still_axes(meaning)}


def jnrrd_levels(meaning: Meaning, level: Level, levels: int) -> dict[str, Any]:
    """Return the same for JNRRD, whose writer cannot exclude nodata from means."""
    still = still_axes(meaning)
    scales = [
        [1 if i in still else 2**number for i in range(len(meaning.axes))]
        for number in range(levels)
    ]
    return {"method": downsample_method(meaning, level), "level_scales": scales}


LEVEL_OPTIONS: dict[str, Callable[[Meaning, Level, int], dict[str, Any]]] = {
    "n5": n5_levels,
    "jnrrd": jnrrd_levels,
}
"""How each format is told to compute levels."""
