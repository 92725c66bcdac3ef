"""Run work on many files: on threads of this process, on any executor, or on a Dask cluster.

Files travel in batches, a batch per task, and results come back in the order of the files. Only a
few tasks are submitted ahead, so that memory is bounded by them and not by the number of files.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from anychunk import limits
from anychunk.errors import AnychunkError, SourceError
from anychunk.io import dask_cluster, is_remote
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
            None: threads of this process.
        is_remote: Whether items are mostly waited for, so that more threads than cores pay off.
        failed: Makes the result for an item whose worker failed twice, from the reason.
        on_result: Called with each result as it arrives.
    """
    with _opened(executor, is_remote=is_remote) as (pool, workers):
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
                raise SourceError(
                    f"the executor stopped: {e}; run the same call again on a new one"
                ) from e
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
    pool: Executor,
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
    pool: Executor,
    failed: Callable[[T, str], R],
) -> Iterator[R]:
    """Do the items of a task again whose worker failed, so that one does not stop the others."""
    for item in items:
        try:
            yield pool.submit(work, [item]).result()
        except AnychunkError:
            raise
        except Exception as e:  # noqa: BLE001 - whatever an executor raises is reported per file
            yield failed(item, f"{type(e).__name__}: {e}")


@contextmanager
def _opened(executor: Any, *, is_remote: bool) -> Iterator[tuple[Executor, int]]:
    """Yield an executor and the number of its workers; close what was opened here."""
    if executor is None:
        threads = limits.get().concurrency if is_remote else cores()
        with ThreadPoolExecutor(threads, thread_name_prefix="anychunk-index") as pool:
            yield pool, threads
    elif isinstance(executor, str):
        with dask_cluster.connect(executor) as client:
            yield _of_client(client)
    elif hasattr(executor, "get_executor"):
        yield _of_client(executor)
    elif isinstance(executor, Executor) or hasattr(executor, "submit"):
        yield executor, int(getattr(executor, "_max_workers", UNKNOWN_WORKERS))
    else:
        raise TypeError(
            f"executor is {executor!r}, expected a concurrent.futures.Executor, a Dask client, or "
            "the address of a Dask scheduler"
        )


def _of_client(client: Any) -> tuple[Executor, int]:
    """Return the executor of a Dask client, and the number of threads of its workers."""
    # pure=False: a file parsed again may be another by now, a cached result would be stale
    return client.get_executor(pure=False, retries=2), dask_cluster.threads(client)


def are_remote(urls: Sequence[str]) -> bool:
    """Return whether some of the files are remote."""
    return any(map(is_remote, urls))
