"""N5 against tensorstore and zarr-n5: 1024 x 1024 x 64 uint16 in blocks of 64 x 64 x 64."""

import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import tensorstore
from tests import peers

import anychunk
from bench.measure import Row, best_of

COMPRESSIONS = {
    "gzip": {"type": "gzip", "level": 6, "useZlib": False},
    "zstd": {"type": "zstd", "level": 3},
    "raw": {"type": "raw"},
    "blosc": {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
}
READ = {"gzip": ">= 1.1", "zstd": ">= 1.1", "raw": ">= 1.2", "blosc": ">= 1.0"}
ZARR_N5 = """
import sys, time, warnings
warnings.simplefilter("ignore")
import zarr
from zarr_n5 import N5WrapperStore
store = N5WrapperStore(zarr.storage.LocalStore(sys.argv[1], read_only=True))
array = zarr.open_array(store, mode="r")
times = []
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    array[...]
    times.append(time.perf_counter() - start)
print(min(times))
"""
NO_CACHE = tensorstore.Context({"cache_pool": {"total_bytes_limit": 0}})


def volume(quick):
    """A smooth field and noise."""
    shape = (256, 256, 64) if quick else (1024, 1024, 64)
    x, y, z = (np.linspace(0, 6, n) for n in shape)
    smooth = np.sin(x)[:, None, None] + np.cos(y)[None, :, None] + 0.1 * z[None, None, :]
    noise = np.random.default_rng(0).normal(0, 8, shape)
    return (smooth * 2000 + 8000 + noise).astype("uint16")


def opened(path, **options):
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path)}, **options}
    return tensorstore.open(spec, context=NO_CACHE, create="metadata" in options).result()


def milliseconds(times):
    return ", ".join(f"{name} {seconds * 1e3:.3g} ms" for name, seconds in times.items())


def reading(folder, array, rounds):
    for kind, compression in COMPRESSIONS.items():
        path = folder / f"{kind}.n5"
        anychunk.write(array, path, block=(64, 64, 64), compression=compression)
        ours, theirs = anychunk.open(path), opened(path)
        times = best_of(
            {"anychunk": lambda a=ours: a[...], "tensorstore": lambda a=theirs: a.read().result()},
            rounds=rounds,
        )
        ratio = times["tensorstore"] / times["anychunk"]
        yield Row(f"n5 read {kind} / tensorstore", ratio, READ[kind], milliseconds(times), times)
        # in a process of its own, which alone sees it
        times["zarr-n5"] = float(peers.run(ZARR_N5, path, 3))
        ratio = times["zarr-n5"] / times["anychunk"]
        yield Row(f"n5 read {kind} / zarr-n5", ratio, ">= 2", milliseconds(times), times)
        times = best_of(
            {
                "anychunk": lambda a=ours: a[64:128, 64:128, 5:6],
                "tensorstore": lambda a=theirs: a[64:128, 64:128, 5:6].read().result(),
            },
            rounds=20 * rounds,
        )
        ratio = times["tensorstore"] / times["anychunk"]
        case = f"n5 one plane 64 x 64 x 1 warm, {kind} / tensorstore"
        yield Row(case, ratio, ">= 1.0", milliseconds(times), times)


def writing(folder, array, rounds):
    for kind in ("gzip", "zstd"):
        target = folder / "written.n5"
        metadata = {
            "dimensions": array.shape,
            "blockSize": [64, 64, 64],
            "dataType": "uint16",
            "compression": COMPRESSIONS[kind],
        }

        def ours(kind=kind, target=target):
            shutil.rmtree(target, ignore_errors=True)
            anychunk.write(array, target, block=(64, 64, 64), compression=COMPRESSIONS[kind])

        def theirs(metadata=metadata, target=target):
            shutil.rmtree(target, ignore_errors=True)
            opened(target, metadata=metadata).write(array).result()

        times = best_of({"anychunk": ours, "tensorstore": theirs}, rounds=rounds)
        ratio = times["tensorstore"] / times["anychunk"]
        yield Row(f"n5 write {kind} / tensorstore", ratio, ">= 1.0", milliseconds(times), times)
        shutil.rmtree(target)


def listing(folder, quick):
    count = 1000 if quick else 10_000
    root = folder / "many.n5"
    attributes = {
        "dimensions": [64, 64, 64],
        "blockSize": [64, 64, 64],
        "dataType": "uint16",
        "compression": {"type": "gzip", "level": -1},
    }
    for number in range(count):
        place = root / f"d{number}"
        place.mkdir(parents=True)
        (place / "attributes.json").write_text(json.dumps(attributes))

    def timed(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    names = min(timed(lambda: list(anychunk.index(root).members)) for _ in range(3))
    described = min(timed(lambda: anychunk.describe(root)) for _ in range(3))
    detail = f"names only {names:.3g} s"
    yield Row(f"n5 every dataset of {count} listed, seconds", described, "<= 1 s", detail)


def run(quick: bool) -> list[Row]:
    array = volume(quick)
    rounds = 5 if quick else 7
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            *reading(folder, array, rounds),
            *writing(folder, array, rounds),
            *listing(folder, quick),
        ]
