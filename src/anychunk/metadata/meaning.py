"""What the samples of an image mean, in words that belong to no format. Plain data.

A parser fills one `Meaning` per image. `metadata.hierarchy` writes it as the attributes and
coordinate arrays that xarray, GDAL, OME viewers and GeoZarr readers understand, and
`metadata.reading` reads it back, from our own hierarchy and from those of other writers. Everything
that shows, converts or saves an image goes by this, never by the attributes of a format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

from anychunk.model.index import ArrayIndex, Json

type Transform = tuple[float, float, float, float, float, float]
"""(a, b, c, d, e, f) of x = a * column + b * row + c, y = d * column + e * row + f.

Column and row 0 are the outer edges of the first pixel."""

NAMES = ("t", "c", "z", "y", "x")
"""The axes of an image, in their order; an axis with another name belongs to data, not an image."""
TYPES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}
"""The type that OME-Zarr gives each axis."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of an image, at full resolution."""

    name: str
    """t, c, z, y or x; `dim_0`, `dim_1` … where the array is not an image."""
    unit: str | None = None
    """As OME-Zarr spells it: micrometer, millimeter, second …"""
    scale: float | None = None
    """Size of one element in `unit`; None if the file does not state it."""
    origin: float = 0.0
    """Position of the centre of the first element."""
    values: tuple[float, ...] | None = None
    """Positions that are not regular, such as the dates of a stack."""
    attributes: Mapping[str, Json] = field(default_factory=dict)
    """CF attributes of `values`, such as `units: "microseconds since 1970-01-01"`."""


@dataclass(frozen=True, kw_only=True)
class Crs:
    """A coordinate reference system, by its code or as WKT; at least one of the two."""

    code: str | None = None
    """AUTHORITY:CODE, such as EPSG:32631."""
    wkt: str | None = None
    """As WKT 2; only needed where there is no code."""
    is_geographic: bool | None = None
    """Whether x and y are longitude and latitude; None if unknown without a library."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an image lies on the earth."""

    crs: Crs | None = None
    transform: Transform | None = None
    """Of the full resolution. A bounding box is never given as a transform."""
    bbox: tuple[float, float, float, float] | None = None
    """(xmin, ymin, xmax, ymax) where no affine transform describes the image."""
    gcps: tuple[tuple[float, float, float, float, float], ...] = ()
    """Ground control points: (column, row, x, y, z), in pixels from the corner of the first one."""
    rpc: Mapping[str, Json] | None = None
    """Rational polynomial coefficients, by GDAL's names in lower case (`line_off` …)."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """One sample plane; an image without an axis c has one."""

    name: str | None = None
    unit: str | None = None
    scale: float = 1.0
    offset: float = 0.0
    """A stored value v means `v * scale + offset`, in `unit`."""
    interpretation: str | None = None
    """GDAL's name of its colour: Gray, Red, Green, Blue, Alpha, Palette …; None if undefined."""
    tags: Mapping[str, str] = field(default_factory=dict)


class Alpha(TypedDict):
    """The band that holds opacity."""

    band: int
    associated: bool
    range: list[float]


class Channel(TypedDict):
    """How one band is drawn in an additive composite."""

    band: int
    label: NotRequired[str]
    color: NotRequired[str]
    """RRGGBB."""
    window: NotRequired[list[float]]
    active: NotRequired[bool]
    inverted: NotRequired[bool]


class Display(TypedDict):
    """How an image is drawn; the attribute `anychunk.display`."""

    model: str
    """grey, rgb, cmyk, ycbcr, palette or channels."""
    bands: NotRequired[list[int]]
    range: NotRequired[list[list[float]]]
    """Black and white, for all bands or for each."""
    inverted: NotRequired[bool]
    palette: NotRequired[dict[str, Json]]
    """`first`, the value of the first entry, and `colors`, a list of [red, green, blue, alpha]."""
    alpha: NotRequired[Alpha]
    mask: NotRequired[dict[str, Json]]
    """`path`, relative to the level group, and `valid`, the value of valid pixels."""
    orientation: NotRequired[int]
    """As the TIFF tag Orientation has it; 1 if absent."""
    channels: NotRequired[list[Channel]]


@dataclass(frozen=True, kw_only=True)
class Space:
    """Orientation in a physical space, as medical and microscopy volumes state it."""

    affine: tuple[tuple[float, ...], ...]
    """4 x 4, from (x, y, z) indices to the frame's unit."""
    frame: str | None = None
    """LPS, RAS, or the name that the file has."""
    unit: str | None = None
    measurement_frame: tuple[tuple[float, ...], ...] | None = None

    @property
    def directed(self) -> set[str]:
        """The names of the axes that have a direction, and with it a step."""
        return {name for n, name in enumerate("xyz") if any(row[n] for row in self.affine[:3])}


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What the samples of one image mean."""

    axes: tuple[Axis, ...]
    """In the order of the array's dimensions."""
    place: Place = field(default_factory=Place)
    nodata: float | int | None = None
    """The stored value of missing samples, in all bands; NaN counts."""
    bands: tuple[Band, ...] = ()
    """One per element of c, one where there is no c; empty if nothing is known."""
    display: Display | None = None
    space: Space | None = None
    name: str = ""
    time: str | None = None
    """When the whole image was taken, as ISO 8601; UTC if it has no offset."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Free text about the whole image, by name."""
    native: Mapping[str, Json] = field(default_factory=dict)
    """What the format itself states, under the format's name: {"tiff": {…}}."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the axes."""
        return tuple(axis.name for axis in self.axes)

    @property
    def is_image(self) -> bool:
        """Whether OME-Zarr can describe it: two to five of t, c, z, y, x, in that order."""
        ranks = [NAMES.index(name) for name in self.names if name in NAMES]
        return (
            len(ranks) == len(self.axes) >= 2
            and ranks == sorted(set(ranks))
            and self.names[-2:] == ("y", "x")
        )

    def band(self, number: int) -> Band:
        """Return what is known about a band."""
        return self.bands[number] if number < len(self.bands) else Band()


@dataclass(frozen=True, kw_only=True)
class Level:
    """One resolution of an image: the array, and what lies beside it."""

    name: str
    """Of the level group: 0, 1 …, or s0, s1 … in N5."""
    image: ArrayIndex
    factor: tuple[float, ...] | None = None
    """How many elements of the full resolution one element covers, along each axis: what the format
    states. None: the ratio of the sizes."""
    origin: tuple[float, ...] | None = None
    """Position of the centre of the first element along each axis, where the format states it.
    None: it follows from `factor`."""
    scale: tuple[float, ...] | None = None
    """Size of an element along each axis, where the format states it for each level."""
    mask: ArrayIndex | None = None
    """(y, x), uint8: 255 where a pixel is valid, unless `Display.mask` says otherwise."""
    beside: Mapping[str, ArrayIndex] = field(default_factory=dict)
    """Further arrays of the level group, by name."""


def factors(level: Level, full: Sequence[int]) -> tuple[float, ...]:
    """Return how many elements of the full resolution one element of `level` covers per axis."""
    if level.factor is not None:
        return level.factor
    pairs = zip(full, level.image.shape, strict=True)
    return tuple(n / m if n and m else 1.0 for n, m in pairs)
