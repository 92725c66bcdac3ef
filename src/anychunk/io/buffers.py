"""Buffers that each thread reuses: page faults on fresh memory cost more than filling it."""

import mmap
import threading
from collections.abc import Buffer, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from anychunk.io import system
from anychunk.io.source import Bytes1D, Storage, check_range
from anychunk.model.pin import Pin

KEPT_BYTES = 16 << 20
"""Maximum number of bytes that a thread keeps per purpose."""

PAGE = 4096

_kept = threading.local()


def aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    """Return fresh memory that starts at a page boundary.

    numpy's memory starts 16 bytes after one, and reading a file into it takes seven times as long.
    """
    memory = np.empty(nbytes + PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE
    return memory[start : start + nbytes]


LARGE_BYTES = 4 << 20
"""From this size on, memory is better mapped than allocated."""


def one_piece(pieces: Sequence[Buffer]) -> npt.NDArray[np.uint8]:
    """Return the bytes of all pieces, one after the other, in fresh memory.

    A large result is mapped, outside of the heap: when an allocator gets a large piece back, it
    returns all free memory to the operating system, and decoders that allocate much would have page
    faults again and again.
    """
    arrays = [np.frombuffer(piece, np.uint8) for piece in pieces]
    nbytes = sum(array.size for array in arrays)
    if nbytes < LARGE_BYTES:
        return np.concatenate(arrays)
    return np.concatenate(arrays, out=np.frombuffer(system.map_memory(nbytes), np.uint8))


@contextmanager
def borrowed(purpose: str, nbytes: int) -> Iterator[npt.NDArray[np.uint8]]:
    """Lend this thread a buffer of exactly `nbytes` while the `with` block runs.

    A nested call for the same purpose in the same thread gets a different buffer.
    """
    shelf = _kept.__dict__
    memory = shelf.pop(purpose, None)
    if memory is None or len(memory) < nbytes:
        memory = aligned(nbytes)
    try:
        yield memory[:nbytes]
    finally:
        if len(memory) <= KEPT_BYTES:
            shelf[purpose] = memory


LARGE_KEPT = 64 << 20
"""Maximum number of bytes that the process keeps per purpose of `borrowed_large`."""

_large: dict[str, mmap.mmap] = {}
"""Memory that the system may take back when it needs it."""


@contextmanager
def borrowed_large(purpose: str, nbytes: int) -> Iterator[npt.NDArray[np.uint8]]:
    """Lend memory that is larger than a thread keeps; the process keeps one buffer per purpose.

    Page faults on 64 MiB can take as long as decoding an image to them, above all on virtual
    machines, which return free memory to their host. While nobody uses the buffer, the operating
    system may reclaim its pages.
    """
    if nbytes <= KEPT_BYTES:
        with borrowed(purpose, nbytes) as small:
            yield small
        return
    memory = _large.pop(purpose, None)  # atomic: another thread finds none
    if memory is None or len(memory) < nbytes:
        memory = system.map_memory(nbytes)
    try:
        yield np.frombuffer(memory, np.uint8, nbytes)
    finally:
        if len(memory) <= LARGE_KEPT and system.make_reclaimable(memory):
            _large[purpose] = memory


# Bytes in memory as a source.


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
