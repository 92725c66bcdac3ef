"""Windows of images without tiles, against rasterio and OpenJPEG (glymur): seconds, and bytes.

JPEG 2000: each of 20 random windows of 256 x 256, in a dataset that is opened for it, or in one
that is opened once; a coarse level; the whole image. Files are 8-bit, 64 x 64 code-blocks, six
resolutions, one tile and one layer: 5/3 without loss, 9/7 at about 1.5 bits per pixel.
"""

import tempfile
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import imagecodecs
import numpy as np
import rasterio
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window

import anychunk
from anychunk.codestream import blocks
from anychunk.codestream.block_table import pack
from anychunk.decode import windows
from anychunk.decode.chunks import ChunkReader
from anychunk.engine import chunks, tiles
from anychunk.io.open_sources import Sources
from bench.measure import OURS, Row, best_of, cores
from tests.support.http_server import serve

SIDE, COUNT = 256, 20
TARGETS = {2048: (4, 2, 0.15), 4096: (4, 2, 0.08), 8192: (4, 3, 0.03), 16384: (2.5, 10, 0.01)}
"""By size: fresh, opened once, share of the file that a window fetches."""


def picture(size: int) -> np.ndarray:
    """Return waves with noise, the same on every run."""
    y, x = np.mgrid[:1024, :1024].astype("f4")
    waves = np.sin(x / 97) + np.cos(y / 61) + 0.3 * np.sin((x + y) / 13)
    wave = (waves - waves.min()) / np.ptp(waves) * 200 + 20
    rng = np.random.default_rng(0)
    out = np.empty((size, size), "u1")
    for row in range(0, size, 1024):
        strip = np.tile(wave, (1, size // 1024))
        out[row : row + 1024] = np.clip(strip + rng.normal(0, 4, strip.shape), 0, 255)
    return out


def write(path: Path, size: int, *, is_reversible: bool) -> None:
    encoded = imagecodecs.jpeg2k_encode(
        picture(size),
        level=0 if is_reversible else 42,
        codecformat="jp2",
        reversible=is_reversible,
        resolutions=6,
        numthreads=cores(),
    )
    path.write_bytes(encoded)


def places(size: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(1)
    return [(int(y), int(x)) for y, x in rng.integers(0, size - SIDE, (COUNT, 2))]


def forget() -> None:
    """Empty the caches of the process, as in a new one."""
    for cache in (windows.TABLES, tiles.TOUCHED, chunks.RECENT):
        cache.clear()


def ours_fresh(path: Path, corners: list[tuple[int, int]]) -> list[np.ndarray]:
    found = []
    for y, x in corners:
        forget()
        found.append(anychunk.open(path).image(0)[y : y + SIDE, x : x + SIDE])
    return found


def ours_once(path: Path, corners: list[tuple[int, int]]) -> list[np.ndarray]:
    forget()
    array = anychunk.open(path).image(0)
    return [array[y : y + SIDE, x : x + SIDE] for y, x in corners]


def rasterio_fresh(path: Path, corners: list[tuple[int, int]]) -> list[np.ndarray]:
    found = []
    for y, x in corners:
        with rasterio.open(path) as opened:
            found.append(opened.read(1, window=Window(x, y, SIDE, SIDE)))
    return found


def rasterio_once(path: Path, corners: list[tuple[int, int]]) -> list[np.ndarray]:
    with rasterio.open(path) as opened:
        return [opened.read(1, window=Window(x, y, SIDE, SIDE)) for y, x in corners]


def glymur_once(path: Path, corners: list[tuple[int, int]]) -> list[np.ndarray]:
    import glymur

    opened = glymur.Jp2k(path)
    return [opened[y : y + SIDE, x : x + SIDE] for y, x in corners]


def check(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def run(*, quick: bool) -> Iterator[Row]:
    warnings.simplefilter("ignore", NotGeoreferencedWarning)
    sizes = (2048,) if quick else (4096, 8192, 16384)
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            for name, is_reversible in (("5/3", True), ("9/7", False)):
                path = Path(folder, f"{size}{'r' if is_reversible else 'i'}.jp2")
                write(path, size, is_reversible=is_reversible)
                yield from rows(path, size, name, quick=quick)
                path.unlink()


def rows(path: Path, size: int, name: str, *, quick: bool = False) -> Iterator[Row]:
    """Yield all rows of one file."""
    corners = places(size)[: 5 if quick else COUNT]
    fresh, once, share = TARGETS[size]
    case, rounds = f"untiled JP2 {size}, {name}", 1
    check(ours_fresh(path, corners[:2]), rasterio_fresh(path, corners[:2]))
    calls = {
        OURS: partial(ours_fresh, path, corners),
        "rasterio": partial(rasterio_fresh, path, corners),
    }
    yield _against(f"{case}: {len(corners)} windows, fresh", calls, f">= {fresh}", rounds)
    calls = {
        OURS: partial(ours_once, path, corners),
        "rasterio": partial(rasterio_once, path, corners),
    }
    if size <= 8192:  # OpenJPEG itself
        calls["glymur"] = partial(glymur_once, path, corners)
    yield _against(f"{case}: {len(corners)} windows, opened once", calls, f">= {once}", rounds)
    yield from pure_rows(path, case, corners)
    yield from remote_rows(path, case, corners, share)
    yield table_row(path, case)
    if size <= 4096:
        yield from whole_rows(path, case)


def _against(case: str, calls: dict, target: str, rounds: int, peer: str = "rasterio") -> Row:
    seconds = best_of(calls, rounds=rounds)
    detail = ", ".join(f"{n} {s * 1e3:.4g} ms" for n, s in seconds.items())
    return Row(case, seconds[peer] / seconds[OURS], target, detail, seconds=seconds)


def pure_rows(path: Path, case: str, corners: list[tuple[int, int]]) -> Iterator[Row]:
    """Yield the same without the compiled module."""
    loops, blocks.loops = blocks.loops, None
    try:
        few = corners[:3]
        calls = {
            OURS: partial(ours_fresh, path, few),
            "rasterio": partial(rasterio_fresh, path, few),
        }
        yield _against(f"{case}: {len(few)} windows, fresh, without C", calls, "", 1)
    finally:
        blocks.loops = loops


def remote_rows(path: Path, case: str, corners: list[tuple[int, int]], share: float) -> Iterator:
    """Yield how much of the file a window and a coarse level fetch."""
    size = path.stat().st_size
    with serve(path.parent) as served:
        forget()
        group = anychunk.open(f"{served.url}/{path.name}")
        array, coarse = group.image(0), group.image(0, level=3)
        walk, counts = 0.0, []
        for y, x in corners:
            del served.requests[:]
            array[y : y + SIDE, x : x + SIDE]
            counts.append(fetched(served))
        walk, counts = counts[0] - np.median(counts[1:]), counts[1:]
        detail = f"the walk {walk / size:.2%}; largest {max(counts) / size:.2%}"
        most = float(np.mean(counts)) / size
        yield Row(f"{case}: share of the file per window", most, f"<= {share}", detail)
        del served.requests[:]
        coarse[...]
        yield Row(f"{case}: share of the file of level 1/8", fetched(served) / size, "<= 0.03")


def fetched(served) -> int:
    total = 0
    for _, wanted in served.requests:
        if wanted:
            first, last = wanted.removeprefix("bytes=").split("-")
            total += int(last) + 1 - int(first)
    return total


def table_row(path: Path, case: str) -> Row:
    """Return the time to make the table of code-blocks; the detail has its size."""
    index = anychunk.index(path)
    name, array = next(iter(index.arrays()))
    reader = ChunkReader(array, Sources(index.pins), where=name)
    source = reader.begin().source(reader.ranges(0)[0][0])
    ranges = [(offset, length) for _, offset, length in reader.ranges(0)]
    made = []

    def make() -> None:
        forget()
        found = reader.windows.walked(source, ranges)
        made[:] = [pack(found.layout, found.table)]

    seconds = best_of({OURS: make}, rounds=3)
    share = len(made[0]) / path.stat().st_size
    detail = f"{len(made[0])} bytes, {share:.3%} of the file"
    return Row(f"{case}: seconds to make a table", seconds[OURS], "<= 0.5", detail)


def whole_rows(path: Path, case: str) -> Iterator[Row]:
    """Yield a full read against imagecodecs, and a coarse level against rasterio."""
    data = path.read_bytes()

    def ours():
        forget()
        return anychunk.open(path).image(0)[...]

    calls = {OURS: ours, "imagecodecs": partial(imagecodecs.jpeg2k_decode, data)}
    yield _against(f"{case}: full read", calls, ">= 0.95", 2, "imagecodecs")

    def ours_level():
        forget()
        return anychunk.open(path).image(0, level=3)[...]

    def rasterio_level():
        with rasterio.open(path, overview_level=2) as opened:
            return opened.read(1)

    assert np.array_equal(ours_level(), rasterio_level())
    calls = {OURS: ours_level, "rasterio": rasterio_level}
    yield _against(f"{case}: level 1/8", calls, ">= 1.5", 5)
