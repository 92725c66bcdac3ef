"""VirtualiZarr, both ways: an index as a `ManifestStore`, and back.

Spec:    https://virtualizarr.readthedocs.io; manifests of one path, offset and length a chunk.
Opened:  a `ManifestStore`, a `ManifestGroup`, or a virtual `xarray.Dataset` or `DataTree`.
Refused: chunks of several parts or with inline bytes in front, unless they are copied in; whole
         objects are asked for their length.
"""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from anychunk.errors import MissingDependencyError, UnsupportedError
from anychunk.io import Storage, absolute
from anychunk.model.grid import grid_shape
from anychunk.model.index import INLINE, ArrayIndex, GroupIndex, Node, find, walk
from anychunk.references.documents import root_attributes
from anychunk.references.places import Places, file_url
from anychunk.references.rebuild import Document, Rows, array_fields, array_index, tree, with_pins
from anychunk.references.tables import Copy, Form, Table, Tables, tables, used_urls, with_found_pins

if TYPE_CHECKING:
    from virtualizarr.manifests import ManifestArray, ManifestGroup, ManifestStore

FORM = Form(name="a VirtualiZarr manifest")
EVERY = ("*",)


def _virtualizarr() -> Any:
    try:
        import virtualizarr
        import virtualizarr.manifests
    except ImportError as e:
        raise MissingDependencyError(
            'manifests need virtualizarr; install it with: pip install "anychunk[virtualizarr]"'
        ) from e
    return virtualizarr


def to_virtualizarr(
    node: Node,
    *,
    registry: Any = None,
    copy: Copy = "never",
    storage: Storage | None = None,
) -> "ManifestStore":
    """Give an index as a VirtualiZarr store; `registry` says how it reads the sources."""
    manifests = _virtualizarr().manifests
    if not isinstance(node, GroupIndex):
        node = GroupIndex(members={"data": node}, pins=node.pins)
    found = tables(node, FORM, copy=copy, storage=storage)
    node = with_found_pins(node, found)
    write = {url: file_url(absolute(url)) for url in used_urls(found)}
    group = _group(manifests, node, found, write, "")
    return manifests.ManifestStore(group, registry=registry)  # type: ignore[no-any-return]


def single(node: Node, path: str, name: str) -> GroupIndex:
    """Give an index of one array, with the attributes of its image."""
    found = find(node, path)
    if not isinstance(found, ArrayIndex):
        known = [p for p, member in walk(node) if isinstance(member, ArrayIndex)]
        raise KeyError(f"no array {path!r}; there are: {' '.join(known[:20])}")
    parent = find(node, path.rpartition("/")[0])
    attributes = {**(parent.attributes if parent is not None else {}), **node.attributes}
    return GroupIndex(members={name: found}, attributes=attributes, pins=node.pins)


def apart(node: Node, name: str) -> GroupIndex:
    """Put every array in a group of its own: in one dataset their axes would have to agree."""
    if isinstance(node, ArrayIndex):
        return GroupIndex(members={name: node}, pins=node.pins)
    members: dict[str, Node] = {key: apart(member, name) for key, member in node.members.items()}
    return GroupIndex(members=members, attributes=node.attributes, pins=node.pins)


def _group(
    manifests: Any,
    node: GroupIndex,
    found: Tables,
    write: Mapping[str, str],
    path: str,
) -> "ManifestGroup":
    arrays, groups = {}, {}
    for name, member in node.members.items():
        below = f"{path}/{name}" if path else name
        if isinstance(member, ArrayIndex):
            arrays[name] = _array(manifests, *found[below], write)
        else:
            groups[name] = _group(manifests, member, found, write, below)
    attributes = node.attributes if path else root_attributes(node, write, None)
    return manifests.ManifestGroup(arrays=arrays, groups=groups, attributes=attributes)  # type: ignore[no-any-return]


def _array(
    manifests: Any, array: ArrayIndex, table: Table, write: Mapping[str, str]
) -> "ManifestArray":
    from anychunk.read.zarr_core import ArrayV3Metadata

    paths = np.zeros(math.prod(table.grid), np.dtypes.StringDType())
    names = np.array([write.get(url, "") for url in table.urls], np.dtypes.StringDType())
    present = table.present
    ids = np.zeros(len(present), np.int64) if table.url_ids is None else table.url_ids[present]
    paths[present] = names[ids]
    offsets, lengths = table.offsets.copy(), table.lengths.copy()
    inlined = {}
    for number, data in table.copied.items():
        where = tuple(int(c) for c in np.unravel_index(number, table.grid)) if table.grid else ()
        inlined[where] = data
        paths[number] = manifests.manifest.INLINED_CHUNK_PATH
        offsets[number], lengths[number] = 0, len(data)
    offsets[lengths == 0] = 0
    manifest = manifests.ChunkManifest.from_arrays(
        paths=paths.reshape(table.grid),
        offsets=offsets.reshape(table.grid),
        lengths=lengths.reshape(table.grid),
        validate_paths=False,
        inlined=inlined or None,
    )
    document = array.metadata()
    # its stores list arrays only where keys have dots
    document["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": "."}}
    metadata = ArrayV3Metadata.from_dict(document)
    return manifests.ManifestArray(metadata=metadata, chunkmanifest=manifest)  # type: ignore[no-any-return]


def from_virtualizarr(found: Any, *, allow: Iterable[str] = EVERY) -> Node:
    """Give a VirtualiZarr store, group, or virtual dataset as an index."""
    where = "virtualizarr"
    places = Places(url="/virtualizarr", allow=tuple(allow))
    nodes: dict[str, ArrayIndex | Document] = {}
    _collect(found, "", nodes, places, where)
    return with_pins(tree(nodes, where), places)


def _collect(
    found: Any, path: str, nodes: dict[str, ArrayIndex | Document], places: Places, where: str
) -> None:
    kind = type(found).__name__
    if kind == "ManifestStore":
        found, kind = found._group, "ManifestGroup"  # noqa: SLF001 - it has no public name
    if kind == "ManifestGroup":
        nodes[path] = dict(found.metadata.attributes)
        for name, member in found.items():
            below = f"{path}/{name}" if path else name
            if hasattr(member, "manifest"):
                nodes[below] = _from_array(member, {}, places, f"{where} {below}")
            else:
                _collect(member, below, nodes, places, where)
    elif kind in ("Dataset", "DataTree"):
        nodes[path] = dict(found.attrs)
        for name, variable in found.variables.items():
            data = variable._data  # noqa: SLF001 - `data` would be loaded
            if not hasattr(data, "manifest"):
                raise UnsupportedError(
                    f"{where}: variable {name!r} is loaded, expected a virtual one"
                )
            below = f"{path}/{name}" if path else str(name)
            changes = {"dimension_names": variable.dims, "attributes": dict(variable.attrs)}
            nodes[below] = _from_array(data, changes, places, f"{where} {below}")
        for name, child in getattr(found, "children", {}).items():
            _collect(child, f"{path}/{name}" if path else name, nodes, places, where)
    else:
        raise UnsupportedError(f"{where}: {kind} is no store, group or dataset of VirtualiZarr")


def _from_array(
    array: "ManifestArray", changes: dict[str, Any], places: Places, where: str
) -> ArrayIndex:
    import json

    from anychunk.codecs.zarr_core import default_buffer_prototype

    text = array.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    fields = {**array_fields(json.loads(text), where), **changes}
    manifest = array.manifest
    paths = manifest._paths.reshape(-1)  # noqa: SLF001 - the only way but a dictionary of a million
    lengths = manifest._lengths.reshape(-1)  # noqa: SLF001
    inline_paths = {INLINE, "__inlined__"}
    is_range = ~np.isin(paths, np.array(sorted(inline_paths), paths.dtype))
    numbers = np.flatnonzero(is_range)
    names, ids = np.unique(paths[numbers], return_inverse=True)
    grid = grid_shape(fields["shape"], fields["chunk_shape"])
    rows = Rows(
        numbers=numbers,
        offsets=manifest._offsets.reshape(-1)[numbers],  # noqa: SLF001
        lengths=lengths[numbers],
        url_ids=ids.astype(np.int64),
        inline={
            int(np.ravel_multi_index(where_, grid)) if grid else 0: data
            for where_, data in manifest._inlined.items()  # noqa: SLF001
        },
    )
    return array_index(fields, rows, [places.resolve(str(n)) for n in names.tolist()], where)
