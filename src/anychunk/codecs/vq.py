"""Vector-quantised blocks of NITF images (IC C4, M4).

Spec: MIL-STD-188-199 and MIL-STD-2411 (CADRG, CIB): a 12-bit code represents 4 x 4 pixels.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import Bytes1D
from anychunk.errors import ChunkDecodeError

KERNEL = 4
CODE_BITS = 12
TABLE_BYTES = KERNEL * (1 << CODE_BITS)
"""Bytes of one table: one row of four pixels per code."""


def code_bytes(height: int, width: int) -> int:
    """Return the number of bytes of a block's codes."""
    return (height // KERNEL) * (width // KERNEL) * CODE_BITS // 8


def decode(data: Bytes1D, height: int, width: int, *, where: str) -> npt.NDArray[Any]:
    """Return the pixels of a block, from the look-up tables of its image and its codes."""
    import imagecodecs

    expected = KERNEL * TABLE_BYTES + code_bytes(height, width)
    if len(data) != expected:
        raise ChunkDecodeError(f"{where}: {len(data)} bytes, expected {expected}")
    tables = data[: KERNEL * TABLE_BYTES].reshape(KERNEL, -1, KERNEL)
    codes = imagecodecs.packints_decode(data[KERNEL * TABLE_BYTES :], "u2", CODE_BITS)
    patches = np.ascontiguousarray(tables.transpose(1, 0, 2))[codes]
    grid = patches.reshape(height // KERNEL, width // KERNEL, KERNEL, KERNEL)
    return np.ascontiguousarray(grid.transpose(0, 2, 1, 3))
