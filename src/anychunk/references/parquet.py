"""Kerchunk parquet: references in tables of one row a chunk, which fsspec reads a piece at a time.

Spec:    https://fsspec.github.io/kerchunk/spec.html, "Parquet references"; fsspec's
         `LazyReferenceMapper`: `.zmetadata`, and `ARRAY/refs.N.parq` with path, offset, size, raw.
Opened:  what fsspec, kerchunk and VirtualiZarr write, and ours.
Refused: chunks of several parts, an index whose root is one array.

fsspec knows Zarr v2 only, so `.zmetadata` holds v2 metadata of every array that v2 can express.
`anychunk.json` beside it holds the v3 metadata of all, the pins, and the folder of saving.
"""

import json
import math
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import numpy as np

from anychunk import limits
from anychunk.errors import FormatError, LimitError, MissingDependencyError, UnsupportedError
from anychunk.io import Folder, Storage, absolute, below, sink
from anychunk.model.grid import grid_shape
from anychunk.model.index import WHOLE, GroupIndex, Node
from anychunk.references.documents import metadata
from anychunk.references.places import folder_of
from anychunk.references.rebuild import (
    Fields,
    Rows,
    assembled,
    node_fields,
    parse_document,
    saved_places,
)
from anychunk.references.tables import Copy, Form, Table, tables, used_urls, with_found_pins
from anychunk.references.v2 import to_v2

FORM = Form(name="kerchunk parquet", has_whole=True)
RECORD = 100_000
"""Rows in a file: fsspec reads and keeps whole files."""
OURS = "anychunk.json"


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
    """Write an index as a folder of parquet references."""
    arrow = _pyarrow()
    if not isinstance(node, GroupIndex):
        raise UnsupportedError(
            f"{target}: the root of the index is one array, which kerchunk parquet cannot hold; "
            "save it as kerchunk JSON or Icechunk"
        )
    found = tables(node, FORM, copy=copy, storage=storage)
    node = with_found_pins(node, found)
    write = {url: absolute(url) for url in used_urls(found)}
    base = None if relative is False else folder_of(target)
    ours = metadata(node, write, base, 3)
    root = target.rstrip("/")
    sink.remove(f"{root}/.zmetadata", storage=storage)  # until all is there it is no index
    for path, (_, table) in found.items():
        for record, data in _records(arrow, table, write):
            sink.put(below(root, f"{path}/refs.{record}.parq"), data, storage=storage, root=root)
    v2 = metadata(_with_v2_form(node), write, base, 2)
    known = {"metadata": v2, "record_size": RECORD}
    for name, content in ((OURS, {"metadata": ours}), (".zmetadata", known)):
        sink.put(f"{root}/{name}", json.dumps(content).encode(), storage=storage, root=root)


def _with_v2_form(node: GroupIndex) -> GroupIndex:
    """Keep the groups, and those arrays that v2 can express."""
    members: dict[str, Node] = {}
    for name, member in node.members.items():
        if isinstance(member, GroupIndex):
            members[name] = _with_v2_form(member)
            continue
        try:
            to_v2(member, name)
        except UnsupportedError:
            continue
        members[name] = member
    return GroupIndex(members=members, attributes=node.attributes, pins=node.pins)


def _records(arrow: Any, table: Table, write: dict[str, str]) -> Any:
    """Yield (number, parquet bytes) of each file of an array."""
    count = math.prod(table.grid)
    names = arrow.array([write.get(url, "") for url in table.urls] or [""], arrow.string())
    for record in range(-(-count // RECORD)):
        rows = slice(record * RECORD, min((record + 1) * RECORD, count))
        lengths = table.lengths[rows]
        ids = np.zeros(len(lengths), np.int32)
        if table.url_ids is not None:
            ids = table.url_ids[rows].astype(np.int32)
        indices = arrow.array(ids, mask=lengths == 0)
        paths = arrow.DictionaryArray.from_arrays(indices, names).cast(arrow.string())
        # a whole object is written as 0, 0
        whole = lengths == WHOLE
        columns = {
            "path": paths,
            "offset": arrow.array(np.where(whole, 0, table.offsets[rows]).astype(np.int64)),
            "size": arrow.array(np.where(whole, 0, lengths).astype(np.int64)),
        }
        # fastparquet makes floats of numbers that may be null, and of those without statistics
        kinds = [
            arrow.field("path", arrow.string()),
            arrow.field("offset", arrow.int64(), nullable=False),
            arrow.field("size", arrow.int64(), nullable=False),
        ]
        copied = [table.copied.get(i) for i in range(rows.start, rows.stop)] if table.copied else []
        if any(copied):
            columns["raw"] = arrow.array(copied, arrow.binary())
            kinds.append(arrow.field("raw", arrow.binary()))
        buffer = BytesIO()
        arrow.parquet.write_table(
            arrow.table(columns, arrow.schema(kinds)),
            buffer,
            compression="zstd",
            write_statistics=["offset", "size"],
            store_schema=False,
            use_dictionary=["path"],
        )
        yield record, buffer.getvalue()


def sniff_folder(folder: Folder) -> bool:
    text = folder.read(".zmetadata")
    return text is not None and b'"record_size"' in text


def load(folder: Folder, *, allow: Iterable[str] = ()) -> Node:
    """Read a folder of parquet references as an index."""
    arrow = _pyarrow()
    known = parse_document(folder.read(".zmetadata") or b"", f"{folder.path}/.zmetadata")
    ours = folder.read(OURS)
    documents = known.get("metadata")
    if ours is not None:
        documents = parse_document(ours, f"{folder.path}/{OURS}").get("metadata")
    size = known.get("record_size")
    if not isinstance(documents, dict) or type(size) is not int or size < 1:
        raise FormatError(f"{folder.path}: .zmetadata lacks metadata or record_size")
    where = folder.path
    parsed = {k: parse_document(d, f"{where} {k}") for k, d in documents.items()}
    fields = node_fields(parsed, where)
    places = saved_places(fields, where, allow)

    def read(path: str, array: Fields) -> tuple[Rows, list[str]]:
        count = math.prod(grid_shape(array["shape"], array["chunk_shape"]))
        if count > limits.get().chunks:
            raise LimitError(f"{where} {path}: {count} chunks are over the limit")
        rows, urls = _rows(arrow, folder, path, count, size, has_all=ours is not None)
        return rows, [places.resolve(url) for url in urls]

    return assembled(fields, places, read)


def _rows(
    arrow: Any, folder: Folder, path: str, count: int, size: int, *, has_all: bool
) -> tuple[Rows, list[str]]:
    """Read the tables of one array; we write all of them, others leave out those without rows."""
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
        paths = table["path"].combine_chunks().dictionary_encode()
        here = paths.indices.to_numpy(zero_copy_only=False)
        present = np.flatnonzero(paths.indices.is_valid().to_numpy(zero_copy_only=False))
        known = [urls.setdefault(str(url), len(urls)) for url in paths.dictionary.to_pylist()]
        present = present[present < count - record * size]
        starts = table["offset"].to_numpy()[present].astype(np.uint64)
        sizes = table["size"].to_numpy()[present].astype(np.uint64)
        numbers.append(present + record * size)
        offsets.append(starts)
        lengths.append(np.where((sizes == 0) & (starts == 0), WHOLE, sizes))
        ids.append(np.array(known or [0], np.int64)[here[present].astype(np.int64)])
        if "raw" in table.column_names:
            raws = table["raw"].to_pylist()
            inline.update(
                {
                    record * size + i: raw
                    for i, raw in enumerate(raws)
                    if raw is not None and record * size + i < count
                }
            )
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
    """Give the columns of a table in their types, whoever wrote it."""
    kinds = {"path": arrow.string(), "offset": arrow.int64(), "size": arrow.int64()}
    if "raw" in table.column_names:
        kinds["raw"] = arrow.binary()
    return arrow.table({name: table[name].cast(k) for name, k in kinds.items()}).combine_chunks()


def _read_table(arrow: Any, folder: Folder, name: str) -> Any:
    where = f"{folder.path}/{name}"
    try:
        source = folder.source(name)
        size = source.size()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if size > limits.get().index_bytes:
        raise LimitError(f"{where}: {size} bytes are over the limit of an index")
    try:
        file = arrow.parquet.ParquetFile(BytesIO(source.read(0, size).tobytes()))
        if file.metadata.num_rows > limits.get().chunks:
            raise LimitError(f"{where}: {file.metadata.num_rows} rows are over the limit")
        return _columns(arrow, file.read())
    except (arrow.ArrowException, OSError, KeyError, ValueError) as e:
        if isinstance(e, LimitError):
            raise
        raise FormatError(f"{where}: no parquet references ({str(e).splitlines()[0]})") from e
