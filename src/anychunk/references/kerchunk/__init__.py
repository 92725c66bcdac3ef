"""Kerchunk reference JSON, version 1, with Zarr v3 metadata or, on request, v2.

Spec:    https://fsspec.github.io/kerchunk/spec.html; parts as `[url, [[offset, length], …]]`.
Opened:  versions 0 and 1, simple templates, v2 and v3 metadata, inline text and base64.
Refused: `gen` (jinja), references without a url, references outside what is allowed.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal

import numpy as np

from anychunk import limits
from anychunk.errors import FormatError, LimitError, UnsupportedError
from anychunk.formats._zarr_metadata import Document, Fields
from anychunk.io import sink
from anychunk.io.source import Source, Storage, absolute
from anychunk.model.grid import Numbers, chunk_coords, chunk_numbers, grid_shape
from anychunk.model.index import WHOLE, GroupIndex, Node
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
    Rows,
    added_root,
    build_index,
    no_rows,
    parse_nodes,
    root_attributes,
    root_documents,
    url_resolver,
    write_documents,
)
from anychunk.references.kerchunk.json_reader import METADATA, ReferenceColumns, read_json
from anychunk.references.osml_layout import Layout, arranged
from anychunk.references.osml_reading import corrected
from anychunk.references.urls import BASE, folder_of, is_below

# Assign the chunk keys of reference JSON to arrays, and turn them into chunk numbers.


BATCH = 1 << 16
"""How many keys are parsed at once."""
COORDS = re.compile(r"\d{1,10}(?:[./]\d{1,10})*")

type Arrays = Mapping[str, tuple[str, Fields]]
"""Key pattern and fields of every array, by path."""


def rows_by_array(found: ReferenceColumns, arrays: Arrays, where: str) -> dict[str, Rows]:
    """Return the rows of every array that has chunks, by path."""
    prefixes = {_prefix(path, *member): path for path, member in arrays.items()}
    taken: dict[str, list[tuple[Numbers, Numbers]]] = {}
    before = 0
    for keys in found.keys.taken_blocks():
        for begin, end, prefix in _runs(keys, prefixes, where):
            path = prefixes[prefix]
            numbers, kept = _numbers(keys[begin:end], prefix, arrays[path], where)
            taken.setdefault(path, []).append((numbers, kept + (before + begin)))
        before += len(keys)
    columns = [
        np.frombuffer(column, np.uint64) if column else np.empty(0, np.uint64)
        for column in (found.offsets, found.lengths, found.url_ids)
    ]
    rows = {}
    for path in list(taken):
        pieces = taken.pop(path)
        places = _as_slice(np.concatenate([p for _, p in pieces]))
        numbers = np.concatenate([n for n, _ in pieces])
        offsets, lengths, ids = (column[places] for column in columns)
        rows[path] = Rows(
            numbers=numbers, offsets=offsets, lengths=lengths, url_ids=ids.view(np.int64)
        )
    _add_inline_and_parts(found, arrays, prefixes, rows, where)
    return rows


def _as_slice(places: Numbers) -> Numbers | slice:
    """Return places that follow each other as a slice, which takes a view and not a copy."""
    if places.size and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def _prefix(path: str, pattern: str, fields: Fields) -> str:
    """Return the prefix of an array's chunk keys."""
    prefix = f"{path}/" if path else ""
    if not pattern.startswith("c"):
        return prefix
    # an array without axes has one chunk, `c`
    return prefix + (pattern if fields["shape"] else "c")


def _add_inline_and_parts(
    found: ReferenceColumns,
    arrays: Arrays,
    prefixes: Mapping[str, str],
    rows: dict[str, Rows],
    where: str,
) -> None:
    """Add inline chunks and further parts to the rows of their arrays."""
    for name, values in (("inline", found.inline), ("parts", found.parts)):
        keys = list(values)
        for begin, end, prefix in _runs(keys, prefixes, where):
            path = prefixes[prefix]
            numbers, kept = _numbers(keys[begin:end], prefix, arrays[path], where)
            target = getattr(rows.setdefault(path, no_rows()), name)
            for number, place in zip(numbers.tolist(), kept.tolist(), strict=True):
                target[number] = values[keys[begin + place]]


def _runs(
    keys: list[str], prefixes: Mapping[str, str], where: str
) -> Iterator[tuple[int, int, str]]:
    """Yield (begin, end, prefix) of consecutive keys of the same array.

    Keys of one array usually follow each other: one comparison per key then suffices, or two for
    all of them, since what is sorted between two keys with a prefix has that prefix, too.
    """
    prefix = _prefix_of(min(keys), prefixes) if keys else None
    if prefix and _prefix_of(max(keys), prefixes) == prefix:
        yield 0, len(keys), prefix
        return
    begin, current = 0, None
    for i, key in enumerate(keys):
        if current is not None and key.startswith(current) and current != "":
            continue
        prefix = _prefix_of(key, prefixes)
        if prefix is None and key.rpartition("/")[2] in METADATA:
            raise UnsupportedError(f"{where}: {key!r} is a reference, expected inline metadata")
        if prefix != current:
            if current is not None:
                yield begin, i, current
            begin, current = i, prefix
    if current is not None:
        yield begin, len(keys), current


def _prefix_of(key: str, prefixes: Mapping[str, str]) -> str | None:
    """Return the longest known prefix of a chunk key; None if it belongs to no array."""
    end = len(key)
    while end > 0:
        if key[:end] in prefixes:
            return key[:end]
        cut = max(key.rfind("/", 0, end - 1), key.rfind(".", 0, end - 1))
        end = cut + 1 if cut >= 0 else 0
    return "" if "" in prefixes else None


def _numbers(
    keys: list[str], prefix: str, array: tuple[str, Fields], where: str
) -> tuple[Numbers, Numbers]:
    """Return the numbers of chunks, and which of the keys they are.

    Keys outside the grid are left out: zarr never asks for them.
    """
    pattern, fields = array
    grid = grid_shape(fields["shape"], fields["chunk_shape"])
    if not grid:
        return np.zeros(len(keys[-1:]), np.int64), np.arange(len(keys))[-1:]
    found = [
        _parse_keys(keys[i : i + BATCH], len(prefix), pattern[-1], len(grid), where)
        for i in range(0, len(keys), BATCH)
    ]
    coords = np.concatenate(found)
    kept = np.flatnonzero((coords < np.array(grid)).all(axis=1))
    return chunk_numbers(coords[kept], grid), kept


def _parse_keys(keys: list[str], start: int, separator: str, ndim: int, where: str) -> Any:
    """Return the coordinates in chunk keys, one row per key, all parsed at once."""
    joined = separator.join([key[start:] for key in keys])
    if COORDS.fullmatch(joined) is not None:
        coords = np.fromstring(joined.replace(".", "/"), np.int64, sep="/")
        if coords.size == len(keys) * ndim:
            return coords.reshape(-1, ndim)
    raise FormatError(
        f"{where}: malformed chunk key among the {len(keys)} keys from {keys[0]!r} on, "
        f"expected {ndim} numbers separated by {separator!r}"
    )


CAPABILITIES = Capabilities(name="kerchunk JSON", has_parts=True, has_whole=True)


def save(
    node: Node,
    target: str,
    *,
    zarr_format: Literal[2, 3] = 3,
    layout: Layout = "anychunk",
    relative: bool | None = None,
    copy: Copy = "never",
    storage: Storage | None = None,
    target_storage: Storage | None = None,
) -> None:
    """Save an index as reference JSON.

    Parameters:
        node: The index.
        target: The file to write.
        zarr_format: Whether metadata is Zarr v3 or v2.
        layout: "osml" arranges groups and codecs as osml-imagery-io reads them.
        relative: Whether urls are written relative to the index's folder; by default if all
            sources are below it.
        copy: "needed" copies chunks that JSON cannot refer to; "never" refuses them.
        storage: Of the sources.
        target_storage: Of the target.

    Raises:
        UnsupportedError: If the format or the layout cannot express the index, or a source is
            outside the folder of a relative index.
        LimitError: If the JSON would be over the limit of what is opened again.
    """
    node = arranged(node, layout, zarr_format=zarr_format, storage=storage)
    found = chunk_references(node, CAPABILITIES, copy=copy, storage=storage)
    node = with_found_pins(node, found)
    folder = folder_of(target)
    urls = sorted(set(used_urls(found)))
    base = folder if _is_relative(urls, folder, relative, target) else None
    written = {url: _written(url, base) for url in urls}
    _check_size(found, written, target)
    separator = "." if zarr_format == 2 or layout == "osml" else "/"
    documents = write_documents(
        node, written, base, zarr_format, separator, is_consolidated=layout != "osml"
    )
    uses_base = any(text.startswith(BASE) for text in written.values())
    with sink.creating(target, storage=target_storage) as file:
        writer = JsonWriter(
            file,
            base=folder if uses_base else None,
            zarr_format=zarr_format,
            separator=separator,
        )
        writer.add_documents(documents)
        writer.add_references(found, written)
        writer.end()


@contextmanager
def adding(
    target: str,
    urls: Sequence[str],
    *,
    zarr_format: Literal[2, 3] = 3,
    relative: bool | None = None,
    copy: Copy = "never",
    storage: Storage | None = None,
    target_storage: Storage | None = None,
) -> Iterator[Callable[[GroupIndex], None]]:
    """Save the group of very many files piece by piece, none of which is kept.

    Yield a function that adds the index of some files. The index is saved when the block succeeds.

    Parameters:
        target: The file to write.
        urls: All files, which decide whether urls are relative.
        zarr_format: As in `save`.
        relative: As in `save`.
        copy: As in `save`.
        storage: As in `save`.
        target_storage: As in `save`.
    """
    folder = folder_of(target)
    base = folder if _is_relative(sorted(urls), folder, relative, target) else None
    separator = "." if zarr_format == 2 else "/"
    root: dict[str, Any] = {}
    with sink.creating(target, storage=target_storage) as file:
        writer = JsonWriter(file, base=base, zarr_format=zarr_format, separator=separator)

        def add(node: GroupIndex) -> None:
            nonlocal root
            node = arranged(node, zarr_format=zarr_format, storage=storage)
            found = chunk_references(node, CAPABILITIES, copy=copy, storage=storage)
            node = with_found_pins(node, found)
            written = {url: _written(url, base) for url in set(used_urls(found))}
            documents = write_documents(
                node, written, base, zarr_format, separator, is_consolidated=True, most_images=0
            )
            root = added_root(root, root_attributes(node, written, base))
            # the root is written last, and never with the metadata of so many files
            writer.add_documents({key: d for key, d in documents.items() if "/" in key})
            writer.add_references(found, written)
            _check_written(writer.size(), target)

        yield add
        writer.add_documents(root_documents(root, zarr_format))
        _check_written(writer.size(), target)
        writer.end()


def _check_written(size: int, target: str) -> None:
    most = limits.get().index_bytes
    if size > most:
        raise LimitError(
            f"{target}: more than {size} bytes of JSON are over the limit of {most} with which it "
            f"is opened again; save the index as parquet or Icechunk; "
            f"{limits.how_to_raise('index_bytes')}"
        )


def _is_relative(urls: list[str], folder: str, relative: bool | None, target: str) -> bool:
    outside = [url for url in urls if not is_below(absolute(url), folder)]
    if relative and outside:
        raise UnsupportedError(
            f"{target}: {outside[0]} is outside {folder}; save with relative=False"
        )
    return not outside if relative is None else relative


def _check_size(found: References, written: Mapping[str, str], target: str) -> None:
    """Refuse to write more than is opened again, by the least that each reference takes."""
    count = least = 0
    shortest = min(map(len, written.values()), default=0)
    for path, (_, references) in found.items():
        here = len(references.present)
        count += here
        # key, url, offset and length, with quotes, brackets and separators
        least += here * (len(path) + 2 * len(references.grid) + shortest + 14)
    most = limits.get().index_bytes
    if least > most:
        raise LimitError(
            f"{target}: {count} references are more than {least} bytes of JSON, over the limit of "
            f"{most} with which it is opened again; save the index as parquet or Icechunk; "
            f"{limits.how_to_raise('index_bytes')}"
        )


def _written(url: str, base: str | None) -> str:
    """Return how a url is written: below `{{base}}` if it lies below the folder `base`."""
    place = absolute(url)
    if "{{" in place:
        raise UnsupportedError(
            f"{place}: kerchunk JSON would read the braces as a template; save the index as "
            "parquet or Icechunk, or rename the file"
        )
    if base is None or not is_below(place, base):
        return place
    return f"{BASE}/{place[len(base.rstrip('/')) + 1 :]}"


def sniff(head: bytes) -> bool:
    """Return whether a file with this head is reference JSON."""
    start = head.lstrip()
    return start.startswith(b"{") and (
        re.search(rb'^\{\s*"(version|refs|templates|gen)"\s*:', start) is not None
        or any(f'"{name}"'.encode() in start or f'/{name}"'.encode() in start for name in METADATA)
    )


def load(source: Source, *, allow: Iterable[str] = ()) -> Node:
    """Load reference JSON as an index.

    Parameters:
        source: The file.
        allow: Prefixes of urls that references may point to, besides the file's own folder.
    """
    # the text is not kept while the index is built
    found = read_json(_text(source), source.url)
    return corrected(_build(found, source.url, allow), source.url)


def _text(source: Source) -> str:
    size = source.size()
    limits.check_index(size, where=source.url)
    try:
        return str(memoryview(source.read(0, size)), "utf-8")
    except UnicodeDecodeError as e:
        raise FormatError(f"{source.url}: expected UTF-8 ({e})") from e
    finally:
        release = getattr(source, "release", None)
        if release is not None:
            release()  # the mapped file would count as memory beside its text


def _build(found: ReferenceColumns, url: str, allow: Iterable[str]) -> Node:
    nodes = parse_nodes(found.documents, url)
    resolver = url_resolver(nodes, url, allow, found.templates)
    urls = [resolver.resolve(reference) for reference in found.urls]
    arrays = {path: n for path, n in nodes.items() if isinstance(n, tuple)}
    rows = rows_by_array(found, arrays, url)
    if not nodes:
        raise FormatError(
            f"{url}: reference JSON has no Zarr metadata, expected zarr.json or .zgroup"
        )
    return build_index(nodes, resolver, lambda path, _: (rows.get(path, no_rows()), urls))


# Write reference JSON as text, many references at a time.
#
# An object per reference would take gigabytes for an index of a million chunks: lines are
# formatted
# straight from the columns.

BATCH_BYTES = 1 << 16
"""How many references are formatted at once."""


class JsonWriter:
    """Writes reference JSON, version 1, piece by piece."""

    def __init__(
        self, file: BinaryIO, *, base: str | None, zarr_format: int, separator: str
    ) -> None:
        """Write the start.

        Parameters:
            file: The file to write to.
            base: The value of the template `base`, if urls are written with it.
            zarr_format: 3 or 2, which decides the form of chunk keys.
            separator: The separator in chunk keys.
        """
        self._file, self._zarr_format, self._separator = file, zarr_format, separator
        file.write(b'{"version":1,')
        if base is not None:
            file.write(f'"templates":{json.dumps({"base": base.rstrip("/")})},'.encode())
        file.write(b'"refs":{\n')
        self._is_first = True

    def add_documents(self, documents: Mapping[str, Document]) -> None:
        """Write metadata documents, by key."""
        lines = [f"{json.dumps(key)}:{json.dumps(json.dumps(d))}" for key, d in documents.items()]
        if lines:
            self._write(",\n".join(lines))

    def add_references(self, found: References, written: Mapping[str, str]) -> None:
        """Write the references of arrays.

        Parameters:
            found: The references of every array.
            written: How each url is written.
        """
        separator = self._separator
        for path, (_, references) in found.items():
            start = "" if self._zarr_format == 2 else f"c{separator}"
            prefix = (f"{path}/" if path else "") + start
            for batch in _lines(prefix, separator, references, written):
                self._write(batch)

    def _write(self, lines: str) -> None:
        if not self._is_first:
            self._file.write(b",\n")
        self._is_first = False
        self._file.write(lines.encode())

    def size(self) -> int:
        """Return how many bytes were written."""
        return self._file.tell()

    def end(self) -> None:
        """Write the end."""
        self._file.write(b"\n}}\n")


def _lines(
    prefix: str, separator: str, references: ChunkReferences, written: Mapping[str, str]
) -> Iterator[str]:
    """Yield the references of one array as text, in batches."""
    key = _key_format(prefix, separator, references)
    urls = [json.dumps(written[url]) if url else "" for url in references.urls]
    with_parts = references.with_parts()
    single = np.setdiff1d(references.present, with_parts, assume_unique=True)
    is_whole = references.lengths[single] == WHOLE
    for numbers in _batches(single[~is_whole]):
        columns = _columns(numbers, references, urls)
        yield ",\n".join(map((f"{key}[%s,%d,%d]").__mod__, zip(*columns, strict=True)))
    for numbers in _batches(single[is_whole]):
        columns = _columns(numbers, references, urls)[:-2]
        yield ",\n".join(map(f"{key}[%s]".__mod__, zip(*columns, strict=True)))
    for numbers in _batches(with_parts):
        yield ",\n".join(_line_with_parts(int(n), key, references, urls) for n in numbers)
    for number, data in references.copied.items():
        text = f'"base64:{base64.b64encode(data).decode()}"'
        yield key % chunk_coords(number, references.grid) + text


def _key_format(prefix: str, separator: str, references: ChunkReferences) -> str:
    """Return the %-format of an array's keys, with a number per axis: `"a/c/%d/%d":`."""
    start = json.dumps(prefix)[1:-1].replace("%", "%%")
    if not references.grid:
        # an array without axes has one chunk, `c` or in v2 `0`
        start = start.removesuffix(separator) if prefix.endswith(f"c{separator}") else f"{start}0"
    return f'"{start}' + separator.join(["%d"] * len(references.grid)) + '":'


def _batches(numbers: Numbers) -> Iterator[Numbers]:
    for start in range(0, len(numbers), BATCH_BYTES):
        yield numbers[start : start + BATCH_BYTES]


def _columns(numbers: Numbers, references: ChunkReferences, urls: list[str]) -> list[Any]:
    """Return the values of the lines of some chunks: coordinates, url, offset and length."""
    grid = references.grid
    coords = [c.tolist() for c in np.unravel_index(numbers, grid)] if grid else []
    ids = references.url_ids_of(numbers).tolist()
    offsets, lengths = references.offsets[numbers].tolist(), references.lengths[numbers].tolist()
    return [*coords, [urls[i] for i in ids], offsets, lengths]


def _line_with_parts(number: int, key: str, references: ChunkReferences, urls: list[str]) -> str:
    text = ",".join(f"[{o},{n}]" for o, n in references.ranges(number))
    url = urls[0 if references.url_ids is None else int(references.url_ids[number])]
    return f"{key % chunk_coords(number, references.grid)}[{url},[{text}]]"
