"""TIFF: full reads, windows and opening, against the readers of the field.

Peers: rasterio with one thread a core, tifffile with its threads, tifffile.aszarr through zarr,
virtual-tiff where it is installed. osml-imagery-io is left out: it needs an environment of its own.
"""

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import zarr

import anychunk
from bench.measure import Row, best_of, cores

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


def field(size: int, kind: str) -> np.ndarray:
    """Give a smooth field with noise: compressible as measurements are."""
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


def virtual_tiff(path: str) -> Callable[[], Any] | None:
    """Give a reader through virtual-tiff, or None where it does not run or open the file."""
    try:
        from obspec_utils.registry import ObjectStoreRegistry
        from obstore.store import LocalStore
        from virtual_tiff import VirtualTIFF

        registry = ObjectStoreRegistry({"file://": LocalStore()})
        store = VirtualTIFF(ifd=0)(f"file://{path}", registry)
        group = zarr.open_group(store, mode="r", zarr_format=3)
        array = next(iter(group.arrays()))[1]
        array[:1, :1]
    except Exception:  # noqa: BLE001 - a peer that does not run is left out, and said to be
        return None
    return lambda: array[...]


def full_read(path: str, name: str, target: float, rounds: int) -> Row:
    calls: dict[str, Callable[[], Any]] = {
        "anychunk": lambda: anychunk.open_array(path)[...],
        "rasterio": lambda: read_rasterio(path),
        "tifffile": lambda: tifffile.imread(path, maxworkers=cores()),
        "aszarr": lambda: read_aszarr(path),
    }
    virtual = virtual_tiff(path)
    if virtual is not None:
        calls["virtual-tiff"] = virtual
    return row(f"TIFF full read, {name}", best_of(calls, rounds=rounds), f">= {target}")


def row(case: str, seconds: dict[str, float], target: str) -> Row:
    mine = seconds["anychunk"]
    peers = {name: value for name, value in seconds.items() if name != "anychunk"}
    best = min(peers, key=lambda name: peers[name])
    detail = ", ".join(f"{name} {value * 1000:.1f} ms" for name, value in seconds.items())
    return Row(case, peers[best] / mine, target, f"best peer {best}: {detail}", seconds)


def windows(path: str, rounds: int) -> list[Row]:
    """One 100 x 100 window: warm, and with the opening."""
    place = (slice(1000, 1100), slice(1000, 1100))
    array = anychunk.open_array(path)
    store = tifffile.imread(path, aszarr=True)
    warm_zarr = zarr.open_array(store, mode="r")
    import rasterio
    from rasterio.windows import Window

    dataset = rasterio.open(path)
    warm = {
        "anychunk": lambda: array[:, *place],
        "aszarr": lambda: warm_zarr[place],
        "rasterio": lambda: dataset.read(window=Window.from_slices(*place)),
    }

    def first_aszarr() -> Any:
        with tifffile.imread(path, aszarr=True) as fresh:
            return zarr.open_array(fresh, mode="r")[place]

    cold = {
        "anychunk": lambda: anychunk.open_array(path)[:, *place],
        "aszarr": first_aszarr,
        "rasterio": lambda: read_rasterio(path, place),
    }
    return [
        row("TIFF one 100 x 100 window, warm", best_of(warm, rounds=20 * rounds), ">= 1.0"),
        row("TIFF open and one window", best_of(cold, rounds=10 * rounds), ">= 1.0"),
    ]


def opening(folder: Path) -> Row:
    """A file of 100,000 tiles, all of them sparse but the table full."""
    path = str(folder / "many.tif")
    tile = np.zeros((16, 16), np.uint8)
    side = 317 * 16

    def tiles() -> Any:
        for _ in range(317 * 317):
            yield tile

    tifffile.imwrite(path, tiles(), shape=(side, side), dtype=np.uint8, tile=(16, 16),
                     compression="zlib", maxworkers=1)  # fmt: skip
    times = []
    for _ in range(7):
        start = time.perf_counter()
        anychunk.open_array(path)
        times.append(time.perf_counter() - start)
    return Row("TIFF open of 100,489 tiles", min(times) * 1000, "<= 50", "milliseconds")


def run(quick: bool) -> list[Row]:
    warnings.simplefilter("ignore")  # of the peers: no georeference, codecs of no specification
    size, rounds = (2048, 2) if quick else (8192, 5)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fields: dict[str, np.ndarray] = {}
        for number, (case, (kind, options, target)) in enumerate(CASES.items()):
            if kind not in fields:
                fields = {kind: field(size, kind)}
            path = str(folder / f"{number}.tif")
            tifffile.imwrite(path, fields[kind], metadata=None, **options)
            rows.append(full_read(path, case, target, rounds))
            if number == 0:
                rows += windows(path, rounds)
            Path(path).unlink()
        rows.append(opening(folder))
    return rows
