"""Icechunk repositories with virtual references, local or in an object store.

Spec:    https://icechunk.io/en/latest/reference/spec/
Opened:  a branch or a tag of any repository: virtual, native and inline chunks.
Refused: chunks of several parts or with inline bytes in front, unless they are copied in.

References carry the source's etag or modification time, which Icechunk itself checks. The pins of a
few sources are among the root's attributes, those of many in a table (`sources.py`). A save or an
append is one commit: a crash before it leaves the repository as it was.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from anychunk._version import __version__
from anychunk.errors import AnychunkError, FormatError, SourceError, untrusted
from anychunk.formats._zarr_metadata import Fields, parse_document, read_attributes
from anychunk.io.opening import Folder
from anychunk.io.source import Storage, absolute
from anychunk.metadata.dates import Rules
from anychunk.model.index import GroupIndex, Json, Node, Saved, with_saved
from anychunk.options import Copy, checked
from anychunk.references.chunk_references import (
    Capabilities,
    References,
    chunk_references,
    used_urls,
    with_found_pins,
)
from anychunk.references.documents import (
    Rows,
    build_index,
    check_version,
    parse_nodes,
    read_base,
    read_pins,
    url_resolver,
)
from anychunk.references.documents import write_documents as metadata_documents
from anychunk.references.icechunk.appending import append_index
from anychunk.references.icechunk.chunks import (
    BRANCH,
    Transaction,
    at_start,
    icechunk_errors,
    icechunk_module,
    read_chunks,
    readonly_store,
    writable_repository,
    write_chunks,
)
from anychunk.references.icechunk.sources import (
    Row,
    append_rows,
    is_empty,
    read_bytes,
    read_documents,
    read_rows,
    read_urls,
    refuse_name,
    source_rows,
    with_rows,
    without_table,
    write_documents,
)
from anychunk.references.icechunk.storage import (
    check_repo_file,
    containers_access,
    has_provider,
    repository_storage,
)
from anychunk.references.osml_codecs import with_portable_codecs
from anychunk.references.tile_tables import saved_form
from anychunk.references.urls import EVERYWHERE, UrlResolver, folder_of
from anychunk.zarr.core import sync

CAPABILITIES = Capabilities(name="Icechunk")
MOST_PINS = 100
"""Up to this number of sources, a saved index has its pins among the root's attributes."""
REPLACING_BRANCH = "anychunk-indexing"
"""Where an archive is written that replaces another when it is complete."""
TRIES = 5
"""How often an append starts anew because another writer committed in the meantime."""


def save(
    node: Node,
    target: str,
    *,
    relative: bool | None = None,
    copy: Copy = "never",
    storage: Storage | None = None,
    target_storage: Storage | None = None,
    message: str | None = None,
) -> str:
    """Save an index as one commit that replaces the branch's content; return the snapshot's id.

    Parameters:
        node: The index.
        target: The repository; created if it does not exist.
        relative: False: the index does not move with its data.
        copy: "needed" copies chunks that Icechunk cannot refer to; "never" refuses them.
        storage: Of the sources.
        target_storage: Of the repository.
        message: The commit message.
    """
    ice = icechunk_module()
    node, found = _with_references(node, copy=copy, storage=storage)
    with icechunk_errors(ice, target):
        repository = writable_repository(ice, target, found, storage, target_storage)
        work = Transaction(repository, BRANCH, _count(found))
        if not sync(work.store.is_empty("")):
            work.store.sync_clear()
        base = None if relative is False else folder_of(target)
        _write(work, node, found, base, target, in_table=len(node.pins) > MOST_PINS)
        return work.commit(message or f"Index {len(found)} arrays", _statistics(node, found))


def append(
    node: GroupIndex,
    target: str,
    *,
    along: str | int | None,
    copy: Copy = "never",
    storage: Storage | None = None,
    target_storage: Storage | None = None,
    message: str | None = None,
) -> str:
    """Append an index to a repository as one commit; return the snapshot's id.

    Parameters:
        node: The index.
        target: The repository; created if it does not exist.
        along: The axis along which images of the same path are extended, by name or number; None:
            all images are new.
        copy: "needed" copies chunks that Icechunk cannot refer to; "never" refuses them.
        storage: Of the sources.
        target_storage: Of the repository.
        message: The commit message.
    """
    archive = Archive(target, copy=copy, storage=storage, target_storage=target_storage)
    return archive.append(node, along=along, message=message)


class Archive:
    """A repository that indexes are appended to, one commit each.

    One that grows along an axis is opened once.
    """

    def __init__(
        self,
        target: str,
        *,
        copy: Copy = "never",
        storage: Storage | None = None,
        target_storage: Storage | None = None,
    ) -> None:
        """Name a repository.

        Parameters:
            target: The repository; created by the first `append` if it does not exist.
            copy: As in `save`.
            storage: Of the sources.
            target_storage: Of the repository.
        """
        self.target, self.storage, self._copy = target, storage, copy
        self._target_storage = target_storage
        self._ice = icechunk_module()
        self._repository: Any = None
        self._branch = BRANCH
        self._start: str | None = None

    def append(
        self,
        node: GroupIndex,
        *,
        along: str | int | None,
        message: str | None = None,
        rules: Rules | None = None,
    ) -> str:
        """Append an index as one commit; return the snapshot's id.

        If another writer committed in the meantime, what it wrote is kept, and the index appended
        to that.

        Parameters:
            node: The index.
            along: As in the function `append`.
            message: The commit message.
            rules: How a stack goes on; by default dates along t come later than those that are
                there, and files may be at other places.
        """
        rules = rules or Rules(georeference="drop")
        node, found = _with_references(node, copy=self._copy, storage=self.storage)
        refuse_name(node.members, self.target)
        with icechunk_errors(self._ice, self.target):
            for _ in range(TRIES):
                work = self._transaction(found, along)
                if sync(is_empty(work.store)):
                    base = folder_of(self.target)
                    _write(work, node, found, base, self.target, in_table=True)
                else:
                    append_index(work, node, found, along, self.target, rules)
                    sync(append_rows(work.store, _rows(node)))
                try:
                    text = message or f"Add {_files(node)} files"
                    return work.commit(text, _statistics(node, found))
                except self._ice.ConflictError:
                    # what the other writer committed is a new start, unless it added the same files
                    _refuse_known(node, self.target, self._target_storage)
        raise SourceError(
            f"{self.target}: other writers committed during each of {TRIES} attempts to append; "
            "try again"
        )

    def _transaction(self, found: References, along: str | int | None) -> Transaction:
        # an opened repository keeps every snapshot that it has read or written, each with the
        # metadata of all groups; keys that a function returns are asked for again
        is_kept = along is not None and not (
            has_provider(self.storage) or has_provider(self._target_storage)
        )
        opened = self._repository if is_kept else None
        self._repository = None
        self._repository = writable_repository(
            self._ice,
            self.target,
            found,
            self.storage,
            self._target_storage,
            along=along,
            opened=opened,
        )
        if self._branch != BRANCH and self._start is None:
            self._start = _emptied_branch(self._repository, self._branch)
        return Transaction(self._repository, self._branch, _count(found))

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Append to nothing, and let the result replace what is there when the block ends.

        Until then nothing changes for readers; a failure leaves what was there.
        """
        self._branch = REPLACING_BRANCH
        yield
        if self._start is None:  # nothing was appended
            return
        with icechunk_errors(self._ice, self.target):
            snapshot = self._repository.lookup_branch(self._branch)
            # fails if another writer has committed to the branch in the meantime
            self._repository.reset_branch(BRANCH, snapshot, from_snapshot_id=self._start)
            self._repository.delete_branch(self._branch)


def _emptied_branch(repository: Any, name: str) -> str:
    """Start a branch without content; return the snapshot of the main branch."""
    start = repository.lookup_branch(BRANCH)
    if name in repository.list_branches():
        repository.delete_branch(name)  # left behind by a crash
    repository.create_branch(name, start)
    session = repository.writable_session(name)
    if not sync(session.store.is_empty("")):
        session.store.sync_clear()
        session.commit("Start anew")
    return str(start)


def _refuse_known(node: GroupIndex, target: str, storage: Storage | None) -> None:
    known = saved_sources(target, storage=storage)
    if both := sorted(known & {absolute(url) for url in node.pins}):
        raise SourceError(
            f"{target}: another writer added {both[0]} at the same time, {len(both)} of the same "
            "files in all; append again to add the rest"
        )


def _with_references[N: Node](
    node: N, *, copy: Copy, storage: Storage | None
) -> tuple[N, References]:
    """Return an index with portable codecs and the pins of all sources, and its references."""
    node = saved_form(node, storage)
    node = with_portable_codecs(node, may_transpose=True)
    found = chunk_references(node, CAPABILITIES, copy=copy, storage=storage)
    return with_found_pins(node, found), found


def _count(found: References) -> int:
    return sum(len(references.present) for _, references in found.values())


def _files(node: Node) -> int:
    about = node.attributes.get("anychunk") or {}
    return int(about.get("files", max(len(node.pins), 1)))


def _statistics(node: Node, found: References) -> dict[str, Json]:
    """Return what a commit records about itself."""
    references = [references for _, references in found.values()]
    present = [r.lengths[r.present] for r in references]
    return {
        "anychunk": __version__,
        "files": _files(node),
        "arrays": len(found),
        "references": _count(found),
        "bytes": sum(int(lengths.sum()) for lengths in present),
    }


def _rows(node: Node) -> list[Row]:
    about = node.attributes.get("anychunk") or {}
    return source_rows({absolute(u): pin for u, pin in node.pins.items()}, about.get("folders", ()))


def _write(
    work: Transaction,
    node: Node,
    found: References,
    base: str | None,
    target: str,
    *,
    in_table: bool,
) -> None:
    """Write an index to an empty branch."""
    described: Node = node
    rows: list[Row] = []
    if in_table and isinstance(node, GroupIndex):
        rows = _rows(node)
        refuse_name(node.members, target)
        about = {k: v for k, v in node.attributes.get("anychunk", {}).items() if k != "folders"}
        described = replace(node, pins={}, attributes={**node.attributes, "anychunk": about})
    written = {url: absolute(url) for url in used_urls(found)}
    sync(write_documents(work.store, metadata_documents(described, written, base, 3)))
    arrays = {path: at_start(references) for path, (_, references) in found.items()}
    write_chunks(work, arrays, node.pins)
    sync(append_rows(work.store, rows))


def sniff_folder(folder: Folder) -> bool:
    """Return whether a folder is a repository, by the objects that every repository has."""
    try:
        folders, objects = folder.names()
    except (AnychunkError, FileNotFoundError):
        return False
    return "snapshots" in folders and ("repo" in objects or "refs" in folders)


def load(
    folder: Folder,
    *,
    allow: Iterable[str] = (),
    branch: str = BRANCH,
    tag: str | None = None,
    snapshot: str | None = None,
) -> Node:
    """Load the content of a branch, a tag or a snapshot as an index.

    Parameters:
        folder: The repository.
        allow: Prefixes of urls that references may point to, besides the repository's folder.
        branch: The branch.
        tag: A tag, which takes precedence over the branch.
        snapshot: The id of a snapshot, which takes precedence over both.
    """
    ice = icechunk_module()
    with icechunk_errors(ice, folder.path):
        store = readonly_store(ice, folder.path, folder.storage, branch, tag, snapshot)
        nodes = parse_nodes(without_table(sync(read_documents(store))), folder.path)
        rows = sync(read_rows(store, folder.path))
        if rows and isinstance(root := nodes.get(""), dict):
            nodes[""] = with_rows(root, rows)
        resolver = url_resolver(nodes, folder.path, allow)

        def read(path: str, array: Fields) -> tuple[Rows, list[str]]:
            rows, urls = sync(read_chunks(store, path, array, folder.path))
            return rows, [resolver.resolve(url) for url in urls]

        node = build_index(nodes, resolver, read)
    # a snapshot never changes, so this is what is loaded again
    options = {"allow": tuple(allow), "snapshot": str(store.session.snapshot_id)}
    return with_saved(node, Saved(url=folder.path, format="icechunk", options=options))


def saved_sources(url: str, *, storage: Storage | None = None) -> set[str]:
    """Return the sources that a repository refers to; empty if there is no repository."""
    ice = icechunk_module()
    with untrusted(url), icechunk_errors(ice, url):
        if not ice.Repository.exists(repository_storage(ice, url, storage)):
            return set()
        store = readonly_store(ice, url, storage, BRANCH, None)
        root = sync(read_bytes(store, "zarr.json"))
        attributes = read_attributes(parse_document(root or b"{}", url), url)
        check_version(attributes, url)
        urls = sync(read_urls(store, url))
    # a repository that moved with its data still records the old location
    resolver = UrlResolver(url=url, base=read_base(attributes, url), allow=(EVERYWHERE,))
    about = attributes.get("anychunk", {})
    folders = about.get("folders", [])
    if not isinstance(folders, list) or not all(isinstance(name, str) for name in folders):
        raise FormatError(f"{url}: folders are {str(folders)[:80]}, expected a list of urls")
    found = {*read_pins(about.get("pins", {}), resolver), *map(resolver.resolve, folders)}
    return found.union(resolver.moved(urls))


@checked()
def open_repository(url: str, *, storage: Storage | None = None) -> Any:
    """Open a repository as an `icechunk.Repository` that may read the sources it refers to."""
    ice = icechunk_module()
    check_repo_file(Folder(absolute(url), storage=storage))
    place = repository_storage(ice, absolute(url), storage)
    config = ice.Repository.fetch_config(place)
    known = (config.virtual_chunk_containers if config else None) or {}
    access = containers_access(ice, known, storage)
    return ice.Repository.open(place, authorize_virtual_chunk_access=access)
