import io
import itertools

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from anychunk.codecs import Jpeg
from anychunk.codecs.base import ChunkSpec
from anychunk.errors import ChunkDecodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract


def smooth(bands, height=40, width=48, bits=8):
    b, y, x = np.mgrid[:bands, :height, :width]
    field = (np.sin((x + 7 * b) / 9) + np.cos(y / 7) + 2) / 4 * ((1 << bits) - 1)
    return field.astype("u1" if bits <= 8 else "u2")


def codec(bands=1, bits=8, imode="B", height=40, width=48):
    return Jpeg(
        bits_per_pixel=bits, num_bands=bands, block_width=width, block_height=height, imode=imode,
        color_space="RGB" if bands == 3 else "MONO",
    )  # fmt: skip


class TestJpeg(CodecContract):
    """Within 8 of 255: quality 95, colours subsampled by half."""

    codecs = (codec(3, imode="B"), codec(3, imode="S"), codec(3, imode="P"))
    arrays = (smooth(3),)
    chunks = (3, 40, 48)
    tolerance = 8
    takes_any_shape = False


class TestLossless(CodecContract):
    codecs = (codec(2, 12), codec(2, 16, imode="S"))
    arrays = (smooth(2, bits=12),)
    chunks = (2, 40, 48)
    takes_any_shape = False


def decode(made, data):
    out = made.decode_bytes(np.frombuffer(data, np.uint8), None)
    return np.frombuffer(out, np.uint8).view(made.dtype).reshape(made.shape)


def pillow(array, **options):
    out = io.BytesIO()
    Image.fromarray(array).save(out, "JPEG", quality=90, **options)
    return out.getvalue()


@pytest.mark.parametrize(
    "options", [{}, {"subsampling": 0}, {"progressive": True}, {"restart_marker_blocks": 2}]
)
def test_equals_pillow(options):
    pixels = np.ascontiguousarray(smooth(3).transpose(1, 2, 0))
    data = pillow(pixels, **options)
    expected = np.asarray(Image.open(io.BytesIO(data)))
    np.testing.assert_array_equal(decode(codec(3, imode="P"), data), expected.transpose(2, 0, 1))


def test_color_space_is_ignored():
    """The colour transform is the one that the stream announces."""
    pixels = np.ascontiguousarray(smooth(3).transpose(1, 2, 0))
    for space in ("rgb", "ycbcr"):
        data = imagecodecs.jpeg8_encode(
            pixels, 95, colorspace="rgb", outcolorspace=space, subsampling="444"
        )
        for name in ("RGB", "YCbCr601", "MONO"):
            made = Jpeg(
                bits_per_pixel=8,
                num_bands=3,
                block_width=48,
                block_height=40,
                imode="P",
                color_space=name,
            )
            found = decode(made, data).astype(int)
            assert np.abs(found - smooth(3)).max() <= 4


@pytest.mark.parametrize(
    ("cut", "has_end"),
    # -1 and -2 remove only the end marker: with one appended, the stream would be whole
    [*itertools.product([0, 1, 2, 100, 0.3, 0.6, 0.9], [False, True]), (-1, False), (-2, False)],
)
@pytest.mark.parametrize("kind", ["grey", "colour", "restarts", "lossless"])
def test_truncated_streams_are_errors(cut, has_end, kind):
    bands = 3 if kind == "colour" else 1
    pixels = smooth(bands, 200, 200).transpose(1, 2, 0).squeeze()
    data = {
        "grey": lambda: pillow(pixels),
        "colour": lambda: pillow(np.ascontiguousarray(pixels)),
        "restarts": lambda: pillow(pixels, restart_marker_blocks=5),
        "lossless": lambda: imagecodecs.jpeg8_encode(pixels, lossless=True, predictor=4),
    }[kind]()
    length = int(len(data) * cut) if isinstance(cut, float) else cut
    with pytest.raises(ChunkDecodeError):
        decode(
            codec(bands, height=200, width=200, imode="P"), data[:length] + b"\xff\xd9" * has_end
        )


def test_noise_is_an_error():
    rng = np.random.default_rng(3)
    pixels = smooth(1, 200, 200)[0]
    whole = pillow(pixels)
    made = codec(height=200, width=200)
    for _ in range(20):
        data = bytearray(whole)
        data[-2500:-500] = rng.bytes(2000)
        with pytest.raises(ChunkDecodeError):
            decode(made, bytes(data))


def test_picture_that_ends_in_grey():
    """The grey that libjpeg puts where data is missing may also be the picture."""
    pixels = smooth(1)[0]
    pixels[16:] = 128
    np.testing.assert_array_equal(decode(codec(), pillow(pixels))[0, 24:], 128)
    data = imagecodecs.jpeg8_encode(pixels, lossless=True, predictor=1)
    np.testing.assert_array_equal(decode(codec(), data)[0], pixels)


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (codec(width=47), "expected 40 x 47"),
        (codec(height=41), "expected 41 x 48"),
        (codec(bits=12), "8 bits, expected 12"),
        (codec(2), "ffd8"),
    ],
)
def test_streams_that_do_not_match_the_block(made, what):
    with pytest.raises(ChunkDecodeError, match=what):
        decode(made, pillow(smooth(1)[0]))


def test_more_bands_than_expected():
    data = pillow(np.ascontiguousarray(smooth(3).transpose(1, 2, 0)))
    with pytest.raises(ChunkDecodeError, match="3 bands, .*2"):
        decode(codec(2), data)


def test_wrong_chunk():
    spec = ChunkSpec((1, 40, 49), np.dtype("u1"))
    with pytest.raises(ChunkDecodeError, match="1920 bytes.*1960"):
        codec().decode_bytes(np.frombuffer(pillow(smooth(1)[0]), np.uint8), spec)


@pytest.mark.parametrize(
    "wrong", [{"bits_per_pixel": 17}, {"num_bands": 0}, {"imode": "Q"}, {"color_space": 1}]
)
def test_configuration_is_checked(wrong):
    good = codec().configuration()
    with pytest.raises(CodecConfigError):
        Jpeg(**{**good, **wrong})
