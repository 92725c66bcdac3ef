"""TIFF structure through tifffile: a source as a file object, and checks of directory chains."""

import io
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from posixpath import basename
from typing import IO, Any, cast

import tifffile

from anychunk import limits
from anychunk.errors import AnychunkError, FormatError, TruncatedError, is_defect
from anychunk.io import Source


class SourceFile:
    """A source as a binary file: reads are short at its end, never beyond it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.error: BaseException | None = None
        """The first error of the source: tifffile takes some errors for damage and continues."""
        self._position = 0
        self._size = source.size()

    def check(self) -> None:
        """Raise the source's error, if there was one."""
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


class AcyclicPages(tifffile.TiffPages):  # type: ignore[misc] # final, but has no other hook
    """Pages up to the first directory whose successor was seen before.

    tifffile follows a cycle of directories forever or skips pages on it. Here each directory
    is visited once.
    """

    def _seek(self, index: int, /) -> int:
        seen: set[int] = self.__dict__.setdefault("_seen", set())
        while not self._indexed and not 0 <= index < len(self._offsets):
            seen.update(self._offsets[len(seen) :])
            count = len(self._offsets)
            try:
                super()._seek(count)  # follows the chain by one directory
            except IndexError:
                break
            if self._offsets[-1] in seen:
                del self._offsets[-1]
                self._indexed = True
        return super()._seek(index)


class _DropThisThread(logging.Filter):
    """Drops the log records of the thread that created it."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self.thread


@contextmanager
def tiff_file(source: Source, **flags: Any) -> Iterator[tifffile.TiffFile]:
    """Open a TIFF file with tifffile.

    Parameters:
        source: the file.
        flags: passed on to `tifffile.TiffFile`.

    Raises:
        FormatError: for any exception of tifffile, which has no specific class for damaged files.
    """
    file = SourceFile(source)
    quiet = _DropThisThread()
    logger = logging.getLogger("tifffile")
    logger.addFilter(quiet)
    try:
        name = basename(source.url)
        with tifffile.TiffFile(cast("IO[bytes]", file), name=name, **flags) as tif:
            tif.pages.__class__ = AcyclicPages
            yield tif
        file.check()
    except (AnychunkError, OSError, MemoryError):
        raise
    except Exception as e:
        file.check()
        if is_defect(e):
            raise  # raised by the caller's block, not by tifffile
        raise FormatError(
            f"{source.url}: tifffile cannot read the TIFF structure ({type(e).__name__}: {e})"
        ) from e
    finally:
        logger.removeFilter(quiet)


def check_chain(tif: tifffile.TiffFile, source: Source) -> None:
    """Raise `TruncatedError` if the file ends before its last directory.

    tifffile stops there without an error, and the pages before it look like a complete file.
    """
    pages = tif.pages
    if not pages._indexed:  # noqa: SLF001 - tifffile did not follow the chain, so it does not matter
        return
    following = _unsigned(tif, source, int(pages.next_page_offset or 0), tif.tiff.offsetsize)
    if following == 0:
        return
    count = None if following is None else _unsigned(tif, source, following, tif.tiff.tagnosize)
    length = tif.tiff.tagnosize + (count or 0) * tif.tiff.tagsize
    if following is None or count is None or following + length > source.size():
        raise TruncatedError(
            f"{source.url}: expected a further directory at {following}, the object ends after "
            f"{source.size()} bytes"
        )


def _unsigned(tif: tifffile.TiffFile, source: Source, offset: int, width: int) -> int | None:
    """Return the unsigned integer at `offset`; None if it lies beyond the end."""
    if offset + width > source.size():
        return None
    data = source.read(offset, width).tobytes()
    return int.from_bytes(data, "big" if tif.byteorder == ">" else "little")
