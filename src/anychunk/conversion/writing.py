"""Write an array of a program as Zarr or TIFF: numpy, dask, zarr, or an xarray DataArray."""

import uuid
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from anychunk import api
from anychunk.codecs.zarr_core import parse_dtype
from anychunk.conversion.levels import ZarrOptions
from anychunk.conversion.source_boxes import GivenBoxes
from anychunk.conversion.tiff_plan import TiffOptions, is_tiff
from anychunk.errors import UnsupportedError
from anychunk.io import Storage, as_url
from anychunk.metadata import cf, dates
from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import NAMES, Axis, Band, Crs, Level, Meaning, Place, Transform
from anychunk.metadata.reading import SYNONYMS
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.index import ArrayIndex, GroupIndex, Objects

PATH = "0/0/image"
"""Of the array in the index that stands for it."""


def write(array: Any, url: str | Path, *, format: str | None = None, **options: Any) -> None:
    """Write a numpy, dask or zarr array, or an xarray DataArray, to a file.

    Parameters:
        array: What to write; dask and zarr arrays may be larger than memory.
        url: The target. Its extension decides the format: `.zarr`, `.tif`, `.ome.tif`, `.n5`,
            `.jnrrd`, `.nrrd`.
        format: The name of a format, to override the extension.
        **options: Options of the format; see its page in the documentation. For Zarr and
            TIFF those of `convert`: `axes`, `like`, `chunk`, `shard`, `compression`, `levels`,
            `method`, `overwrite`, `workers`, `storage`; for TIFF also `predictor`, `bigtiff`,
            `interleave` and `layout`.

    Raises:
        UnsupportedError: No format writes this extension, or the named format is read-only.
    """
    target = as_url(url).rstrip("/")
    if format == "zarr" or (format is None and target.lower().endswith(".zarr")):
        write_zarr(array, target, **options)
    elif format == "tiff" or (format is None and is_tiff(target)):
        write_tiff(array, target, **options)
    else:
        api.write(array, url, format=format, **options)


def write_tiff(
    array: Any,
    url: str,
    *,
    overwrite: bool = False,
    workers: int | None = None,
    storage: Storage | None = None,
    **options: Any,
) -> None:
    """Write an array as a Cloud Optimized GeoTIFF or an OME-TIFF file."""
    from anychunk.conversion.tiff_files import to_tiff
    from anychunk.io.threads import cores

    samples = getattr(array, "data", array) if hasattr(array, "dims") else array
    known = {field.name for field in fields(TiffOptions)}
    unknown = [name for name in options if name not in known]
    if unknown:
        raise UnsupportedError(
            f"tiff: unknown option {unknown[0]!r}; expected one of: {' '.join(sorted(known))}"
        )
    to_tiff(
        array_index(array, samples),
        url,
        TiffOptions(**options),
        verify=False,
        overwrite=overwrite,
        count=workers or cores(),
        progress=None,
        storage=None,
        target_storage=storage,
        given={PATH: GivenBoxes(samples)},
    )


def write_zarr(
    array: Any,
    url: str,
    *,
    overwrite: bool = False,
    workers: int | None = None,
    storage: Storage | None = None,
    **options: Any,
) -> None:
    """Write an array as a Zarr v3 store, with the hierarchy of every conversion."""
    from anychunk.conversion import to_zarr
    from anychunk.io.threads import cores

    samples = getattr(array, "data", array) if hasattr(array, "dims") else array
    node = array_index(array, samples)
    to_zarr(
        node,
        url,
        ZarrOptions(**options),
        verify=False,
        overwrite=overwrite,
        count=workers or cores(),
        scheduler=None,
        progress=None,
        storage=None,
        target_storage=storage,
        given={PATH: GivenBoxes(samples)},
    )


def array_index(array: Any, samples: Any) -> GroupIndex:
    """Return an index that stands for an array, with what is known about its samples."""
    shape: Shape = tuple(int(n) for n in samples.shape)
    dtype = np.dtype(samples.dtype)
    try:
        document: Any = parse_dtype(dtype, zarr_format=3).to_json(zarr_format=3)
    except (ValueError, TypeError) as e:
        raise UnsupportedError(f"write: Zarr has no data type {dtype}") from e
    chunk = chunk_of(samples, shape)
    meaning = meaning_of_array(array, shape)
    index = ArrayIndex(
        shape=shape,
        chunk_shape=chunk,
        data_type=document,
        codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
        chunks=Objects(base="", pattern="", grid=grid_shape(shape, chunk), is_sparse=False),
        dimension_names=meaning.names,
    )
    # without a source that could be compared, an earlier result never counts as this one
    about = {"anychunk": {"format": "array", "id": uuid.uuid4().hex}}
    return root_group({"0": image_group(meaning, [Level(name="0", image=index)])}, about)


def chunk_of(samples: Any, shape: Shape) -> Shape:
    """Return the shape in which samples are held: of dask's and zarr's chunks, or the whole."""
    chunks = getattr(samples, "chunks", None)
    if not isinstance(chunks, tuple) or len(chunks) != len(shape):
        return tuple(max(n, 1) for n in shape)
    sizes = [max(c, default=1) if isinstance(c, tuple) else int(c) for c in chunks]
    return tuple(max(n, 1) for n in sizes)


def meaning_of_array(array: Any, shape: Shape) -> Meaning:
    """Return what an array says about itself: dimensions, coordinates and attributes of xarray."""
    dims = getattr(array, "dims", None)
    if not isinstance(dims, tuple):
        names = NAMES[-len(shape) :] if 2 <= len(shape) <= 3 else ()
        names = ("z", "y", "x")[-len(shape) :] if names else ()
        return Meaning(axes=tuple(Axis(name=n) for n in names or numbered(shape)))
    names = tuple(SYNONYMS.get(str(name), str(name)) for name in dims)
    attributes: dict[str, Any] = {**array.encoding, **array.attrs}
    nodata: Any = attributes.get("_FillValue", attributes.get("nodata"))
    labels = labels_of(array, dims, names)
    unit, title = attributes.get("units"), attributes.get("long_name") or array.name
    count = shape[names.index("c")] if "c" in names else 1
    bands = tuple(
        Band(
            name=labels[n] if n < len(labels) else (str(title) if title and count == 1 else None),
            unit=unit if isinstance(unit, str) else None,
            scale=number(attributes.get("scale_factor"), 1.0) if is_stored(array) else 1.0,
            offset=number(attributes.get("add_offset"), 0.0) if is_stored(array) else 0.0,
        )
        for n in range(count)
    )
    place = place_of(array, dims, names)
    axes = tuple(axis_of(array, d, n, place) for d, n in zip(dims, names, strict=True))
    is_number = isinstance(nodata, int | float | np.number)
    return Meaning(
        axes=axes,
        place=place,
        nodata=np.asarray(nodata).item() if is_number else None,
        bands=bands if any(band != Band() for band in bands) else (),
        name=str(array.name or ""),
    )


def numbered(shape: Shape) -> tuple[str, ...]:
    """Return dim_0, dim_1 …"""
    return tuple(f"dim_{i}" for i in range(len(shape)))


def is_stored(array: Any) -> bool:
    """Return whether values are as stored: xarray keeps scale and offset of decoded ones apart."""
    return "scale_factor" in array.attrs or "add_offset" in array.attrs


def number(value: Any, default: float) -> float:
    """Return a number of an attribute."""
    return float(value) if isinstance(value, int | float | np.number) else default


def labels_of(array: Any, dims: tuple[Any, ...], names: tuple[str, ...]) -> list[str]:
    """Return the names of bands, where the coordinate of c holds text."""
    if "c" not in names or dims[names.index("c")] not in array.coords:
        return []
    values = np.asarray(array.coords[dims[names.index("c")]].values)
    return [str(value) for value in values] if values.dtype.kind in "UOT" else []


def axis_of(array: Any, dim: Any, name: str, place: Place) -> Axis:
    """Return an axis with the positions of its coordinate, if they are regular numbers."""
    if dim not in array.coords or name == "c" or (place.transform is not None and name in "xy"):
        return Axis(name=name)
    coordinate = array.coords[dim]
    values = np.asarray(coordinate.values)
    if values.dtype.kind == "M":
        if np.isnat(values).any():
            return Axis(name=name)
        found = values.astype("datetime64[us]").astype(np.int64).tolist()
        return Axis(name=name, values=tuple(found), attributes=dates.attributes())
    if values.dtype.kind not in "iuf":
        return Axis(name=name)
    unit = coordinate.attrs.get("units")
    text = unit if isinstance(unit, str) else None
    steps = np.diff(values.astype(np.float64))
    if len(steps) and np.allclose(steps, steps[0], rtol=1e-6):
        return Axis(name=name, unit=text, scale=float(steps[0]), origin=float(values[0]))
    return Axis(name=name, unit=text, values=tuple(map(float, values)))


def place_of(array: Any, dims: tuple[Any, ...], names: tuple[str, ...]) -> Place:
    """Return the CRS of the grid mapping that rioxarray writes, and the transform of x and y."""
    known = array.coords.get(cf.GRID_MAPPING)
    attributes = {} if known is None else known.attrs
    wkt = attributes.get("crs_wkt") or attributes.get("spatial_ref")
    crs = Crs(wkt=wkt) if isinstance(wkt, str) and wkt else None
    transform: Transform | None = None
    text = attributes.get("GeoTransform")
    if isinstance(text, str) and len(text.split()) == 6:
        c, a, b, f, d, e = map(float, text.split())
        transform = (a, b, c, d, e, f)
    elif crs is not None and {"x", "y"} <= set(names):
        grids = [axis_of(array, dims[names.index(n)], n, Place()) for n in ("x", "y")]
        if all(axis.scale is not None for axis in grids):
            (x, y) = grids
            a, e = float(x.scale or 1), float(y.scale or 1)
            transform = (a, 0.0, x.origin - a / 2, 0.0, e, y.origin - e / 2)
    return Place(crs=crs, transform=transform)
