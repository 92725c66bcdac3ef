"""Bytes and open files that the caller passed instead of a url.

They have no address that another process could read, so the pin of such a source holds the source
itself: an index, and what is opened from it, can be read as long as it exists. Bytes travel with a
pickled index; open files do not.
"""

import io
import os
from collections.abc import Buffer, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, BinaryIO
from uuid import uuid4

import numpy as np

from anychunk.errors import OptionError, SourceError, TruncatedError, UnsupportedError
from anychunk.io.forking import Lock
from anychunk.io.memory import MemorySource
from anychunk.io.source import Bytes1D, Signed, Source, Storage, check_range, signed_of, slashes
from anychunk.model.pin import Pin


@dataclass(frozen=True, kw_only=True)
class HeldPin(Pin):
    """The pin of a source without an address, with the source."""

    source: Source = field(compare=False, repr=False)


class OpenFileSource:
    """An open binary file, read under a lock because it has one position."""

    is_local = True
    storage: Storage | None = None
    roots: Sequence[str] = ()

    def __init__(self, file: BinaryIO, url: str) -> None:
        self.url = url
        self.token = object()
        self._file = file
        self._lock = Lock()
        with self._lock:
            self._size = file.seek(0, io.SEEK_END)

    def pin(self) -> Pin:
        return Pin(size=self._size)

    refresh = pin

    def size(self) -> int:
        return self._size

    def read(self, offset: int, length: int) -> Bytes1D:
        check_range(self, offset, length)
        pieces = []
        left = length
        try:
            with self._lock:
                self._file.seek(offset)
                while left and (piece := self._file.read(left)):
                    pieces.append(piece)
                    left -= len(piece)
        except ValueError as e:
            raise SourceError(f"{self.url}: {e}; keep the file open as long as it is read") from e
        except OSError as e:
            raise SourceError(f"{self.url}: {e.strerror or e}") from e
        if left:
            raise TruncatedError(
                f"{self.url} @{offset}: the file gave {length - left} bytes, expected {length}"
            )
        return np.frombuffer(b"".join(pieces), np.uint8)

    def __reduce__(self) -> Any:
        raise UnsupportedError(
            f"{self.url}: an open file cannot be sent to another process; pass its path, or its "
            "bytes"
        )


def is_held(given: object) -> bool:
    """Return whether the caller passed bytes or an open file, and not a url."""
    return isinstance(given, bytes | bytearray | memoryview) or hasattr(given, "read")


def held_source(given: Any) -> Source | str:
    """Return the source of bytes or of an open file; the path of an open local file."""
    if isinstance(given, bytes | bytearray | memoryview):
        return MemorySource(_copied(given), _url("data"))
    path = _path(given)
    if path is not None:
        return path
    name = getattr(given, "name", None)
    url = _url(PurePath(name).name if isinstance(name, str) and name else "data")
    if isinstance(given, io.TextIOBase):
        raise OptionError(f"{url}: the file is open as text, expected mode 'rb'")
    if not hasattr(given, "seek") or not getattr(given, "seekable", lambda: True)():
        raise OptionError(f"{url}: the file cannot seek; read it, and pass its bytes")
    return OpenFileSource(given, url)


def with_source(source: Source) -> Pin:
    """Return the pin that an index keeps.

    That of a source without an address holds the source, that of a signed url the signature.
    """
    pin = source.pin()
    if isinstance(source, OpenFileSource | MemorySource):
        return HeldPin(size=pin.size, source=source)
    full = signed_of(source.storage).get(source.url)
    return pin if full is None else replace(pin, signed=Signed({source.url: full}))


def _copied(data: Buffer) -> bytes:
    # the caller may change a bytearray while it is read
    return data if isinstance(data, bytes) else bytes(memoryview(data))


def _path(file: Any) -> str | None:
    """Return the path of a local file that is open under its own name."""
    name = getattr(file, "name", None)
    if not isinstance(file, io.BufferedReader | io.FileIO) or not isinstance(name, str):
        return None
    try:
        is_same = os.path.samestat(os.fstat(file.fileno()), os.stat(name))  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return slashes(name) if is_same else None


def _url(name: str) -> str:
    return f"memory://held-{uuid4().hex}/{name}"
