import bz2
import gzip

import imagecodecs
import numpy as np
import pytest

from anychunk import limits
from anychunk.codecs import Stream
from anychunk.codecs.base import ChunkSpec, as_bytes
from anychunk.codecs.leading_streams import COMPRESSIONS
from anychunk.errors import ChunkDecodeError, LimitError
from anychunk.testing.codecs import CodecContract
from tests.support.effort import at_most

DATA = np.random.default_rng(1).integers(0, 9, 40000, dtype=np.uint8)
SPEC = ChunkSpec(DATA.shape, DATA.dtype)
ENCODE = {
    "raw": bytes,
    "gzip": lambda data: gzip.compress(bytes(data)),
    "bzip2": lambda data: bz2.compress(bytes(data)),
    "zstd": lambda data: bytes(imagecodecs.zstd_encode(bytes(data))),
    "lz4": lambda data: bytes(imagecodecs.lz4f_encode(bytes(data))),
}
COMPRESSED = [name for name in COMPRESSIONS if name != "raw"]


class TestLeadingStream(CodecContract):
    codecs = tuple(
        Stream(compression=name, leading=True, skip=skip)
        for name in COMPRESSIONS
        for skip in (0, 5)
    )
    arrays = (np.arange(60, dtype="uint16").reshape(5, 12),)


class TestLastBytes(CodecContract):
    codecs = tuple(Stream(compression=name, leading=True, skip=-1) for name in ("gzip", "bzip2"))
    arrays = (np.arange(60, dtype="uint16").reshape(5, 12),)


@pytest.mark.parametrize("name", ["gzip", "bzip2"])
@pytest.mark.parametrize("after", [b"", b"\0" * 9, b"anything else"])
def test_last_bytes(name, after):
    stream = ENCODE[name](bytes(2_500_000)) + ENCODE[name](DATA[:7]) + ENCODE[name](DATA[7:])
    assert decode(name, stream + after, skip=-1) == DATA.tobytes()


def test_last_bytes_of_too_many():
    """50 MB of zeros before the chunk."""
    stream = gzip.compress(bytes(50_000_000) + DATA.tobytes())
    with limits.override(chunk_bytes=10_000_000), pytest.raises(LimitError):
        decode("gzip", stream, skip=-1)


def decode(name, data, skip=0):
    codec = Stream(compression=name, leading=True, skip=skip)
    return as_bytes(codec.decode_bytes(as_bytes(data), SPEC)).tobytes()


@pytest.mark.parametrize("name", COMPRESSIONS)
@pytest.mark.parametrize(
    "after", [b"", b"\0" * 9, b"anything else", b"\x1f\x8b\x08\x28\xb5\x2f\xfd"]
)
def test_stops_at_the_end_of_the_stream(name, after):
    assert decode(name, ENCODE[name](DATA) + after) == DATA.tobytes()


@pytest.mark.parametrize("name", COMPRESSED)
@pytest.mark.parametrize("after", [b"", b"and more"])
def test_several_members(name, after):
    stream = b"".join(ENCODE[name](part) for part in np.array_split(DATA, 7))
    assert decode(name, stream + after) == DATA.tobytes()


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_skips_decoded_bytes(name):
    stream = ENCODE[name](np.concatenate([np.full(11, 77, np.uint8), DATA]))
    assert decode(name, stream + b"tail", skip=11) == DATA.tobytes()


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_too_short_is_refused(name):
    with pytest.raises(ChunkDecodeError):
        decode(name, ENCODE[name](DATA[:-1]))
    for cut in (0, 5, len(ENCODE[name](DATA)) // 2, -1):
        with pytest.raises(ChunkDecodeError):
            decode(name, ENCODE[name](DATA)[:cut])


@pytest.mark.parametrize("name", COMPRESSED)
def test_too_long_is_refused(name):
    with pytest.raises(ChunkDecodeError):
        decode(name, ENCODE[name](np.append(DATA, DATA)))


@pytest.mark.parametrize("name", ["gzip", "bzip2"])
def test_checksum_of_the_last_member_is_read(name):
    stream = bytearray(ENCODE[name](DATA))
    stream[-6 if name == "gzip" else -4] ^= 0xFF
    with pytest.raises(ChunkDecodeError):
        decode(name, bytes(stream) + b"tail")


def test_very_many_members_take_linear_time():
    member = gzip.compress(b"")
    with at_most(2_000_000), pytest.raises(ChunkDecodeError):
        decode("gzip", member * 50_000)
