"""One small, realistic file of each format, written by that format's usual writer."""

import warnings
from collections.abc import Callable
from pathlib import Path

import imagecodecs
import numpy as np
import rasterio
import tifffile
from rasterio.errors import NotGeoreferencedWarning

import anychunk
import demo_scenes

type Maker = Callable[[Path], np.ndarray]


def npy(path: Path) -> np.ndarray:
    """Write the temperature of a day with numpy."""
    data = demo_scenes.day(24, 200, 300)
    np.save(path, data)
    return data


def cog(path: Path) -> np.ndarray:
    """Write a cloud-optimised GeoTIFF with overviews with GDAL."""
    data = demo_scenes.coast(900, 1200)
    transform = rasterio.transform.from_origin(440720, 3751320, 10, 10)
    options = {"crs": "EPSG:32611", "transform": transform, "compress": "deflate"}
    profile = {"width": 1200, "height": 900, "count": 3, "dtype": "uint8", "blocksize": 256}
    with rasterio.open(path, "w", driver="COG", **profile, **options) as out:
        out.write(data)
    return data


def ome_tiff(path: Path) -> np.ndarray:
    """Write a microscope's stack of two channels with tifffile."""
    data = demo_scenes.cells(8, 256)
    size = {"PhysicalSizeX": 0.2, "PhysicalSizeY": 0.2, "PhysicalSizeZ": 1.0}
    channels = {"Channel": {"Name": ["DAPI", "GFP"]}}
    tifffile.imwrite(
        path, data, tile=(128, 128), compression="zlib", metadata={"axes": "CZYX"} | size | channels
    )
    return data


def nitf(path: Path) -> np.ndarray:
    """Write a blocked image with GDAL."""
    data = (demo_scenes.town(700, 800)[None] * 2000).astype("uint16")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        profile = {"width": 800, "height": 700, "count": 1, "dtype": "uint16"}
        with rasterio.open(path, "w", driver="NITF", BLOCKSIZE=256, **profile) as out:
            out.write(data)
    return data


def jp2(path: Path) -> np.ndarray:
    """Write a lossless JPEG 2000 with several resolutions with OpenJPEG."""
    data = demo_scenes.planet(640).transpose(1, 2, 0)
    path.write_bytes(
        imagecodecs.jpeg2k_encode(np.ascontiguousarray(data), reversible=True, level=0)
    )
    return data.transpose(2, 0, 1)


def n5(path: Path) -> np.ndarray:
    """Write a volume with three levels in blocks of 64."""
    data = demo_scenes.tissue(96, 128, 160)
    options = {"block": (64, 64, 64), "levels": 3}
    anychunk.write(data, str(path), **options, resolution=(2.0, 0.5, 0.5), unit="um")
    return data


def jnrrd(path: Path) -> np.ndarray:
    """Write a tiled scan with several levels."""
    data = demo_scenes.head(64, 192)
    anychunk.write(data, str(path), chunk=(32, 64, 64), compression="zstd", levels=3)
    return data


FILES: dict[str, Maker] = {
    "volume.npy": npy,
    "scene.tif": cog,
    "cells.ome.tif": ome_tiff,
    "image.ntf": nitf,
    "photo.jp2": jp2,
    "tissue.n5": n5,
    "scan.jnrrd": jnrrd,
}

if __name__ == "__main__":
    for _name, _make in FILES.items():
        print(_name, _make(Path(_name)).shape)
