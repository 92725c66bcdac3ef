"""Where layers lie, as napari takes it: axes, units, scale and translation, or an affine."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anychunk.metadata.crs import is_geographic, linear_unit
from anychunk.metadata.meaning import Meaning
from anychunk.metadata.ome import scale_and_translation
from anychunk.metadata.reading import levels_of
from anychunk.model.grid import Array
from anychunk.model.images import Image
from anychunk.model.index import Node

UNITS = {
    "angstrom", "nanometer", "micrometer", "millimeter", "centimeter", "meter", "kilometer",
    "inch", "foot", "survey_foot", "degree",
    "microsecond", "millisecond", "second", "minute", "hour", "day",
}  # fmt: skip
"""Units that napari's library of units knows by these names, which are OME-Zarr's."""
MAP_UNITS = {"metre": "meter", "degree": "degree", "foot": "foot", "US survey foot": "survey_foot"}
"""Units of map coordinates as napari's library of units calls them."""
PIXEL = "pixel"
"""The unit of axes without one."""


def placement(node: Node, image: Image, meaning: Meaning, names: Sequence[str]) -> dict[str, Any]:
    """Return axis labels, units, and scale and translation, or an affine where there is rotation.

    Rows of georeferenced images go south: napari's y axis points down, and is -y of the map.

    Parameters:
        node: the index.
        image: one of its images.
        meaning: what its samples mean.
        names: the axes of the layer, in order.
    """
    levels = levels_of(node, image)
    scale, origin = scale_and_translation(meaning, levels[0], levels[0].image.shape)
    steps = dict(zip(meaning.names, scale, strict=True))
    starts = dict(zip(meaning.names, origin, strict=True))
    matrix = np.diag([*(steps.get(n, 1.0) for n in names), 1.0])
    matrix[:-1, -1] = [starts.get(n, 0.0) for n in names]
    turned = map_matrix(meaning, names) if meaning.place.transform else space_matrix(meaning, names)
    if turned is not None:
        matrix = turned(matrix)
    found: dict[str, Any] = {"axis_labels": tuple(names)}
    known = units(meaning, names)
    if any(unit != PIXEL for unit in known):
        found["units"] = known
    linear = matrix[:-1, :-1]
    is_straight = np.count_nonzero(linear - np.diag(np.diagonal(linear))) == 0
    if is_straight and (np.diagonal(linear) > 0).all():
        return found | {"scale": np.diagonal(linear).copy(), "translate": matrix[:-1, -1].copy()}
    return found | {"affine": matrix}


def map_matrix(meaning: Meaning, names: Sequence[str]) -> Callable[[Array], Array] | None:
    """Return what puts the georeference of an image into a matrix of its axes."""
    transform = meaning.place.transform
    if transform is None or not {"x", "y"} <= set(names):
        return None
    a, b, c, d, e, f = transform
    y, x = names.index("y"), names.index("x")

    def put(matrix: Array) -> Array:
        matrix[[[y], [x]], [[y, x]]] = [[-e, -d], [b, a]]
        # of the centre of the first pixel
        matrix[y, -1], matrix[x, -1] = -((d + e) / 2 + f), (a + b) / 2 + c
        return matrix

    return put


def space_matrix(meaning: Meaning, names: Sequence[str]) -> Callable[[Array], Array] | None:
    """Return what puts a rotation in space into a matrix of axes; None if there is none."""
    space = meaning.space
    present = [n for n in "xyz" if n in names]
    if space is None or len(present) < 2:
        return None
    affine = np.asarray(space.affine, np.float64)
    linear = affine[:3, :3]
    off = linear - np.diag(np.diagonal(linear))
    if np.abs(off).max() <= 1e-6 * max(np.abs(linear).max(), 1e-300):
        return None
    rows = ["xyz".index(n) for n in present]
    places = [names.index(n) for n in present]

    def put(matrix: Array) -> Array:
        matrix[np.ix_(places, places)] = linear[np.ix_(rows, rows)]
        matrix[places, -1] = affine[rows, 3]
        return matrix

    # a plane of a tilted volume may collapse
    part = linear[np.ix_(rows, rows)]
    return put if np.isfinite(part).all() and abs(np.linalg.det(part)) > 0 else None


def units(meaning: Meaning, names: Sequence[str]) -> tuple[str, ...]:
    """Return the unit of every axis; `pixel` where none is known."""
    known = {axis.name: axis.unit for axis in meaning.axes if axis.scale is not None}
    crs = meaning.place.crs
    if meaning.place.transform is not None and crs is not None:
        unit = "degree" if is_geographic(crs) else MAP_UNITS.get(linear_unit(crs) or "")
        known |= {"x": unit, "y": unit}
    return tuple(unit if (unit := known.get(name)) in UNITS and unit else PIXEL for name in names)
