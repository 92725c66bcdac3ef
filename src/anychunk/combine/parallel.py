"""Run work on many files: on threads of this process, on any executor, or on a Dask cluster.

Files travel in batches, a batch per task, and results come back in the order of the files. Only a
few tasks are submitted ahead, so that memory is bounded by them and not by the number of files.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import contextmanager
from typing import Any, Self

from anychunk import limits
from anychunk.errors import AnychunkError, SourceError
from anychunk.io import dask_cluster
from anychunk.io.source import is_remote
from anychunk.io.threads import cores
from anychunk.model.index import Node

type Parse = Callable[[Any], Node]
type Outcome = Node | AnychunkError
type Failures = dict[str, str]
"""Error messages by url."""

MOST_PER_TASK = 50
"""How many files a task has at most: the cost of a task is then small against that of its files."""
TASKS_PER_WORKER = 4
"""Into how many tasks a worker's share is divided, so that all end at about the same time."""
UNKNOWN_WORKERS = 16
"""How many workers an executor is assumed to have that does not say."""
MOST_DEATHS = 5
"""How many files in a row may end their processes before it is the pool that does not work."""


def attempt(parse: Parse, url: Any) -> Outcome:
    """Parse one file; return an error instead of raising it, so that the others go on."""
    try:
        return parse(url)
    except AnychunkError as e:
        return e
    except OSError as e:
        return AnychunkError(str(e))


def run_tasks[T, R](
    work: Callable[[Sequence[T]], R],
    batches: Sequence[Sequence[T]],
    executor: Any,
    *,
    is_remote: bool,
    failed: Callable[[T, str], R],
    on_result: Callable[[R], None],
) -> Iterator[list[R]]:
    """Run `work` on every item of every batch; yield the results of each batch, in order.

    Parameters:
        work: Called with some items of a batch, in several threads or processes at once.
        batches: The items. While one batch is used by the caller, the next are worked on.
        executor: A `concurrent.futures.Executor`, a Dask client, the address of a Dask scheduler;
            None: threads of this process. Where a process dies, its items are tried one by one.
        is_remote: Whether items are mostly waited for, so that more threads than cores pay off.
        failed: Makes the result for an item whose worker failed twice, from the reason.
        on_result: Called with each result as it arrives.
    """
    with _opened(executor, is_remote=is_remote) as (opened, workers), _Pool(opened) as pool:
        count = sum(map(len, batches))
        size = min(MOST_PER_TASK, max(1, math.ceil(count / (TASKS_PER_WORKER * workers))))
        tasks = [
            (number, batch[start : start + size])
            for number, batch in enumerate(batches)
            for start in range(0, len(batch), size)
        ]
        found: list[R] = []
        now = 0
        for number, items, future in _ahead(work, tasks, pool, 3 * workers):
            if number != now:
                yield found
                found, now = [], number
            try:
                results = [future.result()]
            except AnychunkError:
                raise
            except BrokenExecutor as e:
                results = list(pool.apart(work, items, failed, e))
            except Exception:
                if executor is None:
                    raise
                results = list(_one_by_one(work, items, pool, failed))
            for result in results:
                on_result(result)
            found += results
    if tasks:
        yield found


def _ahead[T, R](
    work: Callable[[Sequence[T]], R],
    tasks: Sequence[tuple[int, Sequence[T]]],
    pool: "_Pool",
    ahead: int,
) -> Iterator[tuple[int, Sequence[T], Future[R]]]:
    """Submit tasks, at most `ahead` before the one that is waited for; yield them in order."""
    waiting: deque[tuple[int, Sequence[T], Future[R]]] = deque()
    try:
        for number, items in tasks:
            waiting.append((number, items, pool.submit(work, items)))
            if len(waiting) >= ahead:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
    finally:
        for _, _, future in waiting:
            future.cancel()


def _one_by_one[T, R](
    work: Callable[[Sequence[T]], R],
    items: Sequence[T],
    pool: "_Pool",
    failed: Callable[[T, str], R],
) -> Iterator[R]:
    """Do the items of a task again whose worker failed, so that one does not stop the others."""
    for item in items:
        try:
            yield pool.submit(work, [item]).result()
        except AnychunkError:
            raise
        except BrokenExecutor as e:
            yield from pool.apart(work, [item], failed, e)
        except Exception as e:  # noqa: BLE001 - whatever an executor raises is reported per file
            yield failed(item, f"{type(e).__name__}: {e}")


class _Pool:
    """An executor; when a process has died, a pool of processes is replaced."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._own: list[Executor] = []
        self._deaths = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._own:
            pool.shutdown(cancel_futures=True)

    def submit[T, R](self, work: Callable[[Sequence[T]], R], items: Sequence[T]) -> Future[R]:
        """Submit work, to a new pool if the one that there is has broken."""
        try:
            return self._pool.submit(work, items)
        except BrokenExecutor as e:
            self._pool = _new_pool(self._pool, None, e)
            self._own.append(self._pool)
            return self._pool.submit(work, items)

    def apart[T, R](
        self,
        work: Callable[[Sequence[T]], R],
        items: Sequence[T],
        failed: Callable[[T, str], R],
        why: BrokenExecutor,
    ) -> Iterator[R]:
        """Do the items of a task again that was lost with its process, each alone in a process.

        Any of the tasks that were running may have ended the process: alone, the item is found.
        """
        alone: Executor | None = None
        try:
            for item in items:
                alone = alone or _new_pool(self._pool, 1, why)
                try:
                    yield alone.submit(work, [item]).result()
                except AnychunkError:
                    raise
                except BrokenExecutor as e:
                    alone.shutdown()
                    alone = None
                    self._deaths += 1
                    if self._deaths > MOST_DEATHS:
                        raise _stopped(e) from e
                    yield failed(item, "its process ended abruptly")
                    continue
                except Exception as e:  # noqa: BLE001 - as in `_one_by_one`
                    yield failed(item, f"{type(e).__name__}: {e}")
                self._deaths = 0
        finally:
            if alone is not None:
                alone.shutdown()


def _new_pool(broken: Executor, workers: int | None, why: BrokenExecutor) -> Executor:
    """Return a new pool like one that is broken.

    Parameters:
        broken: A `concurrent.futures.ProcessPoolExecutor`, or a Dask cluster, which replaces its
            workers itself; others cannot be made again.
        workers: The number of its processes; None: as many as before.
        why: What to raise otherwise.
    """
    if isinstance(broken, dask_cluster.Tasks):
        return broken.alone()
    if type(broken) is not ProcessPoolExecutor:
        raise _stopped(why) from why
    names = ("max_workers", "mp_context", "initializer", "initargs", "max_tasks_per_child")
    # attributes without a promise: what is missing is left to Python
    found = {name: getattr(broken, f"_{name}") for name in names if hasattr(broken, f"_{name}")}
    return ProcessPoolExecutor(**found | ({} if workers is None else {"max_workers": workers}))


def _stopped(why: BrokenExecutor) -> SourceError:
    return SourceError(f"the executor stopped: {why}; run the same call again on a new one")


@contextmanager
def _opened(executor: Any, *, is_remote: bool) -> Iterator[tuple[Executor, int]]:
    """Yield an executor and the number of its workers; close what was opened here."""
    if executor is None:
        threads = limits.get().concurrency if is_remote else cores()
        with ThreadPoolExecutor(threads, thread_name_prefix="anychunk-index") as pool:
            yield pool, threads
    elif (found := dask_cluster.client_of(executor)) is not None:
        with found as client:
            is_own = hasattr(executor, "submit") and executor is not client
            # pure=False: a file parsed again may be another by now, a cached result would be stale
            chosen = executor if is_own else client.get_executor(pure=False, retries=2)
            with dask_cluster.Tasks(chosen, client, once=True) as tasks:
                yield tasks, dask_cluster.threads(client)
    else:
        yield executor, int(getattr(executor, "_max_workers", UNKNOWN_WORKERS))


def are_remote(urls: Sequence[str]) -> bool:
    """Return whether some of the files are remote."""
    return any(map(is_remote, urls))
