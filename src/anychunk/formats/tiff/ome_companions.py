"""OME-TIFF in several files: the planes that OME-XML places in companion files.

Companions are looked for only in the folder of the file that names them. If one is missing, the
file still opens, and reading a plane of the missing companion raises an error: its planes are
unreadable, not absent.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from xml.etree import ElementTree as ET

import tifffile

from anychunk.errors import FormatError
from anychunk.formats.tiff import ome_xml
from anychunk.formats.tiff.images import Image
from anychunk.formats.tiff.layout import Layout, page_layout
from anychunk.formats.tiff.page_stack import Plane, Stack
from anychunk.formats.tiff.tifffile_source import tiff_file
from anychunk.io.inside import resolve
from anychunk.io.memory import MemorySource
from anychunk.io.opening import open_beside
from anychunk.io.source import Source
from anychunk.model.pin import Pin


def with_companions(
    images: list[Image], source: Source, pixels: Sequence[ET.Element], root_uuid: str | None
) -> tuple[list[Source], dict[str, Pin]]:
    """Fill in the planes of `images` that are in companion files.

    Parameters:
        images: changed in place where planes are missing.
        source: source of the file that names the companions.
        pixels: the OME-XML Pixels elements of the series that tifffile numbers 0, 1 …
        root_uuid: UUID of the OME element.

    Returns:
        The sources of all files, `source` first, and the pins of the companions.
    """
    sources = [source]
    if not pixels:
        return sources, {}
    name = source.url.rpartition("/")[2]
    files = _Companions(source, sources)
    with files.open:
        for image in images:
            xml = ome_xml.pixels_of_image(image, pixels)
            first = image.levels[0]
            if xml is None or all(plane is not None for plane in first.planes):
                continue
            places = ome_xml.placements(xml, root_uuid, name, source.url)
            image.levels = [_filled(first, places, files), *image.levels[1:]]
    there = [s for s in sources[1:] if not isinstance(s, MissingSource)]
    return sources, {s.url: s.pin() for s in there}


def _filled(stack: Stack, places: list[ome_xml.Placement], files: "_Companions") -> Stack:
    planes = list(stack.planes)
    is_open = [plane is None for plane in planes]
    for place in places:
        count = place.count
        if count is None and place.file is not None:
            following = [p.start for p in places if p.start > place.start]
            count = files.pages(place.file)
            if count is None:
                # a missing file of unknown length: its planes reach up to the next placement
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
    """An empty placeholder for a companion that does not exist."""

    def __init__(self, url: str) -> None:
        super().__init__(b"", url)


class _Companions:
    """Companion files, each opened once."""

    def __init__(self, source: Source, sources: list[Source]) -> None:
        self.open = ExitStack()
        self._folder = source.url.rpartition("/")[0] or "."
        self._source, self._where = source, source.url
        self._sources = sources
        self._found: dict[str, tuple[int, tifffile.TiffFile | None]] = {}

    def pages(self, name: str) -> int | None:
        """Return the number of pages of a companion; None if it is missing."""
        tif = self._file(name)[1]
        return None if tif is None else len(tif.pages)

    def plane(self, name: str, directory: int, layout: Layout) -> Plane:
        """Return a page of a companion; `layout` is the layout that it must have."""
        number, tif = self._file(name)
        if tif is None:
            return Plane(page=None, file=number)
        if directory >= len(tif.pages):
            raise FormatError(
                f"{self._where}: OME-XML names page {directory} of {name}, "
                f"which has {len(tif.pages)} pages"
            )
        page = tif.pages[directory].aspage()
        theirs = page_layout(page, layout.where)
        if theirs != layout:
            raise FormatError(
                f"{self._where}: page {directory} of {name} differs in layout (size, data type or "
                f"compression) from {layout.where}; all planes of an image must share one layout"
            )
        return Plane(page=page, file=number)

    def _file(self, name: str) -> tuple[int, tifffile.TiffFile | None]:
        if name not in self._found:
            self._found[name] = self._opened(name)
        return self._found[name]

    def _opened(self, name: str) -> tuple[int, tifffile.TiffFile | None]:
        url = resolve(self._folder, name)
        try:
            source = open_beside(self._source, url)
            source.size()
        except FileNotFoundError:
            self._sources.append(MissingSource(url))
            return len(self._sources) - 1, None
        self._sources.append(source)
        tif = self.open.enter_context(tiff_file(source, is_ome=False))
        return len(self._sources) - 1, tif
