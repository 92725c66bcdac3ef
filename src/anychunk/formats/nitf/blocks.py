"""Blocks of compressed images: where each is stored, and the array that they make."""

import numpy as np
import numpy.typing as npt

from anychunk.errors import FormatError
from anychunk.formats.nitf.image import Image, fill_json
from anychunk.model.index import ArrayIndex, ByteRanges, Json

type Offsets = npt.NDArray[np.int64]

DIMENSIONS = ("band", "y", "x")
LITTLE: Json = {"name": "bytes", "configuration": {"endian": "little"}}


def block_array(
    image: Image, codec: Json, chunks: ByteRanges, *, bands: int, fill: int
) -> ArrayIndex:
    """Give an array whose chunks are blocks, or `bands` bands of them."""
    return ArrayIndex(
        shape=image.shape,
        chunk_shape=(bands, image.block_height, image.block_width),
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
