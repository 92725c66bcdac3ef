"""Saved indexes of a million chunks, and a window of a COG over a slow network."""

import json
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import anychunk
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex
from bench import peers
from bench.measure import OURS, Row, compare

FORMS = {"i.json": 10.0, "i.parquet": 5.0, "i.icechunk": 5.0}
PEAK_MIB = 500


def made(folder: Path, side: int) -> GroupIndex:
    """Return an index of side x side chunks of one file, of varying length."""
    lengths = np.random.default_rng(0).integers(500, 1500, side * side).astype(np.uint64)
    offsets = np.cumsum(lengths) - lengths
    array = ArrayIndex(
        shape=(side * 256, side * 256),
        chunk_shape=(256, 256),
        data_type="uint8",
        codecs=({"name": "bytes"},),
        chunks=ByteRanges(
            offsets=offsets.reshape(side, side),
            lengths=lengths.reshape(side, side),
            urls=(str(folder / "x.bin"),),
        ),
        dimension_names=("y", "x"),
    )
    return GroupIndex(members={"0": GroupIndex(members={"0": array})})


def save_and_reopen(folder: str, form: str, side: int) -> None:
    """Run in a separate process, so that the peak memory is that of one format only."""
    import time

    node = made(Path(folder), side)
    start, cpu = time.perf_counter(), time.process_time()
    node.save(Path(folder) / form)
    again = anychunk.index(Path(folder) / form)
    spent = time.perf_counter() - start, time.process_time() - cpu
    assert again["0/0/image"] == node["0/0/image"]
    # not ru_maxrss: a child process inherits it from its parent
    peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
    print(json.dumps([*spent, peak / 1024]))


def saved(quick: bool) -> list[Row]:
    side, rounds = (100, 1) if quick else (1000, 3)
    rows = []
    for form, target in FORMS.items():
        found = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                call = f"save_and_reopen({folder!r}, {form!r}, {side})"
                code = f"from bench.bench_index import save_and_reopen; {call}"
                done = subprocess.run(
                    [sys.executable, "-c", code], check=True, capture_output=True, text=True
                )
                found.append(json.loads(done.stdout.splitlines()[-1]))
        seconds, cpu, peak = (min(values) for values in zip(*found, strict=True))
        name = f"{side * side:,} chunks, save and reopen {form[2:]}, seconds"
        rows += [
            Row(name, seconds, f"<= {target:.0f}", f"{cpu:.1f} s of processor time"),
            Row(f"{name[:-9]}, peak MiB", peak, f"<= {PEAK_MIB}"),
        ]
    return rows


def write_cog(path: Path, size: int) -> None:
    """Write a smooth field with noise, in 256 x 256 tiles, deflate."""
    import rasterio
    from rasterio.transform import from_origin

    y, x = np.mgrid[:size, :size].astype("float32")
    field = 2000 + 1000 * np.sin(x / 300) * np.cos(y / 200)
    noise = np.random.default_rng(1).normal(0, 8, field.shape)
    values = (field + noise).astype("uint16")
    with rasterio.open(
        path,
        "w",
        driver="COG",
        height=size,
        width=size,
        count=1,
        dtype="uint16",
        crs="EPSG:32633",
        transform=from_origin(500000, 5000000, 10, 10),
        BLOCKSIZE=256,
        COMPRESS="DEFLATE",
        PREDICTOR="YES",
    ) as file:
        file.write(values, 1)


SERVER = """
import sys
from pathlib import Path
from tests.support.http_server import serve
with serve(Path(sys.argv[1])) as served:
    served.latency_s = float(sys.argv[2])
    print(served.url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def slow_server(folder: Path, latency_s: float):
    """Serve in a separate process, with a delay before each response."""
    command = [sys.executable, "-c", SERVER, str(folder), str(latency_s)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process.stdout.readline().strip()
        process.stdin.close()


def remote(quick: bool) -> list[Row]:
    """Read a window of 100 tiles from a server with a latency of 30 ms."""
    from tests.support.http_server import serve

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_cog(folder / "a.tif", 4096)
        with serve(folder) as counted:
            array = anychunk.open_array(f"{counted.url}/a.tif")
            counted.requests.clear()
            array[..., *WINDOW]
            requests = len(counted.requests)
        with slow_server(folder, 0.03) as url:
            rows = _window(f"{url}/a.tif", 2 if quick else 7)
    return [Row("COG window of 100 tiles over 30 ms, requests", requests, "<= 8"), *rows]


WINDOW = slice(700, 700 + 2304), slice(900, 900 + 2304)
"""Touches 10 x 10 tiles."""


def _window(url: str, rounds: int) -> list[Row]:
    node = anychunk.index(url)
    truth = anychunk.open_array(node)[..., *WINDOW]
    wrong: dict[str, str] = {}
    spans = [(s.start, s.stop) for s in WINDOW]
    calls = {
        OURS: lambda: anychunk.open_array(node)[..., *WINDOW],
        "ManifestStore": _manifest_store(url, node, WINDOW),
        "rasterio /vsicurl": _vsicurl(url, WINDOW),
    }
    for call in calls.values():
        np.testing.assert_array_equal(np.asarray(call()).squeeze(), truth.squeeze())
    calls |= peers.calls(("async-geotiff",), url, truth, wrong, spans)
    case = "COG window of 100 tiles, 30 ms a request"
    row = compare(case, calls, 1.0, rounds=rounds, wrong=wrong)
    against = row.against("ManifestStore")
    return [row, Row(f"{case}, against ManifestStore", against, ">= 2", "", row.seconds)]


def _manifest_store(url: str, node: GroupIndex, window):
    import zarr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore

    root = url.rpartition("/")[0]
    store = HTTPStore.from_url(root, client_options={"allow_http": True})
    manifests = node.to_virtualizarr(registry=ObjectStoreRegistry({root: store}))
    group = zarr.open_group(manifests, mode="r", zarr_format=3, use_consolidated=False)
    return lambda: group["0/0/image"][..., *window]


def _vsicurl(url: str, window):
    import rasterio
    from rasterio.windows import Window

    rows, columns = window
    place = Window(columns.start, rows.start, 2304, 2304)
    settings = {
        "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
        "CPL_VSIL_CURL_CACHE_SIZE": 0,
        "GDAL_HTTP_MERGE_CONSECUTIVE_RANGES": "YES",
        "CPL_VSIL_CURL_NON_CACHED": f"/vsicurl/{url}",
        "GDAL_CACHEMAX": 1,
    }
    import warnings

    with rasterio.Env(**settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = rasterio.open(f"/vsicurl/{url}")

    def read():
        with rasterio.Env(**settings):
            return opened.read(1, window=place)

    return read


def run(quick: bool) -> list[Row]:
    return [*saved(quick), *remote(quick)]
