"""Boxes of decoded pixels, and errors that name the chunk they come from."""

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychunk.decode.boxes import ArrayReader, array_spec, located
from anychunk.decode.chunks import ChunkReader
from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    FormatError,
    InternalError,
    SourceError,
    TruncatedError,
)
from anychunk.io.open_sources import Sources
from anychunk.model.index import INLINE, ArrayIndex, ByteRanges

VALUES = np.arange(7 * 9, dtype="<u2").reshape(7, 9)
CHUNK = (3, 4)
ABSENT = (1, 1)
FILL = 777


def where():
    return "a.tif 0/0 chunk (1, 2)"


@pytest.mark.parametrize("kind", [FormatError, TruncatedError, SourceError, ChunkDecodeError])
@pytest.mark.parametrize("is_decoding", [True, False])
def test_our_errors_get_the_address_and_keep_their_class(kind, is_decoding):
    with pytest.raises(AnychunkError) as caught, located(where, is_decoding=is_decoding):
        raise kind("stream ends after 7 bytes")
    assert type(caught.value) is kind
    assert str(caught.value) == "a.tif 0/0 chunk (1, 2): stream ends after 7 bytes"
    assert isinstance(caught.value.__cause__, kind)


def test_the_address_is_given_once():
    with pytest.raises(FormatError) as caught, located(where), located(where):
        raise FormatError("bad marker")
    assert str(caught.value).count(where()) == 1


@pytest.mark.parametrize("error", [zlib.error("incorrect header check"), RuntimeError("libtiff")])
def test_errors_of_decoders_are_the_data_s_fault(error):
    with pytest.raises(ChunkDecodeError) as caught, located(where):
        # a library raises it: the innermost frame is not ours
        exec("raise error", {"__name__": "imagecodecs", "error": error})
    assert str(caught.value) == f"{where()}: {error}"
    assert caught.value.__cause__ is error


def test_an_error_without_a_message_is_named():
    with pytest.raises(ChunkDecodeError, match="OverflowError"), located(where):
        exec("raise OverflowError", {"__name__": "imagecodecs"})


@pytest.mark.defect
def test_a_defect_of_ours_is_not_blamed_on_the_data():
    with pytest.raises(InternalError) as caught, located(where):
        exec("{}['missing']", {"__name__": "anychunk.codecs.some"})
    assert where() in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [FileNotFoundError("a.tif"), ValueError("foreign")])
def test_foreign_errors_while_fetching_stay_as_they_are(error):
    with pytest.raises(type(error)) as caught, located(where, is_decoding=False):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, SystemExit])
def test_what_is_not_the_data_s_fault_passes(kind):
    error = kind()
    with pytest.raises(kind) as caught, located(where):
        raise error
    assert caught.value is error


def test_the_address_is_computed_only_for_a_failure():
    def never():
        raise AssertionError

    with located(never):
        pass


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
    return ArrayReader(ChunkReader(array, Sources({}), where="a.dat 0/0"))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_boxes_are_those_of_numpy(data):
    start = tuple(data.draw(st.integers(0, n)) for n in VALUES.shape)
    stop = tuple(data.draw(st.integers(a, n)) for a, n in zip(start, VALUES.shape, strict=True))
    found = opened(index()).read(start, stop)
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, EXPECTED[start[0] : stop[0], start[1] : stop[1]])


def test_whole_chunks():
    reader = opened(index())
    assert (reader.chunk(4) == FILL).all()
    # a chunk at the edge keeps its padding
    assert reader.chunk(2).shape == CHUNK
    np.testing.assert_array_equal(reader.chunk(2)[:, :1], VALUES[:3, 8:])


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
        reader.read((0, 0), VALUES.shape)
    # the others are still read
    np.testing.assert_array_equal(reader.read((0, 0), (7, 4)), EXPECTED[:, :4])


def test_array_spec():
    spec = array_spec(index(data_type="float32", fill_value="NaN"))
    assert (spec.shape, spec.dtype) == (CHUNK, np.float32)
    assert np.isnan(spec.fill_value)
