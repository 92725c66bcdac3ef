"""Which codec configurations osml-imagery-io 0.2.2 decodes to the same pixels as anychunk.

Its codecs ignore configuration keys that they do not know, and then decode wrong pixels. It also
misreads some JPEG 2000 tiles, because it moves each tile to the origin of the reference grid. Other
chunks it refuses: those that are not (bands, height, width), short strips, and some types of
samples. Only what it reads the same has its names in a saved index.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from anychunk.codecs import URIS, from_json
from anychunk.codecs.dted import Dted
from anychunk.codecs.jbp_block import JbpBlock
from anychunk.codecs.jpeg import Jpeg
from anychunk.codecs.jpeg2000 import Jpeg2000
from anychunk.codecs.jpeg2000.tiles import parse_header, scale
from anychunk.codecs.tiff import samples
from anychunk.codecs.tiff.tile import DEFLATE, JPEG, LZMA, LZW, NONE, PACKBITS, RGB, YCBCR, ZSTD
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.codestream.jpeg2000 import MainHeader, Style
from anychunk.errors import AnychunkError
from anychunk.model.index import ArrayIndex, ByteRanges, Json, Node

# Replace codecs of ours by those of zarr and numcodecs, where these describe the bytes exactly.
#
# A TIFF tile that is compressed without a predictor, and whose samples lie in C order after at
# most a transposition, needs nothing of TIFF to be decoded. A saved index then opens without
# anychunk.
#
# Codecs that osml-imagery-io has too get its names where it decodes the same pixels.


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


KNOWN = {
    TiffTile.name: {
        "compression", "bits_per_sample", "samples_per_pixel", "photometric", "planar_config",
        "predictor", "tile_width", "tile_height", "sample_format", "jpeg_tables",
    },
    JbpBlock.name: {"num_bands", "block_height", "block_width", "nbpp", "imode", "pvtype"},
    Jpeg.name: {
        "bits_per_pixel", "num_bands", "block_width", "block_height", "imode", "color_space",
    },
    Jpeg2000.name: {"main_header", "resolution_level"},
    Dted.name: {
        "num_lat_points", "num_lon_lines", "record_size", "trim_top", "trim_bottom", "trim_left",
        "trim_right",
    },
}  # fmt: skip
"""The keys that osml-imagery-io 0.2.2 reads, by codec."""
CHECKS = {"last_height", "last_width", "verify_checksums"}
"""Keys added by anychunk that only make decoding stricter."""
COMPRESSIONS = {NONE, LZW, LZMA, JPEG[0], DEFLATE[0], DEFLATE[1], ZSTD[0]}
PHOTOMETRICS = {0, 1, RGB, YCBCR}
TYPES = {"uint8", "uint16", "uint32", "int8", "int16", "int32", "float32", "float64"}
"""What its `tiff-tile` was seen to decode in every file, and the types that its codecs know."""


def with_uri(codec: Json, array: ArrayIndex) -> Json:
    """Return a codec of an array under osml-imagery-io's name if that decodes the same pixels."""
    uri = URIS.get(codec["name"]) if isinstance(codec, dict) else None
    if uri is None or misread(codec) or not _is_taken(codec, array):
        return codec
    return {**codec, "name": uri}


def _is_taken(codec: Json, array: ArrayIndex) -> bool:
    """Return whether osml-imagery-io decodes all chunks of an array; it refuses some."""
    try:
        found = from_json(codec)
    except AnychunkError:
        return False  # reading says why
    chunk = array.chunk_shape
    match found:
        case TiffTile():
            return (
                chunk == (found.samples_per_pixel, found.tile_height, found.tile_width)
                and found.compression in COMPRESSIONS
                and found.photometric in PHOTOMETRICS
                and found.dtype.name == array.data_type
                and array.data_type in TYPES
                and found.bits == 8 * found.dtype.itemsize
                and not may_be_short(found, array)
            )
        case Jpeg2000():
            siz = found.header.siz
            is_known = siz.is_uniform and siz.dtype.name == array.data_type
            return chunk == nominal_tile(found) and is_known
        case JbpBlock():
            is_known = found.pvtype != "B" and found.dtype.name in TYPES
            return is_known and found.nbpp == 8 * found.dtype.itemsize
    # its libjpeg has no other depth; of DTED it takes heights that are two's complement for others
    return isinstance(found, Jpeg) and found.bits_per_pixel == 8


def nominal_tile(codec: Jpeg2000) -> tuple[int, int, int]:
    """Return the shape of a whole tile, which may be larger than the image."""
    siz = codec.header.siz
    x, y = scale(siz, codec.resolution_level)
    return len(siz.components), -(-siz.tile_height // y), -(-siz.tile_width // x)


def may_be_short(tile: TiffTile, array: ArrayIndex) -> bool:
    """Return whether the last strip may have fewer rows than the others; tiles are always whole."""
    is_strip = tile.tile_width == array.shape[-1]
    return tile.last_height is None or (is_strip and tile.last_height != tile.tile_height)


def misread(codec: Json) -> str:
    """Return why osml-imagery-io decodes wrong pixels with a codec; empty if it does not."""
    known = KNOWN.get(codec["name"]) if isinstance(codec, dict) else None
    configuration = codec.get("configuration", {}) if known else None
    if known is None or not isinstance(configuration, Mapping):
        return ""  # where it is malformed, reading says so
    if ignored := sorted(set(configuration) - known - _harmless(configuration)):
        return f"it ignores {' '.join(ignored)} of {codec['name']}"
    if codec["name"] == TiffTile.name:
        return _misread_tile(configuration)
    return _misread_codestream(configuration) if codec["name"] == Jpeg2000.name else ""


def _harmless(configuration: Mapping[str, Json]) -> set[str]:
    """Return the keys added by anychunk that do not change the pixels of a codec."""
    bits = configuration.get("bits_per_sample", 8)
    return CHECKS | {"byte_order"} if isinstance(bits, int) and bits <= 8 else CHECKS


def _misread_tile(configuration: Mapping[str, Json]) -> str:
    compression = configuration.get("compression", NONE)
    if configuration.get("photometric") == YCBCR and compression not in JPEG:
        # without the tag YCbCrSubSampling, libtiff expects 2 x 2 (TIFF 6.0 section 21)
        return "YCbCr that is not JPEG"
    if configuration.get("predictor", 1) != 1 and compression in (NONE, PACKBITS):
        return f"it ignores the predictor of compression {compression}"
    return ""


def _misread_codestream(configuration: Mapping[str, Json]) -> str:
    main_header = configuration.get("main_header")
    if main_header is None:
        return "JPEG 2000 that cannot be divided into tiles (mixed subsampling)"
    header = parse_header(str(main_header))
    problem = "packet headers in the main header (PPM)" if header.packed else _moved(header)
    return problem and f"JPEG 2000 with {problem}"


def _moved(header: MainHeader) -> str:
    """Return what moving tiles to the origin does not take into account; empty if nothing.

    Of several tiles, one that is moved to the origin keeps its sub-bands, precincts and code-blocks
    if its position is a multiple of its size, and its size a power of two in samples of every
    component and every resolution (T.800 B.5 to B.7). A single tile at the origin is not moved.
    """
    siz = header.siz
    corner, origin = (siz.image.x0, siz.image.y0), (siz.tile_x0, siz.tile_y0)
    if any((*corner, *origin)) and not _is_kept(header):
        return f"an image offset {corner} or a tile offset {origin} other than (0, 0)"
    for count, size, steps, side in (
        (siz.columns, siz.tile_width, [c.dx for c in siz.components], "wide"),
        (siz.rows, siz.tile_height, [c.dy for c in siz.components], "high"),
    ):
        if any(step % min(steps) or not _is_power(step // min(steps)) for step in steps):
            return f"components subsampled by {sorted(set(steps))}, not by powers of two"
        for step, style in zip(steps, header.styles, strict=True):
            samples, rest = divmod(size, step)
            if count > 1 and (rest or not _is_power(samples) or samples < 1 << style.levels):
                return (
                    f"several tiles that are {size / step:g} samples {side}, not a power of two "
                    f"of at least {1 << style.levels}"
                )
    return ""


def _is_kept(header: MainHeader) -> bool:
    """Return whether a single tile has the same sub-bands and cells at the origin."""
    siz = header.siz
    return (siz.columns, siz.rows) == (1, 1) and all(
        _keeps_cells(span, step, style, axis)
        for component, style in zip(siz.components, header.styles, strict=True)
        for axis, (span, step) in enumerate(
            (
                ((siz.image.x0, siz.image.x1), component.dx),
                ((siz.image.y0, siz.image.y1), component.dy),
            )
        )
    )


def _keeps_cells(span: tuple[int, int], step: int, style: Style, axis: int) -> bool:
    """Return whether precincts and code-blocks along an axis are the same from the origin on."""
    start, rest = divmod(span[0], step)
    if rest or start % (1 << style.levels):
        return False  # samples would be in other sub-bands
    stop = -(-span[1] // step)
    for resolution in range(style.levels + 1):
        scale = style.levels - resolution
        precinct = style.precincts[resolution][axis] if style.precincts else 15
        # T.800 B.7: code-blocks end with precincts, which are halved in all bands but the first
        halved = int(resolution > 0)
        block = min((style.xcb, style.ycb)[axis], precinct - halved)
        for size, power in ((precinct, scale), (block, scale + halved)):
            first, last = start >> power, -(-stop >> power) - 1
            if first % (1 << size) and first >> size != last >> size:
                return False
    return True


def _is_power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
