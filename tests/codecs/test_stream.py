import bz2
import gzip
import lzma
import zlib

import imagecodecs
import numpy as np
import pytest

from anychunk.codecs import Stream
from anychunk.codecs.base import ChunkSpec, as_bytes
from anychunk.codecs.stream import COMPRESSIONS
from anychunk.codecs.streams import front
from anychunk.errors import ChunkDecodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract
from anychunk.zarr import filters

DATA = np.arange(5000, dtype="<u2")
SPEC = ChunkSpec(DATA.shape, DATA.dtype)
CHECK = b"123456789"
"""CRC-32 of this is known: 0xCBF43926 (ISO 3309)."""
LZ4 = Stream(compression="lz4")
CHECKED = Stream(compression="raw", checksum=True)
WRITERS = {
    "raw": bytes,
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": imagecodecs.zstd_encode,
    "lz4": imagecodecs.lz4f_encode,
    "lz4_java": imagecodecs.lz4_encode,
}
READERS = {
    "gzip": gzip.decompress,
    "zlib": zlib.decompress,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
    "zstd": imagecodecs.zstd_decode,
    "lz4": imagecodecs.lz4f_decode,
}
"""Other software; `lz4_java` is compared byte by byte in `test_stream_lz4_java.py`."""


class TestStream(CodecContract):
    codecs = (
        *(Stream(compression=name) for name in COMPRESSIONS),
        *(Stream(compression=name, checksum=True) for name in COMPRESSIONS),
        Stream(compression="bzip2", level=1),
        Stream(compression="xz", level=0),
        Stream(compression="zlib", level=9),
        Stream(compression="lz4", level=9),
        Stream(compression="lz4_java", block_size=64),
        Stream(compression="gzip", leading=True, skip=5, checksum=True),
    )
    arrays = (
        np.arange(60, dtype="uint16").reshape(5, 12),
        np.arange(300, dtype="uint16"),
        np.zeros((7, 9), "float32"),
    )


def decode(codec, data, spec=SPEC):
    return as_bytes(codec.decode_bytes(as_bytes(data), spec)).tobytes()


@pytest.mark.parametrize("name", COMPRESSIONS)
@pytest.mark.parametrize("checksum", [False, True])
def test_the_streams_of_other_writers(name, checksum):
    stream = bytes(WRITERS[name](DATA.tobytes()))
    stored = front(zlib.crc32(stream)) + stream if checksum else stream
    assert decode(Stream(compression=name, checksum=checksum), stored) == DATA.tobytes()


@pytest.mark.parametrize("name", READERS)
def test_other_readers_read_it(name):
    stream = bytes(Stream(compression=name).encode_bytes(as_bytes(DATA), None))
    assert bytes(READERS[name](stream)) == DATA.tobytes()


@pytest.mark.parametrize("name", [name for name in COMPRESSIONS if name != "raw"])
def test_nothing_may_follow_a_stream(name):
    stream = bytes(Stream(compression=name).encode_bytes(as_bytes(DATA), None))
    with pytest.raises(ChunkDecodeError):
        decode(Stream(compression=name), stream + b"anything")


@pytest.mark.parametrize(
    "options",
    [
        {"contentsize": False},
        {"contentsize": True},
        {"contentchecksum": True, "blockchecksum": True},
        {"blocksizeid": 4},
    ],
)
def test_lz4_frames_of_another_encoder(options):
    frame = imagecodecs.lz4f_encode(DATA, **options)
    assert decode(LZ4, frame) == DATA.tobytes()


def test_several_lz4_frames_and_one_to_skip():
    half = DATA.nbytes // 2
    parts = [
        imagecodecs.lz4f_encode(DATA.tobytes()[:half]),
        imagecodecs.lz4f_encode(DATA.tobytes()[half:]),
    ]
    skipped = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"
    assert decode(LZ4, skipped.join(bytes(p) for p in parts)) == DATA.tobytes()


@pytest.mark.parametrize("cut", [0, 3, 6, 20, -1])
def test_a_cut_lz4_frame_is_refused(cut):
    with pytest.raises(ChunkDecodeError):
        decode(LZ4, bytes(imagecodecs.lz4f_encode(DATA))[:cut])


@pytest.mark.parametrize("contentsize", [True, False])
@pytest.mark.parametrize("count", [DATA.size - 1, DATA.size + 1])
def test_an_lz4_frame_of_the_wrong_size_is_refused(count, contentsize):
    with pytest.raises(ChunkDecodeError):
        decode(LZ4, imagecodecs.lz4f_encode(np.arange(count, dtype="<u2"), contentsize=contentsize))


def test_the_checksum_that_is_known():
    assert zlib.crc32(CHECK) == 0xCBF43926
    assert front(0xCBF43926) == b"\x01\x26\x39\xf4\xcb"
    assert decode(CHECKED, front(0xCBF43926) + CHECK, None) == CHECK
    stored = as_bytes(CHECKED.encode_bytes(as_bytes(CHECK), None)).tobytes()
    assert stored == front(0xCBF43926) + CHECK


def test_another_checksum_is_refused():
    with pytest.raises(ChunkDecodeError, match="cbf43926.* 00000001"):
        decode(CHECKED, front(1) + CHECK, None)


def test_an_unknown_checksum_is_not_held_against():
    assert decode(CHECKED, front(None) + CHECK, None) == CHECK


def test_too_short_for_a_checksum():
    with pytest.raises(ChunkDecodeError, match=" 5$"):
        decode(CHECKED, b"\1\0\0\0", None)


def test_of_ranges():
    """In a range of a larger file, other bytes may follow frames of lz4."""
    frame = bytes(imagecodecs.lz4f_encode(DATA))
    assert decode(LZ4.of_ranges(), frame + b"anything") == DATA.tobytes()
    assert CHECKED.of_ranges() is CHECKED


def test_zarr_v2():
    codec = filters.Stream(compression="lz4", level=3)
    assert codec.get_config() == {"id": "anychunk.stream", "compression": "lz4", "level": 3}
    assert codec.decode(codec.encode(DATA)).tobytes() == DATA.tobytes()
    with pytest.raises(ChunkDecodeError, match="stream: .*Zarr v2"):
        codec.decode(imagecodecs.lz4f_encode(DATA, contentsize=False))
    codec = filters.Stream(compression="raw", checksum=True)
    assert codec.decode(codec.encode(CHECK)).tobytes() == CHECK
    found = {name for name in COMPRESSIONS if not Stream(compression=name).needs_spec}
    assert found == {"raw", "lz4"}
    assert Stream(compression="lz4", leading=True).needs_spec


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"compression": "rar"}, "compression"),
        ({"compression": ["gzip"]}, "compression"),
        ({"compression": "raw", "level": 1}, "level"),
        ({"compression": "lz4_java", "level": 1}, "level"),
        ({"compression": "lz4", "level": 13}, "level .*12"),
        *(
            ({"compression": name, "level": level}, "level")
            for name in ("bzip2", "xz", "zlib")
            for level in (10, -1, 1.5, "6", True)
        ),
        *(
            ({"compression": "lz4_java", "block_size": size}, "block_size")
            for size in (0, 63, 1 << 26, "64", 64.0, True)
        ),
        ({"compression": "gzip", "block_size": 64}, "block_size"),
        ({"compression": "gzip", "leading": 1}, "leading"),
        ({"compression": "xz", "leading": True}, "leading"),
        ({"compression": "gzip", "skip": 1}, "skip"),
        ({"compression": "gzip", "leading": True, "skip": -2}, "skip"),
        ({"compression": "zstd", "leading": True, "skip": -1}, "skip"),
        ({"compression": "gzip", "leading": True, "skip": True}, "skip"),
        ({"compression": "gzip", "checksum": "crc32"}, "checksum"),
    ],
)
def test_configuration_is_checked(options, key):
    with pytest.raises(CodecConfigError, match=key):
        Stream(**options)
