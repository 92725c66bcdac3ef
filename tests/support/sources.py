"""Files of every format, written by software that is not ours, and what the best reader of each says.

The best reader is rasterio for TIFF, NITF and JPEG 2000, tifffile for OME-TIFF, pynrrd for NRRD, and
for N5 and NPY the numbers that were written.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import tifffile
from rasterio.errors import NotGeoreferencedWarning
from rasterio.rpc import RPC

type Transform = tuple[float, ...]
UTM = rasterio.transform.from_origin(500_000, 4_000_000, 10, 10)
DEGREES = rasterio.transform.from_origin(10, 50, 0.001, 0.001)
ALBERS = (
    "+proj=aea +lat_0=45 +lon_0=126 +lat_1=50 +lat_2=58.5 +x_0=1000000 +y_0=0 "
    "+ellps=GRS80 +units=m +no_defs"
)
"""A projected CRS that has no code."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What an image is, by a reader that is not ours."""

    pixels: Any
    """At full resolution, axes in the order of `axes`."""
    axes: str
    crs: Any = None
    """A `rasterio.crs.CRS`."""
    transform: Transform | None = None
    nodata: float | None = None
    scales: tuple[float, ...] | None = None
    offsets: tuple[float, ...] | None = None
    step: dict[str, float] | None = None
    """Physical size of an element, by axis."""


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def by_rasterio(path: Path) -> Known:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path) as file:
            pixels, transform = file.read(), tuple(file.transform)[:6]
            is_one = file.count == 1
            return Known(
                pixels=pixels[0] if is_one else pixels,
                axes="yx" if is_one else "cyx",
                crs=file.crs,
                transform=None if file.transform.is_identity else transform,
                nodata=file.nodata,
                scales=file.scales,
                offsets=file.offsets,
            )


def written(path: Path, data: Any, *, driver: str = "GTiff", **options: Any) -> Known:
    """Write (band, y, x) with GDAL; `scales`, `offsets`, `colormap`, `descriptions` are its own."""
    apart = {k: options.pop(k) for k in ("scales", "offsets", "descriptions") if k in options}
    colormap, overviews = options.pop("colormap", None), options.pop("overviews", None)
    profile = {"count": len(data), "height": data.shape[1], "width": data.shape[2]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", driver=driver, dtype=data.dtype, **profile, **options) as out:
            out.write(data)
            for name, values in apart.items():
                setattr(out, name, values)
            if colormap:
                out.write_colormap(1, colormap)
            if overviews:
                out.build_overviews(overviews, rasterio.enums.Resampling.average)
    return by_rasterio(path)


TILES = {"tiled": True, "blockxsize": 128, "blockysize": 128, "compress": "deflate"}


def grey(folder: Path) -> tuple[Path, Known]:
    path = folder / "grey.tif"
    data = rng().integers(0, 4000, (1, 300, 400)).astype("uint16")
    return path, written(path, data, crs="EPSG:32633", transform=UTM, overviews=[2], **TILES)


def rgb(folder: Path) -> tuple[Path, Known]:
    path = folder / "rgb.tif"
    data = rng().integers(0, 256, (3, 200, 300)).astype("uint8")
    options = {"photometric": "rgb", "interleave": "pixel", **TILES}
    return path, written(path, data, crs="EPSG:4326", transform=DEGREES, **options)


def palette(folder: Path) -> tuple[Path, Known]:
    path = folder / "palette.tif"
    data = rng().integers(0, 4, (1, 200, 300)).astype("uint8")
    colours = {0: (0, 0, 0, 255), 1: (255, 0, 0, 255), 2: (0, 9, 0, 255), 3: (0, 0, 7, 255)}
    return path, written(path, data, crs="EPSG:32633", transform=UTM, colormap=colours, **TILES)


def packed(folder: Path) -> tuple[Path, Known]:
    path = folder / "packed.tif"
    data = rng().integers(-100, 4000, (2, 200, 300)).astype("int16")
    data[:, :9] = -9999
    options = {"scales": (0.1, 0.5), "offsets": (2.0, 1.0), "descriptions": ("red", "nir")}
    return path, written(
        path, data, crs="EPSG:32633", transform=UTM, nodata=-9999, **options, **TILES
    )


def floats(folder: Path) -> tuple[Path, Known]:
    path = folder / "floats.tif"
    data = rng().normal(0, 9, (1, 200, 300)).astype("float32")
    data[:, :9] = -9999
    return path, written(path, data, crs="EPSG:32633", transform=UTM, nodata=-9999, **TILES)


def rotated(folder: Path) -> tuple[Path, Known]:
    path = folder / "rotated.tif"
    data = rng().integers(0, 4000, (1, 200, 300)).astype("uint16")
    turned = UTM * rasterio.Affine.rotation(30)
    return path, written(path, data, crs="EPSG:32633", transform=turned, **TILES)


def user_defined(folder: Path) -> tuple[Path, Known]:
    path = folder / "albers.tif"
    data = rng().integers(0, 4000, (1, 200, 300)).astype("uint16")
    return path, written(path, data, crs=ALBERS, transform=UTM, **TILES)


def ome_tiff(folder: Path) -> tuple[Path, Known]:
    path = folder / "cells.ome.tif"
    data = rng().integers(100, 4000, (4, 5, 128, 160)).astype("uint16")
    metadata = {
        "axes": "CZYX",
        "Channel": {"Name": ["DAPI", "GFP", "mCherry", "Cy5"]},
        "PhysicalSizeX": 0.25,
        "PhysicalSizeXUnit": "µm",
        "PhysicalSizeY": 0.25,
        "PhysicalSizeYUnit": "µm",
        "PhysicalSizeZ": 2.0,
        "PhysicalSizeZUnit": "µm",
    }
    tifffile.imwrite(path, data, metadata=metadata, tile=(64, 64), compression="zlib")
    with tifffile.TiffFile(path) as file:
        pixels = file.series[0].asarray()
    return path, Known(pixels=pixels, axes="czyx", step={"z": 2.0, "y": 0.25, "x": 0.25})


def nitf_utm(folder: Path) -> tuple[Path, Known]:
    path = folder / "utm.ntf"
    data = rng().integers(0, 4000, (1, 200, 300)).astype("uint16")
    options = {"crs": "EPSG:32633", "transform": UTM, "ICORDS": "N"}
    return path, written(path, data, driver="NITF", **options)


def nitf_geographic(folder: Path) -> tuple[Path, Known]:
    path = folder / "degrees.ntf"
    data = rng().integers(0, 256, (3, 200, 300)).astype("uint8")
    options = {"crs": "EPSG:4326", "transform": DEGREES, "ICORDS": "D"}
    return path, written(path, data, driver="NITF", **options)


def nitf_rpc(folder: Path) -> tuple[Path, Known]:
    path = folder / "rpc.ntf"
    data = rng().integers(0, 4000, (1, 200, 300)).astype("uint16")
    numbers = [float(f"{n:.6f}") for n in np.linspace(0.001, 0.02, 20)]
    rpc = RPC(
        err_bias=1.0,
        err_rand=0.5,
        line_off=100.0,
        samp_off=150.0,
        lat_off=50.0,
        long_off=10.0,
        height_off=100.0,
        line_scale=100.0,
        samp_scale=150.0,
        lat_scale=0.1,
        long_scale=0.2,
        height_scale=500.0,
        line_num_coeff=numbers,
        line_den_coeff=[1.0, *numbers[1:]],
        samp_num_coeff=numbers,
        samp_den_coeff=[1.0, *numbers[1:]],
    )
    return path, written(path, data, driver="NITF", rpcs=rpc, RPC00B="YES")


def jp2_gml(folder: Path) -> tuple[Path, Known]:
    path = folder / "gml.jp2"
    data = rng().integers(0, 4000, (1, 256, 320)).astype("uint16")
    options = {"QUALITY": "100", "REVERSIBLE": "YES", "GeoJP2": "NO", "GMLJP2": "YES"}
    return path, written(
        path, data, driver="JP2OpenJPEG", crs="EPSG:32633", transform=UTM, **options
    )


def n5_pyramid(folder: Path) -> tuple[Path, Known]:
    import z5py

    path = folder / "brain.n5"
    data = rng().integers(0, 4000, (20, 96, 128)).astype("uint16")
    with z5py.File(path, "w") as file:
        group = file.create_group("raw")
        for number, level in enumerate((data, data[::2, ::2, ::2])):
            group.create_dataset(f"s{number}", data=level, chunks=(8, 32, 32), compression="gzip")
            if number:
                group[f"s{number}"].attrs["downsamplingFactors"] = [2, 2, 2]
        group.attrs["pixelResolution"] = {"dimensions": [4.0, 4.0, 40.0], "unit": "nm"}
    return path, Known(pixels=data, axes="zyx", step={"z": 40.0, "y": 4.0, "x": 4.0})


def nrrd(folder: Path) -> tuple[Path, Known]:
    import nrrd as pynrrd

    path = folder / "scan.nrrd"
    data = rng().integers(0, 4000, (64, 48, 20)).astype("int16")
    header = {
        "space": "left-posterior-superior",
        "space directions": np.diag([0.5, 0.5, 2.0]),
        "space origin": np.array([1.0, 2.0, 3.0]),
        "space units": ["mm", "mm", "mm"],
    }
    pynrrd.write(str(path), data, header)
    pixels, _ = pynrrd.read(str(path), index_order="C")
    return path, Known(pixels=pixels, axes="zyx", step={"z": 2.0, "y": 0.5, "x": 0.5})


def npy(folder: Path) -> tuple[Path, Known]:
    path = folder / "plain.npy"
    data = rng().normal(0, 9, (200, 300))
    np.save(path, data)
    return path, Known(pixels=data, axes="yx")


SOURCES: dict[str, Callable[[Path], tuple[Path, Known]]] = {
    "TIFF, grey": grey,
    "TIFF, RGB": rgb,
    "TIFF, palette": palette,
    "TIFF, bands scaled apart": packed,
    "TIFF, float with nodata": floats,
    "TIFF, rotated": rotated,
    "TIFF, user-defined CRS": user_defined,
    "OME-TIFF, 4 channels": ome_tiff,
    "NITF, UTM": nitf_utm,
    "NITF, geographic": nitf_geographic,
    "NITF, RPC": nitf_rpc,
    "JP2 with GML": jp2_gml,
    "N5 pyramid": n5_pyramid,
    "NRRD": nrrd,
    "NPY": npy,
}
