"""Decoded chunks of which only a part was wanted: the next read often wants another part.

One store of them a process, bounded by `limits.recent_bytes`; what was not used longest goes first.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits

type Array = npt.NDArray[Any]


class Recent:
    """Arrays by key, the least recently used forgotten first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Array] = OrderedDict()
        self._lock = threading.Lock()
        self.nbytes = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def get(self, key: Hashable) -> Array | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: Hashable, array: Array) -> None:
        """Keep an array that owns its memory."""
        most = limits.get().recent_bytes
        if array.nbytes > most:
            return
        array = array.view()
        array.flags.writeable = False
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = array
            self.nbytes += array.nbytes
            while self.nbytes > most:
                self.nbytes -= self._kept.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.nbytes = 0


RECENT = Recent()

if hasattr(os, "register_at_fork"):
    # a thread that does not exist in the child may have held the lock
    os.register_at_fork(after_in_child=RECENT.__init__)  # type: ignore[misc]


def owned(array: Array, memory: npt.NDArray[np.uint8]) -> Array:
    """Give an array that lives in `memory`, which the caller owns, or in memory of its own."""
    return array if np.may_share_memory(array, memory) else array.copy()
