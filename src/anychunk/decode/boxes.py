"""Boxes of decoded pixels, read from the chunks of one stored array, with errors located.

Reads without zarr's machinery and without starting threads, so that callers can run it on theirs.
`located` is the only place that adds the address of a chunk to an error.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import codecs
from anychunk.codecs import data_types
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.chain import Decoder
from anychunk.decode.chunks import ChunkReader, Reading
from anychunk.errors import AnychunkError, ChunkDecodeError, defect, is_defect, untrusted
from anychunk.model.grid import Shape, cut_box
from anychunk.model.index import ArrayIndex

type Array = npt.NDArray[Any]


def array_spec(index: ArrayIndex) -> ChunkSpec:
    """Return what a chunk of an array is."""
    kind = index.data_type
    with untrusted("data type or fill value"):
        dtype, fill = data_types.native(kind), data_types.scalar(kind, index.fill_value)
    return ChunkSpec(index.chunk_shape, dtype, fill, None if dtype.name == kind else kind)


class located:  # noqa: N801 - used as a function: `with located(where):`
    """Prefix every error that is raised while a chunk is decoded with the chunk's address.

    A class rather than a generator: it is entered once per chunk.
    """

    __slots__ = ("_is_decoding", "_where")

    def __init__(self, where: Callable[[], str], *, is_decoding: bool = True) -> None:
        """Prepare to prefix the errors of a `with` block.

        Parameters:
            where: Names the chunk; called only when something has failed.
            is_decoding: Whether a foreign exception comes from a decoder and means bad data. Where
                bytes are only fetched, it passes unchanged: `FileNotFoundError` keeps its meaning.
        """
        self._where, self._is_decoding = where, is_decoding

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            raise_located(error, self._where, is_decoding=self._is_decoding)


def raise_located(error: Exception, where: Callable[[], str], *, is_decoding: bool = True) -> None:
    """Raise an error with the address of its chunk; return if it is to be raised as it is.

    For loops over very many chunks, in which entering `located` for each would cost too much.
    """
    is_ours = isinstance(error, AnychunkError)
    if isinstance(error, MemoryError) or not (is_ours or is_decoding):
        return
    place, text = where(), str(error)
    if not is_ours and is_defect(error):
        raise defect(error, place) from error
    if not is_ours:
        raise ChunkDecodeError(f"{place}: {text or type(error).__name__}") from error
    if not text.startswith(place):
        raise type(error)(f"{place}: {text}") from error


class ArrayReader:
    """Reads chunks and boxes of one stored array."""

    def __init__(self, reader: ChunkReader) -> None:
        self.reader = reader
        self.index = reader.index
        self.spec = array_spec(reader.index)
        self.dtype = self.spec.dtype
        self._decode = Decoder(
            [codecs.from_json(c) for c in reader.index.codecs],
            self.spec,
            is_range=reader.has_ranges,
        )

    def chunk(self, number: int, reading: Reading | None = None) -> Array:
        """Decode one whole chunk; return fill values if it is absent."""
        stored = (reading or self.reader.begin()).read(number)
        if stored is None:
            return np.full(self.index.chunk_shape, self.spec.fill_value, self.dtype)
        with located(lambda: self.reader.describe(number)):
            return self._decode.at(number, self.reader.grid)(stored)

    def read(self, start: Shape, stop: Shape) -> Array:
        """Read the box from `start` to `stop`."""
        out = np.empty([b - a for a, b in zip(start, stop, strict=True)], self.dtype)
        index, reading = self.index, self.reader.begin()
        for coords, piece in cut_box(start, stop, chunk_shape=index.chunk_shape, shape=index.shape):
            out[piece.target] = self.chunk(self.reader.number(coords), reading)[piece.source]
        return out
