"""Many files worked on at once: in order, on any executor; failures are values."""

import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import pytest

from anychunk.combine.parallel import MOST_PER_TASK, attempt, run_tasks
from anychunk.errors import AnychunkError, FilesError, FormatError, SourceError
from anychunk.model.index import GroupIndex


def doubled(items):
    return [2 * item for item in items]


def run(work, batches, executor=None, **given):
    options = {"is_remote": False, "failed": lambda item, reason: [reason], "on_result": len}
    return run_tasks(work, batches, executor, **{**options, **given})


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
