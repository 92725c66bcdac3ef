"""Tiles of JPEG 2000 codestreams: where they are, whether they are whole, and their samples.

Each tile is decoded at its own position on the reference grid. The synthetic codestream as
published moves tiles to the origin; but sub-bands, precincts and code-blocks are anchored at the
origin of the grid, so tiles whose size is not a power of two would decode to wrong pixels.

Bytes that are not exactly the packets of a tile raise an error; OpenJPEG alone would decode them
to a picture. `decode_tile` explains how they are detected.
"""

import base64
import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anychunk import decoders, limits
from anychunk.codecs.base import Bytes1D
from anychunk.codecs.jpeg2000 import openjpeg, openjph
from anychunk.codestream.block_table import NoTableError
from anychunk.codestream.blocks import (
    head_length,
    tile_layout,
    walk_parameters,
    walk_tile,
)
from anychunk.codestream.jpeg2000 import (
    END,
    EXTENSIONS,
    PACKED,
    SOD,
    SOT_BYTES,
    MainHeader,
    Rect,
    Siz,
    TilePart,
    component_shapes,
    cropped,
    find_codestream,
    name,
    read_main_header,
    single_tile_pieces,
    single_tile_stream,
    stream_header,
    stream_parts,
    tile_parts,
    without_ppm,
)
from anychunk.codestream.packets import HT_REGION, check_tile
from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    CodecConfigError,
    UnsupportedError,
)
from anychunk.io.cache import Cache
from anychunk.model.grid import Array
from anychunk.native import loops

NO_BYTES = memoryview(b"")
SUSPICIOUS = 256
"""A tile with more samples per stored byte than this is checked before it is decoded."""


class Placement(NamedTuple):
    """The position of a chunk."""

    window: Rect
    """The chunk cropped to the image, in samples of the level, on the reference grid."""
    rows: range
    """Rows of tiles that the chunk spans."""
    columns: range


def scale(siz: Siz, level: int) -> tuple[int, int]:
    """Return (x, y): the distance between samples of the level, in steps of the reference grid."""
    x, y = siz.subsampling
    return x << level, y << level


def level_image(siz: Siz, level: int) -> Rect:
    """Return the image area in samples of the level."""
    return siz.image.scaled(*scale(siz, level))


@lru_cache(maxsize=256)
def edges(siz: Siz, level: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the edges of tile columns and of tile rows, in samples of the level.

    Counted from the corner of the image area, where the array begins. Columns need not be equally
    wide, even inside the image: edges are rounded up on the grid of the level (T.800 B-15).
    """
    x_scale, y_scale = scale(siz, level)
    image = siz.image
    x = np.clip(siz.tile_x0 + np.arange(siz.columns + 1) * siz.tile_width, image.x0, image.x1)
    y = np.clip(siz.tile_y0 + np.arange(siz.rows + 1) * siz.tile_height, image.y0, image.y1)
    x, y = -(-x // x_scale), -(-y // y_scale)
    return x - x[0], y - y[0]


def check_decodable(header: MainHeader) -> None:
    """Raise `UnsupportedError` for streams that the backends decode wrongly, or not at all."""
    extensions = sorted(name(m) for m in header.markers & EXTENSIONS)
    if extensions:
        raise UnsupportedError(
            f"JPEG 2000 part 2 extension {', '.join(extensions)} is not supported"
        )
    if header.is_ht and header.has_empty_bands:
        # OpenJPH writes 1-bit samples without levels this way; OpenJPEG decodes other values
        raise UnsupportedError("HTJ2K with sub-bands of 0 bit-planes (QCD) is not supported")
    if header.is_ht and header.has_shift:
        # OpenJPEG refuses it, OpenJPH decodes coefficients without shifting them back
        raise UnsupportedError(HT_REGION)
    deepest = max(c.depth for c in header.siz.components)
    if deepest > openjpeg.MAX_DEPTH:
        raise UnsupportedError(
            f"{deepest}-bit samples are not supported; supported: 1 to {openjpeg.MAX_DEPTH} bits"
        )


@lru_cache(maxsize=64)
def parse_header(text: str) -> MainHeader:
    """Return the main header that a configuration holds, which must be decodable."""
    try:
        data = base64.b64decode(text.removeprefix("base64:"), validate=True)
    except ValueError as e:
        raise CodecConfigError(f"jpeg2000: main_header is not base64: {e}") from e
    try:
        # the configured header ends before the first SOT, which the parser looks for, or has the
        # packet headers of all tiles behind it
        header = read_main_header(data + b"\xff\x90")
        rest = data[header.length :]
        parts = tile_parts(rest) if rest else []
    except UnsupportedError:
        raise
    except AnychunkError as e:
        raise CodecConfigError(f"jpeg2000: main_header: {e}") from e
    if header.ppms:
        raise UnsupportedError(
            "jpeg2000: main_header has the packet headers of all tiles (PPM), which cannot be told "
            "apart; index the file again with anychunk"
        )
    check_decodable(header)
    packed = {part.tile: rest[part.offset : part.offset + part.length] for part in parts}
    return replace(header, packed=packed)


def place(siz: Siz, level: int, tiles: set[int], height: int, width: int) -> Placement:
    """Return which chunk the tiles fill.

    A codec does not know the position of its chunk. It follows from the tile numbers: chunks form a
    regular grid from the corner of the image, and the first tile holds the chunk's first sample.

    Parameters:
        siz: The image and its tiles.
        level: Resolution level of the chunk.
        tiles: Numbers of the tiles in the chunk's bytes.
        height: Rows of the nominal chunk.
        width: Its columns.
    """
    if max(tiles) >= siz.tiles:
        raise ChunkDecodeError(f"jpeg2000: tile number {max(tiles)}, expected 0 to {siz.tiles - 1}")
    rows = range(min(tiles) // siz.columns, max(tiles) // siz.columns + 1)
    numbers = [tile % siz.columns for tile in tiles]
    columns = range(min(numbers), max(numbers) + 1)
    x_edges, y_edges = edges(siz, level)
    x0, x1 = _span(x_edges, columns, width, "columns")
    y0, y1 = _span(y_edges, rows, height, "rows")
    if len(tiles) != len(rows) * len(columns):
        inside = {row * siz.columns + column for row in rows for column in columns}
        check_missing(siz, inside - tiles)
    image = level_image(siz, level)
    window = Rect(image.x0 + x0, image.y0 + y0, image.x0 + x1, image.y0 + y1)
    return Placement(window, rows, columns)


def check_missing(siz: Siz, tiles: set[int]) -> None:
    """Raise if a tile that is missing contains samples."""
    numbers = np.array(sorted(tiles), np.int64)
    missing = numbers[siz.holds_samples(numbers)]
    if len(missing):
        raise ChunkDecodeError(
            f"jpeg2000: {len(missing)} tiles of the chunk are missing, the first is {missing[0]}"
        )


def _span(edge: npt.NDArray[np.int64], tiles: range, size: int, what: str) -> tuple[int, int]:
    """Return where the chunk begins and ends along one axis."""
    begin, end, last = int(edge[tiles.start]), int(edge[tiles.stop]), int(edge[-1])
    start = -(-begin // size) * size  # the first chunk that begins in the tiles
    stop = min(start + size, last)
    if not start < stop <= end:
        raise ChunkDecodeError(
            f"jpeg2000: the tiles hold {what} {begin} to {end}, expected a whole chunk of {size}"
        )
    return start, stop


def group_parts(parts: list[TilePart]) -> dict[int, list[TilePart]]:
    """Group tile-parts by tile; raise if those of a tile are not numbered 0, 1, 2 and so on."""
    tiles: dict[int, list[TilePart]] = {}
    for part in parts:
        found = tiles.setdefault(part.tile, [])
        expected = len(found) - (bool(found) and found[0].number == PACKED)
        if part.number != expected and (found or part.number != PACKED):
            raise ChunkDecodeError(
                f"jpeg2000: tile {part.tile} has part {part.number}, expected {expected}"
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
    is_walked: bool = False,
) -> Sequence[Array]:
    """Decode one tile; return its components, each on its own grid.

    OpenJPEG decodes most damaged tiles to some picture, so a tile is also checked. The compiled
    module walks all packet headers. Without it, there are two checks: `openjpeg.is_exact` is fast,
    but inconclusive for some tiles; `check_tile` walks the headers in Python, which takes long if
    there are many. `check_tile` is called

    - before decoding, if the tile claims suspiciously many samples, which would be allocated;
    - after a failure of the decoder, because its message may be more precise;
    - after success, if `is_exact` is inconclusive.

    Parameters:
        header: The main header.
        tile: The tile's number.
        data: Bytes that contain the tile-parts.
        parts: The tile-parts, in order.
        level: Resolution level.
        out: Shaped (bands, y, x); used if all components have the same type and grid.
        is_walked: Whether the packets have been walked before, so that the tile is complete.
    """
    siz, rect = header.siz, header.siz.tile(tile)
    here = rect.scaled(*scale(siz, level))
    nbytes = here.width * here.height * len(siz.components) * siz.dtype.itemsize
    limits.check_chunk(nbytes, where=f"jpeg2000: tile {tile}", stored=len(data))
    is_checked = is_walked or _is_walkable(header, tile, data, parts)
    if not is_checked and rect.width * rect.height > SUSPICIOUS * sum(p.length for p in parts):
        is_checked = True
        check_tile(header, tile, data, parts)
    pieces = single_tile_pieces(header, tile, data, parts)
    try:
        planes = decode_stream(pieces, header, rect, level, out=out, tile=(data, parts))
    except ChunkDecodeError:
        check_tile(header, tile, data, parts)
        raise
    if not is_checked and not _is_exact(header, tile, data, parts):
        check_tile(header, tile, data, parts)
    return planes


def _is_exact(header: MainHeader, tile: int, data: memoryview, parts: Sequence[TilePart]) -> bool:
    """Return whether OpenJPEG, if it is in use, finds that a tile is exactly its packets."""
    stream = single_tile_stream(header, tile, data, parts)
    return decoders.is_used(decoders.OPENJPEG) and openjpeg.is_exact(
        stream, header, header.siz.tile(tile), data, parts
    )


def decode_stream(
    pieces: Sequence[bytes | memoryview],
    header: MainHeader,
    rect: Rect,
    level: int,
    *,
    out: Array | None = None,
    window: Rect | None = None,
    tile: tuple[memoryview, Sequence[TilePart]] = (NO_BYTES, ()),
    threads: int = 0,
) -> Sequence[Array]:
    """Decode a stream by the decoders in use; return its components, each on its own grid.

    Parameters:
        pieces: The stream, in pieces; the first has the main header.
        header: The main header that describes it. Tiles and image area may be those of a larger
            stream.
        rect: Its area, on the reference grid.
        level: Resolution level.
        out: Shaped (bands, y, x); may be used if all components have the same type and grid.
        window: The part of the area to decode; None: all.
        tile: Bytes with the tile-parts of the stream, and these; none if there are no headers
            besides the main one.
        threads: How many threads decode; by default several for large streams.

    Raises:
        ChunkDecodeError: No decoder in use decodes it.
    """
    siz, stored = header.siz, sum(map(len, pieces))
    is_part = window is not None and window != rect
    area = rect if window is None else window
    by = decoders.other("jpeg2000")
    if by is not None:
        openjpeg.check_size(siz, rect, stored)
        shapes = component_shapes(siz, area, level)
        planes = [
            decoders.Plane(shape, c.depth, c.is_signed)
            for shape, c in zip(shapes, siz.components, strict=True)
        ]
        return decoders.decode(
            by,
            b"".join(pieces),
            planes,
            window=(area.x0, area.y0, area.x1, area.y1) if is_part else None,
            level=level,
            threads=threads or openjpeg.default_threads(4 * area.width * area.height),
        )
    if is_part and decoders.is_used(decoders.OPENJPEG):
        found = openjpeg.part(b"".join(pieces), header, rect, area, level, threads=threads or 1)
        if found is not None:
            return found
    if window is not None:
        openjpeg.check_size(siz, rect, stored)
    whole = _decode_all(pieces, header, rect, level, out, tile, threads)
    return cropped(whole, siz, rect, area, level) if is_part else whole


def _decode_all(  # noqa: PLR0917 - private, with one caller
    pieces: Sequence[bytes | memoryview],
    header: MainHeader,
    rect: Rect,
    level: int,
    out: Array | None,
    tile: tuple[memoryview, Sequence[TilePart]],
    threads: int,
) -> Sequence[Array]:
    """Decode a whole stream: by OpenJPH where it is faster, then OpenJPEG, then OpenJPH."""
    siz = header.siz
    has_openjpeg, has_openjph = map(decoders.is_used, (decoders.OPENJPEG, decoders.OPENJPH))
    if has_openjph and openjph.is_faster(header, rect, *tile):
        here = rect.scaled(1 << level, 1 << level)
        shape = (len(siz.components), here.height, here.width)
        target = np.empty(shape, siz.dtype) if out is None else out
        try:
            openjph.decode_shallow(pieces, header, level, target)
        except ChunkDecodeError:
            if not has_openjpeg:
                raise
        else:
            return target  # type: ignore[return-value]
    if has_openjpeg:
        stream = bytearray().join(pieces)
        try:
            return openjpeg.components(stream, siz, rect, level, out, threads=threads)
        except ChunkDecodeError:
            if not (has_openjph and openjph.is_needed(header)):
                raise
    return openjph.decode(b"".join(pieces), None, level, 1)


SMALL_TILE = 1 << 10
"""Bytes of a tile and its headers up to which walking its packets takes as long as decoding it."""
WALKED_ENTRY = 300
WALKED: Cache[bool] = Cache(4 << 20)
"""Small tiles that were walked, with their bytes: each is read again at every resolution."""


_USUAL: Cache[bytes] = Cache(1 << 20)
"""Parameters of walks over tiles that override nothing of the main header, by that header."""
SOD_MARKER = SOD.to_bytes(2, "big")
_TILE = struct.Struct("=6q")


def is_exact_tile(
    header: MainHeader, tile: int, data: memoryview, parts: Sequence[TilePart]
) -> bool:
    """Return whether a tile is exactly its packets; False also if only `walk_tile` can tell.

    The same as walking it, without a table of its code-blocks, which takes longer to make than a
    small tile takes to decode.

    Parameters:
        header: The main header.
        tile: The tile's number.
        data: Bytes that contain the tile-parts.
        parts: The tile-parts, in order.
    """
    start = parts[0].offset + SOT_BYTES
    if loops is None or len(parts) > 1 or data[start : start + 2] != SOD_MARKER:
        return False
    usual = _USUAL.get(header.data)
    if usual is None:
        view = data[parts[0].offset : parts[0].offset + parts[0].length]
        try:
            usual = bytes(walk_parameters(header, tile_layout(header, tile, [view], parts)))
        except NoTableError:
            return False
        _USUAL.put(header.data, usual, len(header.data) + len(usual))
    rect = header.siz.tile(tile)
    begin, length = start + len(SOD_MARKER), parts[0].length - SOT_BYTES - len(SOD_MARKER)
    place = _TILE.pack(rect.x0, rect.y0, rect.x1, rect.y1, begin, length)
    return loops.walk_all(usual, data, place) == 1


def _is_walkable(
    header: MainHeader, tile: int, data: memoryview, parts: Sequence[TilePart]
) -> bool:
    """Walk the packets of a tile with the compiled module; return False if that is impossible.

    Raises what `check_tile` raises.
    """
    if loops is None:
        return False
    if is_exact_tile(header, tile, data, parts):
        return True
    views = [data[part.offset : part.offset + part.length] for part in parts]
    nbytes = sum(len(view) for view in views) + len(header.data)
    key = (header.data, tile, b"".join(views)) if nbytes <= SMALL_TILE else None
    if key is not None and WALKED.get(key):
        return True
    try:
        layout = tile_layout(header, tile, views, parts)
        body = [view[head_length(view) :] for view in views]
        joined = body[0] if len(body) == 1 else memoryview(b"".join(body))
        walk_tile(header, layout, lambda at, length: joined[at : at + length])
    except NoTableError:
        return False
    if key is not None:
        WALKED.put(key, True, nbytes + WALKED_ENTRY)
    return True


def check_stream(data: Bytes1D) -> None:
    """Raise unless a codestream that decodes, bare or in a JP2 file, is exactly its packets.

    For streams that are decoded as a whole, such as tiles of TIFF.

    Raises:
        TruncatedError: EOC does not follow the last tile-part, or packets are missing.
        FormatError: A header breaks the rules, or bytes follow the last packet of a tile.
    """
    view = memoryview(data)
    view = view[find_codestream(view) :]
    header = stream_header(view)
    if header.ppms:
        view = memoryview(without_ppm(header, view[header.length :]))
        header = stream_header(view)
    view = view[header.length :]
    for tile, parts in group_parts(stream_parts(view)).items():
        if _is_walkable(header, tile, view, parts):
            continue
        if not _is_exact(header, tile, view, parts):
            check_tile(header, tile, view, parts)


class Canvas:
    """A chunk assembled from tiles: one plane per component, each on its own grid.

    Components with the resolution of the chunk are written to `out` directly; coarser ones are kept
    separately until `finish`, because their samples may straddle tiles.
    """

    def __init__(self, siz: Siz, level: int, window: Rect, out: Array) -> None:
        self._siz, self._level, self._window, self._out = siz, level, window, out
        self._planes: list[tuple[Rect, Array]] = []
        for band, (dx, dy) in zip(out, self._factors(), strict=True):
            rect = window.scaled(dx, dy)
            is_full = dx == dy == 1
            plane = band if is_full else np.empty((rect.height, rect.width), out.dtype)
            self._planes.append((rect, plane))

    def _factors(self) -> list[tuple[int, int]]:
        """Return (x, y) per component: how much coarser it is than the finest."""
        x, y = self._siz.subsampling
        return [(c.dx // x, c.dy // y) for c in self._siz.components]

    def put(self, rect: Rect, tile: Sequence[Array], level: int | None = None) -> None:
        """Copy the part of a tile that lies in the chunk.

        Parameters:
            rect: Position of the tile on the reference grid.
            tile: Its components.
            level: By how many levels `rect` is finer than the components; that of the chunk by
                default.
        """
        level = self._level if level is None else level
        for component, (window, plane), samples in zip(
            self._siz.components, self._planes, tile, strict=True
        ):
            here = rect.scaled(component.dx << level, component.dy << level)
            x0, x1 = max(here.x0, window.x0), min(here.x1, window.x1)
            y0, y1 = max(here.y0, window.y0), min(here.y1, window.y1)
            if x0 < x1 and y0 < y1:
                plane[y0 - window.y0 : y1 - window.y0, x0 - window.x0 : x1 - window.x0] = samples[
                    y0 - here.y0 : y1 - here.y0, x0 - here.x0 : x1 - here.x0
                ]

    def finish(self) -> None:
        """Upsample coarser components to the full grid by repeating samples.

        Sample `i` of a component covers the columns from `i * dx` up to the next sample (T.800
        B.2). The first and last sample also fill the columns left over by the crop.
        """
        window = self._window
        for band, (rect, plane), (dx, dy) in zip(
            self._out, self._planes, self._factors(), strict=True
        ):
            if (dx, dy) != (1, 1):
                x = np.clip(np.arange(window.x0, window.x1) // dx - rect.x0, 0, rect.width - 1)
                y = np.clip(np.arange(window.y0, window.y1) // dy - rect.y0, 0, rect.height - 1)
                band[: window.height, : window.width] = plane[y[:, None], x]


def decode_tiles(header: MainHeader, level: int, data: Bytes1D, out: Array, fill: Any) -> None:
    """Decode the tile-parts of a chunk into `out`, shaped (bands, y, x)."""
    siz = header.siz
    view = memoryview(data)
    found = tile_parts(view)
    if header.packed:
        first = [header.packed.get(tile, b"") for tile in dict.fromkeys(p.tile for p in found)]
        view = memoryview(b"".join([*first, view]))
        found = tile_parts(view)
    tiles = group_parts(found)
    placement = place(siz, level, set(tiles), *out.shape[1:])
    window = placement.window
    is_cut = (window.height, window.width) != out.shape[1:]
    if is_cut:
        out[...] = fill
    # the common case, one tile per chunk: decode into `out`, without a canvas
    if len(tiles) == 1 and siz.is_uniform and not is_cut:
        [(tile, parts)] = tiles.items()
        rect = siz.tile(tile)
        if rect.scaled(*scale(siz, level)) == window and out.dtype == siz.dtype:
            planes = decode_tile(header, tile, view, parts, level=level, out=out)
            for band, plane in zip(out, planes, strict=True):
                if not np.may_share_memory(band, plane):
                    band[...] = plane
            return
    canvas = Canvas(siz, level, window, out[:, : window.height, : window.width])
    for tile, parts in tiles.items():
        rect = siz.tile(tile)
        here = rect.scaled(*scale(siz, level))
        if here.width and here.height:
            canvas.put(rect, decode_tile(header, tile, view, parts, level=level))
    canvas.finish()


def decode_whole(level: int, data: Bytes1D, out: Array, fill: Any) -> None:
    """Decode a chunk that is a whole codestream into `out`, shaped (bands, y, x)."""
    stream = data.tobytes()
    header = read_main_header(stream)
    if header.ppms:
        stream = without_ppm(header, memoryview(stream)[header.length :])
        header = read_main_header(stream)
    check_decodable(header)
    siz = header.siz
    window = level_image(siz, level)
    if (len(siz.components), window.height, window.width) != (
        len(out),
        min(window.height, out.shape[1]),
        min(window.width, out.shape[2]),
    ):
        raise ChunkDecodeError(
            "jpeg2000: the codestream has (bands, y, x) "
            f"{(len(siz.components), window.height, window.width)}, expected {out.shape}"
        )
    check_type(siz, out.dtype)
    view = memoryview(stream)[header.length :]
    if view[-2:] != END:
        raise ChunkDecodeError(
            f"jpeg2000: the codestream ends with {bytes(view[-2:]).hex()}, expected EOC (ffd9)"
        )
    view = view[:-2]  # so that no tile-part can reach over it
    tiles = group_parts(tile_parts(view))
    if not tiles.keys() <= set(range(siz.tiles)):
        raise ChunkDecodeError(f"jpeg2000: tile number {max(tiles)}, expected 0 to {siz.tiles - 1}")
    check_missing(siz, set(range(siz.tiles)) - tiles.keys())
    for tile, parts in tiles.items():
        check_tile(header, tile, view, parts)
    out[:, window.height :] = fill
    out[:, :, window.width :] = fill
    canvas = Canvas(siz, level, window, out[:, : window.height, : window.width])
    parts = [part for found in tiles.values() for part in found]
    canvas.put(siz.image, decode_stream([stream], header, siz.image, level, tile=(view, parts)))
    canvas.finish()


def decode_bare(data: Bytes1D) -> Array:
    """Decode a checked codestream of alike components, which may be padded, to (bands, y, x).

    Raises:
        UnsupportedError: It is in a JP2 file, which may declare colours, or components differ.
    """
    view = memoryview(data)
    header = stream_header(view)
    check_decodable(header)
    siz, parts = header.siz, stream_parts(view[header.length :])
    if find_codestream(view) or not siz.is_uniform:
        raise UnsupportedError(
            "JP2 files and subsampled components inside TIFF are decoded only by openjpeg; choose "
            'it: anychunk.decoders.use("jpeg2000", "openjpeg")'
        )
    end = header.length + parts[-1].offset + parts[-1].length + len(END)
    out = np.empty((len(siz.components), siz.image.height, siz.image.width), siz.dtype)
    decode_whole(0, data[:end], out, 0)
    return out


def check_type(siz: Siz, dtype: np.dtype[Any]) -> None:
    """Raise if the array's type cannot hold every sample of the stream."""
    if dtype.kind not in "iu" or not np.can_cast(siz.dtype, dtype):
        depths = sorted({c.depth for c in siz.components})
        raise ChunkDecodeError(
            f"jpeg2000: samples of {depths} bits need {siz.dtype}, the array has type {dtype}"
        )


def bands_first(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return a chunk's shape as (bands, y, x); only one leading axis may be longer than 1."""
    lead, last = shape[:-2], shape[-2:]
    if len(last) < 2 or sum(size != 1 for size in lead) > 1:
        raise ChunkDecodeError(f"jpeg2000: the chunk has shape {shape}, expected (bands, y, x)")
    return math.prod(lead), last[0], last[1]
