"""JPEG 2000 codestream markers: the main header, tile-parts, and a stream of a single tile.

Spec: ITU-T T.800 (ISO/IEC 15444-1) annex A; T.814 (15444-15) for HTJ2K; T.801 (15444-2) for the
      names of extensions that are not decoded.

A codestream is a main header (SOC, SIZ, COD, QCD and others), tile-parts (SOT, further markers,
SOD, packets) and EOC. A tile may have several tile-parts, and those of different tiles may
interleave. Names of fields follow our glossary; the standard's are given where they differ much.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.errors import FormatError, TruncatedError, UnsupportedError

SOC, CAP, SIZ, COD, COC, CPF = 0xFF4F, 0xFF50, 0xFF51, 0xFF52, 0xFF53, 0xFF59
TLM, PLM, PLT, PRF = 0xFF55, 0xFF57, 0xFF58, 0xFF56
QCD, QCC, RGN, POC, PPM, PPT, CRG, COM = (
    0xFF5C, 0xFF5D, 0xFF5E, 0xFF5F, 0xFF60, 0xFF61, 0xFF63, 0xFF64,
)  # fmt: skip
SOT, SOP, EPH, SOD, EOC = 0xFF90, 0xFF91, 0xFF92, 0xFF93, 0xFFD9
DCO, VMS, DFS, ADS, MCT, MCC, NLT, MCO, CBD, ATK = (
    0xFF70, 0xFF71, 0xFF72, 0xFF73, 0xFF74, 0xFF75, 0xFF76, 0xFF77, 0xFF78, 0xFF79,
)  # fmt: skip

NAMES = {
    SOC: "SOC", CAP: "CAP", SIZ: "SIZ", COD: "COD", COC: "COC", CPF: "CPF", TLM: "TLM", PLM: "PLM",
    PLT: "PLT", PRF: "PRF", QCD: "QCD", QCC: "QCC", RGN: "RGN", POC: "POC", PPM: "PPM", PPT: "PPT",
    CRG: "CRG", COM: "COM", SOT: "SOT", SOP: "SOP", EPH: "EPH", SOD: "SOD", EOC: "EOC", DCO: "DCO",
    VMS: "VMS", DFS: "DFS", ADS: "ADS", MCT: "MCT", MCC: "MCC", NLT: "NLT", MCO: "MCO", CBD: "CBD",
    ATK: "ATK",
}  # fmt: skip
EXTENSIONS = frozenset((DCO, VMS, DFS, ADS, MCT, MCC, NLT, MCO, CBD, ATK))
"""Markers of part 2. A decoder that skips one of these shows a wrong picture."""
PROGRESSIONS = ("LRCP", "RLCP", "RPCL", "PCRL", "CPRL")
FILE_MARKERS = frozenset((TLM, PLM, PPM))
"""Markers of the main header that list the tile-parts of the whole file."""
SOT_BYTES = 12
"""Length of the SOT marker segment, which begins a tile-part."""
MAX_COMPONENTS = 16384
MAX_TILES = 65535


@dataclass(frozen=True)
class Rect:
    """A half-open rectangle of the reference grid."""

    x0: int
    y0: int
    x1: int
    y1: int

    def scaled(self, x: int, y: int) -> "Rect":
        """Return the rectangle in samples of a grid `x` and `y` times coarser (T.800 B-12, B-15).

        Both edges are rounded up, because samples lie at multiples of the step from the origin of
        the grid. So the size of the result depends on the position, not only on the size.
        """
        return Rect(-(-self.x0 // x), -(-self.y0 // y), -(-self.x1 // x), -(-self.y1 // y))

    @property
    def width(self) -> int:
        return self.x1 - self.x0

    @property
    def height(self) -> int:
        return self.y1 - self.y0


@dataclass(frozen=True)
class Component:
    """One component of SIZ."""

    depth: int
    """Bits per sample."""
    is_signed: bool
    dx: int
    """Columns of the reference grid per sample (XRsiz)."""
    dy: int


@dataclass(frozen=True, kw_only=True)
class Siz:
    """Image, tiles and components on the reference grid (T.800 A.5.1)."""

    capabilities: int
    """Rsiz."""
    image: Rect
    """The image area. It need not begin at the origin, nor at the corner of a tile."""
    tile_x0: int
    tile_y0: int
    tile_width: int
    tile_height: int
    components: tuple[Component, ...]

    @property
    def columns(self) -> int:
        return -(-(self.image.x1 - self.tile_x0) // self.tile_width)

    @property
    def rows(self) -> int:
        return -(-(self.image.y1 - self.tile_y0) // self.tile_height)

    @property
    def tiles(self) -> int:
        return self.rows * self.columns

    def grid_origin(self, tile: int) -> tuple[int, int]:
        """Return (x, y) of the nominal tile's corner, which may be outside the image."""
        row, column = divmod(tile, self.columns)
        return self.tile_x0 + column * self.tile_width, self.tile_y0 + row * self.tile_height

    def tile(self, tile: int) -> Rect:
        """Return the part of the image that a tile covers (T.800 B-7 to B-10)."""
        x, y = self.grid_origin(tile)
        return Rect(
            max(x, self.image.x0),
            max(y, self.image.y0),
            min(x + self.tile_width, self.image.x1),
            min(y + self.tile_height, self.image.y1),
        )

    def tile_edges(self, tiles: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return x0, y0, x1 and y1 of each tile."""
        rows, columns = np.divmod(tiles, self.columns)
        x, y = self.tile_x0 + columns * self.tile_width, self.tile_y0 + rows * self.tile_height
        image = self.image
        return np.stack(
            [
                np.maximum(x, image.x0),
                np.maximum(y, image.y0),
                np.minimum(x + self.tile_width, image.x1),
                np.minimum(y + self.tile_height, image.y1),
            ],
            axis=1,
        )

    def holds_samples(self, tiles: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which tiles contain a sample of some component.

        If all components are subsampled, a narrow tile may lie between two samples (T.800 B-12).
        """
        rows, columns = np.divmod(tiles, self.columns)
        x = self.tile_x0 + np.arange(self.columns + 1) * self.tile_width
        y = self.tile_y0 + np.arange(self.rows + 1) * self.tile_height
        x, y = np.clip(x, self.image.x0, self.image.x1), np.clip(y, self.image.y0, self.image.y1)
        found = np.zeros(len(tiles), bool)
        for dx, dy in {(c.dx, c.dy) for c in self.components}:
            found |= (np.diff(-(-x // dx)) > 0)[columns] & (np.diff(-(-y // dy)) > 0)[rows]
        return found

    @cached_property
    def dtype(self) -> np.dtype[np.integer]:
        """The smallest integer type that holds every component."""
        is_signed = any(c.is_signed for c in self.components)
        bits = max(c.depth + (is_signed and not c.is_signed) for c in self.components)
        size = 1 if bits <= 8 else 2 if bits <= 16 else 4 if bits <= 32 else 8
        return np.dtype(f"{'i' if is_signed else 'u'}{size}")

    @cached_property
    def is_uniform(self) -> bool:
        """Whether every component has the same depth, sign and sampling."""
        return len(set(self.components)) == 1

    @cached_property
    def subsampling(self) -> tuple[int, int]:
        """Return (x, y): columns and rows of the reference grid per sample of the finest component.

        1 along an axis if the steps of the other components are not multiples of it.
        """
        x, y = min(c.dx for c in self.components), min(c.dy for c in self.components)
        return (
            x if all(c.dx % x == 0 for c in self.components) else 1,
            y if all(c.dy % y == 0 for c in self.components) else 1,
        )


@dataclass(frozen=True, kw_only=True)
class Style:
    """Coding style of one component: SPcod or SPcoc (T.800 A.6.1)."""

    levels: int
    xcb: int
    """Width of a code-block, as a power of 2."""
    ycb: int
    """Height of a code-block, as a power of 2."""
    block_style: int
    transform: int
    """0 for 9/7 (irreversible), 1 for 5/3 (reversible)."""
    precincts: tuple[tuple[int, int], ...]
    """(Width, height) per resolution as powers of 2, coarsest first; empty for the largest."""

    @property
    def is_ht(self) -> bool:
        return bool(self.block_style & 0x40)


@dataclass(frozen=True, kw_only=True)
class Cod:
    """Coding style of all components (T.800 A.6.1)."""

    has_sop: bool
    has_eph: bool
    progression: int
    layers: int
    is_transformed: bool
    """Whether the first three components are coded with a colour transform."""
    style: Style


@dataclass(frozen=True, kw_only=True)
class MainHeader:
    """The main header, as far as it is needed to index and decode tiles."""

    data: bytes
    """SOC up to the first SOT, without TLM, PLM and PPM: they list tile-parts of the whole file."""
    siz: Siz
    cod: Cod
    cocs: dict[int, Style] = field(default_factory=dict)
    """Coding style of the components that override it."""
    markers: frozenset[int] = frozenset()
    tlm: tuple[tuple[int, bytes], ...] = ()
    """(Ztlm, rest of the segment) of every TLM."""
    length: int = 0
    """Position of the first SOT, relative to SOC."""
    comments: tuple[str, ...] = ()
    poc: bytes = b""
    """Parameters of POC, empty if there is none."""
    qcds: tuple[bytes, ...] = ()
    """Parameters of every QCD."""
    has_shift: bool = False
    """Whether RGN shifts a region of interest."""
    ppms: tuple[bytes, ...] = ()
    """Parameters of every PPM, in the order of their Zppm."""
    packed: Mapping[int, bytes] = field(default_factory=dict)
    """The packet headers of tiles that `packed_parts` made, if they are part of a configuration."""

    def style(self, component: int) -> Style:
        return self.cocs.get(component, self.cod.style)

    @cached_property
    def styles(self) -> tuple[Style, ...]:
        return tuple(self.style(i) for i in range(len(self.siz.components)))

    @property
    def levels(self) -> int:
        """The number of coarser resolutions that every component has."""
        return min(style.levels for style in (self.cod.style, *self.cocs.values()))

    @property
    def is_ht(self) -> bool:
        return CAP in self.markers and any(style.is_ht for style in self.styles)

    @property
    def is_reversible(self) -> bool:
        return all(style.transform == 1 for style in self.styles)

    @property
    def has_empty_bands(self) -> bool:
        """Whether a sub-band without quantisation has no bit-planes (T.800 E-2).

        The number of bit-planes is guard bits + exponent - 1.
        """
        return any(
            body[0] & 31 == 0 and any((body[0] >> 5) + (step >> 3) <= 1 for step in body[1:])
            for body in self.qcds
            if body
        )


class NeedsMoreError(TruncatedError):
    """The given bytes end inside the header; at least `needed` are required to continue."""

    def __init__(self, message: str, needed: int = 0) -> None:
        super().__init__(message)
        self.needed = needed


def name(marker: int) -> str:
    """Return the standard's name of a marker, or its code."""
    return NAMES.get(marker, f"0x{marker:04x}")


def segments(
    data: bytes | bytearray | memoryview, start: int, stop: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, start, end) of every segment's parameters, up to the marker `stop`.

    `stop` is yielded last, with the position of the marker itself as start and end.
    """
    position = start
    while True:
        if position + 2 > len(data):
            raise NeedsMoreError(f"no {name(stop)} in the first {len(data)} bytes", position + 4)
        marker = data[position] << 8 | data[position + 1]
        if marker == stop:
            yield marker, position, position
            return
        if marker < 0xFF01 or marker in (SOC, SOT, SOD, EOC):
            raise FormatError(
                f"expected a marker segment at byte {position} of the header, found {marker:#06x}"
            )
        # T.800 A.1.1: these have no parameters
        if 0xFF30 <= marker <= 0xFF3F:
            position += 2
            continue
        if position + 4 > len(data):
            raise NeedsMoreError(
                f"{name(marker)} at byte {position} is truncated after {len(data)} bytes",
                position + 4,
            )
        length = data[position + 2] << 8 | data[position + 3]
        if length < 2:
            raise FormatError(
                f"{name(marker)} at byte {position} has length {length}, expected at least 2"
            )
        end = position + 2 + length
        if end > len(data):
            raise NeedsMoreError(
                f"{name(marker)} at byte {position} is truncated after {len(data)} bytes", end + 2
            )
        yield marker, position + 4, end
        position = end


def find_codestream(data: bytes | memoryview) -> int:
    """Return where the codestream begins: at 0, or in the first `jp2c` box of a JP2 file."""
    at = 0
    while data[at : at + 2] != b"\xff\x4f" and at + 8 <= len(data):
        length, skip = int.from_bytes(data[at : at + 4], "big"), 8
        if length == 1:  # T.800 I.4: the length is in the next eight bytes
            length, skip = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        if data[at + 4 : at + 8] == b"jp2c":
            return at + skip
        if length < skip:
            break
        at += length
    return at


def read_main_header(data: bytes) -> MainHeader:
    """Parse SOC up to the first SOT; raise `NeedsMoreError` if `data` ends before."""
    if data[:2] != b"\xff\x4f":
        raise FormatError(
            f"expected a codestream to begin with ff4f, found {data[:2].hex() or 'nothing'}"
        )
    found = [(marker, start, data[start:end]) for marker, start, end in segments(data, 2, SOT)]
    _, length, _ = found.pop()
    if found and found[0][0] != SIZ:
        raise FormatError(f"the first marker segment is {name(found[0][0])}, expected SIZ")
    bodies: dict[int, list[bytes]] = {}
    for marker, _, body in found:
        bodies.setdefault(marker, []).append(body)
    missing = next((name(marker) for marker in (SIZ, COD, QCD) if marker not in bodies), None)
    if missing is not None:
        raise FormatError(f"the main header has no {missing}")
    if len(bodies[SIZ]) > 1:
        raise FormatError(f"the main header has {len(bodies[SIZ])} SIZ, expected 1")
    siz, cod = read_siz(bodies[SIZ][0]), read_cod(bodies[COD][-1])
    depths = [component.depth for component in siz.components[:3]]
    if cod.is_transformed and len(depths) == 3 and len(set(depths)) > 1:
        # T.800 G.2 and G.3: components of a colour transform have the same bit-depth
        raise FormatError(
            f"SIZ: the first components have {depths} bits, expected the same number, because COD "
            "announces a colour transform"
        )
    kept = [
        data[start - 4 : start + len(body)] for m, start, body in found if m not in FILE_MARKERS
    ]
    texts = [body[2:] for body in bodies.get(COM, []) if body[:2] == b"\0\1"]
    return MainHeader(
        data=b"".join([data[:2], *kept]),
        siz=siz,
        cod=cod,
        cocs=dict(read_coc(body, len(siz.components)) for body in bodies.get(COC, [])),
        markers=frozenset(bodies),
        tlm=tuple((body[0], body[1:]) for body in bodies.get(TLM, []) if body),
        length=length,
        comments=tuple(text.decode("latin1") for text in texts[:16]),
        poc=b"".join(bodies.get(POC, [])),
        qcds=tuple(bodies[QCD]),
        has_shift=any(map(is_shifted, bodies.get(RGN, []))),
        ppms=tuple(sorted(bodies.get(PPM, []))),
    )


def stream_header(stream: memoryview) -> MainHeader:
    """Do the same for a stream that may be long, and whose header others may have, too.

    Tiles of TIFF are such streams: parsing the header of each takes a tenth of decoding it.
    """
    *_, (_, end, _) = segments(stream, 2, SOT)
    head = bytes(stream[: end + 2])
    return _known_header(head) if end < KNOWN_BYTES else read_main_header(head)


KNOWN_BYTES = 4096
"""Longer headers are not kept."""
_known_header = lru_cache(maxsize=64)(read_main_header)


def is_shifted(rgn: bytes) -> bool:
    """Return whether the parameters of RGN end with a shift other than 0 (T.800 A.6.3, SPrgn)."""
    return rgn[-1:] != b"\0"


def read_siz(body: bytes) -> Siz:
    """Parse the parameters of SIZ, and check that image, tiles and components make sense."""
    if len(body) < 36:
        raise FormatError(f"SIZ has {len(body)} bytes, expected at least 36")
    rsiz, x1, y1, x0, y0, tw, th, tx, ty, count = struct.unpack(">H8IH", body[:36])
    if not 1 <= count <= MAX_COMPONENTS or len(body) != 36 + 3 * count:
        raise FormatError(
            f"SIZ has {count} components in {len(body)} bytes, expected 1 to {MAX_COMPONENTS} of "
            "3 bytes each after 36"
        )
    if not (x0 < x1 and y0 < y1):
        raise FormatError(f"SIZ: the image area ends at {(x1, y1)}, expected after {(x0, y0)}")
    if min(tw, th) < 1 or tx > x0 or ty > y0 or tx + tw <= x0 or ty + th <= y0:
        raise FormatError(
            f"SIZ: the first tile begins at {(tx, ty)}, size {tw} x {th}, expected it to contain "
            f"the corner of the image area at {(x0, y0)}"
        )
    components = tuple(_component(*body[i : i + 3]) for i in range(36, len(body), 3))
    siz = Siz(
        capabilities=rsiz, image=Rect(x0, y0, x1, y1), tile_x0=tx, tile_y0=ty, tile_width=tw,
        tile_height=th, components=components,
    )  # fmt: skip
    if siz.tiles > MAX_TILES:
        raise FormatError(f"SIZ: {siz.tiles} tiles, expected at most {MAX_TILES}")
    return siz


def _component(ssiz: int, dx: int, dy: int) -> Component:
    depth = (ssiz & 0x7F) + 1
    if depth > 38 or dx < 1 or dy < 1:
        raise FormatError(
            f"SIZ: a component of {depth} bits with subsampling {(dx, dy)}, expected at most 38 "
            "bits and at least 1"
        )
    return Component(depth, bool(ssiz & 0x80), dx, dy)


def read_cod(body: bytes) -> Cod:
    """Parse the parameters of COD."""
    if len(body) < 10:
        raise FormatError(f"COD has {len(body)} bytes, expected at least 10")
    scod, progression, layers, transform = struct.unpack(">BBHB", body[:5])
    if progression >= len(PROGRESSIONS) or layers < 1 or transform > 1:
        raise FormatError(
            f"COD: progression {progression}, {layers} layers, component transform {transform}; "
            "expected 0 to 4, at least 1, and 0 or 1"
        )
    return Cod(
        has_sop=bool(scod & 2), has_eph=bool(scod & 4), progression=progression, layers=layers,
        is_transformed=bool(transform), style=_style(body[5:], has_precincts=bool(scod & 1)),
    )  # fmt: skip


def read_coc(body: bytes, components: int) -> tuple[int, Style]:
    """Parse the parameters of COC; component numbers have two bytes if there are more than 256."""
    size = 1 if components < 257 else 2
    if len(body) < size + 6:
        raise FormatError(f"COC has {len(body)} bytes, expected at least {size + 6}")
    component = int.from_bytes(body[:size], "big")
    if component >= components:
        raise FormatError(f"COC: component {component}, expected 0 to {components - 1}")
    return component, _style(body[size + 1 :], has_precincts=bool(body[size] & 1))


def _style(body: bytes, *, has_precincts: bool) -> Style:
    levels, xcb, ycb, block_style, transform = body[:5]
    xcb, ycb = (xcb & 15) + 2, (ycb & 15) + 2
    if levels & 0x80:
        raise UnsupportedError("coding style: decomposition by DFS (part 2) is not supported")
    if levels > 32 or xcb > 10 or ycb > 10 or xcb + ycb > 12:
        raise FormatError(
            f"coding style: {levels} levels, code-blocks of {1 << xcb} x {1 << ycb}, "
            "expected at most 32 levels, and 4096 samples per code-block"
        )
    if transform > 1:
        raise UnsupportedError(
            f"coding style: wavelet {transform} is not supported; supported: 0 (9/7), 1 (5/3)"
        )
    precincts: tuple[tuple[int, int], ...] = ()
    if has_precincts:
        sizes = body[5 : 6 + levels]
        if len(sizes) != levels + 1:
            raise FormatError(f"coding style: {len(sizes)} precinct sizes, expected {levels + 1}")
        precincts = tuple((size & 15, size >> 4) for size in sizes)
        if any(0 in size for size in precincts[1:]):
            # a precinct of one sample could not be halved for the sub-bands
            raise FormatError(
                f"coding style: precinct exponents {list(precincts)}, expected 1 or more "
                "except at the lowest resolution"
            )
    return Style(
        levels=levels, xcb=xcb, ycb=ycb, block_style=block_style, transform=transform,
        precincts=precincts,
    )  # fmt: skip


@dataclass(frozen=True)
class TilePart:
    """The position of one tile-part in a sequence of bytes."""

    tile: int
    number: int
    """0 for the first tile-part of its tile."""
    offset: int
    length: int


END = b"\xff\xd9"
"""EOC, the last marker of every codestream (T.800 A.4.4)."""


def tile_parts(data: bytes | memoryview) -> list[TilePart]:
    """Return the tile-parts in `data`, which must consist of nothing else.

    EOC may follow the last one: byte ranges that other software indexed may reach up to the end of
    the codestream.
    """
    found, position = _read_parts(data)
    left = len(data) - position
    if left and data[position:] != END:
        kind = TruncatedError if left < SOT_BYTES else FormatError
        raise kind(
            f"{left} bytes left at byte {position}, beginning with "
            f"{bytes(data[position : position + 4]).hex()}, expected a tile-part (ff90000a) or EOC"
        )
    if not found:
        raise TruncatedError(f"no tile-part in {len(data)} bytes, expected at least one")
    return found


def stream_parts(data: bytes | memoryview) -> list[TilePart]:
    """Return the tile-parts in `data`, which follow a main header: up to EOC, which is required.

    Bytes after EOC are not part of the codestream, and ignored.
    """
    found, position = _read_parts(data)
    if data[position : position + 2] != END:
        raise TruncatedError(
            f"expected EOC (ffd9) after {len(found)} tile-parts, at byte {position}, found "
            f"{bytes(data[position : position + 2]).hex() or 'nothing'}"
        )
    return found


def _read_parts(data: bytes | memoryview) -> tuple[list[TilePart], int]:
    """Return the tile-parts at the begin of `data`, and the position after the last."""
    found = []
    position, size = 0, len(data)
    while position + SOT_BYTES <= size:
        marker, lsot, tile, length, number, _ = struct.unpack_from(">HHHIBB", data, position)
        if marker != SOT or lsot != 10:
            break
        # T.800 A.4.2: 0 is allowed for the last tile-part, and means up to EOC
        length = length or unstated_length(data[position:])
        if length < SOT_BYTES + 2 or position + length > size:
            raise TruncatedError(
                f"tile {tile} part {number} has {length} bytes, expected {SOT_BYTES + 2} to "
                f"{size - position}"
            )
        found.append(TilePart(tile, number, position, length))
        position += length
    return found, position


def unstated_length(data: bytes | memoryview) -> int:
    """Return the length of the tile-part at the begin of `data` whose Psot is 0: up to EOC.

    Up to the end of `data` if there is no EOC.
    """
    *_, (_, sod, _) = segments(data, SOT_BYTES, SOD)
    end = find_end(data, sod + 2)
    return len(data) if end is None else end


def find_end(data: bytes | memoryview, start: int) -> int | None:
    """Return the position of the first EOC in packets that begin at `start`; None without one.

    Neither packet headers nor code-blocks contain 0xFF before a byte above 0x8F (T.800 B.10.1,
    C.2, D.6), so two bytes that look like EOC are EOC. The exception is SOP (A.8.1): its counter
    may be 0xFFD9, or end in 0xFF before a packet header that begins with 0xD9.
    """
    view = bytes(data)
    at = view.find(END, start)
    while at >= 0 and b"\xff\x91\0\4" in (view[max(at - 4, 0) : at], view[max(at - 5, 0) : at - 1]):
        at = view.find(END, at + 1)
    return at if at >= 0 else None


def single_tile_header(header: MainHeader, tile: int) -> bytes:
    """Return the main header of a stream that consists of one tile, at its original position.

    Sub-bands, precincts and code-blocks are anchored at the origin of the reference grid (T.800
    B.5 to B.7). If the tile were moved there, the parity of its edges and its partition would
    change, and pixels would be wrong unless its size is a power of two. So the tile stays in place:
    the image area shrinks to it, and the tile grid begins with it. Only eight numbers of SIZ
    change; Xsiz and Ysiz are the lower right corner, XOsiz and YOsiz the upper left one.
    """
    return tiles_header(header, tile, header.siz.tile(tile))


def tiles_header(header: MainHeader, first: int, rect: Rect) -> bytes:
    """Do the same for several tiles: the first of them, and the area of all."""
    siz = header.siz
    x, y = siz.grid_origin(first)
    # bytes 0 to 7 are SOC, the marker SIZ, Lsiz and Rsiz; components follow at byte 40
    body = struct.pack(
        ">8I", rect.x1, rect.y1, rect.x0, rect.y0, siz.tile_width, siz.tile_height, x, y
    )
    return header.data[:8] + body + header.data[40:]


PACKED = 255
"""TPsot of a tile-part of ours that precedes the others of its tile; files have at most 254."""
MOST_PACKED = 65532
"""Most bytes of packet headers in one PPT (T.800 A.7.5)."""


def packed_parts(header: MainHeader, tiles: Iterable[int]) -> list[bytes]:
    """Return the packet headers that PPM holds: for each tile, a tile-part that only has PPT.

    PPM lists packet headers by tile-part, in the order of the file (T.800 A.7.4), so a tile can be
    decoded only with all tile-parts before it. PPT may be in any tile-part of the tile before its
    packets (A.7.5), so the tile-parts of the file stay as they are.

    Parameters:
        header: The main header; the result is empty if it has no PPM.
        tiles: The tile of each tile-part, in the order of the file.
    """
    if not header.ppms:
        return []
    if len({body[:1] for body in header.ppms} - {b""}) < len(header.ppms):
        raise FormatError(f"{len(header.ppms)} PPM, expected each with a number (Zppm) of its own")
    data, at, count = b"".join(body[1:] for body in header.ppms), 0, 0
    found: dict[int, list[bytes]] = {}
    for count, tile in enumerate(tiles, 1):
        begin = at + 4
        at = begin + int.from_bytes(data[at:begin], "big")
        if max(begin, at) > len(data):
            raise TruncatedError(
                f"PPM ends inside the packet headers of tile-part {count} (tile {tile}), after "
                f"{len(data)} bytes"
            )
        found.setdefault(tile, []).append(data[begin:at])
    if at < len(data):
        raise FormatError(f"PPM: {len(data) - at} bytes follow the headers of {count} tile-parts")
    return [_packed_part(tile, b"".join(headers)) for tile, headers in found.items()]


def _packed_part(tile: int, headers: bytes) -> bytes:
    cuts = range(0, len(headers) or 1, MOST_PACKED)
    pieces = [headers[i : i + MOST_PACKED] for i in cuts]
    ppts = [struct.pack(">HHB", PPT, 3 + len(p), n) + p for n, p in enumerate(pieces)]
    body = b"".join(ppts) + struct.pack(">H", SOD)
    return struct.pack(">HHHIBB", SOT, SOT_BYTES - 2, tile, SOT_BYTES + len(body), PACKED, 0) + body


def without_ppm(header: MainHeader, data: bytes | memoryview) -> bytes:
    """Return a codestream whose packet headers are in its main header (PPM) with PPT instead.

    Parameters:
        header: The main header.
        data: The tile-parts, and EOC.
    """
    parts = stream_parts(data)
    packed = packed_parts(header, [part.tile for part in parts])
    stream = bytearray().join([header.data, *packed, data])
    at = len(header.data) + sum(map(len, packed))
    for part in parts:
        # TPsot, behind the new part, and TNsot, which may be left open
        stream[at + part.offset + 10 : at + part.offset + SOT_BYTES] = bytes(
            (part.number + 1 & 255, 0)
        )
    at = len(header.data)
    for first in packed:
        stream[at + 10], at = 0, at + len(first)
    return bytes(stream)


GUARD = b"\xff\x7f" * 16
"""Not a packet: as a header, its 1 bits announce more data than any stream has.

0x7F after 0xFF is a stuffed 0 bit and seven 1 bits."""


def single_tile_pieces(
    header: MainHeader, tile: int, data: memoryview, parts: Sequence[TilePart]
) -> list[bytes | memoryview]:
    """Return a codestream of one tile in pieces, so that its packets are not copied.

    Packed packet headers (PPT) of several tile-parts must be numbered again in it.
    """
    pieces: list[bytes | memoryview] = [single_tile_header(header, tile)]
    packed = 0
    for number, part in enumerate(parts):
        sot = bytearray(data[part.offset : part.offset + SOT_BYTES])
        # it is tile 0 of its stream; a length of 0 (up to the end) would include EOC
        struct.pack_into(">HI", sot, 4, 0, part.length)
        body = data[part.offset + SOT_BYTES : part.offset + part.length]
        if len(parts) > 1:
            # one may be `PACKED`, and some encoders write a TNsot that is one too small
            sot[10:] = bytes((number & 255, len(parts) if len(parts) < 256 else 0))
            if any(marker == PPT for marker, *_ in segments(body, 0, SOD)):
                renumbered = bytearray(body)
                packed = _renumber(renumbered, 0, packed)
                body = memoryview(renumbered)
        pieces += [bytes(sot), body]
    return [*pieces, END]


def single_tile_stream(
    header: MainHeader, tile: int, data: memoryview, parts: Sequence[TilePart]
) -> bytearray:
    """Return a codestream that consists of one tile, from its tile-parts in `data`."""
    return bytearray().join(single_tile_pieces(header, tile, data, parts))


def _renumber(stream: bytearray, start: int, packed: int) -> int:
    """Renumber the PPT segments of one tile-part from `packed` on; return the next number.

    By T.800 table A.39 (Zppt) numbering restarts in each tile-part header, but OpenJPEG expects
    each number only once per tile.
    """
    found = [at for marker, at, end in segments(stream, start, SOD) if marker == PPT and end > at]
    for number, at in enumerate(sorted(found, key=stream.__getitem__), packed):
        stream[at] = min(number, 255)
    return packed + len(found)


def shortened(stream: bytearray, last: TilePart, payload: int) -> bytearray | None:
    """Truncate a single-tile stream so that the last packet that is not empty loses a byte.

    Zeros at the end are removed as well: they are empty packets, or padding. Return None if there
    is nothing else.

    Parameters:
        stream: The stream, which ends with EOC.
        last: Its last tile-part.
        payload: The number of bytes of packets in that tile-part.
    """
    length = len(stream) - 2 - payload
    kept = len(stream[length:-2].rstrip(b"\0")) if stream[-3] == 0 else payload
    if not kept:
        return None
    return _ending(stream[: length + kept - 1], last.length - (payload - kept) - 1)


def guarded(stream: bytearray, last: TilePart) -> bytearray:
    """Return a single-tile stream with `GUARD` after its last packet."""
    return _ending(stream[:-2] + GUARD, last.length + len(GUARD))


def _ending(stream: bytearray, length: int) -> bytearray:
    """Write the length of the last tile-part, and append EOC."""
    struct.pack_into(">I", stream, len(stream) - length + 6, length)
    stream += END
    return stream


def cropped(
    planes: "Sequence[npt.NDArray[Any]]", siz: Siz, rect: Rect, window: Rect, level: int
) -> "Sequence[npt.NDArray[Any]]":
    """Return the samples in a window of the components of `rect`, both on the reference grid."""
    found = []
    for plane, c in zip(planes, siz.components, strict=True):
        here = rect.scaled(c.dx << level, c.dy << level)
        want = window.scaled(c.dx << level, c.dy << level)
        found.append(
            plane[want.y0 - here.y0 : want.y1 - here.y0, want.x0 - here.x0 : want.x1 - here.x0]
        )
    return found


def component_shapes(siz: Siz, rect: Rect, level: int) -> list[tuple[int, int]]:
    """Return the (y, x) of the components of a part of the image; none of them may be empty."""
    rects = [rect.scaled(c.dx << level, c.dy << level) for c in siz.components]
    shapes = [(r.height, r.width) for r in rects]
    if min(min(shape) for shape in shapes) < 1:
        raise UnsupportedError(
            "a tile in which a component has no samples is not supported; component shapes at "
            f"resolution level {level}: {shapes}"
        )
    return shapes
