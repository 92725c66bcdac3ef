"""Convert an index to a VirtualiZarr `ManifestStore`, and back.

Spec:    https://virtualizarr.readthedocs.io; manifests of one path, offset and length per chunk.
Opened:  a `ManifestStore`, a `ManifestGroup`, or a virtual `xarray.Dataset` or `DataTree`, whose
         coordinates may be in memory.
Refused: chunks of several parts or with inline bytes in front, unless they are copied in.
"""

import json
import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from anychunk import limits
from anychunk.errors import MissingDependencyError, UnsupportedError
from anychunk.formats._zarr_metadata import Document, parse_array
from anychunk.io.source import Storage, absolute, file_url
from anychunk.metadata.hierarchy import level_group
from anychunk.metadata.reading import levels_of, meaning_of
from anychunk.model.grid import chunk_coords, chunk_number, grid_shape
from anychunk.model.images import VARIABLE, images, join
from anychunk.model.index import INLINE, ArrayIndex, GroupIndex, Node, find, walk
from anychunk.options import Copy, checked
from anychunk.references.chunk_references import (
    Capabilities,
    ChunkReferences,
    References,
    chunk_references,
    used_urls,
    with_found_pins,
)
from anychunk.references.documents import (
    Rows,
    build_array,
    build_tree,
    check_version,
    no_rows,
    root_attributes,
    with_pins,
)
from anychunk.references.osml_codecs import with_portable_codecs
from anychunk.references.seek_points import with_points
from anychunk.references.tile_tables import saved_form
from anychunk.references.urls import EVERYWHERE, UrlResolver
from anychunk.zarr.core import ArrayV3Metadata, default_buffer_prototype

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
        node: The index; an array becomes the variable `image` of a group.
        registry: An `ObjectStoreRegistry`, the stores that the sources are read through.
        copy: "needed" copies chunks that a manifest cannot refer to; "never" refuses them.
        storage: obstore's options, for reading chunks that are copied.

    Raises:
        UnsupportedError: If a manifest cannot express the index.
        MissingDependencyError: If virtualizarr is not installed.
    """
    manifests = _virtualizarr().manifests
    if not isinstance(node, GroupIndex):
        node = GroupIndex(members={VARIABLE: node}, pins=node.pins)
    node = with_points(node, storage=storage)
    node = saved_form(node, storage, has_tables=False)
    node = with_portable_codecs(node, may_transpose=True)
    found = chunk_references(node, CAPABILITIES, copy=copy, storage=storage)
    node = with_found_pins(node, found)
    written = {url: file_url(absolute(url)) for url in used_urls(found)}
    group = _manifest_group(manifests, node, found, written, "")
    return manifests.ManifestStore(group, registry=registry)  # type: ignore[no-any-return]


def single_level(node: Node, path: str, name: str) -> GroupIndex:
    """Return the level group of an array as the root: the array, called `name`, and coordinates.

    Parameters:
        node: The index.
        path: The path of the array.
        name: The name of the variable.

    Raises:
        KeyError: There is no such array.
    """
    found = find(node, path)
    image = next((i for i in images(node) if path in i.levels), None)
    if not isinstance(found, ArrayIndex) or image is None:
        known = [p for p, member in walk(node) if isinstance(member, ArrayIndex)]
        raise KeyError(f"no array {path!r}; arrays are: {' '.join(known[:20])}")
    number = image.levels.index(path)
    folder, _, own = path.rpartition("/")
    around = find(node, folder)
    if "/" not in image.below(number) or not isinstance(around, GroupIndex):
        levels = levels_of(node, image)
        level = next(level for level in levels if level.name == image.level_names[number])
        around, own = level_group(meaning_of(node, image), level, levels[0].image.shape), VARIABLE
    arrays = {key: m for key, m in around.members.items() if isinstance(m, ArrayIndex)}
    members: dict[str, Node] = {name: arrays.pop(own), **arrays}
    attributes = dict(around.attributes)
    if "anychunk" in node.attributes:
        attributes["anychunk"] = node.attributes["anychunk"]
    return GroupIndex(members=members, attributes=attributes, pins=node.pins)


def group_per_level(node: Node) -> GroupIndex:
    """Return the tree with a group around every level, as most indexes have it already.

    An xarray dataset requires that arrays agree in the lengths of their shared dimensions, which
    levels that lie side by side do not.
    """
    if isinstance(node, ArrayIndex):
        return GroupIndex(members={VARIABLE: node}, pins=node.pins)
    bare = {
        path
        for image in images(node)
        for number, path in enumerate(image.levels)
        if "/" not in image.below(number)
    }
    return cast("GroupIndex", _with_groups(node, bare, ""))


def _with_groups(node: Node, bare: AbstractSet[str], path: str) -> Node:
    """Return a tree with a group around the arrays at the paths `bare`."""
    if isinstance(node, ArrayIndex):
        return GroupIndex(members={VARIABLE: node}) if path in bare else node
    members = {name: _with_groups(m, bare, join(path, name)) for name, m in node.members.items()}
    return replace(node, members=members)


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


@checked()
def from_virtualizarr(found: Any, *, allow: Iterable[str] = (EVERYWHERE,)) -> Node:
    """Return a VirtualiZarr store, group, or virtual dataset or tree as an index.

    Parameters:
        found: A `ManifestStore`, a `ManifestGroup`, or a virtual xarray `Dataset` or `DataTree`.
        allow: Prefixes of urls that references may point to; by default any.

    Raises:
        UnsupportedError: If it is something else, or a variable in memory is not numbers or text.
        LimitError: If a variable in memory is larger than an index may be.
    """
    where = "virtualizarr"
    resolver = UrlResolver(url="/virtualizarr", allow=tuple(allow))
    nodes: dict[str, ArrayIndex | Document] = {}
    _collect(found, "", nodes, resolver, where)
    check_version(nodes.get(""), where)
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
            below = f"{path}/{name}" if path else str(name)
            if not hasattr(data, "manifest"):
                nodes[below] = _from_loaded(variable, f"{where} {below}")
                continue
            changes = {"dimension_names": variable.dims, "attributes": dict(variable.attrs)}
            nodes[below] = _from_array(data, changes, resolver, f"{where} {below}")
        for name, child in getattr(found, "children", {}).items():
            _collect(child, f"{path}/{name}" if path else name, nodes, resolver, where)
    else:
        raise UnsupportedError(
            f"{where}: {kind} is not supported; "
            "supported: ManifestStore ManifestGroup Dataset DataTree"
        )


def _from_loaded(variable: Any, where: str) -> ArrayIndex:
    """Return a variable that is in memory, such as a coordinate, as an array in the index."""
    from xarray.conventions import encode_cf_variable  # the variable is xarray's

    limits.check_index(int(variable.nbytes), where=f"{where}: a variable that is loaded")
    encoded = encode_cf_variable(variable)
    values = np.asarray(encoded.values)
    fields: dict[str, Any] = {"codecs": ({"name": "vlen-utf8"},), "data_type": "string"}
    if values.dtype.kind in "OUT":
        import numcodecs  # slow to import

        data = bytes(numcodecs.VLenUTF8().encode(values.astype(object).reshape(-1)))
    elif values.dtype.kind in "biufc":
        little = values.astype(values.dtype.newbyteorder("<"))
        serializer = {"name": "bytes", "configuration": {"endian": "little"}}
        fields = {"codecs": (serializer,), "data_type": values.dtype.name}
        data = little.tobytes()
    else:
        raise UnsupportedError(
            f"{where}: variable of type {values.dtype}, expected numbers or text"
        )
    shape = values.shape
    grid = tuple(min(n, 1) for n in shape)
    fields |= {
        "shape": shape,
        "chunk_shape": tuple(max(n, 1) for n in shape),
        "fill_value": None,
        "dimension_names": tuple(encoded.dims),
        "attributes": {str(key): _plain(value) for key, value in encoded.attrs.items()},
    }
    rows = no_rows()
    rows.inline = {0: data} if math.prod(grid) else {}
    return build_array(fields, rows, [], where)


def _plain(value: Any) -> Any:
    """Return an attribute as JSON has it: numbers of numpy are not."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


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
