"""IC C3, M3, C5, M5 and I1: one JPEG stream per block, or per block and band.

Only a mask table states where blocks begin. Without one, the streams of an image are
found by their markers, which takes one pass over all of its data.
"""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs import to_json
from anychunk.codecs.jpeg import Jpeg
from anychunk.codestream.jpeg_scan import Stream, head
from anychunk.errors import AnychunkError, FormatError
from anychunk.formats.nitf.blocks import (
    Mask,
    Offsets,
    Stored,
    block_array,
    check_inside,
    cropped,
    ranges,
    read_mask,
)
from anychunk.formats.nitf.image_segment import Image
from anychunk.io.source import Source
from anychunk.model.index import ByteRanges


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
