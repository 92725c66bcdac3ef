"""Remote objects, read by obstore, or by our own client where redirects are restricted."""

import asyncio
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from anychunk import limits
from anychunk.errors import LimitError, TruncatedError
from anychunk.io.errors import remote_errors
from anychunk.io.http import Answer, NoRangeError, Range, Site, is_restricted, site_of
from anychunk.io.object_stores import object_store
from anychunk.io.source import Bytes1D, OnChange, Storage, check_range, report_change
from anychunk.model.pin import Pin

if TYPE_CHECKING:
    from obstore import GetOptions


class ObjectSource:
    """A remote object. The first request fetches its head, size and etag together."""

    is_local = False

    def __init__(
        self,
        url: str,
        *,
        storage: Storage | None = None,
        pin: Pin | None = None,
        on_change: OnChange = "error",
    ) -> None:
        self.url = url
        self.storage = storage
        self._on_change: OnChange = on_change
        self._site: Site | None = None
        if is_restricted(url, storage):
            self._site, self._path = site_of(url, storage)
        else:
            self._store, self._path = object_store(url, storage)
        self._lock = threading.Lock()
        self._pin = pin
        self._head = np.empty(0, np.uint8)

    def _first(self) -> Pin:
        with self._lock:
            if self._pin is None:
                self._pin, self._head = self._read_head()
            return self._pin

    def _read_head(self) -> tuple[Pin, Bytes1D]:
        if self._site is not None:
            return self._read_site_head(self._site)
        import obstore

        with remote_errors(self.url):
            try:
                got = obstore.get(
                    self._store, self._path, options={"range": (0, limits.get().head_bytes)}
                )
                return object_pin(got.meta), np.frombuffer(got.bytes(), np.uint8)
            except obstore.exceptions.GenericError:
                # an empty object has no ranges, and some servers send small objects whole
                meta = obstore.head(self._store, self._path)
                if meta["size"] > limits.get().head_bytes:
                    raise
                if not meta["size"]:
                    return object_pin(meta), np.empty(0, np.uint8)
                got = obstore.get(self._store, self._path)
                return object_pin(got.meta), np.frombuffer(got.bytes(), np.uint8)

    def _read_site_head(self, site: Site) -> tuple[Pin, Bytes1D]:
        most = limits.get().head_bytes
        with remote_errors(self.url):
            try:
                got = site.get(self._path, (0, most))
            except NoRangeError:
                # as above: an empty object, or a server without ranges
                meta = site.head(self._path)
                if meta["size"] > most:
                    raise
                got = site.get(self._path, most=most) if meta["size"] else Answer(meta, b"")
        return object_pin(got.meta), np.frombuffer(got.data, np.uint8)

    @property
    def head_length(self) -> int:
        """The number of bytes from the start that the first request fetched."""
        return len(self._head)

    def pin(self) -> Pin:
        return self._first()

    def refresh(self) -> Pin:
        if self._site is not None:
            with remote_errors(self.url):
                return object_pin(self._site.head(self._path))
        import obstore

        with remote_errors(self.url):
            return object_pin(obstore.head(self._store, self._path))

    def size(self) -> int:
        return self._first().size

    def read(self, offset: int, length: int) -> Bytes1D:
        import obstore

        check_range(self, offset, length)
        if offset + length <= len(self._head) or not length:
            return self._head[offset : offset + length]
        if self._site is not None:
            return self._read_site(self._site, offset, length)
        with remote_errors(self.url):
            got = obstore.get(self._store, self._path, options=self._options(offset, length))
            return self._checked(got.meta, got.bytes(), offset, length)

    def _read_site(self, site: Site, offset: int, length: int) -> Bytes1D:
        with remote_errors(self.url):
            most = max(length, limits.get().chunk_bytes)
            got = site.get(self._path, self._range(offset, length), most=most)
        return self._checked(got.meta, got.data, offset, length)

    def _range(self, offset: int, length: int) -> Range | None:
        """Return the range to request; None for a whole object, since some servers lack ranges."""
        is_whole = offset == 0 and self._pin is not None and length == self._pin.size
        return None if is_whole else (offset, offset + length)

    def _options(self, offset: int, length: int) -> "GetOptions":
        wanted = self._range(offset, length)
        return {} if wanted is None else {"range": wanted}

    async def fetch(self, offset: int, length: int) -> Bytes1D:
        """Do what `read` does without blocking the event loop."""
        if self._site is not None:
            return await asyncio.to_thread(self._read_site, self._site, offset, length)
        import obstore

        with remote_errors(self.url):
            got = await obstore.get_async(
                self._store, self._path, options=self._options(offset, length)
            )
            return self._checked(got.meta, await got.bytes_async(), offset, length)

    def _checked(self, meta: Mapping[str, Any], data: Any, offset: int, length: int) -> Bytes1D:
        """Check a response against the pin: every response names its version."""
        now = object_pin(meta)
        change = self._pin.differs(now) if self._pin else None
        if change:
            report_change(self.url, change, self._on_change)
        if self._pin is None or change:
            self._pin = now
        view = np.frombuffer(data, np.uint8)
        if len(view) != length:
            raise TruncatedError(
                f"{self.url} @{offset}: the server sent {len(view)} bytes, expected {length}"
            )
        return view


def get_object(url: str, storage: Storage | None) -> tuple[Bytes1D, Pin] | None:
    """Read a whole object and its version in one request; None if there is no such object."""
    most = limits.get().chunk_bytes
    try:
        if is_restricted(url, storage):
            site, path = site_of(url, storage)
            with remote_errors(url):
                answer = site.get(path, most=most)
            return np.frombuffer(answer.data, np.uint8), object_pin(answer.meta)
        import obstore

        store, path = object_store(url, storage)
        with remote_errors(url):
            got = obstore.get(store, path)
            size = got.meta["size"]
            if size > most:
                raise LimitError(f"{url}: {size} bytes are over the limit of {most}")
            return np.frombuffer(got.bytes(), np.uint8), object_pin(got.meta)
    except FileNotFoundError:
        return None


def object_pin(meta: Mapping[str, Any]) -> Pin:
    """Return the version that an object's metadata states."""
    changed = meta["last_modified"]
    return Pin(
        size=meta["size"], etag=meta["e_tag"], mtime_ns=int(changed.timestamp()) * 1_000_000_000
    )


def listed_pin(meta: Mapping[str, Any]) -> Pin:
    """Return the version of a listed object; some servers omit the quotes of etags in lists."""
    etag = meta["e_tag"]
    is_bare = etag is not None and '"' not in etag
    return object_pin({**meta, "e_tag": f'"{etag}"'} if is_bare else meta)
