"""What of a conversion is done: one line a task, with the checksum of what it wrote.

A local journal grows line by line; a remote one, which cannot, is written anew from time to time.
"""

import contextlib
import time
from pathlib import Path

from anychunk.io import Storage, is_remote, local_path, read_object, sink

NAME = ".anychunk/journal"
PAUSE_S = 5.0


class Journal:
    def __init__(self, target: str, fingerprint: str, *, storage: Storage | None = None) -> None:
        self.url = f"{target}/{NAME}"
        self._root = target
        self._storage = storage
        self._lines: list[str] = []
        self._written_s = 0.0
        found = read_object(self.url, storage=storage, roots=(local_path(target),))
        self.lines = [] if found is None else found.tobytes().decode("utf-8", "replace").split("\n")
        self.is_there = bool(self.lines)
        self.is_ours = self.lines[:1] == [fingerprint]
        self.fingerprint = fingerprint

    def done(self) -> dict[str, int]:
        """Give the checksums of tasks by name. A line that broke off is none."""
        found: dict[str, int] = {}
        if not self.is_ours:
            return found
        for line in self.lines[1:-1]:
            name, _, checksum = line.partition(" ")
            with contextlib.suppress(ValueError):
                found[name] = int(checksum, 16)
        return found

    def start(self) -> None:
        self._lines = self.lines[:-1] if self.is_ours else [self.fingerprint]
        self._put()

    def add(self, name: str, checksum: int) -> None:
        line = f"{name} {checksum:08x}"
        if not is_remote(self.url):
            with Path(local_path(self.url)).open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
            return
        self._lines.append(line)
        if time.monotonic() - self._written_s > PAUSE_S:
            self._put()

    def flush(self) -> None:
        if is_remote(self.url):
            self._put()

    def _put(self) -> None:
        text = "".join(f"{line}\n" for line in self._lines)
        sink.put(self.url, text.encode(), storage=self._storage, root=self._root)
        self._written_s = time.monotonic()

    def remove(self) -> None:
        sink.remove(self.url, storage=self._storage)
        if not is_remote(self.url):
            Path(local_path(self.url)).parent.rmdir()
