"""Zarr: a folder of groups and arrays, versions 2 and 3; OME-Zarr 0.4 and 0.5, GeoZarr.

Spec:    https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html and .../v2/v2.0.html,
         consolidated metadata as zarr-python writes it.
Axes:    as the array's `dimension_names` (v2: `_ARRAY_DIMENSIONS`) or `ome` say; else dim_0 …
Opened:  a store, a group or an array; regular grids, shards, every codec that zarr or anychunk has.
         Absent chunks read as the fill value. Over HTTP, members are found by consolidated
         metadata, or else by the paths that OME-Zarr and GeoZarr list.
Refused: arrays with other chunk grids, storage transformers or structured types, which are left out
         of their groups; links that lead out of the store.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anychunk.errors import FormatError, MissingFileError, UnsupportedError
from anychunk.formats._zarr_metadata import (
    Document,
    Fields,
    check_array,
    from_v2,
    key_pattern,
    parse_array,
    parse_document,
    read_attributes,
)
from anychunk.io.file import stat_pin
from anychunk.io.inside import is_below, resolved
from anychunk.io.opening import Folder
from anychunk.io.source import signed_of
from anychunk.io.system import is_link
from anychunk.model.grid import grid_shape
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node, Objects
from anychunk.model.pin import Pin

EXTENSIONS = (".zarr",)
V3, V2_ARRAY, V2_GROUP, V2_ATTRIBUTES, V2_ALL = (
    "zarr.json",
    ".zarray",
    ".zgroup",
    ".zattrs",
    ".zmetadata",
)
DEEPEST = 64
"""How deep groups may be nested."""
MOST_KEPT = 4096
"""Maximum number of members of one group that are cached after they were read."""
MOST_PROBED = 1000
"""How many numbered images are looked for where members cannot be listed."""


def claims(url: str) -> bool:
    """Return whether a url names a Zarr store, or something in one."""
    return re.search(r"[^/\\]\.zarr(?:[/\\]|$)", url, re.IGNORECASE) is not None


def sniff_folder(folder: Folder) -> bool:
    """Return whether a folder is Zarr: by the metadata that a group or an array must have."""
    for name in (V3, V2_GROUP, V2_ARRAY):
        text = folder.read(name)
        if text is not None:
            return name != V3 or b"zarr_format" in text
    text = folder.read(V2_ALL)
    # with a record size it belongs to references that are saved as parquet
    return text is not None and b'"record_size"' not in text


def parse_folder(folder: Folder) -> Node:
    """Index a store, a group or an array."""
    found = read_node(folder)
    if found is None:
        raise MissingFileError(
            f"{folder.path}: no Zarr group or array; expected {V3}, {V2_GROUP} or {V2_ARRAY}"
        )
    node = to_node(folder, found, hints=())
    if isinstance(node, GroupIndex) and found.pin is not None:
        node = replace(node, pins={f"{folder.path}/{found.name}": found.pin})
    return node


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The metadata of one node as it is stored."""

    name: str
    """Of the document."""
    document: Document
    attributes: Document
    pin: Pin | None = None
    """The version of the document, if it is a local file."""
    below: Mapping[str, Document] | None = None
    """Consolidated metadata: the documents of everything below a group, by key."""

    @property
    def is_array(self) -> bool:
        """Whether it describes an array."""
        return self.name == V2_ARRAY or (
            self.name == V3 and self.document.get("node_type") == "array"
        )


def read_node(folder: Folder) -> Stored | None:
    """Return the metadata of a folder; None if it is neither a group nor an array."""
    for name in (V3, V2_ARRAY, V2_GROUP, V2_ALL):
        # before the document itself: one that changes in between is then noticed
        pin = stat_pin(f"{folder.path}/{name}") if folder.is_local else None
        text = folder.read(name)
        if text is None:
            continue
        where = f"{folder.path}/{name}"
        document = parse_document(text, where)
        if name == V3:
            check_version(document, 3, where)
            return Stored(
                name=name,
                document=document,
                attributes=read_attributes(document, where),
                pin=pin,
                below=consolidated_v3(document, where),
            )
        if name != V2_ALL:
            check_version(document, 2, where)
        listed = folder.read(V2_ALL) if name != V2_ARRAY else None
        below = None if listed is None else consolidated_v2(listed, f"{folder.path}/{V2_ALL}")
        if below is not None:
            return Stored(
                name=name,
                document=document,
                attributes=dict(below.get(V2_ATTRIBUTES, {})),
                pin=pin,
                below=below,
            )
        attributes = folder.read(V2_ATTRIBUTES)
        return Stored(
            name=name,
            document=document,
            attributes={}
            if attributes is None
            else parse_document(attributes, f"{folder.path}/{V2_ATTRIBUTES}"),
            pin=pin,
        )
    return None


def check_version(document: Document, expected: int, where: str) -> None:
    """Refuse metadata of another version of Zarr."""
    if document.get("zarr_format") != expected:
        raise UnsupportedError(
            f"{where}: zarr_format {document.get('zarr_format')!r}, expected {expected}"
        )


def consolidated_v3(document: Document, where: str) -> dict[str, Document] | None:
    """Return the documents in a group's consolidated metadata, by key; None if it has none."""
    found = document.get("consolidated_metadata")
    if found is None:
        return None
    known = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(known, dict):
        raise FormatError(f"{where}: consolidated_metadata has no object metadata")
    return {
        f"{check_path(path, where)}/{V3}": parse_document(entry, f"{where} {path}")
        for path, entry in known.items()
    }


def consolidated_v2(text: bytes, where: str) -> dict[str, Document]:
    """Return the documents in `.zmetadata`, by key."""
    known = parse_document(text, where).get("metadata")
    if not isinstance(known, dict):
        raise FormatError(f"{where}: has no object metadata")
    for key in known:
        path, _, _ = key.rpartition("/")
        if path:
            check_path(path, where)
    return {key: parse_document(entry, f"{where} {key}") for key, entry in known.items()}


def check_path(path: str, where: str) -> str:
    """Return a path of consolidated metadata; raise `FormatError` if no node can have it."""
    names = path.split("/")
    if len(names) > DEEPEST or not all(map(is_name, names)):
        raise FormatError(
            f"{where}: {path!r:.100} is not a valid path of a node: expected at most {DEEPEST} "
            "names, none of them empty or '..'"
        )
    return path


def is_name(name: str) -> bool:
    """Return whether a member may have this name: a single path component, not hidden."""
    return bool(name) and not name.startswith(".") and not any(c in name for c in "/\\\0")


def to_node(folder: Folder, found: Stored, hints: Sequence[str]) -> Node:
    """Return the index of an array or a group.

    Parameters:
        folder: Where it is.
        found: Its metadata.
        hints: Names of members that the groups around it mention, where none can be listed.
    """
    where = f"{folder.path}/{found.name}"
    if found.is_array:
        return array_index(folder, *fields_of(found, where), found)
    if found.name == V3 and found.document.get("node_type") != "group":
        raise FormatError(
            f"{where}: node_type {found.document.get('node_type')!r}, expected group or array"
        )
    if found.below is not None:
        return GroupIndex(members=tree(folder, found.below), attributes=found.attributes)
    members = Members(folder, mentioned(found.attributes, hints), found.attributes)
    return GroupIndex(members=members, attributes=found.attributes)


def fields_of(found: Stored, where: str) -> tuple[str, Fields]:
    """Return the key pattern and the fields of an array."""
    if found.name == V3:
        return key_pattern(found.document, where), parse_array(found.document, where)
    separator = found.document.get("dimension_separator", ".")
    if separator not in (".", "/"):
        raise FormatError(f"{where}: dimension_separator {separator!r}, expected '.' or '/'")
    fields = from_v2(found.document, found.attributes, where)
    check_array(fields, where)
    return separator, fields


def array_index(folder: Folder, start: str, fields: Fields, found: Stored) -> ArrayIndex:
    """Return the index of an array: one object per chunk, or per shard."""
    grid = grid_shape(fields["shape"], fields["chunk_shape"])
    separator = start[-1]
    coords = separator.join(f"{{{i}}}" for i in range(len(grid)))
    names = [name for name in (start[:-1], coords) if name]
    pattern = separator.join(names) or "0"
    chunks = Objects(
        base=folder.path,
        pattern=pattern,
        grid=grid,
        roots=folder.roots if folder.is_local else (),
        signed=signed_of(folder.storage),
        document=f"{folder.path}/{found.name}" if found.pin is not None else "",
        pin=found.pin,
    )
    return ArrayIndex(**fields, chunks=chunks)


def tree(folder: Folder, documents: Mapping[str, Document]) -> dict[str, Node]:
    """Return the members of a group from its consolidated metadata."""
    stored: dict[str, Stored] = {}
    for key, document in documents.items():
        path, _, name = key.rpartition("/")
        if not path or name == V2_ATTRIBUTES or name not in (V3, V2_ARRAY, V2_GROUP):
            continue
        where = f"{folder.path}/{key}"
        attributes = (
            read_attributes(document, where)
            if name == V3
            else dict(documents.get(f"{path}/{V2_ATTRIBUTES}", {}))
        )
        stored[path] = Stored(name=name, document=document, attributes=attributes)
    built: dict[str, dict[str, Node]] = {"": {}}
    # groups before what is in them
    for path in sorted(stored, key=lambda p: p.count("/")):
        parent, _, name = path.rpartition("/")
        if parent not in built:
            raise FormatError(f"{folder.path}: {path!r:.100} of the metadata is in no group")
        one = stored[path]
        here = folder
        for part in path.split("/"):
            here = here.child(part)
        if one.is_array:
            node = openable(here, replace(one, pin=local_pin(here, one.name)), ())
            if node is not None:
                built[parent][name] = node
        else:
            built[path] = {}
            built[parent][name] = GroupIndex(members=built[path], attributes=one.attributes)
    return built[""]


def local_pin(folder: Folder, name: str) -> Pin | None:
    """Return the version of a document, if it is a local file."""
    return stat_pin(f"{folder.path}/{name}") if folder.is_local else None


def openable(folder: Folder, found: Stored, hints: Sequence[str]) -> Node | None:
    """Return the index of a member; None for an array that is not supported."""
    try:
        return to_node(folder, found, hints)
    except UnsupportedError:
        return None


type Hints = Mapping[str, Sequence[str]]
"""The names of members that metadata mentions, each with paths below it."""


def mentioned(attributes: Mapping[str, Json], hints: Sequence[str]) -> dict[str, list[str]]:
    """Return the members of a group that OME-Zarr or GeoZarr attributes mention.

    Parameters:
        attributes: Of the group.
        hints: Paths below the group that the groups around it mention.
    """
    paths = list(hints)
    ome = attributes.get("ome")
    described = ome if isinstance(ome, Mapping) else attributes
    for scales in _entries(described.get("multiscales")):
        paths += [_text(d, "path") for d in _entries(scales.get("datasets"))]
    geo = attributes.get("multiscales")
    if isinstance(geo, Mapping):
        for asset in _entries(geo.get("layout")):
            path = _text(asset, "asset")
            paths += [path, f"{path}/image"]
    if _entries(described.get("multiscales")):
        paths.append("labels")
    plate, well = described.get("plate"), described.get("well")
    if isinstance(plate, Mapping):
        paths += [_text(one, "path") for one in _entries(plate.get("wells"))]
    if isinstance(well, Mapping):
        paths += [_text(one, "path") for one in _entries(well.get("images"))]
    labels = described.get("labels")
    paths += [one for one in labels if isinstance(one, str)] if isinstance(labels, list) else []
    found: dict[str, list[str]] = {}
    for path in paths:
        name, _, rest = path.strip("/").partition("/")
        if is_name(name):
            found.setdefault(name, []).extend([rest] if rest else [])
    return found


def _entries(value: Json) -> list[Mapping[str, Json]]:
    listed = value if isinstance(value, list) else []
    return [entry for entry in listed if isinstance(entry, Mapping)]


def _text(entry: Mapping[str, Json], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""


@dataclass(eq=False)
class Members(Mapping[str, Node]):
    """The members of a group: listed when iterated, each read on demand."""

    folder: Folder
    hints: Hints
    attributes: Mapping[str, Json]
    """Of the group."""
    _read: dict[str, Node] = field(default_factory=dict, repr=False)

    @property
    def is_remote(self) -> bool:
        """Whether listing or reading members takes requests."""
        return not self.folder.is_local

    def __getitem__(self, name: str) -> Node:
        found = self._read.get(name)
        if found is None:
            child = self._child(name)
            stored = None if child is None else read_node(child)
            if stored is None or child is None:
                raise KeyError(name)
            found = to_node(child, stored, self.hints.get(name, ()))
            if len(self._read) < MOST_KEPT:
                self._read[name] = found
        return found

    def _child(self, name: str) -> Folder | None:
        if not is_name(name):
            return None
        child = self.folder.child(name)
        if child.is_local and is_link(child.path):
            target = resolved(child.path)
            # walking the hierarchy would never end
            if is_below(resolved(os.path.dirname(child.path)), target):  # noqa: PTH120
                raise FormatError(f"{child.path}: a symbolic link to its parent folder {target}")
        return child

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self[name] is not None
        except KeyError:
            return False
        except UnsupportedError:
            return False

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names() if name in self)

    def _names(self) -> Iterator[str]:
        try:
            folders = self.folder.names()[0]
        except UnsupportedError:  # web servers do not list folders
            yield from self.hints
            yield from self._numbered()
            return
        yield from sorted(filter(is_name, folders), key=_in_order)

    def _numbered(self) -> Iterator[str]:
        """Yield 0, 1 … as far as they exist, if OME-Zarr says that images are named so."""
        ome = self.attributes.get("ome")
        described = ome if isinstance(ome, Mapping) else self.attributes
        if "bioformats2raw.layout" not in described:
            return
        for number in range(MOST_PROBED):
            if str(number) not in self:
                return
            if str(number) not in self.hints:
                yield str(number)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Members):
            return self.folder.path == other.folder.path
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": {}}


def _in_order(name: str) -> tuple[bool, int, str]:
    """Sort numbers by value, then names."""
    is_number = name.isascii() and name.isdigit()
    return not is_number, int(name) if is_number else 0, name
