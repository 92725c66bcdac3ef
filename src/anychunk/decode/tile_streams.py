"""Parts of remote TIFF tiles that are JPEG 2000 codestreams, fetched at the cost of the part.

A local tile is a memory map, of which the codec itself takes what it needs (`decode_part`). Of a
remote one, the headers are read and its packets walked, as `windows` does with the tiles of a
JPEG 2000 file, and the window's code-blocks are fetched. A tile that is anything but one regular
codestream of one tile is fetched and decoded whole.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.codecs import chain, from_json
from anychunk.codecs.jpeg2000 import Jpeg2000, decode_window, is_one_tile
from anychunk.codecs.tiff.decoders import jpeg2000_samples
from anychunk.codecs.tiff.tile import JPEG2000
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.codestream.jpeg2000 import (
    END,
    SOT,
    SOT_BYTES,
    MainHeader,
    NeedsMoreError,
    Rect,
    read_main_header,
)
from anychunk.decode.windows import HEAD, Planned, Range, TileWindows
from anychunk.errors import ChunkDecodeError, FormatError
from anychunk.io.cache import Cache
from anychunk.io.source import Bytes1D, Source
from anychunk.model.index import ArrayIndex, ByteRanges

type Array = npt.NDArray[Any]

MOST_PARTS = 64
"""Tiles of more tile-parts are fetched whole: each would take a request."""
MOST_HEADER = 1 << 20


@dataclass(frozen=True, eq=False)
class _Opened:
    """The headers of one tile."""

    windows: TileWindows
    ranges: list[Range]
    """Of its tile-parts, in the source."""


OPENED: Cache[_Opened] = Cache(1 << 20)
"""The headers of the tiles that were read last."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TilePiece:
    """A planned part of one chunk."""

    codec: TiffTile
    header: MainHeader
    planned: Planned
    selection: tuple[Any, ...]
    """Of the axes before the last two."""

    def array(self, data: Bytes1D) -> Array:
        """Return the selected part of the chunk, from the bytes of all its ranges, joined."""
        planned = self.planned
        ends = np.cumsum([length for _, length in planned.ranges]).tolist()
        pieces = [
            data[end - length : end] for end, (_, length) in zip(ends, planned.ranges, strict=True)
        ]
        siz, window = self.header.siz, planned.window
        found = np.empty((len(siz.components), window.height, window.width), siz.dtype)
        decode_window(self.header, 0, memoryview(planned.payload(pieces)), window, found)
        samples = jpeg2000_samples(self.codec, found)
        if samples is None:
            raise ChunkDecodeError(
                f"tiff-tile: a codestream of {siz.dtype}, expected {self.codec.dtype}"
            )
        axes = (None,) * (len(self.selection) - 1)
        part: Array = np.moveaxis(samples, -1, 0)[axes][self.selection]
        return part


def stream_codec(index: ArrayIndex) -> TiffTile | None:
    """Return the codec of an array whose chunks are large JPEG 2000 codestreams, or None."""
    last = index.codecs[-1]
    is_tile = isinstance(last, dict) and last.get("name") == TiffTile.name
    if not (is_tile and isinstance(index.chunks, ByteRanges)):
        return None
    # the first of two codecs is `bytes`; others would see a part of the chunk
    if index.chunks.fronts or len(index.codecs) != 2:
        return None
    codec = from_json(last)
    is_large = (
        isinstance(codec, TiffTile)
        and codec.compression in JPEG2000
        and codec.nbytes >= chain.LEAST_PART
        and codec.tile_depth == 1
        and codec.backend == "direct"
    )
    return codec if is_large else None  # type: ignore[return-value]


def plan_piece(
    codec: TiffTile, source: Source, place: Range, shape: Sequence[int], selection: Any
) -> TilePiece | None:
    """Plan a part of a chunk; None if the chunk is to be fetched whole.

    Parameters:
        codec: As `stream_codec` returns it.
        source: Where the chunk is.
        place: Offset and length there.
        shape: The chunk's.
        selection: What is selected of the chunk.
    """
    box = _box(shape, selection)
    if box is None or 2 * len(box[0]) * len(box[1]) > codec.tile_height * codec.tile_width:
        return None
    opened = _open(codec, source, place)
    if opened is None:
        return None
    rows, columns = box
    header = opened.windows.codec.header
    image = header.siz.image
    x, y = image.x0 + columns.start, image.y0 + rows.start
    window = Rect(x, y, x + len(columns), y + len(rows))
    try:
        planned = opened.windows.plan(source, opened.ranges, window)
    except (FormatError, ChunkDecodeError):
        return None  # damaged, which decoding it whole tells
    if planned.stream is None:
        return None
    return TilePiece(codec=codec, header=header, planned=planned, selection=selection[:-2])


def _box(shape: Sequence[int], selection: Any) -> tuple[range, range] | None:
    """Return the rows and columns that are selected; None if they are not slices of step 1."""
    if (
        not isinstance(selection, tuple)
        or len(selection) != len(shape)
        or not all(type(part) is slice for part in selection[-2:])
    ):
        return None
    rows, columns = (range(n)[s] for s, n in zip(selection[-2:], shape[-2:], strict=True))
    is_plain = len(rows) and len(columns) and rows.step == columns.step == 1
    return (rows, columns) if is_plain else None


def _open(codec: TiffTile, source: Source, place: Range) -> _Opened | None:
    """Read the headers of a tile; None if it is to be fetched whole."""
    expected = (codec.samples_per_pixel, codec.tile_height, codec.tile_width)
    key = (source.token, place, expected)
    found = OPENED.get(key)
    if found is not None:
        return found
    try:
        header = _main_header(source, *place)
        if not is_one_tile(header, expected):
            return None
        ranges = _tile_parts(source, place[0] + header.length, sum(place))
    except FormatError:
        return None  # damaged, likewise
    if ranges is None:
        return None
    window = Jpeg2000(main_header=base64.b64encode(header.data).decode(), window=True)
    found = _Opened(TileWindows(window, {}), ranges)
    OPENED.put(key, found, 2 * len(header.data) + 64 * len(ranges) + 1024)
    return found


def _main_header(source: Source, offset: int, length: int) -> MainHeader:
    most = min(length, MOST_HEADER)
    size = min(HEAD, most)
    while True:
        try:
            return read_main_header(source.read(offset, size).tobytes())
        except NeedsMoreError as e:
            if size == most:
                raise
            size = min(max(e.needed, 4 * size), most)


def _tile_parts(source: Source, at: int, end: int) -> list[Range] | None:
    """Return the ranges of the tile-parts up to EOC; None if any does not state its length."""
    found: list[Range] = []
    while at + 2 <= end and len(found) < MOST_PARTS:
        head = source.read(at, min(SOT_BYTES, end - at)).tobytes()
        if head[:2] == END:
            return found or None
        length = int.from_bytes(head[6:10], "big")
        if int.from_bytes(head[:2], "big") != SOT or not SOT_BYTES < length <= end - at:
            return None
        found.append((at, length))
        at += length
    return None
