"""Local files for a server: read into memory, never mapped.

A mapped file that somebody makes shorter ends the process that looks at it (SIGBUS). A server
outlives such files: it reads by `pread`, and holds every single read against the file's pin.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from anychunk.errors import AnychunkError, SourceError, TruncatedError
from anychunk.io import (
    Bytes1D,
    OnChange,
    Source,
    Sources,
    Storage,
    buffers,
    is_remote,
    local_path,
    open_inside,
    report_change,
    stat_inside,
)
from anychunk.model.pin import Pin


class ReadFile:
    """A local file, opened anew by each read: it holds no handle and no map in between."""

    is_local = False
    """Reading is no slice of memory."""
    storage: Storage | None = None

    def __init__(self, path: str, pin: Pin | None = None, *, roots: Sequence[str] = ()) -> None:
        """`roots`: folders that the file must be in, with all links resolved."""
        self.url, self._roots = path, tuple(roots)
        self._path = local_path(path)
        self._pin = pin or self.refresh()

    def pin(self) -> Pin:
        return self._pin

    def size(self) -> int:
        return self._pin.size

    def refresh(self) -> Pin:
        try:
            if self._roots:
                return file_pin(stat_inside(self._path, self._roots))
            return file_pin(os.stat(self._path))  # noqa: PTH116 - half the cost of Path.stat
        except AnychunkError:
            raise
        except FileNotFoundError as e:
            raise SourceError(f"{self.url}: the file is gone, or was never there") from e
        except OSError as e:
            raise SourceError(f"{self.url}: {e.strerror or e}") from e

    def verify(self) -> None:
        """Refuse a file that is no longer the one that was indexed."""
        self._check(self.refresh())

    def _check(self, now: Pin) -> None:
        change = self._pin.differs(now)
        if change:
            report_change(self.url, change, "error")

    def read(self, offset: int, length: int) -> Bytes1D:
        found = self._read((offset,), length, 0)
        assert found is not None
        return found

    def read_now(self, offset: int, length: int) -> Bytes1D | None:
        """Read what the system has in memory; None where the caller would have to wait for it."""
        return self._read((offset,), length, NOW) if NOW else None

    def read_runs(self, offsets: Sequence[int], length: int) -> Bytes1D:
        """Read several runs of the same length, one after the other into the same memory."""
        found = self._read(offsets, length, 0)
        assert found is not None
        return found

    def _read(self, offsets: Sequence[int], length: int, flags: int) -> Bytes1D | None:
        out = buffers.aligned(length * len(offsets))
        try:
            handle = open_inside(self._path, self._roots)
        except AnychunkError:
            raise
        except FileNotFoundError as e:
            raise SourceError(f"{self.url}: the file is gone, or was never there") from e
        except OSError as e:
            raise SourceError(f"{self.url}: {e.strerror or e}") from e
        try:
            view = memoryview(out)
            short = None
            for number, offset in enumerate(offsets):
                target = view[number * length : (number + 1) * length]
                if fill(handle, offset, target, flags) < length:
                    short = offset
                    break
            # after the read: a file that was changed before or meanwhile shows it now
            self._check(file_pin(os.fstat(handle)))
        except AnychunkError:
            raise
        except OSError as e:
            if flags:
                return None
            raise SourceError(f"{self.url}: {e.strerror or e}") from e
        finally:
            os.close(handle)
        if short is not None and not flags:
            raise TruncatedError(
                f"{self.url} @{short}: {length} bytes are wanted, "
                f"the object ends after {self.size()}"
            )
        return out if short is None else None


NOW: int = getattr(os, "RWF_NOWAIT", 0)


def fill(handle: int, offset: int, out: memoryview, flags: int) -> int:
    """Read into `out`; give how many bytes there were."""
    got = 0
    while got < len(out):
        count = os.preadv(handle, [out[got:]], offset + got, flags)
        if not count:
            break
        got += count
    return got


def file_pin(stat: os.stat_result) -> Pin:
    return Pin(size=stat.st_size, mtime_ns=stat.st_mtime_ns)


class ReadSources(Sources):
    """The sources of one served file."""

    def __init__(self, pins: Mapping[str, Pin], *, storage: Storage | None = None) -> None:
        on_change: OnChange = "error"
        super().__init__(pins, storage=storage, on_change=on_change)

    def open(self, url: str) -> Source:
        source = self._open.get(url)
        if source is None:
            if is_remote(url):
                return super().open(url)
            source = ReadFile(url, self.pins.get(url))
            self._open[url] = source
        return source

    def verify(self, url: str) -> Source:
        """Open; each read looks for itself whether the file was changed."""
        return self.open(url)

    def check(self, url: str) -> None:
        """Look whether a local file was changed; a remote one tells with its next answer."""
        source: Any = self.open(url)
        if isinstance(source, ReadFile):
            source.verify()


def stamp(path: str) -> tuple[int, int] | None:
    """Give what tells one version of a local file from the next; None: it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror or e}") from e
    return found.st_size, found.st_mtime_ns
