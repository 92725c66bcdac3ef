"""NITF 2.1, NITF 2.0 and NSIF 1.0: images in segments of one file.

Spec:    Joint BIIF Profile 2024.1, MIL-STD-2500C (2.1), MIL-STD-2500A (2.0), STANAG 4545 (NSIF).
Axes:    (band, y, x), always three.
Opened:  every image segment; IC NC NM C1 M1 C3 M3 I1 C4 M4 C5 M5 C8 M8 CD MD; IMODE B P R S; INT
         and SI of 1 to 64 bits, B, R of 32 and 64, C of 64; blocked, in one block, masked, padded;
         reduced resolutions in files beside it (.r1, .r2 …) as levels.
Refused: by name: other IC, encrypted segments, samples of other types; headers that lie. A file of
         several images opens with those that it can; the attributes of the others say why not.
"""

from anychunk.errors import AnychunkError, FormatError, TruncatedError, UnsupportedError
from anychunk.formats.nitf import uncompressed
from anychunk.formats.nitf.attributes import extensions, header_json, listing, overflow, placement
from anychunk.formats.nitf.bilevel import bilevel_index
from anychunk.formats.nitf.geolocation import ground_attributes
from anychunk.formats.nitf.header import VERSIONS, File, Segment, read_file
from anychunk.formats.nitf.image import Image, read_image
from anychunk.formats.nitf.jpeg import jpeg_index
from anychunk.formats.nitf.jpeg2000 import jpeg2000_index
from anychunk.formats.nitf.rsets import with_rsets
from anychunk.formats.nitf.tre import Tre
from anychunk.formats.nitf.vector import rpf_locations, vq_index
from anychunk.io import Source
from anychunk.metadata.ome import Axis, ome, shrunk_levels
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node

type Levels = list[ArrayIndex]


def sniff(head: bytes) -> bool:
    return head[:9] in VERSIONS


def parse(source: Source, *, rsets: bool | None = None) -> GroupIndex:
    """Index a file; `rsets`: whether to look for reduced resolutions beside it.

    By default they are looked for beside local files, and beside a remote one that is named .r0.
    """
    index = parse_file(source)
    is_wanted = source.is_local or source.url.endswith(".r0") if rsets is None else rsets
    return with_rsets(index, source, parse_file) if is_wanted else index


def parse_file(source: Source) -> GroupIndex:
    file = read_file(source)
    further = overflow(file, source)
    members: dict[str, Node] = {}
    refusals: list[AnychunkError] = []
    for segment in file.of("image"):
        found, rests = extensions(segment.values)
        tres = found + further.get(("image", segment.number), [])
        attributes = image_attributes(segment, tres, rests)
        levels: Levels = []
        try:
            levels, more = image_levels(source, segment, tres)
            attributes = {**level_attributes(levels), **more, **attributes}
        except (UnsupportedError, FormatError) as e:
            if isinstance(e, TruncatedError) and segment.end > source.size():
                raise  # cut off, it is not to be taken for an image that was never there
            # the other images are no worse for it
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
    """Index one image: its arrays, full resolution first, and what its group says of them."""
    if segment.refusal:
        raise segment.refusal
    if segment.values.get("ENCRYP") not in ("0", "", None):
        raise UnsupportedError(f"{source.url} {segment.name}: it is encrypted")
    image = read_image(segment, source.url, source.size())
    try:
        return indexed(source, image, tres)
    except AnychunkError as e:
        raise (e if image.where in str(e) else type(e)(f"{image.where}: {e}")) from e


def indexed(source: Source, image: Image, tres: list[Tre]) -> tuple[Levels, dict[str, Json]]:
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
    values = segment.values
    about = header_json(values, tres, rests)
    about["placement"] = placement(values)
    about["offset"], about["length"] = segment.offset, segment.length
    if segment.problem:
        about["problem"] = segment.problem
    icords = values.get("ICORDS", "")
    return {**ground_attributes(icords, values.get("IGEOLO"), tres), "nitf": about}


def level_attributes(levels: Levels) -> dict[str, Json]:
    axes = [Axis(name=name) for name in ("band", "y", "x")]
    names = [str(i) for i in range(len(levels))]
    shapes = [level.shape for level in levels]
    return {"ome": ome(axes, shrunk_levels(names, shapes, (1.0, 1.0, 1.0)))}


def file_attributes(file: File, further: dict[tuple[str, int], list[Tre]]) -> dict[str, Json]:
    tres, rests = extensions(file.values)
    about = header_json(file.values, tres + further.get(("file", 0), []), rests)
    about["segments"] = listing(file)
    return {"nitf": about}
