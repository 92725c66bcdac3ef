"""`anychunk serve` on loopback: chunks per second counted by wrk, and memory while clients pan.

The reference decodes and encodes the same chunks in a loop without a server, on every core. wrk
shares the cores with the server.
"""

import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tifffile

import anychunk
from anychunk import codecs
from anychunk.codecs.chain import Decoder, Encoder
from anychunk.decode.boxes import array_spec
from anychunk.zarr.store import IndexStore
from anychunk_serve.hierarchy import served_tree
from bench.measure import Row, cores

CONNECTIONS = 16
PASSED = 2000
PEAK_MIB = 512
CLIENTS = 8
LUA = """
math.randomseed(1)
request = function()
  return wrk.format("GET", "%s/" .. math.random(0, %d) .. "/" .. math.random(0, %d))
end
"""


def field(side: int) -> np.ndarray:
    """Return a smooth field with noise, 16 bits."""
    y, x = np.mgrid[0:side, 0:side].astype("f4")
    noise = np.random.default_rng(0).normal(0, 40, (side, side)).astype("f4")
    return ((np.sin(y / 300) + np.cos(x / 400) + 2) * 8000 + noise).astype("uint16")


@contextmanager
def server(*arguments: str | Path):
    """Run the command; return its address and process."""
    command = [sys.executable, "-m", "anychunk", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().split("/  ")[0], process
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def by_wrk(url: str, path: str, side: int, seconds: int) -> float:
    """Request random chunks; return chunks per second, all of them successful."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(LUA % (path, side - 1, side - 1))
        script.flush()
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "-s", script.name, url]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in text, text
    assert "Socket errors" not in text, text
    return float(re.search(r"Requests/sec:\s*([\d.]+)", text)[1])


def bare(path: Path) -> float:
    """Decode and encode every chunk of the first level on all cores; return chunks per second."""
    index = anychunk.index(path)
    own, shown = index["0/0/image"], served_tree(index)["0/0/image"]
    reader = IndexStore(index).chunk_reader("0/0")
    decode = Decoder([codecs.from_json(c) for c in own.codecs], array_spec(own))
    encode = Encoder([codecs.from_json(c) for c in shown.codecs], array_spec(shown))

    def run(numbers: range) -> None:
        scratch = np.empty(decode.nbytes, np.uint8)
        for number in numbers:
            encode(decode(reader.read(number), scratch))

    count, threads = own.chunks.offsets.size, cores()
    with ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        list(pool.map(run, [range(n, count, threads) for n in range(threads)]))
        return count / (time.perf_counter() - start)


def rates(folder: Path, quick: bool) -> list[Row]:
    """Measure cached chunks, chunks decoded for every request, and chunks passed through."""
    seconds, rounds = (1, 1) if quick else (4, 5)
    scene, plain = folder / "scene.tif", folder / "plain.tif"
    data = field(4096 if quick else 8192)
    side = len(data) // 512
    tifffile.imwrite(scene, data, tile=(512, 512), compression="zlib", predictor=2)
    tifffile.imwrite(plain, data[:4096, :4096], tile=(256, 256))
    found: dict[str, list[float]] = {"bare": [], "warm": [], "decoded": [], "passed": []}
    # a cache of 8 MiB holds almost nothing of this image
    with server(scene, plain) as (url, _), server(scene, "--memory", "64") as (small, _):
        for address in (url, small):
            urllib.request.urlopen(f"{address}/api/files").read()
        for _ in range(rounds):
            found["bare"].append(bare(scene))
            found["warm"].append(by_wrk(url, "/zarr/scene.tif/0/0/image/c", side, seconds))
            found["decoded"].append(by_wrk(small, "/zarr/scene.tif/0/0/image/c", side, seconds))
            found["passed"].append(by_wrk(url, "/zarr/plain.tif/0/0/image/c", 16, seconds))
    best = {name: max(values) for name, values in found.items()}
    loop = f"loop {best['bare']:.0f}/s on {cores()} cores"
    return [
        Row(
            "serve: 512 x 512 u16, 16 connections, of the bare loop",
            best["warm"] / best["bare"],
            ">= 0.5",
            f"{best['warm']:.0f}/s, {loop}",
        ),
        Row(
            "serve: the same, every chunk decoded anew",
            best["decoded"] / best["bare"],
            ">= 0.5",
            f"{best['decoded']:.0f}/s",
        ),
        Row(
            "serve: passed-through chunks of 128 KiB a second",
            best["passed"],
            f">= {PASSED}",
            f"{best['passed'] / 8:.0f} MiB/s",
        ),
    ]


def panning(folder: Path, quick: bool) -> Row:
    """Let eight clients pan at random, on an image without levels and on one of thin strips."""
    strips = folder / "strips.tif"
    tifffile.imwrite(strips, field(4096), rowsperstrip=1, compression="zlib")
    urls = [
        ("/zarr/scene.tif/0/0/image/c/%d/%d", 8),
        ("/zarr/scene.tif/0/1/c/0/%d/%d", 4),
        ("/zarr/strips.tif/0/0/image/c/%d/%d", 8),
        ("/zarr/strips.tif/0/1/c/0/%d/%d", 4),
        ("/zarr-raw/strips.tif/0/2/c/0/%d/%d", 2),
    ]
    until = time.monotonic() + (2 if quick else 20)
    count = [0] * CLIENTS
    with server(folder) as (url, process):

        def pan(number: int) -> None:
            chosen = random.Random(number)
            while time.monotonic() < until:
                path, side = chosen.choice(urls)
                place = path % (chosen.randrange(side), chosen.randrange(side))
                urllib.request.urlopen(url + place, timeout=60).read()
                count[number] += 1

        threads = [threading.Thread(target=pan, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        text = Path(f"/proc/{process.pid}/status").read_text()
    peak = int(re.search(r"VmHWM:\s*(\d+)", text)[1]) / 1024
    return Row(
        "serve: peak MiB while 8 clients pan at random",
        peak,
        f"<= {PEAK_MIB}",
        f"{sum(count)} chunks",
    )


def run(quick: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if shutil.which("wrk") is None:
            print("bench_serve: no wrk here (apt-get install wrk)")
            tifffile.imwrite(folder / "scene.tif", field(4096), tile=(512, 512), compression="zlib")
            return [panning(folder, quick)]
        return [*rates(folder, quick), panning(folder, quick)]
