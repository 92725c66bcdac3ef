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

pytestmark = [
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part"),
]
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


@pytest.mark.parametrize("stored_type", ["<i2", "|u1"])
def test_nan_as_fill_value(tmp_path, stored_type):
    options = {"offset": 200, "scale": 1, "astype": stored_type}
    array = create(tmp_path / "a.zarr", dtype="float64", fill=np.nan, **options)
    before, chunks = array[...], stored(tmp_path / "a.zarr")
    assert np.isnan(before[40:]).all()
    modernize.modernize(array)
    assert stored(tmp_path / "a.zarr") == chunks
    anychunk.enable()
    try:
        reopened = zarr.open_array(tmp_path / "a.zarr", mode="r")
        assert np.isnan(reopened.fill_value)
        np.testing.assert_array_equal(reopened[...], before)
    finally:
        anychunk.disable()


@pytest.mark.parametrize("is_deep", [False, True])
def test_consolidated_metadata_of_groups(tmp_path, is_deep):
    path = tmp_path / "g.zarr"
    group = zarr.create_group(path).create_group("b") if is_deep else zarr.create_group(path)
    name = "b/a" if is_deep else "a"
    group.attrs["title"] = "kept"
    options = {"offset": 273.15, "scale": 10, "astype": "<i2"}
    create(path / name, dtype="float64", **options)
    zarr.create_array(path / "other", shape=(3,), dtype="u1")
    zarr.consolidate_metadata(path)
    opened = zarr.open_consolidated(path, mode="r+")
    before = opened[name][...]
    for array in (zarr.open_array(path / name), opened[name]):
        if modernize.OLD in (path / name / "zarr.json").read_text():
            modernize.modernize(array)
    anychunk.enable()
    try:
        again = zarr.open_consolidated(path, mode="r")
        assert [c.to_dict()["name"] for c in again[name].metadata.codecs][:2] == [
            "scale_offset",
            "cast_value",
        ]
        np.testing.assert_array_equal(again[name][...], before)
        assert (again["b"] if is_deep else again).attrs["title"] == "kept"
        assert again["other"].shape == (3,)
    finally:
        anychunk.disable()
    assert modernize.OLD not in (path / "zarr.json").read_text()


@pytest.mark.parametrize("compressor", [None, numcodecs.Blosc(), numcodecs.Zstd(3)])
def test_zarr_v2(tmp_path, compressor):
    path, codec = tmp_path / "a.zarr", numcodecs.FixedScaleOffset(273.15, 10, "<f4", "<i2")
    array = zarr.create_array(
        path, shape=VALUES.shape, chunks=(20, 20), dtype="f4", zarr_format=2, fill_value=np.nan,
        filters=[codec], compressors=compressor, attributes={"units": "K"},
    )  # fmt: skip
    array[:40] = VALUES[:40]
    before = array[...]
    names = (".zarray", ".zattrs", "zarr.json")
    chunks = {f.name: f.read_bytes() for f in path.iterdir() if f.name not in names}
    modernize.modernize(array)
    assert {f.name: f.read_bytes() for f in path.iterdir() if f.name not in names} == chunks
    assert not (path / ".zarray").exists()
    anychunk.enable()
    try:
        found = zarr.open_array(path, mode="r")
        assert found.metadata.zarr_format == 3
        assert dict(found.attrs) == {"units": "K"}
        np.testing.assert_array_equal(found[...], before)
    finally:
        anychunk.disable()
    np.testing.assert_array_equal(anychunk.open_array(path)[...], before)


def test_zarr_v2_in_a_group_is_refused(tmp_path):
    """Zarr v2 groups do not list arrays of Zarr v3: it would seem to be gone."""
    codec = numcodecs.FixedScaleOffset(273.15, 10, "<f4", "<i2")
    group = zarr.create_group(tmp_path / "g.zarr", zarr_format=2)
    array = group.create_array("a", shape=(4,), dtype="f4", filters=[codec])
    for one in (array, zarr.open_array(tmp_path / "g.zarr/a")):
        with pytest.raises(UnsupportedError, match="its group .* is Zarr v2"):
            modernize.modernize(one)
    assert (tmp_path / "g.zarr/a/.zarray").exists()


def test_other_arrays_are_refused(tmp_path):
    array = zarr.create_array(tmp_path / "a.zarr", shape=(4,), dtype="u1")
    with pytest.raises(UnsupportedError, match="first codec"):
        modernize.modernize(array)
    old = zarr.create_array(tmp_path / "b.zarr", shape=(4,), dtype="u1", zarr_format=2)
    with pytest.raises(UnsupportedError, match="first codec"):
        modernize.modernize(old)


@pytest.mark.parametrize(
    "configuration",
    [None, {}, {"offset": 1}, {"offset": "1", "scale": 1}, {"offset": 1, "scale": 1, "astype": "?!"},
     {"offset": 1, "scale": 1, "dtype": "<f8"}],
)  # fmt: skip
def test_bad_configurations(configuration):
    with pytest.raises(CodecConfigError):
        modernize.candidates({"name": modernize.OLD, "configuration": configuration}, "float32")
