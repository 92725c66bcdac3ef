"""What a forked process gets anew.

Of the threads of its parent, a child has only the one that forked. A lock that another thread held
is never released there, and what it protects may be half changed.
"""

import os
import threading
from collections.abc import Callable
from types import MethodType
from weakref import WeakMethod

type Renewal = Callable[[], object]

_renewals: set[Callable[[], Renewal | None]] = set()
"""Functions that return a renewal; None once its object is gone."""


def in_child(renewal: Renewal) -> None:
    """Have every forked child call `renewal`, as long as the object exists whose method it is."""
    if isinstance(renewal, MethodType):
        _renewals.add(WeakMethod(renewal, _renewals.discard))
    else:
        _renewals.add(lambda: renewal)


def _renew() -> None:
    for found in list(_renewals):
        renewal = found()
        if renewal is not None:
            renewal()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


class Lock:
    """A lock that is free in a forked child, whichever thread of the parent held it."""

    def __init__(self) -> None:
        self._free()
        in_child(self._free)

    def _free(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
