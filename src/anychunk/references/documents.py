"""Metadata documents of a saved index: those of every node, and what the root's holds of ours."""

from collections.abc import Mapping

from anychunk.io import absolute
from anychunk.model.index import ArrayIndex, Json, Node, walk
from anychunk.references.places import pins_json
from anychunk.references.rebuild import Document
from anychunk.references.v2 import to_v2


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
