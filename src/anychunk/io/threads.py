"""Work on threads: one pool per process for reading, and runs of tasks that stop at a failure."""

import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath

from anychunk.io.forking import in_child

# How many processors this process may use: those of the machine, less what it is kept from.
#
# A process can be bound to some of the processors (affinity: `taskset`, batch systems), and a
# container can have a share of their time (the quota of a control group). More threads than that
# only wait for each other.


PROC = Path("/proc/self")
"""Where Linux describes the control groups of a process."""


def processors() -> int:
    """Return the number of threads that keep busy what this process may use; at least one.

    The affinity is asked for each time, because it may change; the quota is read once.
    """
    quota = _own_quota()
    allowed = _by_affinity()
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


@cache
def _own_quota() -> float | None:
    return cgroup_quota()


def _by_affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # macOS and Windows lack it
        return os.cpu_count() or 1


def cgroup_quota(proc: Path | None = None) -> float | None:
    """Return the processors' worth of time of this process's control groups; None if unlimited.

    The strictest of a group and its parents applies, in both versions of control groups.

    Parameters:
        proc: The folder that describes the process; for tests.
    """
    found = [_quota(folder) for folder in _folders(PROC if proc is None else proc)]
    return min((quota for quota in found if quota is not None), default=None)


def _folders(proc: Path) -> list[Path]:
    """Return the folders of the control groups that limit processor time, and of their parents."""
    try:
        groups = (proc / "cgroup").read_text("utf-8", "replace").splitlines()
        mounts = (proc / "mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:  # not Linux, or hidden
        return []
    # "4:cpu,cpuacct:/a/b" in version 1, "0::/a/b" in version 2
    paths = {}
    for line in groups:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "cpu" in controllers.split(",") or (number == "0" and not controllers):
            paths["cgroup" if controllers else "cgroup2"] = path
    found = []
    for line in mounts:
        # proc(5): "36 35 98:0 /root /mount/point options … - type source super,options"
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in paths:
            continue
        if kind[0] == "cgroup" and "cpu" not in kind[2].split(","):
            continue
        root, point, own = fields[3], Path(fields[4]), PurePosixPath(paths[kind[0]])
        # inside a container, the mount shows the group itself, and its path may be that outside
        inside = own.relative_to(root) if own.is_relative_to(root) else PurePosixPath()
        found += [point / inside, *(point / parent for parent in inside.parents)]
    return found


def _quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():  # version 2: "max 100000" or "150000 100000"
            quota, period = (folder / "cpu.max").read_text("utf-8").split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text("utf-8").strip()
            period = (folder / "cpu.cfs_period_us").read_text("utf-8").strip()
        microseconds, per = int(quota), int(period)
    except (OSError, ValueError):  # absent, or "max"
        return None
    return microseconds / per if microseconds > 0 and per > 0 else None


_pool: ThreadPoolExecutor | None = None
_callers: set[object] = set()
"""One object per call of `run_ranges` in progress; adding and removing are atomic."""


def cores() -> int:
    """Return the number of threads that keep busy what this process may use of the machine."""
    return processors()


def pool(count: int | None = None) -> ThreadPoolExecutor:
    """Return the process-wide pool for decoding chunks, created with `count` threads if needed."""
    global _pool  # noqa: PLW0603 - one pool per process
    if _pool is None:
        _pool = ThreadPoolExecutor(count or cores(), thread_name_prefix="anychunk")
    return _pool


def _forget_pool() -> None:
    global _pool  # noqa: PLW0603 - threads do not survive a fork
    _pool = None
    _callers.clear()


in_child(_forget_pool)


def run_ranges(work: Callable[[range], None], count: int, *, threads: int, most: int) -> None:
    """Call `work` on ranges that together cover `count` items, here and on the process-wide pool.

    The caller's thread takes part, so that a busy pool delays nobody. If several threads call this
    at once, as those of Dask do, each gets fewer helpers, so that no more threads run than asked
    for. After the first failure no new range is started; the failure is raised when all running
    ranges have finished.

    Parameters:
        work: Called with a range of item numbers, from several threads at once.
        count: The number of items.
        threads: The number of threads, including the caller's.
        most: The length of the longest range.
    """
    ranges = iter(_shrinking_ranges(count, threads, most))  # next() on a list's iterator is atomic

    def take() -> None:
        for part in ranges:
            try:
                work(part)
            except BaseException:
                deque(ranges, maxlen=0)  # nobody takes another range
                raise

    others: list[Future[None]] = []
    with _caller() as callers:
        # while the interpreter exits, pools accept no work: the caller's thread then does all of it
        with suppress(RuntimeError):
            others.extend(pool(threads).submit(take) for _ in range(threads - callers))
        try:
            take()
        finally:
            # a helper that has not begun, because other reads keep the pool busy, has nothing to do
            begun = [future for future in others if not future.cancel()]
            with interruptible():
                wait(begun)
    for future in begun:
        future.result()


def _shrinking_ranges(count: int, threads: int, most: int) -> list[range]:
    """Return ranges that cover `count` items, shorter towards the end.

    Long ranges cost less per item; but with long ones at the end, one thread would work on the last
    while the others have nothing to do.
    """
    found, start, longest = [], 0, max(1, min(most, count // (4 * threads)))
    while start < count:
        stop = start + max(1, min(longest, (count - start) // (2 * threads)))
        found.append(range(start, stop))
        start = stop
    return found


@contextmanager
def _caller() -> Iterator[int]:
    """Count a call in progress; yield how many there are, including this one."""
    mark = object()
    _callers.add(mark)
    try:
        yield len(_callers)
    finally:
        _callers.discard(mark)


def as_completed[T, R](
    work: Callable[[T], R], items: Iterable[T], *, executor: Executor, ahead: int
) -> Generator[tuple[T, R]]:
    """Run `work` on every item; yield (item, result) as each is done.

    At most `ahead` items are in progress or waiting to be consumed, so memory use is bounded. The
    first failure is raised; items that have not started by then are cancelled.
    """
    waiting: dict[Future[R], T] = {}
    try:
        for item in items:
            waiting[executor.submit(work, item)] = item
            if len(waiting) >= ahead:
                yield from _done(waiting)
        while waiting:
            yield from _done(waiting)
    finally:
        for future in waiting:
            future.cancel()


def _done[T, R](waiting: dict[Future[R], T]) -> Iterator[tuple[T, R]]:
    with interruptible():
        ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in ready:
        yield waiting.pop(future), future.result()


def in_order[T, R](
    work: Callable[[T], R], items: Iterable[T], *, executor: Executor, ahead: int
) -> Iterator[R]:
    """Run `work` on every item; yield the results in the order of the items.

    Bounds and failures are as in `as_completed`.
    """
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(executor.submit(work, item))
            if len(waiting) >= ahead:
                yield _result(waiting.popleft())
        while waiting:
            yield _result(waiting.popleft())
    finally:
        for future in waiting:
            future.cancel()


def _result[R](future: Future[R]) -> R:
    with interruptible():
        return future.result()


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `KeyboardInterrupt` for every Ctrl-C during a wait for other threads.

    If it comes at the moment when the wait ends, Python's `threading.Condition` has not got its
    lock back, and raises "release unlocked lock" instead.
    """
    try:
        yield
    except RuntimeError as e:
        if isinstance(e.__context__, KeyboardInterrupt):
            raise e.__context__ from None
        raise


def run_all[T](work: Callable[[T], object], items: Iterable[T], *, threads: int, name: str) -> None:
    """Run `work` on every item, on newly started threads; raise the first failure.

    Parameters:
        work: Called with one item; its result is dropped.
        items: Taken one by one, as threads become free.
        threads: How many to start; with one, everything runs in the caller's thread.
        name: The name of the threads.
    """
    if threads <= 1:
        for item in items:
            work(item)
        return
    with (
        ThreadPoolExecutor(threads, thread_name_prefix=name) as executor,
        # closed here, so that after Ctrl-C what has not begun is cancelled, not waited for
        closing(as_completed(work, items, executor=executor, ahead=2 * threads)) as done,
    ):
        for _ in done:
            pass
