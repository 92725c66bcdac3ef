"""What the samples of a volume mean: the fields of a header in the words of `metadata.meaning`.

Spec: JNRRD 1.0.0 sections 8 and 9; NRRD format sections 4 to 6.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from anychunk.errors import AnychunkError
from anychunk.formats._axes import image_axes, ome_unit, pick, transposed, without_axis
from anychunk.formats.jnrrd import axes
from anychunk.formats.jnrrd.header import without_nan
from anychunk.formats.jnrrd.tiling_fields import KNOWN_URI
from anychunk.formats.jnrrd.tiling_fields import Level as TileLevel
from anychunk.formats.jnrrd.volume import Volume, read_volume
from anychunk.metadata import drawing
from anychunk.metadata.exported import exported, imported
from anychunk.metadata.meaning import Axis, Band, Channel, Display, Level, Meaning, Space
from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, Json

PREFIX = "anychunk"
URI = "https://github.com/anychunk/anychunk/blob/main/docs/formats/jnrrd.md"
"""The extension that holds what JNRRD has no fields for."""
TOGETHER = "fields"
"""The only field of that extension in NRRD, which holds all others."""
FRAMES = {
    "right-anterior-superior": "RAS",
    "left-anterior-superior": "LAS",
    "left-posterior-superior": "LPS",
    "right-anterior-superior-time": "RAS",
    "left-anterior-superior-time": "LAS",
    "left-posterior-superior-time": "LPS",
    "rast": "RAS",
    "last": "LAS",
    "lpst": "LPS",
    "ras": "RAS",
    "las": "LAS",
    "lps": "LPS",
    "scanner-xyz": "scanner-xyz",
    "scanner-xyz-time": "scanner-xyz",
    "3d-right-handed": "3D-right-handed",
    "3d-right-handed-time": "3D-right-handed",
    "3d-left-handed": "3D-left-handed",
    "3d-left-handed-time": "3D-left-handed",
}
"""Names of spaces: short ones of those of patients, NRRD's spelling of the others."""
COLORS = ("rgb-color", "rgba-color", "3-color", "4-color")


def image_of(
    fields: Mapping[str, Json],
    volume: Volume,
    levels: Sequence[TileLevel],
    arrays: Mapping[str, ArrayIndex],
    *,
    key: str,
) -> tuple[Meaning, list[Level]]:
    """Return the image of a volume.

    Parameters:
        fields: The header.
        volume: The samples.
        levels: All levels, full resolution first.
        arrays: Their arrays by number, slowest axis first.
        key: The name of the format, "jnrrd" or "nrrd".
    """
    known = axes.names(with_extensions(fields), len(volume.sizes))
    shown, stored = without_single_band(known, volume, arrays)
    meaning, order = described(fields, volume, shown, key=key)
    found = []
    for level in levels:
        factor = [float(level.scale[axis]) for axis in shown] + [1.0] * len(volume.trailing)
        image = transposed(stored[str(level.number)], order)
        found.append(Level(name=str(level.number), image=image, factor=pick(factor, order)))
    own = {k.removeprefix(f"{PREFIX}:"): v for k, v in fields.items() if is_own(k)}
    together = own.pop(TOGETHER, None)
    if isinstance(together, Mapping):
        own = {**together, **own}
    return imported(meaning, own), found


def described(
    fields: Mapping[str, Json], volume: Volume, shown: Sequence[int], *, key: str
) -> tuple[Meaning, Shape]:
    """Return what the format's own fields mean, and the order of the axes of the image.

    Parameters:
        fields: The header.
        volume: The samples.
        shown: The axes of the file that the image has, slowest first.
        key: The name of the format, "jnrrd" or "nrrd".

    Returns:
        The meaning; and for each axis of the image its number in `shown`.
    """
    ndim = len(volume.sizes)
    stated = fields
    fields = with_extensions(stated)
    known = axes.names(fields, ndim)
    same = tuple(range(ndim + len(volume.trailing)))
    # bytes without a numeric meaning are not an image
    names, order = (
        (tuple(f"dim_{n}" for n in same), same)
        if volume.trailing
        else image_axes([known[axis] for axis in shown])
    )
    where = axes.placed(fields, volume.sizes)
    listed = []
    for name, number in zip(names, order, strict=True):
        place = where[shown[number]] if number < len(shown) else axes.Placed()
        listed.append(
            Axis(name=name)
            if name == "c"
            else Axis(name=name, unit=place.unit, scale=place.scale, origin=place.origin)
        )
    meaning = Meaning(
        axes=tuple(listed),
        bands=bands(fields, volume, names),
        display=display(fields, volume, names),
        space=space(fields, ndim),
        name=_text(fields.get("content")),
        tags=tags(fields),
        native={key: without_nan(native(stated), infinities=True)},
    )
    return meaning, order


def without_single_band(
    known: Sequence[str | None], volume: Volume, arrays: Mapping[str, ArrayIndex]
) -> tuple[list[int], dict[str, ArrayIndex]]:
    """Return the axes of the file that are shown, slowest first, and the arrays that have them.

    An axis of one channel is left out, unless the codecs of the arrays depend on it.
    """
    ndim = len(volume.sizes)
    shown = list(reversed(range(ndim)))
    if known.count("c") == 1 and ndim > 2 and not volume.trailing:
        band = known.index("c")
        fewer = {name: without_axis(array, ndim - 1 - band) for name, array in arrays.items()}
        found = {name: array for name, array in fewer.items() if array is not None}
        if len(found) == len(arrays):
            return [axis for axis in shown if axis != band], found
    return shown, dict(arrays)


def is_own(key: str) -> bool:
    """Return whether a field is of our own extension."""
    return key.startswith(f"{PREFIX}:")


def native(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of the header that are the format's own."""
    return {key: value for key, value in fields.items() if not is_own(key)}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def tags(fields: Mapping[str, Json]) -> dict[str, str]:
    """Return key/value pairs."""
    pairs = fields.get("key_values")
    found = pairs if isinstance(pairs, dict) else {}
    return {str(key): value for key, value in found.items() if isinstance(value, str)}


def bands(fields: Mapping[str, Json], volume: Volume, names: tuple[str, ...]) -> tuple[Band, ...]:
    """Return the unit of samples, and the values that quantised samples stand for."""
    unit = ome_unit(fields.get("sample_units"))
    scale, offset = quantisation(fields, volume)
    known = axes.names(fields, len(volume.sizes))
    count = volume.sizes[known.index("c")] if "c" in names else 1
    titles = [_text(channel.get("name")) or None for channel in ome_channels(fields)[:count]]
    if unit is None and (scale, offset) == (1.0, 0.0) and not any(titles):
        return ()
    band = Band(unit=unit, scale=scale, offset=offset)
    named = [replace(band, name=title) for title in titles]
    return (*named, *(band,) * (count - len(named)))


def quantisation(fields: Mapping[str, Json], volume: Volume) -> tuple[float, float]:
    """Return scale and offset of `old min` and `old max`, which quantised integers were made from.

    NRRD: the range is divided into as many equal parts as the type has values, and `old min` is the
    lower end of the first, not its middle.
    """
    low, high = fields.get("old_min"), fields.get("old_max")
    if volume.type == "block" or volume.dtype.kind not in "iu" or volume.dtype.itemsize > 4:
        return 1.0, 0.0
    if low is None or high is None or not axes.is_number(low) or not axes.is_number(high):
        return 1.0, 0.0
    if low == high:
        return 1.0, 0.0
    bounds = np.iinfo(volume.dtype)
    scale = (high - low) / (int(bounds.max) - int(bounds.min) + 1)
    return scale, low + scale * (0.5 - int(bounds.min))


def display(fields: Mapping[str, Json], volume: Volume, names: tuple[str, ...]) -> Display | None:
    """Return how an axis of colours, or of channels with colours, is drawn."""
    ndim = len(volume.sizes)
    if "c" in names and (listed := channels(fields, volume)):
        return {"model": "channels", "channels": listed}
    found = zip(axes.kinds(fields, ndim), volume.sizes, strict=True)
    kind, size = next(((k, n) for k, n in found if k in COLORS), ("", 0))
    if "c" not in names or size not in (3, 4) or volume.dtype.kind == "c":
        return None
    shown = drawing.rgb(limits=drawing.limits_of(volume.data_type))
    if kind == "rgba-color" and size == 4:
        return drawing.with_alpha(shown, 3, limits=drawing.full_range(volume.data_type))
    return shown if kind in ("rgb-color", "rgba-color") or size == 3 else None


def channels(fields: Mapping[str, Json], volume: Volume) -> list[Channel]:
    """Return the channels of the OME extension, if they are those of the volume."""
    listed = ome_channels(fields)
    known = axes.names(fields, len(volume.sizes))
    if not listed or len(listed) != volume.sizes[known.index("c")]:
        return []
    found = []
    for number, entry in enumerate(listed):
        channel: Channel = {"band": number}
        if label := _text(entry.get("name")):
            channel["label"] = label
        if re.fullmatch(r"#[0-9A-Fa-f]{6}", color := _text(entry.get("color"))):
            channel["color"] = color[1:].upper()
        found.append(channel)
    return found


def space(fields: Mapping[str, Json], ndim: int) -> Space | None:
    """Return the orientation of the volume; None if no axis has a direction."""
    known = axes.names(fields, ndim)
    directions = [axes.vector(d) for d in axes.per_axis(fields, "space_directions", ndim)]
    columns = {
        name: direction
        for name, direction in zip(known, directions, strict=True)
        if name in ("x", "y", "z") and direction is not None
    }
    sides = {len(direction) for direction in columns.values()}
    if len(sides) != 1 or not sides <= {2, 3, 4}:
        return None
    side = min(*sides, 3)
    origin = axes.numbers(fields.get("space_origin")) or []
    affine = [[0.0] * 4 for _ in range(4)]
    affine[3][3] = 1.0
    if side == 2 and "z" not in columns:
        affine[2][2] = 1.0  # a plane has no third axis
    for row in range(side):
        for column, name in enumerate("xyz"):
            if name in columns:
                affine[row][column] = columns[name][row]
        if len(origin) in sides:
            affine[row][3] = origin[row]
    units = fields.get("space_units")
    listed = {ome_unit(u) for u in units[:side]} if isinstance(units, list) else set()
    return Space(
        affine=tuple(map(tuple, affine)),
        frame=frame(fields.get("space")),
        unit=listed.pop() if len(listed) == 1 else None,
        measurement_frame=measurement_frame(fields.get("measurement_frame")),
    )


def frame(value: Json) -> str | None:
    """Return the name of a space as `FRAMES` has it; another name as it is."""
    if not isinstance(value, str) or not value.strip():
        return None
    return FRAMES.get(value.strip().lower().replace("_", "-"), value.strip())


def measurement_frame(value: Json) -> tuple[tuple[float, ...], ...] | None:
    """Return the matrix from measured vectors to the space; the field lists its columns."""
    columns = [axes.numbers(v) for v in value] if isinstance(value, list) else []
    if len(columns) not in (3, 4) or any(c is None or len(c) != len(columns) for c in columns):
        return None
    return tuple(tuple(c[row] for c in columns[:3] if c is not None) for row in range(3))


# The header of the NRRD or JNRRD file that samples come from, for a file that is written from it.
#
# A reader shows axes in the order of OME-Zarr and reads fields as meaning. Where the samples and
# their meaning are still those of a header, a writer puts the axes back into the header's order and
# keeps its fields one by one, so that nothing is lost, renamed or invented.
#
# Spec: NRRD format section 1.5: an optional field that was never specified must not be invented.


STORAGE = {
    *("jnrrd", "type", "dimension", "sizes", "endian", "encoding", "block_size", "number"),
    *("data_file", "data_files", "data_file_pattern", "line_skip", "byte_skip"),
}
"""Fields that say how samples are stored; a writer has its own."""


@dataclass(frozen=True, kw_only=True)
class Original:
    """A header that still describes the samples."""

    key: str
    """Its format, "nrrd" or "jnrrd"."""
    fields: Mapping[str, Json]
    """Without those about storage and tiles; `extensions` without that of tiles."""
    order: tuple[int | None, ...]
    """For each axis of the file, slowest first, the axis of the array; None for an axis of size one
    that the array does not have."""
    added: Mapping[str, Json]
    """What is known besides, by the names of our own extension."""


def original(meaning: Meaning, shape: Shape) -> Original | None:
    """Return the header that an array comes from; None if there is none, or it no longer fits.

    Parameters:
        meaning: What the samples mean.
        shape: Of the array; its axes are those of `meaning`.
    """
    for key in ("nrrd", "jnrrd"):
        fields = meaning.native.get(key)
        if isinstance(fields, Mapping):
            try:
                return _matching(key, fields, meaning, shape)
            except AnychunkError:
                return None  # of a store that anyone may have written
    return None


def _matching(
    key: str, fields: Mapping[str, Json], meaning: Meaning, shape: Shape
) -> Original | None:
    volume = read_volume({"endian": "little", **fields}, key, is_tiled=True)
    ndim = len(volume.sizes)
    if volume.trailing:
        return None
    known = axes.names(with_extensions(fields), ndim)
    shown = list(reversed(range(ndim)))
    if len(shape) == ndim - 1 and known.count("c") == 1:
        shown.remove(known.index("c"))
    if len(shape) != len(shown):
        return None
    found, order = described(fields, volume, shown, key=key)
    if tuple(volume.sizes[shown[number]] for number in order) != shape:
        return None
    if not is_same_place(found, meaning):
        return None
    place = {shown[number]: axis for axis, number in enumerate(order)}
    full: list[int | None] = [place.get(axis) for axis in reversed(range(ndim))]
    if any(
        axis is None and volume.sizes[ndim - 1 - number] != 1 for number, axis in enumerate(full)
    ):
        return None
    own = {k.removeprefix(f"{PREFIX}:"): v for k, v in fields.items() if is_own(k)}
    stated = exported(imported(found, own))
    added = {k: v for k, v in exported(meaning).items() if k not in stated or stated[k] != v}
    return Original(
        key=key,
        fields=described_only(fields),
        order=tuple(full),
        added={**own, **added},
    )


def described_only(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a header that describe samples, not how they are stored."""
    declared = fields.get("extensions")
    uris = declared if isinstance(declared, Mapping) else {}
    dropped = {p for p, uri in uris.items() if isinstance(uri, str) and KNOWN_URI.fullmatch(uri)}
    dropped.add(PREFIX)
    kept = {
        key: value
        for key, value in fields.items()
        if key not in STORAGE and (":" not in key or key.partition(":")[0] not in dropped)
    }
    if isinstance(declared, Mapping):
        kept["extensions"] = {p: uri for p, uri in uris.items() if p not in dropped}
    return {key: value for key, value in kept.items() if key != "extensions" or value}


def is_same_place(found: Meaning, meaning: Meaning) -> bool:
    """Return whether two images have the same axes, positions and orientation."""
    if found.names != meaning.names:
        return False
    has_transform = meaning.place.transform is not None
    pairs = zip(found.axes, meaning.axes, strict=True)
    return all(_same_axis(a, b, has_transform) for a, b in pairs) and _same_space(
        found.space, meaning.space
    )


def _same_axis(found: Axis, other: Axis, has_transform: bool) -> bool:
    if has_transform and other.name in ("x", "y"):
        return True  # a georeference has the positions
    if other.values is not None:
        return False
    return (
        found.unit == other.unit
        and _close(found.scale or 1.0, other.scale or 1.0)
        and _close(found.origin, other.origin)
    )


def _same_space(found: Space | None, other: Space | None) -> bool:
    if found is None or other is None:
        return found is other
    flat = [value for row in found.affine for value in row]
    rest = [value for row in other.affine for value in row]
    return (
        len(flat) == len(rest)
        and all(map(_close, flat, rest))
        and replace(found, affine=()) == replace(other, affine=())
    )


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


# What the OME and transforms extensions say about axes, as the core fields of a header.
#
# Spec: JNRRD OME Extension 1.0.0 sections 4.1 and 4.2; JNRRD Transforms Extension 1.0.0 sections
# 2
# to 4.
#
# Core fields decide: an extension only adds what they leave open. Of transformations, those from
# the
# array to another system are read that are a matrix: identity, scale, translation, affine, and
# sequences of these.

OME = re.compile(r"https?://jnrrd\.org/extensions/ome/v1\.\d+\.\d+/?")
TRANSFORMS = re.compile(r"https?://jnrrd\.org/extensions/transforms?/v1\.\d+\.\d+/?")
KINDS = {"X": "space", "Y": "space", "Z": "space", "C": "list", "T": "time"}
TYPES = {"space": "space", "time": "time", "channel": "list"}
MOST_NESTED = 4

type Matrix = npt.NDArray[np.float64]


def with_extensions(fields: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the fields of a header, completed by what its extensions say about the axes."""
    declared = fields.get("extensions")
    sizes = fields.get("sizes")
    if not isinstance(declared, Mapping) or not isinstance(sizes, list):
        return fields
    found: dict[str, Json] = {}
    for prefix, uri in declared.items():
        if not isinstance(uri, str):
            continue
        if OME.fullmatch(uri):
            found |= ome_fields(fields.get(f"{prefix}:dimensions"), len(sizes))
        elif TRANSFORMS.fullmatch(uri):
            found |= transform_fields(
                fields.get(f"{prefix}:coordinateSystems"),
                fields.get(f"{prefix}:transformations"),
                len(sizes),
            )
    if {"spacings", "space_directions", "axis_mins"} & fields.keys():
        places = ("spacings", "units", "axis_mins", "space_directions", "space_origin")
        found = {k: v for k, v in found.items() if k not in (*places, "space_units")}
        found.pop("space_dimension", None)
    if {"space", "space_dimension"} & fields.keys():
        found.pop("space_dimension", None)
    if {"labels", "kinds"} & fields.keys():
        found = {k: v for k, v in found.items() if k not in ("labels", "kinds")}
    return {**found, **fields}


def ome_channels(fields: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return the channels that the OME extension lists; empty if it does not."""
    declared = fields.get("extensions")
    for prefix, uri in (declared if isinstance(declared, Mapping) else {}).items():
        listed = fields.get(f"{prefix}:channels")
        if isinstance(uri, str) and OME.fullmatch(uri) and isinstance(listed, list):
            return [entry for entry in listed if isinstance(entry, Mapping)]
    return []


def ome_fields(dimensions: Json, ndim: int) -> dict[str, Json]:
    """Return labels, kinds, spacings and units of `ome:dimensions`; `order` begins with axis 0."""
    order = dimensions.get("order") if isinstance(dimensions, Mapping) else None
    if not isinstance(order, str) or len(order) != ndim or len(set(order)) != ndim:
        return {}
    if not set(order) <= KINDS.keys() or not isinstance(dimensions, Mapping):
        return {}
    sizes = dimensions.get("physical_sizes")
    stated = [sizes.get(name) if isinstance(sizes, Mapping) else None for name in order]
    known = [entry if isinstance(entry, Mapping) else {} for entry in stated]
    steps = [entry.get("value") if axes.is_number(entry.get("value")) else None for entry in known]
    units = [entry.get("unit") if isinstance(entry.get("unit"), str) else "" for entry in known]
    found: dict[str, Json] = {
        "labels": [name.lower() for name in order],
        "kinds": [KINDS[name] for name in order],
    }
    if any(step is not None for step in steps):
        found |= {"spacings": steps, "units": units}
    return found


def transform_fields(systems: Json, transformations: Json, ndim: int) -> dict[str, Json]:
    """Return the fields of the first transformation from the array that is a matrix."""
    for entry in transformations if isinstance(transformations, list) else []:
        if not isinstance(entry, Mapping) or entry.get("input", "array") != "array":
            continue
        matrix = matrix_of(entry, ndim)
        if matrix is None:
            continue
        return placed(matrix, axes_of(systems, entry.get("output"), ndim), ndim)
    return {}


def axes_of(systems: Json, name: Json, ndim: int) -> list[Mapping[str, Json]]:
    """Return the axes of a coordinate system; empty if it is not defined, or has others."""
    for system in systems if isinstance(systems, list) else []:
        if isinstance(system, Mapping) and system.get("name") == name:
            listed = system.get("axes")
            if isinstance(listed, list) and all(isinstance(axis, Mapping) for axis in listed):
                return list(listed) if len(listed) == ndim else []
    return []


def matrix_of(entry: Mapping[str, Json], ndim: int, depth: int = 0) -> Matrix | None:
    """Return a transformation as a matrix of homogeneous coordinates; None if it is not one."""
    match entry.get("type"):
        case "identity":
            return np.eye(ndim + 1)
        case "scale":
            return scaled(axes.numbers(entry.get("scale")), ndim)
        case "translation":
            return translated(axes.numbers(entry.get("translation")), ndim)
        case "affine":
            return affine(entry.get("affine"), ndim)
        case "sequence" if depth < MOST_NESTED:
            return in_sequence(entry.get("transformations"), ndim, depth)
    return None


def scaled(values: list[float] | None, ndim: int) -> Matrix | None:
    if values is None or len(values) != ndim or not all(values):
        return None
    return np.diag([*values, 1.0])


def translated(values: list[float] | None, ndim: int) -> Matrix | None:
    if values is None or len(values) != ndim:
        return None
    found = np.eye(ndim + 1)
    found[:ndim, ndim] = values
    return found


def affine(rows: Json, ndim: int) -> Matrix | None:
    read = [axes.numbers(row) for row in rows] if isinstance(rows, list) else []
    if len(read) != ndim or any(row is None or len(row) != ndim + 1 for row in read):
        return None
    return np.array([*read, [0.0] * ndim + [1.0]], np.float64)


def in_sequence(steps: Json, ndim: int, depth: int) -> Matrix | None:
    found: Matrix = np.eye(ndim + 1)
    for step in steps if isinstance(steps, list) else [None]:
        matrix = matrix_of(step, ndim, depth + 1) if isinstance(step, Mapping) else None
        if matrix is None:
            return None
        found = matrix @ found
    return found


def placed(matrix: Matrix, described: Sequence[Mapping[str, Json]], ndim: int) -> dict[str, Json]:
    """Return the fields of a matrix whose rows are the axes of the output system."""
    linear, origin = matrix[:ndim, :ndim], matrix[:ndim, ndim]
    kinds = [TYPES.get(str(axis.get("type")), "space") for axis in described] or ["space"] * ndim
    units = [u if isinstance(u := axis.get("unit"), str) else "" for axis in described]
    is_diagonal = bool((linear == np.diag(np.diag(linear))).all())
    found: dict[str, Json] = {}
    if set(kinds) == {"space"} and ndim in (2, 3):
        found |= {
            "space_dimension": ndim,
            "space_directions": linear.T.tolist(),
            "space_origin": origin.tolist(),
        }
        if units:
            found["space_units"] = units
    elif is_diagonal:
        found |= {"spacings": np.diag(linear).tolist(), "axis_mins": origin.tolist()}
        if units:
            found["units"] = units
    else:
        return {}
    if described and is_diagonal:
        # axis i of the array is axis i of the system
        found |= {"labels": [axis.get("name") for axis in described], "kinds": kinds}
    return found
