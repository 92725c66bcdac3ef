"""The meaning of several images as one: what all share, and what a longer or new axis changes.

Combined files and appended indexes are described by this, so that both describe them alike.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from anychunk.errors import FormatError
from anychunk.metadata import dates as dates_of
from anychunk.metadata.comparison import (
    common_json,
    common_place,
    is_same,
    is_same_field,
    is_same_place,
    place_text,
)
from anychunk.metadata.meaning import NAMES, Axis, Band, Meaning, Place
from anychunk.model.grid import Shape
from anychunk.model.index import Json

SYNONYMS = {"time": "t", "band": "c", "channel": "c"}
"""Further names of the axes that files may be stacked along."""
STACKED = ("t", "z", "c")
"""Axes that files may be stacked along; the first is the default."""
TOLERANCE = 1e-3
"""How many pixels a file may be off the end of the one before: the rounding error of positions."""
MOST_PLACES = 5
"""How many places a message lists."""


_collected: ContextVar[list[str] | None] = ContextVar("collected warnings", default=None)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of this module in a list, each once, instead of showing them.

    A worker sends them to the process that the user looks at.
    """
    found: list[str] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def warn(message: str) -> None:
    """Warn about what combining drops."""
    found = _collected.get()
    if found is None:
        warnings.warn(message, stacklevel=7)
    elif message not in found:
        found.append(message)


def stack_axis(names: Sequence[str | None], along: str | None) -> str:
    """Return the name of the new axis of a stack.

    Parameters:
        names: the axes of the images.
        along: what the caller asked for. By default t, or z if the images have t already.

    Raises:
        ValueError: images have no such axis.
        FormatError: these images have it already.
    """
    if along is None:
        free = [name for name in ("t", "z") if name not in names]
        if not free:
            raise FormatError(f"the axes are {_listed(names)}: there is none left to stack along")
        return free[0]
    name = SYNONYMS.get(along, along)
    if name not in STACKED:
        raise ValueError(
            f"along is {along!r}, expected one of {' '.join(STACKED)} ({' '.join(SYNONYMS)})"
        )
    if name in names:
        raise FormatError(
            f"there is already an axis {name!r} among {_listed(names)}; choose another with along="
        )
    return name


def _listed(names: Sequence[str | None]) -> str:
    return " ".join(str(name) for name in names)


def stack_position(names: Sequence[str | None], axis: str) -> int:
    """Return where a new axis goes: in the order of images, or in front of data of another kind."""
    if not all(name in NAMES for name in names):
        return 0
    return sum(NAMES.index(str(name)) < NAMES.index(axis) for name in names)


def check_one_place(places: Mapping[str, Place], *, where: str) -> None:
    """Refuse to stack images that do not cover the same pixels of one map.

    Parameters:
        places: one per file, by its name in messages.
        where: names the image.

    Raises:
        FormatError: there are several places; the message lists the first file at each.
    """
    found: dict[str, Place] = {}
    for name, place in places.items():
        if not any(is_same_place(place, other) for other in found.values()):
            found[name] = place
        if len(found) > MOST_PLACES:
            break
    if len(found) > 1:
        listed = [f"{name} ({place_text(place)})" for name, place in found.items()]
        more = " and others" if len(found) > MOST_PLACES else ""
        raise FormatError(
            f"{where}: files of a stack are at different places, expected one: "
            f"{', '.join(listed[:MOST_PLACES])}{more}; pass georeference='drop' to stack them "
            "without a georeference"
        )


def stacked(
    meanings: Sequence[Meaning],
    axis: str,
    *,
    where: str,
    dates: Sequence[int | None] | None = None,
) -> Meaning:
    """Return the meaning of images stacked on a new axis.

    Parameters:
        meanings: one per file.
        axis: the name of the new axis.
        where: names the image in warnings.
        dates: one per file, for an axis t; None: what the files state.
    """
    found = common(meanings, where=where)
    axes = list(found.axes)
    if axis == "t" and dates is None:
        dates = [dates_of.from_text(meaning.time) for meaning in meanings]
    new = _dated_axis(dates, where) if axis == "t" and dates is not None else Axis(name=axis)
    axes.insert(stack_position(found.names, axis), new)
    bands = found.bands
    if axis == "c":
        bands = tuple(meaning.band(0) for meaning in meanings)
        bands = bands if any(band != Band() for band in bands) else ()
    return replace(found, axes=tuple(axes), bands=bands, time=None if axis == "t" else found.time)


def _dated_axis(dates: Sequence[int | None], where: str) -> Axis:
    """Return the axis t with dates if all files have one, or else an axis without positions."""
    values = tuple(number for number in dates if number is not None)
    if values and len(values) == len(dates):
        return Axis(name="t", values=values, attributes=dates_of.attributes())
    if values:
        warn(_UNDATED.format(where))
    return Axis(name="t")


_UNDATED = "{}: some files have no date; t has no coordinate; pass dates= to give dates"


def concatenated(
    meanings: Sequence[Meaning], axis: int, shapes: Sequence[Shape], *, where: str
) -> Meaning:
    """Return the meaning of images joined along an axis.

    Parameters:
        meanings: one per file.
        axis: the number of the axis.
        shapes: the shapes of the full resolutions.
        where: names the image in warnings.
    """
    first = meanings[0]
    name, sizes = first.axes[axis].name, [shape[axis] for shape in shapes]
    if name in "xy":
        # each file but the first lies further on, which is no difference
        meanings = [_moved_back(m, first, name, sum(sizes[:i])) for i, m in enumerate(meanings)]
    found = common(meanings, where=where, skipped=axis)
    axes = list(found.axes)
    axes[axis] = _longer_axis([meaning.axes[axis] for meaning in meanings], sizes, where)
    bands = found.bands
    if name == "c":
        listed = [m.band(n) for m, size in zip(meanings, sizes, strict=True) for n in range(size)]
        bands = tuple(listed) if any(band != Band() for band in listed) else ()
    return replace(found, axes=tuple(axes), bands=bands)


def _moved_back(meaning: Meaning, first: Meaning, name: str, pixels: int) -> Meaning:
    """Return the meaning with its place moved back by as many pixels as lie before it.

    A transform that is then that of the first file, but for rounding, is replaced by it.
    """
    transform, wanted = meaning.place.transform, first.place.transform
    if transform is None or wanted is None or not pixels:
        return meaning
    a, b, c, d, e, f = transform
    across, down = (a, d) if name == "x" else (b, e)
    moved = (a, b, c - across * pixels, d, e, f - down * pixels)
    size = max(map(abs, (a, b, d, e)))
    is_close = max(abs(moved[2] - wanted[2]), abs(moved[5] - wanted[5])) <= TOLERANCE * size
    if is_close and is_same([a, b, d, e], [wanted[n] for n in (0, 1, 3, 4)]):
        moved = wanted
    return replace(meaning, place=replace(meaning.place, transform=moved))


def _longer_axis(axes: Sequence[Axis], sizes: Sequence[int], where: str) -> Axis:
    """Return an axis that continues from file to file, with positions of its own if it jumps."""
    first = axes[0]
    if any(axis.unit != first.unit for axis in axes):
        return Axis(name=first.name)
    if any(axis.values is not None for axis in axes):
        return _joined_values(axes, where)
    if first.scale is None or not all(is_same(axis.scale, first.scale) for axis in axes):
        return replace(first, scale=None, origin=0.0, values=None)
    # files that all state the same origin do not say where they lie in the whole
    if all(is_same(axis.origin, first.origin) for axis in axes):
        return first
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    off = [
        abs(axis.origin - first.origin - first.scale * start)
        for axis, start in zip(axes, starts, strict=True)
    ]
    if max(off) <= TOLERANCE * abs(first.scale):
        return first
    values = tuple(
        axis.origin + first.scale * number
        for axis, size in zip(axes, sizes, strict=True)
        for number in range(size)
    )
    return replace(first, values=values, scale=None, origin=0.0)


def _joined_values(axes: Sequence[Axis], where: str) -> Axis:
    """Return an axis with the values of all files; without, if some have none."""
    first = axes[0]
    stated = [axis.values for axis in axes if axis.values is not None]
    # dates count from a day that the attributes name
    is_same_kind = all(axis.attributes == first.attributes for axis in axes)
    if len(stated) == len(axes) and is_same_kind:
        joined = tuple(value for values in stated for value in values)
        return replace(first, values=joined, scale=None, origin=0.0)
    if first.name == "t":
        warn(_UNDATED.format(where))
    return Axis(name=first.name, unit=first.unit)


def common(meanings: Sequence[Meaning], *, where: str, skipped: int | None = None) -> Meaning:
    """Return what several images share; what differs is dropped, places with a warning.

    Parameters:
        meanings: one per file; their samples mean the same (`comparison.sample_differences`).
        where: names the image in warnings.
        skipped: the number of an axis that is not compared.
    """
    first = meanings[0]
    if len(meanings) == 1:
        return first
    place = common_place([meaning.place for meaning in meanings])
    if place != first.place and any(meaning.place != Place() for meaning in meanings):
        warn(f"{where}: files are georeferenced differently; the georeference is dropped")
    axes = [
        axis if number == skipped or _is_same_axis(meanings, number) else Axis(name=axis.name)
        for number, axis in enumerate(first.axes)
    ]
    if axes != list(first.axes):
        warn(f"{where}: files have pixels of different sizes; the sizes are dropped")
    return replace(
        first,
        axes=tuple(axes),
        place=place,
        bands=tuple(_common_band(meanings, number) for number in range(len(first.bands))),
        space=first.space if is_same_field(meanings, "space") else None,
        name=first.name if is_same_field(meanings, "name") else "",
        time=first.time if is_same_field(meanings, "time") else None,
        tags=common_json([dict(meaning.tags) for meaning in meanings]),
        native=common_json([dict(meaning.native) for meaning in meanings]),
    )


def _is_same_axis(meanings: Sequence[Meaning], number: int) -> bool:
    def stated(meaning: Meaning) -> Json:
        axis = meaning.axes[number]
        return [axis.name, axis.unit, axis.scale, axis.origin, axis.values]

    return all(is_same(stated(meaning), stated(meanings[0])) for meaning in meanings)


def _common_band(meanings: Sequence[Meaning], number: int) -> Band:
    bands = [meaning.band(number) for meaning in meanings]
    first = bands[0]
    names, colours = ({getattr(b, key) for b in bands} for key in ("name", "interpretation"))
    return replace(
        first,
        name=first.name if len(names) == 1 else None,
        interpretation=first.interpretation if len(colours) == 1 else None,
        tags=common_json([dict(band.tags) for band in bands]),
    )
