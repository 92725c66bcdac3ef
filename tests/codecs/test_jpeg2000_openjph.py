"""OpenJPH decodes reversible HTJ2K exactly as OpenJPEG does, or leaves it to OpenJPEG."""

import imagecodecs
import numpy as np
import pytest

from anychunk.codecs.jpeg2000 import codec, openjpeg, openjph
from anychunk.codestream.jpeg2000 import read_main_header, stream_parts
from anychunk.codestream.packets import check_tile
from anychunk.errors import ChunkDecodeError, FormatError

NOTHING = memoryview(b"")


def image(dtype, bands=1):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(4)
    values = rng.integers(info.min, info.max, (128, 192, bands), dtype, endpoint=True)
    values[:10] = info.max
    values[10:20] = info.min
    return values[..., 0] if bands == 1 else values


def shallow(stream, level=0):
    header = read_main_header(stream)
    rect = header.siz.image.scaled(1 << level, 1 << level)
    out = np.empty((len(header.siz.components), rect.height, rect.width), header.siz.dtype)
    openjph.decode_shallow([stream], header, level, out)
    return out


@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2"])
def test_equals_what_was_encoded_and_openjpeg(dtype, bands):
    array = image(dtype, bands)
    stream = bytes(imagecodecs.htj2k_encode(array, reversible=True))
    header = read_main_header(stream)
    assert openjph.is_faster(header, header.siz.image, NOTHING, ())
    found = shallow(stream)
    assert np.array_equal(np.moveaxis(found, 0, -1).reshape(array.shape), array)
    for level in range(1, header.levels + 1):
        expected = np.array(openjpeg.decode(stream, header.siz, header.siz.image, level))
        by_default = codec.decode_stream(stream, header, header.siz.image, level)
        assert np.array_equal(np.array(by_default), expected)


def test_coarse_levels_that_exceed_the_range_are_clipped_by_openjpeg():
    """The low-pass filter overshoots: casting would turn white into black."""
    array = 255 * np.random.default_rng(1).integers(0, 2, (64, 64), "u1")
    stream = bytes(imagecodecs.htj2k_encode(array, reversible=True))
    header = read_main_header(stream)
    with pytest.raises(ChunkDecodeError, match="range"):
        shallow(stream, 1)
    expected = imagecodecs.jpeg2k_decode(stream, skipres=1)
    [found] = codec.decode_stream(stream, header, header.siz.image, 1)
    assert np.array_equal(found, expected)


def test_other_streams_are_left_to_openjpeg():
    array = image("u1")
    others = [
        imagecodecs.htj2k_encode(array, reversible=False, level=0.01),
        imagecodecs.jpeg2k_encode(array, level=0, codecformat="J2K", reversible=True),
        imagecodecs.htj2k_encode(array[:, :-1], reversible=True),
    ]
    for stream in others:
        header = read_main_header(bytes(stream))
        assert not openjph.is_faster(header, header.siz.image, NOTHING, ())


def test_a_tile_that_overrides_the_coding_is_left_to_openjpeg():
    stream = bytes(imagecodecs.htj2k_encode(image("u1"), reversible=True))
    header = read_main_header(stream)
    data = stream[header.length :]
    [part] = stream_parts(memoryview(data))
    image_area = header.siz.image
    assert openjph.is_faster(header, image_area, memoryview(data), [part])
    qcd = header.qcds[0]
    own = b"\xff\x5c" + (len(qcd) + 2).to_bytes(2, "big") + qcd
    longer = memoryview(data[:12] + own + data[12:])
    assert not openjph.is_faster(header, image_area, longer, [part])


@pytest.mark.parametrize("seed", range(3))
def test_damage_gives_nothing_that_openjpeg_does_not_give(seed):
    rng = np.random.default_rng(seed)
    smooth = np.add.outer(np.arange(128), np.arange(192)).astype("u1")
    whole = imagecodecs.htj2k_encode(smooth, reversible=True)
    header = read_main_header(bytes(whole))
    compared = 0
    for _ in range(60):
        stream = bytearray(whole)
        stream[int(rng.integers(header.length + 40, len(stream) - 2))] = int(rng.integers(256))
        view = memoryview(bytes(stream))[header.length :]
        try:
            check_tile(header, 0, view, stream_parts(view))
            found = shallow(bytes(stream))
        except (ChunkDecodeError, FormatError):
            continue
        expected = openjpeg.decode(stream, header.siz, header.siz.image, 0)
        assert np.array_equal(found, np.array(expected))
        compared += 1
    assert compared
