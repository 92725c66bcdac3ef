"""JPEG 2000 (stub)"""

from anychunk.codestream.tiles import index_tiles
from anychunk.codestream_arrays import level_arrays, ome_levels, describe
from anychunk.index import GroupIndex
from anychunk.source import Source


def sniff(head: bytes) -> bool:
    return head.startswith((b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  \r\n\x87\n"))


def parse(source: Source) -> GroupIndex:
    d = source.read(0, source.size()).tobytes()
    i = d.find(b"\xff\x4f\xff\x51")
    s = index_tiles(source, i, len(d) - i)
    arrays = level_arrays(s, source.url)
    return GroupIndex(
        members={
            "0": GroupIndex(
                members={str(n): a for n, a in enumerate(arrays)},
                attributes={"ome": ome_levels(s.header, len(arrays)), "j2k": describe(s.header)},
            )
        }
    )
