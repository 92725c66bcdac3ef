"""The journal: what is done survives an interruption, and only that."""

import pytest

from anychunk.conversion import staging as jn
from anychunk.conversion.staging import Journal
from anychunk.io import sink
from anychunk.io.opening import read_object
from anychunk.io.source import local_path


@pytest.fixture(params=["local", "remote"])
def target(request, tmp_path):
    return str(tmp_path / "t") if request.param == "local" else f"memory://journal/{tmp_path.name}"


def started(target, fingerprint="abc"):
    journal = Journal(target, fingerprint)
    journal.start()
    return journal


def text(target):
    found = read_object(f"{target}/{jn.NAME}", roots=(local_path(target),))
    return None if found is None else found.tobytes().decode()


def test_format(target):
    journal = started(target)
    journal.add("0/1/2", 0xBEEF)
    journal.add("1/0", 0)
    journal.flush()
    assert text(target) == "abc\n0/1/2 0000beef\n1/0 00000000\n"


def test_what_was_done_is_read_back(target):
    journal = started(target)
    assert (journal.is_there, journal.is_ours, journal.done()) == (False, False, {})
    journal.add("0/0", 7)
    journal.flush()
    again = Journal(target, "abc")
    assert (again.is_there, again.is_ours, again.done()) == (True, True, {"0/0": 7})
    again.start()
    again.add("0/1", 8)
    again.flush()
    assert Journal(target, "abc").done() == {"0/0": 7, "0/1": 8}


def test_another_plan_starts_anew(target):
    journal = started(target)
    journal.add("0/0", 7)
    journal.flush()
    other = Journal(target, "xyz")
    assert (other.is_there, other.is_ours, other.done()) == (True, False, {})
    other.start()
    assert text(target) == "xyz\n"


@pytest.mark.parametrize(
    "content",
    [
        "abc\n0/0 00000007\n0/1 000000",
        "abc\n0/0 00000007\nnonsense\n0/1 zz\n",
        "abc\n0/0 00000007\n",
    ],
)
def test_incomplete_lines_are_ignored(target, content):
    sink.put(f"{target}/{jn.NAME}", content.encode(), root=target)
    journal = Journal(target, "abc")
    assert journal.done() == {"0/0": 7}
    journal.start()
    assert text(target).startswith("abc\n0/0 00000007\n")
    assert text(target).endswith("\n")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"abc"])
def test_damaged_journals_hold_nothing(target, content):
    sink.put(f"{target}/{jn.NAME}", content, root=target)
    assert Journal(target, "abc").done() == {}


def test_a_remote_journal_is_not_rewritten_for_every_task(monkeypatch):
    target = "memory://journal/rarely"
    now = [1000.0]
    monkeypatch.setattr(jn.time, "monotonic", lambda: now[0])
    journal = started(target)
    journal.add("0/0", 1)
    assert text(target) == "abc\n"
    now[0] += jn.REWRITE_S + 1
    journal.add("0/1", 2)
    assert text(target) == "abc\n0/0 00000001\n0/1 00000002\n"


def test_removed(target, tmp_path):
    journal = started(target)
    journal.remove()
    assert text(target) is None
    assert not (tmp_path / "t" / ".anychunk").exists()
