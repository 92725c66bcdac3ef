"""Write a small JPEG 2000 codestream that decodes to one window of a tile, at one level.

Spec: ITU-T T.800 annex A (markers), annex B (geometry, packet headers), annex F (wavelets).

A window of a tile depends on few of its code-blocks. `plan_window` finds them, in the table that
`blocks` made, and writes a codestream that contains only these. It decodes to the same samples in
the window, and to anything outside of it. Nothing is decoded here.

What changes, and why the samples in the window do not:

- The image area is cut to a rectangle around the window (`canvas`), at multiples of the code-block
  size of every sub-band. So no code-block that is kept changes its size, and the parity of the
  rectangle's corner, on which sub-bands depend (B-15), stays that of the tile or is even.
- Code-blocks that are not needed are not included in any packet: their coefficients are 0. Samples
  near the edge of the canvas are wrong, because the wavelet there is mirrored in another place;
  `support` keeps them out of the window.
- All layers become one: a decoder concatenates the contributions of a code-block anyway.
- Precincts hold one code-block per sub-band. Then every tag tree is a single node, and the header
  of a packet without code-blocks is a zero byte.
- A coarser level is a stream with fewer decomposition levels (see `components`).
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from anychunk.codestream.block_table import (
    ABSENT,
    Band,
    BlockTable,
    NoTableError,
    TileLayout,
    band_grids,
    block_exponents,
    tile_bands,
)
from anychunk.codestream.components import read_parameters, style_bytes, tile_steps
from anychunk.codestream.jpeg2000 import (
    CAP,
    COC,
    COD,
    END,
    QCC,
    QCD,
    RGN,
    SIZ,
    SOD,
    SOT,
    SOT_BYTES,
    Component,
    MainHeader,
    Rect,
    Style,
    segments,
)
from anychunk.codestream.packets import LRCP, ceil_shift

type Int64 = npt.NDArray[np.int64]
type Spans = tuple[tuple[int, int], tuple[int, int]]
"""Begin and end of the low-pass and of the high-pass coefficients, along one axis."""

PASSES = ("", "0", "10", "1100", "1101", "1110")
"""The codes of up to 5 coding passes (T.800 table B.4)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowStream:
    """A codestream of one window, whose code-blocks have yet to be read."""

    canvas: Rect
    """Its image area: a part of the tile, on the reference grid of the level."""
    head: bytes
    """Main header and tile-part header."""
    packets: list[bytes | int]
    """Bytes of packet headers, and between them the numbers of byte ranges."""
    offsets: Int64
    """Byte ranges of the source, by number, in the order of the stream."""
    lengths: Int64

    @property
    def nbytes(self) -> int:
        """Bytes of the source that are needed."""
        return int(self.lengths.sum())

    def ranges(self, *, gap: int) -> list[tuple[int, int]]:
        """Return (offset, length) of what to read: in the order of the source, close ones joined.

        Parameters:
            gap: How many bytes may lie between two ranges that are joined.
        """
        found: list[tuple[int, int]] = []
        for number in np.argsort(self.offsets, kind="stable").tolist():
            offset, length = int(self.offsets[number]), int(self.lengths[number])
            if found and offset <= sum(found[-1]) + gap:
                begin, before = found[-1]
                found[-1] = begin, max(before, offset + length - begin)
            else:
                found.append((offset, length))
        return found

    def write(self, ranges: Sequence[tuple[int, int]], data: Sequence[memoryview]) -> bytes:
        """Return the codestream.

        Parameters:
            ranges: What `ranges` returned.
            data: The bytes of each.
        """
        begins = np.array([offset for offset, _ in ranges], np.int64)
        owners = np.searchsorted(begins, self.offsets, "right") - 1
        starts = (self.offsets - begins[owners]).tolist() if len(begins) else []
        lengths, owned = self.lengths.tolist(), owners.tolist()
        body = [
            data[owned[p]][starts[p] : starts[p] + lengths[p]] if isinstance(p, int) else p
            for p in self.packets
        ]
        return b"".join([self.head, *body, END])


def support(begin: int, end: int, levels: int, transform: int) -> list[Spans]:
    """Return the coefficients that samples from `begin` to `end` depend on, along one axis.

    Of level 1, 2 and so on, not clipped to the tile: beyond its edge, the wavelet mirrors what
    is needed anyway. T.800 F.3, with s for low-pass and d for high-pass coefficients:

    - 5/3: x[2n] needs s[n] and d[n-1..n], x[2n+1] needs s[n..n+1] and d[n-1..n+1];
    - 9/7: x[2n] needs s[n-1..n+1] and d[n-2..n+1], x[2n+1] needs s[n-1..n+2] and d[n-2..n+2].
    """
    more, found = 0 if transform else 1, []
    for _ in range(levels):
        low = begin // 2 - more, end // 2 + 1 + more
        found.append((low, (low[0] - 1, low[1])))
        begin, end = low
    return found


def plan_window(
    header: MainHeader, layout: TileLayout, table: BlockTable, *, level: int, window: Rect
) -> WindowStream:
    """Plan the codestream of a window of a tile.

    Parameters:
        header: The main header.
        layout: The tile.
        table: Its code-blocks.
        level: The resolution level.
        window: Which part of the tile, on the reference grid of the level.

    Raises:
        NoTableError: A component has fewer levels than `level`.
    """
    tile, siz = layout.tile, header.siz
    if any(style.levels < level for style in tile.styles):
        raise NoTableError("a component has fewer decomposition levels")
    whole = siz.tile(layout.number)
    bands = tile_bands(siz.components, whole, tile.styles)
    styles = [_cut_style(style, level) for style in tile.styles]
    wanted = [_supports(window, c, s) for c, s in zip(siz.components, styles, strict=True)]
    full = whole.scaled(1 << level, 1 << level)
    canvas = _canvas(full, window, siz.components, styles, wanted)
    writer = _Writer(table)
    for resolution in range(max(style.levels for style in styles) + 1):
        for number, (component, style) in enumerate(zip(siz.components, styles, strict=True)):
            if resolution <= style.levels:
                writer.add(
                    area=canvas.scaled(component.dx, component.dy),
                    style=style,
                    resolution=resolution,
                    bands=bands[number, resolution],
                    needed=_needed(wanted[number], style, resolution),
                )
    packets = writer.finish()
    body = sum(len(p) for p in packets if not isinstance(p, int))
    numbers = np.array(writer.ranges, np.int64)
    lengths = table.lengths[numbers].astype(np.int64)
    offsets, lengths, packets = _in_source(layout, table.offsets[numbers], lengths, packets)
    head = _head(header, layout, styles, canvas, level)
    total = SOT_BYTES + 2 + body + int(lengths.sum())
    if total > 0xFFFFFFFF:
        raise NoTableError("the window needs more than 4 GiB")
    head += struct.pack(">HHHIBBH", SOT, 10, 0, total, 0, 1, SOD)
    return WindowStream(canvas=canvas, head=head, packets=packets, offsets=offsets, lengths=lengths)


def _cut_style(style: Style, level: int) -> Style:
    """Return the style without finer levels, with precincts of one code-block per sub-band."""
    sizes = [block_exponents(style, r) for r in range(style.levels + 1 - level)]
    precincts = tuple((x + (r > 0), y + (r > 0)) for r, (x, y) in enumerate(sizes))
    return replace(style, levels=style.levels - level, precincts=precincts)


@dataclass(frozen=True)
class _Support:
    """What a component needs for a window: its samples, and coefficients along x and y."""

    area: Rect
    x: list[Spans]
    y: list[Spans]


def _supports(window: Rect, component: Component, style: Style) -> _Support:
    area = window.scaled(component.dx, component.dy)
    return _Support(
        area,
        support(area.x0, area.x1, style.levels, style.transform),
        support(area.y0, area.y1, style.levels, style.transform),
    )


def _canvas(
    full: Rect,
    window: Rect,
    components: Sequence[Component],
    styles: Sequence[Style],
    wanted: Sequence[_Support],
) -> Rect:
    """Return the image area: around everything that is needed, with every code-block whole."""
    xs, ys = [window.x0, window.x1], [window.y0, window.y1]
    for component, need in zip(components, wanted, strict=True):
        for ends, axis, step in ((xs, need.x, component.dx), (ys, need.y, component.dy)):
            ends += [(v << n) * step for n, two in enumerate(axis, 1) for s in two for v in s]
    pairs = list(zip(components, styles, strict=True))
    x = math.lcm(*{c.dx << _alignment(s, 0) for c, s in pairs})
    y = math.lcm(*{c.dy << _alignment(s, 1) for c, s in pairs})
    return Rect(
        max(full.x0, min(xs) // x * x),
        max(full.y0, min(ys) // y * y),
        min(full.x1, -(-max(xs) // x) * x),
        min(full.y1, -(-max(ys) // y) * y),
    )


def _alignment(style: Style, axis: int) -> int:
    """Return the size of the largest code-block in samples of the component, as a power of 2."""
    return max(
        block_exponents(style, r)[axis] + (style.levels - r + 1 if r else style.levels)
        for r in range(style.levels + 1)
    )


def _needed(wanted: _Support, style: Style, resolution: int) -> list[tuple[range, range]]:
    """Return the columns and rows of code-blocks that are needed, of each sub-band."""
    depth = style.levels if resolution == 0 else style.levels - resolution + 1
    if depth:
        x, y = wanted.x[depth - 1], wanted.y[depth - 1]
    else:
        area = wanted.area
        x, y = ((area.x0, area.x1),) * 2, ((area.y0, area.y1),) * 2
    cx, cy = block_exponents(style, resolution)
    return [
        (
            range(x[i][0] >> cx, ceil_shift(x[i][1], cx)),
            range(y[j][0] >> cy, ceil_shift(y[j][1], cy)),
        )
        for i, j in (((0, 0),) if resolution == 0 else ((1, 0), (0, 1), (1, 1)))
    ]


class _Writer:
    """Writes packets, resolution by resolution."""

    def __init__(self, table: BlockTable) -> None:
        self._table = table
        self._packets: list[bytes | int] = []
        self._empty = 0
        """Empty packets that are not in `_packets` yet."""
        self.ranges: list[int] = []
        """Rows of the table's ranges, in the order of the stream."""

    def add(
        self,
        *,
        area: Rect,
        style: Style,
        resolution: int,
        bands: Sequence[Band],
        needed: Sequence[tuple[range, range]],
    ) -> None:
        """Write the packets of one resolution of one component, which covers `area`."""
        shift = style.levels - resolution
        x0, x1 = ceil_shift(area.x0, shift), ceil_shift(area.x1, shift)
        y0, y1 = ceil_shift(area.y0, shift), ceil_shift(area.y1, shift)
        if x0 >= x1 or y0 >= y1:
            return
        px, py = style.precincts[resolution]
        columns, rows = range(x0 >> px, ceil_shift(x1, px)), range(y0 >> py, ceil_shift(y1, py))
        # a packet holds the code-block of each sub-band in the same column and row
        present = list(band_grids(area, style, resolution))
        kept = [
            (_common(a, b), _common(c, d)) for (a, c), (b, d) in zip(present, needed, strict=True)
        ]
        for row in rows:
            across = [_common(c, columns) if row in r else range(0) for c, r in kept]
            wanted = [c for c in across if len(c)]
            if not wanted:
                self._empty += len(columns)
                continue
            first, last = min(c.start for c in wanted), max(c.stop for c in wanted)
            self._empty += first - columns.start
            for column in range(first, last):
                # sub-bands without a code-block here take no bits in the header
                self._packet(
                    [
                        self._number(band, column, row) if column in needs else -1
                        for band, needs, (has_x, has_y) in zip(bands, across, present, strict=True)
                        if column in has_x and row in has_y
                    ]
                )
            self._empty += columns.stop - last

    def _number(self, band: Band, column: int, row: int) -> int:
        if column not in band.columns or row not in band.rows:
            return -1
        number = (
            band.base + (row - band.rows.start) * len(band.columns) + column - band.columns.start
        )
        return -1 if self._table.planes[number] == ABSENT else number

    def _packet(self, numbers: Sequence[int]) -> None:
        """Write one packet; -1 for code-blocks that are not included."""
        if all(number < 0 for number in numbers):
            self._empty += 1
            return
        self._flush()
        bits = "1" + "".join(self._included(n) if n >= 0 else "0" for n in numbers)
        self._packets.append(stuffed(bits))
        starts = self._table.starts
        for number in numbers:
            if number >= 0:
                for row in range(int(starts[number]), int(starts[number + 1])):
                    self._packets.append(len(self.ranges))
                    self.ranges.append(row)

    def _included(self, number: int) -> str:
        """Return what the header says about a code-block (T.800 B.10.4 to B.10.7)."""
        table = self._table
        if len(table.segment_starts):
            begin, end = int(table.segment_starts[number]), int(table.segment_starts[number + 1])
            parts = list(
                zip(
                    table.segment_passes[begin:end].tolist(),
                    table.segment_lengths[begin:end].tolist(),
                    strict=True,
                )
            )
        else:
            begin, end = int(table.starts[number]), int(table.starts[number + 1])
            parts = [(int(table.passes[number]), int(table.lengths[begin:end].sum()))]
        count = sum(passes for passes, _ in parts)
        size = max(3, *(n.bit_length() - passes.bit_length() + 1 for passes, n in parts))
        # both tag trees are one node: included in layer 0, then the missing bit-planes in unary
        return "".join(
            [
                "1" + "0" * int(table.planes[number]) + "1",
                passes_code(count),
                "1" * (size - 3) + "0",
                *(f"{n:0{size + passes.bit_length() - 1}b}" for passes, n in parts),
            ]
        )

    def _flush(self) -> None:
        if self._empty:
            self._packets.append(bytes(self._empty))
            self._empty = 0

    def finish(self) -> list[bytes | int]:
        self._flush()
        return self._packets


def _common(a: range, b: range) -> range:
    return range(max(a.start, b.start), min(a.stop, b.stop))


def passes_code(count: int) -> str:
    """Return the code of a number of coding passes (T.800 table B.4)."""
    if count < 6:
        return PASSES[count]
    if count < 37:
        return f"1111{count - 6:05b}"
    if count > 164:
        raise NoTableError(f"a code-block has {count} coding passes, one packet holds 164")
    return f"111111111{count - 37:07b}"


def stuffed(bits: str) -> bytes:
    """Return bits as the bytes of a packet header: after 0xFF, a byte has seven (T.800 B.10.1)."""
    out, at = bytearray(), 0
    while at < len(bits):
        width = 7 if out and out[-1] == 0xFF else 8
        out.append(int(bits[at : at + width].ljust(width, "0"), 2))
        at += width
    if out[-1] == 0xFF:
        out.append(0)
    return bytes(out)


def _in_source(
    layout: TileLayout, offsets: Int64, lengths: Int64, packets: list[bytes | int]
) -> tuple[Int64, Int64, list[bytes | int]]:
    """Turn offsets in the tile's body into offsets in the source.

    A range that crosses the end of a tile-part becomes several.
    """
    if not len(offsets):
        return offsets, lengths, packets
    owners = np.searchsorted(layout.starts, offsets, "right") - 1
    last = np.searchsorted(layout.starts, offsets + lengths - 1, "right") - 1
    if np.array_equal(owners, last):
        return offsets - layout.starts[owners] + layout.offsets[owners], lengths, packets
    found: list[tuple[int, int]] = []
    numbers: list[list[int]] = []
    stops = [*layout.starts[1:].tolist(), layout.total]
    for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
        begin, end, mine = offset, offset + length, []
        for start, stop, place in zip(
            layout.starts.tolist(), stops, layout.offsets.tolist(), strict=True
        ):
            low, high = max(begin, start), min(end, stop)
            if low < high:
                mine.append(len(found))
                found.append((low - start + place, high - low))
        numbers.append(mine)
    flat: list[bytes | int] = []
    for packet in packets:
        flat += numbers[packet] if isinstance(packet, int) else [packet]
    columns = np.array(found, np.int64)
    return columns[:, 0], columns[:, 1], flat


def _head(
    header: MainHeader, layout: TileLayout, styles: Sequence[Style], canvas: Rect, level: int
) -> bytes:
    """Return the main header of the stream; what the tile overrides is in it."""
    siz, tile = header.siz, layout.tile
    wide = "B" if len(siz.components) < 257 else "H"
    parameters = read_parameters(header, layout.markers)
    source = header.data + struct.pack(">H", SOT)
    corner = (canvas.x0, canvas.y0)
    places = (canvas.x1, canvas.y1, *corner, canvas.width, canvas.height, *corner)
    made = [b"\xff\x4f"]
    for marker, begin, end in segments(source, 2, SOT):
        if marker == SIZ:
            body = (
                source[begin : begin + 2] + struct.pack(">8I", *places) + source[begin + 34 : end]
            )
            made.append(_segment(SIZ, body))
        elif marker == CAP:
            made.append(_segment(CAP, source[begin:end]))
    general = struct.pack(">BBHB", 1, LRCP, 1, tile.cod.is_transformed)
    made.append(_segment(COD, general + style_bytes(styles[0], 0)))
    steps = [tile_steps(parameters, number, style, 0) for number, style in enumerate(styles)]
    made.append(_segment(QCD, steps[0]))
    for number, (style, step) in enumerate(zip(styles, steps, strict=True)):
        place = struct.pack(f">{wide}", number)
        if style != styles[0]:
            made.append(_segment(COC, place + b"\1" + style_bytes(style, 0)))
        if step != steps[0]:
            made.append(_segment(QCC, place + step))
        if number in parameters.rgns:
            made.append(_segment(RGN, place + parameters.rgns[number]))
    return b"".join(made)


def _segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">HH", marker, len(body) + 2) + body


def area_growth(style: Style) -> int:
    """Return by how many samples OpenJPEG's area must exceed a window to be exact inside it.

    OpenJPEG 2.5 takes a margin of 3 coefficients in every sub-band, which is too small for 9/7 from
    3 levels on.
    """
    return 0 if style.transform else max(0, (1 << style.levels >> 1) - 3)
