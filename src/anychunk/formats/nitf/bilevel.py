"""C1 and M1: black and white pixels as facsimile codes."""

import numpy as np

from anychunk.codecs.nitf_bilevel import NitfBilevel
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats.nitf.blocks import block_array, check_inside, cropped, ranges
from anychunk.formats.nitf.image import Image
from anychunk.formats.nitf.mask import read_mask
from anychunk.io import Source
from anychunk.model.index import ArrayIndex, ByteRanges


def bilevel_index(source: Source, image: Image) -> ArrayIndex:
    """Index C1 and M1."""
    mode = str(image.segment.values.get("COMRAT", "")).strip().upper()
    if image.nbpp != 1 or image.bands != 1:
        raise FormatError(
            f"{image.where}: {image.bands} bands of {image.nbpp} bits for IC {image.ic}, "
            "expected 1 band of 1 bit"
        )
    if mode[:2] not in ("1D", "2D"):
        raise FormatError(f"{image.where}: COMRAT is {mode!r}, expected 1D, 2DS or 2DH")
    mask = read_mask(source, image)
    if mask.offsets is None and image.blocks_down * image.blocks_across != 1:
        raise UnsupportedError(
            f"{image.where}: IC C1 in several blocks without a mask is not opened; "
            "opened: C1 in one block, M1"
        )
    offsets = np.full((1, 1), mask.start, np.int64) if mask.offsets is None else mask.offsets
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
    return block_array(image, codec.to_dict(), chunks, bands=1, fill=mask.fill(image))
