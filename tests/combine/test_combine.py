from dataclasses import replace

import numpy as np
import pytest
import rasterio
import tifffile
import xarray

import anychunk
from anychunk.combine import combine, group_names
from anychunk.errors import FormatError, UnsupportedError
from anychunk.model.index import ByteRanges, GroupIndex, Objects
from tests.support.combined_files import save_all, write_geotiff
from tests.support.indexes import array, uint64

RANDOM = np.random.default_rng(5)
IMAGES = RANDOM.integers(0, 4000, (3, 40, 50), dtype="uint16")


def test_the_first_mismatch_is_named(tmp_path):
    paths = save_all(
        tmp_path, [np.zeros((16, 16), "u1"), np.zeros((16, 16), "u2"), np.zeros((32, 16), "u1")]
    )
    with pytest.raises(FormatError) as e:
        anychunk.index(paths, combine="stack")
    assert "1.tif 0/0: data type uint16, expected uint8 as in" in str(e.value)
    assert str(e.value).endswith("0.tif (and 2 more differences)")
    with pytest.raises(ValueError, match="combine="):
        anychunk.index(paths)


def test_group(tmp_path):
    paths = save_all(tmp_path, IMAGES)
    group = anychunk.open(str(tmp_path / "?.tif"), combine="group")
    assert sorted(group.group_keys()) == ["0", "1", "2"]
    for i in range(3):
        np.testing.assert_array_equal(group[f"{i}/0/0/image"][...].reshape(40, 50), IMAGES[i])
    assert group.attrs["anychunk"]["combine"] == "group"
    assert len(paths) == 3


def test_group_names():
    assert group_names(["a/x.tif", "b/y.tif"]) == ["x", "y"]
    assert group_names(["a/x.tif", "b/x.tif"]) == ["a_x", "b_x"]
    assert group_names(["a/x.tif", "a/x.ntf"]) == ["a_x.tif", "a_x.ntf"]
    with pytest.raises(FormatError, match=r"a/x\.tif .*2 times"):
        group_names(["a/x.tif", "a/x.tif"])


def test_chunks_that_are_objects_are_refused(tmp_path):
    chunks = Objects(base=str(tmp_path), pattern="{0}", grid=(2,))
    node = GroupIndex(members={"a": array((4,), (2,), chunks)})
    with pytest.raises(UnsupportedError, match="combine='group'"):
        combine({"x": node, "y": node}, "stack")
    odd = replace(
        array((4,), (2,), ByteRanges(offsets=uint64([0, 2]), lengths=uint64([2, 2]), urls=("u",))),
        codecs=({"name": "n5_default", "configuration": {"codecs": [{"name": "bytes"}]}},),
    )
    other = GroupIndex(members={"a": odd})
    with pytest.raises(UnsupportedError, match="'n5_default'"):
        combine({"x": other, "y": other}, "stack")


def test_files_at_several_places_lose_their_place(tmp_path):
    values = np.ones((32, 32), "u1")
    first = write_geotiff(tmp_path / "a.tif", values, 0, 1000)
    same = write_geotiff(tmp_path / "b.tif", values, 0, 1000)
    other = write_geotiff(tmp_path / "c.tif", values, 320, 1000)
    node = anychunk.index([first, same], combine="stack")
    for found in (node["0"], node["0/0"]):
        assert found.attributes["spatial:transform"] == [10.0, 0.0, 0.0, 0.0, -10.0, 1000.0]
    with pytest.warns(UserWarning, match="image 0: .*georeference"):
        node = anychunk.index([first, other], combine="stack", georeference="drop")
    bands = anychunk.index([first, same], combine="stack", along="c")
    assert "spatial:transform" in bands["0"].attributes
    with pytest.warns(UserWarning, match="image 0: .*georeference"):
        longer = anychunk.index([first, same], combine="concat", along="x")
    with pytest.warns(UserWarning, match="image 0: .*georeference"):
        numbered = anychunk.index([other, first], combine="concat", along=-1)
    for index in (node, longer, numbered):
        for found in (index["0"], index["0/0"]):
            assert not [key for key in found.attributes if key.startswith("spatial:")]
            assert found.attributes["proj:code"] == "EPSG:32633"


@pytest.mark.parametrize("along", ["x", -1])
def test_files_side_by_side_keep_their_place(tmp_path, along):
    values = RANDOM.integers(0, 255, (128, 128), dtype="uint8")
    paths = []
    for i, west in enumerate((0, 1280)):
        path = tmp_path / f"{i}.tif"
        paths.append(write_geotiff(path, values, west, 1000))
        with rasterio.Env(GDAL_TIFF_OVR_BLOCKSIZE=64), rasterio.open(path, "r+") as file:
            file.build_overviews([2], rasterio.enums.Resampling.nearest)
    index = anychunk.index(paths[:1], combine="concat", along=along)
    assert index["0/0"].attributes["spatial:shape"] == [128, 128]
    whole = anychunk.index(paths, combine="concat", along=along, failures={})
    assert whole["0/0"].attributes["spatial:shape"] == [128, 256]
    for level in ("0", "1"):
        dataset = xarray.open_dataset(whole, engine="anychunk", level=level)
        steps = np.diff(dataset["x"].values)
        np.testing.assert_allclose(steps, 10.0 * 2 ** int(level))
        first = xarray.open_dataset(paths[0], engine="anychunk", level=level)
        assert float(dataset["x"][0]) == float(first["x"][0])


def test_samples_that_stand_for_other_values_are_refused(tmp_path):
    values = np.ones((32, 32), "u1")
    paths = [write_geotiff(tmp_path / f"{i}.tif", values, 0, 1000) for i in range(3)]
    with rasterio.open(paths[1], "r+") as file:
        file.scales, file.offsets = [0.1], [5.0]
    with rasterio.open(paths[2], "r+") as file:
        file.nodata = 0
    for other, message in ((1, "scale and offset of band 0"), (2, "nodata")):
        for how in ("stack", "mosaic"):
            with pytest.raises(FormatError, match=rf"{other}.tif 0: {message}"):
                anychunk.index([paths[0], paths[other]], combine=how, overlap="last")
        with pytest.raises(FormatError, match=message):
            anychunk.append([paths[0], paths[other]], tmp_path / "r.ice", combine="stack", batch=1)
    chunks = ByteRanges(offsets=uint64([0]), lengths=uint64([4]), urls=("u",))
    days = [
        GroupIndex(
            members={"t": array((4,), (4,), chunks, attributes={"units": f"days since {year}"})},
            attributes={"title": "series", "year": year},
        )
        for year in (2001, 2002, 2001)
    ]
    with pytest.raises(FormatError, match=r"y t: units .*\bx\b"):
        combine({"x": days[0], "y": days[1]}, "concat", along="y")
    made = combine({"x": days[0], "y": days[2]}, "concat", along="y")
    assert (made.attributes["title"], made.attributes["year"]) == ("series", 2001)
    other = replace(days[2], attributes={"title": "series", "year": 2002})
    made = combine({"x": days[0], "y": other}, "concat", along="y")
    assert made.attributes["title"] == "series"
    assert "year" not in made.attributes


def test_several_systems_are_left_out(tmp_path):
    """Also of files that say nothing else of their place."""
    paths = []
    for i in range(2):
        keys = [(34735, 3, 8, (1, 1, 0, 1, 3072, 0, 1, 32631 + i))]
        paths.append(str(tmp_path / f"{i}.tif"))
        tifffile.imwrite(paths[-1], IMAGES[i], tile=(16, 16), extratags=keys)
    with pytest.warns(UserWarning, match="image 0: .*georeference"):
        node = anychunk.index(paths, combine="stack", georeference="drop")
    assert "proj:code" not in node["0"].attributes
