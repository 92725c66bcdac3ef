"""Long work: on all cores, and asking now and then whether anybody still waits for it."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_here = threading.local()
_helpers = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="anychunk-help")


class Dropped(Exception):  # noqa: N818 - it is no error
    """Nobody waits for this work any more."""


@contextmanager
def while_wanted(is_wanted: Callable[[], bool]) -> Iterator[None]:
    """Let `check` raise in this thread, inside the block, once the work is not wanted any more."""
    _here.is_wanted = is_wanted
    try:
        yield
    finally:
        _here.is_wanted = None


def check() -> None:
    """Raise where nobody waits for what this thread does."""
    is_wanted = getattr(_here, "is_wanted", None)
    if is_wanted is not None and not is_wanted():
        raise Dropped


def on_threads[A, B](work: Callable[[A], B], given: Sequence[A]) -> Iterable[B]:
    """Do work on several things at once; within that, one after the other."""
    if len(given) < 2 or getattr(_here, "is_helper", False):
        return map(work, given)
    is_wanted = getattr(_here, "is_wanted", None)

    def help_out(one: A) -> B:
        _here.is_helper = True
        with while_wanted(is_wanted or (lambda: True)):
            check()
            return work(one)

    return _helpers.map(help_out, given)
