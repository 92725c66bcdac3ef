"""Side files, as GDAL reads them: `.aux.xml`, world files, `.ovr` and `.msk` beside an image.

| file | is |
|---|---|
| `a.tif.aux.xml` | place, nodata, scales, names, colours, texts: replaces what the image states |
| `a.tfw`, `a.tifw`, `a.wld` | a transform, if nothing else states one; never a CRS |
| `a.tif.ovr` | coarser levels, if the image has none |
| `a.tif.msk` | masks, if the image has none |

They are looked for beside local files. A remote file needs requests for that, so the caller has to
ask for it. A side file that cannot be read does not prevent the image from opening; a link that
leads out of the folder is not followed. Both are reported.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from anychunk import formats, limits
from anychunk.errors import AnychunkError
from anychunk.io.block_cache import buffered
from anychunk.io.file import FileSource, PreadSource
from anychunk.io.inside import resolve
from anychunk.io.opening import open_beside
from anychunk.io.source import Source, is_remote
from anychunk.metadata import drawing, pam
from anychunk.metadata.meaning import Level, Meaning, Transform
from anychunk.metadata.ome import scale_and_translation
from anychunk.metadata.pam import Pam
from anychunk.metadata.reading import levels_of
from anychunk.model.images import images
from anychunk.model.index import ArrayIndex
from anychunk.model.pin import Pin


@dataclass(frozen=True, kw_only=True)
class SideFiles:
    """What the side files of an image hold."""

    pam: Pam | None = None
    world: Transform | None = None
    levels: tuple[ArrayIndex, ...] = ()
    masks: tuple[ArrayIndex, ...] = ()
    pins: Mapping[str, Pin] = field(default_factory=dict)
    """Of the files that were read, for the root of the index."""
    refused: tuple[AnychunkError, ...] = ()
    """Why others were not."""


NONE = SideFiles()


def side_files(source: Source, *, sidecars: bool | None = None) -> SideFiles:
    """Return what lies beside an image.

    Parameters:
        source: the image.
        sidecars: whether to look for side files; None: if it is a local file.
    """
    is_file = isinstance(source, FileSource | PreadSource)
    if sidecars is False or (sidecars is None and not is_file):
        return NONE
    described, coarser, valid = (f"{source.url}{end}" for end in (".aux.xml", ".ovr", ".msk"))
    worlds = tuple(world_urls(source.url))
    if is_file and not any(map(os.path.lexists, (described, coarser, valid, *worlds))):
        return NONE  # by far the most common case
    finder = _Finder(source)
    found_pam = finder.use(finder.first(described), lambda s: pam.read_pam(_whole(s), s.url))
    world = finder.use(finder.first(*worlds), lambda s: pam.world_transform(_whole(s)))
    levels = finder.use(finder.first(coarser), _tiff_arrays)
    masks = finder.use(finder.first(valid), _tiff_arrays)
    return SideFiles(
        pam=found_pam,
        world=world,
        levels=tuple(levels or ()),
        masks=tuple(as_mask(array) for array in masks or ()),
        pins=finder.pins,
        refused=tuple(finder.refused),
    )


def world_urls(url: str) -> Iterator[str]:
    """Yield the urls that the world file of an image may have."""
    stem, dot, extension = url.rpartition(".")
    if not dot or "/" in extension or not extension:
        return
    short = extension[0] + extension[-1] + "w"
    names = (short.lower(), f"{extension.lower()}w", "wld")
    for name in names:
        yield f"{stem}.{name}"
    if extension.isupper():
        for name in names:
            yield f"{stem}.{name.upper()}"


class _Finder:
    """Opens side files, and notes which were read and which were refused."""

    def __init__(self, source: Source) -> None:
        self._folder = source.url.rpartition("/")[0] or "."
        self._is_remote = is_remote(source.url)
        self._source = source
        self.pins: dict[str, Pin] = {}
        self.refused: list[AnychunkError] = []

    def first(self, *urls: str) -> Source | None:
        """Open the first of these files that exists."""
        for url in urls:
            if not self._is_remote and not os.path.lexists(url):
                continue
            try:
                resolve(self._folder, url.rpartition("/")[2])  # refuses links out of the folder
                source = open_beside(self._source, url)
                source.size()
            except FileNotFoundError:
                continue
            except AnychunkError as e:
                self.refused.append(e)
                continue
            return buffered(source)
        return None

    def use[T](self, source: Source | None, read: Callable[[Source], T]) -> T | None:
        """Return what `read` finds in a file; None without a file, or if it is refused."""
        if source is None:
            return None
        try:
            found = read(source)
        except AnychunkError as e:
            self.refused.append(e)
            return None
        self.pins[source.url] = source.pin()
        return found


def _whole(source: Source) -> bytes:
    limits.check_header(source.size(), where=source.url)
    return source.read(0, source.size()).tobytes()


def _tiff_arrays(source: Source) -> list[ArrayIndex]:
    """Return the arrays of all images and levels of a TIFF file."""
    tiff = formats.by_name("tiff")
    assert isinstance(tiff, formats.Format)
    node = tiff.parse(source, sidecars=False)
    return [level.image for image in images(node) for level in levels_of(node, image)]


def as_mask(array: ArrayIndex) -> ArrayIndex:
    """Return a mask as uint8, 255 where a pixel is valid: bits become 0 and 255."""
    if array.data_type != "bool":
        return replace(array, fill_value=0)
    table = {"encode": [[255, 1]], "decode": [[1, 255]]}
    cast = {"name": "cast_value", "configuration": {"data_type": "uint8", "scalar_map": table}}
    return replace(array, data_type="uint8", codecs=(cast, *array.codecs), fill_value=0)


def with_side_files(
    meaning: Meaning, levels: Sequence[Level], side: SideFiles
) -> tuple[Meaning, list[Level]]:
    """Return the meaning and the levels of an image with what its side files state.

    Parameters:
        meaning: the meaning by the image itself.
        levels: the levels of the image itself.
        side: the side files.
    """
    full, before = levels[0].image, meaning
    bands = full.shape[meaning.names.index("c")] if "c" in meaning.names else 1
    if side.pam is not None and isinstance(full.data_type, str):
        meaning = pam.with_pam(meaning, side.pam, np.dtype(full.data_type), bands)
    if side.world is not None:
        meaning = pam.placed(meaning, side.world)
    found = [_rescaled(level, full, before, meaning) for level in levels]
    if len(found) == 1:
        coarser = sorted(_coarser(full, side.levels), key=lambda array: -array.shape[-1])
        found += [Level(name=str(n), image=array) for n, array in enumerate(coarser, 1)]
    if side.masks and all(level.mask is None for level in found):
        by_size = {mask.shape: mask for mask in reversed(side.masks)}
        found = [replace(level, mask=by_size.get(level.image.shape[-2:])) for level in found]
        if found[0].mask is not None:
            meaning = replace(meaning, display=drawing.with_mask(meaning.display))
    return meaning, found


def _rescaled(level: Level, full: ArrayIndex, before: Meaning, after: Meaning) -> Level:
    """Return a level whose stated origin is in the units that a side file gives the axes."""
    if level.origin is None:
        return level
    first = Level(name=level.name, image=full)
    (old, start), (new, begin) = (
        scale_and_translation(meaning, first, full.shape) for meaning in (before, after)
    )
    places = zip(level.origin, old, start, new, begin, strict=True)
    return replace(level, origin=tuple(b + (o - s) / f * t for o, f, s, t, b in places))


def _coarser(full: ArrayIndex, arrays: Sequence[ArrayIndex]) -> list[ArrayIndex]:
    """Return the arrays that are coarser levels of `full`: same bands and type, smaller."""
    kind = (full.shape[:-2], full.data_type)
    return [
        array
        for array in arrays
        if (array.shape[:-2], array.data_type) == kind
        and array.shape[-1] < full.shape[-1]
        and array.shape[-2] <= full.shape[-2]
    ]
