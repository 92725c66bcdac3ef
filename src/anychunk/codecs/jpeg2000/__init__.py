"""`anychunk.jpeg2000`, bytes to bytes: tiles of a JPEG 2000 codestream, or a window of one tile.

Spec:     the synthetic codestream of osml-imagery-io; ITU-T T.800 and T.814 (HTJ2K).
JSON:     {"name": "anychunk.jpeg2000",
          "configuration": {"main_header": "/0//UQ…", "resolution_level": 0}}; ours, and left out if
          false: "window"
Lossless: decoding depends on the stream; encoding is lossless (5/3), one codestream per chunk.

A chunk's bytes are all tile-parts of one or several tiles, with their original tile numbers. If
`main_header` is null, they are a whole codestream. Decoded bytes are little-endian, (bands, y, x)
in C order, the whole nominal chunk, padded with the fill value beyond the image.

If `window` is true, a chunk is a part of a large tile. Its bytes are 12 bytes that say where it is
in the image, then either all tile-parts of the tile, or a codestream that has only the code-blocks
of the window, which the store writes when the chunk is read.
"""

import math
import struct
from collections.abc import Buffer as BytesLike
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from anychunk import decoders, limits
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.codecs.jpeg2000 import openjph, tiny_tiles
from anychunk.codecs.jpeg2000.tiles import (
    Canvas,
    bands_first,
    check_type,
    decode_stream,
    decode_tile,
    decode_tiles,
    decode_whole,
    group_parts,
    level_image,
    parse_header,
    scale,
)
from anychunk.codestream.block_table import NoTableError
from anychunk.codestream.blocks import head_length, is_regular, tile_layout, walk_tile
from anychunk.codestream.jpeg2000 import (
    SOT,
    MainHeader,
    Rect,
    Siz,
    read_main_header,
    stream_parts,
    tile_parts,
)
from anychunk.codestream.window_streams import plan_window
from anychunk.errors import (
    ChunkDecodeError,
    ChunkEncodeError,
    CodecConfigError,
    FormatError,
    LimitError,
)
from anychunk.model.grid import Array


@dataclass(frozen=True, kw_only=True)
class Jpeg2000(BytesToBytes):
    """Tiles of one JPEG 2000 codestream, or one whole codestream per chunk."""

    name: ClassVar[str] = "anychunk.jpeg2000"

    main_header: str | None = None
    """Base64 of SOC up to the first SOT, without TLM. None: each chunk is a whole codestream."""
    resolution_level: int = 0
    """0 for full resolution, n for 1 / 2**n of it."""
    window: bool = False
    """Whether a chunk is a window of one tile, and begins with its position."""

    def __post_init__(self) -> None:
        level = self.resolution_level
        if type(level) is not int or not 0 <= level <= 32:
            raise CodecConfigError(f"jpeg2000: resolution_level is {level!r}, expected 0 to 32")
        if not isinstance(self.window, bool) or (self.window and self.main_header is None):
            raise CodecConfigError(
                f"jpeg2000: window is {self.window!r}, expected true or false, and false without "
                "main_header"
            )
        if self.main_header is not None:
            if not isinstance(self.main_header, str):
                raise CodecConfigError(
                    f"jpeg2000: main_header is {self.main_header!r}, expected base64 text or null"
                )
            if level > self.header.levels:
                raise CodecConfigError(
                    f"jpeg2000: resolution_level is {level}, expected 0 to {self.header.levels}"
                )

    @property
    def header(self) -> MainHeader:
        """The main header, which must be there."""
        assert self.main_header is not None
        return parse_header(self.main_header)

    @property
    def needs_spec(self) -> bool:
        return self.window

    def configuration(self) -> dict[str, Any]:
        # both are written in any case, as osml-imagery-io does
        found = {"main_header": self.main_header, "resolution_level": self.resolution_level}
        return {**found, "window": True} if self.window else found

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        if spec is None and not self.window:
            spec = self._unspecified(data)
        spec = self.require_spec(spec)
        shape = bands_first(spec.shape)
        dtype = spec.dtype.newbyteorder("<")
        limits.check_chunk(spec.nbytes, where="jpeg2000", stored=len(data))
        target = np.empty(spec.nbytes, np.uint8) if out is None else out
        array = target.view(dtype).reshape(shape)
        if self.main_header is None:
            decode_whole(self.resolution_level, data, array, spec.fill_value)
            return target
        header = self.header
        if len(header.siz.components) != shape[0]:
            raise ChunkDecodeError(
                f"jpeg2000: {len(header.siz.components)} components, expected {shape[0]}"
            )
        check_type(header.siz, dtype)
        if self.window:
            self._decode_window(memoryview(data), array, spec.fill_value)
        else:
            decode_tiles(header, self.resolution_level, data, array, spec.fill_value)
        return target

    def _decode_window(self, data: memoryview, out: Array, fill: Any) -> None:
        """Decode a window into `out`, shaped (bands, y, x)."""
        header, level = self.header, self.resolution_level
        window = chunk_window(header.siz, level, read_front(data), *out.shape[1:])
        out[:, window.height :] = fill
        out[:, :, window.width :] = fill
        place = out[:, : window.height, : window.width]
        decode_window(header, level, data[FRONT.size :], window, place)

    @property
    def decode_many(
        self,
    ) -> "Callable[[Sequence[Bytes1D], ChunkSpec], Iterator[tiny_tiles.Joint]] | None":
        """Decodes several chunks together; None if tiles are not tiny.

        Chunks that are in none of the arrays have to be decoded one by one.
        """
        is_plain = self.main_header is not None and not self.window
        return self._decode_many if is_plain and tiny_tiles.is_tiny(self.header) else None

    def _decode_many(
        self, chunks: Sequence[Bytes1D], spec: ChunkSpec
    ) -> Iterator[tiny_tiles.Joint]:
        header, level = self.header, self.resolution_level
        siz, steps = header.siz, scale(header.siz, level)
        shape, corner = spec.shape, siz.tile(0).scaled(*steps)
        nominal = (siz.tile_height / steps[1], siz.tile_width / steps[0])
        begins = (-(-siz.tile_x0 // steps[0]), -(-siz.tile_y0 // steps[1]))
        if (
            not decoders.is_used(decoders.OPENJPEG)
            or shape[-2:] != nominal  # a chunk is one tile, and not several or a part of one
            or (corner.x0, corner.y0) != begins
            or math.prod(shape[:-2]) != len(siz.components)
            or not np.can_cast(siz.dtype, spec.dtype)
            or spec.dtype.kind not in "iu"
        ):
            return
        for area, places, planes in tiny_tiles.decode_rectangles(header, level, steps, chunks):
            here = area.scaled(*steps)
            joint = np.empty((*shape[:-2], here.height, here.width), spec.dtype)
            for band, plane in zip(joint.reshape(-1, *joint.shape[-2:]), planes, strict=True):
                band[...] = plane
            across = -(-here.width // shape[-1])
            yield tiny_tiles.Joint(places.tolist(), across, shape, joint)

    def _unspecified(self, data: Bytes1D) -> ChunkSpec:
        """Return the chunk in Zarr v2, which does not describe it: nominal tile or whole image."""
        level = self.resolution_level
        if self.main_header is None:
            siz = read_main_header(data.tobytes()).siz
            rect = level_image(siz, level)
            height, width = rect.height, rect.width
        else:
            siz = self.header.siz
            x, y = scale(siz, level)
            height, width = -(-siz.tile_height // y), -(-siz.tile_width // x)
        return ChunkSpec((len(siz.components), height, width), siz.dtype, 0)

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        if self.main_header is not None or self.resolution_level:
            raise ChunkEncodeError(
                "jpeg2000: single tiles cannot be encoded; leave out main_header and "
                "resolution_level to encode one codestream per chunk"
            )
        if spec is None:
            raise ChunkEncodeError(
                "jpeg2000: encoding needs the shape of the chunk, which Zarr v2 does not pass to "
                "filters; use Zarr v3"
            )
        return encode_lossless(
            data.view(spec.dtype.newbyteorder("<")).reshape(bands_first(spec.shape))
        )


def encode_lossless(array: Array) -> bytes:
    """Encode (bands, y, x) as one codestream, without loss."""
    import imagecodecs

    if array.dtype.kind not in "iu" or array.dtype.itemsize > 2:
        raise ChunkEncodeError(
            f"jpeg2000: {array.dtype} cannot be encoded; supported: int8 uint8 int16 uint16"
        )
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    image = native[0] if len(native) == 1 else native
    encoded: bytes = imagecodecs.jpeg2k_encode(
        image, level=0, codecformat="J2K", planar=image.ndim == 3, reversible=True, mct=False
    )
    return encoded


# Decode a window of a tile, from the small codestream of that window or from the whole tile.

SOC, SOT_MARKER = b"\xff\x4f", b"\xff\x90"
MAGIC = b"A2W\x01"
FRONT = struct.Struct(">4sII")
"""`MAGIC`, and the row and column of the chunk's first sample, from the corner of the image."""


class Front(NamedTuple):
    """The position of a chunk in its image, in samples of the level."""

    row: int
    column: int

    def pack(self) -> bytes:
        return FRONT.pack(MAGIC, *self)


def read_front(data: bytes | memoryview) -> Front:
    """Return the position that the bytes of a chunk begin with."""
    magic, row, column = FRONT.unpack_from(data) if len(data) >= FRONT.size else (b"", 0, 0)
    if magic != MAGIC:
        raise ChunkDecodeError(
            f"jpeg2000: the window begins with {bytes(data[:4]).hex()}, expected {MAGIC.hex()}"
        )
    return Front(row, column)


def chunk_window(siz: Siz, level: int, front: Front, height: int, width: int) -> Rect:
    """Return the window of a chunk, in samples of the level on the reference grid, cropped."""
    image = level_image(siz, level)
    if front.row >= image.height or front.column >= image.width:
        raise ChunkDecodeError(
            f"jpeg2000: the window begins at {tuple(front)}, the image has "
            f"{(image.height, image.width)}"
        )
    x, y = image.x0 + front.column, image.y0 + front.row
    return Rect(x, y, min(x + width, image.x1), min(y + height, image.y1))


def has_windows(header: MainHeader) -> bool:
    """Return whether windows of the tiles can be decoded; if not, only whole tiles."""
    return is_regular(header.data + SOT_MARKER, 2, SOT, len(header.siz.components)) and not (
        header.ppms
        or header.packed
        or (header.is_ht and header.cod.layers > 1)
        or openjph.is_needed(header)
        # OpenJPEG refuses some streams of other steps
        or any(step & (step - 1) for c in header.siz.components for step in (c.dx, c.dy))
    )


def factors(siz: Siz) -> tuple[int, int]:
    """Return (x, y): samples of the array per sample of the coarsest component."""
    x, y = siz.subsampling
    return math.lcm(*(c.dx // x for c in siz.components)), math.lcm(
        *(c.dy // y for c in siz.components)
    )


def grown_window(siz: Siz, level: int, tile: int, window: Rect) -> Rect:
    """Return a window, enlarged to whole samples of every component, inside its tile.

    In samples of the level, as `window`. A sample of a subsampled component covers columns from
    its own on, so a window that begins between two of them needs the one to the left.
    """
    x, y = factors(siz)
    here = siz.tile(tile).scaled(*scale(siz, level))
    return Rect(
        max(here.x0, window.x0 // x * x),
        max(here.y0, window.y0 // y * y),
        min(here.x1, -(-window.x1 // x) * x),
        min(here.y1, -(-window.y1 // y) * y),
    )


def on_reference_grid(siz: Siz, level: int, tile: int, window: Rect) -> Rect:
    """Return a window, given in samples of the level, on the reference grid of the level."""
    x, y = siz.subsampling
    full = siz.tile(tile).scaled(1 << level, 1 << level)
    return Rect(
        max(full.x0, window.x0 * x),
        max(full.y0, window.y0 * y),
        min(full.x1, window.x1 * x),
        min(full.y1, window.y1 * y),
    )


def decode_window(
    header: MainHeader,
    level: int,
    payload: memoryview,
    window: Rect,
    out: Array,
    *,
    is_walked: bool = False,
    threads: int = 1,
) -> None:
    """Decode a window of one tile into `out`, shaped (bands, y, x).

    Parameters:
        header: Main header of the codestream that the tile is from.
        level: Resolution level.
        payload: The tile-parts of the tile, or the codestream of a window that contains `window`.
        window: In samples of the level, as counted on the reference grid.
        out: Of the size of the window.
        is_walked: Whether the packets of the tile-parts have been walked before.
        threads: How many threads decode the stream of a window.

    Raises:
        ChunkDecodeError: The payload does not decode, or is not of this window.
    """
    siz = header.siz
    if payload[:2] == SOC:
        _decode_stream(siz, payload, window, out, threads)
        return
    tiles = group_parts(tile_parts(payload))
    if len(tiles) != 1:
        raise ChunkDecodeError(f"jpeg2000: {len(tiles)} tiles, expected 1")
    [(tile, parts)] = tiles.items()
    if tile >= siz.tiles:
        raise ChunkDecodeError(f"jpeg2000: tile number {tile}, expected 0 to {siz.tiles - 1}")
    rect = siz.tile(tile)
    here = rect.scaled(*scale(siz, level))
    _check_inside(window, here)
    if window == here and siz.is_uniform and out.dtype == siz.dtype and out.flags.c_contiguous:
        planes = decode_tile(
            header, tile, payload, parts, level=level, out=out, is_walked=is_walked
        )
        for band, plane in zip(out, planes, strict=True):
            if band.ctypes.data != plane.ctypes.data:
                band[...] = plane
        return
    planes = decode_tile(header, tile, payload, parts, level=level, is_walked=is_walked)
    grown = grown_window(siz, level, tile, window)
    _place(siz, level, grown, window, out, rect, planes, level)


def is_one_tile(header: MainHeader, shape: tuple[int, int, int]) -> bool:
    """Return whether an image of `shape` (bands, y, x) is one tile whose windows can be decoded."""
    siz = header.siz
    return (
        (len(siz.components), siz.image.height, siz.image.width) == shape
        and siz.tiles == 1
        and all((c.dx, c.dy) == (1, 1) for c in siz.components)
        and siz.is_uniform
        and has_windows(header)
    )


def decode_codestream_part(
    data: Bytes1D, shape: tuple[int, int, int], rows: range, columns: range
) -> Array | None:
    """Decode a part of a bare codestream of one tile to (bands, y, x).

    None if it has to be decoded as a whole: because it is something else, has another shape
    (bands, y, x), or is damaged.
    """
    try:
        header = read_main_header(data[: 1 << 20].tobytes())
        if not is_one_tile(header, shape):
            return None
        siz, image = header.siz, header.siz.image
        view = memoryview(data)[header.length :]
        parts = stream_parts(view)
        heads = [view[part.offset : part.offset + part.length] for part in parts]
        layout = tile_layout(header, 0, heads, parts)
        bodies = [head[head_length(head) :] for head in heads]
        body = bodies[0] if len(bodies) == 1 else memoryview(b"".join(bodies))
        table = walk_tile(header, layout, lambda at, length: body[at : at + length])
        x, y = image.x0 + columns.start, image.y0 + rows.start
        window = Rect(x, y, x + len(columns), y + len(rows))
        grown = on_reference_grid(siz, 0, 0, window)
        stream = plan_window(header, layout, table, level=0, window=grown)
        ranges = stream.ranges(gap=0)
        made = stream.write(ranges, [view[at : at + length] for at, length in ranges])
        out = np.empty((shape[0], len(rows), len(columns)), siz.dtype)
        decode_window(header, 0, memoryview(made), window, out)
    except (FormatError, ChunkDecodeError, LimitError, NoTableError):
        return None
    return out


def _check_inside(window: Rect, here: Rect) -> None:
    if not (
        here.x0 <= window.x0 < window.x1 <= here.x1 and here.y0 <= window.y0 < window.y1 <= here.y1
    ):
        raise ChunkDecodeError(f"jpeg2000: the window {window} is not inside {here}")


def _place(  # noqa: PLR0917 - private, with two callers
    siz: Siz,
    level: int,
    grown: Rect,
    window: Rect,
    out: Array,
    rect: Rect,
    planes: Sequence[Array],
    finer: int,
) -> None:
    """Copy the window from decoded planes, with subsampled components repeated."""
    if grown == window:
        canvas = Canvas(siz, level, window, out)
        canvas.put(rect, planes, finer)
        canvas.finish()
        return
    whole = np.empty((len(out), grown.height, grown.width), out.dtype)
    canvas = Canvas(siz, level, grown, whole)
    canvas.put(rect, planes, finer)
    canvas.finish()
    y, x = window.y0 - grown.y0, window.x0 - grown.x0
    out[...] = whole[:, y : y + window.height, x : x + window.width]


def _decode_stream(siz: Siz, payload: memoryview, window: Rect, out: Array, threads: int) -> None:
    """Decode a window from a codestream whose full resolution is the level of the window."""
    try:
        made = read_main_header(bytes(payload[: 1 << 20]))
    except FormatError as e:
        raise ChunkDecodeError(f"jpeg2000: the codestream of a window: {e}") from e
    if made.siz.components != siz.components or made.siz.tiles != 1:
        raise ChunkDecodeError("jpeg2000: the codestream of a window has other components or tiles")
    canvas = made.siz.image
    here = canvas.scaled(*made.siz.subsampling)
    _check_inside(window, here)
    grown = grown_window(made.siz, 0, 0, window)
    wanted = on_reference_grid(made.siz, 0, 0, grown)
    is_all = here == window and out.dtype == siz.dtype and out.flags.c_contiguous
    planes = decode_stream(
        [payload], made, canvas, 0, out=out if is_all else None, window=wanted, threads=threads
    )
    if not (is_all and np.may_share_memory(planes[0], out)):
        _place(siz, 0, grown, window, out, wanted, planes, 0)
