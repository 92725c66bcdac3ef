"""Many small tiles decoded and checked together: calling a decoder takes long for one of them.

Chunks stay single tiles, so that each can be absent, or be referred to. Those that are read at the
same time, and fill a rectangle of the tile grid, are put together to one codestream. Whatever is
unusual about one of them, such as a header that overrides the main one, damage, or a missing
tile, leaves its rectangle to the decoder of single tiles, which also reports the errors.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anychunk import decoders, limits
from anychunk.codecs.base import Bytes1D
from anychunk.codecs.jpeg2000 import openjpeg, openjpeg_library
from anychunk.codestream.block_table import NoTableError
from anychunk.codestream.blocks import count_exact, tile_layout, walk_parameters
from anychunk.codestream.jpeg2000 import (
    END,
    SOD,
    SOT,
    SOT_BYTES,
    Component,
    MainHeader,
    Rect,
    TilePart,
    read_main_header,
    segments,
    tiles_header,
)
from anychunk.errors import AnychunkError, ChunkDecodeError, LimitError, UnsupportedError
from anychunk.model.grid import Array, Numbers
from anychunk.native import loops

TINY_PIXELS = 1 << 15
"""Tiles of fewer pixels are put together: 32 x 32 are then read in a quarter of the time, 64 x 64
in three bands in two thirds, 128 x 128 in nine tenths."""
MOST_TILES, MOST_SAMPLES = 1024, 1 << 20
"""Tiles and samples that are decoded together, at most; OpenJPEG takes 4 bytes per sample."""
HEAD = SOT_BYTES + 2
"""Bytes of a tile-part before its packets, if it has no other marker than SOT and SOD."""


class Rectangle(NamedTuple):
    """Some of the chunks, decoded."""

    area: Rect
    """Their tiles on the reference grid."""
    places: Numbers
    """Which of the chunks they are, by rows of tiles."""
    planes: Sequence[Array]
    """The components."""


class Joint(NamedTuple):
    """Chunks that fill a rectangle of the chunk grid, in one array."""

    numbers: list[int]
    """Which of the given chunks they are, by rows of the rectangle."""
    across: int
    """How many are in a row of the rectangle."""
    shape: tuple[int, ...]
    """The shape of a whole chunk."""
    array: Array
    """Shorter than all chunks together where they reach beyond the image."""

    def pieces(self) -> Iterator[tuple[int, Array]]:
        """Yield the number of each chunk, and its array."""
        height, width = self.shape[-2:]
        for place, number in enumerate(self.numbers):
            y, x = divmod(place, self.across)
            rows = slice(y * height, (y + 1) * height)
            yield number, self.array[..., rows, x * width : (x + 1) * width]


def is_tiny(header: MainHeader) -> bool:
    """Return whether tiles of a codestream are so small that they are decoded together."""
    siz = header.siz
    return (
        loops is not None
        and siz.tiles > 1
        and siz.tile_width * siz.tile_height < TINY_PIXELS
        and siz.is_uniform
        and not header.is_ht
        and not header.packed
    )


def decode_rectangles(
    header: MainHeader, level: int, scale: tuple[int, int], chunks: Sequence[npt.NDArray[np.uint8]]
) -> Iterator[Rectangle]:
    """Decode chunks that are one tile each; yield those that were decoded together.

    Parameters:
        header: The main header, for which `is_tiny` is true.
        level: Resolution level.
        scale: Reference grid points per sample of the level, (x, y).
        chunks: The stored bytes of chunks.
    """
    siz = header.siz
    samples = siz.tile_width * siz.tile_height * len(siz.components)
    most = min(MOST_TILES, MOST_SAMPLES // samples)
    if most < 2:
        return
    for first in range(0, len(chunks), most):
        for area, places, planes in _decode_some(
            header, level, scale, chunks[first : first + most]
        ):
            yield Rectangle(area, places + first, planes)


def _decode_some(
    header: MainHeader, level: int, scale: tuple[int, int], chunks: Sequence[npt.NDArray[np.uint8]]
) -> list[Rectangle]:
    """Do that for a limited number of chunks."""
    siz = header.siz
    lengths = np.fromiter(map(len, chunks), np.int64, len(chunks))
    if len(chunks) < 2 or lengths.min() < HEAD or lengths.max() >= 1 << 31:
        return []
    data = np.concatenate(chunks)
    starts = np.cumsum(lengths) - lengths
    numbers = _tile_numbers(data, starts, lengths)
    if numbers is None or numbers.max() >= siz.tiles:
        return []
    part = TilePart(int(numbers[0]), 0, 0, int(lengths[0]))
    try:
        layout = tile_layout(header, part.tile, [memoryview(data)[: part.length]], [part])
    except NoTableError:
        return []
    bodies = np.stack([starts + HEAD, lengths - HEAD], axis=1)
    table = np.concatenate([siz.tile_edges(numbers), bodies], axis=1)
    # the check of every packet, which `decode_tile` does for a single tile
    if count_exact(header, layout, memoryview(data), table) < len(chunks):
        return []
    found = []
    everything = np.arange(len(chunks))
    for places in _rectangles(numbers, siz.columns):
        if len(places) > 1:
            own = numbers[places]
            first, last = siz.tile(int(own[0])), siz.tile(int(own[-1]))
            area = Rect(first.x0, first.y0, last.x1, last.y1)
            here = area.scaled(*scale)
            nbytes = here.width * here.height * len(siz.components) * siz.dtype.itemsize
            if np.array_equal(places, everything):
                body = _renumbered(data, lengths)  # after its packets were walked
            else:
                parts = [chunks[place] for place in places.tolist()]
                body = _renumbered(np.concatenate(parts), lengths[places])
            stream = b"".join([tiles_header(header, int(own[0]), area), body.data, END])
            try:
                limits.check_chunk(nbytes, where="jpeg2000", stored=int(lengths[places].sum()))
                planes = openjpeg.components(stream, siz, area, level)
            except (ChunkDecodeError, LimitError, UnsupportedError):
                continue  # one by one, each is within the limits, or decodes, or says why not
            found.append(Rectangle(area, places, planes))
    return found


def _tile_numbers(data: npt.NDArray[np.uint8], starts: Numbers, lengths: Numbers) -> Numbers | None:
    """Return the tile of each chunk; None unless each is one tile-part that overrides nothing."""
    heads = data[starts[:, None] + np.arange(HEAD)].astype(np.int64)
    words = heads[:, ::2] << 8 | heads[:, 1::2]
    stated = words[:, 3] << 16 | words[:, 4]  # Psot; 0: up to the end of the codestream
    is_usual = (
        (words[:, 0] == SOT)
        & (words[:, 1] == SOT_BYTES - 2)
        & ((stated == lengths) | (stated == 0))
        & (heads[:, 10] == 0)
        & (heads[:, 11] <= 1)
        & (words[:, 6] == SOD)
    )
    numbers: Numbers = words[:, 2]
    # of 16 bits; counting is faster than sorting
    return numbers if is_usual.all() and np.bincount(numbers).max() == 1 else None


def _rectangles(numbers: Numbers, columns: int) -> list[Numbers]:
    """Return the places of tiles that fill rectangles."""
    order = np.argsort(numbers)
    rows, across = np.divmod(numbers[order], columns)
    is_new = np.ones(len(order), bool)
    is_new[1:] = (rows[1:] != rows[:-1]) | (across[1:] != across[:-1] + 1)
    starts = np.flatnonzero(is_new)
    counts = np.diff(starts, append=len(order))
    # runs that go on below the run before
    is_below = np.zeros(len(starts), bool)
    is_below[1:] = (
        (np.diff(rows[starts]) == 1) & (np.diff(across[starts]) == 0) & (np.diff(counts) == 0)
    )
    return np.split(order, starts[~is_below][1:])


def _renumbered(joined: npt.NDArray[np.uint8], lengths: Numbers) -> npt.NDArray[np.uint8]:
    """Write into tile-parts that they are those of the tiles 0, 1 … of a smaller grid."""
    starts = np.cumsum(lengths) - lengths
    numbers = np.arange(len(lengths))
    # Isot, and both halves of Psot
    for place, values in ((4, numbers), (6, lengths >> 16), (8, lengths)):
        joined[starts + place] = values >> 8 & 0xFF
        joined[starts + place + 1] = values & 0xFF
    return joined


# Ordinary codestreams decoded as a whole into given memory, and checked at the same time.
#
# Spec: ITU-T T.800 annex A.
#
# Tiles of TIFF are such streams: small, many, and with the same main header. What follows from it
# is
# computed once. Whatever is unusual about a stream is left to imagecodecs, and to `check_stream`,
# which reports the errors: a JP2 file, components that differ, several tiles or tile-parts, bytes
# after
# the end, and damage.

MOST_BYTES = 4096
"""Streams with a longer main header are not ordinary."""
_HEAD = struct.Struct(">HHHIBBH")
"""SOT, whose marker ends the main header that is compared, and SOD."""
_TILE = struct.Struct("=6q")


class _Pattern(NamedTuple):
    """What streams have in common that have the same main header."""

    length: int
    """Of the main header."""
    component: Component
    """What all components are."""
    dtype: np.dtype[Any]
    shape: tuple[int, int, int]
    """Components, rows, columns."""
    edges: tuple[int, int, int, int]
    """Of the only tile, on the reference grid."""
    parameters: bytes
    """Of the walk over its packets."""


class Decoded(NamedTuple):
    """A decoded stream."""

    samples: Array
    is_exact: bool
    """Whether the stream was found to consist of exactly its packets; otherwise check it."""


def decode(data: Bytes1D, out: Array) -> Decoded | None:
    """Decode a codestream at full resolution; None if that is not possible.

    Parameters:
        data: The codestream.
        out: Shaped (components, y, x), contiguous integers of the size of its samples, which may
            differ in their sign. The result is a view of it.
    """
    if not decoders.is_used(decoders.OPENJPEG):
        return None
    functions = None if loops is None else openjpeg_library.addresses()
    found = None if functions is None else _pattern_of(data)
    if found is None or found.shape != out.shape or found.dtype.itemsize != out.itemsize:
        return None
    assert loops is not None
    assert functions is not None
    samples = out if out.dtype == found.dtype else out.view(found.dtype)
    parameters, place = b"", b""
    body = _packets(data, found)
    if body is not None:
        parameters, place = found.parameters, _TILE.pack(*found.edges, *body)
    component = found.component
    answer = loops.openjpeg_decode(
        functions, data, samples, 0, 1, component.depth, component.is_signed, parameters, place
    )
    return Decoded(samples, answer > 1) if answer else None


def _packets(data: Bytes1D, found: _Pattern) -> tuple[int, int] | None:
    """Return where the packets are, as offset and length; None unless there is one tile-part."""
    start, stop = found.length, len(data) - len(END)
    if not found.parameters or stop - start < _HEAD.size or data[stop:].tobytes() != END:
        return None
    sot, lsot, tile, length, part, parts, sod = _HEAD.unpack_from(data, start)
    is_usual = (sot, lsot, tile, part, sod) == (SOT, SOT_BYTES - 2, 0, 0, SOD)
    if not is_usual or parts > 1 or length != stop - start:
        return None
    return start + _HEAD.size, length - _HEAD.size


_latest = [b""]
"""The main header of the stream that was decoded last, as a rule that of the next one."""


def _pattern_of(data: Bytes1D) -> _Pattern | None:
    head = _latest[0]
    if not head or data[: len(head)].tobytes() != head:
        try:
            *_, (_, end, _) = segments(memoryview(data)[:MOST_BYTES], 2, SOT)
        except AnychunkError:
            return None
        head = _latest[0] = data[: end + 2].tobytes()
    return _pattern(head)


@lru_cache(maxsize=64)
def _pattern(head: bytes) -> _Pattern | None:
    """Return the pattern of streams with this main header, given with the first SOT marker."""
    try:
        header = read_main_header(head)
    except AnychunkError:
        return None
    siz = header.siz
    first, rect = siz.components[0], siz.tile(0)
    is_alike = siz.is_uniform and first.dx == first.dy == 1 and first.depth <= openjpeg.MAX_DEPTH
    if siz.tiles > 1 or not is_alike:
        return None
    # a tile-part that overrides nothing
    part = _HEAD.pack(SOT, SOT_BYTES - 2, 0, _HEAD.size, 0, 1, SOD)
    try:
        layout = tile_layout(header, 0, [memoryview(part)], [TilePart(0, 0, 0, len(part))])
        parameters = walk_parameters(header, layout)
    except (AnychunkError, NoTableError):
        parameters = b""
    return _Pattern(
        length=header.length,
        component=first,
        dtype=siz.dtype,
        shape=(len(siz.components), rect.height, rect.width),
        edges=(rect.x0, rect.y0, rect.x1, rect.y1),
        parameters=parameters,
    )
