"""The OME-Zarr attribute of an image group."""

import numpy as np
import pytest

from anychunk.metadata.cf import type_range
from anychunk.metadata.meaning import Axis, Band, Level, Meaning
from anychunk.metadata.ome import ome, omero_channels, scale_and_translation

pytest.importorskip("xarray", reason='xarray is not here: pip install "anychunk[xarray]"')
from tests.metadata.test_hierarchy import axes, stored


def image(*shape: int, dtype: str = "uint16"):
    return stored(np.zeros(shape, dtype), *"tczyx"[-len(shape) :])


def test_axes_have_types_and_units():
    names = axes("tczyx", t=Axis(name="t", unit="second"))
    found = ome(Meaning(axes=names), [Level(name="0", image=image(1, 1, 1, 1, 1))])
    assert found["version"] == "0.5"
    assert found["multiscales"][0]["axes"] == [
        {"name": "t", "type": "time", "unit": "second"},
        {"name": "c", "type": "channel"},
        {"name": "z", "type": "space"},
        {"name": "y", "type": "space"},
        {"name": "x", "type": "space"},
    ]


def test_levels_cover_the_same_extent():
    sizes = axes("zyx", y=Axis(name="y", scale=2.0), x=Axis(name="x", scale=5.0))
    meaning, full = Meaning(axes=sizes), (3, 12, 30)
    for shape in (full, (3, 6, 15), (3, 4, 8)):
        level = Level(name="0", image=image(*shape))
        scale, translation = scale_and_translation(meaning, level, full)
        # centre of the first element minus half of its size is the common edge
        edges = [t - s / 2 for s, t in zip(scale, translation, strict=True)]
        assert edges == pytest.approx([-0.5, -1, -2.5])
    assert scale == pytest.approx((1, 6, 30 / 8 * 5))


def test_what_the_format_states_about_a_level_wins():
    level = Level(name="s1", image=image(2, 2), scale=(7.0, 8.0), origin=(1.0, 2.0))
    assert scale_and_translation(Meaning(axes=axes("yx")), level, (4, 4)) == ((7, 8), (1, 2))


def test_a_level_without_a_translation_has_none():
    found = ome(Meaning(axes=axes("yx"), name="a"), [Level(name="0", image=image(2, 2))])
    assert found == {
        "version": "0.5",
        "multiscales": [
            {
                "name": "a",
                "axes": [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}],
                "datasets": [
                    {
                        "path": "0/image",
                        "coordinateTransformations": [{"type": "scale", "scale": [1.0, 1.0]}],
                    }
                ],
            }
        ],
    }


def test_channels_of_a_photograph():
    meaning = Meaning(axes=axes("cyx"), display={"model": "rgb", "bands": [0, 1, 2]})
    level = Level(name="0", image=stored(np.zeros((3, 2, 2), "uint8"), "c", "y", "x"))
    found = omero_channels(meaning, level)
    assert [c["color"] for c in found] == ["FF0000", "00FF00", "0000FF"]
    assert {(c["window"]["start"], c["window"]["end"]) for c in found} == {(0, 255)}


def test_channels_that_state_colour_name_and_limits():
    channel = {"band": 1, "label": "DAPI", "color": "123456", "window": [5, 900], "active": False}
    meaning = Meaning(
        axes=axes("cyx"),
        bands=(Band(name="GFP"), Band()),
        display={"model": "channels", "channels": [channel]},
    )
    level = Level(name="0", image=stored(np.zeros((2, 2, 2), "uint16"), "c", "y", "x"))
    first, second = omero_channels(meaning, level)
    assert (first["label"], first["color"], first["active"]) == ("GFP", "0000FF", True)
    assert (second["label"], second["color"], second["active"]) == ("DAPI", "123456", False)
    assert second["window"] == {"min": 0, "max": 65535, "start": 5, "end": 900}


@pytest.mark.parametrize("model", ["palette", "cmyk"])
def test_colours_that_ome_has_no_word_for(model):
    meaning = Meaning(axes=axes("cyx"), display={"model": model, "bands": [0]})
    level = Level(name="0", image=stored(np.zeros((4, 2, 2), "uint8"), "c", "y", "x"))
    assert omero_channels(meaning, level) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("uint8", (0, 255)), ("int16", (-32768, 32767)), ("float32", (0, 1)), ({"name": "x"}, (0, 1))],
)
def test_ranges_of_types(name, expected):
    assert type_range(name) == expected
