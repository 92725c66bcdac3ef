"""Bit reader and tag trees of JPEG 2000 packet headers: ITU-T T.800 B.10.1 and B.10.2.

This is the inner loop of the packet walk, in plain Python: hence slots, local names and few calls.
"""

from functools import lru_cache

from anychunk.errors import TruncatedError


@lru_cache(maxsize=256)
def tree_paths(width: int, height: int) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Return the number of nodes of a tag tree, and for each leaf the nodes from the root to it.

    Leaves are the code-blocks of a precinct, in raster order. Each level above has one node for up
    to 2 x 2 nodes of the level below. Nodes are numbered level by level, leaves first, root last.
    """
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
    """A tag tree that is decoded bit by bit (T.800 B.10.2).

    It codes one integer per leaf. A node holds the minimum of the nodes below it, so information
    about a node is shared by all of its leaves. A 0 bit means "larger than the lower bound known so
    far", a 1 bit "equal to it". The decoder never asks for the value itself, only whether it is
    below a threshold, and reads just enough bits to decide that. The next query, in a later packet,
    resumes from there. So the state per node is a lower bound, and whether that is the value.
    """

    __slots__ = ("_low", "_paths", "_value")

    def __init__(self, width: int, height: int) -> None:
        count, self._paths = tree_paths(width, height)
        # 2**30 means "not known yet": it is above every layer number and bit-plane count
        self._low, self._value = [0] * count, [1 << 30] * count

    def reaches(self, leaf: int, threshold: int, bits: "Bits") -> bool:
        """Return whether the leaf's value is below `threshold`, reading as few bits as possible."""
        low, lows, values = 0, self._low, self._value
        value = 0
        for node in self._paths[leaf]:
            # a child is at least as large as its parent
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
    """Reads bits of a packet header, most significant first (T.800 B.10.1).

    After a byte of 0xFF, the next byte has a stuffed 0 as its first bit, which is skipped. That way
    no header contains a marker.
    """

    __slots__ = ("_buffer", "_count", "_data", "_end", "_next", "position")

    def __init__(self, data: memoryview | bytes, position: int) -> None:
        self._data, self._end = data, len(data)
        self.position = position
        self._next, self._buffer, self._count = position, 0, 0

    def read(self, count: int) -> int:
        """Return the next `count` bits as an integer."""
        while self._count < count:
            self._load()
        self._count -= count
        return self._buffer >> self._count & ((1 << count) - 1)

    def _load(self) -> None:
        place = self._next
        if place >= self._end:
            raise TruncatedError(f"the packet header is truncated after {self._end} bytes")
        # the byte before the header belongs to the previous packet: it does not cause stuffing
        width = 7 if place > self.position and self._data[place - 1] == 0xFF else 8
        # keep 48 bits, more than any valid length has, so that the integer stays small
        self._buffer = (self._buffer & 0xFFFFFFFFFFFF) << width | self._data[place] & (
            1 << width
        ) - 1
        self._count += width
        self._next = place + 1

    def finish(self) -> int:
        """Return the end of the header: a byte boundary; one stuffed byte follows a last 0xFF."""
        end = self._next
        if end > self.position and self._data[end - 1] == 0xFF:
            end += 1
        return end
