"""TIFF, BigTIFF, COG, OME-TIFF and related formats: one image per series, with pixels as stored.

Spec:    TIFF 6.0, BigTIFF, GeoTIFF 1.1, OME-TIFF 6; structure as tifffile finds it.
Axes:    (band, y, x), preceded by the axes that pages are stacked along: (t, c, z, …).
Opened:  both byte orders; strips and tiles; interleaved and planar bands; 1 to 64 bits, floats of
         16, 24, 32 and 64 bits, complex; predictors; every compression that imagecodecs decodes;
         overviews and SubIFDs as levels; masks; sparse files; OME-TIFF in several files of one
         folder.
Refused: bands of different types; subsampled YCbCr in separate planes; compressions without a
         decoder (the message names page and compression).
"""

from xml.etree import ElementTree as ET

import tifffile

from anychunk.errors import AnychunkError, FormatError
from anychunk.formats.tiff import attributes, ome_xml
from anychunk.formats.tiff.images import Image, Refusal, find_images
from anychunk.formats.tiff.ome_companions import with_companions
from anychunk.formats.tiff.page_stack import Stack, stack_index
from anychunk.formats.tiff.tifffile_source import check_chain, tiff_file
from anychunk.io import Source
from anychunk.model.index import GroupIndex, Json, Node

EXTENSIONS = (".tif", ".tiff", ".btf")
MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a TIFF file."""
    return head.startswith(MAGIC)


def parse(source: Source) -> GroupIndex:
    """Index a TIFF file by its directories, without reading samples.

    An image that is refused does not prevent the others from opening; the reasons are in the
    attribute `tiff.refused`.
    """
    with tiff_file(source) as tif:
        images, refusals = find_images(tif, source.url)
        check_chain(tif, source)
        if not images and not refusals:
            raise FormatError(f"{source.url}: found no page with an image, expected at least one")
        root = ome_xml.parse_xml(tif.ome_metadata if tif.is_ome else None)
        pixels = [] if root is None else ome_xml.own_pixels(root, source.url, len(tif.pages))
        uuid = None if root is None else root.attrib.get("UUID")
        sources, pins = with_companions(images, source, pixels, uuid)
        members: dict[str, Node] = {}
        for number, image in enumerate(images):
            try:
                xml = ome_xml.pixels_of_image(image, pixels)
                members[str(number)] = image_index(image, sources, xml)
            except Refusal as e:
                refusals.append(e)
        if not members:
            raise refusals[0]
        return GroupIndex(members=members, attributes=file_attributes(tif, refusals), pins=pins)


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


def image_index(image: Image, sources: list[Source], xml: ET.Element | None) -> GroupIndex:
    """Return the group of one image: its levels `0`, `1` …, its masks `mask`, `mask_1` …

    Parameters:
        image: the image.
        sources: sources of the file and its companions, as `Plane.file` numbers them.
        xml: the OME-XML Pixels element of the image.
    """
    full = image.levels[0]
    page = full.keyframe
    size = (full.layout.height, full.layout.width)
    members: dict[str, Node] = {}
    for number, stack in enumerate(image.levels):
        shape = (stack.layout.height, stack.layout.width)
        geo = attributes.geo_attributes(page, shape, size)
        # overviews rarely repeat GDAL_NODATA: that of the full resolution holds for all levels
        fill = attributes.fill_value(page, stack.layout.dtype)
        members[str(number)] = stack_index(stack, sources, fill_value=fill, attributes=geo)
    paths = list(members)
    for stack in image.masks:
        number = next(i for i, s in enumerate(image.levels) if s.layout.width == stack.layout.width)
        name = f"mask_{number}" if number else "mask"
        if name not in members:
            fill = attributes.fill_value(stack.keyframe, stack.layout.dtype)
            members[name] = stack_index(stack, sources, fill_value=fill, attributes={})
    found: dict[str, Json] = {
        "ome": attributes.ome_attribute(image, paths, xml),
        "tiff": {
            "kind": image.kind,
            "pages": _page_numbers(full),
            **attributes.page_attributes(page),
        },
        **attributes.geo_attributes(page, size),
    }
    if image.masks:
        found["mask"] = "mask"
    return GroupIndex(members=members, attributes=found)


def _page_numbers(stack: Stack) -> Json:
    """Return the numbers of the first 1000 pages."""
    pages = [None if plane is None else plane.page for plane in stack.planes[:1000]]
    return [None if page is None else int(page.index) for page in pages]
