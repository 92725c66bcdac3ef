"""Where a conversion to N5 or JNRRD is written until it is complete.

A local target `scan.n5` is written to `.scan.n5.part/scan.n5`, with a journal of the finished parts
beside it, and renamed at the end. A remote one is written in place, attributes or header last.
"""

import contextlib
import hashlib
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from anychunk.errors import FormatError, SourceError, TargetExistsError
from anychunk.io import sink
from anychunk.io.file import stat_pin
from anychunk.io.lock import exclusive
from anychunk.io.opening import read_object
from anychunk.io.source import Storage, is_remote, local_path
from anychunk.io.system import replace
from anychunk.model.pin import Pin

# The journal of a conversion: one line per finished task, with the checksum of what it wrote.
#
# The first line is the fingerprint of the plan and of the local files that it reads. A local
# journal is appended to; a remote object cannot be, so it is rewritten from time to time.


NAME = ".anychunk/journal"
REWRITE_S = 5.0
"""Seconds between two writes of a remote journal."""


def with_files(fingerprint: str, pins: Mapping[str, Pin]) -> str:
    """Return the fingerprint of a plan and of the local files that it reads now.

    A file that took the place of another may have its size and modification time, which are all
    that the plan knows of it.
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


UNFINISHED = "an unfinished conversion of another or a changed source, or with other options"


class Progress:
    """The parts of a target that are complete; any thread may add to it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self.done = journal.done()
        """The checksums of parts that an earlier attempt has written."""
        self.skipped_bytes = 0
        """The decoded size of those that were found intact."""

    def of(self, image: str) -> "ImageProgress":
        """Return the checkpoints of one image, for the writer of its format."""
        return ImageProgress(self, f"{quote(image)}:")

    def add(self, name: str, checksum: int) -> None:
        """Record a part that was written."""
        with self._lock:
            self._journal.add(name, checksum)

    def skip(self, nbytes: int) -> None:
        """Count a part that an earlier attempt has written."""
        with self._lock:
            self.skipped_bytes += nbytes


class ImageProgress:
    """The parts of one image: `Checkpoints` for a format's writer."""

    def __init__(self, whole: Progress, prefix: str) -> None:
        self._whole, self._prefix = whole, prefix
        self.done = {
            name.removeprefix(prefix): checksum
            for name, checksum in whole.done.items()
            if name.startswith(prefix)
        }

    def add(self, name: str, checksum: int) -> None:
        """Record a part that was written."""
        self._whole.add(f"{self._prefix}{name}", checksum)

    def skip(self, nbytes: int) -> None:
        """Count a part that an earlier attempt has written."""
        self._whole.skip(nbytes)


@dataclass(frozen=True)
class Stage:
    """A target that is being written."""

    url: str
    """Where it is written."""
    progress: Progress
    journal: Journal
    """What `progress` is recorded in."""


@contextmanager
def staged(
    url: str,
    fingerprint: str,
    *,
    top: str,
    is_in_place: bool,
    overwrite: bool,
    storage: Storage | None,
) -> Iterator[Stage]:
    """Yield where to write a target; make it visible when the block succeeds.

    Parameters:
        url: The target.
        fingerprint: Of the source and all options; only the same conversion is resumed.
        top: The container that the target is in, or the target itself.
        is_in_place: Whether the files are written under their final names, because other files
            refer to them.
        overwrite: Whether an existing target is replaced.
        storage: Of a remote target.

    Raises:
        TargetExistsError: The target exists, or an unfinished conversion of something else.
        FormatError: It is being written by another process.
    """
    if is_remote(url):
        journal = start_journal(url, fingerprint, overwrite=overwrite, storage=storage)
        try:
            yield Stage(url, Progress(journal), journal)
        finally:
            journal.flush()
        journal.remove()
        return
    path, container = Path(local_path(url)), Path(local_path(top))
    inside = "" if path == container else path.relative_to(container).as_posix()
    name = f"{container.name}.{quote(inside, safe='')}" if inside else container.name
    folder = container.with_name(f".{name}.part")
    with locked(folder, url):
        sink.check_free(str(path), overwrite=overwrite)
        if folder.is_symlink():
            raise FormatError(f"{folder}: is a symbolic link, expected a folder; remove it")
        journal = start_journal(str(folder), fingerprint, overwrite=overwrite, storage=None)
        root = folder / container.name
        target = root / inside if inside else root
        target.parent.mkdir(parents=True, exist_ok=True)
        yield Stage(url if is_in_place else str(target), Progress(journal), journal)
        try:
            if not is_in_place:
                publish(root, container, target, path)
            shutil.rmtree(folder)
        except OSError as e:
            raise SourceError(f"{path}: {e.strerror or e}") from e


@contextmanager
def locked(folder: Path, url: str) -> Iterator[None]:
    """Hold the lock of the folder that a conversion is written to, which need not exist yet."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise SourceError(f"{folder.parent}: {e.strerror or e}") from e
    refusal = f"{url}: another conversion is writing to it; wait for it, or choose another target"
    with exclusive(f"{folder}.lock", refusal):
        yield


def start_journal(
    place: str, fingerprint: str, *, overwrite: bool, storage: Storage | None
) -> Journal:
    """Open the journal of this conversion, or begin a new one."""
    journal = Journal(place, fingerprint, storage=storage)
    if journal.is_there and not journal.is_ours:
        if not overwrite:
            raise TargetExistsError(place, UNFINISHED)
        if not is_remote(place):
            shutil.rmtree(place)
    if overwrite and is_remote(place) and not journal.is_ours:
        # blocks of an old dataset outside the new one would remain
        sink.remove_all(place, storage=storage)
    journal.start()
    return journal


def publish(root: Path, container: Path, target: Path, path: Path) -> None:
    """Move a complete target to its name, and the metadata of groups above it that are new."""
    steps = path.relative_to(container).parts
    for depth in range(len(steps)):
        staged_group, group = root.joinpath(*steps[:depth]), container.joinpath(*steps[:depth])
        if not group.exists():
            replace(str(staged_group), str(group))  # takes the target along
            return
        for file in staged_group.iterdir():
            if file.is_file() and not (group / file.name).exists():
                replace(str(file), str(group / file.name))
    old = root.parent / "old"
    if path.exists(follow_symlinks=False):
        replace(str(path), str(old))  # removed with the folder of the conversion
    replace(str(target), str(path))
