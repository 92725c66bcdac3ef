"""Write Cloud Optimized GeoTIFF, compared with GDAL's COG driver and with tifffile.

The same source, compression, level, predictor, block size, threads and number of overviews. The
files are compared in size, and ours pixel by pixel with the source. tifffile has no overviews: it
writes the full resolution, and we do the same beside it.
"""

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import rasterio
import tifffile
from rasterio.shutil import copy

import anychunk
from bench.measure import OURS, Row, best_of

THREADS = 2
warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
CASES = (("uint8", 3, 200), ("uint16", 1, 20000), ("float32", 1, 1))
COMPRESSIONS = (("deflate", 6), ("zstd", 9))


def make(path: Path, side: int, dtype: str, bands: int, top: int) -> None:
    """Write a smooth field with noise, tiled and not compressed."""
    rng = np.random.default_rng(0)
    x, y = np.sin(np.arange(side) / 300), np.cos(np.arange(side) / 200)
    options = {"driver": "GTiff", "tiled": True, "blockxsize": 512, "blockysize": 512}
    with rasterio.open(
        path, "w", width=side, height=side, count=bands, dtype=dtype, interleave="pixel", **options
    ) as file:
        for band in range(bands):
            field = (y[:, None] * np.roll(x, 100 * band) + 1) / 2
            noisy = field + rng.normal(0, 0.002, (side, side))
            file.write((noisy.clip(0, 1) * top).astype(dtype), band + 1)


def run(quick: bool) -> Iterator[Row]:
    side = 2048 if quick else 8192
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for dtype, bands, top in CASES:
            source = folder / f"{dtype}.tif"
            make(source, side, dtype, bands, top)
            for name, level in COMPRESSIONS:
                yield from against_gdal(source, folder, name, level, 1 if quick else 3)
            yield against_tifffile(source, folder, 1 if quick else 3)
            source.unlink()


def against_gdal(source: Path, folder: Path, name: str, level: int, rounds: int) -> Iterator[Row]:
    ours, theirs = folder / "ours.tif", folder / "theirs.tif"

    def gdal() -> None:
        copy(
            source, theirs, driver="COG", COMPRESS=name.upper(), LEVEL=level, PREDICTOR="YES",
            BLOCKSIZE=512, NUM_THREADS=THREADS, RESAMPLING="AVERAGE",
        )  # fmt: skip

    def we() -> None:
        anychunk.convert(
            source, ours, compression=f"{name}:{level}", workers=THREADS, overwrite=True
        )

    times = best_of({OURS: we, "GDAL COG": gdal}, rounds=rounds)
    ours_cpu, gdal_cpu = (min(processor_time(call) for _ in range(rounds)) for call in (we, gdal))
    with rasterio.open(source) as a, rasterio.open(ours) as b, rasterio.open(theirs) as c:
        kinds = {len(b.overviews(1)), len(c.overviews(1))}
        is_same = len(kinds) == 1 and (a.read() == b.read()).all()
        what = f"{b.count} x {b.dtypes[0]}"
    if not is_same:
        raise AssertionError(f"{what} {name}: other pixels or overviews")
    sizes = ours.stat().st_size / theirs.stat().st_size
    ratio = times["GDAL COG"] / times[OURS]
    detail = f"{times[OURS]:.2f} s, GDAL {times['GDAL COG']:.2f} s"
    yield Row(f"COG {what} {name}:{level}", ratio, ">= 1", detail, times)
    spent = f"{ours_cpu:.2f} s, GDAL {gdal_cpu:.2f} s"
    yield Row(f"COG {what} {name}:{level}, processor time", gdal_cpu / ours_cpu, ">= 1", spent)
    yield Row(f"COG {what} {name}:{level}, size to GDAL's", sizes, "<= 1.03")


def processor_time(call: Callable[[], object]) -> float:
    """Return the processor time of a call, of all its threads: other work disturbs it less."""
    start = time.process_time()
    call()
    return time.process_time() - start


def against_tifffile(source: Path, folder: Path, rounds: int) -> Row:
    ours, theirs = folder / "ours.tif", folder / "theirs.tif"
    values = tifffile.imread(source)

    def peer() -> None:
        tifffile.imwrite(
            theirs, values, tile=(512, 512), compression="zlib", predictor=True,
            compressionargs={"level": 6}, maxworkers=THREADS,
        )  # fmt: skip

    def we() -> None:
        anychunk.convert(source, ours, levels=1, workers=THREADS, overwrite=True)

    times = best_of({OURS: we, "tifffile": peer}, rounds=rounds)
    detail = f"{times[OURS]:.2f} s, tifffile from memory {times['tifffile']:.2f} s"
    case = f"TIFF {values.dtype}, no overviews, deflate:6"
    return Row(case, times["tifffile"] / times[OURS], "", detail, times)
