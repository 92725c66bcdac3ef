"""Kerchunk parquet: references in tables of one row per chunk, which fsspec reads piece by piece.

Spec:    https://fsspec.github.io/kerchunk/spec.html, "Parquet references"; fsspec's
         `LazyReferenceMapper`: `.zmetadata`, and `ARRAY/refs.N.parq` with path, offset, size, raw.
Opened:  what fsspec, kerchunk and VirtualiZarr write, and ours; osml-imagery-io's columns
         range_path, offsets and sizes, for chunks of several parts.
Refused: to save chunks of several parts, unless they are copied in, because fsspec would show
         them as absent; an index whose root is an array.

fsspec reads Zarr v2 only, so `.zmetadata` holds the v2 metadata of every array that v2 can express.
`anychunk.json` beside it holds the v3 metadata of all arrays, the pins, and the folder that the
index was saved in.
"""

import json
import math
import re
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import Any, BinaryIO, Self

import numpy as np

from anychunk import limits
from anychunk.errors import AnychunkError, FormatError, MissingDependencyError, UnsupportedError
from anychunk.formats._zarr_metadata import Document, Fields, parse_document
from anychunk.io import sink
from anychunk.io.opening import Folder
from anychunk.io.source import Storage, absolute
from anychunk.model.index import WHOLE, GroupIndex, Json, Node
from anychunk.options import Copy
from anychunk.references.chunk_references import (
    Capabilities,
    ChunkReferences,
    References,
    chunk_references,
    used_urls,
    with_found_pins,
)
from anychunk.references.documents import (
    Range,
    Rows,
    added_root,
    build_index,
    count_chunks,
    joined,
    parse_nodes,
    root_attributes,
    root_documents,
    url_resolver,
    write_documents,
)
from anychunk.references.osml_codecs import with_portable_codecs
from anychunk.references.osml_reading import corrected
from anychunk.references.tile_tables import saved_form
from anychunk.references.urls import folder_of

# How many values the columns of a parquet file have, by its footer.
#
# Spec: Apache Parquet's `parquet.thrift`, Thrift's compact protocol.
#
# pyarrow says so, too, but ends the process where the statistics of a column are damaged (26.0: the
# constructor of its column metadata raises where nothing catches it). Its reader of whole tables
# raises an error that can be caught. So only the numbers that are needed before that are read here.


MAGIC = b"PAR1"
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
INTEGERS = (4, 5, 6)
SIZES = {TRUE: 0, FALSE: 0, BYTE: 1, DOUBLE: 8}
"""Bytes of values of fixed size."""
ROW_GROUPS, COLUMNS, METADATA, NUM_VALUES = 4, 1, 3, 5
"""Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData."""
DEEPEST = 32


def values_by_column(data: bytes, *, where: str) -> list[int]:
    """Return how many values each column has, in all row groups together.

    Parameters:
        data: The file.
        where: Its name, for errors.

    Raises:
        FormatError: The footer is damaged.
    """
    length = int.from_bytes(data[-8:-4], "little")
    if len(data) < 12 or data[-4:] != MAGIC or length > len(data) - 12:
        raise FormatError(f"{where}: expected a parquet footer at the end")
    reader = _Reader(data[-8 - length : -8])
    counts: list[int] = []
    try:
        for _ in _fields(reader, ROW_GROUPS, LIST):
            for _ in range(reader.list_of(STRUCT)):
                for _ in _fields(reader, COLUMNS, LIST):
                    for number in range(reader.list_of(STRUCT)):
                        count = sum(_values(reader))
                        counts += [0] * (number + 1 - len(counts))
                        counts[number] += count
    except (IndexError, ValueError) as e:
        raise FormatError(f"{where}: the parquet footer is damaged ({e})") from e
    return counts


def _values(reader: "_Reader") -> Iterator[int]:
    """Yield the number of values of the column chunk that begins here."""
    for _ in _fields(reader, METADATA, STRUCT):
        for _ in _fields(reader, NUM_VALUES, INTEGERS[-1]):
            yield reader.integer()


def _fields(reader: "_Reader", wanted: int, kind: int) -> Iterator[int]:
    """Stop at each field `wanted` of the structure that begins here; read past all others."""
    field = 0
    while head := reader.byte():
        field = field + (head >> 4) if head >> 4 else reader.integer()
        if field != wanted:
            reader.skip(head & 15)
        elif head & 15 != kind:
            raise ValueError(f"field {wanted} has type {head & 15}, expected {kind}")
        else:
            yield field


class _Reader:
    """The bytes of a footer, read one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
        return value | byte << shift

    def integer(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def list_of(self, kind: int) -> int:
        """Return the length of the list that begins here, whose elements must have a type."""
        head = self.byte()
        if head & 15 != kind:
            raise ValueError(f"a list has elements of type {head & 15}, expected {kind}")
        return self._length(head >> 4)

    def _length(self, short: int) -> int:
        length = self.varint() if short == 15 else short
        if length > len(self._data):
            raise ValueError(f"a list of {length} elements")
        return length

    def _skip_bytes(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("it ends early")

    def skip(self, kind: int, depth: int = 0) -> None:
        """Read past a value."""
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
        if kind in SIZES:
            self._skip_bytes(SIZES[kind])
        elif kind in INTEGERS:
            self.varint()
        elif kind == BINARY:
            self._skip_bytes(self.varint())
        elif kind in (LIST, SET):
            head = self.byte()
            self._skip_elements(self._length(head >> 4), (head & 15,), depth)
        elif kind == MAP:
            length = self._length(15)
            kinds = self.byte() if length else 0
            self._skip_elements(length, (kinds >> 4, kinds & 15), depth)
        elif kind == STRUCT:
            while head := self.byte():
                if not head >> 4:
                    self.varint()
                self.skip(head & 15, depth + 1)
        else:
            raise ValueError(f"a value of type {kind}")

    def _skip_elements(self, count: int, kinds: tuple[int, ...], depth: int) -> None:
        for _ in range(count):
            for kind in kinds:
                # as an element, a truth value takes a byte; as a field, it is in the type
                self.skip(BYTE if kind in (TRUE, FALSE) else kind, depth + 1)


# Named bytes that wait in a temporary file, so that memory is not needed for them.


LENGTHS = struct.Struct("<QQ")
"""Of a name and of its bytes."""


class Spool:
    """Keeps named bytes in the order in which they were added."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, name: str, data: bytes) -> None:
        """Add bytes under a name."""
        text = name.encode()
        self._file.writelines((LENGTHS.pack(len(text), len(data)), text, data))

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Yield names and bytes; none may be added meanwhile."""
        self._file.seek(0)
        while head := self._file.read(LENGTHS.size):
            name, data = LENGTHS.unpack(head)
            yield self._file.read(name).decode(), self._file.read(data)


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
    target_storage: Storage | None = None,
) -> None:
    """Save an index as a folder of parquet references.

    Parameters:
        node: The index.
        target: The folder.
        relative: False: the index does not move with its data.
        copy: "needed" copies chunks that parquet cannot refer to; "never" refuses them.
        storage: Of the sources.
        target_storage: Of the target.

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
    node, found = _with_references(node, copy, storage)
    written = {url: absolute(url) for url in used_urls(found)}
    base = None if relative is False else folder_of(target)
    v3 = write_documents(node, written, base, 3)
    sink.check_case(target.rstrip("/"), found)
    known: dict[Any, bytes] = {}
    with (
        _replacing(target, target_storage) as root,
        sink.writing(root, storage=target_storage) as put,
    ):
        for path, (_, references) in found.items():
            for record, data in _records(arrow, references, written, known):
                put(f"{path}/refs.{record}.parq", data)
        v2 = write_documents(node, written, base, 2, is_partial=True)
        put(V3_METADATA, json.dumps({"metadata": v3}).encode())
        put(V2_METADATA, json.dumps({"metadata": v2, "record_size": RECORD_SIZE}).encode())


def _with_references(
    node: GroupIndex, copy: Copy, storage: Storage | None
) -> tuple[GroupIndex, References]:
    """Return an index with portable codecs and the pins of all sources, and its references."""
    node = with_portable_codecs(saved_form(node, storage), may_transpose=False)
    found = chunk_references(node, CAPABILITIES, copy=copy, storage=storage)
    return with_found_pins(node, found), found


@contextmanager
def adding(
    target: str,
    *,
    relative: bool | None = None,
    copy: Copy = "never",
    storage: Storage | None = None,
    target_storage: Storage | None = None,
) -> Iterator[Callable[[GroupIndex], None]]:
    """Save the group of very many files piece by piece, none of which is kept in memory.

    Yield a function that adds the index of some files. Tables and metadata wait in temporary files:
    what is at `target` stays until the block has succeeded.

    Parameters:
        target: The folder.
        relative: As in `save`.
        copy: As in `save`.
        storage: As in `save`.
        target_storage: As in `save`.
    """
    arrow = _pyarrow()
    base = None if relative is False else folder_of(target)
    top = target.rstrip("/")
    known: dict[Any, bytes] = {}
    names: list[str] = []
    root: dict[str, Any] = {}
    with Spool() as tables, Documents(3) as v3, Documents(2) as v2:

        def add(node: GroupIndex) -> None:
            nonlocal root
            node, found = _with_references(node, copy, storage)
            written = {url: absolute(url) for url in used_urls(found)}
            sink.check_case(top, found)
            names.extend(node.members)
            for path, (_, references) in found.items():
                for record, data in _records(arrow, references, written, known):
                    tables.add(f"{path}/refs.{record}.parq", data)
            root = added_root(root, root_attributes(node, written, base))
            v3.add(write_documents(node, written, base, 3))
            v2.add(write_documents(node, written, base, 2, is_partial=True))

        yield add
        sink.check_case(top, names)
        with _replacing(target, target_storage) as folder:
            with sink.writing(folder, storage=target_storage) as put:
                for name, data in tables:
                    put(name, data)
            with sink.creating(f"{folder}/{V3_METADATA}", storage=target_storage) as file:
                v3.write(file, root, {})
            with sink.creating(f"{folder}/{V2_METADATA}", storage=target_storage) as file:
                v2.write(file, root, {"record_size": RECORD_SIZE})


OURS = re.compile(r"\.zmetadata|anychunk\.json|refs\.\d+\.parq|\..*\.part")
"""Names of the files of an index, and of those that a killed process left."""


@contextmanager
def _replacing(target: str, storage: Storage | None) -> Iterator[str]:
    """Yield the folder to write an index to, which replaces the one that is at `target`."""
    with sink.replacing(target.rstrip("/"), lambda name: bool(OURS.fullmatch(name))) as folder:
        # removed first and written last: in an object store, and where the folder holds other
        # files, too, an interrupted save is not mistaken for an index
        sink.remove(f"{folder}/{V2_METADATA}", storage=storage)
        yield folder


class Documents:
    """Metadata documents that wait in a temporary file, as JSON, for those of the root."""

    def __init__(self, zarr_format: int) -> None:
        self._zarr_format = zarr_format
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, documents: Mapping[str, Document]) -> None:
        """Keep the documents of all but the root."""
        found = {key: document for key, document in documents.items() if "/" in key}
        if found:
            self._file.write(json.dumps(found).encode()[1:-1] + b", ")

    def write(self, file: BinaryIO, root: Document, fields: Mapping[str, Json]) -> None:
        """Write all documents under `metadata`, the root's last, after other fields."""
        start = "".join(f"{json.dumps(name)}: {json.dumps(v)}, " for name, v in fields.items())
        file.write(f'{{{start}"metadata": {{'.encode())
        self._file.seek(0)
        shutil.copyfileobj(self._file, file, 1 << 20)
        last = root_documents(root, self._zarr_format)
        file.write(json.dumps(last).encode()[1:] + b"}")


MOST_KNOWN = 1000
"""How many tables of copied chunks are kept while an index is saved."""


def _records(
    arrow: Any, references: ChunkReferences, written: dict[str, str], known: dict[Any, bytes]
) -> Iterator[tuple[int, bytes]]:
    """Yield (number, parquet bytes) of each file of an array.

    Parameters:
        arrow: The module pyarrow.
        references: The references of the array.
        written: How each url is written.
        known: Tables of copied chunks that were made before, by content: files of one grid have the
            same coordinates. Extended.
    """
    count = math.prod(references.grid)
    if count <= RECORD_SIZE and not references.lengths.any():
        content = count, tuple(sorted(references.copied.items()))
        if content not in known:
            if len(known) >= MOST_KNOWN:
                known.clear()
            known[content] = _parquet(arrow, _table(arrow, references, slice(0, count), [""]))
        yield 0, known[content]
        return
    names = [written.get(url, "") for url in references.urls]
    for record in range(-(-count // RECORD_SIZE)):
        rows = slice(record * RECORD_SIZE, min((record + 1) * RECORD_SIZE, count))
        yield record, _parquet(arrow, _table(arrow, references, rows, names))


def _table(arrow: Any, references: ChunkReferences, rows: slice, names: list[str]) -> Any:
    """Return some chunks of an array as a table of path, offset, size and, if needed, raw."""
    lengths = references.lengths[rows]
    ids = np.zeros(len(lengths), np.int32)
    if references.url_ids is not None:
        ids = references.url_ids[rows].astype(np.int32)
    indices = arrow.array(ids, mask=lengths == 0)
    # the convention for a whole object is offset 0, size 0
    whole = lengths == WHOLE
    columns = {
        "path": arrow.array(names, arrow.string()).take(indices),
        "offset": arrow.array(np.where(whole, 0, references.offsets[rows]).astype(np.int64)),
        "size": arrow.array(np.where(whole, 0, lengths).astype(np.int64)),
    }
    # not nullable: fastparquet, which fsspec may use, reads nullable integers as floats
    fields = [
        arrow.field("path", arrow.string()),
        arrow.field("offset", arrow.int64(), nullable=False),
        arrow.field("size", arrow.int64(), nullable=False),
    ]
    copied = [references.copied.get(number) for number in range(rows.start, rows.stop)]
    if any(copied):
        columns["raw"] = arrow.array(copied, arrow.binary())
        fields.append(arrow.field("raw", arrow.binary()))
    return arrow.table(columns, arrow.schema(fields))


def _parquet(arrow: Any, table: Any) -> bytes:
    buffer = BytesIO()
    arrow.parquet.write_table(
        table,
        buffer,
        # Compressed pages are never empty. fastparquet, which fsspec uses, takes a page of 0 bytes
        # for all that follows, and fails; fsspec takes that for absent chunks.
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
        count = count_chunks(array)
        limits.check_table(count, where=f"{where} {path}")
        rows, urls = _rows(arrow, folder, path, count, size, has_all=ours is not None)
        return rows, [resolver.resolve(url) for url in urls]

    return corrected(build_index(nodes, resolver, read), where)


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
    parts: dict[int, list[Range]] = {}
    for record in _record_numbers(folder, path, -(-count // size), has_all=has_all):
        name = f"{path}/refs.{record}.parq"
        table = _read_table(arrow, folder, name, size)
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
        filled = [table[column].fill_null(-1) for column in ("offset", "size")]
        signed = [column.to_numpy()[present] for column in filled]
        if any((numbers < 0).any() for numbers in signed):
            raise FormatError(
                f"{folder.path}: {name} has a negative offset or size, or none; expected both for "
                "every chunk with a path"
            )
        starts, sizes = (numbers.astype(np.uint64) for numbers in signed)
        numbers.append(present + first)
        offsets.append(starts)
        lengths.append(np.where((sizes == 0) & (starts == 0), WHOLE, sizes))
        ids.append(np.array(known or [0], np.int64)[here[present].astype(np.int64)])
        if "raw" in table.column_names:
            raws = enumerate(table["raw"].to_pylist()[:left])
            inline.update({first + i: raw for i, raw in raws if raw is not None})
        for row, url, ranges in _several_parts(table, left, f"{folder.path}: {name}"):
            numbers.append(np.array([row + first]))
            offsets.append(np.array([ranges[0][0]]))
            lengths.append(np.array([ranges[0][1]]))
            ids.append(np.array([urls.setdefault(url, len(urls))]))
            parts |= {row + first: ranges[1:]} if ranges[1:] else {}
    rows = Rows(
        numbers=joined(numbers, np.int64),
        offsets=joined(offsets, np.uint64),
        lengths=joined(lengths, np.uint64),
        url_ids=joined(ids, np.int64),
        inline=inline,
        parts=parts,
    )
    return rows, list(urls)


def _several_parts(table: Any, count: int, name: str) -> Iterator[tuple[int, str, list[Range]]]:
    """Yield row, url and byte ranges of the chunks of several parts.

    osml-imagery-io leaves their `path` null, which without its columns means an absent chunk.
    """
    if "range_path" not in table.column_names:
        return
    columns = [table[column].to_pylist() for column in ("path", "range_path", "offsets", "sizes")]
    for row, (path, url, starts, sizes) in enumerate(zip(*columns, strict=True)):
        if url is None or row >= count:
            continue
        lists = starts or [], sizes or []
        is_good = path is None and lists[0] and len(lists[0]) == len(lists[1])
        if not is_good or any(n is None or n < 0 for n in (*lists[0], *lists[1])):
            raise FormatError(
                f"{name} row {row}: range_path with {len(lists[0])} offsets and {len(lists[1])} "
                "sizes, expected as many of each, none negative, and no path"
            )
        ranges = zip(*lists, strict=True)
        yield row, str(url), [(int(offset), int(length)) for offset, length in ranges]


FEW_RECORDS = 1000
"""Up to this number, tables are opened by name without listing the folder first."""


def _record_numbers(folder: Folder, path: str, count: int, *, has_all: bool) -> Iterable[int]:
    """Return the numbers of the tables that may exist: others leave out most of very many."""
    if has_all or count <= FEW_RECORDS:
        return range(count)
    try:
        _, names = (folder.child(path) if path else folder).names()
    except UnsupportedError:  # a web server
        return range(count)
    found = (re.fullmatch(r"refs\.(\d{1,9})\.parq", name) for name in names)
    return sorted(number for match in found if match and (number := int(match[1])) < count)


def _columns(arrow: Any, table: Any) -> Any:
    """Return the columns of a table in the types that we write, whoever wrote it."""
    kinds = {"path": arrow.string(), "offset": arrow.int64(), "size": arrow.int64()}
    if "raw" in table.column_names:
        kinds["raw"] = arrow.binary()
    if "range_path" in table.column_names:
        numbers = arrow.list_(arrow.int64())
        kinds |= {"range_path": arrow.string(), "offsets": numbers, "sizes": numbers}
    return arrow.table({name: table[name].cast(k) for name, k in kinds.items()}).combine_chunks()


def _read_table(arrow: Any, folder: Folder, name: str, most: int) -> Any:
    """Read one table of at most `most` rows; return None if there is no such file."""
    where = f"{folder.path}/{name}"
    try:
        source = folder.source(name)
        size = source.size()
    except (FileNotFoundError, NotADirectoryError):
        return None
    limits.check_index(size, where=where)
    try:
        data = source.read(0, size).tobytes()
        file = arrow.parquet.ParquetFile(BytesIO(data))
        rows = file.metadata.num_rows
        if rows > most:
            raise FormatError(f"{where}: {rows} rows, expected at most record_size, {most}")
        # entries of lists, of which a compressed row may have any number
        values = values_by_column(data, where=where)
        limits.check_table(max([rows, *values]), where=where, references=size)
        return _columns(arrow, file.read())
    except AnychunkError:
        raise
    except (arrow.ArrowException, OSError, KeyError, ValueError) as e:
        raise FormatError(f"{where}: expected parquet references ({str(e).splitlines()[0]})") from e
