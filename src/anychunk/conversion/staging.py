"""Where a conversion to N5 or JNRRD is written until it is complete.

A local target `scan.n5` is written to `.scan.n5.part/scan.n5`, with a journal of the finished parts
beside it, and renamed at the end. A remote one is written in place, attributes or header last.
"""

import contextlib
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import quote

from anychunk.conversion import zarr_v2
from anychunk.errors import FormatError, SourceError, TargetExistsError
from anychunk.io import sink, system
from anychunk.io.file import stat_pin
from anychunk.io.opening import read_object
from anychunk.io.source import Storage, is_remote, local_path
from anychunk.io.system import replace
from anychunk.metadata.hierarchy import consolidated
from anychunk.model.grid import chunk_coords, chunk_key
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, walk
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


# Locks on files, so that two processes do not write to one place at the same time.

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:  # only on Windows
    msvcrt = None  # type: ignore[assignment]

OPEN = system.UPDATE | getattr(os, "O_CLOEXEC", 0)


@contextmanager
def exclusive(path: str, refusal: str) -> Iterator[None]:
    """Hold the lock file `path` while the block runs, and remove it afterwards.

    The operating system releases the lock when the process ends, however it ends. A lock file that
    a killed process left behind does not matter.

    Raises:
        FormatError: With the text `refusal`, if another process holds the lock.
        SourceError: The lock file cannot be created.
    """
    try:
        handle = _acquire(path)
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror or e}") from e
    if handle is None:
        raise FormatError(refusal)
    try:
        yield
    finally:
        # removed before it is released: nobody can lock a file that is about to disappear unnoticed
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - Windows keeps open files; `_acquire` accepts that
        os.close(handle)
        if system.IS_WINDOWS:
            # an open file stays; if another process has opened it since, it is not removed here
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108


def _acquire(path: str) -> int | None:
    """Return the handle of the locked file, or None if another process holds it."""
    while True:
        handle = os.open(path, OPEN, 0o666)
        if not _try_lock(handle):
            os.close(handle)
            return None
        if _is_current(handle, path):
            return handle
        os.close(handle)  # the previous holder removed the file after we opened it


def _try_lock(handle: int) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif msvcrt is not None:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        # neither: a system without locks. Files still appear only when they are complete.
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_current(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))  # noqa: PTH116
    except FileNotFoundError:
        return False


# Where a conversion to Zarr is written, and when it becomes visible.


class Target:
    """A Zarr hierarchy that appears only when it is complete.

    A local one is written to a folder beside it and renamed at the end. A remote one is written in
    place, metadata last: without the root's `zarr.json`, or `.zgroup`, nothing opens.
    """

    def __init__(self, url: str, storage: Storage | None, *, zarr_format: int = 3) -> None:
        self.url, self.storage, self.zarr_format = url, storage, zarr_format
        self.is_local = not is_remote(url)
        path = Path(local_path(url))
        self.part = str(path.with_name(f".{path.name}.part")) if self.is_local else url
        """Where it is written."""

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from writing to the same local target."""
        return locked(Path(self.part), self.url) if self.is_local else nullcontext()

    def exists(self) -> bool:
        """Whether anything is under the target's name."""
        if self.is_local:
            return Path(local_path(self.url)).exists(follow_symlinks=False)
        return self._has("zarr.json") or self._has(".zgroup")

    def _has(self, name: str) -> bool:
        return read_object(f"{self.url}/{name}", storage=self.storage) is not None

    def prepare(self, fingerprint: str, *, overwrite: bool) -> Journal:
        """Start a conversion, or resume an unfinished one; return its journal.

        Raises `TargetExistsError` if something else is in the way and may not be overwritten.
        """
        if self.is_local and Path(self.part).is_symlink():
            raise FormatError(f"{self.part}: is a symbolic link, expected a folder; remove it")
        if self.exists() and not overwrite:
            raise TargetExistsError(self.url)
        journal = Journal(self.part, fingerprint, storage=self.storage)
        if journal.is_there and not journal.is_ours:
            if not overwrite:
                raise TargetExistsError(self.part, UNFINISHED)
            if self.is_local:
                shutil.rmtree(self.part)
        if overwrite and not self.is_local and not journal.is_ours:
            # chunks of fill values are not written: an old one in their place would remain visible
            sink.remove_all(self.url, storage=self.storage)
        journal.start()
        return journal

    def finish(self, journal: Journal, root: GroupIndex, *, overwrite: bool) -> None:
        """Write all metadata and coordinates, the root's last, and make the target visible.

        Parameters:
            journal: Of what was written, which is deleted.
            root: The hierarchy.
            overwrite: Whether an existing target is replaced.
        """
        nodes = list(reversed(list(walk(root))))
        for path, node in nodes:
            if isinstance(node, ArrayIndex):
                self._put_inline(path, node)
        if self.zarr_format == 2:
            for key, content in zarr_v2.documents(root):
                self._put(key, content)
        else:
            for path, node in nodes:
                is_array = isinstance(node, ArrayIndex)
                document = node.metadata() if is_array else consolidated(cast("GroupIndex", node))
                self._put(f"{path}/zarr.json" if path else "zarr.json", document)
        journal.remove()
        if self.is_local:
            self._rename(overwrite=overwrite)

    def _put_inline(self, path: str, array: ArrayIndex) -> None:
        """Write the chunks of a coordinate, which are in the index itself."""
        chunks = array.chunks
        if not isinstance(chunks, ByteRanges):
            return
        for number, length in enumerate(chunks.lengths.reshape(-1).tolist()):
            if length:
                start = int(chunks.offsets.reshape(-1)[number])
                coords = chunk_coords(number, array.grid)
                key = (chunk_key if self.zarr_format == 3 else zarr_v2.chunk_key)(path, coords)
                data = chunks.inline[start : start + length]
                sink.put(f"{self.part}/{key}", data, storage=self.storage, root=self.part)

    def _put(self, key: str, metadata: Json) -> None:
        data = json.dumps(metadata, indent=2).encode()
        sink.put(f"{self.part}/{key}", data, storage=self.storage, root=self.part)

    def _rename(self, *, overwrite: bool) -> None:
        path, old = Path(local_path(self.url)), Path(f"{self.part}.old")
        try:
            if overwrite and path.exists(follow_symlinks=False):
                replace(str(path), str(old))
            replace(self.part, str(path))
        except OSError as e:
            raise SourceError(f"{path}: {e.strerror or e}") from e
        if old.exists(follow_symlinks=False):
            is_link = old.is_symlink()
            shutil.rmtree(old) if old.is_dir() and not is_link else old.unlink()
