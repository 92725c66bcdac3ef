"""What arrays of a program say about themselves: numpy, dask, zarr, and xarray's DataArray.

The coordinates of a DataArray follow every selection; its attributes, and those of the grid
mapping, still describe the whole. So coordinates come first.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import zarr

from anychunk.errors import UnsupportedError
from anychunk.formats._axes import ome_unit
from anychunk.metadata import cf, dates
from anychunk.metadata.meaning import Axis, Band, Crs, Meaning, Place, Transform
from anychunk.metadata.reading import IMAGE_LABEL, SYNONYMS, image_label, meaning_of_level
from anychunk.model.grid import Array, Shape
from anychunk.model.images import image_around
from anychunk.model.index import Json
from anychunk.zarr.store import IndexStore

PLANES = ("xc", "yc")
"""rioxarray's names of coordinates with a position per pixel."""

TOLERANCE = 1e-6
"""How far positions may lie beside a regular grid, in steps."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """An array to write."""

    samples: Any
    meaning: Meaning
    label: Json | None = None
    """OME-Zarr's `image-label`, if the samples are numbers of objects."""
    losses: tuple[str, ...] = ()
    """What no target can hold."""
    is_described: bool = True
    """Whether anything is known about the samples; names of axes may be guessed otherwise."""


def given_array(array: Any) -> Given:
    """Return the samples of an array, and what they mean."""
    dims = getattr(array, "dims", None)
    if isinstance(dims, tuple):
        return DataArray(array).given()
    image = opened_image(array)
    if image is not None:
        meaning, attributes = image
        return Given(samples=array, meaning=meaning, label=image_label(attributes))
    shape: Shape = tuple(int(n) for n in array.shape)
    names = ("z", "y", "x")[-len(shape) :] if len(shape) in (2, 3) else numbered(shape)
    samples, nodata = without_mask(array)
    return Given(
        samples=samples,
        meaning=Meaning(axes=tuple(Axis(name=n) for n in names), nodata=nodata),
        is_described=nodata is not None,
    )


def opened_image(array: Any) -> tuple[Meaning, Mapping[str, Json]] | None:
    """Return the meaning of an array that was opened by this package, and its image's attributes.

    None for any other array.
    """
    store = getattr(array, "store", None)
    if not isinstance(array, zarr.Array) or not isinstance(store, IndexStore):
        return None
    image = image_around(store.index, array.path)
    if image is None:
        return None
    meaning = meaning_of_level(store.index, image, image.levels.index(array.path))
    return meaning, image.attributes


def numbered(shape: Shape) -> tuple[str, ...]:
    """Return dim_0, dim_1 …"""
    return tuple(f"dim_{i}" for i in range(len(shape)))


def without_mask(array: Any) -> tuple[Any, float | int | None]:
    """Return the samples of a masked array with nodata where it is masked, and that nodata.

    Raises `UnsupportedError` if every candidate for nodata is a valid sample.
    """
    if isinstance(getattr(array, "_meta", None), np.ma.MaskedArray):
        raise UnsupportedError(
            "write: a dask array of masked arrays; replace masked samples, for example with "
            "dask.array.ma.filled"
        )
    if not isinstance(array, np.ma.MaskedArray) or not np.ma.is_masked(array):
        return np.ma.getdata(array) if isinstance(array, np.ma.MaskedArray) else array, None
    if array.dtype.kind == "f":
        return array.filled(np.nan), np.nan
    if array.dtype.kind in "iu":
        valid, limits = array.compressed(), np.iinfo(array.dtype)
        for value in (int(array.fill_value), int(limits.max), int(limits.min)):
            # numpy's own default, 999999, does not fit every type
            if limits.min <= value <= limits.max and not np.any(valid == value):
                return array.filled(value), value
    raise UnsupportedError(
        f"write: masked {array.dtype} without a value that stands for masked samples; set one that "
        "no valid sample has, with array.fill_value"
    )


class DataArray:
    """Reads what an xarray DataArray says."""

    def __init__(self, array: Any) -> None:
        self.array, self.dims = array, array.dims
        self.names = tuple(SYNONYMS.get(str(dim), str(dim)) for dim in array.dims)
        self.shape: Shape = tuple(int(n) for n in array.shape)
        self.is_untouched = is_untouched(array)  # before `data` loads the samples
        self.losses: list[str] = []
        mapping = array.attrs.get("grid_mapping", array.encoding.get("grid_mapping"))
        self.mapping = mapping if isinstance(mapping, str) else cf.GRID_MAPPING

    def given(self) -> Given:
        """Return the samples, what they mean, and what is not kept."""
        array = self.array
        place = self.place()
        axes = tuple(self.axis(name, place) for name in self.names)
        label = array.attrs.get(IMAGE_LABEL)
        bands = self.bands()
        meaning = Meaning(
            axes=axes,
            place=place,
            nodata=self.nodata(),
            bands=bands if any(band != Band() for band in bands) else (),
            name=str(array.name or ""),
        )
        self.losses += self.lost_coordinates(meaning)
        return Given(
            samples=array.data,
            meaning=meaning,
            label=None if label is None else json_or_empty(label),
            losses=tuple(self.losses),
        )

    def coordinate(self, name: str) -> Any:
        """Return the coordinate along the axis with a name of ours; None if it has none."""
        dim = self.dims[self.names.index(name)] if name in self.names else None
        # `get` returns numbers for a dimension without a coordinate
        return dict(self.array.coords).get(dim)

    @cached_property
    def planes(self) -> tuple[Array, Array] | None:
        """The position of every pixel, which rioxarray gives rotated images."""
        found = [self.array.coords.get(name) for name in PLANES]
        if any(plane is None or {*plane.dims} != {"y", "x"} for plane in found):
            return None
        x, y = (
            np.asarray(plane.transpose("y", "x").values) for plane in found if plane is not None
        )
        return (x, y) if min(x.shape) > 1 else None

    def nodata(self) -> float | int | None:
        """Return the value of missing samples.

        Attributes speak of the samples, encoding of those that xarray decoded them from: decoded
        floats have NaN in their place.
        """
        dtype, encoding = np.dtype(self.array.dtype), self.array.encoding
        stored = number(self.array.attrs.get("_FillValue", self.array.attrs.get("nodata")))
        if stored is None and "_FillValue" in encoding:
            if dtype.kind == "f":
                return np.nan
            is_stored = np.dtype(encoding.get("dtype") or dtype) == dtype
            stored = number(encoding["_FillValue"]) if is_stored else None
        if stored is not None and dtype.kind in "biu" and not cf.fits(stored, dtype.name):
            self.losses.append(f"nodata {stored}, which {dtype} cannot represent")
            return None
        return stored

    def bands(self) -> tuple[Band, ...]:
        """Return names, unit, scale and offset of each band."""
        attributes = self.array.attrs
        count = self.shape[self.names.index("c")] if "c" in self.names else 1
        labels = self.labels()
        unit, title = attributes.get("units"), attributes.get("long_name") or self.array.name
        name = title if isinstance(title, str) and title and count == 1 else None
        scales = self.factors(cf.SCALE, "scale_factor", 1.0, count)
        offsets = self.factors(cf.OFFSET, "add_offset", 0.0, count)
        return tuple(
            Band(
                name=labels[n] if labels else name,
                unit=unit if isinstance(unit, str) else None,
                scale=scales[n],
                offset=offsets[n],
            )
            for n in range(count)
        )

    def labels(self) -> list[str]:
        """Return the names of bands, where the coordinate of c holds text."""
        found = self.coordinate("c")
        values = np.asarray([] if found is None else found.values)
        return [str(value) for value in values] if values.dtype.kind in "UOT" else []

    def factors(self, name: str, attribute: str, default: float, count: int) -> list[float]:
        """Return scale or offset of each band: of stored samples, whose attributes have them."""
        found = self.array.coords.get(name) if self.is_band_factor(name) else None
        if found is not None:
            values = np.broadcast_to(np.asarray(found.values, np.float64), (count,))
            return [float(value) for value in values]
        value = number(self.array.attrs.get(attribute))
        return [default if value is None else float(value)] * count

    def is_band_factor(self, name: str) -> bool:
        """Return whether a coordinate is the scale or offset of bands, as our files have it."""
        found = self.array.coords.get(name)
        if found is None or name not in (cf.SCALE, cf.OFFSET) or found.dtype.kind not in "iuf":
            return False
        listed = str(self.array.encoding.get("coordinates", "")).split()
        along = tuple(SYNONYMS.get(str(dim), str(dim)) for dim in found.dims)
        return along == ("c",) or (along == () and name in listed)

    def axis(self, name: str, place: Place) -> Axis:
        """Return an axis with the positions of its coordinate, if they are numbers or dates."""
        found = self.coordinate(name)
        if found is None or name == "c" or (place.transform is not None and name in "xy"):
            return Axis(name=name)
        values = np.asarray(found.values)
        if values.dtype.kind == "M" and not np.isnat(values).any():
            return self.dated(name, values)
        if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            return Axis(name=name)
        unit = found.attrs.get("units")
        text = ome_unit(unit)
        grid = regular(values)
        if grid is not None:
            return Axis(name=name, unit=text, scale=grid[1], origin=grid[0])
        attributes = {"units": text} if text else {}
        return Axis(name=name, values=tuple(map(float, values)), attributes=attributes)

    def dated(self, name: str, values: Array) -> Axis:
        """Return an axis of dates, which are kept as microseconds."""
        numbers = values.astype("datetime64[us]")
        if np.any(numbers != values):
            self.losses.append(f"parts of microseconds of the coordinate {name}")
        found = numbers.astype(np.int64).tolist()
        return Axis(name=name, values=tuple(found), attributes=dates.attributes())

    def place(self) -> Place:
        """Return the CRS of the grid mapping that rioxarray writes, and the transform of x and y.

        The mapping's transform is that of the whole image, before rows and columns were selected.
        """
        mapping = self.array.coords.get(self.mapping)
        attributes = {} if mapping is None else mapping.attrs
        wkt = attributes.get("crs_wkt") or attributes.get("spatial_ref")
        crs = Crs(wkt=wkt) if isinstance(wkt, str) and wkt else None
        whole = geo_transform(attributes.get("GeoTransform"))
        if (crs is None and whole is None) or not {"x", "y"} <= set(self.names):
            return Place(crs=crs)
        return Place(crs=crs, transform=self.transform(whole, mapping))

    def transform(self, whole: Transform | None, mapping: Any) -> Transform | None:
        """Return the transform of the samples.

        Parameters:
            whole: The transform of the whole image, if it is known.
            mapping: The grid mapping.
        """
        x, y = self.coordinate("x"), self.coordinate("y")
        is_rotated = whole is not None and cf.is_rotated(whole)
        if self.planes is not None:
            return plane_transform(*self.planes)
        if x is None or y is None:
            # without positions, only an image that was not touched is known to be the whole
            is_opened = "source" in mapping.encoding or PLANES[0] in self.array.coords
            if whole is None or self.is_untouched or not is_opened:
                return whole
            what = "rotated georeference" if is_rotated else "georeference"
            self.losses.append(f"the {what}: rows and columns may have been selected")
            return None
        if is_rotated:
            self.losses.append("the rotated georeference: x and y have positions of their own")
        known = None if whole is None or is_rotated else whole
        across = edge_and_step(x.values, None if known is None else (known[2], known[0]))
        down = edge_and_step(y.values, None if known is None else (known[5], known[4]))
        if across is None or down is None:
            return None
        return (across[1], 0.0, across[0], 0.0, down[1], down[0])

    def lost_coordinates(self, meaning: Meaning) -> Iterator[str]:
        """Yield the coordinates that have no place in the meaning."""
        kept = {self.mapping, *(n for n in (cf.SCALE, cf.OFFSET) if self.is_band_factor(n))}
        if self.planes is not None and meaning.place.transform is not None:
            kept |= {*PLANES}
        for dim, axis in zip(self.dims, meaning.axes, strict=True):
            is_placed = meaning.place.transform is not None and axis.name in "xy"
            if is_placed or axis.scale is not None or axis.values is not None:
                kept.add(dim)
            if axis.name == "c" and is_told_by_bands(self.coordinate("c"), meaning):
                kept.add(dim)
        lost = [str(name) for name in self.array.coords if name not in kept]
        if lost:
            yield f"the coordinates {' '.join(lost)}"
        if {"scales", "offsets"} & set(self.array.attrs):
            # of all bands of the file, whichever were selected
            yield "rioxarray's attributes scales and offsets"


def is_told_by_bands(coordinate: Any, meaning: Meaning) -> bool:
    """Return whether a coordinate of c says no more than the names, or the numbers, of bands."""
    if coordinate is None:
        return True
    names = [band.name for band in meaning.bands]
    values = coordinate.values.tolist()
    count = len(values)
    if values in (list(range(count)), list(range(1, count + 1))):
        return True
    return values == names and all(names) and len(set(names)) == count


def is_untouched(array: Any) -> bool:
    """Return whether rows and columns are those of the opened image: not loaded, none selected."""
    data: Any = getattr(array.variable, "_data", None)
    keys: list[Any] = []
    while hasattr(data, "array"):
        if hasattr(data, "key"):
            keys += data.key.tuple[-2:]
        data = data.array
    is_whole = all(isinstance(key, slice) and key == slice(None) for key in keys)
    return bool(keys) and is_whole and array.dims[-2:] == ("y", "x")


def regular(values: Array) -> tuple[float, float] | None:
    """Return the first position and the step of a regular grid; None for any other positions."""
    if len(values) < 2:
        return None
    first, last = float(values[0]), float(values[-1])
    step = (last - first) / (len(values) - 1)
    return (first, step) if lies_on(values, first, step) else None


def lies_on(values: Array, first: float, step: float) -> bool:
    """Return whether positions are those of a regular grid."""
    # a type of few digits rounds the positions
    digits = float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0
    most = max(TOLERANCE * abs(step), 2 * digits * float(np.abs(values).max()))
    distance = np.abs(first + step * np.arange(len(values)) - values.astype(np.float64)).max()
    return bool(distance <= most < abs(step) / 4)


def edge_and_step(values: Array, known: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return where a grid begins, and its step; None if it is not regular.

    Parameters:
        values: The centres of its pixels.
        known: Edge and step of the whole image: exact, and the only step of a single pixel.
    """
    if values.dtype.kind not in "iuf" or not len(values):
        return None
    if known is not None and lies_on(values, known[0] + known[1] / 2, known[1]):
        return known
    grid = regular(values)
    return None if grid is None else (grid[0] - grid[1] / 2, grid[1])


def plane_transform(x: Array, y: Array) -> Transform | None:
    """Return the transform of the positions of all pixels; None if they are not affine."""
    (rows, columns), found = x.shape, []
    for plane in (x, y):
        across = float(plane[0, -1] - plane[0, 0]) / (columns - 1)
        down = float(plane[-1, 0] - plane[0, 0]) / (rows - 1)
        first = float(plane[0, 0])
        expected = first + across * np.arange(columns) + down * np.arange(rows)[:, None]
        if not np.abs(expected - plane).max() <= TOLERANCE * (abs(across) + abs(down)):
            return None
        found.append((across, down, first - (across + down) / 2))
    (a, b, c), (d, e, f) = found
    return (a, b, c, d, e, f)


def geo_transform(value: Any) -> Transform | None:
    """Return the transform that GDAL's text states."""
    try:
        c, a, b, f, d, e = map(float, str(value).split())
    except ValueError:
        return None
    return (a, b, c, d, e, f)


def number(value: Any) -> float | int | None:
    """Return a number of an attribute; None for anything else."""
    found = np.asarray(value)
    return found.item() if found.size == 1 and found.dtype.kind in "iuf" else None


def json_or_empty(value: Any) -> Json:
    """Return an attribute that is JSON text."""
    try:
        found = json.loads(value)
    except (TypeError, ValueError):
        found = {}
    return found if isinstance(found, Mapping) else {}
