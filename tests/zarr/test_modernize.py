"""`numcodecs.fixedscaleoffset` replaced: what numcodecs decodes is the measure."""

import json

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs.numcodecs import FixedScaleOffset

import anychunk
from anychunk.errors import CodecConfigError, UnsupportedError
from anychunk.zarr import modernize

pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")
VALUES = np.round(np.random.default_rng(0).normal(283, 12, (50, 40)), 3)


def create(path, *, dtype, fill=0, **options):
    array = zarr.create_array(
        path, shape=VALUES.shape, chunks=(20, 20), dtype=dtype, fill_value=fill,
        filters=[FixedScaleOffset(dtype=np.dtype(dtype).str, **options)],
    )  # fmt: skip
    array[:40] = VALUES[:40].astype(dtype)
    return array


def stored(path):
    files = [file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json"]
    return {file: file.read_bytes() for file in files}


@pytest.mark.parametrize(
    ("dtype", "options", "names"),
    [
        ("float64", {"offset": 200, "scale": 100, "astype": "<u2"}, ["scale_offset", "cast_value"]),
        ("float64", {"offset": 273.15, "scale": 10, "astype": ">i2"}, ["scale_offset", "cast_value"]),
        # numcodecs decodes in float64
        ("float32", {"offset": 273.15, "scale": 10, "astype": "<i2"}, ["cast_value", "scale_offset", "cast_value"]),
        ("float32", {"offset": 0, "scale": 4, "astype": "<i2"}, ["scale_offset", "cast_value"]),
        ("int32", {"offset": 100, "scale": 1, "astype": "|u1"}, ["scale_offset", "cast_value"]),
        ("int32", {"offset": 200, "scale": 0.5, "astype": "|u1"}, ["cast_value", "scale_offset", "cast_value"]),
    ],
)  # fmt: skip
def test_values_and_chunks_stay(tmp_path, dtype, options, names):
    array = create(tmp_path / "a.zarr", dtype=dtype, fill=200, **options)
    before, chunks = array[...], stored(tmp_path / "a.zarr")
    found = modernize.modernize(array)
    assert [codec["name"] for codec in found][: len(names)] == names
    written = json.loads((tmp_path / "a.zarr/zarr.json").read_text())["codecs"]
    assert [codec["name"] for codec in written] == [codec["name"] for codec in found]
    assert stored(tmp_path / "a.zarr") == chunks
    anychunk.enable()
    try:
        reopened = zarr.open_array(tmp_path / "a.zarr", mode="r")
        np.testing.assert_array_equal(reopened[...], before)
        # and numcodecs itself, on the bytes of a chunk
        whole = reopened[:20, :20]
        codec = numcodecs.FixedScaleOffset(dtype=np.dtype(dtype).str, **options)
        np.testing.assert_array_equal(codec.decode(codec.encode(whole)).reshape(whole.shape), whole)
    finally:
        anychunk.disable()


def test_the_published_example():
    """Of zarr-extensions, codecs/scale_offset."""
    old = {"name": "numcodecs.fixedscaleoffset",
           "configuration": {"astype": "uint8", "dtype": "float32", "scale": 0.1, "offset": 10}}  # fmt: skip
    assert modernize.candidates(old, "float32")[0] == [
        {"name": "scale_offset", "configuration": {"scale": 0.1, "offset": 10}},
        {"name": "cast_value", "configuration": {"data_type": "uint8", "out_of_range": "wrap"}},
    ]


def test_what_would_change_is_refused(tmp_path):
    """NaN as fill value has no place in uint8."""
    array = create(
        tmp_path / "a.zarr", dtype="float64", fill=np.nan, offset=200, scale=1, astype="u1"
    )
    before = (tmp_path / "a.zarr/zarr.json").read_bytes()
    with pytest.raises(UnsupportedError, match="fixedscaleoffset stays.*nan.*fill value"):
        modernize.modernize(array)
    assert (tmp_path / "a.zarr/zarr.json").read_bytes() == before


def test_other_arrays_are_refused(tmp_path):
    array = zarr.create_array(tmp_path / "a.zarr", shape=(4,), dtype="u1")
    with pytest.raises(UnsupportedError, match="first codec"):
        modernize.modernize(array)
    old = zarr.create_array(tmp_path / "b.zarr", shape=(4,), dtype="u1", zarr_format=2)
    with pytest.raises(UnsupportedError, match="Zarr v2"):
        modernize.modernize(old)


@pytest.mark.parametrize(
    "configuration",
    [None, {}, {"offset": 1}, {"offset": "1", "scale": 1}, {"offset": 1, "scale": 1, "astype": "?!"},
     {"offset": 1, "scale": 1, "dtype": "<f8"}],
)  # fmt: skip
def test_bad_configurations(configuration):
    with pytest.raises(CodecConfigError):
        modernize.candidates({"name": modernize.OLD, "configuration": configuration}, "float32")
