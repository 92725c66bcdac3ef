"""What is served, under which names. Files are opened when they are first asked for."""

import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from anychunk import api, formats, references
from anychunk.errors import AnychunkError, FormatError, SourceError, UnsupportedError
from anychunk.io import (
    SAME_ORIGIN,
    Folder,
    Storage,
    is_remote,
    local_path,
    real_path,
    report_change,
)
from anychunk.model.index import GroupIndex, Node
from anychunk.model.pin import Pin
from anychunk.read.zarr_store import IndexStore
from anychunk.server.chunks import Chunks
from anychunk.server.friendly import served
from anychunk.server.pixels import Kept, served_store

MOST_FILES = 10_000
"""That one folder gives."""
MOST_LOOKED_AT = 100_000
MOST_OPEN = 64
"""Files whose index is in memory at once."""
RETRY_S = 5.0
"""After so long a file that did not open is tried again."""


@dataclass(eq=False)
class Opened:
    """One file, open."""

    index: Node
    store: IndexStore
    zstd: Chunks
    plain: Chunks

    def chunks(self, compression: str) -> Chunks:
        return self.plain if compression == "none" else self.zstd


@dataclass(eq=False)
class Entry:
    """One name, and what it stands for."""

    name: str
    url: str
    root: str | None = None
    """The folder that was named where the file was found below it; it must still be inside."""
    pins: dict[str, Pin] | None = None
    """Of the file as it was first opened; whoever read its metadata then counts on it."""
    error: Exception | None = None
    failed_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def title(self) -> str:
        return self.name

    def say(self, text: str) -> str:
        """Take the folder that the file is in out of a message: it is nobody's business."""
        whole = self.url if is_remote(self.url) else os.path.abspath(local_path(self.url))  # noqa: PTH100
        for place in {self.url, whole}:
            folder = place.rstrip("/").rpartition("/")[0]
            if folder:
                text = text.replace(f"{folder}/", "")
        text = re.sub(r"(?<![\w/:.])/(?:[^\s/:'\"]+/)+", "", text)
        return " ".join(text.split())


class Catalog:
    """The files that are served. Safe for threads."""

    def __init__(
        self, arguments: Sequence[str], *, kept: Kept, allow_redirects: bool = False
    ) -> None:
        """`allow_redirects`: whether web servers may send us to other hosts and ports."""
        self._arguments = tuple(arguments)
        self._storage: Storage | None = None if allow_redirects else {"redirects": SAME_ORIGIN}
        self.kept = kept
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._open: OrderedDict[str, Opened] = OrderedDict()
        self.scan()

    def scan(self) -> None:
        """Look what the folders that were given hold now; what was known keeps its name."""
        found: dict[str, Entry] = {}
        for argument in self._arguments:
            root = local_path(argument)
            for name, url in listed(argument):
                known = next((n for n, e in self._entries.items() if e.url == url), None)
                free = known or free_name(name, found)
                found[free] = self._entries.get(free) or Entry(
                    free, url, None if url in (argument, root) else root
                )
        with self._lock:
            # a file that is gone stays known: it is an error, not an absence
            self._entries = found | {n: e for n, e in self._entries.items() if n not in found}

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def get(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def peek(self, entry: Entry) -> Opened | None:
        """Give a file if it is open."""
        with self._lock:
            found = self._open.get(entry.name)
            if found is not None:
                self._open.move_to_end(entry.name)
            return found

    def opened(self, entry: Entry) -> Opened:
        """Give a file open; raise what was wrong with it."""
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
                found = self._opened(entry)
            except (AnychunkError, OSError) as e:
                entry.error = e if isinstance(e, AnychunkError) else SourceError(str(e))
                entry.failed_at = time.monotonic()
                raise entry.error from e
            entry.error = None
        with self._lock:
            self._open[entry.name] = found
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        return found

    def _opened(self, entry: Entry) -> Opened:
        if entry.root is not None and not is_remote(entry.url):
            real_path(local_path(entry.url), (entry.root,))
        try:
            index = api.index(entry.url, storage=self._storage)
        except (AnychunkError, OSError, MemoryError):
            raise
        except Exception as e:
            raise FormatError(f"{entry.url}: {type(e).__name__}: {e}") from e
        pins = dict(index.pins) if isinstance(index, GroupIndex) else {}
        if entry.pins is None:
            entry.pins = pins
        for url, pin in entry.pins.items():
            change = pin.differs(pins[url]) if url in pins else "no longer part of it"
            if change:
                report_change(url, change, "error")
        index = renamed(index, entry.url.rstrip("/").rpartition("/")[2])
        store = served_store(index, self._storage)
        trees = {kind: served(index, compression=kind) for kind in ("zstd", "none")}
        return Opened(
            index=index,
            store=store,
            zstd=Chunks(trees["zstd"], store, kept=self.kept),
            plain=Chunks(trees["none"], store, kept=self.kept),
        )


def renamed(index: Node, name: str) -> Node:
    """Give the index with the file's name in place of where it is."""
    about = index.attributes.get("anychunk")
    if not isinstance(about, Mapping) or "source" not in about:
        return index
    attributes = {**index.attributes, "anychunk": {**about, "source": name}}
    return replace(index, attributes=attributes)


def free_name(name: str, taken: Iterable[str]) -> str:
    """Give the name, with a number where it is taken."""
    known = set(taken)
    if name not in known:
        return name
    number = 2
    while f"{name} ({number})" in known:
        number += 1
    return f"{name} ({number})"


def listed(argument: str) -> Iterator[tuple[str, str]]:
    """Give (name, url) of what an argument stands for."""
    if is_remote(argument):
        yield urlsplit(argument).path.rstrip("/").rpartition("/")[2] or argument, argument
        return
    path = Path(local_path(argument))
    name = path.resolve().name or "root"
    if not path.is_dir() or is_folder_format(str(path)):
        yield name, str(path)
        return
    yield from inside(path)


def is_folder_format(path: str) -> bool:
    """Whether a folder is itself one file of a format, or a saved index."""
    folder = Folder(path)
    try:
        try:
            formats.sniff_folder(folder)
        except UnsupportedError:
            return references.sniff_folder(folder) is not None
    except FormatError:
        return True  # listed with what is wrong with it
    except AnychunkError:
        return False
    return True


def inside(root: Path) -> Iterator[tuple[str, str]]:
    """Find what is opened here below a folder; links that lead out of it are not followed."""
    real = root.resolve()
    found = looked_at = 0
    for place, folders, files in os.walk(root):
        here = Path(place)
        kept = []
        for name in sorted(folders):
            if name.startswith(".") or (here / name).is_symlink() or is_zarr(here / name):
                continue
            if is_folder_format(str(here / name)):
                yield str((here / name).relative_to(root)), str(here / name)
                found += 1
            else:
                kept.append(name)
        folders[:] = kept
        for name in sorted(files):
            looked_at += 1
            path = here / name
            if found >= MOST_FILES or looked_at > MOST_LOOKED_AT:
                return
            if not name.startswith(".") and is_inside(path, real) and is_file_format(path):
                yield str(path.relative_to(root)), str(path)
                found += 1


def is_zarr(folder: Path) -> bool:
    """Whether a folder is a Zarr store: its chunks are no files, whatever they look like."""
    return any((folder / name).exists() for name in ("zarr.json", ".zgroup", ".zarray"))


def is_inside(path: Path, real: Path) -> bool:
    return not path.is_symlink() or path.resolve().is_relative_to(real)


def is_file_format(path: Path) -> bool:
    """Whether a file begins as one of a format, or a saved index, does."""
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
