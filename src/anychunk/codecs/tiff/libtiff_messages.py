"""What libtiff reports while it decodes: warnings that tell damaged data from whole data.

libtiff returns pixels for damaged CCITT data, and says what is wrong in a warning. imagecodecs
passes warnings to Python's logger `imagecodecs`. They are taken there, before the level of the
logger or `logging.disable` can drop them, and only while a call of `decode` runs: a process that
has read CCITT data has the logger that it had before.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.errors import MissingDependencyError
from anychunk.io.forking import Lock

MOST = 100
"""Messages that are kept: a damaged chunk may cause one per row."""

_thread = threading.local()
_lock = Lock()
_listeners = 0
"""How many threads are in a call of libtiff."""
_before: Callable[..., None] | None = None
"""What somebody else had put in the place of the logger's method."""


def decode(tiff: bytes) -> tuple[npt.NDArray[Any] | None, list[str]]:
    """Return the pixels of a TIFF file, None if libtiff refuses it, and what libtiff reports."""
    _check_that_messages_arrive()
    return _decode(tiff)


def _decode(tiff: bytes) -> tuple[npt.NDArray[Any] | None, list[str]]:
    messages: list[str] = []
    _thread.messages = messages
    try:
        with _listening():
            return imagecodecs.tiff_decode(tiff, verbose=1), messages
    except (imagecodecs.TiffError, ValueError, IndexError) as e:
        messages.append(str(e) or "does not decode")
        return None, messages
    finally:
        _thread.messages = None


@contextmanager
def _listening() -> Iterator[None]:
    """Take the warnings of threads that are in `decode`; leave all others to the logger."""
    global _listeners, _before  # noqa: PLW0603 - under the lock
    attributes = vars(logging.getLogger("imagecodecs"))
    with _lock:
        if attributes.get("warning") is not _warning:
            _before = attributes.get("warning")  # of a test, for example
            attributes["warning"] = _warning
        _listeners += 1
    try:
        yield
    finally:
        with _lock:
            _listeners -= 1
            if not _listeners:
                del attributes["warning"]
                if _before is not None:
                    attributes["warning"] = _before


def _warning(message: object, *args: Any, **options: Any) -> None:
    found = getattr(_thread, "messages", None)
    if found is None:
        logger = logging.getLogger("imagecodecs")
        passed_on = _before or logging.Logger.warning.__get__(logger)
        passed_on(message, *args, **options)
    elif len(found) < MOST:
        found.append(str(message) % args if args else str(message))


@cache
def _check_that_messages_arrive() -> None:
    """Raise if imagecodecs does not pass on messages: then damage could not be detected."""
    from anychunk.codecs.tiff.tile import CCITT_T6, Tile, synthetic_tiff

    # T.6: one white row is the single bit 1; the second row is missing
    tile = Tile(compression=CCITT_T6, bits_per_sample=1, tile_width=8, tile_height=2)
    one_row = np.frombuffer(b"\x80\x08\x00\x80", np.uint8)
    try:
        messages = _decode(synthetic_tiff(tile, one_row, rows=2))[1]
    except TypeError as e:  # no parameter `verbose`
        messages = [str(e)]
    if not any("at line 1 " in message for message in messages):
        raise MissingDependencyError(
            f"CCITT data needs an imagecodecs that reports libtiff's warnings; found "
            f'{imagecodecs.__version__}, which does not; install it with: pip install "imagecodecs'
            '>=2026.8"'
        )
