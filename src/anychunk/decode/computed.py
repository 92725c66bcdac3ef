"""Chunks that are not stored: computed from another array of the same index.

`Region` reads boxes of a stored array without zarr's machinery and without its threads, so that it
can run inside them.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.dtype import get_data_type_from_json

from anychunk import codecs, limits
from anychunk import resample as ds
from anychunk.codecs.chain import Decoder
from anychunk.decode.chunks import ChunkReader, located
from anychunk.errors import AnychunkError, ChunkDecodeError, FormatError, LimitError
from anychunk.model.index import ArrayIndex, Computed, Json, Shape

type Array = npt.NDArray[Any]
type Read = Callable[[Shape, Shape], Array]

PIECE_BYTES = 64 * limits.MIB
"""About how much of the source is in memory at a time."""


def array_spec(index: ArrayIndex) -> ArraySpec:
    """Give zarr's view of one chunk of an array."""
    dtype = get_data_type_from_json(index.data_type, zarr_format=3)
    return ArraySpec(
        shape=index.chunk_shape,
        dtype=dtype,
        fill_value=dtype.from_json_scalar(index.fill_value, zarr_format=3),
        config=ArrayConfig.from_dict({}),
        prototype=default_buffer_prototype(),
    )


class Region:
    """Reads boxes of one stored array."""

    def __init__(self, reader: ChunkReader) -> None:
        self.reader = reader
        self.index = reader.index
        self.spec = array_spec(reader.index)
        self.dtype = self.spec.dtype.to_native_dtype()
        self._decode = Decoder([codecs.from_json(c) for c in reader.index.codecs], self.spec)

    def chunk(self, number: int) -> Array:
        """Decode one whole chunk; fill where it is absent."""
        stored = self.reader.read(number)
        if stored is None:
            return np.full(self.index.chunk_shape, self.spec.fill_value, self.dtype)
        where = self.reader.describe(number)
        try:
            return self._decode(stored)
        except AnychunkError as e:
            raise located(e, where) from e
        except MemoryError:
            raise
        except Exception as e:
            raise ChunkDecodeError(f"{where}: {e or type(e).__name__}") from e

    def read(self, start: Shape, stop: Shape) -> Array:
        """Read the box from `start` to `stop`."""
        chunk_shape = self.index.chunk_shape
        out = np.empty([b - a for a, b in zip(start, stop, strict=True)], self.dtype)
        ranges = [
            range(a // n, -(-b // n)) for a, b, n in zip(start, stop, chunk_shape, strict=True)
        ]
        for coords in itertools.product(*ranges):
            chunk = self.chunk(self.reader.number(coords))
            origin = [c * n for c, n in zip(coords, chunk_shape, strict=True)]
            low = [max(a, o) for a, o in zip(start, origin, strict=True)]
            high = [min(b, o + n) for b, o, n in zip(stop, origin, chunk_shape, strict=True)]
            target = tuple(slice(p - a, q - a) for p, q, a in zip(low, high, start, strict=True))
            source = tuple(slice(p - o, q - o) for p, q, o in zip(low, high, origin, strict=True))
            out[target] = chunk[source]
        return out


def shrink(
    read: Read, *, start: Shape, stop: Shape, ratio: Shape, shape: Shape, method: str, itemsize: int
) -> Array:
    """Make outputs `start` to `stop` of a smaller array, reading its source in bounded pieces."""
    ratio = ds.clip_ratio(shape, ratio)
    ranges = [
        ds.source_range(a, b, ratio=r, size=n, method=method)
        for a, b, r, n in zip(start, stop, ratio, shape, strict=True)
    ]
    nbytes = math.prod(b - a for a, b in ranges) * itemsize
    lengths = [b - a for a, b in zip(start, stop, strict=True)]
    # a filter works on 64-bit floats
    cost = nbytes if method in ds.BY_WINDOW else nbytes * max(1, 8 // itemsize)
    if cost > PIECE_BYTES and max(lengths) > 1:
        axis = lengths.index(max(lengths))
        middle = start[axis] + lengths[axis] // 2

        def part(first: Shape, last: Shape) -> Array:
            return shrink(
                read,
                start=first,
                stop=last,
                ratio=ratio,
                shape=shape,
                method=method,
                itemsize=itemsize,
            )

        low = part(start, (*stop[:axis], middle, *stop[axis + 1 :]))
        high = part((*start[:axis], middle, *start[axis + 1 :]), stop)
        return np.concatenate([low, high], axis)
    limits.check_chunk(cost, where="downsample: the source of one element")
    at = tuple(a for a, _ in ranges)
    source = read(at, tuple(b for _, b in ranges))
    return ds.downsample_region(
        source, at=at, start=start, stop=stop, ratio=ratio, shape=shape, method=method
    )


def _downsample(array: ArrayIndex, coords: Shape, configuration: Json, source: Region) -> Array:
    """Compute one chunk of a smaller array; what lies beyond its edge is fill."""
    start = tuple(c * n for c, n in zip(coords, array.chunk_shape, strict=True))
    stop = tuple(
        min(a + n, size) for a, n, size in zip(start, array.chunk_shape, array.shape, strict=True)
    )
    made = shrink(
        source.read,
        start=start,
        stop=stop,
        ratio=tuple(configuration["ratio"]),
        shape=source.index.shape,
        method=configuration["method"],
        itemsize=source.dtype.itemsize,
    )
    if made.shape == array.chunk_shape:
        return made
    out = np.zeros(array.chunk_shape, made.dtype)
    out[tuple(slice(n) for n in made.shape)] = made
    return out


METHODS: dict[str, Callable[[ArrayIndex, Shape, Json, Region], Array]] = {"downsample": _downsample}


def compute_chunk(array: ArrayIndex, coords: Shape, source: Region) -> Array:
    """Compute the chunk of `array` at `coords` from the array that its index names."""
    chunks = array.chunks
    if not isinstance(chunks, Computed) or chunks.method not in METHODS:
        raise FormatError(f"index: chunks are computed by {getattr(chunks, 'method', None)!r}")
    nbytes = math.prod(array.chunk_shape) * source.dtype.itemsize
    if nbytes > limits.get().chunk_bytes:
        raise LimitError(f"index: a computed chunk of {nbytes} bytes is over the limit")
    return METHODS[chunks.method](array, coords, chunks.configuration, source)
