"""IC C1 and M1: bi-level pixels with facsimile compression (ITU-T T.4)."""

import numpy as np

from anychunk.codecs import to_json
from anychunk.codecs.jbp_block import JbpBlock
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats.nitf.blocks import (
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
