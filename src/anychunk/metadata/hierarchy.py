"""The one writer of metadata: an image as a group of level groups, for every reader of the field.

```
image group         ome, multiscales, zarr_conventions, proj:*, spatial:*, anychunk.*, tiff …
  level group       proj:*, spatial:* of the level
    image           (t, c, z, y, x) as far as present; CF attributes
    x y z t         positions, where they are known
    spatial_ref     CRS and transform
    c               names of bands, if they are unique
    scale, offset   per band, if bands differ in them
    mask            (y, x)
```

OME viewers follow `ome`, GDAL and GeoZarr readers `multiscales`, xarray opens each level group.
Opened files, saved indexes, conversions and the server all have this form, which
docs/what-is-where.md shows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anychunk.metadata import cf, geo
from anychunk.metadata.meaning import Axis, Crs, Level, Meaning, Transform, factors
from anychunk.metadata.ome import VARIABLE, ome, scale_and_translation
from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, ByteRanges, Computed, GroupIndex, Json, Node

AXES, BANDS, DISPLAY, GCPS, RPC, SPACE, TAGS, TIME = (
    f"anychunk.{name}"
    for name in ("axes", "bands", "display", "gcps", "rpc", "space", "tags", "time")
)
"""Attributes of an image group that say what no convention of the field has a word for."""
MOST_POSITIONS = 1 << 22
"""Longer axes have no coordinate array: a damaged file may state any size, and the transform says
the same."""


def image_group(meaning: Meaning, levels: Sequence[Level]) -> GroupIndex:
    """Return the group of an image.

    Parameters:
        meaning: what its samples mean.
        levels: its resolutions, full first; their arrays have the axes of `meaning`.
    """
    members = LevelGroups(meaning, tuple(levels))
    return GroupIndex(members=members, attributes=group_attributes(meaning, levels))


def root_group(
    images: Mapping[str, Node], attributes: Mapping[str, Json] | None = None, **fields: Any
) -> GroupIndex:
    """Return the root group of a file whose images are the groups 0, 1 …

    Parameters:
        images: the groups of the images, by name.
        attributes: what the format states about the whole file, under the format's name.
        **fields: further fields of the `GroupIndex`, such as `pins`.
    """
    layout: dict[str, Json] = {}
    if images and all(name.isdigit() for name in images):
        # OME-Zarr 0.5: readers find the images of such a root by their numbers
        layout = {"ome": {"version": "0.5", "bioformats2raw.layout": 3}}
    return GroupIndex(members=images, attributes={**layout, **(attributes or {})}, **fields)


def group_attributes(meaning: Meaning, levels: Sequence[Level]) -> dict[str, Json]:
    """Return the attributes of an image group."""
    full = levels[0].image.shape
    place = place_attributes(meaning, levels[0], full)
    conventions = [geo.convention("multiscales"), *place.pop("zarr_conventions", [])]
    found: dict[str, Json] = {}
    if meaning.is_image:
        found["ome"] = ome(meaning, levels)
    found["multiscales"] = {"layout": _layout(meaning, levels)}
    found |= {"zarr_conventions": conventions, **place}
    return {**found, **own_attributes(meaning), **meaning.native}


def own_attributes(meaning: Meaning) -> dict[str, Json]:
    """Return the attributes that say what no convention of the field has a word for."""
    place, space = meaning.place, meaning.space
    found: dict[str, Json] = {}
    if not meaning.is_image and any(axis.scale is not None for axis in meaning.axes):
        found[AXES] = [axis_json(axis) for axis in meaning.axes]
    if meaning.display is not None:
        found[DISPLAY] = dict(meaning.display)
    bands = [_band_json(meaning, number) for number in range(len(meaning.bands))]
    if any(bands) or "c" in meaning.names:
        # present even if empty: labels and colours of `omero` are then not taken for the file's
        found[BANDS] = bands if any(bands) else []
    if place.gcps:
        found[GCPS] = [list(point) for point in place.gcps]
    if place.rpc is not None:
        found[RPC] = dict(place.rpc)
    if space is not None:
        pairs = {
            "frame": space.frame,
            "unit": space.unit,
            "affine": [list(row) for row in space.affine],
            "measurement_frame": space.measurement_frame
            and [list(row) for row in space.measurement_frame],
        }
        found[SPACE] = {key: value for key, value in pairs.items() if value is not None}
    if meaning.tags:
        found[TAGS] = dict(meaning.tags)
    if meaning.time is not None:
        found[TIME] = meaning.time
    return found


def axis_json(axis: Axis) -> dict[str, Json]:
    """Return an axis of an array that OME-Zarr does not describe."""
    pairs: dict[str, tuple[Any, Any]] = {
        "name": (axis.name, ""),
        "unit": (axis.unit, None),
        "scale": (axis.scale, None),
        "origin": (axis.origin, 0.0),
        "values": (None if axis.values is None else list(axis.values), None),
        "attributes": (dict(axis.attributes), {}),
    }
    return {key: value for key, (value, default) in pairs.items() if value != default}


def _band_json(meaning: Meaning, number: int) -> dict[str, Json]:
    """Return what is known about a band; empty where that is nothing."""
    band = meaning.bands[number]
    pairs: dict[str, tuple[Any, Any]] = {
        "name": (band.name, None),
        "unit": (band.unit, None),
        "scale": (band.scale, 1.0),
        "offset": (band.offset, 0.0),
        "interpretation": (band.interpretation, None),
        "tags": (dict(band.tags), {}),
    }
    return {key: value for key, (value, default) in pairs.items() if value != default}


def _layout(meaning: Meaning, levels: Sequence[Level]) -> list[Json]:
    """Return the entries of GeoZarr's `multiscales`."""
    full = levels[0].image.shape
    found: list[Json] = []
    before = (1.0,) * len(full)
    for number, level in enumerate(levels):
        factor = factors(level, full)
        entry: dict[str, Json] = {"asset": level.name}
        if number:
            entry["derived_from"] = levels[number - 1].name
            entry["transform"] = {
                "scale": [f / b for f, b in zip(factor, before, strict=True)],
                "translation": [0.0] * len(full),
            }
        place = place_attributes(meaning, level, full)
        keys = ("spatial:shape", "spatial:transform")
        found.append(entry | {key: place[key] for key in keys if key in place})
        before = factor
    return found


def level_transform(meaning: Meaning, level: Level, full: Shape) -> Transform | None:
    """Return the affine transform of a level."""
    names, transform = meaning.names, meaning.place.transform
    if transform is None or not {"x", "y"} <= set(names):
        return None
    factor = factors(level, full)
    return geo.rescaled(transform, factor[names.index("x")], factor[names.index("y")])


def place_attributes(meaning: Meaning, level: Level, full: Shape) -> dict[str, Json]:
    """Return the attributes that say where on Earth a level is: those of its group."""
    place, names = meaning.place, meaning.names
    if not {"x", "y"} <= set(names):
        return {}
    shape = (level.image.shape[names.index("y")], level.image.shape[names.index("x")])
    return geo.attributes(
        shape=shape,
        transform=level_transform(meaning, level, full),
        crs=place.crs,
        bbox=place.bbox,
    )


def level_group(meaning: Meaning, level: Level, full: Shape) -> GroupIndex:
    """Return the group of one level: the array, and its coordinates, which are made on demand.

    Parameters:
        meaning: what the samples of the image mean.
        level: the level.
        full: shape of the full resolution.
    """
    makers = coordinate_makers(meaning, level, full)
    known: dict[str, ArrayIndex] = dict(level.beside)
    if level.mask is not None:
        known["mask"] = level.mask
    beside = (*makers, *known)
    attributes = cf.image_attributes(meaning, level.image.data_type, beside=beside)
    image = replace(
        level.image,
        fill_value=fill_value(level.image, meaning.nodata),
        dimension_names=meaning.names,
        attributes={**level.image.attributes, **attributes},
    )
    members = LevelMembers({VARIABLE: image, **known}, makers)
    return GroupIndex(members=members, attributes=place_attributes(meaning, level, full))


def coordinate_makers(
    meaning: Meaning, level: Level, full: Shape
) -> dict[str, Callable[[], ArrayIndex]]:
    """Return functions that make the coordinate arrays of a level, by name."""
    place, names, shape = meaning.place, meaning.names, level.image.shape
    transform = level_transform(meaning, level, full)
    found: dict[str, Callable[[], ArrayIndex]] = {}
    scale, origin = scale_and_translation(meaning, level, full)
    for number, axis in enumerate(meaning.axes):
        is_placed = transform is not None and axis.name in "xy"
        is_short = len(shape) > number and shape[number] <= MOST_POSITIONS
        if axis.name != "c" and not is_placed and is_short and has_positions(axis, shape[number]):
            found[axis.name] = _AxisMaker(axis, shape[number], scale[number], origin[number])
    if transform is not None and not cf.is_rotated(transform):
        sides = {name: shape[names.index(name)] for name in ("y", "x")}
        for name, side in sides.items() if max(sides.values()) <= MOST_POSITIONS else ():
            found[name] = _GridMaker(name, transform, side, place.crs)
    if place.crs is not None or transform is not None:
        found[cf.GRID_MAPPING] = _MappingMaker(place.crs, transform)
    labels = [band.name for band in meaning.bands]
    if "c" in names and labels and all(labels) and len(set(labels)) == len(labels):
        found["c"] = _LabelMaker(tuple(map(str, labels)))
    if "c" in names:
        for name in (cf.SCALE, cf.OFFSET):
            values = tuple(getattr(band, name) for band in meaning.bands)
            if len(set(values)) > 1:
                found[name] = _BandMaker(values)
    return found


def has_positions(axis: Axis, size: int) -> bool:
    """Return whether positions along an axis of a level are known."""
    if axis.values is None:
        return axis.scale is not None
    return len(axis.values) == size  # those that are listed are of the full resolution


# Makers are dataclasses, not closures, so that an index can be pickled and compared.


@dataclass(frozen=True)
class _AxisMaker:
    axis: Any
    size: int
    scale: float
    origin: float

    def __call__(self) -> ArrayIndex:
        return cf.axis_array(self.axis, self.size, scale=self.scale, origin=self.origin)


@dataclass(frozen=True)
class _GridMaker:
    name: str
    transform: Transform
    size: int
    crs: Crs | None

    def __call__(self) -> ArrayIndex:
        return cf.grid_array(self.name, self.transform, self.size, self.crs)


@dataclass(frozen=True)
class _MappingMaker:
    crs: Crs | None
    transform: Transform | None

    def __call__(self) -> ArrayIndex:
        return cf.grid_mapping_array(self.crs, self.transform)


@dataclass(frozen=True)
class _LabelMaker:
    labels: tuple[str, ...]

    def __call__(self) -> ArrayIndex:
        return cf.label_array("c", self.labels)


@dataclass(frozen=True)
class _BandMaker:
    values: tuple[float, ...]

    def __call__(self) -> ArrayIndex:
        return cf.inline_array("c", self.values)


@dataclass(eq=False)
class LevelMembers(Mapping[str, Node]):
    """The arrays of a level group; coordinates are made when they are asked for.

    Opening a file must not cost the time to compress coordinates and to look up a CRS.
    """

    known: dict[str, Any]
    makers: Mapping[str, Callable[[], ArrayIndex]]
    _made: dict[str, ArrayIndex] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> Node:
        found = self.known.get(name) or self._made.get(name)
        if found is None:
            found = self._made[name] = self.makers[name]()
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self.known
        yield from self.makers

    def __len__(self) -> int:
        return len(self.known) + len(self.makers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        return {"known": self.known, "makers": self.makers, "_made": {}}


@dataclass(eq=False)
class LevelGroups(Mapping[str, Node]):
    """The level groups of an image, each made when it is asked for: most readers open one."""

    meaning: Meaning
    levels: tuple[Level, ...]
    _made: dict[str, Node] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> Node:
        if name not in self._made:
            level = next((level for level in self.levels if level.name == name), None)
            if level is None:
                raise KeyError(name)
            self._made[name] = level_group(self.meaning, level, self.levels[0].image.shape)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return (level.name for level in self.levels)

    def __len__(self) -> int:
        return len(self.levels)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        return {"meaning": self.meaning, "levels": self.levels, "_made": {}}


def fill_value(array: ArrayIndex, nodata: float | None) -> Json:
    """Return the fill value of an image array, which is the only nodata that GDAL looks at.

    An array with absent chunks keeps the value that its format gives them: what a pixel reads as
    does not change for a reader's sake.
    """
    if has_absent_chunks(array) or not isinstance(array.data_type, str):
        return array.fill_value
    return fill_of(array.data_type, nodata, array.fill_value)


def fill_of(data_type: Json, nodata: float | None, default: Json) -> Json:
    """Return the fill value that says nodata to GDAL; `default` where the type cannot hold it."""
    is_float = isinstance(data_type, str) and data_type.startswith("float")
    if nodata is None:
        return "NaN" if is_float else default
    if is_float:
        return nodata if np.isfinite(nodata) else _NON_FINITE.get(str(nodata), "NaN")
    return int(nodata) if cf.fits(nodata, data_type) else default


_NON_FINITE = {"inf": "Infinity", "-inf": "-Infinity"}


def has_absent_chunks(array: ArrayIndex) -> bool:
    """Return whether a chunk may be absent and read as the fill value."""
    chunks = array.chunks
    if isinstance(chunks, Computed) and isinstance(chunks.configuration, Mapping):
        return not chunks.configuration.get("is_complete", False)
    return not isinstance(chunks, ByteRanges) or not bool(np.all(chunks.lengths))


def consolidated(group: GroupIndex) -> dict[str, Json]:
    """Return the `zarr.json` of a group with the metadata of everything below it.

    Readers without a list of keys, such as those over HTTP, find the members by it.
    """
    found: dict[str, Json] = {}

    def collect(node: GroupIndex, path: str) -> None:
        for name, member in node.members.items():
            place = f"{path}/{name}" if path else name
            found[place] = member.metadata()
            if isinstance(member, GroupIndex):
                collect(member, place)

    collect(group, "")
    inline = {"kind": "inline", "must_understand": False, "metadata": found}
    return {**group.metadata(), "consolidated_metadata": inline}
