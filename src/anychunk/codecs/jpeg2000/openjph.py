"""OpenJPH as a decoder of reversible HTJ2K: three times as fast as OpenJPEG, or deeper.

imagecodecs does not clip what OpenJPH decodes, but casts it to the type of the samples. Values
outside of their range, which streams that were cut to a rate have, would become others.

- Samples of up to 16 bits (`is_faster`): the stream is decoded as one of deeper signed samples, by
  changing SIZ. In a reversible stream, that changes nothing but the shift of unsigned samples,
  which is then added here. So values outside of the range are seen. Streams that have any are left
  to OpenJPEG, which clips them: as a rule they are damaged, and it refuses more of those.
- Samples from 28 bits on (`is_needed`): OpenJPEG refuses code-blocks of more than 30 bit-planes,
  OpenJPH decodes up to 64. Clipping, which is done here, needs a spare bit: only up to 31 bits are
  decoded.
"""

from collections.abc import Buffer, Sequence
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.codestream.jpeg2000 import (
    CAP,
    COD,
    COM,
    PLT,
    QCD,
    SIZ,
    SOD,
    SOT_BYTES,
    Component,
    MainHeader,
    Rect,
    TilePart,
    component_shapes,
    cropped,
    read_main_header,
    segments,
    stream_parts,
)
from anychunk.errors import ChunkDecodeError, UnsupportedError
from anychunk.io.buffers import borrowed_large
from anychunk.model.grid import Array
from anychunk.native import loops

SHALLOW = 16
"""The largest depth in bits of samples that are decoded as deeper ones."""
CLAIMED = 24
"""The depth that these are decoded as, unless 16 bits hold whatever their coefficients give."""
ROUNDING = 1 << 10
"""More than all rounding in the inverse transform can add to a sample."""
MOST_PLANES = 22
"""Bit-planes of a coefficient with which sums cannot exceed 32 bits, in any order of adding."""
PLAIN = frozenset((SIZ, CAP, COD, QCD, COM))
"""Marker segments of a stream in which all components are coded alike."""
SSIZ, SSIZ_STEP = 42, 3
"""Where depth and sign of the first component are in a stream, and the distance to the next."""
BLOCK_ROWS = 64
"""Rows that are checked at a time, so that they stay in the cache."""

DEEP = 28
"""The smallest depth in bits for which OpenJPEG may have too few bit-planes."""


def is_needed(header: MainHeader) -> bool:
    """Return whether OpenJPH decodes a stream that OpenJPEG may have refused as too deep."""
    return (
        header.is_ht
        and header.is_reversible
        and header.siz.is_uniform
        and header.cod.layers
        == 1  # packets of several layers are not walked, so damage would be missed
        and DEEP <= header.siz.components[0].depth < 32
    )


def decode(
    stream: bytes, window: tuple[int, int, int, int] | None, level: int, threads: int
) -> Sequence[Array]:
    """Decode a codestream, or a window of it: see `docs/reference/write-a-decoder.md`.

    Raises:
        UnsupportedError: It is not one for which `is_faster` or `is_needed` is true.
    """
    header = read_main_header(stream)
    siz, data = header.siz, memoryview(stream)[header.length :]
    shape = (len(siz.components), *component_shapes(siz, siz.image, level)[0])
    planes: Any
    if is_faster(header, siz.image, data, stream_parts(data)):
        planes = np.empty(shape, siz.dtype)
        decode_shallow([stream], header, level, planes)
    elif is_needed(header):
        planes = decode_deep(stream, header, level, shape)
    else:
        raise UnsupportedError(
            "OpenJPH decodes only reversible HTJ2K of one layer, with even tile edges, exactly; "
            "decode other streams by openjpeg"
        )
    return planes if window is None else cropped(planes, siz, siz.image, Rect(*window), level)


def decode_deep(
    stream: bytes, header: MainHeader, level: int, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Decode components of one depth, sign and size to (components, y, x), which is `shape`."""
    component = header.siz.components[0]
    try:
        decoded = imagecodecs.htj2k_decode(stream, planar=True, skipres=level)
    except Exception as e:
        raise ChunkDecodeError(f"OpenJPH: {str(e) or type(e).__name__}") from e
    if decoded.size != np.prod(shape) or decoded.dtype.itemsize != 4:
        raise ChunkDecodeError(f"OpenJPH: {decoded.shape} of {decoded.dtype}, expected {shape}")
    half = 1 << component.depth - 1
    low, high = (-half, half - 1) if component.is_signed else (0, 2 * half - 1)
    # imagecodecs casts negative results of unsigned samples to large values; int32 undoes that
    clipped: npt.NDArray[Any] = decoded.reshape(shape).view(np.int32).clip(low, high)
    return clipped.astype(header.siz.dtype, copy=False)


def is_faster(header: MainHeader, rect: Rect, data: memoryview, parts: Sequence[TilePart]) -> bool:
    """Return whether a tile is one that `decode_shallow` decodes exactly as OpenJPEG does.

    In code-blocks of an odd width or height, OpenJPEG finds some damage that OpenJPH does not find:
    samples outside of the code-block. So sub-bands must have even edges.

    Parameters:
        header: The main header.
        rect: The tile, on the reference grid.
        data: Bytes that contain the tile-parts.
        parts: The tile-parts; none if there are no headers besides the main one.
    """
    siz, style = header.siz, header.cod.style
    first = siz.components[0]
    return (
        style.is_ht
        and style.transform == 1
        and header.cod.layers == 1
        and header.markers <= PLAIN
        and siz.is_uniform
        and first.dx == first.dy == 1
        and first.depth <= SHALLOW
        and not any(edge % (2 << style.levels) for edge in (rect.x0, rect.y0, rect.x1, rect.y1))
        # of all tiles, if it is a whole stream
        and not (
            rect == siz.image
            and siz.tiles > 1
            and any(
                edge % (2 << style.levels)
                for edge in (siz.tile_x0, siz.tile_y0, siz.tile_width, siz.tile_height)
            )
        )
        and len(header.qcds) == 1
        and _planes(header.qcds[0]) <= MOST_PLANES
        and all(
            marker in (SOD, PLT, COM)
            for part in parts
            for marker, *_ in segments(data[part.offset :], SOT_BYTES, SOD)
        )
    )


def _planes(qcd: bytes) -> int:
    """Return the most bit-planes of a coefficient that is not quantised (T.800 E-2)."""
    return (qcd[0] >> 5) + max((step >> 3 for step in qcd[1:]), default=0) - 1


def _fits_16_bits(header: MainHeader) -> bool:
    """Return whether no coefficients, damaged ones included, give samples that exceed int16.

    A step of the inverse 5/3 transform (T.800 F.3.8.2.1) adds at most half of the high-pass to even
    samples, and at most the larger of these to odd ones: low + 1.5 high. Along both axes, that is
    LL + 1.5 HL + 1.5 LH + 2.25 HH, for each level.
    """
    qcd, levels = header.qcds[0], header.cod.style.levels
    if header.cod.is_transformed or len(qcd) != 3 * levels + 2:
        return False
    low, *others = (1 << max(0, (qcd[0] >> 5) + (step >> 3) - 1) for step in qcd[1:])
    largest = low + sum(1.5 * hl for hl in others) + sum(0.75 * hh for hh in others[2::3])
    return largest + ROUNDING < 1 << 15


def decode_shallow(stream: Sequence[Buffer], header: MainHeader, level: int, out: Array) -> None:
    """Decode a stream of up to 16 bits into `out`, shaped (components, y, x).

    Parameters:
        stream: The pieces of the stream; the first has the main header.
        header: The main header.
        level: Resolution level.
        out: Where samples are decoded to.

    Raises:
        ChunkDecodeError: OpenJPH does not decode it, or to another shape, or samples exceed their
            range; OpenJPEG may decode it.
    """
    component = header.siz.components[0]
    depth, dtype = (16, np.int16) if _fits_16_bits(header) else (CLAIMED, np.int32)
    shape = out.shape[1:] if len(out) == 1 else out.shape
    arrays = [np.frombuffer(piece, np.uint8) for piece in stream]
    with (
        borrowed_large("htj2k stream", sum(map(len, arrays))) as made,
        borrowed_large("htj2k", np.dtype(dtype).itemsize * out.size) as memory,
    ):
        np.concatenate(arrays, out=made)
        made[SSIZ : SSIZ + SSIZ_STEP * len(header.siz.components) : SSIZ_STEP] = 0x80 | depth - 1
        decoded = memory.view(dtype).reshape(shape)
        try:
            # refuses `out` if the stream has another shape
            imagecodecs.htj2k_decode(made, planar=True, skipres=level, out=decoded)
        except Exception as e:
            raise ChunkDecodeError(f"OpenJPH: {str(e) or type(e).__name__}") from e
        for plane, target in zip(decoded.reshape(out.shape), out, strict=True):
            _copy_checked(plane, target, component)


def _copy_checked(
    plane: npt.NDArray[np.int16 | np.int32], target: Array, component: Component
) -> None:
    """Copy samples that were decoded as signed ones, if all are in their range."""
    if loops is not None and target.flags.c_contiguous and target.dtype.isnative:
        is_good = loops.narrow_samples(plane, target, component.depth, component.is_signed)
    else:
        is_good = _narrow(plane, target, component.depth, is_signed=component.is_signed)
    if not is_good:
        raise ChunkDecodeError("OpenJPH: samples exceed their range")


def _narrow(
    plane: npt.NDArray[np.int16 | np.int32], target: Array, depth: int, *, is_signed: bool
) -> bool:
    """Do what `narrow_samples` does in C; `plane` is changed."""
    half = 1 << depth - 1
    unsigned = plane.view(f"u{plane.dtype.itemsize}")
    for y in range(0, len(plane), BLOCK_ROWS):
        rows = unsigned[y : y + BLOCK_ROWS]
        rows += half  # wraps around
        # from 0 to 2 * half - 1 if no other bit is set in any of them
        if int(np.bitwise_or.reduce(rows, axis=None)) >> depth:
            return False
        if is_signed:
            rows -= half
        target[y : y + BLOCK_ROWS] = rows.view(plane.dtype)
    return True
