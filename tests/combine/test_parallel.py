"""Many files parsed at once: failures are values, and stop nothing."""

import pickle
import threading

import pytest

from anychunk.combine.parallel import parse_many
from anychunk.errors import AnychunkError, FilesError, FormatError
from anychunk.model.index import GroupIndex


def test_every_file_has_an_outcome():
    def parse(url):
        if url == "bad":
            raise FormatError("bad: broken")
        if url == "lost":
            raise FileNotFoundError("lost: gone")
        return GroupIndex(members={}, attributes={"url": url})

    urls = [*map(str, range(50)), "bad", "lost"]
    found = dict(parse_many(parse, urls))
    assert set(found) == set(urls)
    assert all(found[str(i)].attributes == {"url": str(i)} for i in range(50))
    assert isinstance(found["bad"], FormatError)
    assert type(found["lost"]) is AnychunkError
    assert str(found["lost"]) == "lost: gone"


def test_a_bug_is_raised_and_nothing_new_is_begun():
    begun = []

    def parse(url):
        begun.append(url)
        raise ZeroDivisionError(url)

    with pytest.raises(ZeroDivisionError):
        list(parse_many(parse, [str(i) for i in range(1000)]))
    assert len(begun) < 500


def test_a_caller_that_stops_leaves_no_threads():
    outcomes = parse_many(lambda url: GroupIndex(members={}), [str(i) for i in range(100)])
    next(outcomes)
    outcomes.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("anychunk-index")]


def test_the_error_lists_the_first_failures():
    failures = {f"f{i}": f"f{i}: broken" for i in range(20 + 3)}
    error = FilesError(failures, 100)
    assert str(error).startswith("23 of 100 files")
    assert "f19: broken" in str(error)
    assert "f20: broken" not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.failures, str(again)) == (failures, str(error))
