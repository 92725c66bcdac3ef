"""Correct the byte order in indexes of osml-imagery-io, which does not record that of a TIFF file.

Its indexes call the samples of every TIFF little-endian. Those of a big-endian file would be
swapped, silently. So the first bytes of the file are looked at when such an index is loaded. Remote
files are not: loading an index makes no request to the files it refers to.
"""

from dataclasses import replace

from anychunk.errors import AnychunkError
from anychunk.io import is_remote, open_source
from anychunk.model.index import INLINE, ArrayIndex, ByteRanges, GroupIndex, Json, Node
from anychunk.references.kerchunk.osml_layout import TIFF_TILE

BIG_ENDIAN = (b"MM\0*", b"MM\0+")
"""How a big-endian TIFF or BigTIFF begins."""
BIG: Json = {"name": "bytes", "configuration": {"endian": "big"}}


def with_byte_orders(node: Node) -> Node:
    """Return an index in which samples of big-endian TIFF files are decoded as such."""
    if not isinstance(node, GroupIndex) or not _is_osml(node):
        return node
    seen: dict[str, bool] = {}

    def is_big(url: str) -> bool:
        if url not in seen:
            seen[url] = _is_big_endian(url, node.roots)
        return seen[url]

    members: dict[str, Node] = {}
    for name, group in node.members.items():
        array = group.members.get("data") if isinstance(group, GroupIndex) else None
        if isinstance(group, GroupIndex) and isinstance(array, ArrayIndex):
            chunks = array.chunks
            if isinstance(chunks, ByteRanges) and any(map(is_big, chunks.urls)):
                changed = replace(array, codecs=_as_big(array.codecs))
                group = replace(group, members={**group.members, "data": changed})  # noqa: PLW2901
        members[name] = group
    return replace(node, members=members)


def _is_osml(node: GroupIndex) -> bool:
    """Return whether osml-imagery-io wrote an index: ours has the attribute `anychunk`."""
    return {"source", "multiscales"} <= set(node.attributes) and "anychunk" not in node.attributes


def _is_big_endian(url: str, roots: tuple[str, ...]) -> bool:
    if url == INLINE or is_remote(url):
        return False
    try:
        source = open_source(url, roots=roots)
        return bytes(source.read(0, min(4, source.size()))) in BIG_ENDIAN
    except AnychunkError:
        return False  # reading its chunks says why


def _as_big(codecs: tuple[Json, ...]) -> tuple[Json, ...]:
    """Return codecs that read big-endian samples; those of others stay as they are."""
    names = [codec.get("name") if isinstance(codec, dict) else codec for codec in codecs]
    if names == ["bytes"]:
        return (BIG,)
    if names != ["bytes", TIFF_TILE] or not isinstance(codecs[1], dict):
        return codecs
    configuration = {"byte_order": "big", **codecs[1].get("configuration", {})}
    return (codecs[0], {**codecs[1], "configuration": configuration})
