"""Jobs on threads: shared, cancelled, bounded."""

import asyncio
import threading

import pytest

from anychunk_serve import jobs as module
from anychunk_serve.jobs import ClientGone, Jobs
from anychunk_serve.responses import BusyError
from tests.support.patience import PATIENCE_S, loop_until, wait_until


class Client:
    """The part of a request that jobs use."""

    def __init__(self):
        self.left = asyncio.Event()

    async def receive(self):
        await self.left.wait()
        return {"type": "http.disconnect"}


@pytest.fixture
def jobs():
    made = Jobs(2)
    yield made
    made.close()


async def all_wait(jobs, key, count):
    """Let the event loop run until `count` clients wait for the job."""
    await loop_until(lambda: key in jobs._jobs and jobs._jobs[key].waiting >= count)


async def test_same_work_is_done_once(jobs):
    calls = []
    hold = threading.Event()

    def work():
        calls.append(1)
        assert hold.wait(PATIENCE_S)
        return 7

    asked = [asyncio.ensure_future(jobs.run("key", work, Client())) for _ in range(20)]
    await all_wait(jobs, "key", 20)
    hold.set()
    assert (await asyncio.gather(*asked), len(calls)) == ([7] * 20, 1)
    assert await jobs.run("key", work, Client()) == 7
    assert len(calls) == 2


async def test_failure_reaches_all_who_wait(jobs):
    hold = threading.Event()

    def work():
        assert hold.wait(PATIENCE_S)
        raise ValueError("no")

    asked = [asyncio.ensure_future(jobs.run("key", work, Client())) for _ in range(5)]
    await all_wait(jobs, "key", 5)
    hold.set()
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(e) for e in found] == ["no"] * 5


async def test_what_nobody_waits_for_is_not_done(jobs):
    hold = threading.Event()
    done = []
    busy = [asyncio.ensure_future(jobs.run(n, hold.wait, Client())) for n in range(2)]
    clients = [Client() for _ in range(10)]
    waiting = [
        asyncio.ensure_future(jobs.run(("late", n), lambda n=n: done.append(n), client))
        for n, client in enumerate(clients)
    ]
    for n in range(10):
        await all_wait(jobs, ("late", n), 1)
    for client in clients[1:]:
        client.left.set()
    found = await asyncio.gather(*waiting[1:], return_exceptions=True)
    assert all(isinstance(e, ClientGone) for e in found)
    hold.set()
    await asyncio.gather(*busy, waiting[0])
    await loop_until(lambda: not jobs._jobs)  # every job has run or was cancelled
    assert done == [0]


async def test_a_client_that_joins_a_cancelled_job_is_served(jobs):
    """A cancelled job is started again for a client that joins it too late."""
    hold = threading.Event()
    busy = [asyncio.ensure_future(jobs.run(n, hold.wait, Client())) for n in range(2)]
    first = Client()
    left = asyncio.ensure_future(jobs.run("key", lambda: 5, first))
    await all_wait(jobs, "key", 1)
    first.left.set()
    with pytest.raises(ClientGone):
        await left
    hold.set()
    # the threads cancel it, and this loop, which does not run meanwhile, cannot notice yet
    wait_until(lambda: not jobs._quick._work_queue.qsize())
    assert "key" in jobs._jobs
    assert await jobs.run("key", lambda: 5, Client()) == 5
    await asyncio.gather(*busy)


async def test_lines_are_bounded(jobs, monkeypatch):
    monkeypatch.setattr(module, "MOST_JOBS", 3)
    hold = threading.Event()
    tasks = [asyncio.ensure_future(jobs.run(n, hold.wait, Client())) for n in range(3)]
    await all_wait(jobs, 2, 1)
    with pytest.raises(BusyError):
        await jobs.run("one more", hold.wait, Client())
    hold.set()
    await asyncio.gather(*tasks)


def test_close_tells_whether_work_is_left():
    made = Jobs(1)
    assert made.close(0.1)
