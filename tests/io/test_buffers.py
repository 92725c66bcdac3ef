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


RESULT = ((9, 4 << 20), np.dtype("u1"), "C")
"""Shape, type and order of an array above `LEAST_RESULT`."""


@pytest.fixture
def results(monkeypatch):
    kept = []
    monkeypatch.setattr(buffers, "_results", kept)
    return kept


def test_memory_of_a_freed_result_is_used_again(results):
    first = buffers.new_result(*RESULT)
    first[:] = 1
    start = place(first)
    second = buffers.new_result(*RESULT)
    assert place(second) != start
    del first
    third = buffers.new_result(*RESULT)
    assert place(third) == start
    third[:] = 3
    assert second.shape == third.shape == RESULT[0]
    assert third.flags.c_contiguous
    assert third.flags.writeable
    assert not results


def test_memory_of_a_result_is_not_used_while_a_view_refers_to_it(results):
    first = buffers.new_result(*RESULT)
    start, view = place(first), first[3:, 100:]
    view[:] = 7
    del first
    second = buffers.new_result(*RESULT)
    second[:] = 1
    assert place(second) != start
    assert view.min() == 7
    del view
    assert len(results) == 1


def test_results_have_the_asked_type_and_order(results):
    found = buffers.new_result((3, 2000, 2000), np.dtype(">f4"), "F")
    assert (found.shape, found.dtype, found.flags.f_contiguous) == (
        (3, 2000, 2000),
        np.dtype(">f4"),
        True,
    )


def test_small_and_very_large_results_are_left_to_numpy(results):
    for nbytes in (1 << 20, buffers.MOST_RESULT + 1):
        found = buffers.new_result((nbytes,), np.dtype("u1"), "C")
        assert found.flags.owndata
        del found
    assert not results


def test_no_more_than_a_bound_is_kept(results, monkeypatch):
    monkeypatch.setattr(buffers, "RESULTS_KEPT", 80 << 20)
    arrays = [buffers.new_result(*RESULT) for _ in range(4)]
    del arrays
    assert len(results) == 2


def test_a_much_larger_buffer_is_not_used(results):
    del (large := [buffers.new_result((100 << 20,), np.dtype("u1"), "C")])[0]
    assert len(results) == 1
    found = buffers.new_result(*RESULT)
    assert len(results) == 1
    assert found.size == 36 << 20
    assert not large


def test_results_are_left_to_numpy_where_the_system_cannot_reclaim_memory(results, monkeypatch):
    monkeypatch.setattr(system, "FREE", None)
    assert buffers.new_result(*RESULT).flags.owndata


def test_threads_never_share_the_memory_of_results(results):
    failed = []

    def use(value):
        for _ in range(10):
            mine = buffers.new_result(*RESULT)
            mine[:, ::4096] = value
            if not (mine[:, ::4096] == value).all():
                failed.append(value)
            del mine

    threads = [threading.Thread(target=use, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len({id(memory) for memory in results}) == len(results) <= 4
