"""Icechunk repositories with virtual references, local or in an object store.

Spec:    https://icechunk.io/en/latest/reference/spec/
Opened:  a branch of any repository: virtual, native and inline chunks.
Refused: chunks of several parts or with inline bytes in front, unless they are copied in.

References carry the source's etag, or its time of change, which Icechunk itself checks; the root's
attributes hold the pins as well. A save is one commit: a crash before it leaves what was there.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from anychunk.errors import AnychunkError
from anychunk.io import Folder, Storage, absolute
from anychunk.model.index import GroupIndex, Node
from anychunk.read.zarr_core import sync
from anychunk.references.documents import metadata
from anychunk.references.icechunk.credentials import repository_storage
from anychunk.references.icechunk.growth import grow
from anychunk.references.icechunk.hierarchy import get, read_documents, set_documents
from anychunk.references.icechunk.references import set_chunks
from anychunk.references.icechunk.repository import (
    BRANCH,
    icechunk_errors,
    icechunk_module,
    open_repository,
    read_store,
    repository_of,
)
from anychunk.references.icechunk.rows import read_rows
from anychunk.references.icechunk.transaction import Transaction
from anychunk.references.places import EVERYWHERE, Places, folder_of
from anychunk.references.rebuild import (
    Fields,
    Rows,
    assembled,
    node_fields,
    parse_document,
    saved_places,
)
from anychunk.references.tables import Copy, Form, Tables, tables, used_urls, with_found_pins

__all__ = ["append", "load", "open_repository", "save", "saved_sources", "sniff_folder"]

FORM = Form(name="Icechunk")


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
    with _transaction(node, target, copy=copy, storage=storage) as (work, pinned, found):
        if not sync(work.store.is_empty("")):
            work.store.sync_clear()
        base = None if relative is False else folder_of(target)
        _write(work, pinned, found, base)
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
    with _transaction(node, target, copy=copy, storage=storage) as (work, pinned, found):
        if sync(work.store.is_empty("")):
            _write(work, pinned, found, folder_of(target))
        else:
            grow(work, pinned, found, along, target)
        return work.commit(message or f"Add {len(pinned.pins)} files")


@contextmanager
def _transaction[N: Node](
    node: N, target: str, *, copy: Copy, storage: Storage | None
) -> Iterator[tuple[Transaction, N, Tables]]:
    """Begin to write to a repository, made where there is none; give what is to be written too."""
    ice = icechunk_module()
    found = tables(node, FORM, copy=copy, storage=storage)
    with icechunk_errors(ice, target):
        repository = repository_of(ice, target, found, storage)
        references = sum(len(table.present) for _, table in found.values())
        yield Transaction(repository, BRANCH, references), with_found_pins(node, found), found


def _write(
    work: Transaction,
    node: Node,
    found: Tables,
    base: str | None,
) -> None:
    write = {url: absolute(url) for url in used_urls(found)}
    sync(set_documents(work.store, metadata(node, write, base, 3)))
    for path, (_, table) in found.items():
        set_chunks(work, path, table, node.pins, (0,) * len(table.grid))


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
    ice = icechunk_module()
    with icechunk_errors(ice, folder.path):
        store = read_store(ice, folder.path, folder.storage, branch, tag)
        documents = sync(read_documents(store))
        fields = node_fields(documents, folder.path)
        places = saved_places(fields, folder.path, allow)

        def read(path: str, array: Fields) -> tuple[Rows, list[str]]:
            rows, urls = sync(read_rows(store, path, array, folder.path))
            return rows, [places.resolve(url) for url in urls]

        return assembled(fields, places, read)


def saved_sources(url: str, *, storage: Storage | None = None) -> set[str]:
    """Give the sources that a repository refers to already; none where there is no repository."""
    ice = icechunk_module()
    with icechunk_errors(ice, url):
        if not ice.Repository.exists(repository_storage(ice, url, storage)):
            return set()
        store = read_store(ice, url, storage, BRANCH, None)
        root = sync(get(store, "zarr.json"))
    attributes = parse_document(root, url).get("attributes") if root is not None else {}
    about = (attributes or {}).get("anychunk") or {}
    # a repository that was moved with its data knows them by where they were
    places = Places(url=url, base=about.get("base"), allow=(EVERYWHERE,))
    return {places.resolve(name) for name in (*about.get("pins", {}), *about.get("folders", []))}
