"""A source as the file object that tifffile reads structure through."""

import io
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from posixpath import basename
from typing import IO, Any, cast

import tifffile

from anychunk import limits
from anychunk.errors import AnychunkError, FormatError
from anychunk.formats.tiff.chain import Chain
from anychunk.io import Source


class Handle:
    """Reads a source like a file: short at its end, never beyond it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.error: BaseException | None = None
        """What the source raised: tifffile takes some of its errors for damage and goes on."""
        self._position = 0
        self._size = source.size()

    def check(self) -> None:
        """Raise what the source raised."""
        if self.error is not None:
            raise self.error

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"seek to {start + offset}")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        length = left if size < 0 else min(size, left)
        try:
            limits.check_header(length, where=f"{self.source.url} @{self._position}")
            data = self.source.read(self._position, length).tobytes()
        except (AnychunkError, OSError) as e:
            self.error = self.error or e
            raise
        self._position += length
        return data

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


class _ThisThread(logging.Filter):
    """Drops what one thread logs."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self.thread


@contextmanager
def tiff_file(source: Source, **flags: Any) -> Iterator[tifffile.TiffFile]:
    """Open a TIFF; whatever its structure makes tifffile raise is the file's fault."""
    handle = Handle(source)
    silence = _ThisThread()
    logger = logging.getLogger("tifffile")
    logger.addFilter(silence)
    try:
        file = cast("IO[bytes]", handle)
        with tifffile.TiffFile(file, name=basename(source.url), **flags) as tif:
            tif.pages.__class__ = Chain
            yield tif
        handle.check()
    except (AnychunkError, OSError, MemoryError):
        raise
    except Exception as e:
        handle.check()
        raise FormatError(
            f"{source.url}: its TIFF structure does not hold ({type(e).__name__}: {e})"
        ) from e
    finally:
        logger.removeFilter(silence)
