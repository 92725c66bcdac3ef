"""Zarr stores, versions 2 and 3, compared with what zarr and xarray read and write."""

import json
import shutil

import numpy as np
import pytest
import xarray as xr
import zarr

import anychunk
from anychunk.errors import AnychunkError, FormatError, SourceChangedError, UnsupportedError
from anychunk.model.images import images
from tests.support.http_server import serve

DATA = np.arange(30 * 40, dtype="int16").reshape(30, 40)


def created(path, zarr_format, data=DATA, **options):
    root = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    array = root.create_array(
        "deep/a", shape=data.shape, dtype=data.dtype, **{"chunks": (7, 8), **options}
    )
    array[:20] = data[:20]  # the chunks below stay absent
    return array


V2 = [
    {},
    {"order": "F"},
    {"compressors": None},
    {"compressors": zarr.codecs.numcodecs.Zlib(level=1)},
    {"chunk_key_encoding": {"name": "v2", "separator": "/"}},
    {"filters": [{"id": "delta", "dtype": "<i2"}]},
    {"fill_value": -7},
]
V3 = [
    {},
    {"chunks": (5, 8), "shards": (10, 16)},
    {"compressors": zarr.codecs.GzipCodec()},
    {"compressors": zarr.codecs.BloscCodec()},
    {"chunk_key_encoding": {"name": "v2", "separator": "."}},
    {"chunk_key_encoding": {"name": "default", "separator": "."}},
    {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]},
    {"fill_value": -7},
]


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")
@pytest.mark.parametrize(("zarr_format", "options"), [*((2, o) for o in V2), *((3, o) for o in V3)])
def test_every_layout(tmp_path, zarr_format, options):
    if "filters" in options and zarr_format == 2:
        import numcodecs

        options = {"filters": [numcodecs.get_codec(f) for f in options["filters"]]}
    if zarr_format == 2 and options.get("compressors") is not None:
        import numcodecs

        options = {"compressors": numcodecs.Zlib(1)}
    theirs = created(tmp_path / "a.zarr", zarr_format, **options)
    ours = anychunk.open_array(tmp_path / "a.zarr")
    np.testing.assert_array_equal(ours[:], theirs[:])
    np.testing.assert_array_equal(ours[3:25:2, 7], theirs[3:25:2, 7])
    assert ours.dtype == theirs.dtype
    assert anychunk.verify(tmp_path / "a.zarr").is_good
    alone = anychunk.open(tmp_path / "a.zarr/deep/a")
    np.testing.assert_array_equal(alone[:], theirs[:])


@pytest.mark.parametrize("dtype", [">u2", ">f4", "bool", "complex64", "uint64", "float16"])
def test_types_of_v2(tmp_path, dtype):
    theirs = created(tmp_path / "a.zarr", 2, (DATA % 2).astype(dtype))
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.zarr")[:], theirs[:])


def test_a_filter_of_samples_after_one_of_bytes_is_refused(tmp_path):
    """Any other order than v3's would give other samples."""
    created(tmp_path / "a.zarr", 2)
    file = tmp_path / "a.zarr/deep/a/.zarray"
    document = json.loads(file.read_text())
    document["filters"] = [{"id": "zlib", "level": 1}, {"id": "delta", "dtype": "<i2"}]
    file.write_text(json.dumps(document))
    with pytest.raises(UnsupportedError, match="filter"):
        anychunk.open(tmp_path / "a.zarr/deep/a")


def test_the_tree_is_unchanged(tmp_path):
    created(tmp_path / "a.zarr", 3)
    group = zarr.open_group(tmp_path / "a.zarr", mode="r+")
    group.attrs["mine"] = {"a": [1]}
    group["deep/a"].attrs["units"] = "m"
    ours = anychunk.open(tmp_path / "a.zarr")
    assert ours.attrs["mine"] == {"a": [1]}
    assert ours.attrs["anychunk"]["format"] == "zarr"
    assert ours["deep/a"].attrs["units"] == "m"
    assert [key for key, _ in ours.members(max_depth=None)] == ["deep", "deep/a"]


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("is_consolidated", [False, True])
def test_coordinates_of_xarray_are_no_images(tmp_path, zarr_format, is_consolidated):
    dataset = xr.Dataset(
        {"t2m": (("time", "y", "x"), np.ones((2, 3, 4), "f4"))},
        coords={
            "x": np.arange(4.0),
            "y": np.arange(3.0),
            "time": np.array(["2026-01-01", "2026-01-02"], "datetime64[ns]"),
            "lat": (("y", "x"), np.zeros((3, 4))),
        },
    )
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=zarr_format, consolidated=is_consolidated)
    found = list(images(anychunk.index(tmp_path / "a.zarr")))
    assert [image.path for image in found] == ["t2m"]
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.zarr")[:], dataset["t2m"])


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_levels_of_ome_zarr_are_found(tmp_path, version):
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2 if version == "0.4" else 3)
    for name, size in (("full", 40), ("half", 20)):
        root.create_array(name, data=np.full((3, size, size), size, "uint8"))
    datasets = [
        {"path": n, "coordinateTransformations": [{"type": "scale", "scale": [1, s, s]}]}
        for n, s in (("full", 0.5), ("half", 1.0))
    ]
    axes = [{"name": "c", "type": "channel"}, *({"name": n, "type": "space"} for n in "yx")]
    scales = [{"version": version, "axes": axes, "datasets": datasets}]
    omero = {"channels": [{"label": "DAPI", "color": "0000FF"}, {}, {}]}
    described = {"multiscales": scales, "omero": omero}
    root.attrs.update(described if version == "0.4" else {"ome": {"version": "0.5", **described}})
    assert anychunk.open_array(tmp_path / "a.zarr", level=-1).shape == (3, 20, 20)
    anychunk.convert(tmp_path / "a.zarr", tmp_path / "b.zarr", verify=True)
    made = zarr.open_group(tmp_path / "b.zarr", mode="r").attrs["ome"]
    assert made["omero"]["channels"][0]["label"] == "DAPI"
    steps = [d["coordinateTransformations"][0] for d in made["multiscales"][0]["datasets"]]
    assert [step["scale"] for step in steps] == [[1, 0.5, 0.5], [1, 1.0, 1.0]]


@pytest.mark.processes
def test_without_a_list_of_files(tmp_path):
    np.save(tmp_path / "a.npy", DATA)
    anychunk.convert(tmp_path / "a.npy", tmp_path / "a.zarr", levels=2)
    with serve(tmp_path) as served:
        url = served.url
        found = anychunk.open_array(f"{url}/a.zarr", level=1)
        assert found.shape == (15, 20)
        np.testing.assert_array_equal(anychunk.open_array(f"{url}/a.zarr/0/image")[:], DATA)
        for file in (tmp_path / "a.zarr").rglob("zarr.json"):
            document = json.loads(file.read_text())
            document.pop("consolidated_metadata", None)
            file.write_text(json.dumps(document))
        # by the paths that OME-Zarr lists
        np.testing.assert_array_equal(anychunk.open_array(f"{url}/a.zarr")[:], DATA)


def test_a_replaced_array_is_noticed(tmp_path):
    created(tmp_path / "a.zarr", 3)
    ours = anychunk.open_array(tmp_path / "a.zarr")
    assert ours[0, 1] == 1
    shutil.rmtree(tmp_path / "a.zarr")
    created(tmp_path / "a.zarr", 3, DATA.astype("int32"))
    with pytest.raises(SourceChangedError):
        ours[:]


def test_links_out_of_the_store_are_refused(tmp_path):
    created(tmp_path / "a.zarr", 3)
    shutil.move(tmp_path / "a.zarr/deep/a/c", tmp_path / "outside")
    (tmp_path / "a.zarr/deep/a/c").symlink_to(tmp_path / "outside")
    with pytest.raises(FormatError, match="link"):
        anychunk.open_array(tmp_path / "a.zarr")[:]
    (tmp_path / "a.zarr/loop").symlink_to(tmp_path / "a.zarr")
    with pytest.raises(AnychunkError, match="link"):
        list(anychunk.index(tmp_path / "a.zarr").members)


@pytest.mark.parametrize(
    "change",
    [
        {"codecs": [{"name": "unheard-of"}]},
        {"zarr_format": 4},
        {"shape": [-1, 2]},
        {"shape": "wide"},
        {"chunk_grid": {"name": "spiral"}},
        {"node_type": "thing"},
        {"data_type": "int17"},
        {"fill_value": "red"},
    ],
    ids=str,
)
def test_broken_metadata_is_one_clear_error(tmp_path, change):
    created(tmp_path / "a.zarr", 3)
    file = tmp_path / "a.zarr/deep/a/zarr.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(AnychunkError):
        anychunk.open_array(tmp_path / "a.zarr/deep/a")[:]


@pytest.mark.parametrize("character", ["\n", "\r", "\0", "\x1b", "\x7f", "\x85"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_dimension_names_with_control_characters_are_refused(tmp_path, zarr_format, character):
    name = f"y{character}import os"
    named = {"dimension_names": [name, "x"]} if zarr_format == 3 else {}
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=zarr_format)
    array = root.create_array("a", shape=(4, 5), dtype="u1", **named)
    if zarr_format == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = [name, "x"]
    refs = {f.relative_to(tmp_path / "a.zarr").as_posix(): f.read_text()
            for f in (tmp_path / "a.zarr").rglob("*") if f.is_file()}  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(refs))
    for path in (tmp_path / "a.zarr/a", tmp_path / "a.zarr", tmp_path / "a.json"):
        with pytest.raises(FormatError, match=r"a.*: dimension_names .*control char") as raised:
            anychunk.open_array(path)
        assert len(str(raised.value).splitlines()) == 1


def test_axes_of_ome_with_control_characters_are_not_used(tmp_path):
    """As other axes that OME-Zarr does not allow: the names of the dimensions are taken."""
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    root.create_array("0", shape=(4, 5), dtype="u1", dimension_names=["y", "x"])
    scales = {"axes": [{"name": "y\nimport os"}, {"name": "x"}], "datasets": [{"path": "0"}]}
    root.attrs["ome"] = {"version": "0.5", "multiscales": [scales]}
    (image,) = images(anychunk.index(tmp_path / "a.zarr"))
    assert image.names == ("y", "x")


@pytest.mark.parametrize(
    "known", [7, {"metadata": 7}, {"metadata": {"../a": {}}}, {"metadata": {"a/b": {}}}], ids=str
)
def test_broken_consolidated_metadata(tmp_path, known):
    created(tmp_path / "a.zarr", 3)
    file = tmp_path / "a.zarr/zarr.json"
    document = json.loads(file.read_text()) | {"consolidated_metadata": known}
    file.write_text(json.dumps(document))
    with pytest.raises(AnychunkError):
        anychunk.index(tmp_path / "a.zarr")


def test_an_array_that_is_not_supported_is_left_out(tmp_path):
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    root.create_array("good", data=DATA)
    root.create_array("odd", shape=(2,), dtype=np.dtype([("a", "i2"), ("b", "f4")]))
    assert list(anychunk.index(tmp_path / "a.zarr").members) == ["good"]
