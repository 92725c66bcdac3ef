"""Append an index to a repository that already holds one: extend its arrays, or add new ones.

Extended images are described anew, from the meanings of what is there and of what is added, exactly
as if all files had been combined at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anychunk.codecs import with_own_name
from anychunk.errors import FormatError
from anychunk.formats._zarr_metadata import Document, parse_document
from anychunk.metadata import comparison, dates, joining
from anychunk.metadata.dates import Rules
from anychunk.metadata.hierarchy import image_group
from anychunk.metadata.meaning import Axis, Level
from anychunk.metadata.reading import levels_of, meaning_of
from anychunk.model import images as im
from anychunk.model.grid import Shape
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, GroupIndex, Node, find, walk
from anychunk.references.chunk_references import Capabilities, References, chunk_references
from anychunk.references.documents import (
    build_array,
    build_tree,
    check_version,
    no_rows,
    parse_nodes,
)
from anychunk.references.documents import write_documents as metadata_documents
from anychunk.references.icechunk.chunks import Transaction, at_start, write_chunks
from anychunk.references.icechunk.sources import (
    delete_keys,
    read_bytes,
    read_documents,
    without_table,
    write_documents,
)
from anychunk.zarr.core import sync

INLINE_ONLY = Capabilities(name="Icechunk")


@dataclass
class Changes:
    """What an appended index changes in a repository."""

    documents: dict[str, Document] = field(default_factory=dict)
    """Metadata documents to write, by key."""
    shifts: dict[str, Shape] = field(default_factory=dict)
    """Where on their grids the new chunks of arrays go, by path."""
    sources: dict[str, str] = field(default_factory=dict)
    """Paths in the appended index of arrays that have another path in the repository."""
    coordinates: dict[str, ArrayIndex] = field(default_factory=dict)
    """Coordinates whose bytes are written anew, by path."""
    removed: list[str] = field(default_factory=list)
    """Keys of coordinates that no longer apply."""


def append_index(  # noqa: PLR0917 - one caller, which has all of them at hand
    work: Transaction,
    node: GroupIndex,
    found: References,
    along: str | int | None,
    target: str,
    rules: Rules,
) -> None:
    """Append an index to what the repository holds.

    Parameters:
        work: The transaction to write in.
        node: The index to append.
        found: Its references.
        along: The axis along which images of the same path are extended, by name or number; None:
            all images are new.
        target: The url of the repository, for messages.
        rules: How what is appended goes on from what is there.

    Raises:
        FormatError: If an array cannot be extended by the new one, or a new one already exists.
    """
    # only what the new index may touch: the repository may hold a million other files
    there = sync(_documents_of(work.store, node))
    check_version(there.get("zarr.json", {}).get("attributes"), target)
    documents = metadata_documents(replace(node, pins={}), {}, None, 3)
    if along is None:
        changes = _added(documents, found, there, target)
    else:
        changes = _extensions(work, node, there, along, target, rules)
    root = there.get("zarr.json", documents["zarr.json"])
    changes.documents["zarr.json"] = _merged_root(root, documents["zarr.json"])
    sync(delete_keys(work.store, changes.removed))
    sync(
        write_documents(
            work.store,
            {key: doc for key, doc in changes.documents.items() if doc != there.get(key)},
        )
    )
    added = {
        path: (found[changes.sources.get(path, path)][1], shift)
        for path, shift in changes.shifts.items()
    }
    write_chunks(work, added, node.pins)
    if changes.coordinates:
        made = GroupIndex(members=changes.coordinates)
        held = chunk_references(made, INLINE_ONLY, copy="needed", storage=None)
        write_chunks(
            work, {path: at_start(references) for path, (_, references) in held.items()}, {}
        )


async def _documents_of(store: Any, node: GroupIndex) -> dict[str, Document]:
    """Read the root of a repository, and all that is below the names of the new index."""
    if im.level_paths(node):  # all of it is one image
        return without_table(await read_documents(store))
    found = await read_documents(store, node.members)
    root = await read_bytes(store, "zarr.json")
    return {"zarr.json": parse_document(root, "zarr.json"), **found} if root else found


def _added(
    documents: Mapping[str, Document],
    found: References,
    there: Mapping[str, Document],
    target: str,
) -> Changes:
    """Return the changes that add arrays next to those that are there."""
    for path in found:
        if _key(path) in there:
            raise FormatError(f"{target}: already has an array {path!r}")
    return Changes(
        documents=dict(documents),
        shifts={path: (0,) * len(references.grid) for path, (_, references) in found.items()},
    )


def _key(path: str) -> str:
    return f"{path}/zarr.json" if path else "zarr.json"


def _extensions(  # noqa: PLR0917 - one caller, which has all of them at hand
    work: Transaction,
    node: GroupIndex,
    there: Mapping[str, Document],
    along: str | int,
    target: str,
    rules: Rules,
) -> Changes:
    """Return the changes that extend every image by the image of the same path."""
    known = _tree(work, there, target)
    changes = Changes()
    images = {image.path: image for image in im.images(known)}
    for image in im.images(node):
        old = images.get(image.path)
        if old is None or _key(image.levels[0]) not in there:
            path = image.levels[0]
            raise FormatError(f"{target}: has no array {path!r} to extend along axis {along}")
        if "/" in image.below(0):
            _extend_image(changes, (known, old), (node, image), there, along, target, rules)
            continue
        for path in image.levels:
            array = find(node, path)
            if isinstance(array, ArrayIndex):
                where = f"{target} {path}"
                _check_attributes(find(known, path), array, where)
                document, shift = _extended(there[_key(path)], array, along, where)
                changes.documents[_key(path)], changes.shifts[path] = document, shift
    return changes


def _tree(work: Transaction, there: Mapping[str, Document], target: str) -> Node:
    """Return what the repository holds, without its chunks but for the positions along axes."""
    built: dict[str, ArrayIndex | Document] = {}
    for path, member in parse_nodes(there, target).items():
        if not isinstance(member, tuple):
            built[path] = member
            continue
        rows, fields = no_rows(), member[1]
        if fields["dimension_names"] == (path.rpartition("/")[2],):
            data = sync(read_bytes(work.store, f"{path}/c/0"))
            rows.inline = {0: data} if data else {}
        built[path] = build_array(fields, rows, [], f"{target} {path}")
    return build_tree(built, target)


def _extend_image(  # noqa: PLR0917 - one caller, which has all of them at hand
    changes: Changes,
    there: tuple[Node, Image],
    new: tuple[Node, Image],
    documents: Mapping[str, Document],
    along: str | int,
    target: str,
    rules: Rules,
) -> None:
    """Extend an image group; its metadata and coordinates are written anew.

    Parameters:
        changes: What is to be written; extended.
        there: The repository, and the image in it.
        new: The index that is appended, and the image in it.
        documents: The repository's metadata.
        along: The axis, by name or number.
        target: The url of the repository, for messages.
        rules: How what is appended goes on from what is there.
    """
    path = new[1].path
    where = f"{target} {path}".rstrip()
    meanings = [meaning_of(*there), meaning_of(*new)]
    number = _axis_number(meanings[0].names, along, where)
    is_band = meanings[0].names[number] == "c"
    different = comparison.sample_differences(*meanings[::-1], has_own_bands=is_band)
    if different:
        raise FormatError(
            f"{where}: {different[0].expected('as in the repository')}; "
            "appended files must share it"
        )
    if rules.georeference == "error":
        name = next(iter(new[0].pins), "the appended files")
        places = {"the repository": meanings[0].place, name: meanings[1].place}
        joining.check_one_place(places, where=where)
    _check_dates([meaning.axes[number] for meaning in meanings], rules, where)
    levels: list[Level] = []
    for old, added, place, source in _common_levels(there, new, number):
        document, shift = _extended(
            documents[_key(place)], added.image, number, f"{target} {place}"
        )
        changes.shifts[place], changes.sources[place] = shift, source
        levels.append(_longer(old, document))
    kept = {level.name for level in levels}
    if dropped := [name for name in there[1].level_names if name not in kept]:
        joining.warn(f"{where}: levels that not all files have are dropped: {' '.join(dropped)}")
    shapes = [find_shape(*pair) for pair in (there, new)]
    meaning = joining.concatenated(meanings, number, shapes, where=where)
    group = image_group(meaning, levels)
    for whole, member in walk(group, path):
        changes.documents[_key(whole)] = member.metadata()
        if not isinstance(member, ArrayIndex) or whole in changes.shifts:
            continue
        if member != find(there[0], whole):
            changes.coordinates[whole] = member
    start = f"{path}/" if path else ""
    changes.removed += [
        key
        for key in documents
        if key.startswith(start) and key != "zarr.json" and key not in changes.documents
    ]


def _common_levels(
    there: tuple[Node, Image], new: tuple[Node, Image], axis: int
) -> Iterator[tuple[Level, Level, str, str]]:
    """Yield the levels that both have, and the paths of their arrays: full resolutions first.

    Coarser levels are the same if they have the same shape, as when files are combined: files may
    have overviews of different factors.
    """
    old, added = (list(zip(levels_of(*side), side[1].levels, strict=True)) for side in (there, new))
    yield old[0][0], added[0][0], old[0][1], added[0][1]
    coarser = {_without(level.image.shape, axis): (level, path) for level, path in added[:0:-1]}
    for level, path in old[1:]:
        found = coarser.pop(_without(level.image.shape, axis), None)
        if found is not None:
            yield level, found[0], path, found[1]


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _check_dates(axes: Sequence[Axis], rules: Rules, where: str) -> None:
    """Refuse files whose dates cannot follow those of the repository, or that have none."""
    there, new = (
        [int(value) for value in axis.values or () if dates.is_dates(axis.attributes)]
        for axis in axes
    )
    if axes[0].name != "t" or not there:
        return
    if not new:
        raise FormatError(
            f"{where}: t has dates, the appended files have none; pass dates= to give them"
        )
    dates.refuse_earlier(there, new, rules, where)


def find_shape(node: Node, image: Image) -> Shape:
    """Return the shape of an image's full resolution."""
    found = find(node, image.levels[0])
    return found.shape if isinstance(found, ArrayIndex) else ()


def _longer(level: Level, document: Document) -> Level:
    """Return a level of the repository with the metadata of its extended array, without chunks."""
    ((_, parsed),) = parse_nodes({"zarr.json": document}, "").items()
    fields = parsed[1] if isinstance(parsed, tuple) else {}
    made = build_array(fields, no_rows(), [], level.name)
    return replace(level, image=replace(made, attributes=level.image.attributes), mask=None)


def _axis_number(names: Sequence[str | None], along: str | int, where: str) -> int:
    if isinstance(along, int) and -len(names) <= along < len(names):
        return along % len(names)
    if along in names:
        return list(names).index(str(along))
    raise FormatError(f"{where}: has no axis {along!r}; its axes are {' '.join(map(str, names))}")


def _check_attributes(there: Node | None, array: ArrayIndex, where: str) -> None:
    old = there.attributes if there is not None else {}
    if different := comparison.attribute_differences(array.attributes, old):
        raise FormatError(
            f"{where}: {different[0].expected('as in the repository')}; "
            "appended files must share it"
        )


def _extended(
    there: Document, array: ArrayIndex, along: str | int, where: str
) -> tuple[Document, Shape]:
    """Return the metadata of an extended array, and where on its grid the new chunks start."""
    along = _axis_number(array.dimension_names, along, where)
    new = array.metadata()
    earlier, added = there.get("codecs") or [], new["codecs"]
    if earlier != added:
        # names of osml-imagery-io are for what it reads of an array as a whole
        earlier, added = (list(map(with_own_name, codecs)) for codecs in (earlier, added))
    codecs = comparison.common_codecs([earlier, added])
    for name in ("data_type", "chunk_grid", "dimension_names", "fill_value"):
        if there.get(name) != new[name]:
            raise FormatError(
                f"{where}: {name} {new[name]}, expected the repository's {there.get(name)}"
            )
    if codecs is None:
        found = comparison.codec_difference(added, earlier)
        raise FormatError(
            f"{where}: {found.expected('as in the repository')}; index all files at once, and save "
            "the index with copy='needed'"
        )
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
    return {**there, "shape": old, "codecs": list(codecs or added)}, shift


def _merged_root(there: Document, new: Document) -> Document:
    """Return the repository's root with the number of new files added."""
    attributes = dict(there.get("attributes") or {})
    about = dict(attributes.get("anychunk") or {})
    added = (new.get("attributes") or {}).get("anychunk") or {}
    about |= {key: added[key] for key in ("index", "version")}
    about["files"] = about.get("files", 0) + added.get("files", 0)
    return {**there, "attributes": {**attributes, "anychunk": about}}
