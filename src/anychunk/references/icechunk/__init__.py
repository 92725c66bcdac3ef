"""Icechunk repositories with virtual references, local or in an object store.

Spec:    https://icechunk.io/en/latest/reference/spec/
Opened:  a branch or a tag of any repository: virtual, native and inline chunks.
Refused: chunks of several parts or with inline bytes in front, unless they are copied in.

References carry the source's etag or modification time, which Icechunk itself checks; the root's
attributes hold the pins as well. A save is one commit: a crash before it leaves the repository as
it was.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from anychunk.errors import AnychunkError
from anychunk.io import Folder, Storage, absolute
from anychunk.model.index import GroupIndex, Node
from anychunk.read.zarr_core import sync
from anychunk.references.chunk_references import (
    Capabilities,
    Copy,
    References,
    chunk_references,
    used_urls,
    with_found_pins,
)
from anychunk.references.documents import Fields, parse_document, parse_nodes
from anychunk.references.documents import write_documents as metadata_documents
from anychunk.references.icechunk.appending import append_index
from anychunk.references.icechunk.chunks import read_chunks, write_chunks
from anychunk.references.icechunk.documents import read_bytes, read_documents, write_documents
from anychunk.references.icechunk.repository import (
    BRANCH,
    icechunk_errors,
    icechunk_module,
    open_repository,
    readonly_store,
    writable_repository,
)
from anychunk.references.icechunk.storage import repository_storage
from anychunk.references.icechunk.transaction import Transaction
from anychunk.references.loading import Rows, build_index, url_resolver
from anychunk.references.urls import EVERYWHERE, UrlResolver, folder_of

__all__ = ["append", "load", "open_repository", "save", "saved_sources", "sniff_folder"]

CAPABILITIES = Capabilities(name="Icechunk")


def save(
    node: Node,
    target: str,
    *,
    relative: bool | None = None,
    copy: Copy = "never",
    storage: Storage | None = None,
    message: str | None = None,
) -> str:
    """Save an index as one commit that replaces the branch's content; return the snapshot's id.

    Parameters:
        node: The index.
        target: The repository; created if it does not exist.
        relative: False: the index does not move with its data.
        copy: "needed" copies chunks that Icechunk cannot refer to; "never" refuses them.
        storage: obstore's options, for the repository and the sources.
        message: The commit message.
    """
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
    """Append an index to a repository as one commit; return the snapshot's id.

    Parameters:
        node: The index.
        target: The repository; created if it does not exist.
        along: The axis along which arrays of the same path are extended; None: all arrays are new.
        copy: "needed" copies chunks that Icechunk cannot refer to; "never" refuses them.
        storage: obstore's options, for the repository and the sources.
        message: The commit message.
    """
    with _transaction(node, target, copy=copy, storage=storage) as (work, pinned, found):
        if sync(work.store.is_empty("")):
            _write(work, pinned, found, folder_of(target))
        else:
            append_index(work, pinned, found, along, target)
        return work.commit(message or f"Add {len(pinned.pins)} files")


@contextmanager
def _transaction[N: Node](
    node: N, target: str, *, copy: Copy, storage: Storage | None
) -> Iterator[tuple[Transaction, N, References]]:
    """Start a transaction; yield it with the index, pinned, and its references."""
    ice = icechunk_module()
    found = chunk_references(node, CAPABILITIES, copy=copy, storage=storage)
    with icechunk_errors(ice, target):
        repository = writable_repository(ice, target, found, storage)
        count = sum(len(references.present) for _, references in found.values())
        yield Transaction(repository, BRANCH, count), with_found_pins(node, found), found


def _write(work: Transaction, node: Node, found: References, base: str | None) -> None:
    """Write an index to an empty branch."""
    written = {url: absolute(url) for url in used_urls(found)}
    sync(write_documents(work.store, metadata_documents(node, written, base, 3)))
    for path, (_, references) in found.items():
        write_chunks(work, path, references, node.pins, (0,) * len(references.grid))


def sniff_folder(folder: Folder) -> bool:
    """Return whether a folder is a repository, by the objects that every repository has."""
    try:
        folders, objects = folder.names()
    except (AnychunkError, FileNotFoundError):
        return False
    return "snapshots" in folders and ("repo" in objects or "refs" in folders)


def load(
    folder: Folder, *, allow: Iterable[str] = (), branch: str = BRANCH, tag: str | None = None
) -> Node:
    """Load the content of a branch or a tag as an index.

    Parameters:
        folder: The repository.
        allow: Prefixes of urls that references may point to, besides the repository's folder.
        branch: The branch.
        tag: A tag, which takes precedence over the branch.
    """
    ice = icechunk_module()
    with icechunk_errors(ice, folder.path):
        store = readonly_store(ice, folder.path, folder.storage, branch, tag)
        nodes = parse_nodes(sync(read_documents(store)), folder.path)
        resolver = url_resolver(nodes, folder.path, allow)

        def read(path: str, array: Fields) -> tuple[Rows, list[str]]:
            rows, urls = sync(read_chunks(store, path, array, folder.path))
            return rows, [resolver.resolve(url) for url in urls]

        return build_index(nodes, resolver, read)


def saved_sources(url: str, *, storage: Storage | None = None) -> set[str]:
    """Return the sources that a repository refers to; empty if there is no repository."""
    ice = icechunk_module()
    with icechunk_errors(ice, url):
        if not ice.Repository.exists(repository_storage(ice, url, storage)):
            return set()
        store = readonly_store(ice, url, storage, BRANCH, None)
        root = sync(read_bytes(store, "zarr.json"))
    attributes = parse_document(root, url).get("attributes") if root is not None else {}
    about = (attributes or {}).get("anychunk") or {}
    # a repository that moved with its data still records the old location
    resolver = UrlResolver(url=url, base=about.get("base"), allow=(EVERYWHERE,))
    names = (*about.get("pins", {}), *about.get("folders", []))
    return {resolver.resolve(name) for name in names}
