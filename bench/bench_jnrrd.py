"""JNRRD compared with bare decoder and encoder calls, and with pynrrd."""

import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import imagecodecs
import numpy as np

import anychunk
from anychunk.formats.jnrrd import parse
from anychunk.io.opening import open_source
from bench.measure import BARE, OURS, Row, best_of, compare, milliseconds

TILE = (32, 256, 256)
THREADS = 2
DECODE = {
    "gzip": imagecodecs.gzip_decode,
    "zstd": imagecodecs.zstd_decode,
    "lz4": imagecodecs.lz4f_decode,
}


def volume(shape):
    """Make a smooth field with noise, deterministic."""
    z, y, x = (np.linspace(0, 6, n, dtype=np.float32) for n in shape)
    plane = np.sin(y)[:, None] * np.cos(x)[None]
    noise = np.random.default_rng(7).integers(0, 64, shape[1:], dtype=np.uint16)
    out = np.empty(shape, np.uint16)
    for i, depth in enumerate(z):
        out[i] = (plane * np.cos(depth) * 8000 + 20000).astype(np.uint16) + np.roll(noise, i * 131)
    return out


def run(quick: bool) -> list[Row]:
    shape, rounds = ((32, 512, 512), 3) if quick else ((128, 2048, 2048), 5)
    with tempfile.TemporaryDirectory() as folder:
        data = volume(shape)
        rows = [read_raw(data, folder, rounds)]
        rows += [read_compressed(data, name, folder, rounds) for name in DECODE]
        rows.append(read_against_pynrrd(data, folder, rounds))
        rows.append(write_pyramid(data, folder, rounds))
        del data
        rows.append(header_of_many(folder, 100_000 if quick else 1_000_000))
        rows.append(memory(quick))
    return rows


def read_raw(data, folder, rounds):
    path = f"{folder}/raw.jnrrd"
    anychunk.write(data, path, chunk=TILE)
    plain = f"{folder}/plain.raw"
    data.tofile(plain)
    array = anychunk.open_array(path)
    assert np.array_equal(array[:], data)
    calls = {OURS: lambda: array[:], "numpy.fromfile": lambda: np.fromfile(plain, data.dtype)}
    found = compare("JNRRD raw, full read", calls, 0.9, rounds=rounds)
    Path(path).unlink()
    Path(plain).unlink()
    return found


def read_compressed(data, name, folder, rounds):
    path = f"{folder}/{name}.jnrrd"
    anychunk.write(data, path, chunk=TILE, compression=name, compression_level=1)
    array = anychunk.open_array(path)
    assert np.array_equal(array[:], data)
    chunks = anychunk.index(path)["0/0/image"].chunks
    whole = np.memmap(path, np.uint8)
    ranges = list(zip(chunks.offsets.flat, chunks.lengths.flat, strict=True))
    size = int(np.prod(TILE)) * 2

    def part(start):
        return [
            DECODE[name](whole[offset : offset + length], out=size)
            for offset, length in ranges[start::THREADS]
        ]

    pool = ThreadPoolExecutor(THREADS)
    calls = {OURS: lambda: array[:], BARE: lambda: list(pool.map(part, range(THREADS)))}
    times = best_of(calls, rounds=rounds)
    Path(path).unlink()
    detail = f"the bare decoder's time / ours: {milliseconds(times)}"
    return Row(f"JNRRD {name}, full read", times[BARE] / times[OURS], ">= 0.95", detail, times)


def read_against_pynrrd(data, folder, rounds):
    import nrrd

    part = data[: max(32, len(data) // 4)]
    path, other = f"{folder}/ours.jnrrd", f"{folder}/theirs.nrrd"
    anychunk.write(part, path, chunk=TILE, compression="gzip", compression_level=6)
    nrrd.write(other, part, {"encoding": "gzip"}, index_order="C", compression_level=6)
    array = anychunk.open_array(path)
    calls = {OURS: lambda: array[:], "pynrrd": lambda: nrrd.read(other, index_order="C")}
    return compare("JNRRD gzip, full read of a quarter", calls, 1.5, rounds=rounds)


def write_pyramid(data, folder, rounds):
    """Write four levels, zstd, average; the bare calls encode the same tiles."""
    path = f"{folder}/written.jnrrd"
    options = {"tile": TILE, "compression": "zstd", "levels": 4, "downsample": "average"}
    anychunk.write(data, path, **options)
    group = anychunk.open(path)["0"]
    levels = [group[str(n)][:] for n in range(4)]
    boxes = [
        (level, tuple(slice(i * t, (i + 1) * t) for i, t in zip(index, TILE, strict=True)))
        for level in levels
        for index in np.ndindex(*(-(-n // t) for n, t in zip(level.shape, TILE, strict=True)))
    ]

    def encode(box):
        level, where = box
        return len(imagecodecs.zstd_encode(np.ascontiguousarray(level[where]), level=3))

    pool = ThreadPoolExecutor(THREADS)
    calls = {
        OURS: lambda: anychunk.write(data, path, workers=THREADS, **options),
        "bare encoder": lambda: list(pool.map(encode, boxes)),
    }
    times = best_of(calls, rounds=rounds)
    return Row(
        "JNRRD zstd, write of 4 levels: our time / bare encoder's",
        times[OURS] / times["bare encoder"],
        "<= 1.5",
        milliseconds(times),
        times,
    )


def header_of_many(folder, tiles):
    """Parse a header with very many tiles."""
    path = f"{folder}/many.jnrrd"
    fields = {
        "jnrrd": "0004",
        "type": "uint8",
        "dimension": 3,
        "sizes": [100, 100, tiles // 10_000],
        "encoding": "raw",
        "extensions": {"tile": "https://jnrrd.org/extensions/tile/v1.0.0"},
        "tile:enabled": True,
        "tile:dimensions": [0, 1, 2],
        "tile:sizes": [1, 1, 1],
        "tile:storage": "internal",
        "tile:compression": "zstd",
        "tile:size_table": [11] * tiles,
        "tile:offset_table": [(16 << 20) + 11 * i for i in range(tiles)],
    }
    with Path(path).open("wb") as file:
        file.writelines(json.dumps({key: value}).encode() + b"\n" for key, value in fields.items())
        file.write(b"\n")
        file.truncate((16 << 20) + 11 * tiles)
    times = best_of({"parse": lambda: parse(open_source(path))}, rounds=3)
    return Row(f"JNRRD header of {tiles:,} tiles, seconds", times["parse"], "<= 2", "", times)


def memory(quick):
    """Measure the peak memory of a process that writes a volume computed tile by tile."""
    gib = 0.25 if quick else 10
    code = f"from bench.bench_jnrrd import write_virtual; write_virtual({gib})"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - start
    return Row(
        f"JNRRD write of {gib} GiB with 4 levels, peak MiB",
        float(done.stdout.split()[-1]),
        "<= 256",
        f"{seconds:.0f} s",
    )


class Synthesised:
    """An array that computes slices on demand."""

    dtype = np.dtype(np.uint16)

    def __init__(self, shape):
        self.shape = shape

    def __getitem__(self, where):
        z, y, x = (np.arange(s.start, s.stop, dtype=np.uint16) for s in where)
        return (z * 7)[:, None, None] ^ (y * 3)[None, :, None] ^ x[None, None]


def write_virtual(gib):
    shape = (int(gib * 512 // 4), 2048, 2048) if gib >= 1 else (128, 1024, 1024)
    with tempfile.TemporaryDirectory() as folder:
        anychunk.write(
            Synthesised(shape),
            f"{folder}/large.jnrrd",
            chunk=TILE,
            compression="zstd",
            compression_level=1,
            levels=4,
            workers=THREADS,
        )
    # not ru_maxrss: a child process inherits it from its parent
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(int(status["VmHWM"].split()[0]) / 1024)
