"""The version of a source that was indexed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

TOUCHED = (
    "its inode or its time of status change is another: it was replaced or rewritten and its "
    "times restored, or only its permissions, name or number of hard links changed"
)
"""How a file of the same size and modification time may differ from the one that was opened."""


@dataclass(frozen=True, kw_only=True)
class Pin:
    """Size and, if known, etag and modification time of a source when it was indexed."""

    size: int
    etag: str | None = None
    mtime_ns: int | None = None
    signed: Mapping[str, str] | None = field(default=None, compare=False, repr=False)
    """The url with its secrets, by the url, of a source that was opened by a signed url."""
    identity: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """What tells a local file from another of the same size and time; empty if unknown.

    Neither saved nor pickled: each copy of the file, and each machine that mounts it, has another.
    """

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"identity": ()}

    def __deepcopy__(self, _: Any) -> Self:
        return self  # in the same process, where the identity holds

    def differs(self, now: "Pin") -> str | None:
        """Return what changed between this pin and `now`, or None.

        Values that only one of the two has are not compared. Modification times are compared only
        without etags, because object stores update the time of objects that did not change.
        """
        if self.size != now.size:
            return f"size {now.size}, was {self.size} when indexed"
        if self.etag is not None and now.etag is not None:
            return f"etag {now.etag}, was {self.etag}" if self.etag != now.etag else None
        if None not in (self.mtime_ns, now.mtime_ns) and self.mtime_ns != now.mtime_ns:
            return f"modified at {now.mtime_ns} ns, was {self.mtime_ns} ns when indexed"
        is_touched = self.identity and now.identity and self.identity != now.identity
        return TOUCHED if is_touched else None
