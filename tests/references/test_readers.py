"""Saved indexes as xarray, rioxarray, fsspec, Icechunk and VirtualiZarr themselves read them."""

import json

import fsspec
import numpy as np
import pytest
import rasterio
import xarray as xr
from zarr.storage import FsspecStore

import anychunk
from anychunk.combine import axis_of, combine
from anychunk.metadata.meaning import Band, Crs, Place
from anychunk.metadata.reading import meaning_of
from anychunk.model.images import images
from anychunk.references import documents, virtualizarr
from anychunk.references import icechunk as ice
from tests.support.made_images import made

pytestmark = pytest.mark.filterwarnings("ignore")

FULL = np.random.default_rng(3).random((2, 64, 64)).astype("float32")
FULL[0, 0, 3] = -1
PLACE = Place(crs=Crs(code="EPSG:32633"), transform=(10.0, 0.0, 500.0, 0.0, -10.0, 900.0))
FORMS = {
    "v3.json": {},
    "v2.json": {"zarr_format": 2},
    "i.parquet": {},
    "i.icechunk": {},
}


def scene(folder, file="a", **fields):
    """Two levels of two named bands with scales of their own, georeferenced."""
    known = {
        "place": PLACE,
        "nodata": -1.0,
        "bands": (Band(name="red", scale=2.0), Band(name="nir", offset=1.0, unit="m")),
        "tags": {"operator": "A"},
        **fields,
    }
    return made(folder, [FULL, FULL[:, ::2, ::2].copy()], file=file, chunk=(1, 16, 16), **known)


def store_of(target):
    """The index as another package's zarr store."""
    if target.suffix == ".icechunk":
        return ice.open_repository(str(target)).readonly_session("main").store
    options = {"remote_protocol": "file"} if target.suffix == ".parquet" else {}
    files = fsspec.filesystem("reference", fo=str(target), asynchronous=True, **options)
    return FsspecStore(files, read_only=True, path="")


@pytest.mark.parametrize("form", FORMS)
def test_xarray_opens_root_groups_levels_and_tree(tmp_path, form):
    import rioxarray  # noqa: F401 - adds the accessor `rio`

    scene(tmp_path).save(tmp_path / form, **FORMS[form])
    store = store_of(tmp_path / form)
    assert not xr.open_zarr(store, chunks=None).variables
    assert not xr.open_zarr(store, group="0", chunks=None).variables
    masked = np.where(FULL == -1, np.nan, FULL)
    for level, step in (("0", 1), ("1", 2)):
        found = xr.open_zarr(store, group=f"0/{level}", chunks=None)
        np.testing.assert_array_equal(found["image"], masked[:, ::step, ::step])
        assert found["image"].rio.crs == rasterio.crs.CRS.from_epsg(32633)
        assert found["image"].rio.transform()[:6] == (10 * step, 0, 500, 0, -10 * step, 900)
        assert [str(name) for name in found["c"].values] == ["red", "nir"]
        assert found["scale"].values.tolist() == [2.0, 1.0]
        np.testing.assert_allclose(found["x"], 500 + 10 * step * (np.arange(64 // step) + 0.5))
        assert {"scale", "offset", "spatial_ref"} <= set(found.coords)
    tree = xr.open_datatree(store, engine="zarr", chunks=None)
    assert sorted(node.path for node in tree.leaves) == [
        "/0/0",
        "/0/1",
    ]  # Icechunk lists in no order
    np.testing.assert_array_equal(tree["/0/1/image"], masked[:, ::2, ::2])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "fields",
    [{}, {"nodata": np.nan}, {"nodata": None, "bands": ()}, {"time": "2026-03-01", "place": Place()}],
    ids=["scaled", "nan", "plain", "dated"],
)  # fmt: skip
def test_a_loaded_index_means_the_same(tmp_path, form, fields):
    node = combine({"a": scene(tmp_path, **fields)}, "stack")
    node.save(tmp_path / form, **FORMS[form])
    again = anychunk.index(tmp_path / form)
    before, after = (meaning_of(n, next(images(n))) for n in (node, again))
    assert repr(after) == repr(before)  # NaN is not equal to itself
    ours, theirs = (xr.open_dataset(n, engine="anychunk", level=1) for n in (node, again))
    xr.testing.assert_identical(ours.drop_attrs(), theirs.drop_attrs())


def test_groups_hold_the_metadata_below_them(tmp_path, monkeypatch):
    scene(tmp_path, images=2).save(tmp_path / "i.json")
    refs = json.loads((tmp_path / "i.json").read_text())["refs"]
    known = {
        key: set(json.loads(refs[key])["consolidated_metadata"]["metadata"])
        for key in ("zarr.json", "0/zarr.json", "1/1/zarr.json")
    }
    assert {"0", "0/0/image", "1/1/spatial_ref"} <= known["zarr.json"]
    assert {"0", "1/x", "1"} <= known["0/zarr.json"]
    assert known["1/1/zarr.json"] == {
        "image", "c", "x", "y", "spatial_ref", "scale", "offset",
    }  # fmt: skip
    monkeypatch.setattr(documents, "MOST_IMAGES", 1)
    scene(tmp_path, file="b", images=2).save(tmp_path / "i.json", overwrite=True)
    refs = json.loads((tmp_path / "i.json").read_text())["refs"]
    held = {k for k, v in refs.items() if "consolidated_metadata" in v}
    assert held == {f"{path}/zarr.json" for path in ("0", "0/0", "0/1", "1", "1/0", "1/1")}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize(
    ("options", "codec"),
    [
        ({"compress": "deflate"}, "zlib"),
        ({"compress": "zstd"}, "zstd"),
        ({"compress": "lzma"}, "lzma"),
        ({}, None),
        ({"compress": "deflate", "predictor": 2}, "tiff-tile"),
        ({"compress": "lzw"}, "tiff-tile"),
        ({"compress": "deflate", "tiled": False, "blockysize": 48}, "tiff-tile"),
    ],
)
def test_codecs_of_tiff_are_portable_where_they_can_be(
    tmp_path, options, codec, bands, zarr_format
):
    values = np.random.default_rng(1).integers(0, 4000, (bands, 70, 90), dtype="uint16")
    profile = {"driver": "GTiff", "tiled": True, "blockxsize": 32, "blockysize": 32, **options}
    with rasterio.open(
        tmp_path / "a.tif", "w", height=70, width=90, count=bands, dtype="uint16", **profile
    ) as file:
        file.write(values)
    anychunk.index(tmp_path / "a.tif").save(tmp_path / "i.json", zarr_format=zarr_format)
    array = anychunk.index(tmp_path / "i.json")["0/0/image"]
    names = [str(step["name"]) for step in array.codecs]
    is_ours = any(name.endswith("tiff-tile") for name in names)
    if bands == 1 or zarr_format == 3:
        assert is_ours == (codec == "tiff-tile")
    if codec is not None and not is_ours:
        assert names[-1].endswith(codec)
    found = anychunk.open(tmp_path / "i.json")["0/0/image"][...]
    np.testing.assert_array_equal(found.reshape(values.shape), values)


def test_appended_files_are_as_if_combined_at_once(tmp_path):
    files = {
        str(i): scene(tmp_path, file=f"{i}-", time=f"2026-03-0{i + 1}", tags={"n": str(i)})
        for i in range(3)
    }
    whole = combine(files, "stack")
    target = str(tmp_path / "r.icechunk")
    for name, file in files.items():
        part = combine({name: file}, "stack")
        ice.append(part, target, along=axis_of(part))
    again = anychunk.index(target)
    assert again["0"].attributes == whole["0"].attributes
    for level in (0, 1):
        ours, theirs = (xr.open_dataset(n, engine="anychunk", level=level) for n in (whole, again))
        xr.testing.assert_identical(ours.drop_attrs(), theirs.drop_attrs())
    assert again.attributes["anychunk"]["files"] == 3


def test_a_place_that_differs_is_dropped_when_appending(tmp_path):
    target = str(tmp_path / "r.icechunk")
    moved = Place(crs=PLACE.crs, transform=(10.0, 0.0, 0.0, 0.0, -10.0, 900.0))
    first = combine({"a": scene(tmp_path)}, "stack")
    other = combine({"b": scene(tmp_path, file="b", place=moved)}, "stack")
    ice.append(first, target, along="t")
    with pytest.warns(UserWarning, match="georeference"):
        ice.append(other, target, along="t")
    found = xr.open_zarr(store_of(tmp_path / "r.icechunk"), group="0/0", chunks=None)
    assert "x" not in found.coords
    assert found["image"].sizes["t"] == 2


def test_virtual_datasets_have_coordinates(tmp_path):
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    node = scene(tmp_path)
    level = virtualizarr.single_level(node, "0/1/image", "image")
    store = virtualizarr.to_virtualizarr(level, registry=registry)
    truth = xr.open_dataset(node, engine="anychunk", level=1)
    for loaded in (None, []):
        virtual = store.to_virtual_dataset(loadable_variables=loaded)
        assert set(virtual.coords) == {"x", "y", "c", "spatial_ref", "scale", "offset"}
        again = anychunk.from_virtualizarr(virtual)
        found = xr.open_dataset(again, engine="anychunk")
        xr.testing.assert_equal(found, truth)
    tree = node.to_virtualizarr(registry=registry).to_virtual_datatree()
    again = anychunk.from_virtualizarr(tree)
    found = xr.open_dataset(again, engine="anychunk", level=1)
    xr.testing.assert_equal(found, truth)


@pytest.mark.parametrize(
    ("zarr_format", "compress", "name"),
    [
        (2, None, "{}"),
        (2, "deflate", "{}"),
        (2, "zstd", "{}"),
        (3, None, "/vsikerchunk_json_ref/{{{}}}/0/0/image"),
        (3, "zstd", "/vsikerchunk_json_ref/{{{}}}/0/0/image"),
    ],
)
def test_gdal_opens_kerchunk_json(tmp_path, zarr_format, compress, name):
    """Without templates, which it does not know."""
    if tuple(map(int, rasterio.__gdal_version__.split(".")[:2])) < (3, 11):
        pytest.skip("GDAL before 3.11 does not read kerchunk JSON")
    values = np.random.default_rng(1).integers(1, 4000, (1, 70, 90), dtype="uint16")
    profile = {"driver": "GTiff", "tiled": True, "blockxsize": 32, "blockysize": 32}
    profile |= {"crs": "EPSG:32633", "transform": rasterio.transform.from_origin(500, 900, 10, 10)}
    with rasterio.open(
        tmp_path / "a.tif", "w", height=70, width=90, count=1, dtype="uint16",
        **profile, **({"compress": compress} if compress else {}),
    ) as file:  # fmt: skip
        file.write(values)
        profile = file.profile
    target = tmp_path / "i.json"
    anychunk.index(tmp_path / "a.tif").save(target, zarr_format=zarr_format, relative=False)
    with rasterio.open(f'ZARR:"{name.format(target)}"') as found:
        assert found.crs == profile["crs"]
        assert found.transform == profile["transform"]
        np.testing.assert_array_equal(found.read(), values)
