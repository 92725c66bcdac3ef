"""Jobs on threads: identical requests share one, and one that no client waits for is cancelled.

All methods but `close` run in one event loop, so nothing here needs a lock.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from starlette.requests import Request

from anychunk.io import threads
from anychunk_serve.cancellation import Cancelled, cancelled_unless
from anychunk_serve.responses import BusyError

MOST_JOBS = 1024
"""Jobs that run or wait for a thread; further ones are refused."""


class ClientGone(Exception):  # noqa: N818 - not an error
    """The client closed its connection."""


class Job:
    """One piece of work, and the number of requests that wait for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.waiting = 1
        self.future: asyncio.Future[Any] | None = None


class Jobs:
    """Threads, and the jobs that run on them or wait for one."""

    def __init__(self, count: int | None = None) -> None:
        """Create two pools of `count` threads each, by default one per core but at least two."""
        count = count or max(2, threads.cores())
        # two pools: slow jobs (opening files, computing levels) must not delay quick ones
        self._quick = ThreadPoolExecutor(count, thread_name_prefix="anychunk-quick")
        self._slow = ThreadPoolExecutor(count, thread_name_prefix="anychunk-slow")
        self._jobs: dict[Hashable, Job] = {}
        self._running: set[Job] = set()
        self.after: Callable[[], object] = lambda: None
        """Called on a thread after every job."""

    async def run[T](
        self, key: Hashable, work: Callable[[], T], request: Request, *, is_slow: bool = False
    ) -> T:
        """Run `work` on a thread, or wait for a job with the same key that already does.

        Parameters:
            key: Identifies the work; requests with the same key share one job.
            work: Called once, on a thread.
            request: The request that waits for it.
            is_slow: Whether the work may take long.

        Raises:
            ClientGone: The client closed its connection.
            BusyError: Too many jobs are waiting.
        """
        while True:
            job = self._jobs.get(key)
            if job is None:
                job = self._start(key, work, is_slow=is_slow)
            else:
                job.waiting += 1
            try:
                return cast("T", await self._result(job, request))
            except Cancelled:
                # all its clients had left just before this one joined: start it again
                continue
            finally:
                job.waiting -= 1

    def _start(self, key: Hashable, work: Callable[[], Any], *, is_slow: bool) -> Job:
        if len(self._jobs) >= MOST_JOBS:
            raise BusyError(f"{len(self._jobs)} jobs are running or waiting; try again later")
        job = self._jobs[key] = Job(work)
        pool = self._slow if is_slow else self._quick
        job.future = asyncio.get_running_loop().run_in_executor(pool, self._execute, job)

        def ended(future: asyncio.Future[Any]) -> None:
            self._jobs.pop(key, None)
            if not future.cancelled():
                # mark it as retrieved: asyncio logs exceptions that nobody asked for
                future.exception()

        job.future.add_done_callback(ended)
        return job

    def _execute(self, job: Job) -> Any:
        if not job.waiting:
            raise Cancelled
        self._running.add(job)
        try:
            with cancelled_unless(lambda: job.waiting > 0):
                return job.work()
        finally:
            self._running.discard(job)
            self.after()

    async def _result(self, job: Job, request: Request) -> Any:
        assert job.future is not None
        gone = asyncio.ensure_future(disconnected(request))
        try:
            await asyncio.wait({job.future, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not job.future.done():
                raise ClientGone
            return job.future.result()
        finally:
            gone.cancel()

    def close(self, wait_s: float = 0.0) -> bool:
        """Cancel all jobs and wait up to `wait_s`; return whether all running ones have ended."""
        for pool in (self._quick, self._slow):
            pool.shutdown(wait=False, cancel_futures=True)
        for job in list(self._running):
            job.waiting = 0
        until = time.monotonic() + wait_s
        while self._running and time.monotonic() < until:
            time.sleep(0.02)
        return not self._running


async def disconnected(request: Request) -> None:
    """Wait until the client closes its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
