"""Boxes on the map in the CRS of an image.

Longitudes are the same modulo 360 degrees: a box whose xmin is larger than its xmax crosses the
antimeridian (RFC 7946 section 5.2), and images beyond it have longitudes such as 190 or -190.
"""

import math
from typing import Any

from anychunk.errors import MissingDependencyError, OptionError
from anychunk.metadata import crs
from anychunk.metadata.meaning import Crs
from anychunk.selection.wanted import Selection

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
