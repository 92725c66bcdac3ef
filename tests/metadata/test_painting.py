"""Colours of samples, by formulas that are computed again here."""

import numpy as np
import pytest

from anychunk.metadata.painting import bands_needed, paint, palette, stated_limits

BYTES = np.arange(256, dtype=np.float64).reshape(16, 16)
FULL = dict.fromkeys(range(5), (0.0, 255.0))


def planes(count: int) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(count)
    return {band: rng.integers(0, 256, (16, 16)).astype(float) for band in range(count)}


def test_grey_and_min_is_white():
    np.testing.assert_array_equal(paint({0: BYTES}, {"model": "grey"}, FULL), BYTES)
    inverted = paint({0: BYTES}, {"model": "grey", "bands": [0], "inverted": True}, FULL)
    np.testing.assert_array_equal(inverted, 255 - BYTES)


def test_rgb_in_any_order():
    bands = planes(4)
    found = paint(bands, {"model": "rgb", "bands": [2, 1, 0]}, FULL)
    np.testing.assert_array_equal(found, np.stack([bands[2], bands[1], bands[0]], -1))


def test_cmyk():
    bands = planes(4)
    found = paint(bands, {"model": "cmyk", "bands": [0, 1, 2, 3]}, FULL).astype(int)
    for i in range(3):
        expected = np.rint((255 - bands[i]) * (255 - bands[3]) / 255)
        np.testing.assert_array_equal(found[..., i], expected)


def test_ycbcr_of_known_colours():
    pytest.importorskip("PIL", reason="Pillow is not installed")
    from PIL import Image

    bands = planes(3)
    merged = np.stack([bands[i] for i in range(3)], -1).astype("uint8")
    expected = np.asarray(Image.frombytes("YCbCr", (16, 16), merged.tobytes()).convert("RGB"))
    found = paint(bands, {"model": "ycbcr", "bands": [0, 1, 2]}, FULL)
    # Pillow computes with integers
    assert np.abs(found.astype(int) - expected).max() <= 1


def test_alpha_is_straight():
    bands = planes(4)
    alpha = {"band": 3, "associated": False, "range": [0, 255]}
    found = paint(bands, {"model": "rgb", "bands": [0, 1, 2], "alpha": alpha}, FULL)
    np.testing.assert_array_equal(found, np.stack([bands[i] for i in range(4)], -1))
    half = {0: np.full((2, 2), 64.0), 3: np.full((2, 2), 128.0)}
    alpha = {"band": 3, "associated": True, "range": [0, 255]}
    found = paint(half, {"model": "grey", "bands": [0], "alpha": alpha}, FULL)
    assert found[0, 0].tolist() == [128, 128, 128, 128]


def test_channels_are_added_in_their_colours():
    bands = {0: np.array([[0.0, 100.0]]), 1: np.array([[50.0, 50.0]]), 2: np.array([[9.0, 9.0]])}
    display = {
        "model": "channels",
        "channels": [
            {"band": 0, "color": "0000FF"},
            {"band": 1, "color": "00FF00"},
            {"band": 2, "color": "FF0000", "active": False},
        ],
    }
    limits = {0: (0.0, 100.0), 1: (0.0, 100.0), 2: (0.0, 1.0)}
    found = paint(bands, display, limits)
    assert found.tolist() == [[[0, 128, 0], [0, 128, 255]]]
    assert bands_needed(display, 3) == [0, 1]


@pytest.mark.parametrize(
    ("display", "data_type", "expected"),
    [
        ({"model": "grey"}, "uint8", (0.0, 255.0)),
        ({"model": "grey"}, "uint16", None),
        ({"model": "grey", "range": [[5, 9]]}, "uint16", (5.0, 9.0)),
        ({"model": "channels", "channels": [{"band": 0, "window": [1, 2]}]}, "uint8", (1.0, 2.0)),
        ({"model": "grey", "range": ["x"]}, "uint16", None),
    ],
)
def test_limits(display, data_type, expected):
    assert stated_limits(display, 0, data_type) == expected


@pytest.mark.parametrize("table", [None, {}, {"colors": "x"}, {"colors": [[1, 2]]}, {"colors": []}])
def test_palettes_that_are_none(table):
    assert palette({"model": "palette", "palette": table}) is None


def test_palettes_with_and_without_alpha():
    first, colours = palette({"model": "palette", "palette": {"first": 2, "colors": [[1, 2, 3]]}})
    assert (first, colours.tolist()) == (2, [[1, 2, 3, 255]])
