"""Files below a folder that was opened: links that stay inside are followed, others are refused.

A file of a folder format is reached by names that the folder itself holds, so a symbolic link in it
must not lead to the rest of the machine. What was checked is what is opened, whoever renames things
meanwhile: a file is opened by its path, and the system (`/proc`) tells where the opened file is; or
else each step down is one `openat` with `O_NOFOLLOW` from the handle of the directory above. Only
where a step is a link is its real path compared with the roots, and then walked likewise.
"""

import contextlib
import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Self

from anychunk.errors import FormatError, SourceError

READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""`O_NONBLOCK`: opening a named pipe would wait for its writer."""
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
STEP = NOFOLLOW | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", os.O_RDONLY)
HAS_HANDLES = bool(NOFOLLOW) and os.open in os.supports_dir_fd
"""Whether directories have handles to go on from; without them real paths are opened by name."""
PROC = "/proc/self/fd"
HAS_PROC = HAS_HANDLES and os.path.isdir(PROC)  # noqa: PTH112
"""Whether the system tells which file a handle is of."""
LINK_ERRORS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
"""What systems say of a link where none may be: Linux ELOOP or ENOTDIR, FreeBSD EMLINK."""
MOST_KEPT = 32
"""Directories of which a `Walk` keeps the handle."""


def real_path(path: str, roots: Sequence[str]) -> str:
    """Return `path` with all links resolved.

    Raises `FormatError` where that is in none of the folders `roots`.
    """
    real = os.path.realpath(path)
    if not any(_is_below(real, os.path.realpath(root)) for root in roots):
        raise FormatError(
            f"{path}: a link that leads out of {roots[0]}; links are followed inside only"
        )
    return real


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip(os.sep)}{os.sep}")


class Walk:
    """Opens files below the first of `roots`; links may lead to any of them.

    For one thread. Keeps the handles of the directories that it used last: neighbouring chunks lie
    in the same directory.
    """

    def __init__(self, roots: Sequence[str], *, makes: bool = False) -> None:
        """`makes`: directories that are missing are created."""
        self._roots = tuple(roots)
        self._makes = makes
        self._start = f"{roots[0].rstrip('/')}/"
        self._top: int | None = None
        self._kept: OrderedDict[str, int] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._top is not None:
            os.close(self._top)
            self._top = None
        while self._kept:
            os.close(self._kept.popitem()[1])

    def open(self, path: str, flags: int = READ) -> int:
        """Return a handle of the file at `path`; OSError as of `os.open` where there is none."""
        name = path[len(self._start) :]
        if HAS_HANDLES and path.startswith(self._start) and _is_plain(name):
            folder, _, last = name.rpartition("/")
            try:
                if HAS_PROC and folder not in self._kept:
                    handle = _open_proved(path, flags, f"{_real_root(self._roots[0])}/{name}")
                    if handle is not None:
                        return handle
                return os.open(last, flags | NOFOLLOW, dir_fd=self._directory(folder))
            except OSError as e:
                if e.errno not in LINK_ERRORS:
                    raise
        return self._open_real(path, flags)

    def _open_real(self, path: str, flags: int) -> int:
        """Open what links lead to, by its real path."""
        real = real_path(path, self._roots)
        folder, last = os.path.split(real)
        try:
            if not HAS_HANDLES:
                return os.open(real, flags)
            handle = _real_directory(folder, self._roots, makes=False)
            try:
                return os.open(last, flags | NOFOLLOW, dir_fd=handle)
            finally:
                os.close(handle)
        except FileNotFoundError:
            if _dangles(path, self._roots[0]):
                raise SourceError(f"{path}: a link that leads to nothing") from None
            raise
        except OSError as e:
            if e.errno in (errno.ELOOP, errno.EMLINK):
                raise FormatError(f"{path}: links that lead in a circle, or were changed") from e
            raise

    def directory(self, path: str) -> int:
        """Return a handle of the directory at `path`, good until the next is asked for."""
        name = path[len(self._start) :]
        if f"{path}/" == self._start:
            return self._directory("")
        if path.startswith(self._start) and _is_plain(name):
            try:
                return self._directory(name)
            except OSError as e:
                if e.errno not in LINK_ERRORS:
                    raise
        real = real_path(path, self._roots)
        return self._keep(path, _real_directory(real, self._roots, makes=self._makes))

    def _directory(self, name: str) -> int:
        if not name:
            if self._top is None:
                if self._makes:
                    os.makedirs(self._roots[0], exist_ok=True)  # noqa: PTH103
                self._top = os.open(self._roots[0] or ".", STEP & ~NOFOLLOW)
            return self._top
        handle = self._kept.get(name)
        if handle is not None:
            self._kept.move_to_end(name)
            return handle
        above, _, last = name.rpartition("/")
        return self._keep(name, _step(last, self._directory(above), makes=self._makes))

    def _keep(self, name: str, handle: int) -> int:
        old = self._kept.pop(name, None)
        if old is not None:
            os.close(old)
        self._kept[name] = handle
        if len(self._kept) > MOST_KEPT:
            os.close(self._kept.popitem(last=False)[1])
        return handle


@lru_cache(maxsize=256)
def _real_root(root: str) -> str:
    """Return the real path of a root. An old one only costs the shorter way of opening."""
    return os.path.realpath(root).rstrip("/")


def _open_proved(path: str, flags: int, real: str) -> int | None:
    """Open a file by its path if it turns out to be at `real`: one call for all steps.

    None where it is elsewhere, or absent, which may be the fault of a link.
    """
    try:
        handle = os.open(path, flags | NOFOLLOW)
    except OSError as e:
        if e.errno in {errno.ENOENT, *LINK_ERRORS}:
            return None
        raise
    try:
        is_there = os.readlink(f"{PROC}/{handle}") == real  # noqa: PTH115 - once per chunk
    except OSError:
        is_there = False
    if not is_there:
        os.close(handle)
        return None
    return handle


def _is_plain(name: str) -> bool:
    """Whether a relative path goes down at each step."""
    return bool(name) and all(part not in ("", ".", "..") for part in name.split("/"))


def _step(name: str, above: int, *, makes: bool) -> int:
    try:
        return os.open(name, STEP, dir_fd=above)
    except FileNotFoundError:
        if not makes:
            raise
    with contextlib.suppress(FileExistsError):  # another thread was faster
        os.mkdir(name, dir_fd=above)
    return os.open(name, STEP, dir_fd=above)


def _real_directory(real: str, roots: Sequence[str], *, makes: bool) -> int:
    """Open a directory by its real path, following no link from the root that it is below."""
    real_roots = map(os.path.realpath, roots)
    root = next(r for r in real_roots if _is_below(real, r) or _is_below(r, real))
    handle = os.open(root if _is_below(real, root) else real, STEP & ~NOFOLLOW)
    for part in real[len(root) :].split("/"):
        if part:
            above = handle
            try:
                handle = _step(part, above, makes=makes)
            finally:
                os.close(above)
    return handle


def _dangles(path: str, root: str) -> bool:
    """Whether a step from `root` to `path` is a link to nothing."""
    while len(path) > len(root):
        if os.path.islink(path) and not os.path.exists(path):  # noqa: PTH110, PTH114
            return True
        path = os.path.dirname(path)  # noqa: PTH120
    return False


def open_inside(path: str, roots: Sequence[str]) -> int:
    """Return a handle of one file below the first of `roots`; without any, of any file."""
    if not roots:
        return os.open(path, READ)
    with Walk(roots) as walk:
        return walk.open(path)


def stat_file(handle: int, path: str) -> os.stat_result:
    """Return what the system knows of an opened file; refuse pipes, devices and directories."""
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        raise SourceError(f"{path}: not a regular file")
    return found


def stat_inside(path: str, roots: Sequence[str]) -> os.stat_result:
    """Return what the system knows of one file, as `open_inside` finds it."""
    handle = open_inside(path, roots)
    try:
        return stat_file(handle, path)
    finally:
        os.close(handle)


def check_tree(root: str) -> None:
    """Refuse a folder with a link that leads out, for readers that follow every link."""
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118
            if os.path.islink(path):  # noqa: PTH114
                real_path(path, (root,))


def list_inside(folder: str, roots: Sequence[str], above: str = "") -> Iterator[str]:
    """Yield the paths below `folder` of all files, also of those that links inside lead to."""
    real = real_path(folder, roots)
    if above and _is_below(above, real):
        raise FormatError(f"{folder}: a link that leads back to {real}")
    for place, folders, files in os.walk(folder):
        start = os.path.relpath(place, folder)
        prefix = "" if start == "." else f"{start}/"
        yield from (f"{prefix}{name}" for name in files)
        for name in folders:
            path = os.path.join(place, name)  # noqa: PTH118
            if os.path.islink(path):  # noqa: PTH114
                here = os.path.realpath(place)
                yield from (f"{prefix}{name}/{n}" for n in list_inside(path, roots, here))
