"""IC NC and NM: uncompressed blocks, described by standard Zarr codecs where possible.

A block is one chunk, with two exceptions. Large blocks are divided into groups of rows, which needs
no further codec because samples are not compressed. Bands that are stored separately within a block
(IMODE B and S) are separate chunks unless they are small.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs import to_json
from anychunk.codecs.jbp_block import (
    ALIGNED,
    ORDERS,
    JbpBlock,
    plane_bytes,
    sign_extended,
    unpack,
    uses_high_bits,
)
from anychunk.errors import FormatError, TruncatedError
from anychunk.formats import _raw
from anychunk.formats.nitf.blocks import (
    DIMENSIONS,
    Image,
    Mask,
    Offsets,
    Stored,
    block_grid,
    read_mask,
)
from anychunk.io.source import Source
from anychunk.metadata.geo_keys import fill_value_json
from anychunk.model.index import ArrayIndex, ByteRanges, Json, Parts

CHUNK_BYTES = 4 * limits.MIB
"""Larger blocks are divided into groups of rows."""
MAX_ROWS = 1 << 16
"""Maximum number of rows per chunk; bounds the search for a divisor in very narrow images."""
LOOKS = 16
"""Pieces of samples that are looked at for bits that should be zero."""
REMOTE_LOOKS = 2
"""The same for remote files, where each costs a request."""
LOOK_SAMPLES = 1 << 13
"""Samples per piece."""
BAND_BYTES = 256 * limits.KIB
"""Minimum size at which bands that are stored separately become separate chunks."""


@dataclass(frozen=True)
class Cut:
    """How stored blocks are divided into chunks."""

    bands: int
    """Bands per chunk."""
    rows: int
    """Rows per chunk."""
    tail: int
    """Rows of the last chunk of a block, if `rows` does not divide its height; otherwise 0."""

    def groups(self, height: int) -> int:
        """Return the number of chunks along a block of `height` rows."""
        return -(-height // self.rows)


@dataclass(frozen=True)
class Options:
    """What the caller decides about samples."""

    justify: bool | None = None
    """Whether left-justified samples are shifted to the low end, and signed ones extended. None:
    unless the bits that ABPP calls not significant are in use, as far as a look at the samples
    shows."""
    complex_pairs: bool = True
    """Whether pairs of I and Q bands are one complex band."""


def uncompressed_index(source: Source, image: Image, options: Options) -> Stored:
    """Return the array of an NC or NM image."""
    has_pairs = options.complex_pairs and has_complex_pairs(image)
    if has_pairs and (image.pvtype, image.nbpp, image.imode) == ("R", 32, "P"):
        # I and Q lie side by side: this is how complex samples are stored, too
        image = replace(image, bands=image.bands // 2, pvtype="C", nbpp=64, abpp=64)
        has_pairs = False
    if image.bands == 1:
        # with one band all modes are the same
        image = replace(image, imode="B")
    mask = read_mask(source, image)
    offsets = block_offsets(image, mask)
    check_extent(image, offsets, source.size())
    if has_other_bits(image):
        is_shifted = options.justify
        if is_shifted is None:
            is_shifted = not uses_other_bits(source, image, offsets)
        if not is_shifted:
            image = replace(image, abpp=image.nbpp)
            mask = read_mask(source, image)  # the pad pixel is justified like other samples
    if has_pairs:
        return Stored(arrays=[pairs_index(source.url, image, offsets)])
    return Stored(arrays=[blocks_array(source.url, image, mask, offsets)], pad=mask.pad)


def blocks_array(url: str, image: Image, mask: Mask, offsets: Offsets) -> ArrayIndex:
    """Return the array of an image whose blocks are at `offsets`."""
    cut = plan(image, can_shorten=is_plain(image))
    return ArrayIndex(
        shape=image.shape,
        chunk_shape=(cut.bands, cut.rows, image.block_width),
        data_type=image.dtype.name,
        codecs=codecs(image, cut),
        chunks=byte_ranges(url, image, cut, offsets),
        fill_value=fill_value_json(mask.fill(image), image.dtype),
        dimension_names=DIMENSIONS,
    )


def has_complex_pairs(image: Image) -> bool:
    """Return whether bands are pairs of real and imaginary parts: I, Q, I, Q …

    So are those of SICD with pixels of type RE32F_IM32F and RE16I_IM16I (NGA.STND.0024-2); those of
    AMP8I_PHS8I, with ISUBCAT M and P, are amplitude and phase. The rule is that of GDAL.
    """
    subcategories = [str(band["ISUBCAT"]).strip() for band in image.segment.values["BANDS"]]
    return (
        str(image.segment.values["ICAT"]).upper().startswith("SAR")
        and not image.is_masked
        and image.bands % 2 == 0
        and subcategories == ["I", "Q"] * (image.bands // 2)
        and (image.pvtype, image.nbpp) in (("SI", 16), ("SI", 32), ("R", 32), ("R", 64))
    )


def pairs_index(url: str, image: Image, offsets: Offsets) -> ArrayIndex:
    """Return the array of an image whose bands are pairs of real and imaginary parts."""
    cut = plan(image, can_shorten=False)
    chunks = byte_ranges(url, image, cut, offsets)
    if cut.bands == 1:
        # I and Q are stored apart, but belong to one chunk
        chunks, cut = paired(chunks), replace(cut, bands=2)
        image = replace(image, imode="B")
    codec = block_codec(image, cut, complex_pairs=True)
    return ArrayIndex(
        shape=(image.bands // 2, image.rows, image.columns),
        chunk_shape=codec.shape,
        data_type=codec.dtype.name,
        codecs=({"name": "bytes", "configuration": {"endian": "little"}}, to_json(codec)),
        chunks=chunks,
        fill_value=fill_value_json(0, codec.dtype),
        dimension_names=DIMENSIONS,
    )


def paired(chunks: ByteRanges) -> ByteRanges:
    """Return the byte ranges of chunks that consist of two successive bands each."""
    first, second = chunks.offsets[0::2], chunks.offsets[1::2]
    return replace(
        chunks,
        offsets=np.ascontiguousarray(first),
        lengths=np.ascontiguousarray(chunks.lengths[0::2]),
        parts=Parts(
            starts=np.arange(first.size + 1, dtype=np.uint64),
            offsets=second.reshape(-1),
            lengths=chunks.lengths[1::2].reshape(-1),
        ),
    )


def has_other_bits(image: Image) -> bool:
    """Return whether samples have bits that are not significant, and that reading changes.

    Those of right-justified unsigned samples are zero, or part of the number.
    """
    is_changed = image.pjust == "L" or image.dtype.kind == "i"
    return is_changed and image.abpp < image.nbpp and image.dtype.kind in "ui"


def uses_other_bits(source: Source, image: Image, offsets: Offsets) -> bool:
    """Return whether bits that are not significant are in use all the same.

    JBP table A-3 requires zeros there. Some writers copy ABPP and PJUST from elsewhere; shifting
    or extending their samples would lose bits. This looks at `LOOKS` evenly distributed pieces, and
    the codec raises if another one has such bits.
    """
    planes = stored_bands(image) if image.imode in ("B", "S") else 1
    plane = block_bytes(image) // planes
    stored = np.unique(offsets[offsets >= 0])[:, None] + np.arange(planes) * plane
    pixels = image.block_height * image.block_width * stored_bands(image) // planes
    per_plane = -(-pixels // LOOK_SAMPLES)
    total = stored.size * per_plane
    looks = LOOKS if source.is_local else REMOTE_LOOKS
    for number in np.unique(np.linspace(0, total - 1, looks, dtype=np.int64)) if total else ():
        at, piece = divmod(int(number), per_plane)
        # eight samples take `nbpp` bytes, so every piece begins with a whole byte
        start = int(stored.flat[at]) + piece * (LOOK_SAMPLES // 8 * image.nbpp)
        count = min(LOOK_SAMPLES, pixels - piece * LOOK_SAMPLES)
        length = plane_bytes(count, image.nbpp)
        # a truncated file is an error when the chunk is read
        if start + length <= source.size() and are_bits_used(
            source.read(start, length), count, image
        ):
            return True
    return False


def are_bits_used(data: npt.NDArray[np.uint8], count: int, image: Image) -> bool:
    """Return whether samples use bits that ABPP calls not significant."""
    if image.pjust == "L":
        low = unpack(data, count, image.nbpp, np.dtype(f"u{image.dtype.itemsize}"))
        return bool((low & ((1 << image.nbpp - image.abpp) - 1)).any())
    samples = unpack(data, count, image.nbpp, image.dtype).astype(image.dtype)
    unsigned = samples.view(f"u{image.dtype.itemsize}")
    extended = sign_extended(unsigned, image.abpp, image.dtype)
    return uses_high_bits(samples, extended, image.nbpp, image.abpp)


def is_plain(image: Image) -> bool:
    """Return whether samples are whole bytes of significant bits, so that `bytes` decodes them."""
    if image.nbpp not in ALIGNED:
        return False
    if image.abpp == image.nbpp or image.dtype.kind not in "ui":
        return True
    # the unused bits of right-justified unsigned samples are zero; signed ones need extension
    return image.pjust == "R" and image.dtype.kind == "u"


def stored_bands(image: Image) -> int:
    """Return the number of bands per stored block."""
    return 1 if image.has_bands_apart else image.bands


def block_bytes(image: Image) -> int:
    """Return the length of a stored block."""
    pixels = image.block_height * image.block_width
    if image.imode in ("B", "S"):
        return stored_bands(image) * plane_bytes(pixels, image.nbpp)
    return plane_bytes(pixels * image.bands, image.nbpp)


def plan(image: Image, *, can_shorten: bool) -> Cut:
    """Choose how blocks are divided into chunks.

    Prefers a group of rows that divides the block's height and is not much smaller than
    `CHUNK_BYTES`. If there is none, the last chunk of a single row of blocks may be shorter; other
    images get smaller chunks, or whole blocks if those would be tiny.
    """
    is_apart = image.imode in ("B", "S")
    plane = plane_bytes(image.block_height * image.block_width, image.nbpp)
    bands = image.bands
    # one band per chunk, so that reading one band does not read the others
    if image.has_bands_apart or (is_apart and plane >= BAND_BYTES):
        bands = 1
    row = image.block_width * image.nbpp * bands / 8
    rows = min(max(1, int(CHUNK_BYTES // row)), MAX_ROWS)
    height = image.block_height
    # rows of several bands that are stored apart are not contiguous
    if rows >= height or (is_apart and bands != 1):
        return Cut(bands, height, 0)
    even = _raw.even_divisor(height, rows, lambda n: is_whole(image, n, bands))
    if not even and image.blocks_down == 1 and can_shorten:
        return Cut(bands, rows, height % rows)
    if not even:
        even = next((n for n in range(rows // 4, 0, -1) if height % n == 0), height)
        even = even if even * row >= BAND_BYTES and is_whole(image, even, bands) else height
    return Cut(bands, even, 0)


def is_whole(image: Image, rows: int, bands: int) -> bool:
    """Return whether a group of rows ends on a byte boundary."""
    return rows * image.block_width * image.nbpp * bands % 8 == 0


def block_offsets(image: Image, mask: Mask) -> Offsets:
    """Return the file offset of each block."""
    if mask.offsets is not None:
        return mask.offsets
    grid = block_grid(image)
    count = math.prod(grid)
    return (mask.start + np.arange(count, dtype=np.int64) * block_bytes(image)).reshape(grid)


LISTED = (1, 8, 12, 16, 32, 64)
"""NBPP of uncompressed images (MIL-STD-2500C table A-3); others are found in real files, too."""


def check_extent(image: Image, offsets: Offsets, size: int) -> None:
    """Raise `TruncatedError` if a block extends beyond the image data, into another segment.

    If the file itself is truncated, only reading the missing chunks is an error.
    """
    segment = image.segment
    # LI is too small in some files; after the last segment there is nothing else
    end = max(segment.end, size) if segment.is_last else segment.end
    last = int(offsets.max(initial=-1))
    needed = last + block_bytes(image)
    if last >= 0 and needed > end:
        raise TruncatedError(
            f"{image.where}: blocks of {block_bytes(image)} bytes extend to {needed}, "
            f"the image data ends at {end}"
        )
    if last < 0:
        return
    abpp = segment.values["ABPP"]
    is_larger = isinstance(abpp, int) and abpp > image.nbpp
    # either may be wrong; where the length confirms NBPP alone, it is ABPP
    fits_both = is_larger and block_bytes(replace(image, nbpp=abpp)) == block_bytes(image)
    if is_larger and (needed < segment.end or fits_both):
        why = "fits both" if fits_both else f"expected {needed - segment.offset} for NBPP"
        raise FormatError(
            f"{image.where}: ABPP is {abpp} and NBPP {image.nbpp}, expected NBPP of at least ABPP; "
            f"the length of the image data does not decide it: {segment.length} bytes, {why}"
        )
    if image.nbpp not in LISTED and needed != segment.end:
        raise FormatError(
            f"{image.where}: NBPP is {image.nbpp}, which the standard does not list, and the "
            f"length of the image data does not confirm it: {segment.length} bytes, expected "
            f"{needed - segment.offset}"
        )


def codecs(image: Image, cut: Cut) -> tuple[Json, ...]:
    """Return the codecs of a chunk as JSON."""
    if not is_plain(image):
        block = block_codec(image, cut)
        return ({"name": "bytes", "configuration": {"endian": "little"}}, to_json(block))
    plain: tuple[Json, ...] = ({"name": "bytes", "configuration": {"endian": "big"}},)
    order = ORDERS[image.imode]
    if order != (0, 1, 2) and cut.bands > 1:
        plain = ({"name": "transpose", "configuration": {"order": list(order)}}, *plain)
    if cut.tail:
        # `transpose` applies to arrays, so it stays outside of the codec that makes bytes
        return (*plain[:-1], _raw.window_codec(plain[-1:]))
    return plain


def block_codec(image: Image, cut: Cut, *, complex_pairs: bool = False) -> JbpBlock:
    """Return the codec of a chunk that standard codecs cannot decode."""
    return JbpBlock(
        num_bands=cut.bands,
        block_height=cut.rows,
        block_width=image.block_width,
        nbpp=image.nbpp,
        imode=image.imode,  # type: ignore[arg-type]
        pvtype=image.pvtype,
        abpp=None if image.abpp == image.nbpp else image.abpp,
        pjust=image.pjust,  # type: ignore[arg-type]
        complex_pairs=complex_pairs,
    )


def byte_ranges(url: str, image: Image, cut: Cut, blocks: Offsets) -> ByteRanges:
    """Return the byte ranges of all chunks; `blocks` are the offsets of the stored blocks."""
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
    # blocks beyond the image's edges have no chunks; then one axis per loop of the file's order:
    # stored band groups, band groups within a block, blocks down, row groups, blocks across
    table = blocks.reshape(-1, image.blocks_down, image.blocks_across)[:, :down, :across]
    table = table[:, None, :, None, :]
    within = np.arange(apart)[:, None] * plane + np.arange(groups)[None, :] * group_bytes
    offsets = np.where(table < 0, -1, table + within[None, :, None, :, None])
    lengths = np.full(offsets.shape, group_bytes, np.uint64)
    if cut.tail:
        lengths[:, :, :, -1, :] = tail_bytes
    lengths[offsets < 0] = 0
    shape = (image.bands // cut.bands, down * groups, across)
    # row groups of the last blocks may lie below the image
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
    """Return the fronts from which the window codec reads the shape of each chunk."""
    order: tuple[int, ...] = ORDERS[image.imode] if cut.bands > 1 else (0, 1, 2)
    full: tuple[int, ...] = (cut.bands, cut.rows, image.block_width)
    short: tuple[int, ...] = (cut.bands, cut.tail, image.block_width)
    if image.bands == 1:
        full, short, order = full[1:], short[1:], (0, 1)  # the array has no axis of bands
    is_short = lengths == tail_bytes
    return _raw.short_fronts(
        tuple(full[axis] for axis in order), tuple(short[axis] for axis in order), is_short
    )
