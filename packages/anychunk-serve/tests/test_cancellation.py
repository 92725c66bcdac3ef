"""Cancellation of long work, and work on several threads that can be cancelled."""

import threading

import pytest

from anychunk_serve import cancellation
from anychunk_serve.cancellation import Cancelled, cancelled_unless, map_on_threads


def test_work_is_cancelled_inside_the_block_only():
    cancellation.check()
    with cancelled_unless(lambda: False):
        with pytest.raises(Cancelled):
            cancellation.check()
        with cancelled_unless(lambda: True):
            cancellation.check()
        with pytest.raises(Cancelled):
            cancellation.check()
    cancellation.check()


def test_results_are_in_order():
    threads = set()

    def square(n):
        threads.add(threading.get_ident())
        return n * n

    assert list(map_on_threads(square, range(100))) == [n * n for n in range(100)]
    assert threading.get_ident() not in threads
    assert list(map_on_threads(square, [3])) == [9]
    assert threading.get_ident() in threads


def test_nested_work_stays_on_its_thread():
    def outer(n):
        here = threading.get_ident()
        inner = list(map_on_threads(lambda m: (threading.get_ident(), n + m), range(3)))
        return [thread == here for thread, _ in inner], [value for _, value in inner]

    found = list(map_on_threads(outer, range(50)))
    assert found == [([True] * 3, [n, n + 1, n + 2]) for n in range(50)]


def test_the_first_failure_is_raised():
    def work(n):
        if n == 5:
            raise ValueError("five")
        return n

    with pytest.raises(ValueError, match="five"):
        list(map_on_threads(work, range(100)))


def test_cancelled_work_begins_nothing_new():
    done = []
    needed = [True]

    def work(n):
        done.append(n)
        needed[0] = False
        return n

    with cancelled_unless(lambda: needed[0]), pytest.raises(Cancelled):
        list(map_on_threads(work, range(1000)))
    assert len(done) < 100
