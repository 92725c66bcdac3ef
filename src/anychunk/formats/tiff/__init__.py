"""TIFF, BigTIFF, COG, OME-TIFF and related formats: one image per series, with pixels as stored.

Spec:    TIFF 6.0, BigTIFF, GeoTIFF 1.1, OME-TIFF 6; structure as tifffile finds it.
Axes:    (y, x), preceded by t, c and z as far as present. Bands and channels are one axis c. Of
         axes with other meanings one becomes z or t; further ones divide a series into images.
Opened:  both byte orders; strips and tiles; interleaved and planar bands; 1 to 64 bits, floats of
         16, 24, 32 and 64 bits, complex; predictors; every compression that imagecodecs decodes;
         overviews and SubIFDs as levels; masks; sparse files; OME-TIFF in several files of one
         folder.
Refused: bands of different types; subsampled YCbCr in separate planes; compressions without a
         decoder (the message names page and compression).
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from xml.etree import ElementTree as ET

import numpy as np
import tifffile

from anychunk.errors import AnychunkError, FormatError
from anychunk.formats._side_files import NONE, SideFiles, side_files, with_side_files
from anychunk.formats._two_steps import in_two_steps, quick_source
from anychunk.formats.tiff import ome_xml
from anychunk.formats.tiff.gdal_metadata import fill_value
from anychunk.formats.tiff.images import Image, Refusal, find_images
from anychunk.formats.tiff.layout import Layout, page_layout
from anychunk.formats.tiff.meaning import image_meaning
from anychunk.formats.tiff.page_stack import Plane, Stack, mask_array, stack_arrays
from anychunk.formats.tiff.plain import plain_array
from anychunk.formats.tiff.tifffile_source import tiff_file
from anychunk.io.buffers import MemorySource
from anychunk.io.inside import resolve
from anychunk.io.opening import open_beside
from anychunk.io.source import Source
from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import Level
from anychunk.model.index import GroupIndex, Json, Node
from anychunk.model.pin import Pin

# OME-TIFF in several files: the planes that OME-XML places in companion files.
#
# Companions are looked for only in the folder of the file that names them. If one is missing, the
# file still opens, and reading a plane of the missing companion raises an error: its planes are
# unreadable, not absent.


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


EXTENSIONS = (".tif", ".tiff", ".btf")
MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a TIFF file."""
    return head.startswith(MAGIC)


def parse(source: Source, *, sidecars: bool | None = None) -> GroupIndex:
    """Index a TIFF file by its directories, without reading samples.

    An image that is refused or damaged does not prevent the others from opening; the reasons are
    in the attribute `tiff.refused`, as are pages that the file ends before.

    Parameters:
        source: the file.
        sidecars: whether to look for side files (.aux.xml, .tfw, .ovr, .msk); None: if the file is
            local.
    """
    file = quick_source(source)
    plain = None if file is None else plain_array(file)
    if plain is None or file is None:
        return parse_file(source, sidecars=sidecars)
    return in_two_steps(file, plain, partial(parse_file, sidecars=sidecars is not False))


def parse_file(source: Source, *, sidecars: bool | None = None) -> GroupIndex:
    """Index any TIFF file, as `parse` does, by all that tifffile finds in it."""
    with tiff_file(source) as tif:
        root = ome_xml.parse_xml(tif.ome_metadata if tif.is_ome else None)
        if root is not None:
            names = ("imagewidth", "imagelength")
            sizes = [getattr(tif.pages[0], name, 1) for name in names]
            area = math.prod(n for n in sizes if isinstance(n, int))  # a damaged tag is anything
            ome_xml.check_numbers(root, len(tif.pages), source.url, area=area)
        images, refusals = find_images(tif, source)
        if not images and not refusals:
            raise FormatError(f"{source.url}: found no page with an image, expected at least one")
        pixels = [] if root is None else ome_xml.own_pixels(root, source.url, len(tif.pages))
        uuid = None if root is None else root.attrib.get("UUID")
        sources, pins = with_companions(images, source, pixels, uuid)
        groups: list[GroupIndex] = []
        side = side_files(source, sidecars=sidecars)
        refusals += side.refused
        for number, image in enumerate(images):
            try:
                xml = ome_xml.pixels_of_image(image, pixels)
                groups += image_groups(image, sources, xml, NONE if number else side)
            except Refusal as e:
                refusals.append(e)
        if not groups:
            raise refusals[0]
        members: dict[str, Node] = {str(n): group for n, group in enumerate(groups)}
        return root_group(members, file_attributes(tif, refusals), pins={**pins, **side.pins})


def file_attributes(tif: tifffile.TiffFile, refusals: list[AnychunkError]) -> dict[str, Json]:
    """Return the attributes of the root group."""
    about: dict[str, Json] = {
        "byte_order": "big" if tif.byteorder == ">" else "little",
        "is_bigtiff": bool(tif.is_bigtiff),
    }
    if refusals:
        about["refused"] = [str(e) for e in refusals]
    if tif.is_ome and tif.ome_metadata:
        about["ome_xml"] = tif.ome_metadata
    return {"tiff": about}


def image_groups(
    image: Image, sources: list[Source], xml: ET.Element | None, side: SideFiles
) -> list[GroupIndex]:
    """Return the group of an image; several if it has more axes than an image can have.

    Parameters:
        image: the image.
        sources: sources of the file and its companions, as `Plane.file` numbers them.
        xml: the OME-XML Pixels element of the image.
        side: its side files.
    """
    full = image.levels[0]
    meaning = image_meaning(image, xml)
    # overviews rarely repeat GDAL_NODATA: that of the full resolution holds for all levels
    fill = fill_value(meaning.nodata, full.layout.dtype)
    arrays = [stack_arrays(stack, sources, fill_value=fill) for stack in image.levels]
    masks = {image.level_of(stack): mask_array(stack, sources) for stack in image.masks}
    found = []
    for number, part in enumerate(full.arrangement.parts()):
        levels = [
            Level(name=str(level), image=divided[number], mask=masks.get(level))
            for level, divided in enumerate(arrays)
        ]
        native = {"tiff": {**meaning.native["tiff"], "pages": _page_numbers(full, part)}}
        own = replace(meaning, native=native)
        if side is not NONE:
            own, levels = with_side_files(own, levels, side)
        found.append(image_group(own, levels))
    return found


def _page_numbers(stack: Stack, part: tuple[int | slice, ...]) -> Json:
    """Return the numbers of the first 1000 pages of an image."""
    planes = list(stack.planes)
    if len(planes) == math.prod(stack.sizes) and any(isinstance(n, int) for n in part):
        numbers = np.arange(len(planes)).reshape(stack.sizes)[part]
        planes = [planes[n] for n in numbers.reshape(-1)]
    pages = [None if plane is None else plane.page for plane in planes[:1000]]
    return [None if page is None else int(page.index) for page in pages]
