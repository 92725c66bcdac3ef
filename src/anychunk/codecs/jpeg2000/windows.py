"""Decode a window of a tile, from the small codestream of that window or from the whole tile."""

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from anychunk.codecs.base import Bytes1D
from anychunk.codecs.jpeg2000 import openjph
from anychunk.codecs.jpeg2000.tiles import (
    Canvas,
    decode_stream,
    decode_tile,
    group_parts,
    level_image,
    scale,
)
from anychunk.codestream.block_table import NoTableError
from anychunk.codestream.blocks import head_length, is_regular, tile_layout, walk_tile
from anychunk.codestream.jpeg2000 import (
    SOT,
    MainHeader,
    Rect,
    Siz,
    read_main_header,
    stream_parts,
    tile_parts,
)
from anychunk.codestream.window_streams import plan_window
from anychunk.errors import ChunkDecodeError, FormatError, LimitError
from anychunk.model.grid import Array

SOC, SOT_MARKER = b"\xff\x4f", b"\xff\x90"
MAGIC = b"A2W\x01"
FRONT = struct.Struct(">4sII")
"""`MAGIC`, and the row and column of the chunk's first sample, from the corner of the image."""


class Front(NamedTuple):
    """The position of a chunk in its image, in samples of the level."""

    row: int
    column: int

    def pack(self) -> bytes:
        return FRONT.pack(MAGIC, *self)


def read_front(data: bytes | memoryview) -> Front:
    """Return the position that the bytes of a chunk begin with."""
    magic, row, column = FRONT.unpack_from(data) if len(data) >= FRONT.size else (b"", 0, 0)
    if magic != MAGIC:
        raise ChunkDecodeError(
            f"jpeg2000: the window begins with {bytes(data[:4]).hex()}, expected {MAGIC.hex()}"
        )
    return Front(row, column)


def chunk_window(siz: Siz, level: int, front: Front, height: int, width: int) -> Rect:
    """Return the window of a chunk, in samples of the level on the reference grid, cropped."""
    image = level_image(siz, level)
    if front.row >= image.height or front.column >= image.width:
        raise ChunkDecodeError(
            f"jpeg2000: the window begins at {tuple(front)}, the image has "
            f"{(image.height, image.width)}"
        )
    x, y = image.x0 + front.column, image.y0 + front.row
    return Rect(x, y, min(x + width, image.x1), min(y + height, image.y1))


def has_windows(header: MainHeader) -> bool:
    """Return whether windows of the tiles can be decoded; if not, only whole tiles."""
    return is_regular(header.data + SOT_MARKER, 2, SOT, len(header.siz.components)) and not (
        header.ppms
        or header.packed
        or (header.is_ht and header.cod.layers > 1)
        or openjph.is_needed(header)
        # OpenJPEG refuses some streams of other steps
        or any(step & (step - 1) for c in header.siz.components for step in (c.dx, c.dy))
    )


def factors(siz: Siz) -> tuple[int, int]:
    """Return (x, y): samples of the array per sample of the coarsest component."""
    x, y = siz.subsampling
    return math.lcm(*(c.dx // x for c in siz.components)), math.lcm(
        *(c.dy // y for c in siz.components)
    )


def grown_window(siz: Siz, level: int, tile: int, window: Rect) -> Rect:
    """Return a window, enlarged to whole samples of every component, inside its tile.

    In samples of the level, as `window`. A sample of a subsampled component covers columns from
    its own on, so a window that begins between two of them needs the one to the left.
    """
    x, y = factors(siz)
    here = siz.tile(tile).scaled(*scale(siz, level))
    return Rect(
        max(here.x0, window.x0 // x * x),
        max(here.y0, window.y0 // y * y),
        min(here.x1, -(-window.x1 // x) * x),
        min(here.y1, -(-window.y1 // y) * y),
    )


def on_reference_grid(siz: Siz, level: int, tile: int, window: Rect) -> Rect:
    """Return a window, given in samples of the level, on the reference grid of the level."""
    x, y = siz.subsampling
    full = siz.tile(tile).scaled(1 << level, 1 << level)
    return Rect(
        max(full.x0, window.x0 * x),
        max(full.y0, window.y0 * y),
        min(full.x1, window.x1 * x),
        min(full.y1, window.y1 * y),
    )


def decode_window(
    header: MainHeader,
    level: int,
    payload: memoryview,
    window: Rect,
    out: Array,
    *,
    is_walked: bool = False,
    threads: int = 1,
) -> None:
    """Decode a window of one tile into `out`, shaped (bands, y, x).

    Parameters:
        header: Main header of the codestream that the tile is from.
        level: Resolution level.
        payload: The tile-parts of the tile, or the codestream of a window that contains `window`.
        window: In samples of the level, as counted on the reference grid.
        out: Of the size of the window.
        is_walked: Whether the packets of the tile-parts have been walked before.
        threads: How many threads decode the stream of a window.

    Raises:
        ChunkDecodeError: The payload does not decode, or is not of this window.
    """
    siz = header.siz
    if payload[:2] == SOC:
        _decode_stream(siz, payload, window, out, threads)
        return
    tiles = group_parts(tile_parts(payload))
    if len(tiles) != 1:
        raise ChunkDecodeError(f"jpeg2000: {len(tiles)} tiles, expected 1")
    [(tile, parts)] = tiles.items()
    if tile >= siz.tiles:
        raise ChunkDecodeError(f"jpeg2000: tile number {tile}, expected 0 to {siz.tiles - 1}")
    rect = siz.tile(tile)
    here = rect.scaled(*scale(siz, level))
    _check_inside(window, here)
    if window == here and siz.is_uniform and out.dtype == siz.dtype and out.flags.c_contiguous:
        planes = decode_tile(
            header, tile, payload, parts, level=level, out=out, is_walked=is_walked
        )
        for band, plane in zip(out, planes, strict=True):
            if band.ctypes.data != plane.ctypes.data:
                band[...] = plane
        return
    planes = decode_tile(header, tile, payload, parts, level=level, is_walked=is_walked)
    grown = grown_window(siz, level, tile, window)
    _place(siz, level, grown, window, out, rect, planes, level)


def is_one_tile(header: MainHeader, shape: tuple[int, int, int]) -> bool:
    """Return whether an image of `shape` (bands, y, x) is one tile whose windows can be decoded."""
    siz = header.siz
    return (
        (len(siz.components), siz.image.height, siz.image.width) == shape
        and siz.tiles == 1
        and all((c.dx, c.dy) == (1, 1) for c in siz.components)
        and siz.is_uniform
        and has_windows(header)
    )


def decode_codestream_part(
    data: Bytes1D, shape: tuple[int, int, int], rows: range, columns: range
) -> Array | None:
    """Decode a part of a bare codestream of one tile to (bands, y, x).

    None if it has to be decoded as a whole: because it is something else, has another shape
    (bands, y, x), or is damaged.
    """
    try:
        header = read_main_header(data[: 1 << 20].tobytes())
        if not is_one_tile(header, shape):
            return None
        siz, image = header.siz, header.siz.image
        view = memoryview(data)[header.length :]
        parts = stream_parts(view)
        heads = [view[part.offset : part.offset + part.length] for part in parts]
        layout = tile_layout(header, 0, heads, parts)
        bodies = [head[head_length(head) :] for head in heads]
        body = bodies[0] if len(bodies) == 1 else memoryview(b"".join(bodies))
        table = walk_tile(header, layout, lambda at, length: body[at : at + length])
        x, y = image.x0 + columns.start, image.y0 + rows.start
        window = Rect(x, y, x + len(columns), y + len(rows))
        grown = on_reference_grid(siz, 0, 0, window)
        stream = plan_window(header, layout, table, level=0, window=grown)
        ranges = stream.ranges(gap=0)
        made = stream.write(ranges, [view[at : at + length] for at, length in ranges])
        out = np.empty((shape[0], len(rows), len(columns)), siz.dtype)
        decode_window(header, 0, memoryview(made), window, out)
    except (FormatError, ChunkDecodeError, LimitError, NoTableError):
        return None
    return out


def _check_inside(window: Rect, here: Rect) -> None:
    if not (
        here.x0 <= window.x0 < window.x1 <= here.x1 and here.y0 <= window.y0 < window.y1 <= here.y1
    ):
        raise ChunkDecodeError(f"jpeg2000: the window {window} is not inside {here}")


def _place(  # noqa: PLR0917 - private, with two callers
    siz: Siz,
    level: int,
    grown: Rect,
    window: Rect,
    out: Array,
    rect: Rect,
    planes: Sequence[Array],
    finer: int,
) -> None:
    """Copy the window from decoded planes, with subsampled components repeated."""
    if grown == window:
        canvas = Canvas(siz, level, window, out)
        canvas.put(rect, planes, finer)
        canvas.finish()
        return
    whole = np.empty((len(out), grown.height, grown.width), out.dtype)
    canvas = Canvas(siz, level, grown, whole)
    canvas.put(rect, planes, finer)
    canvas.finish()
    y, x = window.y0 - grown.y0, window.x0 - grown.x0
    out[...] = whole[:, y : y + window.height, x : x + window.width]


def _decode_stream(siz: Siz, payload: memoryview, window: Rect, out: Array, threads: int) -> None:
    """Decode a window from a codestream whose full resolution is the level of the window."""
    try:
        made = read_main_header(bytes(payload[: 1 << 20]))
    except FormatError as e:
        raise ChunkDecodeError(f"jpeg2000: the codestream of a window: {e}") from e
    if made.siz.components != siz.components or made.siz.tiles != 1:
        raise ChunkDecodeError("jpeg2000: the codestream of a window has other components or tiles")
    canvas = made.siz.image
    here = canvas.scaled(*made.siz.subsampling)
    _check_inside(window, here)
    grown = grown_window(made.siz, 0, 0, window)
    wanted = on_reference_grid(made.siz, 0, 0, grown)
    is_all = here == window and out.dtype == siz.dtype and out.flags.c_contiguous
    planes = decode_stream(
        [payload], made, canvas, 0, out=out if is_all else None, window=wanted, threads=threads
    )
    if not (is_all and np.may_share_memory(planes[0], out)):
        _place(siz, 0, grown, window, out, wanted, planes, 0)
