"""What a writer remembers, so that an interrupted conversion can be resumed."""

from collections.abc import Mapping
from typing import Protocol


class Checkpoints(Protocol):
    """The parts of a target that are complete. A writer that takes `checkpoints` is resumable.

    A part may be damaged after it was recorded, so a writer skips it only if the stored bytes still
    have the recorded checksum. Methods may be called from any thread.
    """

    @property
    def done(self) -> Mapping[str, int]:
        """The CRC-32 of each part that an earlier attempt completed, by name."""
        ...

    def add(self, name: str, checksum: int) -> None:
        """Record a part that was written."""
        ...

    def skip(self, nbytes: int) -> None:
        """Count a part that need not be written, with its decoded size."""
        ...
