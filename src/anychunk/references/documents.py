"""Metadata documents of a saved index, written and read: `zarr.json`, or `.zarray` and `.zattrs`.

The root's attributes also hold what only anychunk reads, under `anychunk`: the pins of the sources,
and `base`, the folder that the index was saved in.
"""

import json
from collections.abc import Mapping
from typing import Any

from anychunk.codecs.zarr_core import get_data_type_from_json
from anychunk.errors import FormatError, UnsupportedError
from anychunk.io import absolute
from anychunk.model.index import ArrayIndex, Json, Node, walk
from anychunk.model.pin import Pin
from anychunk.references.urls import UrlResolver
from anychunk.references.zarr_v2 import from_v2, parse_lengths, to_v2

type Document = dict[str, Json]
type Fields = dict[str, Any]
"""The arguments of an `ArrayIndex`, without its chunks."""
type Nodes = dict[str, tuple[str, Fields] | Document]
"""By path: (key pattern, fields) of an array, or the attributes of a group."""


def write_documents(
    node: Node,
    references: Mapping[str, str],
    base: str | None,
    zarr_format: int,
    separator: str = "/",
) -> dict[str, Document]:
    """Return every metadata document of an index by its key.

    Parameters:
        node: The index.
        references: How each url is written.
        base: The folder that the index is saved in, if it is to move with its data.
        zarr_format: 3 or 2.
        separator: The separator in chunk keys of Zarr v3.
    """
    found: dict[str, Document] = {}
    for path, member in walk(node):
        start = f"{path}/" if path else ""
        document = member.metadata()
        if not path:
            document["attributes"] = root_attributes(node, references, base)
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


def root_attributes(node: Node, references: Mapping[str, str], base: str | None) -> Document:
    """Return the root's attributes, with the pins and the folder of the saved index."""
    about: Json = dict(node.attributes.get("anychunk") or {})
    if node.pins:
        about["pins"] = {
            references.get(url, absolute(url)): _pin_json(pin) for url, pin in node.pins.items()
        }
    if base is not None:
        about["base"] = base
    return {**node.attributes, "anychunk": about} if about else node.attributes


def _pin_json(pin: Pin) -> Document:
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


def parse_document(text: str | bytes | Document, where: str) -> Document:
    """Return a metadata document, given as text or as an object."""
    try:
        found = json.loads(text) if isinstance(text, str | bytes) else text
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{where}: expected JSON ({e})") from e
    if not isinstance(found, dict):
        raise FormatError(f"{where}: {type(found).__name__}, expected an object")
    return found


def parse_nodes(documents: Mapping[str, Document], where: str) -> Nodes:
    """Return the arrays and groups that metadata documents, by their keys, describe.

    The key pattern of an array is the separator of its chunk keys, after `c` if they are in Zarr
    v3's default encoding.
    """
    found: Nodes = {}
    for key, document in documents.items():
        path, _, name = key.rpartition("/")
        here = f"{where} {path}"
        if name == "zarr.json":
            if document.get("node_type") == "array":
                found[path] = _key_pattern(document, here), parse_array(document, here)
            else:
                found[path] = _attributes(document, here)
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


def parse_array(document: Document, where: str) -> Fields:
    """Return the fields of an array from its `zarr.json`."""
    try:
        grid = document["chunk_grid"]
        if grid["name"] != "regular":
            raise UnsupportedError(
                f"{where}: chunk grid {grid['name']!r} is not supported; supported: regular"
            )
        shape, chunks = document["shape"], grid["configuration"]["chunk_shape"]
        if document.get("storage_transformers"):
            raise UnsupportedError(f"{where}: storage transformers are not supported")
        names = document.get("dimension_names") or [None] * len(shape)
        fields = {
            "shape": parse_lengths(shape, where),
            "chunk_shape": parse_lengths(chunks, where),
            "data_type": document["data_type"],
            "codecs": tuple(document["codecs"]),
            "fill_value": document["fill_value"],
            "attributes": _attributes(document, where),
            "dimension_names": tuple(names),
        }
    except KeyError as e:
        raise FormatError(f"{where}: zarr.json has no {e}") from e
    except (TypeError, ValueError) as e:
        if isinstance(e, FormatError):
            raise
        raise FormatError(f"{where}: zarr.json is malformed ({e})") from e
    check_array(fields, where)
    return fields


def check_array(fields: Fields, where: str) -> None:
    """Refuse fields of an array that contradict each other.

    What zarr cannot open, such as a data type or a codec that it does not have, is found when the
    array is opened.
    """
    check_chunk_shape(fields, where)
    shape, names = fields["shape"], fields["dimension_names"]
    if len(names) != len(shape) or not all(name is None or type(name) is str for name in names):
        raise FormatError(
            f"{where}: dimension_names {names}, expected {len(shape)}, each of them text or null"
        )
    for codec in fields["codecs"]:
        if not isinstance(codec, dict) or not isinstance(codec.get("name"), str):
            raise FormatError(f"{where}: codec {codec!r}, expected an object with a name")
    try:
        data_type = get_data_type_from_json(fields["data_type"], zarr_format=3)
    except Exception:  # noqa: BLE001 - zarr raises many kinds
        return  # opening this array says that its type is not supported; the others can be read
    try:
        data_type.from_json_scalar(fields["fill_value"], zarr_format=3)
    except Exception as e:
        raise FormatError(
            f"{where}: fill value {fields['fill_value']!r} is not a {fields['data_type']} ({e})"
        ) from e


def check_chunk_shape(fields: Fields, where: str) -> None:
    """Refuse a chunk shape that makes no grid."""
    shape, chunks = fields["shape"], fields["chunk_shape"]
    if len(chunks) != len(shape) or 0 in chunks:
        raise FormatError(f"{where}: chunk shape {chunks} does not fit shape {shape}")


def _attributes(document: Document, where: str) -> Document:
    found = document.get("attributes") or {}
    if not isinstance(found, dict):
        raise FormatError(f"{where}: attributes are {str(found)[:80]}, expected an object")
    return dict(found)


def _key_pattern(document: Document, where: str) -> str:
    try:
        encoding = document.get("chunk_key_encoding", "default")
        name = encoding if isinstance(encoding, str) else encoding["name"]
        configuration = {} if isinstance(encoding, str) else encoding.get("configuration", {})
        default = "/" if name == "default" else "."
        separator = configuration.get("separator", default)
    except (KeyError, AttributeError, TypeError) as e:
        raise FormatError(f"{where}: chunk_key_encoding {encoding!r} has no name") from e
    if name not in ("default", "v2") or separator not in (".", "/"):
        raise UnsupportedError(
            f"{where}: chunk_key_encoding {encoding!r} is not supported; supported: default, v2"
        )
    return f"c{separator}" if name == "default" else str(separator)
