"""A repository that holds something already, made longer or given further arrays."""

import warnings

from anychunk.errors import FormatError
from anychunk.io import absolute
from anychunk.metadata import comparison, geo
from anychunk.model.index import ArrayIndex, GroupIndex
from anychunk.read.zarr_core import sync
from anychunk.references.documents import metadata
from anychunk.references.icechunk.hierarchy import read_documents, set_documents
from anychunk.references.icechunk.references import set_chunks
from anychunk.references.icechunk.transaction import Transaction
from anychunk.references.rebuild import Document
from anychunk.references.tables import Tables, used_urls


def grow(
    work: Transaction,
    node: GroupIndex,
    found: Tables,
    along: int | None,
    target: str,
) -> None:
    """Add to a repository that holds something already."""
    there = sync(read_documents(work.store))
    write = {url: absolute(url) for url in used_urls(found)}
    documents = metadata(node, write, None, 3)
    shifts: dict[str, tuple[int, ...]] = {}
    for path, (array, table) in found.items():
        key = f"{path}/zarr.json" if path else "zarr.json"
        if key not in there:
            if along is not None:
                raise FormatError(f"{target}: holds no array {path!r} that could grow")
            shifts[path] = (0,) * len(table.grid)
            continue
        if along is None:
            raise FormatError(f"{target}: holds an array {path!r} already")
        documents[key], shifts[path] = _grown(there[key], array, along, f"{target} {path}")
    root = there.get("zarr.json", documents["zarr.json"])
    documents["zarr.json"] = _merged_root(root, documents["zarr.json"])
    kept = {k: d for k, d in documents.items() if k == "zarr.json" or d != there.get(k)}
    if along is not None:
        kept = _agreed(kept, there, target)
    sync(set_documents(work.store, kept))
    for path, (_, table) in found.items():
        set_chunks(work, path, table, node.pins, shifts[path])


def _agreed(
    documents: dict[str, Document], there: dict[str, Document], target: str
) -> dict[str, Document]:
    """Leave groups as they were: what the first batch said of them holds, or must go."""
    kept = {k: d for k, d in documents.items() if d["node_type"] == "array" or k == "zarr.json"}
    for key in [key for key in documents if key not in kept and key in there]:
        old, new = (d[key].get("attributes") or {} for d in (there, documents))
        where = f"{target} {key.removesuffix('/zarr.json')}"
        _check_meaning(old, new, where)
        gone = comparison.differing_georeference([old, new])
        if not gone:
            continue
        if any(name.startswith(gone) for name in old):
            warnings.warn(
                f"{where}: files lie at several places on earth; their georeference is left out",
                stacklevel=2,
            )
        folder = key.removesuffix("zarr.json")
        kept[key] = {**there[key], "attributes": geo.without_georeference(old, gone)}
        for name, array in kept.items():
            if name.startswith(folder) and array["node_type"] == "array":
                bare = geo.without_georeference(array.get("attributes") or {}, gone)
                kept[name] = {**array, "attributes": bare}
    return kept


def _check_meaning(old: Document, new: Document, where: str) -> None:
    if wrong := comparison.sample_differences(new, old):
        raise FormatError(f"{where}: {wrong[0]} is not what it is there; there is one for all")


def _grown(
    there: Document, array: ArrayIndex, along: int, where: str
) -> tuple[Document, tuple[int, ...]]:
    """Give the metadata of a longer array, and where the new chunks begin."""
    new = array.metadata()
    codecs = comparison.common_codecs([there.get("codecs") or (), new["codecs"]])
    if codecs is None:
        raise FormatError(f"{where}: codecs {new['codecs']}, there they are {there.get('codecs')}")
    for name in ("data_type", "fill_value", "chunk_grid", "dimension_names"):
        if there.get(name) != new[name]:
            raise FormatError(f"{where}: {name} is {new[name]}, there it is {there.get(name)}")
    _check_meaning(there.get("attributes") or {}, array.attributes, where)
    old, add = list(there["shape"]), list(array.shape)
    if old[:along] + old[along + 1 :] != add[:along] + add[along + 1 :]:
        raise FormatError(f"{where}: shape {add} does not go on with {old} along axis {along}")
    chunk = array.chunk_shape[along]
    if old[along] % chunk:
        raise FormatError(f"{where}: its {old[along]} along axis {along} end inside a chunk")
    shift = tuple(old[along] // chunk if i == along else 0 for i in range(len(old)))
    old[along] += add[along]
    return {**there, "shape": old, "codecs": list(codecs)}, shift


def _merged_root(there: Document, new: Document) -> Document:
    """Keep the root's attributes, with the pins of both."""
    attributes = dict(there.get("attributes") or {})
    about = dict(attributes.get("anychunk") or {})
    added = (new.get("attributes") or {}).get("anychunk") or {}
    about["pins"] = {**about.get("pins", {}), **added.get("pins", {})}
    about["files"] = about.get("files", 0) + added.get("files", 0)
    if folders := [*about.get("folders", []), *added.get("folders", [])]:
        about["folders"] = folders
    return {**there, "attributes": {**attributes, "anychunk": about}}
