"""Elements of an array of the whole as an array of the part, read when it is sliced."""

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from anychunk.errors import MissingDependencyError, OptionError
from anychunk.limits import MIB
from anychunk.metadata import crs, geo
from anychunk.metadata.meaning import Crs, Meaning, Transform
from anychunk.model.grid import Array, Shape, Slices, spans
from anychunk.model.index import Json

READ_BYTES = 64 * MIB
"""About how much is read at a time where bands that are not wanted are read, too."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Which elements of an array of the whole an array of the part has. Plain data."""

    path: str
    """Of the array in the index of the whole."""
    picks: tuple[Sequence[int], ...]
    """The elements along each of its axes."""
    dropped: tuple[int, ...] = ()
    """Axes with one element, which the part does not have."""

    @property
    def shape(self) -> Shape:
        """The shape of the array of the part."""
        return tuple(len(p) for axis, p in enumerate(self.picks) if axis not in self.dropped)

    def wanted(self, box: Slices) -> list[Sequence[int]]:
        """Return the elements of the whole, along each axis, that a box of the part has."""
        sides = iter(box)
        return [
            pick if axis in self.dropped else pick[(side := next(sides)).start : side.stop]
            for axis, pick in enumerate(self.picks)
        ]

    def read(
        self, read: Callable[[Slices], Array], box: Slices, chunk: Shape, itemsize: int
    ) -> Array:
        """Read a box of the part.

        Parameters:
            read: Reads a box of the whole.
            box: Of the part.
            chunk: Shape of the chunks of the whole.
            itemsize: Bytes per element.
        """
        wanted = self.wanted(box)
        spread = math.prod(
            len(numbers) if is_run(numbers) else max(numbers) + 1 - min(numbers)
            for numbers in wanted
        )
        sizes = [side.stop - side.start for side in box]
        if not all(map(is_run, wanted)) and spread * itemsize > READ_BYTES and max(sizes) > 1:
            axis = sizes.index(max(sizes))
            middle = box[axis].start + sizes[axis] // 2
            halves = (slice(box[axis].start, middle), slice(middle, box[axis].stop))
            parts = [
                self.read(read, (*box[:axis], half, *box[axis + 1 :]), chunk, itemsize)
                for half in halves
            ]
            return np.concatenate(parts, axis)
        data = gathered(read, wanted, chunk)
        kept = [n for axis, n in enumerate(data.shape) if axis not in self.dropped]
        return data.reshape(kept)


def is_run(numbers: Sequence[int]) -> bool:
    """Return whether numbers follow each other."""
    if isinstance(numbers, range):
        return numbers.step == 1
    return all(b == a + 1 for a, b in itertools.pairwise(numbers))


def gathered(
    read: Callable[[Slices], Array], wanted: Sequence[Sequence[int]], chunk: Shape
) -> Array:
    """Read elements that need not follow each other; chunks without any of them are not read."""
    for axis, numbers in enumerate(wanted):
        if is_run(numbers):
            continue
        parts: list[Array] = []
        place: dict[int, int] = {}
        for group in near_groups(sorted(set(numbers)), chunk[axis]):
            span = range(group[0], group[-1] + 1)
            data = gathered(read, [*wanted[:axis], span, *wanted[axis + 1 :]], chunk)
            place |= {number: len(place) + i for i, number in enumerate(group)}
            parts.append(np.take(data, [number - span.start for number in group], axis))
        return np.take(np.concatenate(parts, axis), [place[n] for n in numbers], axis)
    return read(tuple(slice(n[0], n[-1] + 1) if n else slice(0, 0) for n in wanted))


def near_groups(numbers: Sequence[int], chunk: int) -> Iterator[list[int]]:
    """Yield sorted numbers in groups between which no chunk is skipped."""
    group: list[int] = []
    for number in numbers:
        if group and number // chunk > group[-1] // chunk + 1:
            yield group
            group = []
        group.append(number)
    yield group


class CutArray:
    """An array of a part, read from the whole when it is sliced."""

    def __init__(self, array: Any, cut: Cut) -> None:
        self.array, self.cut = array, cut
        self.shape, self.ndim, self.dtype = cut.shape, len(cut.shape), array.dtype
        self.fill_value = array.fill_value
        self.chunks = tuple(
            min(n, max(len(pick), 1))
            for axis, (n, pick) in enumerate(zip(array.chunks, cut.picks, strict=True))
            if axis not in cut.dropped
        )

    @property
    def nbytes(self) -> int:
        """The decoded size."""
        return math.prod(self.shape) * int(self.dtype.itemsize)

    def __getitem__(self, wanted: Any) -> Any:
        found = spans(wanted, self.shape)
        if found is None:
            raise IndexError(f"{wanted!r}: expected integers and slices of step 1")
        pieces, dropped = found
        box = tuple(slice(start, stop) for start, stop in pieces)
        if any(side.start == side.stop for side in box):
            data = np.empty([side.stop - side.start for side in box], self.dtype)
        else:
            data = self.cut.read(
                lambda b: np.asarray(self.array[b]),
                box,
                tuple(self.array.chunks),
                self.dtype.itemsize,
            )
        return data[tuple(0 if axis in dropped else slice(None) for axis in range(data.ndim))]


# What a caller wants of an image, checked as far as that is possible without the image.

type Window = tuple[tuple[int | None, int | None], tuple[int | None, int | None]]
"""(first row, row after the last), (first column, column after the last); None: the edge."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the caller wants of each image; None: everything."""

    bbox: tuple[float, float, float, float] | None = None
    """(xmin, ymin, xmax, ymax): every pixel that the box touches. Of longitudes, xmin may be larger
    than xmax."""
    bbox_crs: str | None = None
    """The CRS of `bbox`, x before y; None: that of the image. `lonlat`: degrees."""
    window: Window | None = None
    """Rows and columns of the full resolution."""
    bands: tuple[int | str, ...] | None = None
    """By number or name, in the order of the result."""
    level: int | str | None = None
    """The level that becomes the full resolution of the part."""
    time: int | str | None = None
    """A number or range (`2:5`) along t, a date (`2026-03`), or an interval (`2026-01/2026-03`)."""

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return self == Selection()

    def json(self) -> dict[str, Json]:
        """Return what was asked for."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def selection(
    *,
    bbox: Sequence[float] | None = None,
    bbox_crs: str | None = None,
    window: Sequence[Any] | None = None,
    bands: Sequence[int | str] | int | str | None = None,
    level: int | str | None = None,
    time: int | str | None = None,
) -> Selection:
    """Return a selection; raise `OptionError` if it is not one."""
    if bbox is not None and window is not None:
        raise OptionError("bbox and window: expected one of them")
    if bbox is None and bbox_crs is not None:
        raise OptionError("bbox_crs: there is no bbox")
    return Selection(
        bbox=None if bbox is None else _checked_box(bbox),
        bbox_crs=bbox_crs,
        window=None if window is None else _checked_window(window),
        bands=None if bands is None else _checked_bands(bands),
        level=level,
        time=time,
    )


def _checked_box(bbox: Sequence[float]) -> tuple[float, float, float, float]:
    try:
        xmin, ymin, xmax, ymax = (float(n) for n in bbox)
    except (TypeError, ValueError):
        raise OptionError(f"bbox {bbox!r}: expected xmin, ymin, xmax, ymax") from None
    if not all(math.isfinite(n) for n in (xmin, ymin, xmax, ymax)):
        raise OptionError(f"bbox {bbox!r}: expected finite numbers")
    # xmin > xmax: across the antimeridian, which only the CRS can tell
    if xmin == xmax or ymin >= ymax:
        raise OptionError(f"bbox {bbox!r} is empty: expected xmin < xmax and ymin < ymax")
    return xmin, ymin, xmax, ymax


def _checked_bands(bands: Sequence[int | str] | int | str) -> tuple[int | str, ...]:
    listed: Any = [bands] if isinstance(bands, int | str) else bands
    try:
        return tuple(_checked_band(band) for band in listed)
    except TypeError:
        raise OptionError(f"bands {bands!r}: expected numbers from 0, or names") from None


def _checked_band(band: Any) -> int | str:
    if isinstance(band, bool):
        raise TypeError(band)
    return band if isinstance(band, str) else operator.index(band)


def _checked_window(window: Sequence[Any]) -> Window:
    try:
        (top, bottom), (left, right) = (
            (side.start, side.stop) if isinstance(side, slice) else side for side in window
        )
        rows, columns = ((_edge(a), _edge(b)) for a, b in ((top, bottom), (left, right)))
    except (TypeError, ValueError):
        raise OptionError(
            f"window {window!r}: expected ((first row, end), (first column, end)), not negative"
        ) from None
    return rows, columns


def _edge(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or int(value) != value or value < 0:
        raise ValueError(value)
    return int(value)


# Boxes on the map and windows of pixels as rows and columns of a level.

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
