"""Work on a few threads: the same work asked for twice is done once, and what nobody waits for not.

Runs inside one event loop.
"""

import asyncio
import os
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from starlette.requests import Request

from anychunk.server.responses import BusyError
from anychunk.server.wanted import Dropped, while_wanted

MOST_WAITING = 1024
"""Jobs under way and in line."""


class Gone(Exception):  # noqa: N818 - it is no error
    """The client that asked is no longer there."""


class Job:
    """One piece of work, and how many wait for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.waiting = 1
        """Who began it does."""
        self.future: asyncio.Future[Any] | None = None


class Jobs:
    """Threads, and the jobs that they have."""

    def __init__(self, threads: int | None = None) -> None:
        count = threads or max(2, os.cpu_count() or 1)
        # what may take long must not keep the rest waiting
        self._quick = ThreadPoolExecutor(count, thread_name_prefix="anychunk-quick")
        self._slow = ThreadPoolExecutor(count, thread_name_prefix="anychunk-slow")
        self._jobs: dict[Hashable, Job] = {}
        self._running: set[Job] = set()

    async def run[T](
        self, key: Hashable, work: Callable[[], T], request: Request, *, is_slow: bool = False
    ) -> T:
        """Do `work` on a thread, or wait for who does it already; raise `Gone` with the client."""
        while True:
            job = self._jobs.get(key)
            if job is None:
                job = self._job(key, work, is_slow=is_slow)
            else:
                job.waiting += 1
            try:
                return cast("T", await self._result(job, request))
            except Dropped:
                # it was given up just before we came to wait for it
                continue
            finally:
                job.waiting -= 1

    def _job(self, key: Hashable, work: Callable[[], Any], *, is_slow: bool) -> Job:
        if len(self._jobs) >= MOST_WAITING:
            raise BusyError(f"{len(self._jobs)} requests are waiting already; ask again later")
        job = self._jobs[key] = Job(work)
        pool = self._slow if is_slow else self._quick
        job.future = asyncio.get_running_loop().run_in_executor(pool, self._do, job)

        def ended(future: asyncio.Future[Any]) -> None:
            self._jobs.pop(key, None)
            if not future.cancelled():
                future.exception()  # nobody may be there to ask for it

        job.future.add_done_callback(ended)
        return job

    def _do(self, job: Job) -> Any:
        if not job.waiting:
            raise Dropped
        self._running.add(job)
        try:
            with while_wanted(lambda: job.waiting > 0):
                return job.work()
        finally:
            self._running.discard(job)

    async def _result(self, job: Job, request: Request) -> Any:
        assert job.future is not None
        gone = asyncio.ensure_future(disconnected(request))
        try:
            await asyncio.wait({job.future, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not job.future.done():
                raise Gone
            return job.future.result()
        finally:
            gone.cancel()

    def close(self, wait_s: float = 0.0) -> bool:
        """Take on nothing more; give whether what is under way ended in time."""
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
