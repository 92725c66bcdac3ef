"""Write bytes: a local file appears under its name only when it is complete."""

import contextlib
import os
import tempfile
import threading
from collections.abc import Buffer, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from anychunk.errors import AnychunkError, SourceError
from anychunk.io import (
    HAS_HANDLES,
    Storage,
    Walk,
    first_line,
    is_remote,
    local_path,
    object_store,
    real_path,
)

WRITE = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_TRUNC
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)


@contextmanager
def create(url: str) -> Iterator[BinaryIO]:
    """Write a local file under a temporary name, and rename it when the block succeeds.

    Until then the name refers to the old file or to none. A failed write leaves nothing behind.
    """
    path = Path(local_path(url))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror or e}") from e
    try:
        with os.fdopen(handle, "w+b") as file:
            yield cast("BinaryIO", file)
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        Path(aside).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(aside).unlink()
        raise


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


def _put_remote(url: str, data: bytes, storage: Storage | None) -> None:
    import obstore

    store, path = object_store(url, storage)
    try:
        obstore.put(store, path, data)
    except (obstore.exceptions.BaseError, OSError) as e:
        raise SourceError(f"{url}: {first_line(e)}") from e


def _put_inside(path: str, pieces: Sequence[Buffer], root: str) -> None:
    folder, name = os.path.split(path)
    if not HAS_HANDLES:
        _put_local(os.path.join(real_path(folder, (root,)), name), pieces)  # noqa: PTH118
        return
    try:
        with Walk((root,), makes=True) as walk:
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
            _write_all(handle, [memoryview(piece).cast("B") for piece in pieces])
        finally:
            os.close(handle)
        os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(aside, dir_fd=folder)
        raise


def _aside_name(name: str) -> str:
    return f".{name}.{os.getpid()}.{threading.get_ident()}.part"


def _put_local(path: str, pieces: Sequence[Buffer]) -> None:
    # no fsync: there are many chunks, and renaming complete files rules out torn ones
    folder, name = os.path.split(path)
    aside = os.path.join(folder, _aside_name(name))  # noqa: PTH118
    try:
        handle = _open_aside(aside, folder)
        try:
            _write_all(handle, [memoryview(piece).cast("B") for piece in pieces])
        finally:
            os.close(handle)
        os.replace(aside, path)  # noqa: PTH105 - once per chunk
    except OSError as e:
        with contextlib.suppress(OSError):
            os.unlink(aside)  # noqa: PTH108
        raise SourceError(f"{path}: {e.strerror or e}") from e


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
    """Remove every object below a remote url."""
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
    except FileNotFoundError:
        try:
            os.mkdir(folder)  # noqa: PTH102 - usually only the last folder is missing
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        return os.open(aside, WRITE, 0o666)


def _write_all(handle: int, pieces: list[memoryview]) -> None:
    while pieces:
        written = os.writev(handle, pieces)
        while pieces and written >= len(pieces[0]):
            written -= len(pieces.pop(0))
        if pieces:
            pieces[0] = pieces[0][written:]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
