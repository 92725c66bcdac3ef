"""Ordinary arrays that change while they are open: nothing that was read before is shown again."""

import json
import subprocess
import sys

import numpy as np
import obstore.store
import pytest
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec
from zarr.storage import LocalStore, ObjectStore

import anychunk
from tests.support.patience import PATIENCE_S

SHAPE, CHUNK = (60, 90), (16, 32)
BOXES = (
    np.s_[...],
    np.s_[3:50, 5:80],
    np.s_[17:18, 33:34],
    np.s_[20, 40],
    np.s_[::7, ::5],
)
CODECS = {
    "raw": {"compressors": None},
    "zstd": {"compressors": [ZstdCodec()]},
    "gzip": {"compressors": [GzipCodec()]},
    "blosc": {"compressors": [BloscCodec()]},
    "shards": {"compressors": [ZstdCodec()], "shards": (32, 64)},
}


@pytest.fixture(autouse=True)
def enabled():
    anychunk.enable()
    yield
    anychunk.disable()


def local(folder):
    return lambda: LocalStore(folder)


def obstores(folder):
    return lambda: ObjectStore(obstore.store.LocalStore(str(folder)))


def in_memory(folder):
    store = obstore.store.MemoryStore()
    return lambda: ObjectStore(store)


def made(store, **options):
    return zarr.create_array(
        store(), shape=SHAPE, dtype="u2", chunks=CHUNK, fill_value=7, **options
    )


def assert_read(arrays, expected, step):
    for array in arrays:
        for box in BOXES:
            np.testing.assert_array_equal(array[box], expected[box], f"{step} {box}")
        found = array.oindex[[1, 40, 59], :]
        np.testing.assert_array_equal(found, expected[[1, 40, 59]], str(step))


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("store", [local, obstores, in_memory])
def test_reads_alternate_with_writes(tmp_path, store, kind):
    """Through the same array, and through another one."""
    opened = store(tmp_path)
    first = made(opened, **CODECS[kind])
    second = zarr.open_array(opened(), mode="r+")
    arrays, expected = [first, second], np.full(SHAPE, 7, "u2")
    if store is not in_memory:
        arrays.append(anychunk.open_array(tmp_path))
    rng = np.random.default_rng(5)
    for step in range(12):
        assert_read(arrays, expected, step)
        low = [int(rng.integers(0, n)) for n in SHAPE]
        high = [int(rng.integers(a + 1, n + 1)) for a, n in zip(low, SHAPE, strict=True)]
        box = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
        if step % 4 == 3:  # whole chunks of fill values, which are not stored
            box, values = np.s_[:], 7
        else:
            values = rng.integers(0, 9999, [b - a for a, b in zip(low, high, strict=True)], "u2")
        arrays[step % 2][box] = values
        expected[box] = values
    assert_read(arrays, expected, "end")


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("store", [local, obstores])
def test_chunks_are_deleted_and_made_again(tmp_path, store, kind):
    array = made(store(tmp_path), **CODECS[kind])
    values = np.random.default_rng(1).integers(0, 9999, SHAPE, "u2")
    array[...] = values
    arrays = [array, anychunk.open_array(tmp_path)]
    side = (32, 64) if kind == "shards" else CHUNK
    place, file = tuple(slice(n, 2 * n) for n in side), tmp_path / "c/1/1"
    stored = file.read_bytes()
    without = values.copy()
    without[place] = 7
    for _ in range(2):
        assert_read(arrays, values, "there")
        file.unlink()
        assert_read(arrays, without, "gone")
        file.write_bytes(stored)


WRITER = """
import json, sys, numpy as np, zarr
array = zarr.open_array(sys.argv[1], mode="r+")
for line in sys.stdin:
    a, b, c, d, value = json.loads(line)
    array[a:b, c:d] = value
    print("done", flush=True)
"""


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["raw", "zstd", "shards"])
def test_another_process_writes(tmp_path, kind):
    array = made(local(tmp_path), **CODECS[kind])
    objects = zarr.open_array(obstores(tmp_path)(), mode="r")
    arrays, expected = [array, objects, anychunk.open_array(tmp_path)], np.full(SHAPE, 7, "u2")
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        for number in range(4):
            box = (5 * number, 60 - number, 9 * number, 90 - number, 100 + number)
            writer.stdin.write(json.dumps(box) + "\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == "done\n"
            expected[box[0] : box[1], box[2] : box[3]] = box[4]
            assert_read(arrays, expected, number)
        writer.stdin.close()
        assert writer.wait(PATIENCE_S) == 0
