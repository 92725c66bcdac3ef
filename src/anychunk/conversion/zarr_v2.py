"""A hierarchy as Zarr v2 with OME-Zarr 0.4 metadata, for readers that know nothing newer.

Spec: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html and https://ngff.openmicroscopy.org/0.4

Arrays, coordinates and attributes are those of a Zarr v3 target. What OME-Zarr 0.5 has below `ome`
is among the attributes themselves, so that `multiscales` cannot be GeoZarr's as well.
"""

from collections.abc import Iterator, Mapping, Sequence

from anychunk.model.images import entries
from anychunk.model.index import ArrayIndex, GroupIndex, Json, walk
from anychunk.references.zarr_v2 import to_v2

ENCODING = {"name": "v2", "configuration": {"separator": "/"}}
"""The keys of chunks, as metadata of Zarr v3 say it."""
OME_VERSION = "0.4"
VERSIONED = ("multiscales", "plate", "well", "image-label")
"""Parts of OME-Zarr 0.4 metadata that state the version."""


def chunk_key(path: str, coords: Sequence[int]) -> str:
    """Return the key of a chunk; OME-Zarr 0.4 asks for slashes."""
    return f"{path}/{'/'.join(map(str, coords)) or '0'}"


def documents(root: GroupIndex) -> Iterator[tuple[str, Json]]:
    """Yield the key and the content of every metadata document; that which makes it open last."""
    own = list(walk(root))
    for path, node in reversed(own):
        for name, content in node_documents(node, path).items():
            if path or name != ".zgroup":
                yield _join(path, name), content
        if isinstance(node, GroupIndex):
            yield _join(path, ".zmetadata"), consolidated(node)
    yield ".zgroup", {"zarr_format": 2}


def consolidated(group: GroupIndex) -> dict[str, Json]:
    """Return the metadata of a group and of everything below it in one document."""
    found: dict[str, Json] = {}
    for path, node in walk(group):
        for name, content in node_documents(node, path).items():
            found[_join(path, name)] = content
    return {"zarr_consolidated_format": 1, "metadata": found}


def node_documents(node: GroupIndex | ArrayIndex, path: str) -> dict[str, Json]:
    """Return the metadata documents of one group or array, by name.

    Raises `UnsupportedError` if Zarr v2 has no such data type or codec.
    """
    if isinstance(node, GroupIndex):
        return {".zgroup": {"zarr_format": 2}, ".zattrs": group_attributes(node.attributes)}
    array, attributes = to_v2(node, path)
    return {".zarray": {**array, "dimension_separator": "/"}, ".zattrs": attributes}


def group_attributes(attributes: Mapping[str, Json]) -> dict[str, Json]:
    """Return the attributes of a group with OME metadata where OME-Zarr 0.4 has them."""
    ome = attributes.get("ome")
    if not isinstance(ome, Mapping):
        return dict(attributes)
    found = {key: value for key, value in attributes.items() if key != "ome"}
    lifted = {key: _versioned(key, value) for key, value in ome.items() if key != "version"}
    if "multiscales" in lifted and "zarr_conventions" in found:
        # `multiscales` is OME's here
        conventions = [
            c
            for c in entries(found["zarr_conventions"])
            if not isinstance(c, Mapping) or c.get("name") != "multiscales"
        ]
        found["zarr_conventions"] = conventions
        if not conventions:
            del found["zarr_conventions"]
    return {**found, **lifted}


def _versioned(key: str, value: Json) -> Json:
    if key not in VERSIONED:
        return value
    if isinstance(value, Mapping):
        return {"version": OME_VERSION, **value}
    return [{"version": OME_VERSION, **v} if isinstance(v, Mapping) else v for v in entries(value)]


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
