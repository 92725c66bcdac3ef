"""Arrays of a program written as Zarr, read back by zarr, xarray, rioxarray and GDAL."""

import json

import numpy as np
import pytest
import rasterio
import tifffile
import xarray as xr
import zarr
from rasterio.transform import Affine

import anychunk
from anychunk.errors import UnsupportedError

DATA = np.random.default_rng(0).integers(0, 5000, (3, 700, 900)).astype("uint16")


@pytest.mark.parametrize("kind", ["numpy", "dask", "zarr"])
def test_arrays(tmp_path, kind):
    import dask.array

    given = {
        "numpy": lambda: DATA,
        "dask": lambda: dask.array.from_array(DATA, chunks=(1, 256, 256)),
        "zarr": lambda: zarr.array(DATA, chunks=(1, 100, 100)),
    }[kind]()
    anychunk.write(given, tmp_path / "a.zarr", axes="cyx")
    group = zarr.open_group(tmp_path / "a.zarr", mode="r", zarr_format=3)
    np.testing.assert_array_equal(group["0/image"][:], DATA)
    assert group["0/image"].metadata.dimension_names == ("c", "y", "x")
    assert group["1/image"].shape == (3, 350, 450)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.zarr"), DATA)
    assert anychunk.open_array(tmp_path / "a.zarr", level=-1).shape == (3, 350, 450)


def test_equal_shapes_are_not_taken_for_equal_arrays(tmp_path):
    anychunk.write(DATA, tmp_path / "a.zarr")
    with pytest.raises(FileExistsError, match="overwrite"):
        anychunk.write(DATA + 1, tmp_path / "a.zarr")
    anychunk.write(DATA + 1, tmp_path / "a.zarr", overwrite=True)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.zarr"), DATA + 1)


def test_a_data_array_keeps_place_bands_and_nodata(tmp_path):
    import rioxarray  # noqa: F401 - the accessor

    given = xr.DataArray(
        DATA,
        dims=("band", "y", "x"),
        coords={
            "band": ["red", "green", "blue"],
            "y": 3751320 - 10 * (np.arange(700) + 0.5),
            "x": 440720 + 10 * (np.arange(900) + 0.5),
        },
        attrs={"_FillValue": 7, "units": "W"},
    ).rio.write_crs("EPSG:32611")
    anychunk.write(given, tmp_path / "a.zarr")
    with rasterio.open(tmp_path / "a.zarr/0") as dataset:
        assert dataset.crs.to_epsg() == 32611
        assert tuple(dataset.transform)[:6] == (10, 0, 440720, 0, -10, 3751320)
        assert dataset.nodata == 7
        np.testing.assert_array_equal(dataset.read(), DATA)
    found = xr.open_zarr(tmp_path / "a.zarr/0", mask_and_scale=False)["image"]
    assert found.dims == ("c", "y", "x")
    assert found["c"].values.tolist() == ["red", "green", "blue"]
    assert found.attrs["units"] == "W"
    np.testing.assert_array_equal(found["x"], given["x"])


def test_dates(tmp_path):
    dates = np.array(["2026-03-01", "2026-03-09"], "datetime64[ns]")
    given = xr.DataArray(DATA[:2], dims=("time", "y", "x"), coords={"time": dates})
    anychunk.write(given, tmp_path / "a.zarr")
    found = xr.open_zarr(tmp_path / "a.zarr/0")["image"]
    assert found.sel(t="2026-03-09").shape[-2:] == (700, 900)


def test_dates_are_exact(tmp_path):
    dates = np.array(["1969-07-20T20:17:40.123457", "2026-03-09T10:11:12.987653"], "datetime64[ns]")
    array = xr.DataArray(DATA[:2], dims=("time", "y", "x"), coords={"time": dates})
    anychunk.write(array, tmp_path / "a.zarr")
    with xr.open_dataset(tmp_path / "a.zarr/0", engine="zarr") as found:
        np.testing.assert_array_equal(found.t.values.astype("datetime64[ns]"), dates)
    array = array.assign_coords(time=[dates[0], np.datetime64("NaT", "ns")])
    with pytest.warns(UserWarning, match="not kept: the coordinates time"):
        anychunk.write(array, tmp_path / "b.zarr")
    with xr.open_dataset(tmp_path / "b.zarr/0", engine="zarr") as found:
        assert "t" not in found.coords


def test_a_type_that_zarr_lacks(tmp_path):
    with pytest.raises(UnsupportedError):
        anychunk.write(np.zeros((2, 2), np.longdouble), tmp_path / "a.zarr")


def test_other_formats_are_still_written(tmp_path):
    anychunk.write(DATA, tmp_path / "a.n5")
    assert (tmp_path / "a.n5/attributes.json").exists()


NOT_PLACED = pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
UTM = Affine(10, 0, 500000, 0, -10, 4000000)


def geotiff(path, data, transform=UTM, *, scales=(), offsets=(), **profile):
    with rasterio.open(
        path, "w", driver="GTiff", width=data.shape[2], height=data.shape[1], count=len(data),
        dtype=data.dtype, transform=transform, crs="EPSG:32633", **profile,
    ) as file:  # fmt: skip
        file.write(data)
        if scales:
            file.scales, file.offsets = scales, offsets
    return path


def opened(path, **options):
    return xr.open_dataset(path, engine="anychunk", **options)["image"]


SMALL = DATA[:, :40, :60]
PARTS = {
    "crop": (lambda a: a.isel(y=slice(5, 30), x=slice(7, 50)), UTM @ Affine.translation(7, 5)),
    "step": (lambda a: a.isel(x=slice(None, None, 3)), UTM @ Affine.translation(-1, 0) @ Affine.scale(3, 1)),
    "flip": (lambda a: a.isel(y=slice(None, None, -1)), Affine(10, 0, 500000, 0, 10, 3999600)),
    "coarsen": (lambda a: a.coarsen(y=2, x=4).mean(), UTM @ Affine.scale(4, 2)),
    "sel": (lambda a: a.sel(x=slice(500100, 500300)), UTM @ Affine.translation(10, 0)),
    "all": (lambda a: a + 1, UTM),
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["a.tif", "a.ome.tif", "a.zarr"])
def test_parts_lie_where_they_are(tmp_path, part, name):
    operate, expected = PARTS[part]
    anychunk.write(operate(opened(geotiff(tmp_path / "s.tif", SMALL))), tmp_path / name)
    with rasterio.open(tmp_path / name / "0" if name.endswith("zarr") else tmp_path / name) as file:
        assert file.crs.to_epsg() == 32633
        np.testing.assert_allclose(tuple(file.transform)[:6], tuple(expected)[:6], rtol=1e-12)


def test_an_image_of_one_row_keeps_its_place(tmp_path):
    anychunk.write(opened(geotiff(tmp_path / "s.tif", SMALL[:, :1])), tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as file:
        assert file.transform == UTM


@NOT_PLACED
def test_a_rotated_image_keeps_its_transform_only_as_a_whole(tmp_path):
    turned = Affine(10, 2, 500000, 3, -10, 4000000)
    path = geotiff(tmp_path / "s.tif", SMALL, turned)
    anychunk.write(opened(path), tmp_path / "a.tif")
    anychunk.write(opened(path).isel(c=[2, 0]), tmp_path / "b.tif")
    for name in ("a.tif", "b.tif"):
        with rasterio.open(tmp_path / name) as file:
            assert file.transform == turned
    for operate in (lambda a: a.isel(x=slice(5)), lambda a: a.load().isel(y=slice(None, None, -1))):
        with pytest.warns(UserWarning, match="not kept: the rotated georeference"):
            anychunk.write(operate(opened(path)), tmp_path / "c.tif", overwrite=True)
        with rasterio.open(tmp_path / "c.tif") as file:
            assert file.transform == Affine.identity()
            assert file.crs.to_epsg() == 32633


@pytest.mark.filterwarnings("ignore:Use `@` matmul")
def test_rotated_parts_that_rioxarray_opened_lie_where_they_are(tmp_path):
    import rioxarray

    turned = Affine(10, 2, 500000, 3, -10, 4000000)
    with rioxarray.open_rasterio(geotiff(tmp_path / "s.tif", SMALL, turned)) as whole:
        anychunk.write(whole.isel(y=slice(4, None, 2), x=slice(None, None, -1)), tmp_path / "a.tif")
    expected = turned @ Affine.translation(60, 3.5) @ Affine.scale(-1, 2)
    with rasterio.open(tmp_path / "a.tif") as file:
        np.testing.assert_allclose(tuple(file.transform)[:6], tuple(expected)[:6], rtol=1e-12)


def test_a_stated_rotation_is_written(tmp_path):
    import rioxarray  # noqa: F401 - the accessor

    turned = Affine(10, 2, 500000, 3, -10, 4000000)
    array = (
        xr.DataArray(SMALL[0], dims=("y", "x"))
        .rio.write_crs("EPSG:32633")
        .rio.write_transform(turned)
    )
    anychunk.write(array, tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as file:
        assert file.transform == turned


@pytest.mark.parametrize("name", ["a.tif", "a.zarr"])
def test_valid_zeros_of_unpacked_samples_stay_valid(tmp_path, name):
    stored = SMALL.copy()
    stored[0, 0, :2] = 0, 10
    path = geotiff(tmp_path / "s.tif", stored, nodata=0, scales=(0.5,) * 3, offsets=(-5.0,) * 3)
    given = opened(path)
    anychunk.write(given.isel(x=slice(0, 30)), tmp_path / name)
    with rasterio.open(tmp_path / name / "0" if name.endswith("zarr") else tmp_path / name) as file:
        assert np.isnan(file.nodata)
        found = file.read(masked=True)
        assert (found[0, 0, 0] is np.ma.masked, found[0, 0, 1]) == (True, 0.0)
        assert (file.scales, file.offsets) == ((1.0,) * 3, (0.0,) * 3)
    np.testing.assert_array_equal(opened(tmp_path / name), given.isel(x=slice(0, 30)))


@NOT_PLACED
def test_nodata_that_the_type_cannot_have(tmp_path):
    array = xr.DataArray(SMALL[0].astype("uint8"), dims=("y", "x"), attrs={"_FillValue": 65535})
    with pytest.warns(UserWarning, match="not kept: nodata 65535, which uint8 cannot represent"):
        anychunk.write(array, tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as file:
        assert file.nodata is None


def test_stored_samples_keep_the_scale_of_each_band(tmp_path):
    scales, offsets = (0.5, 2.0, 1.0), (1.0, 0.0, 3.0)
    path = geotiff(tmp_path / "s.tif", SMALL, scales=scales, offsets=offsets, nodata=7)
    given = opened(path, mask_and_scale=False).isel(c=[2, 0], x=slice(20))
    anychunk.write(given, tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as file:
        assert (file.scales, file.offsets, file.nodata) == ((1.0, 0.5), (3.0, 1.0), 7)
        np.testing.assert_array_equal(file.read(), SMALL[[2, 0], :, :20])
    expected = opened(path).isel(c=[2, 0], x=slice(20))
    for name in ("a.zarr", "a.n5", "a.jnrrd", "a.nrrd"):
        anychunk.write(given, tmp_path / name)
        np.testing.assert_array_equal(opened(tmp_path / name), expected)
    anychunk.write(given.isel(c=1), tmp_path / "b.tif")
    with rasterio.open(tmp_path / "b.tif") as file:
        assert (file.scales, file.offsets) == ((0.5,), (1.0,))


@NOT_PLACED
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int16"])
@pytest.mark.parametrize("name", ["a.tif", "a.zarr", "a.n5"])
def test_masked_arrays(tmp_path, dtype, name):
    given = np.ma.masked_array((SMALL[0] % 200).astype(dtype), SMALL[0] % 7 == 0)
    anychunk.write(given, tmp_path / name)
    if name.endswith("n5"):
        found = opened(tmp_path / name)
        np.testing.assert_array_equal(found, given.astype("float32").filled(np.nan))
        return
    with rasterio.open(tmp_path / name / "0" if name.endswith("zarr") else tmp_path / name) as file:
        found = file.read(1, masked=True)
    np.testing.assert_array_equal(np.ma.getmaskarray(found), given.mask)
    np.testing.assert_array_equal(found.compressed(), given.compressed())


def test_masked_arrays_without_a_free_value(tmp_path):
    import dask.array

    every = np.ma.masked_array(np.arange(256).astype("uint8"), np.arange(256) == -1)
    anychunk.write(every.reshape(16, 16), tmp_path / "a.zarr")  # nothing is masked
    twice = np.ma.concatenate([every, np.ma.masked_all(256, "uint8")]).reshape(2, 16, 16)
    for array in (twice, dask.array.from_array(twice), twice.astype(bool)):
        with pytest.raises(UnsupportedError, match="masked"):
            anychunk.write(array, tmp_path / "b.zarr")


@NOT_PLACED
def test_fill_values_of_floats(tmp_path):
    import tensorstore

    anychunk.write(np.zeros((4, 5), "float32"), tmp_path / "a.zarr")
    where = {"driver": "zarr3", "kvstore": f"file://{tmp_path}/a.zarr/0/image"}
    assert np.isnan(tensorstore.open(where).result().fill_value)
    assert np.isnan(zarr.open_array(tmp_path / "a.zarr/0/image", mode="r").fill_value)
    with rasterio.open(tmp_path / "a.zarr/0") as file:
        assert np.isnan(file.nodata)
        assert not np.ma.is_masked(file.read(masked=True))


STACK = xr.DataArray(
    SMALL,
    dims=("z", "y", "x"),
    coords={
        "z": ("z", 2.0 * np.arange(3) + 1, {"units": "um"}),
        "y": ("y", 0.5 * np.arange(40) - 3, {"units": "um"}),
        "x": ("x", 0.25 * np.arange(60) + 5, {"units": "um"}),
    },
)


def test_sizes_and_origin_in_nrrd(tmp_path):
    import nrrd

    anychunk.write(STACK, tmp_path / "a.nrrd")
    header = nrrd.read_header(str(tmp_path / "a.nrrd"))
    assert header["spacings"].tolist() == [0.25, 0.5, 2.0]
    assert header["units"] == ["um"] * 3
    assert header["axis mins"].tolist() == [4.875, -3.25, 0.0]  # of cells, half a step before
    assert header["centerings"] == ["cell"] * 3
    np.testing.assert_array_equal(nrrd.read(str(tmp_path / "a.nrrd"), index_order="C")[0], SMALL)


def test_sizes_and_origin_in_n5(tmp_path):
    anychunk.write(STACK, tmp_path / "a.n5")
    attributes = json.loads((tmp_path / "a.n5/attributes.json").read_bytes())
    assert attributes["pixelResolution"] == {"dimensions": [0.25, 0.5, 2.0], "unit": "um"}
    assert attributes["transform"]["scale"] == [2.0, 0.5, 0.25]
    assert attributes["transform"]["translate"] == [1.0, -3.0, 5.0]


def test_sizes_in_jnrrd(tmp_path):
    anychunk.write(STACK, tmp_path / "a.jnrrd")
    lines = (tmp_path / "a.jnrrd").read_bytes().split(b"\n")
    assert b'{"spacings": [0.25, 0.5, 2.0]}' in lines
    assert b'{"axis_mins": [4.875, -3.25, 0.0]}' in lines


def test_sizes_in_ome_tiff(tmp_path):
    with pytest.warns(UserWarning, match="not kept: the position of the first element along z"):
        anychunk.write(STACK, tmp_path / "a.ome.tif")
    with tifffile.TiffFile(tmp_path / "a.ome.tif") as file:
        pixels = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]
    assert [pixels[f"PhysicalSize{axis}"] for axis in "XYZ"] == [0.25, 0.5, 2.0]
    assert pixels["PhysicalSizeXUnit"] == "µm"
    anychunk.write(opened(geotiff(tmp_path / "s.tif", SMALL)), tmp_path / "b.ome.tif")
    with tifffile.TiffFile(tmp_path / "b.ome.tif") as file:
        pixels = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]
    assert (pixels["PhysicalSizeX"], pixels["PhysicalSizeXUnit"]) == (10.0, "m")


@pytest.mark.parametrize("name", ["a.nrrd", "a.jnrrd", "a.n5"])
def test_georeferences_in_volumes(tmp_path, name):
    import nrrd

    given = opened(geotiff(tmp_path / "s.tif", SMALL, nodata=3), mask_and_scale=False)
    anychunk.write(given.isel(y=slice(4, None, 2)), tmp_path / name)
    found = opened(tmp_path / name, mask_and_scale=False)
    np.testing.assert_array_equal(found["y"], given["y"][4::2])
    assert found["spatial_ref"].attrs["crs_wkt"] == given["spatial_ref"].attrs["crs_wkt"]
    assert found.attrs["_FillValue"] == 3
    if name.endswith(".nrrd"):
        header = nrrd.read_header(str(tmp_path / name))
        assert header["spacings"].tolist()[:2] == [10, 20]


@pytest.mark.parametrize("name", ["a.nrrd", "a.jnrrd", "a.n5"])
def test_axes_that_a_format_has_no_names_for(tmp_path, name):
    line = STACK.isel(z=0, y=0, drop=True)
    with pytest.warns(UserWarning, match="not kept: the names and positions of the axes x"):
        anychunk.write(line, tmp_path / name)


def test_levels_do_not_mix_bands(tmp_path):
    anychunk.write(opened(geotiff(tmp_path / "s.tif", SMALL)), tmp_path / "a.n5", levels=2)
    group = zarr.open_group(anychunk.open(tmp_path / "a.n5").store, mode="r")
    assert group["s1/image"].shape == (3, 20, 30)


@pytest.fixture
def labels(tmp_path):
    """An OME-Zarr image of labels, as another writer would make it."""
    values = np.random.default_rng(1).choice([1, 100, 200], (64, 64)).astype("uint16")
    group = zarr.open_group(tmp_path / "labels.zarr", mode="w", zarr_format=3)
    group.create_array("0", data=values, dimension_names=("y", "x"))
    scale = [{"type": "scale", "scale": [1.0, 1.0]}]
    group.attrs["ome"] = {
        "version": "0.5",
        "image-label": {"colors": [{"label-value": 1, "rgba": [255, 0, 0, 255]}]},
        "multiscales": [
            {
                "axes": [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}],
                "datasets": [{"path": "0", "coordinateTransformations": scale}],
            }
        ],
    }
    return tmp_path / "labels.zarr", values


@pytest.mark.parametrize("name", ["a.zarr", "a.tif", "a.ome.tif", "a.n5", "a.jnrrd"])
@pytest.mark.parametrize("how", ["convert", "zarr", "xarray"])
def test_levels_of_labels_are_labels(tmp_path, labels, name, how):
    path, values = labels
    if how == "convert":
        anychunk.convert(path, tmp_path / name, levels=2)
    elif how == "zarr":
        anychunk.write(anychunk.open_array(path), tmp_path / name, levels=2)
    else:
        given = xr.open_dataset(path, engine="anychunk")
        anychunk.write(next(iter(given.data_vars.values())), tmp_path / name, levels=2)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / name), values)
    coarse = np.asarray(anychunk.open_array(tmp_path / name, level=1))
    windows = values.reshape(32, 2, 32, 2).swapaxes(1, 2).reshape(32, 32, 4)
    counts = (windows[..., None] == windows[..., None, :]).sum(-1)
    of_coarse = (windows == coarse[..., None]).sum(-1)
    np.testing.assert_array_equal(of_coarse, counts.max(-1))  # no value is more frequent
    if name == "a.zarr":
        stated = zarr.open_group(tmp_path / name, mode="r").attrs["ome"]["image-label"]
        assert stated["colors"][0]["label-value"] == 1
