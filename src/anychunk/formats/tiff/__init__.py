"""TIFF, BigTIFF, COG, OME-TIFF and their kin: every series an image, every pixel as stored.

Spec:    TIFF 6.0, BigTIFF, GeoTIFF 1.1, OME-TIFF 6; structure as tifffile finds it.
Axes:    (band, y, x); pages of a series stacked in front, as its kind names them: (t, c, z, …).
Opened:  both byte orders; strips and tiles; bands together or apart; 1 to 64 bits, floats of 16,
         24, 32, 64, complex; predictors; every compression that imagecodecs decodes; overviews
         and SubIFDs as levels; masks; sparse files; OME-TIFF in many files of one folder.
Refused: bands of different type; subsampled YCbCr in separate planes; compressions that nothing
         here decodes (the message names page and compression).
"""

from typing import Any

import tifffile

from anychunk.errors import AnychunkError, FormatError, TruncatedError
from anychunk.formats.tiff import metadata, ome
from anychunk.formats.tiff.companions import with_companions
from anychunk.formats.tiff.handle import tiff_file
from anychunk.formats.tiff.images import Image, Refusal, find_images
from anychunk.formats.tiff.stack import Stack, stack_index
from anychunk.io import Source
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def sniff(head: bytes) -> bool:
    return head.startswith(MAGIC)


def parse(source: Source) -> GroupIndex:
    """Read directories, never samples."""
    with tiff_file(source) as tif:
        images, refusals = find_images(tif, source.url)
        check_chain(tif, source)
        if not images and not refusals:
            raise FormatError(f"{source.url}: no page of this TIFF holds an image")
        root = ome.parse_xml(tif.ome_metadata if tif.is_ome else None)
        pixels = [] if root is None else ome.own_pixels(root, source.url, len(tif.pages))
        uuid = None if root is None else root.attrib.get("UUID")
        sources, pins = with_companions(images, source, pixels, uuid)
        members: dict[str, Node] = {}
        for number, image in enumerate(images):
            try:
                xml = ome.pixels_of_image(image, pixels)
                members[str(number)] = image_index(image, sources, xml)
            except Refusal as e:
                refusals.append(e)
        if not members:
            raise refusals[0]
        return GroupIndex(members=members, attributes=file_attributes(tif, refusals), pins=pins)


def check_chain(tif: tifffile.TiffFile, source: Source) -> None:
    """Refuse a file that was cut before its last directory: what is left may look complete."""
    pages = tif.pages
    if not pages._indexed:  # noqa: SLF001 - where tifffile did not need the chain, neither do we
        return
    following = _number(tif, source, int(pages.next_page_offset or 0), tif.tiff.offsetsize)
    if following == 0:
        return
    count = None if following is None else _number(tif, source, following, tif.tiff.tagnosize)
    length = tif.tiff.tagnosize + (count or 0) * tif.tiff.tagsize
    if following is None or count is None or following + length > source.size():
        raise TruncatedError(
            f"{source.url}: a further page should be at {following}, the object ends after "
            f"{source.size()} bytes"
        )


def _number(tif: tifffile.TiffFile, source: Source, offset: int, width: int) -> int | None:
    """Read an unsigned number; None where it lies beyond the end."""
    if offset + width > source.size():
        return None
    data = source.read(offset, width).tobytes()
    return int.from_bytes(data, "big" if tif.byteorder == ">" else "little")


def file_attributes(tif: tifffile.TiffFile, refusals: list[AnychunkError]) -> dict[str, Json]:
    about: dict[str, Json] = {
        "byte_order": "big" if tif.byteorder == ">" else "little",
        "is_bigtiff": bool(tif.is_bigtiff),
    }
    if refusals:
        about["refused"] = [str(e) for e in refusals]
    if tif.is_ome and tif.ome_metadata:
        about["ome_xml"] = tif.ome_metadata
    return {"tiff": about}


def image_index(image: Image, sources: list[Source], xml: Any) -> GroupIndex:
    """Give the group of one image: its levels `0`, `1` …, its masks `mask`, `mask_1` …"""
    full = image.levels[0]
    page = full.keyframe
    size = (full.layout.height, full.layout.width)
    members: dict[str, Node] = {}
    for number, stack in enumerate(image.levels):
        shape = (stack.layout.height, stack.layout.width)
        geo = metadata.geo_attributes(page, shape, size)
        members[str(number)] = _array(
            stack, sources, geo, metadata.fill_value(page, stack.layout.dtype)
        )
    paths = list(members)
    for stack in image.masks:
        number = next(i for i, s in enumerate(image.levels) if s.layout.width == stack.layout.width)
        name = f"mask_{number}" if number else "mask"
        if name not in members:
            members[name] = _array(
                stack, sources, {}, metadata.fill_value(stack.keyframe, stack.layout.dtype)
            )
    attributes: dict[str, Json] = {
        "ome": ome.attribute(image, paths, xml),
        "tiff": {
            "kind": image.kind,
            "pages": _page_numbers(full),
            **metadata.page_attributes(page),
        },
        **metadata.geo_attributes(page, size),
    }
    if image.masks:
        attributes["mask"] = "mask"
    return GroupIndex(members=members, attributes=attributes)


def _array(stack: Stack, sources: list[Source], geo: dict[str, Json], fill: Json) -> ArrayIndex:
    return stack_index(stack, sources, fill_value=fill, attributes=geo)


def _page_numbers(stack: Stack) -> Json:
    """Give the numbers of the pages, as far as they are few."""
    pages = [None if plane is None else plane.page for plane in stack.planes[:1000]]
    return [None if page is None else int(page.index) for page in pages]
