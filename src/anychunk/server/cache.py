"""Values kept within a bound of bytes: what was used last stays."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable


class Bounded[V]:
    """A cache that drops what was used longest ago; safe for threads."""

    def __init__(self, most_bytes: int, *, dropped: Callable[[V], None] | None = None) -> None:
        self.most_bytes = most_bytes
        self.nbytes = 0
        self._dropped = dropped
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: V, nbytes: int) -> None:
        """Keep a value, unless it alone would take most of the room."""
        if nbytes > self.most_bytes // 2:
            return
        with self._lock:
            gone = [self._kept.pop(key)] if key in self._kept else []
            self._kept[key] = (value, nbytes)
            self.nbytes += nbytes - sum(size for _, size in gone)
            while self.nbytes > self.most_bytes:
                _, last = self._kept.popitem(last=False)
                self.nbytes -= last[1]
                gone.append(last)
        if self._dropped is not None:
            for old, _ in gone:
                self._dropped(old)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.nbytes = 0
