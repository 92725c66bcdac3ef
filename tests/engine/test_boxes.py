"""Boxes of one array, read by the engine of its chunks."""

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychunk.codecs.chain import spec_of
from anychunk.decode.chunks import ChunkReader
from anychunk.engine.run import engine_of
from anychunk.errors import ChunkDecodeError
from anychunk.io.open_sources import Sources
from anychunk.model.index import INLINE, ArrayIndex, ByteRanges

VALUES = np.arange(7 * 9, dtype="<u2").reshape(7, 9)
CHUNK = (3, 4)
ABSENT = (1, 1)
FILL = 777


def index(**more):
    """Return an array with one absent chunk, its bytes inside the index."""
    data, offsets, lengths = b"", np.zeros((3, 3), np.uint64), np.zeros((3, 3), np.uint64)
    for coords in np.ndindex(3, 3):
        if coords == ABSENT:
            continue
        chunk = np.zeros(CHUNK, "<u2")
        part = VALUES[tuple(slice(c * n, (c + 1) * n) for c, n in zip(coords, CHUNK, strict=True))]
        chunk[: part.shape[0], : part.shape[1]] = part
        stored = zlib.compress(chunk.tobytes())
        offsets[coords], lengths[coords] = len(data), len(stored)
        data += stored
    given = {
        "shape": VALUES.shape,
        "chunk_shape": CHUNK,
        "data_type": "uint16",
        "codecs": (
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "numcodecs.zlib", "configuration": {}},
        ),
        "chunks": ByteRanges(offsets=offsets, lengths=lengths, urls=(INLINE,), inline=data),
        "fill_value": FILL,
        "dimension_names": ("y", "x"),
    }
    return ArrayIndex(**(given | more))


EXPECTED = VALUES.copy()
EXPECTED[3:6, 4:8] = FILL


def opened(array):
    return engine_of(ChunkReader(array, Sources({}), where="a.dat 0/0"))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_boxes_are_those_of_numpy(data):
    start = tuple(data.draw(st.integers(0, n)) for n in VALUES.shape)
    stop = tuple(data.draw(st.integers(a, n)) for a, n in zip(start, VALUES.shape, strict=True))
    found = opened(index()).box(list(zip(start, stop, strict=True)))
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, EXPECTED[start[0] : stop[0], start[1] : stop[1]])


def test_a_chunk_that_does_not_decode_is_named():
    array = index()
    broken = bytearray(array.chunks.inline)
    offset, length = (int(table[0, 1]) for table in (array.chunks.offsets, array.chunks.lengths))
    broken[offset : offset + 4] = b"\xff\xff\xff\xff"
    chunks = ByteRanges(
        offsets=array.chunks.offsets,
        lengths=array.chunks.lengths,
        urls=(INLINE,),
        inline=bytes(broken),
    )
    reader = opened(index(chunks=chunks))
    place = rf"a\.dat 0/0 chunk \(0, 1\), bytes {offset}\.\.{offset + length}"
    with pytest.raises(ChunkDecodeError, match=place):
        reader.box([(0, 7), (0, 9)])
    # the others are still read
    np.testing.assert_array_equal(reader.box([(0, 7), (0, 4)]), EXPECTED[:, :4])


def test_spec():
    spec = spec_of(index(data_type="float32", fill_value="NaN"))
    assert (spec.shape, spec.dtype.to_native_dtype()) == (CHUNK, np.float32)
    assert np.isnan(spec.fill_value)
