"""Metadata documents of a saved index, written and read: `zarr.json`, or `.zarray` and `.zattrs`.

The root's attributes also have an object `anychunk` for anychunk itself: `index`, the version of
the index; `version`, the release that wrote it; the pins of the sources; and `base`, the folder
that the index was saved in.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk._version import __version__
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats._zarr_metadata import (
    Document,
    Fields,
    check_array,
    check_chunk_shape,
    from_v2,
    key_pattern,
    parse_array,
    read_attributes,
)
from anychunk.io.source import absolute
from anychunk.model.grid import Numbers, Shape, grid_shape
from anychunk.model.images import images
from anychunk.model.index import (
    INLINE,
    WHOLE,
    ArrayIndex,
    ByteRanges,
    GroupIndex,
    Json,
    Node,
    Parts,
    Uint64,
    walk,
)
from anychunk.model.pin import Pin
from anychunk.references.tile_tables import KEY, load_tables, write_tables
from anychunk.references.urls import UrlResolver
from anychunk.references.zarr_v2 import to_v2

type Nodes = dict[str, tuple[str, Fields] | Document]
"""By path: (key pattern, fields) of an array, or the attributes of a group."""

VERSION = 1
"""The version of saved indexes. A release reads this one and all earlier ones."""
SAVED_KEYS = ("pins", "base", KEY)
"""What the attribute `anychunk` of a root has in saved indexes only, besides the version."""
RELEASE = re.compile(r"[0-9][0-9A-Za-z.+!-]{0,30}")

MOST_IMAGES = 100
"""Up to this number of images, the root holds the metadata of all."""


def write_documents(
    node: Node,
    references: Mapping[str, str],
    base: str | None,
    zarr_format: int,
    separator: str = "/",
    *,
    is_consolidated: bool = False,
    most_images: int | None = None,
    is_partial: bool = False,
) -> dict[str, Document]:
    """Return every metadata document of an index by its key.

    Parameters:
        node: The index.
        references: How each url is written.
        base: The folder that the index is saved in, if it is to move with its data.
        zarr_format: 3 or 2.
        separator: The separator in chunk keys of Zarr v3.
        is_consolidated: Whether groups hold the metadata of everything below them as well, for
            readers that cannot list the keys of a store.
        most_images: Up to this number of images, `MOST_IMAGES` by default, the root is one of these
            groups.
        is_partial: Whether arrays that Zarr v2 cannot express are left out, not refused.
    """
    found: dict[str, Document] = {}
    for path, member in walk(node):
        start = f"{path}/" if path else ""
        attributes = member.attributes if path else root_attributes(node, references, base)
        if zarr_format == 3:
            document = {**member.metadata(), "attributes": attributes}
            if isinstance(member, ArrayIndex) and separator != "/":
                document["chunk_key_encoding"] = {
                    "name": "default",
                    "configuration": {"separator": separator},
                }
            found[f"{start}zarr.json"] = document
        elif isinstance(member, ArrayIndex):
            try:
                zarray, zattrs = to_v2(member, f"array {path or '/'}")
            except UnsupportedError:
                if is_partial:
                    continue
                raise
            if not path:
                zattrs = {**zattrs, **attributes}
            found[f"{start}.zarray"], found[f"{start}.zattrs"] = zarray, zattrs
        else:
            found[f"{start}.zgroup"] = {"zarr_format": 2}
            found[f"{start}.zattrs"] = attributes
    if not is_consolidated:
        return found
    most = MOST_IMAGES if most_images is None else most_images
    return {**found, **_consolidated(node, found, zarr_format, most)}


def _consolidated(
    node: Node, documents: Mapping[str, Document], zarr_format: int, most_images: int
) -> dict[str, Document]:
    """Return the documents of groups that hold the metadata of everything below them, by key.

    Every group, unless there are very many images: then image groups and those in them only,
    because the root would be as large as all others together.
    """
    paths = [path for path, member in walk(node) if isinstance(member, GroupIndex)]
    found_images = [image.path for image in images(node) if image.path]
    if len(found_images) > most_images:
        known = set(found_images)
        paths = [p for p in paths if p and any(part in known for part in _parents(p))]
    found: dict[str, Document] = {}
    by_folder: dict[str, list[str]] = {path: [] for path in paths}
    for key in documents:
        for parent in _parents(key):
            if parent in by_folder:
                by_folder[parent].append(key)
    for path, keys in by_folder.items():
        start = f"{path}/" if path else ""
        below = {key.removeprefix(start): documents[key] for key in keys}
        if zarr_format == 2:
            found[f"{start}.zmetadata"] = {"zarr_consolidated_format": 1, "metadata": below}
            continue
        own = below.pop("zarr.json")
        metadata = {key.removesuffix("/zarr.json"): document for key, document in below.items()}
        inline = {"kind": "inline", "must_understand": False, "metadata": metadata}
        found[f"{start}zarr.json"] = {**own, "consolidated_metadata": inline}
    return found


def _parents(path: str) -> list[str]:
    """Return the paths of a node and of all groups around it, the root first."""
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(len(names) + 1)]


def root_attributes(node: Node, references: Mapping[str, str], base: str | None) -> Document:
    """Return the root's attributes, with the version, pins and folder of the saved index."""
    about: Json = dict(node.attributes.get("anychunk") or {})
    about |= {"index": VERSION, "version": __version__}
    if node.pins:
        about["pins"] = {
            references.get(url, absolute(url)): pin_json(pin) for url, pin in node.pins.items()
        }
    if KEY in about:
        about[KEY] = write_tables(node, lambda url: references.get(url, absolute(url)))
    if base is not None:
        about["base"] = base
    return {**node.attributes, "anychunk": about}


def loaded_attributes(attributes: Document) -> Document:
    """Return the root's attributes without what `root_attributes` added to them."""
    about = attributes.get("anychunk")
    if not isinstance(about, dict):
        return attributes
    rest = {key: value for key, value in about.items() if key not in ("index", *SAVED_KEYS)}
    kept = {key: value for key, value in attributes.items() if key != "anychunk"}
    return {**kept, "anychunk": rest} if set(rest) - {"version"} else kept


def check_version(attributes: Any, where: str) -> None:
    """Refuse an index that a newer release wrote, or one of ours without a version.

    Indexes of other software have no version.

    Parameters:
        attributes: The root's attributes.
        where: The url of the index.

    Raises:
        UnsupportedError: This release does not read the version.
        FormatError: The version is not a positive integer, or missing.
    """
    about = attributes.get("anychunk") if isinstance(attributes, Mapping) else None
    if not isinstance(about, Mapping):
        return
    if "index" not in about:
        if any(key in about for key in SAVED_KEYS):
            raise FormatError(
                f"{where}: an index without a version, as anychunk wrote before its first release; "
                "index the files again"
            )
        return
    version, release = about["index"], about.get("version")
    if type(version) is not int or version < 1:
        raise FormatError(f"{where}: index version {version!r:.40}, expected a positive integer")
    if version > VERSION:
        is_named = isinstance(release, str) and RELEASE.fullmatch(release)
        needed = f"anychunk {release} or newer" if is_named else "a newer anychunk"
        raise UnsupportedError(
            f"{where}: index version {version!s:.20}, anychunk {__version__} reads {VERSION}; "
            f"install {needed}"
        )


def added_root(there: Document, new: Document) -> Document:
    """Return the attributes of the root of a group, with those of more files added.

    Only what is under `anychunk` is kept: files of a group share nothing else.
    """
    old, added = there.get("anychunk") or {}, new.get("anychunk") or {}
    about: Json = {**added, **old}
    about["files"] = old.get("files", 0) + added.get("files", 0)
    for key in ("pins", KEY):
        if key in added:
            about[key] = {**old.get(key, {}), **added[key]}
    if folders := [*old.get("folders", ()), *added.get("folders", ())]:
        about["folders"] = folders
    return {"anychunk": about}


def root_documents(attributes: Document, zarr_format: int) -> dict[str, Document]:
    """Return the documents of a root group with attributes that are complete, by key."""
    if zarr_format == 2:
        return {".zgroup": {"zarr_format": 2}, ".zattrs": attributes}
    return {"zarr.json": GroupIndex(members={}, attributes=attributes).metadata()}


def pin_json(pin: Pin) -> Document:
    """Return a pin as it is saved."""
    found = {"size": pin.size, "etag": pin.etag, "mtime_ns": pin.mtime_ns}
    return {key: value for key, value in found.items() if value is not None}


def read_pins(found: Any, resolver: UrlResolver) -> dict[str, Pin]:
    """Return the pins in a root's attributes, by resolved url."""
    if not isinstance(found, dict):
        raise FormatError(f"{resolver.url}: pins are {type(found).__name__}, expected an object")
    return {resolver.resolve(str(url)): _read_pin(pin, resolver.url) for url, pin in found.items()}


def _read_pin(pin: Any, where: str) -> Pin:
    kinds = {"size": int, "etag": str, "mtime_ns": int}
    if (
        not isinstance(pin, dict)
        or "size" not in pin
        or any(type(value) is not kinds.get(key) for key, value in pin.items())
    ):
        raise FormatError(
            f"{where}: pin {pin!r}, expected an object with an integer size, "
            "and optionally etag (text) and mtime_ns (integer)"
        )
    return Pin(**pin)


def read_base(root: Document, where: str) -> str | None:
    """Return the folder that an index was saved in, from the root's attributes."""
    about = root.get("anychunk", {})
    if not isinstance(about, dict):
        raise FormatError(f"{where}: the attribute anychunk is {about!r}, expected an object")
    base = about.get("base")
    if base is not None and not isinstance(base, str):
        raise FormatError(f"{where}: base is {base!r}, expected the url of a folder")
    return base


def parse_nodes(documents: Mapping[str, Document], where: str) -> Nodes:
    """Return the arrays and groups that metadata documents, by their keys, describe.

    The key pattern of an array is the separator of its chunk keys, after `c` if they are in Zarr
    v3's default encoding.
    """
    root = documents.get("zarr.json", {}).get("attributes") or documents.get(".zattrs")
    check_version(root, where)
    found: Nodes = {}
    for key, document in documents.items():
        path, _, name = key.rpartition("/")
        here = f"{where} {path}"
        if name == "zarr.json":
            if document.get("node_type") == "array":
                found[path] = key_pattern(document, here), parse_array(document, here)
            else:
                found[path] = read_attributes(document, here)
        elif name == ".zarray":
            zattrs = documents.get(f"{path}/.zattrs" if path else ".zattrs", {})
            separator = document.get("dimension_separator", ".")
            if separator not in (".", "/"):
                raise FormatError(f"{here}: dimension_separator {separator!r}, expected '.' or '/'")
            fields = from_v2(document, zattrs, here)
            check_array(fields, here)
            found[path] = separator, fields
        elif name == ".zgroup":
            found[path] = dict(documents.get(f"{path}/.zattrs" if path else ".zattrs", {}))
    return found


# Build an index from a saved one: from its metadata documents and rows of chunk references.


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
        for parent in _checked_parents(path, nodes, where):
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


def _checked_parents(
    path: str, nodes: Mapping[str, ArrayIndex | Document], where: str
) -> list[str]:
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
