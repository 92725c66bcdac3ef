"""The default: chunks are decoded by their codecs, and cut. Fills absent ones, reports errors."""

from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import decoders, limits
from anychunk.codecs.chain import Decoder
from anychunk.decode.boxes import raise_located
from anychunk.decode.chunks import Stored
from anychunk.engine.pictures import decode_together
from anychunk.engine.request import Request, Selector
from anychunk.io import measuring
from anychunk.io.buffers import borrowed
from anychunk.io.cache import Cache
from anychunk.io.source import Bytes1D

type Array = npt.NDArray[Any]

RECENT: Cache[Array] = Cache(lambda: limits.get().recent_bytes)
"""Decoded chunks of which only a part was read, for the whole process: the next read often takes
another part of the same chunk."""
decoders.changed.append(lambda: RECENT.shrink(0))

TOUCHED: Cache[int] = Cache(1 << 20)
"""Chunks of which parts were read, with what that has cost in pixels: when it is as much as the
chunk, the next part is taken from the whole chunk, which is cached. So successive rows are not
decoded one by one."""


def decode_chunks(request: Request, positions: Sequence[int], chunks: Iterable[Stored]) -> None:
    """Decode chunks one by one, and copy each to its place."""
    if measuring.collectors:
        chunks = measuring.timed_each("fetch_seconds", chunks)
    if request.decode.takes_many and not request.recent and len(positions) > 1:
        positions, chunks = decode_together(request, positions, chunks)
    # memory for a very large chunk is allocated only after its stored bytes were checked
    nbytes = request.decode.nbytes if request.decode.nbytes <= limits.get().free_bytes else 0
    with borrowed("scratch", nbytes) as scratch:
        for position, stored in zip(positions, chunks, strict=True):
            source, target = request.place_of(position)
            if stored is None:
                request.fill_absent(position, target)
                continue
            try:
                part = part_of(request, position, stored, source, scratch if nbytes else None)
                request.place(target, part)
            except Exception as e:
                raise_located(e, partial(request.name, position))
                raise


def part_of(
    request: Request, position: int, stored: Bytes1D, source: Selector, scratch: Bytes1D | None
) -> Array:
    """Return what is taken of a chunk, decoded or from the cache."""
    decode = request.decoder(position)
    key = request.recent[position] if request.recent else None
    spent = None if key is None else TOUCHED.get(key) or 0
    if spent is None or (spent < decode.nbytes and RECENT.get(key) is None):
        part = decode.part(stored, source)
        if part is not None:
            if spent is not None:
                TOUCHED.put(key, spent + part.nbytes + decode.nbytes // 16, 64)
            return part
    whole = decode(stored, scratch) if key is None else kept(key, stored, decode)
    return whole[source]


def kept(key: Hashable, stored: Bytes1D, decode: Decoder) -> Array:
    """Return a decoded chunk from the cache, or decode and cache it."""
    array = RECENT.get(key)
    if array is None:
        # not the scratch buffer: the cached array outlives this read
        memory = np.empty(decode.nbytes, np.uint8)
        array = decode(stored, memory)
        if not np.may_share_memory(array, memory):
            array = array.copy()  # codecs may return memory that they reuse
        array = keep(key, array.view())
    elif measuring.collectors:
        measuring.count(cache_hits=1)
    return array


def keep(key: Hashable, array: Array) -> Array:
    """Cache a decoded chunk, which nobody may change any more."""
    array.flags.writeable = False
    RECENT.put(key, array, array.nbytes)
    return array
