"""Convert a TIFF to OME-Zarr with four levels, compared with zarr and dask by hand.

Each runs in a separate process, whose peak memory is read at its end; 2 GiB, `--quick` 32 MiB.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tifffile

from bench.measure import Row

OURS = """
import anychunk
anychunk.convert({source!r}, {target!r}, levels=4, chunk=(512, 512), shard=(2048, 2048))
"""
BY_HAND = """
import dask.array as da, numpy as np, tifffile, zarr
group = zarr.open_group({target!r}, mode="w", zarr_format=3)
store = tifffile.imread({source!r}, aszarr=True)
level = da.from_zarr(zarr.open_array(store, mode="r")).rechunk((2048, 2048))
for number in range(4):
    array = group.create_array(
        str(number), shape=level.shape, chunks=(512, 512), shards=(2048, 2048), dtype="uint16",
        compressors=zarr.codecs.ZstdCodec(level=3),
    )
    da.store(level, array, lock=False)
    read = da.from_zarr(array)
    level = da.coarsen(np.mean, read, {{0: 2, 1: 2}}, trim_excess=True)
    level = level.round().astype("uint16").rechunk((2048, 2048))
"""
END = """
import re
from pathlib import Path
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def make(path: Path, side: int) -> None:
    """Write a smooth field with noise, tiled and deflated, a stripe of tiles at a time."""
    rng = np.random.default_rng(0)
    x = np.sin(np.arange(side) / 300)
    noise = rng.normal(0, 20, (512, side))

    def tiles():
        for y in range(0, side, 512):
            rows = np.cos(np.arange(y, y + 512) / 200)
            stripe = ((rows[:, None] * x + 1.5) * 8000 + noise).astype("uint16")
            for start in range(0, side, 512):
                yield stripe[:, start : start + 512]

    tifffile.imwrite(
        path,
        tiles(),
        shape=(side, side),
        dtype="uint16",
        tile=(512, 512),
        compression="zlib",
        predictor=True,
    )


def timed(script: str, source: Path, target: Path) -> tuple[float, float]:
    """Run a script; return seconds and peak MiB, without the start of Python."""
    shutil.rmtree(target, ignore_errors=True)
    code = script.format(source=str(source), target=str(target))
    around = f"import time\nbegin = time.perf_counter()\n{code}\nprint(time.perf_counter() - begin)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", around + END],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, peak = done.stdout.split()[-2:]
    return float(seconds), int(peak) / 1024


def run(quick: bool) -> list[Row]:
    side = 4096 if quick else 32768
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        source, target = folder / "a.tif", folder / "out.zarr"
        make(source, side)
        best: dict[str, tuple[float, float]] = {}
        for _ in range(1 if quick else 2):
            for name, script in (("anychunk", OURS), ("by hand", BY_HAND)):
                seconds, peak = timed(script, source, target)
                old = best.get(name, (seconds, peak))
                best[name] = (min(old[0], seconds), max(old[1], peak))
    size = f"{side * side * 2 >> 20} MiB"
    (ours, peak), (hand, hand_peak) = best["anychunk"], best["by hand"]
    detail = f"{ours:.1f} s, zarr + dask {hand:.1f} s"
    return [
        Row(f"TIFF {size} to OME-Zarr, 4 levels", hand / ours, ">= 1", detail),
        Row(
            f"TIFF {size} to OME-Zarr, peak MiB",
            peak,
            "<= 512",
            f"zarr + dask {hand_peak:.0f} MiB",
        ),
    ]
