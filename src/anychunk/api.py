"""The public functions: url in, zarr out."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import zarr
from zarr.core.array import AsyncArray
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import StorePath

from anychunk import codecs, formats, pipeline
from anychunk._version import __version__
from anychunk.array import Array
from anychunk.errors import AnychunkError, FormatError
from anychunk.index import ArrayIndex, ByteRanges, GroupIndex, Json, Node, find, walk
from anychunk.source import Folder, Source, Storage, buffered, is_remote, local_path, open_source
from anychunk.store import IndexStore


def index(
    url: str | Path,
    *,
    format: str | None = None,
    storage: Storage | None = None,
    **options: Any,
) -> GroupIndex | ArrayIndex:
    """Read the structure of a file, never its samples.

    `format` names a format instead of looking at the content. `storage` is handed to obstore.
    Further options are the format's own.
    """
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
        return _index_folder(Folder(url, storage=storage), format, options)
    return _index_object(source, head, format, options)


def _is_folder(url: str, format: str | None) -> bool:
    if not is_remote(url):
        return Path(local_path(url)).is_dir()
    if url.endswith("/"):
        return True
    # a remote folder cannot be told from an object without a request, but by its name it may
    known = formats.table() if format is None else {format: formats.by_name(format)}
    folders = [m for m in known.values() if isinstance(m, formats.FolderFormat)]
    return any(format or (isinstance(m, formats.WritableFormat) and m.claims(url)) for m in folders)


def _index_folder(folder: Folder, name: str | None, options: Mapping[str, Any]) -> Node:
    if name is None:
        name, module = formats.sniff_folder(folder)
    else:
        module = cast("formats.FolderFormat", _of_kind(name, formats.FolderFormat, folder.path))
    parsed = _parsed(module.parse_folder, folder, options, where=folder.path)
    return _with_root(parsed, {"format": name, "source": folder.path, "version": __version__}, {})


def _index_object(
    source: Source, head: bytes, name: str | None, options: Mapping[str, Any]
) -> Node:
    if name is None:
        name, module = formats.sniff(head, source.url)
    else:
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
    module = formats.by_name(name)
    if not isinstance(module, kind):
        raise FormatError(f"{url}: {name} is a format of another kind (file or folder) than this")
    return module


def _parsed(
    parse: Callable[..., Node], source: Source | Folder, options: Mapping[str, Any], *, where: str
) -> Node:
    """Parse untrusted bytes: whatever goes wrong in there is the file's fault, and said so."""
    inspect.signature(parse).bind(source, **options)  # a wrong option is the caller's: TypeError
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
    url: str | Path | Node, *, storage: Storage | None = None, **options: Any
) -> zarr.Group | zarr.Array[Any]:
    """Open a file, or an index, as a read-only Zarr hierarchy.

    Gives a group, or an array where the url is itself one array. Options are those of `index`.
    """
    node = (
        url if isinstance(url, GroupIndex | ArrayIndex) else index(url, storage=storage, **options)
    )
    if isinstance(node, ArrayIndex):
        return open_array(node, storage=storage)
    store = _store(node, storage)
    return zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)


def _store(node: Node, storage: Storage | None) -> IndexStore:
    pipeline.install()
    codecs.register_unclaimed()
    return IndexStore(node, storage=storage)


def open_array(
    url: str | Path | Node,
    *,
    image: int | str = 0,
    level: int | str = 0,
    storage: Storage | None = None,
    **options: Any,
) -> zarr.Array[Any]:
    """Open one array of a file: by default the first image at full resolution."""
    node = (
        url if isinstance(url, GroupIndex | ArrayIndex) else index(url, storage=storage, **options)
    )
    path = "" if isinstance(node, ArrayIndex) else f"{image}/{level}"
    found = find(node, path)
    if not isinstance(found, ArrayIndex):
        known = [name for name, member in walk(node) if isinstance(member, ArrayIndex)]
        raise KeyError(f"no array {path!r}; there are: {' '.join(known[:20])}")
    # straight from the index: zarr would ask the store for it, by way of its event loop
    place = StorePath(_store(node, storage), path)
    return Array(AsyncArray(ArrayV3Metadata.from_dict(found.metadata()), place))


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
    is_option = format is not None and format not in formats.table()
    if is_option:
        options = {**options, "format": format}
    named = format is not None and not is_option
    module = formats.by_name(str(format)) if named else formats.writer(url)
    if not isinstance(module, formats.WritableFormat):
        raise FormatError(f"{url}: {format} is not written here")
    module.write(array, url, **options)


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
