"""Limits on the resources that a file may claim in this process.

A file is untrusted: every size that it announces is checked against these limits before anything
is allocated. `override` changes them for the whole process while its block runs; the environment
(`ANYCHUNK_LIMIT_CHUNK_BYTES=8GiB`) changes them for a process from its start, and the command line
by `--limit chunk_bytes=8GiB`.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from anychunk.errors import LimitError, OptionError
from anychunk.options import taking

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The current limits; every field can be changed by `override`."""

    header_bytes: int = 64 * MIB
    """The longest header or metadata text that a parser reads into memory. Tables of chunks count
    as `chunks`, not as headers."""
    index_bytes: int = 4 * GIB
    """The longest saved index that is read into memory."""
    chunk_bytes: int = 4 * GIB
    """The largest chunk, decoded."""
    expansion: int = 4096
    """The largest ratio of decoded to stored bytes, for chunks above `free_bytes`."""
    free_bytes: int = 64 * MIB
    """Decoded chunks up to this size are not checked against `expansion`."""
    chunks: int = 1 << 28
    """How many chunks one array may have whose places are in a table. It takes 16 to 32 bytes per
    chunk in memory: 1e9 chunks need 16 to 32 GB, and this limit raised."""
    objects: int = 1 << 36
    """How many chunks one array may have that are objects of their own, named by a pattern (N5,
    Zarr). They need no table, and no memory."""
    named_chunks: int = 1 << 18
    """How many chunks one array may have that are named one by one, by a pattern of JNRRD."""
    varying_chunks: int = 1 << 24
    """How many chunks one array may have that are stored in different shapes (JNRRD)."""
    attributes_bytes: int = 8 * MIB
    """The longest `attributes.json` of N5."""
    probed_chunks: int = 1 << 18
    """How many chunks of one array `verify` and thumbnails try that may all be absent, where the
    chunks that are there cannot be listed."""
    thumbnail_bytes: int = GIB
    """The decoded bytes that a thumbnail may read, if they are more than 256 times as many as are
    stored."""
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
    whole_bytes: int = 16 * MIB
    """The longest object that is read whole, and kept, if its server does not support ranges."""
    retries: int = 4
    """The number of retries of a failed remote request."""
    retry_s: float = 30.0
    """The time that all retries of one remote request may take."""

    def __post_init__(self) -> None:
        """Refuse values that nothing can work with."""
        for field in fields(self):
            check_value(field.name, getattr(self, field.name), where="limits")


BOUNDS = {
    "concurrency": (1, 1 << 16),
    "head_bytes": (1, GIB),
    "retries": (0, 1 << 16),
    "retry_s": (0, 1e6),
}
"""The least and the largest value of limits that other libraries get. All others are compared only:
they may be 0, and as large as one likes."""


def check_value(name: str, value: float, *, where: str) -> None:
    """Refuse a value that a limit cannot have.

    Raises:
        OptionError: It is no number, negative, or one that a library would not accept.
    """
    least, most = BOUNDS.get(name, (0, math.inf))
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise OptionError(f"{where}: {name} is {value!r}, expected a number of at least {least}")
    if value > most:
        raise OptionError(f"{where}: {name} is {value}, expected at most {most:.0f}")


PREFIX = "ANYCHUNK_LIMIT_"
"""Of the names of environment variables, before the name of a limit in upper case."""
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": KIB, "mi": MIB, "gi": GIB}

_current: Limits | None = None


def get() -> Limits:
    """Return the current limits."""
    global _current  # noqa: PLW0603 - one process-wide setting, read everywhere
    if _current is None:
        # not when this module is imported, which a wrong variable must not prevent
        _current = replace(Limits(), **from_environment(os.environ))  # type: ignore[arg-type]
    return _current


def from_environment(environment: Mapping[str, str]) -> dict[str, float]:
    """Return the limits that variables such as `ANYCHUNK_LIMIT_CHUNK_BYTES` set."""
    return dict(
        parse(name.removeprefix(PREFIX).lower(), text, where=name)
        for name, text in environment.items()
        if name.startswith(PREFIX)
    )


def parse(name: str, text: str, *, where: str) -> tuple[str, float]:
    """Return name and value of a limit, from text such as `8GiB`, `1e9` or `30`.

    Parameters:
        name: The name of a limit.
        text: Its value, with or without a unit: k, M, G, KiB, MiB, GiB.
        where: Names the variable or option in messages.

    Raises:
        OptionError: There is no such limit, or it cannot have this value.
    """
    known = {field.name: field.type for field in fields(Limits)}
    if name not in known:
        raise OptionError(f"{where}: there is no limit {name!r}; there are {' '.join(known)}")
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e\d{1,2})?)\s*([kmg]i?)?b?\s*", text.lower())
    if found is None:
        raise OptionError(f"{where}: {text!r}, expected a number such as 1000, 1e9, 512MiB or 8GiB")
    number = float(found[1]) * UNITS[found[2] or ""]
    value = number if known[name] is float else round(number)
    check_value(name, value, where=where)
    return name, value


def configure(changes: Mapping[str, float]) -> None:
    """Change limits for the rest of the process, and for processes that it starts."""
    global _current  # noqa: PLW0603
    _current = replace(get(), **changes)  # type: ignore[arg-type]
    os.environ.update({f"{PREFIX}{name.upper()}": str(value) for name, value in changes.items()})


def how_to_raise(*names: str) -> str:
    """Return how to raise a limit, for the end of a message: every way to do it."""
    shown = " or ".join(names)
    return (
        f"to allow it, raise {shown}: --limit {names[0]}=…, {PREFIX}{names[0].upper()}=…, or "
        "anychunk.limits.override"
    )


def check_object(size: int, most: int | None, *, where: str) -> None:
    """Refuse an object that is longer than the limit that was passed on as `most`."""
    if most is None or size <= most:
        return
    names = ("header_bytes", "chunk_bytes", "index_bytes", "whole_bytes")
    known = [name for name in names if getattr(get(), name) == most]
    advice = f"; {how_to_raise(*known[:1])}" if known else ""
    raise LimitError(f"{where}: {size} bytes are over the limit of {most}{advice}")


@taking(Limits)
@contextmanager
def override(**changes: Any) -> Iterator[Limits]:
    """Change limits for the whole process while the block runs, by the names of `Limits`."""
    global _current  # noqa: PLW0603
    before = get()
    _current = replace(before, **changes)
    try:
        yield _current
    finally:
        _current = before


def check_chunk(decoded: int, *, where: str, stored: int | None = None) -> None:
    """Refuse a chunk of `decoded` bytes that is too large, or too large for its `stored` bytes."""
    current = get()
    if decoded > current.chunk_bytes:
        raise LimitError(
            f"{where}: a chunk of {decoded} bytes is over the limit of {current.chunk_bytes}; "
            f"{how_to_raise('chunk_bytes')}"
        )
    if stored is not None and decoded > max(current.free_bytes, stored * current.expansion):
        raise LimitError(
            f"{where}: {stored} stored bytes announce a chunk of {decoded} bytes, more than "
            f"{current.expansion} times as many; {how_to_raise('expansion')}"
        )


def check_stream(decoded: int, *, where: str, stored: int) -> None:
    """Refuse a stream of `stored` bytes that cannot decode to `decoded` bytes.

    It is read in pieces, so its length is not limited as that of a chunk is.
    """
    current = get()
    if decoded > max(current.free_bytes, stored * current.expansion):
        raise LimitError(
            f"{where}: {stored} stored bytes announce a stream of {decoded} bytes, which is over "
            f"the limit of {current.expansion} times as many; {how_to_raise('expansion')}"
        )


def check_table(
    chunks: int,
    *,
    where: str,
    references: int | None = None,
    total: int | None = None,
    has_table: bool = True,
) -> None:
    """Refuse an array of too many chunks, or of too many for its few references.

    A chunk without a reference is absent, so a file of a few bytes may announce any number of them.

    Parameters:
        chunks: The number of chunks of one array.
        where: Names the array in the message.
        references: The number of chunks that are present; None if it is not known.
        total: The number of chunks that share these references, by default `chunks`.
        has_table: Whether there is an entry for every chunk.
    """
    current = get()
    name = "chunks" if has_table else "objects"
    if chunks > getattr(current, name):
        costs = f"their table takes {chunks * CHUNK_ENTRY / 1e9:.1f} to "
        costs += f"{2 * chunks * CHUNK_ENTRY / 1e9:.1f} GB of memory; "
        raise LimitError(
            f"{where}: {chunks} chunks are over the limit of {getattr(current, name)}; "
            f"{costs if has_table else ''}{how_to_raise(name)}"
        )
    if references is None:
        return
    total = chunks if total is None else total
    most = max(current.free_bytes // CHUNK_ENTRY, references * current.expansion)
    if total > most:
        raise LimitError(
            f"{where}: {total} chunks with {references} references are over the limit of {most}; "
            f"{how_to_raise('expansion', 'free_bytes')}"
        )


CHUNK_ENTRY = 16
"""Bytes per chunk in the tables of an index: offset and length."""


def check_index(length: int, *, where: str) -> None:
    """Refuse a saved index of `length` bytes that is too long."""
    most = get().index_bytes
    if length > most:
        raise LimitError(
            f"{where}: {length} bytes of index are over the limit of {most}; "
            f"{how_to_raise('index_bytes')}"
        )


def check_header(length: int, *, where: str) -> None:
    """Refuse a header of `length` bytes that is too long."""
    most = get().header_bytes
    if length > most:
        raise LimitError(
            f"{where}: {length} bytes of header are over the limit of {most}; "
            f"{how_to_raise('header_bytes')}"
        )
