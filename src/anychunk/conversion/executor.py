"""Run the tasks of a conversion, on threads of this process or on a Dask cluster."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from anychunk.conversion.staging import Journal
from anychunk.conversion.tasks import Conversion, Task
from anychunk.errors import FormatError
from anychunk.io import dask_cluster
from anychunk.io.threads import as_completed
from anychunk.options import Progress


class Workers(Executor):
    """Calls functions with the conversion and one item, on threads or on Dask workers."""

    def __init__(self, executor: Executor, conversion: Any, count: int) -> None:
        """Wrap an executor.

        Parameters:
            executor: Where the calls run.
            conversion: The first argument of every call. On a cluster it is a Dask future, so that
                the conversion is sent to each worker once and not with every task.
            count: How many calls run at a time.
        """
        self.executor, self.conversion, self.count = executor, conversion, count

    def submit(self, function: Callable[..., Any], /, *items: Any, **_: Any) -> Future[Any]:
        """Schedule `function(conversion, *items)`."""
        return self.executor.submit(function, self.conversion, *items)

    def run[T](self, function: Callable[..., Any], items: Iterator[T]) -> Iterator[tuple[T, Any]]:
        """Yield (item, result) as each call completes; see `io.threads.as_completed`."""
        return as_completed(function, items, executor=self, ahead=2 * self.count)


@contextmanager
def start_workers(count: int, executor: Any, conversion: Conversion) -> Iterator[Workers]:
    """Start `count` threads, or use an executor, a Dask client or the scheduler at an address."""
    if executor is not None and (found := dask_cluster.client_of(executor)) is not None:
        with found as client, dask_workers(client, conversion) as workers:
            yield workers
        return
    with ExitStack() as stack:
        pool = executor
        if executor is None:
            pool = ThreadPoolExecutor(count, thread_name_prefix="anychunk-convert")
            stack.enter_context(pool)
        try:
            yield Workers(pool, conversion, count)
        except BaseException:
            # a running task ends after its current region and is not recorded as done
            conversion.stop.set()
            if executor is None:
                pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def dask_workers(client: Any, conversion: Conversion) -> Iterator[Workers]:
    """Send the conversion to a Dask cluster."""
    with (
        client.get_executor() as executor,
        # not once: a task writes the same objects again
        dask_cluster.Tasks(executor, client, once=False) as tasks,
    ):
        # not scattered: what a worker that ended had been sent would be lost, a call is repeated
        found = client.submit(_same, conversion, pure=False)
        yield Workers(tasks, found, dask_cluster.threads(client))


def _same(conversion: Conversion) -> Conversion:
    return conversion


def write_all(
    conversion: Conversion, journal: Journal, workers: Workers, progress: Progress | None
) -> int:
    """Run every task that is not done yet; return the number of bytes that were already done."""
    before = journal.done()
    done = skipped = 0
    try:
        for run in range(len(conversion.plan.runs)):
            # a run reads back what earlier runs wrote, so they must not overlap
            calls = ((task, before.get(task.name())) for task in conversion.tasks(run))
            for (task, _), (checksum, was_done) in workers.run(write_task, calls):
                nbytes = conversion.nbytes(task)
                done += nbytes
                if was_done:
                    skipped += nbytes
                else:
                    journal.add(task.name(), checksum)
                if progress is not None:
                    progress(done, conversion.plan.nbytes)
    finally:
        journal.flush()
    return skipped


def write_task(conversion: Conversion, call: tuple[Task, int | None]) -> tuple[int, bool]:
    """Write a task unless its objects have the expected checksum; return (checksum, was done)."""
    task, expected = call
    if expected is not None and conversion.stored_checksum(task) == expected:
        return expected, True
    return conversion.write(task), False


def compare_task(conversion: Conversion, task: Task) -> tuple[list[str], dict[str, float]]:
    """Return how what a task has written differs from the source, and the errors of packing."""
    return conversion.compare(task)


def compare_all(
    conversion: Conversion, workers: Workers, progress: Progress | None
) -> dict[str, float]:
    """Compare everything written with the source; raise `FormatError` at the first difference.

    Returns the largest error of every packed array, by its path.
    """
    done, largest = 0, dict[str, float]()
    for run in range(len(conversion.plan.runs)):
        for task, (findings, errors) in workers.run(compare_task, conversion.tasks(run)):
            if findings:
                raise FormatError(f"{conversion.target}: {findings[0]}")
            for path, error in errors.items():
                largest[path] = max(error, largest.get(path, 0.0))
            done += conversion.nbytes(task)
            if progress is not None:
                progress(done, conversion.plan.nbytes)
    return largest
