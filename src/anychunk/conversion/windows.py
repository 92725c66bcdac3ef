"""The limits between which channels are drawn, found from the coarsest level that was written."""

import itertools
import math
from typing import Any

import numpy as np

from anychunk.conversion.levels import Level
from anychunk.conversion.plan import Plan, described_attributes
from anychunk.conversion.tasks import Conversion
from anychunk.limits import MIB
from anychunk.metadata.windows import lacks_windows, window, with_windows
from anychunk.model.grid import chunk_box, grid_shape
from anychunk.model.index import GroupIndex, Node

SAMPLED = 4 * MIB
"""About how many samples of a channel are looked at."""


def with_limits(plan: Plan, conversion: Conversion) -> GroupIndex:
    """Return the hierarchy of a plan, with limits for channels whose source states none."""
    root: Node = plan.root
    for picture in plan.pictures:
        chain = picture.chain
        coarsest = chain.levels[-1]
        if not lacks_windows(chain.meaning, coarsest.metadata["data_type"]):
            continue
        names = chain.meaning.names
        count = coarsest.shape[names.index("c")]
        limits = [
            band_window(conversion, coarsest, names.index("c"), band) for band in range(count)
        ]
        meaning = with_windows(chain.meaning, limits)
        described = described_attributes(chain, picture.attributes, meaning)
        root = replaced(root, picture.path.split("/") if picture.path else [], described)
    if not isinstance(root, GroupIndex):
        raise TypeError("the root of a conversion is a group")
    return root


def replaced(node: Node, path: list[str], attributes: dict[str, Any]) -> Node:
    """Return a hierarchy in which the group at `path` has these attributes too."""
    if not isinstance(node, GroupIndex):
        return node
    if not path:
        return GroupIndex(members=node.members, attributes={**node.attributes, **attributes})
    name, *rest = path
    member = replaced(node.members[name], rest, attributes)
    return GroupIndex(members={**node.members, name: member}, attributes=node.attributes)


def band_window(
    conversion: Conversion, level: Level, axis: int, band: int
) -> tuple[float, float] | None:
    """Return the limits of one channel, from chunks that are spread evenly over the level."""
    grid = grid_shape(level.shape, level.outer)
    rest = [range(n) for i, n in enumerate(grid) if i != axis]
    coords = list(itertools.islice(itertools.product(*rest), MOST_CHUNKS))
    per_chunk = math.prod(level.outer) // level.outer[axis]
    count = max(1, SAMPLED // max(per_chunk, 1))
    picked = coords[:: max(1, -(-len(coords) // count))]
    found = []
    for at in picked:
        full = (*at[:axis], band // level.outer[axis], *at[axis:])
        box = list(chunk_box(full, level.outer, level.shape))
        box[axis] = slice(band, band + 1)
        found.append(conversion.read_target(level, tuple(box)).reshape(-1))
    return window(np.concatenate(found), level.nodata) if found else None


MOST_CHUNKS = 100_000
"""Chunks beyond this number are not considered."""
