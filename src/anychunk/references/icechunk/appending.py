"""Append an index to a repository that already holds one: extend its arrays, or add new ones."""

import warnings
from collections.abc import Mapping

from anychunk.errors import FormatError
from anychunk.io import absolute
from anychunk.metadata import comparison, geo
from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, GroupIndex
from anychunk.read.zarr_core import sync
from anychunk.references.chunk_references import References, used_urls
from anychunk.references.documents import Document
from anychunk.references.documents import write_documents as metadata_documents
from anychunk.references.icechunk.chunks import write_chunks
from anychunk.references.icechunk.documents import read_documents, write_documents
from anychunk.references.icechunk.transaction import Transaction


def append_index(
    work: Transaction,
    node: GroupIndex,
    found: References,
    along: int | None,
    target: str,
) -> None:
    """Append an index to what the repository holds.

    Parameters:
        work: The transaction to write in.
        node: The index to append.
        found: Its references.
        along: The axis along which arrays of the same path are extended; None: all arrays are new.
        target: The url of the repository, for messages.

    Raises:
        FormatError: If an array cannot be extended by the new one, or a new one already exists.
    """
    there = sync(read_documents(work.store))
    written = {url: absolute(url) for url in used_urls(found)}
    documents = metadata_documents(node, written, None, 3)
    shifts: dict[str, Shape] = {}
    for path, (array, references) in found.items():
        key = f"{path}/zarr.json" if path else "zarr.json"
        if key not in there:
            if along is not None:
                raise FormatError(f"{target}: has no array {path!r} to extend along axis {along}")
            shifts[path] = (0,) * len(references.grid)
            continue
        if along is None:
            raise FormatError(f"{target}: already has an array {path!r}")
        documents[key], shifts[path] = _extended(there[key], array, along, f"{target} {path}")
    root = there.get("zarr.json", documents["zarr.json"])
    documents["zarr.json"] = _merged_root(root, documents["zarr.json"])
    changed = {k: d for k, d in documents.items() if k == "zarr.json" or d != there.get(k)}
    if along is not None:
        changed = _without_conflicts(changed, there, target)
    sync(write_documents(work.store, changed))
    for path, (_, references) in found.items():
        write_chunks(work, path, references, node.pins, shifts[path])


def _without_conflicts(
    documents: dict[str, Document], there: Mapping[str, Document], target: str
) -> dict[str, Document]:
    """Return the documents to write; existing groups keep attributes that still apply.

    A georeference that differs between the files is dropped from the group and its arrays.
    """
    kept = {k: d for k, d in documents.items() if d["node_type"] == "array" or k == "zarr.json"}
    for key in [key for key in documents if key not in kept and key in there]:
        old, new = (d[key].get("attributes") or {} for d in (there, documents))
        where = f"{target} {key.removesuffix('/zarr.json')}"
        _check_sample_meaning(old, new, where)
        dropped = comparison.differing_georeference([old, new])
        if not dropped:
            continue
        if any(name.startswith(dropped) for name in old):
            warnings.warn(
                f"{where}: files are georeferenced differently; the georeference is dropped",
                stacklevel=2,
            )
        folder = key.removesuffix("zarr.json")
        kept[key] = {**there[key], "attributes": geo.without_georeference(old, dropped)}
        for name, array in kept.items():
            if name.startswith(folder) and array["node_type"] == "array":
                plain = geo.without_georeference(array.get("attributes") or {}, dropped)
                kept[name] = {**array, "attributes": plain}
    return kept


def _check_sample_meaning(old: Document, new: Document, where: str) -> None:
    if different := comparison.sample_differences(new, old):
        raise FormatError(
            f"{where}: {different[0]} differs from the repository's; appended files must share it"
        )


def _extended(there: Document, array: ArrayIndex, along: int, where: str) -> tuple[Document, Shape]:
    """Return the metadata of an extended array, and where on its grid the new chunks start."""
    new = array.metadata()
    codecs = comparison.common_codecs([there.get("codecs") or (), new["codecs"]])
    names = ["data_type", "fill_value", "chunk_grid", "dimension_names"]
    for name in names if codecs is not None else ["codecs", *names]:
        if there.get(name) != new[name]:
            raise FormatError(
                f"{where}: {name} {new[name]}, expected the repository's {there.get(name)}"
            )
    _check_sample_meaning(there.get("attributes") or {}, array.attributes, where)
    old, add = list(there["shape"]), list(array.shape)
    if old[:along] + old[along + 1 :] != add[:along] + add[along + 1 :]:
        raise FormatError(f"{where}: shape {add} cannot extend shape {old} along axis {along}")
    chunk = array.chunk_shape[along]
    if old[along] % chunk:
        raise FormatError(
            f"{where}: the repository's length {old[along]} along axis {along} is not a multiple "
            f"of the chunk length {chunk}; it cannot be extended"
        )
    shift = tuple(old[along] // chunk if i == along else 0 for i in range(len(old)))
    old[along] += add[along]
    return {**there, "shape": old, "codecs": list(codecs or new["codecs"])}, shift


def _merged_root(there: Document, new: Document) -> Document:
    """Return the repository's root with the new pins, folders and number of files added."""
    attributes = dict(there.get("attributes") or {})
    about = dict(attributes.get("anychunk") or {})
    added = (new.get("attributes") or {}).get("anychunk") or {}
    about["pins"] = {**about.get("pins", {}), **added.get("pins", {})}
    about["files"] = about.get("files", 0) + added.get("files", 0)
    if folders := [*about.get("folders", []), *added.get("folders", [])]:
        about["folders"] = folders
    return {**there, "attributes": {**attributes, "anychunk": about}}
