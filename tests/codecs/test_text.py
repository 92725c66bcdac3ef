import numpy as np
import pytest

from anychunk.codecs import Text
from anychunk.codecs.base import ChunkSpec, as_bytes
from anychunk.errors import ChunkDecodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract


class TestText(CodecContract):
    codecs = (Text(), Text(style="hex"), Text(style="hex", endian="big"))
    arrays = (
        np.arange(-30, 30, dtype="int16").reshape(5, 12),
        np.array([[0.1, 1e300, -0.0], [np.inf, 5e-324, 3.0]]),
        np.array([[1 + 2j, -3.5j]], "complex64"),
        np.array([2**64 - 1, 0], "uint64"),
    )


def decode(text, shape, dtype, **options):
    return Text(**options).decode_chunk(as_bytes(text), ChunkSpec(shape, np.dtype(dtype)))


def test_known_values():
    np.testing.assert_array_equal(decode(b"1 2,3\r\n\t-4", (2, 2), "i2"), [[1, 2], [3, -4]])
    np.testing.assert_array_equal(decode(b"0100 ff\n7F", (2,), "<u2", style="hex"), [1, 0x7FFF])
    np.testing.assert_array_equal(
        decode(b"0001FF7F", (2,), "u2", style="hex", endian="big"), [1, 0xFF7F]
    )
    assert Text().encode_chunk(np.array([1, -2], "i4"), None) == b"1 -2\n"


@pytest.mark.parametrize(
    ("text", "dtype", "match"),
    [
        (b"1 22 33", "u1", "3 .* 4$"),
        (b"1", "u1", "1 bytes .*4 "),
        (b"1 2 3 256", "u1", r"uint8 \[0, 255\]"),
        (b"1 2 3 x", "u1", "'x'"),
        (b"1 2 3 x", "f4", "'x'"),
    ],
)
def test_ascii_is_refused(text, dtype, match):
    with pytest.raises(ChunkDecodeError, match=match):
        decode(text, (4,), dtype)


def test_hex_is_refused():
    with pytest.raises(ChunkDecodeError, match="hex"):
        decode(b"0g", (1,), "u1", style="hex")
    with pytest.raises(ChunkDecodeError, match="2 bytes.* 1$"):
        decode(b"0000", (1,), "u1", style="hex")


def test_configuration_is_checked():
    with pytest.raises(CodecConfigError, match="style"):
        Text(style="roman")
    with pytest.raises(CodecConfigError, match="endian"):
        Text(endian="middle")
