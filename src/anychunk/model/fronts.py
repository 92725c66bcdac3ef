"""The fronts of chunks that are pieces of a compressed stream: which piece each of them is.

The chunk table gives every such chunk the whole stream, after 64 inline bytes that say which of its
decoded bytes are the chunk. `anychunk.piece` decodes what begins with a front.
"""

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from anychunk.errors import ChunkDecodeError

FRONT = struct.Struct("<B7xQQQQ24x")
DECODED, WHOLE = 0, 1


class Front(NamedTuple):
    """The inline bytes in front of a chunk."""

    kind: int
    """`DECODED` or `WHOLE`: what follows."""
    start: int
    """The decoded bytes of the stream that precede the piece."""
    nbytes: int
    """The length of the piece."""
    size: int
    """The length of the chunk: the piece is padded to it."""
    stop: int
    """Where the last piece of the stream ends, in decoded bytes."""

    def pack(self) -> bytes:
        return FRONT.pack(*self)


def read_front(data: bytes | npt.NDArray[np.uint8]) -> Front:
    """Return the front of a chunk, checked."""
    if len(data) < FRONT.size:
        raise ChunkDecodeError(f"anychunk.piece: {len(data)} bytes, expected a front of 64")
    front = Front(*FRONT.unpack(bytes(data[: FRONT.size])))
    if (
        front.kind not in (DECODED, WHOLE)
        or front.nbytes > front.size
        or front.start + front.nbytes > front.stop
    ):
        raise ChunkDecodeError(f"anychunk.piece: the front is damaged: {front}")
    return front
