"""Compressed images but JPEG 2000: JPEG (C3, C5, I1), bi-level (C1), vector quantisation (C4).

Blocks of compressed images have no table of lengths, unless they are masked. JPEG streams are told
apart by their markers, which for an image of many blocks means to look through all of its data once.
"""

import math
import struct
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs import nitf_vq
from anychunk.codecs.jpeg import Jpeg
from anychunk.codecs.nitf_bilevel import NitfBilevel
from anychunk.codestream.jpeg_scan import Stream, head
from anychunk.errors import (
    AnychunkError,
    FormatError,
    TruncatedError,
    UnsupportedError,
)
from anychunk.formats.nitf.header import tables
from anychunk.formats.nitf.image import Image, fill_json
from anychunk.formats.nitf.mask import Mask, block_grid, read_mask, read_offsets
from anychunk.index import ArrayIndex, ByteRanges, Json, Parts
from anychunk.source import Source

type Offsets = npt.NDArray[np.int64]
DIMENSIONS = ("band", "y", "x")
LITTLE: Json = {"name": "bytes", "configuration": {"endian": "little"}}
SIGNATURE = struct.pack(">IH", 6, 14)
"""Of a look-up section: where its table of tables is, and how long a record of it."""


def one_array(
    source: Source, image: Image, codec: Json, fill: int, chunks: ByteRanges, chunk_bands: int
) -> ArrayIndex:
    return ArrayIndex(
        shape=image.shape,
        chunk_shape=(chunk_bands, image.block_height, image.block_width),
        data_type=image.dtype.name,
        codecs=(LITTLE, codec),
        chunks=chunks,
        fill_value=fill_json(image.dtype, fill),
        dimension_names=DIMENSIONS,
    )


def ranges(offsets: Offsets, end: int) -> tuple[Offsets, Offsets]:
    """Give offsets and lengths: a block reaches to the next one that is stored, or to `end`."""
    flat = offsets.reshape(-1)
    stored = np.unique(flat[flat >= 0])
    after = np.r_[stored[1:], end]
    lengths = np.zeros_like(flat)
    is_stored = flat >= 0
    lengths[is_stored] = after[np.searchsorted(stored, flat[is_stored])] - flat[is_stored]
    return np.where(is_stored, flat, 0).reshape(offsets.shape), lengths.reshape(offsets.shape)


def cropped(table: Offsets, image: Image) -> npt.NDArray[np.uint64]:
    """Give the table of the blocks that hold pixels, bands in front."""
    down, across = image.blocks
    blocks = table.reshape(-1, image.blocks_down, image.blocks_across)
    return np.ascontiguousarray(blocks[:, :down, :across]).astype(np.uint64)


def check_inside(image: Image, offsets: Offsets) -> None:
    stored = offsets[offsets >= 0]
    if len(stored) and int(stored.max()) >= image.segment.end:
        raise FormatError(
            f"{image.where}: a block begins at {int(stored.max())}, "
            f"the image data ends at {image.segment.end}"
        )


# --- JPEG


def jpeg_index(source: Source, image: Image) -> ArrayIndex:
    """Index C3, M3, C5, M5 and I1."""
    mask = read_mask(source, image)
    first = first_stream(source, image, mask)
    image = framed(image, first)
    # bands that share a stream are interleaved in it; others have a stream each
    per_stream = first.bands
    if per_stream not in (1, image.bands):
        raise FormatError(
            f"{image.where}: a JPEG stream of {per_stream} bands, the image has {image.bands}"
        )
    streams = image.bands // per_stream
    if mask.offsets is not None:
        offsets = mask.offsets
        if streams > 1 and not image.has_bands_apart:
            # one entry a block, bands behind each other in it: the codec finds their streams
            per_stream, streams = image.bands, 1
    else:
        offsets = found_streams(source, image, mask.start, streams)
    check_inside(image, offsets)
    starts, lengths = ranges(offsets, image.segment.end)
    codec = Jpeg(
        bits_per_pixel=image.nbpp,
        num_bands=per_stream,
        block_width=image.block_width,
        block_height=image.block_height,
        imode=image.imode,
        color_space=image.segment.values["IREP"] or "MONO",
    )
    chunks = ByteRanges(
        offsets=cropped(starts, image), lengths=cropped(lengths, image), urls=(source.url,)
    )
    return one_array(source, image, codec.to_dict(), mask.pad or 0, chunks, per_stream)


def first_stream(source: Source, image: Image, mask: Mask) -> Stream:
    """Read the markers of the first stream that is stored, up to its data."""
    segment = image.segment
    start = mask.start
    if mask.offsets is not None:
        stored = mask.offsets[mask.offsets >= 0]
        if not len(stored):
            raise UnsupportedError(f"{image.where}: IC {image.ic} without a stored block")
        check_inside(image, mask.offsets)
        start = int(stored.min())
    length = min(segment.end, source.size()) - start
    # markers before the data are short; comments may be long
    data = source.read(start, max(0, min(length, limits.MIB)))
    try:
        return head(data)
    except AnychunkError as e:
        raise type(e)(f"{image.where}: {e}") from e


def framed(image: Image, stream: Stream) -> Image:
    """Hold the frame of a stream against the image, whose blocks may be as small as the picture."""
    depth = stream.frame.depth
    if image.pvtype not in ("INT", "SI") or image.nbpp > 16 or depth > max(8, image.nbpp):
        raise FormatError(
            f"{image.where}: JPEG samples of {depth} bits for PVTYPE {image.pvtype} of {image.nbpp}"
        )
    if depth <= 8 < image.nbpp:
        image = replace(image, nbpp=8, abpp=min(image.abpp, 8))
    height, width = stream.frame.height, stream.frame.width
    if (height, width) == (image.block_height, image.block_width):
        return image
    is_single = image.blocks_down == image.blocks_across == 1
    if is_single and image.ic == "I1":
        # NGA N0106-97: the stored picture is smaller than the image that it was made from
        return replace(image, rows=height, columns=width, block_height=height, block_width=width)
    if is_single and height >= image.rows and width >= image.columns:
        return replace(image, block_height=height, block_width=width)
    raise FormatError(
        f"{image.where}: a JPEG picture of {height} x {width}, expected "
        f"{image.block_height} x {image.block_width}"
    )


def found_streams(source: Source, image: Image, start: int, streams: int) -> Offsets:
    """Find where the stream of each block, and of each band where they are apart, begins."""
    count = image.blocks_down * image.blocks_across * streams
    if count == 1:
        return np.asarray([start]).reshape(block_grid(image))
    end = min(image.segment.end, source.size())
    starts = start_markers(source, start, end)
    if len(starts) != count:
        raise FormatError(f"{image.where}: {len(starts)} JPEG streams, expected {count}")
    blocks = (image.blocks_down, image.blocks_across)
    if streams == 1:
        return starts.reshape(blocks)
    if image.imode == "S":
        return starts.reshape(streams, *blocks)
    return np.ascontiguousarray(starts.reshape(*blocks, streams).transpose(2, 0, 1))


def start_markers(source: Source, start: int, end: int, piece: int = 4 * limits.MIB) -> Offsets:
    """Find the beginning of every stream in a range that holds nothing but streams.

    In entropy-coded data 0xFF is followed by 0, so that a start marker behind an end marker is one.
    """
    found: list[Offsets] = []
    at = start
    while at < end:
        data = source.read(at, min(piece + 8, end - at))
        marks = np.flatnonzero(data[:-2] == 0xFF)
        is_start = (data[marks + 1] == 0xD8) & (data[marks + 2] == 0xFF)
        hits = marks[is_start & (marks < piece)]
        found.append(hits + at)
        at += piece
    starts = np.concatenate(found) if found else np.empty(0, np.int64)
    return starts[behind_ends(source, starts, start)]


def behind_ends(source: Source, starts: Offsets, first: int) -> npt.NDArray[np.bool_]:
    """Which of the candidates stand behind an end marker, or at the beginning."""
    keep = np.zeros(len(starts), bool)
    for i, at in enumerate(starts.tolist()):
        if at == first:
            keep[i] = True
            continue
        back = min(64, at - first)
        before = source.read(at - back, back).tobytes().rstrip(b"\0\xff ")
        keep[i] = before.endswith(b"\xff\xd9")
    return keep


# --- bi-level


def bilevel_index(source: Source, image: Image) -> ArrayIndex:
    """Index C1 and M1."""
    mode = str(image.segment.values.get("COMRAT", "")).strip().upper()
    if image.nbpp != 1 or image.bands != 1:
        raise FormatError(
            f"{image.where}: {image.bands} bands of {image.nbpp} bits, expected 1 of 1 for IC {image.ic}"
        )
    if mode[:2] not in ("1D", "2D"):
        raise FormatError(f"{image.where}: COMRAT is {mode!r}, expected 1D, 2DS or 2DH")
    mask = read_mask(source, image)
    if mask.offsets is None and image.blocks_down * image.blocks_across != 1:
        raise UnsupportedError(
            f"{image.where}: IC C1 in several blocks without a mask is not opened; opened: one block, "
            "or M1"
        )
    offsets = np.asarray([[mask.start]]) if mask.offsets is None else mask.offsets
    check_inside(image, offsets)
    starts, lengths = ranges(offsets, image.segment.end)
    codec = NitfBilevel(
        block_height=image.block_height,
        block_width=image.block_width,
        mode="1D" if mode.startswith("1D") else "2D",
    )
    chunks = ByteRanges(
        offsets=cropped(starts, image), lengths=cropped(lengths, image), urls=(source.url,)
    )
    return one_array(source, image, codec.to_dict(), mask.pad or 0, chunks, 1)


# --- vector quantisation


@dataclass(frozen=True)
class Codebook:
    """Where the look-up tables are, and where codes begin."""

    tables: tuple[int, ...]
    codes: int


def vq_index(source: Source, image: Image, locations: dict[int, int]) -> ArrayIndex:
    """Index C4 and M4; `locations` are those of the sections of an RPF frame, by identifier."""
    if image.nbpp != 8 or image.bands != 1 or image.block_height % 8 or image.block_width % 8:
        raise UnsupportedError(
            f"{image.where}: IC {image.ic} of {image.bands} bands, {image.nbpp} bits, blocks of "
            f"{image.block_height} x {image.block_width} is not opened; opened: 1 band of 8 bits, "
            "block sides that are multiples of 8"
        )
    mask = read_mask(source, image)
    start = locations.get(SPATIAL_DATA)
    offsets, pad = vq_blocks(source, image, mask, locations, start)
    fill = transparent(image) if pad is None else pad
    nbytes = nitf_vq.code_bytes(image.block_height, image.block_width)
    is_stored = offsets >= 0
    size = min(source.size(), image.segment.end)
    book = Codebook((0,) * nitf_vq.KERNEL, 0)
    if is_stored.any():
        book = codebook(source, image, locations.get(LOOKUP))
        if mask.offsets is None and SUBFRAME_MASK not in locations and start is None:
            offsets = book.codes + np.arange(offsets.size).reshape(offsets.shape) * nbytes
        if int(offsets.max()) + nbytes > image.segment.end:
            raise TruncatedError(
                f"{image.where}: blocks of codes reach to {int(offsets.max()) + nbytes}, "
                f"the image data ends at {size}"
            )
    codes = cropped(np.where(is_stored, offsets, 0), image)
    lengths = cropped(is_stored.astype(np.int64), image)
    first = np.where(lengths, np.uint64(book.tables[0]), np.uint64(0)).astype(np.uint64)
    chunks = ByteRanges(
        offsets=first,
        lengths=lengths * np.uint64(nitf_vq.TABLE_BYTES),
        urls=(source.url,),
        parts=vq_parts(book, codes, lengths, nbytes),
    )
    codec = nitf_vq.NitfVq(block_height=image.block_height, block_width=image.block_width)
    return one_array(source, image, codec.to_dict(), fill, chunks, 1)


# MIL-STD-2411-1: identifiers of sections in the location table of an RPF frame
COVERAGE, LOOKUP, SUBFRAME_MASK, SPATIAL_DATA = 130, 132, 138, 140


def vq_parts(
    book: Codebook, codes: npt.NDArray[np.uint64], stored: npt.NDArray[np.uint64], nbytes: int
) -> Parts:
    """Behind the first table: the other tables, and the codes of the block."""
    count = np.where(stored.reshape(-1) > 0, nitf_vq.KERNEL, 0)
    present = codes.reshape(-1)[stored.reshape(-1) > 0]
    rest = np.asarray(book.tables[1:], np.uint64)
    offsets = np.concatenate([np.broadcast_to(rest, (len(present), len(rest))), present[:, None]], 1)
    lengths = np.full(offsets.shape, nitf_vq.TABLE_BYTES, np.uint64)
    lengths[:, -1] = nbytes
    return Parts(
        starts=np.r_[0, np.cumsum(count)].astype(np.uint64),
        offsets=offsets.reshape(-1).astype(np.uint64),
        lengths=lengths.reshape(-1),
    )


def vq_blocks(
    source: Source, image: Image, mask: Mask, locations: dict[int, int], start: int | None
) -> tuple[Offsets, int | None]:
    """Give where the codes of each block are, and the pad pixel if there is one."""
    grid = (image.blocks_down, image.blocks_across)
    nbytes = nitf_vq.code_bytes(image.block_height, image.block_width)
    at = locations.get(SUBFRAME_MASK)
    if at is not None and start is not None:
        # MIL-STD-2411 5.3: a table like that of NITF, from the beginning of the spatial data
        width, _, pad_bits = struct.unpack(">HHH", source.read(at, 6).tobytes())
        pad_bytes = -(-pad_bits // 8)
        code = source.read(at + 6, min(pad_bytes, 16)).tobytes()
        pad = int.from_bytes(code, "big") & 0xFF if pad_bits else None
        if width == 4:
            return read_offsets(source, at + 6 + pad_bytes, grid, start), pad
        return start + np.arange(math.prod(grid)).reshape(grid) * nbytes, pad
    if mask.offsets is not None:
        return mask.offsets, mask.pad
    begin = mask.start if start is None else start
    return begin + np.arange(math.prod(grid)).reshape(grid) * nbytes, mask.pad


def codebook(source: Source, image: Image, at: int | None) -> Codebook:
    """Find the look-up tables: where the location table says, or near the beginning of the data."""
    begin = image.segment.offset if at is None else at
    head = source.read(begin, max(0, min(4096, source.size() - begin))).tobytes()
    # locations of some CADRG frames are a few bytes off
    found = head.find(SIGNATURE)
    if found < 0:
        raise FormatError(f"{image.where}: no look-up tables at {begin}")
    section = begin + found
    records = head[found + 6 : found + 6 + 14 * nitf_vq.KERNEL]
    if len(records) < 14 * nitf_vq.KERNEL:
        raise TruncatedError(f"{image.where}: the look-up section ends too early")
    starts = []
    for i in range(nitf_vq.KERNEL):
        _, count, values, bits, offset = struct.unpack(">HIHHI", records[14 * i : 14 * i + 14])
        if (count, values, bits) != (1 << nitf_vq.CODE_BITS, nitf_vq.KERNEL, 8):
            raise UnsupportedError(
                f"{image.where}: a look-up table of {count} x {values} values of {bits} bits is not "
                f"opened; opened: {1 << nitf_vq.CODE_BITS} x {nitf_vq.KERNEL} of 8"
            )
        starts.append(section + offset)
    return Codebook(tuple(starts), max(starts) + nitf_vq.TABLE_BYTES)


def transparent(image: Image) -> int:
    """Give the value of pixels that a colour-mapped image does not have: the one behind its colours."""
    lut = tables(image.segment.values["BANDS"][0])
    if not lut or len(lut[0]) >= 255:
        return 0
    colours = len(lut[0])
    # CADRG has 216 colours; some files list the transparent one too, as black
    is_listed = colours == 217 and not any(table[-1] for table in lut)
    return colours - 1 if is_listed else colours


def rpf_locations(records: bytes, where: str) -> dict[int, int]:
    """Read the location table that an RPFIMG extension begins with (MIL-STD-2411 5.1.2)."""
    try:
        _, table, count, width, _ = struct.unpack(">HIHHI", records[:14])
        if width != 10:
            raise FormatError(f"{where}: RPF location records of {width} bytes, expected 10")
        rows = [struct.unpack(">HII", records[table + 10 * i :][:10]) for i in range(count)]
    except struct.error as e:
        raise FormatError(f"{where}: the RPF location table is cut off") from e
    return {name: at for name, _, at in rows}

