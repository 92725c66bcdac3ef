"""N5 datasets and pyramids as images: names, axes, what is read and when, hostile attributes."""

import json
import pickle

import numpy as np
import pytest
import xarray

import anychunk
from anychunk.errors import AnychunkError, FormatError
from anychunk.io.opening import Folder
from anychunk.metadata.reading import levels_of, meaning_of
from anychunk.model import images as im
from tests.support.http_server import serve
from tests.support.n5_blocks import field, write_dataset


def attributes(folder, content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "attributes.json").write_text(json.dumps(content))


@pytest.fixture
def container(tmp_path):
    """A pyramid, with a dataset and a group beside its levels; and a plain dataset."""
    root = tmp_path / "c.n5"
    attributes(root, {"n5": "2.5.1"})
    for number in range(3):
        shape = tuple(n >> number for n in (16, 8, 4))
        write_dataset(root / f"raw/s{number}", field(shape), (8, 8, 8), note=number)
    resolution = {"dimensions": [0.5, 0.5, 2.0], "unit": "um"}
    attributes(root / "raw", {"scales": [[1] * 3, [2] * 3, [4] * 3], "pixelResolution": resolution})
    write_dataset(root / "raw/mask", field((16, 8, 4), "uint8"), (8, 8, 8))
    attributes(root / "raw/notes", {"by": "hand"})
    write_dataset(root / "plain", field((5, 6)), (4, 4), pixelResolution=[2.0, 3.0])
    return root


def test_a_pyramid_and_what_lies_beside_it(container):
    group = anychunk.open(container)
    assert sorted(group) == ["plain", "raw"]
    assert list(group["raw"]) == ["s0", "s1", "s2", "mask", "notes"]
    assert sorted(group["raw/s1"]) == ["image", "x", "y", "z"]
    np.testing.assert_array_equal(group["raw/s1/image"][...], field((8, 4, 2)).T)
    np.testing.assert_array_equal(group["raw/s1/z"][...], [1.0, 5.0])
    np.testing.assert_array_equal(group["raw/mask/0/image"][...], field((16, 8, 4), "uint8").T)
    assert group["raw/notes"].attrs["n5"] == {"by": "hand"}
    assert group["raw/s1/image"].attrs["n5"]["note"] == 1
    index = anychunk.index(container)
    assert {image.path: image.level_names for image in im.images(index)} == {
        "plain": ("0",),
        "raw": ("s0", "s1", "s2"),
        "raw/mask": ("0",),
    }
    assert pickle.loads(pickle.dumps(index)) == index
    again = pickle.loads(pickle.dumps(index))
    assert list(anychunk.open(again)["raw"])[:3] == ["s0", "s1", "s2"]
    assert anychunk.open_array(container, image="raw", level=-1).shape == (1, 2, 4)
    assert anychunk.open_array(container, image="raw", level="s1").shape == (2, 4, 8)


def test_the_url_of_a_dataset_is_an_array_that_says_what_it_means(container):
    array = anychunk.open(container / "raw/s1")
    assert array.shape == (2, 4, 8)
    assert array.metadata.dimension_names == ("z", "y", "x")
    plain = anychunk.index(container / "plain")
    (image,) = im.images(plain)
    assert [(a.name, a.scale) for a in meaning_of(plain, image).axes] == [("y", 3.0), ("x", 2.0)]


def test_xarray_opens_every_level(container):
    index = anychunk.index(container)
    tree = xarray.open_datatree(anychunk.open(index).store, engine="zarr", consolidated=False)
    level = tree["raw/s1"]
    assert dict(level["image"].sizes) == {"z": 2, "y": 4, "x": 8}
    np.testing.assert_array_equal(level["x"], 0.25 + 1.0 * np.arange(8))
    assert level["x"].attrs["units"] == "micrometer"


def test_is_valid_ome_zarr(container):
    from ome_zarr_models.v05.image import ImageAttrs

    group = anychunk.open(container)
    for name in ("raw", "plain"):
        found = ImageAttrs.model_validate(group[name].attrs["ome"] | {})
        assert [axis.name for axis in found.multiscales[0].axes][-2:] == ["y", "x"]


@pytest.mark.processes
def test_a_pyramid_behind_a_web_server(container):
    with serve(container.parent) as served:
        group = anychunk.open(f"{served.url}/c.n5/raw")
        opened = len(served.requests)
        assert list(group) == ["s0", "s1", "s2"]  # what lies beside cannot be listed
        np.testing.assert_array_equal(group["s1/image"][...], field((8, 4, 2)).T)
        # attributes of the group and of three levels, s3 that does not exist, and one block
        assert opened <= 7
        assert len(served.requests) <= opened + 2
        level = anychunk.open_array(f"{served.url}/c.n5/raw", level=-1)
        np.testing.assert_array_equal(level[...], field((4, 2, 1)).T)


def test_members_are_read_on_demand(tmp_path, monkeypatch):
    root = tmp_path / "many.n5"
    write_dataset(root / "d0", field((4, 4)), (4, 4))
    text = (root / "d0/attributes.json").read_text()
    for number in range(1, 10_000):
        (root / f"d{number}").mkdir()
    (root / "d1/attributes.json").write_text(text)
    reads = []
    read = Folder.read
    monkeypatch.setattr(Folder, "read", lambda self, name: reads.append(1) or read(self, name))
    index = anychunk.index(root)
    assert len(index.members) == 10_000
    np.testing.assert_array_equal(anychunk.open(index)["d0/0/image"][...], field((4, 4)).T)
    assert len(reads) <= 6


@pytest.mark.parametrize(
    ("shape", "extra", "names", "order"),
    [
        ((5,), {}, ("dim_0",), (0,)),
        ((5, 4), {}, ("y", "x"), (1, 0)),
        ((5, 4, 3), {}, ("z", "y", "x"), (2, 1, 0)),
        # one axis of unknown meaning is stepped through
        ((5, 4, 3, 2), {}, ("t", "z", "y", "x"), (3, 2, 1, 0)),
        ((5, 4, 3, 2, 2), {}, tuple(f"dim_{n}" for n in range(5)), (4, 3, 2, 1, 0)),
        # Neuroglancer lists dimension 0 first, COSEM last
        ((5, 4, 3), {"axes": ["x", "y", "c"]}, ("c", "y", "x"), (2, 1, 0)),
        ((5, 4, 3), {"axes": ["x", "y", "Time"]}, ("t", "y", "x"), (2, 1, 0)),
        ((5, 4, 3), {"transform": {"axes": ["c", "y", "x"]}}, ("c", "y", "x"), (2, 1, 0)),
        # ImageJ's order of a hyperstack: channels between y and z
        ((5, 4, 3, 2), {"axes": ["x", "y", "c", "z"]}, ("c", "z", "y", "x"), (2, 3, 1, 0)),
        ((5, 4, 3), {"axes": ["a", "b", "c"]}, ("dim_0", "dim_1", "dim_2"), (2, 1, 0)),
        ((5, 4, 3), {"axes": ["x", "y"]}, ("z", "y", "x"), (2, 1, 0)),
        ((5, 4, 3), {"axes": [1, 2, 3]}, ("z", "y", "x"), (2, 1, 0)),
    ],
)
def test_axes(tmp_path, shape, extra, names, order):
    values = field(shape)
    write_dataset(tmp_path / "a.n5/v", values, (2,) * len(shape), **extra)
    group = anychunk.open(tmp_path / "a.n5")
    array = group["v/0/image"]
    assert array.metadata.dimension_names == names
    np.testing.assert_array_equal(array[...], values.transpose(order))
    np.testing.assert_array_equal(anychunk.open(tmp_path / "a.n5/v")[...], values.transpose(order))
    assert ("ome" in group["v"].attrs) == ("y" in names)
    plain = anychunk.open(tmp_path / "a.n5/v", axes="xyz")
    np.testing.assert_array_equal(plain[...], values)


@pytest.mark.parametrize(
    "change",
    [
        {"dimensions": [8, 4]},
        {"dataType": "uint7"},
        {"compression": {"type": "jpeg"}},
        {"dimensions": [8, 4, 0]},
    ],
)
def test_levels_end_before_a_dataset_that_does_not_fit(container, change):
    file = container / "raw/s1/attributes.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    group = anychunk.open(container)["raw"]
    paths = [d["path"] for d in group.attrs["ome"]["multiscales"][0]["datasets"]]
    assert paths == ["s0/image"]
    np.testing.assert_array_equal(group["s0/image"][...], field((16, 8, 4)).T)
    np.testing.assert_array_equal(group["s2/0/image"][...], field((4, 2, 1)).T)
    if "0" not in str(change):
        with pytest.raises((AnychunkError, KeyError)):
            group["s1/0/image"][...]


def test_true_factors(tmp_path):
    """Sizes are rounded: 7 becomes 3, with elements of twice the size."""
    for number, shape in enumerate([(7, 5, 3), (3, 2, 1)]):
        write_dataset(tmp_path / f"a.n5/s{number}", field(shape), (4, 4, 4))
    attributes(tmp_path / "a.n5", {"downsamplingFactors": [[1, 1, 1], [2, 2, 3]]})
    index = anychunk.index(tmp_path / "a.n5")
    (image,) = im.images(index)
    assert [level.factor for level in levels_of(index, image)] == [(1, 1, 1), (3, 2, 2)]
    layout = index.attributes["multiscales"]["layout"]
    assert layout[1]["transform"]["scale"] == [3.0, 2.0, 2.0]


NONSENSE = [
    5,
    [],
    {"bands": 5, "display": [], "tags": 3, "space": {"affine": [[1]]}, "nodata": "much"},
    {"bands": [5, {"scale": "x", "tags": [1]}], "display": {"model": "rgb", "bands": "abc"}},
    {"display": {"model": "channels", "channels": [{"band": "0"}, 7, {"band": 0, "window": 3}]}},
    {"display": {"model": "palette", "palette": {"colors": [[1, 2]]}}},
    {"display": {"model": "rgb", "alpha": {"band": 3}, "range": [[1]], "mask": 4}},
    {"crs": {"code": 5}, "transform": [1, 2], "bbox": "x", "gcps": [[1]], "rpc": 7},
    {"transform": [0, 0, 0, 0, 0, 0], "crs": {"code": "EPSG:999999999"}},
    {"positions": {"z": {"values": ["a"]}, "x": 4}, "native": [1], "nodata": 1e400},
    {"nodata": "NaN", "bands": [{"scale": float("nan"), "offset": float("inf")}]},
]


@pytest.mark.parametrize("own", NONSENSE)
def test_attributes_of_ours_are_not_trusted(tmp_path, own):
    write_dataset(tmp_path / "a.n5/v", field((6, 5, 4)), (4, 4, 4), anychunk=own)
    for url in ("a.n5", "a.n5/v"):
        index = anychunk.index(tmp_path / url)
        for image in im.images(index):
            meaning_of(index, image)
        opened = anychunk.open(index)
        array = opened["v/0/image"] if url == "a.n5" else opened
        np.testing.assert_array_equal(array[...], field((6, 5, 4)).T)
    anychunk.convert(tmp_path / "a.n5", tmp_path / "b.jnrrd")
    np.testing.assert_array_equal(
        anychunk.open_array(tmp_path / "b.jnrrd")[...], field((6, 5, 4)).T
    )


def test_a_broken_group_of_levels_is_named(tmp_path):
    root = tmp_path / "a.n5"
    attributes(root, {"multiScale": True})
    (root / "s0").mkdir()
    (root / "s0/attributes.json").write_text("{")
    with pytest.raises(FormatError, match=r"s0/attributes\.json"):
        anychunk.open(root)
