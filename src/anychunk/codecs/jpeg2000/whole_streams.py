"""Ordinary codestreams decoded as a whole into given memory, and checked at the same time.

Spec: ITU-T T.800 annex A.

Tiles of TIFF are such streams: small, many, and with the same main header. What follows from it is
computed once. Whatever is unusual about a stream is left to imagecodecs, and to `check_stream`,
which words the errors: a JP2 file, components that differ, several tiles or tile-parts, bytes after
the end, and damage.
"""

import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from anychunk import decoders
from anychunk.codecs.base import Bytes1D
from anychunk.codecs.jpeg2000 import openjpeg, openjpeg_library
from anychunk.codestream.block_table import NoTableError
from anychunk.codestream.blocks import tile_layout, walk_parameters
from anychunk.codestream.jpeg2000 import (
    END,
    SOD,
    SOT,
    SOT_BYTES,
    Component,
    TilePart,
    read_main_header,
    segments,
)
from anychunk.errors import AnychunkError
from anychunk.model.grid import Array
from anychunk.native import loops

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
