"""From what a saved index holds back to an index: metadata documents, and rows of chunk tables."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.errors import FormatError, LimitError, UnsupportedError
from anychunk.model.grid import grid_shape
from anychunk.model.index import (
    INLINE,
    WHOLE,
    ArrayIndex,
    ByteRanges,
    GroupIndex,
    Json,
    Node,
    Parts,
)
from anychunk.model.pin import Pin
from anychunk.references.places import Places, read_pins
from anychunk.references.v2 import from_v2, sizes

type Document = dict[str, Json]
type Int64 = npt.NDArray[np.int64]
type Range = tuple[int, int]
type Fields = dict[str, Any]
"""What an `ArrayIndex` takes, but its chunks."""
type Nodes = dict[str, tuple[str, Fields] | Document]
"""By path: (key pattern, fields) of an array, attributes of a group."""

DEEPEST = 64
"""How many groups may stand inside each other."""


@dataclass(kw_only=True)
class Rows:
    """Chunks of one array as they were saved, by number in C order over the grid."""

    numbers: Int64
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    url_ids: Int64
    parts: dict[int, list[Range]] = field(default_factory=dict)
    """Further parts, by number."""
    inline: dict[int, bytes] = field(default_factory=dict)
    """Bytes of chunks that were copied in, by number."""


def array_fields(document: Document, where: str) -> Fields:
    """Read `zarr.json` of an array."""
    try:
        grid = document["chunk_grid"]
        if grid["name"] != "regular":
            raise UnsupportedError(f"{where}: chunk grid {grid['name']!r}; opened: regular")
        shape, chunks = document["shape"], grid["configuration"]["chunk_shape"]
        if document.get("storage_transformers"):
            raise UnsupportedError(f"{where}: storage transformers are not opened")
        fields = {
            "shape": sizes(shape, where),
            "chunk_shape": sizes(chunks, where),
            "data_type": document["data_type"],
            "codecs": tuple(document["codecs"]),
            "fill_value": document["fill_value"],
            "attributes": dict(document.get("attributes") or {}),
        }
        names = document.get("dimension_names") or [None] * len(shape)
        fields["dimension_names"] = tuple(names)
    except (KeyError, TypeError, ValueError) as e:
        raise FormatError(f"{where}: zarr.json lacks or garbles {e}") from e
    return fields


def parse_document(text: str | bytes | Document, where: str) -> Document:
    """Read a metadata document, which may be text or JSON already."""
    try:
        found = json.loads(text) if isinstance(text, str | bytes) else text
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{where}: no JSON ({e})") from e
    if not isinstance(found, dict):
        raise FormatError(f"{where}: {type(found).__name__}, expected an object")
    return found


def byte_ranges(grid: tuple[int, ...], rows: Rows, urls: list[str], where: str) -> ByteRanges:
    """Spread rows over the grid; what has no row is absent."""
    count = math.prod(grid)
    if rows.numbers.size > count or len(rows.inline) > count:
        raise FormatError(f"{where}: more references than the {count} chunks of its grid")
    offsets, lengths = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    offsets[rows.numbers], lengths[rows.numbers] = rows.offsets, rows.lengths
    if rows.numbers.size and not rows.lengths.all():
        raise FormatError(f"{where}: a reference of 0 bytes; a chunk that is absent has none")
    highest = np.uint64(1 << 62)
    if ((rows.offsets > highest) | ((rows.lengths > highest) & (rows.lengths != WHOLE))).any():
        raise FormatError(f"{where}: a reference beyond the end of any object")
    used = np.unique(rows.url_ids)
    table = [urls[i] for i in used.tolist()]
    ids = np.zeros(count, np.uint32)
    if len(used) > 1:
        ids[rows.numbers] = np.searchsorted(used, rows.url_ids).astype(np.uint32)
    blob = b""
    if rows.inline:
        blob = b"".join(rows.inline.values())
        counts = np.array([len(data) for data in rows.inline.values()], np.uint64)
        if not counts.all():
            raise FormatError(f"{where}: an inline chunk of 0 bytes")
        numbers = np.fromiter(rows.inline, np.int64, len(rows.inline))
        offsets[numbers], lengths[numbers] = np.cumsum(counts) - counts, counts
        ids[numbers] = len(table)
        table.append(INLINE)
    return ByteRanges(
        offsets=offsets.reshape(grid),
        lengths=lengths.reshape(grid),
        urls=tuple(table),
        url_ids=ids.reshape(grid) if len(table) > 1 else None,
        parts=_parts(rows.parts, count),
        inline=blob,
    )


def _parts(found: Mapping[int, list[Range]], count: int) -> Parts | None:
    if not found:
        return None
    counts = np.zeros(count + 1, np.uint64)
    order = sorted(found)
    for number in order:
        counts[number + 1] = len(found[number])
    flat = np.array([part for number in order for part in found[number]], np.uint64)
    return Parts(
        starts=np.cumsum(counts, dtype=np.uint64),
        offsets=flat[:, 0].copy(),
        lengths=flat[:, 1].copy(),
    )


def tree(  # noqa: C901 - three passes over one table, each a few lines
    nodes: Mapping[str, ArrayIndex | Document], where: str
) -> Node:
    """Put arrays and group attributes in their places; groups that none names are made."""
    if isinstance(root := nodes.get(""), ArrayIndex):
        return root
    members: dict[str, dict[str, Node]] = {"": {}}
    attributes = {path: n for path, n in nodes.items() if not isinstance(n, ArrayIndex)}
    for path in nodes:
        names = path.split("/") if path else []
        if len(names) > DEEPEST or not all(names) or ".." in names:
            raise FormatError(f"{where}: {path!r} is no path of a node")
        for depth in range(len(names)):
            if isinstance(nodes.get("/".join(names[:depth])), ArrayIndex):
                raise FormatError(f"{where}: {path!r} stands inside an array")
            members.setdefault("/".join(names[:depth]), {})
        if path in attributes:
            members.setdefault(path, {})
    for path in sorted(members, key=lambda p: -len(p.split("/")) if p else 1):
        if path:
            parent, _, name = path.rpartition("/")
            members[parent][name] = GroupIndex(
                members=members[path], attributes=attributes.get(path, {})
            )
    for path, node in nodes.items():
        if isinstance(node, ArrayIndex):
            parent, _, name = path.rpartition("/")
            members[parent][name] = node
    return GroupIndex(members=_sorted(members[""]), attributes=attributes.get("", {}))


def _sorted(members: dict[str, Node]) -> dict[str, Node]:
    """Order members as they are read: numbers by size, then names."""
    order = sorted(members, key=lambda n: (not n.isdigit(), int(n) if n.isdigit() else 0, n))
    found: dict[str, Node] = {}
    for name in order:
        node = members[name]
        if isinstance(node, GroupIndex):
            node = GroupIndex(members=_sorted(dict(node.members)), attributes=node.attributes)
        found[name] = node
    return found


def with_pins(node: Node, places: Places) -> Node:
    """Take what we saved beside the metadata out of the root's attributes, and act on it."""
    about = node.attributes.get("anychunk")
    if not isinstance(about, dict):
        return node
    pins = read_pins(about.get("pins", {}), places)
    if places.has_moved:
        # a copy has a time and an etag of its own
        pins = {url: Pin(size=pin.size) for url, pin in pins.items()}
    rest = {key: value for key, value in about.items() if key not in ("pins", "base")}
    attributes = {key: value for key, value in node.attributes.items() if key != "anychunk"}
    return replace(
        node, attributes={**attributes, "anychunk": rest} if rest else attributes, pins=pins
    )


def saved_places(
    fields: Nodes, where: str, allow: Iterable[str], templates: Mapping[str, str] | None = None
) -> Places:
    """Say where the references of a saved index lead, by what its root tells of its saving."""
    root = fields.get("", {})
    base = _saved_base(root[1]["attributes"] if isinstance(root, tuple) else root, where)
    known = None if templates is None else dict(templates)
    if known is not None and base is not None:
        known["base"] = base  # what was below it is looked for where the index lies now
    return Places(url=where, base=base, templates=known, allow=tuple(allow))


def assembled(
    fields: Nodes, places: Places, read: Callable[[str, Fields], tuple[Rows, list[str]]]
) -> Node:
    """Build the index of all nodes; `read` gives the rows of an array and the urls they name."""
    nodes: dict[str, ArrayIndex | Document] = {}
    for path, member in fields.items():
        if isinstance(member, tuple):
            rows, urls = read(path, member[1])
            nodes[path] = array_index(member[1], rows, urls, f"{places.url} {path}")
        else:
            nodes[path] = member
    return with_pins(tree(nodes, places.url), places)


def _saved_base(root: Document, where: str) -> str | None:
    """Give the folder that a saved index was saved in, where it is to move with its data."""
    about = root.get("anychunk")
    base = about.get("base") if isinstance(about, dict) else None
    if base is not None and not isinstance(base, str):
        raise FormatError(f"{where}: base is {base!r}, expected a folder")
    return base


def node_fields(documents: Mapping[str, Document], where: str) -> Nodes:
    """Read metadata documents by their keys.

    The key pattern is the separator of chunk keys, after `c` where it is v3's default encoding.
    """
    found: Nodes = {}
    for key, document in documents.items():
        path, _, name = key.rpartition("/")
        here = f"{where} {path}"
        if name == "zarr.json":
            if document.get("node_type") == "array":
                found[path] = _key_pattern(document, here), array_fields(document, here)
            else:
                found[path] = dict(document.get("attributes") or {})
        elif name == ".zarray":
            zattrs = documents.get(f"{path}/.zattrs" if path else ".zattrs", {})
            separator = document.get("dimension_separator", ".")
            if separator not in (".", "/"):
                raise FormatError(f"{here}: dimension_separator {separator!r}")
            found[path] = separator, from_v2(document, zattrs, here)
        elif name == ".zgroup":
            found[path] = dict(documents.get(f"{path}/.zattrs" if path else ".zattrs", {}))
    return found


def _key_pattern(document: Document, where: str) -> str:
    try:
        encoding = document.get("chunk_key_encoding", "default")
        name = encoding if isinstance(encoding, str) else encoding["name"]
        configuration = {} if isinstance(encoding, str) else encoding.get("configuration", {})
        default = "/" if name == "default" else "."
        separator = configuration.get("separator", default)
    except (KeyError, AttributeError, TypeError) as e:
        raise FormatError(f"{where}: chunk_key_encoding {encoding!r}") from e
    if name not in ("default", "v2") or separator not in (".", "/"):
        raise UnsupportedError(f"{where}: chunk_key_encoding {encoding!r}; opened: default, v2")
    return f"c{separator}" if name == "default" else str(separator)


def array_index(fields: Fields, rows: Rows, urls: list[str], where: str) -> ArrayIndex:
    """Build an array from its fields and its rows."""
    if len(fields["chunk_shape"]) != len(fields["shape"]) or 0 in fields["chunk_shape"]:
        raise FormatError(
            f"{where}: chunks {fields['chunk_shape']} do not fit shape {fields['shape']}"
        )
    grid = grid_shape(fields["shape"], fields["chunk_shape"])
    if math.prod(grid) > limits.get().chunks:
        raise LimitError(
            f"{where}: {math.prod(grid)} chunks are over the limit of {limits.get().chunks}"
        )
    return ArrayIndex(**fields, chunks=byte_ranges(grid, rows, urls, where))


def no_rows() -> Rows:
    empty = np.empty(0, np.uint64)
    nothing = np.empty(0, np.int64)
    return Rows(numbers=nothing, offsets=empty, lengths=empty, url_ids=nothing)
