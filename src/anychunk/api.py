"""The public functions: url in, zarr out."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import zarr
from zarr.storage import StorePath

from anychunk import codecs, formats, references
from anychunk._version import __version__
from anychunk.combine.executor import Failures, FilesError, expand, is_pattern, outcomes
from anychunk.combine.joining import How, axis_of, group_names
from anychunk.combine.joining import combine as combine_files
from anychunk.combine.mosaic import Overlap
from anychunk.errors import AnychunkError, FormatError, UnsupportedError
from anychunk.io import (
    Folder,
    OnChange,
    Source,
    Storage,
    absolute,
    buffered,
    is_remote,
    local_path,
    open_source,
)
from anychunk.model.images import chosen, images
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, Node, find, walk
from anychunk.read import pipeline
from anychunk.read.zarr_array import Array, Group, array_metadata
from anychunk.read.zarr_core import AsyncArray, AsyncGroup, GroupMetadata
from anychunk.read.zarr_store import IndexStore
from anychunk.references import icechunk


def index(
    url: str | Path | Sequence[str | Path],
    *,
    format: str | None = None,
    storage: Storage | None = None,
    combine: How | None = None,
    along: str | int | None = None,
    overlap: Overlap = "error",
    client: Any = None,
    failures: Failures | None = None,
    **options: Any,
) -> GroupIndex | ArrayIndex:
    """Read the structure of a file, or open a saved index; never samples.

    `format` names a format instead of looking at the content. `storage` is handed to obstore.
    Several urls, or a pattern, become one index: `combine` says how, `along` which axis, `client`
    is a Dask cluster to parse on, and files that fail are left out where `failures` is a dictionary
    to note them in. A saved index refers to its own folder and to what `allow=[…]` lists.
    Further options are the format's own.
    """
    if not isinstance(url, str | Path) or combine is not None or is_pattern(str(url)):
        if combine is None:
            raise ValueError("several files: say combine='stack', 'concat', 'mosaic' or 'group'")
        files = index_files(
            expand(url, storage),
            client=client,
            failures=failures,
            format=format,
            storage=storage,
            **options,
        )
        return combine_files(files, combine, along=along, overlap=overlap)
    url = str(url)
    if _is_folder(url, format):
        return _index_folder(Folder(url, storage=storage), format, options)
    try:
        source = open_source(url, storage=storage)
        head = source.read(0, min(formats.HEAD, source.size())).tobytes()
    except FileNotFoundError:
        if not is_remote(url):
            raise
        # an object store has no directories: a prefix may still be a folder format
        folder = Folder(url, storage=storage)
        if not _is_there(folder):
            raise
        return _index_folder(folder, format, options)
    return _index_object(source, head, format, options)


def index_files(
    urls: Sequence[str],
    *,
    client: Any = None,
    failures: Failures | None = None,
    progress: Callable[[], object] | None = None,
    may_be_none: bool = False,
    **options: Any,
) -> dict[str, Node]:
    """Index many files, on threads or a Dask cluster; give those that could be, in order.

    That none could be is an error too, unless it `may_be_none`.
    """
    found: dict[str, Node] = {}
    failed: Failures = {} if failures is None else failures
    for url, outcome in outcomes(partial(index, **options), urls, client):
        if isinstance(outcome, AnychunkError):
            failed[url] = str(outcome)
        else:
            found[url] = outcome
        if progress is not None:
            progress()
    if failed and (failures is None or not (found or may_be_none)):
        raise FilesError(failed, len(urls))
    return {url: found[url] for url in urls if url in found}


def _is_folder(url: str, format: str | None) -> bool:
    if format in references.FORMS:
        return format != "kerchunk"
    if not is_remote(url):
        return os.path.isdir(local_path(url))  # noqa: PTH112 - a third of the cost of Path.is_dir
    if url.endswith("/"):
        return True
    # a remote folder cannot be told from an object without a request, but by its name it may
    known = formats.table() if format is None else {format: formats.by_name(format)}
    folders = [m for m in known.values() if isinstance(m, formats.FolderFormat)]
    return any(format or (isinstance(m, formats.WritableFormat) and m.claims(url)) for m in folders)


def _is_there(folder: Folder) -> bool:
    """Whether a remote folder holds anything, as far as its server tells."""
    try:
        return folder.names() != ([], [])
    except UnsupportedError:  # a web server does not list: what a folder must have is looked for
        return any(folder.read(name) is not None for name in ("attributes.json", ".zmetadata"))


def _index_folder(folder: Folder, name: str | None, options: Mapping[str, Any]) -> Node:
    if name is None:
        try:
            name, _ = formats.sniff_folder(folder)
        except UnsupportedError:
            name = references.sniff_folder(folder)
            if name is None:
                raise
    if name in references.FORMS:
        return references.load_folder(folder, name, **options)
    module = cast("formats.FolderFormat", _of_kind(name, formats.FolderFormat, folder.path))
    parsed = _parsed(module.parse_folder, folder, options, where=folder.path)
    return _with_root(parsed, {"format": name, "source": folder.path, "version": __version__}, {})


def _index_object(
    source: Source, head: bytes, name: str | None, options: Mapping[str, Any]
) -> Node:
    if name is None:
        try:
            name, _ = formats.sniff(head, source.url)
        except UnsupportedError:
            if not references.sniff(head):
                raise
            name = "kerchunk"
    if name in references.FORMS:
        return references.load(source, **options)
    module = cast("formats.Format", _of_kind(name, formats.Format, source.url))
    parsed = _parsed(module.parse, buffered(source), options, where=source.url)
    pin = source.pin()
    about = {"format": name, "source": source.url, "size": pin.size, "version": __version__}
    if pin.etag is not None:
        about["etag"] = pin.etag
    elif pin.mtime_ns is not None:
        about["mtime_ns"] = pin.mtime_ns
    return _with_root(parsed, about, {source.url: pin})


def _of_kind(name: str, kind: type, url: str) -> Any:
    formats.by_name(name)
    module = formats.of_kind(kind).get(name)
    if module is None:
        raise FormatError(f"{url}: {name} is a format of another kind (file or folder) than this")
    return module


_signature = cache(inspect.signature)


def _parsed(
    parse: Callable[..., Node], source: Source | Folder, options: Mapping[str, Any], *, where: str
) -> Node:
    """Parse untrusted bytes: whatever goes wrong in there is the file's fault, and said so."""
    _signature(parse).bind(source, **options)  # a wrong option is the caller's: TypeError
    try:
        return parse(source, **options)
    except (AnychunkError, FileNotFoundError, MemoryError, Warning):
        raise
    except Exception as e:
        raise FormatError(f"{where}: {type(e).__name__} while parsing: {e}") from e


def _with_root(node: Node, about: dict[str, Json], pins: dict[str, Any]) -> Node:
    if isinstance(node, GroupIndex):
        return node.with_root(pins=pins, attributes={"anychunk": about})
    node.attributes.setdefault("anychunk", about)
    return node


def open(  # noqa: A001 - the public name is anychunk.open
    url: str | Path | Node | Sequence[str | Path],
    *,
    storage: Storage | None = None,
    on_change: OnChange = "error",
    **options: Any,
) -> zarr.Group | zarr.Array[Any]:
    """Open a file, or an index, as a read-only Zarr hierarchy.

    Gives a group, or an array where the url is itself one array. A source that is no longer the
    one that was indexed is an error, or with `on_change="warn"` a warning. Further options are
    those of `index`.
    """
    node = (
        url if isinstance(url, GroupIndex | ArrayIndex) else index(url, storage=storage, **options)
    )
    if isinstance(node, ArrayIndex):
        return open_array(node, storage=storage, on_change=on_change)
    store = _store(node, storage, on_change)
    return Group(AsyncGroup(GroupMetadata(attributes=node.attributes), StorePath(store)))


def _store(node: Node, storage: Storage | None, on_change: OnChange) -> IndexStore:
    if on_change not in ("error", "warn"):
        raise ValueError(f"on_change is {on_change!r}, expected 'error' or 'warn'")
    pipeline.install()
    codecs.register_unclaimed()
    return IndexStore(node, storage=storage, on_change=on_change)


def open_array(
    url: str | Path | Node,
    *,
    image: int | str = 0,
    level: int | str = 0,
    storage: Storage | None = None,
    on_change: OnChange = "error",
    **options: Any,
) -> zarr.Array[Any]:
    """Open one array of a file: by default the first image at full resolution."""
    node = (
        url if isinstance(url, GroupIndex | ArrayIndex) else index(url, storage=storage, **options)
    )
    path = array_path(node, image, level)
    return open_path(node, path, storage=storage, on_change=on_change)


def array_path(node: Node, image: int | str, level: int | str) -> str:
    """Give the path of a level of an image, which is told by its number or by its own path."""
    path = "" if isinstance(node, ArrayIndex) else f"{image}/{level}"
    if isinstance(find(node, path), ArrayIndex):
        return path
    try:
        return chosen(list(images(node)), image).levels[int(level)]
    except (KeyError, IndexError, ValueError):
        return path  # whoever opens it says which there are


def open_path(
    node: Node, path: str, *, storage: Storage | None = None, on_change: OnChange = "error"
) -> zarr.Array[Any]:
    """Open the array at `path` of an index."""
    found = find(node, path)
    if not isinstance(found, ArrayIndex):
        known = [name for name, member in walk(node) if isinstance(member, ArrayIndex)]
        raise KeyError(f"no array {path!r}; there are: {' '.join(known[:20])}")
    # straight from the index: zarr would ask the store for it, by way of its event loop
    place = StorePath(_store(node, storage, on_change), path)
    return Array(AsyncArray(array_metadata(found), place))


def describe(url: str | Path | Node, **options: Any) -> dict[str, Json]:
    """Say what a file holds, as plain data: its attributes and every array."""
    node = url if isinstance(url, GroupIndex | ArrayIndex) else index(url, **options)
    arrays = [_describe_array(path, a) for path, a in walk(node) if isinstance(a, ArrayIndex)]
    about = node.attributes.get("anychunk", {})
    return {**about, "arrays": arrays, "attributes": node.attributes}


def _describe_array(path: str, array: ArrayIndex) -> dict[str, Json]:
    chunks = array.chunks
    stored = None
    if isinstance(chunks, ByteRanges):
        stored = int(chunks.lengths.sum(dtype=np.uint64))
        if chunks.parts is not None:
            stored += int(chunks.parts.lengths.sum(dtype=np.uint64))
    return {
        "path": path,
        "shape": list(array.shape),
        "axes": list(array.dimension_names),
        "data_type": array.data_type,
        "chunk_shape": list(array.chunk_shape),
        "grid": list(array.grid),
        "codecs": list(array.codecs),
        "fill_value": array.fill_value,
        "stored_bytes": stored,
        "attributes": array.attributes,
    }


def write(array: Any, url: str | Path, *, format: str | None = None, **options: Any) -> None:
    """Write a numpy, dask or zarr array to a file of the format that its name tells.

    Further options are the format's own.
    """
    url = str(url)
    # what names no format is an option of the one that the url tells: JNRRD has one of that name
    is_option = format is not None and format not in formats.names()
    if is_option:
        options = {**options, "format": format}
    named = format is not None and not is_option
    module = formats.by_name(str(format)) if named else formats.writer(url)
    if not isinstance(module, formats.WritableFormat):
        raise FormatError(f"{url}: {format} is not written here")
    module.write(array, url, **options)


def append(
    urls: str | Path | Iterable[str | Path],
    target: str | Path,
    *,
    combine: How = "group",
    along: str | int | None = None,
    batch: int = 100,
    client: Any = None,
    failures: Failures | None = None,
    progress: Callable[[], object] | None = None,
    storage: Storage | None = None,
    copy: Literal["never", "needed"] = "never",
    **options: Any,
) -> int:
    """Add files to an Icechunk repository, one commit a batch; give how many were added.

    Files that the repository refers to already are passed over: after a crash, which leaves the
    last commit, the same call goes on where it stopped. `combine` is group, stack or concat.
    """
    if combine == "mosaic":
        raise ValueError("append: a mosaic is one piece; index it whole, and save that")
    place = str(target)
    known = icechunk.saved_sources(place, storage=storage)
    every = expand(urls, storage)
    # of those that are there already too: what stopped goes on with the same names
    names = dict(zip(every, group_names(every), strict=True)) if every else {}
    waiting = [url for url in every if absolute(url) not in known]
    added = 0
    for start in range(0, len(waiting), batch):
        some = waiting[start : start + batch]
        files = index_files(
            some,
            client=client,
            failures=failures,
            progress=progress,
            may_be_none=True,
            storage=storage,
            **options,
        )
        if not files:
            continue
        node = combine_files(files, combine, along=along, names=[names[url] for url in files])
        axis = None if combine == "group" else axis_of(node, combine, along)
        icechunk.append(node, place, along=axis, copy=copy, storage=storage)
        added += len(files)
    if failures and not added and not known:
        raise FilesError(failures, len(waiting))
    return added


def from_virtualizarr(found: Any, **options: Any) -> Node:
    """Give a VirtualiZarr store, group, or virtual dataset as an index."""
    from anychunk.references import virtualizarr

    return virtualizarr.from_virtualizarr(found, **options)


@dataclass(frozen=True, kw_only=True)
class VirtualParser:
    """A parser for VirtualiZarr: `open_virtual_dataset(url, registry, parser=VirtualParser())`.

    Gives one array as the variable `name` of the root, or with `tree=True` every array under its
    own path, as `open_virtual_datatree` takes them.
    """

    image: int | str = 0
    level: int | str = 0
    name: str = "data"
    tree: bool = False
    copy: Literal["never", "needed"] = "never"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, url: str, registry: Any) -> Any:
        """Parse `url`, read by the stores of `registry`, into a `ManifestStore`."""
        from anychunk.references import virtualizarr

        storage = {"resolve": registry.resolve} if is_remote(url) else None
        node = index(url, storage=storage, **self.options)
        if not self.tree:
            path = array_path(node, self.image, self.level)
            node = virtualizarr.single(node, path, self.name)
        else:
            node = virtualizarr.apart(node, self.name)
        return virtualizarr.to_virtualizarr(
            node, registry=registry, copy=self.copy, storage=storage
        )


_replaced: dict[str, Any] | None = None


def enable() -> None:
    """Make our codecs and our pipeline zarr's choice for everything it opens from now on."""
    global _replaced  # noqa: PLW0603 - what `disable` puts back
    names = {name: codecs.register(name) for name in codecs.table()}
    if _replaced is None:
        _replaced = dict(zarr.config.get("codecs"))
    # a nested update merges; setting by dotted key would split names that hold dots
    zarr.config.update({"codecs": names})
    pipeline.install(force=True)


def disable() -> None:
    """Take our codecs and our pipeline out of zarr's configuration again."""
    global _replaced  # noqa: PLW0603
    if _replaced is not None:
        zarr.config.set({"codecs": _replaced})
        _replaced = None
        for name in codecs.table():
            codecs.unregister(name)
    pipeline.uninstall()
