"""Compressed images: IC C3, M3, C5, M5 and I1 (JPEG), C8 and M8 (JPEG 2000), C1 and M1, C4 and M4.

JPEG has one stream per block, or per block and band. Only a mask table states where blocks begin.
Without one, the streams of an image are found by their markers, which takes one pass over all of
its data.
"""

import math
import struct
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs import to_json, vq
from anychunk.codecs.jbp_block import JbpBlock
from anychunk.codecs.jpeg import Jpeg
from anychunk.codestream.jpeg_scan import Stream, head
from anychunk.codestream.tiles import Codestream, index_tiles
from anychunk.errors import AnychunkError, FormatError, TruncatedError, UnsupportedError
from anychunk.formats._jpeg2000 import CODESTREAM_MAGIC, divided, level_arrays
from anychunk.formats.nitf.blocks import (
    Image,
    Mask,
    Offsets,
    Stored,
    block_array,
    check_inside,
    cropped,
    ranges,
    read_mask,
    read_offsets,
    transparent_entry,
)
from anychunk.io.source import Source
from anychunk.model.index import ArrayIndex, ByteRanges, Parts

# IC C4 and M4: vector quantization, as in CADRG and CIB frames.
#
# Spec: MIL-STD-188-199 (the header of vector-quantized data), MIL-STD-2411 (RPF frames).


SIGNATURE = struct.pack(">IH", 6, 14)
"""Start of a look-up section: offset of its table of tables, and length of a record."""
# MIL-STD-2411-1: section identifiers in the location table of an RPF frame
COVERAGE, LOOKUP, SUBFRAME_MASK, SPATIAL_DATA = 130, 132, 138, 140


@dataclass(frozen=True)
class Codebook:
    """File offsets of the look-up tables and of the first code."""

    tables: tuple[int, ...]
    codes: int


def vq_index(source: Source, image: Image, locations: dict[int, int]) -> Stored:
    """Return the array of a C4 or M4 image.

    Parameters:
        source: the file.
        image: the image.
        locations: file offsets of the sections of an RPF frame by identifier; empty otherwise.
    """
    if image.nbpp != 8 or image.bands != 1 or image.block_height % 8 or image.block_width % 8:
        raise UnsupportedError(
            f"{image.where}: IC {image.ic} with {image.bands} bands of {image.nbpp} bits in blocks "
            f"of {image.block_height} x {image.block_width} is not supported; supported: 1 band of "
            "8 bits, block sides that are multiples of 8"
        )
    mask = read_mask(source, image)
    start = locations.get(SPATIAL_DATA)
    offsets, pad = vq_blocks(source, image, mask, locations, start)
    fill = (transparent_entry(image) or 0) if pad is None else pad
    nbytes = vq.code_bytes(image.block_height, image.block_width)
    is_stored = offsets >= 0
    size = min(source.size(), image.segment.end)
    book = Codebook((0,) * vq.KERNEL, 0)
    if is_stored.any():
        book = codebook(source, image, locations.get(LOOKUP))
        # without any table of offsets, codes follow the look-up tables
        if mask.offsets is None and SUBFRAME_MASK not in locations and start is None:
            offsets = book.codes + np.arange(offsets.size).reshape(offsets.shape) * nbytes
        if int(offsets.max()) + nbytes > image.segment.end:
            raise TruncatedError(
                f"{image.where}: blocks of codes extend to {int(offsets.max()) + nbytes}, "
                f"the image data ends at {size}"
            )
    # every chunk reads the same look-up tables, then its own codes
    codes = cropped(np.where(is_stored, offsets, 0), image)
    lengths = cropped(is_stored.astype(np.int64), image)
    first = np.where(lengths, np.uint64(book.tables[0]), np.uint64(0)).astype(np.uint64)
    chunks = ByteRanges(
        offsets=first,
        lengths=lengths * np.uint64(vq.TABLE_BYTES),
        urls=(source.url,),
        parts=vq_parts(book, codes, lengths, nbytes),
    )
    codec = JbpBlock(
        num_bands=1,
        block_height=image.block_height,
        block_width=image.block_width,
        nbpp=8,
        imode="B",
        pvtype="INT",
        compression="vq",
    )
    array = block_array(image, to_json(codec), chunks, bands=1, fill=fill)
    return Stored(arrays=[array], pad=pad)


def vq_parts(
    book: Codebook, codes: npt.NDArray[np.uint64], stored: npt.NDArray[np.uint64], nbytes: int
) -> Parts:
    """Return the parts of chunks after the first table: the other tables, and the codes."""
    count = np.where(stored.reshape(-1) > 0, vq.KERNEL, 0)
    present = codes.reshape(-1)[stored.reshape(-1) > 0]
    rest = np.asarray(book.tables[1:], np.uint64)
    offsets = np.concatenate(
        [np.broadcast_to(rest, (len(present), len(rest))), present[:, None]], 1
    )
    lengths = np.full(offsets.shape, vq.TABLE_BYTES, np.uint64)
    lengths[:, -1] = nbytes
    return Parts(
        starts=np.r_[0, np.cumsum(count)].astype(np.uint64),
        offsets=offsets.reshape(-1).astype(np.uint64),
        lengths=lengths.reshape(-1),
    )


def vq_blocks(
    source: Source, image: Image, mask: Mask, locations: dict[int, int], start: int | None
) -> tuple[Offsets, int | None]:
    """Return the file offset of each block of codes, and the pad pixel if there is one."""
    grid = (image.blocks_down, image.blocks_across)
    nbytes = vq.code_bytes(image.block_height, image.block_width)
    at = locations.get(SUBFRAME_MASK)
    if at is not None and start is not None:
        # MIL-STD-2411 5.3: like the mask table of NITF, with offsets into the spatial data
        width, _, pad_bits = struct.unpack(">HHH", source.read(at, 6).tobytes())
        pad_bytes = -(-pad_bits // 8)
        code = source.read(at + 6, min(pad_bytes, 16)).tobytes()
        pad = int.from_bytes(code, "big") & 0xFF if pad_bits else None
        if width == 4:
            return whole_blocks(source, image, at + 6 + pad_bytes, start), pad
        return start + np.arange(math.prod(grid)).reshape(grid) * nbytes, pad
    if mask.table is not None:
        return whole_blocks(source, image, mask.table, mask.start), mask.pad
    begin = mask.start if start is None else start
    return begin + np.arange(math.prod(grid)).reshape(grid) * nbytes, mask.pad


def whole_blocks(source: Source, image: Image, at: int, start: int) -> Offsets:
    """Read a table of offsets, which must all be multiples of the length of a block."""
    grid = (image.blocks_down, image.blocks_across)
    nbytes = vq.code_bytes(image.block_height, image.block_width)
    # in some CADRG frames the table begins one byte late
    for shift in (0, 1):
        offsets = read_offsets(source, at + shift, grid, start)
        if not ((offsets[offsets >= 0] - start) % nbytes).any():
            return offsets
    raise FormatError(
        f"{image.where}: the block offsets at {at} are not multiples of {nbytes} bytes"
    )


def codebook(source: Source, image: Image, at: int | None) -> Codebook:
    """Return the look-up tables at `at`, or at the start of the image data."""
    begin = image.segment.offset if at is None else at
    head = source.read(begin, max(0, min(4096, source.size() - begin))).tobytes()
    # the location table of some CADRG frames is off by a few bytes
    found = head.find(SIGNATURE)
    if found < 0:
        raise FormatError(
            f"{image.where} @{begin}: found no look-up section within {len(head)} bytes, "
            f"expected {SIGNATURE.hex()}"
        )
    section = begin + found
    records = head[found + 6 : found + 6 + 14 * vq.KERNEL]
    if len(records) < 14 * vq.KERNEL:
        raise TruncatedError(
            f"{image.where} @{section}: the look-up section ends after {len(records)} bytes, "
            f"expected {14 * vq.KERNEL}"
        )
    starts = []
    for i in range(vq.KERNEL):
        _, count, values, bits, offset = struct.unpack(">HIHHI", records[14 * i : 14 * i + 14])
        if (count, values, bits) != (1 << vq.CODE_BITS, vq.KERNEL, 8):
            raise UnsupportedError(
                f"{image.where}: a look-up table of {count} x {values} values of {bits} bits is "
                f"not supported; supported: {1 << vq.CODE_BITS} x {vq.KERNEL} of 8 bits"
            )
        starts.append(section + offset)
    return Codebook(tuple(starts), max(starts) + vq.TABLE_BYTES)


def rpf_locations(records: bytes, where: str) -> dict[int, int]:
    """Return the location table of an RPFIMG TRE: offsets by section (MIL-STD-2411 5.1.2)."""
    try:
        _, table, count, width, _ = struct.unpack(">HIHHI", records[:14])
        if width != 10:
            raise FormatError(f"{where}: RPF location records have {width} bytes, expected 10")
        rows = [struct.unpack(">HII", records[table + 10 * i :][:10]) for i in range(count)]
    except struct.error as e:
        raise FormatError(
            f"{where}: the RPF location table is truncated after {len(records)} bytes"
        ) from e
    return {name: at for name, _, at in rows}


# IC C8, M8, CD and MD: a JPEG 2000 codestream, with tiles as blocks and resolutions as levels.
#
# Spec: BPJ2K01.20 (JPEG 2000 profiles for NITF), Joint BIIF Profile 5.4.3.2 for masks.


JP2 = b"\0\0\0\x0cjP  "


def jpeg2000_index(source: Source, image: Image) -> Stored:
    """Return the arrays of a C8, M8, CD or MD image."""
    mask = read_mask(source, image)
    start, end, is_announced = codestream_range(source, mask.start, image)
    stream = index_tiles(source, start, end - start, is_announced=is_announced)
    check(stream, image)
    arrays = level_arrays(stream, source.url, fill_value=mask.pad or 0)
    if mask.offsets is not None and (mask.offsets < 0).any():
        arrays = [masked(array, mask, image) for array in arrays]
    arrays = [divided(array) for array in arrays]
    return Stored(arrays=arrays, pad=mask.pad, codestream=stream.header)


def codestream_range(source: Source, start: int, image: Image) -> tuple[int, int, bool]:
    """Return begin and end of the codestream, and whether the file states that end.

    The codestream is the image data, or a box of a JP2 file in it.
    """
    end = min(image.segment.end, source.size())
    is_whole = end == image.segment.end
    head = source.read(start, max(0, min(12, end - start))).tobytes()
    if head.startswith(CODESTREAM_MAGIC):
        return start, end, is_whole
    at = start
    # the profile requires a bare codestream; some writers embed a whole JP2 file
    while head.startswith(JP2) and at + 16 <= end:
        box = source.read(at, 16).tobytes()
        length = int.from_bytes(box[:4], "big")
        skip = 16 if length == 1 else 8
        if length == 1:
            length = int.from_bytes(box[8:16], "big")
        elif length == 0:
            length = end - at
        if box[4:8] == b"jp2c":
            return at + skip, min(at + length, end), is_whole and at + length <= end
        if length < 8:
            break
        at += length
    raise FormatError(
        f"{image.where}: the image data begins with {head[:4]!r}, expected a JPEG 2000 codestream"
    )


def check(stream: Codestream, image: Image) -> None:
    """Check the size of the codestream against the subheader."""
    siz = stream.header.siz
    x, y = siz.subsampling
    size = siz.image.scaled(x, y)
    found = (len(siz.components), size.height, size.width)
    if found != image.shape:
        raise FormatError(
            f"{image.where}: the codestream has {found[0]} bands of {found[1]} x {found[2]}, "
            f"expected {image.bands} of {image.rows} x {image.columns}"
        )


def masked(level: ArrayIndex, mask: Mask, image: Image) -> ArrayIndex:
    """Mark the chunks of blocks that the mask table omits as absent, if chunks are blocks."""
    chunks = level.chunks
    down, across = image.blocks
    if not isinstance(chunks, ByteRanges) or level.grid[-2:] != (down, across):
        return level
    assert mask.offsets is not None
    is_absent = (mask.offsets.reshape(-1, image.blocks_down, image.blocks_across) < 0).all(axis=0)
    lengths = np.where(is_absent[:down, :across], np.uint64(0), chunks.lengths)
    return replace(level, chunks=replace(chunks, lengths=lengths.astype(np.uint64)))


# IC C1 and M1: bi-level pixels with facsimile compression (ITU-T T.4).


def bilevel_index(source: Source, image: Image) -> Stored:
    """Return the array of a C1 or M1 image."""
    mode = str(image.segment.values.get("COMRAT", "")).strip().upper()
    if image.nbpp != 1 or image.bands != 1:
        raise FormatError(
            f"{image.where}: {image.bands} bands of {image.nbpp} bits with IC {image.ic}, "
            "expected 1 band of 1 bit"
        )
    if mode[:2] not in ("1D", "2D"):
        raise FormatError(f"{image.where}: COMRAT is {mode!r}, expected 1D, 2DS or 2DH")
    mask = read_mask(source, image)
    if mask.offsets is None and image.blocks_down * image.blocks_across != 1:
        # nothing states where a block ends, and facsimile data cannot be scanned for it
        raise UnsupportedError(
            f"{image.where}: IC C1 with {image.blocks_down} x {image.blocks_across} blocks is not "
            "supported without a mask; supported: C1 in one block, M1"
        )
    offsets = np.full((1, 1), mask.start, np.int64) if mask.offsets is None else mask.offsets
    check_inside(image, offsets)
    starts, lengths = ranges(offsets, image.segment.end)
    codec = JbpBlock(
        num_bands=1,
        block_height=image.block_height,
        block_width=image.block_width,
        nbpp=1,
        imode="B",
        pvtype="B",
        compression="fax-1d" if mode.startswith("1D") else "fax-2d",
    )
    chunks = ByteRanges(
        offsets=cropped(starts, image), lengths=cropped(lengths, image), urls=(source.url,)
    )
    array = block_array(image, to_json(codec), chunks, bands=1, fill=mask.fill(image))
    return Stored(arrays=[array], pad=mask.pad)


def jpeg_index(source: Source, image: Image) -> Stored:
    """Return the array of a C3, M3, C5, M5 or I1 image."""
    mask = read_mask(source, image)
    first = first_stream(source, image, mask)
    # a stream holds all bands interleaved, or a single band
    per_stream = 1
    if first is not None:
        image, per_stream = with_frame(image, first), first.bands
    if per_stream not in (1, image.bands):
        raise FormatError(
            f"{image.where}: a JPEG stream has {per_stream} bands, expected 1 or {image.bands}"
        )
    streams = image.bands // per_stream
    if mask.offsets is not None and image.has_bands_apart and streams == 1:
        raise FormatError(
            f"{image.where}: a JPEG stream has {per_stream} bands, expected 1: IMODE is S, and the "
            "mask lists the bands separately"
        )
    if mask.offsets is not None:
        offsets = mask.offsets
        if streams > 1 and not image.has_bands_apart:
            # one entry per block, with the streams of its bands in sequence: the codec splits them
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
    fill = mask.fill(image)
    array = block_array(image, to_json(codec), chunks, bands=per_stream, fill=fill)
    # a lossless stream (C5) has no colour transform
    is_rgb = first is not None and first.bands == 3 and image.ic not in ("C5", "M5")
    return Stored(arrays=[array], pad=mask.pad, is_rgb=is_rgb)


def first_stream(source: Source, image: Image, mask: Mask) -> Stream | None:
    """Return the markers of the first stored stream, up to its data; None if none is stored."""
    segment = image.segment
    start = mask.start
    if mask.offsets is not None:
        stored = mask.offsets[mask.offsets >= 0]
        if not len(stored):
            return None
        check_inside(image, mask.offsets)
        start = int(stored.min())
    length = min(segment.end, source.size()) - start
    # usually a few hundred bytes, but comments may be long
    data = source.read(start, max(0, min(length, limits.MIB)))
    try:
        return head(data)
    except AnychunkError as e:
        raise type(e)(f"{image.where}: {e}") from e


def with_frame(image: Image, stream: Stream) -> Image:
    """Check the frame of a stream against the image; return the image with the frame's size.

    Sizes may differ only in images of a single block.
    """
    depth = stream.frame.depth
    if image.pvtype not in ("INT", "SI") or image.nbpp > 16 or image.nbpp <= 8 < depth:
        raise FormatError(
            f"{image.where}: JPEG samples of {depth} bits do not fit PVTYPE {image.pvtype} with "
            f"NBPP {image.nbpp}"
        )
    if depth <= 8 < image.nbpp:
        image = replace(image, nbpp=8, abpp=min(image.abpp, 8))
    height, width = stream.frame.height, stream.frame.width
    if (height, width) == (image.block_height, image.block_width):
        return image
    is_single = image.blocks_down == image.blocks_across == 1
    if is_single and image.ic == "I1":
        # NGA N0106-97: the stored image is a down-sampled version of the one described
        return replace(image, rows=height, columns=width, block_height=height, block_width=width)
    if is_single and height >= image.rows and width >= image.columns:
        return replace(image, block_height=height, block_width=width)
    raise FormatError(
        f"{image.where}: a JPEG frame of {height} x {width}, expected "
        f"{image.block_height} x {image.block_width}"
    )


def found_streams(source: Source, image: Image, start: int, streams: int) -> Offsets:
    """Return the offsets of all streams: per block, and per band if bands are separate."""
    blocks = (image.blocks_down, image.blocks_across)
    count = math.prod(blocks) * streams
    if count == 1:
        return np.asarray([start], np.int64).reshape(blocks)
    end = min(image.segment.end, source.size())
    starts = start_markers(source, start, end)
    if len(starts) != count:
        raise FormatError(f"{image.where}: found {len(starts)} JPEG streams, expected {count}")
    if streams == 1:
        return starts.reshape(blocks)
    if image.imode == "S":
        return starts.reshape(streams, *blocks)
    return np.ascontiguousarray(starts.reshape(*blocks, streams).transpose(2, 0, 1))


def start_markers(source: Source, start: int, end: int, piece: int = 4 * limits.MIB) -> Offsets:
    """Return the offset of every JPEG stream in a range that contains only streams.

    Entropy-coded data cannot contain a start marker (0xFF is followed by 0), but a comment or a
    thumbnail can; so only start markers that follow an end marker count.

    Parameters:
        source: the file.
        start, end: the byte range.
        piece: number of bytes to read at a time.
    """
    found: list[Offsets] = []
    at = start
    while at < end:
        # a few bytes more, for a marker that continues in the next piece
        data = source.read(at, min(piece + 8, end - at))
        marks = np.flatnonzero(data[:-2] == 0xFF)
        is_start = (data[marks + 1] == 0xD8) & (data[marks + 2] == 0xFF)
        hits = marks[is_start & (marks < piece)]
        found.append(hits + at)
        at += piece
    starts = np.concatenate(found) if found else np.empty(0, np.int64)
    return starts[follows_end_marker(source, starts, start)]


def follows_end_marker(source: Source, starts: Offsets, first: int) -> npt.NDArray[np.bool_]:
    """Return which of `starts` follow an end marker and padding, or begin at `first`.

    Fill bytes of 0xFF may precede any marker (T.81 B.1.1.2), also the very first.
    """
    keep = np.zeros(len(starts), bool)
    for i, at in enumerate(starts.tolist()):
        back = min(64 if i else 4096, at - first)
        before = source.read(at - back, back).tobytes()
        is_first = at - back == first and not before.strip(b"\xff")
        keep[i] = is_first or before.rstrip(b"\0\xff ").endswith(b"\xff\xd9")
    return keep
