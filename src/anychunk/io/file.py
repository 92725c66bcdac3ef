"""Local files, mapped into memory or read whole."""

import mmap
import os
from collections.abc import Sequence

import numpy as np

from anychunk.errors import AnychunkError, LimitError, SourceError, TruncatedError
from anychunk.io import buffers
from anychunk.io.errors import file_errors
from anychunk.io.inside import READ, Walk, open_inside, stat_file
from anychunk.io.source import Bytes1D, Storage, check_range
from anychunk.model.pin import Pin


class FileSource:
    """A local file, mapped into memory: reading is a slice."""

    is_local = True
    storage: Storage | None = None

    def __init__(self, path: str, *, roots: Sequence[str] = ()) -> None:
        """`roots` are the folders in which the file must lie, with all links resolved."""
        self.url = path
        with file_errors(path):
            handle = open_inside(path, roots)
            try:
                self._pin = file_pin(stat_file(handle, path))
                # an empty file cannot be mapped
                mapped = mmap.mmap(handle, 0, access=mmap.ACCESS_READ) if self._pin.size else b""
            finally:
                os.close(handle)
        self.token = object()
        """Identifies this version of the file in cache keys."""
        self._mapped = mapped
        self._view = np.frombuffer(mapped, np.uint8)

    def pin(self) -> Pin:
        return self._pin

    def refresh(self) -> Pin:
        with file_errors(self.url):
            return file_pin(os.stat(self.url))  # noqa: PTH116 - half the cost of Path.stat, once per request

    def size(self) -> int:
        return self._pin.size

    def read(self, offset: int, length: int) -> Bytes1D:
        check_range(self, offset, length)
        return self._view[offset : offset + length]

    def release(self) -> None:
        """Release pages that were read, which count as memory of this process. Views stay valid."""
        if isinstance(self._mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


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
        """Return the bytes of a file, valid until the next call; None if there is none."""
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
        if self._most is not None and size > self._most:
            raise LimitError(f"{path}: {size} bytes exceed the limit of {self._most}")
        if len(self._memory) < size:
            self._memory = buffers.aligned(size)
        target = self._memory[:size]
        filled = 0
        while filled < size:
            count = os.readv(handle, [memoryview(target)[filled:]])
            if not count:
                raise TruncatedError(f"{path}: the file ends after {filled} of {size} bytes")
            filled += count
        return target


def stat_pin(path: str) -> Pin | None:
    try:
        return file_pin(os.stat(path))  # noqa: PTH116 - once per chunk
    except (FileNotFoundError, NotADirectoryError):
        return None


def file_pin(stat: os.stat_result) -> Pin:
    return Pin(size=stat.st_size, mtime_ns=stat.st_mtime_ns)
