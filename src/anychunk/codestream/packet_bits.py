"""Bits of packet headers, and the tag trees that are read from them: ITU-T T.800 B.10."""

from functools import lru_cache

from anychunk.errors import TruncatedError


@lru_cache(maxsize=256)
def tree_paths(width: int, height: int) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Give how many nodes a tag tree has, and the nodes from the root to each leaf."""
    paths = [[leaf] for leaf in range(width * height)]
    begin, end = 0, width * height
    while width * height > 1:
        above = (width + 1) // 2
        for path in paths:
            row, column = divmod(path[-1] - begin, width)
            path.append(end + row // 2 * above + column // 2)
        width, height = above, (height + 1) // 2
        begin, end = end, end + width * height
    return end, tuple(tuple(reversed(path)) for path in paths)


class TagTree:
    """T.800 B.10.2."""

    __slots__ = ("_low", "_paths", "_value")

    def __init__(self, width: int, height: int) -> None:
        count, self._paths = tree_paths(width, height)
        self._low, self._value = [0] * count, [1 << 30] * count

    def reaches(self, leaf: int, threshold: int, bits: "Bits") -> bool:
        """Whether the leaf's value is below `threshold`, reading as few bits as that takes."""
        low, lows, values = 0, self._low, self._value
        value = 0
        for node in self._paths[leaf]:
            low = max(low, lows[node])
            value = values[node]
            while low < threshold and low < value:
                if bits.read(1):
                    value = values[node] = low
                else:
                    low += 1
            lows[node] = low
        return value < threshold


class Bits:
    """Bits of packet headers: after a byte of 0xFF the next has seven (T.800 B.10.1)."""

    __slots__ = ("_buffer", "_count", "_data", "_end", "_next", "position")

    def __init__(self, data: memoryview | bytes, position: int) -> None:
        self._data, self._end = data, len(data)
        self.position = position
        self._next, self._buffer, self._count = position, 0, 0

    def read(self, count: int) -> int:
        while self._count < count:
            self._load()
        self._count -= count
        return self._buffer >> self._count & ((1 << count) - 1)

    def _load(self) -> None:
        place = self._next
        if place >= self._end:
            raise TruncatedError("the bytes end inside a packet header")
        width = 7 if place > self.position and self._data[place - 1] == 0xFF else 8
        self._buffer = (self._buffer & 0xFFFFFFFFFFFF) << width | self._data[place] & (
            1 << width
        ) - 1
        self._count += width
        self._next = place + 1

    def finish(self) -> int:
        """Give where the header ends: at a byte, after the one that follows a last 0xFF."""
        end = self._next
        if end > self.position and self._data[end - 1] == 0xFF:
            end += 1
        return end
