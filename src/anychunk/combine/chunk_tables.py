"""Join the chunk tables of several arrays into one table.

Every column of a table is handled the same way: the columns of all tables are concatenated into one
flat column, and `picked` says which entry of it each chunk of the result takes. What tables hold
besides columns (urls, inline bytes, parts) is concatenated too, and the numbers that point into it
are shifted accordingly.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.model.grid import Numbers
from anychunk.model.index import INLINE, ByteRanges, Parts

type Flags = npt.NDArray[np.bool_]


def join_tables(tables: Sequence[ByteRanges], owners: Numbers, numbers: Numbers) -> ByteRanges:
    """Return one table with chunks taken from several.

    Parameters:
        tables: The tables of the arrays that are joined.
        owners: Which of `tables` each chunk is taken from, shaped like the new grid; -1: absent.
        numbers: The number of that chunk in its own table, in C order.
    """
    grid = owners.shape
    starts = np.cumsum([0, *(t.offsets.size for t in tables)])
    is_present = owners.reshape(-1) >= 0
    picked = np.where(is_present, starts[owners.reshape(-1)] + numbers.reshape(-1), 0)
    # offsets of inline chunks count from the start of the joined inline bytes
    inline_starts = np.cumsum([0, *(len(t.inline) for t in tables)]).astype(np.uint64)
    offsets = [
        np.where(_is_inline(t), t.offsets.reshape(-1) + inline_starts[i], t.offsets.reshape(-1))
        for i, t in enumerate(tables)
    ]
    lengths = np.concatenate([t.lengths.reshape(-1) for t in tables])[picked]
    lengths[~is_present] = 0
    urls, url_ids = _deduplicated([(t.urls, t.url_ids) for t in tables], tables)
    has_fronts = any(t.fronts for t in tables)
    fronts, front_ids = _deduplicated([(t.fronts or (b"",), t.front_ids) for t in tables], tables)
    return ByteRanges(
        offsets=np.concatenate(offsets)[picked].reshape(grid),
        lengths=lengths.reshape(grid),
        urls=urls,
        url_ids=_compact(url_ids[picked].reshape(grid), len(urls)),
        parts=_joined_parts(tables, picked, is_present),
        fronts=fronts if has_fronts else (),
        front_ids=_compact(front_ids[picked].reshape(grid), len(fronts)) if has_fronts else None,
        inline=b"".join(t.inline for t in tables),
        tables={key: value for t in tables for key, value in t.tables.items()},
    )


def _is_inline(table: ByteRanges) -> Flags:
    """Return, for each chunk, whether its bytes are held by the index itself."""
    flags = np.array([url == INLINE for url in table.urls] or [False])
    if table.url_ids is None:
        return np.full(table.offsets.size, flags[0])
    return flags[table.url_ids.reshape(-1)]


def _deduplicated(
    entries: Sequence[tuple[Sequence[Any], Any]], tables: Sequence[ByteRanges]
) -> tuple[tuple[Any, ...], Numbers]:
    """Join small tables of values, each value once; return them and the ids of all chunks."""
    known: dict[Any, int] = {}
    ids = []
    for (values, local), table in zip(entries, tables, strict=True):
        here = np.array([known.setdefault(v, len(known)) for v in values] or [0], np.int64)
        size = table.offsets.size
        ids.append(np.full(size, here[0]) if local is None else here[local.reshape(-1)])
    return tuple(known), np.concatenate(ids)


def _compact(ids: Numbers, count: int) -> Any:
    """Return ids in the smallest type that holds `count` values; None if there is only one."""
    if count <= 1:
        return None
    return ids.astype(np.min_scalar_type(count - 1))


def _joined_parts(tables: Sequence[ByteRanges], picked: Numbers, is_present: Flags) -> Parts | None:
    """Join the further byte ranges of chunks, which are stored as in a CSR matrix."""
    if all(t.parts is None for t in tables):
        return None
    begins, counts, offsets, lengths, base = [], [], [], [], 0
    for table in tables:
        parts = table.parts
        if parts is None:
            begins.append(np.zeros(table.offsets.size, np.int64))
            counts.append(np.zeros(table.offsets.size, np.int64))
            continue
        starts = parts.starts.astype(np.int64)
        begins.append(starts[:-1] + base)
        counts.append(np.diff(starts))
        offsets.append(parts.offsets)
        lengths.append(parts.lengths)
        base += len(parts.offsets)
    count = np.where(is_present, np.concatenate(counts)[picked], 0)
    ends = np.cumsum(count)
    # row `begin + 0, begin + 1, …` of every picked chunk, all chunks in one array
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - count, count)
    rows = np.repeat(np.concatenate(begins)[picked], count) + within
    return Parts(
        starts=np.concatenate([[0], ends]).astype(np.uint64),
        offsets=np.concatenate(offsets)[rows],
        lengths=np.concatenate(lengths)[rows],
    )
