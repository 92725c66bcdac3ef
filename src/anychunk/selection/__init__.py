"""Parts of an index: a box on the map, a window of pixels, bands, dates, a level.

A part is described by an index of its own, whose arrays are computed from those of the whole.
Samples are read from the whole, by `Cut`; nothing is copied.
"""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from anychunk.errors import OptionError
from anychunk.io.source import Storage
from anychunk.metadata.hierarchy import has_absent_chunks, image_group
from anychunk.metadata.meaning import (
    Axis,
    Channel,
    Display,
    Level,
    Meaning,
    Place,
    Space,
    Transform,
    factors,
)
from anychunk.metadata.reading import levels_of, meaning_of_level, native_attributes
from anychunk.model import images as im
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, Computed, GroupIndex, Json, Node, find
from anychunk.selection.boxes import rows_and_columns
from anychunk.selection.cuts import Cut, CutArray
from anychunk.selection.wanted import Selection

METHOD = "part"
"""Of `Computed` chunks of a part's arrays."""
MASK = "mask"
PART_OF = "part_of"
"""The attribute of a part that holds what the format says about the whole image."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of an index."""

    source: Node
    """The index of the whole."""
    node: GroupIndex
    """Describes the part; its samples are read by `open_array`."""
    cuts: Mapping[str, Cut]
    """Where the samples of its arrays are in the whole, by path."""
    losses: tuple[str, ...] = ()
    """What the part does not have, one line each."""

    def open_array(self, path: str, *, storage: Storage | None = None) -> "CutArray":
        """Open an array of the part."""
        from anychunk.zarr.array import open_path  # zarr, which a plan does not need

        cut = self.cuts[path]
        return CutArray(open_path(self.source, cut.path, storage=storage), cut)


def part_of(
    node: Node, wanted: Selection, *, image: int | str | None = None, near_levels: bool = False
) -> Part:
    """Return a part of an index.

    Parameters:
        node: The index.
        wanted: What is asked for of each image.
        image: The number or path of the only image; None: all of them.
        near_levels: Whether a part cut by a box or a window keeps coarser levels whose pixels reach
            beyond its edges. By default such a part has one level.

    Raises:
        OptionError: Nothing of an image is selected, or it has no such band, level or date.
    """
    found = list(im.images(node))
    if image is not None:
        found = [im.chosen(found, image)]
    groups: dict[str, GroupIndex] = {}
    cuts: dict[str, Cut] = {}
    losses: list[str] = []
    for one in found:
        groups[one.path] = _cut_image(node, one, wanted, cuts, near_levels=near_levels)
        losses += _left_out(one)
    root = _tree(node, groups)
    about = root.attributes.get("anychunk")
    known = about if isinstance(about, Mapping) else {}
    attributes = root.attributes
    if "" not in groups and (native := native_attributes(attributes)):
        others = {key: value for key, value in attributes.items() if key not in native}
        attributes = {**others, PART_OF: native}
    attributes = {**attributes, "anychunk": {**known, "part": wanted.json()}}
    shown = replace(root, attributes=attributes, pins=node.pins, roots=node.roots)
    return Part(source=node, node=shown, cuts=cuts, losses=tuple(losses))


def selected(node: Node) -> Json:
    """Return what was asked for of an index that is a part; None if it is not one."""
    about = node.attributes.get("anychunk")
    return about.get("part") if isinstance(about, Mapping) else None


def _left_out(image: Image) -> Iterator[str]:
    for path in image.beside:
        if path.rpartition("/")[2] != MASK:
            yield f"{path}: arrays beside an image are not part of a selection"


def _tree(node: Node, groups: Mapping[str, GroupIndex]) -> GroupIndex:
    """Return a hierarchy with these image groups, and the attributes of the groups above them."""
    members: dict[str, dict[str, Node]] = {"": {}}
    attributes: dict[str, dict[str, Json]] = {}
    for path, group in groups.items():
        parts = path.split("/") if path else []
        for depth in range(len(parts) + 1):
            above = "/".join(parts[:depth])
            members.setdefault(above, {})
            around = find(node, above)
            if isinstance(around, GroupIndex):
                attributes.setdefault(above, dict(around.attributes))
        members[path] |= dict(group.members)
        own = attributes.get(path, {}).get("anychunk")
        attributes[path] = {**group.attributes, **({} if own is None else {"anychunk": own})}
    if not isinstance(node, GroupIndex):
        attributes[""]["anychunk"] = node.attributes.get("anychunk", {})
    for path in sorted(members, key=lambda p: -len(p.split("/")) if p else 1):
        if path:
            parent, _, name = path.rpartition("/")
            members[parent][name] = GroupIndex(
                members=members[path], attributes=attributes.get(path, {})
            )
    return GroupIndex(members=members[""], attributes=attributes.get("", {}))


def _cut_image(
    node: Node, image: Image, wanted: Selection, cuts: dict[str, Cut], *, near_levels: bool
) -> GroupIndex:
    """Return the group of a part of an image; where its samples are is added to `cuts`."""
    where = f"image {image.path}".rstrip()
    levels = levels_of(node, image)
    # those that `levels_of` returns: all but levels with other axes than the first
    paths = [p for p in image.levels if _ndim(node, p) == len(image.axes)]
    base = _level_number([level.name for level in levels], wanted.level, where)
    whole = meaning_of_level(node, image, base)
    names, shape, full = whole.names, levels[base].image.shape, levels[0].image.shape
    factor = factors(levels[base], full)
    picks = _picks(whole, shape, wanted, factor, where)
    planes = [n for n, name in enumerate(names) if name in ("y", "x")]
    is_cut = any(len(picks[n]) < shape[n] for n in planes)
    c = names.index("c") if "c" in names and len(names) > 2 else None
    dropped = (c,) if c is not None and len(picks[c]) == 1 else ()
    meaning = _without_axes(cut_meaning(whole, picks, shape), dropped)
    if meaning.native:
        # the format's own words are about the whole
        meaning = replace(meaning, native={PART_OF: {**wanted.json(), **meaning.native}})
    made = []
    for number in range(base, base + 1 if is_cut and not near_levels else len(levels)):
        level = levels[number]
        found = factors(level, full)
        ratio = tuple(f / b for f, b in zip(found, factor, strict=True))
        own = [
            _coarser_run(pick, r, n) if axis in planes and number > base else pick
            for axis, (pick, r, n) in enumerate(zip(picks, ratio, level.image.shape, strict=True))
        ]
        name = str(number - base)
        cut = Cut(path=paths[number], picks=tuple(own), dropped=dropped)
        cuts[im.join(image.path, f"{name}/{im.VARIABLE}")] = cut
        mask = None
        plane = tuple(level.image.shape[n] for n in planes)
        if level.mask is not None and level.mask.shape == plane:
            beside = im.join(paths[number].rpartition("/")[0], MASK)
            mask_cut = Cut(path=beside, picks=tuple(own[n] for n in planes))
            cuts[im.join(image.path, f"{name}/{MASK}")] = mask_cut
            mask = _cut_array(level.mask, mask_cut, ("y", "x"))
        is_stated = level.factor is not None and levels[base].factor is not None
        made.append(
            Level(
                name=name,
                image=_cut_array(level.image, cut, meaning.names),
                factor=_kept(ratio, dropped) if is_stated else None,
                mask=mask,
                **_stated_grid(level, meaning, cut),
            )
        )
    return image_group(meaning, made)


def _without_axes(meaning: Meaning, dropped: Shape) -> Meaning:
    """Return the meaning of an image without its axis c, which has one element."""
    if not dropped:
        return meaning
    return replace(meaning, axes=_kept(meaning.axes, dropped), bands=meaning.bands[:1])


def _kept[T](values: Sequence[T], dropped: Shape) -> tuple[T, ...]:
    return tuple(value for axis, value in enumerate(values) if axis not in dropped)


def _stated_grid(level: Level, meaning: Meaning, cut: Cut) -> dict[str, Any]:
    """Return the positions that the format states for a level, as far as they are still true."""
    is_whole = cut.shape == level.image.shape
    is_scaled = all(axis.scale is not None for axis in meaning.axes if axis.name in "zyx")
    if not is_whole or not is_scaled or level.scale is None:
        return {}
    return {"scale": level.scale, "origin": level.origin}


def _ndim(node: Node, path: str) -> int:
    array = find(node, path)
    return len(array.shape) if isinstance(array, ArrayIndex) else -1


def _cut_array(array: ArrayIndex, cut: Cut, names: Sequence[str]) -> ArrayIndex:
    """Return the description of an array of a part."""
    chunk = _kept(array.chunk_shape, cut.dropped)
    shape = cut.shape
    # chunks of axes that are not cut into runs hold no more than there is
    chunk = tuple(
        min(c, max(n, 1)) if name in ("c", "t") else c
        for c, n, name in zip(chunk, shape, names, strict=True)
    )
    configuration = {"is_complete": not has_absent_chunks(array)}
    return replace(
        array,
        shape=shape,
        chunk_shape=chunk,
        codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
        chunks=Computed(
            source=cut.path,
            method=METHOD,
            configuration=configuration,
            grid=grid_shape(shape, chunk),
        ),
        dimension_names=tuple(names),
    )


def _coarser_run(pick: Sequence[int], ratio: float, size: int) -> range:
    """Return the elements of a coarser level that a run of elements touches."""
    first = min(size - 1, int(pick[0] / ratio))
    return range(first, max(first + 1, min(size, math.ceil((pick[-1] + 1) / ratio))))


def _level_number(names: Sequence[str], level: int | str | None, where: str) -> int:
    """Return the number of a level that is given by number, from the end if negative, or name."""
    if level is None:
        return 0
    if isinstance(level, str) and level in names:
        return names.index(level)
    try:
        number = int(level)
    except ValueError:
        number = len(names)
    if not -len(names) <= number < len(names):
        raise OptionError(f"{where}: no level {level!r}; there are {len(names)}: {' '.join(names)}")
    return number % len(names)


def _picks(
    meaning: Meaning, shape: Shape, wanted: Selection, factor: Sequence[float], where: str
) -> list[Sequence[int]]:
    """Return the elements that are selected along each axis of a level.

    Parameters are those of `rows_and_columns`.
    """
    names = meaning.names
    found: list[Sequence[int]] = [range(n) for n in shape]
    if wanted.bbox is not None or wanted.window is not None:
        rows, columns = rows_and_columns(meaning, shape, wanted, factor, where)
        found[names.index("y")], found[names.index("x")] = rows, columns
    if wanted.bands is not None:
        found = _with_bands(found, meaning, wanted.bands, where)
    if wanted.time is not None:
        if "t" not in names:
            raise OptionError(f"{where}: there is no axis t to choose {wanted.time!r} from")
        t = names.index("t")
        found[t] = times_of(meaning, shape[t], wanted.time, where)
    return found


def _with_bands(
    found: Sequence[Sequence[int]], meaning: Meaning, bands: Sequence[int | str], where: str
) -> list[Sequence[int]]:
    """Return the selected elements with those of the axis c chosen by number or name."""
    names = meaning.names
    count = len(found[names.index("c")]) if "c" in names else 1
    labels = [_label(meaning, number) for number in range(count)]
    chosen: list[int] = []
    for band in bands:
        numbers = _band_numbers(band, labels)
        if len(numbers) != 1:
            known = ", ".join(f"{n} {label or ''}".strip() for n, label in enumerate(labels[:40]))
            which = f"bands {numbers} are called {band!r}" if numbers else f"no band {band!r}"
            raise OptionError(f"{where}: {which}; there are {count}: {known}")
        chosen.append(numbers[0])
    if not chosen:
        raise OptionError(f"{where}: no bands are selected")
    if len(set(chosen)) < len(chosen):
        raise OptionError(f"{where}: a band is selected twice: {' '.join(map(str, bands))}")
    picked = list(found)
    if "c" in names:
        picked[names.index("c")] = tuple(chosen)
    return picked


def _label(meaning: Meaning, number: int) -> str | None:
    """Return the name of a band: its own, or that of its channel."""
    channels = meaning.display.get("channels", []) if meaning.display is not None else []
    labels = [c.get("label") for c in channels if c["band"] == number]
    return meaning.band(number).name or next((label for label in labels if label), None)


def _band_numbers(band: int | str, labels: Sequence[str | None]) -> list[int]:
    """Return the numbers of the bands that a number or a name can mean.

    A text of digits may be both.
    """
    if isinstance(band, int):
        return [band] if 0 <= band < len(labels) else []
    found = [number for number, label in enumerate(labels) if label == band]
    if not found:
        found = [n for n, label in enumerate(labels) if label and label.lower() == band.lower()]
    if band.isdecimal() and len(band) < LONGEST_NUMBER and int(band) < len(labels):
        found = sorted({*found, int(band)})
    return found


LONGEST_NUMBER = 10
"""Digits of a text that may be the number of a band."""


# Elements along t that a number, a range, a date or an interval selects.


def times_of(meaning: Meaning, count: int, wanted: int | str, where: str) -> Sequence[int]:
    """Return the elements along t that a number, a range, a date or an interval selects."""
    axis = next(axis for axis in meaning.axes if axis.name == "t")
    dates = _dates(axis.values, axis.attributes)
    text = str(wanted).strip()
    is_year = dates is not None and re.fullmatch(r"\d{4}", text) and isinstance(wanted, str)
    if (number := re.fullmatch(r"\d+", text)) and not is_year:
        found = range(int(text), int(text) + 1)
    elif number is None and (ends := re.fullmatch(r"(\d*):(\d*)", text)):
        found = range(int(ends[1] or 0), int(ends[2]) if ends[2] else count)
    elif dates is None:
        raise OptionError(f"{where}: t has no dates; choose {wanted!r} by number, such as 0 or 0:3")
    else:
        first, last = interval(text)
        picked = tuple(n for n, date in enumerate(dates[:count]) if first <= date < last)
        if not picked:
            shown = [datetime.fromtimestamp(n, UTC).isoformat() for n in (min(dates), max(dates))]
            raise OptionError(f"{where}: nothing is dated {wanted}; dates are {' to '.join(shown)}")
        return picked
    if found.start >= min(found.stop, count):
        raise OptionError(f"{where}: nothing is at {wanted} along t, which has {count} elements")
    return tuple(range(found.start, min(found.stop, count)))


SECONDS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "sec": 1.0,
    "s": 1.0,
    "minute": 60.0,
    "min": 60.0,
    "hour": 3600.0,
    "hr": 3600.0,
    "h": 3600.0,
    "day": 86400.0,
    "d": 86400.0,
}
"""The units of time that CF has, without months and years, which differ in length."""
CALENDARS = ("standard", "gregorian", "proleptic_gregorian")


def _dates(values: Sequence[float] | None, attributes: Mapping[str, Json]) -> list[float] | None:
    """Return CF times as seconds since 1970; None if they are not dates."""
    found = re.fullmatch(r"\s*(\w+)\s+since\s+(\S.*?)\s*", str(attributes.get("units", "")))
    calendar = attributes.get("calendar", "standard")
    if not values or found is None or calendar not in CALENDARS:
        return None
    unit = SECONDS.get(found[1].lower()) or SECONDS.get(found[1].lower().removesuffix("s"))
    try:
        start = datetime.fromisoformat(found[2])
    except ValueError:
        return None
    if unit is None:
        return None
    epoch = (start if start.tzinfo is not None else start.replace(tzinfo=UTC)).timestamp()
    return [epoch + value * unit for value in values]


def interval(text: str) -> tuple[float, float]:
    """Return when a date, or an interval `FROM/TO`, begins and ends, in seconds since 1970.

    A date stands for all of its year, month, day, hour, minute or second. An interval includes both
    of its dates; `..` or nothing leaves an end open.
    """
    first, slash, last = text.partition("/")
    if not slash:
        return _period(text)
    start = -math.inf if first in ("", "..") else _period(first)[0]
    return start, math.inf if last in ("", "..") else _period(last)[1]


PERIOD = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:\.\d+)?)?)?)?)?)?"
    r"(Z|[+-]\d\d:?\d\d)?"
)


def _period(text: str) -> tuple[float, float]:
    found = PERIOD.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"time {text!r}: expected a date, such as 2026-03 or 2026-03-01T12:30")
    year, month, day, hour, minute, second, zone = found.groups()
    try:
        offset = datetime.fromisoformat(f"2000-01-01T00:00{zone or 'Z'}").tzinfo
        start = datetime(
            int(year),
            int(month or 1),
            int(day or 1),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            tzinfo=offset,
        )
        if month is None:
            end = start.replace(year=start.year + 1)
        elif day is None:
            end = (start + timedelta(days=31)).replace(day=1)
        else:
            end = start + STEPS[sum(n is not None for n in (hour, minute, second))]
    except (ValueError, OverflowError) as e:
        raise OptionError(f"time {text!r}: {e}") from e
    return start.timestamp(), end.timestamp()


STEPS = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1))
"""How long a date is that is given to the day, hour, minute or second."""


# The meaning of a part of an image: positions, bands and colours of the elements that are left.


type Picks = Sequence[Sequence[int]]
"""The elements that are left along each axis, by number."""


def cut_meaning(meaning: Meaning, picks: Picks, sizes: Sequence[int]) -> Meaning:
    """Return what the samples of a part mean.

    Parameters:
        meaning: of the whole image.
        picks: the elements of the part along each axis; those along y and x follow each other.
        sizes: of the whole image.
    """
    names = meaning.names
    first = {name: pick[0] for name, pick in zip(names, picks, strict=True) if name in "xyz"}
    is_cut = any(
        name in "xy" and len(pick) != size
        for name, pick, size in zip(names, picks, sizes, strict=True)
    )
    bands, display = meaning.bands, meaning.display
    if "c" in names:
        chosen = picks[names.index("c")]
        known = [meaning.band(number) for number in chosen]
        bands = tuple(known) if bands else ()
        display = cut_display(display, chosen)
    column, row = first.get("x", 0), first.get("y", 0)
    return replace(
        meaning,
        axes=tuple(cut_axis(axis, pick) for axis, pick in zip(meaning.axes, picks, strict=True)),
        place=cut_place(meaning.place, column, row, is_cut=is_cut),
        bands=bands,
        display=display,
        space=cut_space(meaning.space, first),
    )


def cut_axis(axis: Axis, picks: Sequence[int]) -> Axis:
    """Return an axis with the positions of the elements that are left."""
    if axis.values is not None:
        return replace(axis, values=tuple(axis.values[n] for n in picks if n < len(axis.values)))
    if axis.scale is None or not picks:
        return axis
    steps = {b - a for a, b in itertools.pairwise(picks)} or {1}
    origin = axis.origin + axis.scale * picks[0]
    if len(steps) == 1 and (step := steps.pop()) > 0:
        return replace(axis, scale=axis.scale * step, origin=origin)
    values = tuple(axis.origin + axis.scale * number for number in picks)
    return replace(axis, scale=None, origin=0.0, values=values)


def cut_place(place: Place, column: int, row: int, *, is_cut: bool) -> Place:
    """Return the place of a part whose first pixel is at (column, row) of the whole."""
    if not is_cut:
        return place
    transform = None if place.transform is None else moved(place.transform, column, row)
    rpc = place.rpc
    if rpc is not None:
        offsets = {"line_off": row, "samp_off": column}
        rpc = {key: _less(value, offsets.get(key, 0)) for key, value in rpc.items()}
    return replace(
        place,
        transform=transform,
        bbox=None,  # of the whole, and nothing says how pixels lie in it
        gcps=tuple((c - column, r - row, *ground) for c, r, *ground in place.gcps),  # type: ignore[misc]
        rpc=rpc,
    )


def _less(value: Json, offset: int) -> Json:
    return value - offset if offset and isinstance(value, int | float) else value


def moved(transform: Transform, column: int, row: int) -> Transform:
    """Return the transform of a part whose first pixel is at (column, row) of the whole."""
    a, b, c, d, e, f = transform
    return a, b, c + a * column + b * row, d, e, f + d * column + e * row


def cut_space(space: Space | None, first: Mapping[str, int]) -> Space | None:
    """Return the orientation of a part whose first element is at `first`, by axis."""
    if space is None:
        return None
    at = [first.get(name, 0) for name in "xyz"]
    rows = [
        (*row[:3], row[3] + sum(value * n for value, n in zip(row[:3], at, strict=True)))
        for row in space.affine[:3]
    ]
    return replace(space, affine=(*rows, tuple(space.affine[3])))


def cut_display(display: Display | None, chosen: Sequence[int]) -> Display | None:
    """Return how a part with these bands is drawn.

    An image that lost a band of its colours is drawn in grey if one band is left, and otherwise by
    the defaults of images that state nothing.
    """
    if display is None:
        return None
    if list(chosen) == list(range(len(chosen))) and _fits(display, len(chosen)):
        return display
    place = {band: number for number, band in reversed(list(enumerate(chosen)))}
    found = cast("dict[str, Json]", dict(display))
    shown = display.get("bands", [])
    ranges = display.get("range") or []
    if len(ranges) > 1:
        # one per band that is shown, or one per band of the image
        order = shown if len(ranges) == len(shown) else range(len(ranges))
        found["range"] = [pair for band, pair in zip(order, ranges, strict=True) if band in place]
    if "channels" in display:
        listed = {channel["band"]: channel for channel in display["channels"]}
        found["channels"] = [
            Channel(**{**listed[band], "band": number})
            for number, band in enumerate(chosen)
            if band in listed
        ]
    alpha = display.get("alpha")
    if alpha is not None:
        found.pop("alpha")
        if alpha["band"] in place:
            found["alpha"] = {**alpha, "band": place[alpha["band"]]}
    if all(band in place for band in shown):
        if shown:
            found["bands"] = [place[band] for band in shown]
        return cast("Display", found)
    if len(chosen) == 1 and display["model"] in ("rgb", "grey", "channels"):
        found |= {"model": "grey", "bands": [0]}
        found.pop("alpha", None)
        return cast("Display", found)
    return None


def _fits(display: Display, count: int) -> bool:
    """Return whether a display refers only to the first `count` bands."""
    used = [*display.get("bands", []), *(c["band"] for c in display.get("channels", []))]
    if "alpha" in display:
        used.append(display["alpha"]["band"])
    return max(used, default=0) < count and len(display.get("range") or []) <= max(count, 1)
