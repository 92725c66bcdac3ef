"""Work on a few threads: the same work asked for twice is done once, and what nobody waits for not.

Runs inside one event loop.
"""

import asyncio
import os
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from starlette.requests import Request

from anychunk.server.responses import BusyError

MOST_WAITING = 1024
"""Jobs under way and in line."""


class Gone(Exception):  # noqa: N818 - it is no error
    """The client that asked is no longer there."""


class Job:
    """One piece of work, and how many wait for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.waiting = 0
        self.future: asyncio.Future[Any] | None = None

    def run(self) -> Any:
        if not self.waiting:
            raise Gone
        return self.work()


class Jobs:
    """Threads, and the jobs that they have."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or max(2, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="anychunk-serve")
        self._jobs: dict[Hashable, Job] = {}

    async def run[T](self, key: Hashable, work: Callable[[], T], request: Request) -> T:
        """Do `work` on a thread, or wait for who does it already; raise `Gone` with the client."""
        job = self._jobs.get(key)
        if job is None:
            if len(self._jobs) >= MOST_WAITING:
                raise BusyError(f"{len(self._jobs)} requests are waiting already; ask again later")
            job = self._jobs[key] = Job(work)
            job.waiting = 1
            job.future = asyncio.get_running_loop().run_in_executor(self._pool, job.run)
            job.future.add_done_callback(lambda _: self._jobs.pop(key, None))
        else:
            job.waiting += 1
        try:
            return cast("T", await self._wait(job, request))
        finally:
            job.waiting -= 1

    async def _wait(self, job: Job, request: Request) -> Any:
        assert job.future is not None
        gone = asyncio.ensure_future(disconnected(request))
        try:
            await asyncio.wait({job.future, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not job.future.done():
                raise Gone
            return job.future.result()
        finally:
            gone.cancel()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


async def disconnected(request: Request) -> None:
    """Wait until the client closes its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
