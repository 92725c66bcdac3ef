"""obstore's stores, one per host or bucket and set of options."""

import os
import re
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from anychunk import limits
from anychunk.errors import AnychunkError, UnsupportedError
from anychunk.io.errors import first_line, what_to_do
from anychunk.io.forking import Lock
from anychunk.io.http import basic, is_restricted
from anychunk.io.source import WEB, Storage, signed_of, with_query, with_secrets
from anychunk.io.storage import OWN, obstore_options, options_of

if TYPE_CHECKING:
    from obstore.store import MemoryStore, ObjectStore

MOST_STORES = 64
ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
"""Prefixes of the variables that obstore reads when it makes a store."""
SCHEMES = ("s3", "gs", "az", "http", "https", "abfs", "memory", "file")
OF_ANY_STORE = {"client_options", "retry_config", "headers", *OWN}
"""Options that say nothing about a cloud."""
S3_HOST = re.compile(
    r"(?:(?P<bucket>.+)\.)?s3[.-](?:dualstack\.)?(?:(?P<region>[a-z0-9-]+)\.)?amazonaws\.com(?:\.cn)?"
)
AZURE_HOST = re.compile(r"(?P<account>[a-z0-9]+)\.(?:blob|dfs)\.core\.windows\.net")


def object_store(url: str, storage: Storage | None = None) -> "tuple[ObjectStore, str]":
    """Split a url into the store of its host or bucket and the path in it."""
    given = options_of(storage)
    if "resolve" in given:
        return cast("tuple[ObjectStore, str]", given["resolve"](url))
    if "filesystem" in given:
        raise UnsupportedError(
            f"{url}: an fsspec filesystem only reads files; write and list with obstore's options"
        )
    if is_restricted(url, storage):
        raise UnsupportedError(
            f"{url}: cannot be read while redirects are restricted, because obstore follows them"
        )
    full = signed_url(url, given)
    parts = urlsplit(full)
    path = unquote(parts.path).lstrip("/")
    if parts.scheme == "memory":
        return memory_store(parts.netloc), path
    if parts.scheme not in WEB:
        options = obstore_options(parts.scheme, given, url)
        return _stores.get(f"{parts.scheme}://{parts.netloc}", options, is_web=False), path
    if full == url and (found := _cloud(parts.netloc, path, set(given) - OF_ANY_STORE)):
        scheme, bucket, path, known = found
        options = {**known, **obstore_options(scheme, given, url)}
        return _stores.get(f"{scheme}://{bucket}", options, is_web=False), path
    host = parts.netloc.rpartition("@")[2]
    if parts.username is not None:  # obstore ignores it
        header = {"Authorization": basic(parts.username, parts.password)}
        given = {**given, "headers": {**header, **dict(given.get("headers") or {})}}
    options = obstore_options(parts.scheme, given, url)
    if unknown := set(options) - OF_ANY_STORE:
        raise UnsupportedError(
            f"{url}: storage options {' '.join(sorted(map(str, unknown)))} have no effect on a web "
            "server; it takes client_options, retry_config, headers, query and sign"
        )
    root = f"{parts.scheme}://{host}/{f'?{parts.query}' if parts.query else ''}"
    return _stores.get(root, options, is_web=True), path


def signed_url(url: str, options: Mapping[str, Any]) -> str:
    """Return a url with what grants access to it: as it was opened, or as the options say."""
    if sign := options.get("sign"):
        return str(sign(url))
    if urlsplit(url).scheme not in WEB:
        return url
    return with_query(with_secrets(url, signed_of(options)), options.get("query"))


def _cloud(host: str, path: str, wanted: set[str]) -> tuple[str, str, str, dict[str, Any]] | None:
    """Return scheme, bucket, path and options of a https url of S3 or Azure with credentials.

    None: it is read like any other web server's. That is what public data needs: it must not be
    signed, and there may be no credentials to sign with.
    """
    if found := S3_HOST.fullmatch(host):
        if not wanted and "AWS_ACCESS_KEY_ID" not in os.environ:
            return None
        bucket, key = found["bucket"], path
        if bucket is None:
            bucket, _, key = path.partition("/")
        region = {"region": found["region"]} if found["region"] else {}
        return "s3", bucket, key, region
    if found := AZURE_HOST.fullmatch(host):
        if not wanted and not any(name.startswith("AZURE_") for name in os.environ):
            return None
        container, _, key = path.partition("/")
        return "az", container, key, {"account_name": found["account"]}
    return None


class _Stores:
    """The stores that were made last, by root and options. Thread-safe.

    The environment is part of the key: credentials that are set later make another store.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: OrderedDict[Hashable, tuple[ObjectStore, Mapping[str, Any]]] = OrderedDict()

    def get(self, root: str, options: Mapping[str, Any], *, is_web: bool) -> "ObjectStore":
        bounds = limits.get()
        key = (root, frozen(options), bounds.retries, bounds.retry_s, _environment())
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key][0]
        store = _new_store(root, options, bounds, is_web=is_web)
        with self._lock:
            # with the options: the key may contain the address of one of them
            self._made[key] = store, options
            if len(self._made) > MOST_STORES:
                self._made.popitem(last=False)
        return store

    def forget(self, store: "ObjectStore") -> None:
        """Drop a store that failed: files of credentials may have changed since it was made."""
        with self._lock:
            for key in [key for key, (made, _) in self._made.items() if made is store]:
                del self._made[key]


_stores = _Stores()
forget_store = _stores.forget


def _environment() -> int:
    """Return a number that changes when a variable does that obstore reads."""
    return hash(tuple((k, v) for k, v in os.environ.items() if k.upper().startswith(ENVIRONMENT)))


def frozen(value: Any) -> Hashable:
    """Return options as a hashable key; those that cannot be hashed by their address."""
    if isinstance(value, Mapping):
        pairs = ((str(k), frozen(v)) for k, v in value.items())
        return tuple(sorted(pairs, key=lambda pair: pair[0]))
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return cast("Hashable", value)


def _new_store(
    root: str, options: Mapping[str, Any], bounds: limits.Limits, *, is_web: bool
) -> "ObjectStore":
    import obstore
    from obstore.store import HTTPStore

    settings: dict[str, Any] = dict(options)
    retry = {
        "max_retries": bounds.retries,
        "retry_timeout": timedelta(seconds=bounds.retry_s),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=5),
            "base": 2,
        },
        **dict(settings.pop("retry_config", None) or {}),
    }
    given = dict(settings.pop("client_options", None) or {})
    client: dict[str, Any] = {"allow_http": _is_plain(root, settings), **given}
    # obstore has one overload per kind of store
    from_url: Any = HTTPStore.from_url if is_web else obstore.store.from_url
    shown = root.partition("?")[0]
    known = "" if root.partition(":")[0] in SCHEMES else f"; supported: {' '.join(SCHEMES)}"
    try:
        made = from_url(root, client_options=client, retry_config=retry, **settings)
    except AnychunkError:
        raise
    except Exception as e:
        raise UnsupportedError(f"{shown}: {first_line(e)}{what_to_do(e)}{known}") from e
    return cast("ObjectStore", made)


def _is_plain(root: str, settings: Mapping[str, Any]) -> bool:
    """Return whether the caller's url or endpoint is http without encryption."""
    endpoints = [v for k, v in settings.items() if str(k).lower().endswith(("endpoint", "_url"))]
    names: tuple[str, ...] = ()
    if root.startswith("s3"):
        names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    elif root.startswith(("az", "abfs")):
        names = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
    endpoints += [os.environ.get(name, "") for name in names]
    return any(str(url).startswith("http:") for url in [root, *endpoints])


def store_of_bytes(data: bytes, name: str) -> "MemoryStore":
    """Return a new in-process store that holds one object."""
    from obstore.store import MemoryStore

    store = MemoryStore()
    store.put(name, data)
    return store


@lru_cache(maxsize=64)
def memory_store(name: str) -> "MemoryStore":
    """Return the in-process store behind `memory://name/…`."""
    from obstore.store import MemoryStore

    return MemoryStore()
