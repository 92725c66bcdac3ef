"""Shards of Zarr: the index of each is read once, then the inner chunks that a selection takes."""

import math
import os
from collections.abc import Sequence
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.chunk_layout import ShardLayout
from anychunk.engine.rows import ABSENT, PLACED, Data, table_of
from anychunk.io import measuring
from anychunk.io.buffers import borrowed
from anychunk.io.system import read_into
from anychunk.io.threads import run_ranges
from anychunk.model.grid import Plan, plan_box

type Uint64 = npt.NDArray[np.uint64]

NOTHING = np.iinfo(np.uint64).max
GAP = 32 << 10
"""Inner chunks that are this close to each other are read together."""
INLINE_BYTES, PART_BYTES = 256 << 10, 2 << 20
"""Decoded bytes up to which one thread works, and that a thread takes at a time."""


def read_shard(
    handle: int,
    layout: ShardLayout,
    source: Sequence[slice],
    target: Sequence[slice],
    *,
    out: npt.NDArray[Any],
    fill: Any,
    threads: int,
) -> bool:
    """Read a box of an open shard to its place; return False if that is left to the caller.

    Parameters:
        handle: Of the file.
        layout: Of the shards of the array.
        source: What is taken of the shard.
        target: Where it goes.
        out: The result.
        fill: The value of absent chunks.
        threads: How many to use at most.
    """
    size = os.fstat(handle).st_size
    index = read_index(handle, layout, size)
    if index is None:
        return False
    plan = plan_box([(part.start, part.stop) for part in source], layout.shape)
    numbers = np.asarray(plan.numbers(layout.grid))
    table = table_of(layout.inner, plan, numbers, out, layout.grid)
    offsets, lengths = np.ascontiguousarray(index[numbers].T)
    is_absent = (offsets == NOTHING) & (lengths == NOTHING)
    offsets[is_absent] = lengths[is_absent] = 0
    # unsigned: `offsets + lengths` of a hostile index would wrap around
    if table is None or (offsets > size).any() or (lengths > size - offsets).any():
        return False
    corner = sum(p.start * n for p, n in zip(target, out.strides, strict=True))
    table = table._replace(starts=table.starts + corner)
    is_left = []

    def run(items: range) -> None:
        part = slice(items.start, items.stop)
        starts, total, places = spans(offsets[part], lengths[part])
        if total > limits.get().free_bytes:
            is_left.append(True)
            return
        with borrowed("shard", total) as memory:
            for start, begin, end in starts:
                if read_into(handle, memoryview(memory[begin:end]), offset=start) < end - begin:
                    is_left.append(True)
                    return
            done = table.part(part).decode(Data(memory, places, lengths[part]))
        done[is_absent[part]] = ABSENT
        if ((done != PLACED) & (done != ABSENT)).any():
            is_left.append(True)

    count = len(numbers)
    few = count * layout.inner.nbytes <= INLINE_BYTES
    most = max(1, PART_BYTES // layout.inner.nbytes)
    run_ranges(run, count, threads=1 if few else min(threads, count), most=most)
    if not is_left and is_absent.any():
        _fill(plan, target, np.flatnonzero(is_absent).tolist(), out, fill)
    return not is_left


def read_index(handle: int, layout: ShardLayout, size: int) -> Uint64 | None:
    """Return (offset, length) of each inner chunk; None if the index is not as it should be."""
    entries = 16 * math.prod(layout.grid)
    nbytes = entries + (4 if layout.has_checksum else 0)
    if size < nbytes or nbytes > limits.get().free_bytes:
        return None
    memory = np.empty(nbytes, np.uint8)
    at = size - nbytes if layout.is_at_end else 0
    if read_into(handle, memoryview(memory), offset=at) < nbytes:
        return None
    if layout.has_checksum:
        found = google_crc32c.value(memory[:entries].tobytes())
        if found != int.from_bytes(memory[entries:].tobytes(), "little"):
            return None
    if measuring.collectors:
        measuring.count(stored_bytes=nbytes)
    return memory[:entries].view("<u8").reshape(-1, 2)


def spans(offsets: Uint64, lengths: Uint64) -> tuple[list[tuple[int, int, int]], int, Uint64]:
    """Join ranges of a file that are close to each other.

    Returns:
        (offset in the file, begin and end in memory) of each span, their length, and where each
        range is in memory.
    """
    order = np.argsort(offsets, kind="stable")
    firsts = offsets[order].astype(np.int64)
    ends = np.maximum.accumulate(firsts + lengths[order].astype(np.int64))
    cuts = np.flatnonzero(firsts[1:] > ends[:-1] + GAP) + 1
    starts, stops = firsts[[0, *cuts]], ends[[*(cuts - 1), -1]]
    begins = np.cumsum(stops - starts) - (stops - starts)
    group = np.zeros(len(offsets), np.int64)
    group[cuts] = 1
    group = np.cumsum(group)
    places = np.empty(len(offsets), np.uint64)
    places[order] = firsts - starts[group] + begins[group]
    listed = zip(starts.tolist(), begins.tolist(), (begins + stops - starts).tolist(), strict=True)
    return list(listed), int((stops - starts).sum()), places


def _fill(
    plan: Plan, target: Sequence[slice], positions: list[int], out: npt.NDArray[Any], fill: Any
) -> None:
    for position in positions:
        _, place = next(plan.places(range(position, position + 1)))
        corner = [part.start for part in target]
        sides = zip(corner, place, strict=True)
        out[tuple(slice(first + p.start, first + p.stop) for first, p in sides)] = fill
