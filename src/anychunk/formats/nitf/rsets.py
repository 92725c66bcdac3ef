"""Parsed files, and R-sets: reduced resolutions of an image in sibling files, .r1, .r2 …

Each R-set is half as large as the one before.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from anychunk.errors import AnychunkError
from anychunk.io.block_cache import buffered
from anychunk.io.inside import resolve
from anychunk.io.opening import open_beside
from anychunk.io.source import Source
from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import Level, Meaning
from anychunk.model.index import ArrayIndex, GroupIndex, Json
from anychunk.model.pin import Pin

MAX_LEVELS = 16
"""Maximum number of levels, including full resolution."""


@dataclass(frozen=True, kw_only=True)
class ParsedImage:
    """One image: what it means and its levels; neither if it is refused."""

    meaning: Meaning | None = None
    levels: tuple[Level, ...] = ()
    native: Mapping[str, Json] = field(default_factory=dict)
    """Attributes of a refused image."""

    def group(self) -> GroupIndex:
        """Return the group of the image."""
        if self.meaning is None:
            return GroupIndex(members={}, attributes=dict(self.native))
        return image_group(self.meaning, self.levels)


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """The images of a file."""

    images: Mapping[str, ParsedImage]
    attributes: Mapping[str, Json]
    """What the file header states."""
    pins: Mapping[str, Pin] = field(default_factory=dict)

    def group(self) -> GroupIndex:
        """Return the root group of the file."""
        images = {name: image.group() for name, image in self.images.items()}
        return root_group(images, self.attributes, pins=dict(self.pins))


def with_rsets(parsed: Parsed, main: Source, parse: Callable[[Source], Parsed]) -> Parsed:
    """Add the R-set files next to a file as levels of its image.

    Files with several images, or whose image has several levels already, are returned unchanged.

    Parameters:
        parsed: the file.
        main: source of the file; `.r1` … are appended to its url, or replace its `.r0`.
        parse: parses one file.
    """
    full = only_array(parsed)
    if full is None:
        return parsed
    base = main.url.removesuffix(".r0")
    arrays, pins = [full], dict(parsed.pins)
    for number in range(1, MAX_LEVELS):
        found = sibling(f"{base}.r{number}", parse, main)
        if found is None or not is_next_level(found[0], arrays[-1]):
            break
        arrays.append(found[0])
        pins.update(found[1])
    levels = (rset_level(number, array) for number, array in enumerate(arrays))
    image = replace(parsed.images["0"], levels=tuple(levels))
    return replace(parsed, images={"0": image}, pins=pins)


def rset_level(number: int, array: ArrayIndex) -> Level:
    """Return an R-set as a level; its pixels are 2**n as wide, whatever sizes are rounded to."""
    factor = float(1 << number)
    lead = (1.0,) * (len(array.shape) - 2)
    return Level(name=str(number), image=array, factor=(*lead, factor, factor))


def only_array(parsed: Parsed) -> ArrayIndex | None:
    """Return the array of a file with one image of one level; None for any other file."""
    image = parsed.images.get("0")
    if len(parsed.images) != 1 or image is None or len(image.levels) != 1:
        return None
    return image.levels[0].image


def sibling(
    url: str, parse: Callable[[Source], Parsed], main: Source
) -> tuple[ArrayIndex, dict[str, Pin]] | None:
    """Return the array and pin of a file beside `main`; None if it is missing or unreadable."""
    try:
        folder, _, name = url.rpartition("/")
        resolve(folder or ".", name)  # raises for a link that leads out of the folder
        source = open_beside(main, url)
        array = only_array(parse(buffered(source)))
    except (FileNotFoundError, AnychunkError):
        return None
    return None if array is None else (array, {url: source.pin()})


def is_next_level(array: ArrayIndex, before: ArrayIndex) -> bool:
    """Return whether `array` has the bands and type of `before`, and half its size."""
    if (array.data_type, array.shape[:-2]) != (before.data_type, before.shape[:-2]):
        return False
    # writers round odd sizes up or down
    return all(
        abs(2 * small - large) <= 2
        for small, large in zip(array.shape[-2:], before.shape[-2:], strict=True)
    )
