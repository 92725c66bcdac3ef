"""Kerchunk parquet: references in tables of one row per chunk, which fsspec reads piece by piece.

Spec:    https://fsspec.github.io/kerchunk/spec.html, "Parquet references"; fsspec's
         `LazyReferenceMapper`: `.zmetadata`, and `ARRAY/refs.N.parq` with path, offset, size, raw.
Opened:  what fsspec, kerchunk and VirtualiZarr write, and ours.
Refused: chunks of several parts, unless they are copied in; an index whose root is an array.

fsspec reads Zarr v2 only, so `.zmetadata` holds the v2 metadata of every array that v2 can express.
`anychunk.json` beside it holds the v3 metadata of all arrays, the pins, and the folder that the
index was saved in.
"""

import json
import math
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

import numpy as np

from anychunk import limits
from anychunk.errors import FormatError, LimitError, MissingDependencyError, UnsupportedError
from anychunk.io import Folder, Storage, absolute, below, sink
from anychunk.model.grid import grid_shape
from anychunk.model.index import WHOLE, GroupIndex, Node
from anychunk.references.chunk_references import (
    Capabilities,
    ChunkReferences,
    Copy,
    chunk_references,
    used_urls,
    with_found_pins,
)
from anychunk.references.documents import Fields, parse_document, parse_nodes, write_documents
from anychunk.references.loading import Rows, build_index, url_resolver
from anychunk.references.urls import folder_of
from anychunk.references.zarr_v2 import to_v2

CAPABILITIES = Capabilities(name="kerchunk parquet", has_whole=True)
RECORD_SIZE = 100_000
"""How many rows a file has: fsspec reads and caches whole files."""
V2_METADATA = ".zmetadata"
V3_METADATA = "anychunk.json"


def _pyarrow() -> Any:
    try:
        import pyarrow  # noqa: ICN001 - returned as the module that it is
        import pyarrow.parquet
    except ImportError as e:
        raise MissingDependencyError(
            'kerchunk parquet needs pyarrow; install it with: pip install "anychunk[parquet]"'
        ) from e
    return pyarrow


def save(
    node: Node,
    target: str,
    *,
    relative: bool | None = None,
    copy: Copy = "never",
    storage: Storage | None = None,
) -> None:
    """Save an index as a folder of parquet references.

    Parameters:
        node: The index.
        target: The folder.
        relative: False: the index does not move with its data.
        copy: "needed" copies chunks that parquet cannot refer to; "never" refuses them.
        storage: obstore's options, for the target and the sources.

    Raises:
        UnsupportedError: If the format cannot express the index; nothing is written then.
        MissingDependencyError: If pyarrow is not installed.
    """
    arrow = _pyarrow()
    if not isinstance(node, GroupIndex):
        raise UnsupportedError(
            f"{target}: the root of the index is an array, expected a group; "
            "save it as kerchunk JSON or Icechunk"
        )
    found = chunk_references(node, CAPABILITIES, copy=copy, storage=storage)
    node = with_found_pins(node, found)
    written = {url: absolute(url) for url in used_urls(found)}
    base = None if relative is False else folder_of(target)
    v3 = write_documents(node, written, base, 3)
    root = target.rstrip("/")
    # removed first and written last, so that an interrupted save is not mistaken for an index
    sink.remove(f"{root}/{V2_METADATA}", storage=storage)
    for path, (_, references) in found.items():
        for record, data in _records(arrow, references, written):
            sink.put(below(root, f"{path}/refs.{record}.parq"), data, storage=storage, root=root)
    v2 = write_documents(_with_v2_arrays(node), written, base, 2)
    known = {"metadata": v2, "record_size": RECORD_SIZE}
    for name, content in ((V3_METADATA, {"metadata": v3}), (V2_METADATA, known)):
        sink.put(f"{root}/{name}", json.dumps(content).encode(), storage=storage, root=root)


def _with_v2_arrays(node: GroupIndex) -> GroupIndex:
    """Return the groups with only those arrays that Zarr v2 can express."""
    members: dict[str, Node] = {}
    for name, member in node.members.items():
        if isinstance(member, GroupIndex):
            members[name] = _with_v2_arrays(member)
            continue
        try:
            to_v2(member, name)
        except UnsupportedError:
            continue
        members[name] = member
    return GroupIndex(members=members, attributes=node.attributes, pins=node.pins)


def _records(
    arrow: Any, references: ChunkReferences, written: dict[str, str]
) -> Iterator[tuple[int, bytes]]:
    """Yield (number, parquet bytes) of each file of an array."""
    count = math.prod(references.grid)
    names = arrow.array([written.get(url, "") for url in references.urls] or [""], arrow.string())
    for record in range(-(-count // RECORD_SIZE)):
        rows = slice(record * RECORD_SIZE, min((record + 1) * RECORD_SIZE, count))
        yield record, _parquet(arrow, _table(arrow, references, rows, names))


def _table(arrow: Any, references: ChunkReferences, rows: slice, names: Any) -> Any:
    """Return some chunks of an array as a table of path, offset, size and, if needed, raw."""
    lengths = references.lengths[rows]
    ids = np.zeros(len(lengths), np.int32)
    if references.url_ids is not None:
        ids = references.url_ids[rows].astype(np.int32)
    indices = arrow.array(ids, mask=lengths == 0)
    # the convention for a whole object is offset 0, size 0
    whole = lengths == WHOLE
    columns = {
        "path": arrow.DictionaryArray.from_arrays(indices, names).cast(arrow.string()),
        "offset": arrow.array(np.where(whole, 0, references.offsets[rows]).astype(np.int64)),
        "size": arrow.array(np.where(whole, 0, lengths).astype(np.int64)),
    }
    # not nullable: fastparquet, which fsspec may use, reads nullable integers as floats
    fields = [
        arrow.field("path", arrow.string()),
        arrow.field("offset", arrow.int64(), nullable=False),
        arrow.field("size", arrow.int64(), nullable=False),
    ]
    numbers = range(rows.start, rows.stop) if references.copied else ()
    copied = [references.copied.get(number) for number in numbers]
    if any(copied):
        columns["raw"] = arrow.array(copied, arrow.binary())
        fields.append(arrow.field("raw", arrow.binary()))
    return arrow.table(columns, arrow.schema(fields))


def _parquet(arrow: Any, table: Any) -> bytes:
    buffer = BytesIO()
    arrow.parquet.write_table(
        table,
        buffer,
        compression="zstd",
        write_statistics=["offset", "size"],  # without them fastparquet reads floats, too
        store_schema=False,
        use_dictionary=["path"],
    )
    return buffer.getvalue()


def sniff_folder(folder: Folder) -> bool:
    """Return whether a folder holds parquet references."""
    text = folder.read(V2_METADATA)
    return text is not None and b'"record_size"' in text


def load(folder: Folder, *, allow: Iterable[str] = ()) -> Node:
    """Load a folder of parquet references as an index.

    Parameters:
        folder: The folder.
        allow: Prefixes of urls that references may point to, besides the folder around the index.
    """
    arrow = _pyarrow()
    where = folder.path
    known = parse_document(folder.read(V2_METADATA) or b"", f"{where}/{V2_METADATA}")
    ours = folder.read(V3_METADATA)
    documents = known.get("metadata")
    if ours is not None:
        documents = parse_document(ours, f"{where}/{V3_METADATA}").get("metadata")
    size = known.get("record_size")
    if not isinstance(documents, dict) or type(size) is not int or size < 1:
        raise FormatError(
            f"{where}: {V2_METADATA} has record_size {size!r} and metadata of type "
            f"{type(documents).__name__}, expected a positive integer and an object"
        )
    parsed = {k: parse_document(d, f"{where} {k}") for k, d in documents.items()}
    nodes = parse_nodes(parsed, where)
    resolver = url_resolver(nodes, where, allow)

    def read(path: str, array: Fields) -> tuple[Rows, list[str]]:
        count = math.prod(grid_shape(array["shape"], array["chunk_shape"]))
        if count > limits.get().chunks:
            raise LimitError(
                f"{where} {path}: {count} chunks are over the limit of {limits.get().chunks}"
            )
        rows, urls = _rows(arrow, folder, path, count, size, has_all=ours is not None)
        return rows, [resolver.resolve(url) for url in urls]

    return build_index(nodes, resolver, read)


def _rows(
    arrow: Any, folder: Folder, path: str, count: int, size: int, *, has_all: bool
) -> tuple[Rows, list[str]]:
    """Read the tables of one array; return its rows, and the urls that their ids refer to.

    Parameters:
        arrow: The module pyarrow.
        folder: The index.
        path: The array's path.
        count: The number of chunks.
        size: The number of rows per table.
        has_all: Whether a missing table is an error: we write every table, others leave out those
            without references.
    """
    urls: dict[str, int] = {}
    numbers, offsets, lengths, ids = [], [], [], []
    inline: dict[int, bytes] = {}
    for record in range(-(-count // size)):
        name = f"{path}/refs.{record}.parq"
        table = _read_table(arrow, folder, name)
        if table is None and has_all:
            raise FormatError(f"{folder.path}: {name} is missing; save the index again")
        if table is None:
            continue
        first, left = record * size, count - record * size
        paths = table["path"].combine_chunks().dictionary_encode()
        here = paths.indices.to_numpy(zero_copy_only=False)
        present = np.flatnonzero(paths.indices.is_valid().to_numpy(zero_copy_only=False))
        present = present[present < left]  # the last table may be padded
        known = [urls.setdefault(str(url), len(urls)) for url in paths.dictionary.to_pylist()]
        starts = table["offset"].to_numpy()[present].astype(np.uint64)
        sizes = table["size"].to_numpy()[present].astype(np.uint64)
        numbers.append(present + first)
        offsets.append(starts)
        lengths.append(np.where((sizes == 0) & (starts == 0), WHOLE, sizes))
        ids.append(np.array(known or [0], np.int64)[here[present].astype(np.int64)])
        if "raw" in table.column_names:
            raws = enumerate(table["raw"].to_pylist()[:left])
            inline.update({first + i: raw for i, raw in raws if raw is not None})
    rows = Rows(
        numbers=_joined(numbers, np.int64),
        offsets=_joined(offsets, np.uint64),
        lengths=_joined(lengths, np.uint64),
        url_ids=_joined(ids, np.int64),
        inline=inline,
    )
    return rows, list(urls)


def _joined(pieces: list[Any], dtype: Any) -> Any:
    return np.concatenate(pieces).astype(dtype) if pieces else np.empty(0, dtype)


def _columns(arrow: Any, table: Any) -> Any:
    """Return the columns of a table in the types that we write, whoever wrote it."""
    kinds = {"path": arrow.string(), "offset": arrow.int64(), "size": arrow.int64()}
    if "raw" in table.column_names:
        kinds["raw"] = arrow.binary()
    return arrow.table({name: table[name].cast(k) for name, k in kinds.items()}).combine_chunks()


def _read_table(arrow: Any, folder: Folder, name: str) -> Any:
    """Read one table; return None if there is no such file."""
    where = f"{folder.path}/{name}"
    most_bytes, most_rows = limits.get().index_bytes, limits.get().chunks
    try:
        source = folder.source(name)
        size = source.size()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if size > most_bytes:
        raise LimitError(f"{where}: {size} bytes are over the limit of {most_bytes} for an index")
    try:
        file = arrow.parquet.ParquetFile(BytesIO(source.read(0, size).tobytes()))
        rows = file.metadata.num_rows
        if rows > most_rows:
            raise LimitError(f"{where}: {rows} rows are over the limit of {most_rows} chunks")
        return _columns(arrow, file.read())
    except (arrow.ArrowException, OSError, KeyError, ValueError) as e:
        if isinstance(e, LimitError):
            raise
        raise FormatError(f"{where}: expected parquet references ({str(e).splitlines()[0]})") from e
