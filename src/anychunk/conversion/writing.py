"""Write an array of a program to a file: numpy, dask, zarr, or an xarray DataArray."""

import uuid
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from anychunk import formats
from anychunk.codecs import data_types
from anychunk.conversion.given_arrays import Given, given_array
from anychunk.conversion.levels import ZarrOptions, options_for, run_options
from anychunk.conversion.single_files import LEVEL_OPTIONS, padded, writer_of
from anychunk.conversion.source_boxes import GivenBoxes
from anychunk.conversion.tiff_plan import TiffOptions, is_tiff
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats import options_of_others
from anychunk.io import sink
from anychunk.io.source import as_url
from anychunk.metadata.hierarchy import fill_of, image_group, root_group
from anychunk.metadata.meaning import NAMES, Level, Meaning
from anychunk.metadata.reading import IMAGE_LABEL
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.index import ArrayIndex, GroupIndex, Objects
from anychunk.options import WriteOptions, check_for, checked, names

IMAGE = "0"
PATH = f"{IMAGE}/0/image"
"""Of the array in the index that stands for it."""


@checked(further=options_of_others)
def write(
    array: Any, target: str | Path, *, format: str | None = None, **options: Unpack[WriteOptions]
) -> None:
    """Write a numpy, dask or zarr array, or an xarray DataArray, to a file.

    Of a DataArray, coordinates, CRS, nodata, scales and names of bands are written too, and of an
    array that was opened by this package, all that is known about it. A warning names what the
    target cannot hold.

    Parameters:
        array: What to write; dask and zarr arrays may be larger than memory.
        target: A path or url. Its extension decides the format: `.zarr`, `.tif`, `.ome.tif`, `.n5`,
            `.jnrrd`, `.nrrd`.
        format: The name of a format, to override the extension.
        **options: `axes`, `like`, `chunk`, `shard`, `compression`, `compression_level`, `levels`,
            `method`, `overwrite`, `workers`, `progress`, `target_storage`, and what the format adds
            to these; the page *Options* of the documentation lists them all.

    Raises:
        OptionError: There is no such option, or the format does not have it.
        TargetExistsError: There is something at the target; also a `FileExistsError`.
        UnsupportedError: No format writes this extension, or the format cannot hold the array.
    """
    url = as_url(target).rstrip("/")
    given = given_array(array)
    wanted = {name: value for name, value in options.items() if value is not None}
    if format == "zarr" or (format is None and url.lower().endswith(".zarr")):
        lost = write_zarr(given, url, wanted)
    elif format == "tiff" or (format is None and is_tiff(url)):
        lost = write_tiff(given, url, wanted)
    else:
        lost = write_other(given, as_url(target), format, wanted)
    losses = [loss.removeprefix(f"{IMAGE}: ") for loss in (*given.losses, *lost)]
    if losses:
        warnings.warn(f"{url}: not kept: {'; '.join(losses)}", stacklevel=3)


def write_other(
    given: Given, url: str, format: str | None, options: dict[str, Any]
) -> tuple[str, ...]:
    """Write an array by the writer of a format; return what is not kept."""
    module: Any = writer_of(url) if format is None else formats.by_name(format)
    if not isinstance(module, formats.WritableFormat):
        raise FormatError(f"{url}: {format} files can be read, but not written")
    name = next(n for n, known in formats.table().items() if known is module)
    known = names(module.write)
    if "overwrite" not in known:  # a writer of others, which replaces what is there
        sink.check_free(url, overwrite=options.pop("overwrite", False))
    check_for(module.write, f"{url}: {name}", options)
    options = padded(options, len(given.samples.shape))
    if "meaning" not in known or not given.is_described:
        module.write(given.samples, url, **options)
        return ()
    meaning = rising(given.meaning, given.samples.shape)
    if options.get("levels") is not None and name in LEVEL_OPTIONS:
        found = LEVEL_OPTIONS[name](meaning, level_of(given), options["levels"])
        if given.label is not None:
            found["method"] = "mode"
        options = {**found, **options}
    module.write(given.samples, url, **{"meaning": meaning, **options})
    return tuple(lost_axes(meaning, name))


def rising(meaning: Meaning, shape: Shape) -> Meaning:
    """Return a meaning that lists the positions of axes with falling ones.

    Only Zarr and the georeference of TIFF have negative steps.
    """
    axes = [
        replace(
            axis,
            unit=None,
            scale=None,
            origin=0.0,
            values=tuple(axis.origin + axis.scale * n for n in range(size)),
            attributes={"units": axis.unit} if axis.unit else {},
        )
        if axis.scale is not None and axis.scale < 0
        else axis
        for axis, size in zip(meaning.axes, shape, strict=True)
    ]
    return replace(meaning, axes=tuple(axes))


def lost_axes(meaning: Meaning, name: str) -> Iterator[str]:
    """Yield the axes that N5 and JNRRD files have no names for."""
    if not {"y", "x"} <= set(meaning.names) <= set(NAMES):
        yield f"the names and positions of the axes {' '.join(meaning.names)}; {name} has images"


def write_tiff(given: Given, url: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Write a Cloud Optimized GeoTIFF or an OME-TIFF file; return what is not kept."""
    from anychunk.conversion.tiff_files import to_tiff

    meaning = rising(given.meaning, given.samples.shape)
    return to_tiff(
        array_index(replace(given, meaning=meaning)),
        url,
        options_for(TiffOptions, f"{url}: tiff", options),
        verify=False,
        storage=None,
        given={PATH: GivenBoxes(given.samples)},
        **run_options(options),
    ).losses


def write_zarr(given: Given, url: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Write a Zarr v3 store, with the hierarchy of every conversion; return what is not kept."""
    from anychunk.conversion import to_zarr

    return to_zarr(
        array_index(given),
        url,
        options_for(ZarrOptions, f"{url}: zarr", options),
        verify=False,
        executor=None,
        storage=None,
        given={PATH: GivenBoxes(given.samples)},
        **run_options(options),
    ).losses


def array_index(given: Given) -> GroupIndex:
    """Return an index that stands for an array, with what is known about its samples."""
    group = image_group(given.meaning, [level_of(given)])
    if given.label is not None:
        ome = {**group.attributes.get("ome", {}), IMAGE_LABEL: given.label}
        group = replace(group, attributes={**group.attributes, "ome": ome})
    # without a source that could be compared, an earlier result never counts as this one
    about = {"anychunk": {"format": "array", "id": uuid.uuid4().hex}}
    return root_group({IMAGE: group}, about)


def level_of(given: Given) -> Level:
    """Return the only level of the image that stands for an array."""
    shape: Shape = tuple(int(n) for n in given.samples.shape)
    dtype = np.dtype(given.samples.dtype)
    try:
        document: Any = data_types.name_of(dtype)
    except (ValueError, TypeError) as e:
        raise UnsupportedError(f"write: Zarr has no data type {dtype}") from e
    chunk = chunk_of(given.samples, shape)
    index = ArrayIndex(
        shape=shape,
        chunk_shape=chunk,
        data_type=document,
        codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
        chunks=Objects(base="", pattern="", grid=grid_shape(shape, chunk), is_sparse=False),
        fill_value=fill_of(document, given.meaning.nodata, None),
        dimension_names=given.meaning.names,
    )
    return Level(name="0", image=index)


def chunk_of(samples: Any, shape: Shape) -> Shape:
    """Return the shape in which samples are held: of dask's and zarr's chunks, or the whole."""
    chunks = getattr(samples, "chunks", None)
    if not isinstance(chunks, tuple) or len(chunks) != len(shape):
        return tuple(max(n, 1) for n in shape)
    sizes = [max(c, default=1) if isinstance(c, tuple) else int(c) for c in chunks]
    return tuple(max(n, 1) for n in sizes)
