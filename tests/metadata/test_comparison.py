import math

import pytest

from anychunk.metadata import geo
from anychunk.metadata.comparison import (
    common_codecs,
    differing_georeference,
    is_same,
    sample_differences,
)


def scaled(*bands):
    return {"tiff": {"gdal_metadata": {f"band {i}": band for i, band in enumerate(bands)}}}


def tagged(text):
    return {"tiff": {"tags": {"GDAL_NODATA": text}}}


@pytest.mark.parametrize(
    ("a", "b", "names"),
    [
        ({}, {}, []),
        ({"title": "a"}, {"title": "b"}, []),  # says nothing about samples
        ({"units": "m"}, {"units": "ft"}, ["units"]),
        ({"scale_factor": 0.1}, {}, ["scale_factor"]),
        ({"scale_factor": 0.1}, {"scale_factor": 0.1 * (1 + 1e-12)}, []),
        ({"scale_factor": 0.1}, {"scale_factor": 0.1 * (1 + 1e-6)}, ["scale_factor"]),
        (tagged("0"), tagged("0.0 "), []),
        (tagged("nan"), tagged("NaN"), []),
        (tagged("0"), tagged("255"), ["nodata"]),
        (tagged("0"), {}, ["nodata"]),
        (scaled({}), scaled({"SCALE": "1", "OFFSET": "0"}), []),
        ({}, scaled({"SCALE": "1"}), []),
        (scaled({}, {"SCALE": "2"}), scaled({}), ["scale and offset of band 1"]),
        ({"tiff": {"color_map": [[0]]}}, {"tiff": {"color_map": [[1]]}}, ["color_map"]),
    ],
)
def test_sample_differences(a, b, names):
    assert sample_differences(a, b) == names
    assert sample_differences(b, a) == names


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
    return geo.attributes(shape=(2, 3), transform=(1.0, 0.0, x, 0.0, -1.0, 0.0), code=code)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([place(0.0), place(0.0)], ()),
        ([place(0.0), place(0.0), place(7.0)], ("spatial:",)),
        ([place(0.0), place(0.0, "EPSG:32632")], ("spatial:", "proj:")),
        ([{}, {}], ()),
        ([place(0.0), {}], ("spatial:", "proj:")),
    ],
)
def test_differing_georeference(files, expected):
    assert differing_georeference(files) == expected


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
