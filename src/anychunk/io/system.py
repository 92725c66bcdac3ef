"""What differs between operating systems: each function that one of them lacks, with its fallback.

All other modules call these functions and constants, and never ask for the system. Availability is
found by looking for the function, not by the name of the system, so that a test can take it away.

| | Linux | macOS | Windows |
|---|---|---|---|
| reads by position into memory (`preadv`) | yes | yes | seek and read |
| reads and writes of a shared handle (`pread`, `pwrite`) | yes | yes | seek under a lock |
| several buffers per write (`writev`) | yes | yes | one after the other |
| opening relative to a folder, not following links | yes | yes | by real path, then checked |
| path of an opened file | `/proc` | not needed | `GetFinalPathNameByHandleW` |
| replacing a file that is open | yes | yes | tried again, then an error |
| exchanging two folders in one step (`renameat2`) | yes | renamed one after the other | likewise |
| links | symbolic | symbolic | symbolic, junctions |
| large pages of memory on request | yes | no | no |
| memory that is reclaimed only if it is short (`MADV_FREE`) | yes | yes | no |
"""

import contextlib
import errno
import gc
import io
import mmap
import os
import re
import sys
import time
from collections.abc import Buffer, Sequence

from anychunk.errors import SourceError
from anychunk.io.forking import Lock

IS_WINDOWS = os.name == "nt"
HAS_PREADV = hasattr(os, "preadv")
HAS_READV = hasattr(os, "readv")
HAS_PWRITE = hasattr(os, "pwrite") and hasattr(os, "pread")
HAS_WRITEV = hasattr(os, "writev")

BINARY: int = getattr(os, "O_BINARY", 0)
"""Windows would otherwise translate line ends."""
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
READ = os.O_RDONLY | BINARY | getattr(os, "O_NONBLOCK", 0)
"""`O_NONBLOCK`, because opening a named pipe would wait for its writer."""
WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | BINARY | (NOFOLLOW or os.O_EXCL)
"""For a temporary name, which may not be a link; `O_EXCL` does not follow links either."""
UPDATE = os.O_RDWR | os.O_CREAT | BINARY | NOFOLLOW
DIRECTORY = NOFOLLOW | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", os.O_RDONLY)
HAS_HANDLES = bool(NOFOLLOW) and os.open in os.supports_dir_fd
"""Whether files can be opened relative to a directory handle; if not, by their real path."""
NOWAIT: int = getattr(os, "RWF_NOWAIT", 0) if HAS_PREADV else 0
"""Flag of `preadv`: return at once instead of waiting for the disk. 0: not available here."""
PROC = "/proc/self/fd"
HAS_PROC = HAS_HANDLES and os.path.isdir(PROC)  # noqa: PTH112
"""Whether the system reports the path of an opened file."""

PAUSES_S = (0.01, 0.05, 0.1, 0.3, 0.6)
"""Pauses between attempts to replace a file on Windows: scanners open new files for a moment."""
DEVICES = re.compile(
    r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[0-9\u00b9\u00b2\u00b3])", re.IGNORECASE
)
"""Names of devices in every folder of Windows, with any extension."""

PRIVATE: int = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
HUGE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
FREE: int | None = getattr(mmap, "MADV_FREE", None)


def map_memory(nbytes: int) -> mmap.mmap:
    """Return fresh memory that is not part of the heap, with large pages where there are any."""
    if not PRIVATE:
        return mmap.mmap(-1, nbytes)
    memory = mmap.mmap(-1, nbytes, flags=PRIVATE)  # large pages are for private memory only
    if HUGE is not None:
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(HUGE)
    return memory


def make_reclaimable(memory: mmap.mmap) -> bool:
    """Let the system reclaim memory while nobody writes to it; return False if it cannot.

    What was written is then undefined: some pages may be zeros.
    """
    if FREE is None:
        return False
    try:
        memory.madvise(FREE)
    except OSError:
        return False
    return True


_POSITION = Lock()
"""Held while a shared handle is moved and used."""


def read_into(handle: int, out: memoryview, *, offset: int | None = None, flags: int = 0) -> int:
    """Read until `out` is full or the file ends; the system may return less than requested.

    Parameters:
        handle: A file descriptor that no other thread uses: without `preadv` it is moved.
        out: Memory to fill.
        offset: Position in the file; None reads on from the current one.
        flags: Flags of `preadv`, with an offset only.

    Returns:
        The number of bytes that were read.
    """
    filled = 0
    while filled < len(out):
        rest = out[filled:]
        if offset is None:
            count = os.readv(handle, [rest]) if HAS_READV else _read_next(handle, rest)
        elif HAS_PREADV:
            count = os.preadv(handle, [rest], offset + filled, flags)
        else:
            os.lseek(handle, offset + filled, os.SEEK_SET)
            count = _read_next(handle, rest)
        if not count:
            break
        filled += count
    return filled


def _read_next(handle: int, out: memoryview) -> int:
    # closefd=False: the caller closes it
    with io.FileIO(handle, "rb", closefd=False) as file:
        count = file.readinto(out)
    if count is None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return count


def read_at(handle: int, length: int, offset: int) -> bytes:
    """Read from a handle that other threads read and write too; less than `length` at the end."""
    pieces = []
    while length:
        if HAS_PWRITE:
            piece = os.pread(handle, length, offset)
        else:
            with _POSITION:
                os.lseek(handle, offset, os.SEEK_SET)
                piece = os.read(handle, length)
        if not piece:
            break
        pieces.append(piece)
        offset, length = offset + len(piece), length - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def write_at(handle: int, data: Buffer, offset: int) -> None:
    """Write all of `data` to a handle that other threads read and write too."""
    rest = _flat(data)
    while rest:
        if HAS_PWRITE:
            count = os.pwrite(handle, rest, offset)
        else:
            with _POSITION:
                os.lseek(handle, offset, os.SEEK_SET)
                count = os.write(handle, rest)
        rest, offset = rest[count:], offset + count


def _flat(data: Buffer) -> memoryview:
    view = memoryview(data)
    # an array without elements cannot be cast
    return view.cast("B") if view.nbytes else memoryview(b"")


def write_all(handle: int, pieces: Sequence[Buffer]) -> None:
    """Write several pieces, one after the other."""
    rest = [_flat(piece) for piece in pieces]
    while rest:
        written = os.writev(handle, rest) if HAS_WRITEV else os.write(handle, rest[0])
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if rest:
            rest[0] = rest[0][written:]


def share(handle: int) -> None:
    """Set the permissions of a temporary file, so far its owner's alone, to those of a new file."""
    # before Python 3.13 there is no fchmod on Windows, where access is inherited from the folder
    if hasattr(os, "fchmod"):
        os.fchmod(handle, 0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def replace(source: str, target: str) -> None:
    """Rename a file or folder; a file takes the place of another.

    On Windows that fails while any process has the target open or mapped. So it is tried again for
    a second, after arrays of this process that are no longer used were released.

    Raises:
        SourceError: The target is in use.
        OSError: It cannot be renamed for another reason.
    """
    for pause in PAUSES_S if IS_WINDOWS else ():
        with contextlib.suppress(PermissionError):
            os.replace(source, target)  # noqa: PTH105 - once per chunk
            return
        gc.collect()
        time.sleep(pause)
    try:
        os.replace(source, target)  # noqa: PTH105 - once per chunk
    except PermissionError as e:
        if not IS_WINDOWS:
            raise
        raise SourceError(
            f"{target}: cannot be replaced ({e.strerror or e}); close the programs and delete the "
            "arrays that have it open"
        ) from e


AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Numbers of Linux."""


def exchange(one: str, other: str) -> None:
    """Exchange two folders that are beside each other: in one step, where the system can.

    Otherwise a process that is killed between two of three steps leaves nothing under a name.
    """
    import ctypes

    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if HAS_HANDLES else None
    paths = os.fsencode(one), os.fsencode(other)
    if rename and not rename(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE):
        return
    aside = f"{one}.old"
    replace(other, aside)
    try:
        replace(one, other)
    except BaseException:
        replace(aside, other)
        raise
    replace(aside, one)


def is_link(path: str) -> bool:
    """Return whether a path is a symbolic link, or a junction of Windows."""
    return os.path.islink(path) or (IS_WINDOWS and os.path.isjunction(path))  # noqa: PTH114


def ignores_case(path: str) -> bool:
    """Return whether `a` and `A` are the same file in the file system of an existing path."""
    path = os.path.abspath(path)  # noqa: PTH100
    folder, name = os.path.split(path)
    if name.swapcase() == name or not os.path.exists(path):  # noqa: PTH110
        return IS_WINDOWS if folder == path else ignores_case(folder)
    try:
        return os.path.samefile(path, os.path.join(folder, name.swapcase()))  # noqa: PTH118, PTH121
    except OSError:
        return False


def path_of(handle: int) -> str | None:
    """Return where an opened file is, with all links resolved; None if the system does not say."""
    if IS_WINDOWS:
        return _final_path(handle)
    if not HAS_PROC:
        return None
    try:
        return os.readlink(f"{PROC}/{handle}")  # noqa: PTH115 - once per chunk
    except OSError:
        return None


def _final_path(handle: int) -> str | None:
    if sys.platform != "win32":  # simulated: there is no such function
        return None
    import ctypes
    import msvcrt

    size = 32768  # the longest path
    buffer = ctypes.create_unicode_buffer(size)
    function = ctypes.windll.kernel32.GetFinalPathNameByHandleW
    function.argtypes = (ctypes.c_void_p, ctypes.c_wchar_p, ctypes.c_uint32, ctypes.c_uint32)
    length = function(msvcrt.get_osfhandle(handle), buffer, size, 0)
    return buffer.value if 0 < length < size else None


def is_special(name: str) -> bool:
    """Return whether Windows takes one component of a path for something else than a file.

    A device, a stream of another file (`a:b`), or a name without its trailing dots and spaces.
    False on other systems.
    """
    if not IS_WINDOWS or name in ("", ".", ".."):
        return False
    stem = name.partition(".")[0].rstrip(" ")
    return ":" in name or name[-1] in ". " or DEVICES.fullmatch(stem) is not None
