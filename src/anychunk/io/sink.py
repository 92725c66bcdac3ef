"""Write bytes: a local file appears under its name only when it is complete."""

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Buffer, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from anychunk.errors import (
    AnychunkError,
    FormatError,
    SourceError,
    TargetExistsError,
    UnsupportedError,
)
from anychunk.io import system
from anychunk.io.errors import first_line
from anychunk.io.inside import Walk, is_at, real_path
from anychunk.io.object_stores import object_store
from anychunk.io.source import Storage, below, is_remote, local_path
from anychunk.io.system import UPDATE, WRITE

DEVICE_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


@contextmanager
def create(url: str) -> Iterator[BinaryIO]:
    """Write a local file under a temporary name, and rename it when the block succeeds.

    Until then the name refers to the old file or to none. A failed write leaves nothing behind.
    """
    path = Path(local_path(url))
    _check_replaceable(str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror or e}") from e
    try:
        with os.fdopen(handle, "w+b") as file:
            yield cast("BinaryIO", file)
            file.flush()
            system.share(file.fileno())
            os.fsync(file.fileno())
        system.replace(aside, str(path))
    except BaseException as e:
        with contextlib.suppress(OSError):
            Path(aside).unlink()
        _raise_if_full(e, path)
        raise


@contextmanager
def creating(url: str, *, storage: Storage | None = None) -> Iterator[BinaryIO]:
    """Write a file piece by piece, local or remote, which appears when the block succeeds."""
    if not is_remote(url):
        with create(url) as file:
            yield file
        return
    with tempfile.TemporaryDirectory(prefix="anychunk-") as folder:
        path = Path(folder) / "object"
        with path.open("wb") as file:
            yield cast("BinaryIO", file)
        upload(url, str(path), storage=storage)


@contextmanager
def update(url: str) -> Iterator[BinaryIO]:
    """Open a local file to write parts of it in place; it is created empty if it does not exist."""
    path = Path(local_path(url))
    try:
        handle = os.open(path, UPDATE, 0o666)
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror or e}") from e
    if not system.NOFOLLOW and system.is_link(str(path)):
        os.close(handle)
        raise SourceError(f"{path}: is a symbolic link, expected a file; remove it")
    try:
        with os.fdopen(handle, "r+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except OSError as e:
        _raise_if_full(e, path)
        raise


def _raise_if_full(error: BaseException, path: Path) -> None:
    """Raise an error that names the file being written, if there is no room for it.

    Other errors may be about what is read in order to write it.
    """
    if isinstance(error, OSError) and error.errno in DEVICE_FULL:
        raise SourceError(f"{path}: {error.strerror or error}") from error


def put(url: str, *pieces: Buffer, storage: Storage | None = None, root: str | None = None) -> None:
    """Write one whole object, given in one or several pieces.

    `root` is the local folder that is being written: links below it that lead outside are refused.
    Without it the caller named the object, and it may lie anywhere.
    """
    if is_remote(url):
        _put_remote(url, b"".join(bytes(piece) for piece in pieces), storage)
    else:
        path = local_path(url)
        if root is None:
            _put_local(path, pieces)
        else:
            _put_inside(path, pieces, local_path(root))


@contextmanager
def writing(root: str, *, storage: Storage | None = None) -> Iterator[Callable[[str, bytes], None]]:
    """Yield a function that writes objects by their names below a folder.

    As `put` with `root`, but directories stay open from one object to the next.
    """
    if is_remote(root) or not system.HAS_HANDLES:
        yield lambda name, data: put(below(root, name), data, storage=storage, root=root)
        return
    folder = local_path(root)
    with Walk((folder,), makes=True) as walk:
        yield lambda name, data: _put_by(walk, f"{folder}/{name}", (data,))


@contextmanager
def replacing(root: str, is_ours: Callable[[str], bool]) -> Iterator[str]:
    """Yield the folder to write that takes the place of the one at `root` if the block succeeds.

    A local folder is written beside it. The folder itself is yielded, to be changed in place, where
    there is none to be replaced, it is remote or a link, or holds files of others, which must stay.

    Parameters:
        root: The folder.
        is_ours: Whether a file of this name may be removed.
    """
    path = Path(local_path(root)) if not is_remote(root) else None
    if path is None or not path.is_dir() or not _has_only(path, is_ours):
        yield root
        return
    try:
        aside = tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError:  # the folder around it cannot be written to
        yield root
        return
    try:
        Path(aside).chmod(stat.S_IMODE(path.stat().st_mode))
        yield aside
        system.exchange(aside, str(path))
    finally:  # what was there, or what failed
        _remove_tree(aside, is_ours)


def _has_only(folder: Path, is_ours: Callable[[str], bool]) -> bool:
    """Return whether a folder is no link, and has no links and only our files in it."""
    return not system.is_link(str(folder)) and all(
        all(map(is_ours, files)) and not any(system.is_link(f"{place}/{name}") for name in folders)
        for place, folders, files in os.walk(folder)
    )


def _remove_tree(folder: str, is_ours: Callable[[str], bool]) -> None:
    """Remove our files and the folders that are empty then; what else there is by now stays."""
    for place, _, files in os.walk(folder, topdown=False):
        for name in filter(is_ours, files):
            with contextlib.suppress(OSError):
                Path(place, name).unlink()
        with contextlib.suppress(OSError):
            Path(place).rmdir()


def check_case(root: str, names: Iterable[str]) -> None:
    """Refuse names of which one would overwrite another, because the file system ignores case.

    Parameters:
        root: The folder that is to be written; a remote one distinguishes all names.
        names: All paths below it.
    """
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.casefold(), name)
        if other != name and not is_remote(root) and system.ignores_case(local_path(root)):
            raise UnsupportedError(
                f"{root}: {other!r} and {name!r} differ only in case, which this file system "
                "ignores; write to another one"
            )


def _put_remote(url: str, data: bytes, storage: Storage | None) -> None:
    import obstore

    store, path = object_store(url, storage)
    try:
        obstore.put(store, path, data)
    except (obstore.exceptions.BaseError, OSError) as e:
        raise SourceError(f"{url}: {first_line(e)}") from e


def upload(url: str, path: str, *, storage: Storage | None = None) -> None:
    """Write a local file to a remote url, in parts if it is large."""
    import obstore

    store, key = object_store(url, storage)
    try:
        obstore.put(store, key, Path(path))
    except (obstore.exceptions.BaseError, OSError) as e:
        raise SourceError(f"{url}: {first_line(e)}") from e


def is_there(url: str, *, storage: Storage | None = None) -> bool:
    """Return whether there is a file, or a folder with something in it, local or remote."""
    if not is_remote(url):
        path = Path(local_path(url))
        return os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir()))
    import obstore

    store, key = object_store(url, storage)
    if exists(url, storage=storage):
        return True
    try:
        return any(batch for batch in obstore.list(store, f"{key}/", chunk_size=1))
    except (obstore.exceptions.BaseError, OSError) as e:
        raise SourceError(f"{url}: {first_line(e)}") from e


def check_free(url: str, *, overwrite: bool, storage: Storage | None = None) -> None:
    """Raise `TargetExistsError` if something is at a target and may not be replaced."""
    if not overwrite and is_there(url, storage=storage):
        raise TargetExistsError(url)


def exists(url: str, *, storage: Storage | None = None) -> bool:
    """Return whether a remote object exists."""
    import obstore

    store, key = object_store(url, storage)
    try:
        obstore.head(store, key)
    except FileNotFoundError:
        return False
    except (obstore.exceptions.BaseError, OSError) as e:
        raise SourceError(f"{url}: {first_line(e)}") from e
    return True


def _put_inside(path: str, pieces: Sequence[Buffer], root: str) -> None:
    folder, name = os.path.split(path)
    if not system.HAS_HANDLES:
        _put_local(f"{real_path(folder, (root,))}/{name}", pieces, is_real=True)
        return
    with Walk((root,), makes=True) as walk:
        _put_by(walk, path, pieces)


def _put_by(walk: Walk, path: str, pieces: Sequence[Buffer]) -> None:
    folder, name = os.path.split(path)
    try:
        _write_aside(walk.directory(folder), name, pieces)
    except AnychunkError:
        raise
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror or e}") from e


def _write_aside(folder: int, name: str, pieces: Sequence[Buffer]) -> None:
    aside = _aside_name(name)
    try:
        handle = os.open(aside, WRITE, 0o666, dir_fd=folder)
        try:
            system.write_all(handle, pieces)
        finally:
            os.close(handle)
        os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(aside, dir_fd=folder)
        raise


def _aside_name(name: str) -> str:
    return f".{name}.{os.getpid()}.{threading.get_ident()}.part"


def _put_local(path: str, pieces: Sequence[Buffer], *, is_real: bool = False) -> None:
    """Write a file by its path; `is_real` refuses a folder that has become a link."""
    # no fsync: there are many chunks, and renaming complete files rules out torn ones
    _check_replaceable(path)
    folder, name = os.path.split(path)
    aside = f"{folder}/{_aside_name(name)}" if folder else _aside_name(name)
    try:
        handle = _open_aside(aside, folder)
        try:
            if is_real and not is_at(handle, aside):
                raise FormatError(f"{path}: its folder became a link while it was written")
            system.write_all(handle, pieces)
        finally:
            os.close(handle)
        system.replace(aside, path)
    except AnychunkError:
        with contextlib.suppress(OSError):
            os.unlink(aside)  # noqa: PTH108
        raise
    except OSError as e:
        with contextlib.suppress(OSError):
            os.unlink(aside)  # noqa: PTH108
        raise SourceError(f"{path}: {e.strerror or e}") from e


def _check_replaceable(path: str) -> None:
    """Refuse to replace what is not a file, such as a device or a pipe."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - once per object
    except OSError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise SourceError(f"{path}: is not a regular file, and cannot be replaced by one")


def remove(url: str, *, storage: Storage | None = None) -> None:
    """Remove one object, if it exists."""
    if not is_remote(url):
        Path(local_path(url)).unlink(missing_ok=True)
        return
    import obstore

    store, path = object_store(url, storage)
    try:
        obstore.delete(store, path)
    except FileNotFoundError:
        return
    except (obstore.exceptions.BaseError, OSError) as e:
        raise SourceError(f"{url}: {first_line(e)}") from e


def remove_all(url: str, *, storage: Storage | None = None) -> None:
    """Remove every object below a url, or a local file or folder."""
    if not is_remote(url):
        local = Path(local_path(url))
        shutil.rmtree(local) if local.is_dir() else local.unlink()
        return
    import obstore

    store, path = object_store(url, storage)
    try:
        found = [str(o["path"]) for batch in obstore.list(store, path or None) for o in batch]
        if found:
            obstore.delete(store, found)
    except (obstore.exceptions.BaseError, OSError) as e:
        raise SourceError(f"{url}: {first_line(e)}") from e


def _open_aside(aside: str, folder: str) -> int:
    try:
        return os.open(aside, WRITE, 0o666)
    except FileExistsError:
        os.unlink(aside)  # noqa: PTH108 - left by a process that was killed
        return os.open(aside, WRITE, 0o666)
    except FileNotFoundError:
        try:
            os.mkdir(folder)  # noqa: PTH102 - usually only the last folder is missing
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        return os.open(aside, WRITE, 0o666)
