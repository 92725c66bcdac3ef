"""Small files in every format and data type, written by each format's usual library."""

import warnings
from pathlib import Path

import imagecodecs
import numpy as np
import rasterio
import tifffile
from rasterio.errors import NotGeoreferencedWarning

import anychunk
from anychunk.model.index import ArrayIndex, walk
from anychunk.zarr.array import open_path

INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
SHAPE = (2, 70, 90)
"""Shape of every image: sizes that are not multiples of the chunk shape."""


def values(dtype: str, shape=SHAPE) -> np.ndarray:
    """Return random values over the whole range of a data type."""
    kind, rng = np.dtype(dtype), np.random.default_rng(len(dtype))
    if kind.kind == "b":
        return rng.random(shape) > 0.5
    if kind.kind == "c":
        return (rng.normal(0, 9, shape) + 1j * rng.normal(0, 9, shape)).astype(kind)
    if kind.kind == "f":
        return rng.normal(0, 100, shape).astype(kind)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    return rng.integers(low, high, shape, kind, endpoint=True)


def npy(path: Path, data: np.ndarray) -> None:
    np.save(path, data)


def tiff(path: Path, data: np.ndarray) -> None:
    tifffile.imwrite(path, data, tile=(32, 48), compression="zlib", photometric="minisblack")


def nitf(path: Path, data: np.ndarray) -> None:
    profile = {"width": data.shape[2], "height": data.shape[1], "count": len(data)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", driver="NITF", dtype=data.dtype, **profile) as out:
            out.write(data)


def jpeg2000(path: Path, data: np.ndarray) -> None:
    path.write_bytes(
        imagecodecs.jpeg2k_encode(data[0], reversible=True, level=0, codecformat="jp2")
    )


def n5(path: Path, data: np.ndarray) -> None:
    anychunk.write(data, str(path), chunk=(1, 32, 32), compression="gzip")


def jnrrd(path: Path, data: np.ndarray) -> None:
    anychunk.write(data, str(path), chunk=(1, 32, 32), compression="zstd")


MAKERS = {
    ".npy": (npy, ["bool", *INTEGERS, "float16", "float32", "float64", "complex64", "complex128"]),
    ".tif": (tiff, [*INTEGERS, "float16", "float32", "float64", "complex64", "complex128"]),
    ".ntf": (
        nitf,
        ["uint8", "uint16", "int16", "uint32", "int32", "float32", "float64", "complex64"],
    ),
    ".jp2": (jpeg2000, ["uint8", "uint16"]),
    ".n5": (n5, [*INTEGERS, "float32", "float64"]),
    ".jnrrd": (jnrrd, [*INTEGERS, "float32", "float64"]),
}
NAMES = [f"{dtype}{suffix}" for suffix, (_, dtypes) in MAKERS.items() for dtype in dtypes]


def make(folder: Path, name: str) -> None:
    dtype, _, suffix = name.partition(".")
    MAKERS[f".{suffix}"][0](folder / name, values(dtype))


def first(path: Path) -> tuple[str, np.ndarray]:
    """Return the path of the first array of a file and its pixels, read without a server."""
    node = anychunk.index(path)
    place = next(place for place, found in walk(node) if isinstance(found, ArrayIndex))
    return place, np.asarray(open_path(node, place))


def decoded(response, shape, dtype):
    assert response.status_code == 200, response.text
    return np.frombuffer(imagecodecs.zstd_decode(response.content), dtype).reshape(shape)
