"""Local files: mapped into memory, read by position, or read whole.

`FileSource` maps a file and is the fastest; `PreadSource` and `ReadSource` never map, for
long-lived processes whose files may change; `ObjectBuffer` reads whole files, one after the other.
"""

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from anychunk import limits
from anychunk.errors import AnychunkError, SourceError, TruncatedError
from anychunk.io import buffers
from anychunk.io.errors import file_errors
from anychunk.io.inside import Walk, open_inside, stat_file, stat_inside
from anychunk.io.source import Bytes1D, Storage, check_range, local_path, report_change
from anychunk.io.system import NOWAIT, READ, read_into
from anychunk.model.pin import Pin


class FileSource:
    """A local file, mapped into memory: reading is a slice."""

    is_local = True
    storage: Storage | None = None

    def __init__(self, path: str, *, roots: Sequence[str] = ()) -> None:
        """`roots` are the folders in which the file must lie, with all links resolved."""
        self.url, self.roots = path, tuple(roots)
        with file_errors(path):
            handle = open_inside(path, roots)
            try:
                status = stat_file(handle, path)
                self._pin = file_pin(status)
                # an empty file cannot be mapped
                mapped = mmap.mmap(handle, 0, access=mmap.ACCESS_READ) if self._pin.size else b""
            finally:
                os.close(handle)
        self.token = object()
        self._mapped = mapped
        self._view = np.frombuffer(mapped, np.uint8)

    def pin(self) -> Pin:
        return self._pin

    def refresh(self) -> Pin:
        with file_errors(self.url):
            return file_pin(os.stat(self.url))  # noqa: PTH116 - half the cost of Path.stat, once per request

    def is_unchanged(self) -> bool:
        """Return whether the file is still the one that was opened.

        The quick form of comparing `pin` with `refresh`, because every request asks it. False also
        if the file cannot be examined, `refresh` then says why; and if only its inode or the time
        of its last change of status differs, because size and time of modification can be restored
        after the file was rewritten.
        """
        try:
            now = os.stat(self.url)  # noqa: PTH116 - half the cost of Path.stat
        except OSError:
            return False
        return (
            now.st_mtime_ns == self._pin.mtime_ns
            and now.st_size == self._pin.size
            and identity(now) == self._pin.identity
        )

    def size(self) -> int:
        return self._pin.size

    def read(self, offset: int, length: int) -> Bytes1D:
        check_range(self, offset, length)
        return self._view[offset : offset + length]

    def fill(self, out: memoryview, offset: int) -> bool:
        """Read into memory without the map, which is faster for much of a file that is read once.

        Return False if there is another file at the path by now, or less of it: the map still shows
        the one that was opened.
        """
        try:
            handle = open_inside(self.url, self.roots)
            try:
                known = self._pin.identity
                if not known or identity(os.fstat(handle)) != known:
                    return False
                return read_into(handle, out, offset=offset) == len(out)
            finally:
                os.close(handle)
        except (OSError, AnychunkError):
            return False

    def release(self) -> None:
        """Release resident pages, which count as memory of this process. Views stay valid."""
        if isinstance(self._mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


class PreadSource:
    """A local file that every read opens, reads by position and closes; never mapped.

    If another process truncates a mapped file, access to the map kills this process (SIGBUS), so a
    server must not map files. No handle is held between reads, and every read is checked against
    the pin.
    """

    is_local = False
    storage: Storage | None = None

    def __init__(self, url: str, pin: Pin | None = None, *, roots: Sequence[str] = ()) -> None:
        """Pin the file to its current version, unless a pin is given.

        Parameters:
            url: A path or a `file://` url.
            pin: The version that was indexed; reads of any other version fail.
            roots: Folders that must contain the file, with all links resolved. Empty: anywhere.
        """
        self.url, self.roots = url, tuple(roots)
        self._path = local_path(url)
        self.token = object()
        self._pin = pin or self.refresh()

    def pin(self) -> Pin:
        return self._pin

    def size(self) -> int:
        return self._pin.size

    def refresh(self) -> Pin:
        return file_pin(self._status())

    def _status(self) -> os.stat_result:
        with _missing_is_an_error(self.url):
            if self.roots:
                return stat_inside(self._path, self.roots)
            return os.stat(self._path)  # noqa: PTH116 - half the cost of Path.stat

    def verify(self) -> None:
        """Raise `SourceChangedError` if the file is no longer the version that was indexed."""
        self._check(self._status())

    def _check(self, now: os.stat_result) -> None:
        found = file_pin(now)
        change = self._pin.differs(found)
        if change:
            report_change(self.url, change, "error")
        if found.identity and not self._pin.identity:  # a saved pin has none
            self._pin = replace(self._pin, identity=found.identity)

    def read(self, offset: int, length: int) -> Bytes1D:
        return self.read_runs((offset,), length)

    def read_now(self, offset: int, length: int) -> Bytes1D | None:
        """Read bytes that the page cache holds; return None if the read would wait for the disk."""
        if not NOWAIT:
            return None
        try:
            out, short = self._read((offset,), length, NOWAIT)
        except AnychunkError:
            raise
        except OSError:
            # EAGAIN: not cached; EOPNOTSUPP: not on this file system; others recur in `read`
            return None
        return out if short is None else None

    def read_runs(self, offsets: Sequence[int], length: int) -> Bytes1D:
        """Read several runs of the same length into one array, one after the other."""
        with _missing_is_an_error(self.url):
            out, short = self._read(offsets, length)
        if short is not None:
            raise TruncatedError(
                f"{self.url} @{short}: expected {length} bytes, the file ends after {self.size()}"
            )
        return out

    def _read(
        self, offsets: Sequence[int], length: int, flags: int = 0
    ) -> tuple[Bytes1D, int | None]:
        """Return the bytes of all runs, and the offset of the first truncated run."""
        out = buffers.aligned(length * len(offsets))
        view = memoryview(out)
        short = None
        handle = open_inside(self._path, self.roots)
        try:
            for number, offset in enumerate(offsets):
                target = view[number * length : (number + 1) * length]
                if read_into(handle, target, offset=offset, flags=flags) < length:
                    short = offset
                    break
            # after the read, to notice a change before it as well as one during it
            self._check(os.fstat(handle))
        finally:
            os.close(handle)
        return out, short


class ReadSource(PreadSource):
    """A local file that a parser reads without mapping it; one that does not exist is missing."""

    is_local = True

    def __init__(self, path: str, *, roots: Sequence[str] = ()) -> None:
        """`roots` are the folders in which the file must lie, with all links resolved."""
        with file_errors(path):
            handle = open_inside(path, roots)
            try:
                status = stat_file(handle, path)
            finally:
                os.close(handle)
        super().__init__(path, file_pin(status), roots=roots)

    def read(self, offset: int, length: int) -> Bytes1D:
        check_range(self, offset, length)
        return super().read(offset, length)


@contextmanager
def _missing_is_an_error(url: str) -> Iterator[None]:
    """Raise every OSError as `SourceError`.

    A `FileNotFoundError` would be taken for an absent chunk, which reads as fill values.
    """
    try:
        yield
    except AnychunkError:
        raise
    except FileNotFoundError as e:
        raise SourceError(f"{url}: no such file; it was removed, or never existed") from e
    except OSError as e:
        raise SourceError(f"{url}: {e.strerror or e}") from e


class ObjectBuffer:
    """Reads whole local files, one after the other, into the same memory."""

    def __init__(
        self,
        most: int | None = None,
        reused: Bytes1D | None = None,
        *,
        walk: Walk | None = None,
    ) -> None:
        """`walk` opens the files; without it they are opened by path."""
        self._most = most
        self._open = (lambda path: os.open(path, READ)) if walk is None else walk.open
        self._memory = np.empty(0, np.uint8) if reused is None else reused

    def read(self, path: str) -> Bytes1D | None:
        """Return the bytes of a file, valid until the next call; None if it does not exist."""
        try:
            handle = self._open(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except AnychunkError:
            raise
        except OSError as e:
            raise SourceError(f"{path}: {e.strerror or e}") from e
        try:
            return self._fill(handle, path)
        except AnychunkError:
            raise
        except OSError as e:
            raise SourceError(f"{path}: {e.strerror or e}") from e
        finally:
            os.close(handle)

    def _fill(self, handle: int, path: str) -> Bytes1D:
        size = stat_file(handle, path).st_size
        limits.check_object(size, self._most, where=path)
        if len(self._memory) < size:
            self._memory = buffers.aligned(size)
        target = self._memory[:size]
        filled = read_into(handle, memoryview(target))
        if filled < size:
            raise TruncatedError(f"{path}: the file ends after {filled} of {size} bytes")
        return target


def stat_pin(path: str) -> Pin | None:
    """Return the current version of a local file, or None if it does not exist."""
    try:
        return file_pin(os.stat(path))  # noqa: PTH116 - once per chunk
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror or e}") from e


def identity(stat: os.stat_result) -> tuple[int, ...]:
    """Return what tells a file from another of the same size and time."""
    if os.name == "nt":
        # there `st_ctime` is the time of creation, and an opened file may have another `st_dev`
        return ()
    return stat.st_ino, stat.st_dev, stat.st_ctime_ns


def file_pin(stat: os.stat_result) -> Pin:
    """Return the pin of a local file: its size, modification time and identity."""
    return Pin(size=stat.st_size, mtime_ns=stat.st_mtime_ns, identity=identity(stat))
