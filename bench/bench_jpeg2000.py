"""JPEG 2000: full reads and a level against GDAL (rasterio) and OpenJPEG (glymur); indexing."""

import struct
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import rasterio
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window

import anychunk
from anychunk.codestream.tiles import WINDOW, index_tiles
from anychunk.io.buffers import MemorySource
from anychunk.io.file import FileSource
from bench import peers
from bench.measure import OURS, Row, best_of, compare, cores

REQUEST_S, BYTES_S = 0.03, 100e6


def field(size):
    """Return a smooth field with noise, 16 bits, the same on every run."""
    y, x = np.mgrid[:size, :size].astype("f4")
    noise = np.random.default_rng(0).normal(0, 0.01, (size, size)).astype("f4")
    return ((np.sin(x / 90) + np.cos(y / 70) + noise + 2.1) / 4.2 * 60000).astype("u2")


def write(path, array, block):
    """Write a lossless JP2 of five wavelet levels with OpenJPEG; GDAL cannot write small tiles."""
    import glymur

    glymur.set_option("lib.num_threads", cores())
    glymur.Jp2k(path, data=array, tilesize=(block, block), numres=6)


def read_in_strips(path, pool):
    """Read with rasterio: strips of whole tiles, one thread and one dataset per core."""
    with rasterio.open(path) as opened:
        height, width, step = opened.height, opened.width, opened.block_shapes[0][0]
        out = np.empty((1, height, width), opened.dtypes[0])
    rows = -(-height // (cores() * step)) * step

    def read(start):
        stop = min(start + rows, height)
        with rasterio.open(path) as opened:
            opened.read(window=Window(0, start, width, stop - start), out=out[:, start:stop])

    list(pool.map(read, range(0, height, rows)))
    return out


def read_with_threads_of_gdal(path):
    with rasterio.Env(GDAL_NUM_THREADS=str(cores())), rasterio.open(path) as opened:
        return opened.read()


def read_with_glymur(path):
    import glymur

    glymur.set_option("lib.num_threads", cores())
    return glymur.Jp2k(path)[:][None]


def full_read(path, tiles, rounds, pool):
    calls = {
        OURS: lambda: anychunk.open_array(path)[...],
        "rasterio": lambda: read_in_strips(path, pool),
        "rasterio, GDAL's threads": lambda: read_with_threads_of_gdal(path),
        "glymur": lambda: read_with_glymur(path),
    }
    found = [call() for call in calls.values()]
    assert all(np.array_equal(found[0], other) for other in found[1:])
    wrong = {}
    calls |= peers.calls(("osml-imagery-io",), str(path), found[0], wrong)
    return compare(f"JP2 u16, {tiles:,} tiles, full read", calls, 1.5, rounds=rounds, wrong=wrong)


def quarter_read(path, rounds):
    calls = {
        "full": lambda: anychunk.open_array(path)[...],
        "quarter": lambda: anychunk.open_array(path, level=2)[...],
    }
    seconds = best_of(calls, rounds=rounds)
    return Row(
        case="JP2 u16, quarter resolution",
        ratio=seconds["full"] / seconds["quarter"],
        target=">= 4",
        detail="our full read = 1.0",
        seconds=seconds,
    )


def empty_tiles(count, length):
    """Return a stream of `count` tiles whose tile-parts hold zeros: enough for indexing."""
    size = struct.pack(">H8IH3B", 0, count, 1, 0, 0, 1, 1, 0, 0, 1, 7, 1, 1)
    style = b"\xff\x52\x00\x0c\x00\x00\x00\x01\x00\x00\x04\x04\x00\x01\xff\x5c\x00\x04\x40\x40"
    parts = [
        b"\xff\x90\x00\x0a"
        + struct.pack(">HIBB", tile, length, 0, 1)
        + b"\xff\x93".ljust(length - 12)
        for tile in range(count)
    ]
    header = b"\xff\x4f\xff\x51" + struct.pack(">H", 41) + size + style
    return header + b"".join(parts) + b"\xff\xd9"


class Remote(MemorySource):
    """A source that counts requests and bytes."""

    is_local = False

    def __init__(self, data):
        super().__init__(data)
        self.cost_s = 0.0

    def read(self, offset, length):
        self.cost_s += REQUEST_S + length / BYTES_S
        return super().read(offset, length)


def indexing(path, rounds):
    path.write_bytes(empty_tiles(10_000, 2000))
    seconds = best_of({"index": lambda: anychunk.index(path)}, rounds=rounds)
    assert len(index_tiles(FileSource(str(path)), 0, path.stat().st_size).offsets) == 10_000
    yield Row(
        case="index of 10,000 tiles without TLM, seconds",
        ratio=seconds["index"],
        target="<= 0.3",
        detail="local",
        seconds=seconds,
    )
    for count, length in ((2000, 10_000), (16, 6 << 20)):
        source = Remote(data := empty_tiles(count, length))
        index_tiles(source, 0, len(data))
        hop = count * REQUEST_S
        read_on = -(-len(data) // WINDOW) * REQUEST_S + len(data) / BYTES_S
        yield Row(
            case=f"remote index, {count} tile-parts of {length} bytes",
            ratio=source.cost_s / min(hop, read_on),
            target="about 1",
            detail=f"cost {source.cost_s:.2f} s; hopping {hop:.2f} s, reading on {read_on:.2f} s",
        )


def run(quick: bool) -> list[Row]:
    size, block = (1024, 128) if quick else (4096, 128)
    rounds = 3 if quick else 5
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(cores()) as pool,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        path = Path(folder) / "a.jp2"
        write(path, field(size), block)
        rows = [full_read(path, (size // block) ** 2, rounds, pool), quarter_read(path, rounds)]
        rows += indexing(Path(folder) / "a.j2k", rounds)
    return rows
