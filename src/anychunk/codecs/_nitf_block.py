"""Shared by the codecs of NITF blocks: checks of their configuration, and the decoded block."""

import math
from typing import Any

import numpy as np

from anychunk import limits
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.errors import ChunkDecodeError, CodecConfigError


def check_positive(codec: BytesToBytes, *keys: str) -> None:
    """Raise `CodecConfigError` if one of these fields is not a positive integer."""
    for key in keys:
        value = getattr(codec, key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CodecConfigError(f"{codec.name}: {key} is {value!r}, expected a positive integer")


def block_buffer(
    shape: tuple[int, int, int],
    dtype: np.dtype[Any],
    *,
    where: str,
    stored: int,
    spec: ChunkSpec | None,
    out: Bytes1D | None,
) -> Bytes1D:
    """Return the buffer to decode a block into: `out` if it fits.

    Parameters:
        shape: (bands, height, width) of the block.
        dtype: Its data type.
        where: Names the codec in messages.
        stored: The number of stored bytes.
        spec: The chunk, which must have the same number of bytes; None if it is not known.
        out: A buffer provided by the caller, or None.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if spec is not None and spec.nbytes != nbytes:
        raise ChunkDecodeError(
            f"{where}: a block of shape {shape} and type {dtype} has {nbytes} bytes, "
            f"expected {spec.nbytes} for the chunk"
        )
    limits.check_chunk(nbytes, where=where, stored=stored)
    return np.empty(nbytes, np.uint8) if out is None or len(out) != nbytes else out
