"""The walk through the packets of a JPEG 2000 tile, in Python; see `blocks`.

It does what `native/packets.c` does, step by step, where that module is missing.
"""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from anychunk.codestream.block_table import (
    ABSENT,
    SEGMENTED,
    BlockTable,
    Int64,
    TileLayout,
    Uint32,
    block_exponents,
    tile_bands,
)
from anychunk.codestream.jpeg2000 import MainHeader
from anychunk.codestream.packet_bits import Bits, TagTree
from anychunk.codestream.packets import (
    HT,
    LAZY,
    MAX_PLANES,
    TERMINATE_ALL,
    Precinct,
    band_spans,
    ceil_shift,
    order,
    precinct_grid,
    read_passes,
    segment_room,
    tile_precincts,
)
from anychunk.errors import TruncatedError

MAX_LBLOCK, MAX_PASSES = 40, 60000

# what the compiled walk answers; native/packets.c has the same list
DONE, MORE, NO_HEADER, LONG_BODY, MANY_PLANES, MANY_PASSES, _, NO_MEMORY, NO_EPH = range(9)


class Answer(NamedTuple):
    """How far a walk has come."""

    code: int
    position: int
    """In the body, after the last packet that was read."""
    packets: int
    """How many were read."""
    needed: int
    """The next bytes that are needed, on `MORE`."""


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


class Walk:
    """One walk: given the body piece by piece, it says which bytes it needs next."""

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
