"""What a conversion writes, and in which steps. No sample is read while planning.

A plan is plain data, so that it can be sent to a Dask worker.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychunk.conversion.attributes import group_attributes, image_attributes, root_attributes
from anychunk.conversion.levels import Level, ZarrOptions, beside_level, image_levels
from anychunk.errors import FormatError
from anychunk.model import images as im
from anychunk.model.index import Json, Node

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
class Plan:
    """Everything that a conversion to Zarr writes."""

    source: Node
    runs: tuple[Run, ...]
    groups: dict[str, dict[str, Json]]
    """The attributes of every group of the target, by path."""
    arrays: tuple[Level, ...]
    fingerprint: str
    """A hash of the source and the plan; decides whether an unfinished target can be resumed."""
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """The decoded size of all arrays."""
        return sum(level.nbytes for level in self.arrays)


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
    is_one = len(found) == 1
    groups: dict[str, dict[str, Json]] = {"": root_attributes(source, found, is_one=is_one)}
    runs: list[Run] = []
    arrays: list[Level] = []
    for image in found:
        path = "" if is_one else image.path
        levels = image_levels(source, image, path, options)
        groups[path] = {**groups.get(path, {}), **image_attributes(image, levels, options)}
        extra = [beside_level(source, name, path, options, levels) for name in image.beside]
        arrays += [*levels, *extra]
        for chain in (levels, *((level,) for level in extra)):
            runs += split_runs(tuple(chain), workers)
    for path in list(groups):
        for parent in parents(path):
            groups.setdefault(parent, group_attributes(source, parent))
    return Plan(
        source=source,
        runs=tuple(runs),
        groups=groups,
        arrays=tuple(arrays),
        fingerprint=fingerprint(source, arrays, groups),
        notes=tuple(dict.fromkeys(options.notes)),
    )


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
    }
    text = json.dumps(content, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> Json:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
