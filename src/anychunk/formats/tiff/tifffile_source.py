"""TIFF structure through tifffile: a source as a file object, and checks of directory chains."""

import io
import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from posixpath import basename
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt
import tifffile

from anychunk import limits
from anychunk.errors import AnychunkError, FormatError, TruncatedError, is_defect
from anychunk.formats.tiff.directory import (
    MOST_ENTRIES,
    TABLE_TYPES,
    Entry,
    Form,
    check_chain,
    with_wide_bytes,
    without_long_tables,
)
from anychunk.io.file import FileSource
from anychunk.io.source import Source

PIECE = 1 << 20
"""Values of a table that are read at a time."""


class SourceFile:
    """A source as a binary file: reads are short at its end, never beyond it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.error: BaseException | None = None
        """The first error of the source: tifffile takes some errors for damage and continues."""
        self._position = 0
        self._size = source.size()
        self._count = (-1, 0)
        """Where the last read ended, and the number that it read."""
        self._tables: dict[tuple[int, int], Entry] = {}
        """Long tables, which tifffile does not read, by directory and tag."""
        magic = source.read(0, min(4, self._size)).tobytes()
        self.form = Form(">" if magic[:1] == b"M" else "<", b"+" in magic, self._size)

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
        if not length:
            return b""
        try:
            limits.check_header(length, where=f"{self.source.url} @{self._position}")
            data = self.source.read(self._position, length).tobytes()
        except (AnychunkError, OSError) as e:
            self.error = self.error or e
            raise
        start, (end, count) = self._position, self._count
        self._position += length
        if length == (8 if self.form.is_big else 2):
            self._count = (self._position, self.form.number(data))
        elif length and start == end and length == count * (20 if self.form.is_big else 12):
            # tifffile reads the number of entries of a directory, and then the entries
            data = with_wide_bytes(data, self.form)
            data, found = without_long_tables(data, self.form)
            directory = start - (8 if self.form.is_big else 2)
            self._tables |= {(directory, code): entry for code, entry in found.items()}
        return data

    def table(self, directory: int, codes: Iterable[int]) -> Entry | None:
        """Return the entry of a long table of the directory at an offset; None: there is none."""
        found = (self._tables.get((directory, code)) for code in codes)
        return next((entry for entry in found if entry is not None), None)

    def values(self, entry: Entry, count: int) -> npt.NDArray[np.uint64]:
        """Return the first values of a long table, which may be longer than a header may be."""
        dtype = np.dtype(f"{self.form.order}{TABLE_TYPES[entry.type]}")
        count = min(count, entry.number)
        found = np.empty(count, np.uint64)
        place = self.form.number(entry.value)
        step = count if not self.source.is_local else PIECE
        for start in range(0, count, step):
            stop = min(start + step, count)
            data = self.source.read(place + start * dtype.itemsize, (stop - start) * dtype.itemsize)
            found[start:stop] = data.view(dtype)
            if isinstance(self.source, FileSource):
                self.source.release()  # mapped pages count as memory of this process
        return found

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


def source_file(page: tifffile.TiffPage | tifffile.TiffFrame) -> SourceFile | None:
    """Return the file that a page was read from; None if it was opened by somebody else."""
    file = getattr(page.parent.filehandle, "_fh", None)
    return file if isinstance(file, SourceFile) else None


class AcyclicPages(tifffile.TiffPages):  # type: ignore[misc] # final, but has no other hook
    """Pages up to the first directory whose successor was seen before, or is not in the file.

    tifffile follows a cycle of directories forever or skips pages on it. Here each directory
    is visited once. It refuses the file if the last directory is cut off.
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
            if self._offsets[-1] in seen or not self._has_directory(self._offsets[-1]):
                del self._offsets[-1]
                self._indexed = True
        return super()._seek(index)

    def _has_directory(self, offset: int) -> bool:
        """Return whether a whole directory is at `offset`; if not, `broken_chain` says why."""
        parent = cast("tifffile.TiffFile", self.parent)
        parent.filehandle.seek(offset)
        data = parent.filehandle.read(parent.tiff.tagnosize)
        count = int.from_bytes(data, "big" if parent.tiff.byteorder == ">" else "little")
        end = offset + parent.tiff.tagnosize + count * parent.tiff.tagsize
        return count <= MOST_ENTRIES and end <= parent.filehandle.size


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
        check_chain(file, file.form, source.url)
        raise FormatError(
            f"{source.url}: tifffile cannot read the TIFF structure ({type(e).__name__}: {e})"
        ) from e
    finally:
        logger.removeFilter(quiet)
        # pages and tags refer to each other, so they stay until the garbage collector runs, but not
        # the open file
        del file.source
        file.error = None


def broken_chain(tif: tifffile.TiffFile, source: Source) -> FormatError | None:
    """Return an error if the chain of directories does not end as it should.

    tifffile stops where the file ends, and `AcyclicPages` where the chain returns; the pages before
    look like a complete file.
    """
    pages = tif.pages
    if not pages._indexed:  # noqa: SLF001 - tifffile did not follow the chain, so it does not matter
        return None
    place, size = int(pages.next_page_offset or 0), source.size()
    following = _unsigned(tif, source, place, tif.tiff.offsetsize)
    if following == 0:
        return None
    where = f"{source.url} page {len(pages)}"
    if following is None:
        return TruncatedError(
            f"{where}: its offset is stored at {place}, the object ends after {size} bytes"
        )
    if following in pages._offsets:  # noqa: SLF001
        first = pages._offsets.index(following)  # noqa: SLF001
        return FormatError(
            f"{where}: its directory is said to be at {following}, which is that of page {first}"
        )
    return _broken_directory(tif, source, following, where)


def _broken_directory(
    tif: tifffile.TiffFile, source: Source, following: int, where: str
) -> FormatError | None:
    """Return an error if there is no whole directory at `following`."""
    size = source.size()
    count = _unsigned(tif, source, following, tif.tiff.tagnosize)
    length = tif.tiff.tagnosize + (count or 0) * tif.tiff.tagsize
    if count is None or following + length > size:
        return TruncatedError(
            f"{where}: its directory is at {following}, the object ends after {size} bytes"
        )
    if count > MOST_ENTRIES:
        return FormatError(
            f"{where}: its directory at {following} has {count} entries, expected at most "
            f"{MOST_ENTRIES}"
        )
    return None


def _unsigned(tif: tifffile.TiffFile, source: Source, offset: int, width: int) -> int | None:
    """Return the unsigned integer at `offset`; None if it lies beyond the end."""
    if offset + width > source.size():
        return None
    data = source.read(offset, width).tobytes()
    return int.from_bytes(data, "big" if tif.byteorder == ">" else "little")
