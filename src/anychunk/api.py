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

from anychunk import codecs, formats, references
from anychunk._version import __version__
from anychunk.combine import How, axis_of, group_names
from anychunk.combine import combine as combine_files
from anychunk.combine.mosaic import Overlap
from anychunk.combine.parallel import Failures, parse_many
from anychunk.combine.patterns import expand, is_pattern
from anychunk.errors import (
    AnychunkError,
    FilesError,
    FormatError,
    UnsupportedError,
    defect,
    is_defect,
)
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
from anychunk.model.images import array_path
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, Node, walk
from anychunk.read import pipeline
from anychunk.read.zarr_array import Array, Group, open_path
from anychunk.read.zarr_array import open_group as open_index
from anychunk.references import icechunk, virtualizarr

type Url = str | Path


def index(
    url: Url | Sequence[Url],
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
    """Read the structure of a file, or a saved index; no samples are read.

    Parameters:
        url: A path or url, or several, or a pattern such as `"s3://bucket/*.tif"`. Accepts
            local paths and `file:`, `s3:`, `gs:`, `az:`, `http:`, `https:` and `memory:` urls.
        format: The name of a format, instead of recognising it by content; `anychunk formats`
            lists them.
        storage: Options for obstore's store: credentials, `region`, `endpoint`, `skip_signature`,
            `client_options`.
        combine: How several files become one index: `"stack"` along a new axis, `"concat"` along
            an existing one, `"mosaic"` on one map grid, `"group"` side by side.
        along: The axis to stack or concatenate along, by name or number.
        overlap: What `"mosaic"` does where images overlap: `"error"`, `"first"` or `"last"`.
        client: A Dask client, or the address of a scheduler, to parse many files on.
        failures: A dictionary. Files that cannot be indexed are left out and noted in it, with the
            reason; without it the first of them raises.
        **options: Options of the format itself:

            - JNRRD, NRRD and saved indexes: `allow=[…]`, folders or url prefixes outside the
              file's own folder that it may refer to (`["*"]`: anywhere).
            - N5: `axes="n5"` or `"reversed"`, the order of dimensions; `blocks="samples"` or
              `"bytes"`, the second for blocks that are not arrays of samples.
            - NITF: `rsets=True` or `False`, whether reduced resolutions in sibling files
              (`.r1`, `.r2` …) become levels; by default they do for local files.

    Returns:
        A `GroupIndex`; an `ArrayIndex` where the url is itself one array, such as an N5 dataset.

    Raises:
        AnychunkError: The file cannot be indexed; the subclass says why.
        FileNotFoundError: There is no such file or object.
    """
    if not isinstance(url, str | Path) or combine is not None or is_pattern(str(url)):
        if combine is None:
            raise ValueError("several files require combine='stack', 'concat', 'mosaic' or 'group'")
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
        if not _exists(folder):
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
    """Index many files, on threads or a Dask cluster; return the indexes by url, in order.

    Parameters:
        urls: The files.
        client: As in `index`.
        failures: As in `index`.
        progress: Called after every file.
        may_be_none: Whether to return an empty result if every file failed, instead of raising.
        **options: As in `index`.

    Raises:
        FilesError: Some files cannot be indexed and `failures` was not given, or none can be.
    """
    found: dict[str, Node] = {}
    failed: Failures = {} if failures is None else failures
    for url, outcome in parse_many(partial(index, **options), urls, client):
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
    if format in references.INDEX_FORMATS:
        return format != "kerchunk"
    if not is_remote(url):
        return os.path.isdir(local_path(url))  # noqa: PTH112 - a third of the cost of Path.is_dir
    if url.endswith("/"):
        return True
    # only a request would tell a remote folder from an object, but the name of one may
    known = formats.table() if format is None else {format: formats.by_name(format)}
    folders = [m for m in known.values() if isinstance(m, formats.FolderFormat)]
    return any(format or (isinstance(m, formats.WritableFormat) and m.claims(url)) for m in folders)


def _exists(folder: Folder) -> bool:
    """Return whether a remote folder contains anything, as far as its server reveals."""
    try:
        return folder.names() != ([], [])
    except UnsupportedError:  # web servers do not list: ask for the files that a folder must have
        return any(folder.read(name) is not None for name in ("attributes.json", ".zmetadata"))


def _index_folder(folder: Folder, name: str | None, options: Mapping[str, Any]) -> Node:
    if name is None:
        try:
            name, _ = formats.sniff_folder(folder)
        except UnsupportedError:
            name = references.sniff_folder(folder)
            if name is None:
                raise
    if name in references.INDEX_FORMATS:
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
    if name in references.INDEX_FORMATS:
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
        wanted = "a single file" if kind is formats.Format else "a folder"
        raise FormatError(f"{url}: format {name!r} cannot open {wanted}; leave out format={name!r}")
    return module


_signature = cache(inspect.signature)


def _parsed(
    parse: Callable[..., Node], source: Source | Folder, options: Mapping[str, Any], *, where: str
) -> Node:
    """Run a parser on untrusted bytes.

    A parser raises `AnychunkError` on purpose. Any other exception is blamed on the file if it was
    raised inside a library that the parser uses, and on the parser if its own code raised it.
    """
    _check_options(parse, source, options, where=where)
    try:
        return parse(source, **options)
    except (AnychunkError, FileNotFoundError, MemoryError, Warning):
        raise
    except Exception as e:
        if is_defect(e, own=("anychunk", parse.__module__.partition(".")[0])):
            raise defect(e, where) from e
        raise FormatError(f"{where}: {type(e).__name__} while parsing: {e}") from e


def _check_options(
    parse: Callable[..., Node], source: Source | Folder, options: Mapping[str, Any], *, where: str
) -> None:
    """Refuse options that a parser does not have: the caller's mistake, not the file's."""
    signature = _signature(parse)
    try:
        signature.bind(source, **options)
    except TypeError as e:
        known = [n for n, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY]
        listed = ", ".join(known) or "none"
        raise TypeError(f"{where}: {e}; options of this format: {listed}") from None


def _with_root(node: Node, about: dict[str, Json], pins: dict[str, Any]) -> Node:
    if isinstance(node, GroupIndex):
        return node.with_root(pins=pins, attributes={"anychunk": about})
    node.attributes.setdefault("anychunk", about)
    return node


def _as_index(url: Url | Node | Sequence[Url], storage: Storage | None, options: Any) -> Node:
    if isinstance(url, GroupIndex | ArrayIndex):
        return url
    return index(url, storage=storage, **options)


def open(  # noqa: A001 - the public name is anychunk.open
    url: Url | Node | Sequence[Url],
    *,
    storage: Storage | None = None,
    on_change: OnChange = "error",
    **options: Any,
) -> Group | Array:
    """Open a file, or an index, as a read-only Zarr hierarchy.

    The first call makes anychunk's pipeline the default of zarr, unless zarr's configuration
    already names another one; `disable` undoes that.

    Parameters:
        url: A path or url, several, a pattern, a saved index, or what `index` returned.
        storage: Options for obstore's store, as in `index`.
        on_change: What happens when a source is no longer the one that was indexed: `"error"`
            raises `SourceChangedError`, `"warn"` warns and reads what is there.
        **options: All other options of `index`: `format`, `combine`, `along`, `overlap`, `client`,
            `failures`, and those of the formats: `allow` (JNRRD, NRRD, saved indexes), `axes` and
            `blocks` (N5), `rsets` (NITF).

    Returns:
        A `zarr.Group`; a `zarr.Array` where the url is itself one array, such as an N5 dataset.
        `open_group` and `open_array` return exactly one of the two.

    Raises:
        AnychunkError: The file cannot be opened; the subclass says why.
        FileNotFoundError: There is no such file or object.
    """
    node = _as_index(url, storage, options)
    if isinstance(node, ArrayIndex):
        return open_path(node, "", storage=storage, on_change=on_change)
    return open_index(node, storage=storage, on_change=on_change)


def open_group(
    url: Url | Node | Sequence[Url],
    *,
    storage: Storage | None = None,
    on_change: OnChange = "error",
    **options: Any,
) -> Group:
    """Open a file, or an index, as a read-only `zarr.Group`.

    Parameters are those of `open`. `group.image(0, level=0)` is an array of it.

    Raises:
        UnsupportedError: The url is itself one array: use `open_array`.
    """
    node = _as_index(url, storage, options)
    if isinstance(node, ArrayIndex):
        name = node.attributes.get("anychunk", {}).get("source", "index")
        raise UnsupportedError(
            f"{name}: found a single array, expected a group; open it with open_array"
        )
    return open_index(node, storage=storage, on_change=on_change)


def open_array(
    url: Url | Node,
    *,
    image: int | str = 0,
    level: int | str = 0,
    storage: Storage | None = None,
    on_change: OnChange = "error",
    **options: Any,
) -> Array:
    """Open one array of a file, by default the first image at full resolution.

    Parameters:
        url: A path or url, a saved index, or what `index` returned.
        image: The number of the image, or its path.
        level: The number of the level, 0 for full resolution, or its name.
        storage: As in `open`.
        on_change: As in `open`.
        **options: As in `open`.

    Raises:
        NoSuchImageError: There is no such image or level.
    """
    node = _as_index(url, storage, options)
    return open_path(node, array_path(node, image, level), storage=storage, on_change=on_change)


def describe(url: Url | Node, **options: Any) -> dict[str, Json]:
    """Return what a file holds as plain data, ready for JSON: its attributes and every array.

    Options are those of `index`.
    """
    node = _as_index(url, options.pop("storage", None), options)
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
    """Write a numpy, dask or zarr array to a file.

    Parameters:
        array: What to write; dask and zarr arrays may be larger than memory.
        url: The target. Its extension decides the format: `.n5`, `.jnrrd`.
        format: The name of a format, to override the extension.
        **options: Options of the format; see its page in the documentation.

    Raises:
        UnsupportedError: No format writes this extension, or the named format is read-only.
    """
    url = str(url)
    # JNRRD has an option of the same name: a value that names no format is meant for it
    is_option = format is not None and format not in formats.names()
    if is_option:
        options = {**options, "format": format}
    named = format is not None and not is_option
    module = formats.by_name(str(format)) if named else formats.writer(url)
    if not isinstance(module, formats.WritableFormat):
        raise FormatError(f"{url}: {format} files can be read, but not written")
    module.write(array, url, **options)


def save(node: Node, target: str | Path, *, format: str | None = None, **options: Any) -> None:
    """Save an index, so that it can be opened again without parsing the file.

    Parameters:
        node: What `anychunk.index` returned.
        target: A path or url: `.json` kerchunk, `.parquet`, or an `.icechunk` repository.
        format: "kerchunk", "parquet" or "icechunk", instead of the target's extension.
        options: `copy="needed"` copies chunks that the format cannot refer to; `relative=False`
            writes urls that do not move with the index; `storage` is obstore's. For JSON also
            `zarr_format=2` and `layout="osml"`, for Icechunk `message`.

    Raises:
        UnsupportedError: If the format cannot express the index; nothing is written then.
    """
    references.save(node, str(target), format=format, **options)


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
    """Add files to an Icechunk repository, one commit per batch; return how many were added.

    Files that the repository already refers to are skipped, so the same call resumes after a crash,
    which leaves the repository at its last commit.

    Parameters:
        urls: Paths, urls or patterns.
        target: The repository, created if it does not exist.
        combine: `"group"`, `"stack"` or `"concat"`; see `index`.
        along: The axis to stack or concatenate along.
        batch: The number of files per commit.
        client: As in `index`.
        failures: As in `index`.
        progress: Called after every file.
        storage: As in `index`.
        copy: `"needed"` copies chunks that Icechunk cannot refer to; `"never"` refuses them.
        **options: As in `index`.
    """
    if combine == "mosaic":
        raise ValueError(
            "append: combine='mosaic' is not supported; index all files at once and save the result"
        )
    place = str(target)
    known = icechunk.saved_sources(place, storage=storage)
    every = expand(urls, storage)
    # including files that are already there: a resumed call must find the same names
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
    """Return a VirtualiZarr `ManifestStore`, `ManifestGroup` or virtual dataset as an index."""
    return virtualizarr.from_virtualizarr(found, **options)


@dataclass(frozen=True, kw_only=True)
class VirtualParser:
    """A parser for VirtualiZarr: `open_virtual_dataset(url, registry, parser=VirtualParser())`.

    One array becomes a variable of the root; with `tree=True` every array stays at its own path, as
    `open_virtual_datatree` expects.
    """

    image: int | str = 0
    """The number of the image, or its path."""
    level: int | str = 0
    """The number of the level, 0 for full resolution."""
    name: str = "data"
    """The name of the variable."""
    tree: bool = False
    """Whether to keep all arrays, in groups."""
    copy: Literal["never", "needed"] = "never"
    """`"needed"` copies chunks that a manifest cannot refer to; `"never"` refuses them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `index`."""

    def __call__(self, url: str, registry: Any) -> Any:
        """Parse `url`, read by the stores of `registry`, into a `ManifestStore`."""
        storage = {"resolve": registry.resolve} if is_remote(url) else None
        node = index(url, storage=storage, **self.options)
        if not self.tree:
            path = array_path(node, self.image, self.level)
            node = virtualizarr.single_array(node, path, self.name)
        else:
            node = virtualizarr.group_per_array(node, self.name)
        return virtualizarr.to_virtualizarr(
            node, registry=registry, copy=self.copy, storage=storage
        )


_replaced: dict[str, Any] | None = None


def enable() -> None:
    """Make zarr use our codecs and our pipeline for everything that it opens from now on."""
    global _replaced  # noqa: PLW0603 - what `disable` puts back
    names = codecs.register_all()
    if _replaced is None:
        _replaced = dict(zarr.config.get("codecs"))
    # a nested update merges; setting by dotted key would split names that hold dots
    zarr.config.update({"codecs": names})
    pipeline.install(force=True)


def disable() -> None:
    """Remove our codecs and our pipeline from zarr's configuration."""
    global _replaced  # noqa: PLW0603
    if _replaced is not None:
        zarr.config.set({"codecs": _replaced})
        _replaced = None
        codecs.unregister_all()
    pipeline.uninstall()
