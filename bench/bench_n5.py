"""N5 compared with tensorstore, z5py and zarr-n5: 1024 x 1024 x 64 uint16, blocks of 64."""

import json
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import imagecodecs
import numpy as np
import tensorstore

import anychunk
from bench import peers
from bench.measure import BARE, OURS, Row, compare, cores

COMPRESSIONS = {
    "gzip": {"type": "gzip", "level": 6, "useZlib": False},
    "zstd": {"type": "zstd", "level": 3},
    "raw": {"type": "raw"},
    "blosc": {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
}
READ = {"gzip": 1.1, "zstd": 1.1, "raw": 1.2, "blosc": 1.0}
NO_CACHE = tensorstore.Context({"cache_pool": {"total_bytes_limit": 0}})


def volume(quick):
    """Return a smooth field with noise."""
    shape = (256, 256, 64) if quick else (1024, 1024, 64)
    x, y, z = (np.linspace(0, 6, n) for n in shape)
    smooth = np.sin(x)[:, None, None] + np.cos(y)[None, :, None] + 0.1 * z[None, None, :]
    noise = np.random.default_rng(0).normal(0, 8, shape)
    return (smooth * 2000 + 8000 + noise).astype("uint16")


def opened(path, **options):
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path)}, **options}
    return tensorstore.open(spec, context=NO_CACHE, create="metadata" in options).result()


def bare(path, kind):
    """Return a function that reads and decodes all blocks by bare calls."""
    decode = {
        "gzip": imagecodecs.gzip_decode,
        "zstd": imagecodecs.zstd_decode,
        "blosc": imagecodecs.blosc_decode,
        "raw": lambda data, out: out,
    }[kind]
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.name.isdigit())
    buffers, pool = threading.local(), ThreadPoolExecutor(cores())

    def some(first):
        out = buffers.__dict__.setdefault("out", np.empty(64**3 * 2, np.uint8))
        for file in files[first :: cores()]:
            decode(file.read_bytes()[16:], out=out)

    return lambda: list(pool.map(some, range(cores())))


def reading(folder, array, rounds):
    import z5py

    for kind, compression in COMPRESSIONS.items():
        path, wrong = folder / "all.n5" / kind, {}
        anychunk.write(array, path, chunk=(64, 64, 64), compression=compression, axes="xyz")
        theirs = opened(path)
        calls = {
            OURS: lambda path=path: anychunk.open(path, axes="xyz")[...],
            "tensorstore": lambda a=theirs: a.read().result(),
            BARE: bare(path, kind),
            **peers.calls(("zarr-n5",), str(path), array, wrong),
        }
        yield compare(f"N5 {kind}, full read", calls, READ[kind], rounds=rounds, wrong=wrong)
        if kind in ("gzip", "raw"):  # the only two that this build of z5py supports
            dataset = z5py.File(str(path.parent), "r")[kind]
            dataset.n_threads = cores()
            calls = {
                OURS: lambda path=path: anychunk.open(path)[...],
                "z5py": lambda dataset=dataset: dataset[...],
            }
            yield compare(f"N5 {kind}, full read as (z, y, x)", calls, 1.0, rounds=rounds)
        ours = anychunk.open(path, axes="xyz")
        calls = {
            OURS: lambda a=ours: a[64:128, 64:128, 5:6],
            "tensorstore": lambda a=theirs: a[64:128, 64:128, 5:6].read().result(),
        }
        yield compare(f"N5 {kind}, plane of 64 x 64, opened before", calls, 1.0, rounds=20 * rounds)


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
            anychunk.write(array, target, chunk=(64, 64, 64), compression=COMPRESSIONS[kind])

        def theirs(metadata=metadata, target=target):
            shutil.rmtree(target, ignore_errors=True)
            opened(target, metadata=metadata).write(array).result()

        calls = {OURS: ours, "tensorstore": theirs}
        yield compare(f"N5 {kind}, write", calls, 1.0, rounds=rounds)
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
    yield Row(f"N5 container of {count:,} datasets listed, seconds", names, "<= 1")
    yield Row(f"N5 container of {count:,} datasets, each described, seconds", described, "<= 1")


def run(quick: bool) -> list[Row]:
    array = volume(quick)
    rounds = 3 if quick else 7
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            *reading(folder, array, rounds),
            *writing(folder, array, rounds),
            *listing(folder, quick),
        ]
