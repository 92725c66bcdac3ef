"""Records: a few facts about every file, kept apart from open files and made in the background.

Requests never parse a file for the list. They note which records they show; those are made first.
Threads run only while there is something to do, and folders are scanned again only while clients
ask for the list or for changes.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter

from anychunk.model.index import Json
from anychunk_serve import cancellation
from anychunk_serve.catalog import Catalog, Entry
from anychunk_serve.responses import as_json
from anychunk_serve.search import Search

WAIT_S = 0.25
"""Time that a list waits for the records that it shows."""
LISTED_S = 0.05
"""Time after which a list that waits for the first scan looks for further files."""
SCAN_S = 2.0
"""Least time between two scans."""
REMOTE_SCAN_S = 30.0
"""Least time between two scans of a prefix of an object store."""
SCAN_SHARE = 10
"""A scan that took a second is not repeated for so many seconds."""
RETRY_S = 30.0
"""Time after which a record of a file that could not be opened is made again, if it is shown."""
LOCAL_WORKERS, REMOTE_WORKERS = 2, 8
"""Threads that make records."""
MOST_TEXT = 1000
"""Characters of a record that words are searched in, besides the name."""
MOST_CHANGES = 1000
"""Changed names that are listed."""
SORTS = ("name", "bytes", "modified", "format")

type Describe = Callable[[Entry], dict[str, Json]]


@dataclass(slots=True)
class Row:
    """The record of a file, and what it is found by, in lower case."""

    name: str
    text: str
    format: str
    dtype: str
    crs: str
    size: int | None
    mtime_ns: int | None
    json: bytes = b""
    """Empty if the file was not described yet."""
    version: str | None = None
    failed_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class Window:
    """The part of the list that a client asks for."""

    offset: int = 0
    limit: int = 500
    search: Search = Search()
    folder: str | None = None
    """Only files directly in this folder."""
    within: str | None = None
    """Only files below this folder."""
    sort: str = "name"
    """One of `SORTS`, with `-` in front for the reverse order."""


class Records:
    """The records of all files of a catalog. Safe for threads."""

    def __init__(self, catalog: Catalog, describe: Describe) -> None:
        """Begin with no records.

        Parameters:
            catalog: The files.
            describe: Describes a file; called on threads. Returns its error instead of raising it.
        """
        self._catalog, self._describe = catalog, describe
        self._rows: dict[str, Row] = {}
        self._waiting: OrderedDict[str, None] = OrderedDict()
        """Names of the records to be made, the next one first."""
        self._making: set[str] = set()
        self._changed: dict[str, int] = {}
        self._removed: OrderedDict[str, int] = OrderedDict()
        self._made = threading.Condition()
        # from the clock, so that a revision of an earlier server is recognised
        self._first = self._revision = int(time.time() * 1000)
        self._workers = 0
        self._is_scanning = False
        self._is_closed = False
        self._scanned_at, self._scan_s = time.monotonic(), 0.0
        self._limit = REMOTE_WORKERS if catalog.listing.is_remote else LOCAL_WORKERS
        self._note([entry.name for entry in catalog.entries()], [])
        if not catalog.is_listed:
            self._is_scanning = True
            self._start_scan()

    # -- what clients ask for

    def window(self, wanted: Window) -> bytes:
        """Return part of the list as JSON, after waiting a little for its records."""
        self._scan_soon()
        give_up = time.monotonic() + WAIT_S
        shown, matching = self._select(wanted)
        while len(shown) < wanted.limit and self._is_growing(give_up):
            shown, matching = self._select(wanted)
        self._want(shown)
        with self._made:
            while any(entry.name not in self._rows for entry in shown) and not self._is_closed:
                left = give_up - time.monotonic()
                if left <= 0:
                    break
                cancellation.check()
                self._made.wait(min(left, 0.1))
            rows = [(entry, self._rows.get(entry.name)) for entry in shown]
        files = [pending_json(entry) if row is None else row.json for entry, row in rows]
        counts = as_json(self._counts() | {"offset": wanted.offset, "matching": matching})
        return b'{"files": [' + b", ".join(files) + b"], " + counts[1:]

    def _is_growing(self, give_up: float) -> bool:
        """Wait until the first scan has found more files; return whether it may find more."""
        left = give_up - time.monotonic()
        if self._catalog.is_listed or left <= 0:
            return False
        cancellation.check()
        with self._made:
            # for the rest of the scan: its end notifies, too
            self._made.wait_for(lambda: self._catalog.is_listed, min(left, LISTED_S))
        return True

    def changes(self, since: int) -> dict[str, Json]:
        """Return the names of the files that are new, different or gone since a revision."""
        self._scan_soon()
        with self._made:
            changed = [name for name, revision in self._changed.items() if revision > since]
            removed = [name for name, revision in self._removed.items() if revision > since]
            is_unknown = not self._first <= since <= self._revision
            is_reset = is_unknown or len(changed) + len(removed) > MOST_CHANGES
        named = (
            {"changed": [], "removed": []}
            if is_reset
            else {
                "changed": changed,
                "removed": removed,
            }
        )
        return self._counts() | {"reset": is_reset} | named

    def folders(self, path: str) -> dict[str, Json] | None:
        """Describe a folder of the catalog; None if there is none."""
        prefix = f"{path}/" if path else ""
        files, count = 0, 0
        below: dict[str, tuple[int, set[str]]] = {}
        for entry in self._catalog.entries():
            if not entry.name.startswith(prefix):
                continue
            count += 1
            first, slash, rest = entry.name[len(prefix) :].partition("/")
            if not slash:
                files += 1
                continue
            number, inner = below.get(first, (0, set()))
            deeper, slash, _ = rest.partition("/")
            if slash:
                inner.add(deeper)
            below[first] = (number + 1, inner)
        if path and not count:
            return None
        listed = [
            {"name": name, "path": f"{prefix}{name}", "all": number, "folders": len(inner)}
            for name, (number, inner) in sorted(below.items())
        ]
        return {"path": path, "files": files, "all": count, "folders": listed}

    def put(self, entry: Entry, record: dict[str, Json]) -> None:
        """Keep a record that was made for a request."""
        with self._made:
            self._waiting.pop(entry.name, None)
            self._keep(entry, record)
            self._made.notify_all()

    def close(self) -> None:
        """Make no further records."""
        with self._made:
            self._is_closed = True
            self._waiting.clear()
            self._made.notify_all()

    # -- the table

    def _counts(self) -> dict[str, Json]:
        with self._made:
            return {
                "total": len(self._catalog),
                "pending": max(0, len(self._catalog) - len(self._rows)),
                "scanning": self._is_scanning,
                "listed": self._catalog.is_listed,
                "complete": self._catalog.listing.is_complete,
                "revision": self._revision,
            }

    def _row(self, entry: Entry) -> Row:
        return self._rows.get(entry.name) or _pending_row(entry)

    def _select(self, wanted: Window) -> tuple[list[Entry], int]:
        """Return the entries of a window, and how many match."""
        found = list(self._matching(wanted))
        key = wanted.sort.lstrip("-")
        if key != "name":
            values = [(self._sort_value(entry, key), entry) for entry in found]
            known = [pair for pair in values if pair[0] is not None]
            known.sort(key=itemgetter(0), reverse=wanted.sort[0] == "-")
            found = [e for _, e in known] + [e for value, e in values if value is None]
        elif wanted.sort[0] == "-":
            found.reverse()
        return found[wanted.offset : wanted.offset + wanted.limit], len(found)

    def _matching(self, wanted: Window) -> Iterator[Entry]:
        for entry in self._catalog.entries():
            if wanted.folder is not None and folder_of(entry.name) != wanted.folder:
                continue
            if wanted.within and not entry.name.startswith(f"{wanted.within}/"):
                continue
            if wanted.search.matches(self._row(entry)):
                yield entry

    def _sort_value(self, entry: Entry, key: str) -> int | str | None:
        if key == "bytes":
            return self._row(entry).size
        return entry.mtime_ns if key == "modified" else self._row(entry).format or None

    def _keep(self, entry: Entry, record: dict[str, Json]) -> None:
        """Keep a record; the lock is held."""
        known = self._rows.get(entry.name)
        self._revision += 1
        row = _row_of(entry, record, self._revision)
        if entry.is_gone:
            return
        if known is None or known.text != row.text or known.version != row.version:
            self._changed[entry.name] = self._revision
        self._rows[entry.name] = row

    def _note(self, changed: Iterable[str], gone: Iterable[str]) -> None:
        """Note what a scan found."""
        with self._made:
            for name in changed:
                self._revision += 1
                self._removed.pop(name, None)
                self._changed[name] = self._revision
                entry = self._catalog.get(name)
                if entry is not None and not is_costly(entry):
                    self._waiting[name] = None
            for name in gone:
                self._revision += 1
                self._rows.pop(name, None)
                self._changed.pop(name, None)
                self._waiting.pop(name, None)
                self._removed[name] = self._revision
            while len(self._removed) > MOST_CHANGES:
                # whoever has not heard of it by now is told to begin again
                self._first = self._removed.popitem(last=False)[1]

    # -- work in the background

    def _want(self, shown: list[Entry]) -> None:
        """Make the records of these entries next, and see that threads are at work."""
        now = time.monotonic()
        with self._made:
            for entry in reversed(shown):
                row = self._rows.get(entry.name)
                failed_at = None if row is None else row.failed_at
                is_due = failed_at is not None and now - failed_at > RETRY_S
                is_new = row is None or entry.name in self._waiting
                if (is_due or is_new) and entry.name not in self._making:
                    self._waiting[entry.name] = None
                    self._waiting.move_to_end(entry.name, last=False)
            self._start_workers()

    def _start_workers(self) -> None:
        while self._workers < min(self._limit, len(self._waiting)) and not self._is_closed:
            self._workers += 1
            threading.Thread(target=self._work, name="anychunk-records", daemon=True).start()

    def _work(self) -> None:
        try:
            while (entry := self._next()) is not None:
                record = self._describe(entry)
                with self._made:
                    self._making.discard(entry.name)
                    self._keep(entry, record)
                    self._made.notify_all()
        finally:
            with self._made:
                self._workers -= 1
                self._start_workers()

    def _next(self) -> Entry | None:
        with self._made:
            while self._waiting and not self._is_closed:
                name, _ = self._waiting.popitem(last=False)
                entry = self._catalog.get(name)
                if entry is not None and not entry.is_gone:
                    self._making.add(name)
                    return entry
            return None

    def _is_due(self) -> bool:
        """Whether to scan now, and note that it begins."""
        least = REMOTE_SCAN_S if self._catalog.listing.is_remote else SCAN_S
        with self._made:
            since = time.monotonic() - self._scanned_at
            is_due = since > max(least, SCAN_SHARE * self._scan_s)
            if not is_due or self._is_scanning or self._is_closed:
                return False
            self._is_scanning = True
            return True

    def _scan_soon(self) -> None:
        """Scan in the background, unless the last scan was not long ago."""
        if self._is_due():
            self._start_scan()

    def _start_scan(self) -> None:
        threading.Thread(target=self.scan, name="anychunk-scan", daemon=True).start()

    def scan_if_due(self) -> None:
        """Scan before returning, unless the last scan was not long ago."""
        with self._made:
            # one that is running may have passed the place of a new file already
            while self._is_scanning and not self._is_closed:
                cancellation.check()
                self._made.wait(0.1)
        if self._is_due():
            self.scan()

    def scan(self) -> None:
        """Scan the folders now."""
        start = time.monotonic()
        try:
            changed, gone = self._catalog.scan(lambda found: self._note(found, []))
            self._note(changed, gone)
        finally:
            with self._made:
                self._scanned_at = time.monotonic()
                self._scan_s = self._scanned_at - start
                self._is_scanning = False
                self._start_workers()
                self._made.notify_all()


def is_costly(entry: Entry) -> bool:
    """Whether a record costs requests to another server, and is made only when it is shown."""
    return "://" in entry.url and not entry.url.startswith("file:")


def folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def modified(mtime_ns: int | None) -> str | None:
    """Return a time as ISO 8601 in UTC, to the second."""
    if mtime_ns is None:
        return None
    try:
        found = datetime.fromtimestamp(mtime_ns // 10**9, UTC)
    except (OverflowError, OSError, ValueError):  # a file system may store any number
        return None
    return found.strftime("%Y-%m-%dT%H:%M:%SZ")


def empty_record(entry: Entry) -> dict[str, Json]:
    """Return what is known about a file without opening it."""
    return {
        "name": entry.name,
        "title": entry.title,
        "folder": folder_of(entry.name),
        "format": None,
        "bytes": entry.size,
        "modified": modified(entry.mtime_ns),
        "crs": None,
        "error": None,
        "version": None,
        "images": [],
        "image_count": 0,
        "arrays": [],
        "array_count": 0,
    }


def pending_json(entry: Entry) -> bytes:
    """Return the record of a file that was not described yet."""
    return as_json(empty_record(entry) | {"pending": True})


def _pending_row(entry: Entry) -> Row:
    name = entry.name.lower()
    return Row(name, name, "", "", "", entry.size, entry.mtime_ns)


def _row_of(entry: Entry, record: dict[str, Json], revision: int) -> Row:
    shown = [*record["images"], *record["arrays"]]
    dtype = " ".join(sorted({str(image["dtype"]) for image in shown}))
    titles = " ".join(str(image["title"]) for image in shown)
    facts = (record["format"], record["crs"], dtype, titles, record["error"])
    text = " ".join(str(fact) for fact in facts if fact)[:MOST_TEXT]
    name = entry.name.lower()
    return Row(
        name=name,
        text=f"{name} {text.lower()}",
        format=str(record["format"] or "").lower(),
        dtype=dtype.lower(),
        crs=str(record["crs"] or "").lower(),
        size=record["bytes"],
        mtime_ns=entry.mtime_ns,
        json=as_json(record | {"revision": revision}),
        version=record["version"],
        failed_at=time.monotonic() if record["error"] is not None else None,
    )
