"""C3, M3, C5, M5 and I1: a JPEG stream a block, or a block and a band.

Blocks have no table of lengths, unless they are masked. Streams are told apart by their markers,
which for an image of many blocks means to look through all of its data once.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.jpeg import Jpeg
from anychunk.codestream.jpeg_scan import Stream, head
from anychunk.errors import AnychunkError, FormatError
from anychunk.formats.nitf.blocks import Offsets, block_array, check_inside, cropped, ranges
from anychunk.formats.nitf.image import Image
from anychunk.formats.nitf.mask import Mask, block_grid, read_mask
from anychunk.io import Source
from anychunk.model.index import ArrayIndex, ByteRanges


def jpeg_index(source: Source, image: Image) -> ArrayIndex:
    """Index C3, M3, C5, M5 and I1."""
    mask = read_mask(source, image)
    first = first_stream(source, image, mask)
    # bands that share a stream are interleaved in it; others have a stream each
    per_stream = 1
    if first is not None:
        image, per_stream = framed(image, first), first.bands
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
    return block_array(image, codec.to_dict(), chunks, bands=per_stream, fill=mask.fill(image))


def first_stream(source: Source, image: Image, mask: Mask) -> Stream | None:
    """Read the markers of the first stream that is stored, up to its data; None: none is."""
    segment = image.segment
    start = mask.start
    if mask.offsets is not None:
        stored = mask.offsets[mask.offsets >= 0]
        if not len(stored):
            return None
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
    if image.pvtype not in ("INT", "SI") or image.nbpp > 16 or image.nbpp <= 8 < depth:
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
        return np.asarray([start], np.int64).reshape(block_grid(image))
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
