"""Replace codecs of ours by those of zarr and numcodecs, where these describe the bytes exactly.

A TIFF tile that is compressed without a predictor, and whose samples lie in C order after at most a
transposition, needs nothing of TIFF to be decoded. A saved index then opens without anychunk.

Codecs that osml-imagery-io has too get its names where it decodes the same pixels.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from anychunk.codecs import from_json
from anychunk.codecs.tiff import samples
from anychunk.codecs.tiff.tile import DEFLATE, LZMA, NONE, ZSTD
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.errors import AnychunkError
from anychunk.model.index import ArrayIndex, ByteRanges, Json, Node
from anychunk.references.osml_codecs import may_be_short, with_uri

ZLIB_CODEC = {"name": "numcodecs.zlib", "configuration": {"level": 1}}
ZSTD_CODEC = {"name": "zstd", "configuration": {"level": 0, "checksum": False}}
# format 1 is .xz, with everything else about the stream in its header
XZ_CODEC = {
    "name": "numcodecs.lzma",
    "configuration": {"format": 1, "check": -1, "preset": None, "filters": None},
}
COMPRESSORS: Mapping[int, Json] = {
    NONE: None,
    LZMA: XZ_CODEC,
    **dict.fromkeys(DEFLATE, ZLIB_CODEC),
    **dict.fromkeys(ZSTD, ZSTD_CODEC),
}
"""The codec that decodes the stream of each TIFF compression; None for none."""


def with_portable_codecs[N: Node](node: N, *, may_transpose: bool) -> N:
    """Return an index whose arrays have portable codecs wherever they mean the same.

    Codecs that osml-imagery-io has too get its names where it decodes the same pixels.

    Parameters:
        node: the index.
        may_transpose: whether bands may be separated by a `transpose` codec, which Zarr v2 lacks.
    """
    if isinstance(node, ArrayIndex):
        return cast("N", with_portable_chain(node, may_transpose=may_transpose))
    members = {
        name: with_portable_codecs(member, may_transpose=may_transpose)
        for name, member in node.members.items()
    }
    return replace(node, members=members)


def with_portable_chain(array: ArrayIndex, *, may_transpose: bool) -> ArrayIndex:
    """Return an array with portable codecs if they decode its chunks to the same samples."""
    found = _chain(array, may_transpose=may_transpose)
    return replace(array, codecs=tuple(with_uri(codec, array) for codec in found or array.codecs))


def _chain(array: ArrayIndex, *, may_transpose: bool) -> tuple[Json, ...] | None:
    tile = _tile(array)
    if tile is None or not _is_plain(tile, array):
        return None
    serializer: Json = {"name": "bytes"}
    if tile.dtype.itemsize > 1:
        serializer["configuration"] = {"endian": tile.byte_order}
    compressor = COMPRESSORS[tile.compression]
    chain = (serializer, compressor) if compressor is not None else (serializer,)
    bands, ndim = tile.samples_per_pixel, len(array.chunk_shape)
    if bands == 1:
        return chain
    if not may_transpose or array.chunk_shape[-3:] != (bands, tile.tile_height, tile.tile_width):
        return None
    order = [*range(ndim - 3), ndim - 2, ndim - 1, ndim - 3]
    return {"name": "transpose", "configuration": {"order": order}}, *chain


def _tile(array: ArrayIndex) -> TiffTile | None:
    """Return the codec of an array of TIFF tiles; None for any other array."""
    if [_name(codec) for codec in array.codecs] != ["bytes", TiffTile.name]:
        return None
    try:
        tile = from_json(array.codecs[1])
    except AnychunkError:
        return None  # reading says why
    return tile if isinstance(tile, TiffTile) else None


def _is_plain(tile: TiffTile, array: ArrayIndex) -> bool:
    """Return whether every decompressed chunk is a whole chunk of samples."""
    chunks = array.chunks
    return (
        tile.compression in COMPRESSORS
        and tile.predictor == 1
        and tile.fill_order == 1
        and samples.is_whole(tile.sample_format, tile.bits)
        and not tile.is_subsampled
        and not may_be_short(tile, array)
        and tile.backend == "direct"
        and isinstance(chunks, ByteRanges)
        and not any(chunks.fronts)
        and tile.dtype.name == array.data_type
    )


def _name(codec: Json) -> Json:
    return codec.get("name") if isinstance(codec, Mapping) else codec
