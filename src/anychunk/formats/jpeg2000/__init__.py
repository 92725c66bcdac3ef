"""JPEG 2000: raw codestreams, JP2, JPH (HTJ2K) and JPX files.

Spec:    ITU-T T.800 and T.814; JP2: T.800 annex I; JPX: T.801 annex M; GeoJP2; OGC GMLJP2.
Axes:    (band, y, x); one group per codestream, one array per resolution, full first.
Opened:  .j2k .j2c .jhc .jp2 .jph .jpx: any tiling, offsets, progression, tile-parts in any order;
         1 to 31 bits, signed and unsigned, components that differ in depth or sampling.
         Values are those of the codestream: YCbCr is not converted, palette images are indices
         with the palette in the attributes, subsampled components are repeated to the full grid.
Refused: wavelets and decompositions of part 2, samples of more than 31 bits, JPX fragment tables.
"""

from typing import Any

from anychunk.codestream.tiles import Codestream, index_tiles
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats._jpeg2000 import CODESTREAM_MAGIC, describe, level_arrays, ome_levels
from anychunk.formats.jpeg2000.boxes import SIGNATURE, Box, Header, read_header, scan
from anychunk.formats.jpeg2000.georeference import read_geojp2, read_gml
from anychunk.io import Source
from anychunk.metadata import geo
from anychunk.model.index import GroupIndex, Json

EXTENSIONS = (".jp2", ".j2k", ".j2c", ".jpx", ".jph", ".jhc")


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a codestream or a file of the JP2 family."""
    return head.startswith((CODESTREAM_MAGIC, SIGNATURE))


def parse(source: Source) -> GroupIndex:
    """Index a JPEG 2000 file by its boxes and markers, without reading samples."""
    if source.read(0, min(4, source.size())).tobytes() == CODESTREAM_MAGIC:
        stream = index_tiles(source, 0, source.size())
        return GroupIndex(members={"0": image(stream, source.url, Header(), {})})
    boxes = scan(source)
    if any(box.type == "ftbl" for box in boxes):
        raise UnsupportedError(
            f"{source.url}: codestreams in JPX fragment tables (ftbl) are not supported; "
            "supported: codestreams in jp2c boxes"
        )
    streams = [box for box in boxes if box.type == "jp2c"]
    if not streams:
        types = " ".join(sorted({box.type.strip() for box in boxes}))
        raise FormatError(f"{source.url}: found boxes {types}, expected a codestream (jp2c)")
    default = next((read_header(source, box) for box in boxes if box.type == "jp2h"), Header())
    own = [read_header(source, box) for box in boxes if box.type == "jpch"]
    found = metadata(source, boxes)
    members = {}
    for number, box in enumerate(streams):
        stream = index_tiles(source, box.offset, box.length)
        header = own[number].over(default) if number < len(own) else default
        # the georeference is that of the first codestream
        members[str(number)] = image(stream, source.url, header, found if number == 0 else {})
    return GroupIndex(members=members, attributes={"j2k": {"boxes": [b.json() for b in boxes]}})


def image(stream: Codestream, url: str, header: Header, found: dict[str, Any]) -> GroupIndex:
    """Return the group of one codestream.

    Parameters:
        stream: the codestream.
        url: url of the file.
        header: what JP2 boxes state about its components.
        found: georeference and XML texts, as `metadata` returns them.
    """
    arrays = level_arrays(stream, url)
    if header.palette is not None:
        arrays = arrays[:1]  # lower resolutions are means, which are meaningless for indices
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
    """Return the XML texts of a file, and its georeference: GeoJP2, or else GMLJP2."""
    texts = [box.text(source) for box in boxes if box.type == "xml "]
    found: dict[str, Any] = {"texts": {"xml": texts} if texts else {}}
    for box in boxes:
        if box.type == "uuid" and box.is_geojp2(source):
            try:
                found["transform"], found["code"] = read_geojp2(box.read(source)[16:])
            except FormatError as e:  # pixels can be read without a georeference
                found["texts"]["warning"] = str(e)
    if found.get("transform") is None:
        for text in texts:
            transform, code = read_gml(text)
            if transform is not None:
                return {**found, "transform": transform, "code": code or found.get("code")}
    return found
