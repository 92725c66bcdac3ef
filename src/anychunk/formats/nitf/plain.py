"""The array of a NITF 2.1 file that has one uncompressed image and no extensions.

The headers of a NITF file have hundreds of fields, most of which are blank and say nothing about
the samples. Where the counts in the file header leave no choice, the few fields that do are at
fixed places. Whatever else a file has, or if any value is doubtful, `plain_array` returns None, and
the general parser decides, which also words the errors. The arrays that both find are equal.

Spec: MIL-STD-2500C tables A-1 and A-3.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anychunk.errors import AnychunkError
from anychunk.formats._bands import without_single_band
from anychunk.formats._two_steps import Plain
from anychunk.formats.nitf.blocks import Image, block_grid, read_image, without_mask
from anychunk.formats.nitf.header import (
    IMAGE_EXTENSIONS,
    UNKNOWN_LENGTH,
    Segment,
    Values,
    layout,
    read,
)
from anychunk.formats.nitf.uncompressed import (
    LISTED,
    block_bytes,
    block_offsets,
    blocks_array,
    has_complex_pairs,
    has_other_bits,
)
from anychunk.io.file import FileSource
from anychunk.model.grid import Shape
from anychunk.model.index import ByteRanges, Json

VERSIONS = (b"NITF02.10", b"NSIF01.00")
HEADER = 404
"""Length of a file header with one image, and neither other segments nor extensions."""
FL, HL, IMAGES, OTHERS = slice(342, 354), slice(354, 360), slice(360, 379), slice(379, 404)
"""FL; HL; NUMI, LISH and LI; the counts and lengths of everything else."""
TITLES, ENCRYP, SAMPLES, ICORDS = slice(2, 290), slice(290, 291), slice(333, 372), slice(371, 372)
"""Parts of the subheader: names and security; whether it is encrypted; NROWS to ICORDS."""
IGEOLO = 60
"""Length of the coordinates that follow ICORDS, unless it is blank."""
MOST_BYTES, MOST_CHUNKS = 4096, 1 << 16
"""Longer headers and tables are left to the general parser."""


def plain_array(source: FileSource) -> Plain | None:
    """Return the array of a file with one ordinary image; None if the file is anything else."""
    size = source.size()
    head = source.read(0, min(size, MOST_BYTES)).tobytes()
    counts = head[IMAGES]
    if (
        head[:9] not in VERSIONS
        or head[HL] != b"%06d" % HEADER
        or head[OTHERS] != b"0" * 25
        or counts[:3] != b"001"
        or not counts.isdigit()
        or not head[FL].isdigit()
        or head[FL] == b"%d" % UNKNOWN_LENGTH
    ):
        return None
    start, length = HEADER + int(counts[3:9]), int(counts[9:])
    if start > len(head) or start + length > size:
        return None
    subheader = head[HEADER:start]
    icords = subheader[ICORDS]
    at = SAMPLES.stop + (0 if icords == b" " else IGEOLO)
    if subheader[:2] != b"IM" or subheader[ENCRYP] != b"0" or icords not in b" GDNS":
        return None
    pattern = _pattern(subheader[SAMPLES], subheader[at:], length)
    if pattern is None:
        return None
    chunks = ByteRanges(
        offsets=pattern.offsets + np.uint64(start),
        lengths=pattern.lengths.copy(),
        urls=(source.url,),
        **pattern.fronts,
    )
    fields = {
        "shape": pattern.shape,
        "chunk_shape": pattern.chunk_shape,
        "data_type": pattern.data_type,
        "codecs": tuple(_copied(codec) for codec in pattern.codecs),
        "chunks": chunks,
        "dimension_names": pattern.names,
    }
    return Plain(fields, {0: head[:start]})


def _copied(codec: Json) -> Json:
    return {**codec, "configuration": dict(codec["configuration"])}


class _Pattern(NamedTuple):
    """What files have in common whose subheaders differ only in names and places."""

    shape: Shape
    chunk_shape: Shape
    names: tuple[str | None, ...]
    data_type: Json
    codecs: tuple[Json, ...]
    offsets: npt.NDArray[np.uint64]
    """Relative to the start of the image data."""
    lengths: npt.NDArray[np.uint64]
    fronts: dict[str, Any]


@lru_cache(maxsize=256)
def _pattern(samples: bytes, rest: bytes, length: int) -> _Pattern | None:
    """Return the pattern of images with these parts of a subheader; None if they are not plain.

    Parameters:
        samples: NROWS to ICORDS.
        rest: what follows the coordinates, from NICOM on.
        length: that of the image data.
    """
    place = b"" if samples.endswith(b" ") else b" " * IGEOLO
    subheader = b"IM".ljust(SAMPLES.start) + samples + place + rest
    try:
        values = _values(subheader)
        if values is None:
            return None
        segment = Segment(
            kind="image", number=0, header_offset=0, header_length=0, offset=0, length=length,
            values=values, is_last=True,
        )  # fmt: skip
        image = read_image(segment, "", length)
        if not _is_plain(image):
            return None
        if image.bands == 1:
            image = replace(image, imode="B")  # with one band all modes are the same
        mask = without_mask(image)
        array = without_single_band(blocks_array("", image, mask, block_offsets(image, mask)))
    except AnychunkError:
        return None
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges) or any(
        "configuration" not in codec for codec in array.codecs
    ):
        return None
    fronts: dict[str, Any] = {}
    if chunks.fronts:
        fronts = {"fronts": chunks.fronts, "front_ids": chunks.front_ids}
    return _Pattern(
        array.shape, array.chunk_shape, array.dimension_names, array.data_type, array.codecs,
        chunks.offsets, chunks.lengths, fronts,
    )  # fmt: skip


def _values(subheader: bytes) -> Values | None:
    """Return the values of a subheader; None if it has comments, palettes or extensions."""
    values, at = read(layout("image", "2.1"), subheader)
    for extension in IMAGE_EXTENSIONS:
        found, at = read(extension, subheader, at)
        values.update(found)
    is_bare = (values["NICOM"], values["UDIDL"], values["IXSHDL"]) == (0, 0, 0)
    has_tables = any(band["NLUTS"] != 0 for band in values["BANDS"])
    return values if is_bare and not has_tables and at == len(subheader) else None


def _is_plain(image: Image) -> bool:
    """Return whether the general parser is not needed to make sense of an image."""
    abpp = image.segment.values["ABPP"]
    count = math.prod(block_grid(image))
    return (
        image.ic == "NC"
        and isinstance(abpp, int)
        and 1 <= abpp <= image.nbpp
        and image.nbpp in LISTED
        and count <= MOST_CHUNKS
        and count * block_bytes(image) == image.segment.length
        and not has_other_bits(image)
        and not has_complex_pairs(image)
    )
