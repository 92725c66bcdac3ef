"""NITF 2.1, NITF 2.0 and NSIF 1.0: images in segments of one file.

Spec:    Joint BIIF Profile 2024.1, MIL-STD-2500C (2.1), MIL-STD-2500A (2.0), STANAG 4545 (NSIF).
Axes:    (band, y, x), always three.
Opened:  all image segments; IC NC NM C1 M1 C3 M3 I1 C4 M4 C5 M5 C8 M8 CD MD; IMODE B P R S; INT
         and SI of 1 to 64 bits, B, R of 32 and 64, C of 64; blocked, in one block, masked, padded;
         reduced resolutions in sibling files (.r1, .r2 …) as levels.
Refused: other IC, encrypted segments, other sample types, headers that contradict themselves. A
         refused image does not prevent the others of its file from opening; its attribute
         `nitf.refused` says why.
"""

from anychunk.errors import AnychunkError, FormatError, TruncatedError, UnsupportedError
from anychunk.formats.nitf import uncompressed
from anychunk.formats.nitf.attributes import (
    header_json,
    ome_attribute,
    overflow_tres,
    placement,
    segment_list,
    split_tres,
)
from anychunk.formats.nitf.bilevel import bilevel_index
from anychunk.formats.nitf.geolocation import ground_attributes
from anychunk.formats.nitf.header import VERSIONS, File, Segment, read_file
from anychunk.formats.nitf.image_segment import Image, read_image
from anychunk.formats.nitf.jpeg import jpeg_index
from anychunk.formats.nitf.jpeg2000 import jpeg2000_index
from anychunk.formats.nitf.rsets import with_rsets
from anychunk.formats.nitf.tre import Tre
from anychunk.formats.nitf.vector_quantization import rpf_locations, vq_index
from anychunk.io import Source
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node

EXTENSIONS = (".ntf", ".nitf", ".nsf")

type Levels = list[ArrayIndex]


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a NITF or NSIF file."""
    return head[:9] in VERSIONS


def parse(source: Source, *, rsets: bool | None = None) -> GroupIndex:
    """Index a NITF file by its headers, without reading samples.

    Parameters:
        source: the file.
        rsets: whether to look for reduced resolutions in sibling files (.r1, .r2 …). The default is
            True for local files, and for remote files whose name ends in .r0.
    """
    index = parse_file(source)
    has_rsets = source.is_local or source.url.endswith(".r0") if rsets is None else rsets
    return with_rsets(index, source, parse_file) if has_rsets else index


def parse_file(source: Source) -> GroupIndex:
    """Index one file, without its R-sets."""
    file = read_file(source)
    further = overflow_tres(file, source)
    members: dict[str, Node] = {}
    refusals: list[AnychunkError] = []
    for segment in file.of("image"):
        found, rests = split_tres(segment.values)
        tres = found + further.get(("image", segment.number), [])
        attributes = image_attributes(segment, tres, rests)
        levels: Levels = []
        try:
            levels, more = image_levels(source, segment, tres)
            attributes = {"ome": ome_attribute(levels), **more, **attributes}
        except (UnsupportedError, FormatError) as e:
            if isinstance(e, TruncatedError) and segment.end > source.size():
                raise  # a truncated file: its images must not look like refused ones
            refusals.append(e)
            attributes["nitf"]["refused"] = str(e)
        arrays = {str(i): level for i, level in enumerate(levels)}
        members[str(segment.number)] = GroupIndex(members=arrays, attributes=attributes)
    if refusals and len(refusals) == len(members):
        raise refusals[0]
    return GroupIndex(members=members, attributes=file_attributes(file, further))


def image_levels(
    source: Source, segment: Segment, tres: list[Tre]
) -> tuple[Levels, dict[str, Json]]:
    """Return the arrays of one image, full resolution first, and attributes of its group."""
    if segment.refusal:
        raise segment.refusal
    if segment.values.get("ENCRYP") not in ("0", "", None):
        raise UnsupportedError(
            f"{source.url} {segment.name}: ENCRYP is {segment.values['ENCRYP']!r}; encrypted "
            "segments are not supported"
        )
    image = read_image(segment, source.url, source.size())
    try:
        return _levels_by_compression(source, image, tres)
    except AnychunkError as e:
        raise (e if image.where in str(e) else type(e)(f"{image.where}: {e}")) from e


def _levels_by_compression(
    source: Source, image: Image, tres: list[Tre]
) -> tuple[Levels, dict[str, Json]]:
    # C1 and M1 differ only in the mask; so do C3 and M3, and so on
    kind = image.ic[1]
    if kind in "8D":
        return jpeg2000_index(source, image)
    if image.ic in ("NC", "NM"):
        return [uncompressed.array_index(source, image)], {}
    if kind in "35" or image.ic == "I1":
        return [jpeg_index(source, image)], {}
    if kind == "1":
        return [bilevel_index(source, image)], {}
    frame = next((tre for tre in tres if tre.tag == "RPFIMG"), None)
    locations = rpf_locations(frame.data, image.where) if frame else {}
    return [vq_index(source, image, locations)], {}


def image_attributes(segment: Segment, tres: list[Tre], rests: list[bytes]) -> dict[str, Json]:
    """Return the attributes of an image that its subheader and TREs state."""
    values = segment.values
    about = header_json(values, tres, rests)
    about["placement"] = placement(values)
    about["offset"], about["length"] = segment.offset, segment.length
    if segment.problem:
        about["problem"] = segment.problem
    icords = values.get("ICORDS", "")
    return {**ground_attributes(icords, values.get("IGEOLO"), tres), "nitf": about}


def file_attributes(file: File, further: dict[tuple[str, int], list[Tre]]) -> dict[str, Json]:
    """Return the attributes of the root group."""
    tres, rests = split_tres(file.values)
    about = header_json(file.values, tres + further.get(("file", 0), []), rests)
    about["segments"] = segment_list(file)
    return {"nitf": about}
