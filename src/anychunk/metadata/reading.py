"""Read the meaning of an image back from attributes and coordinates.

From our own hierarchy, and from OME-Zarr, GeoZarr and CF stores of other writers. Attributes are
untrusted JSON: whatever does not have the expected type is ignored.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from anychunk.metadata import cf
from anychunk.metadata.hierarchy import (
    AXES,
    BANDS,
    DISPLAY,
    GCPS,
    RPC,
    SPACE,
    TAGS,
    TIME,
    level_transform,
)
from anychunk.metadata.meaning import (
    Axis,
    Band,
    Channel,
    Crs,
    Display,
    Level,
    Meaning,
    Place,
    Space,
    Transform,
    factors,
)
from anychunk.metadata.ome import scale_and_translation
from anychunk.model import images as im
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node, find

OURS = (
    AXES,
    BANDS,
    DISPLAY,
    GCPS,
    RPC,
    SPACE,
    TAGS,
    TIME,
    "ome",
    "omero",
    "multiscales",
    "zarr_conventions",
    "anychunk",
)
SYNONYMS = {"band": "c", "bands": "c", "channel": "c", "time": "t"}
"""Names that other writers give to axes of ours."""
IMAGE_LABEL = "image-label"
"""The attribute that makes an OME-Zarr image one of labels, and of a DataArray as JSON text."""
MODELS = ("grey", "rgb", "cmyk", "ycbcr", "palette", "channels")


def meaning_of(node: Node, image: Image) -> Meaning:
    """Return what the samples of an image mean.

    Parameters:
        node: the index.
        image: one of its images.
    """
    attributes = image.attributes
    first = find(node, image.levels[0])
    own = first.attributes if isinstance(first, ArrayIndex) else {}
    around = _around(node, image.levels[0])
    return Meaning(
        axes=_axes(image, around),
        place=_place(attributes, own, around),
        nodata=cf.read_nodata(own),
        bands=_bands(image, own, around, first),
        display=_display(attributes.get(DISPLAY)) or _omero_display(attributes),
        space=_space(attributes.get(SPACE)),
        name=_text(im.multiscale(attributes).get("name")) or "",
        time=_text(attributes.get(TIME)),
        tags=_texts(attributes.get(TAGS)),
        native=native_attributes(attributes) if image.path != image.levels[0] else {},
    )


def meaning_of_level(node: Node, image: Image, number: int) -> Meaning:
    """Return what the samples of one level mean, as if it were an image of its own.

    Parameters:
        node: the index.
        image: one of its images.
        number: which of its levels.
    """
    meaning = meaning_of(node, image)
    if number == 0:
        return meaning
    levels = levels_of(node, image)
    full, level = levels[0].image.shape, levels[number]
    factor = factors(level, full)
    scale, origin = scale_and_translation(meaning, level, full)
    place, space = meaning.place, meaning.space
    if space is not None:
        steps = [factor[meaning.names.index(n)] if n in meaning.names else 1.0 for n in "xyz"]
        space = replace(space, affine=_coarser(space.affine, steps))
    return replace(
        meaning,
        axes=tuple(
            axis if axis.scale is None else replace(axis, scale=scale[n], origin=origin[n])
            for n, axis in enumerate(meaning.axes)
        ),
        place=replace(
            _coarser_place(
                place, *(dict(zip(meaning.names, factor, strict=True)).get(n, 1.0) for n in "xy")
            ),
            transform=level_transform(meaning, level, full),
        ),
        space=space,
    )


def _coarser_place(place: Place, across: float, down: float) -> Place:
    """Return control points and coefficients in the pixels of a coarser level.

    Points count from the corner of the first pixel, the offsets of coefficients from its centre.
    """
    rpc = place.rpc
    if rpc is not None:
        rpc = dict(rpc)
        for name, factor in (("line", down), ("samp", across)):
            offset, size = rpc.get(f"{name}_off"), rpc.get(f"{name}_scale")
            if isinstance(offset, int | float) and isinstance(size, int | float):
                rpc |= {
                    f"{name}_off": (offset + 0.5) / factor - 0.5,
                    f"{name}_scale": size / factor,
                }
    gcps = tuple((c / across, r / down, x, y, z) for c, r, x, y, z in place.gcps)
    return replace(place, gcps=gcps, rpc=rpc)


def _coarser(
    affine: tuple[tuple[float, ...], ...], steps: list[float]
) -> tuple[tuple[float, ...], ...]:
    """Return the affine of a level; its first sample is in the middle of those that it covers."""
    found = []
    for row in affine[:3]:
        shift = sum(value * (step - 1) / 2 for value, step in zip(row, steps, strict=False))
        found.append((*(v * s for v, s in zip(row, steps, strict=False)), row[3] + shift))
    return (*found, tuple(affine[3]))


def levels_of(node: Node, image: Image) -> list[Level]:
    """Return the levels of an image with their arrays, masks and true factors."""
    described = im.multiscale(image.attributes)
    base, _ = im.transformation(described, image.below(0), len(image.axes))
    found = []
    for number, path in enumerate(image.levels):
        array = find(node, path)
        if not isinstance(array, ArrayIndex) or len(array.shape) != len(image.axes):
            continue
        scale, translation = im.transformation(described, image.below(number), len(image.axes))
        around = _around(node, path)
        mask = around.members.get("mask") if around is not None else None
        is_stated = bool(described) and all(base) and (number == 0 or scale != base)
        found.append(
            Level(
                name=image.level_names[number],
                image=replace(array, attributes=_without_cf(array.attributes)),
                factor=tuple(s / b for s, b in zip(scale, base, strict=True))
                if is_stated
                else None,
                scale=scale if is_stated else None,
                origin=translation if is_stated else None,
                mask=mask if isinstance(mask, ArrayIndex) else None,
            )
        )
    return found


def _without_cf(attributes: Mapping[str, Json]) -> dict[str, Json]:
    """Return the attributes of an array without those that the writer derives from the meaning."""
    return {key: value for key, value in attributes.items() if key not in cf.NAMES}


def _around(node: Node, path: str) -> GroupIndex | None:
    """Return the group that holds an array, if that is a level group."""
    folder, _, _ = path.rpartition("/")
    found = find(node, folder) if path else None
    return found if isinstance(found, GroupIndex) else None


def _axes(image: Image, around: GroupIndex | None) -> tuple[Axis, ...]:
    described = im.multiscale(image.attributes)
    listed = im.entries(image.attributes.get(AXES))
    if not described and [a.get("name") for a in listed if isinstance(a, Mapping)] == [
        *image.names
    ]:
        return tuple(_own_axis(axis) for axis in listed)
    space = _space(image.attributes.get(SPACE))
    directed = set() if space is None else space.directed
    found = []
    for axis, scale, origin in zip(image.axes, image.scale, image.translation, strict=True):
        unit = axis.get("unit")
        # a scale of 1 without a unit is what OME-Zarr requires where nothing is known
        is_stated = bool(described) and (scale != 1 or origin != 0 or unit is not None)
        is_stated = is_stated and axis["name"] != "c"
        is_placed = axis["name"] in "xy" and "spatial:transform" in image.attributes
        if is_placed and unit is None:
            is_stated = False  # the step of the georeference, which `place` has
        values, described_by = (
            (None, {}) if is_stated or is_placed else _values(axis["name"], around)
        )
        if values and values == tuple(range(len(values))) and not described_by:
            # a scale of 1 that was stated: there would be no coordinate otherwise
            is_stated, values = True, None
        elif values is None and not is_placed and around is not None:
            # likewise, in a store whose coordinates are not read: the orientation has the step
            is_stated |= axis["name"] in directed and axis["name"] in around.members
        found.append(
            Axis(
                name=SYNONYMS.get(axis["name"], axis["name"]),
                unit=unit if isinstance(unit, str) else None,
                scale=scale if is_stated else None,
                origin=origin if is_stated else 0.0,
                values=values,
                attributes=described_by,
            )
        )
    return tuple(found)


def _own_axis(axis: Mapping[str, Json]) -> Axis:
    scale = _number(axis.get("scale"), 0.0)
    values = im.entries(axis.get("values"))
    attributes = axis.get("attributes")
    return Axis(
        name=axis["name"],
        unit=_text(axis.get("unit")),
        scale=scale if scale and math.isfinite(scale) else None,
        origin=_number(axis.get("origin"), 0.0),
        values=numbers(values, len(values)) if values else None,
        attributes=attributes if isinstance(attributes, Mapping) else {},
    )


def own_meaning(attributes: Mapping[str, Json]) -> Meaning:
    """Return what attributes of ours say, apart from the axes."""
    points = [numbers(point, 5) for point in im.entries(attributes.get(GCPS))]
    rpc = attributes.get(RPC)
    return Meaning(
        axes=(),
        place=Place(
            gcps=tuple(point for point in points if point),  # type: ignore[misc]
            rpc=rpc if isinstance(rpc, Mapping) else None,
        ),
        bands=tuple(_band(entry) for entry in im.entries(attributes.get(BANDS))),
        display=_display(attributes.get(DISPLAY)),
        space=_space(attributes.get(SPACE)),
        time=_text(attributes.get(TIME)),
        tags=_texts(attributes.get(TAGS)),
    )


def transform_of(value: Json) -> Transform | None:
    """Return six numbers as a transform; None if they are not."""
    return _transform(numbers(value, 6))


def _values(
    name: str, around: GroupIndex | None
) -> tuple[tuple[float, ...] | None, Mapping[str, Json]]:
    """Return the positions along an axis that the index itself holds, and their attributes."""
    array = around.members.get(name) if around is not None and name != "c" else None
    if not isinstance(array, ArrayIndex) or array.dimension_names != (name,):
        return None, {}
    values = cf.inline_values(array)
    attributes = {k: v for k, v in array.attributes.items() if k != "axis"}
    return (values, attributes) if values is not None else (None, {})


def _place(
    attributes: Mapping[str, Json], own: Mapping[str, Json], around: GroupIndex | None
) -> Place:
    """Return the place of an image: GeoZarr's attributes, or else the CF grid mapping."""
    beside = around.attributes if around is not None else {}
    for holder in (attributes, beside, own):
        transform, crs = numbers(holder.get("spatial:transform"), 6), crs_of(holder)
        bbox = numbers(holder.get("spatial:bbox"), 4)
        if transform or crs or bbox:
            break
    else:
        transform, crs, bbox = _grid_mapping(own, around)
    return replace(
        own_meaning(attributes).place,
        crs=crs,
        transform=_transform(transform),
        bbox=bbox if transform is None else None,  # type: ignore[arg-type]
    )


def crs_of(attributes: Mapping[str, Json]) -> Crs | None:
    """Return the CRS that GeoZarr's `proj` attributes name."""
    import json

    code, wkt = _text(attributes.get("proj:code")), _text(attributes.get("proj:wkt2"))
    described = attributes.get("proj:projjson")
    if code is None and wkt is None and isinstance(described, Mapping):
        wkt = json.dumps(described)
    return None if code is None and wkt is None else Crs(code=code, wkt=wkt)


def _grid_mapping(
    own: Mapping[str, Json], around: GroupIndex | None
) -> tuple[Any, Crs | None, None]:
    name = _text(own.get("grid_mapping"))
    variable = around.members.get(name) if around is not None and name else None
    found = variable.attributes if isinstance(variable, ArrayIndex) else {}
    wkt = _text(found.get("crs_wkt")) or _text(found.get("spatial_ref"))
    transform = None
    if (text := _text(found.get("GeoTransform"))) is not None:
        try:
            c, a, b, f, d, e = (float(part) for part in text.split())
        except ValueError:
            pass
        else:
            transform = (a, b, c, d, e, f)
    return transform, Crs(wkt=wkt) if wkt else None, None


def _transform(numbers: tuple[float, ...] | None) -> Transform | None:
    if numbers is None:
        return None
    a, b, c, d, e, f = numbers
    return a, b, c, d, e, f


def _bands(
    image: Image, own: Mapping[str, Json], around: GroupIndex | None, first: Node | None
) -> tuple[Band, ...]:
    """Return the bands: ours, or else the channels of `omero` and what CF says about all bands."""
    if not isinstance(first, ArrayIndex):
        return ()
    names = image.names
    count = first.shape[names.index("c")] if "c" in names else 1
    if BANDS in image.attributes:
        return tuple(_band(entry) for entry in im.entries(image.attributes[BANDS])[:count])
    scale, offset = _number(own.get("scale_factor"), 1.0), _number(own.get("add_offset"), 0.0)
    unit, title = _text(own.get("units")), _text(own.get("long_name"))
    colours = own.get("COLOR_INTERPRETATION")
    colours = [colours] if isinstance(colours, str) else im.entries(colours)
    # a channel without a name is labelled with its number
    labels = [
        None if label == str(n) else label
        for n, label in enumerate(channel_labels(image.attributes))
    ]
    if (scale, offset) == (1.0, 0.0) and not (unit or title or any(labels) or colours):
        return ()
    return tuple(
        Band(
            name=labels[n] if n < len(labels) else (title if count == 1 else None),
            unit=unit,
            scale=scale,
            offset=offset,
            interpretation=_text(colours[n]) if n < len(colours) else None,
        )
        for n in range(count)
    )


def _band(entry: Json) -> Band:
    if not isinstance(entry, Mapping):
        return Band()
    return Band(
        name=_text(entry.get("name")),
        unit=_text(entry.get("unit")),
        scale=_number(entry.get("scale"), 1.0),
        offset=_number(entry.get("offset"), 0.0),
        interpretation=_text(entry.get("interpretation")),
        tags=_texts(entry.get("tags")),
    )


def _channels(attributes: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return `omero.channels` of OME-Zarr 0.5, or of 0.4, where it is not below `ome`."""
    ome = attributes.get("ome")
    omero = ome.get("omero") if isinstance(ome, Mapping) else attributes.get("omero")
    channels = im.entries(omero.get("channels")) if isinstance(omero, Mapping) else ()
    return [channel if isinstance(channel, Mapping) else {} for channel in channels]


def channel_labels(attributes: Mapping[str, Json]) -> list[str | None]:
    """Return the labels of `omero.channels`, None for a channel without one."""
    return [_text(channel.get("label")) for channel in _channels(attributes)]


def image_label(attributes: Mapping[str, Json]) -> Json | None:
    """Return OME-Zarr's `image-label`, None if samples are not numbers of objects."""
    ome = attributes.get("ome")
    stated = (ome if isinstance(ome, Mapping) else attributes).get(IMAGE_LABEL)
    return stated if isinstance(stated, Mapping) else None


def _omero_display(attributes: Mapping[str, Json]) -> Display | None:
    """Return how the channels of another writer's OME-Zarr are drawn."""
    if BANDS in attributes:
        return None
    channels: list[Channel] = []
    for band, described in enumerate(_channels(attributes)):
        channel = Channel(band=band)
        if (label := _text(described.get("label"))) is not None:
            channel["label"] = label
        color = _text(described.get("color"))
        if color is not None and re.fullmatch(r"[0-9A-Fa-f]{6}", color):
            channel["color"] = color.upper()
        window = described.get("window")
        if isinstance(window, Mapping):
            limits = numbers([window.get("start"), window.get("end")], 2)
            if limits is not None:
                channel["window"] = list(limits)
        for key in ("active", "inverted"):
            if isinstance(described.get(key), bool):
                channel[key] = described[key]
        channels.append(channel)
    return Display(model="channels", channels=channels) if channels else None


def _display(value: Json) -> Display | None:
    if not isinstance(value, Mapping) or value.get("model") not in MODELS:
        return None
    checks: dict[str, Any] = {
        "model": _text,
        "bands": _band_numbers,
        "range": lambda found: [list(pair) for e in im.entries(found) if (pair := numbers(e, 2))],
        "inverted": lambda found: found if isinstance(found, bool) else None,
        "palette": _palette,
        "alpha": _alpha,
        "mask": lambda found: dict(found) if isinstance(found, Mapping) else None,
        "orientation": lambda found: found if _is_integer(found, 1, 8) else None,
        "channels": lambda found: [c for e in im.entries(found) if (c := _channel(e))],
    }
    found = {key: check(value[key]) for key, check in checks.items() if key in value}
    return cast("Display", {key: v for key, v in found.items() if v is not None and v != []})


def _is_integer(value: Json, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _band_numbers(value: Json) -> list[int] | None:
    found = im.entries(value)
    return list(found) if all(_is_integer(n, 0, 1 << 31) for n in found) else None


def _palette(value: Json) -> dict[str, Json] | None:
    colors = im.entries(value.get("colors")) if isinstance(value, Mapping) else ()
    listed = [numbers(color, 4) for color in colors]
    if not listed or None in listed:
        return None
    first = value.get("first")
    return {
        "first": first if _is_integer(first, -(1 << 63), 1 << 63) else 0,
        "colors": [[int(part) for part in color] for color in listed if color],
    }


def _alpha(value: Json) -> dict[str, Json] | None:
    if not isinstance(value, Mapping) or not _is_integer(value.get("band"), 0, 1 << 31):
        return None
    limits = numbers(value.get("range"), 2)
    if limits is None:
        return None
    return {
        "band": value["band"],
        "associated": value.get("associated") is True,
        "range": list(limits),
    }


def _channel(value: Json) -> Channel | None:
    if not isinstance(value, Mapping) or not _is_integer(value.get("band"), 0, 1 << 31):
        return None
    found = Channel(band=value["band"])
    if (label := _text(value.get("label"))) is not None:
        found["label"] = label
    color = _text(value.get("color"))
    if color is not None and re.fullmatch("[0-9A-Fa-f]{6}", color):
        found["color"] = color.upper()
    if (window := numbers(value.get("window"), 2)) is not None:
        found["window"] = list(window)
    for key in ("active", "inverted"):
        if isinstance(value.get(key), bool):
            found[key] = value[key]
    return found


def _space(value: Json) -> Space | None:
    if not isinstance(value, Mapping):
        return None
    affine = _matrix(value.get("affine"), 4)
    if affine is None:
        return None
    return Space(
        affine=affine,
        frame=_text(value.get("frame")),
        unit=_text(value.get("unit")),
        measurement_frame=_matrix(value.get("measurement_frame"), 3),
    )


def _matrix(value: Json, side: int) -> tuple[tuple[float, ...], ...] | None:
    rows = [numbers(row, side) for row in im.entries(value)]
    return tuple(row for row in rows if row) if len(rows) == side and all(rows) else None


def native_attributes(attributes: Mapping[str, Json]) -> dict[str, Json]:
    """Return the attributes that belong to a format: all that no convention defines."""
    return {
        key: value
        for key, value in attributes.items()
        if key not in OURS and not key.startswith(("proj:", "spatial:"))
    }


def numbers(value: Json, count: int) -> tuple[float, ...] | None:
    """Return `count` finite numbers; None if the value is anything else."""
    found = im.entries(value)
    if len(found) != count or not all(
        isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in found
    ):
        return None
    return tuple(float(n) for n in found)


def _number(value: Json, default: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else default


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: Json) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {str(key): text for key, text in value.items() if isinstance(text, str)}
