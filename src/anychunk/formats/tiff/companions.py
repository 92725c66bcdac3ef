"""OME-TIFF in several files: the planes that the OME-XML says lie in a companion file.

A companion is looked for in the folder of the file that names it, and never outside. Where one is
missing the file opens all the same; its planes are not absent, and reading them says what lacks.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from xml.etree import ElementTree as ET

import tifffile

from anychunk.errors import FormatError
from anychunk.formats.tiff import ome
from anychunk.formats.tiff.handle import tiff_file
from anychunk.formats.tiff.images import Image
from anychunk.formats.tiff.layout import Layout, page_layout
from anychunk.formats.tiff.stack import Plane, Stack
from anychunk.io import MemorySource, Source, open_source, resolve
from anychunk.model.pin import Pin


def with_companions(
    images: list[Image], source: Source, pixels: Sequence[ET.Element], root_uuid: str | None
) -> tuple[list[Source], dict[str, Pin]]:
    """Fill in planes from companion files; give all sources, and the pins of the further ones.

    `pixels` are the OME-XML of the images that tifffile calls series 0, 1 …
    """
    sources = [source]
    name = source.url.rpartition("/")[2]
    files = _Files(source, sources)
    with files.open:
        for image in images:
            xml = ome.pixels_of_image(image, pixels)
            first = image.levels[0]
            if xml is None or all(plane is not None for plane in first.planes):
                continue
            places = ome.placements(xml, root_uuid, name, source.url)
            image.levels = [_filled(first, places, files), *image.levels[1:]]
    there = [s for s in sources[1:] if not isinstance(s, MissingSource)]
    return sources, {s.url: s.pin() for s in there}


def _filled(stack: Stack, places: list[ome.Placement], files: "_Files") -> Stack:
    planes = list(stack.planes)
    is_open = [plane is None for plane in planes]
    for place in places:
        count = place.count
        if count is None and place.file is not None:
            following = [p.start for p in places if p.start > place.start]
            count = files.pages(place.file)
            if count is None:
                count = min([*following, len(planes)]) - place.start
        for n in range(min(count or 0, len(planes) - place.start)):
            if is_open[place.start + n]:
                planes[place.start + n] = (
                    Plane(page=None)
                    if place.file is None
                    else files.plane(place.file, place.directory + n, stack.layout)
                )
    return replace(stack, planes=planes)


class MissingSource(MemorySource):
    """A file that another one names, and that is not there."""

    def __init__(self, url: str) -> None:
        super().__init__(b"", url)


class _Files:
    """Companion files, each opened once."""

    def __init__(self, source: Source, sources: list[Source]) -> None:
        self.open = ExitStack()
        self._folder = source.url.rpartition("/")[0] or "."
        self._where, self._storage = source.url, source.storage
        self._sources = sources
        self._found: dict[str, tuple[int, tifffile.TiffFile | None]] = {}

    def pages(self, name: str) -> int | None:
        """How many pages a companion has; None where it is not there."""
        tif = self._file(name)[1]
        return None if tif is None else len(tif.pages)

    def _file(self, name: str) -> tuple[int, tifffile.TiffFile | None]:
        if name not in self._found:
            self._found[name] = self._opened(name)
        return self._found[name]

    def plane(self, name: str, directory: int, layout: Layout) -> Plane:
        number, tif = self._file(name)
        if tif is None:
            return Plane(page=None, file=number)
        if directory >= len(tif.pages):
            raise FormatError(f"{self._where}: {name} has no page {directory}, which OME-XML names")
        page = tif.pages[directory].aspage()
        theirs = page_layout(page, layout.where)
        if theirs != layout:
            raise FormatError(f"{self._where}: page {directory} of {name} is laid out differently")
        return Plane(page=page, file=number)

    def _opened(self, name: str) -> tuple[int, tifffile.TiffFile | None]:
        url = resolve(self._folder, name)
        try:
            source = open_source(url, storage=self._storage)
            source.size()
        except FileNotFoundError:
            self._sources.append(MissingSource(url))
            return len(self._sources) - 1, None
        self._sources.append(source)
        tif = self.open.enter_context(tiff_file(source, is_ome=False))
        return len(self._sources) - 1, tif
