"""Kerchunk reference JSON, version 1, with Zarr v3 metadata or, on request, v2.

Spec:    https://fsspec.github.io/kerchunk/spec.html; parts as `[url, [[offset, length], …]]`.
Opened:  versions 0 and 1, simple templates, v2 and v3 metadata, inline text and base64.
Refused: `gen` (jinja), references without a url, references that leave what is allowed.
"""

import base64
import binascii
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, BinaryIO, Literal

import numpy as np

from anychunk import limits, sink
from anychunk.errors import FormatError, LimitError, UnsupportedError
from anychunk.export.osml import osml_layout
from anychunk.export.places import BASE, Places, absolute, folder_of, is_below, pins_json
from anychunk.export.rebuild import (
    Document,
    Range,
    Rows,
    array_index,
    no_rows,
    node_fields,
    parse_document,
    saved_base,
    tree,
    with_pins,
)
from anychunk.export.tables import Copy, Form, Table, tables, used_urls, with_found_pins
from anychunk.export.v2 import to_v2
from anychunk.index import WHOLE, ArrayIndex, Json, Node, grid_shape, walk
from anychunk.source import Source, Storage, is_remote

FORM = Form(name="kerchunk JSON", has_parts=True, has_whole=True)
BATCH = 1 << 16
METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")

type Layout = Literal["anychunk", "osml"]


def save(
    node: Node,
    target: str,
    *,
    zarr_format: Literal[2, 3] = 3,
    layout: Layout = "anychunk",
    relative: bool | None = None,
    copy: Copy = "never",
    storage: Storage | None = None,
) -> None:
    """Write an index as reference JSON. `relative` None: where all data lies below its folder."""
    if layout == "osml":
        node = osml_layout(node)
    found = tables(node, FORM, copy=copy, storage=storage)
    node = with_found_pins(node, found)
    folder = folder_of(target)
    urls = sorted(set(used_urls(found)))
    below = [is_below(absolute(url), folder) for url in urls]
    is_relative = all(below) if relative is None else relative
    if is_relative and not all(below):
        outside = urls[below.index(False)]
        raise UnsupportedError(f"{target}: {outside} lies outside {folder}; save relative=False")
    write = {url: written(url, folder if is_relative else None) for url in urls}
    separator = "." if zarr_format == 2 or layout == "osml" else "/"
    documents = metadata(node, write, folder if is_relative else None, zarr_format, separator)
    settings: dict[str, Any] = {"zarr_format": zarr_format, "separator": separator}
    if is_remote(target):
        buffer = BytesIO()
        _write(buffer, documents, found, write=write, folder=folder, **settings)
        sink.put(target, buffer.getvalue(), storage=storage)
    else:
        with sink.create(target) as file:
            _write(file, documents, found, write=write, folder=folder, **settings)


def written(url: str, folder: str | None) -> str:
    """Give the reference that stands for `url`: below `{{base}}` where a folder is given."""
    place = absolute(url)
    if folder is None or not is_below(place, folder):
        return place
    return f"{BASE}/{place[len(folder.rstrip('/')) + 1 :]}"


def metadata(
    node: Node,
    write: Mapping[str, str],
    base: str | None,
    zarr_format: int,
    separator: str = "/",
) -> dict[str, Document]:
    """Give every metadata document by its key; the root's holds the pins."""
    found: dict[str, Document] = {}
    for path, member in walk(node):
        start = f"{path}/" if path else ""
        document = member.metadata()
        if not path:
            document["attributes"] = root_attributes(node, write, base)
        if zarr_format == 3:
            if isinstance(member, ArrayIndex) and separator != "/":
                document["chunk_key_encoding"] = {
                    "name": "default",
                    "configuration": {"separator": separator},
                }
            found[f"{start}zarr.json"] = document
        elif isinstance(member, ArrayIndex):
            zarray, zattrs = to_v2(member, f"array {path or '/'}")
            if not path:
                zattrs = {**zattrs, **document["attributes"]}
            found[f"{start}.zarray"], found[f"{start}.zattrs"] = zarray, zattrs
        else:
            found[f"{start}.zgroup"] = {"zarr_format": 2}
            found[f"{start}.zattrs"] = document["attributes"]
    return found


def root_attributes(node: Node, write: Mapping[str, str], base: str | None) -> Document:
    """Give the root's attributes with what only we read: pins and the folder of saving."""
    about: Json = dict(node.attributes.get("anychunk") or {})
    if node.pins:
        about["pins"] = pins_json(node.pins, {u: write.get(u, absolute(u)) for u in node.pins})
    if base is not None:
        about["base"] = base
    return {**node.attributes, "anychunk": about} if about else node.attributes


def _write(
    file: BinaryIO | BytesIO,
    documents: Mapping[str, Document],
    found: Mapping[str, tuple[ArrayIndex, Table]],
    *,
    write: Mapping[str, str],
    folder: str,
    zarr_format: int,
    separator: str,
) -> None:
    uses_base = any(reference.startswith(BASE) for reference in write.values())
    templates = {"base": folder.rstrip("/")} if uses_base else {}
    file.write(b'{"version":1,')
    if templates:
        file.write(f'"templates":{json.dumps(templates)},'.encode())
    file.write(b'"refs":{\n')
    text = [f"{json.dumps(key)}:{json.dumps(json.dumps(d))}" for key, d in documents.items()]
    file.write(",\n".join(text).encode())
    for path, (_, table) in found.items():
        prefix = (f"{path}/" if path else "") + ("" if zarr_format == 2 else "c" + separator)
        for batch in lines(prefix, separator, table, write):
            file.write(b",\n")
            file.write(batch.encode())
    file.write(b"\n}}\n")


def lines(prefix: str, separator: str, table: Table, write: Mapping[str, str]) -> Iterator[str]:
    """Yield the references of one array as text, many to a batch."""
    start = json.dumps(prefix)[1:-1].replace("%", "%%")
    if not table.grid:
        # an array without axes has one chunk, `c` or in v2 `0`
        start = start.removesuffix(separator) if "c" in prefix[-2:] else f"{start}0"
    key = f'"{start}' + separator.join(["%d"] * len(table.grid)) + '":'
    heads = [json.dumps(write[url]) if url else "" for url in table.urls]
    several = table.several()
    plain = np.setdiff1d(table.present, several, assume_unique=True)
    is_whole = table.lengths[plain] == WHOLE
    for numbers in _batches(plain[~is_whole]):
        columns = _columns(numbers, table, heads)
        yield ",\n".join(map((f"{key}[%s,%d,%d]").__mod__, zip(*columns, strict=True)))
    for numbers in _batches(plain[is_whole]):
        columns = _columns(numbers, table, heads)[:-2]
        yield ",\n".join(map(f"{key}[%s]".__mod__, zip(*columns, strict=True)))
    for numbers in _batches(several):
        yield ",\n".join(_several(int(n), key, table, heads) for n in numbers)
    for number, data in table.copied.items():
        text = f'"base64:{base64.b64encode(data).decode()}"'
        yield key % _coords(number, table) + text


def _batches(numbers: Any) -> Iterator[Any]:
    for start in range(0, len(numbers), BATCH):
        yield numbers[start : start + BATCH]


def _columns(numbers: Any, table: Table, heads: list[str]) -> list[Any]:
    coords = [c.tolist() for c in np.unravel_index(numbers, table.grid)] if table.grid else []
    ids = [0] * len(numbers) if table.url_ids is None else table.url_ids[numbers].tolist()
    offsets, lengths = table.offsets[numbers].tolist(), table.lengths[numbers].tolist()
    return [*coords, [heads[i] for i in ids], offsets, lengths]


def _coords(number: int, table: Table) -> tuple[int, ...]:
    return tuple(int(c) for c in np.unravel_index(number, table.grid)) if table.grid else ()


def _several(number: int, key: str, table: Table, heads: list[str]) -> str:
    parts = table.parts
    ranges = [(int(table.offsets[number]), int(table.lengths[number]))]
    if parts is not None:
        begin, end = int(parts.starts[number]), int(parts.starts[number + 1])
        pairs = zip(parts.offsets[begin:end], parts.lengths[begin:end], strict=True)
        ranges += [(int(o), int(n)) for o, n in pairs]
    text = ",".join(f"[{o},{n}]" for o, n in ranges)
    return f"{key % _coords(number, table)}[{heads[table.url_id(number)]},[{text}]]"


def sniff(head: bytes) -> bool:
    """Whether a file begins as reference JSON does."""
    start = head.lstrip()
    return start.startswith(b"{") and (
        re.search(rb'^\{\s*"(version|refs|templates|gen)"\s*:', start) is not None
        or any(f'"{name}"'.encode() in start or f'/{name}"'.encode() in start for name in METADATA)
    )


def load(source: Source, *, allow: Iterable[str] = ()) -> Node:
    """Read reference JSON as an index."""
    size = source.size()
    if size > limits.get().index_bytes:
        raise LimitError(
            f"{source.url}: an index of {size} bytes is over the limit of "
            f"{limits.get().index_bytes}; raise anychunk.limits index_bytes to allow it"
        )
    try:
        text = str(memoryview(source.read(0, size)), "utf-8")
    except UnicodeDecodeError as e:
        raise FormatError(f"{source.url}: no UTF-8 ({e})") from e
    found = _read(text, source.url)
    return _build(found, source.url, allow)


@dataclass
class _References:
    """What reference JSON holds, in columns."""

    documents: dict[str, Document] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    urls: dict[str, int] = field(default_factory=dict)
    url_ids: "array[int]" = field(default_factory=lambda: array("L"))
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    lengths: "array[int]" = field(default_factory=lambda: array("Q"))
    parts: dict[str, list[Range]] = field(default_factory=dict)
    inline: dict[str, bytes] = field(default_factory=dict)

    def add(self, key: str, url: str, offset: int, length: int) -> None:
        self.keys.append(key)
        self.url_ids.append(self.urls.setdefault(url, len(self.urls)))
        self.offsets.append(offset)
        self.lengths.append(length)


ENTRY = re.compile(
    r'\s*,\s*"([^"\\]*)"\s*:\s*\[\s*"([^"\\]*)"\s*,\s*(\d{1,19})\s*,\s*(\d{1,19})\s*\]'
)
SPACE = re.compile(r"[ \t\r\n]*")


def _read(text: str, where: str) -> _References:
    found = _References()
    try:
        _read_object(text, _open(text, 0), lambda k, at: _top(text, k, at, found, where), None)
    except (ValueError, RecursionError, StopIteration, IndexError, OverflowError) as e:
        if isinstance(e, FormatError):
            raise
        raise FormatError(f"{where}: no reference JSON ({e or type(e).__name__})") from e
    return found


def _skip(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    return match.end() if match else at


def _open(text: str, at: int) -> int:
    at = _skip(text, at)
    if text[at] != "{":
        raise ValueError(f"expected an object at {at}")
    return at + 1


SCAN: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def _read_object(
    text: str,
    at: int,
    take: Callable[[str, int], int],
    quick: _References | None,
) -> int:
    """Go through the members of an object one by one; `take(key, at)` gives the value's end.

    Members that are plain references go into `quick` without a JSON value being made: an index of
    a million chunks would be some gigabytes of them.
    """
    at = _skip(text, at)
    if text[at] == "}":
        return at + 1
    match_entry, is_first = ENTRY.match, True
    while True:
        if quick is not None and not is_first:
            match = match_entry(text, at)
            if match is not None:
                key, url, offset, length = match.groups()
                quick.add(key, url, int(offset), int(length))
                at = match.end()
                continue
        at = _skip(text, at)
        if text[at] == "}":
            return at + 1
        if not is_first:
            if text[at] != ",":
                raise ValueError(f"expected a comma at {at}")
            at = _skip(text, at + 1)
        if text[at] != '"':
            raise ValueError(f"expected a key at {at}")
        key, at = scanstring(text, at + 1, True)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError(f"expected a colon at {at}")
        at, is_first = take(key, _skip(text, at + 1)), False


def _top(text: str, key: str, at: int, found: _References, where: str) -> int:
    if key == "refs":
        return _read_object(
            text, _open(text, at), lambda k, a: _reference(text, k, a, found, where), found
        )
    if key in ("version", "templates", "gen"):
        value, end = SCAN(text, at)
        if key == "gen" and value:
            raise UnsupportedError(f"{where}: generated references (gen) are not opened")
        if key == "templates":
            if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
                raise ValueError("templates are no object of texts")
            found.templates.update(value)
        if key == "version" and value not in (0, 1):
            raise UnsupportedError(f"{where}: reference JSON version {value!r}; opened: 0 1")
        return end
    return _reference(text, key, at, found, where)  # version 0: references stand at the top


def _reference(text: str, key: str, at: int, found: _References, where: str) -> int:
    """Take one reference of any kind."""
    value, end = SCAN(text, at)
    if key.rpartition("/")[2] in METADATA:
        found.documents[key] = parse_document(_inline(value), f"{where} {key}")
    elif isinstance(value, str):
        found.inline[key] = _inline(value)
    elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        found.add(key, value[0], 0, int(WHOLE))
    elif isinstance(value, list) and len(value) == 3 and isinstance(value[0], str):
        found.add(key, value[0], *_range(value[1:], key))
    elif isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
        first, *rest = [_range(part, key) for part in value[1]]
        found.add(key, value[0], *first)
        if rest:
            found.parts[key] = rest
    else:
        raise FormatError(f"{where}: {key!r} refers to {str(value)[:80]}, which is no reference")
    return end


def _inline(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("base64:"):
        try:
            return base64.b64decode(value[7:], validate=True)
        except binascii.Error as e:
            raise ValueError(f"inline bytes are no base64 ({e})") from e
    return value.encode() if isinstance(value, str) else value


def _range(pair: Any, key: str) -> Range:
    if not isinstance(pair, list) or len(pair) != 2 or not all(type(n) is int for n in pair):
        raise ValueError(f"{key!r} has no byte range but {str(pair)[:80]}")
    offset, length = pair
    if offset < 0 or length < 1 or offset + length > 1 << 63:
        raise ValueError(f"{key!r} has the byte range {offset}, {length}")
    return offset, length


def _build(found: _References, url: str, allow: Iterable[str]) -> Node:
    fields = node_fields(found.documents, url)
    root = fields.get("", {})
    attributes = root[1]["attributes"] if isinstance(root, tuple) else root
    base = saved_base(attributes, url)
    templates = dict(found.templates)
    if base is not None:
        templates["base"] = base  # what was below it is looked for where the index lies now
    places = Places(url=url, base=base, templates=templates, allow=tuple(allow))
    urls = [places.resolve(reference) for reference in found.urls]
    arrays = {path: n for path, n in fields.items() if isinstance(n, tuple)}
    rows = _rows(found, arrays, url)
    nodes: dict[str, ArrayIndex | Document] = {}
    for path, member in fields.items():
        if isinstance(member, tuple):
            where = f"{url} {path}"
            nodes[path] = array_index(member[1], rows.get(path, no_rows()), urls, where)
        else:
            nodes[path] = member
    if not nodes:
        raise FormatError(f"{url}: reference JSON without any metadata of Zarr")
    return with_pins(tree(nodes, url), places)


type Arrays = Mapping[str, tuple[str, dict[str, Any]]]


def _rows(found: _References, arrays: Arrays, where: str) -> dict[str, Rows]:
    """Sort references by array, and number them."""
    starts = {_start(path, *member): path for path, member in arrays.items()}
    taken: dict[str, list[tuple[Any, Any]]] = {}
    for begin, end, start in _runs(found.keys, starts):
        path = starts[start]
        numbers, kept = _numbers(found.keys[begin:end], start, arrays[path], where)
        taken.setdefault(path, []).append((numbers, kept + begin))
    offsets = np.frombuffer(found.offsets, np.uint64) if found.keys else np.empty(0, np.uint64)
    lengths = np.frombuffer(found.lengths, np.uint64) if found.keys else offsets
    ids = np.array(found.url_ids, np.int64)
    rows = {}
    for path, pieces in taken.items():
        numbers = np.concatenate([n for n, _ in pieces])
        places = np.concatenate([p for _, p in pieces])
        rows[path] = Rows(
            numbers=numbers,
            offsets=offsets[places],
            lengths=lengths[places],
            url_ids=ids[places],
        )
    _add_special(found, arrays, starts, rows, where)
    return rows


def _start(path: str, pattern: str, fields: Mapping[str, Any]) -> str:
    """Give what the chunk keys of an array begin with."""
    prefix = f"{path}/" if path else ""
    if not pattern.startswith("c"):
        return prefix
    return prefix + (pattern if fields["shape"] else "c")


def _add_special(
    found: _References,
    arrays: Arrays,
    starts: Mapping[str, str],
    rows: dict[str, Rows],
    where: str,
) -> None:
    """Add inline chunks and further parts to the rows of their arrays."""
    for name, values in (("inline", found.inline), ("parts", found.parts)):
        keys = list(values)
        for begin, end, start in _runs(keys, starts):
            path = starts[start]
            numbers, kept = _numbers(keys[begin:end], start, arrays[path], where)
            target = getattr(rows.setdefault(path, no_rows()), name)
            for number, place in zip(numbers.tolist(), kept.tolist(), strict=True):
                target[number] = values[keys[begin + place]]


def _runs(keys: list[str], starts: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """Yield (begin, end, start) of neighbouring keys that begin with the same array's `start`."""
    begin, current = 0, None
    for i, key in enumerate(keys):
        if current is not None and key.startswith(current) and current != "":
            continue
        start = _start_of(key, starts)
        if start != current:
            if current is not None:
                yield begin, i, current
            begin, current = i, start
    if current is not None:
        yield begin, len(keys), current


def _start_of(key: str, starts: Mapping[str, str]) -> str | None:
    """Find the array that a chunk key belongs to: the longest start; None where there is none."""
    end = len(key)
    while end > 0:
        if key[:end] in starts:
            return key[:end]
        cut = max(key.rfind("/", 0, end - 1), key.rfind(".", 0, end - 1))
        end = cut + 1 if cut >= 0 else 0
    return "" if "" in starts else None


COORDS = re.compile(r"\d{1,10}(?:[./]\d{1,10})*")


def _numbers(
    keys: list[str], start: str, array: tuple[str, dict[str, Any]], where: str
) -> tuple[Any, Any]:
    """Turn chunk keys into chunk numbers; those outside the grid, which zarr never asks for, go."""
    pattern, fields = array
    grid = grid_shape(fields["shape"], fields["chunk_shape"])
    if not grid:
        return np.zeros(len(keys[-1:]), np.int64), np.arange(len(keys))[-1:]
    found = [
        _parse_keys(keys[i : i + BATCH], len(start), pattern[-1], len(grid), where)
        for i in range(0, len(keys), BATCH)
    ]
    coords = np.concatenate(found)
    kept = np.flatnonzero((coords < np.array(grid)).all(axis=1))
    strides = np.cumprod([1, *grid[:0:-1]])[::-1]
    return coords[kept] @ strides, kept


def _parse_keys(keys: list[str], start: int, separator: str, ndim: int, where: str) -> Any:
    """Read the coordinates in chunk keys, all in one go."""
    joined = separator.join([key[start:] for key in keys])
    if COORDS.fullmatch(joined) is not None:
        coords = np.fromstring(joined.replace(".", "/"), np.int64, sep="/")
        if coords.size == len(keys) * ndim:
            return coords.reshape(-1, ndim)
    raise FormatError(f"{where}: among keys as {keys[0]!r} is one that is no chunk of {ndim} axes")
