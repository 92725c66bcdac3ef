"""Work on threads: one pool per process for reading, and runs of tasks that stop at a failure."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress

from anychunk.io.forking import in_child
from anychunk.io.processors import processors

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
