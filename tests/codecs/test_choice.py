import gzip

import numpy as np
import pytest

from anychunk.codecs import Choice
from anychunk.codecs.base import ChunkSpec, as_bytes
from anychunk.errors import ChunkDecodeError, CodecConfigError, UnsupportedError
from anychunk.testing.codecs import CodecContract

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}
ARRAY = np.arange(60, dtype="uint16").reshape(5, 12)
SPEC = ChunkSpec(ARRAY.shape, ARRAY.dtype)


class TestChoice(CodecContract):
    codecs = (
        Choice(choices=[[BYTES]]),
        Choice(choices=((BYTES, GZIP), (BIG,))),
    )
    arrays = (ARRAY, np.linspace(0, 1, 8, dtype="float64").reshape(2, 4))


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, ARRAY.astype("<u2").tobytes()),
        (1, ARRAY.astype(">u2").tobytes()),
        (3, ARRAY.T.tobytes()),
        (2, gzip.compress(ARRAY.astype("<u2").tobytes(), mtime=0)),
    ],
)
def test_the_first_byte_is_the_number_of_the_chain(number, data):
    transpose = {"name": "transpose", "configuration": {"order": [1, 0]}}
    codec = Choice(choices=[[BYTES], [BIG], [BYTES, GZIP], [transpose, BYTES]])
    found = codec.decode_chunk(as_bytes(bytes([number]) + data), SPEC)
    np.testing.assert_array_equal(found, ARRAY)


@pytest.mark.parametrize("data", [b"", b"\2" + bytes(120), b"\xff"])
def test_damaged_numbers(data):
    with pytest.raises(ChunkDecodeError, match=r"anychunk\.choice"):
        Choice(choices=[[BYTES], [BIG]]).decode_chunk(as_bytes(data), SPEC)


@pytest.mark.parametrize(
    "choices",
    [[], None, 5, "bytes", [[]], [["nonsense"]], [[BYTES], 5], [[GZIP]], [[BYTES]] * 257,
     [[{"name": "anychunk.choice", "configuration": {"choices": [[BYTES]]}}]]],
)  # fmt: skip
def test_configurations_that_are_refused(choices):
    with pytest.raises((CodecConfigError, UnsupportedError, ValueError, TypeError)):
        Choice(choices=choices)
