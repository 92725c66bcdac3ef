"""Locks on files, so that two processes do not write to one place at the same time."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from anychunk.errors import FormatError, SourceError
from anychunk.io import system

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:  # only on Windows
    msvcrt = None  # type: ignore[assignment]

OPEN = system.UPDATE | getattr(os, "O_CLOEXEC", 0)


@contextmanager
def exclusive(path: str, refusal: str) -> Iterator[None]:
    """Hold the lock file `path` while the block runs, and remove it afterwards.

    The operating system releases the lock when the process ends, however it ends. A lock file that
    a killed process left behind does not matter.

    Raises:
        FormatError: With the text `refusal`, if another process holds the lock.
        SourceError: The lock file cannot be created.
    """
    try:
        handle = _acquire(path)
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror or e}") from e
    if handle is None:
        raise FormatError(refusal)
    try:
        yield
    finally:
        # removed before it is released: nobody can lock a file that is about to disappear unnoticed
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - Windows keeps open files; `_acquire` accepts that
        os.close(handle)
        if system.IS_WINDOWS:
            # an open file stays; if another process has opened it since, it is not removed here
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108


def _acquire(path: str) -> int | None:
    """Return the handle of the locked file, or None if another process holds it."""
    while True:
        handle = os.open(path, OPEN, 0o666)
        if not _try_lock(handle):
            os.close(handle)
            return None
        if _is_current(handle, path):
            return handle
        os.close(handle)  # the previous holder removed the file after we opened it


def _try_lock(handle: int) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif msvcrt is not None:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        # neither: a system without locks. Files still appear only when they are complete.
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_current(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))  # noqa: PTH116
    except FileNotFoundError:
        return False
