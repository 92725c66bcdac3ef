"""Open and create Icechunk repositories, and turn Icechunk's errors into ours."""

import math
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from anychunk.errors import AnychunkError, MissingDependencyError, SourceError
from anychunk.io.folder import Folder
from anychunk.io.source import Storage
from anychunk.io.url import absolute, file_url, is_remote
from anychunk.model.grid import Shape
from anychunk.references.chunk_references import References, used_urls
from anychunk.references.icechunk.repo_file import check_repo_file
from anychunk.references.icechunk.storage import (
    container_store,
    repository_storage,
)
from anychunk.references.urls import folder_of

BRANCH = "main"
MANIFEST_CHUNKS = 60_000
"""How many chunks one manifest describes; Icechunk builds a whole manifest in memory."""
GROWING_CHUNKS = 16_384
"""How many chunks one manifest of a growing array describes: each commit writes the last again."""
MOST_CONTAINERS = 100
"""Up to this number of new local folders, each has a virtual chunk container of its own."""
SNAPSHOT_NODES = 100_000_000
"""How many nodes Icechunk's cache of snapshots holds. A snapshot that does not fit, by default one
of half a million nodes, would be read again whenever a single node is asked for."""
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


def writable_repository(
    ice: Any,
    target: str,
    found: References,
    storage: Storage | None,
    target_storage: Storage | None,
    *,
    along: str | int | None = None,
    opened: Any = None,
) -> Any:
    """Open or create a repository, with a virtual chunk container for every source.

    Parameters:
        ice: The module icechunk.
        target: The repository.
        found: The references that will be written.
        storage: Of the sources.
        target_storage: Of the repository.
        along: The axis along which the arrays of a new repository will grow, by name or number.
        opened: The repository, if it was opened before.
    """
    if opened is None:
        check_repo_file(Folder(target, storage=target_storage))
    prefixes = sorted({_container_prefix(absolute(url)) for url in used_urls(found)})
    place = repository_storage(ice, target, target_storage) if opened is None else None
    if opened is not None or ice.Repository.exists(place):
        repository = opened or ice.Repository.open(place)
        config = repository.config
        known = tuple(config.virtual_chunk_containers or {})
        prefixes = [prefix for prefix in prefixes if not prefix.startswith(known)]
        if not prefixes:
            return repository if opened is not None else _without_cache(ice, repository)
        config.caching = _saved_caching(ice)  # not how this process reads
    else:
        repository, config = None, _new_config(ice, found, along)
    for prefix in _few(prefixes):
        store = container_store(ice, prefix, storage)
        config.set_virtual_chunk_container(ice.VirtualChunkContainer(prefix, store))
    if repository is None:
        repository = ice.Repository.create(place, config=config)
    else:
        repository = repository.reopen(config=config)
    repository.save_config()
    return _without_cache(ice, repository)


def _saved_caching(ice: Any) -> Any:
    """Return the caches that every reader of a repository gets by default."""
    return ice.CachingConfig(num_snapshot_nodes=SNAPSHOT_NODES)


def _without_cache(ice: Any, repository: Any) -> Any:
    """Return a repository that keeps no manifests in memory: a writer reads each at most once."""
    return repository.reopen(config=_own_caching(ice))


def _own_caching(ice: Any) -> Any:
    caching = ice.CachingConfig(num_chunk_refs=0, num_snapshot_nodes=SNAPSHOT_NODES)
    return ice.RepositoryConfig(caching=caching)


def _few(prefixes: list[str]) -> list[str]:
    """Return prefixes, or if there are very many local folders, the folder around them."""
    local = [prefix for prefix in prefixes if prefix.startswith("file://")]
    if len(local) <= MOST_CONTAINERS:
        return prefixes
    around = posixpath.commonpath([prefix.removeprefix("file://") for prefix in local])
    others = [prefix for prefix in prefixes if not prefix.startswith("file://")]
    return [*others, f"file://{around.rstrip('/')}/"]


def _new_config(ice: Any, found: References, along: str | int | None) -> Any:
    config = ice.RepositoryConfig.default()
    config.caching = _saved_caching(ice)
    size = chunks_per_manifest(references.grid for _, references in found.values())
    any_array, any_axis = (
        ice.ManifestSplitCondition.AnyArray(),
        ice.ManifestSplitDimCondition.Any(),
    )
    splitting: dict[Any, Any] = {}
    for path, (array, references) in found.items():
        if along is None:
            break
        axis = along if isinstance(along, int) else _number(array.dimension_names, along)
        if axis is None or not references.grid:
            continue
        others = math.prod(references.grid) // max(1, references.grid[axis])
        is_this = ice.ManifestSplitCondition.path_matches(f"^/{re.escape(path)}$")
        is_axis = ice.ManifestSplitDimCondition.Axis(axis)
        splitting[is_this] = {is_axis: max(1, GROWING_CHUNKS // max(1, others))}
    splitting[any_array] = {any_axis: size}
    config.manifest = ice.ManifestConfig(
        splitting=ice.ManifestSplittingConfig.from_dict(splitting),
        virtual_chunk_location_compression=ice.ManifestVirtualChunkLocationCompressionConfig(
            min_num_chunks=NO_LOCATION_COMPRESSION
        ),
    )
    return config


def _number(names: Sequence[str | None], along: str) -> int | None:
    return list(names).index(along) if along in names else None


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
    return file_url(f"{folder_of(url).rstrip('/')}/", is_quoted=False)


def readonly_store(  # noqa: PLR0917 - the callers have all of them at hand
    ice: Any,
    url: str,
    storage: Storage | None,
    branch: str,
    tag: str | None,
    snapshot: str | None = None,
) -> Any:
    """Open the store of a branch, a tag or a snapshot for reading."""
    check_repo_file(Folder(url, storage=storage))
    # every manifest is read once: caching them would only use memory
    place, config = repository_storage(ice, url, storage), _own_caching(ice)
    repository = ice.Repository.open(place, config=config)
    if snapshot is not None:
        return repository.readonly_session(snapshot_id=snapshot).store
    session = repository.readonly_session(tag=tag) if tag else repository.readonly_session(branch)
    return session.store
