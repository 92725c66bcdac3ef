"""The table of code-blocks of a JPEG 2000 tile: where the bytes of each are, and how it is coded.

Spec: ITU-T T.800 annex B; T.814 annex B for HTJ2K. `packets` explains packets and their headers.

A code-block is the smallest piece of a tile that can be decoded separately. Its bytes are spread
over the packets of its precinct, one contribution per quality layer, and only the headers of these
packets say where. So all packet headers of the tile are walked once, in order, which also proves
that the tile consists of exactly its packets. The walk is compiled (`native/packets.c`) or, where
that module is missing, done here in Python, with the same result.

Code-blocks are numbered by component, resolution and sub-band (`tile_bands`), in raster order over
the whole sub-band. Their columns and rows are counted from the origin of the reference grid (T.800
B.7), so that they are the same in every cut of the tile.

The walk can be given the body piece by piece: it says which bytes it needs next. A remote tile is
walked from its packet headers, without the code-blocks between them.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
    PPM,
    PPT,
    PRF,
    QCC,
    QCD,
    RGN,
    SIZ,
    SOD,
    SOT_BYTES,
    TLM,
    Component,
    MainHeader,
    Rect,
    Style,
    TilePart,
    segments,
)
from anychunk.codestream.packet_bits import Bits, TagTree
from anychunk.codestream.packets import (
    HT,
    LAZY,
    MAX_PLANES,
    MISSING_EPH,
    TERMINATE_ALL,
    Precinct,
    Tile,
    band_spans,
    ceil_shift,
    count_precincts,
    order,
    precinct_grid,
    read_passes,
    read_tile,
    segment_room,
    tile_precincts,
)
from anychunk.errors import FormatError, TruncatedError
from anychunk.native import loops

type Uint8 = npt.NDArray[np.uint8]
type Uint16 = npt.NDArray[np.uint16]
type Uint32 = npt.NDArray[np.uint32]
type Int64 = npt.NDArray[np.int64]
type Read = Callable[[int, int], memoryview]
"""Returns bytes of the body of a tile, by offset and length."""

MAX_BLOCKS = 1 << 22
"""Tiles of more code-blocks have no table: it would take more than 100 MB."""
MAX_PRECINCTS = 1 << 22
MAX_LBLOCK, MAX_PASSES = 40, 60000
ABSENT = 255
"""`planes` of a code-block that no packet includes."""
SEGMENTED = LAZY | TERMINATE_ALL | HT
"""Code-block styles with several codeword segments (T.800 table A.19)."""
OVERRIDES = (COD, COC, QCD, QCC, RGN)
"""Markers by which a tile-part header overrides the main header."""
KNOWN = frozenset((SIZ, CAP, PRF, CPF, POC, PPT, TLM, PLM, PLT, CRG, COM, *OVERRIDES))
"""Markers that are kept, or may be dropped, in the streams of windows."""
MAX_BLOCK_CODE = 8
"""The largest number that codes a size of code-blocks (T.800 table A.18)."""
DERIVED = 1
"""The quantisation style in which one step is stated for all sub-bands (T.800 table A.28)."""

# what the compiled walk answers; native/packets.c has the same list
DONE, MORE, NO_HEADER, LONG_BODY, MANY_PLANES, MANY_PASSES, _, NO_MEMORY, NO_EPH = range(9)


class NoTableError(Exception):
    """The code-blocks of a tile cannot be told apart; it can only be decoded as a whole."""


class Band(NamedTuple):
    """One sub-band of a tile: the code-blocks that it is divided into."""

    columns: range
    """Numbers of the columns of code-blocks, counted from the origin of the reference grid."""
    rows: range
    base: int
    """Number of its first code-block in the tile."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TileLayout:
    """One tile: its coding style, and where its body is in the source."""

    number: int
    tile: Tile
    markers: bytes
    """The segments of its tile-part headers that override the main header."""
    starts: Int64
    """Where the packets of each tile-part begin in the body, which is all of them joined."""
    offsets: Int64
    """Where they begin in the source."""
    total: int
    """Length of the body."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockTable:
    """All code-blocks of one tile, by number; see the module."""

    planes: Uint8
    """Missing most significant bit-planes (T.800 B.10.5), or `ABSENT`."""
    passes: Uint16
    """Coding passes in all layers."""
    starts: Uint32
    """Code-block `i` has the byte ranges from `starts[i]` to `starts[i + 1]`, one per layer."""
    offsets: Int64
    """In the body of the tile."""
    lengths: Uint32
    segment_starts: Uint32
    """Likewise for codeword segments; empty if every code-block is one segment."""
    segment_passes: Uint16
    segment_lengths: Uint32

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in COLUMNS)


COLUMNS = (
    "planes", "passes", "starts", "offsets", "lengths", "segment_starts", "segment_passes",
    "segment_lengths",
)  # fmt: skip
DTYPES = ("u1", "<u2", "<u4", "<i8", "<u4", "<u4", "<u2", "<u4")


def block_exponents(style: Style, resolution: int) -> tuple[int, int]:
    """Return the size of code-blocks, which precincts limit, as powers of 2 (T.800 B-17, B-18)."""
    x, y = style.precincts[resolution] if style.precincts else (15, 15)
    is_split = resolution > 0
    return min(style.xcb, x - is_split), min(style.ycb, y - is_split)


def tile_bands(
    components: Sequence[Component], rect: Rect, styles: Sequence[Style]
) -> dict[tuple[int, int], list[Band]]:
    """Return the sub-bands of every (component, resolution): LL, or HL, LH and HH."""
    found: dict[tuple[int, int], list[Band]] = {}
    base = 0
    for number, (component, style) in enumerate(zip(components, styles, strict=True)):
        area = rect.scaled(component.dx, component.dy)
        for resolution in range(style.levels + 1):
            listed = []
            for columns, rows in band_grids(area, style, resolution):
                listed.append(Band(columns, rows, base))
                base += len(columns) * len(rows)
            found[number, resolution] = listed
    return found


def band_grids(area: Rect, style: Style, resolution: int) -> Iterator[tuple[range, range]]:
    """Yield the columns and rows of code-blocks of each sub-band of a resolution."""
    is_lowest = resolution == 0
    shift = style.levels - resolution
    x, y = block_exponents(style, resolution)
    across = band_spans(area.x0, area.x1, shift, is_lowest=is_lowest)
    down = band_spans(area.y0, area.y1, shift, is_lowest=is_lowest)
    for high_x, high_y in ((0, 0),) if is_lowest else ((1, 0), (0, 1), (1, 1)):
        (x0, x1), (y0, y1) = across[high_x], down[high_y]
        if x0 < x1 and y0 < y1:
            yield range(x0 >> x, ceil_shift(x1, x)), range(y0 >> y, ceil_shift(y1, y))
        else:
            yield range(0), range(0)


def count_tile_blocks(components: Sequence[Component], rect: Rect, styles: Sequence[Style]) -> int:
    """Return the number of code-blocks of a tile, without listing its components."""
    counts: dict[tuple[int, int, Style], int] = {}
    total = 0
    for component, style in zip(components, styles, strict=True):
        key = (component.dx, component.dy, style)
        if key not in counts:
            area = rect.scaled(component.dx, component.dy)
            counts[key] = sum(
                len(columns) * len(rows)
                for resolution in range(style.levels + 1)
                for columns, rows in band_grids(area, style, resolution)
            )
        total += counts[key]
    return total


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
        NoTableError: Its packet headers are in the main header, or cannot be walked.
    """
    if PPM in header.markers:
        raise NoTableError("packet headers are in the main header (PPM)")
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
    walk = _Compiled(header, layout) if loops is not None else _Walk(header, layout)
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


class Answer(NamedTuple):
    """How far a walk has come."""

    code: int
    position: int
    """In the body, after the last packet that was read."""
    packets: int
    """How many were read."""
    needed: int
    """The next bytes that are needed, on `MORE`."""


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


def _parameters(header: MainHeader, layout: TileLayout) -> bytes:
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
            self._walk = loops.walk_begin(_parameters(header, layout))
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


@dataclass(slots=True)
class _Block:
    """One code-block, as far as the walk has come."""

    number: int
    planes: int
    passes: int = 0
    lblock: int = 3
    is_open: bool = False
    """Whether its last segment continues in its next packet."""
    ranges: list[tuple[int, int]] = field(default_factory=list)
    segments: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _BandState:
    """The code-blocks of one sub-band in one precinct."""

    inclusion: TagTree
    planes: TagTree
    numbers: list[int]


class _Copy(NamedTuple):
    """The state of one precinct."""

    states: list[_BandState] | None
    blocks: dict[int, _Block]


class _Walk:
    """The same walk in Python."""

    def __init__(self, header: MainHeader, layout: TileLayout) -> None:
        tile, rect = layout.tile, header.siz.tile(layout.number)
        self._tile, self._total = tile, layout.total
        self._precincts = tile_precincts(header, rect, tile.styles)
        self._bands = tile_bands(header.siz.components, rect, tile.styles)
        self._areas = [rect.scaled(c.dx, c.dy) for c in header.siz.components]
        self._places: dict[int, tuple[int, int]] = {}
        for (component, resolution), listed in self._precincts.items():
            style = tile.styles[component]
            columns, rows = precinct_grid(self._areas[component], style, resolution)
            for i, precinct in enumerate(listed):
                row, column = divmod(i, len(columns))
                self._places[id(precinct)] = columns[column], rows[row]
        self._planned = (
            (layer, precinct)
            for volume in tile.volumes
            for layer, precinct in order(volume, self._precincts)
            if layer == precinct.layers
        )
        self._next: tuple[int, Precinct] | None = next(self._planned, None)
        self._states: dict[int, list[_BandState]] = {}
        self._blocks: dict[int, _Block] = {}
        self._position = self._header_position = self._packets = 0

    def resume(self, data: memoryview, base: int) -> Answer:
        code = self._resume(data, base)
        return Answer(code, self._position, self._packets, self._position)

    def _resume(self, data: memoryview, base: int) -> int:  # noqa: C901, PLR0911, PLR0912 - as in C
        tile, total = self._tile, self._total
        is_all = base + len(data) >= total
        packed = None if tile.headers is None else memoryview(tile.headers)
        while self._next is not None:
            layer, precinct = self._next
            body = self._position
            is_read = packed is None or self._header_position == len(packed)
            if body == total and is_read and self._is_whole_layers():
                return DONE
            if tile.cod.has_sop and body < total:
                if body < base or (body + 6 > base + len(data) and not is_all):
                    return MORE
                if data[body - base : body - base + 2].tobytes() == b"\xff\x91":
                    body += 6
            source, at = (data, body - base) if packed is None else (packed, self._header_position)
            if packed is None and body < total and not base <= body < base + len(data):
                return MORE
            is_complete = packed is not None or is_all
            copy = None if is_complete else self._copy(precinct)
            code, stop, lengths = self._read(source, at, precinct, layer)
            margin = 2 if tile.cod.has_eph else 0
            is_short = code == NO_HEADER or (code == DONE and stop + margin > len(source))
            if copy is not None and is_short:
                self._restore(precinct, copy)
                return MORE
            if code != DONE:
                return code
            if tile.cod.has_eph:
                if source[stop : stop + 2].tobytes() != b"\xff\x92":
                    return NO_EPH
                stop += 2
            if packed is None:
                body = base + stop
            else:
                self._header_position = stop
            if sum(length for _, length in lengths) > total - body:
                return LONG_BODY
            for block, length in lengths:
                block.ranges.append((body, length))
                body += length
            self._position = body
            precinct.layers += 1
            self._packets += 1
            if precinct.layers == tile.cod.layers:
                self._states.pop(id(precinct), None)
            self._next = next(self._planned, None)
        return DONE

    def _is_whole_layers(self) -> bool:
        counts = {p.layers for listed in self._precincts.values() for p in listed}
        return len(counts) == 1 and 0 not in counts

    def _state(self, precinct: Precinct) -> list[_BandState]:
        found = self._states.get(id(precinct))
        if found is None:
            component, resolution = precinct.component, precinct.resolution
            style, area = self._tile.styles[component], self._areas[component]
            x, y = block_exponents(style, resolution)
            ppx, ppy = style.precincts[resolution] if style.precincts else (15, 15)
            is_split = resolution > 0
            column, row = self._places[id(precinct)]
            spans = (
                band_spans(area.x0, area.x1, style.levels - resolution, is_lowest=not is_split),
                band_spans(area.y0, area.y1, style.levels - resolution, is_lowest=not is_split),
            )
            found = []
            kinds = ((1, 0), (0, 1), (1, 1)) if is_split else ((0, 0),)
            bands = self._bands[component, resolution]
            for band, (high_x, high_y) in zip(bands, kinds, strict=True):
                across = _overlap(spans[0][high_x], column, ppx - is_split, x)
                down = _overlap(spans[1][high_y], row, ppy - is_split, y)
                if len(across) and len(down):
                    numbers = [
                        band.base + (r - band.rows.start) * len(band.columns) + c
                        for r in down
                        for c in range(across.start - band.columns.start,
                                       across.stop - band.columns.start)
                    ]  # fmt: skip
                    w, h = len(across), len(down)
                    found.append(_BandState(TagTree(w, h), TagTree(w, h), numbers))
            self._states[id(precinct)] = found
        return found

    def _copy(self, precinct: Precinct) -> "_Copy":
        """Copy what a packet header may change, to read it again when more bytes are there."""
        states = self._states.get(id(precinct))
        return _Copy(
            deepcopy(states),
            {
                number: replace(block, segments=list(block.segments))
                for state in states or ()
                for number in state.numbers
                if (block := self._blocks.get(number)) is not None
            },
        )

    def _restore(self, precinct: Precinct, copy: "_Copy") -> None:
        for state in self._states.pop(id(precinct), ()):
            for number in state.numbers:
                self._blocks.pop(number, None)
        self._blocks |= copy.blocks
        if copy.states is not None:
            self._states[id(precinct)] = copy.states

    def _read(
        self, data: memoryview, at: int, precinct: Precinct, layer: int
    ) -> tuple[int, int, list[tuple[_Block, int]]]:
        """Read one packet header; return a code, its end, and the length of each contribution."""
        if at >= len(data):
            return NO_HEADER, 0, []
        if data[at] < 0x80:
            return DONE, at + 1, []  # T.800 B.10.3: a first bit of 0 is an empty packet
        try:
            return self._read_blocks(Bits(data, at), precinct, layer)
        except TruncatedError:
            return NO_HEADER, 0, []

    def _read_blocks(  # noqa: C901, PLR0912 - as in C
        self, bits: Bits, precinct: Precinct, layer: int
    ) -> tuple[int, int, list[tuple[_Block, int]]]:
        got: list[tuple[_Block, int]] = []
        blocks = self._blocks
        bits.read(1)
        for state in self._state(precinct):
            for leaf, number in enumerate(state.numbers):
                block = blocks.get(number)
                if block is not None:
                    if not bits.read(1):
                        continue
                else:
                    if not state.inclusion.reaches(leaf, layer + 1, bits):
                        continue
                    missing = 1
                    while not state.planes.reaches(leaf, missing, bits):
                        missing += 1
                        if missing > MAX_PLANES:
                            return MANY_PLANES, 0, []
                    block = blocks[number] = _Block(number, missing - 1)
                count = read_passes(bits)
                while bits.read(1):
                    block.lblock += 1
                    if block.lblock > MAX_LBLOCK:
                        return MANY_PASSES, 0, []
                if block.passes + count > MAX_PASSES:
                    return MANY_PASSES, 0, []
                total = _read_segments(block, count, precinct.style, bits)
                if total >= 1 << 32:
                    return LONG_BODY, 0, []
                if total:
                    got.append((block, total))
        return DONE, bits.finish(), got

    def finish(self) -> BlockTable:
        bands = [band for listed in self._bands.values() for band in listed]
        count = sum(len(band.columns) * len(band.rows) for band in bands)
        found = [self._blocks[number] for number in sorted(self._blocks)]
        numbers = np.array([block.number for block in found], np.int64)
        planes, passes = np.full(count, ABSENT, np.uint8), np.zeros(count, np.uint16)
        planes[numbers] = [block.planes for block in found]
        passes[numbers] = [block.passes for block in found]
        ranges = [r for block in found for r in block.ranges]
        parts = [s for block in found for s in block.segments]
        is_segmented = any(style.block_style & SEGMENTED for style in self._tile.styles)
        empty = np.empty(0, np.uint32)
        return BlockTable(
            planes=planes,
            passes=passes,
            starts=_starts(count, numbers, [len(block.ranges) for block in found]),
            offsets=np.array([offset for offset, _ in ranges], np.int64),
            lengths=np.array([length for _, length in ranges], np.uint32),
            segment_starts=_starts(count, numbers, [len(b.segments) for b in found])
            if is_segmented
            else empty,
            segment_passes=np.array([n for n, _ in parts], np.uint16),
            segment_lengths=np.array([length for _, length in parts], np.uint32),
        )


def _overlap(span: tuple[int, int], precinct: int, exponent: int, block: int) -> range:
    """Return the code-blocks of one precinct along one axis of a sub-band."""
    low, high = max(span[0], precinct << exponent), min(span[1], precinct + 1 << exponent)
    return range(low >> block, ceil_shift(high, block)) if low < high else range(0)


def _starts(count: int, numbers: Int64, counts: list[int]) -> Uint32:
    each = np.zeros(count + 1, np.uint32)
    each[numbers + 1] = counts
    return np.cumsum(each, dtype=np.uint32)


def _read_segments(block: _Block, count: int, style: int, bits: Bits) -> int:
    """Read the lengths of the codeword segments of one contribution; return their sum."""
    total = 0
    while count:
        if style & HT:
            # T.814 annex B: placeholders and the cleanup pass; refinement passes
            room = count if block.passes else (count - 1) // 3 * 3 + 1
        elif style & (LAZY | TERMINATE_ALL):
            room = segment_room(style, block.passes)
        else:
            room = MAX_PASSES
        take = min(count, room)
        length = bits.read(block.lblock + take.bit_length() - 1)
        if style & SEGMENTED:
            if block.is_open:
                passes, before = block.segments[-1]
                block.segments[-1] = passes + take, before + length
            else:
                block.segments.append((take, length))
            block.is_open = take < room
        block.passes += take
        count -= take
        total += length
    return total


# --- saved tables

MAGIC = b"A2KB\x01"
SIZES = struct.Struct("<11IIQI")
"""Entries of each column; the tile, the length of its body and of its markers."""


def pack(layout: TileLayout, table: BlockTable) -> bytes:
    """Return a tile and its table as a few bytes per code-block, compressed.

    Offsets are saved as the distance from the end of the range before, in the order of the stream,
    where most are 0; and numbers byte by byte, the low bytes of all first, because high bytes are
    mostly 0 (as the filter `shuffle` does).
    """
    permuted = np.argsort(table.offsets, kind="stable")
    ends = table.offsets[permuted] + table.lengths[permuted]
    gaps = table.offsets[permuted] - np.concatenate([[0], ends[:-1]])
    order_gaps = np.diff(permuted, prepend=-1) - 1
    columns = [
        table.planes, table.passes, np.diff(table.starts).astype("<u2"), order_gaps.astype("<i4"),
        gaps.astype("<i8"), table.lengths[permuted], np.diff(table.segment_starts).astype("<u2"),
        table.segment_passes, table.segment_lengths,
        layout.starts.astype("<i8"), layout.offsets.astype("<i8"),
    ]  # fmt: skip
    shuffled = [
        np.ascontiguousarray(c.view(np.uint8).reshape(-1, c.dtype.itemsize).T) for c in columns
    ]
    sizes = SIZES.pack(*(len(c) for c in columns), layout.number, layout.total, len(layout.markers))
    body = sizes + layout.markers + b"".join(c.tobytes() for c in shuffled)
    return MAGIC + zlib.compress(body, 6)


def unpack(header: MainHeader, data: bytes) -> tuple[TileLayout, BlockTable]:
    """Return what `pack` packed; `data` is untrusted.

    Raises:
        FormatError: It is not a table of a tile of this codestream.
    """
    if data[:5] != MAGIC:
        raise FormatError(f"a code-block table begins with {data[:5].hex()}")
    try:
        reader = zlib.decompressobj()
        body = reader.decompress(data[5:], 64 * MAX_BLOCKS)
        sizes = SIZES.unpack_from(body)
        return _unpack(header, memoryview(body)[SIZES.size :], sizes)
    except (zlib.error, struct.error, ValueError, OverflowError) as e:
        if isinstance(e, FormatError):
            raise
        raise FormatError(f"a code-block table is damaged: {e}") from e


def _unpack(
    header: MainHeader, rest: memoryview, sizes: tuple[int, ...]
) -> tuple[TileLayout, BlockTable]:
    *counts, number, total, length = sizes
    dtypes = ("u1", "<u2", "<u2", "<i4", "<i8", "<u4", "<u2", "<u2", "<u4", "<i8", "<i8")
    markers, at, columns = bytes(rest[:length]), length, []
    for count, name in zip(counts, dtypes, strict=True):
        dtype = np.dtype(name)
        taken = np.frombuffer(rest[at : at + count * dtype.itemsize], np.uint8)
        shuffled = taken.reshape(dtype.itemsize, count)
        columns.append(np.ascontiguousarray(shuffled.T).view(dtype).reshape(count))
        at += count * dtype.itemsize
    planes, passes, each, order_gaps, gaps, lengths = columns[:6]
    each_segment, segment_passes, segment_lengths, starts, offsets = columns[6:]
    if number >= header.siz.tiles or total >= 1 << 62 or not len(starts):
        raise FormatError(f"a code-block table of tile {number} with {total} bytes")
    head = struct.pack(">HHHIBB", 0xFF90, 10, 0, 0, 0, 1) + markers + b"\xff\x93"
    tile = read_tile(header, memoryview(head), [TilePart(number, 0, 0, len(head))])
    if tile is None:
        raise FormatError("a code-block table of a tile that cannot have one")
    tile.bodies.clear()
    blocks = count_tile_blocks(header.siz.components, header.siz.tile(number), tile.styles)
    is_segmented = any(style.block_style & SEGMENTED for style in tile.styles)
    order_of = np.cumsum(order_gaps.astype(np.int64) + 1) - 1
    ends = np.cumsum(gaps + lengths)
    is_valid = (
        len(planes) == len(passes) == len(each) == blocks
        and len(each_segment) == (blocks if is_segmented else 0)
        and each.sum() == len(gaps) == len(lengths) == len(order_gaps)
        and each_segment.sum() == len(segment_passes) == len(segment_lengths)
        and len(starts) == len(offsets)
        and starts[0] == 0
        and bool((np.diff(starts) >= 0).all())
        and bool((starts <= total).all())
        and bool((offsets >= 0).all())
        and np.array_equal(np.sort(order_of), np.arange(len(ends)))
        and bool(((ends - lengths >= 0) & (ends <= total)).all())
    )
    if not is_valid:
        raise FormatError(f"a code-block table of tile {number} contradicts its codestream")
    placed = np.empty(len(ends), np.int64)
    placed[order_of] = ends - lengths
    layout = TileLayout(
        number=number, tile=tile, markers=markers, starts=starts, offsets=offsets, total=total
    )
    ordered = np.empty(len(ends), np.uint32)
    ordered[order_of] = lengths
    table = BlockTable(
        planes=planes,
        passes=passes,
        starts=np.concatenate([[0], np.cumsum(each)]).astype(np.uint32),
        offsets=placed,
        lengths=ordered,
        segment_starts=np.concatenate([[0], np.cumsum(each_segment)]).astype(np.uint32)
        if is_segmented
        else np.empty(0, np.uint32),
        segment_passes=segment_passes,
        segment_lengths=segment_lengths,
    )
    return layout, table
