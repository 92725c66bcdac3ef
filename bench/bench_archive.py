"""Archives of many small files: what appending, saving and pickling cost, and how it grows.

Files are made: one GeoTIFF of 2 x 2 tiles, copied with another date each. `FULL=1` measures 100,000
of them, otherwise there are 10,000; costs at 1,000 are compared with those at the end. All times
are processor time, in child processes of their own: the machine may do other things as well.
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

from bench.measure import Row

DATE = b"2000:01:01 00:00:00"
COMMIT = 250
"""Files of a measured commit."""
ALONG = {"stack": None, "concat": "y", "group": None}
"""How files are combined, and the axis that is passed."""


def make_files(folder: Path, count: int) -> None:
    """Write `count` GeoTIFFs of one grid, an hour apart."""
    import numpy as np
    import rasterio
    from rasterio.transform import from_origin

    first = folder / "first.tif"
    with rasterio.open(
        first,
        "w",
        driver="GTiff",
        height=64,
        width=64,
        count=1,
        dtype="uint16",
        crs="EPSG:32633",
        transform=from_origin(500000, 5000000, 10, 10),
        tiled=True,
        blockxsize=32,
        blockysize=32,
        compress="deflate",
    ) as file:
        file.write(np.arange(64 * 64, dtype="uint16").reshape(1, 64, 64))
        file.update_tags(TIFFTAG_DATETIME=DATE.decode())
    data = first.read_bytes()
    first.unlink()
    start = datetime(2000, 1, 1)  # noqa: DTZ001 - TIFF dates have no zone
    for number in range(count):
        date = f"{start + timedelta(hours=number):%Y:%m:%d %H:%M:%S}".encode()
        (folder / f"{number:06}.tif").write_bytes(data.replace(DATE, date))


def peak_mib() -> float:
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def files_of(folder: str, start: int, stop: int) -> list[str]:
    return [f"{folder}/{number:06}.tif" for number in range(start, stop)]


def archive(folder: str, how: str, count: int) -> None:
    """Append files to a repository; print the cost of commits at 1,000 and at `count` files."""
    import anychunk

    target = f"{folder}/{how}.icechunk"
    commits = {}
    total = time.process_time()
    for there in (1000, count):
        start = 0 if there == 1000 else 1000 + COMMIT
        files = files_of(folder, start, there)
        anychunk.append(files, target, combine=how, along=ALONG[how])
        if there == count:
            break
        commits[there] = commit(folder, target, how, there)
    spent = (time.process_time() - total) / count
    peak = peak_mib()
    commits[count] = commit(folder, target, how, count)
    found = {"commits": list(commits.values()), "ms": spent * 1e3, "peak": peak}
    from anychunk.references.icechunk import saved_sources

    start = time.process_time()
    known = saved_sources(target)
    found["start_us"] = (time.process_time() - start) / len(known) * 1e6
    if how == "stack":
        import pickle

        array = anychunk.open(target)["0/0/image"]
        found["pickled"] = len(pickle.dumps(array)) / 1024
    print(json.dumps(found))


def commit(folder: str, target: str, how: str, there: int) -> float:
    """Return the seconds that indexing and committing some files takes, in an opened archive."""
    import anychunk
    from anychunk.references.icechunk import Archive

    start = time.process_time()
    files = files_of(folder, there, there + COMMIT)
    node = anychunk.index(files, combine=how, along=ALONG[how])
    Archive(target).append(node, along="t" if how == "stack" else ALONG[how])
    return time.process_time() - start


def held(folder: str, count: int) -> None:
    """Print the memory that the index of a stack takes, in KiB per file."""
    import gc

    import anychunk

    def resident() -> int:
        text = Path("/proc/self/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1])

    anychunk.index(files_of(folder, 0, 100), combine="stack")
    before = resident()
    node = anychunk.index(files_of(folder, 0, count), combine="stack")
    gc.collect()
    print(json.dumps((resident() - before) / node["0/0/image"].shape[0]))


def streamed(folder: str, form: str, count: int) -> None:
    """Print milliseconds per file, and the peak in MiB, of a group that is saved in batches."""
    import anychunk

    start = time.process_time()
    anychunk.index_to(files_of(folder, 0, count), combine="group", target=f"{folder}/streamed.{form}")
    found = {"ms": (time.process_time() - start) / count * 1e3, "peak": peak_mib()}
    print(json.dumps(found))


def parquet(folder: str, count: int) -> None:
    """Print the milliseconds per file that saving a group as parquet takes, and as JSON."""
    import anychunk

    found = {}
    few = anychunk.index(files_of(folder, 0, 2), combine="group")
    node = anychunk.index(files_of(folder, 0, count), combine="group")
    for form in ("parquet", "json"):
        few.save(f"{folder}/few.{form}")
        start = time.process_time()
        node.save(f"{folder}/group.{form}")
        found[form] = (time.process_time() - start) / count * 1e3
    print(json.dumps(found))


def dask(folder: str, count: int) -> None:
    """Print the milliseconds of this process per file that is indexed on a cluster of processes."""
    import distributed
    from distributed.deploy.subprocess import SubprocessCluster

    import anychunk

    # the scheduler of a LocalCluster would run in this process
    with (
        SubprocessCluster(n_workers=2, threads_per_worker=1) as cluster,
        distributed.Client(cluster) as client,
    ):
        anychunk.index(files_of(folder, 0, 200), combine="stack", executor=client)
        start = time.process_time()
        anychunk.index(files_of(folder, 0, count), combine="stack", executor=client)
        print(json.dumps((time.process_time() - start) / count * 1e3))


def child(call: str):
    """Run a function of this module in a process of its own; return what it printed."""
    code = f"from bench import bench_archive\nif __name__ == '__main__': bench_archive.{call}"
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(code)
        script.flush()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, script.name],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
    return json.loads(done.stdout.splitlines()[-1])


def run(*, quick: bool):
    count = 2000 if quick else 100_000 if os.environ.get("FULL") else 10_000
    few = 200 if quick else 1000
    with tempfile.TemporaryDirectory() as name:
        make_files(Path(name), count + COMMIT)
        for how in ALONG:
            found = child(f"archive({name!r}, {how!r}, {count})")
            first, last = found["commits"]
            exponent = math.log(last / first) / math.log(count / 1000)
            title = f"archive, {how}: commit of {COMMIT} files at {count:,} / at 1,000"
            detail = f"{first:.2f} s, {last:.2f} s; grows with the power {exponent:.2f}"
            yield Row(title, last / first, "<= 1.5", detail)
            yield Row(f"archive, {how}: {count:,} files, ms per file", found["ms"], "<= 6")
            yield Row(f"archive, {how}: {count:,} files, peak MiB", found["peak"], "<= 512")
            title = f"archive, {how}: start of append at {count:,} files, µs per file"
            yield Row(title, found["start_us"], "<= 10")
            if "pickled" in found:
                title = f"archive: pickled array of {count:,} files, KiB"
                yield Row(title, found["pickled"], "<= 50")
            shutil.rmtree(f"{name}/{how}.icechunk")
        yield Row(f"index of a stack of {few:,} files, KiB per file",
                  child(f"held({name!r}, {few})"), "<= 4")  # fmt: skip
        for form in ("json", "parquet"):
            found = child(f"streamed({name!r}, {form!r}, {count})")
            title = f"group of {count:,} files into {form}, peak MiB"
            yield Row(title, found["peak"], "<= 512", f"{found['ms']:.1f} ms per file, all in")
        found = child(f"parquet({name!r}, {few})")
        detail = f"4 arrays per file; kerchunk JSON {found['json']:.2f} ms"
        yield Row(f"parquet of a group of {few:,} files, ms per file", found["parquet"], "<= 2",
                  detail)  # fmt: skip
        yield Row(f"stack of {few:,} files on Dask, client ms per file",
                  child(f"dask({name!r}, {few})"), "<= 1")  # fmt: skip
