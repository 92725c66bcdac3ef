"""Builders of displays; what they draw is compared with Pillow in test_painting.py."""

import pytest

from anychunk.metadata import drawing


def test_models():
    assert drawing.grey() == {"model": "grey", "bands": [0]}
    assert drawing.grey(limits=(0, 9), is_inverted=True) == {
        "model": "grey",
        "bands": [0],
        "range": [[0, 9]],
        "inverted": True,
    }
    assert drawing.rgb(limits=(0, 255))["range"] == [[0, 255]]
    assert drawing.cmyk()["bands"] == [0, 1, 2, 3]
    assert drawing.ycbcr()["model"] == "ycbcr"
    assert drawing.channels([{"band": 1, "color": "FF0000"}])["channels"][0]["band"] == 1


def test_colours_of_a_palette_have_alpha():
    found = drawing.indexed([(1, 2, 3), (4, 5, 6, 7)], first=10)
    assert found["palette"] == {"first": 10, "colors": [[1, 2, 3, 255], [4, 5, 6, 7]]}
    assert drawing.is_categorical(found)
    assert not drawing.is_categorical(drawing.rgb())
    assert not drawing.is_categorical(None)


def test_what_is_added_leaves_the_first_unchanged():
    plain = drawing.rgb()
    with_all = drawing.with_orientation(
        drawing.with_mask(drawing.with_alpha(plain, 3, limits=(0, 255))), 6
    )
    assert plain == {"model": "rgb", "bands": [0, 1, 2]}
    assert with_all["alpha"] == {"band": 3, "associated": False, "range": [0, 255]}
    assert with_all["mask"] == {"path": "mask", "valid": 255}
    assert with_all["orientation"] == 6
    assert "orientation" not in drawing.with_orientation(plain, 1)
    assert "orientation" not in drawing.with_orientation(plain, 99)
    assert drawing.with_mask(None)["model"] == "channels"
    channels = drawing.channels([{"band": 0}])
    assert drawing.with_alpha(channels, 1, limits=(0, 1)) == channels


@pytest.mark.parametrize(
    ("data_type", "bits", "stated", "full"),
    [
        ("bool", 1, (0, 1), (0, 1)),
        ("uint8", None, (0, 255), (0, 255)),
        ("uint8", 4, (0, 15), (0, 15)),
        ("uint16", 12, (0, 4095), (0, 4095)),
        ("uint16", 16, None, (0, 65535)),
        ("int16", 16, None, (0, 32767)),
        ("float32", None, None, (0, 1)),
    ],
)
def test_limits(data_type, bits, stated, full):
    assert drawing.limits_of(data_type, bits) == stated
    assert drawing.full_range(data_type, bits) == full
