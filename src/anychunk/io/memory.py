"""Bytes in memory as a source."""

from collections.abc import Sequence

import numpy as np

from anychunk.io.source import Bytes1D, Storage, check_range
from anychunk.model.pin import Pin


class MemorySource:
    """Bytes that are already in memory."""

    is_local = True
    storage: Storage | None = None
    roots: Sequence[str] = ()

    def __init__(self, data: bytes | Bytes1D, url: str = "memory") -> None:
        self.url = url
        self.token = object()
        self._view = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data

    def pin(self) -> Pin:
        return Pin(size=len(self._view))

    refresh = pin

    def size(self) -> int:
        return len(self._view)

    def read(self, offset: int, length: int) -> Bytes1D:
        check_range(self, offset, length)
        return self._view[offset : offset + length]
