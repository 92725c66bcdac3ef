"""Parts of an index: a box on the map, a window of pixels, bands, dates, a level.

A part is described by an index of its own, whose arrays are computed from those of the whole.
Samples are read from the whole, by `Cut`; nothing is copied.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anychunk.errors import OptionError
from anychunk.io.source import Storage
from anychunk.metadata.cutting import cut_meaning
from anychunk.metadata.hierarchy import has_absent_chunks, image_group
from anychunk.metadata.meaning import Level, Meaning, factors
from anychunk.metadata.reading import levels_of, meaning_of_level, native_attributes
from anychunk.model import images as im
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, Computed, GroupIndex, Json, Node, find
from anychunk.selection.boxes import rows_and_columns
from anychunk.selection.cuts import Cut, CutArray
from anychunk.selection.dates import times_of
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
        from anychunk.read.zarr_array import open_path  # zarr, which a plan does not need

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
