import base64

import imagecodecs
import numpy as np
import pytest

from anychunk.codecs import Jpeg2000
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.jpeg2000 import Front, read_front
from anychunk.codestream.jpeg2000 import read_main_header
from anychunk.errors import AnychunkError, ChunkDecodeError, ChunkEncodeError, CodecConfigError

IMAGE = np.random.default_rng(0).integers(0, 256, (50, 70)).astype("u1")
STREAM = imagecodecs.jpeg2k_encode(IMAGE, level=0, codecformat="J2K", reversible=True)
HEADER = read_main_header(STREAM)
TILE = STREAM[HEADER.length : -2]
CODEC = Jpeg2000(main_header=base64.b64encode(HEADER.data).decode(), window=True)
SPEC = ChunkSpec((1, 32, 32), np.dtype("u1"), 9)


def decode(data: bytes, codec=CODEC, spec=SPEC):
    found = codec.decode_bytes(np.frombuffer(data, np.uint8), spec)
    return np.frombuffer(found, spec.dtype).reshape(spec.shape)


def test_whole_tile():
    found = decode(Front(8, 16).pack() + TILE)
    np.testing.assert_array_equal(found[0], IMAGE[8:40, 16:48])


def test_edge():
    """Beyond the image, a chunk has the fill value."""
    found = decode(Front(32, 64).pack() + TILE)
    np.testing.assert_array_equal(found[0, :18, :6], IMAGE[32:, 64:])
    assert (found[0, 18:] == 9).all()
    assert (found[0, :, 6:] == 9).all()


def test_json():
    document = CODEC.to_dict()
    assert document["configuration"]["window"] is True
    assert Jpeg2000.from_dict(document) == CODEC


def test_zarr_v2_does_not_say_how_large_a_window_is():
    assert CODEC.needs_spec
    with pytest.raises(ChunkDecodeError, match="Zarr v3"):
        CODEC.decode_bytes(np.frombuffer(Front(8, 16).pack() + TILE, np.uint8), None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"A2W",
        b"A2W\2" + bytes(8) + TILE,
        Front(50, 0).pack() + TILE,
        Front(0, 0).pack(),
        Front(0, 0).pack() + TILE[:-5],
        Front(0, 0).pack() + STREAM[:-40],
        Front(0, 0).pack() + b"\xff\x4f" * 20,
    ],
)
def test_damaged_chunks(data):
    with pytest.raises(AnychunkError):
        decode(data)


def test_other_components():
    rgb = imagecodecs.jpeg2k_encode(np.dstack([IMAGE] * 3), level=0, codecformat="J2K")
    with pytest.raises(ChunkDecodeError):
        decode(Front(0, 0).pack() + rgb)


def test_front():
    assert read_front(Front(3, 4).pack()) == (3, 4)


def test_encoding_is_an_error():
    with pytest.raises(ChunkEncodeError):
        CODEC.encode_bytes(np.zeros(1, np.uint8), SPEC)


@pytest.mark.parametrize("options", [{}, {"main_header": None}, {"main_header": "x"}])
def test_configuration_is_checked(options):
    with pytest.raises(CodecConfigError):
        Jpeg2000(**options, window=True)
    with pytest.raises(CodecConfigError):
        Jpeg2000(window=1)
