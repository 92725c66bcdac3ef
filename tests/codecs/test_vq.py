import numpy as np
import pytest

from anychunk.codecs import JbpBlock
from anychunk.errors import ChunkDecodeError, ChunkEncodeError

CODEC = JbpBlock(
    num_bands=1, block_height=8, block_width=8, nbpp=8, imode="B", pvtype="INT", compression="vq"
)


def test_known_patches():
    """Two codes share three bytes; each row of a patch has its own table."""
    tables = np.zeros((4, 4096, 4), "u1")
    tables[:, 1] = np.arange(16).reshape(4, 4)
    tables[:, 2] = np.arange(16, 32).reshape(4, 4)
    codes = bytes.fromhex("001002") + bytes.fromhex("002001")
    data = np.frombuffer(tables.tobytes() + codes, np.uint8)
    found = np.frombuffer(CODEC.decode_bytes(data, None), "u1")
    first, second = np.arange(16).reshape(4, 4), np.arange(16, 32).reshape(4, 4)
    np.testing.assert_array_equal(found.reshape(8, 8), np.block([[first, second], [second, first]]))


@pytest.mark.parametrize("length", [0, 65536, 65541, 65543])
def test_wrong_length(length):
    with pytest.raises(ChunkDecodeError, match="65542"):
        CODEC.decode_bytes(np.zeros(length, np.uint8), None)


def test_encoding_is_an_error():
    with pytest.raises(ChunkEncodeError, match=JbpBlock.name):
        CODEC.encode_bytes(np.zeros(64, np.uint8), None)
