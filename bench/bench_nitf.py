"""Full reads of NITF images compared with GDAL (rasterio), one thread per core."""

import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import rasterio
import rasterio.shutil
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window

import anychunk
from bench import peers
from bench.measure import OURS, Row, compare, cores


def field(bands, size, dtype):
    """Return a smooth field with noise, the same on every run."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size].astype("f4")
    top = np.iinfo(dtype).max * 0.9
    out = np.empty((bands, size, size), dtype)
    for band in range(bands):
        smooth = np.sin(x / (90 + 10 * band)) + np.cos(y / (70 + 5 * band))
        noise = rng.normal(0, 0.01, (size, size)).astype("f4")
        out[band] = ((smooth + noise + 2.1) / 4.2 * top).astype(dtype)
    return out


def write(path, array, **options):
    """Write with GDAL from a TIFF: its NITF driver takes options only when it copies."""
    bands, rows, columns = array.shape
    plain = path.with_suffix(".tif")
    profile = {"count": bands, "height": rows, "width": columns, "dtype": array.dtype.name}
    with rasterio.open(plain, "w", driver="GTiff", **profile) as opened:
        opened.write(array)
    rasterio.shutil.copy(plain, path, driver="NITF", **options)
    plain.unlink()


def read_with_gdal(path, pool):
    """Read strips of whole blocks into one array, one thread and one dataset per core."""
    with rasterio.open(path) as opened:
        shape = (opened.count, opened.height, opened.width)
        step = opened.block_shapes[0][0]
        dtype = opened.dtypes[0]
    out = np.empty(shape, dtype)
    count = cores()
    rows = -(-shape[1] // (count * step)) * step

    def read(start):
        stop = min(start + rows, shape[1])
        with rasterio.open(path) as opened:
            opened.read(window=Window(0, start, shape[2], stop - start), out=out[:, start:stop])

    list(pool.map(read, range(0, shape[1], rows)))
    return out


def read_with_threads_of_gdal(path):
    """Read with GDAL's own threads, which its JPEG 2000 driver uses."""
    with rasterio.Env(GDAL_NUM_THREADS=str(cores())), rasterio.open(path) as opened:
        return opened.read()


def case(name, path, target, pool, rounds):
    calls = {
        OURS: lambda: anychunk.open_array(path)[...],
        "rasterio": lambda: read_with_gdal(path, pool),
        "rasterio, GDAL's threads": lambda: read_with_threads_of_gdal(path),
    }
    found = [call() for call in calls.values()]
    assert all(np.array_equal(found[0], other) for other in found[1:]), name
    wrong = {}
    calls |= peers.calls(("osml-imagery-io",), str(path), found[0], wrong)
    return compare(f"{name}, full read", calls, target, rounds=rounds, wrong=wrong)


def run(quick: bool) -> list[Row]:
    size = 1024 if quick else 4096
    rounds = 3 if quick else 5
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(cores()) as pool,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        four = field(4, size, "uint16")
        path = Path(folder) / "a.ntf"
        for imode in "BPRS":
            # GDAL writes IMODE B; the others are the same samples in another order
            write(path, four, IC="NC", BLOCKXSIZE=512, BLOCKYSIZE=512)
            reorder(path, four, imode, 512)
            rows.append(case(f"NITF NC IMODE {imode} u16 x 4", path, 1.2, pool, rounds))
        write(path, field(1, size, "uint16"), IC="C8", BLOCKXSIZE=512, BLOCKYSIZE=512, QUALITY=100)
        rows.append(case("NITF C8 u16 in 512-tiles", path, 1.1, pool, rounds))
        write(path, field(3, size, "uint8"), IC="C3", BLOCKXSIZE=512, BLOCKYSIZE=512, QUALITY=90)
        rows.append(case("NITF C3 RGB in 512-blocks", path, 1.2, pool, rounds))
    return rows


def reorder(path, array, imode, block):
    """Rewrite a file of IMODE B in another order of samples, and change its subheader."""
    raw = bytearray(path.read_bytes())
    bands, rows, columns = array.shape
    data = len(raw) - array.nbytes
    down, across = rows // block, columns // block
    blocks = array.astype(">u2").reshape(bands, down, block, across, block)
    # axes: band, block down, y, block across, x
    orders = {
        "B": (1, 3, 0, 2, 4),
        "P": (1, 3, 2, 4, 0),
        "R": (1, 3, 2, 0, 4),
        "S": (0, 1, 3, 2, 4),
    }
    raw[data:] = np.ascontiguousarray(blocks.transpose(orders[imode])).tobytes()
    place = raw.index(b"B%04d%04d%04d%04d16" % (across, down, block, block))
    raw[place : place + 1] = imode.encode()
    path.write_bytes(raw)
