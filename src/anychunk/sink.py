"""Write bytes: local files appear under their name only when complete, remote objects at once."""

import contextlib
import os
import tempfile
import threading
from collections.abc import Buffer, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from anychunk.errors import SourceError
from anychunk.source import Storage, first_line, is_remote, local_path, object_store


@contextmanager
def create(url: str) -> Iterator[BinaryIO]:
    """Write a local file aside, and rename it to its name when the block ends well.

    Whatever happens before, the name holds the old file or none. A failed write leaves nothing.
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


def put(url: str, data: Buffer, *, storage: Storage | None = None) -> None:
    """Write one whole object."""
    if is_remote(url):
        _put_remote(url, data, storage)
    else:
        _put_local(Path(local_path(url)), data)


def _put_remote(url: str, data: Buffer, storage: Storage | None) -> None:
    import obstore

    store, path = object_store(url, storage)
    try:
        obstore.put(store, path, bytes(data))
    except (obstore.exceptions.BaseError, OSError) as e:
        raise SourceError(f"{url}: {first_line(e)}") from e


def _put_local(path: Path, data: Buffer) -> None:
    # no fsync: chunks are many, and a torn one is impossible, since it is renamed when complete
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(data)
        aside.replace(path)
    except OSError as e:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise SourceError(f"{path}: {e.strerror or e}") from e


def remove(url: str, *, storage: Storage | None = None) -> None:
    """Remove one object; one that is gone is no error."""
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
