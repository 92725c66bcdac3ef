"""`xarray.open_dataset(url, engine="anychunk")`: one level of one image, lazily.

The file's chunks are the preferred dask chunks. Coordinates come from the georeference (pixel
centres) or from physical sizes; the coordinate reference system is in `spatial_ref`, where
rioxarray looks for it. `open_datatree` opens every image and level.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import zarr
from xarray import Dataset, DataTree, Variable
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.conventions import decode_cf_variable
from xarray.core import indexing

from anychunk import api, formats
from anychunk.errors import AnychunkError, NoSuchImageError
from anychunk.io import Folder, Storage, is_remote, local_path
from anychunk.metadata import samples
from anychunk.model import images as im
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, Json, Node, find
from anychunk.read.zarr_array import open_path

GRID_MAPPING = "spatial_ref"
"""The name of the variable with the coordinate reference system, as rioxarray expects it."""


class AnychunkEntrypoint(BackendEntrypoint):
    """The engine `anychunk`, registered with xarray by an entry point."""

    description = "TIFF, NITF, JPEG 2000, N5, JNRRD, NPY and other tiled files, in place"
    supports_groups: ClassVar[bool] = True
    open_dataset_parameters = (
        "filename_or_obj",
        "drop_variables",
        "image",
        "level",
        "mask_and_scale",
        "storage",
        "options",
    )

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return whether this engine opens a file: by content, or by extension if it is remote."""
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        url = str(filename_or_obj)
        if is_remote(url):
            # guessing an engine must not cost a request
            return url.lower().rstrip("/").endswith(formats.extensions())
        return is_opened(local_path(url))

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        image: int | str = 0,
        level: int = 0,
        mask_and_scale: bool = False,
        storage: Storage | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """Open one level of one image.

        Parameters:
            filename_or_obj: A path or url.
            drop_variables: Names of variables to leave out.
            image: Number or path of the image.
            level: 0 is the full resolution.
            mask_and_scale: Replace nodata with NaN, and apply scale and offset.
            storage: Options of the object store, passed to obstore.
            options: Further options of `anychunk.index`.
        """
        node = api.index(str(filename_or_obj), storage=storage, **(options or {}))
        chosen = im.chosen(list(im.images(node)), image)
        if not 0 <= level < len(chosen.levels):
            raise NoSuchImageError(
                f"image {image} has no level {level}; its levels are 0 to {len(chosen.levels) - 1}"
            )
        found = dataset(node, chosen, level, mask_and_scale=mask_and_scale, storage=storage)
        dropped = [drop_variables] if isinstance(drop_variables, str) else drop_variables or ()
        return found.drop_vars(dropped, errors="ignore")

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        mask_and_scale: bool = False,
        storage: Storage | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> dict[str, Dataset]:
        """Open every level of every image, by path."""
        node = api.index(str(filename_or_obj), storage=storage, **(options or {}))
        dropped = [drop_variables] if isinstance(drop_variables, str) else drop_variables or ()
        found = {"/": Dataset(attrs=plain(node.attributes.get("anychunk", {})))}
        for image in im.images(node):
            for number, path in enumerate(image.levels):
                level = dataset(node, image, number, mask_and_scale=mask_and_scale, storage=storage)
                found[f"/{path}"] = level.drop_vars(dropped, errors="ignore")
        return found

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> DataTree:
        """Open every level of every image as one tree."""
        return DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))


def is_opened(path: str) -> bool:
    """Whether a format recognises the first bytes of a file, or the content of a folder."""
    try:
        if Path(path).is_dir():
            formats.sniff_folder(Folder(path))
        else:
            with Path(path).open("rb") as file:
                formats.sniff(file.read(formats.HEAD), path)
    except (AnychunkError, OSError):
        return False
    return True


class LazyArray(BackendArray):
    """An array that is read when it is indexed."""

    def __init__(self, array: zarr.Array[Any]) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> Any:
        if all(isinstance(part, int | np.integer | slice) for part in key):
            return self.array[tuple(p if isinstance(p, slice) else int(p) for p in key)]
        return self.array.oindex[key]


def dataset(
    node: Node, image: Image, level: int, *, mask_and_scale: bool, storage: Storage | None
) -> Dataset:
    """Return one level as a dataset of one variable with its coordinates."""
    path = image.levels[level]
    array = open_path(node, path, storage=storage)
    index = find(node, path)
    own = index.attributes if index is not None else {}
    geo = own if "spatial:transform" in own else image.attributes if level == 0 else {}
    names = [axis_name(name) for name in image.names]
    chunks = dict(zip(names, array.chunks, strict=True))
    attributes: dict[str, Any] = {}
    missing = samples.nodata(image.attributes, index) if isinstance(index, ArrayIndex) else None
    if missing is not None:
        attributes["_FillValue"] = np.asarray(missing).astype(array.dtype)[()]
    bands = array.shape[names.index("band")] if "band" in names else 1
    if (packed := samples.packing(image.attributes, bands)) is not None:
        attributes["scale_factor"], attributes["add_offset"] = packed
    units = {axis["name"]: axis.get("unit") for axis in image.axes}
    coordinates = coordinate_variables(image, array, level, geo, units)
    encoding = {"preferred_chunks": chunks, "chunks": array.chunks, "source": source_of(node)}
    crs = reference_system(geo)
    if crs is not None:
        coordinates[GRID_MAPPING] = crs
        encoding["grid_mapping"] = GRID_MAPPING
    variable = Variable(names, indexing.LazilyIndexedArray(LazyArray(array)), attributes, encoding)
    name = image.path.rsplit("/", 1)[-1] or "image"
    # xarray reserves the names of dimensions for coordinates
    name = "image" if name.isdigit() or name in {*names, GRID_MAPPING} else name
    if mask_and_scale:
        variable = decode_cf_variable(name, variable, decode_times=False)
    about = plain(node.attributes.get("anychunk", {}))
    return Dataset({name: variable}, coordinates, {**about, "path": path})


def axis_name(name: str) -> str:
    """Return the name of a dimension; CF calls t `time`."""
    return "time" if name == "t" else name


def source_of(node: Node) -> str:
    """Return the url of the file that an index was made from."""
    return str(node.attributes.get("anychunk", {}).get("source", ""))


def plain(attributes: Mapping[str, Json]) -> dict[str, Any]:
    """Keep text and numbers, which every file format can store as attributes."""
    return {k: v for k, v in attributes.items() if isinstance(v, str | int | float)}


def coordinate_variables(
    image: Image,
    array: zarr.Array[Any],
    level: int,
    geo: Mapping[str, Json],
    units: Mapping[str, str | None],
) -> dict[str, Variable]:
    """Return coordinates for every axis whose positions or labels are known."""
    placed = edges_and_steps(geo)
    # a rotated grid has no coordinates per axis; its transform is in the grid mapping
    rotated = ("x", "y") if "spatial:transform" in geo and not placed else ()
    described = im.multiscale(image.attributes)
    name = image.levels[level].removeprefix(image.path).strip("/")
    scale, origin = im.transformation(described, name, array.ndim)
    found: dict[str, Variable] = {}
    for i, axis in enumerate(image.names):
        size, unit = array.shape[i], units.get(axis)
        values: Any
        if axis in placed:
            first, step = placed[axis]
            values = first + step * (np.arange(size) + 0.5)
        elif axis in rotated:
            continue
        elif axis == "band":
            values = np.arange(1, size + 1)
        elif scale[i] != 1 or origin[i] != 0 or unit is not None:
            values = origin[i] + scale[i] * np.arange(size)
        else:
            continue
        attributes = {"units": unit} if unit is not None else {}
        found[axis_name(axis)] = Variable((axis_name(axis),), values, attributes)
    labels = channel_labels(image)
    for axis in ("c", "channel"):
        if axis in image.names and len(labels) == array.shape[image.names.index(axis)]:
            found[axis] = Variable((axis,), np.asarray(labels))
    return found


def channel_labels(image: Image) -> list[str]:
    """Return the names of channels, or nothing unless each has a unique one."""
    ome = image.attributes.get("ome")
    omero = ome.get("omero") if isinstance(ome, Mapping) else None
    channels = omero.get("channels") if isinstance(omero, Mapping) else None
    found = channels if isinstance(channels, list) else []
    labels = [str(c.get("label", "")) for c in found if isinstance(c, Mapping)]
    return labels if all(labels) and len(set(labels)) == len(labels) else []


def edges_and_steps(geo: Mapping[str, Json]) -> dict[str, tuple[float, float]]:
    """Return {axis: (outer edge of the first pixel, step)}; empty if the grid is rotated."""
    transform = geo.get("spatial:transform")
    if not isinstance(transform, list) or len(transform) != 6:
        return {}
    a, b, c, d, e, f = transform
    return {} if b or d else {"x": (c, a), "y": (f, e)}


def reference_system(geo: Mapping[str, Json]) -> Variable | None:
    """Return the grid mapping: CRS and transform as attributes, as CF and rioxarray expect."""
    attributes: dict[str, Any] = {}
    text = well_known_text(geo)
    if text is not None:
        attributes |= {"crs_wkt": text, "spatial_ref": text}
    transform = geo.get("spatial:transform")
    if isinstance(transform, list) and len(transform) == 6:
        a, b, c, d, e, f = transform
        attributes["GeoTransform"] = " ".join(repr(float(n)) for n in (c, a, b, f, d, e))
    return Variable((), np.int64(0), attributes) if attributes else None


def well_known_text(geo: Mapping[str, Json]) -> str | None:
    """Return the CRS as WKT if pyproj or rasterio is installed, else as a code or PROJJSON."""
    if isinstance(geo.get("proj:wkt2"), str):
        return str(geo["proj:wkt2"])
    code, described = geo.get("proj:code"), geo.get("proj:projjson")
    given = code if isinstance(code, str) else json.dumps(described) if described else None
    if given is None:
        return None
    for convert in (_by_pyproj, _by_rasterio):
        try:
            return convert(given)
        except ImportError:
            continue
        except (ValueError, RuntimeError):
            continue  # unknown to this library; the code is still valid
    return given


def _by_pyproj(given: str) -> str:
    from pyproj import CRS

    return str(CRS.from_user_input(given).to_wkt())


def _by_rasterio(given: str) -> str:
    from rasterio.crs import CRS

    return str(CRS.from_user_input(given).to_wkt())
