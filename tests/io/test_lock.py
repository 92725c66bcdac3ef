"""Locks on files, held by this process and by others."""

import subprocess
import sys

import pytest

from anychunk.conversion import staging
from anychunk.conversion.staging import exclusive
from anychunk.errors import FormatError, SourceError
from tests.support.patience import PATIENCE_S

HOLD = """
import sys
from anychunk.conversion.staging import exclusive
with exclusive(sys.argv[1], "taken"):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.processes
def test_another_process_is_refused(tmp_path):
    path = tmp_path / "lock"
    with holder(path) as other:
        with pytest.raises(FormatError, match=r"^taken$"), exclusive(str(path), "taken"):
            pytest.fail("the lock was acquired twice")
        other.stdin.close()
        other.wait(PATIENCE_S)
    with exclusive(str(path), "taken"):
        assert path.exists()
    assert not path.exists()


@pytest.mark.processes
def test_a_killed_process_releases_the_lock(tmp_path):
    path = tmp_path / "lock"
    with holder(path) as other:
        other.kill()
        other.wait(PATIENCE_S)
    assert path.exists()
    with exclusive(str(path), "taken"):
        pass
    assert not path.exists()


def test_a_lock_whose_file_was_removed_meanwhile_is_acquired_again(tmp_path, monkeypatch):
    """The previous holder removes the file between our opening and locking it."""
    path = tmp_path / "lock"
    real, calls = staging._try_lock, []

    def removed_once(handle):
        calls.append(handle)
        if len(calls) == 1:
            path.unlink()
        return real(handle)

    monkeypatch.setattr(staging, "_try_lock", removed_once)
    with exclusive(str(path), "taken"):
        assert len(calls) == 2
        assert path.exists()


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(SourceError, match=r"none/lock"), exclusive(f"{tmp_path}/none/lock", ""):
        pass


def test_without_locks_of_the_system(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "fcntl", None)
    monkeypatch.setattr(staging, "msvcrt", None)
    with exclusive(str(tmp_path / "lock"), "taken"):
        pass
    assert not list(tmp_path.iterdir())


def test_windows_locks(tmp_path, monkeypatch):
    """`msvcrt` locks a byte; it raises `PermissionError` if another process holds it."""

    class Msvcrt:
        LK_NBLCK = 2
        taken = False

        @classmethod
        def locking(cls, _handle, mode, count):
            assert (mode, count) == (2, 1)
            if cls.taken:
                raise PermissionError
            cls.taken = True

    monkeypatch.setattr(staging, "fcntl", None)
    monkeypatch.setattr(staging, "msvcrt", Msvcrt)
    path = str(tmp_path / "lock")
    with (
        exclusive(path, "taken"),
        pytest.raises(FormatError, match="taken"),
        exclusive(path, "taken"),
    ):
        pytest.fail("the lock was acquired twice")
