"""The bounded LRU cache that all parts of the library use."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from anychunk.io.forking import in_child


class Cache[V]:
    """Values by key, within a bound of bytes; least recently used entries are evicted first.

    Thread-safe. A pickled copy is empty.
    """

    def __init__(
        self,
        most_bytes: int | Callable[[], int],
        *,
        largest: int | Callable[[], int] | None = None,
    ) -> None:
        """Create an empty cache.

        Parameters:
            most_bytes: The bound, or a function that returns the current bound.
            largest: Larger values are not cached; by default, those above the bound.
        """
        self._most_bytes, self._largest = most_bytes, largest
        self.clear()
        in_child(self.clear)

    def __reduce__(self) -> tuple[type["Cache[V]"], tuple[object, ...], dict[str, object]]:
        state: dict[str, object] = {"_largest": self._largest}
        return type(self), (self._most_bytes,), state

    def clear(self) -> None:
        """Remove all entries and replace the lock, which a forked child may inherit locked."""
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self.nbytes = 0

    @property
    def most_bytes(self) -> int:
        """The current bound."""
        return self._most_bytes() if callable(self._most_bytes) else self._most_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def get(self, key: Hashable) -> V | None:
        """Return the value under `key`, or None."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: V, nbytes: int) -> None:
        """Keep a value of `nbytes`, unless it is too large to be kept."""
        most = self.most_bytes
        largest = self._largest() if callable(self._largest) else self._largest
        with self._lock:
            if key in self._entries:
                self.nbytes -= self._entries.pop(key)[1]
            if nbytes <= (most if largest is None else largest):
                self._entries[key] = (value, nbytes)
                self.nbytes += nbytes
            self._evict(most)

    def shrink(self, most: int) -> None:
        """Evict entries until the others have at most `most` bytes."""
        with self._lock:
            self._evict(most)

    def _evict(self, most: int) -> None:
        while self.nbytes > most:
            self.nbytes -= self._entries.popitem(last=False)[1][1]
