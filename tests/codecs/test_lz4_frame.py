import imagecodecs
import numpy as np
import pytest

from anychunk.codecs.base import ChunkSpec, as_bytes
from anychunk.codecs.lz4_frame import Lz4Frame, Lz4FrameV2
from anychunk.errors import ChunkDecodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract

DATA = np.arange(5000, dtype="<u2")
SPEC = ChunkSpec(DATA.shape, DATA.dtype)


class TestLz4Frame(CodecContract):
    codecs = (Lz4Frame(), Lz4Frame(level=9))
    arrays = (np.arange(60, dtype="uint16").reshape(5, 12), np.ones((3, 4, 5), "float32"))


def decode(data):
    return as_bytes(Lz4Frame().decode_bytes(as_bytes(data), SPEC))


@pytest.mark.parametrize(
    "options",
    [
        {"contentsize": False},
        {"contentsize": True},
        {"contentchecksum": True, "blockchecksum": True},
        {"blocksizeid": 4},
    ],
)
def test_frames_of_another_encoder(options):
    frame = imagecodecs.lz4f_encode(DATA, **options)
    assert decode(frame).tobytes() == DATA.tobytes()


def test_several_frames_and_one_to_skip():
    half = DATA.nbytes // 2
    parts = [
        imagecodecs.lz4f_encode(DATA.tobytes()[:half]),
        imagecodecs.lz4f_encode(DATA.tobytes()[half:]),
    ]
    skipped = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"
    assert decode(skipped.join(bytes(p) for p in parts)).tobytes() == DATA.tobytes()


@pytest.mark.parametrize("cut", [0, 3, 6, 20, -1])
def test_cut_frame_is_refused(cut):
    with pytest.raises(ChunkDecodeError):
        decode(bytes(imagecodecs.lz4f_encode(DATA))[:cut])


@pytest.mark.parametrize("contentsize", [True, False])
@pytest.mark.parametrize("count", [DATA.size - 1, DATA.size + 1])
def test_wrong_size_is_refused(count, contentsize):
    with pytest.raises(ChunkDecodeError):
        decode(imagecodecs.lz4f_encode(np.arange(count, dtype="<u2"), contentsize=contentsize))


def test_level_is_checked():
    with pytest.raises(CodecConfigError, match="level .*12"):
        Lz4Frame(level=13)


def test_zarr_v2():
    codec = Lz4FrameV2(level=3)
    assert codec.get_config() == {"id": "anychunk.lz4_frame", "level": 3}
    assert codec.decode(codec.encode(DATA)).tobytes() == DATA.tobytes()
    with pytest.raises(ChunkDecodeError, match="lz4_frame: .*Zarr v2"):
        codec.decode(imagecodecs.lz4f_encode(DATA, contentsize=False))
