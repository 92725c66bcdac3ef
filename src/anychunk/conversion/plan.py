"""What a conversion writes, and in which steps. No sample is read while planning.

A plan is plain data, so that it can be sent to a Dask worker.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from anychunk.conversion import presets, zarr_v2
from anychunk.conversion.levels import MASK, Chain, Level, ZarrOptions, beside_level, image_levels
from anychunk.errors import FormatError
from anychunk.metadata.hierarchy import group_attributes as group_attributes_of
from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import Meaning
from anychunk.metadata.reading import native_attributes
from anychunk.model import images as im
from anychunk.model.images import Image
from anychunk.model.index import GroupIndex, Json, Node, find, walk
from anychunk.selection import selected

# Attributes of the target's groups: the source's own, provenance, and what describes an image.


def root_attributes(source: Node) -> dict[str, Json]:
    """Return the source's attributes, with the provenance under `anychunk`."""
    about = source.attributes.get("anychunk", {})
    return {**foreign_attributes(source), "anychunk": {"converted_from": about}}


def group_attributes(source: Node, path: str) -> dict[str, Json]:
    """Return the attributes of a group of the source; empty if it has no such group."""
    group = find(source, path)
    if not isinstance(group, GroupIndex):
        return {}
    ome = group.attributes.get("ome")
    # the list of labels beside an image is what OME viewers find them by
    labels = ome.get("labels") if isinstance(ome, Mapping) else None
    listed = {"ome": {"version": "0.5", "labels": labels}} if isinstance(labels, list) else {}
    return {**foreign_attributes(group), **listed}


def described_attributes(
    chain: Chain, attributes: Mapping[str, Json], meaning: Meaning | None = None
) -> dict[str, Json]:
    """Return the attributes that describe an image, true of the levels that are written.

    Parameters:
        chain: The levels.
        attributes: Of the image in the source: what no field of the meaning holds is kept.
        meaning: What the samples mean, if that is not as in the plan.
    """
    found = group_attributes_of(chain.meaning if meaning is None else meaning, chain.described)
    if "ome" not in found:
        return found
    before = attributes.get("ome")
    kept = before if isinstance(before, Mapping) else {}
    others = {k: v for k, v in kept.items() if k not in ("version", "multiscales", "omero")}
    named = im.multiscale(attributes).get("metadata")
    scales = dict(found["ome"]["multiscales"][0])
    if named is not None:
        scales["metadata"] = named
    if len(chain.levels) > 1 and chain.levels[1].source is None:
        scales["type"] = chain.levels[1].method
    return {**found, "ome": {**others, **found["ome"], "multiscales": [scales]}}


def foreign_attributes(node: Node) -> dict[str, Json]:
    """Return the attributes of a group that the hierarchy does not write anew."""
    return native_attributes(node.attributes) if isinstance(node, GroupIndex) else {}


TASK_REGIONS = 16
"""The most regions of the finest level that one task computes."""
TASKS_PER_WORKER = 4
"""Tasks that each worker should get, so that none is idle while the last ones finish."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Consecutive levels that are computed together, so that the finest is read only once."""

    levels: tuple[Level, ...]
    """All levels of the image up to the last of this run; those before `first` are read back."""
    first: int
    """The number of the first level that this run writes."""

    @property
    def top(self) -> Level:
        """The coarsest level of the run."""
        return self.levels[-1]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One image of the target."""

    path: str
    """Of its group."""
    chain: Chain
    attributes: Mapping[str, Json]
    """Of the image in the source."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a conversion to Zarr writes."""

    source: Node
    runs: tuple[Run, ...]
    root: GroupIndex
    """The hierarchy of the target; its coordinates are in it, its samples are not."""
    pictures: tuple[Picture, ...]
    arrays: tuple[Level, ...]
    """Every array whose samples are copied or computed."""
    fingerprint: str
    """A hash of the source and the plan; decides whether an unfinished target can be resumed."""
    notes: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    """What the target cannot hold, one line each."""
    zarr_format: Literal[2, 3] = 3

    @property
    def nbytes(self) -> int:
        """The decoded size of all arrays."""
        return sum(level.nbytes for level in self.arrays)

    @property
    def groups(self) -> dict[str, dict[str, Json]]:
        """The attributes of every group of the target, by path."""
        return group_table(self.root)


def group_table(root: GroupIndex) -> dict[str, dict[str, Json]]:
    """Return the attributes of every group of a hierarchy, by path."""
    return {path: n.attributes for path, n in walk(root) if isinstance(n, GroupIndex)}


def make_plan(source: Node, options: ZarrOptions, workers: int) -> Plan:
    """Plan a Zarr v3 hierarchy with the images of `source`.

    Raises `FormatError` if the source has no arrays, and `UnsupportedError` if it cannot be written
    with these options.
    """
    found = list(im.images(source))
    if options.image is not None:
        found = [im.chosen(found, options.image)]
    if not found:
        raise FormatError("convert: the source has no arrays")
    zarr_format = presets.preset(options.like).zarr_format
    pictures: list[Picture] = []
    runs: list[Run] = []
    arrays: list[Level] = []
    tree = Tree(source)
    losses: list[str] = []
    for image, path in zip(found, target_paths(found), strict=True):
        chain = image_levels(source, image, path, options)
        losses += image_losses(image, chain.meaning)
        picture = Picture(path=path, chain=chain, attributes=image.attributes)
        taken = [level.name for level in chain.described]
        extra = [
            beside_level(source, name, path, options, taken)
            for name in image.beside
            if not is_mask(name, image)
        ]
        tree.add(picture, extra)
        pictures.append(picture)
        made = [
            replace(level, metadata=stored_metadata(tree.metadata(level.path), zarr_format))
            for level in (*chain.levels, *chain.masks, *extra)
        ]
        arrays += made
        for part in split_chains(made):
            runs += split_runs(part, workers)
    if any(is_sharded(level) for level in arrays):
        options.notes.append(
            "shards are not read by GDAL before 3.13; shard=False (--shard none) writes none"
        )
    root = tree.root(is_numbered=[picture.path for picture in pictures] != [""])
    if zarr_format == 2:
        list(zarr_v2.documents(root))  # raises before anything is written
    return Plan(
        source=source,
        runs=tuple(runs),
        root=root,
        pictures=tuple(pictures),
        arrays=tuple(arrays),
        fingerprint=fingerprint(source, arrays, group_table(root)),
        notes=tuple(dict.fromkeys(options.notes)),
        losses=tuple(dict.fromkeys(losses)),
        zarr_format=zarr_format,
    )


def stored_metadata(metadata: dict[str, Json], zarr_format: int) -> dict[str, Json]:
    """Return the metadata that chunks are encoded and read back by."""
    if zarr_format == 3:
        return metadata
    return {**metadata, "chunk_key_encoding": zarr_v2.ENCODING}


def is_sharded(level: Level) -> bool:
    """Return whether an array is written in shards."""
    return any(
        isinstance(codec, Mapping) and codec.get("name") == "sharding_indexed"
        for codec in level.metadata["codecs"]
    )


def target_paths(found: Sequence[Image]) -> list[str]:
    """Return the paths of the images in the target: the root for one, else those of the source.

    Where a path of the source would be that of another image's level, images are numbered.
    """
    if len(found) == 1:
        return [""]
    paths = [image.path for image in found]
    levels = {im.join(image.path, str(n)) for image in found for n in range(MOST_LEVELS)}
    if any(start in levels for path in paths for start in (path, *parents(path)) if start):
        return [str(number) for number in range(len(found))]
    return paths


MOST_LEVELS = 64
"""No image has more levels: each is at most half as long as the one before it."""


def is_mask(path: str, image: Image) -> bool:
    """Return whether an array beside an image is the mask of one of its levels."""
    folder, _, name = path.rpartition("/")
    return name == MASK and any(level.rpartition("/")[0] == folder != "" for level in image.levels)


def image_losses(image: Image, meaning: Meaning) -> list[str]:
    """Return what OME-Zarr cannot say about an image."""
    if meaning.is_image:
        return []
    axes = " ".join(meaning.names)
    what = f"OME-Zarr cannot describe axes {axes}, so no ome attribute is written"
    return [f"{image.path or '/'}: {what}; name the axes, for example zyx"]


class Tree:
    """The hierarchy of the target while it is put together."""

    def __init__(self, source: Node) -> None:
        self.source = source
        self.members: dict[str, dict[str, Node]] = {"": {}}
        self.attributes: dict[str, dict[str, Json]] = {"": root_attributes(source)}

    def add(self, picture: Picture, extra: Sequence[Level]) -> None:
        """Add the group of an image, and the arrays beside its levels."""
        path = picture.path
        for parent in (*parents(path), path):
            self.members.setdefault(parent, {})
            self.attributes.setdefault(parent, group_attributes(self.source, parent))
        self.members[path] |= image_group(picture.chain.meaning, picture.chain.described).members
        self.members[path] |= {one.path.rsplit("/", 1)[-1]: one.as_index() for one in extra}
        described = described_attributes(picture.chain, picture.attributes)
        self.attributes[path] = {**self.attributes[path], **described}

    def metadata(self, path: str) -> dict[str, Json]:
        """Return the `zarr.json` of an array that was added."""
        parts = path.split("/")
        for depth in range(len(parts) - 1, -1, -1):
            group = GroupIndex(members=self.members.get("/".join(parts[:depth]), {}))
            found = find(group, "/".join(parts[depth:]))
            if found is not None:
                return found.metadata()
        raise KeyError(path)

    def root(self, *, is_numbered: bool) -> GroupIndex:
        """Return the root; OME-Zarr's layout of several images if they are numbered."""
        for path in sorted(self.members, key=lambda p: -len(p.split("/"))):
            if path:
                parent, _, name = path.rpartition("/")
                self.members[parent][name] = GroupIndex(
                    members=self.members[path], attributes=self.attributes[path]
                )
        members, attributes = self.members[""], self.attributes[""]
        if is_numbered and "ome" not in attributes:
            return root_group(members, attributes)
        return GroupIndex(members=members, attributes=attributes)


def split_chains(levels: Sequence[Level]) -> list[tuple[Level, ...]]:
    """Split arrays before each copy: those after it, up to the next, are computed from it."""
    found: list[list[Level]] = []
    for level in levels:
        if level.source is not None:
            found.append([])
        found[-1].append(level)
    return [tuple(chain) for chain in found]


def parents(path: str) -> list[str]:
    """Return the paths of all groups above `path`, the root first."""
    parts = path.split("/")[:-1] if path else []
    return ["/".join(parts[:n]) for n in range(len(parts) + 1)]


def split_runs(levels: tuple[Level, ...], workers: int) -> list[Run]:
    """Split levels into runs: as few as possible, each with enough tasks for every worker.

    A task computes one region of the coarsest level of its run and everything below it. Coarser
    levels make larger, and fewer, tasks; a level with too few regions begins a new run.
    """
    runs = []
    first = 0
    while first < len(levels):
        last = first
        while last + 1 < len(levels) and levels[last + 1].source is None:
            above = levels[last + 1]
            regions = math.prod(levels[first].grid) / max(1, math.prod(above.grid))
            if math.prod(above.grid) < TASKS_PER_WORKER * workers or regions > TASK_REGIONS:
                break
            last += 1
        runs.append(Run(levels=levels[: last + 1], first=first))
        first = last + 1
    return runs


def fingerprint(source: Node, arrays: Sequence[Level], groups: dict[str, Any]) -> str:
    """Return a hash that two conversions share if they write the same from the same source.

    How the work is split into regions and tasks is left out: it may differ between two machines.
    """
    content = {
        "arrays": [[a.path, a.source, a.order, a.ratio, a.method, a.metadata] for a in arrays],
        "groups": groups,
        "pins": {url: [p.size, p.etag, p.mtime_ns] for url, p in source.pins.items()},
        "part": selected(source),
    }
    text = json.dumps(content, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> Json:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
