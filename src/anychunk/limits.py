"""Limits on the resources that a file may claim in this process.

A file is untrusted: every size that it announces is checked against these limits before anything
is allocated. `override` changes them for the whole process while its block runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from anychunk.errors import LimitError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The current limits; every field can be changed by `override`."""

    header_bytes: int = 64 * MIB
    """The longest header, table or metadata text that a parser reads into memory."""
    index_bytes: int = 4 * GIB
    """The longest saved index that is read into memory."""
    chunk_bytes: int = 4 * GIB
    """The largest chunk, decoded."""
    expansion: int = 4096
    """The largest ratio of decoded to stored bytes, for chunks above `free_bytes`."""
    free_bytes: int = 64 * MIB
    """Decoded chunks up to this size are not checked against `expansion`."""
    chunks: int = 1 << 28
    """How many chunks one array may have."""
    computed_bytes: int = 128 * MIB
    """The bytes of computed chunks that one store caches."""
    recent_bytes: int = 32 * MIB
    """The bytes of partly used decoded chunks that this process caches."""
    concurrency: int = 16
    """The number of concurrent requests to one remote store."""
    coalesce_gap: int = 128 * KIB
    """Remote ranges at most this far apart are read by one request."""
    coalesce_cap: int = 16 * MIB
    """The longest coalesced request."""
    coalesce_join: int = 4 * MIB
    """Up to this length, ranges are coalesced too if the gap is no longer than either of them, as
    between two rows of chunks."""
    head_bytes: int = 32 * KIB
    """The number of bytes that the first request for a remote object fetches."""
    retries: int = 4
    """The number of retries of a failed remote request."""
    retry_s: float = 30.0
    """The time that all retries of one remote request may take."""


_current = Limits()


def get() -> Limits:
    """Return the current limits."""
    return _current


@contextmanager
def override(**changes: float) -> Iterator[Limits]:
    """Change limits for the whole process while the block runs."""
    global _current  # noqa: PLW0603 - one process-wide setting, read everywhere
    before = _current
    _current = replace(before, **changes)  # type: ignore[arg-type]
    try:
        yield _current
    finally:
        _current = before


def check_chunk(decoded: int, *, where: str, stored: int | None = None) -> None:
    """Refuse a chunk of `decoded` bytes that is too large, or too large for its `stored` bytes."""
    if decoded > _current.chunk_bytes:
        raise LimitError(
            f"{where}: a chunk of {decoded} bytes is over the limit of {_current.chunk_bytes}; "
            "raise chunk_bytes with anychunk.limits.override to allow it"
        )
    if stored is not None and decoded > max(_current.free_bytes, stored * _current.expansion):
        raise LimitError(
            f"{where}: {stored} stored bytes announce a chunk of {decoded} bytes, more than "
            f"{_current.expansion} times as many; raise expansion with anychunk.limits.override "
            "to allow it"
        )


def check_header(length: int, *, where: str) -> None:
    """Refuse a header of `length` bytes that is too long."""
    if length > _current.header_bytes:
        raise LimitError(
            f"{where}: {length} bytes of header are over the limit of {_current.header_bytes}; "
            "raise header_bytes with anychunk.limits.override to allow it"
        )
