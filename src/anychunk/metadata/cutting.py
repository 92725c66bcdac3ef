"""The meaning of a part of an image: positions, bands and colours of the elements that are left."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from anychunk.metadata.meaning import Axis, Channel, Display, Meaning, Place, Space, Transform
from anychunk.model.index import Json

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
