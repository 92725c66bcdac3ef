import bz2
import gzip
import lzma
import zlib

import imagecodecs
import numpy as np
import pytest

from anychunk.codecs.streams import DECODE
from anychunk.errors import ChunkDecodeError

DATA = np.arange(50_000, dtype="uint16").tobytes()
ENCODED = {
    "raw": DATA,
    "gzip": gzip.compress(DATA),
    "zlib": zlib.compress(DATA),
    "bzip2": bz2.compress(DATA),
    "xz": lzma.compress(DATA),
    "zstd": imagecodecs.zstd_encode(DATA),
    "lz4_frame": imagecodecs.lz4f_encode(DATA),
    "lz4_block": imagecodecs.lz4_encode(DATA),
    "blosc": imagecodecs.blosc_encode(DATA),
}


def decode(name, data, nbytes=len(DATA), out=None):
    return DECODE[name](np.frombuffer(data, np.uint8), nbytes, out)


def test_every_compression_is_tried():
    assert set(ENCODED) == set(DECODE)


@pytest.mark.parametrize("name", DECODE)
@pytest.mark.parametrize("given", [False, True])
def test_decode(name, given):
    out = np.empty(len(DATA), np.uint8) if given else None
    assert decode(name, ENCODED[name], out=out).tobytes() == DATA


@pytest.mark.parametrize("name", DECODE)
@pytest.mark.parametrize("nbytes", [0, 1, len(DATA) - 1, len(DATA) + 1, 2 * len(DATA)])
def test_other_size_is_an_error(name, nbytes):
    with pytest.raises(ChunkDecodeError):
        decode(name, ENCODED[name], nbytes)


@pytest.mark.parametrize("name", DECODE)
@pytest.mark.parametrize("cut", [1, 9, 1000])
def test_truncated_stream_is_never_a_wrong_array(name, cut):
    try:
        found = decode(name, ENCODED[name][:-cut])
    except ChunkDecodeError:
        return
    # an LZ4 frame that lacks only its end mark has all its data
    assert (name, found.tobytes()) == ("lz4_frame", DATA)


@pytest.mark.parametrize("name", ["gzip", "zlib", "bzip2", "xz", "zstd"])
def test_damaged_stream_is_an_error(name):
    damaged = bytearray(ENCODED[name])
    damaged[len(damaged) // 2] ^= 0x55
    try:
        found = decode(name, bytes(damaged))
    except ChunkDecodeError:
        return
    assert name == "zstd", "only zstd is written without a checksum"
    assert len(found) == len(DATA)


@pytest.mark.parametrize("name", ["gzip", "bzip2", "xz", "zstd"])
def test_several_members(name):
    half = len(DATA) // 2
    encode = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}.get(
        name, imagecodecs.zstd_encode
    )
    assert decode(name, encode(DATA[:half]) + encode(DATA[half:])).tobytes() == DATA


def test_bomb_stops_at_the_expected_size():
    bomb = gzip.compress(bytes(200 << 20))
    with pytest.raises(ChunkDecodeError, match="more than the expected 1000 bytes"):
        decode("gzip", bomb, 1000)
