import zlib

import numpy as np
import pytest

from anychunk.codecs.base import as_bytes
from anychunk.codecs.crc32 import Crc32, Crc32V2, front
from anychunk.errors import ChunkDecodeError
from anychunk.testing.codecs import CodecContract

CHECK = b"123456789"
"""CRC-32 of this is known: 0xCBF43926 (ISO 3309)."""


class TestCrc32(CodecContract):
    codecs = (Crc32(),)
    arrays = (np.arange(60, dtype="uint16").reshape(5, 12),)


def decode(data):
    return as_bytes(Crc32().decode_bytes(as_bytes(data), None)).tobytes()


def test_known_value():
    assert zlib.crc32(CHECK) == 0xCBF43926
    assert front(0xCBF43926) == b"\x01\x26\x39\xf4\xcb"
    assert decode(front(0xCBF43926) + CHECK) == CHECK
    assert (
        as_bytes(Crc32().encode_bytes(as_bytes(CHECK), None)).tobytes() == front(0xCBF43926) + CHECK
    )


def test_mismatch_is_refused():
    with pytest.raises(ChunkDecodeError, match="cbf43926.* 00000001"):
        decode(front(1) + CHECK)


def test_unknown_checksum_is_not_held_against():
    assert decode(front(None) + CHECK) == CHECK


def test_too_short():
    with pytest.raises(ChunkDecodeError, match=" 5$"):
        decode(b"\1\0\0\0")


def test_zarr_v2():
    assert Crc32V2().decode(Crc32V2().encode(CHECK)).tobytes() == CHECK
