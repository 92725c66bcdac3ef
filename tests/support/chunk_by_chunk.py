"""Boxes of an array from the bytes of whole chunks, decoded by its codecs alone: no engine."""

import numpy as np

from anychunk import codecs
from anychunk.codecs.chain import Decoder, spec_of
from anychunk.decode.chunks import ChunkReader
from anychunk.io.open_sources import Sources
from anychunk.model.grid import chunk_number, cut_box


def read_box(array, start, stop, sources=None):
    """Return the box from `start` to `stop`, and the reader of the chunks."""
    reader = ChunkReader(array, sources or Sources({}), where="a")
    spec = spec_of(array)
    chain = [codecs.from_json(codec) for codec in array.codecs]
    decode = Decoder(chain, spec, is_range=reader.has_ranges)
    out = np.empty([b - a for a, b in zip(start, stop, strict=True)], decode.dtype)
    for coords, piece in cut_box(start, stop, chunk_shape=array.chunk_shape, shape=array.shape):
        number = chunk_number(coords, array.grid)
        chunk = decode.at(number, array.grid)(reader.read(number))
        out[piece.target] = chunk[piece.source]
    return out, reader
