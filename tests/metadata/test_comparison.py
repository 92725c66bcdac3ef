import math

import pytest

from anychunk.metadata.comparison import (
    attribute_differences,
    common_codecs,
    common_json,
    common_place,
    is_same,
    sample_differences,
)
from anychunk.metadata.meaning import Axis, Band, Crs, Meaning, Place


def meant(**fields):
    return Meaning(axes=(Axis(name="y"), Axis(name="x")), **fields)


def scaled(*pairs):
    return meant(bands=tuple(Band(scale=scale, offset=offset) for scale, offset in pairs))


def named(*names):
    return meant(bands=tuple(Band(name=name) for name in names))


def painted(*colours):
    return meant(display={"model": "palette", "palette": {"first": 0, "colors": list(colours)}})


@pytest.mark.parametrize(
    ("a", "b", "names"),
    [
        (meant(), meant(), []),
        (meant(name="a", tags={"a": "b"}), meant(name="b"), []),  # says nothing about samples
        (meant(nodata=0), meant(nodata=0.0), []),
        (meant(nodata=math.nan), meant(nodata=math.nan), []),
        (meant(nodata=0), meant(nodata=255), ["nodata"]),
        (meant(nodata=0), meant(), ["nodata"]),
        (scaled((1, 0)), meant(), []),
        (scaled((0.1, 0)), scaled((0.1 * (1 + 1e-12), 0)), []),
        (scaled((0.1, 0)), scaled((0.1 * (1 + 1e-6), 0)), ["scale and offset of band 0"]),
        (scaled((1, 0), (2, 0)), scaled((1, 0)), ["scale and offset of band 1"]),
        (meant(bands=(Band(unit="m"),)), meant(bands=(Band(unit="ft"),)), ["unit of band 0"]),
        (meant(bands=(Band(name="a"),)), meant(bands=(Band(name="b"),)), []),
        (named("red", "nir"), named("nir", "red"), ["order of bands"]),
        (named("red", "nir"), named("red", "swir"), []),
        (named("red", None), named(None, "red"), []),
        (
            meant(display={"model": "grey", "inverted": True}),
            meant(display={"model": "grey"}),
            ["colour of the largest value"],
        ),
        (painted([0, 0, 0, 255]), painted([0, 0, 0, 255]), []),
        (painted([0, 0, 0, 255]), painted([1, 0, 0, 255]), ["palette entry 0"]),
        (painted([0, 0, 0, 255]), meant(display={"model": "grey"}), ["palette"]),
    ],
)
def test_sample_differences(a, b, names):
    assert [found.name for found in sample_differences(a, b)] == names
    assert [found.name for found in sample_differences(b, a)] == names


def test_bands_that_stay_apart_may_differ():
    assert sample_differences(scaled((1, 0)), scaled((2, 0)), has_own_bands=True) == []
    assert sample_differences(meant(nodata=1), meant(), has_own_bands=True) == [("nodata", 1, None)]


@pytest.mark.parametrize(
    ("a", "b", "names"),
    [
        ({"title": "a"}, {"title": "b"}, []),
        ({"units": "m"}, {"units": "ft"}, ["units"]),
        ({"scale_factor": 0.1}, {}, ["scale_factor"]),
        ({"scale_factor": 0.1}, {"scale_factor": 0.1 * (1 + 1e-12)}, []),
        ({"scale_factor": 0.1}, {"scale_factor": 0.1 * (1 + 1e-6)}, ["scale_factor"]),
    ],
)
def test_attribute_differences(a, b, names):
    assert [found.name for found in attribute_differences(a, b)] == names
    assert [found.name for found in attribute_differences(b, a)] == names


def test_common_json():
    assert common_json([{"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 4}}]) == {
        "a": 1,
        "b": {"c": 2},
    }
    assert common_json([[1], [2]]) is None


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1, 1.0, True),
        (1.0, 1.0 + 1e-10, True),
        (1.0, 1.0 + 1e-8, False),
        (0.0, 1e-300, False),
        (math.nan, math.nan, True),
        ([1.0, [2.0]], [1.0, [2.0 + 1e-12]], True),
        ([1.0], [1.0, 2.0], False),
        ({"a": 1.0}, {"a": 1.0 + 1e-12}, True),
        ({"a": 1.0}, {"b": 1.0}, False),
        ("a", "b", False),
        (1.0, "1.0", False),
    ],
)
def test_is_same(a, b, expected):
    assert is_same(a, b) is expected


def place(x, code="EPSG:32631"):
    return Place(crs=Crs(code=code), transform=(1.0, 0.0, x, 0.0, -1.0, 0.0))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([place(0.0), place(0.0)], place(0.0)),
        ([place(0.0), place(0.0), place(7.0)], Place(crs=Crs(code="EPSG:32631"))),
        ([place(0.0), place(0.0, "EPSG:32632")], Place()),
        ([Place(), Place()], Place()),
        ([place(0.0), Place()], Place()),
        ([Place(crs=Crs(wkt="A")), Place(crs=Crs(wkt="B"))], Place()),
    ],
)
def test_common_place(files, expected):
    assert common_place(files) == expected


def tile(**settings):
    return {"name": "tile", "configuration": {"tile_height": 8, "tile_width": 8, **settings}}


BYTES = {"name": "bytes"}


@pytest.mark.parametrize(
    ("chains", "expected"),
    [
        ([[BYTES], [BYTES]], (BYTES,)),
        ([[BYTES], [BYTES, BYTES]], None),
        ([[BYTES], [tile()]], None),
        ([[tile()], [tile(predictor=2)]], None),
        # whole chunks everywhere are compatible with any partial size
        ([[tile(last_height=8)], [tile(last_height=3)]], (tile(last_height=3),)),
        ([[tile()], [tile(last_height=3)]], (tile(last_height=3),)),
        ([[tile(last_height=3)], [tile(last_width=5)]], (tile(last_height=3, last_width=5),)),
        ([[tile(last_height=3)], [tile(last_height=5)]], None),
    ],
)
def test_common_codecs(chains, expected):
    assert common_codecs(chains) == expected
