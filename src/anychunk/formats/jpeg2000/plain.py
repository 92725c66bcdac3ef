"""The array of full resolution of a file that has one ordinary codestream, and no more boxes.

Every resolution of a codestream is an array, and making all of them takes longer than decoding a
small image. Files of a series have the same main header, so what follows from it is computed once.
Whatever else a file has, or if any value is doubtful, `plain_image` returns None, and the general
parser decides, which also words the errors. The arrays that both find are equal.

Spec: ITU-T T.800 annexes A and I.
"""

import base64
import math
import struct
from functools import lru_cache
from typing import Any, NamedTuple

from anychunk import limits
from anychunk.codecs import to_json
from anychunk.codecs.jpeg2000 import Jpeg2000
from anychunk.codecs.jpeg2000.tiles import check_decodable, level_image
from anychunk.codestream.jpeg2000 import (
    PLM,
    PPM,
    SOT,
    TLM,
    MainHeader,
    read_main_header,
    segments,
)
from anychunk.codestream.tiles import Codestream, index_tiles
from anychunk.errors import AnychunkError
from anychunk.formats._jpeg2000 import (
    CODESTREAM_MAGIC,
    axes,
    band_axis,
    has_single_parts,
    single_parts,
)
from anychunk.formats._jpeg2000_windows import divided, is_large
from anychunk.formats._two_steps import Plain
from anychunk.formats.jpeg2000.boxes import SIGNATURE
from anychunk.io.file import FileSource
from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, Json

MOST_BYTES = 4096
"""Longer headers are left to the general parser."""
IMAGE_HEADER, COLOUR = 22, 15
"""Lengths of the boxes ihdr, and colr with an enumerated colour space."""


def plain_image(source: FileSource) -> tuple[Plain, Codestream] | None:
    """Return the array and the codestream of an ordinary file; None if it is anything else.

    Raises:
        AnychunkError: The codestream is damaged, as the general parser says.
    """
    head = source.read(0, min(source.size(), MOST_BYTES)).tobytes()
    place = _codestream(head, source.size())
    if place is None:
        return None
    start, size, is_announced = place
    try:
        *_, (_, end, _) = segments(head, start + 2, SOT)
    except AnychunkError:
        return None
    pattern = _pattern(head[start : end + 2])
    if pattern is None:
        return None
    area = pattern.header.siz.image
    if size not in (None, (area.height, area.width)):
        return None
    stream = index_tiles(
        source, start, source.size() - start, is_announced=is_announced, header=pattern.header
    )
    if not has_single_parts(stream):
        return None
    limits.check_chunk(
        pattern.chunk_bytes, where=f"{source.url} codestream @{start}", stored=stream.length
    )
    fields: dict[str, Any] = {
        "shape": pattern.shape,
        "chunk_shape": pattern.chunk_shape,
        "data_type": pattern.data_type,
        "codecs": tuple({**c, "configuration": dict(c["configuration"])} for c in pattern.codecs),
        "chunks": single_parts(stream, source.url),
        "dimension_names": pattern.names,
    }
    if is_large(pattern.header):
        parts = divided(ArrayIndex(fill_value=0, **fields))
        fields |= {name: getattr(parts, name) for name in ("chunk_shape", "codecs", "chunks")}
    return Plain(fields, {0: head[: end + 2]}), stream


def _codestream(head: bytes, end: int) -> tuple[int, tuple[int, int] | None, bool] | None:
    """Return where the codestream begins, the size of the image, and whether its length is stated.

    None unless the file is a codestream, or the boxes jP, ftyp, jp2h and jp2c and nothing else.
    """
    if head.startswith(CODESTREAM_MAGIC):
        return 0, None, False
    if not head.startswith(SIGNATURE):
        return None
    at, size = len(SIGNATURE), None
    for expected in (b"ftyp", b"jp2h"):
        length, kind = _box(head, at)
        if kind != expected or length < 8 or at + length > len(head):
            return None
        if kind == b"jp2h":
            size = _image_size(head[at + 8 : at + length])
        at += length
    length, kind = _box(head, at)
    if kind != b"jp2c" or size is None or length not in (0, end - at):
        return None
    return (at + 8, size, length != 0) if head[at + 8 :].startswith(CODESTREAM_MAGIC) else None


def _image_size(boxes: bytes) -> tuple[int, int] | None:
    """Return height and width of the image by jp2h; None if it has boxes that are not ordinary."""
    if _box(boxes, 0) != (IMAGE_HEADER, b"ihdr") or len(boxes) < IMAGE_HEADER:
        return None
    at = IMAGE_HEADER
    while at < len(boxes):
        length, kind = _box(boxes, at)
        is_inside = at + length <= len(boxes)
        is_colour = kind == b"colr" and length == COLOUR and is_inside and boxes[at + 8] == 1
        if not is_inside or not (is_colour or (kind == b"bpcc" and length > 8)):
            return None
        at += length
    height, width = struct.unpack(">II", boxes[8:16])
    return height, width


def _box(data: bytes, at: int) -> tuple[int, bytes]:
    """Return length and type of the box at a position; (0, b"") if the data end there."""
    return struct.unpack_from(">I4s", data, at) if at + 8 <= len(data) else (0, b"")


class _Pattern(NamedTuple):
    """What files have in common that have the same main header."""

    header: MainHeader
    shape: Shape
    chunk_shape: Shape
    names: tuple[str, ...]
    data_type: str
    codecs: tuple[Json, ...]
    chunk_bytes: int


@lru_cache(maxsize=64)
def _pattern(data: bytes) -> _Pattern | None:
    """Return the pattern of files with this main header, given with the first SOT marker.

    None if their chunks are not whole tiles.
    """
    try:
        header = read_main_header(data)
        check_decodable(header)
        siz = header.siz
        image = level_image(siz, 0)
        # subsampling may leave no sample at all
        is_other = header.markers & {PPM, TLM, PLM} or not (image.width and image.height)
        found = None if is_other else axes(siz, 0)
        if found is None:
            return None
    except AnychunkError:
        return None
    y, x = found
    if not (y.is_plain(siz.rows) and x.is_plain(siz.columns)):
        return None
    bands = band_axis(siz)
    chunk_shape = (*bands, y.chunk, x.chunk)
    codec = Jpeg2000(main_header=base64.b64encode(header.data).decode(), resolution_level=0)
    return _Pattern(
        header=header,
        shape=(*bands, y.size, x.size),
        chunk_shape=chunk_shape,
        names=("c", "y", "x") if bands else ("y", "x"),
        data_type=siz.dtype.name,
        codecs=({"name": "bytes", "configuration": {"endian": "little"}}, to_json(codec)),
        chunk_bytes=math.prod(chunk_shape) * siz.dtype.itemsize,
    )
