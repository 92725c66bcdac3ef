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
from anychunk.formats.tiff.meaning import image_meaning
from anychunk.formats.tiff.ome_companions import with_companions
from anychunk.formats.tiff.page_stack import Stack, mask_array, stack_arrays
from anychunk.formats.tiff.plain import plain_array
from anychunk.formats.tiff.tifffile_source import tiff_file
from anychunk.io.source import Source
from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import Level
from anychunk.model.index import GroupIndex, Json, Node

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
