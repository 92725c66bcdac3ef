"""Convert an index to a VirtualiZarr `ManifestStore`, and back.

Spec:    https://virtualizarr.readthedocs.io; manifests of one path, offset and length per chunk.
Opened:  a `ManifestStore`, a `ManifestGroup`, or a virtual `xarray.Dataset` or `DataTree`.
Refused: chunks of several parts or with inline bytes in front, unless they are copied in.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from anychunk.codecs.zarr_core import default_buffer_prototype
from anychunk.errors import MissingDependencyError, UnsupportedError
from anychunk.io import Storage, absolute
from anychunk.model.grid import chunk_coords, chunk_number, grid_shape
from anychunk.model.index import INLINE, ArrayIndex, GroupIndex, Node, find, walk
from anychunk.read.zarr_core import ArrayV3Metadata
from anychunk.references.chunk_references import (
    Capabilities,
    ChunkReferences,
    Copy,
    References,
    chunk_references,
    used_urls,
    with_found_pins,
)
from anychunk.references.documents import Document, parse_array, root_attributes
from anychunk.references.loading import Rows, build_array, build_tree, with_pins
from anychunk.references.urls import EVERYWHERE, UrlResolver, file_url

if TYPE_CHECKING:
    from virtualizarr.manifests import ManifestArray, ManifestGroup, ManifestStore

CAPABILITIES = Capabilities(name="a VirtualiZarr manifest")


def _virtualizarr() -> Any:
    try:
        import virtualizarr
        import virtualizarr.manifests
    except ImportError as e:
        raise MissingDependencyError(
            "VirtualiZarr manifests need virtualizarr; "
            'install it with: pip install "anychunk[virtualizarr]"'
        ) from e
    return virtualizarr


def to_virtualizarr(
    node: Node,
    *,
    registry: Any = None,
    copy: Copy = "never",
    storage: Storage | None = None,
) -> "ManifestStore":
    """Return an index as a VirtualiZarr store.

    Parameters:
        node: The index; an array becomes the variable `data` of a group.
        registry: An `ObjectStoreRegistry`, the stores that the sources are read through.
        copy: "needed" copies chunks that a manifest cannot refer to; "never" refuses them.
        storage: obstore's options, for reading chunks that are copied.

    Raises:
        UnsupportedError: If a manifest cannot express the index.
        MissingDependencyError: If virtualizarr is not installed.
    """
    manifests = _virtualizarr().manifests
    if not isinstance(node, GroupIndex):
        node = GroupIndex(members={"data": node}, pins=node.pins)
    found = chunk_references(node, CAPABILITIES, copy=copy, storage=storage)
    node = with_found_pins(node, found)
    written = {url: file_url(absolute(url)) for url in used_urls(found)}
    group = _manifest_group(manifests, node, found, written, "")
    return manifests.ManifestStore(group, registry=registry)  # type: ignore[no-any-return]


def single_array(node: Node, path: str, name: str) -> GroupIndex:
    """Return a group of one array, called `name`, with the attributes of its image."""
    found = find(node, path)
    if not isinstance(found, ArrayIndex):
        known = [p for p, member in walk(node) if isinstance(member, ArrayIndex)]
        raise KeyError(f"no array {path!r}; arrays are: {' '.join(known[:20])}")
    parent = find(node, path.rpartition("/")[0])
    attributes = {**(parent.attributes if parent is not None else {}), **node.attributes}
    return GroupIndex(members={name: found}, attributes=attributes, pins=node.pins)


def group_per_array(node: Node, name: str) -> GroupIndex:
    """Return the tree with a separate group around every array, which is called `name` in it.

    An xarray dataset requires that arrays agree in the lengths of their shared dimensions, which
    levels of an image do not.
    """
    if isinstance(node, ArrayIndex):
        return GroupIndex(members={name: node}, pins=node.pins)
    members: dict[str, Node] = {
        key: group_per_array(member, name) for key, member in node.members.items()
    }
    return GroupIndex(members=members, attributes=node.attributes, pins=node.pins)


def _manifest_group(
    manifests: Any,
    node: GroupIndex,
    found: References,
    written: Mapping[str, str],
    path: str,
) -> "ManifestGroup":
    arrays, groups = {}, {}
    for name, member in node.members.items():
        below = f"{path}/{name}" if path else name
        if isinstance(member, ArrayIndex):
            arrays[name] = _manifest_array(manifests, *found[below], written)
        else:
            groups[name] = _manifest_group(manifests, member, found, written, below)
    attributes = node.attributes if path else root_attributes(node, written, None)
    return manifests.ManifestGroup(arrays=arrays, groups=groups, attributes=attributes)  # type: ignore[no-any-return]


def _manifest_array(
    manifests: Any, array: ArrayIndex, references: ChunkReferences, written: Mapping[str, str]
) -> "ManifestArray":
    grid = references.grid
    paths = np.zeros(math.prod(grid), np.dtypes.StringDType())
    names = np.array([written.get(url, "") for url in references.urls], np.dtypes.StringDType())
    present = references.present
    paths[present] = names[references.url_ids_of(present)]
    offsets, lengths = references.offsets.copy(), references.lengths.copy()
    inlined = {}
    for number, data in references.copied.items():
        inlined[chunk_coords(number, grid)] = data
        paths[number] = manifests.manifest.INLINED_CHUNK_PATH
        offsets[number], lengths[number] = 0, len(data)
    offsets[lengths == 0] = 0
    manifest = manifests.ChunkManifest.from_arrays(
        paths=paths.reshape(grid),
        offsets=offsets.reshape(grid),
        lengths=lengths.reshape(grid),
        validate_paths=False,
        inlined=inlined or None,
    )
    document = array.metadata()
    # a ManifestStore lists its arrays only if their keys are separated by dots
    document["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": "."}}
    metadata = ArrayV3Metadata.from_dict(document)
    return manifests.ManifestArray(metadata=metadata, chunkmanifest=manifest)  # type: ignore[no-any-return]


def from_virtualizarr(found: Any, *, allow: Iterable[str] = (EVERYWHERE,)) -> Node:
    """Return a VirtualiZarr store, group, or virtual dataset or tree as an index.

    Parameters:
        found: A `ManifestStore`, a `ManifestGroup`, or a virtual xarray `Dataset` or `DataTree`.
        allow: Prefixes of urls that references may point to; by default any.

    Raises:
        UnsupportedError: If it is something else, or a variable is loaded instead of virtual.
    """
    where = "virtualizarr"
    resolver = UrlResolver(url="/virtualizarr", allow=tuple(allow))
    nodes: dict[str, ArrayIndex | Document] = {}
    _collect(found, "", nodes, resolver, where)
    return with_pins(build_tree(nodes, where), resolver)


def _collect(
    found: Any,
    path: str,
    nodes: dict[str, ArrayIndex | Document],
    resolver: UrlResolver,
    where: str,
) -> None:
    """Add what `found` and its members hold to `nodes`, by path."""
    # by name: neither xarray nor virtualizarr is imported for this
    kind = type(found).__name__
    if kind == "ManifestStore":
        found, kind = found._group, "ManifestGroup"  # noqa: SLF001 - there is no public name
    if kind == "ManifestGroup":
        nodes[path] = dict(found.metadata.attributes)
        for name, member in found.items():
            below = f"{path}/{name}" if path else name
            if hasattr(member, "manifest"):
                nodes[below] = _from_array(member, {}, resolver, f"{where} {below}")
            else:
                _collect(member, below, nodes, resolver, where)
    elif kind in ("Dataset", "DataTree"):
        nodes[path] = dict(found.attrs)
        for name, variable in found.variables.items():
            data = variable._data  # noqa: SLF001 - `data` would load it
            if not hasattr(data, "manifest"):
                raise UnsupportedError(
                    f"{where}: variable {name!r} is loaded, expected a virtual variable"
                )
            below = f"{path}/{name}" if path else str(name)
            changes = {"dimension_names": variable.dims, "attributes": dict(variable.attrs)}
            nodes[below] = _from_array(data, changes, resolver, f"{where} {below}")
        for name, child in getattr(found, "children", {}).items():
            _collect(child, f"{path}/{name}" if path else name, nodes, resolver, where)
    else:
        raise UnsupportedError(
            f"{where}: {kind} is not supported; "
            "supported: ManifestStore ManifestGroup Dataset DataTree"
        )


def _from_array(
    array: "ManifestArray", changes: dict[str, Any], resolver: UrlResolver, where: str
) -> ArrayIndex:
    text = array.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    fields = {**parse_array(json.loads(text), where), **changes}
    manifest = array.manifest
    paths = manifest._paths.reshape(-1)  # noqa: SLF001 - `dict()` would be an entry per chunk
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
            chunk_number(coords, grid): data
            for coords, data in manifest._inlined.items()  # noqa: SLF001
        },
    )
    return build_array(fields, rows, [resolver.resolve(str(n)) for n in names.tolist()], where)
