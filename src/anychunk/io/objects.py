"""Remote objects, read by range."""

import re
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np

from anychunk import limits
from anychunk.errors import LimitError, SourceError, TruncatedError
from anychunk.io import measuring
from anychunk.io.errors import first_line, remote_errors
from anychunk.io.forking import Lock
from anychunk.io.http import Answer, NoRangeError, Range, is_restricted, site_of
from anychunk.io.object_stores import forget_store, object_store
from anychunk.io.source import Bytes1D, OnChange, Storage, check_range, report_change, unsigned
from anychunk.io.storage import filesystem_of
from anychunk.model.pin import Pin

# The clients that read one remote object: obstore's, our own for web servers, and fsspec's.
#
# Our own reads http and https urls where redirects are restricted. fsspec's are used only if the
# caller passes a filesystem.


class Client(Protocol):
    """Reads one object. Errors are those of the library behind it."""

    @property
    def has_unique_etags(self) -> bool:
        """Whether an etag identifies the content of a url, in whichever store it is found."""
        ...

    def get(self, wanted: Range | None = None, *, most: int | None = None) -> Answer:
        """Read a range or the whole object, which is refused if it is longer than `most`.

        Raises:
            NoRangeError: The server has no ranges, or the object is empty.
        """
        ...

    async def get_async(self, wanted: Range | None = None) -> Answer:
        """Do what `get` does without blocking the event loop."""
        ...

    def head(self) -> Mapping[str, Any]:
        """Return size, etag and date under obstore's names."""
        ...

    def forget(self) -> None:
        """Take credentials from their source again before the next request."""
        ...


def client_of(url: str, storage: Storage | None) -> Client:
    """Return the client that reads `url`."""
    if is_restricted(url, storage):
        return SiteClient(url, storage)
    if (filesystem := filesystem_of(storage)) is not None:
        return FilesystemClient(url, filesystem)
    return StoreClient(url, storage)


class StoreClient:
    """Reads by obstore."""

    def __init__(self, url: str, storage: Storage | None) -> None:
        self._url, self._storage = url, storage
        self._store, self._path = object_store(url, storage)
        self._is_stale = False
        # etags of memory count versions, and those of files are their size and time
        self.has_unique_etags = type(self._store).__name__ not in ("MemoryStore", "LocalStore")

    def get(self, wanted: Range | None = None, *, most: int | None = None) -> Answer:
        import obstore

        try:
            options: Any = {} if wanted is None else {"range": wanted}
            got = obstore.get(self._current(), self._path, options=options)
            if wanted is None:
                limits.check_object(got.meta["size"], most, where=self._url)
            return Answer(got.meta, got.bytes())
        except obstore.exceptions.BaseError as e:
            _raise_if_no_range(e, wanted, self._url)
            raise

    async def get_async(self, wanted: Range | None = None) -> Answer:
        import obstore

        try:
            options: Any = {} if wanted is None else {"range": wanted}
            got = await obstore.get_async(self._current(), self._path, options=options)
            return Answer(got.meta, await got.bytes_async())
        except obstore.exceptions.BaseError as e:
            _raise_if_no_range(e, wanted, self._url)
            raise

    def head(self) -> Mapping[str, Any]:
        import obstore

        return obstore.head(self._current(), self._path)

    def forget(self) -> None:
        forget_store(self._store)
        self._is_stale = True

    def _current(self) -> Any:
        if self._is_stale:
            self._store, self._path = object_store(self._url, self._storage)
            self._is_stale = False
        return self._store


BEYOND = re.compile(r"status code: 416\b|error: Invalid range:|Requested range was invalid$")
"""How servers, memory and file systems tell that a range begins beyond the end of an object."""


def _raise_if_no_range(error: Exception, wanted: Range | None, url: str) -> None:
    text = first_line(error)
    is_ignored = type(error).__name__ == "NotSupportedError"
    if wanted is not None and (is_ignored or BEYOND.search(text)):
        raise NoRangeError(f"{url}: {text}") from None


class SiteClient:
    """Reads by our own client of web servers."""

    has_unique_etags = True

    def __init__(self, url: str, storage: Storage | None) -> None:
        self._url, self._storage = url, storage
        self._site, self._target = site_of(url, storage)

    def get(self, wanted: Range | None = None, *, most: int | None = None) -> Answer:
        return self._site.get(self._target, wanted, most=most)

    async def get_async(self, wanted: Range | None = None) -> Answer:
        import asyncio

        return await asyncio.to_thread(self.get, wanted)

    def head(self) -> Mapping[str, Any]:
        return self._site.head(self._target)

    def forget(self) -> None:
        self._site, self._target = site_of(self._url, self._storage)


class FilesystemClient:
    """Reads by an fsspec filesystem."""

    has_unique_etags = True

    def __init__(self, url: str, filesystem: Any) -> None:
        self._url, self._filesystem = url, filesystem
        self._path = filesystem._strip_protocol(url)  # noqa: SLF001 - fsspec has no public name for it

    def get(self, wanted: Range | None = None, *, most: int | None = None) -> Answer:
        # fsspec's answers do not name their version, so it is asked for every time
        meta = self.head()
        if wanted is not None:
            if not meta["size"]:
                raise NoRangeError(f"{self._url}: an empty object has no ranges")
            start, stop = wanted[0], min(wanted[1], meta["size"])
            return Answer(meta, self._filesystem.cat_file(self._path, start=start, end=stop))
        limits.check_object(meta["size"], most, where=self._url)
        return Answer(meta, self._filesystem.cat_file(self._path))

    async def get_async(self, wanted: Range | None = None) -> Answer:
        import asyncio

        return await asyncio.to_thread(self.get, wanted)

    def head(self) -> Mapping[str, Any]:
        about = self._filesystem.info(self._path)
        if about.get("type") == "directory":
            raise FileNotFoundError(self._path)
        changed = about.get("mtime") or about.get("LastModified") or about.get("last_modified")
        if isinstance(changed, int | float):
            changed = datetime.fromtimestamp(changed, UTC)
        if not isinstance(changed, datetime):
            changed = datetime.fromtimestamp(0, UTC)
        etag = about.get("ETag") or about.get("etag") or about.get("md5")
        return {"size": int(about["size"]), "e_tag": etag, "last_modified": changed}

    def forget(self) -> None:
        self._filesystem.invalidate_cache()


@contextmanager
def client_errors(client: Client, url: str) -> Iterator[None]:
    """Map errors; after one, credentials are taken from the environment again."""
    try:
        with remote_errors(url):
            yield
    except SourceError:
        client.forget()
        raise


def get(client: Client, wanted: Range | None = None, *, most: int | None = None) -> Answer:
    """Request a range or a whole object, and count that if somebody measures."""
    if not measuring.collectors:
        return client.get(wanted, most=most)
    measuring.count(requests=1)
    got = measuring.timed("fetch_seconds", client.get, wanted, most=most)
    measuring.count(fetched_bytes=memoryview(got.data).nbytes)
    return got


async def get_async(client: Client, wanted: Range | None) -> Answer:
    """Do what `get` does without blocking the event loop."""
    if not measuring.collectors:
        return await client.get_async(wanted)
    start = time.perf_counter()
    try:
        got = await client.get_async(wanted)
    finally:
        measuring.count(requests=1, fetch_seconds=time.perf_counter() - start)
    measuring.count(fetched_bytes=memoryview(got.data).nbytes)
    return got


def head(client: Client) -> Mapping[str, Any]:
    """Request size and version of an object, and count that if somebody measures."""
    if not measuring.collectors:
        return client.head()
    measuring.count(requests=1)
    return measuring.timed("fetch_seconds", client.head)


class ObjectSource:
    """A remote object. The first request fetches its head, size and etag together.

    Servers without ranges send objects whole. One of at most `limits.whole_bytes` is then read
    once, and kept as long as the source.
    """

    is_local = False
    roots: Sequence[str] = ()

    def __init__(
        self,
        url: str,
        *,
        storage: Storage | None = None,
        pin: Pin | None = None,
        on_change: OnChange = "error",
    ) -> None:
        self.url, self.storage = unsigned(url, storage)
        self._on_change: OnChange = on_change
        self._client = client_of(self.url, self.storage)
        self._lock = Lock()
        self._pin = pin
        self._head = np.empty(0, np.uint8)
        self._token = object()

    def _first(self) -> Pin:
        with self._lock:
            if self._pin is None:
                with client_errors(self._client, self.url):
                    got = self._read_head()
                self._pin, self._head = object_pin(got.meta), np.frombuffer(got.data, np.uint8)
            return self._pin

    def _read_head(self) -> Answer:
        try:
            return get(self._client, (0, limits.get().head_bytes))
        except NoRangeError:
            return self._read_whole()

    def _read_whole(self) -> Answer:
        """Read the object without a range: it is empty, or the server sends objects whole."""
        most = limits.get().whole_bytes
        try:
            return get(self._client, most=most)
        except LimitError as e:
            raise SourceError(
                f"{e}. Its server does not support range requests, so it would have to be read "
                "whole; a server that does can show it in any size"
            ) from e

    @property
    def head_length(self) -> int:
        """The number of bytes from the start that are in memory."""
        return len(self._head)

    @property
    def token(self) -> Hashable:
        pin = self.pin()
        is_unique = self._client.has_unique_etags and is_strong(pin.etag)
        return (self.url, pin) if is_unique else self._token

    def pin(self) -> Pin:
        return self._first()

    def refresh(self) -> Pin:
        with client_errors(self._client, self.url):
            return object_pin(head(self._client))

    def size(self) -> int:
        return self._first().size

    def read(self, offset: int, length: int) -> Bytes1D:
        check_range(self, offset, length)
        if offset + length <= len(self._head) or not length:
            return self._head[offset : offset + length]
        with client_errors(self._client, self.url):
            try:
                got = get(self._client, self._range(offset, length))
            except NoRangeError:
                return self._from_whole(offset, length)
        return self._checked(got, offset, length)

    def _range(self, offset: int, length: int) -> Range | None:
        """Return the range to request; None for a whole object, since some servers lack ranges."""
        is_whole = offset == 0 and self._pin is not None and length == self._pin.size
        return None if is_whole else (offset, offset + length)

    async def fetch(self, offset: int, length: int) -> Bytes1D:
        """Do what `read` does without blocking the event loop."""
        if self._head.size and offset + length <= len(self._head):
            return self._head[offset : offset + length]
        with client_errors(self._client, self.url):
            try:
                got = await get_async(self._client, self._range(offset, length))
            except NoRangeError:
                import asyncio

                return await asyncio.to_thread(self._from_whole, offset, length)
        return self._checked(got, offset, length)

    def _from_whole(self, offset: int, length: int) -> Bytes1D:
        with self._lock:
            if offset + length > len(self._head):
                got = self._read_whole()
                self._head = self._checked(got, 0, got.meta["size"])
        check_range(self, offset, length)
        return self._head[offset : offset + length]

    def _checked(self, got: Answer, offset: int, length: int) -> Bytes1D:
        """Check a response against the pin: every response names its version."""
        now = object_pin(got.meta)
        change = self._pin.differs(now) if self._pin else None
        if change:
            report_change(self.url, change, self._on_change)
        if self._pin is None or change:
            self._pin, self._token = now, object()
        view = np.frombuffer(got.data, np.uint8)
        if len(view) != length:
            raise TruncatedError(
                f"{self.url} @{offset}: the server sent {len(view)} bytes, expected {length}"
            )
        return view


def get_object(
    url: str, storage: Storage | None, *, most: int | None = None
) -> tuple[Bytes1D, Pin] | None:
    """Read a whole object and its version in one request; None if there is no such object.

    `most`: a longer one is refused before its body is read; by default the limit of a chunk.
    """
    name, storage = unsigned(url, storage)
    most = limits.get().chunk_bytes if most is None else most
    try:
        client = client_of(name, storage)
        with client_errors(client, name):
            got = get(client, most=most)
            return np.frombuffer(got.data, np.uint8), object_pin(got.meta)
    except FileNotFoundError:
        return None


def is_strong(etag: str | None) -> bool:
    """Return whether equal etags mean equal bytes (RFC 9110 section 8.8.1)."""
    return etag is not None and not etag.startswith("W/")


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
