"""Conversion to N5 and JNRRD, by the writers of these formats: the first level of each image.

Only Zarr is written task by task and can be resumed; here the format's writer does all the work.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anychunk import api, formats
from anychunk.conversion.tasks import same
from anychunk.errors import FormatError, UnsupportedError
from anychunk.io import Storage, is_remote, local_path, real_path
from anychunk.limits import MIB
from anychunk.metadata import drawing, ome, samples
from anychunk.model import images as im
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, Json, Node, find
from anychunk.read.zarr_array import open_path

COMPARE_BYTES = 32 * MIB
"""About how much is compared with the source at a time."""
OPTION_NAMES = {"n5": {"chunk": "block"}, "jnrrd": {"chunk": "tile"}}
"""What a format's writer calls an option of `convert`, where the names differ."""


def refuse_zarr_options(url: str, **options: object) -> None:
    """Raise `UnsupportedError` for options that only Zarr has, rather than ignore them."""
    for name, value in options.items():
        if value not in (None, False):
            raise UnsupportedError(
                f"{url}: {name} applies only to Zarr; leave it out, or use a target that ends "
                "in .zarr"
            )


def write_images(
    node: Node,
    url: str,
    format: str | None,
    *,
    image: int | str | None,
    options: Mapping[str, Any],
    writer_options: Mapping[str, Any],
    storage: Storage | None,
    target_storage: Storage | None,
    verify: bool,
    overwrite: bool,
) -> tuple[int, int]:
    """Write the images of a hierarchy; return (decoded bytes, number of images).

    Parameters:
        node: The source.
        url: The target.
        format: Of the target; None: inferred from its extension.
        image: The only image to write; None: all of them.
        options: Those of `convert` that were given: `chunk`, `compression`, `levels`.
        writer_options: Passed to the format's writer as they are.
        storage: Of the source.
        target_storage: Of the target.
        verify: Whether to read everything back and compare.
        overwrite: Whether an existing file may be replaced.
    """
    found = list(im.images(node))
    if not found:
        raise FormatError("convert: the source has no arrays")
    if image is not None:
        found = [im.chosen(found, image)]
    writer: Any = writer_of(url) if format is None else formats.by_name(format)
    if not isinstance(writer, formats.WritableFormat):
        raise FormatError(f"{url}: anychunk cannot write format {format}; use zarr, n5 or jnrrd")
    is_folder = isinstance(writer, formats.FolderFormat)
    check_target(url, found, is_folder=is_folder, overwrite=overwrite)
    name = next(n for n, module in formats.table().items() if module is writer)
    given = {OPTION_NAMES.get(name, {}).get(key, key): value for key, value in options.items()}
    if target_storage is not None and name == "n5":
        given["storage"] = target_storage
    nbytes = 0
    for one in found:
        array: Any = open_path(node, one.levels[0], storage=storage)
        target = f"{url}/{one.path}" if len(found) > 1 else url
        check_inside(target, url)
        samples = AsIntegers(array) if array.dtype.kind == "b" else array
        about = {**axis_options(name, one), **padded(given, array.ndim)}
        if "levels" in given and name in LEVEL_OPTIONS:
            about |= LEVEL_OPTIONS[name](node, one, given["levels"])
        about |= writer_options
        writer.write(samples, target, **about)
        if verify:
            compare(samples, target, axes=about.get("axes"), storage=target_storage)
        nbytes += array.nbytes
    return nbytes, len(found)


def check_target(url: str, found: list[Image], *, is_folder: bool, overwrite: bool) -> None:
    """Raise `FormatError` if a single file cannot hold the images, or must not be replaced."""
    if is_folder:
        return  # its writer refuses to replace a dataset
    if len(found) > 1:
        known = " ".join(i.path or "/" for i in found[:20])
        raise FormatError(
            f"{url}: the source has {len(found)} images ({known}), expected one; "
            "choose it with image= or --image"
        )
    if not overwrite and not is_remote(url) and Path(local_path(url)).exists():
        raise FormatError(f"{url}: already exists; remove it, or pass overwrite")


def check_inside(target: str, url: str) -> None:
    """Raise if a symbolic link takes the path of an image outside the target."""
    if target != url and not is_remote(url):
        real_path(local_path(target), (local_path(url),))


def padded(given: Mapping[str, Any], ndim: int) -> dict[str, Any]:
    """Extend sizes of the last axes to all axes, with 1 in front."""
    return {
        key: (1,) * (ndim - len(value)) + tuple(value) if key in ("block", "tile") else value
        for key, value in given.items()
    }


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
            f"{url}: cannot infer the format from this extension; use .zarr .n5 .jnrrd, or pass "
            "format"
        ) from e


class AsIntegers:
    """A boolean array as zeros and ones, for formats without booleans."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.ndim = array, array.shape, array.ndim
        self.dtype = np.dtype(np.uint8)

    def __getitem__(self, box: Any) -> Any:
        return np.asarray(self.array[box]).astype(np.uint8)


def axis_options(name: str, image: Image) -> dict[str, Any]:
    """Return the options that describe the axes to a format's writer."""
    return AXIS_OPTIONS[name](image) if name in AXIS_OPTIONS else {}


def n5_options(image: Image) -> dict[str, Any]:
    """Return axis order and element sizes for N5, whose first axis varies fastest."""
    found: dict[str, Any] = {"axes": "n5" if image.names[:1] == ("x",) else "reversed"}
    units = {axis["name"]: axis.get("unit") for axis in image.axes}
    if "x" in units and any(n != 1 for n in image.scale):
        found |= {"resolution": image.scale, "unit": units["x"]}
    return found


def jnrrd_options(image: Image) -> dict[str, Any]:
    """Return header fields for JNRRD: axis names, fastest first, and known element sizes."""
    header: dict[str, Json] = {"labels": list(image.names)[::-1]}
    if any(n != 1 for n in image.scale):
        header["spacings"] = [float(n) for n in image.scale][::-1]
        header["units"] = [axis.get("unit", "") for axis in image.axes][::-1]
    return {"header": header}


def still_axes(image: Image) -> list[int]:
    """Return the axes that are not reduced in coarser levels: bands and time."""
    return [i for i, name in enumerate(image.names) if name in ome.ORDER and name not in ome.SPACE]


def downsample_method(node: Node, image: Image) -> str:
    """Return `mode` for booleans and palettes, whose values cannot be averaged, else `average`."""
    array = find(node, image.levels[0])
    is_bool = isinstance(array, ArrayIndex) and array.data_type == "bool"
    return "mode" if is_bool or drawing.palette(image.attributes) is not None else "average"


def n5_levels(node: Node, image: Image, levels: int) -> dict[str, Any]:
    """Return the options that make N5's levels equal to those of a Zarr target."""
    array = find(node, image.levels[0])
    nodata = samples.nodata(image.attributes, array) if isinstance(array, ArrayIndex) else None
    method = downsample_method(node, image)
    return {"downsample": method, "nodata": nodata, "still": still_axes(image)}


def jnrrd_levels(node: Node, image: Image, levels: int) -> dict[str, Any]:
    """Return the same for JNRRD, whose writer cannot exclude nodata from means."""
    still = still_axes(image)
    scales = [
        [1 if i in still else 2**number for i in range(len(image.names))]
        for number in range(levels)
    ]
    return {"downsample": downsample_method(node, image), "level_scales": scales}


LEVEL_OPTIONS: dict[str, Callable[[Node, Image, int], dict[str, Any]]] = {
    "n5": n5_levels,
    "jnrrd": jnrrd_levels,
}
"""How each format is told to compute levels."""
AXIS_OPTIONS = {"n5": n5_options, "jnrrd": jnrrd_options}
"""How each format is told about the axes."""
