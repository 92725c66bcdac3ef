"""Many files worked on at once: in order, on any executor; failures are values."""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import pytest

from anychunk.combine.parallel import MOST_DEATHS, MOST_PER_TASK, attempt, run_tasks
from anychunk.errors import AnychunkError, FilesError, FormatError, SourceError
from anychunk.model.index import GroupIndex
from tests.support.patience import PATIENCE_S, wait_until


def doubled(items):
    return [2 * item for item in items]


def run(work, batches, executor=None, **given):
    options = {"is_remote": False, "failed": lambda item, reason: [reason], "on_result": len}
    return run_tasks(work, batches, executor, **{**options, **given})


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["threads", "own threads", "processes"])
def test_results_of_each_batch_come_in_order(kind):
    makers = {"own threads": ThreadPoolExecutor, "processes": ProcessPoolExecutor}
    batches = [range(130), range(130, 140), [], range(140, 141)]
    seen = []
    executor = makers[kind](2) if kind in makers else None
    found = list(run(doubled, batches, executor, on_result=seen.append))
    if executor is not None:
        assert executor.submit(len, "ab").result() == 2  # it is the caller's, and stays open
        executor.shutdown()
    joined = [[number for part in batch for number in part] for batch in found]
    assert joined == [doubled(batch) for batch in batches if batch]
    assert [number for part in seen for number in part] == doubled(range(141))
    assert max(map(len, seen)) <= MOST_PER_TASK


def test_every_file_has_an_outcome():
    def parse(url):
        if url == "bad":
            raise FormatError("bad: broken")
        if url == "lost":
            raise FileNotFoundError("lost: gone")
        return GroupIndex(members={}, attributes={"url": url})

    assert attempt(parse, "a").attributes == {"url": "a"}
    assert isinstance(attempt(parse, "bad"), FormatError)
    lost = attempt(parse, "lost")
    assert type(lost) is AnychunkError
    assert str(lost) == "lost: gone"


def test_a_bug_is_raised_and_nothing_new_is_begun():
    begun = []

    def work(items):
        begun.extend(items)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(run(work, [range(1000)]))
    assert len(begun) < 500


def test_a_caller_that_stops_leaves_no_threads():
    outcomes = run(doubled, [range(50), range(50, 100)])
    next(outcomes)
    outcomes.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("anychunk-index")]


def broken_at(number, items):
    if number in items:
        raise MemoryError("too little")
    return doubled(items)


def test_a_failed_task_is_done_again_file_by_file():
    with ThreadPoolExecutor(1) as executor:
        (found,) = run(
            partial(broken_at, 7), [range(20)], executor, failed=lambda item, why: [f"{item} {why}"]
        )
    joined = [result for part in found for result in part]
    assert joined == [*doubled(range(7)), "7 MemoryError: too little", *doubled(range(8, 20))]


def ended_at(number, items):
    """End the process as the operating system does when memory is short."""
    if number in items:
        os.kill(os.getpid(), signal.SIGKILL)
    return doubled(items)


needs_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="SIGKILL is of POSIX")


@pytest.mark.processes
@needs_kill
def test_a_file_that_ends_its_process_is_the_only_one_that_fails():
    with ProcessPoolExecutor(2) as executor:
        found = list(run(
            partial(ended_at, 7), [range(100), range(100, 120)], executor,
            failed=lambda item, why: [f"{item} {why}"],
        ))  # fmt: skip
    joined = [[result for part in batch for result in part] for batch in found]
    assert joined[0][:7] == doubled(range(7))
    assert joined[0][7].startswith("7 its process ended")
    assert joined[0][8:] == doubled(range(8, 100))
    assert joined[1] == doubled(range(100, 120))
    assert not multiprocessing.active_children()


@pytest.mark.processes
@needs_kill
@pytest.mark.filterwarnings("ignore")
def test_a_file_that_ends_its_dask_worker_is_the_only_one_that_fails(monkeypatch):
    """Dask alone would end a worker four times with it, and could drop its last worker."""
    import dask
    import distributed

    # workers are forked from a process that has imported what they need, and not all that Dask may
    monkeypatch.setattr(distributed.utils, "_forkserver_preload_set", True)
    multiprocessing.set_forkserver_preload(["distributed.nanny"])
    told = []
    with (
        dask.config.set({
            "distributed.worker.multiprocessing-method": "forkserver",
            "distributed.deploy.lost-worker-timeout": "1h",  # the worker is awaited: no pauses
        }),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=True, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        client.subscribe_topic("all", told.append)
        for executor in (client, client.get_executor()):
            batches, killer = [range(20), range(20, 25)], 7 if executor is client else 99
            found = list(run(
                partial(ended_at, killer), batches, executor,
                failed=lambda item, why: [f"{item} {why}"],
            ))  # fmt: skip
            joined = [result for batch in found for part in batch for result in part]
            if executor is client:
                assert joined.pop(7).startswith("7 its process ended")
            assert joined == doubled(n for n in range(25) if n != killer)
    deaths = [e for _, e in told if e["action"] == "remove-worker" and not e["expected"]]
    assert len(deaths) == 2  # in its task, and alone
    assert all(e["processing-tasks"] for e in deaths)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_lost_all_workers_is_not_waited_for_forever(monkeypatch):
    import distributed

    from anychunk.io import dask_cluster

    monkeypatch.setattr(dask_cluster, "NO_WORKERS_S", 0.01)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        results = run(doubled, [range(n, n + 1) for n in range(40)], client)
        assert next(results) == [[0]]
        cluster.scale(0)
        with pytest.raises(SourceError, match="lost its last worker"):
            list(results)


def test_a_task_that_is_submitted_after_the_last_worker_is_given_up_fails():
    from anychunk.io import dask_cluster

    class Never:
        def submit(self, *_, **__):
            return Future()

    tasks = dask_cluster.Tasks(Never(), None, once=True)
    tasks._give_up(0)
    with pytest.raises(SourceError, match="lost its last worker"):
        tasks.submit(print).result(PATIENCE_S)


@pytest.mark.processes
@needs_kill
def test_processes_that_are_killed_between_tasks_are_replaced():
    """While the caller commits: nothing is lost, nothing is done twice."""
    batches = [range(n, n + 60) for n in range(0, 1200, 60)]
    found = []
    with ProcessPoolExecutor(2) as executor:
        for parts in run(doubled, batches, executor):
            found.append([result for part in parts for result in part])
            if len(found) == 2:
                for process in executor._processes.values():
                    os.kill(process.pid, signal.SIGKILL)
                    process.join()
                wait_until(lambda: executor._broken)
    assert found == [doubled(batch) for batch in batches]


def end():
    os._exit(1)


@pytest.mark.processes
def test_a_pool_whose_processes_never_start_is_not_tried_for_every_file():
    failed = []
    with (
        ProcessPoolExecutor(1, initializer=end) as executor,
        pytest.raises(SourceError, match="executor stopped"),
    ):
        list(run(doubled, [range(100)], executor, failed=lambda item, _: failed.append(item)))
    assert len(failed) == MOST_DEATHS


class Gone(Executor):
    """An executor whose workers are gone."""

    def submit(self, *_args, **_options):
        future = Future()
        future.set_exception(BrokenProcessPool("a worker was killed"))
        return future


def test_a_broken_executor_is_named():
    with pytest.raises(SourceError, match="executor stopped: a worker was killed"):
        list(run(doubled, [range(3)], Gone()))
    with pytest.raises(TypeError, match="executor is 5, expected"):
        list(run(doubled, [range(3)], 5))


def test_the_error_lists_the_first_failures():
    import pickle

    failures = {f"f{i}": f"f{i}: broken" for i in range(20 + 3)}
    error = FilesError(failures, 100)
    assert str(error).startswith("23 of 100 files")
    assert "f19: broken" in str(error)
    assert "f20: broken" not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.failures, str(again)) == (failures, str(error))
