"""A remote source behind a cache of aligned blocks."""

import math
from collections.abc import Iterable

import numpy as np

from anychunk import limits
from anychunk.io.objects import ObjectSource
from anychunk.io.source import Bytes1D, Source, check_range
from anychunk.model.pin import Pin


def buffered(source: Source) -> Source:
    """Return the source that a parser should read from: with a block cache if it is remote."""
    return source if source.is_local else Blocks(source)


LINE = limits.KIB
"""When a block is evicted, lines of about this size that small reads requested are kept."""
MOST_LINES = 1 << 16


class Blocks:
    """A source behind a bounded cache of aligned blocks, for parsers that read small pieces.

    Parsers visit directories that are far apart more than once: first to find each, then to read
    it. So the lines that they requested are kept longer than the blocks around them.
    """

    is_local = False

    def __init__(self, source: Source, *, block: int = 64 * limits.KIB, most: int = 1024) -> None:
        self._source, self._block, self._most = source, block, most
        self._line = math.gcd(block, LINE)
        self._cache: dict[int, Bytes1D] = {}
        self._lines: dict[int, Bytes1D] = {}
        self._wanted: set[int] = set()
        self.url = source.url
        self.storage = source.storage

    def pin(self) -> Pin:
        return self._source.pin()

    def refresh(self) -> Pin:
        return self._source.refresh()

    def size(self) -> int:
        return self._source.size()

    def read(self, offset: int, length: int) -> Bytes1D:
        check_range(self, offset, length)
        if isinstance(self._source, ObjectSource) and offset + length <= self._source.head_length:
            return self._source.read(offset, length)  # the first request has fetched it
        first, last = offset // self._block, -(-(offset + length) // self._block)
        missing = [i for i in range(first, last) if i not in self._cache]
        lines = range(offset // self._line, -(-(offset + length) // self._line))
        if missing and lines and all(line in self._lines for line in lines):
            kept = np.concatenate([self._lines[line] for line in lines])
            return kept[offset - lines.start * self._line :][:length]
        if len(lines) <= 4:
            self._wanted.update(lines)
        for start, stop in _runs(missing):
            begin = start * self._block
            end = min(stop * self._block, self.size())
            data = self._source.read(begin, end - begin)
            for i in range(start, stop):
                self._cache[i] = data[(i - start) * self._block : (i - start + 1) * self._block]
        blocks = [self._cache[i] for i in range(first, last)]
        joined = blocks[0] if len(blocks) == 1 else np.concatenate([np.empty(0, np.uint8), *blocks])
        while len(self._cache) > self._most:
            self._forget(next(iter(self._cache)))
        return joined[offset - first * self._block :][:length]

    def _forget(self, number: int) -> None:
        """Evict a block, except for the lines that small reads requested."""
        block, size = self._cache.pop(number), self._line
        first = number * self._block // size
        for line in self._wanted.intersection(range(first, first + self._block // size)):
            begin = (line - first) * size
            self._lines[line] = block[begin : begin + size].copy()
            self._wanted.discard(line)
        while len(self._lines) > MOST_LINES:
            self._lines.pop(next(iter(self._lines)))


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Join consecutive numbers into half-open runs."""
    runs: list[tuple[int, int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n:
            runs[-1] = (runs[-1][0], n + 1)
        else:
            runs.append((n, n + 1))
    return runs
