"""The journal of a conversion: one line per finished task, with the checksum of what it wrote.

The first line is the fingerprint of the plan and of the local files that it reads. A local journal
is appended to; a remote object cannot be, so it is rewritten from time to time.
"""

import contextlib
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path

from anychunk.io import sink
from anychunk.io.file import stat_pin
from anychunk.io.opening import read_object
from anychunk.io.source import Storage
from anychunk.io.url import is_remote, local_path
from anychunk.model.pin import Pin

NAME = ".anychunk/journal"
REWRITE_S = 5.0
"""Seconds between two writes of a remote journal."""


def with_files(fingerprint: str, pins: Mapping[str, Pin]) -> str:
    """Return the fingerprint of a plan and of the local files that it reads now.

    A file that took the place of another may have its size and modification time. The fingerprint
    of the plan itself does not tell them apart: a finished target contains it, and may be moved.
    """
    files = []
    for url, pin in sorted(pins.items()):
        if not is_remote(url):
            now = pin if pin.identity else stat_pin(local_path(url))
            files.append((url, now and now.identity))
    return f"{fingerprint}-{hashlib.sha256(repr(files).encode()).hexdigest()}"


class Journal:
    """Records which tasks are done."""

    def __init__(self, target: str, fingerprint: str, *, storage: Storage | None = None) -> None:
        """Read the journal below `target`, if there is one."""
        self.url = f"{target}/{NAME}"
        self._root = target
        self._storage = storage
        self._lines: list[str] = []
        self._written_s = 0.0
        found = read_object(self.url, storage=storage, roots=(local_path(target),))
        self.lines = [] if found is None else found.tobytes().decode("utf-8", "replace").split("\n")
        self.is_there = bool(self.lines)
        self.is_ours = self.lines[:1] == [fingerprint]
        """Whether it belongs to this plan."""
        self.fingerprint = fingerprint

    def done(self) -> dict[str, int]:
        """Return the checksums of finished tasks by name; incomplete lines are ignored."""
        found: dict[str, int] = {}
        if not self.is_ours:
            return found
        for line in self.lines[1:-1]:
            name, _, checksum = line.partition(" ")
            with contextlib.suppress(ValueError):
                found[name] = int(checksum, 16)
        return found

    def start(self) -> None:
        """Rewrite the journal with all tasks known to be done, dropping an incomplete last line."""
        self._lines = self.lines[:-1] if self.is_ours else [self.fingerprint]
        self._put()

    def add(self, name: str, checksum: int) -> None:
        """Record a finished task."""
        line = f"{name} {checksum:08x}"
        if not is_remote(self.url):
            with Path(local_path(self.url)).open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
            return
        self._lines.append(line)
        if time.monotonic() - self._written_s > REWRITE_S:
            self._put()

    def flush(self) -> None:
        """Write what is still in memory."""
        if is_remote(self.url):
            self._put()

    def _put(self) -> None:
        text = "".join(f"{line}\n" for line in self._lines)
        sink.put(self.url, text.encode(), storage=self._storage, root=self._root)
        self._written_s = time.monotonic()

    def remove(self) -> None:
        """Delete the journal and its folder."""
        sink.remove(self.url, storage=self._storage)
        if not is_remote(self.url):
            Path(local_path(self.url)).parent.rmdir()
