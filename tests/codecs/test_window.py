import numpy as np
import pytest

from anychunk.codecs import Window
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.window import front
from anychunk.errors import ChunkDecodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}


class TestWindow(CodecContract):
    codecs = (Window(codecs=[BYTES]), Window(codecs=(BYTES, ZSTD)))
    arrays = (
        np.arange(60, dtype="uint16").reshape(5, 12),
        np.linspace(0, 1, 7, dtype="float64"),
    )


def stored(array, *place):
    return np.frombuffer(front(array.shape, *place) + array.tobytes(), np.uint8)


def spec(shape, fill=7):
    return ChunkSpec(shape, np.dtype("uint16"), np.uint16(fill))


def test_cropped_edge_is_padded_with_fill():
    array = np.arange(6, dtype="uint16").reshape(2, 3)
    found = Window(codecs=[BYTES]).decode_chunk(stored(array), spec((4, 3)))
    np.testing.assert_array_equal(found, [[0, 1, 2], [3, 4, 5], [7, 7, 7], [7, 7, 7]])


def test_halo_is_cropped():
    array = np.arange(16, dtype="uint16").reshape(4, 4)
    found = Window(codecs=[BYTES]).decode_chunk(stored(array, (1, 1), (2, 2)), spec((2, 2)))
    np.testing.assert_array_equal(found, [[5, 6], [9, 10]])


@pytest.mark.parametrize(
    "data",
    [
        np.zeros(5, np.uint8),
        stored(np.zeros((9, 9), "uint16")),
        stored(np.zeros((2, 2), "uint16"), (1, 1), (2, 2)),
        stored(np.zeros((2, 2), "uint16"))[:-1],
        np.frombuffer(front((2**31, 2**31), (0, 0), (1, 1)), np.uint8),
    ],
)
def test_damaged_header(data):
    with pytest.raises((ChunkDecodeError, ValueError)):
        Window(codecs=[BYTES]).decode_chunk(data, spec((4, 4)))


@pytest.mark.parametrize("codecs", [[], "bytes", None, [ZSTD]])
def test_inner_codecs_are_checked(codecs):
    with pytest.raises((CodecConfigError, ValueError)):
        Window(codecs=codecs)
