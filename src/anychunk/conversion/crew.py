"""Who works on a conversion, and how its tasks are handed out."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from anychunk.conversion.journal import Journal
from anychunk.conversion.work import Task, Workshop
from anychunk.errors import FormatError, MissingDependencyError, SourceError

type Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes to do), decoded."""


@dataclass(frozen=True)
class Crew:
    """Who works: threads of this process, or a Dask cluster."""

    pool: Executor
    shop: Any
    """The workshop as a worker is given it: on a cluster sent once, not with every task."""
    count: int


@contextmanager
def executor(count: int, scheduler: str | None, shop: Workshop) -> Iterator[Crew]:
    if scheduler is not None:
        with dask_crew(scheduler, shop) as crew:
            yield crew
        return
    with ThreadPoolExecutor(count, thread_name_prefix="anychunk-convert") as pool:
        try:
            yield Crew(pool, shop, count)
        except BaseException:
            # running tasks end after their present region; nothing of theirs counts as done
            shop.stop.set()
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def dask_crew(scheduler: str, shop: Workshop) -> Iterator[Crew]:
    try:
        from distributed import Client
    except ImportError as e:
        raise MissingDependencyError(
            'convert: a scheduler needs dask; install it with: pip install "anychunk[dask]"'
        ) from e
    connect: Any = Client  # untyped
    try:
        client = connect(scheduler, timeout="10s")
    except (OSError, ValueError) as e:
        raise SourceError(f"{scheduler}: no Dask scheduler answers there ({e})") from e
    with client, client.get_executor() as pool:
        count = sum(client.nthreads().values()) or 1
        yield Crew(pool, client.scatter(shop, broadcast=True), count)


def write_all(shop: Workshop, journal: Journal, crew: Crew, progress: Progress | None) -> int:
    """Make every task that is not done; give how many bytes were."""
    before = journal.done()
    done = skipped = 0
    total = shop.plan.nbytes

    def finished(task: Task, result: tuple[int, bool]) -> None:
        nonlocal done, skipped
        checksum, was_there = result
        nbytes = shop.nbytes(task)
        done += nbytes
        skipped += nbytes if was_there else 0
        if not was_there:
            journal.add(task.name(), checksum)
        if progress is not None:
            progress(done, total)

    try:
        for run in range(len(shop.plan.runs)):
            calls = ((task, (write_task, before.get(task.name()))) for task in shop.tasks(run))
            in_parallel(crew, calls, finished)
    finally:
        journal.flush()
    return skipped


def write_task(shop: Workshop, task: Task, expected: int | None) -> tuple[int, bool]:
    if expected is not None and shop.stored_checksum(task) == expected:
        return expected, True
    return shop.write(task), False


def compare_all(shop: Workshop, crew: Crew, progress: Progress | None) -> None:
    """Hold every region against the source."""
    done, total = 0, shop.plan.nbytes

    def finished(task: Task, findings: list[str]) -> None:
        nonlocal done
        if findings:
            raise FormatError(f"{shop.target}: {findings[0]}")
        done += shop.nbytes(task)
        if progress is not None:
            progress(done, total)

    for run in range(len(shop.plan.runs)):
        in_parallel(crew, ((task, (compare_task,)) for task in shop.tasks(run)), finished)


def compare_task(shop: Workshop, task: Task) -> list[str]:
    return shop.compare(task)


def in_parallel(
    crew: Crew,
    calls: Iterable[tuple[Task, tuple[Any, ...]]],
    finished: Callable[[Task, Any], None],
) -> None:
    """Run tasks, a few ahead of those that are done: neither memory nor a queue grows."""
    waiting: dict[Future[Any], Task] = {}

    def collect() -> None:
        ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
        for future in ready:
            finished(waiting.pop(future), future.result())

    for task, (function, *arguments) in calls:
        waiting[crew.pool.submit(function, crew.shop, task, *arguments)] = task
        if len(waiting) >= 2 * crew.count:
            collect()
    while waiting:
        collect()
