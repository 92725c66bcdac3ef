"""obstore's stores, one per host or bucket and set of options."""

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from anychunk import limits
from anychunk.errors import UnsupportedError
from anychunk.io.errors import first_line
from anychunk.io.http import is_restricted
from anychunk.io.source import Storage

if TYPE_CHECKING:
    from obstore.store import MemoryStore, ObjectStore


def object_store(url: str, storage: Storage | None = None) -> "tuple[ObjectStore, str]":
    """Split a url into the store of its host or bucket and the path in it."""
    if storage and "resolve" in storage:
        return cast("tuple[ObjectStore, str]", storage["resolve"](url))
    parts = urlsplit(url)
    if is_restricted(url, storage):
        raise UnsupportedError(
            f"{url}: cannot be read while redirects are restricted, because obstore follows them"
        )
    root = f"{parts.scheme}://{parts.netloc}"
    path = unquote(parts.path).lstrip("/")
    if parts.scheme == "memory":
        return memory_store(parts.netloc), path
    if parts.query and parts.scheme in ("http", "https"):
        raise UnsupportedError(
            f"{url.partition('?')[0]}: urls with a query string are not supported; "
            "pass the url without it"
        )
    return _remote_store(root, _frozen(storage or {}), limits.get()), path


type Frozen = tuple[tuple[str, Any], ...]


def _frozen(options: Mapping[str, Any]) -> Frozen:
    """Return options as a hashable key; client options are a nested mapping."""
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
    settings.pop("redirects", None)  # a matter of web servers, of `source.http`
    client = {"allow_http": _is_plain(root, settings), **dict(settings.pop("client_options", ()))}
    try:
        from_url: Any = obstore.store.from_url  # it has one overload per kind of store
        return cast(
            "ObjectStore", from_url(root, client_options=client, retry_config=retry, **settings)
        )
    except Exception as e:
        raise UnsupportedError(
            f"{root}: {first_line(e)}; supported: s3 gs az http https memory file"
        ) from e


def _is_plain(root: str, settings: Mapping[str, Any]) -> bool:
    """Return whether the caller's url or endpoint is http without encryption."""
    endpoints = [v for k, v in settings.items() if str(k).lower().endswith(("endpoint", "_url"))]
    if root.startswith("s3"):
        names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
        endpoints += [os.environ.get(name, "") for name in names]
    return any(str(url).startswith("http:") for url in [root, *endpoints])


@lru_cache(maxsize=64)
def memory_store(name: str) -> "MemoryStore":
    """Return the in-process store behind `memory://name/…`."""
    from obstore.store import MemoryStore

    return MemoryStore()
