"""NITF 2.1, NITF 2.0 and NSIF 1.0: images in segments of one file.

Spec:    Joint BIIF Profile 2024.1, MIL-STD-2500C (2.1), MIL-STD-2500A (2.0), STANAG 4545 (NSIF).
Axes:    (band, y, x), always three.
Opened:  every image segment; IC NC NM C1 M1 C3 M3 I1 C4 M4 C5 M5 C8 M8 CD MD; IMODE B P R S; INT and SI of
         1 to 64 bits, B, R of 32 and 64, C of 64; blocked, in one block, masked, padded.
Refused: by name: other IC, encrypted segments, samples of other types.
"""

from typing import Any

from anychunk.errors import AnychunkError, UnsupportedError
from anychunk.formats.nitf import uncompressed
from anychunk.formats.nitf.header import VERSIONS, File, Segment, read_file
from anychunk.formats.nitf.image import Image, read_image
from anychunk.index import ArrayIndex, GroupIndex, Node
from anychunk.source import Source


def sniff(head: bytes) -> bool:
    return head[:9] in VERSIONS


def parse(source: Source) -> GroupIndex:
    file = read_file(source)
    members: dict[str, Node] = {}
    for segment in file.of("image"):
        image = read_image(segment, source.url)
        members[str(segment.number)] = GroupIndex(members={"0": uncompressed.array_index(source, image)})
    return GroupIndex(members=members, attributes={})
