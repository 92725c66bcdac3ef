"""Conversion to formats that write themselves: N5 and JNRRD, the first level of each image."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anychunk import api, formats
from anychunk.errors import FormatError, UnsupportedError
from anychunk.io import Storage, is_remote, local_path, real_path
from anychunk.metadata import drawing, ome, samples
from anychunk.model import images as im
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, Json, Node, find

COMPARED = 32 << 20
"""About how many bytes are held against the source at a time."""
WORDS = {"n5": {"chunk": "block"}, "jnrrd": {"chunk": "tile"}}
"""What a format calls a wish, where it has another word for it."""


def refuse_zarr_wishes(url: str, **wishes: object) -> None:
    """Refuse what only Zarr has, rather than pass over it."""
    for name, value in wishes.items():
        if value not in (None, False):
            raise UnsupportedError(
                f"{url}: {name} is for Zarr; leave it out, or name a target that ends in .zarr"
            )


def write_other(
    node: Node,
    url: str,
    format: str | None,
    *,
    image: int | str | None,
    wishes: Mapping[str, Any],
    options: Mapping[str, Any],
    storage: Storage | None,
    target_storage: Storage | None,
    verify: bool,
    overwrite: bool,
) -> tuple[int, int]:
    """Write all images of a hierarchy, or one of a file; give (bytes, images)."""
    found = list(im.images(node))
    if not found:
        raise FormatError("convert: the source holds no array")
    if image is not None:
        found = [im.chosen(found, image)]
    writer: Any = writer_of(url) if format is None else formats.by_name(format)
    if not isinstance(writer, formats.WritableFormat):
        raise FormatError(f"{url}: {format} is not written here")
    is_folder = isinstance(writer, formats.FolderFormat)
    if len(found) > 1 and not is_folder:
        known = " ".join(i.path or "/" for i in found[:20])
        raise FormatError(
            f"{url}: one image fits in there, the source has {len(found)}: {known}; choose one"
        )
    if not is_folder and not overwrite and not is_remote(url) and Path(local_path(url)).exists():
        raise FormatError(f"{url}: is there already; remove it, or allow to overwrite it")
    name = next(n for n, module in formats.table().items() if module is writer)
    given = {WORDS.get(name, {}).get(key, key): value for key, value in wishes.items()}
    if target_storage is not None and name == "n5":
        given["storage"] = target_storage
    nbytes = 0
    for one in found:
        array: Any = api.open_path(node, one.levels[0], storage=storage)
        place = f"{url}/{one.path}" if len(found) > 1 else url
        check_inside(place, url)
        samples = AsNumbers(array) if array.dtype.kind == "b" else array
        about = {**described(name, one), **fitted(given, array.ndim)}
        if "levels" in given and name in LEVELS:
            about |= LEVELS[name](node, one, given["levels"])
        about |= options
        writer.write(samples, place, **about)
        if verify:
            compare(samples, place, axes=about.get("axes"), storage=target_storage)
        nbytes += array.nbytes
    return nbytes, len(found)


def check_inside(place: str, url: str) -> None:
    """Refuse the place of an image that a link leads out of the target."""
    if place != url and not is_remote(url):
        real_path(local_path(place), (local_path(url),))


def fitted(given: Mapping[str, Any], ndim: int) -> dict[str, Any]:
    """Give sizes of the last axes as sizes of all."""
    return {
        key: (1,) * (ndim - len(value)) + tuple(value) if key in ("block", "tile") else value
        for key, value in given.items()
    }


def compare(samples: Any, url: str, *, axes: str | None, storage: Storage | None) -> None:
    """Read what was written, some rows at a time, and hold it against the source."""
    known: dict[str, Any] = {"axes": axes} if axes is not None else {}
    node = api.index(url, storage=storage, **known)
    written: Any = api.open_path(node, next(im.images(node)).levels[0], storage=storage)
    if written.shape != samples.shape:
        raise FormatError(f"{url}: shape {written.shape} was written, {samples.shape} expected")
    row = math.prod(samples.shape[1:]) * samples.dtype.itemsize
    rows = max(1, COMPARED // max(row, 1))
    for start in range(0, samples.shape[0], rows):
        box = slice(start, start + rows)
        there, expected = np.asarray(written[box]), np.asarray(samples[box])
        is_wrong = there != expected
        if expected.dtype.kind in "fc":
            is_wrong &= ~(np.isnan(there) & np.isnan(expected))
        if is_wrong.any():
            first = tuple(int(n) for n in np.argwhere(is_wrong)[0])
            at = (first[0] + start, *first[1:])
            raise FormatError(
                f"{url} {at}: {there[first]} was written, {expected[first]} expected; "
                f"{int(is_wrong.sum())} differ in these rows"
            )


def writer_of(url: str) -> formats.WritableFormat:
    """Find the format to write by the name of the target."""
    try:
        return formats.writer(url)
    except UnsupportedError as e:
        raise UnsupportedError(
            f"{url}: its name tells no format to write; end it with .zarr .n5 .jnrrd, or name one"
        ) from e


def described(name: str, image: Image) -> dict[str, Any]:
    return DESCRIBED[name](image) if name in DESCRIBED else {}


class AsNumbers:
    """An array of truth values as zeros and ones, for formats that know numbers only."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.ndim = array, array.shape, array.ndim
        self.dtype = np.dtype(np.uint8)

    def __getitem__(self, box: Any) -> Any:
        return np.asarray(self.array[box]).astype(np.uint8)


def n5_options(image: Image) -> dict[str, Any]:
    """Tell N5, whose first axis is the fastest, that ours is the slowest; and element sizes."""
    found: dict[str, Any] = {"axes": "n5" if image.names[:1] == ("x",) else "reversed"}
    units = {axis["name"]: axis.get("unit") for axis in image.axes}
    if "x" in units and any(n != 1 for n in image.scale):
        found |= {"resolution": image.scale, "unit": units["x"]}
    return found


def jnrrd_options(image: Image) -> dict[str, Any]:
    """Name the axes in the header, fastest first, with element sizes where they are known."""
    header: dict[str, Json] = {"labels": list(image.names)[::-1]}
    if any(n != 1 for n in image.scale):
        header["spacings"] = [float(n) for n in image.scale][::-1]
        header["units"] = [axis.get("unit", "") for axis in image.axes][::-1]
    return {"header": header}


def still_axes(image: Image) -> list[int]:
    """Give the axes whose elements have no mean with each other: bands, and times."""
    return [i for i, n in enumerate(image.names) if n in ome.ORDER and n not in ome.SPACE]


def downsample_method(node: Node, image: Image) -> str:
    array = find(node, image.levels[0])
    is_bool = isinstance(array, ArrayIndex) and array.data_type == "bool"
    return "mode" if is_bool or drawing.palette(image.attributes) is not None else "average"


def n5_levels(node: Node, image: Image, levels: int) -> dict[str, Any]:
    """Say how N5 makes levels, as levels of Zarr are made."""
    array = find(node, image.levels[0])
    nodata = samples.nodata(image.attributes, array) if isinstance(array, ArrayIndex) else None
    method = downsample_method(node, image)
    return {"downsample": method, "nodata": nodata, "still": still_axes(image)}


def jnrrd_levels(node: Node, image: Image, levels: int) -> dict[str, Any]:
    """Say the same for JNRRD; its means know no nodata."""
    still = still_axes(image)
    scales = [
        [1 if i in still else 2**number for i in range(len(image.names))]
        for number in range(levels)
    ]
    return {"downsample": downsample_method(node, image), "level_scales": scales}


LEVELS: dict[str, Callable[[Node, Image, int], dict[str, Any]]] = {
    "n5": n5_levels,
    "jnrrd": jnrrd_levels,
}
"""How formats are told to make levels."""
DESCRIBED = {"n5": n5_options, "jnrrd": jnrrd_options}
"""How formats are told what is known of the axes."""
