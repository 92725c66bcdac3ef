"""TIFF strips that are cut into pieces, as whole strips again, for software without our codecs."""

from dataclasses import replace
from typing import Any, cast

import numpy as np

from anychunk.codecs import from_json, to_json
from anychunk.codecs.tiff import samples
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.decode.pieces import compression_of
from anychunk.model.fronts import read_front
from anychunk.model.grid import grid_shape
from anychunk.model.index import PIECE, ArrayIndex, ByteRanges, Json, Node

COMPRESSIONS = {"zlib": 8, "lzw": 5}
"""What TIFF calls the streams that strips are cut from."""
FORMATS = {"u": 1, "b": 1, "i": 2, "f": 3, "c": 6}
"""SampleFormat of numpy's kinds of numbers."""


def with_whole_strips[N: Node](node: N) -> N:
    """Return an index in which the chunks of TIFF strips are whole strips."""
    if isinstance(node, ArrayIndex):
        return cast("N", whole_strips(node))
    members = {name: with_whole_strips(member) for name, member in node.members.items()}
    return replace(node, members=members)


def whole_strips(array: ArrayIndex) -> ArrayIndex:
    """Return an array whose chunks are whole strips; another array unchanged."""
    compression = COMPRESSIONS.get(compression_of(array) or "")
    chunks = array.chunks
    if compression is None or not isinstance(chunks, ByteRanges) or chunks.parts is not None:
        return array
    piece = _piece_tile(array)
    if piece is None:
        return array
    first = 0 if chunks.front_ids is None else int(chunks.front_ids.flat[0])
    row_bytes = samples.row_bytes(piece.tile_width, piece.samples_per_pixel, piece.bits)
    rows, rest = divmod(read_front(chunks.fronts[first]).stop, row_bytes)
    height, per_strip = array.shape[-2], -(-rows // array.chunk_shape[-2])
    shape = (*array.chunk_shape[:-2], rows, array.chunk_shape[-1])
    if rest or chunks.offsets[..., ::per_strip, :].shape != grid_shape(array.shape, shape):
        return array
    tile = replace(
        piece, compression=compression, tile_height=rows, last_height=height % rows or rows
    )
    tables: dict[str, Any] = {
        name: np.ascontiguousarray(table[..., ::per_strip, :])
        for name in ("offsets", "lengths", "url_ids")
        if (table := getattr(chunks, name)) is not None
    }
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    return replace(
        array,
        chunk_shape=shape,
        codecs=(little, to_json(tile)),
        chunks=replace(chunks, **tables, fronts=(), front_ids=None),
    )


def _piece_tile(array: ArrayIndex) -> TiffTile | None:
    """Return the codec of a piece without its compression; None if it is not of a TIFF strip."""
    *inner, outer = array.codecs
    if not _is(outer, PIECE):
        return None
    if len(inner) == 2 and _is(inner[1], TiffTile.name):
        tile = from_json(inner[1])
        return tile if isinstance(tile, TiffTile) else None
    bands = int(np.prod(array.chunk_shape[:-2]))
    transposition = inner[0] if _is(inner[0], "transpose") else None
    serializer = inner[-1]
    if not _is(serializer, "bytes") or len(inner) != 1 + (transposition is not None):
        return None
    dtype = np.dtype(str(array.data_type))
    if dtype.kind not in FORMATS or (bands > 1 and transposition is None):
        return None
    endian = cast("dict[str, Any]", serializer).get("configuration", {}).get("endian", "little")
    return TiffTile(
        compression=1,
        bits_per_sample=8 * dtype.itemsize,
        samples_per_pixel=bands,
        photometric=2 if bands >= 3 else 1,
        planar_config=1,
        predictor=1,
        tile_width=array.chunk_shape[-1],
        tile_height=array.chunk_shape[-2],
        sample_format=FORMATS[dtype.kind],
        byte_order=endian,
        last_width=array.shape[-1],
    )


def _is(codec: Json, name: str) -> bool:
    return isinstance(codec, dict) and codec.get("name") == name
