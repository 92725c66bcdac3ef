"""The meaning of samples as fields of a JNRRD header.

Spec: JNRRD 1.0.0 sections 4, 8 and 9. What the format has fields for is written there, for every
reader; the rest as an extension of our own, `anychunk:*`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from anychunk.errors import FormatError
from anychunk.formats._axes import MOST_NATIVE, SHORT_UNITS, known_name
from anychunk.formats.jnrrd import axes
from anychunk.formats.jnrrd.header import Header, make_line
from anychunk.formats.jnrrd.meaning import PREFIX, URI, original
from anychunk.formats.jnrrd.nrrd_text import as_jnrrd
from anychunk.formats.jnrrd.tiling_fields import KNOWN_URI
from anychunk.metadata.exported import exported
from anychunk.metadata.meaning import Axis, Meaning, Space
from anychunk.model.grid import Shape
from anychunk.model.index import Json

SPACES = {
    "RAS": "right_anterior_superior",
    "LAS": "left_anterior_superior",
    "LPS": "left_posterior_superior",
    "scanner-xyz": "scanner_xyz",
    "3D-right-handed": "3D_right_handed",
    "3D-left-handed": "3D_left_handed",
}
"""JNRRD's names of spaces."""
PER_AXIS = ("labels", "kinds", "centers", "thicknesses")
"""Fields of another header that follow their axes."""
MANAGED = {
    *("jnrrd", "type", "dimension", "sizes", "endian", "encoding", "block_size", "extensions"),
    *("data_file", "data_files", "data_file_pattern", "line_skip", "byte_skip", "number"),
    *("space", "space_dimension", "space_directions", "space_origin", "space_units"),
    *("measurement_frame", "spacings", "units", "axis_mins", "axis_maxs", "content"),
    *("sample_units", "old_min", "old_max", "min", "max", "key_values", *PER_AXIS),
}
"""Fields of another header that are written anew, or that its samples no longer need."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """The header lines of a file to write, besides those about its storage."""

    header: Header | Mapping[str, Json]
    order: tuple[int | None, ...] | None = None
    """The axes of the array in the order of the file, slowest first, as `Original.order`; None: as
    they are."""
    is_nrrd: bool = False
    """Whether the fields are those of an NRRD header, in its words."""
    type_name: str | None = None
    """The sample type as that header spells it."""

    def fields(self) -> dict[str, Json]:
        """Return the fields by key."""
        return dict(self.header.fields if isinstance(self.header, Header) else self.header)

    @property
    def tiles(self) -> tuple[str, ...]:
        """The prefixes of the tiling extension, with their colons."""
        declared = self.fields().get("extensions")
        uris = declared if isinstance(declared, Mapping) else {}
        return tuple(f"{p}:" for p, u in uris.items() if KNOWN_URI.fullmatch(str(u)))


def kept_header(
    header: Header | Mapping[str, Json] | None,
    meaning: Meaning | None,
    shape: Shape,
    *,
    keeps_words: bool = False,
    may_add_axes: bool = True,
) -> Described:
    """Return the header lines of a meaning and of the caller, whose lines win.

    Parameters:
        header: The lines that the caller wants, or the header that is kept.
        meaning: What the samples mean, axes in numpy's order.
        shape: Of the array.
        keeps_words: Whether the words of an NRRD header stay as they are: the target is NRRD, too.
        may_add_axes: Whether the file may have an axis of size one that the array does not have.
    """
    if meaning is None:
        return Described(header=header if header is not None else {})
    if len(meaning.axes) != len(shape):
        raise FormatError(f"jnrrd: meaning has {len(meaning.axes)} axes, the array {len(shape)}")
    found = original(meaning, shape)
    if found is None or (None in found.order and not may_add_axes):
        return Described(header=with_fields(header, fields_of(meaning)))
    is_nrrd = found.key == "nrrd" and keeps_words
    made = dict(found.fields) if is_nrrd or found.key == "jnrrd" else as_jnrrd(found.fields)
    own = dict(found.added)
    if native := kept_native(meaning):
        own["native"] = native
    if own:
        made |= {f"{PREFIX}:{key}": value for key, value in own.items()}
        made["extensions"] = {**made.get("extensions", {}), PREFIX: URI}
    spelled = meaning.native["nrrd"].get("type") if is_nrrd else None
    return Described(
        header=with_fields(header, made),
        order=found.order,
        is_nrrd=is_nrrd,
        type_name=spelled if isinstance(spelled, str) else None,
    )


def with_fields(
    header: Header | Mapping[str, Json] | None, made: dict[str, Json]
) -> Header | Mapping[str, Json]:
    """Return the header lines of `made` and of the caller, whose lines win."""
    given = header.fields if isinstance(header, Header) else dict(header or {})
    extensions = {**made.pop("extensions", {}), **given.get("extensions", {})}
    if extensions:
        made["extensions"] = extensions
    if not isinstance(header, Header):
        return {**made, **given, **({"extensions": extensions} if extensions else {})}
    rest = [make_line(k, v) for k, v in made.items() if k == "extensions" or k not in given]
    lines = tuple(line for line in header.lines if line.key.partition(".")[0] != "extensions")
    return Header((*rest, *lines), header.end, header.url)


def fields_of(meaning: Meaning) -> dict[str, Json]:
    """Return the fields of a header that hold a meaning, axes in the file's order."""
    found: dict[str, Json] = {**carried(meaning), **axis_fields(meaning)}
    if meaning.name:
        found["content"] = meaning.name
    units = {band.unit for band in meaning.bands}
    if len(units) == 1 and (unit := units.pop()) is not None:
        found["sample_units"] = unit
    own = exported(meaning)
    if meaning.space is not None:
        found |= space_fields(meaning, meaning.space)
        if meaning.space.frame is None or meaning.space.frame in SPACES:
            own.pop("space", None)
    if native := kept_native(meaning):
        own["native"] = native
    found |= {f"{PREFIX}:{key}": value for key, value in own.items()}
    if own:
        found["extensions"] = {**found.get("extensions", {}), PREFIX: URI}
    return found


def axis_fields(meaning: Meaning) -> dict[str, Json]:
    """Return labels, kinds, and what is known about axes that have no direction."""
    listed = meaning.axes[::-1]
    known = own_axes(meaning)
    found: dict[str, Json] = {
        "labels": [known.get(axis.name, {}).get("labels") or axis.name for axis in listed]
    }
    if meaning.is_image:
        found["kinds"] = [kind_of(meaning, axis, known) for axis in listed]
    for key in ("centers", "thicknesses"):
        values = [known.get(axis.name, {}).get(key) for axis in listed]
        if any(value is not None for value in values):
            found[key] = values
    placed = set() if meaning.space is None else meaning.space.directed
    plain = [axis for axis in listed if axis.name not in placed]
    steps = {axis.name: step_of(meaning, axis) for axis in plain}
    if any(step is not None for step in steps.values()):
        found["spacings"] = [steps.get(axis.name) for axis in listed]
        found["units"] = [
            SHORT_UNITS.get(axis.unit, axis.unit) if axis.unit and axis.name in steps else ""
            for axis in listed
        ]
    origins = {axis.name: axis.origin for axis in plain if axis.origin}
    if origins:
        # a cell begins half a step before its sample
        found["axis_mins"] = [
            origins[axis.name] - (steps[axis.name] or 0.0) / 2 if axis.name in origins else None
            for axis in listed
        ]
        found["centers"] = ["cell" if axis.name in origins else None for axis in listed]
    return found


def kind_of(meaning: Meaning, axis: Axis, known: Mapping[str, Mapping[str, Json]]) -> str:
    """Return the kind of an axis."""
    if axis.name != "c":
        return "time" if axis.name == "t" else "space"
    own = known.get("c", {}).get("kinds")
    if isinstance(own, str):
        return own
    display = meaning.display
    is_rgb = display is not None and display["model"] == "rgb" and display.get("bands") == [0, 1, 2]
    if not is_rgb or display is None:
        return "list"
    return "rgba_color" if display.get("alpha", {}).get("band") == 3 else "rgb_color"


def step_of(meaning: Meaning, axis: Axis) -> float | None:
    """Return the distance of samples: as stated, or that of the georeference."""
    transform = meaning.place.transform
    if axis.scale is not None or transform is None or axis.name not in ("x", "y"):
        return axis.scale
    a, b, _, d, e, _ = transform
    return math.hypot(a, d) if axis.name == "x" else math.hypot(b, e)


def space_fields(meaning: Meaning, space: Space) -> dict[str, Json]:
    """Return the fields of an orientation."""
    has_z = "z" in meaning.names
    is_plane = not has_z and tuple(space.affine[2]) == (0.0, 0.0, 1.0, 0.0)
    side = 2 if is_plane else 3
    columns = {
        name: [space.affine[row][n] for row in range(side)]
        for n, name in enumerate("xyz")
        if name in space.directed
    }
    found: dict[str, Json] = {}
    name = None if space.frame is None or is_plane else SPACES.get(space.frame)
    found |= {"space_dimension": side} if name is None else {"space": name}
    found["space_directions"] = [columns.get(axis.name) for axis in meaning.axes[::-1]]
    found["space_origin"] = [space.affine[row][3] for row in range(side)]
    if space.unit is not None:
        found["space_units"] = [SHORT_UNITS.get(space.unit, space.unit)] * side
    if space.measurement_frame is not None:
        # the field lists the columns of the matrix
        found["measurement_frame"] = [list(c) for c in zip(*space.measurement_frame, strict=True)]
    return found


def own_header(meaning: Meaning) -> Mapping[str, Json]:
    """Return the header of another JNRRD or NRRD file that the samples come from."""
    for key in ("jnrrd", "nrrd"):
        found = meaning.native.get(key)
        if isinstance(found, Mapping):
            return found
    return {}


def own_axes(meaning: Meaning) -> dict[str, dict[str, Json]]:
    """Return what another header says about each axis, by the name of the axis."""
    fields = own_header(meaning)
    sizes = fields.get("sizes")
    ndim = len(sizes) if isinstance(sizes, list) else 0
    found: dict[str, dict[str, Json]] = {}
    for axis, name in enumerate(axes.names(fields, ndim)):
        if name is not None and name in meaning.names:
            found[name] = {key: axes.per_axis(fields, key, ndim)[axis] for key in PER_AXIS}
            label = found[name]["labels"]
            if known_name(label) not in (None, name):
                found[name]["labels"] = None
    return found


def carried(meaning: Meaning) -> dict[str, Json]:
    """Return the fields of another header that this package does not interpret."""
    fields = own_header(meaning)
    extensions = fields.get("extensions")
    declared = extensions if isinstance(extensions, Mapping) else {}
    tiles = {prefix for prefix, uri in declared.items() if "tile" in str(uri)}
    found = {
        key: value
        for key, value in fields.items()
        if key not in MANAGED and key.partition(":")[0] not in tiles
    }
    kept = {prefix: uri for prefix, uri in declared.items() if prefix not in (*tiles, PREFIX)}
    return {**found, "extensions": kept} if kept else found


def kept_native(meaning: Meaning) -> dict[str, Json]:
    """Return the attributes of another format that are kept; none if they are too long."""
    found = {key: v for key, v in meaning.native.items() if key not in ("jnrrd", "nrrd")}
    return found if len(json.dumps(found, default=str)) <= MOST_NATIVE else {}
