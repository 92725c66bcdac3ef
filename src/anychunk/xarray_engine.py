"""`xarray.open_dataset(url, engine="anychunk")`: one level of one image, lazily.

The dataset is the level group of the hierarchy (`metadata.hierarchy`), decoded as xarray's own Zarr
engine decodes it: `image` with the coordinates x, y, z, t and c as far as they are known, and
`spatial_ref`, where rioxarray looks for the CRS. The file's chunks are the preferred dask chunks.
`open_datatree` opens every image and level.
"""

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt
import zarr
from xarray import Dataset, DataTree, Variable
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint, list_engines
from xarray.backends.store import StoreBackendEntrypoint
from xarray.core import indexing

from anychunk import api, formats
from anychunk.combine import stac
from anychunk.errors import NoSuchImageError, OptionError, UnsupportedError
from anychunk.indexing import is_recognised
from anychunk.io.object_stores import store_of_bytes
from anychunk.io.source import Storage, as_url, is_remote, local_path
from anychunk.metadata import cf
from anychunk.metadata.hierarchy import level_group
from anychunk.metadata.meaning import Meaning
from anychunk.metadata.reading import IMAGE_LABEL, image_label, levels_of, meaning_of
from anychunk.model import images as im
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, GroupIndex, Node, find
from anychunk.options import OpenOptions
from anychunk.zarr.array import open_path
from anychunk.zarr.store import IndexStore

NAME = "anychunk"
DECODERS = (
    "mask_and_scale",
    "decode_times",
    "decode_timedelta",
    "use_cftime",
    "concat_characters",
    "decode_coords",
    "drop_variables",
)
"""The keywords of xarray that every engine takes."""

_guessing = threading.local()


class AnychunkEntrypoint(BackendEntrypoint):
    """The engine `anychunk`, registered with xarray by an entry point."""

    description = "TIFF, NITF, JPEG 2000, N5, NIfTI, NPY and other tiled files, in place"
    supports_groups: ClassVar[bool] = True
    open_dataset_parameters = ("filename_or_obj", *DECODERS, "image", "level", "group", "storage")

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return whether this engine opens a file that no other installed engine opens.

        By content, or by extension if it is remote. xarray asks the engines in the order of their
        names, so that this one would come first.
        """
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        url = as_url(filename_or_obj)
        if is_remote(url):
            # guessing an engine must not cost a request
            is_ours = url.lower().rstrip("/").endswith(formats.extensions())
        else:
            is_ours = is_recognised(local_path(url))
        return is_ours and not is_opened_by_others(filename_or_obj)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: bool | Mapping[str, bool] = True,
        decode_times: Any = True,
        decode_timedelta: Any = None,
        use_cftime: Any = None,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        image: int | str = 0,
        level: int | str = 0,
        group: str | None = None,
        storage: Storage | None = None,
        **options: Unpack[OpenOptions],
    ) -> Dataset:
        """Open one level of one image.

        Parameters:
            filename_or_obj: A path or url, several with `combine`, an index, a group or array that
                `anychunk.open` returned, or a file object.
            mask_and_scale: Replace nodata with NaN, and apply scale and offset, of each band where
                they differ.
            decode_times: As in `xarray.open_dataset`.
            decode_timedelta: As in `xarray.open_dataset`.
            use_cftime: As in `xarray.open_dataset`.
            concat_characters: As in `xarray.open_dataset`.
            decode_coords: As in `xarray.open_dataset`.
            drop_variables: Names of variables to leave out.
            image: Number or path of the image.
            level: 0 is the full resolution, -1 the coarsest; or the name of a level.
            group: Path of an image or level group, such as "0/1", instead of `image` and `level`.
            storage: Options of the object store, passed to obstore.
            **options: Further options of `anychunk.index`, such as `combine` and `along`.
        """
        node, storage, below = as_index(filename_or_obj, storage, options)
        chosen, number = choose(node, image, level, im.join(below, group or "").strip("/"))
        return dataset(
            node,
            chosen,
            number,
            storage=storage,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            decode_timedelta=decode_timedelta,
            use_cftime=use_cftime,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
        )

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        storage: Storage | None = None,
        **options: Any,
    ) -> dict[str, Dataset]:
        """Open every level of every image, by path.

        Parameters:
            filename_or_obj: As in `open_dataset`.
            group: Path of a group, to open only what is below it.
            storage: As in `open_dataset`.
            **options: The decoding keywords of xarray, and options of `anychunk.index`.
        """
        decoders = {name: options.pop(name) for name in DECODERS if name in options}
        node, storage, below = as_index(filename_or_obj, storage, options)
        start = im.join(below, group or "").strip("/")
        found = {"/": Dataset(attrs=about(node))}
        for image in im.images(node):
            for number, path in enumerate(image.levels):
                place = path if is_level_array(image, number) else path.rpartition("/")[0]
                if is_below(place, start) or path == start:
                    level = dataset(node, image, number, storage=storage, **decoders)
                    found["/" + place.removeprefix(start).strip("/")] = level
        if start and len(found) == 1 and not found["/"].variables:
            raise NoSuchImageError(f"no image or level at or below {start!r}")
        return found

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> DataTree:
        """Open every level of every image as one tree."""
        return DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))


def is_opened_by_others(filename_or_obj: Any) -> bool:
    """Return whether another installed engine claims a file."""
    if getattr(_guessing, "is_active", False):
        return False  # another engine asks all engines too, and so this one
    _guessing.is_active = True
    try:
        return any(
            _claims(engine, filename_or_obj)
            for name, engine in list_engines().items()
            if name != NAME
        )
    finally:
        _guessing.is_active = False


def _claims(engine: BackendEntrypoint, filename_or_obj: Any) -> bool:
    try:
        return bool(engine.guess_can_open(filename_or_obj))
    except Exception:  # noqa: BLE001 - xarray asks it again itself, and reports what it raises
        return False


def as_index(
    given: Any, storage: Storage | None, options: Mapping[str, Any]
) -> tuple[Node, Storage | None, str]:
    """Return the index of whatever a caller passed, how to read it, and the path that was meant."""
    if isinstance(given, zarr.Group | zarr.Array):
        return index_of_zarr(given, storage, options)
    if isinstance(given, GroupIndex | ArrayIndex):
        _refuse_options(options)
        return given, storage, ""
    if hasattr(given, "read") and hasattr(given, "seek"):
        name = getattr(given, "name", None)
        if isinstance(name, str) and Path(name).is_file():
            given = name
        else:
            given, storage = stored_in_memory(given)
    several = not isinstance(given, str | os.PathLike)
    urls: Any = given if several else str(given)
    if several and not stac.is_item(given):
        urls = [str(one) if isinstance(one, str | os.PathLike) else one for one in given]
    return api.index(urls, storage=storage, **options), storage, ""


def index_of_zarr(
    given: Any, storage: Storage | None, options: Mapping[str, Any]
) -> tuple[Node, Storage | None, str]:
    """Return the index behind a group or array that anychunk opened, or that lies in a folder."""
    store = given.store
    if isinstance(store, IndexStore):
        _refuse_options(options)
        return store.index, storage or store.sources.storage, given.path
    folder = getattr(store, "root", None)
    if isinstance(folder, str | os.PathLike):
        return api.index(str(Path(folder)), storage=storage, **options), storage, given.path
    raise UnsupportedError(
        f"{given!r}: expected a group or array that anychunk.open returned, or a local one"
    )


def _refuse_options(options: Mapping[str, Any]) -> None:
    if options:
        raise OptionError(f"options of anychunk.index are for paths and urls: {' '.join(options)}")


def stored_in_memory(file: Any) -> tuple[str, Storage]:
    """Copy a file object to a store in memory; return its url there, and how it is resolved."""
    file.seek(0)
    data = file.read()
    if not isinstance(data, bytes | bytearray | memoryview):
        raise UnsupportedError(f"{file!r}: gives {type(data).__name__}, expected bytes")
    store = store_of_bytes(bytes(data), "file")
    return "memory://file-object/file", {"resolve": _Resolver(store)}


class _Resolver:
    """Finds a file object in its own store, which lives as long as what was opened."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __call__(self, url: str) -> tuple[Any, str]:
        return self.store, "file"


def choose(node: Node, image: int | str, level: int | str, group: str) -> tuple[Image, int]:
    """Return an image, and the number of one of its levels.

    Parameters:
        node: The index.
        image: The number of the image below `group`, or its path.
        level: The number of the level, or its name.
        group: The path of a group; of a level, or the level's array, to choose that level.

    Raises:
        NoSuchImageError: There is no such image or level.
    """
    found = list(im.images(node))
    for candidate in found if group else ():
        for number, path in enumerate(candidate.levels):
            is_group = path.rpartition("/")[0] == group and not is_level_array(candidate, number)
            if path == group != candidate.path or is_group:
                return candidate, number
    chosen = im.chosen([i for i in found if is_below(i.path, group)], image)
    names, count = chosen.level_names, len(chosen.levels)
    if isinstance(level, str) and level in names:
        return chosen, names.index(level)
    number = int(level) if not isinstance(level, str) or level.lstrip("-").isdigit() else count
    if not -count <= number < count:
        raise NoSuchImageError(
            f"image {chosen.path or image} has no level {level}; its levels are 0 to {count - 1}"
        )
    return chosen, number % count


def is_below(path: str, group: str) -> bool:
    """Return whether a path is that of a group or of something in it."""
    return not group or f"{path}/".startswith(f"{group}/")


def is_level_array(image: Image, level: int) -> bool:
    """Return whether a level is an array without a level group, as in plain OME-Zarr."""
    return "/" not in image.below(level)


def variables_of(node: Node, image: Image, level: int, meaning: Meaning) -> tuple[str, Any]:
    """Return the name of the image's variable, and the arrays of the dataset by name."""
    path = image.levels[level]
    folder, _, own = path.rpartition("/")
    around = find(node, folder) if path else None
    if not is_level_array(image, level) and isinstance(around, GroupIndex):
        return own, around.members
    levels = levels_of(node, image)
    described = next((found for found in levels if found.name == image.level_names[level]), None)
    if described is None:
        array = node if isinstance(node, ArrayIndex) else node[path]
        return own or im.VARIABLE, {own or im.VARIABLE: array}
    made = dict(level_group(meaning, described, levels[0].image.shape).members)
    names = {*meaning.names}
    # xarray reserves the names of dimensions for coordinates
    name = im.VARIABLE if not own or own.isdigit() or own in {*names, *made} else own
    made[name] = made.pop(im.VARIABLE)
    if image.path == path and isinstance(around, GroupIndex):
        listed = str(image.attributes.get("coordinates", "")).split()
        listed.append(str(image.attributes.get("grid_mapping", "")))
        made |= {
            key: member
            for key, member in around.members.items()
            if isinstance(member, ArrayIndex)
            and (key in listed or (im.is_coordinate(key, member) and key in names))
        }
    return name, made


def dataset(
    node: Node, image: Image, level: int, *, storage: Storage | None, **decoders: Any
) -> Dataset:
    """Return one level as a dataset, decoded by xarray's conventions.

    Parameters:
        node: The index.
        image: One of its images.
        level: The number of one of its levels.
        storage: Options of the object store.
        decoders: The decoding keywords of xarray.
    """
    meaning = meaning_of(node, image)
    name, arrays = variables_of(node, image, level, meaning)
    is_scaled = decoders.get("mask_and_scale", True)
    if isinstance(is_scaled, Mapping):
        is_scaled = is_scaled.get(name, True)
    store = LevelStore(
        node,
        {key: array for key, array in arrays.items() if isinstance(array, ArrayIndex)},
        name=name,
        path=image.levels[level],
        storage=storage,
        is_scaled=bool(is_scaled),
    )
    store.attributes = about(node, path=image.levels[level], name=meaning.name, tags=meaning.tags)
    found = StoreBackendEntrypoint().open_dataset(store, **decoders)
    if name in found.variables:
        found[name].attrs |= band_attributes(meaning)
        if (label := image_label(image.attributes)) is not None:
            # as JSON text: netCDF cannot store an attribute that is an object
            found[name].attrs[IMAGE_LABEL] = json.dumps(label)
    return found


def band_attributes(meaning: Meaning) -> dict[str, Any]:
    """Return names and units of bands that differ in them, as lists, as rioxarray does.

    Unique names are the labels of c already. xarray decodes attributes that are text, so these come
    after it.
    """
    found: dict[str, Any] = {}
    names, units = ([getattr(b, key) or "" for b in meaning.bands] for key in ("name", "unit"))
    if len(names) > 1 and any(names) and (not all(names) or len(set(names)) < len(names)):
        found["long_name"] = names
    if len(set(units)) > 1:
        found["units"] = units
    return found


def about(node: Node, **further: Any) -> dict[str, str]:
    """Return what is known about the whole file as one attribute.

    As JSON text: netCDF cannot store an attribute that is an object.
    """
    known = node.attributes.get("anychunk")
    found = dict(known) if isinstance(known, Mapping) else {}
    found |= {key: dict(v) if isinstance(v, Mapping) else v for key, v in further.items() if v}
    return {"anychunk": json.dumps(found, ensure_ascii=False)} if found else {}


class LevelStore(AbstractDataStore):
    """The arrays of one level as raw variables, for xarray to decode."""

    def __init__(
        self,
        node: Node,
        arrays: Mapping[str, ArrayIndex],
        *,
        name: str,
        path: str,
        storage: Storage | None,
        is_scaled: bool,
    ) -> None:
        """Describe the variables; nothing is read before `load`.

        Parameters:
            node: The whole index.
            arrays: The variables by name.
            name: The name of the image among them.
            path: The path of the image's array in the index.
            storage: Options of the object store.
            is_scaled: Whether samples are masked and scaled.
        """
        self.node, self.arrays, self.name, self.path = node, arrays, name, path
        self.storage, self.is_scaled = storage, is_scaled
        self.attributes: dict[str, Any] = {}

    def get_attrs(self) -> dict[str, Any]:
        """Return the attributes of the dataset."""
        return self.attributes

    def get_encoding(self) -> dict[str, Any]:
        """Return where the dataset comes from."""
        known = self.node.attributes.get("anychunk")
        source = known.get("source") if isinstance(known, Mapping) else None
        return {"source": source} if source else {}

    def get_variables(self) -> dict[str, Variable]:
        """Return the variables: coordinates as numbers, all others lazily."""
        return dict(self._variables())

    def _variables(self) -> Iterator[tuple[str, Variable]]:
        per_band = self._band_factors()
        for name, array in self.arrays.items():
            if per_band and name in (cf.SCALE, cf.OFFSET):
                continue  # applied below: a reader must not apply them again
            yield name, self._variable(name, array, per_band if name == self.name else {})

    def _band_factors(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return scale and offset of each band, where bands differ in them and they are applied."""
        image = self.arrays.get(self.name)
        if not self.is_scaled or image is None or "c" not in image.dimension_names:
            return {}
        size = image.shape[image.dimension_names.index("c")]
        found = {}
        for name in (cf.SCALE, cf.OFFSET):
            array = self.arrays.get(name)
            if array is not None and array.dimension_names == ("c",) and array.shape == (size,):
                found[name] = np.asarray(self._opened(name, array)[...], np.float64)
        return found

    def _opened(self, name: str, array: ArrayIndex) -> Any:
        if name == self.name:
            return open_path(self.node, self.path, storage=self.storage)
        inside = "/".join(filter(None, [self.path.rpartition("/")[0], name]))
        if find(self.node, inside) is not None:
            return open_path(self.node, inside, storage=self.storage)
        # a coordinate that only exists in the dataset
        return open_path(array, "", storage=self.storage)

    def _variable(
        self, name: str, array: ArrayIndex, per_band: Mapping[str, npt.NDArray[np.float64]]
    ) -> Variable:
        names = [n or f"dim_{i}" for i, n in enumerate(array.dimension_names)]
        opened = self._opened(name, array)
        attributes = {k: v for k, v in array.attributes.items() if k not in ("_CRS", "anychunk")}
        if im.is_coordinate(name, array) or (len(names) == 1 and name in (cf.SCALE, cf.OFFSET)):
            values = opened[...] if array.shape else np.asarray(opened[()])
            is_text = array.data_type == "string"
            # by its source, a writer knows a transform that may be that of a larger image
            return Variable(
                names,
                np.asarray(values.tolist()) if is_text else values,
                attributes,
                {"source": "", **self.get_encoding()} if name == cf.GRID_MAPPING else {},
            )
        encoding = {
            "preferred_chunks": dict(zip(names, array.chunk_shape, strict=True)),
            "chunks": array.chunk_shape,
        }
        encoding |= self.get_encoding()
        missing = cf.read_nodata(attributes)
        for key in ("_FillValue", "missing_value"):
            attributes.pop(key, None)
        if missing is not None and opened.dtype.kind in "iufc":
            attributes["_FillValue"] = np.asarray(missing).astype(opened.dtype)[()]
        data: BackendArray = LazyArray(opened)
        if per_band:
            data = ScaledArray(
                opened,
                axis=names.index("c"),
                scale=per_band.get(cf.SCALE, attributes.pop("scale_factor", 1.0)),
                offset=per_band.get(cf.OFFSET, attributes.pop("add_offset", 0.0)),
                missing=attributes.pop("_FillValue", None),
            )
            listed = attributes.get("coordinates", "").split()
            kept = " ".join(part for part in listed if part not in per_band)
            attributes |= {"coordinates": kept}
            if not kept:
                del attributes["coordinates"]
            # neither the stored type nor nodata: xarray would write them with scaled values
            encoding |= {"band_scale": data.scale, "band_offset": data.offset}
        return Variable(names, indexing.LazilyIndexedArray(data), attributes, encoding)


class LazyArray(BackendArray):
    """An array that is read when it is indexed."""

    def __init__(self, array: zarr.Array[Any]) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype: np.dtype[Any] = array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> Any:
        if all(isinstance(part, int | np.integer | slice) for part in key):
            return self.array[tuple(p if isinstance(p, slice) else int(p) for p in key)]
        return self.array.oindex[key]


class ScaledArray(LazyArray):
    """The same with scale and offset of each band applied, and nodata as NaN.

    CF has one scale for a whole variable, so that xarray has no decoder for this.
    """

    def __init__(
        self,
        array: zarr.Array[Any],
        *,
        axis: int,
        scale: Any,
        offset: Any,
        missing: Any,
    ) -> None:
        """Describe how samples are decoded.

        Parameters:
            array: The stored samples.
            axis: The number of the axis of the bands.
            scale: One number per band, or one for all.
            offset: One number per band, or one for all.
            missing: The stored value of missing samples, or None.
        """
        super().__init__(array)
        size = array.shape[axis]
        self.axis, self.missing = axis, missing
        self.scale = np.broadcast_to(np.asarray(scale, np.float64), (size,))
        self.offset = np.broadcast_to(np.asarray(offset, np.float64), (size,))
        # as xarray chooses: float32 holds every 16-bit integer, but not sums with an offset
        is_small = array.dtype.kind in "iu" and array.dtype.itemsize <= 2 and not self.offset.any()
        is_single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
        self.dtype = np.dtype("float32" if is_small or is_single else "float64")

    def _read(self, key: tuple[Any, ...]) -> Any:
        stored = np.asarray(super()._read(key))
        found = stored.astype(self.dtype)
        if self.missing is not None:
            is_missing = (
                np.isnan(stored) if self.missing != self.missing else stored == self.missing
            )
            found[is_missing] = np.nan
        part = key[self.axis]
        bands = np.arange(len(self.scale))[part]
        scale, offset = self.scale[bands], self.offset[bands]
        if np.ndim(bands):
            before = [p for p in key[: self.axis] if isinstance(p, int | np.integer)]
            shape = [1] * found.ndim
            shape[self.axis - len(before)] = len(bands)
            scale, offset = scale.reshape(shape), offset.reshape(shape)
        return (found * scale + offset).astype(self.dtype)
