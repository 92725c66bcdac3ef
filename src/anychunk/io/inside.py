"""Open files below a folder: symbolic links that stay inside are followed, all others are refused.

The names of files in a folder format come from the folder itself, which is untrusted: a symbolic
link in it must not give access to the rest of the machine. Renaming files during the check does not
defeat it: either a file is opened by its path and `/proc` says where the opened file is, or each
path component is opened by `openat` with `O_NOFOLLOW` relative to the handle of its parent
directory. Only if a component is a link, its real path is compared with the roots, and then opened
in the same way.

Windows has neither. There a file is opened by its real path, and the system says where the opened
file is. A system that does not say must have the same file at a path without links afterwards; that
leaves an attacker who renames three times at the right moments a chance.
"""

import contextlib
import errno
import ntpath
import os
import posixpath
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Self
from urllib.parse import unquote, urlsplit

from anychunk.errors import FormatError, SourceError
from anychunk.io import system
from anychunk.io.source import is_absolute, is_remote, local_path, slashes
from anychunk.io.system import DIRECTORY, NOFOLLOW, READ, is_link, is_special, path_of

LINK_ERRORS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
"""Errors for a link that must not be followed: Linux ELOOP or ENOTDIR, FreeBSD EMLINK."""
MOST_KEPT = 32
"""Maximum number of directory handles that a `Walk` keeps open."""


def real_path(path: str, roots: Sequence[str]) -> str:
    """Return `path` with all links resolved.

    Raises `FormatError` if the result is in none of the folders `roots`.
    """
    check_names(path.removeprefix(roots[0]))
    real = resolved(path)
    if not any(is_below(real, resolved(root)) for root in roots):
        raise FormatError(
            f"{path}: a symbolic link that leads outside {roots[0]}, which is not followed"
        )
    return real


def resolved(path: str) -> str:
    """Return a path with all links resolved, and forward slashes."""
    return slashes(os.path.realpath(path))


def is_below(path: str, root: str) -> bool:
    """Return whether `path` is `root` or below it; both have all links resolved."""
    path, root = _comparable(path), _comparable(root)
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def _comparable(path: str) -> str:
    """Return a real path as Windows compares it: without regard to case, without its prefix."""
    if not system.IS_WINDOWS:
        return path
    path = slashes(path)
    if path.startswith("//?/UNC/"):
        path = f"//{path[8:]}"
    return path.removeprefix("//?/").lower()


def check_names(path: str) -> None:
    """Refuse names that are devices or streams on Windows."""
    if system.IS_WINDOWS:
        _, rest = ntpath.splitdrive(path)
        found = next((name for name in slashes(rest).split("/") if is_special(name)), None)
        if found is not None:
            raise FormatError(f"{path}: {found!r} is not the name of a file on Windows")


def is_at(handle: int, real: str) -> bool:
    """Return whether an opened file is the one at a path that has no links."""
    found = path_of(handle)
    if found is not None:
        return _comparable(found) == _comparable(real)
    try:
        is_same = os.path.samestat(os.fstat(handle), os.lstat(real))
    except OSError:
        return False
    return is_same and _comparable(resolved(real)) == _comparable(real)


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
        if system.HAS_HANDLES and path.startswith(self._start) and _is_plain(name):
            folder, _, last = name.rpartition("/")
            try:
                # a kept handle takes one `openat`; without it every component would take one
                if system.HAS_PROC and folder not in self._kept:
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
            if not system.HAS_HANDLES:
                return _open_checked(path, flags, real)
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
                self._top = os.open(self._roots[0] or ".", DIRECTORY & ~NOFOLLOW)
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
    return resolved(root).rstrip("/")


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
    # the kernel resolves every link: a link in any component makes this path differ from `real`
    if path_of(handle) != real:
        os.close(handle)
        return None
    return handle


def _open_checked(path: str, flags: int, real: str) -> int:
    """Open the real path of a file on a system without directory handles."""
    handle = os.open(real, flags)
    if not is_at(handle, real):
        os.close(handle)
        raise FormatError(f"{path}: links changed while they were resolved")
    return handle


def _is_plain(name: str) -> bool:
    """Return whether no component of a relative path is empty, `.` or `..`."""
    return bool(name) and all(part not in ("", ".", "..") for part in name.split("/"))


def _step(name: str, above: int, *, makes: bool) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=above)
    except FileNotFoundError:
        if not makes:
            raise
    with contextlib.suppress(FileExistsError):  # another thread created it
        os.mkdir(name, dir_fd=above)
    return os.open(name, DIRECTORY, dir_fd=above)


def _real_directory(real: str, roots: Sequence[str], *, makes: bool) -> int:
    """Open a directory by its real path without following links below its root."""
    real_roots = map(resolved, roots)
    root = next(r for r in real_roots if is_below(real, r) or is_below(r, real))
    handle = os.open(root if is_below(real, root) else real, DIRECTORY & ~NOFOLLOW)
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
        if is_link(path) and not os.path.exists(path):  # noqa: PTH110
            return True
        path = os.path.dirname(path)  # noqa: PTH120
    return False


def open_inside(path: str, roots: Sequence[str]) -> int:
    """Return a handle of a file below the first of `roots`; of any file if there are none."""
    if not roots:
        return os.open(path, READ)
    with Walk(roots) as walk:
        return walk.open(path)


def scan_inside(folder: str, roots: Sequence[str]) -> list[tuple[bool, str]]:
    """List a folder below the first of `roots`: whether each entry is a folder, and its name."""
    if not system.HAS_HANDLES:
        with os.scandir(real_path(folder, roots)) as entries:
            return [(entry.is_dir(), entry.name) for entry in entries]
    with Walk(roots) as walk:
        # a handle of its own: one that `Walk` keeps may be good for paths only
        handle = os.open(".", os.O_RDONLY | NOFOLLOW, dir_fd=walk.directory(folder))
        try:
            with os.scandir(handle) as entries:
                return [(entry.is_dir(), entry.name) for entry in entries]
        finally:
            os.close(handle)


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
    """Refuse a folder that contains a link to outside, or a pipe, for libraries that open both."""
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118
            if is_link(path):
                path = real_path(path, (root,))
                if not os.path.exists(path):  # noqa: PTH110 - a dangling link cannot be opened
                    continue
            kind = os.stat(path).st_mode  # noqa: PTH116
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise SourceError(f"{path}: not a regular file")


def list_inside(folder: str, roots: Sequence[str], above: str = "") -> Iterator[str]:
    """Yield the relative paths of all files below `folder`, following links that stay inside."""
    real = real_path(folder, roots)
    if above and is_below(above, real):
        raise FormatError(f"{folder}: a symbolic link to {real}, which contains the link itself")
    for place, folders, files in os.walk(folder):
        start = slashes(os.path.relpath(place, folder))
        prefix = "" if start == "." else f"{start}/"
        yield from (f"{prefix}{name}" for name in files)
        for name in folders:
            path = os.path.join(place, name)  # noqa: PTH118
            if is_link(path):
                here = resolved(place)
                yield from (f"{prefix}{name}/{n}" for n in list_inside(path, roots, here))


def climbs(url: str) -> bool:
    """Return whether a path, or the path of a remote url, contains `..`.

    Servers decode the paths of urls, some more than once, and some take a backslash for a slash:
    `%2e%2e`, `%252e%252e` and `..%5c` are `..` as well. In local paths `%` is a letter.
    """
    path = url
    if is_remote(url):
        path = urlsplit(url).path
        while path != (path := unquote(path)):
            pass
    path = path.replace("\\", "/")
    return "\0" in path or ".." in path.split("/")


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
    is_whole = is_remote(name) or name.startswith("file:") or is_absolute(name)
    url = _normal(name) if is_whole else _normal(f"{base.rstrip('/') or '/'}/{name}")
    leaves = climbs(name) or not (_is_allowed if is_whole else _stays_below)(base, url)
    # `_normal` has removed `..` from a url: one that is left is encoded, and may leave `allow`, too
    is_hidden = "\0" in name or (is_remote(url) and climbs(url))
    if is_hidden or (leaves and not any(_is_allowed(folder, url) for folder in allow)):
        raise FormatError(
            f"{base}: the reference {reference!r} leads outside its folder; "
            "pass allow=[…] to follow it"
        )
    if not is_remote(url):
        check_names(name)
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
    return is_below(resolved(local_path(url)), resolved(local_path(base)))
