import math
from dataclasses import replace

import numpy as np
import pytest
import rasterio
from rasterio import Affine

import anychunk
from anychunk.metadata.samples import (
    fill_value_json,
    float_json,
    nodata,
    packing,
    sample_meaning,
)
from tests.indexes import plain


def tagged(text):
    return {"tiff": {"tags": {"GDAL_NODATA": text}}}


def scaled(*bands):
    return {"tiff": {"gdal_metadata": {f"band {i}": band for i, band in enumerate(bands)}}}


def filled(tmp_path, value):
    return replace(plain(tmp_path)[0]["0/0"], fill_value=value)


@pytest.mark.parametrize(
    ("fill", "attributes", "expected"),
    [
        (7, {}, 7),
        (-9999.0, {}, -9999.0),
        ("-Infinity", {}, -math.inf),
        (0, {}, None),  # the default fill value of every array
        (0, tagged("0"), 0),
        (0, tagged("0.0\0"), 0),
        (0, tagged("-9999"), None),  # does not fit the type, so it is not the fill value
        (0, tagged("none"), None),
        (False, tagged("0"), None),
        ([0.0, 0.0], {}, None),
        ("0x7fc00000", {}, None),
    ],
)
def test_nodata(tmp_path, fill, attributes, expected):
    assert nodata(attributes, filled(tmp_path, fill)) == expected


def test_nodata_nan(tmp_path):
    assert math.isnan(nodata({}, filled(tmp_path, "NaN")))


@pytest.mark.parametrize(
    ("attributes", "bands", "expected"),
    [
        ({}, 1, None),
        (scaled({"SCALE": "0.5", "OFFSET": "3"}), 1, (0.5, 3.0)),
        (scaled({"SCALE": "0.5"}), 1, (0.5, 0.0)),
        (scaled({"SCALE": "0.5"}, {"SCALE": "0.50"}), 2, (0.5, 0.0)),
        (scaled({"SCALE": "0.5"}, {"SCALE": "2"}), 2, None),
        (scaled({"SCALE": "0.5"}), 2, None),  # the other band is not scaled
        (scaled({"SCALE": "1", "OFFSET": "0"}), 1, None),
        (scaled({"SCALE": "much"}), 1, None),
        (scaled("text"), 1, None),
        ({"tiff": {"gdal_metadata": "text"}}, 1, None),
    ],
)
def test_packing(attributes, bands, expected):
    assert packing(attributes, bands) == expected


def test_files_of_gdal(tmp_path):
    path = tmp_path / "a.tif"
    profile = {"driver": "GTiff", "dtype": "int16", "count": 2, "height": 4, "width": 5}
    with rasterio.open(path, "w", nodata=0, transform=Affine.scale(2), **profile) as made:
        made.write(np.ones((2, 4, 5), "int16"))
        made.scales, made.offsets = (0.25, 0.25), (-3.0, -3.0)
    index = anychunk.index(path)
    attributes = index["0"].attributes
    assert nodata(attributes, index["0/0"]) == 0
    assert packing(attributes, 2) == (0.25, -3.0)
    meaning = sample_meaning(attributes)
    assert meaning["nodata"] == 0
    assert meaning["scale and offset of band 0"] == [0.25, -3.0]
    assert meaning["scale and offset of band 1"] == [0.25, -3.0]


@pytest.mark.parametrize(
    ("value", "dtype", "json"),
    [
        (np.float32(np.nan), "float32", "NaN"),
        (np.float64(-np.inf), "float64", "-Infinity"),
        (np.inf, "float16", "Infinity"),
        (np.float32(0.5), "float32", 0.5),
        (np.uint8(7), "uint8", 7),
        (0, "bool", False),
        (np.complex64(complex(1, np.nan)), "complex64", [1.0, "NaN"]),
        (0, "complex64", [0.0, 0.0]),
    ],
)
def test_fill_values(value, dtype, json):
    found = fill_value_json(value, np.dtype(dtype))
    assert (found, type(found)) == (json, type(json))


def test_floats_are_python_floats():
    assert type(float_json(np.float32(1))) is float
