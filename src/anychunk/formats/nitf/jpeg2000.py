"""IC C8, M8, CD and MD: a JPEG 2000 codestream, with tiles as blocks and resolutions as levels.

Spec: BPJ2K01.20 (JPEG 2000 profiles for NITF), Joint BIIF Profile 5.4.3.2 for masks.
"""

from dataclasses import replace

import numpy as np

from anychunk.codestream.tiles import Codestream, index_tiles
from anychunk.errors import FormatError
from anychunk.formats._jpeg2000 import CODESTREAM_MAGIC, level_arrays
from anychunk.formats._jpeg2000_windows import divided
from anychunk.formats.nitf.blocks import Mask, Stored, read_mask
from anychunk.formats.nitf.image_segment import Image
from anychunk.io.source import Source
from anychunk.model.index import ArrayIndex, ByteRanges

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
