import numpy as np
import pytest

from anychunk.codecs import N5
from anychunk.codecs.base import ChunkSpec
from anychunk.errors import ChunkDecodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract
from tests.codecs.test_n5_default import BYTES, GZIP, README, ZSTD, buffer, spec, transpose
from tests.codecs.test_n5_string import BLOCK


class TestN5Reversed(CodecContract):
    codecs = (N5(codecs=[BYTES], reversed=True), N5(codecs=[BYTES, ZSTD], reversed=True))
    arrays = (
        np.arange(60, dtype="uint16").reshape(5, 12),
        np.linspace(0, 1, 21, dtype="float64").reshape(3, 7),
    )
    takes_any_shape = False


def test_the_block_of_the_specification_in_reverse():
    """N5's bytes are in C order for (z, y, x); only the sizes in the header are reversed."""
    codec = N5(codecs=[BYTES], reversed=True)
    array = np.arange(1, 7, dtype="uint16").reshape(3, 2, 1)
    assert bytes(codec.encode_chunk(array, spec((3, 2, 1)))) == README
    np.testing.assert_array_equal(codec.decode_chunk(buffer(README), spec((3, 2, 1))), array)
    found = codec.decode_chunk(buffer(README), spec((4, 2, 2), fill=9))
    np.testing.assert_array_equal(found[:3, :, :1], array)
    assert (found[3:] == 9).all()
    with pytest.raises(ChunkDecodeError, match=r"\(3, 2, 1\).*\(1, 2, 3\)"):
        codec.decode_chunk(buffer(README), spec((1, 2, 3)))


def test_a_block_in_reverse_larger_than_the_chunk():
    codec = N5(codecs=[BYTES], block_shape=[3, 2, 1], reversed=True)
    np.testing.assert_array_equal(
        codec.decode_chunk(buffer(README), spec((2, 1, 1))), [[[1]], [[3]]]
    )
    assert N5.from_dict(codec.to_dict()) == codec
    assert "block_shape" not in N5(codecs=[BYTES], reversed=True).to_dict()["configuration"]


def test_a_block_larger_than_the_chunk():
    block = README
    codec = N5(codecs=[transpose(2, 1, 0), BYTES], block_shape=[1, 2, 3])
    found = codec.decode_chunk(buffer(block), spec((1, 1, 2)))
    np.testing.assert_array_equal(found, [[[1, 3]]])
    assert N5.from_dict(codec.to_dict()) == codec
    with pytest.raises(ChunkDecodeError, match=r"\(1, 2, 3\).*\(1, 2, 2\)"):
        N5(codecs=[BYTES], block_shape=(1, 2, 2)).decode_chunk(buffer(block), spec((1, 1, 2)))


def test_any_block_as_bytes():
    one = ChunkSpec((1, 1), np.dtype(object), b"")
    plain = N5(codecs=[BYTES], content="bytes")
    assert plain.decode_chunk(buffer(BLOCK), one).item() == BLOCK[12:]
    assert plain.decode_chunk(buffer(b""), one).item() == b""
    packed = N5(codecs=[BYTES, GZIP], content="bytes", itemsize=2)
    value = np.empty((1, 1), object)
    value[0, 0] = b"hello"
    block = packed.encode_chunk(value, one)
    assert bytes(block)[:6] == b"\0\2\0\0\0\5"
    assert packed.decode_chunk(buffer(block), one).item() == b"hello"
    with pytest.raises(CodecConfigError, match="itemsize"):
        N5(codecs=[BYTES], content="bytes", itemsize=3)


@pytest.mark.parametrize(
    "options",
    [
        {"itemsize": 2}, {"content": "objects"}, {"content": ["bytes"]}, {"reversed": 1},
        {"content": "bytes", "reversed": True}, {"content": "bytes", "block_shape": [3]},
        {"block_shape": [0]}, {"block_shape": 3},
    ],
)  # fmt: skip
def test_configuration_is_checked(options):
    with pytest.raises(CodecConfigError):
        N5(codecs=[BYTES], **options)
