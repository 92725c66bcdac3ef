"""The clients that read one remote object: obstore's, our own for web servers, and fsspec's.

Our own reads http and https urls where redirects are restricted. fsspec's are used only if the
caller passes a filesystem.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from anychunk import limits
from anychunk.io.errors import first_line
from anychunk.io.http import Answer, NoRangeError, Range, is_restricted, site_of
from anychunk.io.object_stores import forget_store, object_store
from anychunk.io.source import Storage
from anychunk.io.storage import filesystem_of


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
