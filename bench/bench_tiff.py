"""TIFF: full reads, windows, a level and opening, compared with other readers.

Each full read opens the file. Peers: rasterio with one thread per core, tifffile with its threads,
tifffile.aszarr through zarr, and virtual-tiff, osml-imagery-io and async-geotiff in separate
processes. The bare decoder calls run on one thread per core and discard the pixels.
"""

import itertools
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import tifffile
import zarr

import anychunk
from bench import peers
from bench.measure import BARE, OURS, Row, Times, compare, cores

ELSEWHERE = ("virtual-tiff", "osml-imagery-io", "async-geotiff")

CASES: dict[str, tuple[str, dict[str, Any], float]] = {
    "deflate, predictor 2, 512-tiles": (
        "uint16", {"compression": "zlib", "predictor": 2, "tile": (512, 512)}, 1.25),
    "zstd, 512-tiles": ("uint16", {"compression": "zstd", "tile": (512, 512)}, 1.35),
    "LZW, predictor 2, 512-tiles": (
        "uint16", {"compression": "lzw", "predictor": 2, "tile": (512, 512)}, 1.5),
    "uncompressed, 512-tiles": ("uint16", {"tile": (512, 512)}, 1.0),
    "uncompressed, strips": ("uint16", {"rowsperstrip": 64}, 1.0),
    "JPEG RGB, 512-tiles": (
        "rgb", {"compression": "jpeg", "compressionargs": {"level": 85},
                "photometric": "ycbcr", "tile": (512, 512)}, 1.1),
    "float32 deflate, predictor 3, 512-tiles": (
        "float32", {"compression": "zlib", "predictor": 3, "tile": (512, 512)}, 1.2),
    "deflate, predictor 2, 128-tiles": (
        "uint16", {"compression": "zlib", "predictor": 2, "tile": (128, 128)}, 1.6),
}  # fmt: skip


GEOREFERENCE = (
    (33550, "d", 3, (10.0, 10.0, 0.0), True),
    (33922, "d", 6, (0.0, 0.0, 0.0, 500000.0, 5000000.0, 0.0), True),
    (34735, "H", 16, (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32633), True),
)
"""UTM zone 33, pixels of 10 m: async-geotiff opens only georeferenced files."""


def field(size: int, kind: str) -> np.ndarray:
    """Return a smooth field with noise, about as compressible as measurements."""
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / size
    smooth = np.sin(7 * x) * np.cos(5 * y) + 0.3 * np.sin(31 * x * y)
    sigma = 0.1 if kind == "rgb" else 0.002
    noise = np.random.default_rng(1).normal(0, sigma, (size, size)).astype(np.float32)
    values = smooth + noise
    if kind == "float32":
        return values
    if kind == "rgb":
        levels = ((values + 1.5) * 80).clip(0, 255).astype(np.uint8)
        return np.stack([levels, levels[::-1], levels.T], axis=-1)
    return ((values + 2) * 10000).astype(np.uint16)


def read_rasterio(path: str, window: tuple[slice, slice] | None = None) -> Any:
    import rasterio
    from rasterio.windows import Window

    with rasterio.open(path, num_threads=cores()) as dataset:
        if window is None:
            return dataset.read()
        rows, columns = window
        return dataset.read(window=Window.from_slices(rows, columns))


def read_aszarr(path: str) -> Any:
    with tifffile.imread(path, aszarr=True) as store:
        return zarr.open_array(store, mode="r")[...]


def bare(path: str) -> Callable[[], None]:
    """Return a function that decodes a file's tiles by bare calls, one buffer per thread.

    Where nothing is compressed, the limit is to copy all of it to fresh memory once.
    """
    with tifffile.TiffFile(path) as file:
        page = file.pages.first
        ranges = list(zip(page.dataoffsets, page.databytecounts, strict=True))
        compression, predictor, tables = page.compression, page.predictor, page.jpegtables
        width, nbytes = page.chunks[1], int(np.prod(page.chunks)) * page.dtype.itemsize
        dtype = page.dtype
    whole = np.memmap(path, np.uint8)

    def copied() -> np.ndarray:
        fresh, cuts = (
            np.empty(len(whole), np.uint8),
            np.linspace(0, len(whole), cores() + 1, dtype=int),
        )
        halves = [slice(*ends) for ends in itertools.pairwise(cuts)]
        list(pool.map(lambda half: np.copyto(fresh[half], whole[half]), halves))
        return fresh

    def decode(data: np.ndarray, out: np.ndarray) -> None:
        match compression.name:
            case "ADOBE_DEFLATE":
                imagecodecs.deflate_decode(data, out=out)
            case "ZSTD":
                imagecodecs.zstd_decode(data, out=out)
            case "LZW":
                imagecodecs.lzw_decode(data, out=out)
            case "JPEG":
                imagecodecs.jpeg8_decode(data, tables=tables, outcolorspace=2)
        samples = out.view(dtype).reshape(-1, width) if predictor != 1 else out
        if predictor == 2:
            imagecodecs.delta_decode(samples, axis=-1, out=samples)
        elif predictor == 3:
            imagecodecs.floatpred_decode(samples, axis=-1)

    def some(first: int) -> None:
        out = buffers.__dict__.setdefault("out", np.empty(nbytes, np.uint8))
        for offset, length in ranges[first :: cores()]:
            decode(whole[offset : offset + length], out)

    buffers, pool = threading.local(), ThreadPoolExecutor(cores())
    return copied if compression.name == "NONE" else lambda: list(pool.map(some, range(cores())))


def full_read(path: str, name: str, target: float, rounds: int) -> Row:
    truth, wrong = anychunk.open_array(path)[...], {}
    calls: dict[str, Callable[[], Any]] = {
        OURS: lambda: anychunk.open_array(path)[...],
        "rasterio": lambda: read_rasterio(path),
        "tifffile": lambda: tifffile.imread(path, maxworkers=cores()),
        "tifffile.aszarr": lambda: read_aszarr(path),
        BARE: bare(path),
    }
    assert np.array_equal(truth, calls["rasterio"]())
    calls |= peers.calls(ELSEWHERE, path, truth, wrong)
    return compare(f"TIFF {name}, full read", calls, target, rounds=rounds, wrong=wrong)


def windows(path: str, rounds: int) -> list[Row]:
    """Read a 100 x 100 window: of an open file, and with opening it."""
    import rasterio
    from rasterio.windows import Window

    place = (slice(1000, 1100), slice(1000, 1100))
    array = anychunk.open_array(path)
    warm_zarr = zarr.open_array(tifffile.imread(path, aszarr=True), mode="r")
    dataset = rasterio.open(path, num_threads=cores())
    warm = {
        OURS: lambda: array[..., *place],
        "tifffile.aszarr": lambda: warm_zarr[place],
        "rasterio": lambda: dataset.read(window=Window.from_slices(*place)),
    }

    def first_aszarr() -> Any:
        with tifffile.imread(path, aszarr=True) as fresh:
            return zarr.open_array(fresh, mode="r")[place]

    wrong: dict[str, str] = {}
    spans = [(s.start, s.stop) for s in place]
    cold = {
        OURS: lambda: anychunk.open_array(path)[:, *place],
        "tifffile.aszarr": first_aszarr,
        "rasterio": lambda: read_rasterio(path, place),
        **peers.calls(ELSEWHERE, path, array[..., *place], wrong, spans),
    }
    return [
        compare("TIFF 100 x 100 window, opened before", warm, 1.0, rounds=20 * rounds),
        compare("TIFF open and 100 x 100 window", cold, 1.0, rounds=5 * rounds, wrong=wrong),
    ]


def level(folder: Path, size: int, rounds: int) -> Row:
    """Open and read the quarter-resolution level of a COG."""
    import rasterio

    path = str(folder / "levels.tif")
    profile = {"height": size, "width": size, "count": 1, "dtype": "uint16"}
    options = {"BLOCKSIZE": 512, "COMPRESS": "DEFLATE", "PREDICTOR": "YES"}
    with rasterio.open(path, "w", driver="COG", **profile, **options) as file:
        file.write(field(size, "uint16"), 1)

    def theirs() -> Any:
        with rasterio.open(path, overview_level=1, num_threads=cores()) as dataset:
            return dataset.read()

    def tifffiles() -> Any:
        return tifffile.imread(path, level=2, maxworkers=cores())

    ours = anychunk.open_array(path, level=2)[...]
    assert np.array_equal(ours, theirs())
    calls = {
        OURS: lambda: anychunk.open_array(path, level=2)[...],
        "rasterio": theirs,
        "tifffile": tifffiles,
    }
    found = compare("COG deflate, quarter-resolution level", calls, 1.0, rounds=rounds)
    Path(path).unlink()
    return found


def opening(folder: Path, across: int) -> Row:
    """Open a file of very many tiles."""
    path = str(folder / "many.tif")
    tile = np.zeros((16, 16), np.uint8)
    side = across * 16

    def tiles() -> Any:
        for _ in range(across * across):
            yield tile

    tifffile.imwrite(path, tiles(), shape=(side, side), dtype=np.uint8, tile=(16, 16),
                     compression="zlib", maxworkers=1)  # fmt: skip
    import rasterio

    def rasterios() -> None:
        rasterio.open(path).close()

    calls = {OURS: lambda: anychunk.open_array(path), "rasterio": rasterios}
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(7):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            rounds[name].append(time.perf_counter() - start)
    seconds = Times(rounds)
    return Row(
        f"TIFF open of {across * across:,} tiles, ms",
        seconds[OURS] * 1e3,
        "<= 50",
        "milliseconds",
        seconds,
    )


def run(quick: bool) -> list[Row]:
    warnings.simplefilter("ignore")  # of the peers: no georeference, codecs without a specification
    size, rounds = (2048, 3) if quick else (8192, 5)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fields: dict[str, np.ndarray] = {}
        for number, (case, (kind, options, target)) in enumerate(CASES.items()):
            if kind not in fields:
                fields = {kind: field(size, kind)}
            path = str(folder / f"{number}.tif")
            tifffile.imwrite(path, fields[kind], metadata=None, extratags=GEOREFERENCE, **options)
            rows.append(full_read(path, case, target, rounds))
            if number == 0:
                rows += windows(path, rounds)
            Path(path).unlink()
        rows.append(level(folder, size, rounds))
        rows.append(opening(folder, 50 if quick else 317))
    return rows
