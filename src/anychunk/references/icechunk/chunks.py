"""The chunks of an array in a repository: virtual references, or bytes that were copied in."""

import math
import posixpath
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from anychunk.errors import AnychunkError, FormatError, MissingDependencyError, SourceError
from anychunk.formats._zarr_metadata import Fields
from anychunk.io.opening import Folder
from anychunk.io.source import Storage, absolute, file_url, is_remote
from anychunk.model.grid import Numbers, Shape, chunk_coords, chunk_key, chunk_numbers, grid_shape
from anychunk.model.index import Uint64
from anychunk.model.pin import Pin
from anychunk.references.chunk_references import ChunkReferences, References, used_urls
from anychunk.references.documents import Rows, joined
from anychunk.references.icechunk.sources import write_keys
from anychunk.references.icechunk.storage import (
    check_repo_file,
    container_store,
    repository_storage,
)
from anychunk.references.urls import folder_of
from anychunk.zarr.core import sync

# Write many references to a repository as one commit, in bounded memory.
#
# Icechunk keeps everything that a session wrote in memory until it is committed. A long save is
# therefore committed piece by piece on a temporary branch; the target branch is moved once, when
# everything is written.

TEMPORARY_BRANCH = "anychunk-saving"
PIECE = 120_000
"""How many references are kept in memory at once."""


class Transaction:
    """Writes to a branch, which does not change before `commit` is called."""

    def __init__(self, repository: Any, branch: str, references: int) -> None:
        """Start a transaction.

        Parameters:
            repository: An `icechunk.Repository`.
            branch: The branch to write to.
            references: About how many references will be written.
        """
        self._repository, self._branch = repository, branch
        self._start = repository.lookup_branch(branch)
        self._is_temporary = references > PIECE
        if self._is_temporary:
            if TEMPORARY_BRANCH in repository.list_branches():
                repository.delete_branch(TEMPORARY_BRANCH)  # left behind by a crash
            repository.create_branch(TEMPORARY_BRANCH, self._start)
        self._uncommitted = 0
        self._session = self._open()

    def _open(self) -> Any:
        branch = TEMPORARY_BRANCH if self._is_temporary else self._branch
        return self._repository.writable_session(branch)

    @property
    def store(self) -> Any:
        """The store to write to; may be replaced by `count_references`."""
        return self._session.store

    def count_references(self, count: int) -> None:
        """Report that `count` references were written; commit a piece if it is large enough."""
        self._uncommitted += count
        if self._is_temporary and self._uncommitted >= PIECE:
            self._session.commit(f"{self._uncommitted} references")
            self._session, self._uncommitted = self._open(), 0

    def commit(self, message: str, statistics: dict[str, Any]) -> str:
        """Commit everything to the branch; return the id of the snapshot.

        Parameters:
            message: The commit message.
            statistics: What the commit records besides its message.
        """
        snapshot = self._session.commit(message, metadata=statistics, allow_empty=True)
        if self._is_temporary:
            # fails if another writer has committed to the branch in the meantime
            self._repository.reset_branch(self._branch, snapshot, from_snapshot_id=self._start)
            self._repository.delete_branch(TEMPORARY_BRANCH)
        return str(snapshot)


# Open and create Icechunk repositories, and turn Icechunk's errors into ours.


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


NATIVE, VIRTUAL, INLINE = 1, 2, 3
"""Icechunk's kinds of chunk, as `array_chunk_iterator` numbers them."""
BATCH = 1 << 16
"""How many chunks are read at once."""


def write_chunks(
    work: Transaction,
    arrays: Mapping[str, tuple[ChunkReferences, Shape]],
    pins: Mapping[str, Pin],
) -> None:
    """Write the references of arrays, and their copied chunks.

    Parameters:
        work: The transaction to write in.
        arrays: By path, the references, and where on the repository's grid the first chunk goes.
        pins: Pins of the sources, by url; Icechunk checks them when it reads.
    """
    for path, (references, shift) in arrays.items():
        present = references.present
        if not len(present):
            continue
        # Icechunk takes many references of one source in one call, so they are sorted by source
        ids = references.url_ids_of(present)
        order = np.argsort(ids, kind="stable")
        cuts = np.flatnonzero(np.diff(ids[order])) + 1
        for numbers in np.split(present[order], cuts):
            url = references.urls[int(references.url_ids_of(numbers[:1])[0])]
            _write_of_source(work, path, references, numbers, url, pins.get(url), shift)
    # in one call: a group of many files has several short arrays of coordinates per file
    sync(write_keys(work.store, _copied(arrays)))


def at_start(references: ChunkReferences) -> tuple[ChunkReferences, Shape]:
    """Return references whose first chunk is the first of the repository's grid."""
    return references, (0,) * len(references.grid)


def _write_of_source(  # noqa: PLR0917 - one caller, which has all of them at hand
    work: Transaction,
    path: str,
    references: ChunkReferences,
    numbers: Numbers,
    url: str,
    pin: Pin | None,
    shift: Shape,
) -> None:
    """Write the references to one source, as the box of the grid that contains them."""
    location = file_url(absolute(url))
    if not references.grid:
        work.store.set_virtual_ref(
            chunk_key(path, ()),
            location,
            offset=int(references.offsets[0]),
            length=int(references.lengths[0]),
            checksum=_checksum(pin),
        )
        return
    starts, box, (locations, offsets, lengths) = _box(references, numbers, location)
    # whole manifests at a time: a manifest shared by two calls would be written twice
    place = tuple(a + b for a, b in zip(starts, shift, strict=True))
    rows = chunks_per_manifest([references.grid])
    for row in range(0, box[0], rows):
        some = slice(row * math.prod(box[1:]), min(row + rows, box[0]) * math.prod(box[1:]))
        failed = work.store.set_virtual_refs_arr(
            path or "/",
            (min(rows, box[0] - row), *box[1:]),
            locations[some],
            np.ascontiguousarray(offsets[some]),
            np.ascontiguousarray(lengths[some]),
            validate_containers=False,
            arr_offset=(place[0] + row, *place[1:]),
            checksum=_checksum(pin),
        )
        if failed:
            raise SourceError(f"{url}: Icechunk rejected the reference of chunk {failed[0]}")
        work.count_references(some.stop - some.start)


def _box(
    references: ChunkReferences, numbers: Numbers, location: str
) -> tuple[Shape, Shape, tuple[list[str], Uint64, Uint64]]:
    """Return start and shape of the box around some chunks, and its columns.

    Columns have an entry for every chunk in the box; an empty location means no reference.
    """
    grid = references.grid
    if len(numbers) == math.prod(grid):
        columns = [location] * len(numbers), references.offsets, references.lengths
        return (0,) * len(grid), grid, columns
    coords = np.stack(np.unravel_index(numbers, grid), axis=1)
    first, last = coords.min(axis=0), coords.max(axis=0)
    starts, box = tuple(first.tolist()), tuple((last + 1 - first).tolist())
    inside = chunk_numbers(coords - first, box)
    count = math.prod(box)
    offsets, lengths = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    offsets[inside], lengths[inside] = references.offsets[numbers], references.lengths[numbers]
    locations = [""] * count
    for i in inside.tolist():
        locations[i] = location
    return starts, box, (locations, offsets, lengths)


def _checksum(pin: Pin | None) -> str | datetime | None:
    """Return what Icechunk checks a source against: its strong etag, or its modification time.

    Icechunk rejects a source that was modified after this time, which has a resolution of one
    second: it is rounded up, so that the unmodified source is accepted.
    """
    if pin is None:
        return None
    if pin.etag is not None and not pin.etag.startswith("W/"):
        return pin.etag
    if pin.mtime_ns is None:
        return None
    return datetime.fromtimestamp(-(-pin.mtime_ns // 1_000_000_000), UTC)


def _copied(
    arrays: Mapping[str, tuple[ChunkReferences, Shape]],
) -> Iterator[tuple[str, bytes]]:
    """Yield key and bytes of each chunk that was copied."""
    for path, (references, shift) in arrays.items():
        for number, data in references.copied.items():
            coords = chunk_coords(number, references.grid)
            yield chunk_key(path, [c + s for c, s in zip(coords, shift, strict=True)]), data


async def read_chunks(store: Any, path: str, fields: Fields, url: str) -> tuple[Rows, list[str]]:
    """Read the chunks of one array; return its rows, and the urls that their ids refer to.

    Chunks outside the grid, which remain after an array was made smaller, are ignored.
    """
    grid = grid_shape(fields["shape"], fields["chunk_shape"])
    # relative to the folder around the repository, as references to moved files are resolved
    root = url if is_remote(url) else posixpath.basename(absolute(url))
    urls: dict[str, int] = {}
    numbers, offsets, lengths, ids = [], [], [], []
    inline: dict[int, bytes] = {}
    batches = checked(store.array_chunk_iterator(path or "/", BATCH), f"{url} {path}")
    async for coords, kinds, paths, starts, sizes, data in batches:
        places = coords.reshape(len(kinds), -1)[:, : len(grid)].astype(np.int64)
        if places.shape[1] < len(grid):
            raise FormatError(
                f"{url} {path}: chunks have {places.shape[1]} coordinates, expected {len(grid)}"
            )
        here = chunk_numbers(places, grid)
        inside = (places < np.array(grid)).all(axis=1)
        rows = np.flatnonzero(inside & (kinds != INLINE))
        names = [paths[i] for i in rows.tolist()] if len(rows) != len(paths) else paths
        if (kinds == NATIVE).any():
            is_native = (kinds[rows] == NATIVE).tolist()
            names = [
                f"{root}/chunks/{name}" if native else name
                for name, native in zip(names, is_native, strict=True)
            ]
        ids.append(_ids(names, urls))
        numbers.append(here[rows])
        offsets.append(starts[rows])
        lengths.append(sizes[rows])
        inline.update({int(here[i]): bytes(value) for i, value in data.items() if inside[i]})
    found = Rows(
        numbers=joined(numbers, np.int64),
        offsets=joined(offsets, np.uint64),
        lengths=joined(lengths, np.uint64),
        url_ids=joined(ids, np.int64),
        inline=inline,
    )
    return found, list(urls)


async def checked(batches: AsyncIterator[Any], where: str) -> AsyncIterator[Any]:
    """Yield what icechunk returns; numpy refuses the coordinates of a damaged manifest there."""
    while True:
        try:
            batch = await anext(batches)
        except StopAsyncIteration:
            return
        except ValueError as e:
            raise FormatError(f"{where}: the manifest is damaged: {e}") from e
        yield batch


def _ids(names: list[str], urls: dict[str, int]) -> Numbers:
    """Return the ids of urls, adding new ones to `urls`."""
    for name in dict.fromkeys(names):
        urls.setdefault(name, len(urls))
    return np.fromiter(map(urls.__getitem__, names), np.int64, len(names))
