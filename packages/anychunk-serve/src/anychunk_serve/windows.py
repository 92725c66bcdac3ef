"""Limits between which the channels of served images are drawn, from samples of the file.

They are found when the metadata of an image is first asked for: from its coarsest stored level, or
from a few chunks of it where that is large. Reading all of a file for them would take too long.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from anychunk.metadata import drawing
from anychunk.metadata.drawing import drawn
from anychunk.metadata.hierarchy import DISPLAY
from anychunk.metadata.meaning import Level, Meaning
from anychunk.metadata.ome import omero
from anychunk.metadata.reading import levels_of, meaning_of
from anychunk.model.grid import Shape
from anychunk.model.images import images, join, level_paths
from anychunk.model.index import Computed, GroupIndex, Json
from anychunk_serve.chunks import Chunks

SAMPLED_BYTES = 4 << 20
"""About how much of a channel is read."""
PLACES = 3
"""Boxes along y and along x that a large level is sampled at."""


def drawn_attributes(chunks: Chunks, path: str, group: GroupIndex) -> dict[str, Json]:
    """Return the attributes of a group; those of an image with limits for each channel."""
    if not level_paths(group):
        return group.attributes
    image = next(images(group))
    meaning, levels = meaning_of(group, image), levels_of(group, image)
    if not levels or "c" not in meaning.names:
        return group.attributes
    # the page draws what is stated here
    count = levels[0].image.shape[meaning.names.index("c")]
    found = replace(meaning, display=drawn(meaning, count))
    ome = group.attributes.get("ome", {})
    if drawing.lacks_windows(meaning, levels[0].image.data_type):
        found = drawing.with_windows(meaning, channel_windows(chunks, path, meaning, levels))
        ome = {**ome, **omero(found, levels[0])}
    return {**group.attributes, "ome": ome, DISPLAY: dict(found.display or {})}


def channel_windows(
    chunks: Chunks, path: str, meaning: Meaning, levels: list[Level]
) -> list[tuple[float, float] | None]:
    """Return the limits of every channel."""
    stored = [level for level in levels if _is_stored(level)] or levels
    level = stored[-1]
    axis = meaning.names.index("c")
    where = join(join(path, level.name), "image")
    found = []
    for band in range(level.image.shape[axis]):
        pieces = []
        for start, stop in boxes(level.image.shape, meaning.names, level.image.chunk_shape, band):
            piece = chunks.read(where, start, stop)
            if piece is not None:
                pieces.append(np.asarray(piece).reshape(-1))
        values: Any = np.concatenate(pieces) if pieces else np.zeros(0)
        found.append(drawing.window(values, meaning.nodata))
    return found


def _is_stored(level: Level) -> bool:
    chunks = level.image.chunks
    return isinstance(chunks, Computed) and chunks.method != "shrink"


def boxes(
    shape: Shape, names: tuple[str, ...], chunk: Shape, band: int
) -> list[tuple[Shape, Shape]]:
    """Return the boxes of a channel to read: all of the plane in the middle, or chunks of it."""
    start, stop = [n // 2 for n in shape], [n // 2 + 1 for n in shape]
    c, y, x = (names.index(name) for name in ("c", "y", "x"))
    start[c], stop[c] = band, band + 1
    spans: dict[int, list[tuple[int, int]]] = {}
    is_large = shape[y] * shape[x] > SAMPLED_BYTES
    most = math.isqrt(SAMPLED_BYTES) // PLACES
    for axis in (y, x):
        spans[axis] = [(0, shape[axis])]
        if is_large:
            side = min(chunk[axis], most)
            firsts = {int(f) for f in np.linspace(0, shape[axis] - 1, PLACES) // side * side}
            spans[axis] = [(f, min(f + side, shape[axis])) for f in sorted(firsts)]
    found = []
    for top, bottom in spans[y]:
        for left, right in spans[x]:
            start[y], stop[y], start[x], stop[x] = top, bottom, left, right
            found.append((tuple(start), tuple(stop)))
    return found
