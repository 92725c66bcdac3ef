"""Running tasks: what is done is recorded, a failure stops the rest."""

import asyncio
import threading
from concurrent.futures import Future

import numpy as np
import pytest

import anychunk
from anychunk.conversion import executor as ex
from anychunk.conversion.levels import ZarrOptions
from anychunk.conversion.plan import make_plan
from anychunk.conversion.staging import Journal
from anychunk.conversion.tasks import Conversion
from anychunk.errors import FormatError, SourceError
from anychunk.io import dask_cluster
from tests.support.patience import PATIENCE_S, wait_until


@pytest.fixture
def conversion(tmp_path, monkeypatch):
    monkeypatch.setattr("anychunk.conversion.levels.REGION_BYTES", 256)
    np.save(tmp_path / "a.npy", np.arange(64 * 64, dtype="uint16").reshape(64, 64))
    options = ZarrOptions(axes="yx", levels=2, chunk=(8, 8), shard=False)
    plan = make_plan(anychunk.index(tmp_path / "a.npy"), options, 2)
    return Conversion(plan, str(tmp_path / "b.zarr"))


@pytest.fixture
def journal(conversion):
    found = Journal(conversion.target, "abc")
    found.start()
    return found


def written(conversion):
    return Journal(conversion.target, "abc").done()


def test_every_task_is_written_and_recorded(conversion, journal):
    told = []
    with ex.start_workers(2, None, conversion) as workers:
        skipped = ex.write_all(
            conversion, journal, workers, lambda done, total: told.append((done, total))
        )
        ex.compare_all(conversion, workers, None)
    assert skipped == 0
    names = [t.name() for run in range(len(conversion.plan.runs)) for t in conversion.tasks(run)]
    assert sorted(written(conversion)) == sorted(names)
    assert len(told) == len(names)
    assert told[-1] == (conversion.plan.nbytes,) * 2
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_is_done_is_skipped_if_it_is_still_right(conversion, journal, tmp_path):
    with ex.start_workers(2, None, conversion) as workers:
        ex.write_all(conversion, journal, workers, None)
    (tmp_path / "b.zarr/0/image/c/0/0").write_bytes(b"damaged")
    again = Journal(conversion.target, "abc")
    again.start()
    with ex.start_workers(2, None, conversion) as workers:
        skipped = ex.write_all(conversion, again, workers, None)
        ex.compare_all(conversion, workers, None)
    first = next(conversion.tasks(0))
    assert skipped == conversion.plan.nbytes - conversion.nbytes(first)


def test_a_failure_stops_the_rest(conversion, journal, monkeypatch):
    real, begun = Conversion.write, []

    def write(self, task):
        begun.append(task)
        if len(begun) == 3:
            raise OSError("disk is full")
        return real(self, task)

    monkeypatch.setattr(Conversion, "write", write)
    total = sum(1 for run in range(len(conversion.plan.runs)) for _ in conversion.tasks(run))
    with (
        pytest.raises(OSError, match="disk is full"),
        ex.start_workers(2, None, conversion) as workers,
    ):
        ex.write_all(conversion, journal, workers, None)
    assert conversion.stop.is_set()
    assert len(written(conversion)) < len(begun) < total
    # what is recorded is there and right
    recorded = written(conversion)
    monkeypatch.setattr(Conversion, "write", real)
    for run in range(len(conversion.plan.runs)):
        for task in conversion.tasks(run):
            if task.name() in recorded:
                assert conversion.stored_checksum(task) == recorded[task.name()]


def test_an_interrupt_leaves_running_tasks_unrecorded(conversion, journal, monkeypatch):
    """The caller is interrupted while a task runs: it ends, and does not count as done."""
    running, release = threading.Event(), threading.Event()

    def write(self, task):
        running.set()
        assert release.wait(PATIENCE_S)
        return 7

    monkeypatch.setattr(Conversion, "write", write)
    with pytest.raises(KeyboardInterrupt), ex.start_workers(1, None, conversion) as workers:
        results = workers.run(ex.write_task, iter([(next(conversion.tasks(0)), None)]))
        thread = threading.Thread(target=lambda: [None for _ in results], daemon=True)
        thread.start()
        assert running.wait(PATIENCE_S)
        release.set()
        raise KeyboardInterrupt
    assert written(conversion) == {}
    assert conversion.stop.is_set()


def test_a_difference_is_an_error(conversion, journal, monkeypatch):
    different = ["0 (0, 0): 7, not 8"]
    monkeypatch.setattr(Conversion, "compare", lambda self, task: (different, {}))
    with (
        pytest.raises(FormatError, match=r"b\.zarr: 0 \("),
        ex.start_workers(2, None, conversion) as workers,
    ):
        ex.compare_all(conversion, workers, None)


def test_workers_pass_the_conversion_to_every_call(conversion):
    with ex.start_workers(2, None, conversion) as workers:
        calls = list(workers.run(lambda given, item: (given is conversion, item), iter("abc")))
        assert workers.submit(lambda given: given).result(PATIENCE_S) is conversion
    assert sorted(calls) == [(item, (True, item)) for item in "abc"]


@pytest.mark.processes
def test_no_scheduler_answers(conversion):
    import dask
    import distributed

    with (
        pytest.raises(SourceError, match="nonsense://nowhere"),
        ex.start_workers(1, "nonsense://nowhere", conversion),
    ):
        pass
    assert dask.config.get("scheduler", None) is None  # or all later Dask work would wait for it
    with pytest.raises(ValueError, match="No clients found"):
        distributed.default_client()


def name_of_worker(conversion):
    import distributed

    assert isinstance(conversion, Conversion)
    return distributed.get_worker().address


@pytest.mark.parametrize("result", [7, (1, True), (1, 2, 3)])
def test_a_result_of_a_lost_worker_is_recognised(result):
    """Dask's executor takes a result for an error if the worker ends before it arrives."""
    from distributed.cfexecutor import _cascade_future

    class Lost:
        status = "lost"

        async def _result(self, *, raiseit):
            return result

    async def arrive(future):
        await _cascade_future(Lost(), future)

    future = Future()
    asyncio.run(arrive(future))
    assert dask_cluster.is_lost(future.exception(0))


@pytest.mark.parametrize("error", [ValueError("of the call"), RuntimeError("of the call")])
def test_an_error_of_a_call_is_not_taken_for_a_lost_worker(error):
    with pytest.raises(type(error)) as caught:
        raise error
    assert not dask_cluster.is_lost(caught.value)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_lost_all_workers_is_not_waited_for_forever(conversion, monkeypatch):
    import distributed

    monkeypatch.setattr(dask_cluster, "NO_WORKERS_S", 0.01)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        ex.start_workers(1, cluster.scheduler_address, conversion) as workers,
    ):
        results = workers.run(lambda _, item: item, iter(range(1000)))
        item, result = next(results)
        assert item == result
        cluster.scale(0)
        with pytest.raises(SourceError, match="Dask"):
            list(results)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")
def test_calls_that_are_cancelled_late_are_not_waited_for(conversion, monkeypatch):
    """Cancelling runs on another thread, which may not have run when the block ends."""
    import distributed

    monkeypatch.setattr(dask_cluster, "NO_WORKERS_S", 0.01)
    monkeypatch.setattr(dask_cluster, "_cancel", lambda call: None)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        ex.start_workers(1, cluster.scheduler_address, conversion) as workers,
    ):
        results = workers.run(lambda _, item: item, iter(range(1000)))
        next(results)
        cluster.scale(0)
        with pytest.raises(SourceError, match="Dask"):
            list(results)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")
def test_the_conversion_is_sent_to_workers_that_come_later(conversion):
    """Also if none is left that has it, as when the only one is restarted."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        ex.start_workers(1, cluster.scheduler_address, conversion) as workers,
    ):
        first = workers.submit(name_of_worker).result(PATIENCE_S)
        cluster.scale(0)
        wait_until(lambda: not cluster.scheduler.workers)
        cluster.scale(1)
        assert workers.submit(name_of_worker).result(PATIENCE_S) != first
