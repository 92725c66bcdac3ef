"""OpenJPH as a decoder: HTJ2K samples that are too deep for OpenJPEG.

OpenJPEG refuses code-blocks of more than 30 bit-planes, which samples of as few as 28 bits can
have. OpenJPH decodes up to 64. imagecodecs does not clip its results, so they are clipped here.
That needs a spare bit: only reversible streams of at most 31 bits are decoded.
"""

from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.codestream.jpeg2000 import MainHeader
from anychunk.errors import ChunkDecodeError

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
