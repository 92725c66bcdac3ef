"""The catalog: which files are served under which names. A file is opened on its first request."""

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from anychunk import api, formats, references
from anychunk.errors import AnychunkError, FormatError, SourceError, UnsupportedError, defect
from anychunk.io import (
    SAME_ORIGIN,
    Folder,
    Storage,
    absolute,
    as_url,
    is_link,
    is_remote,
    local_path,
    real_path,
    remember,
    report_change,
    slashes,
)
from anychunk.io.cache import Cache
from anychunk.model.index import GroupIndex, Node
from anychunk.model.pin import Pin
from anychunk.read.zarr_store import IndexStore
from anychunk.server.box_reader import Caches, served_store
from anychunk.server.chunks import Chunks
from anychunk.server.hierarchy import served_tree

MOST_FILES = 10_000
"""Files of one folder that are served."""
MOST_EXAMINED = 100_000
"""Files of one folder that are examined."""
MOST_OPEN = 64
"""Files whose index is in memory at once."""
RETRY_S = 5.0
"""Time after which opening a file that failed is tried again."""


@dataclass(eq=False)
class Opened:
    """A file that is open."""

    index: Node
    store: IndexStore
    zstd: Chunks
    """The hierarchy with chunks compressed by zstd."""
    uncompressed: Chunks
    """The hierarchy with uncompressed chunks."""

    def chunks(self, compression: str) -> Chunks:
        return self.uncompressed if compression == "none" else self.zstd


@dataclass(eq=False)
class Entry:
    """A file of the catalog, open or not."""

    name: str
    url: str
    root: str | None = None
    """The folder below which the file was found, and which it must not leave by a link."""
    pins: dict[str, Pin] | None = None
    """Pins of its sources when it was first opened; clients may have cached metadata from then."""
    error: Exception | None = None
    failed_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def title(self) -> str:
        return self.name

    def without_folder(self, text: str) -> str:
        """Remove paths of folders from a message, so that clients do not learn them."""
        for place in {self.url, absolute(self.url)}:
            folder = place.rstrip("/").rpartition("/")[0]
            if folder:
                text = slashes(text).replace(f"{folder}/", "")
        # other absolute paths: a link may point to any folder
        text = re.sub(r"(?<![\w/:.])(?:\b[A-Za-z]:)?/(?:[^\s/:'\"]+/)+", "", text)
        return " ".join(text.split())


class Catalog:
    """The files that are served, by name. Safe for threads."""

    def __init__(
        self, arguments: Sequence[str], *, caches: Caches, allow_redirects: bool = False
    ) -> None:
        """Find the files.

        Parameters:
            arguments: Files, urls, saved indexes, or folders.
            caches: Shared by all files.
            allow_redirects: Whether web servers may redirect to other hosts and ports.
        """
        self._arguments = tuple(arguments)
        self._storage: Storage | None = None if allow_redirects else {"redirects": SAME_ORIGIN}
        self.caches = caches
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        # counted in files: each has size 1
        self._open: Cache[Opened] = Cache(MOST_OPEN)
        self.scan()

    def scan(self) -> None:
        """Search the folders again; files that are already known keep their names."""
        found: dict[str, Entry] = {}
        for argument in self._arguments:
            root = local_path(argument)
            for name, url in listed(argument):
                known = next((n for n, e in self._entries.items() if e.url == url), None)
                free = known or free_name(name, found)
                found[free] = self._entries.get(free) or Entry(
                    free, url, None if is_remote(url) or url in (argument, root) else root
                )
        with self._lock:
            # deleted files stay in the catalog: requests for them are errors, not 404
            self._entries = found | {n: e for n, e in self._entries.items() if n not in found}

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def get(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def peek(self, entry: Entry) -> Opened | None:
        """Return the file if it is open."""
        return self._open.get(entry.name)

    def opened(self, entry: Entry) -> Opened:
        """Open the file, unless it is open; raise the error of the last attempt if it is recent."""
        found = self.peek(entry)
        if found is not None:
            return found
        with entry.lock:
            found = self.peek(entry)
            if found is not None:
                return found
            if entry.error is not None and time.monotonic() - entry.failed_at < RETRY_S:
                raise entry.error
            try:
                found = self._open_entry(entry)
            except (AnychunkError, OSError) as e:
                entry.error = e if isinstance(e, AnychunkError) else SourceError(str(e))
                entry.failed_at = time.monotonic()
                raise entry.error from e
            entry.error = None
        self._open.put(entry.name, found, 1)
        return found

    def _open_entry(self, entry: Entry) -> Opened:
        if entry.root is not None and not is_remote(entry.url):
            # checked again: the file that `scan` found may have been replaced by a link since
            real_path(local_path(entry.url), (entry.root,))
        try:
            index = api.index(entry.url, storage=self._storage)
        except (AnychunkError, OSError, MemoryError):
            raise
        except Exception as e:
            raise defect(e, entry.url) from e
        check_unchanged(entry, dict(index.pins) if isinstance(index, GroupIndex) else {})
        index = with_source_name(index, entry.url.rstrip("/").rpartition("/")[2])
        store = served_store(index, self._storage)
        trees = {kind: served_tree(index, compression=kind) for kind in ("zstd", "none")}
        return Opened(
            index=index,
            store=store,
            zstd=Chunks(trees["zstd"], store, caches=self.caches),
            uncompressed=Chunks(trees["none"], store, caches=self.caches),
        )


def check_unchanged(entry: Entry, pins: dict[str, Pin]) -> None:
    """Raise `SourceChangedError` if a source differs from when the file was first opened."""
    if entry.pins is None:
        entry.pins = pins
    for url, pin in entry.pins.items():
        change = pin.differs(pins[url]) if url in pins else "no longer part of the file"
        if change:
            report_change(url, change, "error")


def with_source_name(index: Node, name: str) -> Node:
    """Return the index with the name of the file in place of its path."""
    about = index.attributes.get("anychunk")
    if not isinstance(about, Mapping) or "source" not in about:
        return index
    attributes = {**index.attributes, "anychunk": {**about, "source": name}}
    return replace(index, attributes=attributes)


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return the name, with a number appended if it is taken."""
    known = set(taken)
    if name not in known:
        return name
    number = 2
    while f"{name} ({number})" in known:
        number += 1
    return f"{name} ({number})"


def listed(argument: str) -> Iterator[tuple[str, str]]:
    """Yield (name, url) of every file that one argument of the command names."""
    if is_remote(argument):
        # clients see the url of a file: not its signature, nor a password
        url = remember(as_url(argument))
        yield urlsplit(url).path.rstrip("/").rpartition("/")[2] or url, url
        return
    path = Path(local_path(argument))
    name = path.resolve().name or "root"
    if not path.is_dir() or is_folder_format(path.as_posix()):
        yield name, path.as_posix()
        return
    yield from files_below(path)


def is_folder_format(path: str) -> bool:
    """Whether a folder is in a folder format (N5 for example), or is a saved index."""
    folder = Folder(path)
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


def files_below(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, url) of the supported files below a folder, except links that point outside."""
    real = root.resolve()
    found = examined = 0
    for place, folders, files in os.walk(root):
        here = Path(place)
        kept = []
        for name in sorted(folders):
            if name.startswith(".") or is_link(str(here / name)) or is_zarr(here / name):
                continue
            if is_folder_format((here / name).as_posix()):
                yield (here / name).relative_to(root).as_posix(), (here / name).as_posix()
                found += 1
            else:
                kept.append(name)
        # os.walk descends into what is left in its list
        folders[:] = kept
        for name in sorted(files):
            examined += 1
            path = here / name
            if found >= MOST_FILES or examined > MOST_EXAMINED:
                return
            if not name.startswith(".") and is_inside(path, real) and is_file_format(path):
                yield path.relative_to(root).as_posix(), path.as_posix()
                found += 1


def is_zarr(folder: Path) -> bool:
    """Whether a folder is a Zarr store, whose chunks must not be mistaken for files."""
    return any((folder / name).exists() for name in ("zarr.json", ".zgroup", ".zarray"))


def is_inside(path: Path, real: Path) -> bool:
    return not path.is_symlink() or path.resolve().is_relative_to(real)


def is_file_format(path: Path) -> bool:
    """Whether the first bytes of a file are those of a supported format or a saved index."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(formats.HEAD)
    except OSError:
        return False
    try:
        formats.sniff(head, str(path))
    except AnychunkError:
        return bool(head) and references.sniff(head)
    return True
