import threading

import numpy as np
import pytest

from anychunk.io import buffers, system

LARGE = buffers.KEPT_BYTES + 100


@pytest.fixture(autouse=True)
def _none_kept(monkeypatch):
    monkeypatch.setattr(buffers, "_large", {})


def place(array):
    return array.__array_interface__["data"][0]


def test_large_memory_is_used_again():
    with buffers.borrowed_large("test", LARGE) as first:
        first[:] = 1
        start = place(first)
        with buffers.borrowed_large("test", LARGE) as nested:
            assert place(nested) != start
    with buffers.borrowed_large("test", LARGE - 10) as second:
        assert second.size == LARGE - 10
        second[:] = 2
        assert second.min() == 2
    assert len(buffers._large) == 1


def test_small_memory_stays_with_its_thread():
    with buffers.borrowed_large("test", 100) as small:
        assert small.size == 100
    assert not buffers._large


def test_very_large_memory_is_not_kept(monkeypatch):
    monkeypatch.setattr(buffers, "LARGE_KEPT", LARGE - 1)
    with buffers.borrowed_large("test", LARGE) as memory:
        memory[-1] = 1
    assert not buffers._large


@pytest.mark.parametrize("what", ["no such call", "refused"])
def test_memory_is_not_kept_where_the_system_cannot_reclaim_it(monkeypatch, what):
    monkeypatch.setattr(system, "FREE", None if what == "no such call" else 9999)
    with buffers.borrowed_large("test", LARGE) as memory:
        memory[-1] = 1
    assert not buffers._large


def test_threads_never_share_memory():
    barrier, found = threading.Barrier(4), []

    def use(value):
        for _ in range(5):
            with buffers.borrowed_large("test", LARGE) as memory:
                barrier.wait()
                memory[:: 1 << 12] = value
                barrier.wait()
                found.append(bool((memory[:: 1 << 12] == value).all()))

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.all(found)
    assert len(found) == 20
