"""Boxes on the map and windows of pixels as rows and columns of a level."""

import itertools
import math
from collections.abc import Sequence

from anychunk.errors import OptionError
from anychunk.metadata import geo
from anychunk.metadata.meaning import Meaning, Transform
from anychunk.model.grid import Shape
from anychunk.selection.map_boxes import own_boxes
from anychunk.selection.wanted import Selection

TOUCHED = 1e-6
"""Pixels of which less than this is inside of a box are not part of it: rounding errors."""
FAR = 1e18
"""Positions beyond this are outside of any image."""


def rows_and_columns(
    meaning: Meaning, shape: Shape, wanted: Selection, factor: Sequence[float], where: str
) -> tuple[range, range]:
    """Return the rows and columns of a level that a box or a window touches.

    Parameters:
        meaning: Of the level.
        shape: Of the level.
        wanted: What is asked for.
        factor: How many elements of the full resolution one of the level covers.
        where: Names the image in messages.

    Raises `OptionError` if there are none.
    """
    names = meaning.names
    if not {"y", "x"} <= set(names):
        raise OptionError(f"{where}: axes {' '.join(names)}; a box needs y and x")
    y, x = names.index("y"), names.index("x")
    if wanted.window is not None:
        rows_asked, columns_asked = wanted.window
        down = _scaled(rows_asked, factor[y], shape[y])
        sides = [(down, _scaled(columns_asked, factor[x], shape[x]))]
    else:
        sides = _box_sides(meaning, (shape[y], shape[x]), wanted, where)
    found = [(_inside(rows, shape[y]), _inside(columns, shape[x])) for rows, columns in sides]
    found = sorted((pair for pair in found if all(pair)), key=lambda pair: pair[1].start)
    if not found:
        raise OptionError(_outside(meaning, shape, wanted, factor, where))
    for (_, left), (_, right) in itertools.pairwise(found):
        if right.start > left.stop:
            raise OptionError(
                f"{where}: the box {_numbers(wanted.bbox or ())} lies at both edges of the image, "
                "which the antimeridian divides; cut each side on its own"
            )
    return _hull([rows for rows, _ in found]), _hull([columns for _, columns in found])


def _inside(side: tuple[int, int], size: int) -> range:
    return range(max(0, side[0]), min(side[1], size))


def _hull(runs: Sequence[range]) -> range:
    return range(min(run.start for run in runs), max(run.stop for run in runs))


def _scaled(side: tuple[int | None, int | None], factor: float, size: int) -> tuple[int, int]:
    """Return the elements of a level that a range of the full resolution touches."""
    start, stop = side
    first = 0 if start is None else math.floor(start / factor + TOUCHED)
    return first, size if stop is None else math.ceil(stop / factor - TOUCHED)


def _box_sides(
    meaning: Meaning, plane: tuple[int, int], wanted: Selection, where: str
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the rows and columns that a box touches, for each of the places where it lies."""
    transform = _transform(meaning, where)
    inverse = _inverted(transform, where)
    found = []
    for box in own_boxes(meaning.place.crs, wanted, geo.bounds(transform, plane), where):
        xmin, ymin, xmax, ymax = box
        corners = [geo.apply(inverse, x, y) for x in (xmin, xmax) for y in (ymin, ymax)]
        found.append((_touched([r for _, r in corners]), _touched([c for c, _ in corners])))
    return found


def _touched(positions: Sequence[float]) -> tuple[int, int]:
    low, high = (max(-FAR, min(FAR, n)) for n in (min(positions), max(positions)))
    return math.floor(low + TOUCHED), math.ceil(high - TOUCHED)


def _transform(meaning: Meaning, where: str) -> Transform:
    """Return where pixels lie: on the map, or by the sizes of elements."""
    if meaning.place.transform is not None:
        return meaning.place.transform
    axes = {axis.name: axis for axis in meaning.axes}
    x, y = axes["x"], axes["y"]
    if x.scale is None or y.scale is None:
        what = (
            "is placed by control points or coefficients" if _is_rough(meaning) else "has no place"
        )
        raise OptionError(f"{where}: {what}, so that no box can be cut; use a window of pixels")
    return (x.scale, 0.0, x.origin - x.scale / 2, 0.0, y.scale, y.origin - y.scale / 2)


def _is_rough(meaning: Meaning) -> bool:
    place = meaning.place
    return bool(place.gcps or place.rpc is not None or place.bbox is not None)


def _inverted(transform: Transform, where: str) -> Transform:
    a, b, c, d, e, f = transform
    determinant = a * e - b * d
    if not determinant:
        raise OptionError(f"{where}: the transform {transform} cannot be inverted")
    ia, ib, id_, ie = e / determinant, -b / determinant, -d / determinant, a / determinant
    return ia, ib, -(ia * c + ib * f), id_, ie, -(id_ * c + ie * f)


def _outside(
    meaning: Meaning, shape: Shape, wanted: Selection, factor: Sequence[float], where: str
) -> str:
    """Return what is wrong with a box that selects nothing."""
    names = meaning.names
    height, width = (shape[names.index(n)] for n in ("y", "x"))
    if wanted.bbox is not None:
        edges = geo.bounds(_transform(meaning, where), (height, width))
        lies, asked = _numbers(edges), _numbers(wanted.bbox)
        system = f" of {wanted.bbox_crs}" if wanted.bbox_crs else ""
        return f"{where}: nothing lies in the box {asked}{system}; the image covers {lies}"
    full = [round(n * factor[names.index(a)]) for n, a in ((height, "y"), (width, "x"))]
    return f"{where}: nothing is in the window {wanted.window}; the image is {full[0]} x {full[1]}"


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{n:.10g}" for n in values)
