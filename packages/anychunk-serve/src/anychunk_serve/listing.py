"""Find the files that the arguments of the command name: files, folders, prefixes, lists of urls.

A scan takes one pass over the folders, and reads the head only of files that are new or changed
since the last scan.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from anychunk import formats, references
from anychunk.errors import AnychunkError, FormatError, MissingFileError, UnsupportedError
from anychunk.io.inside import is_below, open_inside, stat_file
from anychunk.io.opening import Folder
from anychunk.io.source import (
    Storage,
    as_url,
    below,
    is_remote,
    local_path,
    signed_of,
    without_secrets,
)
from anychunk.io.system import is_link
from anychunk.model.pin import Pin

MOST_FILES = 20_000
"""Files that are served."""
MOST_EXAMINED = 100_000
"""Files of folders that are examined."""
LIST_BYTES = 16 << 20
"""Size of the largest list of urls."""
HEADER = "attributes.json"
"""What N5 stores the metadata of a container or dataset in."""
ZARR = ("zarr.json", ".zgroup", ".zarray")
"""Metadata of Zarr stores, whose chunks must not be mistaken for files."""
FOLDERS = (".n5", ".zarr", *references.SUFFIXES)
"""Extensions of remote folders that are one file each."""

type Stamp = tuple[int | str | None, ...]
"""Changes when a file does."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file that a scan found."""

    name: str
    """The name of the file, or its path below its folder."""
    url: str
    root: str | None = None
    """The folder below which it was found, and which it must not leave by a link."""
    size: int | None = None
    mtime_ns: int | None = None
    stamp: Stamp = ()


class Listing:
    """The arguments of the command, and what the heads of the files below them were."""

    def __init__(self, arguments: Sequence[str], storage: Storage | None = None) -> None:
        self._arguments, self._storage = tuple(arguments), storage
        self._heads: dict[str, tuple[Stamp, bool]] = {}
        """By path: its stamp when it was examined, and whether it is supported."""
        self.is_complete = True
        """Whether the last scan found everything, because no limit was reached."""
        self.is_changing = any(_can_change(argument) for argument in arguments)
        """Whether another scan may find other files."""
        self.is_remote = any(is_remote(argument) for argument in arguments)

    def check(self) -> None:
        """Raise if a list of files, `@FILE`, cannot be read."""
        for argument in self._arguments:
            if argument.startswith("@"):
                lines_of(argument[1:])

    def scan(self) -> Iterator[Found]:
        """Yield the files, at most `MOST_FILES`."""
        scan = _Scan(self._heads, self._storage)
        for count, found in enumerate(scan.arguments(self._arguments)):
            if count >= MOST_FILES:
                scan.is_complete = False
                break
            yield found
        # heads of files that are gone are forgotten
        self._heads, self.is_complete = scan.heads, scan.is_complete


def _can_change(argument: str) -> bool:
    return argument.startswith("@") or _is_prefix(argument) or os.path.isdir(local_path(argument))  # noqa: PTH112


def _is_prefix(argument: str) -> bool:
    """Whether an argument is a prefix of an object store."""
    is_web = urlsplit(argument).scheme in ("http", "https")
    return is_remote(argument) and argument.endswith("/") and not is_web


class _Scan:
    def __init__(self, known: dict[str, tuple[Stamp, bool]], storage: Storage | None) -> None:
        self._known, self._storage = known, storage
        self.heads: dict[str, tuple[Stamp, bool]] = {}
        self.examined = 0
        self.is_complete = True

    def arguments(self, arguments: Sequence[str]) -> Iterator[Found]:
        for argument in arguments:
            if argument.startswith("@"):
                for line in lines_of(argument[1:]):
                    yield from self.argument(line)
            else:
                yield from self.argument(argument)

    def argument(self, argument: str) -> Iterator[Found]:
        """Yield the files that one argument, or one line of a list, names."""
        if is_remote(argument):
            yield from self._remote(argument)
            return
        path = Path(local_path(argument))
        name = path.resolve().name or "root"
        try:
            status = path.stat()
        except OSError:
            # listed all the same: its record says what is wrong
            yield Found(name, path.as_posix())
            return
        if not stat.S_ISDIR(status.st_mode) or self._is_folder_format(path.as_posix(), status):
            yield _found(name, path.as_posix(), None, status)
            return
        yield from self._below(path)

    def _below(self, root: Path) -> Iterator[Found]:
        """Yield the supported files below a folder, except links that point outside."""
        real, base = os.path.realpath(root), root.as_posix()
        waiting = [(base, "")]
        while waiting:
            place, above = waiting.pop()
            folders: list[tuple[str, str]] = []
            files = []
            for entry in _entries(place):
                path, name = f"{place.rstrip('/')}/{entry.name}", f"{above}{entry.name}"
                if not _is_folder(entry):
                    files.append((entry, path, name))
                elif is_link(path) or _is_zarr(path):
                    continue
                elif self._is_folder_format(path, status := entry.stat(), (base,)):
                    yield _found(name, path, base, status)
                else:
                    folders.append((path, f"{name}/"))
            for entry, path, name in files:
                self.examined += 1
                if self.examined > MOST_EXAMINED:
                    self.is_complete = False
                    return
                status_of_file = _status(entry)
                if status_of_file is None or (
                    entry.is_symlink() and not is_below(os.path.realpath(path), real)
                ):
                    continue
                if self._is_supported(path, status_of_file, (base,)):
                    yield _found(name, path, base, status_of_file)
            # depth first, in alphabetical order
            waiting.extend(reversed(folders))

    def _is_folder_format(
        self, path: str, status: os.stat_result, roots: Sequence[str] = ()
    ) -> bool:
        return self._remembered(path, status, partial(is_folder_format, roots=roots))

    def _is_supported(self, path: str, status: os.stat_result, roots: Sequence[str]) -> bool:
        return self._remembered(path, status, partial(is_file_format, roots=roots))

    def _remembered(
        self, path: str, status: os.stat_result, examine: Callable[[str], bool]
    ) -> bool:
        stamp = stamp_of(status)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = (stamp, examine(path))
        self.heads[path] = known
        return known[1]

    def _remote(self, argument: str) -> Iterator[Found]:
        # clients see the url of a file: not its signature, nor a password
        full = as_url(argument)
        url = without_secrets(full)
        if url != full:
            signed_of(self._storage)[url] = full
        if not _is_prefix(argument) or url.rstrip("/").endswith(FOLDERS):
            yield Found(urlsplit(url).path.rstrip("/").rpartition("/")[2] or url, url)
            return
        top = Folder(url, storage=self._storage)
        waiting = [(top, "")]
        while waiting:
            folder, above = waiting.pop()
            folders, objects = folder.remote_objects()
            if HEADER in objects or any(name in objects for name in ZARR):
                if HEADER in objects or folder is top:
                    name = above.rstrip("/") or folder.url.rpartition("/")[2]
                    yield Found(name, folder.url, None)
                continue
            for name in sorted(objects):
                self.examined += 1
                if self.examined > MOST_EXAMINED:
                    self.is_complete = False
                    return
                # by extension: reading the head of every object would take a request each
                if not name.startswith(".") and name.lower().endswith(formats.extensions()):
                    yield _listed(f"{above}{name}", below(folder.url, name), objects[name])
            waiting.extend(
                (folder.child(name), f"{above}{name}/")
                for name in reversed(folders)
                if not name.startswith(".")
            )


def _entries(place: str) -> list["os.DirEntry[str]"]:
    """List a folder in alphabetical order, without hidden entries; empty if it cannot be listed."""
    try:
        with os.scandir(place) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return []
    return sorted(shown, key=lambda entry: entry.name)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _status(entry: "os.DirEntry[str]") -> os.stat_result | None:
    """Return the status of a regular file, or None."""
    try:
        found = entry.stat()
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def stamp_now(path: str) -> Stamp:
    """Return the stamp of a local file, or nothing if there is none."""
    try:
        return stamp_of(os.stat(path))  # noqa: PTH116 - once per request
    except OSError:
        return ()


def stamp_of(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _found(name: str, path: str, root: str | None, status: os.stat_result) -> Found:
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    return Found(name, path, root, size, status.st_mtime_ns, stamp_of(status))


def _listed(name: str, url: str, pin: Pin) -> Found:
    return Found(name, url, None, pin.size, pin.mtime_ns, (pin.size, pin.etag, pin.mtime_ns))


def lines_of(path: str) -> list[str]:
    """Return the files and urls that a list names, one per line; `#` begins a comment line."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(LIST_BYTES + 1)
    except OSError as e:
        raise MissingFileError(f"{path}: {e.strerror or e}; expected a list of files") from e
    if len(data) > LIST_BYTES:
        raise UnsupportedError(f"{path}: a list of files has at most {LIST_BYTES} bytes")
    try:
        lines = [line.strip() for line in data.decode().splitlines()]
    except UnicodeDecodeError as e:
        raise FormatError(f"{path}: expected UTF-8 text with a file or url per line") from e
    return [line for line in lines if line and not line.startswith("#")]


def is_folder_format(path: str, roots: Sequence[str] = ()) -> bool:
    """Whether a folder is in a folder format (N5 for example), or is a saved index."""
    folder = Folder(path, roots=roots)
    try:
        try:
            formats.sniff_folder(folder)
        except UnsupportedError:
            return references.sniff_folder(folder) is not None
    except FormatError:
        return True  # listed with its error
    except AnychunkError:
        return False
    return True


def _is_zarr(folder: str) -> bool:
    return any(os.path.lexists(f"{folder}/{name}") for name in ZARR)


def is_file_format(path: str, roots: Sequence[str] = ()) -> bool:
    """Whether the first bytes of a file are those of a supported format or a saved index."""
    try:
        handle = open_inside(path, roots)
        try:
            stat_file(handle, path)
            head = os.read(handle, formats.HEAD)
        finally:
            os.close(handle)
    except (AnychunkError, OSError):
        return False
    try:
        formats.sniff(head, path)
    except AnychunkError:
        return bool(head) and references.sniff(head)
    return True
