"""Parts of a local file that were read before, as a source."""

from collections.abc import Mapping, Sequence

import numpy as np

from anychunk.io.file import FileSource
from anychunk.io.source import Bytes1D, Storage, check_range, report_change
from anychunk.model.pin import Pin


class KeptSource:
    """A local file of which some parts are in memory; only others are read, if it is unchanged.

    For structure that is parsed in two steps: the second finds what the first one found, whatever
    happened to the file in between.
    """

    is_local = True
    storage: Storage | None = None

    def __init__(
        self, url: str, pin: Pin, parts: Mapping[int, bytes], *, roots: Sequence[str] = ()
    ) -> None:
        """`parts` are bytes by their offset in the file, of the version that `pin` describes."""
        self.url, self.roots = url, roots
        self.token = object()
        self._pin = pin
        self._parts = parts
        self._file: FileSource | None = None

    def pin(self) -> Pin:
        return self._pin

    refresh = pin

    def size(self) -> int:
        return self._pin.size

    def read(self, offset: int, length: int) -> Bytes1D:
        check_range(self, offset, length)
        for start, part in self._parts.items():
            if start <= offset and offset + length <= start + len(part):
                return np.frombuffer(part, np.uint8, length, offset - start)
        if self._file is None:
            file = FileSource(self.url, roots=self.roots)
            change = self._pin.differs(file.pin())
            if change:
                report_change(self.url, change, "error")
            self._file = file
        return self._file.read(offset, length)
