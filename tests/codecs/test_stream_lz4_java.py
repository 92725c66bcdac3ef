import imagecodecs
import numpy as np
import pytest
import xxhash

from anychunk.codecs.stream import decode, decode_any, encode
from anychunk.errors import ChunkDecodeError

DATA = np.tile(np.arange(200, dtype=np.uint8), 50)


def test_the_bytes_of_lz4_java():
    # LZ4BlockOutputStream over 16 zero bytes: magic, token LZ4 | level, lengths, checksum, block, end
    found = encode(np.zeros(16, np.uint8), 65536)
    assert found[:8] == b"LZ4Block"
    assert found[8] == 0x26  # 2**16 bytes a block is level 6
    stored = int.from_bytes(found[9:13], "little")
    assert int.from_bytes(found[13:17], "little") == 16
    check = xxhash.xxh32(bytes(16), seed=0x9747B28C).intdigest() & 0x0FFFFFFF
    assert int.from_bytes(found[17:21], "little") == check
    assert imagecodecs.lz4_decode(found[21 : 21 + stored], out=16) == bytes(16)
    assert found[21 + stored :] == b"LZ4Block\x16" + bytes(12)


def test_incompressible_blocks_are_stored_raw():
    noise = np.random.default_rng(0).integers(0, 256, 100, dtype=np.uint8)
    found = encode(noise, 64)
    assert found[8] == 0x10
    assert found[21:85] == noise[:64].tobytes()
    np.testing.assert_array_equal(decode(np.frombuffer(found, np.uint8), 100), noise)


@pytest.mark.parametrize(
    "stream",
    [
        encode(DATA, 65536),
        encode(DATA, 64),
        encode(DATA, 65536)[:-21],  # without the empty block at the end
        imagecodecs.lz4f_encode(DATA),
        imagecodecs.lz4_encode(DATA),
    ],
    ids=["java", "small blocks", "no end", "frame", "bare"],
)
def test_dialects_are_told_apart(stream):
    data = np.frombuffer(stream, np.uint8)
    np.testing.assert_array_equal(decode_any(data, len(DATA)), DATA)
    out = np.empty(len(DATA), np.uint8)
    np.testing.assert_array_equal(decode_any(data, len(DATA), out), DATA)


@pytest.mark.parametrize("cut", [22, 30, 100])
@pytest.mark.parametrize("size", [64, 65536])
def test_cut_streams(cut, size):
    data = np.frombuffer(encode(DATA, size)[:-cut], np.uint8)
    with pytest.raises(ChunkDecodeError, match="lz4 java"):
        decode(data, len(DATA))


def test_damage_is_noticed_by_the_checksum():
    stream = bytearray(encode(np.random.default_rng(0).integers(0, 256, 500, np.uint8), 64))
    stream[40] ^= 1
    with pytest.raises(ChunkDecodeError, match="checksum"):
        decode(np.frombuffer(bytes(stream), np.uint8), 500)


def test_other_sizes():
    data = np.frombuffer(encode(DATA, 64), np.uint8)
    for size in (len(DATA) - 1, len(DATA) + 1, 0):
        with pytest.raises(ChunkDecodeError):
            decode(data, size)
