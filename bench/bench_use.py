"""What users do all day: small files, windows, Dask, the command line, many processes.

Each compares with what the same user would do without anychunk.
"""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import zarr

import anychunk
from bench.bench_tiff import field
from bench.measure import OURS, Row, best_of, compare, milliseconds

WINDOW = 200


def small_files(folder: Path, count: int, rounds: int) -> Iterator[Row]:
    """Open and read each of many small files."""
    import glymur
    import imagecodecs
    import rasterio

    image = np.arange(256 * 256, dtype=np.uint16).reshape(256, 256)
    paths = [folder / f"{number}.tif" for number in range(count)]
    for path in paths:
        tifffile.imwrite(path, image, tile=(128, 128), compression="zlib")

    def rasterios(paths: list[Path]) -> None:
        for path in paths:
            with rasterio.open(path) as dataset:
                dataset.read()

    def each(read: Callable[[str], Any], paths: list[Path]) -> Callable[[], None]:
        names = [str(path) for path in paths]

        def call() -> None:
            for name in names:
                read(name)

        return call

    def ours(name: str) -> Any:
        return anychunk.open_array(name)[...]

    calls = {
        OURS: each(ours, paths),
        "rasterio": lambda: rasterios(paths),
        "tifffile": each(tifffile.imread, paths),
    }
    yield compare(f"{count} small TIFF files, open and read each", calls, 1.0, rounds=rounds)
    arrays = [folder / f"{number}.npy" for number in range(count)]
    for path in arrays:
        np.save(path, image)
    calls = {OURS: each(ours, arrays), "numpy.load": each(np.load, arrays)}
    seconds = best_of(calls, rounds=rounds)
    ratio = seconds["numpy.load"] / seconds[OURS]
    yield Row(f"{count} small NPY files, open and read each", ratio, "", milliseconds(seconds))
    pictures = [folder / f"{number}.jp2" for number in range(count // 10)]
    for path in pictures:
        path.write_bytes(imagecodecs.jpeg2k_encode(image, codecformat="JP2", level=0))
    calls = {
        OURS: each(ours, pictures),
        "rasterio": lambda: rasterios(pictures),
        "glymur": each(lambda name: glymur.Jp2k(name)[:], pictures),
    }
    name = f"{len(pictures)} small JP2 files, open and read each"
    yield compare(name, calls, 1.0, rounds=rounds)


def random_windows(path: str, size: int, rounds: int) -> Iterator[Row]:
    """Read random windows of one open file, from one thread and from four."""
    import rasterio
    from rasterio.windows import Window

    corners = np.random.default_rng(2).integers(0, size - WINDOW, (200, 2)).tolist()
    array = anychunk.open_array(path)
    store = zarr.open_array(tifffile.imread(path, aszarr=True), mode="r")
    opened = threading.local()

    def ours(place: list[int]) -> Any:
        y, x = place
        return array[y : y + WINDOW, x : x + WINDOW]

    def aszarr(place: list[int]) -> Any:
        y, x = place
        return store[y : y + WINDOW, x : x + WINDOW]

    def rasterios(place: list[int]) -> Any:
        # a dataset may be used by one thread only
        dataset = opened.__dict__.setdefault("file", None) or rasterio.open(path)
        opened.file = dataset
        return dataset.read(1, window=Window(place[1], place[0], WINDOW, WINDOW))

    for threads in (1, 4):
        with ThreadPoolExecutor(threads) as pool:
            calls = {
                name: lambda read=read: list(pool.map(read, corners))
                for name, read in {
                    OURS: ours, "rasterio": rasterios, "tifffile.aszarr": aszarr,
                }.items()
            }  # fmt: skip
            case = f"200 random windows of {WINDOW} x {WINDOW} from {threads} threads"
            yield compare(case, calls, 1.0, rounds=rounds)


def dask_mean(path: str, rounds: int) -> Row:
    """Compute the mean of an image with xarray and Dask."""
    import dask.array
    import rioxarray
    import xarray as xr

    chunks = {"y": 2048, "x": 2048}

    def ours() -> float:
        with xr.open_dataset(path, engine="anychunk", chunks=chunks) as dataset:
            first = next(iter(dataset.data_vars.values()))
            return float(first.mean(dtype="float64").compute())

    def rioxarrays() -> float:
        with rioxarray.open_rasterio(path, chunks=chunks, lock=False) as array:
            return float(array.mean(dtype="float64").compute())

    def tifffiles() -> float:
        with tifffile.imread(path, aszarr=True) as store:
            array = dask.array.from_zarr(zarr.open_array(store, mode="r"), chunks=(2048, 2048))
            return float(array.mean(dtype="float64").compute())

    assert abs(ours() - rioxarrays()) < 1e-6
    calls = {OURS: ours, "rioxarray": rioxarrays, "dask on tifffile": tifffiles}
    return compare("mean of a COG by xarray and Dask", calls, 1.0, rounds=rounds)


def command_line(path: str, rounds: int) -> Iterator[Row]:
    """Start the command, with an interpreter that has its own start in it."""
    command = str(Path(sys.executable).with_name("anychunk"))
    for arguments, most in (["--help"], 0.25), (["info", path], 0.4):
        calls = {OURS: lambda arguments=arguments: wait_for([command, *arguments])}
        seconds = best_of(calls, rounds=rounds)[OURS]
        yield Row(f"anychunk {arguments[0]}, seconds", seconds, f"<= {most}")


def processes(path: str, rounds: int) -> Row:
    """Read one file by eight processes at once, and one after the other."""
    code = f"import anychunk; anychunk.open_array({path!r})[...]"
    commands = [[sys.executable, "-c", code]] * 8

    def at_once() -> None:
        started = [subprocess.Popen(command) for command in commands]
        assert not any(process.wait() for process in started)

    def in_turn() -> None:
        for command in commands:
            wait_for(command)

    seconds = best_of({OURS: at_once, "in turn": in_turn}, rounds=rounds)
    ratio = seconds["in turn"] / seconds[OURS]
    return Row(
        "eight processes on one file, at once / in turn", ratio, ">= 1", milliseconds(seconds)
    )


def wait_for(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def run(*, quick: bool) -> Iterator[Row]:
    size, rounds = (2048, 2) if quick else (8192, 3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from small_files(folder, 100 if quick else 300, rounds)
        path = str(folder / "large.tif")
        image = field(size, "uint16")
        tifffile.imwrite(path, image, tile=(512, 512), compression="zlib", predictor=2)
        yield from random_windows(path, size, rounds)
        yield dask_mean(path, rounds)
        yield from command_line(path, rounds)
        yield processes(path, 1 if quick else 2)
