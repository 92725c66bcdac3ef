"""OpenJPH behind one function: HTJ2K samples that are too deep for OpenJPEG.

OpenJPEG refuses code-blocks of more than 30 bit-planes, which samples of 28 bits may have already.
OpenJPH has 64-bit ones. imagecodecs does not clip what it gives, so that is done here, which needs
a bit to spare: 31 bits at the most, and reversible streams only.
"""

from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.codestream.jpeg2000 import MainHeader
from anychunk.errors import ChunkDecodeError

DEEP = 28
"""Bits from which on OpenJPEG may have too few bit-planes."""


def is_deep(header: MainHeader) -> bool:
    """Whether a stream that OpenJPEG refuses is one for OpenJPH."""
    return (
        header.is_ht
        and header.is_reversible
        and header.siz.is_uniform
        and header.cod.layers == 1  # of more, packets are not walked, and damage is not found
        and DEEP <= header.siz.components[0].depth < 32
    )


def decode_deep(
    stream: bytes | bytearray, header: MainHeader, level: int, shape: tuple[int, int, int]
) -> npt.NDArray[Any]:
    """Decode components of one depth, sign and size; `shape` is what must come out."""
    component = header.siz.components[0]
    try:
        decoded = imagecodecs.htj2k_decode(bytes(stream), planar=True, skipres=level)
    except Exception as e:
        raise ChunkDecodeError(f"OpenJPH: {e or type(e).__name__}") from e
    if decoded.size != np.prod(shape) or decoded.dtype.itemsize != 4:
        raise ChunkDecodeError(f"OpenJPH: {decoded.shape} of {decoded.dtype}, expected {shape}")
    half = 1 << component.depth - 1
    low, high = (-half, half - 1) if component.is_signed else (0, 2 * half - 1)
    # what is darker than black is negative, cast
    clipped: npt.NDArray[Any] = decoded.reshape(shape).view(np.int32).clip(low, high)
    return clipped.astype(header.siz.dtype, copy=False)
