"""Where the time and the bytes of reads go: `anychunk.read_stats`.

What reads calls `spent` or `count` only while somebody measures, which `collectors` says. So this
costs one look at a global per chunk when nobody does.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from anychunk.io.forking import Lock


@dataclass(kw_only=True)
class ReadStats:
    """What was read in a block of `read_stats`, and how long each step took.

    Seconds of threads that work at the same time add up, so the steps together may take longer than
    `seconds`. They change until the block ends.
    """

    seconds: float = 0.0
    """Duration of the block."""
    fetch_seconds: float = 0.0
    """Getting stored bytes: waiting for requests, or reading local files that are not mapped into
    memory. The bytes of a mapped file are read by the operating system when a decoder comes to
    them, as part of `decode_seconds`."""
    decode_seconds: float = 0.0
    """Turning stored bytes into samples, including the check that a chunk is whole."""
    copy_seconds: float = 0.0
    """Copying samples to their place in the result. Chunks that are wanted whole are often
    decoded in place instead."""
    requests: int = 0
    """Requests to servers, including those for the structure of files."""
    fetched_bytes: int = 0
    """Bytes that the requests have returned."""
    stored_bytes: int = 0
    """Bytes of chunks before decoding, local or remote."""
    decoded_bytes: int = 0
    """Bytes of samples after decoding, including those that were not wanted."""
    chunks: int = 0
    """Chunks that were decoded, whole or in part."""
    absent_chunks: int = 0
    """Chunks that the file declares absent, which read as the fill value."""
    leftover_chunks: int = 0
    """Chunks that were decoded one by one, though others of their array are decoded together."""
    cache_hits: int = 0
    """Chunks that an earlier read has left in memory, decoded."""
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def __str__(self) -> str:
        rows = [
            ("fetch", self.fetch_seconds, self._fetched()),
            ("decode", self.decode_seconds, self._decoded()),
            ("copy", self.copy_seconds, ""),
        ]
        lines = [f"{name:6} {1e3 * spent:9.2f} ms  {text}".rstrip() for name, spent, text in rows]
        return "\n".join([*lines, f"block  {1e3 * self.seconds:9.2f} ms"])

    def _fetched(self) -> str:
        if not self.requests:
            return "no requests"
        return f"{self.requests} requests, {_amount(self.fetched_bytes)}"

    def _decoded(self) -> str:
        more = {"absent": self.absent_chunks, "in memory before": self.cache_hits}
        rest = "".join(f", {count} {name}" for name, count in more.items() if count)
        sizes = f"{_amount(self.stored_bytes)} to {_amount(self.decoded_bytes)}"
        return f"{self.chunks} chunks, {sizes}{rest}"

    def asdict(self) -> dict[str, float]:
        """Return all numbers by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name[0] != "_"}

    def _add(self, amounts: dict[str, float]) -> None:
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)


def _amount(nbytes: float) -> str:
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.4g} GB"


collectors: tuple[ReadStats, ...] = ()
"""Those of all blocks that are running, on any thread; replaced, never changed."""
_lock = Lock()


@contextmanager
def read_stats() -> Iterator[ReadStats]:
    """Measure what is read while the `with` block runs: time, bytes, requests and chunks.

    All reads of this process count, on any thread: those of Dask and xarray too, as far as they
    run in this process. Blocks may be nested, and run at the same time.

    ```python
    with anychunk.read_stats() as stats:
        array[:1000, :1000]
    print(stats)
    ```

    Returns:
        A `ReadStats`, which is filled while the block runs.
    """
    global collectors  # noqa: PLW0603 - one name to look at, which is what makes it cheap
    found = ReadStats()
    start = time.perf_counter()
    with _lock:
        collectors = (*collectors, found)
    try:
        yield found
    finally:
        with _lock:
            collectors = tuple(one for one in collectors if one is not found)
        found.seconds = time.perf_counter() - start


def count(**amounts: float) -> None:
    """Add to all blocks that are running."""
    for one in collectors:
        one._add(amounts)  # noqa: SLF001 - this module's own


def timed[R](step: str, call: Callable[..., R], *args: Any, **options: Any) -> R:
    """Return what a call returns; its duration counts for a step, such as `decode_seconds`."""
    start = time.perf_counter()
    try:
        return call(*args, **options)
    finally:
        count(**{step: time.perf_counter() - start})


_thread = threading.local()


def decoding[R](amounts: Callable[[R], dict[str, float]], call: Callable[..., R], *args: Any) -> R:
    """Return what a call that decodes chunks returns, and count its duration and amounts.

    Some codecs decode by a chain of codecs of their own, which is not counted again.

    Parameters:
        amounts: What to count, from the result.
        call: What decodes.
        *args: Its arguments.
    """
    if getattr(_thread, "is_decoding", False):
        return call(*args)
    _thread.is_decoding = True
    try:
        found = timed("decode_seconds", call, *args)
    finally:
        _thread.is_decoding = False
    count(**amounts(found))
    return found


def timed_each[T](step: str, items: Iterable[T]) -> Iterator[T]:
    """Yield items; the time to get each counts for a step."""
    iterator = iter(items)
    end = object()
    while True:
        found = timed(step, next, iterator, end)
        if found is end:
            return
        yield found
