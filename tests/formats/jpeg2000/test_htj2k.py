"""HTJ2K, against OpenJPEG, OpenJPH and what was encoded."""

import imagecodecs
import numpy as np
import pytest

from anychunk.codestream.jpeg2000 import read_main_header
from anychunk.errors import TruncatedError, UnsupportedError
from tests.support.gdal import without_band
from tests.support.j2k_streams import field, opened, with_length


@pytest.mark.parametrize("tile", [(64, 64), (100, 52), (1000, 1000)])
@pytest.mark.parametrize("options", [{"tlm": True}, {"tilepart": 1}, {}])
def test_htj2k(tmp_path, tile, options):
    image = field((200, 170), bands=3)
    stream = imagecodecs.htj2k_encode(np.moveaxis(image, 0, -1), tile=tile, **options)
    group = opened(tmp_path / "a.jhc", stream)
    assert group["0"].attrs["j2k"]["is_ht"]
    np.testing.assert_array_equal(group["0/0/image"][...], image)
    lower = imagecodecs.jpeg2k_decode(stream, planar=True, skipres=1)
    np.testing.assert_array_equal(group["0/1/image"][...], lower)


@pytest.mark.parametrize("depth", [27, 28, 29, 30, 31])
@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("bands", [1, 3])
def test_htj2k_too_deep_for_openjpeg(tmp_path, depth, is_signed, bands):
    """Code-blocks of more than 30 bit-planes, with which OpenJPEG gives up."""
    half = 1 << depth - 1
    low, high = (-half, half - 1) if is_signed else (0, 2 * half - 1)
    rng = np.random.default_rng(depth)
    image = rng.integers(low, high, (bands, 70, 90), f"{'i' if is_signed else 'u'}4", endpoint=True)
    pixels = np.moveaxis(image, 0, -1) if bands > 1 else image[0]
    stream = imagecodecs.htj2k_encode(pixels, bitspersample=depth, tile=(40, 33), resolutions=3)
    group = opened(tmp_path / "a.jhc", stream)
    np.testing.assert_array_equal(group["0/0/image"][...], without_band(image))
    lower = imagecodecs.htj2k_decode(stream, planar=True, skipres=1).reshape(bands, 35, 45)
    # values between samples may leave the range, and are clipped
    expected = lower.view(np.int32).clip(low, high).astype(image.dtype)
    np.testing.assert_array_equal(group["0/1/image"][...], without_band(expected))


def test_deep_htj2k_that_is_cut(tmp_path):
    image = np.random.default_rng(0).integers(0, 1 << 30, (40, 50), np.uint32)
    stream = imagecodecs.htj2k_encode(image, bitspersample=30)
    part = stream[read_main_header(stream).length : -12]
    with pytest.raises(TruncatedError, match=r"a\.jhc.*chunk \(0, 0\)"):
        opened(tmp_path / "a.jhc", with_length(stream, part))["0/0/image"][...]


@pytest.mark.parametrize("is_in_tile", [False, True])
@pytest.mark.parametrize("depth", [8, 30])
def test_htj2k_with_a_region_of_interest_is_refused(tmp_path, is_in_tile, depth):
    """OpenJPEG refuses it; OpenJPH, which decodes deep samples, ignores it."""
    image = (
        np.random.default_rng(0)
        .integers(0, 1 << depth, (40, 50))
        .astype(f"u{1 if depth == 8 else 4}")
    )
    stream = imagecodecs.htj2k_encode(image, bitspersample=depth)
    length = read_main_header(stream).length

    def with_shift(shift):
        rgn = bytes.fromhex("ff5e00050000") + bytes([shift])  # T.800 A.6.3: component 0
        if not is_in_tile:
            return stream[:length] + rgn + stream[length:]
        part = stream[length:-2]
        return with_length(stream, part[:12] + rgn + part[12:])

    np.testing.assert_array_equal(
        opened(tmp_path / "a.jhc", with_shift(0))["0/0/image"][...], image
    )
    with pytest.raises(UnsupportedError, match=r"a\.jhc.*HTJ2K.*RGN"):
        opened(tmp_path / "a.jhc", with_shift(5))["0/0/image"][...]


def test_htj2k_without_bit_planes_is_refused(tmp_path):
    """OpenJPH writes so one sample of one bit; OpenJPEG shows 1 where 0 was stored."""
    stream = imagecodecs.htj2k_encode(np.zeros((1, 1), np.uint8), bitspersample=1, resolutions=1)
    with pytest.raises(UnsupportedError, match=r"a\.jhc.*HTJ2K"):
        opened(tmp_path / "a.jhc", stream)
    two = imagecodecs.htj2k_encode(np.full((1, 1), 3, np.uint8), bitspersample=2, resolutions=1)
    assert opened(tmp_path / "b.jhc", two)["0/0/image"][...].tolist() == [[3]]


def test_htj2k_irreversible_does_not_wrap(tmp_path):
    """Imagecodecs' OpenJPH casts without clipping, so what is brighter than white becomes black."""
    image = np.zeros((64, 64), np.uint8)
    image[16:48, 16:48] = 255
    stream = imagecodecs.htj2k_encode(image, level=0.02, reversible=False)
    found = opened(tmp_path / "a.jhc", stream)["0/0/image"][...]
    assert np.abs(found.astype(int) - image).max() < 60
