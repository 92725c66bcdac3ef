"""Icechunk's repositories: opened, created, and read; its errors named by where they came from."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from anychunk.errors import AnychunkError, MissingDependencyError, SourceError
from anychunk.io import Storage, absolute, is_remote
from anychunk.references.icechunk.credentials import (
    container_store,
    containers_access,
    repository_storage,
)
from anychunk.references.places import folder_of
from anychunk.references.tables import Tables, used_urls

BRANCH = "main"
MANIFEST_CHUNKS = 60_000
"""Chunks in one manifest: what Icechunk holds in memory at once while it writes."""
NEVER = 65_535
"""Chunks from which on Icechunk compresses each location by itself, which takes half of the time of
a save; locations of a few files go away when the manifest as a whole is compressed."""


def icechunk_module() -> Any:
    try:
        import icechunk
    except ImportError as e:
        raise MissingDependencyError(
            "an Icechunk repository needs icechunk; "
            'install it with: pip install "anychunk[icechunk]"'
        ) from e
    icechunk.set_logs_filter("error")
    return icechunk


@contextmanager
def icechunk_errors(ice: Any, where: str) -> Iterator[None]:
    """Name the repository in errors of Icechunk."""
    try:
        yield
    except AnychunkError:
        raise
    except ice.IcechunkError as e:
        text = " ".join(str(e).split())
        raise SourceError(f"{where}: Icechunk: {text[:300]}") from e


def repository_of(ice: Any, target: str, found: Tables, storage: Storage | None) -> Any:
    """Open or create the repository, with a container for every place that is referred to."""
    place = repository_storage(ice, target, storage)
    prefixes = sorted({_container(absolute(url)) for url in used_urls(found)})
    if ice.Repository.exists(place):
        repository = ice.Repository.open(place)
        config = repository.config
        known = config.virtual_chunk_containers or {}
        if all(prefix in known for prefix in prefixes):
            return repository
    else:
        repository, config = None, ice.RepositoryConfig.default()
        split = ice.ManifestSplittingConfig.from_dict(
            {
                ice.ManifestSplitCondition.AnyArray(): {
                    ice.ManifestSplitDimCondition.Any(): per_manifest(
                        t.grid for _, t in found.values()
                    )
                }
            }
        )
        plain = ice.ManifestVirtualChunkLocationCompressionConfig(min_num_chunks=NEVER)
        config.manifest = ice.ManifestConfig(
            splitting=split, virtual_chunk_location_compression=plain
        )
    for prefix in prefixes:
        store = container_store(ice, prefix, storage)
        config.set_virtual_chunk_container(ice.VirtualChunkContainer(prefix, store))
    if repository is None:
        repository = ice.Repository.create(place, config=config)
    else:
        repository = repository.reopen(config=config)
    repository.save_config()
    return repository


def per_manifest(grids: Iterable[tuple[int, ...]]) -> int:
    """Give how many chunks along each axis share a manifest."""
    axes = max((sum(n > 1 for n in grid) for grid in grids), default=1)
    return max(1, round(float(MANIFEST_CHUNKS ** (1 / max(axes, 1)))))


def _container(url: str) -> str:
    """Give the prefix that a url is read under: its bucket, host or folder.

    Icechunk compares it with references after it took the escapes out of those, so it has none.
    """
    if is_remote(url):
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc}/"
    return f"file://{folder_of(url).rstrip('/')}/"


def read_store(ice: Any, url: str, storage: Storage | None, branch: str, tag: str | None) -> Any:
    # each manifest is read once: a cache of them would only hold memory
    config = ice.RepositoryConfig(caching=ice.CachingConfig(num_chunk_refs=0))
    repository = ice.Repository.open(repository_storage(ice, url, storage), config=config)
    session = repository.readonly_session(tag=tag) if tag else repository.readonly_session(branch)
    return session.store


def open_repository(url: str, *, storage: Storage | None = None) -> Any:
    """Open a repository of ours for Icechunk's own reading, its containers authorized."""
    ice = icechunk_module()
    place = repository_storage(ice, absolute(url), storage)
    config = ice.Repository.fetch_config(place)
    known = (config.virtual_chunk_containers if config else None) or {}
    access = containers_access(ice, known, storage)
    return ice.Repository.open(place, authorize_virtual_chunk_access=access)
