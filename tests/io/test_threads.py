"""Thread runners: order, bounds and failures, by events and counters rather than by time."""

import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
import tifffile

from anychunk.io import threads
from anychunk.io.threads import as_completed, in_order, run_all, run_ranges
from tests.support.patience import PATIENCE_S, wait_until


class Manual:
    """An executor whose tasks end only when a test says so."""

    def __init__(self):
        self.submitted = []

    def submit(self, work, item):
        future = Future()
        self.submitted.append((item, future, work))
        return future

    def finish(self, position):
        item, future, work = self.submitted[position]
        future.set_running_or_notify_cancel()
        try:
            future.set_result(work(item))
        except BaseException as e:
            future.set_exception(e)


@pytest.fixture
def executor():
    with ThreadPoolExecutor(4) as found:
        yield found


class Counted:
    """Items, and how many of them have been taken."""

    def __init__(self, count):
        self.count, self.taken = count, 0

    def __iter__(self):
        for item in range(self.count):
            self.taken += 1
            yield item


@pytest.mark.parametrize("run", [as_completed, in_order])
def test_every_item_once(run, executor):
    found = list(run(lambda n: n * n, range(100), executor=executor, ahead=8))
    if run is in_order:
        assert found == [n * n for n in range(100)]
    else:
        assert sorted(found) == [(n, n * n) for n in range(100)]
    assert list(run(str, [], executor=executor, ahead=1)) == []


def test_results_come_in_the_order_of_the_items(executor):
    """The first item ends last."""
    others = [threading.Event() for _ in range(4)]

    def work(n):
        if n == 0:
            assert all(event.wait(PATIENCE_S) for event in others[1:])
        others[n].set()
        return n

    assert list(in_order(work, range(4), executor=executor, ahead=4)) == [0, 1, 2, 3]


def test_results_come_as_they_are_completed(executor):
    """The first item ends only after another result has been received."""
    received = threading.Event()

    def work(n):
        assert n != 0 or received.wait(PATIENCE_S)
        return n

    found = []
    for item, _ in as_completed(work, range(4), executor=executor, ahead=4):
        found.append(item)
        received.set()
    assert sorted(found) == [0, 1, 2, 3]
    assert found[0] != 0


def next_after(results, manual, position, *, submitted):
    """Return the next result; a task ends once as many as `submitted` are."""

    def finish():
        wait_until(lambda: len(manual.submitted) >= submitted)
        manual.finish(position)

    thread = threading.Thread(target=finish, daemon=True)
    thread.start()
    found = next(results)
    thread.join(PATIENCE_S)
    return found


@pytest.mark.parametrize("run", [as_completed, in_order])
def test_items_are_taken_no_further_ahead_than_the_bound(run):
    manual, items = Manual(), Counted(100)
    results = run(lambda n: n, items, executor=manual, ahead=3)
    assert items.taken == 0, "nothing starts before the first result is asked for"
    for position in range(20):
        next_after(results, manual, position, submitted=position + 3)
        assert items.taken == len(manual.submitted) == position + 3
    results.close()
    assert items.taken == 22


@pytest.mark.parametrize("run", [as_completed, in_order])
def test_the_first_failure_is_raised_and_the_rest_is_cancelled(run):
    manual = Manual()

    def work(n):
        if n == 1:
            raise OSError("disk 1 is full")
        return n

    results = run(work, Counted(100), executor=manual, ahead=3)
    next_after(results, manual, 0, submitted=3)
    with pytest.raises(OSError, match="disk 1 is full"):
        next_after(results, manual, 1, submitted=4)
    cancelled = [future.cancelled() for _, future, _ in manual.submitted]
    assert cancelled == [False, False, True, True], "nothing is submitted after the failure"


@pytest.mark.parametrize("run", [as_completed, in_order])
def test_a_caller_that_stops_cancels_what_has_not_begun(run):
    manual = Manual()
    results = run(lambda n: n, Counted(100), executor=manual, ahead=2)
    next_after(results, manual, 0, submitted=2)
    results.close()
    assert [future.cancelled() for _, future, _ in manual.submitted] == [False, True]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_run_all(count):
    done = []
    run_all(done.append, range(50), threads=count, name="test")
    assert sorted(done) == list(range(50))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_run_all_stops_at_a_failure(count, error):
    items = Counted(1000)

    def work(n):
        if n == 4:
            raise error("item 4")

    with pytest.raises(error, match="item 4"):
        run_all(work, items, threads=count, name="test")
    assert items.taken < 1000, "items are no longer taken after a failure"


def test_run_all_runs_alone_in_the_caller():
    where = []
    run_all(lambda _: where.append(threading.current_thread()), [1], threads=1, name="test")
    assert where == [threading.current_thread()]


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
@pytest.mark.parametrize("count_threads", [1, 2, 4])
@pytest.mark.parametrize("most", [1, 64])
def test_ranges_cover_every_item_once(count, count_threads, most):
    ranges = []
    run_ranges(ranges.append, count, threads=count_threads, most=most)
    assert sorted(n for part in ranges for n in part) == list(range(count))
    assert all(1 <= len(part) <= most for part in ranges)


def test_ranges_end_with_single_items():
    """A thread that begins the last range does not keep the others waiting for many items."""
    ranges = []
    run_ranges(ranges.append, 64, threads=1, most=64)
    assert [len(part) for part in ranges][:2] == [16, 16]
    assert [len(part) for part in ranges][-2:] == [1, 1]
    assert len(ranges) < 12, "and not all of them are"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_no_range_begins_after_a_failure(error):
    """Of two threads one fails while the other is at work; neither takes another range."""
    began, taken, ended = threading.Event(), [], []
    caller = threading.current_thread()

    def work(part):
        taken.append(part.start)
        if threading.current_thread() is not caller:
            began.set()
            # ends only when the caller, having failed, waits for this helper
            assert waited.wait(PATIENCE_S)
            ended.append(part.start)
            return
        assert began.wait(PATIENCE_S)
        raise error("range failed")

    waited = threading.Event()
    real = threads.wait

    def wait(futures):
        waited.set()
        return real(futures)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "wait", wait)
        with pytest.raises(error, match="range failed"):
            run_ranges(work, 1000, threads=2, most=1)
    assert len(taken) == 2
    assert len(ended) == 1, "what had begun is waited for"


def test_a_failure_of_a_helper_is_raised():
    began = threading.Event()

    def work(part):
        if threading.current_thread() is caller:
            assert began.wait(PATIENCE_S)
            return
        began.set()
        raise OSError("helper failed")

    caller = threading.current_thread()
    with pytest.raises(OSError, match="helper failed"):
        run_ranges(work, 1000, threads=2, most=1)


def test_a_busy_pool_delays_nobody(monkeypatch):
    """No helper ever begins: the caller does everything, and waits for none of them."""
    release = threading.Event()
    with ThreadPoolExecutor(1) as busy:
        monkeypatch.setattr(threads, "_pool", busy)
        busy.submit(release.wait, PATIENCE_S)
        ranges = []
        run_ranges(ranges.append, 100, threads=3, most=10)
        assert sorted(n for part in ranges for n in part) == list(range(100))
        release.set()


def interrupted(*_, **__):
    """Raise what `threading.Condition` raises if Ctrl-C comes while it takes its lock back."""
    error = RuntimeError("release unlocked lock")
    error.__context__ = KeyboardInterrupt()
    raise error


@pytest.mark.parametrize("run", [as_completed, in_order])
def test_ctrl_c_at_the_end_of_a_wait_is_a_keyboard_interrupt(run, executor, monkeypatch):
    monkeypatch.setattr(threads, "wait", interrupted)
    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(run(abs, range(3), executor=executor, ahead=1))


def test_ctrl_c_at_the_end_of_a_read_is_a_keyboard_interrupt(monkeypatch):
    monkeypatch.setattr(threads, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_ranges(lambda _: None, 100, threads=2, most=1)


def test_other_errors_of_a_wait_are_raised_as_they_are(executor, monkeypatch):
    monkeypatch.setattr(threads, "wait", lambda *_, **__: threading.Lock().release())
    with pytest.raises(RuntimeError, match="unlocked"):
        list(as_completed(abs, range(3), executor=executor, ahead=1))


def test_one_pool_per_process():
    assert threads.pool() is threads.pool(7)
    assert 1 <= threads.cores() <= (os.cpu_count() or 1)


def test_callers_at_once_share_the_threads(monkeypatch):
    """As many threads run in all as each caller asked for: those of Dask get no helpers."""
    submitted = []

    class Pool:
        def submit(self, work):
            submitted.append(work)
            return Future()

    monkeypatch.setattr(threads, "_pool", Pool())
    inner = []

    def work(part):
        if not inner:
            inner.append(True)
            before = len(submitted)
            run_ranges(lambda part: None, 100, threads=3, most=10)
            assert len(submitted) - before == 1

    run_ranges(work, 100, threads=3, most=10)
    assert len(submitted) == 3
    assert not threads._callers


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_makes_a_pool_of_its_own():
    threads.pool().submit(int).result(PATIENCE_S)
    child = os.fork()
    if child == 0:
        ok = threads._pool is None and threads.pool().submit(int).result(PATIENCE_S) == 0
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


EXIT = """
import sys, threading
import numpy as np
import anychunk
array = anychunk.open_array(sys.argv[1])
begun, ended = threading.Event(), threading.Event()

def read():
    begun.set()
    ended.wait()
    print(int(array[...].sum()))

threading.Thread(target=read).start()
begun.wait()
# pools are shut down when the main thread ends
threading.Thread(target=lambda: (threading.main_thread().join(), ended.set())).start()
"""


@pytest.mark.processes
def test_a_thread_may_read_while_the_interpreter_exits(tmp_path):
    data = np.arange(64 * 64, dtype="uint32").reshape(64, 64)
    tifffile.imwrite(tmp_path / "a.tif", data, tile=(16, 16), compression="zlib")
    done = subprocess.run(
        [sys.executable, "-c", EXIT, str(tmp_path / "a.tif")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout == f"{data.sum()}\n"
    assert done.stderr == ""
