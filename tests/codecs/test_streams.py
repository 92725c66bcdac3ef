"""Compressed streams: decoders against other encoders, encoders against other decoders, codecs."""

import bz2
import contextlib
import gzip
import itertools
import lzma
import zlib

import imagecodecs
import numcodecs
import numpy as np
import pytest

from anychunk.codecs import streams
from anychunk.codecs.streams import DECODE
from anychunk.errors import ChunkDecodeError, CodecConfigError

DATA = np.arange(50_000, dtype="uint16").tobytes()
ENCODED = {
    "raw": DATA,
    "gzip": gzip.compress(DATA),
    "zlib": zlib.compress(DATA),
    "bzip2": bz2.compress(DATA),
    "xz": lzma.compress(DATA),
    "zstd": imagecodecs.zstd_encode(DATA),
    "lz4": imagecodecs.lz4f_encode(DATA),
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
    assert (name, found.tobytes()) == ("lz4", DATA)


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
    with pytest.raises(ChunkDecodeError, match="gzip: .*1000 bytes"):
        decode("gzip", bomb, 1000)


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
    "lz4": [None, 9],
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
def test_level_out_of_range(name, level):
    with pytest.raises(CodecConfigError, match=rf"{name}: level {level}"):
        streams.ENCODE[name](NOISE, level)


@pytest.mark.parametrize("name", [n for n in streams.ENCODE if n != "raw"])
@pytest.mark.parametrize("cut", [1, 6, 20, 500])
def test_truncated_stream_of_ours_is_an_error(name, cut):
    encoded = np.frombuffer(streams.ENCODE[name](NOISE, None), np.uint8)
    with pytest.raises(ChunkDecodeError):
        streams.DECODE[name](encoded[:-cut], len(NOISE), None)


@pytest.mark.parametrize("name", streams.ENCODE)
@pytest.mark.parametrize("nbytes", [len(NOISE) - 1, len(NOISE) + 1, 0])
def test_other_size_of_ours_is_an_error(name, nbytes):
    encoded = np.frombuffer(streams.ENCODE[name](NOISE, None), np.uint8)
    with pytest.raises(ChunkDecodeError):
        streams.DECODE[name](encoded, nbytes, None)


@pytest.mark.parametrize("name", ["gzip", "bzip2", "xz", "zstd", "lz4"])
def test_several_members_of_ours(name):
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


def test_blosc_with_a_byte_too_many():
    """A byte that was inserted into uncompressed samples shifts all that follow."""
    stream = bytes(imagecodecs.blosc_encode(np.arange(40, dtype=np.uint8), compressor="lz4"))
    wrong = stream[:30] + b"x" + stream[30:]
    with pytest.raises(ChunkDecodeError, match=rf"{len(stream)}\b.*{len(wrong)}\b"):
        streams.decode_blosc(np.frombuffer(wrong, np.uint8), 40)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    "check", [lzma.CHECK_NONE, lzma.CHECK_CRC32, lzma.CHECK_CRC64, lzma.CHECK_SHA256]
)
def test_damaged_xz_is_what_the_standard_library_says(check, is_compiled, monkeypatch):
    """Every cut and flipped bit is tried: imagecodecs returns what it has of a truncated stream."""
    if not is_compiled:
        monkeypatch.setattr(streams, "loops", None)
    plain = bytes(range(60)) * 5 + bytes(40)
    stored = np.frombuffer(lzma.compress(plain, check=check), np.uint8)
    damaged = [stored[:length] for length in range(len(stored))]
    for place, bit in itertools.product(range(len(stored)), range(8)):
        damaged.append(stored.copy())
        damaged[-1][place] ^= 1 << bit
    damaged += [np.append(stored, np.zeros(n, np.uint8)) for n in range(1, 9)]
    damaged += [np.concatenate([stored, stored]), np.append(stored, np.uint8(7))]
    out = np.empty(len(plain), np.uint8)
    for data in damaged:
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        try:
            expected = stream.decompress(data.tobytes())
        except lzma.LZMAError:
            expected = None
        is_one = stream.eof and not stream.unused_data
        found = streams.decode_one_xz(data, out)
        # it may leave a stream to the standard library, but not take another view of it
        assert found is None or (is_one and found.tobytes() == expected)
    whole = streams.decode_one_xz(stored, out)
    assert whole is not None
    assert whole.tobytes() == plain
    assert streams.decode_one_xz(stored, out[:-1]) is None


def test_xz_of_a_large_dictionary_is_left_to_the_standard_library():
    small = lzma.compress(b"abc", filters=[{"id": lzma.FILTER_LZMA2, "preset": 0}])
    header = bytearray(small)
    assert header[12:16] == bytes((2, 0, 0x21, 1))
    assert streams.one_xz_block(np.frombuffer(small, np.uint8)) == 3
    header[16] = 34  # 2**29 bytes (the .xz file format, section 5.3.1)
    assert streams.one_xz_block(np.frombuffer(bytes(header), np.uint8)) is None


@pytest.mark.parametrize("kind", ["noise", "zeros"])
def test_xz_of_many_chunks(kind):
    """LZMA2 cuts its data into chunks of at most 2 MiB, or 64 KiB where it does not compress."""
    noise = np.random.default_rng(0).integers(0, 256, 200_000).astype(np.uint8)
    plain = noise if kind == "noise" else np.zeros(5 << 20, np.uint8)
    stored = np.frombuffer(lzma.compress(plain.tobytes(), preset=0), np.uint8).copy()
    out = np.empty_like(plain)
    assert streams.one_xz_block(stored) == len(plain)
    found = streams.decode_one_xz(stored, out)
    assert found is not None
    np.testing.assert_array_equal(found, plain)
    stored[len(stored) // 2] ^= 1
    assert streams.decode_one_xz(stored, out) is None
