"""Arrays of a program written as Zarr, read back by zarr, xarray, rioxarray and GDAL."""

import numpy as np
import pytest
import rasterio
import xarray as xr
import zarr

import anychunk
from anychunk.errors import FormatError, UnsupportedError

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
    with pytest.raises(FormatError, match="overwrite"):
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
    anychunk.write(array, tmp_path / "b.zarr")
    with xr.open_dataset(tmp_path / "b.zarr/0", engine="zarr") as found:
        assert "t" not in found.coords


def test_a_type_that_zarr_lacks(tmp_path):
    with pytest.raises(UnsupportedError):
        anychunk.write(np.zeros((2, 2), np.longdouble), tmp_path / "a.zarr")


def test_other_formats_are_still_written(tmp_path):
    anychunk.write(DATA, tmp_path / "a.n5")
    assert (tmp_path / "a.n5/attributes.json").exists()
