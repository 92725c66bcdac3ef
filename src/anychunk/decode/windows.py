"""Parts of JPEG 2000 tiles, read at the cost of the part: the bytes that each needs.

The first read of a tile walks its packets and keeps a table of its code-blocks, in a cache of this
process; a saved index may bring it along. With the table, a window is planned: its code-blocks are
the byte ranges to read, and `codestream.window_streams` writes them as a small codestream. From
about half of a tile on, and where a tile cannot have a table, the whole tile is read and decoded.

Damage is found by the walk, wherever in the tile it is. Afterwards it would be invisible, because a
window does not read the other code-blocks: so there is no window without a walk.
"""

import itertools
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from anychunk import limits
from anychunk.codecs import from_json
from anychunk.codecs.jpeg2000 import (
    Jpeg2000,
    chunk_window,
    grown_window,
    on_reference_grid,
    read_front,
)
from anychunk.codecs.jpeg2000.tiles import group_parts, scale
from anychunk.codestream.block_table import (
    BlockTable,
    NoTableError,
    TileLayout,
    count_tile_blocks,
    unpack,
)
from anychunk.codestream.blocks import Read, head_length, packet_lengths, tile_layout, walk_tile
from anychunk.codestream.jpeg2000 import (
    SOT,
    SOT_BYTES,
    MainHeader,
    NeedsMoreError,
    Rect,
    TilePart,
    tile_parts,
)
from anychunk.codestream.packets import count_precincts
from anychunk.codestream.window_streams import WindowStream, plan_window
from anychunk.errors import ChunkDecodeError, TruncatedError
from anychunk.io.cache import Cache
from anychunk.io.file import FileSource
from anychunk.io.forking import Lock
from anychunk.io.source import Bytes1D, Source
from anychunk.io.threads import in_order
from anychunk.model.index import ArrayIndex, ByteRanges
from anychunk.native import loops

type Range = tuple[int, int]
"""Offset and length."""
type Tables = Mapping[tuple[str, int], bytes]

PIECE = 2048
"""Larger windows are divided into pieces of at most this many rows and columns."""
GAP = 16 * limits.KIB
"""Remote ranges that are at most this far apart are fetched together. Code-blocks are short: with
the gap of whole chunks, most of the tile would be fetched."""
HEAD = 4 * limits.KIB
"""How much of a remote tile-part is fetched to find its header."""
HEADER_BYTES = 3
"""Bytes of packet headers per code-block, about."""
LEAST_HEADER = 64
"""At least so much of a packet is fetched for its header."""
MANY_PACKETS = 128
"""Remote tiles of more packets are read as a whole to be walked: a request for each of their
headers would take longer."""
MANY_RANGES = 1024
"""The same for tiles that state the lengths of their packets, whose headers are fetched at once."""
CONNECTIONS = 16
STEP = 4 * limits.MIB


@dataclass(frozen=True, eq=False)
class Walked:
    """What is known about a tile; without a table, it can only be decoded as a whole."""

    tile: int
    layout: TileLayout | None
    table: BlockTable | None


TABLES: Cache[Walked] = Cache(lambda: limits.get().recent_bytes)
"""Tables of the tiles that were read last, for the whole process."""
_walking = [Lock() for _ in range(16)]
"""One for each tile, by its hash: threads that start together must not all walk the same tile."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Planned:
    """A window, and the byte ranges that it needs."""

    window: Rect
    """In samples of the level, on the reference grid."""
    stream: WindowStream | None
    """None: the whole tile is needed."""
    ranges: Sequence[Range]

    def payload(self, pieces: Sequence[Bytes1D]) -> Bytes1D:
        """Return what the codec decodes, from the bytes of the ranges."""
        if self.stream is None:
            return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        views = [memoryview(piece) for piece in pieces]
        return np.frombuffer(self.stream.write(self.ranges, views), np.uint8)


class TileWindows:
    """Plans windows of the tiles of one array."""

    gap = GAP

    def __init__(self, codec: Jpeg2000, tables: Tables) -> None:
        self.codec, self._tables = codec, tables

    @classmethod
    def of(cls, index: ArrayIndex) -> "TileWindows | None":
        """Return what plans the chunks of an array; None if they are not parts of tiles."""
        if not isinstance(index.chunks, ByteRanges) or len(index.codecs) != 2:
            return None
        codec = index.codecs[1]
        if not isinstance(codec, dict) or codec.get("name") != Jpeg2000.name:
            return None
        found = from_json(codec)
        if not isinstance(found, Jpeg2000) or not found.window:
            return None
        return cls(found, index.chunks.tables)

    def chunk(self, front: bytes, shape: Sequence[int]) -> Rect:
        """Return the window of a chunk of `shape` that begins with `front`."""
        siz, level = self.codec.header.siz, self.codec.resolution_level
        return chunk_window(siz, level, read_front(front), shape[-2], shape[-1])

    def tile_area(self, tile: int) -> Rect:
        """Return the part of the image that a tile covers, in samples of the level."""
        siz = self.codec.header.siz
        return siz.tile(tile).scaled(*scale(siz, self.codec.resolution_level))

    def walked(self, source: Source, ranges: Sequence[Range]) -> Walked:
        """Return what is known about the tile at `ranges`; walk its packets if nothing is."""
        # the codec is part of the key: an index is untrusted, and may name another header
        key = (source.token, tuple(ranges), self.codec.main_header)
        found = TABLES.get(key)
        if found is None:
            with _walking[hash(key) % len(_walking)]:
                found = TABLES.get(key)
                if found is None:
                    found = self._walk(source, ranges)
                    size = 1024 if found.table is None else found.table.nbytes
                    TABLES.put(key, found, size)
        return found

    def known(self, source: Source, ranges: Sequence[Range], window: Rect) -> Walked:
        """Return what `walked` returns; without walking a tile of which most is to be decoded.

        A whole tile is checked when it is decoded, which takes less time than a walk in Python.
        """
        if loops is None and isinstance(source, FileSource):
            head = source.read(ranges[0][0], min(SOT_BYTES, ranges[0][1])).tobytes()
            tile = int.from_bytes(head[4:6], "big")
            if tile < self.codec.header.siz.tiles:
                here = self.tile_area(tile)
                if 2 * window.width * window.height >= here.width * here.height:
                    return Walked(tile, None, None)
        return self.walked(source, ranges)

    def _walk(self, source: Source, ranges: Sequence[Range]) -> Walked:
        saved = self._tables.get((source.url, ranges[0][0]))
        if saved is not None:
            layout, table = unpack(self.codec.header, saved)
            return Walked(layout.number, layout, table)
        return walk_source(self.codec.header, source, ranges)

    def plan(
        self, source: Source, ranges: Sequence[Range], window: Rect, *, is_whole: bool = False
    ) -> Planned:
        """Plan a window of one tile.

        Parameters:
            source: Where the tile is.
            ranges: All its byte ranges there.
            window: In samples of the level, on the reference grid.
            is_whole: Whether to read the whole tile.

        Raises:
            FormatError: The tile is damaged, at any place.
        """
        header, level = self.codec.header, self.codec.resolution_level
        whole = Planned(window=window, stream=None, ranges=list(ranges))
        if is_whole:
            return whole
        known = self.walked(source, ranges)
        if known.layout is None or known.table is None:
            return whole
        here = self.tile_area(known.tile)
        if window.x0 < here.x0 or window.y0 < here.y0 or window.x1 > here.x1 or window.y1 > here.y1:
            raise ChunkDecodeError(f"jpeg2000: the window {window} is outside of tile {known.tile}")
        grown = grown_window(header.siz, level, known.tile, window)
        place = on_reference_grid(header.siz, level, known.tile, grown)
        try:
            stream = plan_window(header, known.layout, known.table, level=level, window=place)
        except NoTableError:
            return whole
        decoded = stream.canvas if header.is_ht else place
        if _is_suspicious(decoded, len(header.siz.components), stream):
            return whole
        gap = 0 if source.is_local else GAP
        return Planned(window=window, stream=stream, ranges=stream.ranges(gap=gap))


def _is_suspicious(decoded: Rect, bands: int, stream: WindowStream) -> bool:
    """Return whether a window has so few bytes, as where an image is empty, that limits forbid it.

    They hold for the whole tile, which the codec then decodes.
    """
    most = limits.get().expansion * (len(stream.head) + stream.nbytes)
    return 4 * bands * decoded.width * decoded.height > max(limits.get().free_bytes, most)


def walk_source(header: MainHeader, source: Source, ranges: Sequence[Range]) -> Walked:
    """Walk the packets of the tile at `ranges` of a source."""
    if source.is_local and isinstance(source, FileSource):
        parts, heads = _local_parts(source, ranges)
    else:
        parts, heads = _remote_parts(source, ranges)
    tiles = group_parts(parts)
    if len(tiles) != 1:
        raise ChunkDecodeError(f"jpeg2000: tiles {sorted(tiles)}, expected one")
    [tile] = tiles
    if tile >= header.siz.tiles:
        raise ChunkDecodeError(
            f"jpeg2000: tile number {tile}, expected 0 to {header.siz.tiles - 1}"
        )
    try:
        layout = tile_layout(header, tile, heads, parts)
        step, read = 0, _body(source, layout)
        if not isinstance(source, FileSource):
            step = _step(header, layout)
            if step == STEP and (ahead := _stated_headers(header, layout, heads)):
                step, read = LEAST_HEADER, _fetched(read, ahead)
        table = walk_tile(header, layout, read, step=step)
    except NoTableError:
        return Walked(tile, None, None)
    layout.tile.bodies.clear()
    return Walked(tile, layout, table)


def _step(header: MainHeader, layout: TileLayout) -> int:
    """Return how much of a remote tile to read at a time."""
    rect, styles = header.siz.tile(layout.number), layout.tile.styles
    packets = layout.tile.cod.layers * count_precincts(header, rect, styles)
    if packets > MANY_PACKETS:
        return STEP
    blocks = count_tile_blocks(header.siz.components, rect, styles)
    return max(HEAD, min(HEADER_BYTES * blocks, STEP))


def _stated_headers(
    header: MainHeader, layout: TileLayout, heads: Sequence[memoryview]
) -> list[Range]:
    """Return where the packet headers are in the body of a tile, if it says so (PLT).

    Empty if it does not, or if reading all of the body is as cheap. What is stated may be wrong:
    then the walk reads other bytes in addition.
    """
    listed = [packet_lengths(head) for head in heads]
    stops = [*layout.starts.tolist()[1:], layout.total]
    sizes = np.array(stops, np.int64) - layout.starts
    if layout.tile.headers is not None or any(
        found is None or int(found.sum()) != size
        for found, size in zip(listed, sizes.tolist(), strict=True)
    ):
        return []
    lengths = np.concatenate([found for found in listed if found is not None])
    starts = np.cumsum(lengths) - lengths
    blocks = count_tile_blocks(
        header.siz.components, header.siz.tile(layout.number), layout.tile.styles
    )
    room = LEAST_HEADER + 2 * HEADER_BYTES * blocks // len(lengths)
    ends = starts + np.minimum(lengths, room)
    # of those that are close to each other, the first begins a range and the last ends it
    breaks = np.flatnonzero(starts[1:] > ends[:-1] + GAP)
    begins = starts[np.concatenate([[0], breaks + 1])]
    sizes = ends[np.concatenate([breaks, [len(ends) - 1]])] - begins
    if len(begins) > MANY_RANGES or 2 * int(sizes.sum()) > layout.total:
        return []
    return list(zip(begins.tolist(), sizes.tolist(), strict=True))


def _fetched(read: Read, ranges: Sequence[Range]) -> Read:
    """Return a function that reads the body of a tile, of which these ranges are fetched now."""
    with ThreadPoolExecutor(min(CONNECTIONS, len(ranges)), "anychunk-walk") as executor:
        found = list(in_order(lambda r: read(*r), ranges, executor=executor, ahead=2 * CONNECTIONS))
    begins = [begin for begin, _ in ranges]

    def read_ahead(at: int, length: int) -> memoryview:
        number = bisect_right(begins, at) - 1
        piece = found[number][at - begins[number] :] if number >= 0 else memoryview(b"")
        return piece if len(piece) >= length else read(at, length)

    return read_ahead


def _local_parts(
    source: Source, ranges: Sequence[Range]
) -> tuple[list[TilePart], list[memoryview]]:
    parts, heads = [], []
    for offset, length in ranges:
        view = memoryview(source.read(offset, length))
        for part in tile_parts(view):
            parts.append(TilePart(part.tile, part.number, offset + part.offset, part.length))
            heads.append(view[part.offset : part.offset + part.length])
    return parts, heads


def _remote_parts(
    source: Source, ranges: Sequence[Range]
) -> tuple[list[TilePart], list[memoryview]]:
    """Find the tile-parts in `ranges`, reading only their headers."""
    parts, heads = [], []
    for offset, length in ranges:
        at, end = offset, offset + length
        while at < end:
            head = memoryview(source.read(at, min(HEAD, end - at)))
            while True:
                try:
                    size = head_length(head)
                    break
                except NeedsMoreError as e:
                    if at + len(head) >= end:
                        raise TruncatedError(f"@{at}: {e}") from e
                    needed = max(e.needed, 4 * len(head))
                    head = memoryview(source.read(at, min(needed, end - at)))
            found = _read_sot(head, end - at)
            parts.append(TilePart(found.tile, found.number, at, found.length))
            heads.append(head[:size])
            at += found.length
    return parts, heads


def _read_sot(head: memoryview, left: int) -> TilePart:
    """Return the tile-part that begins with `head`; `left` bytes are left for it."""
    marker, lsot = int.from_bytes(head[:2], "big"), int.from_bytes(head[2:4], "big")
    length = int.from_bytes(head[6:10], "big") or left
    if marker != SOT or lsot != 10 or not SOT_BYTES + 2 <= length <= left:
        raise TruncatedError(
            f"jpeg2000: a tile-part begins with {bytes(head[:12]).hex()}, expected SOT (ff90000a) "
            f"and a length of at most {left}"
        )
    return TilePart(int.from_bytes(head[4:6], "big"), head[10], 0, length)


def _body(source: Source, layout: TileLayout) -> Read:
    """Return a function that reads the body of a tile, which is that of its tile-parts, joined."""
    starts = layout.starts.tolist()
    stops = [*starts[1:], layout.total]
    places = layout.offsets.tolist()

    def read(at: int, length: int) -> memoryview:
        pieces = []
        for start, stop, place in zip(starts, stops, places, strict=True):
            low, high = max(at, start), min(at + length, stop)
            if low < high:
                pieces.append(memoryview(source.read(place + low - start, high - low)))
        return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))

    return read


def pieces(window: Rect) -> list[Rect]:
    """Divide a window into pieces that are decoded separately."""
    xs = _cuts(window.x0, window.x1)
    ys = _cuts(window.y0, window.y1)
    return [Rect(x0, y0, x1, y1) for y0, y1 in ys for x0, x1 in xs]


def _cuts(begin: int, end: int) -> list[tuple[int, int]]:
    count = -(-(end - begin) // PIECE)
    edges = [begin + (end - begin) * i // count for i in range(count + 1)]
    return list(itertools.pairwise(edges))
