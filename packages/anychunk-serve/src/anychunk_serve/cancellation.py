"""Cancellation: long work calls `check` now and then, and stops once no client waits for it.

The check is stored per thread, so that code deep inside a request can call it without every
function in between passing it on.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from anychunk.io import threads

_here = threading.local()


class Cancelled(Exception):  # noqa: N818 - not an error
    """No client waits for this work any more."""


@contextmanager
def cancelled_unless(is_needed: Callable[[], bool]) -> Iterator[None]:
    """Make `check` raise in this thread, inside the block, once `is_needed` returns False."""
    before = getattr(_here, "is_needed", None)
    _here.is_needed = is_needed
    try:
        yield
    finally:
        _here.is_needed = before


def check() -> None:
    """Raise `Cancelled` if no client waits for the work of this thread."""
    is_needed = getattr(_here, "is_needed", None)
    if is_needed is not None and not is_needed():
        raise Cancelled


def map_on_threads[A, B](work: Callable[[A], B], items: Sequence[A]) -> Iterable[B]:
    """Run `work` on every item in parallel; yield the results in the order of the items.

    Calls from inside such work run in their own thread: waiting for others of the same pool could
    deadlock.
    """
    if len(items) < 2 or getattr(_here, "is_helper", False):
        return map(work, items)
    is_needed = getattr(_here, "is_needed", None) or (lambda: True)

    def help_out(item: A) -> B:
        _here.is_helper = True
        try:
            with cancelled_unless(is_needed):
                check()
                return work(item)
        finally:
            _here.is_helper = False

    ahead = 2 * threads.cores()
    return threads.in_order(help_out, items, executor=threads.pool(), ahead=ahead)
