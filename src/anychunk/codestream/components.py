"""Split a JPEG 2000 tile into codestreams of one component each, at any resolution level.

Spec: ITU-T T.800 annex A (markers), annex B (geometry, packets), annex E (quantisation).

A decoder that returns only images of one depth and sampling can decode every tile this way, because
packets of different components are independent. Nothing is decoded here: packets are copied.

What changes, and why the samples do not:

- The component's own grid becomes the reference grid. Sub-bands, precincts and code-blocks are
  anchored at the origin of the component's grid (B.5 to B.7), so they stay as they are.
- A lower resolution is a stream with fewer decomposition levels: its packets are those of the
  lower resolutions, its image area is divided and rounded up as in B-15, and its quantisation steps
  are the first ones, because they are listed from the lowest sub-band on (A.6.4). Derived steps
  depend only on the distance from the lowest sub-band (E-5).
- Three components with a colour transform stay together, because the transform mixes them.
- Packets come in the order layer, resolution, component, position (LRCP), without SOP and EPH.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from anychunk.codestream.jpeg2000 import (
    CAP,
    COC,
    COD,
    QCC,
    QCD,
    RGN,
    SIZ,
    SOD,
    SOT,
    SOT_BYTES,
    MainHeader,
    Rect,
    Style,
    TilePart,
    segments,
)
from anychunk.codestream.packets import LRCP, Packet, Precinct, Tile, Volume, order, packets_of_tile
from anychunk.errors import FormatError, UnsupportedError

TRANSFORMED = 3
"""The number of components that the colour transform mixes (T.800 annex G)."""


@dataclass
class Parameters:
    """Quantisation and regions of interest of one tile, as the bytes of their segments."""

    qcd: bytes = b""
    qccs: dict[int, bytes] = field(default_factory=dict)
    rgns: dict[int, bytes] = field(default_factory=dict)


def component_streams(
    header: MainHeader, tile: int, data: memoryview, parts: Sequence[TilePart], level: int
) -> Iterator[tuple[range, bytes]]:
    """Yield the components of a tile in order: their numbers, and a codestream of them alone.

    A stream has one component, or three of the same depth and size. Components without samples at
    this level are omitted.

    Parameters:
        header: The main header.
        tile: The tile's number.
        data: Bytes that contain the tile-parts.
        parts: The tile-parts, in order.
        level: The level that the streams have as their full resolution.

    Raises:
        FormatError: The tile-parts are not exactly the packets of the tile.
        UnsupportedError: The packets cannot be told apart.
    """
    walked = packets_of_tile(header, tile, data, parts)
    if walked is None:
        raise UnsupportedError(
            "packets cannot be assigned to components in HTJ2K with several layers, or if there "
            "are too many"
        )
    found, precincts, packets = walked
    parameters = _parameters(header, data, parts)
    rect = header.siz.tile(tile)
    for group in _groups(header, found):
        first = header.siz.components[group.start]
        area = rect.scaled(first.dx << level, first.dy << level)
        if area.width > 0 and area.height > 0:
            head = _head(header, found, parameters, group=group, area=area, level=level)
            body = b"".join(_selected(found, precincts, packets, group, level))
            yield group, head + _tile_part(body) + b"\xff\xd9"


def _groups(header: MainHeader, tile: Tile) -> list[range]:
    """Return the components that must stay together."""
    count = len(header.siz.components)
    if not tile.cod.is_transformed:
        return [range(i, i + 1) for i in range(count)]
    mixed = header.siz.components[:TRANSFORMED]
    if len(mixed) < TRANSFORMED or len(set(mixed)) > 1:
        # T.800 G.2.1, G.3.1
        raise FormatError(
            f"a colour transform of components {mixed}, expected {TRANSFORMED} of the same depth "
            "and sampling"
        )
    return [range(TRANSFORMED), *(range(i, i + 1) for i in range(TRANSFORMED, count))]


def _parameters(header: MainHeader, data: memoryview, parts: Sequence[TilePart]) -> Parameters:
    """Return what applies to the tile, from the headers of its tile-parts."""
    views = [data[part.offset : part.offset + part.length] for part in parts]
    return read_parameters(
        header,
        b"".join(
            view[start - 4 : stop]
            for view in views
            for marker, start, stop in segments(view, SOT_BYTES, SOD)
            if marker in (QCD, QCC, RGN)
        ),
    )


def read_parameters(header: MainHeader, markers: bytes) -> Parameters:
    """Return what applies to a tile: markers of its tile-parts override the main header."""
    wide = 1 if len(header.siz.components) < 257 else 2
    main = _read(header.data + struct.pack(">H", SOT), 2, SOT, wide)
    own = _read(markers + struct.pack(">H", SOT), 0, SOT, wide)
    # T.800 A.6.5: tile QCC over tile QCD over main QCC over main QCD
    qccs = own.qccs if own.qcd else main.qccs | own.qccs
    return Parameters(own.qcd or main.qcd, qccs, main.rgns | own.rgns)


def _read(data: bytes | memoryview, start: int, stop: int, wide: int) -> Parameters:
    found = Parameters()
    for marker, begin, end in segments(data, start, stop):
        body = bytes(data[begin:end])
        component = int.from_bytes(body[:wide], "big")
        if marker == QCD:
            found.qcd = body
        elif marker == QCC:
            found.qccs[component] = body[wide:]
        elif marker == RGN:
            found.rgns[component] = body[wide:]
    return found


def _head(
    header: MainHeader, tile: Tile, parameters: Parameters, *, group: range, area: Rect, level: int
) -> bytes:
    """Return the main header of a stream of the components `group`, which cover `area`."""
    siz, first = header.siz, tile.styles[group.start]
    components = b"".join(
        struct.pack(">3B", c.depth - 1 | c.is_signed << 7, 1, 1)
        for c in siz.components[group.start : group.stop]
    )
    # one tile, from the origin to the corner of the image
    places = (area.x1, area.y1, area.x0, area.y0, area.x1, area.y1, 0, 0)
    made = [
        b"\xff\x4f",
        _segment(SIZ, struct.pack(">H8IH", siz.capabilities, *places, len(group)) + components),
    ]
    if CAP in header.markers:
        source = header.data + struct.pack(">H", SOT)
        made += [
            _segment(CAP, source[begin:end])
            for marker, begin, end in segments(source, 2, SOT)
            if marker == CAP
        ]
    is_mixed = len(group) == TRANSFORMED
    general = struct.pack(">BBHB", bool(first.precincts), LRCP, tile.cod.layers, is_mixed)
    made.append(_segment(COD, general + style_bytes(first, level)))
    made.append(_segment(QCD, tile_steps(parameters, group.start, first, level)))
    for place, number in enumerate(group):
        style = tile.styles[number]
        if place:
            coc = struct.pack(">BB", place, bool(style.precincts)) + style_bytes(style, level)
            made.append(_segment(COC, coc))
            steps = tile_steps(parameters, number, style, level)
            made.append(_segment(QCC, bytes([place]) + steps))
        if number in parameters.rgns:
            made.append(_segment(RGN, bytes([place]) + parameters.rgns[number]))
    return b"".join(made)


def _segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">HH", marker, len(body) + 2) + body


def style_bytes(style: Style, level: int) -> bytes:
    """Return SPcod of a component without its `level` highest resolutions (T.800 table A.15)."""
    levels = _levels(style, level)
    fields = (levels, style.xcb - 2, style.ycb - 2, style.block_style, style.transform)
    return bytes([*fields, *(x | y << 4 for x, y in style.precincts[: levels + 1])])


def _levels(style: Style, level: int) -> int:
    if level > style.levels:
        raise FormatError(
            f"a component has {style.levels} decomposition levels, expected at least {level}"
        )
    return style.levels - level


def tile_steps(parameters: Parameters, component: int, style: Style, level: int) -> bytes:
    """Return Sqcd and SPqcd of the sub-bands that are left (T.800 tables A.27 to A.30)."""
    body = parameters.qccs.get(component, parameters.qcd)
    bands = 1 + 3 * _levels(style, level)
    kind = body[0] & 31 if body else 0
    # 0: no quantisation, one byte per sub-band; 1: derived, one value; 2: two bytes per sub-band
    kept = {0: bands, 1: 2, 2: 2 * bands}.get(kind)
    if kept is None or len(body) < 1 + kept:
        raise FormatError(
            f"quantisation style {kind} in {len(body)} bytes, expected style 0 to 2 for {bands} "
            "sub-bands"
        )
    return body[: 1 + kept]


def _selected(
    tile: Tile,
    precincts: dict[tuple[int, int], list[Precinct]],
    packets: dict[tuple[int, int], Packet],
    group: range,
    level: int,
) -> Iterator[bytes | memoryview]:
    """Yield the packets of some components, up to the resolution that `level` leaves, in LRCP."""
    kept = {
        (c, r): precincts[c, r] for c in group for r in range(_levels(tile.styles[c], level) + 1)
    }
    resolutions = max(r for _, r in kept) + 1
    volume = Volume(LRCP, range(resolutions), group, tile.cod.layers)
    for layer, precinct in order(volume, kept):
        packet = packets.get((id(precinct), layer))
        if packet is None:
            # a POC that does not cover every packet: the decoder takes the others for empty
            yield b"\0"
        else:
            yield packet.header
            yield packet.body


def _tile_part(body: bytes) -> bytes:
    return struct.pack(">HHHIBBH", SOT, 10, 0, SOT_BYTES + 2 + len(body), 0, 1, SOD) + body
