"""IC C4 and M4: vector quantization, as in CADRG and CIB frames.

Spec: MIL-STD-188-199 (the header of vector-quantized data), MIL-STD-2411 (RPF frames).
"""

import math
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychunk.codecs import to_json, vq
from anychunk.codecs.jbp_block import JbpBlock
from anychunk.errors import FormatError, TruncatedError, UnsupportedError
from anychunk.formats.nitf.blocks import (
    Mask,
    Offsets,
    Stored,
    block_array,
    cropped,
    read_mask,
    read_offsets,
    transparent_entry,
)
from anychunk.formats.nitf.image_segment import Image
from anychunk.io.source import Source
from anychunk.model.index import ByteRanges, Parts

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
