"""The catalog: which files are served under which names. A file is opened on its first request."""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from anychunk.errors import AnychunkError, SourceChangedError, SourceError, defect
from anychunk.indexing import index_inside
from anychunk.io.cache import Cache
from anychunk.io.http import SAME_ORIGIN
from anychunk.io.source import SIGNED, Signed, absolute, as_url, is_remote, local_path, slashes
from anychunk.model.index import Node
from anychunk.zarr.store import IndexStore
from anychunk_serve.box_reader import Caches, served_store
from anychunk_serve.chunks import Chunks
from anychunk_serve.hierarchy import LABELS, served_tree
from anychunk_serve.listing import Found, Listing, Stamp, stamp_now
from anychunk_serve.memory import index_bytes
from anychunk_serve.watch import Watch

if TYPE_CHECKING:
    from anychunk.io.source import Storage

OPEN_SHARE = 4
"""Open files take at most this fraction of the memory for caches, 1/4."""
OPEN_BYTES = 2 << 20
"""What an open file is counted as, besides its chunk tables."""
MOST_GONE = 10_000
"""Deleted files whose names are remembered."""
RETRY_S = 5.0
"""Time after which opening a file that failed is tried again; at once if it has changed."""
ATTEMPTS = 3
"""How often a file is opened that changes while it is opened."""
PUBLISH_S = 0.1
"""Time between two additions to the list during the first scan."""


@dataclass(eq=False)
class Opened:
    """A file that is open."""

    index: Node
    store: IndexStore
    zstd: Chunks
    """The hierarchy with chunks compressed by zstd."""
    uncompressed: Chunks
    """The hierarchy with uncompressed chunks."""
    watch: Watch
    generation: int = 0
    """Of its entry when it was opened."""

    @property
    def version(self) -> str:
        """Identifies the version of the file that is open."""
        return self.watch.version

    @cached_property
    def labels(self) -> Chunks:
        """The hierarchy with uncompressed chunks, in which integers are labels."""
        tree = served_tree(self.index, compression=LABELS)
        return Chunks(tree, self.store, caches=self.zstd.caches)

    def chunks(self, compression: str) -> Chunks:
        if compression == LABELS:
            return self.labels
        return self.uncompressed if compression == "none" else self.zstd


@dataclass(eq=False, slots=True)
class Entry:
    """A file of the catalog, open or not."""

    name: str
    url: str
    listed_as: str = ""
    """Its name before a number was appended, because another file has the same."""
    root: str | None = None
    """The folder below which the file was found, and which it must not leave by a link."""
    size: int | None = None
    mtime_ns: int | None = None
    stamp: Stamp = ()
    """Of the last scan."""
    version: str | None = None
    """Of the file when it was last opened."""
    generation: int = 0
    """How many times another version of the file was opened."""
    is_gone: bool = False
    """Whether the last scan did not find it any more."""
    error: Exception | None = None
    failed_at: float = 0.0
    failed_stamp: Stamp = ()
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def title(self) -> str:
        return self.name

    def note(self, found: Found) -> bool:
        """Take over what a scan found; return whether the file is new or another than before."""
        is_other = self.is_gone or self.stamp != found.stamp
        self.root, self.size, self.mtime_ns = found.root, found.size, found.mtime_ns
        self.stamp, self.is_gone = found.stamp, False
        return is_other

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
        self,
        arguments: Sequence[str],
        *,
        caches: Caches,
        allow_redirects: bool = False,
        is_scanned: bool = True,
    ) -> None:
        """Find the files.

        Parameters:
            arguments: Files, urls, saved indexes, folders, prefixes of object stores, or lists of
                these (`@FILE`).
            caches: Shared by all files.
            allow_redirects: Whether web servers may redirect to other hosts and ports.
            is_scanned: Whether to scan before returning. Otherwise the caller calls `scan`, and the
                files that it finds are added while it runs.
        """
        self._storage: Storage = {SIGNED: Signed()}
        if not allow_redirects:
            self._storage["redirects"] = SAME_ORIGIN
        self.listing = Listing(arguments, self._storage)
        self.listing.check()
        self.caches = caches
        self._scanning = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._gone: OrderedDict[str, Entry] = OrderedDict()
        self._open: Cache[Opened] = Cache(caches.most // OPEN_SHARE)
        self._begun = threading.Event()
        """Set once the first scan has found a file, or has ended."""
        self._problem: Exception | None = None
        self.is_listed = False
        """Whether the first scan has ended; until then, further files may be found."""
        if is_scanned:
            self.scan()
            self.wait_for_first()

    def wait_for_first(self) -> None:
        """Wait until the first scan has found a file or has ended.

        Raises its error if it failed without finding any.
        """
        self._begun.wait()
        if self._problem is not None and not self._entries:
            raise self._problem

    def scan(
        self, publish: Callable[[list[str]], object] = lambda _: None
    ) -> tuple[list[str], list[str]]:
        """Search for files again; return the names that are new or changed, and those gone.

        Files that are already known keep their names.

        Parameters:
            publish: Called during the first scan with the names that it has found since the last
                call; these are not returned.
        """
        if self.is_listed:
            return self._scan(publish)
        try:
            return self._scan(publish)
        except (AnychunkError, OSError) as e:
            # what was found is served; later scans try again
            self._problem, self.listing.is_complete = e, False
            return [], []
        finally:
            self.is_listed = True
            self._begun.set()

    def _scan(self, publish: Callable[[list[str]], object]) -> tuple[list[str], list[str]]:
        with self._scanning:
            known = {
                (e.listed_as, e.url): e for e in (*self._gone.values(), *self._entries.values())
            }
            found: dict[str, Entry] = {}
            names = _Names(known.values())
            changed: list[str] = []
            published_at = 0.0
            for one in self.listing.scan():
                entry = known.get((one.name, one.url))
                if entry is None:
                    entry = Entry(names.free(one.name), one.url, one.name, is_gone=True)
                    known[one.name, one.url] = entry
                if entry.name in found:
                    continue  # the same argument twice
                if entry.note(one):
                    changed.append(entry.name)
                found[entry.name] = entry
                if not self.is_listed and time.monotonic() - published_at > PUBLISH_S:
                    # a copy: requests iterate over it while this loop adds entries
                    self._entries = dict(found)
                    publish(changed)
                    changed = []
                    self._begun.set()
                    published_at = time.monotonic()
            gone = [name for name in self._entries if name not in found]
            for name in gone:
                self._gone[name] = self._entries[name]
                self._entries[name].is_gone = True
            for name in found:
                self._gone.pop(name, None)
            while len(self._gone) > MOST_GONE:
                self._gone.popitem(last=False)
            self._entries = found
            return changed, gone

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def get(self, name: str) -> Entry | None:
        """Return a file, also a deleted one: requests for its chunks are errors, not 404."""
        return self._entries.get(name) or self._gone.get(name)

    def __len__(self) -> int:
        return len(self._entries)

    def peek(self, entry: Entry) -> Opened | None:
        """Return the file if it is open."""
        return self._open.get(entry)

    def opened(self, entry: Entry) -> Opened:
        """Return the file as it was when it was opened; open it if it is not."""
        return self.peek(entry) or self._reopened(entry, None)

    def current(self, entry: Entry) -> Opened:
        """Return the file as it is now: one that has changed is opened again.

        Raises the error of the last attempt if that was recent, and the file is the same.
        """
        found = self.peek(entry)
        if found is not None:
            try:
                found.watch.verify()
            except SourceChangedError:
                pass
            else:
                return found
        return self._reopened(entry, found)

    def described(self, entry: Entry) -> Opened:
        """Return the file as it is now, without keeping it open if it was not."""
        if self.peek(entry) is not None:
            return self.current(entry)
        with entry.lock:
            return self._attempt(entry)

    def _reopened(self, entry: Entry, outdated: Opened | None) -> Opened:
        with entry.lock:
            found = self.peek(entry)
            if found is not None and found is not outdated:
                return found  # by another thread
            found = self._attempt(entry)
            self._open.put(entry, found, OPEN_BYTES + index_bytes(found.index))
        return found

    def _attempt(self, entry: Entry) -> Opened:
        is_recent = time.monotonic() - entry.failed_at < RETRY_S
        now = () if is_remote(entry.url) else stamp_now(local_path(entry.url))
        if entry.error is not None and is_recent and now == entry.failed_stamp:
            raise entry.error
        try:
            found = self._open_entry(entry)
        except (AnychunkError, OSError) as e:
            entry.failed_at, entry.failed_stamp = time.monotonic(), now
            entry.error = e if isinstance(e, AnychunkError) else SourceError(str(e))
            raise entry.error from e
        entry.error = None
        if entry.version is not None and entry.version != found.version:
            entry.generation += 1
        entry.version, found.generation = found.version, entry.generation
        return found

    def _open_entry(self, entry: Entry) -> Opened:
        for attempt in range(ATTEMPTS):
            try:
                return self._open_once(entry)
            except SourceChangedError:
                # it is being written; clients try again later, too
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _open_once(self, entry: Entry) -> Opened:
        # the file that `scan` found may have been replaced by a link since
        roots = () if entry.root is None else (entry.root,)
        try:
            index = index_inside(as_url(entry.url), storage=self._storage, roots=roots)
        except (AnychunkError, OSError, MemoryError):
            raise
        except Exception as e:
            raise defect(e, entry.url) from e
        store = served_store(index, self._storage, roots)
        watch = Watch(entry.url, store, self._storage)
        index = with_source_name(index, entry.url.rstrip("/").rpartition("/")[2])
        store.index = index
        trees = {kind: served_tree(index, compression=kind) for kind in ("zstd", "none")}
        return Opened(
            index=index,
            store=store,
            zstd=Chunks(trees["zstd"], store, caches=self.caches),
            uncompressed=Chunks(trees["none"], store, caches=self.caches),
            watch=watch,
        )


class _Names:
    """The names that are taken; a number is appended to those of further files."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._taken = {entry.name for entry in entries}
        self._next: dict[str, int] = {}

    def free(self, name: str) -> str:
        """Return a name that is not taken, and take it."""
        chosen, number = name, self._next.get(name, 2)
        while chosen in self._taken:
            chosen = f"{name} ({number})"
            number += 1
        self._next[name] = number
        self._taken.add(chosen)
        return chosen


def with_source_name(index: Node, name: str) -> Node:
    """Return the index with the name of the file in place of its path."""
    about = index.attributes.get("anychunk")
    if not isinstance(about, Mapping) or "source" not in about:
        return index
    attributes = {**index.attributes, "anychunk": {**about, "source": name}}
    return replace(index, attributes=attributes)
