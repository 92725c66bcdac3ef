"""Which version of a source was indexed."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Pin:
    """Size and, where the source tells them, etag and time of change at index time."""

    size: int
    etag: str | None = None
    mtime_ns: int | None = None

    def differs(self, now: "Pin") -> str | None:
        """Say what changed between this pin and `now`; None where nothing did.

        What only one side knows is not compared. An etag decides alone: object stores touch the
        time of an object without changing it.
        """
        if self.size != now.size:
            return f"size {now.size}, was {self.size} when indexed"
        if self.etag is not None and now.etag is not None:
            return f"etag {now.etag}, was {self.etag}" if self.etag != now.etag else None
        if None not in (self.mtime_ns, now.mtime_ns) and self.mtime_ns != now.mtime_ns:
            return f"changed at {now.mtime_ns} ns, was at {self.mtime_ns} ns when indexed"
        return None
