"""NC and NM: blocks of plain samples, described by standard Zarr codecs wherever those can.

A block is one chunk. Where that would be large it is cut into groups of rows, which needs no other
codec: the samples are just bytes. A band of a block that is stored apart from the others (IMODE B
and S) is a chunk of its own, unless it is small.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.jbp_block import ALIGNED, ORDERS, JbpBlock, plane_bytes
from anychunk.errors import TruncatedError
from anychunk.formats import _raw
from anychunk.formats.nitf.image import Image, fill_json
from anychunk.formats.nitf.mask import Mask, block_grid, read_mask
from anychunk.io import Source
from anychunk.model.index import ArrayIndex, ByteRanges, Json

CHUNK_BYTES = 4 * limits.MIB
"""Blocks larger than this are cut into groups of rows."""
MOST_ROWS = 1 << 16
"""Of a chunk, so that a very narrow image does not make for a long search."""
BAND_BYTES = 256 * limits.KIB
"""Bands from this size on, stored apart, are chunks of their own."""
DIMENSIONS = ("band", "y", "x")

type Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """How chunks lie in stored blocks."""

    bands: int
    """Bands of a chunk."""
    rows: int
    """Rows of a chunk."""
    tail: int
    """Rows of the last chunk of a block, where those of the others do not divide it; else 0."""

    def groups(self, height: int) -> int:
        return -(-height // self.rows)


def array_index(source: Source, image: Image) -> ArrayIndex:
    """Index an uncompressed image."""
    if image.bands == 1:
        # one band is stored alike in every mode
        image = replace(image, imode="B")
    mask = read_mask(source, image)
    cut = plan(image)
    offsets = block_offsets(image, mask)
    check_extent(image, offsets, source.size())
    chunk_shape = (cut.bands, cut.rows, image.block_width)
    return ArrayIndex(
        shape=image.shape,
        chunk_shape=chunk_shape,
        data_type=image.dtype.name,
        codecs=codecs(image, cut),
        chunks=byte_ranges(source.url, image, cut, offsets),
        fill_value=fill_json(image.dtype, mask.fill(image)),
        dimension_names=DIMENSIONS,
    )


def is_plain(image: Image) -> bool:
    """Whether samples are whole bytes whose every bit counts."""
    if image.nbpp not in ALIGNED:
        return False
    if image.abpp == image.nbpp or image.dtype.kind not in "ui":
        return True
    return image.pjust == "R" and image.dtype.kind == "u"


def stored_bands(image: Image) -> int:
    """How many bands one stored block holds."""
    return 1 if image.has_bands_apart else image.bands


def block_bytes(image: Image) -> int:
    """How many bytes one stored block takes."""
    pixels = image.block_height * image.block_width
    if image.imode in ("B", "S"):
        return stored_bands(image) * plane_bytes(pixels, image.nbpp)
    return plane_bytes(pixels * image.bands, image.nbpp)


def plan(image: Image) -> Cut:
    """Choose how blocks are cut into chunks."""
    is_apart = image.imode in ("B", "S")
    plane = plane_bytes(image.block_height * image.block_width, image.nbpp)
    bands = image.bands
    if image.has_bands_apart or (is_apart and plane >= BAND_BYTES):
        bands = 1
    row = image.block_width * image.nbpp * bands / 8
    rows = min(max(1, int(CHUNK_BYTES // row)), MOST_ROWS)
    height = image.block_height
    if rows >= height or (is_apart and bands != 1):
        return Cut(bands, height, 0)
    even = _raw.even_divisor(height, rows, lambda n: is_whole(image, n, bands))
    if not even and image.blocks_down == 1 and is_plain(image):
        return Cut(bands, rows, height % rows)
    if not even:
        even = next((n for n in range(rows // 4, 0, -1) if height % n == 0), height)
        even = even if even * row >= BAND_BYTES and is_whole(image, even, bands) else height
    return Cut(bands, even, 0)


def is_whole(image: Image, rows: int, bands: int) -> bool:
    """Whether a group of rows ends with a whole byte."""
    return rows * image.block_width * image.nbpp * bands % 8 == 0


def block_offsets(image: Image, mask: Mask) -> Offsets:
    """Give where each block begins; -1: not stored."""
    if mask.offsets is not None:
        return mask.offsets
    grid = block_grid(image)
    count = math.prod(grid)
    return (mask.start + np.arange(count, dtype=np.int64) * block_bytes(image)).reshape(grid)


def check_extent(image: Image, offsets: Offsets, size: int) -> None:
    """Refuse blocks that lie outside the image data: their bytes are something else.

    Data that ends too early together with the file is left to the chunks that lack it, so that the
    others open.
    """
    segment = image.segment
    # LI is too small in some files; behind the last segment nothing else can be meant
    end = max(segment.end, size) if segment.is_last else segment.end
    last = int(offsets.max(initial=-1))
    needed = last + block_bytes(image)
    if last >= 0 and needed > end:
        raise TruncatedError(
            f"{image.where}: blocks of {block_bytes(image)} bytes reach to {needed}, "
            f"the image data ends at {end}"
        )


def codecs(image: Image, cut: Cut) -> tuple[Json, ...]:
    """Give the codecs of a chunk, as JSON."""
    if not is_plain(image):
        block = JbpBlock(
            num_bands=cut.bands,
            block_height=cut.rows,
            block_width=image.block_width,
            nbpp=image.nbpp,
            imode=image.imode,  # type: ignore[arg-type]
            pvtype=image.pvtype,
            abpp=None if image.abpp == image.nbpp else image.abpp,
            pjust=image.pjust,  # type: ignore[arg-type]
        )
        return ({"name": "bytes", "configuration": {"endian": "little"}}, block.to_dict())
    plain: tuple[Json, ...] = ({"name": "bytes", "configuration": {"endian": "big"}},)
    order = ORDERS[image.imode]
    if order != (0, 1, 2) and cut.bands > 1:
        plain = ({"name": "transpose", "configuration": {"order": list(order)}}, *plain)
    if cut.tail:
        # `transpose` stands before the codec that makes bytes, so it goes around the window
        return (*plain[:-1], _raw.window_codec(plain[-1:]))
    return plain


def byte_ranges(url: str, image: Image, cut: Cut, blocks: Offsets) -> ByteRanges:
    """Give where every chunk is."""
    down, across = image.blocks
    groups = cut.groups(image.block_height)
    stored = stored_bands(image)
    apart = stored // cut.bands
    row = image.block_width * image.nbpp
    group_bytes = plane_bytes(cut.rows * image.block_width * cut.bands, image.nbpp)
    if groups == 1:
        group_bytes = block_bytes(image) // apart
    plane = block_bytes(image) // apart
    tail_bytes = cut.tail * row * cut.bands // 8
    # axes: band of the file, block down, block across
    table = blocks.reshape(-1, image.blocks_down, image.blocks_across)[:, :down, :across]
    table = table[:, None, :, None, :]
    within = np.arange(apart)[:, None] * plane + np.arange(groups)[None, :] * group_bytes
    offsets = np.where(table < 0, -1, table + within[None, :, None, :, None])
    lengths = np.full(offsets.shape, group_bytes, np.uint64)
    if cut.tail:
        lengths[:, :, :, -1, :] = tail_bytes
    lengths[offsets < 0] = 0
    shape = (image.bands // cut.bands, down * groups, across)
    # the last block may be cut off by the image's lower edge
    grid = (shape[0], -(-image.rows // cut.rows), across)
    offsets = np.where(offsets < 0, 0, offsets).astype(np.uint64).reshape(shape)[:, : grid[1]]
    lengths = lengths.reshape(shape)[:, : grid[1]]
    extra: dict[str, Any] = {}
    if cut.tail:
        extra = fronts(image, cut, np.ascontiguousarray(lengths), tail_bytes)
    return ByteRanges(
        offsets=np.ascontiguousarray(offsets),
        lengths=np.ascontiguousarray(lengths),
        urls=(url,),
        **extra,
    )


def fronts(
    image: Image, cut: Cut, lengths: npt.NDArray[np.uint64], tail_bytes: int
) -> dict[str, Any]:
    """Tell the window codec how many rows a chunk has."""
    order = ORDERS[image.imode] if cut.bands > 1 else (0, 1, 2)
    full = (cut.bands, cut.rows, image.block_width)
    short = (cut.bands, cut.tail, image.block_width)
    is_short = lengths == tail_bytes
    return _raw.short_fronts(
        tuple(full[axis] for axis in order), tuple(short[axis] for axis in order), is_short
    )
