import numpy as np
import pytest

from anychunk.codecs.nitf_vq import NitfVq
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError


def test_known_patches():
    """Two codes share three bytes; each row of a patch has its own table."""
    tables = np.zeros((4, 4096, 4), "u1")
    tables[:, 1] = np.arange(16).reshape(4, 4)
    tables[:, 2] = np.arange(16, 32).reshape(4, 4)
    codes = bytes.fromhex("001002") + bytes.fromhex("002001")
    data = np.frombuffer(tables.tobytes() + codes, np.uint8)
    found = np.frombuffer(NitfVq(block_height=8, block_width=8).decode_bytes(data, None), "u1")
    first, second = np.arange(16).reshape(4, 4), np.arange(16, 32).reshape(4, 4)
    np.testing.assert_array_equal(found.reshape(8, 8), np.block([[first, second], [second, first]]))


@pytest.mark.parametrize("length", [0, 65536, 65541, 65543])
def test_wrong_length(length):
    with pytest.raises(ChunkDecodeError, match="65542"):
        NitfVq(block_height=8, block_width=8).decode_bytes(np.zeros(length, np.uint8), None)


def test_encoding_is_an_error():
    with pytest.raises(ChunkEncodeError, match=NitfVq.name):
        NitfVq(block_height=8, block_width=8).encode_bytes(np.zeros(64, np.uint8), None)


@pytest.mark.parametrize("size", [0, 12, -8, "8", True])
def test_configuration_is_checked(size):
    with pytest.raises(CodecConfigError):
        NitfVq(block_height=8, block_width=size)
