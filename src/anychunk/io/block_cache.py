"""A remote source behind a cache of aligned blocks."""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from anychunk import limits
from anychunk.io.objects import ObjectSource
from anychunk.io.source import Bytes1D, Source, check_range
from anychunk.io.threads import run_all
from anychunk.model.pin import Pin

# Guess where a parser will read next, from where it has read so far.
#
# Parsers follow chains: every directory of a TIFF file, or header of a tile-part of JPEG 2000, says
# where the next one is. One request after the other would take the latency of as many requests as
# there are links. Links are often about equally far apart, so the next ones can be asked for before
# their places are known:
#
# - links that lie close together are read with what is between them, in few long requests, by the
#   same rule by which ranges of chunks are coalesced (`limits.coalesce_gap`);
# - links that lie far apart at equal distances are read in short requests, many at a time;
# - links that lie far apart at other distances are read one by one, in short requests.


SHORT = 8 * limits.KIB
"""The length of a request for a link that lies far from the others."""
FIRST, GROWTH = 32, 8
"""How many links the first long request covers, and how much longer each following one is."""
GUESSES = 4
"""How many links are guessed at first; each time that the guesses were right, four times more."""


@dataclass
class Ahead:
    """What to read now, from the place that the parser wants."""

    length: int = 0
    """Of one long request; 0: as usual."""
    places: tuple[int, ...] = ()
    """Of several short requests, the first at the wanted place."""


@dataclass
class Chain:
    """The last places that had to be requested, and how well the next ones were guessed."""

    places: list[int] = field(default_factory=lambda: [0])
    """The head of the object is always read."""
    step: int = 0
    """The distance between links, while they are read in long requests."""
    end: int = 0
    """Where the last long request ended, or the last guess was; 0: there was none."""
    length: int = 0
    guesses: int = GUESSES

    def after(self, place: int) -> Ahead:
        """Return what to read if `place` has to be requested now."""
        if self.length and self.end <= place <= self.end + 2 * self.step:
            return self._long(place, self.length * GROWTH)
        self.places = [*self.places[-2:], place]
        steps = [b - a for a, b in zip(self.places, self.places[1:], strict=False)]
        gap = limits.get().coalesce_gap
        if len(steps) == 2 and min(steps) > gap and steps[0] == steps[1]:
            return self._guess(place, steps[1])
        self.length, self.end, self.guesses = 0, 0, GUESSES
        if len(steps) == 2 and min(steps) > gap:
            return Ahead(places=(place,))
        if len(steps) == 2 and 0 < max(steps) <= min(gap, 2 * min(steps)):
            self.step = max(steps)
            return self._long(place, FIRST * self.step)
        return Ahead()

    def _long(self, place: int, length: int) -> Ahead:
        self.length = min(length, limits.get().coalesce_cap)
        self.end = place + self.length
        return Ahead(length=self.length)

    def _guess(self, place: int, step: int) -> Ahead:
        if self.end:
            self.guesses = 4 * self.guesses if place == self.end + step else GUESSES
        places = tuple(place + n * step for n in range(self.guesses))
        self.end = places[-1]
        self.places = [self.end - step, self.end]
        return Ahead(places=places)


def buffered(source: Source) -> Source:
    """Return the source that a parser should read from: with a block cache if it is remote."""
    return source if source.is_local else Blocks(source)


LINE = limits.KIB
"""When a block is evicted, lines of about this size that small reads requested are kept."""
MOST_LINES = 1 << 16
FEW = 4
"""Reads of at most so many lines are small."""


class Blocks:
    """A source behind a bounded cache of aligned blocks, for parsers that read small pieces.

    Parsers visit directories that are far apart more than once: first to find each, then to read
    it. So the lines that they requested are kept longer than the blocks around them. Where small
    reads follow a chain through the object, the next ones are read ahead (`Chain`).
    """

    is_local = False

    def __init__(self, source: Source, *, block: int = 64 * limits.KIB, most: int = 1024) -> None:
        self._source, self._block, self._most = source, block, most
        self._line = math.gcd(block, LINE)
        self._cache: dict[int, Bytes1D] = {}
        self._lines: dict[int, Bytes1D] = {}
        self._wanted: set[int] = set()
        self._chain = Chain()
        self.url = source.url
        self.storage, self.roots = source.storage, source.roots

    @property
    def token(self) -> Hashable:
        return self._source.token

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
        if length > self._most * self._block // 4:
            return self._source.read(offset, length)  # a large table, which nobody reads twice
        first, last = offset // self._block, -(-(offset + length) // self._block)
        missing = [i for i in range(first, last) if i not in self._cache]
        lines = range(offset // self._line, -(-(offset + length) // self._line))
        if missing and self._has_lines(lines):
            return self._from_lines(lines, offset, length)
        if len(lines) <= FEW:
            self._wanted.update(lines)
            if missing:
                missing += self._ahead(offset, last)
                if self._has_lines(lines):
                    return self._from_lines(lines, offset, length)
        for start, stop in _runs(missing):
            begin = start * self._block
            end = min(stop * self._block, self.size())
            data = self._fetch(begin, end)
            for i in range(start, stop):
                self._cache[i] = data[(i - start) * self._block : (i - start + 1) * self._block]
        blocks = [self._cache[i] for i in range(first, last)]
        joined = blocks[0] if len(blocks) == 1 else np.concatenate([np.empty(0, np.uint8), *blocks])
        while len(self._cache) > self._most:
            self._forget(next(iter(self._cache)))
        return joined[offset - first * self._block :][:length]

    def _ahead(self, offset: int, last: int) -> list[int]:
        """Read lines ahead of a small read, or return further blocks to read with it.

        Parameters:
            offset: Where the read begins.
            last: The block after its last one.
        """
        ahead = self._chain.after(offset)
        if ahead.places:
            self._read_lines(ahead.places)
        # no more than stays in the cache until it is used
        end = min(offset + min(ahead.length, self._most * self._block // 2), self.size())
        return [i for i in range(last, -(-end // self._block)) if i not in self._cache]

    def _fetch(self, begin: int, end: int) -> Bytes1D:
        """Read from the source, without what its first request has already fetched."""
        known = self._source.head_length if isinstance(self._source, ObjectSource) else 0
        if not begin < known < end:
            return self._source.read(begin, end - begin)
        parts = [self._source.read(begin, known - begin), self._source.read(known, end - known)]
        return np.concatenate(parts)

    def _has_lines(self, lines: range) -> bool:
        return bool(lines) and all(line in self._lines for line in lines)

    def _from_lines(self, lines: range, offset: int, length: int) -> Bytes1D:
        kept = np.concatenate([self._lines[line] for line in lines])
        return kept[offset - lines.start * self._line :][:length]

    def _read_lines(self, places: Sequence[int]) -> None:
        """Read the lines from each place on, in short requests, several at a time."""
        size, line = self.size(), self._line
        starts = sorted({place // line for place in places if 0 <= place < size})
        ends = {start: min((start + SHORT // line) * line, size) for start in starts}
        threads = min(len(starts), limits.get().concurrency)

        def read(start: int) -> None:
            data = self._source.read(start * line, ends[start] - start * line)
            for number in range(start, -(-ends[start] // line)):
                begin = (number - start) * line
                self._lines[number] = data[begin : begin + line]

        run_all(read, starts, threads=threads, name="anychunk-ahead")
        self._forget_lines()

    def _forget(self, number: int) -> None:
        """Evict a block, except for the lines that small reads requested."""
        block, size = self._cache.pop(number), self._line
        first = number * self._block // size
        for line in self._wanted.intersection(range(first, first + self._block // size)):
            begin = (line - first) * size
            self._lines[line] = block[begin : begin + size].copy()
            self._wanted.discard(line)
        self._forget_lines()

    def _forget_lines(self) -> None:
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
