"""Rows of long JPEG pictures, compared with crops of the whole picture."""

import io

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from anychunk.codestream.jpeg_rows import rows_stream
from anychunk.errors import FormatError

RNG = np.random.default_rng(11)
NOISE = RNG.integers(0, 256, (203, 150, 3), dtype=np.uint8)
SMOOTH = np.cumsum(RNG.integers(-3, 4, (203, 150, 3)), axis=0).astype(np.uint8)


def jpeg(image, **options):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", **options)
    return np.frombuffer(file.getvalue(), np.uint8)


CASES = {
    f"{name}, subsampling {subsampling}, {marks}": (image, {"subsampling": subsampling, **marks})
    for name, image in (("noise", NOISE), ("smooth", SMOOTH))
    for subsampling in (0, 1, 2)
    for marks in ({}, {"restart_marker_rows": 1}, {"restart_marker_rows": 3})
} | {
    "grey": (NOISE[..., 0], {"restart_marker_rows": 2}),
    "blocks": (SMOOTH, {"restart_marker_blocks": 5, "subsampling": 0}),
    "optimized": (SMOOTH, {"optimize": True, "quality": 95}),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_equal_the_crop(name):
    image, options = CASES[name]
    data = jpeg(image, **options)
    whole = imagecodecs.jpeg8_decode(data)
    tried = 0
    for first in range(0, 200, 13):
        for stop in (first + 1, min(first + 20, 203), min(first + 90, 203)):
            rows = rows_stream(data, first, stop)
            if rows is None:
                continue
            part = imagecodecs.jpeg8_decode(rows.data)
            assert len(part) == rows.height
            np.testing.assert_array_equal(
                part[first - rows.first : stop - rows.first], whole[first:stop]
            )
            tried += 1
    assert tried > 20


def test_restart_markers_make_streams_short():
    data = jpeg(NOISE, restart_marker_rows=1, subsampling=2)
    rows = rows_stream(data, 100, 110)
    assert rows.height <= 48
    assert len(rows.data) < len(data) / 3


def test_what_is_decoded_whole():
    assert rows_stream(jpeg(NOISE, progressive=True), 0, 10) is None
    assert rows_stream(jpeg(NOISE), 150, 200) is None
    assert rows_stream(jpeg(NOISE), 0, 204) is None


def test_missing_restart_markers():
    data = jpeg(NOISE, restart_marker_rows=1).copy()
    places = np.flatnonzero((data[:-1] == 0xFF) & ((data[1:] & 0xF8) == 0xD0))
    data[places[4] + 1] ^= 1
    with pytest.raises(FormatError):
        rows_stream(data, 100, 110)
