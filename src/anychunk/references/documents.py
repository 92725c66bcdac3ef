"""Metadata documents of a saved index, written and read: `zarr.json`, or `.zarray` and `.zattrs`.

The root's attributes also have an object `anychunk` for anychunk itself: `index`, the version of
the index; `version`, the release that wrote it; the pins of the sources; and `base`, the folder
that the index was saved in.
"""

import re
from collections.abc import Mapping
from typing import Any

from anychunk._version import __version__
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats._zarr_metadata import (
    Document,
    Fields,
    check_array,
    from_v2,
    key_pattern,
    parse_array,
    read_attributes,
)
from anychunk.io.url import absolute
from anychunk.model.images import images
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node, walk
from anychunk.model.pin import Pin
from anychunk.references.tile_tables import KEY, write_tables
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
