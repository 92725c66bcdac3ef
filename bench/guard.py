"""A few quick comparisons with peers, checked against recorded ratios.

`python -m bench.guard` records; `make guard` (`bench/test_guard.py`) fails if a ratio falls below
0.8 of the one in `guard.json`. Ratios rather than times: a slower machine slows both sides.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.measure import OURS, best_of

RECORDED = Path(__file__).with_name("guard.json")
FALL = 0.8

type Calls = dict[str, Callable[[], object]]


def tiff(folder: Path, tile: int, kind: str = "uint16") -> Calls:
    import tifffile

    import anychunk
    from bench.bench_tiff import field

    path = folder / f"{tile}.tif"
    size, predictor = (1024, 3) if kind == "float32" else (2048, 2)
    options = {"compression": "zlib", "predictor": predictor, "tile": (tile, tile)}
    tifffile.imwrite(path, field(size, kind), metadata=None, **options)
    array = anychunk.open_array(path)
    return {
        OURS: lambda: array[...],
        "peer": lambda: tifffile.imread(path, maxworkers=2),
    }


def n5(folder: Path) -> Calls:
    import anychunk
    from bench.bench_n5 import COMPRESSIONS, opened, volume

    path = folder / "a.n5"
    compression = COMPRESSIONS["zstd"]
    anychunk.write(
        volume(quick=True), path, chunk=(64, 64, 64), compression=compression, axes="xyz"
    )
    ours, theirs = anychunk.open(path), opened(path)
    return {OURS: lambda: ours[...], "peer": lambda: theirs.read().result()}


def chunks(folder: Path) -> Calls:
    """Read very many small chunks: the overhead beside decoding."""
    import zarr

    import anychunk
    from bench.bench_foundation import flat_index

    count = 4000
    data = np.random.default_rng(0).integers(0, 255, count * 4096, dtype=np.uint8)
    data.tofile(folder / "chunks")
    ours = anychunk.open(flat_index(count, str(folder / "chunks")))
    theirs = zarr.create_array({}, shape=data.shape, chunks=(4096,), dtype="u1", compressors=None)
    theirs[:] = data
    return {OURS: lambda: ours[...], "peer": lambda: theirs[...]}


def window(folder: Path) -> Calls:
    import rasterio
    from rasterio.windows import Window

    import anychunk

    tiff(folder, 512)
    array, dataset = anychunk.open_array(folder / "512.tif"), rasterio.open(folder / "512.tif")
    place = (slice(1000, 1100), slice(1000, 1100))
    return {
        OURS: lambda: [array[..., *place] for _ in range(20)],
        "peer": lambda: [dataset.read(window=Window.from_slices(*place)) for _ in range(20)],
    }


CASES: dict[str, Callable[[Path], Calls]] = {
    "TIFF deflate in 512-tiles against tifffile": lambda folder: tiff(folder, 512),
    "TIFF deflate in 128-tiles against tifffile": lambda folder: tiff(folder, 128),
    "TIFF float predictor against tifffile": lambda folder: tiff(folder, 512, "float32"),
    "TIFF window against rasterio": window,
    "N5 zstd against tensorstore": n5,
    "4,000 chunks of 4 KiB against zarr": chunks,
}


@contextmanager
def race(case: str) -> Iterator[Callable[[], float]]:
    """Return a function that measures one case again."""
    with tempfile.TemporaryDirectory() as name:
        calls = CASES[case](Path(name))

        def ratio() -> float:
            times = best_of(calls, rounds=7)
            return times["peer"] / times[OURS]

        yield ratio


def recorded() -> dict[str, float]:
    return {name: float(value) for name, value in json.loads(RECORDED.read_text()).items()}


def main() -> None:
    found = {}
    for case in CASES:
        with race(case) as ratio:
            # the median of several, so that one lucky or unlucky run is not recorded
            found[case] = round(sorted(ratio() for _ in range(5))[2], 2)
            print(case, found[case])
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
