"""Keep the memory of the process within the bound that the user has set.

Caches are bounded by themselves. What they do not count are the libraries that formats import, and
freed memory that the allocator keeps.
"""

import threading
import time
from pathlib import Path

from anychunk.metadata.hierarchy import LevelGroups
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Node
from anychunk_serve.box_reader import Caches

INTERVAL_S = 1.0
"""Least time between two looks at the memory."""
STATUS = Path("/proc/self/statm")
PAGE = 4096
LEAST = 16
"""Caches of chunks are not reduced below this fraction of the bound, 1/16 each."""


def resident_bytes() -> int | None:
    """Return the memory that the process uses, or None if the system does not tell (Linux does)."""
    try:
        return int(STATUS.read_bytes().split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return None


class MemoryGuard:
    """Reduces caches while the process uses more than its bound."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._looked_at = 0.0
        self._lock = threading.Lock()

    def tend(self) -> None:
        """Look at the memory, unless that was done just before. Called after every job."""
        now = time.monotonic()
        if now - self._looked_at < INTERVAL_S or not self._lock.acquire(blocking=False):
            return
        try:
            self._looked_at = now
            used = resident_bytes()
            if used is not None and used > self._caches.most:
                self._reduce(used - self._caches.most)
        finally:
            self._lock.release()

    def _reduce(self, excess: int) -> None:
        """Evict about `excess` bytes of chunks, those that are cheapest to make again first."""
        least = self._caches.most // LEAST
        for cache in (self._caches.encoded, self._caches.small):
            before = cache.nbytes
            cache.shrink(max(least, before - excess))
            excess -= before - cache.nbytes
            if excess <= 0:
                return


def index_bytes(node: Node) -> int:
    """Return the size of the chunk tables of an index; what is listed on access is not counted."""
    if isinstance(node, ArrayIndex):
        return node.chunks.nbytes if isinstance(node.chunks, ByteRanges) else 0
    assert isinstance(node, GroupIndex)
    if isinstance(node.members, LevelGroups):
        # their tables are there already, their groups are not
        arrays = [array for level in node.members.levels for array in (level.image, level.mask)]
        return sum(index_bytes(array) for array in arrays if array is not None)
    members = node.members if isinstance(node.members, dict) else {}
    return sum(index_bytes(member) for member in members.values())
