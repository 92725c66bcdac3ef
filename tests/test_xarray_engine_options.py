"""The xarray engine beside other engines, and everything that it takes as input and options."""

import importlib.metadata
import io
import json
import pickle

import numpy as np
import pytest
import xarray as xr
from xarray.backends import BackendEntrypoint, plugins

import anychunk
from anychunk import xarray_engine
from anychunk.metadata.hierarchy import image_group
from anychunk.metadata.meaning import Axis, Band, Crs, Level, Meaning, Place
from anychunk.model.index import GroupIndex
from tests.support.made_images import made, raw_array

RANDOM = np.random.default_rng(8)
FULL = RANDOM.integers(0, 1000, (2, 60, 80), dtype="int16")
PLACE = Place(crs=Crs(code="EPSG:32633"), transform=(10.0, 0.0, 500.0, 0.0, -10.0, 900.0))


@pytest.fixture
def index(tmp_path):
    """Two images of two levels, in bands with scales of their own."""
    FULL[0, 0, 3] = 7
    return made(
        tmp_path,
        [FULL, FULL[:, ::2, ::2].copy()],
        images=2,
        chunk=(1, 32, 32),
        nodata=7,
        place=PLACE,
        bands=(Band(name="red", scale=2.0, unit="K"), Band(name="nir", offset=1.0, unit="m")),
        tags={"operator": "A"},
        name="scene",
    )


def opened(given, **options):
    return xr.open_dataset(given, engine="anychunk", **options)


def test_each_band_is_masked_and_scaled(index):
    image = opened(index)["image"]
    stored = FULL.astype("f8")
    stored[stored == 7] = np.nan
    truth = stored * np.array([2.0, 1.0])[:, None, None] + np.array([0.0, 1.0])[:, None, None]
    np.testing.assert_array_equal(image, truth)
    assert image["c"].values.tolist() == ["red", "nir"]
    assert image.attrs["units"] == ["K", "m"]
    assert not {"scale", "offset"} & set(image.coords)
    for key in [(1,), ([1, 0], 5), (slice(None), 0, [3, 1]), (..., 3), (0, 0, 3), ([True, False],)]:
        np.testing.assert_array_equal(image[key], xr.DataArray(truth, dims=image.dims)[key])
    np.testing.assert_array_equal(image.sel(c="nir").chunk().values, truth[1])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(image)), truth)


@pytest.mark.parametrize("switched", [False, {"image": False}])
def test_raw_samples_keep_what_describes_them(index, switched):
    found = opened(index, mask_and_scale=switched)
    np.testing.assert_array_equal(found["image"], FULL)
    assert found["image"].attrs["_FillValue"] == 7
    assert found["scale"].values.tolist() == [2.0, 1.0]
    assert found["offset"].values.tolist() == [0.0, 1.0]
    assert {"scale", "offset", "spatial_ref"} <= set(found.coords)


def test_written_values_are_the_same(index, tmp_path):
    """Scales that were applied are not applied again by the next reader."""
    truth = opened(index)
    truth.to_zarr(tmp_path / "out.zarr", consolidated=False)
    again = xr.open_zarr(tmp_path / "out.zarr", consolidated=False)
    np.testing.assert_array_equal(again["image"], truth["image"])
    np.testing.assert_array_equal(opened(tmp_path / "out.zarr")["image"], truth["image"])


def test_everything_about_the_file_is_one_attribute(index):
    found = opened(index, image=1, level=1)
    assert list(found.attrs) == ["anychunk"]
    about = json.loads(found.attrs["anychunk"])
    assert (about["format"], about["path"], about["name"]) == ("raw", "1/1/image", "scene")
    assert about["tags"] == {"operator": "A"}
    assert found.encoding["source"] == about["source"]


@pytest.mark.parametrize(
    "options",
    [
        {"decode_coords": "all"},
        {"decode_coords": False},
        {"decode_times": False, "decode_timedelta": False, "use_cftime": False},
        {"decode_times": xr.coders.CFDatetimeCoder(), "decode_timedelta": True},
        {"concat_characters": False},
        {"decode_cf": False},
        {"drop_variables": ["x", "image"]},
        {"chunks": {"y": 32}, "cache": False, "inline_array": True},
    ],
    ids=" ".join,
)
def test_every_keyword_of_xarray(index, options):
    found = opened(index, **options)
    tree = xr.open_datatree(index, engine="anychunk", **options)
    assert set(tree["/0/0"].to_dataset().variables) == set(found.variables)
    assert ("image" in found) is ("drop_variables" not in options)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({}, "0/0"),
        ({"level": 1}, "0/1"),
        ({"level": -1}, "0/1"),
        ({"level": "1"}, "0/1"),
        ({"image": 1, "level": -2}, "1/0"),
        ({"image": "1"}, "1/0"),
        ({"group": "1"}, "1/0"),
        ({"group": "/1/1"}, "1/1"),
        ({"group": "0/1/image"}, "0/1"),
        ({"group": "1", "level": -1}, "1/1"),
    ],
)
def test_images_levels_and_groups(index, options, path):
    about = json.loads(opened(index, **options).attrs["anychunk"])
    assert about["path"] == f"{path}/image"


@pytest.mark.parametrize("options", [{"level": 2}, {"level": -3}, {"image": 2}, {"group": "0/7"}])
def test_what_is_not_there(index, options):
    with pytest.raises(anychunk.errors.NoSuchImageError):
        opened(index, **options)


def test_the_tree_has_all_levels_with_their_coordinates(index):
    tree = xr.open_datatree(index, engine="anychunk")
    assert [node.path for node in tree.leaves] == ["/0/0", "/0/1", "/1/0", "/1/1"]
    for path in ("/0/0", "/1/1"):
        xr.testing.assert_identical(tree[path].to_dataset(), opened(index, group=path))
    assert tree["/0/1/x"].values[:2].tolist() == [510.0, 530.0]
    below = xr.open_datatree(index, engine="anychunk", group="1")
    assert [node.path for node in below.leaves] == ["/0", "/1"]
    groups = xr.open_groups(index, engine="anychunk")
    assert set(groups) == {"/", "/0/0", "/0/1", "/1/0", "/1/1"}
    with pytest.raises(anychunk.errors.NoSuchImageError):
        xr.open_datatree(index, engine="anychunk", group="9")


def test_groups_and_arrays_that_anychunk_opened(index):
    group = anychunk.open(index)
    truth = opened(index, image=1, level=1)
    for given, options in [
        (group, {"image": 1, "level": 1}),
        (group["1"], {"level": 1}),
        (group["1/1"], {}),
        (group["1/1/image"], {}),
    ]:
        xr.testing.assert_identical(opened(given, **options), truth)
    assert len(xr.open_datatree(group["1"], engine="anychunk").leaves) == 2
    with pytest.raises(TypeError, match="combine"):
        opened(group, combine="stack")


def test_file_objects(tmp_path):
    np.save(tmp_path / "a.npy", FULL)
    with (tmp_path / "a.npy").open("rb") as file:
        np.testing.assert_array_equal(opened(file)["image"], FULL)
    found = opened(io.BytesIO((tmp_path / "a.npy").read_bytes()))["image"]
    np.testing.assert_array_equal(found[:, 5:9], FULL[:, 5:9])
    with pytest.raises(anychunk.errors.UnsupportedError, match="expected bytes"):
        opened(io.StringIO("text"))


def test_options_of_index_are_keywords(tmp_path):
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", FULL + i)
    files = [tmp_path / f"{i}.npy" for i in range(3)]
    for given in (files, str(tmp_path / "?.npy")):
        stack = opened(given, combine="stack", along="time")["image"]
        assert stack.dims == ("t", "z", "y", "x")
        np.testing.assert_array_equal(stack, np.stack([FULL + i for i in range(3)]))
    joined = opened(files, combine="concat", along="z", format="npy", storage=None)
    assert joined.sizes["z"] == 6
    with pytest.raises(TypeError, match="nonsense"):
        opened(files[0], nonsense=1)


def test_saved_indexes_are_opened(index, tmp_path):
    index.save(tmp_path / "i.json")
    ours = opened(tmp_path / "i.json", image=1, allow=["*"])
    np.testing.assert_array_equal(ours["image"], opened(index)["image"])


def test_names_that_are_not_unique(tmp_path):
    node = made(tmp_path, [FULL], bands=(Band(name="a"), Band(name="a")))
    image = opened(node)["image"]
    assert image.attrs["long_name"] == ["a", "a"]
    assert "c" not in image.coords


def test_levels_without_level_groups(tmp_path):
    """Plain OME-Zarr: coordinates are made from what its metadata say."""
    axes = (
        Axis(name="y", unit="micrometer", scale=0.5),
        Axis(name="x", unit="micrometer", scale=0.5),
    )
    arrays = [raw_array(tmp_path / f"{i}", FULL[0, :: i + 1, :: i + 1].copy()) for i in range(2)]
    levels = [Level(name=str(i), image=array) for i, array in enumerate(arrays)]
    group = image_group(Meaning(axes=axes), levels)
    ome = json.loads(json.dumps(group.attributes["ome"]).replace("/image", ""))
    plain = GroupIndex(members={str(i): a for i, a in enumerate(arrays)}, attributes={"ome": ome})
    full, half = opened(plain), opened(plain, level=1)
    np.testing.assert_array_equal(half["image"], FULL[0, ::2, ::2])
    assert full["x"].values[:3].tolist() == [0.0, 0.5, 1.0]
    assert half["x"].values[:3].tolist() == [0.25, 1.25, 2.25]
    assert half["x"].attrs["units"] == "micrometer"


class Greedy(BackendEntrypoint):
    """An engine that claims .npy files, and asks all others first."""

    asked: list = []

    def guess_can_open(self, filename_or_obj):
        self.asked.append(filename_or_obj)
        for name, engine in plugins.list_engines().items():
            if name == "anychunk":
                engine.guess_can_open(filename_or_obj)
        return str(filename_or_obj).endswith(".npy")

    def open_dataset(self, filename_or_obj, *, drop_variables=None):
        return xr.Dataset(attrs={"by": "greedy"})


class Broken(BackendEntrypoint):
    """An engine that fails on everything."""

    def guess_can_open(self, filename_or_obj):
        raise RuntimeError

    def open_dataset(self, filename_or_obj, *, drop_variables=None):
        raise RuntimeError


@pytest.fixture
def engines(monkeypatch):
    """A function that makes xarray find these further engines."""
    real = importlib.metadata.entry_points

    def install(**classes):
        found = [
            importlib.metadata.EntryPoint(name, f"{__name__}:{cls.__name__}", "xarray.backends")
            for name, cls in classes.items()
        ]
        monkeypatch.setattr(
            plugins,
            "entry_points",
            lambda group: [*real(group=group), *found],
        )
        plugins.refresh_engines()

    yield install
    monkeypatch.undo()
    plugins.refresh_engines()


def test_other_engines_keep_their_files(tmp_path, engines):
    np.save(tmp_path / "a.npy", FULL)
    (tmp_path / "a.data").write_bytes((tmp_path / "a.npy").read_bytes())
    engines()
    assert "image" in xr.open_dataset(tmp_path / "a.npy")
    engines(zzz=Greedy)
    assert xr.open_dataset(tmp_path / "a.npy").attrs == {"by": "greedy"}
    assert "image" in opened(tmp_path / "a.npy")
    assert "image" in xr.open_dataset(tmp_path / "a.data")
    engine = xarray_engine.AnychunkEntrypoint()
    assert not engine.guess_can_open(tmp_path / "a.npy")
    assert engine.guess_can_open(tmp_path / "a.data")
    engines(zzz=Broken)
    assert engine.guess_can_open(tmp_path / "a.npy")
