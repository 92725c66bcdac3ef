"""DataArrays written to every target after any operation, and opened again: equal, or a warning says what is not kept."""

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import rasterio
import tifffile
import xarray as xr
from rasterio.transform import Affine

import anychunk
from anychunk.errors import UnsupportedError

TARGETS = ("zarr", "tif", "ome.tif", "n5", "jnrrd", "nrrd")
SEEDS = 200
UTM = Affine(10, 0, 500000, 0, -10, 4000000)
ROTATED = Affine(10, 2, 500000, 3, -10, 4000000)
VALUES = np.random.default_rng(0).integers(0, 50, (3, 22, 30)).astype("uint16")


def geotiff(path, transform, *, names=(), scales=(), offsets=(), **profile):
    with rasterio.open(
        path, "w", driver="GTiff", width=30, height=22, count=3, dtype="uint16",
        transform=transform, crs="EPSG:32633", **profile,
    ) as file:  # fmt: skip
        file.write(VALUES)
        for name, value in (("descriptions", names), ("scales", scales), ("offsets", offsets)):
            if value:
                setattr(file, name, value)
    return path


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Files of other writers: with and without place, nodata, scales per band, element sizes, dates."""
    folder = tmp_path_factory.mktemp("sources")
    geotiff(folder / "plain.tif", UTM)
    geotiff(folder / "nodata.tif", UTM, names=("red", "green", "blue"), nodata=0)
    geotiff(folder / "rotated.tif", ROTATED, nodata=7)
    geotiff(folder / "scaled.tif", UTM, scales=(0.5, 2.0, 1.0), offsets=(1.0, 0.0, 3.0), nodata=7)
    geotiff(folder / "alike.tif", UTM, scales=(0.5,) * 3, offsets=(1.0,) * 3, nodata=7)
    sizes = {"PhysicalSizeX": 0.25, "PhysicalSizeY": 0.5, "PhysicalSizeZ": 2.0}
    units = {f"{name}Unit": "µm" for name in sizes}
    metadata = {"axes": "ZYX", **sizes, **units}
    tifffile.imwrite(folder / "stack.ome.tif", VALUES, metadata=metadata)
    return folder


def step(draw, array):
    """Return one random operation on an array, as text and as a function."""
    dims = [dim for dim in array.dims if array.sizes[dim] > 3]
    dim = str(draw.choice(dims)) if dims else str(array.dims[-1])
    size = array.sizes[dim]
    low = int(draw.integers(0, max(1, size // 2)))
    high = int(draw.integers(low + 1, size + 1))
    by = int(draw.integers(1, 4)) * int(draw.choice([1, 1, -1]))
    values = array.coords[dim].values if dim in array.coords else None
    selections = {
        f"isel({dim}={low}:{high})": lambda a: a.isel({dim: slice(low, high)}),
        f"isel({dim}=::{by})": lambda a: a.isel({dim: slice(None, None, by)}),
        f"isel({dim}=::-1)": lambda a: a.isel({dim: slice(None, None, -1)}),
        f"isel({dim}=[…])": lambda a: a.isel({dim: sorted({0, low, size - 1})}),
        f"coarsen({dim}=2)": lambda a: a.coarsen({dim: min(2, size)}, boundary="trim").mean(),
        "coarsen(y=2, x=3)": lambda a: a.coarsen(y=2, x=3, boundary="trim").max(),
        "transpose": lambda a: a.transpose(*reversed(a.dims)),
        "roll": lambda a: a.roll({dim: 1}),
    }
    arithmetic = {
        "* 2": lambda a: a * 2,
        "+ 1.5": lambda a: a + 1.5,
        "astype(float32)": lambda a: a.astype("float32"),
        "astype(uint8)": lambda a: a.fillna(0).astype("uint8"),
        "where": lambda a: a.where(a > 10),
        "fillna": lambda a: a.fillna(3),
        "clip": lambda a: a.clip(2, 30),
        "load": lambda a: a.load(),
        "chunk": lambda a: a.chunk(),
        f"isel({array.dims[0]}=0)": lambda a: a.isel({a.dims[0]: 0}) if a.ndim > 2 else a,
        "assign_coords": lambda a: a.assign_coords({dim: np.arange(a.sizes[dim]) * 2.5 + 1}),
        "drop_vars": lambda a: a.drop_vars(dim, errors="ignore"),
    }
    if values is not None and values.dtype.kind == "f":
        bounds = slice(values[low], values[high - 1])
        selections[f"sel({dim}=…)"] = lambda a: a.sel({dim: bounds})
    found = selections if draw.random() < 0.6 else arithmetic
    name = str(draw.choice(sorted(found)))
    return name, found[name]


def operated(seed, folder):
    """Return what was done, the array, and how it was opened."""
    draw = np.random.default_rng(seed)
    path = sorted(folder.iterdir())[seed % 6]
    options = {"mask_and_scale": bool(draw.integers(0, 2))}
    array = xr.open_dataset(path, engine="anychunk", **options)["image"]
    done = []
    for _ in range(int(draw.integers(0, 4))):
        name, operation = step(draw, array)
        changed = operation(array)
        if {"y", "x"} <= set(changed.dims):
            array = changed
            done.append(name)
    return path.name, done, array, options


def differences(given, found, warned, done):
    """Yield what differs, unless a warning names it."""
    found = found.squeeze([d for d in found.dims if d == "c" and found.sizes[d] == 1])
    given = given.squeeze([d for d in given.dims if d == "c" and given.sizes[d] == 1])
    values = found.transpose(..., "y", "x").values
    expected = given.transpose(*(n for n in ("t", "c", "z") if n in given.dims), "y", "x").values
    if set(found.dims) != set(given.dims) and "planes become bands" not in warned:
        yield f"dims {found.dims}, expected {given.dims}"
    elif not np.array_equal(values, expected, equal_nan=given.dtype.kind == "f"):
        yield "values"
    yield from place_differences(given, found, warned, done)
    for name, coordinate in given.coords.items():
        is_named = any(f"{word} {name}" in warned for word in ("along", "coordinates", "axes"))
        there = found.coords.get(name) if name in found.coords else None
        if name == "spatial_ref" or is_named or (name == "c" and not coordinate.ndim):
            continue
        if name in ("scale", "offset") and there is None:
            attribute, default = {"scale": ("scale_factor", 1), "offset": ("add_offset", 0)}[name]
            is_told = np.all(coordinate.values == found.attrs.get(attribute, default))
            if not is_told and "scale and offset" not in warned:
                yield name
        elif there is None or there.shape != coordinate.shape or not is_close(there, coordinate):
            yield f"{name} {there}, expected {coordinate}"


def place_differences(given, found, warned, done):
    """Yield where the CRS, a rotated transform, or a coordinate that the array does not have is wrong."""
    before, after = (
        a.coords["spatial_ref"].attrs if "spatial_ref" in a.coords else {} for a in (given, found)
    )
    if before.get("crs_wkt") != after.get("crs_wkt"):
        yield "crs"
    is_rotated, has_kept = (
        "10.0 2.0" in place.get("GeoTransform", "") for place in (before, after)
    )
    is_whole = all(name.startswith("isel(c") for name in done)
    if is_rotated and not (has_kept if is_whole else "georeference" in warned and not has_kept):
        yield f"GeoTransform {after.get('GeoTransform')}"
    for name in {"y", "x"} & set(found.coords) - set(given.coords):
        # numbers of rows and columns, or of an image of which nothing but the coordinate was changed
        is_number = np.array_equal(found.coords[name], np.arange(found.sizes[name]))
        if not is_number and done != ["drop_vars"]:
            yield f"{name}, which the array does not have"


def is_close(a, b):
    if a.dtype.kind in "UT":
        return bool((a.values == b.values).all())
    # TIFF states element sizes in centimetres, as a fraction of two 32-bit integers
    factor = (
        1e4 if (a.attrs.get("units"), b.attrs.get("units")) == ("centimeter", "micrometer") else 1
    )
    return bool(np.allclose(a.values * factor, b.values, rtol=1e-8, atol=0))


def written(array, target, **options):
    """Write an array; return the warning."""
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        anychunk.write(array, target, **options)
    return " ".join(str(one.message) for one in found)


@pytest.mark.parametrize("target", TARGETS)
def test_any_operation(tmp_path, sources, target):
    path = Path(tmp_path, f"a.{target}")
    wrong, refused = [], 0
    for seed in range(SEEDS):
        name, done, array, options = operated(seed, sources)
        try:
            warned = written(array, path)
        except UnsupportedError:
            refused += 1  # a type that the format does not have
            continue
        with xr.open_dataset(path, engine="anychunk", **options) as found:
            missing = list(differences(array, found["image"], warned, done))
        if missing:
            wrong.append(f"{seed} {name} {options} {done}: {missing}; warned: {warned}")
    assert not wrong, "\n".join(wrong)
    assert refused <= SEEDS // 10
