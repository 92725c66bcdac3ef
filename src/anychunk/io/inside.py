"""Open files below a folder: symbolic links that stay inside are followed, all others are refused.

The names of files in a folder format come from the folder itself, which is untrusted: a symbolic
link in it must not give access to the rest of the machine. Renaming files during the check does not
defeat it: either a file is opened by its path and `/proc` says where the opened file is, or each
path component is opened by `openat` with `O_NOFOLLOW` relative to the handle of its parent
directory. Only if a component is a link, its real path is compared with the roots, and then opened
in the same way.
"""

import contextlib
import errno
import os
import posixpath
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Self

from anychunk.errors import FormatError, SourceError
from anychunk.io.url import is_remote, local_path

READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""`O_NONBLOCK`, because opening a named pipe would wait for its writer."""
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
STEP = NOFOLLOW | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", os.O_RDONLY)
HAS_HANDLES = bool(NOFOLLOW) and os.open in os.supports_dir_fd
"""Whether files can be opened relative to a directory handle; if not, by their real path."""
PROC = "/proc/self/fd"
HAS_PROC = HAS_HANDLES and os.path.isdir(PROC)  # noqa: PTH112
"""Whether the system reports the path of an opened file."""
LINK_ERRORS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
"""Errors for a link that must not be followed: Linux ELOOP or ENOTDIR, FreeBSD EMLINK."""
MOST_KEPT = 32
"""Maximum number of directory handles that a `Walk` keeps open."""


def real_path(path: str, roots: Sequence[str]) -> str:
    """Return `path` with all links resolved.

    Raises `FormatError` if the result is in none of the folders `roots`.
    """
    real = os.path.realpath(path)
    if not any(_is_below(real, os.path.realpath(root)) for root in roots):
        raise FormatError(
            f"{path}: a symbolic link that leads outside {roots[0]}, which is not followed"
        )
    return real


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip(os.sep)}{os.sep}")


class Walk:
    """Opens files below the first of `roots`; links may lead to any of them.

    Not thread-safe. Keeps the handles of recently used directories, because neighbouring chunks are
    in the same directory.
    """

    def __init__(self, roots: Sequence[str], *, makes: bool = False) -> None:
        """`makes`: whether missing directories are created."""
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
        """Return a handle of the file at `path`; raises OSError as `os.open` does."""
        name = path[len(self._start) :]
        if HAS_HANDLES and path.startswith(self._start) and _is_plain(name):
            folder, _, last = name.rpartition("/")
            try:
                # a kept handle takes one `openat`; without it every component would take one
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
        """Open the target of links by its real path."""
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
                raise SourceError(f"{path}: a dangling symbolic link") from None
            raise
        except OSError as e:
            if e.errno in (errno.ELOOP, errno.EMLINK):
                raise FormatError(
                    f"{path}: symbolic links form a loop, or changed while they were resolved"
                ) from e
            raise

    def directory(self, path: str) -> int:
        """Return a handle of the directory at `path`, valid until the next call."""
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
                # the caller named the root, so it may be a link itself
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
    """Return the real path of a root, cached: a stale entry only disables the fast path."""
    return os.path.realpath(root).rstrip("/")


def _open_proved(path: str, flags: int, real: str) -> int | None:
    """Open a file by its path, and return it only if it is at `real`: one call for all components.

    Return None if it is elsewhere or absent: either may be due to a link.
    """
    try:
        handle = os.open(path, flags | NOFOLLOW)
    except OSError as e:
        if e.errno in {errno.ENOENT, *LINK_ERRORS}:
            return None
        raise
    try:
        # the kernel resolves every link: a link in any component makes this path differ from `real`
        is_there = os.readlink(f"{PROC}/{handle}") == real  # noqa: PTH115 - once per chunk
    except OSError:
        is_there = False
    if not is_there:
        os.close(handle)
        return None
    return handle


def _is_plain(name: str) -> bool:
    """Return whether no component of a relative path is empty, `.` or `..`."""
    return bool(name) and all(part not in ("", ".", "..") for part in name.split("/"))


def _step(name: str, above: int, *, makes: bool) -> int:
    try:
        return os.open(name, STEP, dir_fd=above)
    except FileNotFoundError:
        if not makes:
            raise
    with contextlib.suppress(FileExistsError):  # another thread created it
        os.mkdir(name, dir_fd=above)
    return os.open(name, STEP, dir_fd=above)


def _real_directory(real: str, roots: Sequence[str], *, makes: bool) -> int:
    """Open a directory by its real path without following links below its root."""
    real_roots = map(os.path.realpath, roots)
    root = next(r for r in real_roots if _is_below(real, r) or _is_below(r, real))
    handle = os.open(root if _is_below(real, root) else real, STEP & ~NOFOLLOW)
    # O_NOFOLLOW again: a directory may have been replaced by a link since `real` was computed
    for part in real[len(root) :].split("/"):
        if part:
            above = handle
            try:
                handle = _step(part, above, makes=makes)
            finally:
                os.close(above)
    return handle


def _dangles(path: str, root: str) -> bool:
    """Return whether a component of `path` below `root` is a dangling link."""
    while len(path) > len(root):
        if os.path.islink(path) and not os.path.exists(path):  # noqa: PTH110, PTH114
            return True
        path = os.path.dirname(path)  # noqa: PTH120
    return False


def open_inside(path: str, roots: Sequence[str]) -> int:
    """Return a handle of a file below the first of `roots`; of any file if there are none."""
    if not roots:
        return os.open(path, READ)
    with Walk(roots) as walk:
        return walk.open(path)


def stat_file(handle: int, path: str) -> os.stat_result:
    """Return the status of an opened file; refuse pipes, devices and directories."""
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        raise SourceError(f"{path}: not a regular file")
    return found


def stat_inside(path: str, roots: Sequence[str]) -> os.stat_result:
    """Return the status of a file that `open_inside` opens."""
    handle = open_inside(path, roots)
    try:
        return stat_file(handle, path)
    finally:
        os.close(handle)


def check_tree(root: str) -> None:
    """Refuse a folder that contains a link to outside, for libraries that follow every link."""
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118
            if os.path.islink(path):  # noqa: PTH114
                real_path(path, (root,))


def list_inside(folder: str, roots: Sequence[str], above: str = "") -> Iterator[str]:
    """Yield the relative paths of all files below `folder`, following links that stay inside."""
    real = real_path(folder, roots)
    if above and _is_below(above, real):
        raise FormatError(f"{folder}: a symbolic link to {real}, which contains the link itself")
    for place, folders, files in os.walk(folder):
        start = os.path.relpath(place, folder)
        prefix = "" if start == "." else f"{start}/"
        yield from (f"{prefix}{name}" for name in files)
        for name in folders:
            path = os.path.join(place, name)  # noqa: PTH118
            if os.path.islink(path):  # noqa: PTH114
                here = os.path.realpath(place)
                yield from (f"{prefix}{name}/{n}" for n in list_inside(path, roots, here))


def resolve(base: str, reference: str, *, allow: Iterable[str] = ()) -> str:
    """Return the url of a file that a file in the folder `base` refers to.

    Parameters:
        base: The folder, which the reference may not leave.
        reference: The reference in the file: a relative path, an absolute path or a url.
        allow: Further folders, as paths or urls, that the reference may lead to. Local paths are
            compared with all links resolved.

    Raises:
        FormatError: The reference leads elsewhere.
    """
    name = reference.replace("\\", "/")
    is_absolute = is_remote(name) or name.startswith(("file:", "/"))
    url = _normal(name) if is_absolute else _normal(f"{base.rstrip('/') or '/'}/{name}")
    is_outside = "\0" in name or is_absolute or ".." in name.split("/")
    leaves = is_outside or not _stays_below(base, url)
    if "\0" in name or (leaves and not any(_is_allowed(folder, url) for folder in allow)):
        raise FormatError(
            f"{base}: the reference {reference!r} leads outside its folder; "
            "pass allow=[…] to follow it"
        )
    return url


def _normal(url: str) -> str:
    """Remove `.` and `..` from a path or from a url's path."""
    if not is_remote(url):
        return posixpath.normpath(local_path(url))
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}://{host}{posixpath.normpath(f'/{path}')}"


def _is_allowed(folder: str, url: str) -> bool:
    if not is_remote(url):
        return not is_remote(folder) and _stays_below(folder, url)
    root = _normal(folder).rstrip("/")
    return url == root or url.startswith(f"{root}/")


def _stays_below(base: str, url: str) -> bool:
    """Return whether a local path is below `base` with all links resolved."""
    if is_remote(base):
        return True
    root = os.path.realpath(local_path(base))
    return os.path.commonpath([root, os.path.realpath(local_path(url))]) == root
