"""From an index and what the caller asks for to a plan; no sample is read."""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anychunk.conversion.attributes import group_attributes, image_attributes, root_attributes
from anychunk.conversion.levels import beside_level, image_levels
from anychunk.conversion.plan import Level, Plan, Run, Wishes
from anychunk.errors import FormatError
from anychunk.model import images as im
from anychunk.model.index import Json, Node

TASK_REGIONS = 16
"""How many regions of the finest level one task makes, at the most."""


def make_plan(source: Node, wishes: Wishes, workers: int) -> Plan:
    """Plan a Zarr v3 hierarchy that holds what the source does."""
    found = list(im.images(source))
    if wishes.image is not None:
        found = [im.chosen(found, wishes.image)]
    if not found:
        raise FormatError("convert: the source holds no array")
    is_one = len(found) == 1
    groups: dict[str, dict[str, Json]] = {"": root_attributes(source, found, is_one=is_one)}
    runs: list[Run] = []
    arrays: list[Level] = []
    for image in found:
        path = "" if is_one else image.path
        levels = image_levels(source, image, path, wishes)
        groups[path] = {**groups.get(path, {}), **image_attributes(image, levels, wishes)}
        extra = [beside_level(source, name, path, wishes, levels) for name in image.beside]
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
        notes=tuple(dict.fromkeys(wishes.notes)),
    )


def parents(path: str) -> list[str]:
    parts = path.split("/")[:-1] if path else []
    return ["/".join(parts[:n]) for n in range(len(parts) + 1)]


def split_runs(levels: tuple[Level, ...], workers: int) -> list[Run]:
    """Join levels into runs: few reads, yet tasks enough for every worker."""
    runs = []
    first = 0
    while first < len(levels):
        last = first
        while last + 1 < len(levels) and levels[last + 1].source is None:
            above = levels[last + 1]
            regions = math.prod(levels[first].grid) / max(1, math.prod(above.grid))
            if math.prod(above.grid) < 4 * workers or regions > TASK_REGIONS:
                break
            last += 1
        runs.append(Run(levels=levels[: last + 1], first=first))
        first = last + 1
    return runs


def fingerprint(source: Node, arrays: Sequence[Level], groups: dict[str, Any]) -> str:
    """Name this conversion: the same source, made the same way."""
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
    raise TypeError(f"{type(value).__name__} is no JSON")
