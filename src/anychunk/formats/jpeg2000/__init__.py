"""JPEG 2000: raw codestreams, JP2, JPH (HTJ2K) and JPX files.

Spec:    ITU-T T.800 and T.814; JP2: T.800 annex I; JPX: T.801 annex M; GeoJP2; OGC GMLJP2.
Axes:    (band, y, x); one group a codestream, one array a wavelet resolution, full first.
Opened:  .j2k .j2c .jhc .jp2 .jph .jpx: any tiling, offsets, progression, tile-parts in any order;
         1 to 31 bits, signed and unsigned, components that differ in depth or sampling.
         Values are those of the codestream: YCbCr stays YCbCr, a palette stays indices with its
         table in the attributes, subsampled components are repeated to the full grid.
Refused: wavelets and decompositions of part 2, samples of more than 31 bits, JPX fragment tables.
"""

from typing import Any

from anychunk.codestream.tiles import Codestream, index_tiles
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats._jpeg2000 import describe, level_arrays, ome_levels
from anychunk.formats.jpeg2000.boxes import SIGNATURE, Box, Header, read_header, scan
from anychunk.formats.jpeg2000.geo import read_geojp2, read_gml
from anychunk.io import Source
from anychunk.metadata import geo
from anychunk.model.index import GroupIndex, Json

CODESTREAM = b"\xff\x4f\xff\x51"


def sniff(head: bytes) -> bool:
    return head.startswith((CODESTREAM, SIGNATURE))


def parse(source: Source) -> GroupIndex:
    if source.read(0, min(4, source.size())).tobytes() == CODESTREAM:
        stream = index_tiles(source, 0, source.size())
        return GroupIndex(members={"0": image(stream, source.url, Header(), {})})
    boxes = scan(source)
    if any(box.type == "ftbl" for box in boxes):
        raise UnsupportedError(
            f"{source.url}: a JPX fragment table (ftbl) is not followed; "
            "opened: codestreams in jp2c"
        )
    streams = [box for box in boxes if box.type == "jp2c"]
    if not streams:
        raise FormatError(f"{source.url}: there is no codestream (jp2c) in this JP2 file")
    default = next((read_header(source, box) for box in boxes if box.type == "jp2h"), Header())
    own = [read_header(source, box) for box in boxes if box.type == "jpch"]
    shared = metadata(source, boxes)
    members = {}
    for number, box in enumerate(streams):
        stream = index_tiles(source, box.offset, box.length)
        header = own[number].over(default) if number < len(own) else default
        # the place on earth is that of the first codestream
        members[str(number)] = image(stream, source.url, header, shared if number == 0 else {})
    return GroupIndex(members=members, attributes={"j2k": {"boxes": [b.json() for b in boxes]}})


def image(stream: Codestream, url: str, header: Header, found: dict[str, Any]) -> GroupIndex:
    """Give the group of one codestream."""
    arrays = level_arrays(stream, url)
    if header.palette is not None:
        arrays = arrays[:1]  # a coarser level would be means of indices
    _, height, width = arrays[0].shape
    attributes: dict[str, Json] = {
        "ome": ome_levels(stream.header, len(arrays)),
        "j2k": {**describe(stream.header), **header.json(), **found.get("texts", {})},
    }
    attributes |= geo.attributes(
        shape=(height, width), transform=found.get("transform"), code=found.get("code")
    )
    return GroupIndex(
        members={str(level): array for level, array in enumerate(arrays)}, attributes=attributes
    )


def metadata(source: Source, boxes: list[Box]) -> dict[str, Any]:
    """Read what stands beside the codestreams: GeoJP2, else GML, and XML texts."""
    texts = [box.text(source) for box in boxes if box.type == "xml "]
    found: dict[str, Any] = {"texts": {"xml": texts} if texts else {}}
    for box in boxes:
        if box.type == "uuid" and box.is_geojp2(source):
            try:
                found["transform"], found["code"] = read_geojp2(box.read(source)[16:])
            except FormatError as e:  # the pixels are no worse for it
                found["texts"]["warning"] = str(e)
    if found.get("transform") is None:
        for text in texts:
            transform, code = read_gml(text)
            if transform is not None:
                return {**found, "transform": transform, "code": code or found.get("code")}
    return found
