"""NITF 2.1, NITF 2.0 and NSIF 1.0: images in segments of one file.

Spec:    Joint BIIF Profile 2024.1, MIL-STD-2500C (2.1), MIL-STD-2500A (2.0), STANAG 4545 (NSIF).
Axes:    (band, y, x), always three.
Opened:  every image segment; IC NC NM C1 M1 C3 M3 I1 C4 M4 C5 M5 C8 M8 CD MD; IMODE B P R S; INT and SI of
         1 to 64 bits, B, R of 32 and 64, C of 64; blocked, in one block, masked, padded; reduced
         resolutions in files beside it (.r1, .r2 …) as levels.
Refused: by name: other IC, encrypted segments, samples of other types. A file of several images opens
         with those that it can; the attributes of the others say why not.
"""

from anychunk.errors import AnychunkError, FormatError, UnsupportedError
from anychunk.formats.nitf import compressed, uncompressed
from anychunk.formats.nitf.attributes import (
    extensions,
    header_json,
    listing,
    overflow,
    placement,
)
from anychunk.formats.nitf.geolocation import ground_attributes
from anychunk.formats.nitf.header import VERSIONS, File, Segment, read_file
from anychunk.formats.nitf.image import Image, read_image
from anychunk.formats.nitf.tre import Tre
from anychunk.index import ArrayIndex, GroupIndex, Json, Node
from anychunk.multiscales import Axis, ome, shrunk_levels
from anychunk.source import Source

type Levels = list[ArrayIndex]


def sniff(head: bytes) -> bool:
    return head[:9] in VERSIONS


def parse(source: Source) -> GroupIndex:
    file = read_file(source)
    further = overflow(file, source)
    members: dict[str, Node] = {}
    refusals = []
    for segment in file.of("image"):
        found, rests = extensions(segment.values)
        tres = found + further.get(("image", segment.number), [])
        attributes = image_attributes(segment, tres, rests)
        try:
            levels = image_levels(source, segment, tres)
        except (FormatError, UnsupportedError) as e:
            refusals.append(e)
            attributes["nitf"]["refused"] = str(e)
            levels = []
        members[str(segment.number)] = image_group(segment, levels, attributes)
    if refusals and len(refusals) == len(members):
        raise refusals[0]
    return GroupIndex(members=members, attributes=file_attributes(file, further))


def image_levels(source: Source, segment: Segment, tres: list[Tre]) -> Levels:
    """Index one image: its arrays, full resolution first."""
    if segment.values.get("ENCRYP") not in ("0", "", None):
        raise UnsupportedError(f"{source.url} {segment.name}: it is encrypted")
    image = read_image(segment, source.url)
    try:
        return indexed(source, image, tres)
    except AnychunkError as e:
        raise (e if image.where in str(e) else type(e)(f"{image.where}: {e}")) from e


def indexed(source: Source, image: Image, tres: list[Tre]) -> Levels:
    kind = image.ic[1]
    if image.ic in ("NC", "NM"):
        return [uncompressed.array_index(source, image)]
    if kind in "35" or image.ic == "I1":
        return [compressed.jpeg_index(source, image)]
    if kind == "1":
        return [compressed.bilevel_index(source, image)]
    if kind == "4":
        frame = next((tre for tre in tres if tre.tag == "RPFIMG"), None)
        locations = compressed.rpf_locations(frame.data, image.where) if frame else {}
        return [compressed.vq_index(source, image, locations)]
    raise UnsupportedError(f"{image.where}: IC {image.ic!r} is not opened")


def image_attributes(segment: Segment, tres: list[Tre], rests: list[bytes]) -> dict[str, Json]:
    values = segment.values
    about = header_json(values, tres, rests)
    about["placement"] = placement(values)
    about["offset"], about["length"] = segment.offset, segment.length
    icords = values.get("ICORDS", "")
    return {**ground_attributes(icords, values.get("IGEOLO"), tres), "nitf": about}


def image_group(segment: Segment, levels: Levels, attributes: dict[str, Json]) -> GroupIndex:
    names = [str(i) for i in range(len(levels))]
    if levels:
        axes = [Axis(name=name) for name in ("band", "y", "x")]
        shapes = [level.shape for level in levels]
        title = segment.values.get("IID1") or None
        described = ome(axes, shrunk_levels(names, shapes, (1.0, 1.0, 1.0)), name=title)
        attributes = {"ome": described, **attributes}
    return GroupIndex(members=dict(zip(names, levels, strict=True)), attributes=attributes)


def file_attributes(file: File, further: dict[tuple[str, int], list[Tre]]) -> dict[str, Json]:
    tres, rests = extensions(file.values)
    about = header_json(file.values, tres + further.get(("file", 0), []), rests)
    about["segments"] = listing(file)
    return {"nitf": about}
