"""Icechunk repositories with virtual references, local or in an object store.

Spec:    https://icechunk.io/en/latest/reference/spec/
Opened:  a branch of any repository: virtual, native and inline chunks.
Refused: chunks of several parts or with inline bytes in front, unless they are copied in.

References carry the source's etag, or its time of change, which Icechunk itself checks; the root's
attributes hold the pins as well. A save is one commit: a crash before it leaves what was there.
"""

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from anychunk.errors import AnychunkError, FormatError, MissingDependencyError, SourceError
from anychunk.export.credentials import container_store, containers_access, repository_storage
from anychunk.export.kerchunk import metadata
from anychunk.export.places import Places, absolute, file_url, folder_of
from anychunk.export.rebuild import (
    Document,
    Rows,
    array_index,
    node_fields,
    parse_document,
    saved_base,
    tree,
    with_pins,
)
from anychunk.export.tables import Copy, Form, Table, tables, used_urls, with_found_pins
from anychunk.export.transaction import Transaction
from anychunk.gather import common_codecs
from anychunk.index import ArrayIndex, GroupIndex, Node, grid_shape
from anychunk.pin import Pin
from anychunk.source import Folder, Storage, is_remote, local_path

FORM = Form(name="Icechunk")
BRANCH = "main"
MANIFEST_CHUNKS = 60_000
"""Chunks in one manifest: what Icechunk holds in memory at once while it writes."""
NEVER = 65_535
"""Chunks from which on Icechunk compresses each location by itself, which takes half of the time of
a save; locations of a few files go away when the manifest as a whole is compressed."""
NATIVE, VIRTUAL, KIND_INLINE = 1, 2, 3


def _icechunk() -> Any:
    try:
        import icechunk
    except ImportError as e:
        raise MissingDependencyError(
            "an Icechunk repository needs icechunk; "
            'install it with: pip install "anychunk[icechunk]"'
        ) from e
    icechunk.set_logs_filter("error")
    return icechunk


def save(
    node: Node,
    target: str,
    *,
    relative: bool | None = None,
    copy: Copy = "never",
    storage: Storage | None = None,
    message: str | None = None,
) -> str:
    """Write an index as one commit, in place of what the branch held; give the snapshot's id."""
    ice = _icechunk()
    found = tables(node, FORM, copy=copy, storage=storage)
    node = with_found_pins(node, found)
    with _errors(ice, target):
        repository = _repository(ice, target, found, storage)
        work = Transaction(repository, BRANCH, _count(found))
        if not sync(work.store.is_empty("")):
            work.store.sync_clear()
        base = None if relative is False else folder_of(target)
        _write(work, node, found, base)
        return work.commit(message or f"Index {len(found)} arrays")


def append(
    node: GroupIndex,
    target: str,
    *,
    along: int | None,
    copy: Copy = "never",
    storage: Storage | None = None,
    message: str | None = None,
) -> str:
    """Add an index to what a repository holds, as one commit.

    `along` is the axis that arrays of the same path grow by; None: all its members are new.
    """
    ice = _icechunk()
    found = tables(node, FORM, copy=copy, storage=storage)
    node = with_found_pins(node, found)
    with _errors(ice, target):
        repository = _repository(ice, target, found, storage)
        work = Transaction(repository, BRANCH, _count(found))
        if sync(work.store.is_empty("")):
            _write(work, node, found, folder_of(target))
        else:
            _grow(work, node, found, along, target)
        return work.commit(message or f"Add {len(node.pins)} files")


def _count(found: Mapping[str, tuple[ArrayIndex, Table]]) -> int:
    """How many references there are."""
    return sum(len(table.present) for _, table in found.values())


def _errors(ice: Any, where: str) -> Any:
    """Name the repository in errors of Icechunk."""
    from contextlib import contextmanager

    @contextmanager
    def mapped() -> Any:
        try:
            yield
        except AnychunkError:
            raise
        except ice.IcechunkError as e:
            text = " ".join(str(e).split())
            raise SourceError(f"{where}: Icechunk: {text[:300]}") from e

    return mapped()


def _repository(
    ice: Any, target: str, found: Mapping[str, tuple[ArrayIndex, Table]], storage: Storage | None
) -> Any:
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


def _write(
    work: Transaction,
    node: Node,
    found: Mapping[str, tuple[ArrayIndex, Table]],
    base: str | None,
) -> None:
    write = {url: absolute(url) for url in used_urls(found)}
    sync(_set_all(work.store, metadata(node, write, base, 3)))
    for path, (_, table) in found.items():
        _set_chunks(work, path, table, node.pins, (0,) * len(table.grid))


async def _set_all(store: Any, documents: Mapping[str, Document]) -> None:
    make = default_buffer_prototype().buffer.from_bytes
    await asyncio.gather(
        *(
            store.set(key, make(json.dumps(document).encode()))
            for key, document in documents.items()
        )
    )


def _set_chunks(
    work: Transaction, path: str, table: Table, pins: Mapping[str, Pin], shift: tuple[int, ...]
) -> None:
    """Refer to the chunks of an array, all of one source in one call."""
    present = table.present
    if len(present):
        ids = np.zeros(len(present), np.int64) if table.url_ids is None else table.url_ids[present]
        order = np.argsort(ids, kind="stable")
        cuts = np.flatnonzero(np.diff(ids[order])) + 1
        for numbers in np.split(present[order], cuts):
            url = table.urls[table.url_id(int(numbers[0]))]
            _set_box(work, path, table, numbers, url, pins.get(url), shift)
    if table.copied:
        sync(_set_copied(work.store, path, table, shift))


def _set_box(  # noqa: PLR0917 - one caller, which has them all at hand
    work: Transaction,
    path: str,
    table: Table,
    numbers: Any,
    url: str,
    pin: Pin | None,
    shift: tuple[int, ...],
) -> None:
    """Refer to chunks of one source by the box of the grid that they lie in."""
    location = file_url(absolute(url))
    grid = table.grid or (1,)
    if len(numbers) == math.prod(grid):
        starts, box = (0,) * len(grid), grid
        locations = [location] * len(numbers)
        offsets, lengths = table.offsets, table.lengths
    else:
        coords = np.stack(np.unravel_index(numbers, grid), axis=1)
        starts = tuple(int(n) for n in coords.min(axis=0))
        box = tuple(int(n) for n in coords.max(axis=0) + 1 - coords.min(axis=0))
        inside = np.ravel_multi_index(tuple((coords - coords.min(axis=0)).T), box)
        count = math.prod(box)
        offsets, lengths = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        offsets[inside], lengths[inside] = table.offsets[numbers], table.lengths[numbers]
        locations = [""] * count
        for i in inside.tolist():
            locations[i] = location
    if not table.grid:
        key = f"{path}/c" if path else "c"
        work.store.set_virtual_ref(
            key, location, offset=int(offsets[0]), length=int(lengths[0]), checksum=_checksum(pin)
        )
        return
    # some whole manifests at a time: one that two pieces share would be written twice
    place = tuple(a + b for a, b in zip(starts, shift, strict=True))
    rows = per_manifest([grid])
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
            raise SourceError(f"{url}: Icechunk took no reference for chunk {failed[0]}")
        work.took(some.stop - some.start)


def _checksum(pin: Pin | None) -> str | datetime | None:
    """Give what Icechunk holds a source against: its etag, or its time rounded up to seconds."""
    if pin is None:
        return None
    if pin.etag is not None and not pin.etag.startswith("W/"):
        return pin.etag
    if pin.mtime_ns is None:
        return None
    return datetime.fromtimestamp(-(-pin.mtime_ns // 1_000_000_000), UTC)


async def _set_copied(store: Any, path: str, table: Table, shift: tuple[int, ...]) -> None:
    make = default_buffer_prototype().buffer.from_bytes
    prefix = f"{path}/c" if path else "c"
    for number, data in table.copied.items():
        coords = np.unravel_index(number, table.grid) if table.grid else ()
        names = [str(int(c) + s) for c, s in zip(coords, shift, strict=True)]
        await store.set("/".join([prefix, *names]), make(data))


def _grow(
    work: Transaction,
    node: GroupIndex,
    found: Mapping[str, tuple[ArrayIndex, Table]],
    along: int | None,
    target: str,
) -> None:
    """Add to a repository that holds something already."""
    there = sync(_read_documents(work.store))
    write = {url: absolute(url) for url in used_urls(found)}
    documents = metadata(node, write, None, 3)
    shifts: dict[str, tuple[int, ...]] = {}
    for path, (array, table) in found.items():
        key = f"{path}/zarr.json" if path else "zarr.json"
        if key not in there:
            if along is not None:
                raise FormatError(f"{target}: holds no array {path!r} that could grow")
            shifts[path] = (0,) * len(table.grid)
            continue
        if along is None:
            raise FormatError(f"{target}: holds an array {path!r} already")
        documents[key], shifts[path] = _grown(there[key], array, along, f"{target} {path}")
    root = there.get("zarr.json", documents["zarr.json"])
    documents["zarr.json"] = _merged_root(root, documents["zarr.json"])
    kept = {k: d for k, d in documents.items() if k == "zarr.json" or d != there.get(k)}
    if along is not None:
        # groups stay as they were: what the first batch said of them holds
        kept = {k: d for k, d in kept.items() if d["node_type"] == "array" or k == "zarr.json"}
    sync(_set_all(work.store, kept))
    for path, (_, table) in found.items():
        _set_chunks(work, path, table, node.pins, shifts[path])


def _grown(
    there: Document, array: ArrayIndex, along: int, where: str
) -> tuple[Document, tuple[int, ...]]:
    """Give the metadata of a longer array, and where the new chunks begin."""
    new = array.metadata()
    codecs = common_codecs([there.get("codecs") or (), new["codecs"]])
    if codecs is None:
        raise FormatError(f"{where}: codecs {new['codecs']}, there they are {there.get('codecs')}")
    for name in ("data_type", "fill_value", "chunk_grid", "dimension_names"):
        if there.get(name) != new[name]:
            raise FormatError(f"{where}: {name} is {new[name]}, there it is {there.get(name)}")
    old, add = list(there["shape"]), list(array.shape)
    if old[:along] + old[along + 1 :] != add[:along] + add[along + 1 :]:
        raise FormatError(f"{where}: shape {add} does not go on with {old} along axis {along}")
    chunk = array.chunk_shape[along]
    if old[along] % chunk:
        raise FormatError(f"{where}: its {old[along]} along axis {along} end inside a chunk")
    shift = tuple(old[along] // chunk if i == along else 0 for i in range(len(old)))
    old[along] += add[along]
    return {**there, "shape": old, "codecs": list(codecs)}, shift


def _merged_root(there: Document, new: Document) -> Document:
    """Keep the root's attributes, with the pins of both."""
    attributes = dict(there.get("attributes") or {})
    about = dict(attributes.get("anychunk") or {})
    added = (new.get("attributes") or {}).get("anychunk") or {}
    about["pins"] = {**about.get("pins", {}), **added.get("pins", {})}
    if folders := [*about.get("folders", []), *added.get("folders", [])]:
        about["folders"] = folders
    return {**there, "attributes": {**attributes, "anychunk": about}}


def sniff_folder(folder: Folder) -> bool:
    """Whether a folder is a repository, by the objects that it must have."""
    try:
        folders, objects = folder.names()
    except (AnychunkError, FileNotFoundError):
        return False
    return "snapshots" in folders and ("repo" in objects or "refs" in folders)


def load(
    folder: Folder, *, allow: Iterable[str] = (), branch: str = BRANCH, tag: str | None = None
) -> Node:
    """Read what a branch or a tag holds as an index."""
    ice = _icechunk()
    with _errors(ice, folder.path):
        store = _read_store(ice, folder.path, folder.storage, branch, tag)
        documents = sync(_read_documents(store))
        fields = node_fields(documents, folder.path)
        root = fields.get("", {})
        about = root[1]["attributes"] if isinstance(root, tuple) else root
        base = saved_base(about, folder.path)
        places = Places(url=folder.path, base=base, allow=tuple(allow))
        nodes: dict[str, ArrayIndex | Document] = {}
        for path, member in fields.items():
            if not isinstance(member, tuple):
                nodes[path] = member
                continue
            where = f"{folder.path} {path}"
            rows, urls = sync(_read_rows(store, path, member[1], folder.path, where))
            resolved = [places.resolve(url) for url in urls]
            nodes[path] = array_index(member[1], rows, resolved, where)
    return with_pins(tree(nodes, folder.path), places)


def _read_store(ice: Any, url: str, storage: Storage | None, branch: str, tag: str | None) -> Any:
    # each manifest is read once: a cache of them would only hold memory
    config = ice.RepositoryConfig(caching=ice.CachingConfig(num_chunk_refs=0))
    repository = ice.Repository.open(repository_storage(ice, url, storage), config=config)
    session = repository.readonly_session(tag=tag) if tag else repository.readonly_session(branch)
    return session.store


def open_repository(url: str, *, storage: Storage | None = None) -> Any:
    """Open a repository of ours for Icechunk's own reading, its containers authorized."""
    ice = _icechunk()
    place = repository_storage(ice, absolute(url), storage)
    config = ice.Repository.fetch_config(place)
    known = (config.virtual_chunk_containers if config else None) or {}
    access = containers_access(ice, known, storage)
    return ice.Repository.open(place, authorize_virtual_chunk_access=access)


def saved_sources(url: str, *, storage: Storage | None = None) -> set[str]:
    """Give the sources that a repository refers to already; none where there is no repository."""
    ice = _icechunk()
    with _errors(ice, url):
        if not ice.Repository.exists(repository_storage(ice, url, storage)):
            return set()
        store = _read_store(ice, url, storage, BRANCH, None)
        root = sync(_get(store, "zarr.json"))
    attributes = parse_document(root, url).get("attributes") if root is not None else {}
    about = (attributes or {}).get("anychunk") or {}
    return {*about.get("pins", {}), *about.get("folders", [])}


async def _get(store: Any, key: str) -> bytes | None:
    found = await store.get(key, default_buffer_prototype())
    return None if found is None else bytes(found.to_bytes())


async def _read_documents(store: Any) -> dict[str, Document]:
    """Read the metadata of every node, level by level."""
    found: dict[str, Document] = {}
    level = [""]
    while level:
        keys = [f"{path}/zarr.json" if path else "zarr.json" for path in level]
        texts = await asyncio.gather(*(_get(store, key) for key in keys))
        groups = []
        for path, key, text in zip(level, keys, texts, strict=True):
            if text is None:
                continue
            found[key] = parse_document(text, key)
            if found[key].get("node_type") == "group":
                groups.append(path)
        lists = await asyncio.gather(*(_names(store, path) for path in groups))
        level = [
            f"{path}/{name}" if path else name
            for path, names in zip(groups, lists, strict=True)
            for name in names
        ]
    return found


async def _names(store: Any, path: str) -> list[str]:
    """List the members of a group."""
    return [name async for name in store.list_dir(path) if name != "zarr.json"]


async def _read_rows(
    store: Any, path: str, fields: dict[str, Any], url: str, where: str
) -> tuple[Rows, list[str]]:
    """Read the references of one array, column by column."""
    grid = grid_shape(fields["shape"], fields["chunk_shape"])
    strides = (
        np.cumprod([1, *grid[:0:-1]])[::-1].astype(np.int64) if grid else np.zeros(0, np.int64)
    )
    root = url if is_remote(url) else local_path(url)
    urls: dict[str, int] = {}
    numbers, offsets, lengths, ids = [], [], [], []
    inline: dict[int, bytes] = {}
    batches = store.array_chunk_iterator(path or "/", 1 << 16)
    async for coords, kinds, paths, starts, sizes, data in batches:
        here = coords.reshape(len(kinds), -1)[:, : len(grid)].astype(np.int64) @ strides
        inside = (coords.reshape(len(kinds), -1)[:, : len(grid)] < np.array(grid)).all(axis=1)
        rows = np.flatnonzero(inside & (kinds != KIND_INLINE))
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
    return (
        Rows(
            numbers=np.concatenate([np.empty(0, np.int64), *numbers]),
            offsets=np.concatenate([np.empty(0, np.uint64), *offsets]),
            lengths=np.concatenate([np.empty(0, np.uint64), *lengths]),
            url_ids=np.concatenate([np.empty(0, np.int64), *ids]),
            inline=inline,
        ),
        list(urls),
    )


def _ids(names: list[str], urls: dict[str, int]) -> Any:
    for name in dict.fromkeys(names):
        urls.setdefault(name, len(urls))
    return np.fromiter(map(urls.__getitem__, names), np.int64, len(names))
