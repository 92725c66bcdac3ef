"""Buffers that each thread reuses: page faults on fresh memory cost more than filling it."""

import contextlib
import ctypes
import math
import mmap
import threading
from collections.abc import Buffer, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from anychunk.io import system

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


LEAST_RESULT, MOST_RESULT = 32 << 20, 128 << 20
"""Sizes of results whose memory is used again. The C library reuses less by itself, but takes more
from the system each time; and of more only a part would be kept."""
RESULTS_KEPT = 128 << 20
"""Maximum number of bytes of freed results that the process keeps."""

_results: list[mmap.mmap] = []
"""The memory of freed results, the latest last, which the system may take back when it needs it."""


class _Lease:
    """The memory of one result, kept for the next when no array refers to it any more."""

    __slots__ = ("memory",)

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.memory)

    def __del__(self) -> None:
        # at the exit of the interpreter, names of modules may be gone
        if _results is not None and system.make_reclaimable(self.memory):
            _results.append(self.memory)
            while sum(map(len, _results)) > RESULTS_KEPT:
                _results.pop(0)


def new_result(
    shape: Sequence[int], dtype: np.dtype[Any], order: Literal["C", "F"]
) -> npt.NDArray[Any]:
    """Return an array to fill, in memory of an earlier result if that is large and was freed.

    Its contents are undefined. A loop that reads one large box after the other, and drops each,
    does not wait for the system to clear the same memory again and again.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if not LEAST_RESULT < nbytes <= MOST_RESULT or system.FREE is None:
        return np.empty(shape, dtype, order)
    memory = _take_result(nbytes) or system.map_memory(nbytes)
    return np.ndarray(shape, dtype, buffer=_Lease(memory), order=order)


def _take_result(nbytes: int) -> mmap.mmap | None:
    """Return kept memory that is large enough, and not twice as large as needed."""
    for memory in reversed(_results[:]):
        if nbytes <= len(memory) < 2 * nbytes:
            with contextlib.suppress(ValueError):  # another thread took it
                _results.remove(memory)
                return memory
    return None


def give_back() -> None:
    """Return freed memory, which the allocator would keep, to the operating system."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has this
        ctypes.CDLL(None).malloc_trim(0)


M_MMAP_THRESHOLD = -3
"""glibc's number of this parameter of `mallopt`."""
LARGE_BLOCK = 1 << 20
USUAL_LARGE_BLOCK = 32 << 20
"""What glibc's own adjustment arrives at once blocks of this size were freed."""


@contextmanager
def returned_at_once() -> Iterator[None]:
    """Let freed blocks of 1 MiB and more go back to the operating system while the block runs.

    glibc keeps freed blocks of up to 32 MiB for the thread that asked for them. Where several
    threads build copies of something large one after the other, each keeps the memory of its own.
    """
    _set_large_block(LARGE_BLOCK)
    try:
        yield
    finally:
        _set_large_block(USUAL_LARGE_BLOCK)
        give_back()


def _set_large_block(nbytes: int) -> None:
    with contextlib.suppress(OSError, AttributeError, TypeError):  # only glibc has this
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, nbytes)
