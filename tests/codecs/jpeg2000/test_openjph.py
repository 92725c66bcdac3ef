"""OpenJPH decodes reversible HTJ2K exactly as OpenJPEG does, or leaves it to OpenJPEG."""

import imagecodecs
import numpy as np
import pytest

from anychunk.codecs.jpeg2000 import openjpeg, openjph, tiles
from anychunk.codestream.jpeg2000 import read_main_header, stream_parts
from anychunk.codestream.packets import check_tile
from anychunk.errors import ChunkDecodeError, FormatError
from anychunk.native import loops
from tests.support.compiled import needs_compiled

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
        expected = np.array(openjpeg.components(stream, header.siz, header.siz.image, level))
        by_default = tiles.decode_stream([stream], header, header.siz.image, level)
        assert np.array_equal(np.array(by_default), expected)


def test_coarse_levels_that_exceed_the_range_are_clipped_by_openjpeg():
    """The low-pass filter overshoots: casting would turn white into black."""
    array = 255 * np.random.default_rng(1).integers(0, 2, (64, 64), "u1")
    stream = bytes(imagecodecs.htj2k_encode(array, reversible=True))
    header = read_main_header(stream)
    with pytest.raises(ChunkDecodeError, match="range"):
        shallow(stream, 1)
    expected = imagecodecs.jpeg2k_decode(stream, skipres=1)
    [found] = tiles.decode_stream([stream], header, header.siz.image, 1)
    assert np.array_equal(found, expected)


def test_samples_that_fit_into_16_bits_are_decoded_in_16():
    """8-bit grey as OpenJPH encodes it; colours and more bits could exceed them."""
    for array, fits in ((image("u1"), True), (image("u1", 3), False), (image("u2"), False)):
        stream = bytes(imagecodecs.htj2k_encode(array, reversible=True))
        assert openjph._fits_16_bits(read_main_header(stream)) == fits


def test_no_coefficients_exceed_the_bound_for_16_bits():
    """Coefficients of the largest size, of the signs that add up in a sample, by the 5/3 formula."""

    def inverse(low, high):
        # T.800 F.3.8.2.1, with the sequences extended by reflection
        low, high = np.asarray(low, np.int64), np.asarray(high, np.int64)
        before = np.concatenate([high[:1], high[:-1]])
        even = low - ((before + high + 2) >> 2)
        odd = high + ((even + np.concatenate([even[1:], even[-1:]])) >> 1)
        return np.stack([even, odd], axis=1).reshape(2 * len(low), *low.shape[1:])

    stream = bytes(imagecodecs.htj2k_encode(image("u1"), reversible=True))
    header = read_main_header(stream)
    assert openjph._fits_16_bits(header)
    planes = [(header.qcds[0][0] >> 5) + (step >> 3) - 1 for step in header.qcds[0][1:]]
    rng, highest = np.random.default_rng(0), 0
    for _ in range(40):
        bands = [(1 << n) - 1 for n in planes]
        samples = np.full((2, 2), rng.choice([-1, 1]) * bands[0])
        for level in range(header.levels):
            hl, lh, hh = (
                rng.choice([-1, 1], samples.shape) * size
                for size in bands[1 + 3 * level : 4 + 3 * level]
            )
            rows = [inverse(a.T, b.T).T for a, b in ((samples, hl), (lh, hh))]
            samples = inverse(*rows)
        highest = max(highest, int(np.abs(samples).max()))
    assert 4000 < highest < 1 << 15


@needs_compiled
@pytest.mark.parametrize("best", [0, 2])
@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize(("size", "depth"), [(2, 1), (2, 8), (4, 8), (4, 12), (4, 16), (2, 16)])
def test_the_compiled_loop_narrows_as_numpy_does(size, depth, is_signed, best):
    half = 1 << depth - 1
    rng = np.random.default_rng(depth)
    samples = rng.integers(-half, half, (70, 301)).astype(f"i{size}")
    samples[0, :2] = -half, half - 1
    dtype = np.dtype(f"{'i' if is_signed else 'u'}{1 if depth <= 8 else 2}")
    found = np.empty(samples.shape, dtype)
    assert loops.narrow_samples(samples, found, depth, is_signed, best)
    assert np.array_equal(found, samples.astype(int) + (0 if is_signed else half))
    other = np.empty_like(found)
    assert openjph._narrow(samples.copy(), other, depth, is_signed=is_signed)
    assert np.array_equal(found, other)
    beyond = {half, -half - 1, np.iinfo(samples.dtype).max, np.iinfo(samples.dtype).min}
    for value in beyond if depth < 8 * size else ():
        samples[60, 300] = value
        assert not loops.narrow_samples(samples, found, depth, is_signed, best)
        assert not openjph._narrow(samples.copy(), other, depth, is_signed=is_signed)


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
        expected = openjpeg.components(stream, header.siz, header.siz.image, 0)
        assert np.array_equal(found, np.array(expected))
        compared += 1
    assert compared
