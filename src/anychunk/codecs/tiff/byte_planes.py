"""Rows of byte planes, most significant first, put together to little-endian numbers.

What remains of the floating point predictor after its sums. numpy takes a pass a plane over wide
words; Blosc has vector code that does all at once, as "unshuffling", which no binding offers alone.
So the planes are put into a Blosc chunk of stored blocks, one a row, and the chunk is decoded.

Spec: Blosc 1 chunk format, https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst
"""

import struct

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.io.buffers import borrowed

type Bytes = npt.NDArray[np.uint8]

HEADER, START, LENGTH = 16, 4, 4
SHUFFLED, UNSPLIT = 0x01, 0x10
MOST = 1 << 30
"""Blosc counts in 32 bits with a sign."""


def joined(planes: Bytes, out: Bytes) -> None:
    """Put (rows, size, run) into `out`, rows of `run` numbers of `size` bytes."""
    rows, size, run = planes.shape
    block = size * run
    head = HEADER + rows * START
    total = head + rows * (LENGTH + block)
    if not 0 < total < MOST:
        out.reshape(rows, run, size)[...] = planes[:, ::-1].transpose(0, 2, 1)
        return
    with borrowed("planes", total) as chunk:
        chunk[:HEADER] = np.frombuffer(
            struct.pack("<4B3I", 2, 1, SHUFFLED | UNSPLIT, size, rows * block, block, total),
            np.uint8,
        )
        starts = head + (LENGTH + block) * np.arange(rows, dtype="<u4")
        chunk[HEADER:head] = starts.view(np.uint8)
        blocks = chunk[head:].reshape(rows, LENGTH + block)
        blocks[:, :LENGTH] = np.frombuffer(struct.pack("<I", block), np.uint8)
        blocks[:, LENGTH:].reshape(rows, size, run)[...] = planes[:, ::-1]
        imagecodecs.blosc_decode(chunk, numthreads=1, out=out)
