import bz2
import contextlib
import gzip
import lzma
import zlib

import numcodecs
import numpy as np
import pytest

from anychunk.codecs import streams
from anychunk.errors import ChunkDecodeError, CodecConfigError

NOISE = np.random.default_rng(3).integers(0, 9, 70_000).astype(np.uint8)
SIZES = [0, 1, 13, 1000, len(NOISE)]

# decoders that are not ours
OTHERS = {
    "gzip": gzip.decompress,
    "zlib": zlib.decompress,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
    "zstd": numcodecs.Zstd().decode,
    "blosc": numcodecs.Blosc().decode,
}
LEVELS = {
    "raw": [None],
    "gzip": [None, 0, 9],
    "zlib": [None, 0, 9],
    "bzip2": [None, 1],
    "xz": [None, 0],
    "zstd": [None, -5, 22],
    "lz4_frame": [None, 9],
    "lz4_block": [None, 9],
    "blosc": [None, 0, 9],
}
CASES = [(name, level) for name in streams.ENCODE for level in LEVELS[name]]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "level"), CASES)
def test_round_trip(name, level, size):
    data = NOISE[:size]
    encoded = np.frombuffer(streams.ENCODE[name](data, level), np.uint8)
    assert np.array_equal(streams.DECODE[name](encoded, size, None), data)


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize(("name", "level"), [c for c in CASES if c[0] in OTHERS])
def test_other_decoders_read_it(name, level, size):
    data = NOISE[:size]
    assert bytes(OTHERS[name](bytes(streams.ENCODE[name](data, level)))) == data.tobytes()


def test_numcodecs_reads_a_bare_lz4_block():
    encoded = bytes(streams.encode_lz4_block(NOISE))
    framed = len(NOISE).to_bytes(4, "little") + encoded
    assert bytes(numcodecs.LZ4().decode(framed)) == NOISE.tobytes()


@pytest.mark.parametrize("compressor", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
@pytest.mark.parametrize("shuffle", [0, 1, 2])
def test_blosc_options(compressor, shuffle):
    encoded = streams.encode_blosc(NOISE, 5, compressor=compressor, shuffle=shuffle, typesize=2)
    assert encoded[3] == 2
    assert bytes(numcodecs.Blosc().decode(encoded)) == NOISE.tobytes()


@pytest.mark.parametrize("name", [n for n in streams.ENCODE if n != "raw"])
@pytest.mark.parametrize("level", [99, True, 1.5, -(1 << 18)])
def test_a_level_that_is_none(name, level):
    with pytest.raises(CodecConfigError, match=r"level .* is outside"):
        streams.ENCODE[name](NOISE, level)


@pytest.mark.parametrize("name", [n for n in streams.ENCODE if n != "raw"])
@pytest.mark.parametrize("cut", [1, 6, 20, 500])
def test_a_truncated_stream_is_an_error(name, cut):
    encoded = np.frombuffer(streams.ENCODE[name](NOISE, None), np.uint8)
    with pytest.raises(ChunkDecodeError):
        streams.DECODE[name](encoded[:-cut], len(NOISE), None)


@pytest.mark.parametrize("name", streams.ENCODE)
@pytest.mark.parametrize("wanted", [len(NOISE) - 1, len(NOISE) + 1, 0])
def test_another_size_is_an_error(name, wanted):
    encoded = np.frombuffer(streams.ENCODE[name](NOISE, None), np.uint8)
    with pytest.raises(ChunkDecodeError):
        streams.DECODE[name](encoded, wanted, None)


@pytest.mark.parametrize("name", ["gzip", "bzip2", "xz", "zstd", "lz4_frame"])
def test_several_members(name):
    pieces = [bytes(streams.ENCODE[name](part, None)) for part in np.array_split(NOISE, 3)]
    joined = np.frombuffer(b"".join(pieces), np.uint8)
    assert np.array_equal(streams.DECODE[name](joined, len(NOISE), None), NOISE)


def test_skippable_lz4_frames_are_skipped():
    skipped = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"12345"
    data = np.frombuffer(skipped + bytes(streams.encode_lz4_frame(NOISE)), np.uint8)
    assert np.array_equal(streams.decode_lz4_frame(data, len(NOISE)), NOISE)


@pytest.mark.parametrize("name", streams.DECODE)
def test_damaged_streams_never_raise_anything_else(name):
    rng = np.random.default_rng(7)
    encoded = np.frombuffer(streams.ENCODE[name](NOISE[:3000], None), np.uint8)
    for _ in range(200):
        damaged = encoded.copy()
        damaged[rng.integers(0, len(damaged), 3)] = rng.integers(0, 256, 3)
        with contextlib.suppress(ChunkDecodeError):
            assert len(streams.DECODE[name](damaged, 3000, None)) == 3000
