"""Build an index from a saved one: from its metadata documents and rows of chunk references."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.errors import FormatError
from anychunk.formats._zarr_metadata import Document, Fields, check_chunk_shape
from anychunk.model.grid import Numbers, Shape, grid_shape
from anychunk.model.index import (
    INLINE,
    WHOLE,
    ArrayIndex,
    ByteRanges,
    GroupIndex,
    Node,
    Parts,
    Uint64,
)
from anychunk.model.pin import Pin
from anychunk.references.documents import Nodes, loaded_attributes, read_base, read_pins
from anychunk.references.tile_tables import KEY, load_tables
from anychunk.references.urls import UrlResolver

type Range = tuple[int, int]
"""Offset and length."""

DEEPEST = 64
"""How deep groups may be nested."""
HIGHEST = np.uint64(1 << 62)
"""No object is as long as this many bytes; a larger offset or length is malformed."""


@dataclass(kw_only=True)
class Rows:
    """The chunks of one array as they were saved, by number in C order over the grid."""

    numbers: Numbers
    offsets: Uint64
    lengths: Uint64
    url_ids: Numbers
    parts: dict[int, list[Range]] = field(default_factory=dict)
    """Further byte ranges, by chunk number."""
    inline: dict[int, bytes] = field(default_factory=dict)
    """Bytes of chunks that were copied into the saved index, by chunk number."""


def no_rows() -> Rows:
    """Return the rows of an array without chunks."""
    empty = np.empty(0, np.uint64)
    nothing = np.empty(0, np.int64)
    return Rows(numbers=nothing, offsets=empty, lengths=empty, url_ids=nothing)


def joined(pieces: list[Any], dtype: npt.DTypeLike) -> Any:
    """Return pieces as one array; they are not kept, since the other columns follow."""
    joined = np.concatenate([np.empty(0, dtype), *pieces], dtype=dtype, casting="unsafe")
    pieces.clear()
    return joined


def url_resolver(
    nodes: Nodes, where: str, allow: Iterable[str], templates: Mapping[str, str] | None = None
) -> UrlResolver:
    """Return the `UrlResolver` for the references of a saved index.

    Parameters:
        nodes: The content of the index; its root records the folder that it was saved in.
        where: The url of the index.
        allow: Prefixes of urls that references may point to, besides the index's folder.
        templates: The values of `{{name}}` in references, where the format has templates.
    """
    root = nodes.get("", {})
    base = read_base(root[1]["attributes"] if isinstance(root, tuple) else root, where)
    known = None if templates is None else dict(templates)
    if known is not None and base is not None:
        # references below the recorded folder are looked up below the current one
        known["base"] = base
    return UrlResolver(url=where, base=base, templates=known, allow=tuple(allow))


def build_index(
    nodes: Nodes, resolver: UrlResolver, read: Callable[[str, Fields], tuple[Rows, list[str]]]
) -> Node:
    """Build an index; `read(path, fields)` returns an array's rows, and the urls of their ids."""
    built: dict[str, ArrayIndex | Document] = {}
    chunks = references = 0
    for path, member in nodes.items():
        if isinstance(member, tuple):
            rows, urls = read(path, member[1])
            # of all arrays together: many small tables take as much memory as a long one
            count = count_chunks(member[1])
            chunks += count
            references += rows.numbers.size + len(rows.inline)
            where = f"{resolver.url} {path}"
            limits.check_table(count, where=where, references=references, total=chunks)
            built[path] = build_array(member[1], rows, urls, f"{resolver.url} {path}")
        else:
            built[path] = member
    return with_pins(build_tree(built, resolver.url), resolver)


def count_chunks(fields: Fields) -> int:
    """Return how many chunks an array has, absent ones included."""
    return math.prod(grid_shape(fields["shape"], fields["chunk_shape"]))


def build_array(fields: Fields, rows: Rows, urls: list[str], where: str) -> ArrayIndex:
    """Build an array from its fields and its rows."""
    check_chunk_shape(fields, where)
    grid = grid_shape(fields["shape"], fields["chunk_shape"])
    limits.check_table(math.prod(grid), where=where)
    return ArrayIndex(**fields, chunks=_byte_ranges(grid, rows, urls, where))


def _byte_ranges(grid: Shape, rows: Rows, urls: list[str], where: str) -> ByteRanges:
    """Return a chunk table; chunks without a row are absent."""
    count = math.prod(grid)
    _check_rows(rows, count, where)
    offsets, lengths = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    offsets[rows.numbers], lengths[rows.numbers] = rows.offsets, rows.lengths
    used = np.flatnonzero(np.bincount(rows.url_ids, minlength=1))  # `unique` would sort them
    table = [urls[i] for i in used.tolist()]
    ids = np.zeros(count, np.uint32)
    if len(used) > 1:
        ids[rows.numbers] = np.searchsorted(used, rows.url_ids).astype(np.uint32)
    if rows.inline:
        sizes = np.array([len(data) for data in rows.inline.values()], np.uint64)
        numbers = np.fromiter(rows.inline, np.int64, len(rows.inline))
        offsets[numbers], lengths[numbers] = np.cumsum(sizes) - sizes, sizes
        ids[numbers] = len(table)
        table.append(INLINE)
    return ByteRanges(
        offsets=offsets.reshape(grid),
        lengths=lengths.reshape(grid),
        urls=tuple(table),
        url_ids=ids.reshape(grid) if len(table) > 1 else None,
        parts=_parts(rows.parts, count),
        inline=b"".join(rows.inline.values()),
    )


def _check_rows(rows: Rows, count: int, where: str) -> None:
    most = max(rows.numbers.size, len(rows.inline))
    if most > count:
        raise FormatError(f"{where}: {most} references, expected at most {count}, one per chunk")
    # a length of 0 means an absent chunk: a malformed reference must not read as fill values
    if not rows.lengths.all():
        raise FormatError(f"{where}: a reference of 0 bytes, expected none for an absent chunk")
    if not all(rows.inline.values()):
        raise FormatError(f"{where}: an inline chunk of 0 bytes, expected none for an absent chunk")
    is_long = (rows.lengths > HIGHEST) & (rows.lengths != WHOLE)
    if ((rows.offsets > HIGHEST) | is_long).any():
        raise FormatError(
            f"{where}: a reference ends beyond byte {int(HIGHEST)}, which no object reaches"
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


def build_tree(nodes: Mapping[str, ArrayIndex | Document], where: str) -> Node:
    """Return the tree of arrays and of group attributes, by path; missing groups are created."""
    if isinstance(root := nodes.get(""), ArrayIndex):
        return root
    members: dict[str, dict[str, Node]] = {"": {}}
    attributes = {path: n for path, n in nodes.items() if not isinstance(n, ArrayIndex)}
    for path in nodes:
        for parent in _parents(path, nodes, where):
            members.setdefault(parent, {})
        if path in attributes:
            members.setdefault(path, {})
    # the deepest groups first: a group takes its members when it is created
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


def _parents(path: str, nodes: Mapping[str, ArrayIndex | Document], where: str) -> list[str]:
    """Return the paths of all groups around a node, the root first."""
    names = path.split("/") if path else []
    if len(names) > DEEPEST or not all(names) or ".." in names:
        raise FormatError(
            f"{where}: {path!r} is not a valid path of a node: expected at most {DEEPEST} names, "
            "none of them empty or '..'"
        )
    parents = ["/".join(names[:depth]) for depth in range(len(names))]
    for parent in parents:
        if isinstance(nodes.get(parent), ArrayIndex):
            raise FormatError(f"{where}: {path!r} is inside the array {parent!r}")
    return parents


def _sorted(members: dict[str, Node]) -> dict[str, Node]:
    """Sort members: numbers by value, then names."""
    order = sorted(members, key=lambda n: (not n.isdigit(), int(n) if n.isdigit() else 0, n))
    found: dict[str, Node] = {}
    for name in order:
        node = members[name]
        if isinstance(node, GroupIndex):
            node = GroupIndex(members=_sorted(dict(node.members)), attributes=node.attributes)
        found[name] = node
    return found


def with_pins(node: Node, resolver: UrlResolver) -> Node:
    """Move the pins from the root's attributes, where they were saved, to the index itself.

    The folders that references may point to are added: a file may be replaced by a link later.
    """
    node = replace(node, roots=resolver.roots)
    about = node.attributes.get("anychunk")
    if not isinstance(about, dict):
        return node
    pins = read_pins(about.get("pins", {}), resolver)
    if resolver.has_moved:
        # a copy has another etag and time of change, but the same size
        pins = {url: Pin(size=pin.size) for url, pin in pins.items()}
    if KEY in about:
        node = load_tables(node, about[KEY], resolver.resolve, resolver.url)
    return replace(node, attributes=loaded_attributes(node.attributes), pins=pins)
