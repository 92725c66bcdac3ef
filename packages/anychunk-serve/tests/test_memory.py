"""The server keeps within the memory that it is given."""

import math

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk_serve import memory
from anychunk_serve.box_reader import Caches
from anychunk_serve.catalog import OPEN_SHARE, Catalog
from anychunk_serve.memory import LEAST, MemoryGuard, index_bytes
from tests.support.serving import running

MIB = 1 << 20


@pytest.fixture
def filled():
    """Return caches of 64 MiB with 8 MiB of chunks of each kind."""
    caches = Caches(memory=64 * MIB)
    for number in range(16):
        caches.encoded.put(number, (None, number), MIB // 2)
        caches.small.put(number, number, MIB // 2)
    return caches


def tended(caches, monkeypatch, *, used):
    monkeypatch.setattr(memory, "resident_bytes", lambda: used)
    guard = MemoryGuard(caches)
    guard.tend()
    return guard


def test_nothing_is_evicted_below_the_bound(filled, monkeypatch):
    before = (filled.encoded.nbytes, filled.small.nbytes)
    assert min(before) == 8 * MIB
    for used in (None, 64 * MIB):
        tended(filled, monkeypatch, used=used)
        assert (filled.encoded.nbytes, filled.small.nbytes) == before


def test_the_excess_is_evicted(filled, monkeypatch):
    tended(filled, monkeypatch, used=67 * MIB)
    assert (filled.encoded.nbytes, filled.small.nbytes) == (5 * MIB, 8 * MIB)
    # the oldest first
    assert filled.encoded.get(0) is None
    assert filled.encoded.get(15) is not None


def test_some_chunks_are_kept_whatever_else_uses_memory(filled, monkeypatch):
    guard = tended(filled, monkeypatch, used=640 * MIB)
    least = 64 * MIB // LEAST
    assert (filled.encoded.nbytes, filled.small.nbytes) == (least, least)
    # it does not look again at once: that takes time
    monkeypatch.setattr(memory, "INTERVAL_S", math.inf)
    monkeypatch.setattr(memory, "resident_bytes", lambda: pytest.fail("looked again"))
    guard.tend()


def test_memory_is_that_of_the_process():
    before = memory.resident_bytes()
    if before is None:
        pytest.skip("this system does not tell the memory of a process: Linux does")
    held = np.ones(64 * MIB, np.uint8)
    assert memory.resident_bytes() - before > held.nbytes // 2


def test_open_files_share_a_part_of_the_memory(tmp_path):
    """Files opened before are closed: each counts with its table of chunks."""
    path = tmp_path / "0.tif"
    tifffile.imwrite(path, np.zeros((4096, 4096), np.uint8), tile=(32, 32))
    table = index_bytes(anychunk.index(path))
    assert table >= (4096 // 32) ** 2 * 16
    for number in range(1, 12):
        (tmp_path / f"{number}.tif").symlink_to(path)
    caches = Caches(memory=64 * MIB)
    catalog = Catalog([str(tmp_path)], caches=caches)
    for entry in catalog.entries():
        catalog.opened(entry)
    open_now = [entry.name for entry in catalog.entries() if catalog.peek(entry) is not None]
    most = caches.most // OPEN_SHARE / (2 * MIB + table)
    assert len(catalog) == 12
    assert open_now == [entry.name for entry in catalog.entries()][-math.floor(most) :]


@pytest.mark.processes
def test_the_process_stays_within_its_bound(tmp_path):
    """All chunks in every encoding are 96 MiB; the peak grows by less than the bound of 64 MiB."""
    side, tile = 4096, 1024
    data = np.random.default_rng(1).integers(0, 65536, (side, side)).astype(np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", data, tile=(tile, tile))
    with running(tmp_path / "a.tif", "--memory", "64") as server:
        place = "a.tif/0/0/image"
        assert server.get(f"/zarr/{place}/c/0/0")[0] == 200
        before = server.memory
        total = 0
        for prefix in ("zarr", "zarr-raw", "zarr-labels"):
            for number in range((side // tile) ** 2):
                y, x = divmod(number, side // tile)
                status, body, _ = server.get(f"/{prefix}/{place}/c/{y}/{x}")
                assert status == 200
                total += len(body)
        assert total >= 96 * MIB
        assert server.memory - before < 64 * MIB
