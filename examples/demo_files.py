"""One small, real-looking file in each format, made by that format's usual writer."""

import warnings
from collections.abc import Callable
from pathlib import Path

import imagecodecs
import numpy as np
import rasterio
import tifffile
from rasterio.errors import NotGeoreferencedWarning

import anychunk

type Maker = Callable[[Path], np.ndarray]


def field(*shape: int, seed: int = 0) -> np.ndarray:
    """A smooth field with noise, between 0 and 1."""
    grids = np.meshgrid(*(np.linspace(0, 5 + i, n) for i, n in enumerate(shape)), indexing="ij")
    waves = sum(np.sin(g * (i + 1) + seed) for i, g in enumerate(grids))
    blobs = np.prod([np.cos(g - seed) for g in grids], axis=0)
    noise = np.random.default_rng(seed).normal(0, 0.04, shape)
    total = waves / len(shape) + blobs + noise
    return (total - total.min()) / np.ptp(total)


def npy(path: Path) -> np.ndarray:
    data = (field(24, 200, 300) * 40000).astype("uint16")
    np.save(path, data)
    return data


def cog(path: Path) -> np.ndarray:
    """A cloud-optimised GeoTIFF with overviews, by GDAL."""
    data = np.stack([(field(900, 1200, seed=i) * 250).astype("uint8") for i in range(3)])
    transform = rasterio.transform.from_origin(440720, 3751320, 10, 10)
    options = {"crs": "EPSG:32611", "transform": transform, "compress": "deflate"}
    profile = {"width": 1200, "height": 900, "count": 3, "dtype": "uint8", "blocksize": 256}
    with rasterio.open(path, "w", driver="COG", **profile, **options) as out:
        out.write(data)
    return data


def ome_tiff(path: Path) -> np.ndarray:
    """A microscope's stack of two channels, by tifffile."""
    data = np.stack([(field(8, 256, 256, seed=i) * 4000).astype("uint16") for i in range(2)])
    size = {"PhysicalSizeX": 0.2, "PhysicalSizeY": 0.2, "PhysicalSizeZ": 1.0}
    channels = {"Channel": {"Name": ["DAPI", "GFP"]}}
    tifffile.imwrite(
        path, data, tile=(128, 128), compression="zlib", metadata={"axes": "CZYX"} | size | channels
    )
    return data


def nitf(path: Path) -> np.ndarray:
    """A blocked image, by GDAL."""
    data = (field(1, 700, 800, seed=3) * 2000).astype("uint16")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        profile = {"width": 800, "height": 700, "count": 1, "dtype": "uint16"}
        with rasterio.open(path, "w", driver="NITF", BLOCKSIZE=256, **profile) as out:
            out.write(data)
    return data


def jp2(path: Path) -> np.ndarray:
    """A lossless JPEG 2000 with resolutions, by OpenJPEG."""
    data = np.stack([(field(640, 640, seed=4 + i) * 255).astype("uint8") for i in range(3)], -1)
    path.write_bytes(imagecodecs.jpeg2k_encode(data, reversible=True, level=0))
    return data.transpose(2, 0, 1)


def n5(path: Path) -> np.ndarray:
    """A volume with three levels, in blocks of 64."""
    data = (field(96, 128, 160, seed=7) * 255).astype("uint8")
    options = {"axes": "reversed", "block": (64, 64, 64), "levels": 3}
    anychunk.write(data, str(path), **options, resolution=(2.0, 0.5, 0.5), unit="um")
    return data


def jnrrd(path: Path) -> np.ndarray:
    """A scan with a pyramid, in tiles."""
    data = (field(64, 192, 192, seed=8) * 3000 - 1000).astype("int16")
    anychunk.write(data, str(path), tile=(32, 64, 64), compression="zstd", levels=3)
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
