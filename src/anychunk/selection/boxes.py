"""Boxes on the map and windows of pixels as rows and columns of a level."""

import math
from collections.abc import Sequence

from anychunk.errors import MissingDependencyError, OptionError
from anychunk.metadata import crs, geo
from anychunk.metadata.meaning import Meaning, Transform
from anychunk.model.grid import Shape
from anychunk.selection.wanted import Selection

TOUCHED = 1e-6
"""Pixels of which less than this is inside of a box are not part of it: rounding errors."""
LON_LAT = "OGC:CRS84"
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
        top, bottom = _scaled(wanted.window[0], factor[y], shape[y])
        left, right = _scaled(wanted.window[1], factor[x], shape[x])
    else:
        (top, bottom), (left, right) = _box_sides(meaning, wanted, where)
    rows = range(max(0, top), min(bottom, shape[y]))
    columns = range(max(0, left), min(right, shape[x]))
    if not rows or not columns:
        raise OptionError(_outside(meaning, shape, wanted, factor, where))
    return rows, columns


def _scaled(side: tuple[int | None, int | None], factor: float, size: int) -> tuple[int, int]:
    """Return the elements of a level that a range of the full resolution touches."""
    start, stop = side
    first = 0 if start is None else math.floor(start / factor + TOUCHED)
    return first, size if stop is None else math.ceil(stop / factor - TOUCHED)


def _box_sides(
    meaning: Meaning, wanted: Selection, where: str
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the rows and columns that a box touches."""
    transform = _transform(meaning, where)
    xmin, ymin, xmax, ymax = _own_box(meaning, wanted, where)
    inverse = _inverted(transform, where)
    corners = [geo.apply(inverse, x, y) for x in (xmin, xmax) for y in (ymin, ymax)]
    columns, rows = [c for c, _ in corners], [r for _, r in corners]
    return _touched(rows), _touched(columns)


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


def _own_box(meaning: Meaning, wanted: Selection, where: str) -> tuple[float, float, float, float]:
    """Return the box in the CRS of the image."""
    box = wanted.bbox
    if box is None:
        raise OptionError(f"{where}: there is no box")
    name = LON_LAT if wanted.bbox_crs == "lonlat" else wanted.bbox_crs
    own = meaning.place.crs
    if name is None or (own is not None and own.code == name):
        return box
    if own is None:
        raise OptionError(
            f"{where}: the image has no CRS, so that {name} says nothing; use a window"
        )
    if not crs.has_pyproj():
        raise MissingDependencyError(
            'bbox_crs needs pyproj; install it with: pip install "anychunk[geo]"'
        )
    from pyproj import CRS, Transformer  # slow, and rarely needed
    from pyproj.exceptions import ProjError

    try:
        between = Transformer.from_crs(
            CRS.from_user_input(name), crs.known_crs(own), always_xy=True
        )
        found = between.transform_bounds(*box, densify_pts=21, errcheck=True)
    except ProjError as e:
        text = " ".join(str(e).split())
        raise OptionError(f"{where}: {name} cannot be transformed to its CRS: {text}") from e
    xmin, ymin, xmax, ymax = (float(n) for n in found)
    if not all(math.isfinite(n) for n in (xmin, ymin, xmax, ymax)) or xmin >= xmax or ymin >= ymax:
        raise OptionError(f"{where}: the box {box} of {name} is outside of the area of its CRS")
    return xmin, ymin, xmax, ymax


def _outside(
    meaning: Meaning, shape: Shape, wanted: Selection, factor: Sequence[float], where: str
) -> str:
    """Return what is wrong with a box that selects nothing."""
    names = meaning.names
    height, width = (shape[names.index(n)] for n in ("y", "x"))
    if wanted.bbox is not None:
        edges = geo.bounds(_transform(meaning, where), (height, width))
        lies = " ".join(f"{n:.10g}" for n in edges)
        asked = " ".join(f"{n:.10g}" for n in wanted.bbox)
        system = f" of {wanted.bbox_crs}" if wanted.bbox_crs else ""
        return f"{where}: nothing lies in the box {asked}{system}; the image covers {lies}"
    full = [round(n * factor[names.index(a)]) for n, a in ((height, "y"), (width, "x"))]
    return f"{where}: nothing is in the window {wanted.window}; the image is {full[0]} x {full[1]}"
