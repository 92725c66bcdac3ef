"""`https://awslabs.github.io/osml-imagery-io/codecs/jpeg2000`, bytes to bytes: JPEG 2000 tiles.

Spec:     the synthetic codestream of osml-imagery-io; ITU-T T.800 and T.814 (HTJ2K).
JSON:     {"name": "https://awslabs.github.io/osml-imagery-io/codecs/jpeg2000",
          "configuration": {"main_header": "/0//UQ…", "resolution_level": 0}}
Lossless: decoding is what the stream makes it; encoding is lossless (5/3), one stream a chunk.

A chunk's bytes are all tile-parts of one or several tiles, with their own tile numbers; with
`main_header` null they are a whole codestream. Decoded bytes are little-endian, (bands, y, x) in
C order, the full chunk, padded with the fill value beyond the image. Each tile is decoded at its
own place on the canvas: moved to the origin, as the spec has it, all tiles whose size is no power
of two would come out wrong. Bytes that are not exactly the packets of the tile are an error.
"""

import base64
import binascii
from collections.abc import Buffer as BytesLike
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec, v2_filter
from anychunk.codecs.jpeg2000.openjpeg import decode_components, decode_uniform, decodes
from anychunk.codecs.jpeg2000.openjph import decode_deep, is_deep
from anychunk.codestream.jpeg2000 import (
    COM,
    EXTENSIONS,
    PLT,
    PPM,
    SOD,
    SOT_BYTES,
    MainHeader,
    Rect,
    Siz,
    TilePart,
    guarded,
    name,
    read_main_header,
    segments,
    shortened,
    single_tile_stream,
    tile_parts,
)
from anychunk.codestream.packets import check_tile
from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    ChunkEncodeError,
    CodecConfigError,
    UnsupportedError,
)

NAME = "https://awslabs.github.io/osml-imagery-io/codecs/jpeg2000"
MAX_DEPTH = 31
"""OpenJPEG's samples are 32-bit integers with a sign."""

SUSPICIOUS = 256
"""Samples a stored byte from which on a tile is checked before it is decoded."""

type Array = npt.NDArray[Any]


class Placement(NamedTuple):
    """Where a chunk lies on the grid of its level."""

    window: Rect
    """The chunk cut to the image, in samples of the level, on the canvas."""
    rows: range
    columns: range


def scale(siz: Siz, level: int) -> tuple[int, int]:
    """Give x, y: how many steps of the reference grid one sample of the level is."""
    x, y = siz.subsampling
    return x << level, y << level


def level_image(siz: Siz, level: int) -> Rect:
    return siz.image.scaled(*scale(siz, level))


@lru_cache(maxsize=256)
def edges(siz: Siz, level: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Give where tile columns and rows begin and end, in samples of the level, from the image."""
    x_scale, y_scale = scale(siz, level)
    image = siz.image
    x = np.clip(siz.tile_x0 + np.arange(siz.columns + 1) * siz.tile_width, image.x0, image.x1)
    y = np.clip(siz.tile_y0 + np.arange(siz.rows + 1) * siz.tile_height, image.y0, image.y1)
    x, y = -(-x // x_scale), -(-y // y_scale)
    return x - x[0], y - y[0]


def check_decodable(header: MainHeader) -> None:
    """Refuse by name what the decoder would get wrong or not get at all."""
    extensions = sorted(name(m) for m in header.markers & EXTENSIONS)
    if extensions:
        raise UnsupportedError(f"JPEG 2000 part 2 extension {extensions[0]} is not decoded")
    if header.is_ht and header.has_empty_bands:
        # as OpenJPH writes samples of one bit without levels; OpenJPEG shows other samples
        raise UnsupportedError("HTJ2K that announces no bit-plane for its samples is not decoded")
    deepest = max(c.depth for c in header.siz.components)
    if deepest > MAX_DEPTH:
        raise UnsupportedError(
            f"samples of {deepest} bits are not decoded; decoded: 1 to {MAX_DEPTH}"
        )


@lru_cache(maxsize=64)
def parse_header(text: str) -> MainHeader:
    """Decode and parse a configured main header."""
    try:
        data = base64.b64decode(text.removeprefix("base64:"), validate=True)
        # the configured header ends where the first SOT stood
        header = read_main_header(data + b"\xff\x90")
    except binascii.Error as e:
        raise CodecConfigError(f"jpeg2000: main_header is no base64: {e}") from e
    except UnsupportedError:
        raise
    except AnychunkError as e:
        raise CodecConfigError(f"jpeg2000: main_header: {e}") from e
    check_decodable(header)
    return header


def place(siz: Siz, level: int, tiles: set[int], height: int, width: int) -> Placement:
    """Find which chunk of this shape the tiles fill.

    The first tile holds the chunk's first sample, and chunks are a regular grid from the image's
    corner; that fixes the chunk without knowing its number.
    """
    if max(tiles) >= siz.tiles:
        raise ChunkDecodeError(f"tile {max(tiles)} of a stream of {siz.tiles} tiles")
    rows = range(min(tiles) // siz.columns, max(tiles) // siz.columns + 1)
    numbers = [tile % siz.columns for tile in tiles]
    columns = range(min(numbers), max(numbers) + 1)
    x_edges, y_edges = edges(siz, level)
    x0, x1 = _span(x_edges, columns, width, "columns")
    y0, y1 = _span(y_edges, rows, height, "rows")
    if len(tiles) != len(rows) * len(columns):
        raise ChunkDecodeError(f"{len(tiles)} tiles for {len(rows)} x {len(columns)} of the grid")
    image = level_image(siz, level)
    window = Rect(image.x0 + x0, image.y0 + y0, image.x0 + x1, image.y0 + y1)
    return Placement(window, rows, columns)


def _span(edge: npt.NDArray[np.int64], tiles: range, size: int, what: str) -> tuple[int, int]:
    begin, end, last = int(edge[tiles.start]), int(edge[tiles.stop]), int(edge[-1])
    start = -(-begin // size) * size
    stop = min(start + size, last)
    if not start < stop <= end:
        raise ChunkDecodeError(
            f"the tiles hold {what} {begin} to {end}, which does not fill a chunk of {size}"
        )
    return start, stop


def group_parts(parts: list[TilePart]) -> dict[int, list[TilePart]]:
    """Sort tile-parts by tile, and check that each tile's are in order and complete from 0."""
    tiles: dict[int, list[TilePart]] = {}
    for part in parts:
        found = tiles.setdefault(part.tile, [])
        if part.number != len(found):
            raise ChunkDecodeError(
                f"tile {part.tile} goes on with part {part.number}, expected {len(found)}"
            )
        found.append(part)
    return tiles


def decode_tile(
    header: MainHeader,
    tile: int,
    data: memoryview,
    parts: Sequence[TilePart],
    *,
    level: int,
    out: Array | None = None,
) -> Sequence[Array]:
    """Decode one tile to its components, each on its own grid.

    `out`, shaped (bands, y, x), is filled where the components are all alike.
    """
    siz, rect = header.siz, header.siz.tile(tile)
    is_checked = rect.width * rect.height > SUSPICIOUS * sum(part.length for part in parts)
    if is_checked:
        check_tile(header, tile, data, parts)  # before the decoder allocates anything
    stream = single_tile_stream(header, tile, data, parts)
    try:
        planes = decode_stream(stream, siz, rect, level, out)
    except ChunkDecodeError:
        check_tile(header, tile, data, parts)  # it says better what is wrong, where it finds it
        if not is_deep(header):
            raise
        here = rect.scaled(*scale(siz, level))
        shape = (len(siz.components), here.height, here.width)
        return decode_deep(stream, header, level, shape)  # type: ignore[return-value]
    if not is_checked and not is_surely_whole(header, rect, data, parts, stream):
        check_tile(header, tile, data, parts)
    return planes


def is_surely_whole(
    header: MainHeader, rect: Rect, data: memoryview, parts: Sequence[TilePart], stream: bytearray
) -> bool:
    """Whether a tile that decodes is exactly its packets; False: that must be found out otherwise.

    OpenJPEG takes packets that are missing at the end for empty, and does not look at bytes that
    are left: random bytes decode. So the tile is tried twice more, at its lowest resolution, where
    only packet headers cost time. Without its last byte it must fail: then nothing is left over.
    With bytes behind it that are no packet it must not: then nothing is missing.
    """
    siz, last = header.siz, parts[-1]
    level = header.levels
    while level and not is_simple(siz, rect, level):
        level -= 1
    payload = 0
    for part in parts:
        for marker, start, _ in segments(data[part.offset :], SOT_BYTES, SOD):
            if marker not in (SOD, PLT, COM):
                return False
            payload = part.length - start - 2
    if not siz.is_uniform or not is_simple(siz, rect, level):
        return False
    # this also shows that nothing but the missing byte makes the next one fail
    if not decodes(guarded(stream, last), level):
        return False
    cut = shortened(stream, last, payload)
    if cut is None:
        return len(parts) == 1  # nothing but empty packets, and none is missing
    return not decodes(cut, level)


def decode_stream(
    stream: bytes | bytearray, siz: Siz, rect: Rect, level: int, out: Array | None = None
) -> Sequence[Array]:
    """Decode a stream of this part of the image, and check the shapes that come out."""
    if siz.is_uniform and is_simple(siz, rect, level):
        if out is None:
            here = rect.scaled(1 << level, 1 << level)
            out = np.empty((len(siz.components), here.height, here.width), siz.dtype)
        return decode_uniform(stream, level, out)  # type: ignore[return-value]
    rects = [rect.scaled(c.dx << level, c.dy << level) for c in siz.components]
    shapes = [(r.height, r.width) for r in rects]
    if min(min(shape) for shape in shapes) < 1:
        raise UnsupportedError("at this resolution a component has no sample in a tile")
    planes = decode_components(stream, level, siz.components)
    for plane, shape in zip(planes, shapes, strict=True):
        if plane.shape != shape:
            raise ChunkDecodeError(f"OpenJPEG: a component of {plane.shape}, expected {shape}")
    return planes


def is_simple(siz: Siz, rect: Rect, level: int) -> bool:
    """Whether imagecodecs gives the right shape: it takes a level's width for width / 2**level."""
    first, step = siz.components[0], 1 << level
    return (
        first.dx == first.dy == 1
        and -rect.x0 // step - -rect.x1 // step == -(-rect.width // step)
        and -rect.y0 // step - -rect.y1 // step == -(-rect.height // step)
    )


class _Canvas:
    """A chunk being put together from tiles, one plane a component, each on its own grid."""

    def __init__(self, siz: Siz, level: int, window: Rect, out: Array) -> None:
        self._siz, self._level, self._window, self._out = siz, level, window, out
        self._planes: list[tuple[Rect, Array]] = []
        for band, (dx, dy) in zip(out, self._factors(), strict=True):
            rect = window.scaled(dx, dy)
            is_full = dx == dy == 1
            plane = band if is_full else np.empty((rect.height, rect.width), out.dtype)
            self._planes.append((rect, plane))

    def _factors(self) -> list[tuple[int, int]]:
        """How much coarser each component is than the finest."""
        x, y = self._siz.subsampling
        return [(c.dx // x, c.dy // y) for c in self._siz.components]

    def put(self, rect: Rect, tile: Sequence[Array]) -> None:
        """Copy what the chunk wants of a tile, whose place on the reference grid is `rect`."""
        for component, (wanted, plane), samples in zip(
            self._siz.components, self._planes, tile, strict=True
        ):
            here = rect.scaled(component.dx << self._level, component.dy << self._level)
            x0, x1 = max(here.x0, wanted.x0), min(here.x1, wanted.x1)
            y0, y1 = max(here.y0, wanted.y0), min(here.y1, wanted.y1)
            if x0 < x1 and y0 < y1:
                plane[y0 - wanted.y0 : y1 - wanted.y0, x0 - wanted.x0 : x1 - wanted.x0] = samples[
                    y0 - here.y0 : y1 - here.y0, x0 - here.x0 : x1 - here.x0
                ]

    def finish(self) -> None:
        """Bring coarser components to the full grid: each sample fills its cell."""
        window = self._window
        for band, (rect, plane), (dx, dy) in zip(
            self._out, self._planes, self._factors(), strict=True
        ):
            if plane is not band:
                x = np.clip(np.arange(window.x0, window.x1) // dx - rect.x0, 0, rect.width - 1)
                y = np.clip(np.arange(window.y0, window.y1) // dy - rect.y0, 0, rect.height - 1)
                band[: window.height, : window.width] = plane[y[:, None], x]


def decode_tiles(header: MainHeader, level: int, data: Bytes1D, out: Array, fill: Any) -> None:
    """Decode a chunk of tile-parts into `out`, shaped (bands, y, x)."""
    siz = header.siz
    view = memoryview(data)
    tiles = group_parts(tile_parts(view))
    placement = place(siz, level, set(tiles), *out.shape[1:])
    window = placement.window
    is_cut = (window.height, window.width) != out.shape[1:]
    if is_cut:
        out[...] = fill
    if len(tiles) == 1 and siz.is_uniform and not is_cut:
        [(tile, parts)] = tiles.items()
        rect = siz.tile(tile)
        if rect.scaled(*scale(siz, level)) == window and out.dtype == siz.dtype:
            planes = decode_tile(header, tile, view, parts, level=level, out=out)
            for band, plane in zip(out, planes, strict=True):
                if not np.may_share_memory(band, plane):
                    band[...] = plane
            return
    canvas = _Canvas(siz, level, window, out[:, : window.height, : window.width])
    for tile, parts in tiles.items():
        rect = siz.tile(tile)
        here = rect.scaled(*scale(siz, level))
        if here.width and here.height:
            canvas.put(rect, decode_tile(header, tile, view, parts, level=level))
    canvas.finish()


def decode_whole(level: int, data: Bytes1D, out: Array, fill: Any) -> None:
    """Decode a chunk that is a codestream of its own."""
    header = read_main_header(data.tobytes())
    check_decodable(header)
    siz = header.siz
    window = level_image(siz, level)
    if (len(siz.components), window.height, window.width) != (
        len(out),
        min(window.height, out.shape[1]),
        min(window.width, out.shape[2]),
    ):
        raise ChunkDecodeError(
            f"a stream of {len(siz.components)} x {window.height} x {window.width} does not fit a "
            f"chunk of {out.shape}"
        )
    check_type(siz, out.dtype)
    view = memoryview(data)[header.length :]
    if bytes(view[-2:]) == b"\xff\xd9":
        view = view[:-2]
    tiles = group_parts(tile_parts(view))
    if len(tiles) != siz.tiles:
        raise ChunkDecodeError(f"a stream of {len(tiles)} tiles, expected {siz.tiles}")
    # packet headers in the main header are the decoder's alone to judge
    for tile, parts in tiles.items() if PPM not in header.markers else ():
        check_tile(header, tile, view, parts)
    out[:, window.height :] = fill
    out[:, :, window.width :] = fill
    canvas = _Canvas(siz, level, window, out[:, : window.height, : window.width])
    canvas.put(siz.image, decode_stream(data.tobytes(), siz, siz.image, level))
    canvas.finish()


def check_type(siz: Siz, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "iu" or not np.can_cast(siz.dtype, dtype):
        depths = sorted({c.depth for c in siz.components})
        raise ChunkDecodeError(
            f"samples of {depths} bits are {siz.dtype}, which does not fit the array's {dtype}"
        )


def bands_first(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Read a chunk's shape as (bands, y, x); axes in front of it must be of one."""
    lead, last = shape[:-3], shape[-3:]
    if len(last) == 2:
        return 1, last[0], last[1]
    if len(last) < 3 or any(size != 1 for size in lead):
        raise ChunkDecodeError(f"a chunk of shape {shape}, expected (bands, y, x)")
    return last[0], last[1], last[2]


@dataclass(frozen=True, kw_only=True)
class Jpeg2000(BytesToBytes):
    """JPEG 2000 tiles of one stream, or a whole stream a chunk."""

    name: ClassVar[str] = NAME

    main_header: str | None = None
    """Base64 of SOC up to the first SOT, without TLM; None: each chunk is a whole codestream."""
    resolution_level: int = 0
    """0: full resolution, n: 1 / 2**n."""

    def __post_init__(self) -> None:
        level = self.resolution_level
        if type(level) is not int or not 0 <= level <= 32:
            raise CodecConfigError(f"jpeg2000: resolution_level is {level!r}, expected 0 to 32")
        if self.main_header is not None:
            if not isinstance(self.main_header, str):
                raise CodecConfigError("jpeg2000: main_header is no string")
            if level > self._header.levels:
                raise CodecConfigError(
                    f"jpeg2000: resolution_level is {level}, the stream has {self._header.levels}"
                )

    @property
    def _header(self) -> MainHeader:
        assert self.main_header is not None
        return parse_header(self.main_header)

    def configuration(self) -> dict[str, Any]:
        return {"main_header": self.main_header, "resolution_level": self.resolution_level}

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        if spec is None:
            spec = self._unspecified(data)
        shape = bands_first(spec.shape)
        dtype = spec.dtype.newbyteorder("<")
        limits.check_chunk(spec.nbytes, where="jpeg2000", stored=len(data))
        target = np.empty(spec.nbytes, np.uint8) if out is None else out
        array = target.view(dtype).reshape(shape)
        if self.main_header is None:
            decode_whole(self.resolution_level, data, array, spec.fill_value)
            return target
        header = self._header
        if len(header.siz.components) != shape[0]:
            raise ChunkDecodeError(
                f"a stream of {len(header.siz.components)} components for {shape[0]} bands"
            )
        check_type(header.siz, dtype)
        decode_tiles(header, self.resolution_level, data, array, spec.fill_value)
        return target

    def _unspecified(self, data: Bytes1D) -> ChunkSpec:
        """Zarr v2 tells a filter nothing: the chunk is the nominal tile, or the whole image."""
        level = self.resolution_level
        if self.main_header is None:
            siz = read_main_header(data.tobytes()).siz
            rect = level_image(siz, level)
            height, width = rect.height, rect.width
        else:
            siz = self._header.siz
            x, y = scale(siz, level)
            height, width = -(-siz.tile_height // y), -(-siz.tile_width // x)
        return ChunkSpec((len(siz.components), height, width), siz.dtype, 0)

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        if self.main_header is not None or self.resolution_level:
            raise ChunkEncodeError(
                "jpeg2000: tiles of a stream are not written one by one; leave out main_header "
                "and resolution_level to write a whole stream a chunk"
            )
        if spec is None:
            raise ChunkEncodeError("jpeg2000: Zarr v2 does not tell the shape of a chunk")
        return encode_lossless(
            data.view(spec.dtype.newbyteorder("<")).reshape(bands_first(spec.shape))
        )


def encode_lossless(array: Array) -> bytes:
    """Encode (bands, y, x) as one codestream, reversibly."""
    import imagecodecs

    if array.dtype.kind not in "iu" or array.dtype.itemsize > 2:
        raise ChunkEncodeError(
            f"jpeg2000: {array.dtype} is not encoded; encoded: int8 uint8 int16 uint16"
        )
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    image = native[0] if len(native) == 1 else native
    encoded: bytes = imagecodecs.jpeg2k_encode(
        image, level=0, codecformat="J2K", planar=image.ndim == 3, reversible=True, mct=False
    )
    return encoded


Jpeg2000V2 = v2_filter(Jpeg2000)
