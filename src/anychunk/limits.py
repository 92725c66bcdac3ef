"""What a file may ask of this process.

A file is untrusted: every size that it announces is held against these numbers before anything
is allocated. `override` changes them for the whole process, for as long as its block runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from anychunk.errors import LimitError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, kw_only=True)
class Limits:
    header_bytes: int = 64 * MIB
    """The longest header, table or metadata text that a parser reads into memory."""
    index_bytes: int = 4 * GIB
    """The longest saved index that is read into memory."""
    chunk_bytes: int = 4 * GIB
    """The largest chunk, decoded."""
    expansion: int = 4096
    """How many bytes one stored byte may become, for chunks larger than `free_bytes`."""
    free_bytes: int = 64 * MIB
    """Decoded chunks up to this size are not held against `expansion`."""
    chunks: int = 1 << 28
    """How many chunks one array may have."""
    computed_bytes: int = 128 * MIB
    """How many bytes of computed chunks one store keeps."""
    recent_bytes: int = 32 * MIB
    """How many bytes of decoded chunks, of which only a part was wanted, this process keeps."""
    concurrency: int = 16
    """How many requests to one remote store are under way at once."""
    coalesce_gap: int = 128 * KIB
    """Two remote ranges are read as one when at most this many unwanted bytes lie between them."""
    coalesce_cap: int = 16 * MIB
    """No coalesced remote range is longer than this."""
    coalesce_join: int = 4 * MIB
    """Up to this length two remote ranges are read as one as well when what lies between is no
    longer than either: a row of chunks and the next."""
    head_bytes: int = 32 * KIB
    """How much of a remote object the first request brings."""
    retries: int = 4
    """How often a failed remote request is tried again."""
    retry_s: float = 30.0
    """How long retries of one remote request may take together."""


_current = Limits()


def get() -> Limits:
    """Return the limits in force."""
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
            "raise anychunk.limits chunk_bytes to allow it"
        )
    if stored is not None and decoded > max(_current.free_bytes, stored * _current.expansion):
        raise LimitError(
            f"{where}: {stored} stored bytes announce a chunk of {decoded}, more than "
            f"{_current.expansion} times as much; raise anychunk.limits expansion to allow it"
        )


def check_header(length: int, *, where: str) -> None:
    """Refuse a header of `length` bytes that is too long to be one."""
    if length > _current.header_bytes:
        raise LimitError(
            f"{where}: {length} bytes of header are over the limit of {_current.header_bytes}; "
            "raise anychunk.limits header_bytes to allow it"
        )
