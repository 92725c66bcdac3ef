"""OpenJPEG as a decoder: one JPEG 2000 codestream in, its components out.

`decode` is the decoder as `anychunk.decoders` knows it. The rest of the package, which has parsed
the stream and may have an array for the samples, calls `components` for a whole stream, `part` for
a window of one, and `is_exact`, which says whether a stream that decodes consists of exactly the
packets that it must have.

Components that are alike are decoded by the compiled binding (`decode_into`), or by that of
imagecodecs (`_decode_uniform`), which returns the same samples, and words the errors.

imagecodecs' binding refuses components that differ from each other, converts three subsampled
components to RGB, and computes other sizes for some levels. For those there are two ways, which
return the same samples:

- `openjpeg_library` calls the library that imagecodecs is linked with, by ctypes. It is used only
  if it passes the checks of that module.
- `_decode_separately` copies the packets of each component to a stream of its own, which
  imagecodecs' binding decodes. It is slower, and refuses a few streams whose packets cannot be told
  apart.

All are strict: a stream that ends inside a packet is an error. All release the GIL while decoding.

Streams are bare codestreams, whose geometry the caller has checked against `limits`.
"""

from collections.abc import Buffer as BytesLike
from collections.abc import Sequence

import imagecodecs
import numpy as np

from anychunk import limits
from anychunk.codecs.jpeg2000 import openjpeg_library
from anychunk.codestream.components import component_streams
from anychunk.codestream.jpeg2000 import (
    COM,
    PLT,
    SOD,
    SOT_BYTES,
    Component,
    MainHeader,
    Rect,
    Siz,
    TilePart,
    component_shapes,
    cropped,
    guarded,
    read_main_header,
    segments,
    shortened,
    tile_parts,
)
from anychunk.codestream.window_streams import area_growth
from anychunk.errors import ChunkDecodeError, FormatError, UnsupportedError
from anychunk.io.threads import cores
from anychunk.model.grid import Array
from anychunk.native import loops

MAX_DEPTH = 31
"""OpenJPEG's samples are signed 32-bit integers."""
THREADED_BYTES = 8 << 20
"""Streams that decode to more than this are decoded by several threads."""


def decode(
    stream: bytes, window: tuple[int, int, int, int] | None, level: int, threads: int
) -> Sequence[Array]:
    """Decode a codestream, or a window of it: see `docs/reference/write-a-decoder.md`."""
    header = read_main_header(stream)
    siz, area = header.siz, None if window is None else Rect(*window)
    if area is not None:
        planes = part(stream, header, siz.image, area, level, threads=threads)
        if planes is not None:
            return planes
    planes = components(stream, siz, siz.image, level, threads=threads)
    return planes if area is None else cropped(planes, siz, siz.image, area, level)


def part(
    stream: BytesLike, header: MainHeader, rect: Rect, window: Rect, level: int, *, threads: int
) -> Sequence[Array] | None:
    """Decode a window of a stream at about the cost of the window; None if all has to be decoded.

    OpenJPEG 2.5 silently returns wrong samples in two cases, which are avoided here:

    - 9/7: its margin around an area is too small, so samples near the edges are wrong. The area is
      enlarged by `area_growth`, and cropped.
    - HTJ2K: every sample of an area is mid-grey.
    """
    siz = header.siz
    more = max(
        area_growth(style) * max(c.dx, c.dy) << level
        for style, c in zip(header.styles, siz.components, strict=True)
    )
    area = Rect(
        max(rect.x0, window.x0 - more),
        max(rect.y0, window.y0 - more),
        min(rect.x1, window.x1 + more),
        min(rect.y1, window.y1 + more),
    )
    if area == rect or any(style.is_ht for style in header.styles):
        return None
    check_size(siz, area, len(memoryview(stream)))
    try:
        shapes = component_shapes(siz, area, level)
        library = openjpeg_library.load()
        planes = openjpeg_library.decode(
            library, bytes(stream), level, shapes, area=area, threads=threads
        )
    except (openjpeg_library.UnknownLibraryError, ChunkDecodeError, UnsupportedError):
        return None
    return cropped(planes, siz, area, window, level)


def check_size(siz: Siz, area: Rect, stored: int) -> None:
    """Compare the size of an area with the limits, as OpenJPEG decodes it."""
    nbytes = area.width * area.height * len(siz.components) * 4
    limits.check_chunk(nbytes, where="jpeg2000: a window", stored=stored)


def components(
    stream: bytes | bytearray,
    siz: Siz,
    rect: Rect,
    level: int,
    out: Array | None = None,
    *,
    threads: int = 0,
) -> Sequence[Array]:
    """Decode a stream; return its components, each on its own grid.

    Parameters:
        stream: A codestream of this part of the image.
        siz: The components. Tiles and image area may be those of a larger stream.
        rect: The part, on the reference grid.
        level: Resolution level.
        out: Shaped (components, y, x); used if all components have the same type and grid.
        threads: How many threads decode; by default several for large streams.

    Raises:
        ChunkDecodeError: The stream does not decode, or decodes to another shape.
        UnsupportedError: A component has no samples at this level, or components that differ cannot
            be separated.
    """
    if siz.is_uniform and _has_right_shape(siz, rect, level):
        if out is None:
            here = rect.scaled(1 << level, 1 << level)
            out = np.empty((len(siz.components), here.height, here.width), siz.dtype)
        return _decode_uniform(stream, siz.components[0], level, out, threads)  # type: ignore[return-value]
    shapes = component_shapes(siz, rect, level)
    try:
        library = openjpeg_library.load()
    except openjpeg_library.UnknownLibraryError:
        return _decode_separately(stream, level)
    return openjpeg_library.decode(library, stream, level, shapes)


def _decode_separately(stream: bytes | bytearray, level: int) -> list[Array]:
    """Decode every component on its own grid, each from a stream of its own."""
    header = read_main_header(bytes(stream))
    siz = header.siz
    data = memoryview(bytes(stream))[header.length :]
    if bytes(data[-2:]) == b"\xff\xd9":
        data = data[:-2]
    rects = [siz.image.scaled(c.dx << level, c.dy << level) for c in siz.components]
    planes: list[Array] = [np.empty((r.height, r.width), siz.dtype) for r in rects]
    tiles: dict[int, list[TilePart]] = {}
    try:
        for part in tile_parts(data):
            tiles.setdefault(part.tile, []).append(part)
        for tile, parts in tiles.items():
            for group, separate in component_streams(header, tile, data, parts, level):
                first = siz.components[group.start]
                here = siz.tile(tile).scaled(first.dx << level, first.dy << level)
                whole = rects[group.start]
                y, x = here.y0 - whole.y0, here.x0 - whole.x0
                dtype = np.dtype(f"{'i' if first.is_signed else 'u'}{_itemsize(first.depth)}")
                out = np.empty((len(group), here.height, here.width), dtype)
                _decode_uniform(separate, first, 0, out)
                for number, plane in zip(group, out, strict=True):
                    planes[number][y : y + here.height, x : x + here.width] = plane
    except FormatError as e:
        raise ChunkDecodeError(f"OpenJPEG: {e}") from e
    return planes


def _itemsize(depth: int) -> int:
    return 1 if depth <= 8 else 2 if depth <= 16 else 4


def _has_right_shape(siz: Siz, rect: Rect, level: int) -> bool:
    """Return whether imagecodecs computes the right shape of a level.

    It assumes that the width is ceil(width / 2**level). By T.800 B-15 it is the difference of the
    edges, each divided and rounded up, which depends on where the tile lies.
    """
    first, step = siz.components[0], 1 << level
    return (
        first.dx == first.dy == 1
        and -rect.x0 // step - -rect.x1 // step == -(-rect.width // step)
        and -rect.y0 // step - -rect.y1 // step == -(-rect.height // step)
    )


def is_exact(
    stream: bytearray,
    header: MainHeader,
    rect: Rect,
    data: memoryview,
    parts: Sequence[TilePart],
) -> bool:
    """Return True if a tile that decodes is exactly its packets; False if that is unknown.

    OpenJPEG treats packets that are missing at the end as empty, and ignores trailing bytes: even
    random bytes decode. So the tile is decoded twice more, at its lowest resolution,
    where hardly anything but packet headers costs time.

    1. With bytes appended that cannot be a packet. If a packet were missing, they would be read as
       its header, and decoding would fail. So nothing is missing.
    2. Without its last byte. If bytes were left over, decoding would still succeed. So nothing is
       left over.

    Parameters:
        stream: The tile as a codestream.
        header: Main header of the codestream that the tile is from.
        rect: Position of the tile on the reference grid.
        data: Bytes that contain the tile-parts.
        parts: The tile-parts that `stream` was made from.
    """
    siz, last = header.siz, parts[-1]
    level = header.levels
    while level and not _has_right_shape(siz, rect, level):
        level -= 1
    payload = 0
    for part in parts:
        for marker, start, _ in segments(data[part.offset :], SOT_BYTES, SOD):
            # other markers may change what the packets are
            if marker not in (SOD, PLT, COM):
                return False
            payload = part.length - start - 2
    if not siz.is_uniform or not _has_right_shape(siz, rect, level):
        return False
    # this also proves that the stream decodes at this level, so that only the missing byte can
    # make the second attempt fail
    if not _decodes(guarded(stream, last), level):
        return False
    cut = shortened(stream, last, payload)
    if cut is None:
        return len(parts) == 1  # only empty packets, none of them missing
    return not _decodes(cut, level)


def default_threads(nbytes: int) -> int:
    """Return how many threads decode a stream of this decoded size."""
    return min(4, cores()) if nbytes >= THREADED_BYTES else 1


def _decode_uniform(
    stream: bytes | bytearray, component: Component, level: int, out: Array, threads: int = 0
) -> Array:
    """Decode components of one depth, sign and size into `out`, shaped (components, y, x)."""
    threads = threads or default_threads(out.nbytes)
    if decode_into(stream, component, level, out, threads=threads):
        return out
    target = out[0] if len(out) == 1 else out
    try:
        decoded = imagecodecs.jpeg2k_decode(
            stream, planar=True, skipres=level, numthreads=threads, out=target
        )
    except Exception as e:
        raise ChunkDecodeError(f"OpenJPEG: {str(e) or type(e).__name__}") from e
    if decoded is not target:
        target[...] = decoded
    return out


def decode_into(
    stream: BytesLike, component: Component, level: int, out: Array, *, threads: int = 1
) -> bool:
    """Decode a bare codestream by the compiled binding; return False if that is not possible.

    Then imagecodecs decodes it, to the same samples, or says what is wrong.

    Parameters:
        stream: The codestream.
        component: What all its components must be, without subsampling.
        level: Resolution level.
        out: Shaped (components, y, x), in any order in memory.
        threads: How many threads decode.
    """
    functions = None if loops is None else openjpeg_library.addresses()
    depth = component.depth
    if functions is None or depth > MAX_DEPTH or out.itemsize != _itemsize(depth):
        return False
    if not out.dtype.isnative or out.dtype.kind not in "iu":
        return False
    assert loops is not None
    answer = loops.openjpeg_decode(
        functions, stream, out, level, threads, depth, component.is_signed
    )
    return answer > 0


def _decodes(stream: bytes | bytearray, level: int) -> bool:
    """Return whether OpenJPEG accepts a stream at a level."""
    try:
        imagecodecs.jpeg2k_decode(stream, planar=True, skipres=level, numthreads=1)
    except Exception:  # noqa: BLE001 - every failure is the answer
        return False
    return True
