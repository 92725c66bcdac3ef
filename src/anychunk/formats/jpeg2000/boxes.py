"""Boxes of JP2 files: T.800 annex I, and those of JPX that describe codestreams (T.801 annex M)."""

import struct
from dataclasses import dataclass, fields, replace
from typing import Any

from anychunk import limits
from anychunk.errors import FormatError, TruncatedError
from anychunk.io.source import Source

SIGNATURE = b"\0\0\0\x0cjP  \r\n\x87\n"
SUPERBOXES = frozenset(("jp2h", "jpch", "jplh", "asoc", "res ", "uinf"))
MAX_BOXES = 65536
MAX_DEPTH = 16
TEXT_BYTES = 256 * limits.KIB
"""Longer XML is not copied into the attributes."""
GEOJP2 = bytes.fromhex("b14bf8bd083d4b43a5ae8cd7d5a6ce03")

COLORSPACES = {
    0: "bilevel", 1: "YCbCr(1)", 3: "YCbCr(2)", 4: "YCbCr(3)", 9: "PhotoYCC", 11: "CMY", 12: "CMYK",
    13: "YCCK", 14: "CIELab", 15: "bilevel(2)", 16: "sRGB", 17: "greyscale", 18: "sYCC",
    19: "CIEJab", 20: "e-sRGB", 21: "ROMM-RGB", 22: "YPbPr(1125/60)", 23: "YPbPr(1250/50)",
    24: "e-sYCC",
}  # fmt: skip
CHANNEL_TYPES = {0: "color", 1: "opacity", 2: "premultiplied opacity", 65535: "unspecified"}


@dataclass(frozen=True)
class Box:
    """One box of a file."""

    type: str
    offset: int
    """File offset of the contents, after the header of the box."""
    length: int
    """Length of the contents."""
    depth: int = 0
    """Number of boxes that contain this one."""
    is_announced: bool = True
    """Whether the file states `length`, not the end of the file or of the parent."""

    def json(self) -> dict[str, Any]:
        """Return the box as JSON."""
        return {
            "type": self.type, "offset": self.offset, "length": self.length, "depth": self.depth,
        }  # fmt: skip

    def read(self, source: Source) -> bytes:
        """Read the contents."""
        limits.check_header(self.length, where=f"{source.url} box {self.type!r}")
        return source.read(self.offset, self.length).tobytes()

    def text(self, source: Source) -> str:
        """Read the contents as UTF-8; empty if they are longer than `TEXT_BYTES`."""
        if self.length > TEXT_BYTES:
            return ""
        return self.read(source).decode("utf-8", "replace").rstrip("\0")

    def is_geojp2(self, source: Source) -> bool:
        """Return whether this uuid box is that of GeoJP2."""
        return self.length > 16 and source.read(self.offset, 16).tobytes() == GEOJP2


def scan(source: Source) -> list[Box]:
    """Return the boxes of a file, nested ones after their parent."""
    found: list[Box] = []
    _scan(source, 0, source.size(), 0, found)
    return found


def _scan(source: Source, offset: int, end: int, depth: int, found: list[Box]) -> None:
    while offset + 8 <= end:
        try:
            box = read_box(source, offset, end, depth)
        except FormatError:
            if any(box.type == "jp2c" for box in found):
                return  # trailing garbage after a codestream does not damage it
            raise
        found.append(box)
        if len(found) > MAX_BOXES:
            raise FormatError(f"{source.url}: more than {MAX_BOXES} boxes, which is the limit")
        if box.type in SUPERBOXES and depth < MAX_DEPTH:
            _scan(source, box.offset, box.offset + box.length, depth + 1, found)
        offset = box.offset + box.length


def read_box(source: Source, offset: int, end: int, depth: int) -> Box:
    """Read the header of the box at `offset`; `end` is the end of its parent."""
    head = source.read(offset, min(16, end - offset)).tobytes()
    length, kind = struct.unpack(">I4s", head[:8])
    size, is_announced = 8, length != 0
    if length == 1 and len(head) == 16:
        length, size = int.from_bytes(head[8:], "big"), 16
    elif length == 0:
        length = end - offset  # T.800 I.4: the last box extends to the end
    if length < size:
        raise FormatError(
            f"{source.url} @{offset}: box {kind!r} has length {length}, expected at least {size}"
        )
    if offset + length > end:
        # the lengths of codestreams and of nested boxes are often wrong in real files; a truncated
        # codestream is detected by the lengths of its tile-parts
        if kind != b"jp2c" and depth == 0:
            raise TruncatedError(
                f"{source.url} @{offset}: box {kind!r} has {length} bytes, {end - offset} are left"
            )
        length, is_announced = end - offset, False
    return Box(kind.decode("latin1"), offset + size, length - size, depth, is_announced)


@dataclass(frozen=True)
class Header:
    """What JP2 boxes state about the components of a codestream."""

    colors: tuple[dict[str, Any], ...] = ()
    palette: dict[str, Any] | None = None
    mapping: tuple[dict[str, Any], ...] | None = None
    channels: tuple[dict[str, Any], ...] | None = None
    resolution: dict[str, Any] | None = None
    size: tuple[int, int] | None = None
    """HEIGHT and WIDTH of the image header box."""

    def over(self, default: "Header") -> "Header":
        """Return this header, with missing values taken from `default`."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name)}
        return replace(default, **given)

    def json(self) -> dict[str, Any]:
        """Return what is known as JSON."""
        pairs = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in pairs.items()
            if value and name != "size"  # the codestream states it, too
        }


def read_header(source: Source, box: Box) -> Header:
    """Read a `jp2h` or `jpch` box."""
    inside: list[Box] = []
    _scan(source, box.offset, box.offset + box.length, 1, inside)
    bodies = [(b.type, b.read(source)) for b in inside if b.length < limits.MIB]
    # of several boxes of one type, the first one counts
    first = dict(reversed(bodies))
    return Header(
        size=struct.unpack(">II", first["ihdr"][:8]) if len(first.get("ihdr", b"")) >= 8 else None,
        colors=tuple(read_color(body) for kind, body in bodies if kind == "colr" and len(body) > 3),
        palette=read_palette(first["pclr"]) if "pclr" in first else None,
        mapping=read_mapping(first["cmap"]) if "cmap" in first else None,
        channels=read_channels(first["cdef"]) if "cdef" in first else None,
        resolution={
            name: read_resolution(first[kind])
            for kind, name in (("resc", "capture"), ("resd", "display"))
            if len(first.get(kind, b"")) >= 10
        },
    )


def read_color(body: bytes) -> dict[str, Any]:
    """Return the colour space of a `colr` box (T.800 I.5.3.3)."""
    method, rest = body[0], body[3:]
    if method == 1 and len(rest) >= 4:
        number = int.from_bytes(rest[:4], "big")
        return {"method": "enumerated", "space": COLORSPACES.get(number, str(number))}
    names = {2: "restricted ICC", 3: "any ICC", 4: "vendor"}
    return {"method": names.get(method, str(method)), "profile_bytes": len(rest)}


def read_palette(body: bytes) -> dict[str, Any]:
    """Return the palette of a `pclr` box: one row per entry (T.800 I.5.3.4)."""
    if len(body) < 3:
        raise FormatError(f"pclr has {len(body)} bytes, expected at least 3")
    entries, columns = struct.unpack(">HB", body[:3])
    depths = [(d & 0x7F) + 1 for d in body[3 : 3 + columns]]
    sizes = [-(-depth // 8) for depth in depths]
    if len(depths) != columns or len(body) < 3 + columns + entries * sum(sizes):
        raise FormatError(
            f"pclr announces {entries} x {columns} entries, too many for its {len(body)} bytes"
        )
    position, table = 3 + columns, []
    for _ in range(entries):
        row = []
        for size in sizes:
            row.append(int.from_bytes(body[position : position + size], "big"))
            position += size
        table.append(row)
    return {"depths": depths, "entries": table}


def read_mapping(body: bytes) -> tuple[dict[str, Any], ...]:
    """Return component and palette column of each channel, from `cmap` (T.800 I.5.3.5)."""
    rows = struct.iter_unpack(">HBB", body[: len(body) // 4 * 4])
    return tuple(
        {"component": component, "column": column if kind == 1 else None}
        for component, kind, column in rows
    )


def read_channels(body: bytes) -> tuple[dict[str, Any], ...]:
    """Return the meaning of each channel, from `cdef` (T.800 I.5.3.6)."""
    rows = struct.iter_unpack(">HHH", body[2 : 2 + (len(body) - 2) // 6 * 6])
    return tuple(
        {"channel": number, "type": CHANNEL_TYPES.get(kind, str(kind)), "association": association}
        for number, kind, association in rows
    )


def read_resolution(body: bytes) -> dict[str, float]:
    """Return samples per metre, from `resc` or `resd` (T.800 I.5.3.7)."""
    vn, vd, hn, hd, ve, he = struct.unpack(">HHHHbb", body[:10])
    return {"y": vn / max(vd, 1) * 10.0**ve, "x": hn / max(hd, 1) * 10.0**he}
