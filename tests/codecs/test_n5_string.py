import numpy as np
import pytest
import zarr

from anychunk.codecs import N5String
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.n5_block import VARLENGTH, read_header, write_header
from anychunk.codecs.n5_string import from_vlen
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, UnsupportedError

BYTES = {"name": "bytes"}
GZIP = {"name": "gzip", "configuration": {"level": 5}}
# N5 in Java: StringDataBlock of "alpha", "", "βγ", "d"
BLOCK = bytes.fromhex("0001 0001 00000004 0000000e 616c706861 00 00 ceb2ceb3 00 64 00")
WORDS = np.array([["a", "bc", ""], ["β", "x y", "end"]], np.dtypes.StringDType())


def spec(shape):
    return ChunkSpec(shape, np.dtype(object), "")


def buffer(data):
    return np.frombuffer(bytes(data), np.uint8)


def words(data):
    return [word.decode() for word in from_vlen(bytes(data))]


def test_the_block_of_java():
    codec = N5String(codecs=[BYTES])
    found = codec.decode_bytes(buffer(BLOCK), spec((4,)))
    assert words(found) == ["alpha", "", "βγ", "d"]
    assert bytes(codec.encode_bytes(buffer(found), spec((4,)))) == BLOCK


@pytest.mark.parametrize("inner", [[BYTES], [BYTES, GZIP]])
def test_round_trip_through_zarr(inner):
    store = {}
    array = zarr.create_array(
        store, shape=(2, 3), chunks=(2, 2), dtype=str, compressors=[N5String(codecs=inner)]
    )
    array[...] = WORDS
    assert read_header(buffer(store["c/0/0"].to_bytes())).mode == VARLENGTH
    assert (zarr.open_array(store, mode="r")[...] == WORDS).all()


def test_dimension_0_is_fastest_and_cropped_blocks_are_padded():
    text = b"".join(word.encode() + b"\0" for word in "abcdef")
    block = write_header((2, 3), mode=VARLENGTH, elements=len(text)) + text
    found = N5String(codecs=[BYTES]).decode_bytes(buffer(block), spec((2, 4)))
    assert words(found) == ["a", "c", "e", "", "b", "d", "f", ""]


def test_an_empty_block():
    found = N5String(codecs=[BYTES]).decode_bytes(buffer(b""), spec((3,)))
    assert words(found) == ["", "", ""]


@pytest.mark.parametrize(
    "block",
    [
        BLOCK[:-1],
        BLOCK[:6],
        BLOCK.replace(b"d\0", b"d\xff"),
        BLOCK.replace(b"a\0", b"ab"),
        BLOCK.replace(b"\xce\xb2", b"\xff\xff"),
        write_header((4,)) + bytes(4),
        write_header((9,), mode=VARLENGTH, elements=14) + BLOCK[12:],
        write_header((4,), mode=VARLENGTH, elements=3) + b"\0\0\0",
    ],
)
def test_what_is_no_block_of_strings(block):
    with pytest.raises((ChunkDecodeError, UnsupportedError)):
        N5String(codecs=[BYTES]).decode_bytes(buffer(block), spec((4,)))


def test_a_zero_character_is_refused():
    store = {}
    array = zarr.create_array(
        store, shape=(1,), chunks=(1,), dtype=str, compressors=[N5String(codecs=[BYTES])]
    )
    with pytest.raises(ChunkEncodeError, match="n5 strings: .*zero"):
        array[...] = "a\0b"
