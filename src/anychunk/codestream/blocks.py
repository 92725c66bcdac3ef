"""Find the code-blocks of a JPEG 2000 tile: where the bytes of each are, and how it is coded.

Spec: ITU-T T.800 annex B; T.814 annex B for HTJ2K. `packets` explains packets and their headers.

A code-block is the smallest piece of a tile that can be decoded separately. Its bytes are spread
over the packets of its precinct, one contribution per quality layer, and only the headers of these
packets say where. So all packet headers of the tile are walked once, in order, which also proves
that the tile consists of exactly its packets. The walk is compiled (`native/packets.c`) or, where
that module is missing, done in Python (`packet_walk`), with the same result.

The walk can be given the body piece by piece: it says which bytes it needs next. A remote tile is
walked from its packet headers, without the code-blocks between them.
"""

from collections.abc import Callable, Sequence

import numpy as np

from anychunk.codestream.block_table import (
    COLUMNS,
    DTYPES,
    MAX_BLOCKS,
    BlockTable,
    Int64,
    NoTableError,
    TileLayout,
    count_tile_blocks,
)
from anychunk.codestream.jpeg2000 import (
    CAP,
    COC,
    COD,
    COM,
    CPF,
    CRG,
    PLM,
    PLT,
    POC,
    PPT,
    PRF,
    QCC,
    QCD,
    RGN,
    SIZ,
    SOD,
    SOT_BYTES,
    TLM,
    MainHeader,
    TilePart,
    segments,
)
from anychunk.codestream.packet_walk import (
    LONG_BODY,
    MANY_PASSES,
    MANY_PLANES,
    MAX_LBLOCK,
    MAX_PASSES,
    MORE,
    NO_EPH,
    NO_HEADER,
    NO_MEMORY,
    Answer,
    Walk,
)
from anychunk.codestream.packets import (
    MAX_PLANES,
    MISSING_EPH,
    count_precincts,
    read_tile,
)
from anychunk.errors import FormatError, TruncatedError
from anychunk.native import loops

type Read = Callable[[int, int], memoryview]
"""Returns bytes of the body of a tile, by offset and length."""

MAX_PRECINCTS = 1 << 22
OVERRIDES = (COD, COC, QCD, QCC, RGN)
"""Markers by which a tile-part header overrides the main header."""
KNOWN = frozenset((SIZ, CAP, PRF, CPF, POC, PPT, TLM, PLM, PLT, CRG, COM, *OVERRIDES))
"""Markers that are kept, or may be dropped, in the streams of windows."""
MAX_BLOCK_CODE = 8
"""The largest number that codes a size of code-blocks (T.800 table A.18)."""
DERIVED = 1
"""The quantisation style in which one step is stated for all sub-bands (T.800 table A.28)."""


def tile_layout(
    header: MainHeader, tile: int, heads: Sequence[memoryview], parts: Sequence[TilePart]
) -> TileLayout:
    """Return the layout of a tile.

    Parameters:
        header: The main header.
        tile: The tile's number.
        heads: The header of each tile-part, from SOT to at least SOD.
        parts: The tile-parts, with their offsets in the source.

    Raises:
        NoTableError: Its packet headers cannot be walked.
    """
    lengths = [head_length(head) for head in heads]
    joined = memoryview(b"".join(head[:n] for head, n in zip(heads, lengths, strict=True)))
    local, at = [], 0
    for part, length in zip(parts, lengths, strict=True):
        local.append(TilePart(part.tile, part.number, at, length))
        at += length
    found = read_tile(header, joined, local)
    if found is None:
        raise NoTableError("HTJ2K with several layers")
    own = bytearray()
    for part in local:
        view = joined[part.offset : part.offset + part.length]
        if not is_regular(view, SOT_BYTES, SOD, len(header.siz.components)):
            raise NoTableError("unknown parameters in a tile-part header")
        for marker, start, stop in segments(view, SOT_BYTES, SOD):
            if marker in OVERRIDES:
                own += view[start - 4 : stop]
    bodies = np.array([p.length - n for p, n in zip(parts, lengths, strict=True)], np.int64)
    starts = np.cumsum(bodies) - bodies
    return TileLayout(
        number=tile,
        tile=found,
        markers=bytes(own),
        starts=starts,
        offsets=np.array([p.offset + n for p, n in zip(parts, lengths, strict=True)], np.int64),
        total=int(bodies.sum()),
    )


def is_regular(data: bytes | memoryview, start: int, stop: int, components: int) -> bool:
    """Return whether marker segments up to the marker `stop` have nothing that the walk ignores.

    If not, because of other markers, reserved bits or components that do not exist, a decoder may
    refuse the tile, so it has to see the original headers.
    """
    wide = 1 if components < 257 else 2
    for marker, begin, end in segments(data, start, stop):
        body = bytes(data[begin:end])
        if marker not in KNOWN and marker != stop:
            return False
        if marker in (COD, COC):
            at = 0 if marker == COD else wide
            flags, size = (7, at + 6) if marker == COD else (1, at + 2)
            if (
                len(body) < size + 2
                or body[at] & ~flags
                or max(body[size : size + 2]) > MAX_BLOCK_CODE
            ):
                return False
        if marker in (QCD, QCC):
            steps = body[wide if marker == QCC else 0 :]
            if len(steps) < 2 or (steps[0] & 31 == DERIVED and len(steps) != 3):
                return False
        if marker in (QCC, RGN) and int.from_bytes(body[:wide], "big") >= components:
            return False
        if marker == RGN and (len(body) != wide + 2 or body[wide] != 0):
            return False
    return True


def head_length(head: memoryview) -> int:
    """Return the length of a tile-part header, SOD included."""
    *_, (_, sod, _) = segments(head, SOT_BYTES, SOD)
    return sod + 2


def packet_lengths(head: memoryview) -> Int64 | None:
    """Return the lengths of packets that a tile-part header states (PLT, T.800 A.7.3), if any.

    They are not checked.
    """
    parts = [head[begin + 1 : end] for m, begin, end in segments(head, SOT_BYTES, SOD) if m == PLT]
    data = np.frombuffer(b"".join(parts), np.uint8)
    # seven bits per byte, the highest bit is set but in the last byte of a number
    stops = np.flatnonzero(data < 128)
    if not len(stops) or stops[-1] != len(data) - 1:
        return None
    starts = np.concatenate([[0], stops[:-1] + 1])
    if int((stops - starts).max()) > 4:
        return None  # more than 32 bits
    shifts = 7 * (np.repeat(stops, stops - starts + 1) - np.arange(len(data)))
    found: Int64 = np.add.reduceat((data & 127).astype(np.int64) << shifts, starts)
    return found


def walk_tile(header: MainHeader, layout: TileLayout, read: Read, *, step: int = 0) -> BlockTable:
    """Walk the packets of a tile; return its code-blocks.

    Parameters:
        header: The main header.
        layout: The tile.
        read: Reads the body; may return more than was asked for.
        step: How much of the body is read at a time, at least; 0: all of it at once.

    Raises:
        TruncatedError: Packets are missing or truncated.
        FormatError: Bytes follow the last packet, or headers break the rules.
        NoTableError: There are too many packets or code-blocks.
    """
    tile, number = layout.tile, layout.number
    rect = header.siz.tile(number)
    components = header.siz.components
    count = count_precincts(header, rect, tile.styles)
    available = layout.total if tile.headers is None else len(tile.headers)
    # every packet of the first layer has at least one byte, which also bounds memory and time
    if count > available:
        raise TruncatedError(
            f"tile {number} has {available} bytes of packets, expected at least one for each of "
            f"{count} precincts"
        )
    if count > MAX_PRECINCTS or count_tile_blocks(components, rect, tile.styles) > MAX_BLOCKS:
        raise NoTableError("too many code-blocks")
    packets = tile.cod.layers * count
    walk = _Compiled(header, layout) if loops is not None else Walk(header, layout)
    step = step or layout.total
    at, length = 0, min(step, layout.total)
    while True:
        # PPT: the body is needed only to find out whether packets begin with SOP
        is_needed = tile.headers is None or tile.cod.has_sop
        data = read(at, length) if length and is_needed else memoryview(b"")
        length = max(length, len(data))
        answer = walk.resume(data, at)
        if answer.code != MORE:
            break
        # the same packet again needs more than was there; another one begins anew
        again = answer.needed == at or (at < answer.needed < at + length)
        grown = 2 * (at + length - answer.needed) if again else 0
        at = answer.needed
        length = min(max(step, grown), layout.total - at)
    _check(answer, f"tile {number}, packet {answer.packets} of {packets}", layout.total)
    rest = layout.total - answer.position
    # some encoders pad with zeros, which would be empty packets
    if rest and any(read(answer.position, rest)):
        raise FormatError(f"tile {number}: {rest} bytes follow its {packets} packets")
    return walk.finish()


def count_exact(header: MainHeader, layout: TileLayout, data: memoryview, tiles: Int64) -> int:
    """Return how many of several tiles are exactly their packets, up to the first that is not.

    A tile may also be one that the compiled module cannot walk. `walk_tile` says what it is.

    Parameters:
        header: The main header.
        layout: The layout of one of the tiles, which no tile overrides.
        data: Bytes that contain the packets.
        tiles: For each x0, y0, x1, y1, and the offset and length of its packets in `data`.
    """
    if loops is None:
        return 0
    return loops.walk_all(
        walk_parameters(header, layout), data, np.ascontiguousarray(tiles).tobytes()
    )


def _check(answer: Answer, where: str, total: int) -> None:
    """Raise what the answer of a walk means."""
    if answer.code == NO_HEADER:
        raise TruncatedError(f"{where}: the packet header is truncated after {total} bytes")
    if answer.code == LONG_BODY:
        left = total - answer.position
        raise TruncatedError(f"{where}: {left} bytes left, expected more")
    if answer.code == MANY_PLANES:
        raise TruncatedError(f"{where}: a code-block has more than {MAX_PLANES} missing bit-planes")
    if answer.code == MANY_PASSES:
        raise FormatError(
            f"{where}: a code-block has more than {MAX_PASSES} passes or lengths of more than "
            f"{MAX_LBLOCK} bits"
        )
    if answer.code == NO_EPH:
        raise TruncatedError(f"{where}: {MISSING_EPH}")
    if answer.code == NO_MEMORY:
        raise MemoryError


def walk_parameters(header: MainHeader, layout: TileLayout) -> bytes:
    """Return what the compiled walk needs to know: 64-bit integers (native/packets.c)."""
    tile, rect = layout.tile, header.siz.tile(layout.number)
    flags = tile.cod.has_sop | tile.cod.has_eph << 1 | (tile.headers is not None) << 2
    numbers = [1, rect.x0, rect.y0, rect.x1, rect.y1, tile.cod.layers, flags, layout.total]
    numbers += [len(tile.styles), len(tile.volumes)]
    for component, style in zip(header.siz.components, tile.styles, strict=True):
        sizes = style.precincts or ((15, 15),) * (style.levels + 1)
        numbers += [component.dx, component.dy, style.levels, style.xcb, style.ycb]
        numbers += [style.block_style, 0, *(n for size in sizes for n in size)]
        numbers += [0] * (2 * (32 - style.levels))
    for volume in tile.volumes:
        r, c = volume.resolutions, volume.components
        numbers += [volume.progression, r.start, r.stop, c.start, max(c.stop, 0), volume.layers]
    return np.array(numbers, np.int64).tobytes()


class _Compiled:
    """The compiled walk."""

    def __init__(self, header: MainHeader, layout: TileLayout) -> None:
        assert loops is not None
        self._headers = layout.tile.headers or b""
        try:
            self._walk = loops.walk_begin(walk_parameters(header, layout))
        except ValueError as e:
            raise NoTableError(str(e)) from e

    def resume(self, data: memoryview, base: int) -> Answer:
        assert loops is not None
        return Answer(*loops.walk_resume(self._walk, data, base, self._headers))

    def finish(self) -> BlockTable:
        assert loops is not None
        columns = loops.walk_finish(self._walk)
        return _table(columns)


def _table(columns: Sequence[bytes]) -> BlockTable:
    arrays = {
        name: np.frombuffer(column, dtype)
        for name, dtype, column in zip(COLUMNS, DTYPES, columns, strict=True)
    }
    return BlockTable(**arrays)
