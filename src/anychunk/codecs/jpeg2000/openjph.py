"""OpenJPH as a decoder of reversible HTJ2K: three times as fast as OpenJPEG, or deeper.

imagecodecs does not clip what OpenJPH decodes, but casts it to the type of the samples. Values
outside of their range, which streams that were cut to a rate have, would become others.

- Samples of up to 16 bits (`is_faster`): the stream is decoded as one of signed samples of 24 bits,
  by changing SIZ. In a reversible stream, that changes nothing but the shift of unsigned samples,
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
    segments,
)
from anychunk.errors import ChunkDecodeError
from anychunk.io.buffers import borrowed, one_piece

type Array = npt.NDArray[Any]

SHALLOW = 16
"""The largest depth in bits of samples that are decoded as deeper ones."""
CLAIMED = 24
"""The depth that these are decoded as."""
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
    stream: bytes | bytearray, header: MainHeader, level: int, shape: tuple[int, int, int]
) -> npt.NDArray[Any]:
    """Decode components of one depth, sign and size to (components, y, x), which is `shape`."""
    component = header.siz.components[0]
    try:
        decoded = imagecodecs.htj2k_decode(bytes(stream), planar=True, skipres=level)
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
    made = one_piece(stream)
    made[SSIZ : SSIZ + SSIZ_STEP * len(header.siz.components) : SSIZ_STEP] = 0x80 | CLAIMED - 1
    shape = out.shape[1:] if len(out) == 1 else out.shape
    with borrowed("htj2k", 4 * out.size) as memory:
        decoded = memory.view(np.int32).reshape(shape)
        try:
            # refuses `out` if the stream has another shape
            imagecodecs.htj2k_decode(made, planar=True, skipres=level, out=decoded)
        except Exception as e:
            raise ChunkDecodeError(f"OpenJPH: {str(e) or type(e).__name__}") from e
        for plane, target in zip(decoded.reshape(out.shape), out, strict=True):
            _copy_checked(plane, target, component)


def _copy_checked(plane: npt.NDArray[np.int32], target: Array, component: Component) -> None:
    """Copy samples that were decoded as signed ones, if all are in their range."""
    half = 1 << component.depth - 1
    for y in range(0, len(plane), BLOCK_ROWS):
        rows = plane[y : y + BLOCK_ROWS]
        rows += half
        # from 0 to 2 * half - 1 if no other bit is set in any of them
        if np.bitwise_or.reduce(rows, axis=None) & -2 * half:
            raise ChunkDecodeError("OpenJPH: samples exceed their range")
        if component.is_signed:
            rows -= half
        target[y : y + BLOCK_ROWS] = rows
