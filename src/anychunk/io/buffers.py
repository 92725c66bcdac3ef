"""Memory that a thread uses again and again: fresh pages cost more than what is put into them."""

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

KEPT_BYTES = 8 << 20
"""The most that a thread keeps for each purpose."""

PAGE = 4096

_kept = threading.local()


def aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    """Give fresh memory that begins at a page.

    numpy's begins 16 bytes after one, and reading a file to there takes seven times as long.
    """
    memory = np.empty(nbytes + PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE
    return memory[start : start + nbytes]


@contextmanager
def borrowed(purpose: str, nbytes: int) -> Iterator[npt.NDArray[np.uint8]]:
    """Lend this thread exactly `nbytes`, for as long as the block runs.

    Whoever borrows for the same purpose meanwhile, in the same thread, gets other memory.
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


def give_back() -> None:
    """Hand memory that was freed back to the system, where the allocator keeps it for later."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has this
        ctypes.CDLL(None).malloc_trim(0)
