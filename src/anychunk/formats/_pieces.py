"""Long compressed streams as chunks: pieces along the slowest axes.

NRRD, NPY and NIfTI volumes and strips of TIFF may be one compressed stream. It is cut into chunks
here, without reading any of it: the piece of a chunk follows from the shape. How pieces are read is
described in `anychunk.decode.pieces`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.formats._raw import RawChunks, bytes_codec, chunk_ranges
from anychunk.model.fronts import WHOLE, Front
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.index import PIECE, ByteRanges, Json

LEAST = 2 * limits.MIB
"""The least decoded length of a piece: each costs a state, or a seek point with its window."""
LEAST_SHARE, MOST_SHARE = 1 / 16, 64 * limits.MIB
"""The least part of a stream that a piece of bzip2 is, and the most that this asks for. In a saved
index each is decoded from the start of the stream, so 16 pieces decode 8.5 times as many bytes."""
MOST_PIECES = 1 << 18
"""Of one stream of 512 GiB or more: each takes some 300 bytes before anything is read."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamChunks:
    """How one stream is cut."""

    chunk_shape: Shape
    fronts: tuple[bytes, ...]
    front_ids: npt.NDArray[Any]
    """The front of each chunk, shaped like the chunk grid."""


def codec(compression: str) -> Json:
    """Return the JSON of the `anychunk.piece` codec."""
    return {"name": PIECE, "configuration": {"compression": compression}}


def _piece_shape(shape: Shape, itemsize: int, *, is_even: bool, is_bzip2: bool) -> Shape | None:
    """Return the shape of pieces of at least `LEAST` bytes; None if the array is too small to cut.

    `shape` is in the order in which the array is stored; the other parameters are those of `cut`.
    """
    nbytes, least = math.prod(shape) * itemsize, LEAST
    if nbytes < 2 * least:
        return None
    if is_bzip2:
        least = max(least, min(int(nbytes * LEAST_SHARE), MOST_SHARE))
    chunk = list(shape)
    for axis, size in enumerate(shape):
        inner = math.prod(shape[axis + 1 :]) * itemsize
        count = -(-least // inner)
        if inner < 2 * least or axis == len(shape) - 1:
            even = next((n for n in range(count, min(2 * count, size + 1)) if size % n == 0), 0)
            if is_even and not even:
                return None
            chunk[axis] = even or min(count, size)
            break
        chunk[axis] = 1
    return tuple(chunk)


def cut(
    shape: Shape,
    itemsize: int,
    *,
    skip: int = 0,
    is_even: bool = False,
    is_bzip2: bool = False,
) -> StreamChunks | None:
    """Cut a stream that holds an array in C order; None if it is too short or too long for that.

    Parameters:
        shape: The shape of the array.
        itemsize: Bytes per sample.
        skip: How many decoded bytes precede the samples.
        is_even: Whether the pieces must divide the array evenly.
        is_bzip2: Whether pieces must also be a `LEAST_SHARE` of the stream.
    """
    chunk = _piece_shape(shape, itemsize, is_even=is_even, is_bzip2=is_bzip2)
    if chunk is None or 0 in shape or math.prod(grid_shape(shape, chunk)) > MOST_PIECES:
        return None
    starts, lengths = chunk_ranges(shape, chunk, itemsize, skip)
    size, stop = math.prod(chunk) * itemsize, skip + math.prod(shape) * itemsize
    fronts = tuple(
        Front(WHOLE, start, length, size, stop).pack()
        for start, length in zip(starts.ravel().tolist(), lengths.ravel().tolist(), strict=True)
    )
    ids = np.arange(len(fronts), dtype=np.uint32).reshape(grid_shape(shape, chunk))
    return StreamChunks(chunk_shape=chunk, fronts=fronts, front_ids=ids)


def compressed(
    shape: Shape,
    itemsize: int,
    *,
    endian: str,
    url: str,
    length: int,
    skip: int,
    is_fortran: bool = False,
) -> RawChunks:
    """Return the chunks of an array that a whole gzip file holds, after `skip` decoded bytes.

    Parameters:
        shape: The shape of the array, as Zarr shows it.
        itemsize: Bytes per sample.
        endian: The byte order of the samples, "little" or "big".
        url: The file.
        length: Its length.
        skip: How many decoded bytes precede the samples.
        is_fortran: Whether the first axis is the fastest.
    """
    limits.check_stream(math.prod(shape) * itemsize, where=url, stored=length)
    stored = shape[::-1] if is_fortran else shape
    pieces = cut(stored, itemsize, skip=skip)
    if pieces is None:
        chunk: Shape = tuple(max(n, 1) for n in stored)
        configuration = {"compression": "gzip", "leading": True, "skip": skip}
        outer: Json = {"name": "anychunk.stream", "configuration": configuration}
        fronts: dict[str, Any] = {}
    else:
        chunk, outer = pieces.chunk_shape, codec("gzip")
        ids = pieces.front_ids.T if is_fortran else pieces.front_ids
        fronts = {"fronts": pieces.fronts, "front_ids": np.ascontiguousarray(ids)}
    codecs: tuple[Json, ...] = (bytes_codec(itemsize, endian), outer)
    if is_fortran and len(shape) > 1:
        order = list(range(len(shape)))[::-1]
        codecs = ({"name": "transpose", "configuration": {"order": order}}, *codecs)
    chunk = chunk[::-1] if is_fortran else chunk
    grid = grid_shape(shape, chunk)
    chunks = ByteRanges(
        offsets=np.zeros(grid, np.uint64),
        lengths=np.full(grid, length, np.uint64),
        urls=(url,),
        **fronts,
    )
    return RawChunks(chunk_shape=chunk, codecs=codecs, chunks=chunks)
