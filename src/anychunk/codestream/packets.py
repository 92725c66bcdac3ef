"""Walk the packets of one tile, to know that its bytes are exactly the packets that it must have.

Spec: ITU-T T.800 annex B (geometry, progressions, packet headers), T.814 annex B for HTJ2K.

A decoder shows a picture for most damaged streams: what it cannot parse it takes for empty, and
what is left over it does not look at. Packet headers say how long every code-block's contribution
is, so a walk over them tells a whole tile from one that was cut or overwritten, without decoding.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from anychunk.codestream.jpeg2000 import (
    COC,
    COD,
    EXTENSIONS,
    POC,
    PPT,
    SOD,
    Cod,
    MainHeader,
    Rect,
    Style,
    TilePart,
    name,
    read_coc,
    read_cod,
    segments,
)
from anychunk.codestream.packet_bits import Bits, TagTree
from anychunk.errors import FormatError, TruncatedError, UnsupportedError

LAZY, TERMINATE_ALL, HT = 0x01, 0x04, 0x40
LRCP, RLCP, RPCL, PCRL = range(4)
MAX_PACKETS = 1 << 19
"""Tiles of more are left to the decoder: the walk would take seconds."""
MAX_PLANES = 80
"""More missing bit-planes than any depth has: 38 bits, guard bits and a region of interest."""


@dataclass(slots=True)
class Band:
    """The code-blocks of one sub-band in one precinct."""

    inclusion: TagTree
    planes: TagTree
    lengths: list[int]
    """Lblock of each code-block; 0: not yet included."""
    passes: list[int]


@dataclass(slots=True)
class Precinct:
    x: int
    y: int
    """Where it stands on the reference grid, for the orders by position."""
    component: int
    resolution: int
    blocks: tuple[tuple[int, int], ...]
    """Code-blocks across and down in each sub-band."""
    style: int
    layers: int = 0
    """How many of its packets were met."""
    bands: list[Band] | None = None


@dataclass(frozen=True)
class Volume:
    """What one progression covers: POC, or the whole tile."""

    progression: int
    resolutions: range
    components: range
    layers: int


@dataclass
class Tile:
    """Coding style of one tile, and the bytes of its packets."""

    cod: Cod
    styles: Sequence[Style]
    volumes: list[Volume]
    headers: bytes | None
    """Packet headers where they stand apart (PPT)."""
    bodies: list[memoryview] = field(default_factory=list)


def check_tile(header: MainHeader, tile: int, data: memoryview, parts: Sequence[TilePart]) -> None:
    """Raise where the tile-parts are not exactly the packets of this tile."""
    found = read_tile(header, data, parts)
    if found is None:
        return
    rect = header.siz.tile(tile)
    packets = found.cod.layers * count_precincts(header, rect, found.styles)
    body = found.bodies[0] if len(found.bodies) == 1 else memoryview(b"".join(found.bodies))
    available = len(body) if found.headers is None else len(found.headers)
    # every packet has at least a byte; this also bounds the walk
    if packets > available:
        raise TruncatedError(f"tile {tile} has {packets} packets in {available} bytes")
    if packets > MAX_PACKETS:
        return
    precincts = tile_precincts(header, rect, found.styles)
    walk(found, precincts, body, packets, tile)


def read_tile(header: MainHeader, data: memoryview, parts: Sequence[TilePart]) -> Tile | None:
    """Parse the headers of all tile-parts; None where the packets cannot be walked."""
    cod, cocs, tile_cocs = header.cod, dict(header.cocs), dict[int, Style]()
    pocs: list[bytes] = []
    packed: list[tuple[int, int, bytes]] = []
    bodies = []
    count = len(header.siz.components)
    for part in parts:
        end = part.offset + part.length
        view = data[part.offset : end]
        for marker, start, stop in segments(view, 12, SOD):
            body = bytes(view[start:stop])
            if marker == COD:
                cod, cocs = read_cod(body), {}
            elif marker == COC:
                component, style = read_coc(body, count)
                tile_cocs[component] = style
            elif marker == POC:
                pocs.append(body)
            elif marker == PPT:
                packed.append((part.number, body[0] if body else 0, body[1:]))
            elif marker == SOD:
                bodies.append(view[start + 2 :])
            elif marker in EXTENSIONS:
                raise UnsupportedError(f"JPEG 2000 part 2 extension {name(marker)} is not decoded")
    cocs.update(tile_cocs)
    styles = tuple(cocs.get(i, cod.style) for i in range(count))
    if any(style.is_ht and cod.layers > 1 for style in styles):
        return None
    headers = b"".join(body for *_, body in sorted(packed)) if packed else None
    return Tile(cod, styles, volumes(header, cod, styles, pocs), headers, bodies)


def volumes(
    header: MainHeader, cod: Cod, styles: Sequence[Style], pocs: Sequence[bytes]
) -> list[Volume]:
    """Give the progressions in their order: those of POC, or the one of COD."""
    count = len(header.siz.components)
    resolutions = max(style.levels for style in styles) + 1
    body = b"".join(pocs) or header.poc
    if not body:
        return [Volume(cod.progression, range(resolutions), range(count), cod.layers)]
    wide = 1 if count < 257 else 2
    size = 5 + 2 * wide
    if len(body) % size:
        raise FormatError(f"POC has {len(body)} bytes, expected a multiple of {size}")
    found = []
    for i in range(0, len(body), size):
        entry = body[i : i + size]
        first = int.from_bytes(entry[1 : 1 + wide], "big")
        layers = int.from_bytes(entry[1 + wide : 3 + wide], "big")
        # T.800 A.6.6: 0 stands for all components
        last = int.from_bytes(entry[4 + wide : 4 + 2 * wide], "big") or count
        if entry[-1] > 4:
            raise FormatError(f"POC: progression {entry[-1]}, expected 0 to 4")
        found.append(
            Volume(
                entry[-1],
                range(entry[0], min(entry[3 + wide], resolutions)),
                range(first, min(last, count)),
                min(layers, cod.layers),
            )
        )
    return found


def ceil_shift(value: int, shift: int) -> int:
    return -(-value >> shift)


def tile_precincts(
    header: MainHeader, rect: Rect, styles: Sequence[Style]
) -> dict[tuple[int, int], list[Precinct]]:
    """List the precincts of every component and resolution, in raster order."""
    found: dict[tuple[int, int], list[Precinct]] = {}
    made: dict[tuple[object, Style], int] = {}
    for number, (component, style) in enumerate(zip(header.siz.components, styles, strict=True)):
        key = ((component.dx, component.dy), style)
        twin = made.setdefault(key, number)
        for resolution in range(style.levels + 1):
            if twin != number:
                found[number, resolution] = [
                    Precinct(p.x, p.y, number, resolution, p.blocks, p.style)
                    for p in found[twin, resolution]
                ]
            else:
                area = rect.scaled(component.dx, component.dy)
                found[number, resolution] = resolution_precincts(
                    area, style, resolution, number, (rect, component.dx, component.dy)
                )
    return found


def count_precincts(header: MainHeader, rect: Rect, styles: Sequence[Style]) -> int:
    counts: dict[tuple[int, int, Style], int] = {}
    total = 0
    for component, style in zip(header.siz.components, styles, strict=True):
        key = (component.dx, component.dy, style)
        if key not in counts:
            area = rect.scaled(component.dx, component.dy)
            grids = (precinct_grid(area, style, r) for r in range(style.levels + 1))
            counts[key] = sum(len(columns) * len(rows) for columns, rows in grids)
        total += counts[key]
    return total


def precinct_grid(area: Rect, style: Style, resolution: int) -> tuple[range, range]:
    """Give the columns and rows of precincts, numbered from the canvas' origin (T.800 B-16)."""
    shift = style.levels - resolution
    x0, x1 = ceil_shift(area.x0, shift), ceil_shift(area.x1, shift)
    y0, y1 = ceil_shift(area.y0, shift), ceil_shift(area.y1, shift)
    if x0 >= x1 or y0 >= y1:
        return range(0), range(0)
    ppx, ppy = style.precincts[resolution] if style.precincts else (15, 15)
    return range(x0 >> ppx, ceil_shift(x1, ppx)), range(y0 >> ppy, ceil_shift(y1, ppy))


def resolution_precincts(
    area: Rect, style: Style, resolution: int, component: int, place: tuple[Rect, int, int]
) -> list[Precinct]:
    """Cut one resolution of a tile-component into precincts (T.800 B.6, B.7)."""
    shift = style.levels - resolution
    ppx, ppy = style.precincts[resolution] if style.precincts else (15, 15)
    columns, rows = precinct_grid(area, style, resolution)
    is_lowest = resolution == 0
    bands = ((0, 0),) if is_lowest else ((1, 0), (0, 1), (1, 1))
    x_spans = band_spans(area.x0, area.x1, shift, is_lowest=is_lowest)
    y_spans = band_spans(area.y0, area.y1, shift, is_lowest=is_lowest)
    x_exponent, y_exponent = (ppx, ppy) if is_lowest else (ppx - 1, ppy - 1)
    across = [count_blocks(span, columns, x_exponent, style.xcb) for span in x_spans]
    down = [count_blocks(span, rows, y_exponent, style.ycb) for span in y_spans]
    rect, dx, dy = place
    found = []
    for j, row in enumerate(rows):
        y = max(rect.y0, (row << ppy + shift) * dy)
        for i, column in enumerate(columns):
            x = max(rect.x0, (column << ppx + shift) * dx)
            blocks = tuple((across[odd_x][i], down[odd_y][j]) for odd_x, odd_y in bands)
            found.append(Precinct(x, y, component, resolution, blocks, style.block_style))
    return found


def band_spans(
    begin: int, end: int, shift: int, *, is_lowest: bool
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Give begin and end of the low and the high sub-bands along one axis (T.800 B-15)."""
    if is_lowest:
        return (span := (ceil_shift(begin, shift), ceil_shift(end, shift))), span
    half = 1 << shift
    return (
        (ceil_shift(begin, shift + 1), ceil_shift(end, shift + 1)),
        (ceil_shift(begin - half, shift + 1), ceil_shift(end - half, shift + 1)),
    )


def count_blocks(span: tuple[int, int], precincts: range, exponent: int, block: int) -> list[int]:
    """How many code-blocks each precinct has along one axis of a sub-band (T.800 B.7)."""
    low, high = span
    block = min(block, exponent)
    counts = []
    for number in precincts:
        first = max(low, number << exponent)
        last = min(high, number + 1 << exponent)
        counts.append(ceil_shift(last, block) - (first >> block) if last > first else 0)
    return counts


def order(
    volume: Volume, precincts: dict[tuple[int, int], list[Precinct]]
) -> Iterator[tuple[int, Precinct]]:
    """Yield (layer, precinct) of every packet of a progression (T.800 B.12.1)."""
    layers = range(volume.layers)
    for group in groups(volume, precincts):
        if volume.progression in (LRCP, RLCP):
            yield from ((layer, precinct) for layer in layers for precinct in group)
        else:
            # stable: what stands at one place stays in the order in which it was listed
            group.sort(key=lambda precinct: (precinct.y, precinct.x))
            yield from ((layer, precinct) for precinct in group for layer in layers)


def groups(
    volume: Volume, precincts: dict[tuple[int, int], list[Precinct]]
) -> list[list[Precinct]]:
    """Give the precincts of each step of a progression's outermost loop."""
    resolutions, components = volume.resolutions, volume.components

    def listed(keys: Iterable[tuple[int, int]]) -> list[Precinct]:
        return [precinct for key in keys for precinct in precincts.get(key, ())]

    if volume.progression == LRCP:
        return [listed((c, r) for r in resolutions for c in components)]
    if volume.progression in (RLCP, RPCL):
        return [listed((c, r) for c in components) for r in resolutions]
    if volume.progression == PCRL:
        return [listed((c, r) for c in components for r in resolutions)]
    return [listed((c, r) for r in resolutions) for c in components]


class _Bytes:
    """Bytes that packets are read from, and how far."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.position = data, 0

    def skip(self, marker: bytes, length: int) -> None:
        """Step over a marker segment where it stands."""
        if self.data[self.position : self.position + 2].tobytes() == marker:
            self.position += length


def walk(
    tile: Tile,
    precincts: dict[tuple[int, int], list[Precinct]],
    data: memoryview,
    packets: int,
    number: int,
) -> None:
    """Read every packet header, and step over what it announces."""
    body = _Bytes(data)
    headers = body if tile.headers is None else _Bytes(memoryview(tile.headers))
    planned = (packet for volume in tile.volumes for packet in order(volume, precincts))
    met = 0
    for layer, precinct in planned:
        if layer != precinct.layers:
            continue  # an earlier progression had it
        try:
            if tile.cod.has_sop:
                body.skip(b"\xff\x91", 6)
            headers.position, length = read_packet(headers.data, headers.position, precinct, layer)
            if tile.cod.has_eph:
                headers.skip(b"\xff\x92", 2)
        except TruncatedError as e:
            raise TruncatedError(f"tile {number}, packet {met} of {packets}: {e}") from e
        left = len(data) - body.position
        if length > left:
            raise TruncatedError(
                f"tile {number}, packet {met} of {packets} has {length} bytes, {left} are left"
            )
        body.position += length
        precinct.layers += 1
        met += 1
        if precinct.layers == tile.cod.layers:
            precinct.bands = None  # no packet will ask again
    if any(data[body.position :]):
        raise FormatError(
            f"tile {number}: {len(data) - body.position} bytes follow its {packets} packets"
        )


def read_packet(data: memoryview, position: int, precinct: Precinct, layer: int) -> tuple[int, int]:
    """Read one packet header; give where it ends, and how long the packet's body is."""
    if position >= len(data):
        raise TruncatedError("it is not there")
    if data[position] < 0x80:
        return position + 1, 0  # an empty packet: one bit, filled up to a byte
    bits = Bits(data, position)
    bits.read(1)
    if precinct.bands is None:
        precinct.bands = [
            Band(TagTree(w, h), TagTree(w, h), [0] * (w * h), [0] * (w * h))
            for w, h in precinct.blocks
            if w and h
        ]
    total = 0
    for band in precinct.bands:
        lengths, passes = band.lengths, band.passes
        for block in range(len(lengths)):
            if not is_included(band, block, layer, bits):
                continue
            count = read_passes(bits)
            while bits.read(1):
                lengths[block] += 1
            total += read_length(bits, precinct.style, lengths[block], passes[block], count)
            passes[block] += count
    return bits.finish(), total


def is_included(band: Band, block: int, layer: int, bits: Bits) -> bool:
    """Whether a code-block contributes to this packet (T.800 B.10.4, B.10.5)."""
    if band.lengths[block]:
        return bool(bits.read(1))
    if not band.inclusion.reaches(block, layer + 1, bits):
        return False
    planes = 1
    while not band.planes.reaches(block, planes, bits):
        planes += 1
        if planes > MAX_PLANES:
            raise TruncatedError(f"a code-block lacks more than {MAX_PLANES} bit-planes")
    band.lengths[block] = 3
    return True


def read_passes(bits: Bits) -> int:
    """T.800 table B.4."""
    if not bits.read(1):
        return 1
    if not bits.read(1):
        return 2
    value = bits.read(2)
    if value < 3:
        return 3 + value
    value = bits.read(5)
    if value < 31:
        return 6 + value
    return 37 + bits.read(7)


def read_length(bits: Bits, style: int, size: int, done: int, count: int) -> int:
    """Read the lengths of the codeword segments of one contribution (T.800 B.10.7)."""
    if style & HT:
        # T.814 B: placeholder passes come in threes before the cleanup pass
        skipped = (count - 1) // 3 * 3
        total = bits.read(size + (skipped + 1).bit_length() - 1)
        count -= skipped
        return total + bits.read(size + (count > 2)) if count > 1 else total
    if not style & (LAZY | TERMINATE_ALL):
        return bits.read(size + count.bit_length() - 1)
    total = 0
    while count > 0:
        take = min(count, segment_room(style, done))
        total += bits.read(size + take.bit_length() - 1)
        done += take
        count -= take
    return total


def segment_room(style: int, done: int) -> int:
    """How many passes still fit the codeword segment that is open after `done` passes."""
    if style & TERMINATE_ALL:
        return 1
    if done < 10:
        return 10 - done
    phase = (done - 10) % 3
    return 2 - phase if phase < 2 else 1
