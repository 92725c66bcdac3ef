"""Connect to a Dask cluster; notice when a task has ended its worker.

Dask gives a task whose worker died to the next worker, `distributed.scheduler.allowed-failures`
times. That ends a worker each time, and clusters that Dask itself deploys (`LocalCluster`, job
queues) drop a worker for good that is not there `distributed.deploy.lost-worker-timeout` after any
of its deaths: a cluster can lose all of its workers to one file, and then waits forever.
"""

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Self

from anychunk.errors import MissingDependencyError, OptionError, SourceError

NO_WORKERS_S = 300.0
"""How long a cluster that has lost all workers is waited for: as long as Dask waits for one."""
LONGEST_PAUSE_S = 60.0
"""How long a call that may end its worker is held back at most."""
EVENTS = "all"
"""Dask's topic of events about all workers."""


class WorkerDied(BrokenExecutor):
    """A worker ended while it had a task, which may be the reason."""


@contextmanager
def connect(address: str) -> Iterator[Any]:
    """Yield a client of the scheduler at `address`, and close it afterwards."""
    try:
        from distributed import Client
    except ImportError as e:
        raise MissingDependencyError(
            'a Dask cluster needs distributed; install it with: pip install "anychunk[dask]"'
        ) from e
    client: Any = Client  # untyped
    try:
        # Not the default of the process: the caller's other Dask work must not move to this
        # cluster, and distributed keeps a client as the default even if it cannot connect, after
        # which every computation of the process waits forever.
        opened = client(address, set_as_default=False)
    except (OSError, ValueError) as e:
        raise SourceError(f"{address}: cannot connect to a Dask scheduler: {e}") from e
    with opened:
        yield opened


def client_of(executor: Any) -> AbstractContextManager[Any] | None:
    """Return the Dask client that an `executor` means, which is closed only if it was opened here.

    Parameters:
        executor: The address of a scheduler, a client or its executor; None is returned for any
            other executor.

    Raises:
        OptionError: It is none.
    """
    if isinstance(executor, str):
        return connect(executor)
    for client in (executor, getattr(executor, "_client", None)):
        if hasattr(client, "get_executor"):
            return nullcontext(client)
    if not isinstance(executor, Executor) and not hasattr(executor, "submit"):
        raise OptionError(
            f"executor is {executor!r}, expected a concurrent.futures.Executor, a Dask client, or "
            "the address of a Dask scheduler"
        )
    return None


def threads(client: Any) -> int:
    """Return how many threads the workers of a client have together."""
    return sum(client.nthreads().values()) or 1


class Tasks(Executor):
    """Runs calls on a Dask cluster; they fail when it has had no workers for a while."""

    def __init__(self, executor: Any, client: Any, *, once: bool) -> None:
        """Wrap an executor of Dask.

        Parameters:
            executor: What `client.get_executor()` returns.
            client: Its client.
            once: Whether a call raises `WorkerDied` if its worker ends. Otherwise Dask gives it to
                other workers, `distributed.scheduler.allowed-failures` times.
        """
        self._executor, self._client, self._once = executor, client, once
        self._running: dict[str, tuple[Future[Any], Future[Any]]] = {}
        self._workers: set[str] = set()
        self._emptied = 0
        self._is_given_up = self._has_failed = False
        self._is_alone = False
        self._calm_at = 0.0

    def __enter__(self) -> Self:
        self._listener = _listener(self._client)
        self._listener.add(self._client, self)
        self._workers |= set(self._client.nthreads())
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.remove(self._client, self)
        if self._has_failed or not self._workers:
            # otherwise Dask waits for calls that no worker may be left to end: cancelling them runs
            # on another thread, and may come later
            self._executor.shutdown(wait=False)

    def submit(self, function: Callable[..., Any], /, *items: Any, **_: Any) -> Future[Any]:
        """Schedule `function(*items)`."""
        key = f"anychunk-{uuid.uuid4().hex}"
        call, result = self._executor.submit(function, *items, key=key), Future[Any]()
        self._running[key] = call, result
        result.add_done_callback(lambda result: result.cancelled() and call.cancel())
        call.add_done_callback(partial(self._on_done, key))
        if self._is_given_up:  # after `_give_up` looked for what to fail
            self._fail_all()
        return result

    def alone(self) -> "Alone":
        """Return an executor for calls that may end their workers."""
        return Alone(self)

    def submit_alone(self, function: Callable[..., Any], /, *items: Any) -> Future[Any]:
        """Schedule `function(*items)` when nothing else runs and workers that died are back."""
        wait([result for _, result in list(self._running.values())])
        while (left := self._calm_at - time.monotonic()) > 0:
            time.sleep(left)
        self._is_alone = True
        result = self.submit(function, *items)
        result.add_done_callback(self._on_alone_done)
        return result

    def _on_alone_done(self, _: Future[Any]) -> None:
        self._is_alone = False

    def _on_done(self, key: str, call: Future[Any]) -> None:
        _, result = self._running.pop(key, (None, None))
        if result is None or not result.set_running_or_notify_cancel():
            return  # its worker died, or nobody waits for it
        if call.cancelled():
            self._has_failed = True
            result.set_exception(SourceError("the Dask client was closed, or cancelled its tasks"))
        elif (error := call.exception()) is not None:
            result.set_exception(self._lost() if is_lost(error) else error)
        else:
            result.set_result(call.result())

    def on_event(self, event: Any) -> None:
        """Handle an event of the scheduler, in the thread of the client."""
        match event:
            case {"action": "add-worker", "worker": worker}:
                self._workers.add(worker)
                self._is_given_up = False
            case {"action": "remove-worker", "worker": worker, **rest}:
                self._workers.discard(worker)
                if self._once and not rest.get("expected"):
                    self._on_death(rest.get("processing-tasks", ()))
                if not self._workers:
                    self._emptied += 1
                    asyncio.get_running_loop().call_later(
                        NO_WORKERS_S, self._give_up, self._emptied
                    )

    def _on_death(self, keys: Any) -> None:
        """Fail the tasks that a worker had when it ended, those that waited for it included."""
        if self._is_alone or not self._workers:
            self._calm_at = time.monotonic() + _pause_s()
        for key in keys:
            call, result = self._running.pop(key, (None, None))
            if call is not None and result is not None:
                _cancel(call)
                _fail(result, WorkerDied("a Dask worker ended abruptly"))

    def _lost(self) -> Exception:
        if self._once:
            return WorkerDied("a Dask worker ended before its result arrived")
        return SourceError(
            "a worker of the Dask cluster ended before its result arrived; run the same call again"
        )

    def _give_up(self, emptied: int) -> None:
        """Fail everything, if no worker has come back since the last one was lost."""
        if not self._workers and emptied == self._emptied:
            self._is_given_up = True
            self._fail_all()

    def _fail_all(self) -> None:
        self._has_failed = True
        for key in list(self._running):
            call, result = self._running.pop(key, (None, None))
            if call is not None and result is not None:
                _cancel(call)
                _fail(result, SourceError(
                    f"the Dask cluster lost its last worker and had none for {NO_WORKERS_S:.0f} s; "
                    "start a new cluster and run the same call again; if files end their workers, "
                    "with a longer distributed.deploy.lost-worker-timeout"
                ))  # fmt: skip


class _Listener:
    """Tells all users of a client what its scheduler reports; a client has one handler."""

    def __init__(self, other: Callable[[Any], Any] | None) -> None:
        self._other, self._active = other, list[Tasks]()

    def add(self, client: Any, tasks: Tasks) -> None:
        self._active.append(tasks)
        client.subscribe_topic(EVENTS, self)

    def remove(self, client: Any, tasks: Tasks) -> None:
        self._active.remove(tasks)
        if self._other is None and not self._active:
            client.unsubscribe_topic(EVENTS)

    async def __call__(self, event: tuple[float, Any]) -> None:
        if self._other is not None and asyncio.iscoroutine(answer := self._other(event)):
            await answer
        for tasks in list(self._active):
            tasks.on_event(event[1])


def _listener(client: Any) -> _Listener:
    """Return what handles a client's events: Dask keeps a handler after it is unsubscribed."""
    found = getattr(client, "_event_handlers", {}).get(EVENTS)
    return found if isinstance(found, _Listener) else _Listener(found)


class Alone(Executor):
    """Runs one call at a time on a cluster: if a worker ends, it is the call that ended it."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def submit(self, function: Callable[..., Any], /, *items: Any, **_: Any) -> Future[Any]:
        """Schedule `function(*items)` when nothing else runs."""
        return self._tasks.submit_alone(function, *items)


def is_lost(error: BaseException) -> bool:
    """Return whether Dask's executor failed because a worker ended before its result arrived.

    The state of a call is then no longer `finished`, so that `_cascade_future` takes its result for
    an error and unpacks it (seen with distributed 2026.8.0). Errors of calls have their own frames.
    """
    if not isinstance(error, TypeError | ValueError | AttributeError):
        return False
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code.co_name == "_cascade_future"


def _cancel(call: Future[Any]) -> None:
    # on another thread: Dask's cancelling waits for that of the client
    threading.Thread(target=call.cancel, daemon=True).start()


def _fail(result: Future[Any], error: Exception) -> None:
    if result.set_running_or_notify_cancel():
        result.set_exception(error)


def _pause_s() -> float:
    """Return how long after a worker's death Dask looks whether it is there again.

    A call that ends its next worker should wait until then. It need not where that is set to so
    long a time that deaths are over by then.
    """
    import dask

    setting = dask.config.get("distributed.deploy.lost-worker-timeout", "15s")
    looks_after = float(dask.utils.parse_timedelta(setting))
    return looks_after + 1 if looks_after < LONGEST_PAUSE_S else 0.0
