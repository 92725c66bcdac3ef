"""One small file of each format, to try anychunk with; each by a usual writer of its format.

Those that only GDAL writes are part of the package, see `.ci/demo-data`; the others are computed.
"""

import gzip
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

import anychunk
from anychunk.demo import scenes

DATA = Path(__file__).parent / "data"


def npy(path: Path) -> np.ndarray:
    """Write with numpy."""
    data = scenes.day(24, 200, 300)
    np.save(path, data)
    return data


def ome_tiff(path: Path) -> np.ndarray:
    """Write with tifffile."""
    import tifffile

    data = scenes.cells(8, 256)
    size = {"PhysicalSizeX": 0.2, "PhysicalSizeY": 0.2, "PhysicalSizeZ": 1.0}
    about: dict[str, Any] = {"axes": "CZYX", **size, "Channel": {"Name": ["DAPI", "GFP"]}}
    tifffile.imwrite(path, data, tile=(128, 128), compression="zlib", metadata=about)
    return data


def jpeg2000(path: Path) -> np.ndarray:
    """Write without loss, with several resolutions, with OpenJPEG."""
    import imagecodecs

    data = np.ascontiguousarray(scenes.planet(512).transpose(1, 2, 0))
    path.write_bytes(imagecodecs.jpeg2k_encode(data, reversible=True, level=0))
    return data.transpose(2, 0, 1)


def nifti(path: Path) -> np.ndarray:
    """Write a header of NIfTI-1 and the samples, compressed by gzip, as scanners' software does."""
    data = scenes.head(48, 128, inside=0.85).astype("<i2")
    sizes = (1.0, 1.6, 1.6, 2.0)  # mm along x, y, z
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *data.shape[::-1], 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, 4, 16)  # int16, 16 bits
    struct.pack_into("<4f", header, 76, *sizes)
    struct.pack_into("<f", header, 108, 352.0)
    header[123] = 2  # mm
    header[148 : 148 + 12] = b"computed    "
    struct.pack_into("<h", header, 254, 1)  # sform: positions of a scanner
    for row, n in enumerate(data.shape[::-1]):
        affine = [0.0, 0.0, 0.0, -sizes[row + 1] * (n - 1) / 2]
        affine[row] = sizes[row + 1]
        struct.pack_into("<4f", header, 280 + 16 * row, *affine)
    header[344:348] = b"n+1\0"
    path.write_bytes(gzip.compress(bytes(header) + data.tobytes(), 6, mtime=0))
    return data


def n5(path: Path) -> np.ndarray:
    """Write a volume with three levels in blocks of 32 x 64 x 64."""
    data = scenes.tissue(48, 112, 144)
    block, size = (32, 64, 64), (2.0, 0.5, 0.5)
    anychunk.write(data, str(path), chunk=block, levels=3, resolution=size, unit="um")
    return data


def jnrrd(path: Path) -> np.ndarray:
    """Write a tiled scan with several levels."""
    data = scenes.head(64, 160)
    anychunk.write(data, str(path), chunk=(32, 64, 64), compression="zstd", levels=3)
    return data


def shipped(path: Path) -> None:
    """Copy a file that GDAL wrote."""
    shutil.copyfile(DATA / path.name, path)


class File(NamedTuple):
    make: Callable[[Path], np.ndarray | None]
    about: str


FILES = {
    "scene.tif": File(shipped, "Cloud Optimized GeoTIFF: a coast from space, 3 bands, 3 levels"),
    "cells.ome.tif": File(ome_tiff, "OME-TIFF: cells under a microscope, 2 channels, 8 planes"),
    "image.ntf": File(shipped, "NITF: fields and a town from above"),
    "photo.jp2": File(jpeg2000, "JPEG 2000: a planet"),
    "tissue.n5": File(n5, "N5: a volume of cells with membranes, 3 levels"),
    "scan.jnrrd": File(jnrrd, "JNRRD: slices through a head, 3 levels"),
    "brain.nii.gz": File(nifti, "NIfTI: a brain"),
    "terrain.dt0": File(shipped, "DTED: heights of mountains"),
    "volume.npy": File(npy, "NPY: the temperature of a world during a day"),
}


def write(folder: Path) -> Iterator[tuple[str, bool]]:
    """Write the files that `folder` lacks; yield the name of each, and whether it is new."""
    folder.mkdir(parents=True, exist_ok=True)
    # complete, or absent: an interrupted call leaves no half of a file that the next one keeps
    with TemporaryDirectory(prefix=".", dir=folder) as name:
        for file, (make, _) in FILES.items():
            is_new = not os.path.lexists(folder / file)
            if is_new:
                make(Path(name, file))
                Path(name, file).rename(folder / file)
            yield file, is_new
