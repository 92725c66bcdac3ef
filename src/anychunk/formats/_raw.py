"""Raw samples as chunks: uncompressed arrays that a file stores in one piece.

NPY, NRRD and large uncompressed NITF blocks are not divided into chunks, so chunks are cut
from them here. Everything is a pure function of shapes and offsets; no sample is read.

A chunk must be one contiguous byte range of the file. In C order this means that a chunk has
one element along the axes before the axis that is cut, and all elements along the axes after it. So
at most one axis is cut into pieces of several elements, and only along that axis can the last chunk
be short. The file has no padding for a short chunk, but Zarr passes the full chunk shape to every
codec. The `anychunk.window` codec resolves this: inline front bytes state the actual shape.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from anychunk.codecs.window import Window
from anychunk.codecs.window import front as window_front
from anychunk.errors import FormatError, TruncatedError
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.index import ByteRanges, Json

MOST_BYTES = 1 << 63
"""The largest possible file: offsets of the operating system are signed 64-bit integers."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RawChunks:
    """The fields of an `ArrayIndex` that describe how raw samples are stored."""

    chunk_shape: Shape
    codecs: tuple[Json, ...]
    chunks: ByteRanges


def check_extent(shape: Shape, itemsize: int, *, offset: int, size: int, where: str) -> None:
    """Refuse an array that does not fit into its file. Call it before anything is allocated.

    Parameters:
        shape: The shape that the header announces; a size may be 0.
        itemsize: Bytes per sample.
        offset: Where the samples begin.
        size: The length of the file.
        where: Names the file in the message.

    Raises:
        TruncatedError: The samples reach beyond the end of the file.
        FormatError: The array is empty, but the product of its other sizes exceeds 64 bits.
    """
    needed = offset + math.prod(shape) * itemsize
    if needed > size:
        raise TruncatedError(
            f"{where}: shape {shape} with {itemsize} bytes per sample needs {needed} bytes, "
            f"the file has {size}"
        )
    # an empty array passes the check above whatever its other sizes are, and numpy multiplies
    # those without regard to the 0
    if math.prod(max(n, 1) for n in shape) * itemsize >= MOST_BYTES:
        raise FormatError(f"{where}: shape {shape} is too large for 64-bit offsets")


def even_divisor(size: int, most: int, is_allowed: Callable[[int], bool] | None = None) -> int:
    """Return the largest divisor of `size` from `most` down to a quarter of it, or 0.

    Chunks of such a length are all full, so standard Zarr codecs describe them and any Zarr reader
    opens the exported index. Smaller divisors are not worth it: there would be too many chunks.
    """
    least = most // 4 + 1
    # a divisor and its quotient come in pairs: search the shorter of the two ranges, since a
    # one-dimensional array of bytes has millions of candidates
    if size < most * most:
        quotients = range(-(-size // most), size // least + 1)
        found = (size // q for q in quotients if size % q == 0)
    else:
        found = (n for n in range(most, least - 1, -1) if size % n == 0)
    return next((n for n in found if is_allowed is None or is_allowed(n)), 0)


def contiguous_chunk(shape: Shape, itemsize: int, chunk_bytes: int) -> Shape:
    """Return a chunk shape of at most about `chunk_bytes` that is contiguous in C order."""
    chunk = [max(n, 1) for n in shape]
    for axis, size in enumerate(chunk):
        inner = math.prod(chunk[axis + 1 :]) * itemsize
        if inner * size <= chunk_bytes:
            break
        most = max(1, chunk_bytes // inner)
        chunk[axis] = even_divisor(size, most) or most
        if most > 1:
            break
    return tuple(chunk)


def bytes_codec(itemsize: int, endian: str) -> Json:
    """Return the JSON of the `bytes` codec; single bytes have no byte order."""
    if itemsize == 1:
        return {"name": "bytes"}
    return {"name": "bytes", "configuration": {"endian": endian}}


def window_codec(inner: tuple[Json, ...]) -> Json:
    """Return the JSON of the `anychunk.window` codec around `inner`."""
    return {"name": Window.name, "configuration": {"codecs": list(inner)}}


def short_fronts(full: Shape, short: Shape, is_short: npt.NDArray[Any]) -> dict[str, Any]:
    """Return the fields of `ByteRanges` with the headers of `anychunk.window` for short chunks.

    Parameters:
        full: The shape of a full chunk, in the order in which it is stored.
        short: The shape of a short chunk, in the same order.
        is_short: For each chunk of the grid, whether it is short.
    """
    fronts = (window_front(full), window_front(short))
    return {"fronts": fronts, "front_ids": is_short.astype(np.uint8)}


def cut(
    shape: Shape,
    itemsize: int,
    *,
    endian: str,
    url: str,
    offset: int,
    chunk_bytes: int,
    is_fortran: bool = False,
) -> RawChunks:
    """Cut an array of raw samples into chunks that are byte ranges of the file.

    The extent must have been checked (`check_extent`).

    Parameters:
        shape: The shape of the array, as Zarr shows it.
        itemsize: Bytes per sample.
        endian: The byte order of the samples, "little" or "big".
        url: The object that holds the samples.
        offset: Where they begin in it.
        chunk_bytes: The desired length of a chunk.
        is_fortran: Whether the first axis is the fastest, as numpy's `order="F"`.
    """
    # in Fortran order the file holds the transposed array in C order
    stored = shape[::-1] if is_fortran else shape
    chunk = contiguous_chunk(stored, itemsize, chunk_bytes)
    offsets, lengths = chunk_ranges(stored, chunk, itemsize, offset)
    codecs: tuple[Json, ...] = (bytes_codec(itemsize, endian),)
    fronts: dict[str, Any] = {}
    short = [axis for axis, (n, step) in enumerate(zip(stored, chunk, strict=True)) if n % step]
    if short and offsets.size:
        axis = short[0]
        rest = (*chunk[:axis], stored[axis] % chunk[axis], *chunk[axis + 1 :])
        is_last = np.zeros(offsets.shape, np.uint8)
        is_last[(slice(None),) * axis + (-1,)] = 1
        fronts = short_fronts(chunk, rest, is_last)
        codecs = (window_codec(codecs),)
    if is_fortran and len(shape) > 1:
        # the window sees the stored order, so `transpose` goes around it
        order = list(range(len(shape)))[::-1]
        codecs = ({"name": "transpose", "configuration": {"order": order}}, *codecs)
        chunk, offsets, lengths = chunk[::-1], _transposed(offsets), _transposed(lengths)
        if fronts:
            fronts["front_ids"] = _transposed(fronts["front_ids"])
    chunks = ByteRanges(offsets=offsets, lengths=lengths, urls=(url,), **fronts)
    return RawChunks(chunk_shape=chunk, codecs=codecs, chunks=chunks)


def chunk_ranges(
    shape: Shape, chunk: Shape, itemsize: int, offset: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return the offset and the length of every chunk, shaped like the chunk grid."""
    if 0 in shape:
        # no chunks, but the loop below would list positions along the other axes
        none = np.zeros(grid_shape(shape, chunk), np.uint64)
        return none, none
    nbytes = math.prod(shape) * itemsize
    if all(size <= step for size, step in zip(shape, chunk, strict=True)) and nbytes < 1 << 63:
        one = (1,) * len(shape)
        return np.full(one, offset, np.uint64), np.full(one, nbytes, np.uint64)
    offsets, lengths = np.array(offset, np.uint64), np.array(itemsize, np.uint64)
    for axis, (size, step) in enumerate(zip(shape, chunk, strict=True)):
        inner = math.prod(shape[axis + 1 :]) * itemsize
        at = np.arange(0, size, step, dtype=np.uint64)
        offsets = np.add.outer(offsets, at * np.uint64(inner))
        lengths = np.multiply.outer(lengths, np.minimum(np.uint64(step), np.uint64(size) - at))
    return offsets, lengths


def _transposed[T: np.generic](table: npt.NDArray[T]) -> npt.NDArray[T]:
    return np.ascontiguousarray(table.T)


# What a writer remembers, so that an interrupted conversion can be resumed.


class Checkpoints(Protocol):
    """The parts of a target that are complete. A writer that takes `checkpoints` is resumable.

    A part may be damaged after it was recorded, so a writer skips it only if the stored bytes still
    have the recorded checksum. Methods may be called from any thread.
    """

    @property
    def done(self) -> Mapping[str, int]:
        """The CRC-32 of each part that an earlier attempt completed, by name."""
        ...

    def add(self, name: str, checksum: int) -> None:
        """Record a part that was written."""
        ...

    def skip(self, nbytes: int) -> None:
        """Count a part that need not be written, with its decoded size."""
        ...
