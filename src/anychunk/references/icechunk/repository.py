"""Open and create Icechunk repositories, and turn Icechunk's errors into ours."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from anychunk.errors import AnychunkError, MissingDependencyError, SourceError
from anychunk.io import Storage, absolute, is_remote
from anychunk.model.grid import Shape
from anychunk.references.chunk_references import References, used_urls
from anychunk.references.icechunk.storage import (
    container_store,
    containers_access,
    repository_storage,
)
from anychunk.references.urls import folder_of

BRANCH = "main"
MANIFEST_CHUNKS = 60_000
"""How many chunks one manifest describes; Icechunk builds a whole manifest in memory."""
NO_LOCATION_COMPRESSION = 65_535
"""Number of chunks from which on Icechunk compresses each location separately; the maximum.

That would take half of the time of a save and gain nothing: the manifest as a whole is compressed
too, and its locations are those of a few files."""


def icechunk_module() -> Any:
    """Import and return icechunk, with its log messages below errors switched off."""
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
    """Convert Icechunk's errors to `SourceError`, naming the repository."""
    try:
        yield
    except AnychunkError:
        raise
    except ice.IcechunkError as e:
        text = " ".join(str(e).split())
        raise SourceError(f"{where}: Icechunk: {text[:300]}") from e


def writable_repository(ice: Any, target: str, found: References, storage: Storage | None) -> Any:
    """Open or create a repository, with a virtual chunk container for every source."""
    place = repository_storage(ice, target, storage)
    prefixes = sorted({_container_prefix(absolute(url)) for url in used_urls(found)})
    if ice.Repository.exists(place):
        repository = ice.Repository.open(place)
        config = repository.config
        known = config.virtual_chunk_containers or {}
        if all(prefix in known for prefix in prefixes):
            return repository
    else:
        repository, config = None, _new_config(ice, found)
    for prefix in prefixes:
        store = container_store(ice, prefix, storage)
        config.set_virtual_chunk_container(ice.VirtualChunkContainer(prefix, store))
    if repository is None:
        repository = ice.Repository.create(place, config=config)
    else:
        repository = repository.reopen(config=config)
    repository.save_config()
    return repository


def _new_config(ice: Any, found: References) -> Any:
    config = ice.RepositoryConfig.default()
    size = chunks_per_manifest(references.grid for _, references in found.values())
    every_array, every_axis = (
        ice.ManifestSplitCondition.AnyArray(),
        ice.ManifestSplitDimCondition.Any(),
    )
    config.manifest = ice.ManifestConfig(
        splitting=ice.ManifestSplittingConfig.from_dict({every_array: {every_axis: size}}),
        virtual_chunk_location_compression=ice.ManifestVirtualChunkLocationCompressionConfig(
            min_num_chunks=NO_LOCATION_COMPRESSION
        ),
    )
    return config


def chunks_per_manifest(grids: Iterable[Shape]) -> int:
    """Return how many chunks along each axis share a manifest."""
    axes = max((sum(n > 1 for n in grid) for grid in grids), default=1)
    return max(1, round(float(MANIFEST_CHUNKS ** (1 / max(axes, 1)))))


def _container_prefix(url: str) -> str:
    """Return the prefix under which a url is read: its bucket, host or folder.

    It is not percent-encoded: Icechunk decodes references before it compares them with it.
    """
    if is_remote(url):
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc}/"
    return f"file://{folder_of(url).rstrip('/')}/"


def readonly_store(
    ice: Any, url: str, storage: Storage | None, branch: str, tag: str | None
) -> Any:
    """Open the store of a branch, or of a tag, for reading."""
    # every manifest is read once: caching them would only use memory
    config = ice.RepositoryConfig(caching=ice.CachingConfig(num_chunk_refs=0))
    repository = ice.Repository.open(repository_storage(ice, url, storage), config=config)
    session = repository.readonly_session(tag=tag) if tag else repository.readonly_session(branch)
    return session.store


def open_repository(url: str, *, storage: Storage | None = None) -> Any:
    """Open a repository as an `icechunk.Repository` that may read the sources it refers to."""
    ice = icechunk_module()
    place = repository_storage(ice, absolute(url), storage)
    config = ice.Repository.fetch_config(place)
    known = (config.virtual_chunk_containers if config else None) or {}
    access = containers_access(ice, known, storage)
    return ice.Repository.open(place, authorize_virtual_chunk_access=access)
