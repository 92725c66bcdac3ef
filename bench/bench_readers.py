"""Several processes that read one file, and the memory of a full read beyond its result."""

import multiprocessing
import re
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tifffile

import anychunk
from bench.bench_tiff import field
from bench.measure import Row, best_of, milliseconds

PROCESSES = 8


def anonymous() -> int:
    """Return the memory of this process without pages of mapped files, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) << 10


def peak_beyond(path: str) -> float:
    """Return the peak MiB of a full read beyond its result.

    Measured in a separate process: one that has freed memory would reuse it first.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(_peak_beyond, path).result()


def _peak_beyond(path: str) -> float:
    array = opened(path)
    highest, is_over = 0, False

    def watch():
        nonlocal highest
        while not is_over:
            highest = max(highest, anonymous())
            time.sleep(0.002)

    array[:1, :1]  # lazy imports are not measured
    before = anonymous()
    watcher = threading.Thread(target=watch)
    watcher.start()
    result = array[...]
    is_over = True
    watcher.join()
    return (max(highest, anonymous()) - before - result.nbytes) / (1 << 20)


def files(folder: Path, size: int):
    """Write the same field once in each kind of storage."""
    import glymur

    array = field(size, "uint16")
    tifffile.imwrite(folder / "a.tif", array, compression="zlib", predictor=2, tile=(512, 512))
    tifffile.imwrite(folder / "strips.tif", array, rowsperstrip=64)
    volume = array.reshape(8, size // 8, size)
    anychunk.write(volume, folder / "a.n5/v", chunk=(8, 256, 256), compression="zstd")
    anychunk.write(volume, folder / "a.jnrrd", chunk=(8, 256, 256), compression="zstd")
    glymur.Jp2k(folder / "a.jp2", data=array[: size // 4], tilesize=(512, 512))
    np.save(folder / "a.npy", array)
    yield from ("a.tif", "strips.tif", "a.n5/v", "a.jnrrd", "a.jp2", "a.npy")


def opened(path: str):
    node = anychunk.open(path)
    return node if hasattr(node, "dtype") else anychunk.open_array(path)


def read_in_turn(path: str, barrier, times) -> None:
    array = opened(path)
    expected = int(array[...].sum(dtype=np.uint64))
    barrier.wait()
    start = time.perf_counter()
    found = array[...]
    times.put((time.perf_counter() - start, int(found.sum(dtype=np.uint64)) == expected))


def processes(path: str) -> float:
    """Return the seconds until the last of several processes has read all of one file."""
    context = multiprocessing.get_context("spawn")
    barrier, times = context.Barrier(PROCESSES), context.Queue()
    started = [
        context.Process(target=read_in_turn, args=(path, barrier, times)) for _ in range(PROCESSES)
    ]
    for process in started:
        process.start()
    found = [times.get(timeout=120) for _ in started]
    for process in started:
        process.join()
    assert all(is_right for _, is_right in found)
    return max(seconds for seconds, _ in found)


def run(quick: bool) -> list[Row]:
    size, rounds = (2048, 3) if quick else (8192, 5)
    rows = []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        for file in files(folder, size):
            most = peak_beyond(str(folder / file))
            rows.append(Row(f"memory of a full read beyond its result, {file}, MiB", most, "<= 64"))
        array = opened(str(folder / "a.tif"))
        calls = {
            "alone, twice": lambda: [array[...], array[...]],
            "two threads": lambda: list(pool.map(lambda _: array[...], range(2))),
        }
        times = best_of(calls, rounds=rounds)
        ratio = times["alone, twice"] / times["two threads"]
        detail = milliseconds(times)
        rows.append(
            Row("two threads on one file, against one after the other", ratio, ">= 0.95", detail)
        )
        alone = times["alone, twice"] / 2
        together = min(processes(str(folder / "a.tif")) for _ in range(1 if quick else 5))
        detail = f"alone {alone * 1e3:.0f} ms, {PROCESSES} together {together * 1e3:.0f} ms"
        ratio = PROCESSES * alone / together
        rows.append(
            Row(
                f"{PROCESSES} processes on one file, against one after the other",
                ratio,
                ">= 0.95",
                detail,
            )
        )
    return rows
