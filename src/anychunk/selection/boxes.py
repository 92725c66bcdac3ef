"""Boxes on the map and windows of pixels as rows and columns of a level."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from anychunk.errors import MissingDependencyError, OptionError
from anychunk.metadata import crs, geo
from anychunk.metadata.meaning import Crs, Meaning, Transform
from anychunk.model.grid import Shape
from anychunk.selection.wanted import Selection

# Boxes on the map in the CRS of an image.
#
# Longitudes are the same modulo 360 degrees: a box whose xmin is larger than its xmax crosses the
# antimeridian (RFC 7946 section 5.2), and images beyond it have longitudes such as 190 or -190.


type Box = tuple[float, float, float, float]
"""(xmin, ymin, xmax, ymax)."""

LON_LAT = "OGC:CRS84"
TURNS = (-360.0, 0.0, 360.0)
MARGIN = 0.05
"""By which share of its size the area of an image is enlarged: its edges are curves on other maps,
of which some points are computed."""


def own_boxes(own: Crs | None, wanted: Selection, edges: Box, where: str) -> list[Box]:
    """Return a box in the CRS of an image; several if it lies at several of its longitudes.

    Parameters:
        own: The CRS of the image.
        wanted: What is asked for.
        edges: The area of the image.
        where: Names the image in messages.
    """
    box = wanted.bbox
    if box is None:
        raise OptionError(f"{where}: there is no box")
    name = LON_LAT if wanted.bbox_crs == "lonlat" else wanted.bbox_crs
    is_lon_lat = own is not None and crs.is_geographic(own) is True
    if name is None or (own is not None and own.code == name):
        _refuse_empty(box, is_lon_lat=is_lon_lat)
    elif own is None:
        raise OptionError(
            f"{where}: the image has no CRS, so that {name} says nothing; use a window"
        )
    else:
        found = _transformed(box, name, own, edges, where)
        if found is None:
            return []
        box = found
    return _turned(box, edges) if is_lon_lat else [box]


def _refuse_empty(box: Box, *, is_lon_lat: bool) -> None:
    if box[0] > box[2] and not is_lon_lat:
        raise OptionError(f"bbox {box} is empty: expected xmin < xmax, except for longitudes")


def _turned(box: Box, edges: Box) -> list[Box]:
    """Return a box of longitudes where it touches the area of an image.

    A box that does not cross the antimeridian is first looked for as it is.
    """
    xmin, ymin, xmax, ymax = box
    is_crossing = xmin > xmax
    if is_crossing:
        xmax += 360.0
    elif xmin < edges[2] and edges[0] < xmax:
        return [box]
    turned = [(xmin + turn, ymin, xmax + turn, ymax) for turn in TURNS]
    return [one for one in turned if one[0] < edges[2] and edges[0] < one[2]]


def _transformed(box: Box, name: str, own: Crs, edges: Box, where: str) -> Box | None:
    """Return a box of another CRS in that of the image; None if it is elsewhere."""
    if not crs.has_pyproj():
        raise MissingDependencyError(
            'bbox_crs needs pyproj; install it with: pip install "anychunk[geo]"'
        )
    from pyproj import CRS, Transformer  # slow, and rarely needed
    from pyproj.exceptions import ProjError

    try:
        given = CRS.from_user_input(name)
        _refuse_empty(box, is_lon_lat=given.is_geographic)
        between = Transformer.from_crs(given, crs.known_crs(own), always_xy=True)
        near = _near(box, between, edges, is_lon_lat=given.is_geographic)
        if near is None:
            return None
        found = between.transform_bounds(*near, densify_pts=21, errcheck=True)
    except ProjError as e:
        text = " ".join(str(e).split())
        raise OptionError(f"{where}: {name} cannot be transformed to its CRS: {text}") from e
    xmin, ymin, xmax, ymax = (float(n) for n in found)
    if crs.is_geographic(own) and xmin > xmax:
        xmax += 360.0
    if not all(math.isfinite(n) for n in (xmin, ymin, xmax, ymax)) or xmin >= xmax or ymin >= ymax:
        raise OptionError(f"{where}: the box {box} of {name} is outside of the area of its CRS")
    return xmin, ymin, xmax, ymax


def _near(box: Box, between: Any, edges: Box, *, is_lon_lat: bool) -> Box | None:
    """Return what of a box is near the image, still in the CRS of the box; None if nothing is.

    Projections are not defined, or fold, far from the area that they are made for.
    """
    from pyproj.enums import TransformDirection
    from pyproj.exceptions import ProjError

    try:
        area = between.transform_bounds(
            *edges, densify_pts=21, errcheck=True, direction=TransformDirection.INVERSE
        )
    except ProjError:
        return box
    left, bottom, right, top = (float(n) for n in area)
    if not all(math.isfinite(n) for n in (left, bottom, right, top)):
        return box
    if is_lon_lat and left > right:
        right += 360.0
    wide, high = MARGIN * (right - left), MARGIN * (top - bottom)
    left, right = left - wide, right + wide
    ymin, ymax = max(box[1], bottom - high), min(box[3], top + high)
    if is_lon_lat:
        ymin, ymax = max(ymin, -90.0), min(ymax, 90.0)
    xmin, xmax = box[0], box[2] + (360.0 if box[0] > box[2] else 0.0)
    turns = TURNS if is_lon_lat else (0.0,)
    sides = [(max(left, xmin + t), min(right, xmax + t)) for t in turns]
    sides = [(low, high) for low, high in sides if low < high]
    if not sides or ymin >= ymax:
        return None
    return min(low for low, _ in sides), ymin, max(high for _, high in sides), ymax


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
