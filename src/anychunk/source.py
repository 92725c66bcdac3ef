"""Read bytes by range: local files by memory map, everything else by obstore.

A source gives exactly the bytes that were asked for or raises. `Sources` keeps them open by url and
holds each against its pin, so that bytes of a changed file never reach a decoder.
"""

import mmap
import os
import posixpath
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast
from urllib.parse import unquote, urlsplit

import numpy as np

from anychunk import limits, memory
from anychunk.errors import (
    AnychunkError,
    FormatError,
    LimitError,
    SourceChangedError,
    SourceError,
    TruncatedError,
    UnsupportedError,
)
from anychunk.pin import Pin

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from obstore import GetOptions, GetResult
    from obstore.store import MemoryStore, ObjectStore

type Bytes1D = NDArray[np.uint8]
type Storage = Mapping[str, Any]
"""Options for obstore's stores, as `obstore.store.from_url` takes them. Under `resolve` it may hold
a function that gives the store of a url, and the path there, instead."""
type OnChange = Literal["error", "warn"]
"""What to do when a source is no longer the one that was indexed."""


def report_change(url: str, change: str, on_change: OnChange) -> None:
    """Refuse a changed source, or warn of it where the caller wants to read on."""
    if on_change == "error":
        raise SourceChangedError(f"{url}: {change}; index it again")
    warnings.warn(f"{url}: {change}; what is read may be wrong", stacklevel=3)


class Source(Protocol):
    """One object, read by range."""

    @property
    def url(self) -> str: ...
    @property
    def storage(self) -> Storage | None:
        """The options that its store was opened with, for objects that it names."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether reading is a slice of memory."""
        ...

    def pin(self) -> Pin: ...
    def size(self) -> int: ...
    def read(self, offset: int, length: int) -> Bytes1D:
        """Give exactly these bytes, or raise `TruncatedError`; without a copy where it can."""
        ...

    def refresh(self) -> Pin:
        """Look again which version is there now."""
        ...


def _check_range(source: Source, offset: int, length: int) -> None:
    size = source.size()
    if offset < 0 or length < 0 or offset + length > size:
        raise TruncatedError(
            f"{source.url} @{offset}: {length} bytes are wanted, the object ends after {size}"
        )


class MemorySource:
    """Bytes at hand."""

    is_local = True
    storage: Storage | None = None

    def __init__(self, data: bytes | Bytes1D, url: str = "memory") -> None:
        self.url = url
        self._view = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data

    def pin(self) -> Pin:
        return Pin(size=len(self._view))

    refresh = pin

    def size(self) -> int:
        return len(self._view)

    def read(self, offset: int, length: int) -> Bytes1D:
        _check_range(self, offset, length)
        return self._view[offset : offset + length]


class FileSource:
    """A local file, mapped into memory: reading is a slice."""

    is_local = True
    storage: Storage | None = None

    def __init__(self, path: str) -> None:
        self.url = path
        with _file_errors(path), Path(path).open("rb") as file:
            self._pin = _file_pin(os.fstat(file.fileno()))
            # an empty file cannot be mapped
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._pin.size else b""
        self.token = object()
        """Stands for the file as it was opened, in keys of what is kept of it."""
        self._mapped = mapped
        self._view = np.frombuffer(mapped, np.uint8)

    def pin(self) -> Pin:
        return self._pin

    def refresh(self) -> Pin:
        with _file_errors(self.url):
            return _file_pin(os.stat(self.url))  # noqa: PTH116 - half the cost of Path.stat, once a read

    def size(self) -> int:
        return self._pin.size

    def read(self, offset: int, length: int) -> Bytes1D:
        _check_range(self, offset, length)
        return self._view[offset : offset + length]

    def release(self) -> None:
        """Hand back pages that were read: they count as this process' memory. Views stay valid."""
        if isinstance(self._mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


@contextmanager
def _file_errors(path: str) -> Iterator[None]:
    """Keep built-in errors that say it all, name the path in the others."""
    try:
        yield
    except FileNotFoundError as e:
        raise FileNotFoundError(f"{path}: no such file or directory") from e
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror or e}") from e


def _file_pin(stat: os.stat_result) -> Pin:
    return Pin(size=stat.st_size, mtime_ns=stat.st_mtime_ns)


class ObjectSource:
    """An object of a remote store. The first request brings its head, size and etag at once."""

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
        import obstore

        with _remote_errors(self.url):
            try:
                got = obstore.get(
                    self._store, self._path, options={"range": (0, limits.get().head_bytes)}
                )
                return _object_pin(got.meta), np.frombuffer(got.bytes(), np.uint8)
            except obstore.exceptions.GenericError:
                # an empty object has no range to give; of a small one some servers give it whole
                meta = obstore.head(self._store, self._path)
                if meta["size"] > limits.get().head_bytes:
                    raise
                if not meta["size"]:
                    return _object_pin(meta), np.empty(0, np.uint8)
                got = obstore.get(self._store, self._path)
                return _object_pin(got.meta), np.frombuffer(got.bytes(), np.uint8)

    @property
    def head_length(self) -> int:
        """How many bytes from the start are at hand."""
        return len(self._head)

    def pin(self) -> Pin:
        return self._first()

    def refresh(self) -> Pin:
        import obstore

        with _remote_errors(self.url):
            return _object_pin(obstore.head(self._store, self._path))

    def size(self) -> int:
        return self._first().size

    def read(self, offset: int, length: int) -> Bytes1D:
        import obstore

        _check_range(self, offset, length)
        if offset + length <= len(self._head) or not length:
            return self._head[offset : offset + length]
        with _remote_errors(self.url):
            got = obstore.get(self._store, self._path, options=self._range(offset, length))
            return self._checked(got, got.bytes(), offset, length)

    def _range(self, offset: int, length: int) -> "GetOptions":
        """Ask for a range; for all there is without one, which some servers do not take."""
        is_whole = offset == 0 and self._pin is not None and length == self._pin.size
        return {} if is_whole else {"range": (offset, offset + length)}

    async def fetch(self, offset: int, length: int) -> Bytes1D:
        """Read as `read` does, without blocking the event loop."""
        import obstore

        with _remote_errors(self.url):
            got = await obstore.get_async(
                self._store, self._path, options=self._range(offset, length)
            )
            return self._checked(got, await got.bytes_async(), offset, length)

    def _checked(self, got: "GetResult", data: Any, offset: int, length: int) -> Bytes1D:
        """Every answer tells which version it comes from: no request is spent on asking."""
        now = _object_pin(got.meta)
        change = self._pin.differs(now) if self._pin else None
        if change:
            report_change(self.url, change, self._on_change)
        if self._pin is None or change:
            self._pin = now
        view = np.frombuffer(data, np.uint8)
        if len(view) != length:
            raise TruncatedError(
                f"{self.url} @{offset}: the server gave {len(view)} bytes, {length} were asked for"
            )
        return view


@contextmanager
def _remote_errors(url: str) -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except AnychunkError:
        raise
    except FileNotFoundError as e:
        raise FileNotFoundError(f"{url}: no such object") from e
    except (BaseError, OSError) as e:
        # obstore appends a dump of its internals, which may hold more than the user should see
        raise SourceError(f"{url}: {first_line(e)}") from e


def first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def _object_pin(meta: Mapping[str, Any]) -> Pin:
    changed = meta["last_modified"]
    return Pin(
        size=meta["size"], etag=meta["e_tag"], mtime_ns=int(changed.timestamp()) * 1_000_000_000
    )


def is_remote(url: str) -> bool:
    """Whether `url` has a scheme other than file. One letter before the colon is a drive."""
    scheme = urlsplit(url).scheme
    return len(scheme) > 1 and scheme != "file"


def local_path(url: str) -> str:
    """Give the path of a local url."""
    return unquote(urlsplit(url).path) if url.startswith("file:") else url


def object_store(url: str, storage: Storage | None = None) -> "tuple[ObjectStore, str]":
    """Split a url into the store of its host or bucket and the path there."""
    if storage and "resolve" in storage:
        return cast("tuple[ObjectStore, str]", storage["resolve"](url))
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    path = unquote(parts.path).lstrip("/")
    if parts.scheme == "memory":
        return memory_store(parts.netloc), path
    if parts.query and parts.scheme in ("http", "https"):
        raise UnsupportedError(
            f"{url.partition('?')[0]}: urls with a query are not opened; give a plain one"
        )
    return _remote_store(root, _frozen(storage or {}), limits.get()), path


type Frozen = tuple[tuple[str, Any], ...]


def _frozen(options: Mapping[str, Any]) -> Frozen:
    """Give options as a key: those of the client are a mapping themselves."""
    pairs = ((k, _frozen(v) if isinstance(v, Mapping) else v) for k, v in options.items())
    return tuple(sorted(pairs, key=lambda pair: str(pair[0])))


@lru_cache(maxsize=64)
def _remote_store(root: str, options: Frozen, bounds: limits.Limits) -> "ObjectStore":
    import obstore

    retry = {
        "max_retries": bounds.retries,
        "retry_timeout": timedelta(seconds=bounds.retry_s),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=5),
            "base": 2,
        },
    }
    settings: dict[str, Any] = dict(options)
    client = {"allow_http": root.startswith("http:"), **dict(settings.pop("client_options", ()))}
    try:
        from_url: Any = obstore.store.from_url  # its overloads are one a kind of store
        return cast(
            "ObjectStore", from_url(root, client_options=client, retry_config=retry, **settings)
        )
    except Exception as e:
        raise UnsupportedError(
            f"{root}: {first_line(e)}; opened: s3 gs az http https memory file"
        ) from e


@lru_cache(maxsize=64)
def memory_store(name: str) -> "MemoryStore":
    """Give the in-process store behind `memory://name/…`."""
    from obstore.store import MemoryStore

    return MemoryStore()


def open_source(url: str, *, storage: Storage | None = None) -> Source:
    """Open one object for reading."""
    if is_remote(url):
        return ObjectSource(url, storage=storage)
    return FileSource(local_path(url))


def read_object(url: str, *, storage: Storage | None = None) -> Bytes1D | None:
    """Read a whole object, or give None where there is none: chunks that are one object each."""
    if is_remote(url):
        return _read_remote_object(url, storage)
    return ObjectBuffer(limits.get().chunk_bytes).read(local_path(url))


class ObjectBuffer:
    """Reads local files whole, one after the other, into the same memory."""

    def __init__(self, most: int | None = None, reused: Bytes1D | None = None) -> None:
        self._most = most
        self._memory = np.empty(0, np.uint8) if reused is None else reused

    def read(self, path: str) -> Bytes1D | None:
        """Give the bytes of a file until the next one is read, or None where there is none."""
        try:
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as e:
            raise SourceError(f"{path}: {e.strerror or e}") from e
        try:
            return self._fill(handle, path)
        except OSError as e:
            raise SourceError(f"{path}: {e.strerror or e}") from e
        finally:
            os.close(handle)

    def _fill(self, handle: int, path: str) -> Bytes1D:
        size = os.fstat(handle).st_size
        if self._most is not None and size > self._most:
            raise LimitError(f"{path}: {size} bytes are over the limit of {self._most}")
        if len(self._memory) < size:
            self._memory = memory.aligned(size)
        target = self._memory[:size]
        filled = 0
        while filled < size:
            count = os.readv(handle, [memoryview(target)[filled:]])
            if not count:
                raise TruncatedError(f"{path}: ends after {filled} bytes of {size}")
            filled += count
        return target


def _read_remote_object(url: str, storage: Storage | None) -> Bytes1D | None:
    import obstore

    store, path = object_store(url, storage)
    try:
        with _remote_errors(url):
            return np.frombuffer(obstore.get(store, path).bytes(), np.uint8)
    except FileNotFoundError:
        return None


class Sources:
    """Open sources by url, each held against its pin before the first byte is read."""

    def __init__(
        self,
        pins: Mapping[str, Pin],
        *,
        storage: Storage | None = None,
        on_change: OnChange = "error",
    ) -> None:
        self.pins = pins
        self.storage = storage
        self.on_change: OnChange = on_change
        self._open: dict[str, Source] = {}

    def open(self, url: str) -> Source:
        source = self._open.get(url)
        if source is None:
            pin = self.pins.get(url)
            if is_remote(url):
                # with a pin no request is spent here: every answer is held against it
                source = ObjectSource(url, storage=self.storage, pin=pin, on_change=self.on_change)
            else:
                source = FileSource(local_path(url))
                self._check(url, pin, source.pin())
            # two threads may come here at once; either source serves
            self._open[url] = source
        return source

    def verify(self, url: str) -> Source:
        """Open, and look whether a local file was changed since; remote answers tell themselves."""
        source = self.open(url)
        if isinstance(source, FileSource):
            self._check(url, source.pin(), source.refresh())
        return self.open(url)

    def _check(self, url: str, pin: Pin | None, now: Pin) -> None:
        change = pin.differs(now) if pin else None
        if change:
            # what was mapped is the file as it was
            self._open.pop(url, None)
            report_change(url, change, self.on_change)

    def release(self) -> None:
        """Hand back the pages of every local file that is open."""
        for source in list(self._open.values()):
            if isinstance(source, FileSource):
                source.release()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": {}}


class Blocks:
    """A source behind a bounded cache of aligned blocks, for parsers that read here and there."""

    is_local = False

    def __init__(self, source: Source, *, block: int = 64 * limits.KIB, most: int = 1024) -> None:
        self._source, self._block, self._most = source, block, most
        self._cache: dict[int, Bytes1D] = {}
        self.url = source.url
        self.storage = source.storage

    def pin(self) -> Pin:
        return self._source.pin()

    def refresh(self) -> Pin:
        return self._source.refresh()

    def size(self) -> int:
        return self._source.size()

    def read(self, offset: int, length: int) -> Bytes1D:
        _check_range(self, offset, length)
        if isinstance(self._source, ObjectSource) and offset + length <= self._source.head_length:
            return self._source.read(offset, length)  # no request: it came with the first
        first, last = offset // self._block, -(-(offset + length) // self._block)
        missing = [i for i in range(first, last) if i not in self._cache]
        for start, stop in _runs(missing):
            begin = start * self._block
            end = min(stop * self._block, self.size())
            data = self._source.read(begin, end - begin)
            for i in range(start, stop):
                self._cache[i] = data[(i - start) * self._block : (i - start + 1) * self._block]
        blocks = [self._cache[i] for i in range(first, last)]
        joined = blocks[0] if len(blocks) == 1 else np.concatenate([np.empty(0, np.uint8), *blocks])
        while len(self._cache) > self._most:
            self._cache.pop(next(iter(self._cache)))
        return joined[offset - first * self._block :][:length]


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Join consecutive numbers into half-open runs."""
    runs: list[tuple[int, int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n:
            runs[-1] = (runs[-1][0], n + 1)
        else:
            runs.append((n, n + 1))
    return runs


def buffered(source: Source) -> Source:
    """Give what a parser should read through: remote objects by cached blocks."""
    return source if source.is_local else Blocks(source)


class Folder:
    """A directory, or a prefix of an object store, whose objects are read by name."""

    def __init__(self, url: str, *, storage: Storage | None = None) -> None:
        self.url = url.rstrip("/") or url
        self.storage = storage
        self.is_local = not is_remote(url)
        self.path = local_path(self.url) if self.is_local else self.url

    def child(self, name: str) -> "Folder":
        made = Folder.__new__(Folder)  # what is known of the parent need not be found out again
        made.url = made.path = f"{self.path}/{name}"
        made.storage, made.is_local = self.storage, self.is_local
        return made

    def source(self, name: str) -> Source:
        """Open an object below this folder; FileNotFoundError where there is none."""
        return open_source(f"{self.path}/{name}", storage=self.storage)

    def read(self, name: str) -> bytes | None:
        """Give a small object as bytes, or None where there is none."""
        if self.is_local:
            path = f"{self.path}/{name}"
            data = ObjectBuffer(limits.get().header_bytes).read(path)
            return None if data is None else data.tobytes()
        try:
            source = self.source(name)
            size = source.size()
        except (FileNotFoundError, NotADirectoryError):
            return None
        limits.check_header(size, where=f"{self.path}/{name}")
        return source.read(0, size).tobytes()

    def names(self) -> tuple[list[str], list[str]]:
        """List (folders, objects) directly below, sorted."""
        return self._local_names() if self.is_local else self._remote_names()

    def _local_names(self) -> tuple[list[str], list[str]]:
        with _file_errors(self.path), os.scandir(self.path) as entries:
            found = [(entry.is_dir(), entry.name) for entry in entries]
        return sorted(n for d, n in found if d), sorted(n for d, n in found if not d)

    def _remote_names(self) -> tuple[list[str], list[str]]:
        import obstore

        store, path = object_store(self.url, self.storage)
        if urlsplit(self.url).scheme in ("http", "https"):
            raise UnsupportedError(f"{self.url}: a web server does not list its folders")
        with _remote_errors(self.url):
            found = obstore.list_with_delimiter(store, path)
        folders = [posixpath.basename(str(p).rstrip("/")) for p in found["common_prefixes"]]
        objects = [posixpath.basename(str(o["path"])) for o in found["objects"]]
        return sorted(folders), sorted(objects)


def list_objects(url: str, *, storage: Storage | None = None) -> Iterator[tuple[str, int]]:
    """Yield (path below, size) of every object below a folder."""
    root = url.rstrip("/")
    if not is_remote(root):
        yield from _list_files(local_path(root))
        return
    import obstore

    if urlsplit(root).scheme in ("http", "https"):
        raise UnsupportedError(f"{root}: a web server does not list its folders")
    store, path = object_store(root, storage)
    start = f"{path}/" if path else ""
    with _remote_errors(root):
        for batch in obstore.list(store, path or None):
            for entry in batch:
                yield str(entry["path"]).removeprefix(start), entry["size"]


def _list_files(root: str) -> Iterator[tuple[str, int]]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 - a call an object
            yield os.path.relpath(path, root), os.stat(path).st_size  # noqa: PTH116


def resolve(base: str, reference: str, *, allow: Iterable[str] = ()) -> str:
    """Give the url of `reference` as named by a file in the folder `base`; it may not leave it.

    `allow` lists folders, as paths or urls, that it may lead to as well.
    """
    name = reference.replace("\\", "/")
    is_absolute = is_remote(name) or name.startswith(("file:", "/"))
    url = _normal(name) if is_absolute else _normal(f"{base.rstrip('/') or '/'}/{name}")
    is_outside = "\0" in name or is_absolute or ".." in name.split("/")
    leaves = is_outside or not _is_inside(base, url)
    if "\0" in name or (leaves and not any(_is_below(folder, url) for folder in allow)):
        raise FormatError(
            f"{base}: the reference {reference!r} leaves the folder of the file that names it; "
            "allow it explicitly to follow it"
        )
    return url


def _normal(url: str) -> str:
    """Take `.` and `..` out of a path or of a url's path."""
    if not is_remote(url):
        return posixpath.normpath(local_path(url))
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}://{host}{posixpath.normpath(f'/{path}')}"


def _is_below(folder: str, url: str) -> bool:
    root = _normal(folder).rstrip("/")
    return url == root or url.startswith(f"{root}/")


def _is_inside(base: str, url: str) -> bool:
    """Whether a local path stays below `base` when links are followed."""
    if is_remote(base):
        return True
    root = os.path.realpath(local_path(base))
    return os.path.commonpath([root, os.path.realpath(local_path(url))]) == root
