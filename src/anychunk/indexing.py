"""Reads the structure of one file or folder, or a saved index, and describes it.

Needs no zarr, and of the formats only the one that the file has.
"""

import os
from collections.abc import Buffer, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from anychunk import formats
from anychunk._version import __version__
from anychunk.errors import (
    OWN,
    AnychunkError,
    FormatError,
    OptionError,
    UnsupportedError,
    untrusted,
)
from anychunk.io.block_cache import buffered
from anychunk.io.held import held_source, with_source
from anychunk.io.opening import Folder, open_source
from anychunk.io.source import Source, Storage, as_url, is_pattern, is_remote, local_path, unsigned
from anychunk.io.storage import in_store
from anychunk.model.index import (
    TILES,
    ArrayIndex,
    ByteRanges,
    GroupIndex,
    Json,
    Node,
    deferred,
    known_arrays,
    pins_at_once,
    walk,
    with_arrays,
)
from anychunk.options import check_for

type Url = str | Path
type Held = Buffer | BinaryIO
"""The content of a file, or an open file."""


SAVED = ("kerchunk", "parquet", "icechunk")
"""Formats of saved indexes."""


def _saved_indexes() -> Any:
    from anychunk import references  # slow, and rarely needed

    return references


def index_url(url: Url, **options: Any) -> Node:
    """Read the structure of one file; the options are those of `anychunk.index`."""
    if is_pattern(str(url)):
        raise several_files()
    return index_one(as_url(url), **options)


def several_files() -> OptionError:
    """Return the error for a pattern or a list of files without a way to combine them."""
    return OptionError("several files require combine='stack', 'concat', 'mosaic' or 'group'")


def index_one(
    url: str, *, format: str | None = None, storage: Storage | None = None, **options: Any
) -> Node:
    """Read the structure of one file."""
    return _indexed(url, format, storage, (), options)


def index_inside(url: str, *, storage: Storage | None, roots: Sequence[str]) -> Node:
    """Read the structure of a file that must lie in one of the folders `roots`, if there are any.

    So must every file that it refers to.
    """
    return _indexed(url, None, storage, roots, {})


def _indexed(
    url: str,
    format: str | None,
    storage: Storage | None,
    roots: Sequence[str],
    options: Mapping[str, Any],
) -> Node:
    url, storage = unsigned(url, storage)
    url = in_store(url, storage)
    if _is_folder(url, format):
        return _index_folder(Folder(url, storage=storage, roots=roots), format, options)
    try:
        source = open_source(url, storage=storage, roots=roots)
        head = source.read(0, min(formats.HEAD, source.size())).tobytes()
    except FileNotFoundError:
        if not is_remote(url):
            raise
        # an object store has no directories: a prefix may still be a folder format
        folder = Folder(url, storage=storage)
        if not _exists(folder):
            raise
        return _index_folder(folder, format, options)
    return _index_object(source, head, format, options)


def is_recognised(path: str) -> bool:
    """Return whether a format recognises the first bytes of a file, or the content of a folder."""
    try:
        if os.path.isdir(path):  # noqa: PTH112 - a third of the cost of Path.is_dir
            formats.sniff_folder(Folder(path))
        else:
            source = open_source(path)
            formats.sniff(source.read(0, min(formats.HEAD, source.size())).tobytes(), path)
    except (AnychunkError, OSError):
        return False
    return True


def index_held(
    given: Any, format: str | None, storage: Storage | None, options: Mapping[str, Any]
) -> Node:
    """Index bytes or an open file."""
    source = held_source(given)
    if isinstance(source, str):
        return index_one(source, format=format, storage=storage, **options)
    head = source.read(0, min(formats.HEAD, source.size())).tobytes()
    return _index_object(source, head, format, options)


def _is_folder(url: str, format: str | None) -> bool:
    if format in SAVED:
        return format != "kerchunk"
    if not is_remote(url):
        return os.path.isdir(local_path(url))  # noqa: PTH112 - a third of the cost of Path.is_dir
    if url.endswith("/"):
        return True
    # only a request would tell a remote folder from an object, but the name of one may
    known = formats.table() if format is None else {format: formats.by_name(format)}
    folders = [m for m in known.values() if isinstance(m, formats.FolderFormat)]
    return any(format or (hasattr(m, "claims") and m.claims(url)) for m in folders)


def _exists(folder: Folder) -> bool:
    """Return whether a remote folder contains anything, as far as its server reveals."""
    try:
        return folder.names() != ([], [])
    except UnsupportedError:  # web servers do not list: ask for the files that a folder must have
        known = ("attributes.json", "zarr.json", ".zgroup", ".zarray", ".zmetadata")
        return any(folder.read(name) is not None for name in known)


def _index_folder(folder: Folder, name: str | None, options: Mapping[str, Any]) -> Node:
    if name is None:
        try:
            name, _ = formats.sniff_folder(folder)
        except UnsupportedError:
            name = _saved_indexes().sniff_folder(folder)
            if name is None:
                raise
    if name in SAVED:
        references = _saved_indexes()
        check_for(references.INDEX_FORMATS[name].load, folder.path, options)
        loaded: Node = references.load_folder(folder, name, **options)
        return loaded
    module: formats.FolderFormat = _of_kind(name, formats.FolderFormat, folder.path)
    parsed = _parsed(module.parse_folder, folder, options, where=folder.path)
    return _with_root(parsed, {"format": name, "source": folder.path, "version": __version__}, {})


def _index_object(
    source: Source, head: bytes, name: str | None, options: Mapping[str, Any]
) -> Node:
    if name is None:
        try:
            name, _ = formats.sniff(head, source.url)
        except UnsupportedError:
            if not _saved_indexes().sniff(head):
                raise
            name = "kerchunk"
    if name in SAVED:
        references = _saved_indexes()
        check_for(references.load, source.url, options)
        loaded: Node = references.load(source, **options)
        return loaded
    module: formats.Format = _of_kind(name, formats.Format, source.url)
    parsed = _parsed(module.parse, buffered(source), options, where=source.url)
    pin = with_source(source)
    about = {"format": name, "source": source.url, "size": pin.size, "version": __version__}
    if pin.etag is not None:
        about["etag"] = pin.etag
    elif pin.mtime_ns is not None:
        about["mtime_ns"] = pin.mtime_ns
    return _with_root(parsed, about, {source.url: pin})


def _of_kind(name: str, kind: type, url: str) -> Any:
    formats.by_name(name)
    module = formats.as_kind(name, kind)
    if module is None:
        wanted = "a single file" if kind is formats.Format else "a folder"
        raise FormatError(f"{url}: format {name!r} cannot open {wanted}; leave out format={name!r}")
    return module


def _parsed(
    parse: Callable[..., Node], source: Source | Folder, options: Mapping[str, Any], *, where: str
) -> Node:
    """Run a parser on untrusted bytes; a parser's own code may not raise foreign exceptions."""
    check_for(parse, where, options)
    with untrusted(where, own=(*OWN, parse.__module__.partition(".")[0])):
        return parse(source, **options)


def _with_root(node: Node, about: dict[str, Json], pins: dict[str, Any]) -> Node:
    arrays = known_arrays(node)
    if arrays is None or not isinstance(node, GroupIndex):
        return _merged(node, about, pins)
    # the attributes of this file are made when they are asked for
    known = {"pins": {**pins, **pins_at_once(node)}, "roots": node.roots}
    root = deferred(GroupIndex, lambda: cast("GroupIndex", _merged(node, about, pins)), **known)
    return with_arrays(root, arrays)


def _merged(node: Node, about: dict[str, Json], pins: dict[str, Any]) -> Node:
    # what a Zarr store says about its own origin stays; it cannot say where it is
    own = node.attributes.get("anychunk")
    merged = {"anychunk": {**(own if isinstance(own, Mapping) else {}), **about}}
    attributes = {**node.attributes, **merged}
    if isinstance(node, GroupIndex):
        return replace(node, pins={**pins, **node.pins}, attributes=attributes)
    return replace(node, attributes=attributes)


def described(node: Node) -> dict[str, Json]:
    """Return an index as plain data, ready for JSON; `anychunk.describe`."""
    arrays = [_describe_array(path, a) for path, a in walk(node) if isinstance(a, ArrayIndex)]
    about = node.attributes.get("anychunk", {})
    return {**about, "arrays": arrays, "attributes": node.attributes}


def _describe_array(path: str, array: ArrayIndex) -> dict[str, Json]:
    chunks = array.chunks
    if array.has_codec(TILES):
        from anychunk.formats._jpeg2000 import whole

        chunks = whole(array).chunks  # chunks that are parts of a tile share its bytes
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
