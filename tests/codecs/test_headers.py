import io
import struct

import numpy as np
import pytest
import tifffile
from PIL import Image

from anychunk.codecs import headers
from anychunk.errors import ChunkEncodeError, CodecConfigError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "i1", "i2", "i4", "f2", "f4", "f8", "c8"])
@pytest.mark.parametrize(
    ("shape", "interleave"),
    [((7, 9), "pixel"), ((7, 9, 2), "pixel"), ((7, 9, 3), "pixel"), ((5, 7, 9), "band")],
)
def test_tiff_reads_in_tifffile(dtype, shape, interleave):
    array = RNG.integers(0, 100, shape).astype(dtype)
    header = headers.tiff(shape, dtype, interleave=interleave)
    made = header(array.tobytes())
    assert len(made) == header.nbytes
    found = tifffile.imread(io.BytesIO(made + array.tobytes()))
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("samples", [1, 3, 4])
def test_tiff_reads_in_pillow(samples):
    shape = (7, 9, samples) if samples > 1 else (7, 9)
    array = RNG.integers(0, 255, shape, dtype=np.uint8)
    data = headers.tiff(shape, "u1")(array.tobytes()) + array.tobytes()
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), array)


def test_compressed_bands_apart_are_refused():
    with pytest.raises(CodecConfigError, match='interleave="pixel"'):
        headers.tiff((3, 8, 8), "u1", interleave="band", compression="zstd")


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4,), "u1"), ((2, 2, 2, 2), "u1"), ((2, 2), "M8[s]")]
)
def test_not_an_image(shape, dtype):
    with pytest.raises(CodecConfigError, match="tiff header"):
        headers.tiff(shape, dtype)


def test_chunk_of_another_length():
    with pytest.raises(ChunkEncodeError, match="3 bytes.* 4"):
        headers.tiff((2, 2), "u1")(b"abc")


def test_n5():
    assert headers.n5((64, 32))(b"anything") == struct.pack(">HHII", 0, 2, 64, 32)


@pytest.mark.parametrize("dtype", ["<u2", ">f4", "|b1", "<c16"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_npy(shape, dtype):
    array = RNG.integers(0, 2, shape).astype(dtype)
    header = headers.npy(shape, dtype)
    found = np.load(io.BytesIO(header(array.tobytes()) + array.tobytes()))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
