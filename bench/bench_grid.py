"""TIFF of every compression, sample type, layout and size of tiles: full reads, open included.

The cases are fixed: none is left out because of its result, only where a compression cannot hold a
type. The docs show them as a heat map. A run that was interrupted goes on where it ended, as long
as the commit is the same.
"""

import itertools
import json
import math
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

import anychunk
from bench import peers
from bench.bench_tiff import read_rasterio
from bench.measure import OURS, Row, best_of, cores, milliseconds
from bench.report import RESULTS

STREAMS = ("none", "packbits", "lzw", "deflate", "zstd", "lzma")
TYPES = ("uint8", "uint16", "uint32", "float32")
BANDS = ("one", "interleaved", "separate")
LAYOUTS = ("128", "256", "512", "1024", "1 row", "8 rows", "64 rows")
"""Tiles of so many pixels square, or strips of so many rows."""
PICTURES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "JPEG": (
        ("uint8",),
        ("one", "interleaved"),
        ("128", "256", "512", "1024", "8 rows", "64 rows"),
    ),
    "WebP": (("uint8",), ("interleaved",), LAYOUTS[:4]),
    "LERC": (("uint8", "uint16", "uint32", "float32"), ("one", "separate"), LAYOUTS[:4]),
    "JPEG XL": (("uint8", "uint16"), ("one", "interleaved"), LAYOUTS[:4]),
    "JPEG 2000": (("uint8", "uint16"), ("one", "interleaved"), LAYOUTS[:4]),
    "CCITT G4": (("bool",), ("one",), ("8 rows", "64 rows")),
}
"""Types, bands and layouts of compressions that cannot have all."""
SLOW = {"lzma": 1024, "JPEG XL": 1024, "JPEG 2000": 1024, "WebP": 1024}
"""Sizes where the usual one would take long to write."""
SIZE = 2048
ELSEWHERE = ("virtual-tiff", "async-geotiff")


@dataclass(frozen=True)
class Cell:
    compression: str
    dtype: str
    bands: str
    layout: str

    @property
    def name(self) -> str:
        layout = f"strips of {self.layout}" if "row" in self.layout else f"{self.layout}-tiles"
        bands = {"one": "1 band", "interleaved": "3 bands", "separate": "3 separate bands"}
        return f"{self.compression}, {self.dtype}, {bands[self.bands]}, {layout}"


def cells() -> list[Cell]:
    """Return every cell of the grid."""
    every = [
        Cell(*parts)
        for parts in itertools.product(STREAMS, TYPES, BANDS[1:], LAYOUTS)
    ]  # fmt: skip
    for name, axes in PICTURES.items():
        every += [Cell(name, *parts) for parts in itertools.product(*axes)]
    return every


def image(cell: Cell) -> np.ndarray:
    """Return pixels, about as compressible as measurements; (y, x), (y, x, 3) or (3, y, x)."""
    return _image(SLOW.get(cell.compression, SIZE), cell.dtype, cell.bands)


@lru_cache(maxsize=1)
def _image(size: int, dtype: str, bands: str) -> np.ndarray:
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / size
    noise = np.random.default_rng(1).normal(0, 0.004, (size, size)).astype(np.float32)
    values = np.sin(7 * x) * np.cos(5 * y) + 0.3 * np.sin(31 * x * y) + noise
    match dtype:
        case "bool":
            found: np.ndarray = values > 0
        case "float32":
            found = values
        case _:
            scale = {"uint8": 80, "uint16": 10_000, "uint32": 1_000_000}[dtype]
            found = ((values + 1.5) * scale).astype(dtype)
    if bands == "one":
        return found
    return np.stack([found, found[::-1], found.T], axis=-1 if bands == "interleaved" else 0)


def write(cell: Cell, path: Path) -> None:
    """Write the file of a cell, as most writers would: with a predictor where that helps."""
    pixels = image(cell)
    options: dict[str, Any] = {"metadata": None}
    if "row" in cell.layout:
        options["rowsperstrip"] = int(cell.layout.split()[0])
    else:
        options["tile"] = (int(cell.layout),) * 2
    options["photometric"] = "rgb" if cell.bands == "interleaved" else "minisblack"
    if cell.bands == "separate":
        options |= {"planarconfig": "separate"}
    codec = {
        "none": None, "deflate": "zlib", "JPEG": "jpeg", "WebP": "webp", "LERC": "lerc",
        "JPEG XL": "jpegxl", "JPEG 2000": "jpeg2000", "CCITT G4": "ccitt_t6",
    }.get(cell.compression, cell.compression)  # fmt: skip
    options["compression"] = codec
    if cell.compression in ("lzw", "deflate", "zstd"):
        options["predictor"] = 3 if cell.dtype == "float32" else 2
    if cell.compression == "JPEG" and cell.bands == "interleaved":
        options |= {"photometric": "ycbcr", "compressionargs": {"level": 85}}
    if cell.compression in ("WebP", "JPEG XL", "JPEG 2000"):
        key = "lossless" if cell.compression != "JPEG 2000" else "reversible"
        options["compressionargs"] = {key: True} | (
            {"level": 1} if "XL" in cell.compression else {}
        )
    if cell.compression == "CCITT G4":
        _write_fax(pixels, path, options["rowsperstrip"])
        return
    tifffile.imwrite(path, pixels, **options)


def _write_fax(pixels: np.ndarray, path: Path, rows: int) -> None:
    import rasterio

    height, width = pixels.shape
    profile = {"height": height, "width": width, "count": 1, "dtype": "uint8", "NBITS": 1}
    with rasterio.open(
        path, "w", driver="GTiff", compress="CCITTFAX4", blockysize=rows, **profile
    ) as file:
        file.write(pixels.astype(np.uint8), 1)


def measure(cell: Cell, folder: Path, rounds: int) -> Row:
    path = folder / "a.tif"
    write(cell, path)
    name, wrong = str(path), {}
    truth = anychunk.open_array(name)[...]
    calls: dict[str, Any] = {OURS: lambda: anychunk.open_array(name)[...]}
    others = {
        "rasterio": lambda: read_rasterio(name),
        "tifffile": lambda: tifffile.imread(name, maxworkers=cores()),
    }
    for peer, call in others.items():
        try:
            found = call()
        except Exception as e:  # noqa: BLE001 - readers fail in many ways
            wrong[peer] = f"{type(e).__name__}: {e}"
            continue
        if found.ndim == 3 and found.shape != truth.shape:
            found = np.moveaxis(found, -1, 0) if found.shape[0] != 1 else found[0]
        # decoders of lossy pictures differ by rounding
        is_same = found.shape == truth.shape and (
            np.array_equal(found, truth) or cell.compression in ("JPEG", "WebP")
        )
        if is_same:
            calls[peer] = call
        else:
            wrong[peer] = "other pixels"
    calls |= peers.calls(ELSEWHERE, name, truth, wrong)
    seconds = best_of(calls, rounds=rounds)
    row = Row(f"TIFF {cell.name}", math.nan, ">= 0.9", seconds=seconds, wrong=wrong)
    if row.peers():
        row.ratio = min(row.peers().values()) / row.seconds[OURS]
    row.detail = milliseconds(seconds)
    return row


def run(*, quick: bool) -> Iterator[Row]:
    every = cells()
    chosen = every[::19] if quick else every
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        before = {} if quick else kept_rows()
        for cell in chosen:
            row = before.get(cell.name)
            if row is None:
                row = measure(cell, Path(folder), 2 if quick else 3)
                if not quick:
                    keep_row(cell, row)
            if not math.isnan(row.ratio):
                ratios.append(row.ratio)
            yield row
    KEPT.unlink(missing_ok=True)
    middle = sorted(ratios)[len(ratios) // 2]
    yield Row(f"grid of {len(ratios)} cases: median against the best peer", middle, ">= 1.3")
    yield Row("grid: worst case against the best peer", min(ratios), ">= 0.9")


KEPT = RESULTS / "grid.jsonl"
"""Rows of a run that was interrupted, one per line, each with the commit that was measured."""


@cache
def commit() -> str:
    """Return the commit that is measured, and whether files were changed since."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40"],
        check=True,
        capture_output=True,
        text=True,
        cwd=RESULTS.parent,
    )
    return found.stdout.strip()


def kept_rows() -> dict[str, Row]:
    """Return the rows of an interrupted run of the same commit, by the name of their cell."""
    if not KEPT.exists():
        return {}
    now, rows = commit(), map(json.loads, KEPT.read_text().splitlines())
    return {row["cell"]: Row(**row["row"]) for row in rows if row["commit"] == now}


def keep_row(cell: Cell, row: Row) -> None:
    KEPT.parent.mkdir(exist_ok=True)
    line = {"commit": commit(), "cell": cell.name, "row": asdict(row)}
    with KEPT.open("a") as file:
        file.write(json.dumps(line, default=float) + "\n")
