"""Walk the packets of a JPEG 2000 tile, to prove that its bytes are exactly its packets.

Spec: ITU-T T.800 annex B (geometry, progressions, packet headers); T.814 annex B for HTJ2K.

A decoder produces a picture from most damaged streams: it treats packets that it cannot parse as
empty, and ignores trailing bytes. But packet headers state the length of every code-block's
contribution. So walking them distinguishes a complete tile from one that was truncated or
overwritten, without decoding any samples.

What a reader needs to know:

- Each component of a tile is decomposed into resolutions; a resolution into sub-bands (LL for the
  lowest; HL, LH and HH for the others); a resolution is also partitioned into *precincts*, and each
  sub-band of a precinct into code-blocks (B.5 to B.7). All partitions are anchored at the origin of
  the reference grid, not of the tile.
- A *packet* is what one quality layer adds to one precinct: a header, then the bytes of the
  code-blocks in it (B.9). There is one for every layer and precinct, even if it is empty. Their
  order is the progression (B.12).
- A header is decoded with state from earlier packets of the same precinct (`Band`). So packets
  must be walked in order, each starting where the previous one ends.

The steps: `read_tile` collects what the tile-part headers say, `tile_precincts` computes the
geometry, `order` the sequence of packets, `walk` reads each header (`read_packet`) and skips its
body. At the end, no byte may be left.

One exception: a tile may end after a whole number of quality layers, at least one. By T.800 B.12.1
a tile has a packet for every layer that COD announces, even if it is empty; but some encoders (such
as Kakadu) leave out the last layers of a tile, and decoders (Kakadu, OpenJPEG) read the tile as if
empty packets followed. Its pixels are exactly those of a stream with fewer layers. It cannot be
confused with a tile that lost bytes, because the lengths of its tile-parts lead to the next SOT and
to EOC. A tile that ends anywhere else is refused, even between two packets.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anychunk.codestream.jpeg2000 import (
    COC,
    COD,
    EXTENSIONS,
    POC,
    PPT,
    RGN,
    SOD,
    Cod,
    MainHeader,
    Rect,
    Style,
    TilePart,
    is_shifted,
    name,
    read_coc,
    read_cod,
    segments,
)
from anychunk.codestream.packet_bits import Bits, TagTree
from anychunk.errors import FormatError, TruncatedError, UnsupportedError

# T.800 table A.19: bits of the code-block style that change how lengths are signalled
LAZY, TERMINATE_ALL, HT = 0x01, 0x04, 0x40
LRCP, RLCP, RPCL, PCRL = range(4)
MAX_PACKETS = 1 << 19
"""Tiles of more packets are left to the decoder: the walk would take seconds."""
HT_REGION = "HTJ2K with a region of interest (RGN) is not supported; supported: without RGN"
MAX_PROGRESSIONS = 32
"""Of one tile; OpenJPEG refuses more. Each may list every packet again: thousands take minutes."""
MAX_PLANES = 80
"""More than any sample has: 38 bits, guard bits, and the shift of a region of interest."""


@dataclass(slots=True)
class Band:
    """State of the code-blocks of one sub-band in one precinct, kept from packet to packet."""

    inclusion: TagTree
    """The first layer that includes each code-block (T.800 B.10.4)."""
    planes: TagTree
    """The number of missing most significant bit-planes of each code-block (T.800 B.10.5)."""
    lengths: list[int]
    """Lblock of each code-block (T.800 B.10.7); 0 if it has not been included yet."""
    passes: list[int]
    """Coding passes of each code-block so far."""


@dataclass(slots=True)
class Precinct:
    """A precinct: its position, its code-blocks, and how many of its packets have been read."""

    x: int
    y: int
    """Position on the reference grid, for progressions by position."""
    component: int
    resolution: int
    blocks: tuple[tuple[int, int], ...]
    """(Columns, rows) of code-blocks in each sub-band."""
    style: int
    """Code-block style (T.800 table A.19)."""
    layers: int = 0
    """The number of its packets that have been read."""
    bands: list[Band] | None = None
    """Created with the first packet that is not empty, dropped after the last."""


class Packet(NamedTuple):
    """The bytes of one packet, without SOP and EPH."""

    header: memoryview
    body: memoryview


@dataclass(frozen=True)
class Volume:
    """The packets that one progression covers: an entry of POC, or the whole tile."""

    progression: int
    resolutions: range
    components: range
    layers: int


@dataclass
class Tile:
    """The coding style of one tile, and the bytes of its packets."""

    cod: Cod
    styles: Sequence[Style]
    volumes: list[Volume]
    headers: bytes | None
    """Packet headers if they are stored separately from the bodies (PPT)."""
    bodies: list[memoryview] = field(default_factory=list)


def check_tile(header: MainHeader, tile: int, data: memoryview, parts: Sequence[TilePart]) -> None:
    """Raise if the tile-parts are not exactly the packets of this tile.

    Return without an error if that cannot be determined: for HTJ2K with several layers, and for
    more than `MAX_PACKETS` packets.

    Parameters:
        header: The main header.
        tile: The tile's number.
        data: Bytes that contain the tile-parts.
        parts: The tile-parts, in order.

    Raises:
        TruncatedError: Packets are missing or truncated.
        FormatError: Bytes follow the last packet, or headers break the rules.
    """
    _walk_tile(header, tile, data, parts, None)


def packets_of_tile(
    header: MainHeader, tile: int, data: memoryview, parts: Sequence[TilePart]
) -> tuple[Tile, dict[tuple[int, int], list[Precinct]], dict[tuple[int, int], Packet]] | None:
    """Return a tile, its precincts, and its packets by (id of the precinct, layer).

    None where `check_tile` cannot determine anything; raises what it raises.
    """
    packets: dict[tuple[int, int], Packet] = {}
    walked = _walk_tile(header, tile, data, parts, packets)
    return None if walked is None else (*walked, packets)


def _walk_tile(
    header: MainHeader,
    tile: int,
    data: memoryview,
    parts: Sequence[TilePart],
    kept: dict[tuple[int, int], Packet] | None,
) -> tuple[Tile, dict[tuple[int, int], list[Precinct]]] | None:
    found = read_tile(header, data, parts)
    if found is None:
        return None
    rect = header.siz.tile(tile)
    count = count_precincts(header, rect, found.styles)
    packets = found.cod.layers * count
    body = found.bodies[0] if len(found.bodies) == 1 else memoryview(b"".join(found.bodies))
    available = len(body) if found.headers is None else len(found.headers)
    # every packet of the first layer has at least one byte, which also bounds memory and time
    if count > available:
        raise TruncatedError(
            f"tile {tile} has {available} bytes of packets, expected at least one for each of "
            f"{count} precincts"
        )
    if packets > MAX_PACKETS:
        return None
    precincts = tile_precincts(header, rect, found.styles)
    walk(found, precincts, body, packets, tile, kept=kept)
    return found, precincts


def read_tile(header: MainHeader, data: memoryview, parts: Sequence[TilePart]) -> Tile | None:
    """Parse the headers of all tile-parts; return None if the packets cannot be walked."""
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
                # T.800 A.6.1: tile COC over tile COD over main COC over main COD
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
                raise UnsupportedError(
                    f"JPEG 2000 part 2 extension {name(marker)} is not supported"
                )
    cocs.update(tile_cocs)
    styles = tuple(cocs.get(i, cod.style) for i in range(count))
    is_ht = any(style.is_ht for style in styles)
    check_regions(data, parts if is_ht else ())
    if is_ht and cod.layers > 1:
        return None
    headers = b"".join(body for *_, body in sorted(packed)) if packed else None
    return Tile(cod, styles, volumes(header, cod, styles, pocs), headers, bodies)


def check_regions(data: memoryview, parts: Sequence[TilePart]) -> None:
    """Raise if the headers of HTJ2K tile-parts shift a region of interest."""
    for part in parts:
        view = data[part.offset : part.offset + part.length]
        for marker, start, stop in segments(view, 12, SOD):
            if marker == RGN and is_shifted(bytes(view[start:stop])):
                raise UnsupportedError(HT_REGION)


def volumes(
    header: MainHeader, cod: Cod, styles: Sequence[Style], pocs: Sequence[bytes]
) -> list[Volume]:
    """Return the progressions in order: those of POC, or the one of COD."""
    count = len(header.siz.components)
    resolutions = max(style.levels for style in styles) + 1
    body = b"".join(pocs) or header.poc
    if not body:
        return [Volume(cod.progression, range(resolutions), range(count), cod.layers)]
    wide = 1 if count < 257 else 2
    size = 5 + 2 * wide
    if len(body) % size:
        raise FormatError(f"POC has {len(body)} bytes, expected a multiple of {size}")
    listed = len(body) // size
    if listed > MAX_PROGRESSIONS:
        raise FormatError(f"POC has {listed} progressions, and at most {MAX_PROGRESSIONS} are read")
    found = []
    for i in range(0, len(body), size):
        entry = body[i : i + size]
        first = int.from_bytes(entry[1 : 1 + wide], "big")
        layers = int.from_bytes(entry[1 + wide : 3 + wide], "big")
        # T.800 A.6.6: 0 means 256, or 16384 with two bytes: all components
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
    """Return value / 2**shift, rounded up."""
    # >> rounds down for negative numbers too, which `band_spans` needs near the origin
    return -(-value >> shift)


def tile_precincts(
    header: MainHeader, rect: Rect, styles: Sequence[Style]
) -> dict[tuple[int, int], list[Precinct]]:
    """Return the precincts of every (component, resolution), in raster order."""
    found: dict[tuple[int, int], list[Precinct]] = {}
    made: dict[tuple[object, Style], int] = {}
    for number, (component, style) in enumerate(zip(header.siz.components, styles, strict=True)):
        key = ((component.dx, component.dy), style)
        # components are mostly alike: compute the geometry once, copy it for the others
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
    """Return the number of precincts of a tile, without listing them: there may be far too many."""
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
    """Return the columns and rows of precincts, numbered from the origin of the grid (T.800 B-16).

    Parameters:
        area: The tile-component, in its own samples.
        style: Its coding style.
        resolution: 0 for the lowest.
    """
    shift = style.levels - resolution
    x0, x1 = ceil_shift(area.x0, shift), ceil_shift(area.x1, shift)
    y0, y1 = ceil_shift(area.y0, shift), ceil_shift(area.y1, shift)
    if x0 >= x1 or y0 >= y1:
        return range(0), range(0)
    # T.800 A.6.1: without sizes, precincts are the largest possible, 2**15
    ppx, ppy = style.precincts[resolution] if style.precincts else (15, 15)
    return range(x0 >> ppx, ceil_shift(x1, ppx)), range(y0 >> ppy, ceil_shift(y1, ppy))


def resolution_precincts(
    area: Rect, style: Style, resolution: int, component: int, place: tuple[Rect, int, int]
) -> list[Precinct]:
    """Partition one resolution of a tile-component into precincts (T.800 B.6, B.7).

    Parameters:
        area: The tile-component, in its own samples.
        style: Its coding style.
        resolution: 0 for the lowest.
        component: Its number.
        place: The tile on the reference grid, and the subsampling of the component.
    """
    shift = style.levels - resolution
    ppx, ppy = style.precincts[resolution] if style.precincts else (15, 15)
    columns, rows = precinct_grid(area, style, resolution)
    is_lowest = resolution == 0
    # is the band high-pass (along x, along y)? HL, LH, HH is the order in packets (T.800 B.9)
    bands = ((0, 0),) if is_lowest else ((1, 0), (0, 1), (1, 1))
    x_spans = band_spans(area.x0, area.x1, shift, is_lowest=is_lowest)
    y_spans = band_spans(area.y0, area.y1, shift, is_lowest=is_lowest)
    # precinct sizes count samples of the resolution; its sub-bands have half as many per axis
    x_exponent, y_exponent = (ppx, ppy) if is_lowest else (ppx - 1, ppy - 1)
    across = [count_blocks(span, columns, x_exponent, style.xcb) for span in x_spans]
    down = [count_blocks(span, rows, y_exponent, style.ycb) for span in y_spans]
    rect, dx, dy = place
    found = []
    for j, row in enumerate(rows):
        # T.800 B.12.1.3: a precinct that begins outside the tile is met at the edge of the tile
        y = max(rect.y0, (row << ppy + shift) * dy)
        for i, column in enumerate(columns):
            x = max(rect.x0, (column << ppx + shift) * dx)
            blocks = tuple((across[high_x][i], down[high_y][j]) for high_x, high_y in bands)
            found.append(Precinct(x, y, component, resolution, blocks, style.block_style))
    return found


def band_spans(
    begin: int, end: int, shift: int, *, is_lowest: bool
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (begin, end) along one axis of the low-pass and high-pass sub-bands (T.800 B-15).

    Low-pass coefficients are at even positions, high-pass ones at odd positions, of the grid of
    the resolution. That is why a tile must not be moved: the parity of its edges would change.
    """
    if is_lowest:
        return (span := (ceil_shift(begin, shift), ceil_shift(end, shift))), span
    # T.800 B-15: high-pass coefficient i is at position 2 * i + 1, hence half a step less
    half = 1 << shift
    return (
        (ceil_shift(begin, shift + 1), ceil_shift(end, shift + 1)),
        (ceil_shift(begin - half, shift + 1), ceil_shift(end - half, shift + 1)),
    )


def count_blocks(span: tuple[int, int], precincts: range, exponent: int, block: int) -> list[int]:
    """Return how many code-blocks each precinct has along one axis of a sub-band (T.800 B.7).

    Parameters:
        span: Begin and end of the sub-band.
        precincts: Numbers of the precincts.
        exponent: Size of a precinct in the sub-band, as a power of 2.
        block: Nominal size of a code-block, as a power of 2; precincts limit it (B-17, B-18).
    """
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
    """Yield (layer, precinct) of every packet of a progression (T.800 B.12.1).

    The names list the loops from the outermost: LRCP is layer, resolution, component, position.
    `groups` implements the loops outside of position and layer.
    """
    layers = range(volume.layers)
    for group in groups(volume, precincts):
        if volume.progression in (LRCP, RLCP):
            yield from ((layer, precinct) for layer in layers for precinct in group)
        else:
            # the sort is stable: precincts at one position stay in the order of the inner loops
            group.sort(key=lambda precinct: (precinct.y, precinct.x))
            yield from ((layer, precinct) for precinct in group for layer in layers)


def groups(
    volume: Volume, precincts: dict[tuple[int, int], list[Precinct]]
) -> list[list[Precinct]]:
    """Return the precincts of each step of the progression's outermost loop.

    If layer or position is the outermost loop, that is a single group.
    """
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


def is_whole_layers(precincts: dict[tuple[int, int], list[Precinct]]) -> bool:
    """Return whether all precincts have the same number of packets, at least one."""
    counts = {precinct.layers for group in precincts.values() for precinct in group}
    return len(counts) == 1 and 0 not in counts


class _Bytes:
    """Bytes of packets, and the position up to which they were read."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.position = data, 0

    def skip(self, marker: bytes, length: int) -> None:
        """Skip an optional marker segment if it is present (SOP: T.800 A.8.1)."""
        if self.data[self.position : self.position + 2].tobytes() == marker:
            self.position += length

    def require(self, marker: bytes) -> None:
        """Skip a marker that must be there (EPH: T.800 table A.13)."""
        if self.data[self.position : self.position + 2].tobytes() != marker:
            raise TruncatedError(MISSING_EPH)
        self.position += 2


MISSING_EPH = "no EPH marker (ff92) behind a packet header, expected one because COD announces it"


def walk(
    tile: Tile,
    precincts: dict[tuple[int, int], list[Precinct]],
    data: memoryview,
    packets: int,
    number: int,
    *,
    kept: dict[tuple[int, int], Packet] | None = None,
) -> None:
    """Read every packet header, and skip the body that it announces.

    Parameters:
        tile: The tile.
        precincts: By (component, resolution).
        data: Bytes of the packets; only of their bodies if headers are stored separately.
        packets: The number of packets.
        number: The tile's number, for messages.
        kept: Filled with the packets, by (id of the precinct, layer), if it is given.
    """
    body = _Bytes(data)
    headers = body if tile.headers is None else _Bytes(memoryview(tile.headers))
    # T.800 B.12.2: progressions of POC may overlap; a packet comes with the first of them
    planned = (
        (layer, precinct)
        for volume in tile.volumes
        for layer, precinct in order(volume, precincts)
        if layer == precinct.layers
    )
    total = len(headers.data)
    for done, (layer, precinct) in enumerate(planned):
        if headers.position == total and body.position == len(data) and is_whole_layers(precincts):
            return
        try:
            if tile.cod.has_sop:
                body.skip(b"\xff\x91", 6)
            start = headers.position
            end, length = read_packet(headers.data, start, precinct, layer)
            headers.position = end
            if tile.cod.has_eph:
                headers.require(b"\xff\x92")
        except TruncatedError as e:
            raise TruncatedError(f"tile {number}, packet {done} of {packets}: {e}") from e
        left = len(data) - body.position
        if length > left:
            raise TruncatedError(
                f"tile {number}, packet {done} of {packets}: {left} bytes left, expected {length}"
            )
        if kept is not None:
            kept[id(precinct), layer] = Packet(
                headers.data[start:end], data[body.position : body.position + length]
            )
        body.position += length
        precinct.layers += 1
        if precinct.layers == tile.cod.layers:
            precinct.bands = None  # this was its last packet
    # some encoders pad with zeros, which would be empty packets
    if any(data[body.position :]):
        raise FormatError(
            f"tile {number}: {len(data) - body.position} bytes follow its {packets} packets"
        )


def read_packet(data: memoryview, position: int, precinct: Precinct, layer: int) -> tuple[int, int]:
    """Read one packet header; return where it ends, and the length of the packet's body.

    For every code-block, in order of sub-bands and then in raster order (T.800 B.10.8), the header
    says whether it is included, and if so: the number of missing bit-planes (at the first
    inclusion only), the number of coding passes, the increase of Lblock, and the lengths of its
    codeword segments.
    """
    if position >= len(data):
        raise TruncatedError(f"no packet header at byte {position} of {len(data)}")
    if data[position] < 0x80:
        return position + 1, 0  # T.800 B.10.3: a first bit of 0 is an empty packet
    bits = Bits(data, position)
    bits.read(1)
    if precinct.bands is None:
        precinct.bands = [
            Band(TagTree(w, h), TagTree(w, h), [0] * (w * h), [0] * (w * h))
            for w, h in precinct.blocks
            if w and h  # T.800 B.9: a sub-band without code-blocks takes no bits in the header
        ]
    total = 0
    for band in precinct.bands:
        lengths, passes = band.lengths, band.passes
        for block in range(len(lengths)):
            if not is_included(band, block, layer, bits):
                continue
            count = read_passes(bits)
            # T.800 B.10.7.1: Lblock grows by the number of 1 bits
            while bits.read(1):
                lengths[block] += 1
            total += read_length(bits, precinct.style, lengths[block], passes[block], count)
            passes[block] += count
    return bits.finish(), total


def is_included(band: Band, block: int, layer: int, bits: Bits) -> bool:
    """Return whether a code-block contributes to this packet (T.800 B.10.4, B.10.5)."""
    if band.lengths[block]:
        return bool(bits.read(1))  # included before: one bit says whether it is again
    if not band.inclusion.reaches(block, layer + 1, bits):
        return False
    # The number itself is not needed, but its bits must be read: ask with a rising threshold until
    # the answer is yes
    planes = 1
    while not band.planes.reaches(block, planes, bits):
        planes += 1
        if planes > MAX_PLANES:
            raise TruncatedError(f"a code-block has more than {MAX_PLANES} missing bit-planes")
    band.lengths[block] = 3  # T.800 B.10.7.1: the initial value of Lblock
    return True


def read_passes(bits: Bits) -> int:
    """Read the number of coding passes (T.800 table B.4)."""
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
    """Read the lengths of the codeword segments of one contribution; return their sum.

    A length has Lblock + floor(log2(passes in the segment)) bits (T.800 B.10.7). How many segments
    there are depends on the code-block style.

    Parameters:
        bits: Where to read.
        style: Code-block style.
        size: Lblock.
        done: Coding passes of the code-block in earlier packets.
        count: Coding passes in this packet.
    """
    if style & HT:
        # T.814 annex B: placeholder passes, in threes, precede the cleanup pass. One segment holds
        # the cleanup pass, a second one the refinement passes, if any
        skipped = (count - 1) // 3 * 3
        total = bits.read(size + (skipped + 1).bit_length() - 1)
        count -= skipped
        # the refinement segment has one or two passes, so its length has 0 or 1 further bits
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
    """Return how many more passes the codeword segment that is open after `done` passes can take.

    T.800 table D.9: with selective bypass (`LAZY`), the arithmetic coder is terminated after the
    first 10 passes; then two raw passes and one arithmetic pass alternate.
    """
    if style & TERMINATE_ALL:
        return 1
    if done < 10:
        return 10 - done
    phase = (done - 10) % 3
    return 2 - phase if phase < 2 else 1
